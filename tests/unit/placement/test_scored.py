"""Placements that score all nodes: which node and GPU wins, ties, and what FGD learns."""

import pytest

from placement_cases import Maker, cluster, put, where
from rota.core.errors import OptionError
from rota.core.jobs import JobSpec, Request, TaskGroup
from rota.core.topology import NodeSpec, Topology
from rota.placement.dot_product import DotProduct
from rota.placement.fgd import Fgd
from rota.placement.gpu_clustering import GpuClustering
from rota.placement.gpu_packing import GpuPacking
from rota.placement.kubernetes import KubernetesFit, KubernetesFitParams
from rota.placement.scored import ScoredParams
from rota.reproduce.fgd.dialect import Anywhere, LeastLeft

EVERY = [Anywhere, DotProduct, Fgd, GpuClustering, GpuPacking, KubernetesFit, LeastLeft]


@pytest.fixture
def maker():
    return Maker()


def place(placement, maker, gpus=1, **asked):
    return where(placement.topology, maker.start(placement, gpus, **asked).allocation)


every = pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)


@every
def test_a_job_stays_on_one_node_unless_none_could_ever_hold_it(kind, maker):
    placement = kind(cluster(4, 4, 4))
    put(placement, maker, a=2, b=2, c=2)
    assert not placement.fits(maker.shape(3))
    assert placement.never(maker.shape(3)) is None
    assert len(place(placement, maker, 6)) == 3


@every
def test_several_gpus_of_one_task_are_on_one_node(kind, maker):
    placement = kind(cluster(2, 2, 8))
    one = Request((TaskGroup("worker", 1, 4),), apart=True)
    assert place(placement, maker, one) == {"c": 4}
    put(placement, maker, c=1)
    assert not placement.fits(maker.shape(one))
    assert placement.never(maker.shape(Request((TaskGroup("worker", 1, 9),), apart=True)))


@every
def test_thirds_of_a_gpu_share_one(kind, maker):
    placement = kind(cluster(1, cpus=1.0))
    for _ in range(3):
        assert list(place(placement, maker, 1 / 3, cpus=1 / 3)) == ["a/0"]
    assert not placement.fits(maker.shape(0.001))
    assert not placement.fits(maker.shape(1.5))


@every
def test_exact_amounts_decide(kind, maker):
    placement = kind(cluster(1))
    maker.start(placement, 0.4998)
    assert placement.fits(maker.shape(0.5002))
    assert not placement.fits(maker.shape(0.50021))  # thousandths cannot tell them apart


def test_ties_go_to_the_first_or_as_the_file_says(maker, tmp_path):
    order = tmp_path / "order.csv"
    order.write_text("rank,node\n0,c\n1,a\n")
    topology = cluster(4, 4, 4)
    assert place(LeastLeft(topology), maker) == {"a": 1}
    ranked = LeastLeft(topology, ScoredParams(node_order=str(order)))
    assert place(ranked, maker) == {"c": 1}
    assert ranked.machines.order == [2, 0, 1]  # whom the file does not name comes last


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read"),
        ("rank,name\n0,a\n", "needs a column `node`"),
        ("", "needs a column `node`"),
        ("rank,node\n0,z\n", "the cluster has no node 'z'"),
        ("rank,node\n0\n", "row 2 names no node"),
    ],
)
def test_orders_that_cannot_be_used(tmp_path, text, message):
    path = tmp_path / "order.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(OptionError, match=message):
        LeastLeft(cluster(1), ScoredParams(node_order=str(path)))


def test_whole_gpus_are_named_on_request(maker):
    placement = GpuPacking(cluster(4))
    placement.names_gpus = True
    assert place(placement, maker, 0.5) == {"a/0": 0.5}
    assert place(placement, maker, 2) == {"a/1": 1, "a/2": 1}
    job = maker.start(placement, 1)
    assert where(placement.topology, job.allocation) == {"a/3": 1}
    placement.give(job, job.allocation)
    assert place(placement, maker, 0.6) == {"a/3": 0.6}


def test_parts_begin_at_the_end_where_whole_gpus_have_no_names(maker):
    placement = GpuPacking(cluster(4))
    assert place(placement, maker, 2) == {"a": 2}
    assert place(placement, maker, 0.5) == {"a/3": 0.5}
    assert place(placement, maker, 0.6) == {"a/2": 0.6}
    assert place(placement, maker, 0.5) == {"a/3": 0.5}


# --- formulas -------------------------------------------------------------------------------------


def test_least_left_and_dot_product(maker):
    topology = cluster((8, {"cpus": 128}), (4, {"cpus": 64}), (4, {"cpus": 32}))
    assert place(LeastLeft(topology), maker, 2, cpus=8.0) == {"c": 2}
    assert place(DotProduct(topology), maker, 2, cpus=16.0) == {"c": 2}
    assert place(LeastLeft(topology), maker, 2, cpus=40.0) == {"b": 2}


def test_gpu_packing_shares_then_fills_then_breaks_into_an_idle_node(maker):
    placement = GpuPacking(cluster(2, 2, 8))
    put(placement, maker, b=1)
    assert place(placement, maker, 0.5) == {"b/1": 0.5}  # a node in use before an idle one
    assert place(placement, maker, 0.4) == {"b/1": 0.4}  # a shared GPU before a free one
    assert place(placement, maker, 1) == {"a": 1}  # of idle nodes the small one
    assert place(placement, maker, 0, cpus=1.0) == {"a": 0}


def test_gpu_clustering_keeps_like_with_like(maker):
    placement = GpuClustering(cluster(4, 4, 4))
    assert place(placement, maker, 1) == {"a": 1}
    assert list(place(placement, maker, 0.5)) == ["b/3"]
    assert place(placement, maker, 1) == {"a": 1}
    two = maker.start(placement, 2)
    assert where(placement.topology, two.allocation) == {"c": 2}
    placement.give(two, two.allocation)
    assert list(place(placement, maker, 0.6)) == ["b/2"]


def test_kubernetes_spreads_and_balances(maker):
    topology = cluster(4, 4, cpus=32.0, mem_gib=64.0)
    placement = KubernetesFit(topology)
    assert place(placement, maker, 1, cpus=8.0, mem_gib=16.0) == {"a": 1}
    assert place(placement, maker, 1, cpus=8.0, mem_gib=16.0) == {"b": 1}
    # the same is free on both: where it is balanced wins
    other = KubernetesFit(topology)
    assert place(other, maker, 0, cpus=16.0, mem_gib=8.0) == {"a": 0}
    assert place(other, maker, 0, cpus=12.0, mem_gib=24.0) == {"b": 0}
    assert place(other, maker, 0, cpus=2.0, mem_gib=12.0) == {"a": 0}


def test_kubernetes_counts_gpus_where_nothing_else_is_declared_or_on_request(maker):
    placement = KubernetesFit(cluster(4, 4))
    assert [place(placement, maker) for _ in range(3)] == [{"a": 1}, {"b": 1}, {"a": 1}]
    rich = cluster(4, 4, cpus=32.0)
    assert [place(KubernetesFit(rich), maker) for _ in range(2)] == [{"a": 1}] * 2
    weighed = KubernetesFit(rich, KubernetesFitParams(gpu_weight=1.0))
    assert [place(weighed, maker) for _ in range(2)] == [{"a": 1}, {"b": 1}]


def test_anywhere_is_even_and_can_be_repeated(maker):
    topology = cluster(4, 4, 4, 4)
    seen = set()
    for _ in range(60):
        job = maker.job(0.5)
        one, same = Anywhere(topology, seed=3), Anywhere(topology, seed=3)
        assert one.fits(job.shape)
        chosen = one.take(job)
        assert chosen == same.take(job)
        seen.add(chosen.slices[0][0])
    assert len(seen) > 3


# --- FGD ------------------------------------------------------------------------------------------

HALVES = [(Request.of(0.5), 5), (Request.of(1), 4), (Request.of(4), 1)]


def test_fgd_does_not_break_what_others_need(maker):
    placement = Fgd(cluster(4, 4))
    placement.expect(HALVES)
    first = place(placement, maker, 0.5)
    node = next(iter(first))[0]
    assert list(place(placement, maker, 0.5)) == list(first)  # the other half of the same GPU
    assert place(placement, maker, 1) == {node: 1}
    assert place(placement, maker, 4) == {({"a", "b"} - {node}).pop(): 4}


@pytest.mark.parametrize("nodes", [1, 20])  # looked at one by one, and all at once
def test_fgd_fills_a_gpu_that_is_shared_where_nothing_else_tells_gpus_apart(nodes, maker):
    names = [f"n{number}" for number in range(nodes)]
    placement = Fgd(Topology([NodeSpec(name, 4) for name in names]))
    placement.expect([(Request.of(0.5), 1)])  # for halves it does not matter which GPU is halved
    halves = [place(placement, maker, 0.5) for _ in range(3)]
    assert halves == [{"n0/3": 0.5}, {"n0/3": 0.5}, {"n0/2": 0.5}]

    named = Fgd(Topology([NodeSpec(name, 4) for name in names]))
    named.names_gpus = True
    named.expect([(Request.of(0.5), 1)])
    assert [place(named, maker, 0.5) for _ in range(2)] == [{"n0/0": 0.5}, {"n0/0": 0.5}]
    maker.start(named, 1)
    assert list(place(named, maker, 0.25)) == ["n0/2"]  # the first of equals
    assert list(place(named, maker, 0.25)) == ["n0/2"]


def test_fgd_without_a_target_takes_the_first(maker):
    assert place(Fgd(cluster(2, 2)), maker, 1) == {"a": 1}


def test_fgd_learns_from_what_is_asked_and_goes_on_after_a_restart(maker):
    placement = Fgd(cluster(4, 4))
    requests = [Request.of(0.5), Request.of(1), Request.of(0.5), Request.of(4)] * 5
    for number, request in enumerate(requests):
        assert placement.refine(JobSpec(f"j{number}", 0.0, request)) is request
    learnt = placement.target
    assert {each.part for each in learnt.classes} == {500, 1000}
    again = Fgd(cluster(4, 4))
    again.restore(placement.snapshot())
    assert again.target.classes == learnt.classes
    assert again.target.weights.tolist() == learnt.weights.tolist()
    assert again.snapshot() == placement.snapshot()
    for one in (placement, again):
        for number in range(9):
            one.refine(JobSpec(f"k{number}", 0.0, Request.of(2)))
    assert again.target.classes == placement.target.classes
    assert 2 in {each.gpus for each in again.target.classes}


def test_what_was_told_beforehand_is_not_learnt(maker):
    placement = Fgd(cluster(4))
    placement.expect(HALVES)
    for _ in range(9):
        placement.refine(JobSpec("j", 0.0, Request.of(2)))
    assert 2 not in {each.gpus for each in placement.target.classes}
    assert placement.snapshot() == {}


def test_only_nodes_that_changed_are_scored_again(maker):
    placement = Fgd(cluster(*[4] * 20))
    placement.expect(HALVES)
    place(placement, maker, 0.5)
    assert placement.scored == 20
    for _ in range(10):
        place(placement, maker, 0.5)
    assert placement.scored <= 20 + 10


def test_a_long_life_does_not_fill_the_memory(maker, monkeypatch):
    monkeypatch.setattr("rota.placement.scored.CHANGES", 0.01)
    monkeypatch.setattr("rota.placement.scored.REMEMBERED", 3)
    monkeypatch.setattr("rota.placement.fgd.REMEMBERED", 2)
    short, long = Fgd(cluster(4, 4)), Fgd(cluster(4, 4))
    for placement in (short, long):
        placement.expect(HALVES)
    for number in range(40):
        part = (1 + number % 9) / 10
        job = maker.start(long, part)
        long.give(job, job.allocation)
    assert len(long._changes) < 10
    assert len(long._known) <= 3
    assert place(long, maker, 0.5) == place(short, maker, 0.5)
