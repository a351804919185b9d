"""The dialect `tiresias` against a plain restatement of its rules, on random workloads."""

from bisect import bisect_right
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.topology import NodeSpec, Topology
from rota.reproduce.tiresias.dialect import TiresiasDialect
from rota.reproduce.tiresias.loop import IndexTable

LIMITS = [3250, 7200]

# --- the rules, restated without any care for speed -----------------------------------------------


@dataclass(eq=False)
class Ticket:
    number: int
    submit: int
    gpus: int
    duration: int
    level: int = 0
    runs: bool = False
    total: int = 0
    executed: int = 0  # since the last promotion
    waited: int = 0
    preempted: int = 0
    end: int | None = None


def tickets(rows):
    made = [Ticket(i, *row) for i, row in enumerate(rows)]
    return made, sorted(made, key=lambda t: t.submit)


def outcome(made):
    return [(t.end, t.preempted, "done") for t in made]


def switch(chosen, active):
    """Who is chosen runs, the others are preempted."""
    for t in active:
        if t.runs and t not in chosen:
            t.preempted += 1
        t.runs = t in chosen


def greedy(order, capacity):
    chosen = []
    for t in order:
        if t.gpus <= capacity:
            capacity -= t.gpus
            chosen.append(t)
    return chosen


def ranked(rows, capacity, key):
    """`sjf`, `shortest`, `shortest-gpu`: one persistent list and a stable sort."""
    made, coming = tickets(rows)
    active, now = [], 0
    while coming or active:
        ends = [now + t.duration - t.total for t in active if t.runs]
        then = min(ends + [t.submit for t in coming[:1]])
        for t in active:
            if t.runs:
                t.total += then - now
        now = then
        for t in [t for t in active if t.total == t.duration]:
            t.end = now
            active.remove(t)
        while coming and coming[0].submit == now:
            active.append(coming.pop(0))
        active.sort(key=key)
        switch(greedy(active, capacity), active)
    return outcome(made)


def queued(rows, capacity, *, by_service=True, promote=0, index=None):  # noqa: C901 - as a list
    """`dlas`, `dlas-gpu`, `dlas-gpu-K`, `dlas-gpu-gittins`: the seven steps of one event."""
    made, coming = tickets(rows)
    active, queues, now, jump = [], [[], [], []], 0, inf

    def attained(t):
        return t.executed * t.gpus if by_service else t.executed

    def move(t, level):
        queues[t.level].remove(t)
        queues[level].append(t)
        t.level = level

    while coming or active:
        ends = [now + t.duration - t.total for t in active if t.runs]
        then = min([jump, *ends, *(t.submit for t in coming[:1])])
        for t in active:
            if t.runs:
                t.total += then - now
                t.executed += then - now
            elif t.executed:
                t.waited += then - now
        now = then
        for t in [t for t in active if t.total == t.duration]:
            t.end = now
            active.remove(t)
            queues[t.level].remove(t)
        while coming and coming[0].submit == now:
            active.append(coming[0])
            queues[0].append(coming.pop(0))
        for t in active:
            if t.runs and t.level < 2 and attained(t) >= LIMITS[t.level]:
                move(t, t.level + 1)
            elif starves(t, promote) and t.waited >= int(t.executed * promote):
                t.executed = t.waited = 0
                move(t, 0)
        if index:
            for queue in queues:
                queue.sort(key=lambda t: (-index(attained(t)), t.submit))
        switch(greedy([t for queue in queues for t in queue], capacity), active)
        for queue in queues:
            queue.sort(key=lambda t: not t.runs)
        jumps = [
            now + (LIMITS[t.level] - t.executed) // (t.gpus if by_service else 1)
            for t in active
            if t.runs and t.level < 2
        ]
        left = [int(t.executed * promote - t.waited) for t in active if starves(t, promote)]
        jump = min([inf, *jumps, *(now + wait for wait in left if wait > 0)])
    return outcome(made)


def starves(t, promote):
    return promote and not t.runs and t.level > 0 and t.executed > 0


def gittins(samples, delta=3250):
    """The index by attained service, with whole-number division and halves rounded up."""
    sizes = sorted(samples)

    def rounded(value, digits):
        return float(Decimal(value).quantize(Decimal(10) ** -digits, ROUND_HALF_UP))

    def index(attained):
        if attained >= sizes[-1]:
            return 0.0
        age = sizes[bisect_right(sizes, attained)] - 1
        alive = [size for size in sizes if size > age]
        if age + delta > sizes[-1] - 1:
            ends, stays = alive[:-1], 1
        else:
            ends = [size for size in alive if size <= age + delta]
            stays = len(alive) - len(ends)
        chance = rounded(len(ends) / len(alive), 5)
        return rounded(chance * 1_000_000 / ((sum(ends) + delta * stays) // len(alive)), 4)

    return index


def first_come(rows, place, *, strict):
    """`fifo` and `fjf`; `place(job, running)` says whether and where it fits."""
    made, coming = tickets(rows)
    waiting, running, now = [], {}, 0
    while coming or waiting or running:
        ends = [now + t.duration - t.total for t in running]
        then = min(ends + [t.submit for t in coming[:1]])
        for t in running:
            t.total += then - now
        now = then
        for t in [t for t in running if t.total == t.duration]:
            t.end = now
            del running[t]
        while coming and coming[0].submit == now:
            waiting.append(coming.pop(0))
        for t in list(waiting):
            found = place(t, running)
            if found is not None:
                waiting.remove(t)
                running[t] = found
            elif strict:
                break
    return outcome(made)


def counted(capacity):
    def place(t, running):
        return () if t.gpus + sum(r.gpus for r in running) <= capacity else None

    return place


def yarn(switches, nodes, size, cpus, mem):
    """First fit below each switch in turn."""

    def needs(gpus, part):
        if gpus <= size:
            return part, 2 if gpus == 1 else 6 * gpus, 5
        return part, 6 * part, (6 + 0.1 * gpus + 5) * part

    def place(t, running):
        free = {n: [size, cpus, mem] for n in range(switches * nodes)}
        for r, where in running.items():
            for n, part in where:
                free[n] = [a - b for a, b in zip(free[n], needs(r.gpus, part), strict=True)]

        def fits(n, part):
            return all(a >= b for a, b in zip(free[n], needs(t.gpus, part), strict=True))

        for first in range(0, switches * nodes, nodes):
            below = range(first, first + nodes)
            if t.gpus <= size:
                where = [(n, t.gpus) for n in below if fits(n, t.gpus)][:1]
            else:
                full = [n for n in below if free[n][0] == size and fits(n, size)][: t.gpus // size]
                rest = t.gpus % size
                ends = [n for n in below if n not in full and rest and fits(n, rest)][:1]
                where = [(n, size) for n in full] + [(n, rest) for n in ends]
            if sum(part for _, part in where) == t.gpus:
                return where
        return None

    return place


# --- random workloads: many ties, odd sizes, tiny clusters ----------------------------------------

CLUSTERS = st.sampled_from([(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (2, 4), (3, 4), (4, 8)])
TIMES = st.one_of(
    st.sampled_from([0, 1, 2, 5, 406, 1083, 3249, 3250, 3251, 3950, 7200, 7201]),
    st.integers(0, 40).map(lambda n: 100 * n),
    st.integers(0, 9000),
)
DURATIONS = st.one_of(
    st.sampled_from([1, 2, 3, 100, 406, 407, 812, 1083, 1625, 3249, 3250, 3251, 3950, 7200, 11150]),
    st.integers(1, 15_000),
)


@st.composite
def cases(draw, max_jobs=14):
    nodes, size = draw(CLUSTERS)
    sizes = st.one_of(
        st.sampled_from([n for n in (1, 2, 4, 8) if n <= nodes * size]),
        st.integers(1, nodes * size),
    )
    rows = draw(st.lists(st.tuples(TIMES, sizes, DURATIONS), min_size=1, max_size=max_jobs))
    return (nodes, size), rows


@given(cases())
def test_las_is_the_restated_dlas(lab, case):
    cluster, rows = case
    expected = queued(rows, cluster[0] * cluster[1], by_service=False)
    assert lab.simulate(TiresiasDialect(), "las", cluster, rows) == expected


@given(cases())
def test_tiresias_is_the_restated_dlas_gpu(lab, case):
    cluster, rows = case
    expected = queued(rows, cluster[0] * cluster[1])
    assert lab.simulate(TiresiasDialect(), "tiresias", cluster, rows) == expected


@given(cases(), st.sampled_from([0.1, 0.3, 0.5, 1, 2, 4, 8, 100]))
def test_promotion_is_the_restated_one(lab, case, promote):
    cluster, rows = case
    expected = queued(rows, cluster[0] * cluster[1], promote=promote)
    assert lab.simulate(TiresiasDialect(), f"tiresias:promote={promote}", cluster, rows) == expected


SAMPLES = st.lists(
    st.one_of(st.sampled_from([1, 2, 3250, 3251, 6500, 10_000]), st.integers(1, 40_000)),
    min_size=1,
    max_size=80,
)


@given(cases(), SAMPLES)
def test_gittins_is_the_restated_one(lab, tmp_path_factory, case, samples):
    cluster, rows = case
    path = tmp_path_factory.mktemp("samples") / "samples.csv"
    path.write_text("duration\n" + "".join(f"{sample}\n" for sample in samples))
    expected = queued(rows, cluster[0] * cluster[1], index=gittins(samples))
    assert (
        lab.simulate(TiresiasDialect(), f"gittins:distribution={path}", cluster, rows) == expected
    )


@given(SAMPLES, st.integers(0, 50_000))
def test_the_index_table_is_the_restated_one(samples, attained):
    table = IndexTable(samples)
    assert table.rank(attained)[0] == gittins(samples)(attained)
    assert table.indices == [gittins(samples)(size - 1) for size in sorted(samples)]


def test_the_index_rounds_halves_as_python_2_did():
    samples = [*[10_000] * 63, 1]  # 1 of 64 ends within the quantum: 0.015625
    assert IndexTable(samples).indices[0] == pytest.approx(0.01563 * 1e6 / 3199, abs=1e-4)


@pytest.mark.parametrize(
    ("policy", "key"),
    [
        ("smallest", lambda t: t.gpus),
        ("srtf", lambda t: t.duration - t.total),
        ("srsf", lambda t: (t.duration - t.total) * t.gpus),
    ],
)
@given(case=cases())
def test_sorted_policies_are_the_restated_ones(lab, policy, key, case):
    cluster, rows = case
    expected = ranked(rows, cluster[0] * cluster[1], key)
    assert lab.simulate(TiresiasDialect(), policy, cluster, rows) == expected


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip"])
@given(case=cases())
def test_first_come_policies_are_the_restated_ones(lab, policy, case):
    cluster, rows = case
    place = counted(cluster[0] * cluster[1])
    expected = first_come(rows, place, strict=policy == "fifo")
    assert lab.simulate(TiresiasDialect(), policy, cluster, rows) == expected


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip"])
@given(
    data=st.data(),
    switches=st.integers(1, 3),
    nodes=st.integers(1, 4),
    size=st.integers(1, 5),
    cpus_per_gpu=st.sampled_from([6, 7, 16]),
    mem=st.sampled_from([60, 64, 512]),
)
def test_yarn_is_the_restated_one(lab, policy, data, switches, nodes, size, cpus_per_gpu, mem):
    cpus = cpus_per_gpu * size
    place = yarn(switches, nodes, size, cpus, mem)
    largest = nodes * size  # below one switch
    sizes = [n for n in range(1, largest + 1) if place(Ticket(0, 0, n, 1), {}) is not None]
    row = st.tuples(TIMES, st.sampled_from(sizes), DURATIONS)
    rows = data.draw(st.lists(row, min_size=1, max_size=14))
    topology = Topology(
        [
            NodeSpec(f"s{s}n{n}", size, "", cpus, mem, path=(f"s{s}",))
            for s in range(switches)
            for n in range(nodes)
        ],
        levels=("switch",),
    )
    expected = first_come(rows, place, strict=policy == "fifo")
    assert lab.simulate(TiresiasDialect(), policy, topology, rows, placement="yarn") == expected


# --- by hand --------------------------------------------------------------------------------------


def test_a_job_on_eight_gpus_drops_late(lab):
    # 3250 // 8 = 406 s gives 3248 GPU-s: not enough, and the next look is 355 s later, at 761 s
    rows = [(0, 8, 2000), (500, 8, 100), (700, 8, 100)]
    ends = [end for end, _, _ in lab.simulate(TiresiasDialect(), "tiresias", (1, 8), rows)]
    assert ends == [2200, 600, 800]  # at 500 s it has 4000 GPU-s: the arrival makes it drop


def test_jobs_that_can_never_run_are_rejected_and_the_rest_goes_on(lab):
    for policy in ("fifo", "smallest", "srtf", "las", "tiresias"):
        states = lab.simulate(TiresiasDialect(), policy, (2, 4), [(0, 9, 10), (0, 2, 10)])
        assert [state for *_, state in states] == ["rejected", "done"]


def test_yarn_rejects_what_no_switch_can_hold(lab):
    nodes = [NodeSpec(f"n{n}", 2, path=(f"s{n}",)) for n in range(2)]
    cluster = Topology(nodes, levels=("switch",))
    states = lab.simulate(
        TiresiasDialect(), "fifo", cluster, [(0, 3, 10), (0, 2, 10)], placement="yarn"
    )
    assert [state for *_, state in states] == ["rejected", "done"]


def test_yarn_means_count_for_the_queues(lab):
    rows = [(0, 3, 5000), (0, 3, 5000), (10, 2, 5000)]
    for policy in ("las", "tiresias"):
        counted_only = lab.simulate(TiresiasDialect(), policy, (2, 4), rows)
        assert (
            lab.simulate(TiresiasDialect(), policy, (2, 4), rows, placement="yarn") == counted_only
        )


def test_count_ignores_declared_cpus_and_memory(lab):
    cluster = Topology([NodeSpec(f"n{n}", 4, cpus=1, mem_gib=1) for n in range(2)])
    for policy in ("fifo", "tiresias"):
        assert lab.simulate(TiresiasDialect(), policy, cluster, [(0, 8, 10)]) == [(10, 0, "done")]
