"""Lucid's own policy in its simulator, against a plain restatement of its rules, by the second."""

import csv

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.errors import InputError, OptionError
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.jobs import Behaviour, JobSpec, Phase, Request
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.engine import snapshot
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.models.colocation import Colocation, KindProfile, MeasuredPair, load_colocation
from rota.reproduce.loop import PlannedCosts
from rota.reproduce.lucid.dialect import LucidDialect
from rota.reproduce.lucid.loop import Countdown, SecondsRates, seconds_until_end
from rota.sim.cluster import SimCluster
from rota.study.config import RunConfig
from rota.study.run import simulate

KINDS = [
    # model, dataset, batch, amp, memory in MiB, label
    ("small", "d", 32, 0, 2000, 0),
    ("medium", "d", 32, 0, 9000, 1),
    ("large", "d", 64, 1, 16000, 1),
    ("jumbo", "d", 64, 0, 4000, 2),
    ("NeuMF", "d", 64, 0, 2050, 0),
]
SPEEDS = [0.983, 0.7, 1.034, 0.451, 0.919, 1.0, 0.5, 0.655, 0.8, 0.25]


def write_folder(folder):
    with (folder / "single_profiles.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(
            [
                "model",
                "dataset",
                "batchsize",
                "amp",
                "speed",
                "gpu_util",
                "gmem_util",
                "gmem",
                "label",
            ]
        )
        for model, dataset, batch, amp, memory, label in KINDS:
            rows.writerow([model, dataset, batch, amp, 1.5, 50, 20, float(memory), label])
    with (folder / "pair_speeds.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(
            ["", *["model1", "dataset1", "gpu_num1", "batchsize1", "amp1", "speed1"],
             *["model2", "dataset2", "gpu_num2", "batchsize2", "amp2", "speed2"]]
        )  # fmt: skip
        for number, (one, two, speed1, speed2) in enumerate(pairs()):
            rows.writerow([number, *one[:2], 1, *one[2:4], speed1, *two[:2], 1, *two[2:4], speed2])
    return str(folder)


def pairs():
    """Each pair of kinds once, in one of its two orders."""
    found = []
    for i, one in enumerate(KINDS):
        for j, two in enumerate(KINDS[i:]):
            first, second = (one, two) if j % 2 else (two, one)
            number = len(found)
            found.append((first, second, SPEEDS[number % 10], SPEEDS[(3 * number + 1) % 10]))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("profiles"))


# --- the rules, restated without any care for speed -----------------------------------------------


class Ticket:
    def __init__(self, index, submit, gpus, duration):
        self.submit, self.gpus, self.remain = submit, gpus, duration
        self.model, *self.rest, self.memory, self.label = KINDS[7 * index % len(KINDS)]
        self.priority = duration * gpus
        self.speed, self.alone, self.partner, self.role = 1, True, None, None
        self.start = self.end = self.where = None


def speeds_of(a, b):
    if "NeuMF" in (a.model, b.model):
        return 1, 1
    for one, two, speed1, speed2 in pairs():
        if (one[0], two[0]) == (a.model, b.model):
            return speed1, speed2
        if (two[0], one[0]) == (a.model, b.model):
            return speed2, speed1
    raise AssertionError


def place(need, free, size):
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


def restated(rows, nodes, size):
    made = [Ticket(index, *row) for index, row in enumerate(rows)]
    coming = sorted(made, key=lambda t: t.submit)
    free, queue, run, now = [size] * nodes, [], [], 0
    while coming or queue or run:
        for t in run[:]:
            if t.remain > 0:
                t.remain -= t.speed
                continue
            t.end = now
            run.remove(t)
            leave(t, free)
        while coming and coming[0].submit == now:
            queue.append(coming.pop(0))
        queue.sort(key=lambda t: t.priority)
        for t in queue[:]:
            host = next((o for o in run if suits(t, o)), None)
            if host is not None:
                t.speed, host.speed = speeds_of(t, host)
                t.alone = host.alone = False
                t.partner, host.partner, t.role, host.role = host, t, "guest", "host"
            else:
                t.where = place(t.gpus, free, size)
                if t.where is None:
                    continue
                for node, part in t.where:
                    free[node] -= part
            t.start = now
            queue.remove(t)
            run.append(t)
        now += 1
    return [(t.start, t.end) for t in made]


def leave(t, free):
    other, t.partner = t.partner, None
    if other is None:
        for node, part in t.where:
            free[node] += part
        return
    other.partner = None
    if t.role == "guest":
        other.speed, other.alone = 1, True
    else:  # nobody tells the guest
        other.where = t.where


def suits(t, o):
    return (
        t.gpus <= 8
        and o.alone
        and o.gpus == t.gpus
        and o.memory < 24576 - t.memory
        and o.label + t.label <= 2
        and t.priority <= 2 * o.priority
    )


# --- ours -----------------------------------------------------------------------------------------


def engine_for(folder, cluster, rows, *, models=None, outages=(), checker=None):
    dialect, topology = LucidDialect(), Topology.uniform(*cluster)
    scheduler = dialect.build(f"lucid:profiles={folder}", None, topology, seed=0)
    names = models or [""] * len(rows)
    jobs = Workload(
        [
            JobSpec(str(i), float(s), Request.of(n), model=names[i])
            for i, (s, n, _) in enumerate(rows)
        ],
        [Behaviour(float(d)) for _, _, d in rows],
    )
    cluster = SimCluster(
        topology,
        PlannedCosts(),
        SecondsRates(topology),
        outages=[(t, kind, topology.nodes[node]) for t, kind, node in outages],
        finish_round_s=dialect.finish_round_s,
    )
    return Engine(cluster, scheduler, WorkloadSource(jobs), checker=checker)


def spans(engine):
    jobs = engine.jobs
    assert all(jobs[i].phase == Phase.DONE for i in jobs)
    return [(jobs[i].first_start_s, jobs[i].end_s) for i in sorted(jobs)]


def run(folder, cluster, rows, **options):
    engine = engine_for(folder, cluster, rows, checker=Invariants(), **options)
    engine.run()
    return spans(engine)


@st.composite
def cases(draw):
    nodes, size = draw(st.sampled_from([(1, 1), (1, 4), (2, 2), (2, 8), (3, 8)]))
    sizes = st.sampled_from([n for n in (1, 1, 2, 4, 8, 10, 16) if n <= nodes * size])
    times = st.one_of(st.sampled_from([0, 0, 1, 10, 60]), st.integers(0, 120))
    durations = st.one_of(st.sampled_from([1, 2, 10, 60]), st.integers(1, 400))
    rows = draw(st.lists(st.tuples(times, sizes, durations), min_size=1, max_size=16))
    return (nodes, size), rows


@given(case=cases())
def test_jobs_run_as_the_restated_loop_has_it(folder, case):
    cluster, rows = case
    assert run(folder, cluster, rows) == restated(rows, *cluster)


@pytest.mark.soak
@settings(max_examples=2_000)
@given(case=cases())
def test_many_more_jobs_run_as_the_restated_loop_has_it(folder, case):
    cluster, rows = case
    assert run(folder, cluster, rows) == restated(rows, *cluster)


# --- by hand --------------------------------------------------------------------------------------

SMALL, MEDIUM, LARGE, JUMBO, NEUMF = ("/".join(map(str, kind[:4])) for kind in KINDS)


def speed_of(model, beside):
    a, b = Ticket(0, 0, 1, 1), Ticket(0, 0, 1, 1)
    a.model, b.model = model.split("/")[0], beside.split("/")[0]
    return speeds_of(a, b)[0]


def test_a_job_joins_another_although_gpus_are_idle(folder):
    engine = engine_for(folder, (2, 8), [(0, 1, 100), (10, 1, 100)], models=[NEUMF, SMALL])
    engine.run(50)
    host, guest = engine.jobs[0], engine.jobs[1]
    assert guest.allocation.config["beside"] == host.index
    assert guest.allocation.vertices == host.allocation.vertices
    assert (guest.held_gpus, host.held_gpus) == (0, 1)


def test_a_guest_that_is_left_behind_stays_slow(folder):
    host, guest = speed_of(SMALL, MEDIUM), speed_of(MEDIUM, SMALL)
    assert guest != 1
    rows = [(0, 1, 50), (0, 1, 100)]
    (_, first), (_, second) = run(folder, (1, 8), rows, models=[SMALL, MEDIUM])
    assert (first, second) == (seconds_until_end(50, host), seconds_until_end(100, guest))
    assert first < second


def test_a_host_that_is_left_behind_is_as_fast_as_alone(folder):
    host, guest = speed_of(SMALL, MEDIUM), speed_of(MEDIUM, SMALL)
    rows = [(0, 1, 200), (1, 1, 50)]
    (_, first), (_, second) = run(folder, (1, 8), rows, models=[SMALL, MEDIUM])
    assert second == 1 + seconds_until_end(50, guest)
    left = 200 - 1 - host * (second - 1)  # alone in the first second
    assert first == second + seconds_until_end(left, 1.0)


@pytest.mark.parametrize(
    ("models", "sizes", "durations", "paired"),
    [
        ((SMALL, SMALL), (1, 1), (100, 100), True),
        ((SMALL, JUMBO), (1, 1), (100, 100), True),
        ((MEDIUM, JUMBO), (1, 1), (100, 100), False),  # labels of 3
        ((MEDIUM, LARGE), (1, 1), (100, 100), False),  # 25,000 MiB
        ((SMALL, SMALL), (1, 2), (100, 100), False),
        ((SMALL, SMALL), (16, 16), (100, 100), False),
        ((SMALL, SMALL), (1, 1), (100, 200), True),
        ((SMALL, SMALL), (1, 1), (100, 201), False),  # more than twice as long
    ],
)
def test_who_may_share(folder, models, sizes, durations, paired):
    rows = [(at, n, d) for at, n, d in zip((0, 1), sizes, durations, strict=True)]
    engine = engine_for(folder, (4, 8), rows, models=list(models))
    engine.run(5)
    assert (engine.jobs[1].allocation.config is not None) == paired


def test_work_is_taken_off_second_by_second():
    # 10 times 0.1 is a little less than 1 if it is added up: an eleventh second is needed
    assert seconds_until_end(1.0, 0.1) == 1 + 11
    assert seconds_until_end(1.0, 0.25) == 1 + 4
    assert seconds_until_end(1.0, 0.3) == 1 + 4
    assert seconds_until_end(74.0, 1.0) == 75
    assert seconds_until_end(-0.5, 1.0) == 1
    left, countdown = 1.0, Countdown(0.0, 0.0, 1.0, 0.1, 1.0, guest=False)
    for _ in range(7):
        left -= 0.1
    assert countdown.left_at(7.0) == left


# --- longer stories -------------------------------------------------------------------------------

ROWS = st.lists(
    st.tuples(st.integers(0, 100), st.integers(1, 8), st.integers(1, 200)), min_size=4, max_size=12
)
FEWER = settings(max_examples=settings().max_examples // 4)


@FEWER
@given(rows=ROWS, at_s=st.integers(0, 300))
def test_a_resumed_run_writes_the_log_of_an_uninterrupted_one(folder, rows, at_s):
    whole = engine_for(folder, (2, 4), rows)
    whole.run()
    first = engine_for(folder, (2, 4), rows)
    first.run(at_s)
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot.freeze(first)))
    second = engine_for(folder, (2, 4), rows)
    snapshot.restore(second, state)
    second.run()
    for engine in (whole, second):
        engine.log.pack()
    same = second.log._packed == whole.log._packed  # long: not shown when they differ
    assert same
    assert spans(second) == spans(whole)


@FEWER
@given(rows=ROWS, down_s=st.integers(0, 200), for_s=st.integers(1, 200), node=st.integers(0, 1))
def test_jobs_survive_the_failure_of_a_node(folder, rows, down_s, for_s, node):
    outages = [(down_s, NODE_DOWN, node), (down_s + for_s, NODE_UP, node)]
    assert len(run(folder, (2, 4), rows, outages=outages)) == len(rows)


@FEWER
@given(rows=ROWS, at_s=st.integers(0, 300), which=st.integers(0, 11))
def test_a_cancelled_job_leaves_no_trace(folder, rows, at_s, which):
    engine = engine_for(folder, (2, 4), rows, checker=Invariants())
    engine.run(at_s)
    active = list(engine.view.active.values())
    if active:
        engine.cancel(active[which % len(active)], None, engine.view.now_s)
    engine.run()
    assert engine.view.active == {}


# --- options --------------------------------------------------------------------------------------


def build(text):
    return LucidDialect().build(text, None, Topology.uniform(2, 8), seed=0)


def test_what_cannot_be_honoured_is_refused(tmp_path):
    with pytest.raises(OptionError, match="profiles=DIR"):
        build("lucid")
    with pytest.raises(InputError, match="cannot be read"):
        build(f"lucid:profiles={tmp_path / 'nowhere'}")
    write_folder(tmp_path)
    text = (tmp_path / "pair_speeds.csv").read_text()
    (tmp_path / "pair_speeds.csv").write_text(text.replace("speed2", "speed3"))
    with pytest.raises(InputError, match="line 2: column 'speed2' is missing"):
        build(f"lucid:profiles={tmp_path}")


def test_a_pair_that_nobody_measured_is_an_error():
    kinds = [KindProfile(name, "d", 32, 0, 50.0, 20.0, 2000.0, 0) for name in ("a", "b")]
    pair = MeasuredPair("a", "d", 32, 0, 0.8, "b", "d", 32, 0, 0.9)
    known = Colocation(kinds, [pair])
    assert known.speeds(*kinds) == (0.8, 0.9)
    assert known.speeds(kinds[1], kinds[0]) == (0.9, 0.8)
    assert known.speeds(kinds[0], kinds[0]) is None


def test_other_rates_know_no_pairs(folder, tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text("job_id,submit_s,num_gpus,duration_s\na,0,1,10\n")
    config = RunConfig(
        trace=str(trace), cluster="1x8", policy=f"lucid:profiles={folder}", like="lucid"
    )
    assert simulate(config).jobs["end_s"].to_list() == [11]
    with pytest.raises(OptionError, match="leave --rates out"):
        simulate(msgspec.structs.replace(config, rates="uniform"))


def test_models_name_kinds(folder):
    known = load_colocation(folder)

    def kind(index, model):
        job = engine_for(folder, (1, 8), [(0, 1, 1)] * 9, models=[model] * 9)
        job.run(0)
        return known.of(job.jobs[index]).name

    assert kind(3, JUMBO) == JUMBO
    assert kind(3, "medium") == MEDIUM
    assert kind(1, "resnet") == "/".join(map(str, KINDS[7 % 5][:4]))
