"""How fast jobs run, by hand."""

import pytest

from placement_cases import cluster
from rota.core import registry
from rota.core.allocation import Allocation
from rota.core.errors import OptionError
from rota.core.jobs import Behaviour, Job, JobSpec, Request, Shape
from rota.models.rates import (
    Locality,
    LocalityParams,
    Product,
    Scaling,
    Sharing,
    SharingParams,
    Types,
    TypesParams,
    Uniform,
    make_rates,
)

MODELS = [Locality, Scaling, Sharing, Types, Uniform]


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    """Let names be found whether or not this version of the package is installed."""
    entries = {kind.name: f"rota.models.rates:{kind.__name__}" for kind in MODELS}
    monkeypatch.setattr(registry, "_entries", lambda group: entries)


def job_of(gpus=2, **behaviour):
    request = Request.of(gpus)
    return Job(JobSpec("j", 0.0, request), Behaviour(100.0, **behaviour), 0, Shape(0, request))


def on(topology, **amounts):
    """Return an allocation by names of nodes: a=2; GPUs of a node are a_0."""
    names = {vertex.name: vertex.id for vertex in topology.vertices}
    return Allocation([(names[name.replace("_", "/")], n) for name, n in amounts.items()])


def holding(topology, **amounts):
    job = job_of()
    job.allocation = on(topology, **amounts)
    return job


def test_uniform_is_always_one():
    topology = cluster(4)
    model = Uniform(topology)
    assert model.unit
    assert not model.neighbours
    assert model.rate(job_of(8), on(topology, a=1), ()) == 1
    assert model.describe() == {"name": "uniform"}


# --- types ----------------------------------------------------------------------------------------


@pytest.fixture
def mixed():
    return cluster((4, {"gpu_type": "v100"}), (4, {"gpu_type": "k80"}), (4, {"gpu_type": "t4"}))


def test_the_slowest_type_decides(mixed):
    model = Types(mixed)
    job = job_of(speeds={"v100": 2.0, "k80": 0.5})
    assert not model.unit
    assert model.rate(job, on(mixed, a=2), ()) == 2
    assert model.rate(job, on(mixed, b=2), ()) == 0.5
    assert model.rate(job, on(mixed, a=1, b=1), ()) == 0.5
    assert model.rate(job, on(mixed, a_1=0.5), ()) == 2  # a device has the type of its node
    assert model.rate(job, on(mixed, c=2), ()) == 1  # nothing is known of it


def test_given_speeds_serve_jobs_that_bring_none(mixed):
    model = Types(mixed, TypesParams(speeds=("v100:1.5", "k80:0.25")))
    assert model.rate(job_of(), on(mixed, a=2), ()) == 1.5
    assert model.rate(job_of(), on(mixed, a=2, b=1), ()) == 0.25
    assert model.rate(job_of(speeds={"k80": 0.75}), on(mixed, b=2), ()) == 0.75
    assert model.rate(job_of(speeds={"k80": 0.75}), on(mixed, a=2), ()) == 1.5


def test_pools_have_types(mixed):
    model = Types(mixed, TypesParams(speeds=("k80:0.25",)))
    pool = mixed.pools[1]
    assert pool.gpu_type == "k80"
    assert model.rate(job_of(), Allocation([(pool.id, 2)]), ()) == 0.25


def test_the_pool_of_one_type_is_the_cluster():
    topology = cluster(4, 4, gpu_type="k80")
    model = Types(topology, TypesParams(speeds=("k80:0.25",)))
    assert model.rate(job_of(), Allocation([(0, 2)]), ()) == 0.25


def test_a_job_without_gpus_has_the_rate_one(mixed):
    allocation = Allocation([], [(mixed.nodes[1].id, "cpu", 4.0)])
    assert Types(mixed, TypesParams(speeds=("k80:0.25",))).rate(job_of(0), allocation, ()) == 1
    assert Scaling(mixed).rate(job_of(0), allocation, ()) == 1
    assert Locality(mixed, LocalityParams(factor=0.5)).rate(job_of(0), allocation, ()) == 1
    assert Sharing(mixed).rate(job_of(0), allocation, ()) == 1


@pytest.mark.parametrize("speeds", ["v100", "v100:fast", "v100:-1", ":", "p100:1"])
def test_wrong_speeds_are_refused(mixed, speeds):
    with pytest.raises(OptionError, match="rates 'types'"):
        make_rates(f"types:speeds={speeds}", mixed)


# --- scaling --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "rate"),
    [
        (1, 0.35),  # half of the way from nothing to the first point
        (2, 0.7),
        (3, 0.85),
        (4, 1.0),
        (6, 1.3),
        (8, 1.6),
        (16, 1.6),  # no more to gain
    ],
)
def test_scaling_is_interpolated(gpus, rate):
    topology = cluster(16)
    job = job_of(4, scaling=[(4, 1.0), (2, 0.7), (8, 1.6)])
    assert Scaling(topology).rate(job, on(topology, a=gpus), ()) == pytest.approx(rate)


@pytest.mark.parametrize(("gpus", "rate"), [(1, 0.25), (4, 1), (8, 2)])
def test_without_a_table_it_is_linear(gpus, rate):
    topology = cluster(8)
    assert Scaling(topology).rate(job_of(4), on(topology, a=gpus), ()) == rate


# --- locality -------------------------------------------------------------------------------------


def test_every_level_costs_a_factor():
    topology = cluster(
        (4, {"path": ("r0", "s0")}),
        (4, {"path": ("r0", "s0")}),
        (4, {"path": ("r0", "s1")}),
        (4, {"path": ("r1", "s2")}),
        levels=("rack", "switch"),
    )
    model = Locality(topology, LocalityParams(factor=0.9))
    assert not model.unit
    assert model.rate(job_of(), on(topology, a=4), ()) == 1
    assert model.rate(job_of(), on(topology, a=2, b=2), ()) == 0.9
    assert model.rate(job_of(), on(topology, a=2, c=2), ()) == pytest.approx(0.81)
    assert model.rate(job_of(), on(topology, a=2, b=2, d=2), ()) == pytest.approx(0.729)
    assert model.describe() == {"name": "locality", "factor": 0.9}


def test_locality_is_off_by_default():
    model = Locality(cluster(4, 4))
    assert model.unit
    assert model.rate(job_of(), on(model.topology, a=1, b=1), ()) == 1


# --- sharing --------------------------------------------------------------------------------------


def test_parts_that_fit_side_by_side_only_disturb_each_other():
    topology = cluster(2)
    model = Sharing(topology, SharingParams(factor=0.8))
    assert model.neighbours
    half = on(topology, a_0=0.5)
    assert model.rate(job_of(0.5), half, []) == 1
    assert model.rate(job_of(0.5), half, [holding(topology, a_0=0.5)]) == 0.8
    two = [holding(topology, a_0=0.25), holding(topology, a_0=0.25)]
    assert model.rate(job_of(0.5), half, two) == pytest.approx(0.64)


def test_too_much_on_a_gpu_is_divided():
    topology = cluster(2)
    model = Sharing(topology)
    others = [holding(topology, a_0=1), holding(topology, a_0=0.5)]
    assert model.rate(job_of(1), on(topology, a_0=1), others) == 0.4
    # the slowest place decides
    assert model.rate(job_of(2), on(topology, a_0=1, a_1=1), others) == 0.4
    assert model.rate(job_of(1), on(topology, a_1=1), others) == 1


def test_whole_gpus_on_one_node_do_not_disturb_each_other_until_there_are_too_few():
    topology = cluster(4)
    model = Sharing(topology, SharingParams(factor=0.5))
    assert model.rate(job_of(2), on(topology, a=2), [holding(topology, a=2)]) == 1
    assert model.rate(job_of(2), on(topology, a=2), [holding(topology, a=6)]) == 0.5


# --- together -------------------------------------------------------------------------------------


def test_effects_are_multiplied(mixed):
    model = make_rates("types:speeds=v100:2/k80:0.5+scaling+locality:factor=0.9", mixed)
    assert model.name == "types+scaling+locality"
    assert not model.unit
    assert not model.neighbours
    job = job_of(4)
    assert model.rate(job, on(mixed, a=2), ()) == 1  # twice as fast, half as many
    assert model.rate(job, on(mixed, a=2, b=2), ()) == pytest.approx(0.45)
    assert model.describe() == {
        "name": "types+scaling+locality",
        "parts": [
            {"name": "types", "speeds": ("v100:2", "k80:0.5")},
            {"name": "scaling"},
            {"name": "locality", "factor": 0.9},
        ],
    }


def test_a_product_promises_what_all_its_parts_promise(mixed):
    assert Product([Uniform(mixed), Locality(mixed)]).unit
    assert not Product([Uniform(mixed), Scaling(mixed)]).unit
    assert Product([Uniform(mixed), Sharing(mixed)]).neighbours


@pytest.mark.parametrize("kind", MODELS)
def test_every_model_is_found_by_its_name(kind, mixed):
    model = make_rates(kind.name, mixed)
    assert type(model) is kind
    assert model.describe()["name"] == kind.name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("typos", "did you mean 'types'"),
        ("uniform+typos", "did you mean 'types'"),
        ("locality:factor=1.5", "cannot use factor=1.5"),
        ("locality:factor=0", "cannot use factor=0"),
        ("uniform:factor=1", "has no parameters"),
    ],
)
def test_wrong_texts_are_refused(text, message, mixed):
    with pytest.raises(OptionError, match=message):
        make_rates(text, mixed)
