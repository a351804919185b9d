"""What job owners ask for holds in every simulated run: limits, retries, dependencies, arrays."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from policy_runs import finish
from rota.core.jobs import Behaviour, JobSpec, Phase, Request
from rota.core.spec import LONGEST_BACKOFF_S
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.engine.invariants import Invariants
from rota.engine.snapshot import freeze, migrate, restore
from rota.engine.source import WorkloadSource
from rota.engine.wiring import Parts, make_engine
from rota.sim.cluster import SimCluster
from rota.testing.scenario import Fixed, Solo

POLICIES = ("fifo", "fifo-skip", "srtf", "las", "easy", "drf", "tiresias:limits=12/36")
WELL = {Phase.DONE}


def engine(jobs, policy="fifo-skip", *, nodes=2, gpus=2, costs=None):
    topology = Topology.uniform(nodes, gpus)
    cluster = SimCluster(topology, costs or Fixed(), Solo())
    source = WorkloadSource(Workload([spec for spec, _ in jobs], [how for _, how in jobs]))
    return make_engine(Parts.named(policy, topology), cluster, source, checker=Invariants())


def job(name, at=0.0, work=10.0, *, gpus=1, fails_at=float("inf"), **spec):
    return JobSpec(name, at, Request.of(gpus), **spec), Behaviour(work, fails_at=fails_at)


@st.composite
def workloads(draw):
    """Jobs that depend on earlier ones, in every way, some with limits, some in arrays."""
    made = []
    count = draw(st.integers(2, 10))
    times = st.integers(0, 12)
    limits = {"a": draw(st.integers(1, 3)), "b": draw(st.integers(1, 2))}
    for number in range(count):
        earlier = st.lists(st.sampled_from([str(n) for n in range(number)]), max_size=2, unique=True) if number else st.just([])  # fmt: skip # noqa: E501
        array = draw(st.sampled_from(["", "a", "b"]))
        chance = draw(st.integers(0, 3))
        spec = JobSpec(
            str(number), float(draw(times)), Request.of(draw(st.integers(1, 3))),
            limit_s=float(draw(st.integers(1, 15))) if chance == 1 else float("inf"),
            retries=draw(st.integers(0, 2)), backoff_s=float(draw(st.integers(0, 5))),
            depends_on=tuple(draw(earlier)), after_any=tuple(draw(earlier)),
            after_fail=tuple(draw(earlier)) if chance == 3 else (),
            array=array, array_limit=limits.get(array, 0),
        )  # fmt: skip
        work = float(draw(st.integers(1, 12)))
        fails_at = float(draw(st.integers(0, 10))) if draw(st.booleans()) else float("inf")
        made.append((spec, Behaviour(work, fails_at=fails_at)))
    return made


COSTS = st.sampled_from([Fixed(), Fixed(start_s=2), Fixed(start_s=1, stop_s=2)])


@pytest.mark.parametrize("policy", POLICIES)
@given(jobs=workloads(), costs=COSTS)
def test_every_rule_holds_in_every_run(policy, jobs, costs):
    made = engine(jobs, policy, costs=costs)
    log = finish(made)
    found = {each.id: each for each in made.jobs.values()}
    assert all(each.terminal for each in found.values())
    held = spans(log)
    for each in found.values():
        check_limit(each, held.get(each.id, []))
        check_tries(each, log)
        check_dependencies(each, found, held.get(each.id, []))
    for name in ("a", "b"):
        members = [each for each in found.values() if each.spec.array == name]
        if members:
            most = members[0].spec.array_limit
            assert at_once(held, [each.id for each in members]) <= most


def spans(log):
    """From when to when each job held its GPUs, by name."""
    names, since, found = {}, {}, {}
    columns = log.select("time_s", "event", "job", "text", "value")
    for time_s, event, number, text, value in columns.iter_rows():
        if event == "submit":
            names[number] = text
        elif event in ("start", "move") and value < float("inf"):  # else others leave first
            since.setdefault(number, time_s)
        elif event in ("stop", "stopped", "evicted", "done", "failed", "cancelled", "timeout"):
            if number in since:
                found.setdefault(names[number], []).append((since[number], time_s))
            since.pop(number, None)
    return found


def check_limit(each, held):
    limit_s = each.spec.limit_s
    assert each.run_s <= limit_s + 1e-9
    assert all(end_s - start_s <= limit_s + 1e-9 for start_s, end_s in held)
    if each.phase == Phase.TIMEOUT:
        assert limit_s < float("inf")


def check_tries(each, log):
    backoffs = log.filter((log["job"] == each.index) & (log["event"] == "held"))
    waits = backoffs.filter(backoffs["text"].str.contains("failed").fill_null(value=False))
    assert waits.height <= each.spec.retries
    if each.phase == Phase.FAILED:
        runs = log.filter((log["job"] == each.index) & (log["event"] == "start")).height
        assert runs > each.spec.retries


def check_dependencies(each, found, held):
    spec = each.spec
    first_s = held[0][0] if held else float("inf")
    for names, wanted in (
        (spec.depends_on, lambda phase: phase in WELL),
        (spec.after_fail, lambda phase: phase not in WELL),
        (spec.after_any, lambda phase: True),
    ):
        for name in names:
            if held:
                assert wanted(found[name].phase), f"{each.id} ran after {name}"
                assert found[name].end_s <= first_s
    if not held:
        never = [n for n in spec.depends_on if found[n].phase not in WELL]
        never += [n for n in spec.after_fail if found[n].phase in WELL]
        too_large = each.gpus > 4
        limited = each.phase == Phase.TIMEOUT
        assert never or too_large or limited, f"{each.id} never ran ({each.phase})"


def at_once(held, names):
    """The most of these jobs that ever ran at the same time."""
    changes = sorted(
        change
        for name in names
        for start_s, end_s in held.get(name, ())
        if end_s > start_s
        for change in ((start_s, 1), (end_s, -1))
    )
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


@pytest.mark.parametrize("policy", ["fifo-skip", "las", "easy"])
@given(jobs=workloads(), stop_at=st.integers(0, 40))
def test_a_run_that_was_frozen_goes_on_as_if_nothing_had_been(policy, jobs, stop_at):
    whole = finish(engine(jobs, policy, costs=Fixed(start_s=1)))
    first = engine(jobs, policy, costs=Fixed(start_s=1))
    first.run(float(stop_at))
    second = engine(jobs, policy, costs=Fixed(start_s=1))
    second.checker = None
    restore(second, freeze(first))
    assert finish(second).equals(whole)


ENDS = {"well": (5.0, float("inf")), "badly": (5.0, 2.0)}


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("bad", [0, 1, 2, None])
def test_dependencies_resolve_in_every_order_of_ends(order, bad):
    works = {place: 3.0 * (1 + turn) for turn, place in enumerate(order)}
    jobs = [
        job(str(n), 0, works[n], fails_at=works[n] / 2 if n == bad else float("inf"))
        for n in range(3)
    ]
    names = ("0", "1", "2")
    jobs += [
        job("ok", depends_on=names), job("any", after_any=names),
        job("fail", after_fail=("1",)), job("both", depends_on=("0",), after_any=("2",)),
    ]  # fmt: skip
    made = engine(jobs, nodes=4, gpus=2)
    finish(made)
    found = {each.id: each for each in made.jobs.values()}
    ended = {name: found[name].end_s for name in names}
    assert (found["ok"].phase == Phase.DONE) == (bad is None)
    assert found["any"].phase == Phase.DONE
    assert found["any"].first_start_s == max(ended.values())
    assert found["fail"].phase == (Phase.DONE if bad == 1 else Phase.CANCELLED)
    assert (found["both"].phase == Phase.DONE) == (bad != 0)
    if bad != 0:
        assert found["both"].first_start_s == max(ended["0"], ended["2"])


def test_retries_wait_longer_each_time_and_then_it_has_failed():
    made = engine([job("a", work=10, fails_at=4, retries=2, backoff_s=3)])
    log = finish(made)
    starts = log.filter(log["event"] == "start")["time_s"].to_list()
    assert starts == [0.0, 7.0, 17.0]  # 4 s of work, then 3 s and 6 s of waiting
    assert made.jobs[0].phase == Phase.FAILED
    assert made.jobs[0].end_s == 21.0
    texts = log.filter(log["event"] == "held")["text"].to_list()
    assert texts == [
        "try 1 of 3 failed (fails after 4 s of work): the next one 3 s later",
        "try 2 of 3 failed (fails after 4 s of work): the next one 6 s later",
    ]


def test_a_pause_before_a_retry_has_an_end():
    spec = JobSpec("a", 0.0, Request.of(1), retries=1000, backoff_s=10.0)
    assert [spec.backoff_after(n) for n in (1, 2, 3)] == [10.0, 20.0, 40.0]
    assert spec.backoff_after(999) == LONGEST_BACKOFF_S


def test_a_limit_counts_all_runs_together():
    long = job("long", work=100, limit_s=20.0)
    short = job("short", at=5, work=4, gpus=1)
    made = engine([long, short], "srtf", nodes=1, gpus=1)
    log = finish(made)
    assert made.jobs[0].phase == Phase.TIMEOUT
    assert made.jobs[0].end_s == 24.0  # 5 s, 4 s of the other, 15 s
    assert made.jobs[0].run_s == 20.0
    ends = log.filter(log["event"] == "timeout")
    assert ends["text"].to_list() == ["its time limit of 20 s is reached"]


def test_a_job_that_is_done_exactly_at_its_limit_is_done():
    made = engine([job("a", work=10, limit_s=10.0)])
    finish(made)
    assert made.jobs[0].phase == Phase.DONE


def test_a_start_that_takes_longer_than_the_limit_is_its_end():
    made = engine([job("a", work=10, limit_s=3.0)], costs=Fixed(start_s=5))
    finish(made)
    assert (made.jobs[0].phase, made.jobs[0].end_s) == (Phase.TIMEOUT, 3.0)


def test_an_array_takes_turns_in_order():
    jobs = [job(str(n), work=1 + n, array="x", array_limit=2) for n in range(5)]
    log = finish(engine(jobs, nodes=4))
    starts = log.filter(log["event"] == "start")
    assert starts["job"].to_list() == [0, 1, 2, 3, 4]
    assert starts["time_s"].to_list() == [0.0, 0.0, 1.0, 2.0, 4.0]
    held = log.filter(log["event"] == "held")
    assert held["job"].to_list() == [2, 3, 4]
    assert set(held["value"]) == {13.0}


def test_the_state_of_the_version_before_goes_on():
    made = engine([job("a", work=10), job("b", at=3, work=5)])
    made.run(4.0)
    state = freeze(made)
    old = {k: v for k, v in state.items() if k not in ("failures", "returning", "arrays")}
    old["cluster"] = {k: v for k, v in state["cluster"].items() if k != "limits"}
    again = engine([job("a", work=10), job("b", at=3, work=5)])
    again.checker = None
    restore(again, migrate(old, 6))
    whole = finish(engine([job("a", work=10), job("b", at=3, work=5)]))
    assert finish(again).equals(whole)


def test_a_job_that_is_cut_off_from_its_array_is_unharmed():
    spec, how = job("a", array="x", array_limit=1)
    made = engine([(replace(spec, array_limit=0), how)])
    finish(made)
    assert made.jobs[0].phase == Phase.DONE
