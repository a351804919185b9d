"""Tiresias' placement: only skewed models are consolidated."""

import pytest

from placement_cases import Maker, cluster, put, where
from rota.core.jobs import Request
from rota.core.registry import parse_params
from rota.placement.skew import SKEWED, Skew, SkewParams


@pytest.fixture
def maker():
    return Maker()


def start(placement, maker, gpus, model):
    request = placement.refine(maker.job(gpus, model=model).spec)
    return where(placement.topology, maker.start(placement, request).allocation)


def test_skewed_models_wait_for_a_node_and_the_others_do_not(maker):
    placement = Skew(cluster(4, 4, 4))
    put(placement, maker, a=2, b=3)
    assert start(placement, maker, 5, "resnet50") == {"a": 2, "b": 1, "c": 2}
    marked = maker.shape(placement.refine(maker.job(3, model="vgg16").spec))
    assert not placement.fits(marked)
    assert not placement.fits(maker.shape(3))
    assert placement.fits(maker.shape(2))


def test_the_others_take_nodes_in_order_even_if_one_node_could_hold_them(maker):
    placement = Skew(cluster(4, 4))
    put(placement, maker, a=3)
    assert start(placement, maker, 3, "") == {"a": 1, "b": 2}


def test_skewed_models_take_the_best_fit(maker):
    placement = Skew(cluster(4, 4, 4))
    put(placement, maker, a=1, b=2)
    assert start(placement, maker, 2, "vgg19") == {"b": 2}
    assert start(placement, maker, 6, "alexnet") == {"c": 4, "a": 2}


@pytest.mark.parametrize("model", ["vgg16", "VGG-16", "Vgg_16", "alexnet", "AlexNet", "vgg 11"])
def test_names_are_compared_without_case_and_punctuation(maker, model):
    assert SKEWED in Skew(cluster(4)).refine(maker.job(2, model=model).spec).labels


@pytest.mark.parametrize("model", ["", "resnet50", "inception4", "vgg", "-"])
def test_other_models_keep_their_request(maker, model):
    job = maker.job(2, model=model)
    assert Skew(cluster(4)).refine(job.spec) is job.spec.request


def test_equal_requests_are_refined_to_one_object(maker):
    placement = Skew(cluster(4))
    first, second = maker.job(2, model="vgg16"), maker.job(2, model="vgg19")
    assert placement.refine(first.spec) is placement.refine(second.spec)
    fast = maker.job(Request.of(2, labels=("ssd",)), model="vgg16")
    assert placement.refine(fast.spec).labels == ("ssd", SKEWED)


def test_the_models_are_a_parameter(maker):
    params = parse_params("skew", Skew.Parameters, {"models": "BERT-large/gpt2"})
    assert params == SkewParams(models=("BERT-large", "gpt2"))
    placement = Skew(cluster(4), params)
    assert SKEWED in placement.refine(maker.job(1, model="bertlarge").spec).labels
    assert SKEWED not in placement.refine(maker.job(1, model="vgg16").spec).labels


def test_a_skewed_part_of_a_gpu_is_placed_like_any_other(maker):
    placement = Skew(cluster(1, 1))
    assert start(placement, maker, 0.5, "vgg16") == {"a/0": 0.5}
    assert start(placement, maker, 0.5, "resnet50") == {"a/0": 0.5}
