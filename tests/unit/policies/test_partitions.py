"""Partitions are queues of their own: worked examples. Random ones: tests/property."""

import msgspec
import pytest

from decisions import engine, run, starts
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.jobs import Behaviour, JobSpec, Request, Shape
from rota.core.log import Record
from rota.core.reasons import Reason
from rota.core.registry import POLICIES, load
from rota.core.topology import NodeSpec
from rota.engine.snapshot import freeze, restore
from rota.placement.base import Placement
from rota.placement.consolidate import consolidate
from rota.placement.count import count
from rota.placement.spread import Spread
from rota.policies.easy import Backfill, Easy
from rota.policies.fifo import Fifo
from rota.testing.policy_checks import EveryEvent

TWO = [NodeSpec("a", 8, labels=("main",)), NodeSpec("b", 8, labels=("debug",))]
DOORS = [Fifo, lambda: EveryEvent(Fifo())]


def job(name, gpus, work, where=(), *, at=0.0, types=()):
    request = Request.of(gpus, labels=where, gpu_types=types)
    return JobSpec(name, at, request, estimate_s=work), Behaviour(work)


@pytest.mark.parametrize("door", DOORS)
def test_a_debug_job_does_not_wait_behind_another_partition(door):
    jobs = [
        job("first", 8, 100, ("main",)),
        job("blocked", 8, 100, ("main",), at=1),
        job("debug", 1, 5, ("debug",), at=2),
        job("behind", 1, 5, ("main",), at=3),
    ]
    made = run(door(), jobs, TWO, placement="consolidate")
    assert starts(made) == {"first": 0, "blocked": 100, "debug": 2, "behind": 200}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("placement", ["count", "consolidate"])
def test_gpu_types_are_partitions_too(door, placement):
    nodes = [NodeSpec("a", 4, "a100"), NodeSpec("k", 4, "k80")]
    jobs = [
        job("first", 4, 100, types=("a100",)),
        job("blocked", 4, 100, types=("a100",), at=1),
        job("other", 4, 5, types=("k80",), at=2),
    ]
    made = run(door(), jobs, nodes, placement=placement)
    assert starts(made) == {"first": 0, "blocked": 100, "other": 2}


@pytest.mark.parametrize("door", DOORS)
def test_who_is_held_back_holds_back_others(door):
    """`both` could use either node: it waits behind `blocked`, and `debug` waits behind it."""
    jobs = [
        job("first", 8, 100, ("main",)),
        job("blocked", 8, 100, ("main",), at=1),
        job("both", 8, 10, at=2),
        job("debug", 1, 5, ("debug",), at=3),
    ]
    made = run(door(), jobs, TWO, placement="consolidate")
    assert starts(made) == {"first": 0, "blocked": 100, "both": 100, "debug": 110}


@pytest.mark.parametrize("door", DOORS)
def test_a_head_whose_nodes_are_down_holds_back_nobody_elsewhere(door):
    jobs = [
        job("blocked", 8, 100, ("main",), at=1),
        job("both", 8, 10, at=2),
        job("later", 8, 10, ("main",), at=20),
    ]
    outages = [(0.5, NODE_DOWN, 0), (50.0, NODE_UP, 0)]
    made = run(door(), jobs, TWO, placement="consolidate", outages=outages)
    assert starts(made) == {"blocked": 50, "both": 2, "later": 150}


def test_every_blocked_head_is_told_its_own_reason():
    jobs = [
        job("a1", 8, 100, ("main",)),
        job("b1", 6, 50, ("debug",)),
        job("a2", 4, 10, ("main",), at=1),  # 2 GPUs are free in all
        job("b2", 1, 10, ("main",), at=2),
        job("b3", 5, 10, ("debug",), at=3),
    ]
    made = run(Fifo(), jobs, TWO, placement="consolidate")
    flat = [*made.log._packed, *made.log.rows]
    table = [flat[i : i + 6] for i in range(0, len(flat), 6)]
    shapes = {j.id: j.shape.number for j in made.jobs.values()}
    heads = [
        (t, shape, Reason(int(reason)))
        for t, kind, _, shape, _, reason in table
        if kind == Record.REASON and shape >= 0 and t < 50
    ]
    assert (1, shapes["a2"], Reason.CAPACITY) in heads
    assert (3, shapes["b3"], Reason.CAPACITY) in heads
    assert not [row for row in heads if row[2] == Reason.NONE]  # neither clears the other's


def test_easy_reserves_for_the_head_of_every_partition():
    """The second head waits 7,080 s; without a reservation it was 72,060 s."""
    jobs = [
        job("main-runs", 8, 100_000, ("main",)),
        job("debug-runs", 4, 7_140, ("debug",)),
        job("main-head", 8, 10, ("main",), at=10),
        job("debug-head", 8, 10, ("debug",), at=60),
        job("twenty-hours", 4, 72_000, ("debug",), at=120),
        job("short", 4, 7_000, ("debug",), at=130),
    ]
    began = starts(run(Easy(), jobs, TWO, placement="consolidate"))
    assert began["debug-head"] - 60 == 7_080
    assert began["twenty-hours"] == 7_150
    assert began["short"] == 130  # ends in time


@pytest.fixture
def asked(monkeypatch):
    """Whom `easy` tries to start."""
    found = []
    start = Backfill.start

    def watched(turn, one):
        found.append(one.id)
        return start(turn, one)

    monkeypatch.setattr(Backfill, "start", watched)
    return found


def test_easy_looks_only_at_partitions_where_something_has_happened(asked):
    """An end in one partition is no news for those who wait in the other."""
    jobs = [
        job("main-runs", 8, 1_000, ("main",)),
        job("debug-runs", 8, 50, ("debug",)),
        job("main-head", 8, 10, ("main",), at=1),
        job("main-next", 4, 10, ("main",), at=2),
        job("debug-head", 8, 100, ("debug",), at=3),
        job("debug-next", 8, 10, ("debug",), at=4),
    ]
    policy = Easy()
    made = engine(policy, jobs, TWO, placement="consolidate")
    while made.view.now_s < 50:
        asked.clear()
        made.advance()
    assert asked == ["debug-head", "debug-next"]
    assert sorted(policy.reservations.values()) == [150, 1_000]  # the other head's promise holds
    made.run()
    assert starts(made)["main-next"] == 1_010


def test_what_easy_starts_itself_is_no_news(asked):
    """Who was looked at when it started need not be looked at again because it did."""
    jobs = [
        job("main-runs", 4, 1_000, ("main",)),
        job("main-head", 8, 10, ("main",), at=1),
        job("main-next", 8, 10, ("main",), at=2),
        job("main-short", 4, 100, ("main",), at=3),  # starts beside the promise
        job("debug", 1, 10, ("debug",), at=4),
    ]
    policy = Easy()
    made = engine(policy, jobs, TWO, placement="consolidate")
    while made.view.now_s < 4:
        asked.clear()
        made.advance()
    assert asked == ["debug"]
    assert list(policy.reservations.values()) == [1_000]


def test_who_was_held_back_by_a_promise_is_looked_at_when_somebody_takes_that_place():
    """`long` would go to the head's node, until `short` has taken what is free there."""
    nodes = [NodeSpec(name, 8, labels=("main",)) for name in "xy"] + TWO[1:]
    jobs = [
        job("on-x", 5, 100, ("main",)),
        job("on-y", 4, 1_000, ("main",)),
        job("head", 8, 10, ("main",), at=1),
        job("long", 2, 500, ("main",), at=2),
        job("short", 3, 50, ("main",), at=3),
        job("elsewhere", 1, 1, ("debug",), at=4),  # the next event, wherever it is
    ]
    began = starts(run(Easy(), jobs, nodes, placement="consolidate"))
    assert began["short"] == 3
    assert began["long"] == 4
    assert began["head"] == 100


def test_easy_promises_nothing_to_who_waits_behind_a_competitor():
    """`both` is between the heads: it delays neither, and nobody is head while it waits first."""
    policy = Easy()
    jobs = [
        job("main-runs", 8, 100, ("main",)),
        job("debug-runs", 8, 50, ("debug",)),
        job("main-head", 8, 10, ("main",), at=1),
        job("both", 4, 1_000, at=2),
        job("debug-next", 8, 10, ("debug",), at=3),
        job("tiny", 1, 1, ("debug",), at=4),
    ]
    made = engine(policy, jobs, TWO, placement="consolidate")
    while made.view.now_s < 4:
        made.advance()
    # the first head; the others while nothing is free need none
    assert list(policy.reservations.values()) == [100]
    made.run()
    assert starts(made)["both"] == 50
    assert starts(made)["main-head"] == 100


@pytest.mark.parametrize(
    ("kind", "gpus", "labels", "nodes"),
    [
        (consolidate, 1, (), 0b111),
        (consolidate, 3, (), 0b110),  # one node of that size: it waits for such a one
        (Spread, 3, (), 0b111),
        (consolidate, 1, ("x",), 0b011),
        (consolidate, 9, (), 0b111),
        (consolidate, 5, ("x",), 0b011),
        (consolidate, 7, ("x",), 0),  # never
    ],
)
def test_eligible_nodes(kind, gpus, labels, nodes):
    specs = [NodeSpec("a", 2, labels=("x",)), NodeSpec("b", 4, labels=("x",)), NodeSpec("c", 4)]
    made = engine(Fifo(), [job("j", gpus, 1, labels)], specs, placement=kind)
    placement: Placement = made.scheduler.placement
    shape = job("j", gpus, 1, labels)[0].request
    assert placement.eligible(_shape(shape)) == nodes
    placement.set_node(placement.topology.nodes[1], up=False)
    assert placement.eligible(_shape(shape)) == nodes & ~0b010


def test_eligible_pools():
    specs = [NodeSpec("a", 2, "a100"), NodeSpec("b", 4, "k80"), NodeSpec("c", 4, "k80")]
    placement = engine(Fifo(), [job("j", 1, 1)], specs, placement=count).scheduler.placement
    assert placement.eligible(_shape(Request.of(7))) == 0b11  # a pool counts, types may mix
    assert placement.eligible(_shape(Request.of(1, gpu_types=("k80",)), 2)) == 0b10
    for node in placement.topology.nodes[1:]:
        placement.set_node(node, up=False)
    assert placement.eligible(_shape(Request.of(7))) == 0b01
    assert placement.gpus_on(0b11) == 2


def _shape(request, number=1):
    return Shape(number, request)


def test_a_resumed_run_knows_who_is_held_back():
    """The newcomer after the restart is compared with who waits in its own partition only."""
    jobs = [
        job("first", 8, 100, ("main",)),
        job("blocked", 8, 100, ("main",), at=1),
        job("debug", 1, 5, ("debug",), at=20),
        job("behind", 1, 5, ("main",), at=30),
    ]
    made = engine(load(POLICIES, "fifo")(), jobs, TWO, placement="consolidate")
    while made.view.now_s < 1:
        made.advance()
    again = engine(load(POLICIES, "fifo")(), jobs, TWO, placement="consolidate")
    restore(again, msgspec.msgpack.decode(msgspec.msgpack.encode(freeze(made))))
    assert again.scheduler.packer.stuck == made.scheduler.packer.stuck == {0b01: (1, 1)}
    again.run()
    assert starts(again) == {"first": 0, "blocked": 100, "debug": 20, "behind": 200}
