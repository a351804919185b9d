"""The dialects `helios` and `lucid` against a plain restatement of their rules, by the second."""

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.errors import OptionError
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.engine import snapshot
from rota.reproduce.helios.dialect import HeliosDialect
from rota.reproduce.loop import PlannedCosts
from rota.reproduce.lucid.dialect import LucidDialect
from rota.study import dialect as base

POLICIES = [
    (kind, name)
    for kind in (HeliosDialect, LucidDialect)
    for name in kind.policies
    if name != "lucid"  # see test_lucid.py
]
BASELINES = [name for kind, name in POLICIES if kind is LucidDialect]
PREEMPTIVE = {"srtf", "tiresias"}

# --- the rules, restated without any care for speed -----------------------------------------------


@dataclass(eq=False)
class Ticket:
    submit: int
    gpus: int
    duration: int
    where: list | None = None
    rank: int | None = None
    service: int = 0
    preempted: int = 0
    end: int | None = None

    def __post_init__(self):
        self.remain = self.duration


def place(need, free, size):
    """Put the job on nodes: one that it nearly fills, or idle ones and the emptiest other."""
    if need <= size:
        fitting = [node for node, room in enumerate(free) if room >= need]
        return [(min(fitting, key=lambda node: free[node]), need)] if fitting else None
    where = []
    for node in sorted(range(len(free)), key=lambda node: free[node], reverse=True):
        part = min(need, size)
        if free[node] < part:
            return None
        where.append((node, part))
        need -= part
        if not need:
            return where
    return None


class Clock:
    """The loop of one virtual cluster."""

    def __init__(self, rows, nodes, size, policy, overheads):
        self.made = [Ticket(*row) for row in rows]
        self.coming = sorted(self.made, key=lambda t: t.submit)
        self.free, self.size, self.total = [size] * nodes, size, nodes * size
        self.policy, self.overheads = policy, overheads
        self.queue, self.run, self.now = [], [], 0

    def outcome(self):
        while self.coming or self.queue or self.run:
            self.finish()
            new = [t for t in self.coming if t.submit == self.now]
            self.coming = self.coming[len(new) :]
            self.queue += new
            if self.policy in PREEMPTIVE:
                self.share()
            else:
                self.serve(len(new))
            self.now += 1
        return [(t.end, t.preempted, "done") for t in self.made]

    def finish(self):
        late = self.policy in PREEMPTIVE
        for t in self.run[:]:
            if t.remain > (0 if late else 1):
                t.remain -= 1
                t.service += t.gpus
            else:
                t.end = self.now
                self.run.remove(t)
                self.vacate(t)

    def vacate(self, t):
        for node, part in t.where:
            self.free[node] += part
        t.where = None

    def start(self, t):
        t.where = place(t.gpus, self.free, self.size)
        if t.where is None:
            return False
        for node, part in t.where:
            self.free[node] -= part
        self.queue.remove(t)
        self.run.append(t)
        return True

    def serve(self, new):
        if self.policy == "fifo":
            self.queue.sort(key=lambda t: t.submit)
        elif self.policy == "sjf":
            self.queue.sort(key=lambda t: t.duration)
        else:
            self.queue.sort(key=lambda t: t.gpus)
            if len(self.queue) > new:
                self.queue.sort(key=lambda t: t.duration * t.gpus)
        for t in self.queue[:]:
            if not self.start(t):
                break

    def share(self):
        if self.policy == "srtf":
            order = sorted(self.queue + self.run, key=lambda t: t.remain)
        elif self.now % 60 == 0:
            order = sorted(self.run + self.queue, key=lambda t: (t.service > 18000, t.submit))
        else:
            return
        quota, chosen, victims = self.total, [], []
        for t in order:
            if t.gpus <= quota:
                quota -= t.gpus
                if not t.where:
                    chosen.append(t)
            elif t.where:
                victims.append(t)
        for t in victims:
            one, few, many = self.overheads
            t.preempted += 1
            t.remain += one if t.gpus == 1 else few if t.gpus <= 8 else many
            self.vacate(t)
            self.run.remove(t)
            self.queue.append(t)
        for t in chosen:
            self.start(t)


OVERHEADS = {HeliosDialect: (7, 30, 60), LucidDialect: (40, 40, 60)}

# --- random workloads -----------------------------------------------------------------------------


@st.composite
def cases(draw, *, scale=1):
    nodes, size = draw(st.sampled_from([(1, 1), (1, 4), (2, 2), (3, 3), (4, 2), (2, 8), (3, 8)]))
    sizes = st.one_of(
        st.sampled_from([n for n in (1, 2, 4, 8, 16) if n <= nodes * size]),
        st.integers(1, nodes * size),
    )
    times = st.one_of(st.sampled_from([0, 0, 1, 10, 60]), st.integers(0, 120))
    durations = st.one_of(st.sampled_from([1, 2, 10, 60]), st.integers(1, 150))
    rows = draw(st.lists(st.tuples(times, sizes, durations), min_size=1, max_size=14))
    return (nodes, size), [(submit, gpus, scale * duration) for submit, gpus, duration in rows]


@pytest.mark.parametrize(("kind", "policy"), POLICIES)
@given(case=cases())
def test_jobs_run_as_the_restated_loop_has_it(lab, kind, policy, case):
    (nodes, size), rows = case
    expected = Clock(rows, nodes, size, policy, OVERHEADS[kind]).outcome()
    assert lab.simulate(kind(), policy, (nodes, size), rows, costs=PlannedCosts()) == expected


@settings(max_examples=settings().max_examples // 4)  # long jobs, and the loop counts seconds
@given(case=cases(scale=60))
def test_long_jobs_fall_to_the_lower_queue_as_in_the_restated_loop(lab, case):
    (nodes, size), rows = case
    expected = Clock(rows, nodes, size, "tiresias", OVERHEADS[LucidDialect]).outcome()
    assert (
        lab.simulate(LucidDialect(), "tiresias", (nodes, size), rows, costs=PlannedCosts())
        == expected
    )


# --- by hand --------------------------------------------------------------------------------------


def ends(lab, policy, cluster, rows, kind=HeliosDialect):
    return [end for end, *_ in lab.simulate(kind(), policy, cluster, rows, costs=PlannedCosts())]


def test_nobody_passes_a_job_without_a_place(lab):
    rows = [(0, 6, 100), (1, 4, 10), (2, 1, 10)]
    assert ends(lab, "fifo", (1, 8), rows) == [100, 110, 110]


def test_the_shortest_job_goes_first_but_nobody_is_stopped(lab):
    rows = [(0, 8, 100), (1, 8, 50), (2, 8, 10)]
    assert ends(lab, "sjf", (1, 8), rows) == [100, 160, 110]


def test_new_jobs_are_ranked_by_gpus_and_only_then_by_service(lab):
    rows = [(0, 1, 100), (0, 2, 1), (0, 2, 10)]
    # alone: one GPU first, although it has the most work; the others follow by their work
    assert ends(lab, "qssf", (1, 2), rows) == [100, 101, 111]
    # behind a job that waits: by work
    late = [(0, 2, 10), (1, 2, 20), *((submit + 5, *row) for submit, *row in rows)]
    assert ends(lab, "qssf", (1, 2), late) == [10, 41, 141, 11, 21]


def test_a_preempted_job_pays_and_every_job_ends_late(lab):
    assert ends(lab, "srtf", (1, 8), [(0, 8, 100), (10, 8, 20)]) == [152, 31]
    assert ends(lab, "srtf", (1, 8), [(0, 1, 100), (10, 8, 20)]) == [129, 31]
    assert ends(lab, "srtf", (2, 8), [(0, 9, 100), (10, 8, 20)]) == [182, 31]
    assert ends(lab, "srtf", (1, 8), [(0, 1, 100), (10, 8, 20)], LucidDialect) == [162, 31]


def test_overhead_can_exceed_the_work_done(lab):
    # it ran for 1 s, and has 7 s more to do than before
    assert ends(lab, "srtf", (1, 1), [(0, 1, 100), (1, 1, 20)]) == [22 + 99 + 7 + 1, 22]


def test_a_victim_leaves_for_a_job_that_then_finds_no_place(lab):
    # two on each node; when the first is over and the longest has left, 1 GPU is free on each
    rows = [(0, 1, 10), (0, 1, 1000), (0, 1, 1001), (0, 1, 1002), (12, 2, 5)]
    outcome = lab.simulate(HeliosDialect(), "srtf", (2, 2), rows, costs=PlannedCosts())
    assert [end for end, *_ in outcome] == [11, 1001, 1002, 1001 + 1002 - 12 + 7 + 1, 1007]
    assert [preemptions for _, preemptions, _ in outcome] == [0, 0, 0, 1, 0]


def test_tiresias_decides_once_a_minute(lab):
    assert ends(lab, "tiresias", (1, 8), [(0, 1, 10), (1, 1, 10)], LucidDialect) == [11, 71]


def test_tiresias_serves_the_lower_queue_last(lab):
    rows = [(0, 8, 3000), (1, 8, 60)]  # 18000 GPU-seconds are over after 2250 s
    outcome = lab.simulate(LucidDialect(), "tiresias", (1, 8), rows, costs=PlannedCosts())
    assert outcome == [(2400 + 3000 - 2280 + 40 + 1, 1, "done"), (2341, 0, "done")]


def test_the_limit_and_the_round_of_tiresias_can_be_set(lab):
    rows = [(0, 8, 100), (1, 8, 10)]
    assert ends(lab, "tiresias:limit=80,round=20", (1, 8), rows, LucidDialect) == [
        40 + 80 + 40 + 1,
        31,
    ]


# --- longer stories -------------------------------------------------------------------------------

CLUSTER = (2, 4)
ROWS = st.lists(
    st.tuples(st.integers(0, 200), st.integers(1, 8), st.integers(1, 300)), min_size=4, max_size=14
)
FEWER = settings(max_examples=settings().max_examples // 4)  # there are many policies


@pytest.mark.parametrize(("kind", "policy"), POLICIES)
@FEWER
@given(rows=ROWS, at_s=st.integers(0, 600))
def test_a_resumed_run_writes_the_log_of_an_uninterrupted_one(lab, kind, policy, rows, at_s):
    whole = lab.engine_for(kind(), policy, CLUSTER, rows, costs=PlannedCosts())
    whole.run()
    first = lab.engine_for(kind(), policy, CLUSTER, rows, costs=PlannedCosts())
    first.run(at_s)
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot.freeze(first)))
    second = lab.engine_for(kind(), policy, CLUSTER, rows, costs=PlannedCosts())
    snapshot.restore(second, state)
    second.run()
    for engine in (whole, second):
        engine.log.pack()
    same = second.log._packed == whole.log._packed  # long: not shown when they differ
    assert same
    assert lab.outcome(second) == lab.outcome(whole)


@pytest.mark.parametrize(("kind", "policy"), POLICIES)
@FEWER
@given(rows=ROWS, down_s=st.integers(0, 300), for_s=st.integers(1, 300), node=st.integers(0, 1))
def test_jobs_survive_the_failure_of_a_node(lab, kind, policy, rows, down_s, for_s, node):
    outages = [(down_s, NODE_DOWN, node), (down_s + for_s, NODE_UP, node)]
    outcome = lab.simulate(kind(), policy, CLUSTER, rows, costs=PlannedCosts(), outages=outages)
    assert [state for *_, state in outcome] == ["done"] * len(rows)


def test_a_run_resumes_while_a_node_is_down(lab):
    rows, outages = [(0, 4, 50), (0, 4, 50)], [(10, NODE_DOWN, 0), (100, NODE_UP, 0)]
    first = lab.engine_for(
        HeliosDialect(), "srtf", CLUSTER, rows, costs=PlannedCosts(), outages=outages
    )
    first.run(20)
    second = lab.engine_for(
        HeliosDialect(), "srtf", CLUSTER, rows, costs=PlannedCosts(), outages=outages
    )
    snapshot.restore(second, snapshot.freeze(first))
    second.run()
    # the failure costs no overhead; only one node is left until 51
    assert [end for end, *_ in lab.outcome(second)] == [51 + 50 - 9 + 1, 51]


@pytest.mark.parametrize(("kind", "policy"), POLICIES)
@FEWER
@given(rows=ROWS, at_s=st.integers(0, 600), which=st.integers(0, 13))
def test_a_cancelled_job_leaves_no_trace(lab, kind, policy, rows, at_s, which):
    engine = lab.engine_for(kind(), policy, CLUSTER, rows, costs=PlannedCosts())
    engine.run(at_s)
    active = list(engine.view.active.values())
    if active:
        engine.cancel(active[which % len(active)], None, engine.view.now_s)
    engine.run()
    assert engine.view.active == {}
    states = [state for *_, state in lab.outcome(engine)]
    assert states.count("done") == len(rows) - bool(active)


@pytest.mark.parametrize(("kind", "policy"), POLICIES)
@FEWER
@given(rows=ROWS)
def test_costs_given_by_the_user_are_honoured(lab, kind, policy, rows):
    free = lab.simulate(kind(), policy, CLUSTER, rows)  # no overhead, and no late second
    last_end = max(end for end, *_ in free)
    assert last_end <= max(submit for submit, *_ in rows) + 60 * len(rows) + sum(
        duration for *_, duration in rows
    )


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [HeliosDialect, LucidDialect])
def test_it_says_what_it_is(kind):
    dialect = kind()
    assert dialect.description
    assert "20" in dialect.source
    assert (dialect.costs, dialect.placement, dialect.wake) == ("planned", "consolidate", None)
    assert any(name.startswith("departure") for name in dialect.notes)
    assert f"{OVERHEADS[kind][0]} s with 1 GPU" in dialect.notes["overhead"]


@pytest.mark.parametrize(("kind", "policy"), POLICIES)
def test_every_policy_can_be_built(kind, policy):
    dialect = kind()
    assert dialect.build(policy, None, Topology.uniform(2, 8), seed=0).name == policy
    assert (dialect.wake is not None) == (policy == "tiresias")


@pytest.mark.parametrize(
    ("kind", "policy", "placement", "message"),
    [
        (HeliosDialect, "tiresias", None, "it knows fifo, sjf, srtf, qssf"),
        (LucidDialect, "gandiva", None, "knows no policy 'gandiva'"),
        (HeliosDialect, "fifo", "count", "leave --placement out"),
        (HeliosDialect, "fifo:strict=no", None, "no parameters"),
        (HeliosDialect, "srtf:overhead=1", None, "no parameters"),
        (LucidDialect, "tiresias:round=0", None, "round of at least 1"),
        (LucidDialect, "tiresias:limit=-1", None, "limit=-1"),
        (LucidDialect, "tiresias:limits=1", None, "did you mean 'limit'"),
    ],
)
def test_what_cannot_be_honoured_is_refused(kind, policy, placement, message):
    with pytest.raises(OptionError, match=message):
        kind().build(policy, placement, Topology.uniform(2, 8), seed=0)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([NodeSpec("a", 4), NodeSpec("b", 8)], "nodes of 4 and 8 GPUs"),
        ([NodeSpec("a", 8, "v100"), NodeSpec("b", 8, "k80")], "one type of GPU"),
    ],
)
def test_unequal_nodes_are_refused(nodes, message):
    with pytest.raises(OptionError, match=message):
        HeliosDialect().build("fifo", None, Topology(nodes), seed=0)


@pytest.mark.parametrize("policy", BASELINES)
def test_requests_that_mean_nothing_here_are_rejected(lab, policy):
    requests = [Request.of(0.5), Request.of(9), Request.of(1, gpu_types=("v100",)), Request.of(8)]
    jobs = Workload(
        [JobSpec(str(i), 0.0, request) for i, request in enumerate(requests)],
        [Behaviour(10.0)] * len(requests),
    )
    outcome = lab.simulate(LucidDialect(), policy, CLUSTER, jobs, costs=PlannedCosts())
    assert [state for *_, state in outcome] == ["rejected"] * 3 + ["done"]


def test_it_is_found_through_the_registry(monkeypatch):
    monkeypatch.setattr(
        base, "load", lambda group, name: {"helios": HeliosDialect, "lucid": LucidDialect}[name]
    )
    assert [type(base.create(name)) for name in ("helios", "lucid")] == [
        HeliosDialect,
        LucidDialect,
    ]
