"""The dialect `blox` against a plain restatement of its rules, on random workloads."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.errors import OptionError
from rota.core.topology import NodeSpec, Topology
from rota.reproduce.blox.dialect import BloxDialect, BloxParams

# --- the rules, restated without any care for speed -----------------------------------------------


@dataclass(eq=False)
class Ticket:
    submit: int
    gpus: int
    duration: int
    served: int = 0
    where: list | None = None
    ran: bool = False
    preempted: int = 0
    end: int | None = None
    state: str = "done"


def place(need, free, *, fixed):
    """Nodes in order; the bug is to ask each for the whole job."""
    where, missing = [], need
    for node, room in enumerate(free):
        take = min(room, missing if fixed else need)
        if take:
            where.append((node, take))
        missing -= take
        if missing == 0:
            return where
    return None


def rounds(rows, nodes, size, key, *, length=300, fixed=False):
    made = [Ticket(*row) for row in rows]
    coming = sorted(made, key=lambda t: t.submit)
    free, active, now = [size] * nodes, [], 0

    def vacate(t):
        for node, count in t.where:
            free[node] += count
        t.where = None

    while coming or active:
        for t in [t for t in active if t.where]:
            t.served += length
            if t.served >= t.duration:
                t.end = now
                vacate(t)
                active.remove(t)
        while coming and coming[0].submit <= now:
            active.append(coming.pop(0))
        walk(sorted(active, key=key), active, free, vacate, nodes * size, fixed=fixed)
        now += length
        if coming and not active:
            now = max(now, -(-coming[0].submit // length) * length)
    return [(t.end, t.preempted, t.state) for t in made]


def walk(order, active, free, vacate, total, *, fixed):
    for position, t in enumerate(order):
        if t.where:
            continue
        where = place(t.gpus, free, fixed=fixed)
        for victim in reversed(order[position + 1 :]):
            if where is None and victim.where:
                vacate(victim)
                victim.preempted += 1
                where = place(t.gpus, free, fixed=fixed)
        if where is not None:
            t.where, t.ran = where, True
            for node, count in where:
                free[node] -= count
        elif sum(free) == total:  # our departure: Blox would try for ever
            t.state = "cancelled" if t.ran else "rejected"
            active.remove(t)
        else:
            return


KEYS = {
    "fifo": lambda t: t.submit,
    "las": lambda t: t.served,
    "tiresias": lambda t: t.served,
    "srtf": lambda t: t.duration - t.served,
}

# --- random workloads -----------------------------------------------------------------------------

TIMES = st.one_of(
    st.sampled_from([0, 1, 299, 300, 301, 600, 900, 3000, 30_000]),
    st.integers(0, 4000),
)
DURATIONS = st.one_of(
    st.sampled_from([1, 299, 300, 301, 599, 600, 601, 1200, 3000]), st.integers(1, 5000)
)


@st.composite
def cases(draw):
    nodes, size = draw(st.sampled_from([(1, 1), (1, 4), (2, 2), (2, 3), (3, 4), (4, 1), (5, 2)]))
    sizes = st.one_of(
        st.sampled_from([n for n in (1, 2, 4, 8) if n <= nodes * size]),
        st.integers(1, nodes * size),
    )
    rows = draw(st.lists(st.tuples(TIMES, sizes, DURATIONS), min_size=1, max_size=16))
    return (nodes, size), rows


@pytest.mark.parametrize("policy", KEYS)
@given(
    case=cases(),
    fixed=st.booleans(),
    length=st.sampled_from([300, 300, 60, 77, 450]),
)
def test_rounds_are_the_restated_ones(lab, policy, case, fixed, length):
    cluster, rows = case
    dialect = BloxDialect(BloxParams(round=length, scatter="fixed" if fixed else "blox"))
    expected = rounds(rows, *cluster, KEYS[policy], length=length, fixed=fixed)
    assert lab.simulate(dialect, policy, cluster, rows) == expected


# --- by hand --------------------------------------------------------------------------------------


def test_arrivals_wait_for_the_round_and_jobs_end_with_it(lab):
    rows = [(0, 1, 100), (1, 1, 100), (300, 1, 301), (301, 1, 300)]
    ends = [end for end, _, _ in lab.simulate(BloxDialect(), "fifo", (1, 4), rows)]
    assert ends == [300, 600, 900, 900]


def test_an_overshoot_is_no_place_unless_it_is_repaired(lab):
    rows = [(0, 3, 3000), (1, 2, 300)]  # 1 and 4 GPUs are free when the second comes
    dialects = BloxDialect(), BloxDialect(BloxParams(scatter="fixed"))
    ends = [[end for end, *_ in lab.simulate(d, "fifo", (2, 4), rows)] for d in dialects]
    assert ends == [[3000, 3300], [3000, 600]]


def test_a_job_that_finds_no_place_on_the_empty_cluster_is_rejected(lab):
    engine = lab.engine_for(BloxDialect(), "fifo", (2, 4), [(10, 6, 600), (20, 1, 600)])
    engine.run()
    assert lab.outcome(engine) == [(None, 0, "rejected"), (900, 0, "done")]
    (message,) = [text for text in engine.log.texts.values() if "for ever" in text]
    assert "6 GPUs" in message
    assert "blox:scatter=fixed" in message


def test_the_same_job_runs_where_a_part_of_a_node_is_taken(lab):
    rows = [(0, 2, 900), (0, 6, 300)]  # 2 and 4 GPUs are free
    outcome = lab.simulate(BloxDialect(), "fifo", (2, 4), rows)
    assert outcome == [(900, 0, "done"), (300, 0, "done")]


def test_a_job_evicted_and_placed_again_in_one_round_is_preempted(lab):
    # with 1 and 3 GPUs free a job of 3 overshoots: the other is evicted, and moves to the next node
    outcome = lab.simulate(BloxDialect(), "las", (2, 3), [(0, 2, 3000), (301, 3, 300)])
    assert outcome == [(3000, 1, "done"), (900, 0, "done")]


def test_idle_rounds_are_skipped(lab):
    engine = lab.engine_for(BloxDialect(), "fifo", (1, 4), [(0, 1, 100), (30_000_000, 1, 100)])
    engine.run()
    assert [end for end, *_ in lab.outcome(engine)] == [300, 30_000_300]
    assert engine.decisions < 10


def test_a_job_larger_than_the_cluster_is_rejected(lab):
    outcome = lab.simulate(BloxDialect(), "srtf", (1, 4), [(0, 5, 10), (0, 4, 10)])
    assert outcome == [(None, 0, "rejected"), (300, 0, "done")]


def test_an_uneven_cluster_is_walked_node_by_node(lab):
    cluster = Topology([NodeSpec("a", 1), NodeSpec("b", 3)])
    assert lab.simulate(BloxDialect(), "fifo", cluster, [(0, 4, 10)]) == [(300, 0, "done")]
    assert lab.simulate(BloxDialect(), "fifo", cluster, [(0, 2, 10)])[0][2] == "rejected"


def test_the_message_tells_a_round_that_is_none():
    with pytest.raises(OptionError, match="round=0"):
        BloxDialect(BloxParams(round=0))
