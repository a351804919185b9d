"""The checks of `check_policy`, one function each; the name says what must hold."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, cast

import msgspec

from rota.core.changes import Changes
from rota.core.errors import RotaError
from rota.core.events import INF, Event
from rota.core.jobs import DONE, FAILED, REJECTED, RUNNING, WAITING, Job
from rota.core.knowledge import Knowledge
from rota.core.plan import EligibilityPlan, Plan
from rota.core.policy import DecidePolicy, IncrementalPolicy, Params, Policy, PriorityPolicy
from rota.core.registry import POLICIES, names, split
from rota.core.sums import ordered_sum
from rota.core.view import View
from rota.core.workload import Workload
from rota.engine.invariants import Invariants, check_keys
from rota.engine.loop import Engine
from rota.engine.parts import make_policy
from rota.engine.priority import PriorityScheduler
from rota.engine.replica import rows_from
from rota.engine.snapshot import freeze, restore
from rota.policies.comparing import ByComparison
from rota.testing import tiny
from rota.testing.knowledge_checks import (
    estimates_stay_hidden,
    mixed_clusters_and_requests_work,
    speeds_stay_hidden,
    true_durations_stay_hidden,
    undeclared_knowledge_is_refused,
)
from rota.testing.partitions import random_partitions
from rota.testing.scenario import Item, Scenario, shrunk, to_the_end
from rota.testing.subject import (
    POWERS,
    UNIT_S,
    Report,
    Skip,
    Subject,
    ends,
    everybody_done,
    happened,
    must,
    run,
    run_checks,
    same,
)

# --- what it says of itself -----------------------------------------------------------------------


def it_names_itself(subject: Subject) -> None:
    """Under the name by which it is registered, with a documented module and frozen parameters."""
    policy = subject.make()
    must(policy.name and policy.name == subject.name, f"its name is {policy.name!r}")
    must(isinstance(policy.knowledge, Knowledge), "`knowledge` must be a Knowledge")
    must(isinstance(policy.params, Params), "`params` must be Params")
    must(type(policy).__doc__, "the class needs a docstring")


def its_parameters_survive_a_file(subject: Subject) -> None:
    """Parameters written and read again are equal, and unknown ones are refused."""
    params = subject.make().params
    kind = type(params)
    must(
        msgspec.json.decode(msgspec.json.encode(_finite(params)), type=kind) is not None,
        "cannot be read",
    )
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=kind)
    must(again == params, f"{params} came back as {again}")
    try:
        msgspec.convert({"no_such_parameter": 1}, kind)
    except msgspec.ValidationError:
        return
    raise AssertionError(f"{kind.__name__} accepts a parameter that it does not have")


def _finite(params: Params) -> dict[str, Any]:
    """JSON has no infinity: such values are left to their defaults."""
    return {key: value for key, value in msgspec.structs.asdict(params).items() if value != INF}


# --- tiny workloads -------------------------------------------------------------------------------


def an_empty_workload_ends(subject: Subject) -> None:
    """Nothing happens, and that soon."""
    must(not happened(run(subject, tiny.EMPTY)), "something happened without any job")


def one_job_runs_at_once(subject: Subject) -> None:
    """Submitted at 5 s, work 10 s: done at 15 s."""
    engine = run(subject, tiny.ONE)
    kinds = [(time_s, what) for time_s, what, _, _ in happened(engine)]
    must(
        kinds == [(5, "start"), (15, "done")],
        f"expected start at 5 s and done at 15 s, not {kinds}",
    )


def what_can_never_fit_is_refused(subject: Subject) -> None:
    """With a message, and no other job suffers."""
    for placement in ("count", "consolidate"):
        engine = run(subject, msgspec.structs.replace(tiny.TOO_LARGE, placement=placement))
        large = engine.jobs[1]
        must(large.phase == REJECTED, f"{large} asks for more than there is and was not rejected")
        must(any("99" in text for text in engine.log.texts.values()), "the message must say why")
        others = [engine.jobs[0].end_s, engine.jobs[2].end_s]
        must(others == [3, 5], f"the others ended at {others}, not at [3, 5]")


def an_idle_cluster_lets_nobody_wait(subject: Subject) -> None:
    """Jobs that come to an empty cluster start at once."""
    engine = run(subject, tiny.GAPS)
    must(ends(engine) == {"j0": 3, "j1": 13, "j2": 23}, f"ended at {ends(engine)}")


def simultaneous_jobs_all_end(subject: Subject) -> None:
    """Nine jobs at one instant."""
    for placement in ("count", "consolidate"):
        engine = run(subject, msgspec.structs.replace(tiny.TOGETHER, placement=placement))
        everybody_done(engine)


def equal_jobs_go_in_order(subject: Subject) -> None:
    """Twelve equal jobs on two GPUs: pairs in the order of submission."""
    engine = run(subject, tiny.TIES)
    expected = {f"j{i}": 4.0 * (1 + i // 2) for i in range(12)}
    must(ends(engine) == expected, f"ended at {ends(engine)}")


def a_failing_job_makes_room(subject: Subject) -> None:
    """A job that fails by itself gives its GPUs to the next."""
    broken, other = run(subject, tiny.BROKEN).jobs.values()
    must(broken.phase == FAILED, f"{broken} was to fail")
    latest_s = 4 + 5  # when the first has failed, and the work of the second
    must(other.phase == DONE and other.end_s <= latest_s, f"{other} ended at {other.end_s:g} s")


def a_dead_node_loses_no_job(subject: Subject) -> None:
    """Its job returns to the queue and goes on after the repair."""
    engine = run(subject, tiny.CRASH)
    everybody_done(engine)
    must(sorted(ends(engine).values()) == [10, 13], f"ended at {ends(engine)}, not at 10 and 13 s")


def known_answers_come_out(subject: Subject) -> None:
    """Mean JCTs that were computed by hand."""
    known = tiny.MEAN_JCT.get(subject.name)
    if known is None:
        raise Skip("nothing was computed by hand for it")
    for name, mean_s in known.items():
        engine = run(subject, getattr(tiny, name))
        jobs = engine.jobs.values()
        found = ordered_sum(job.end_s - job.submit_s for job in jobs) / len(jobs)
        must(found == mean_s, f"{name}: the mean JCT is {found:g} s, not {mean_s:g} s")


# --- random workloads -----------------------------------------------------------------------------


def every_job_ends(subject: Subject) -> None:
    """With and without costs and failures; all invariants are checked on the way."""
    for scenario in subject.scenarios():
        try:
            everybody_done(run(subject, scenario))
        except AssertionError as error:
            raise AssertionError(f"{error}\n  in {scenario}") from error


def a_seed_gives_one_log(subject: Subject) -> None:
    """Byte by byte."""
    for scenario in subject.scenarios():
        first, second = (rows_from(run(subject, scenario).log, 0) for _ in range(2))
        must(first == second, f"two runs of {scenario} differ")


def names_do_not_matter(subject: Subject) -> None:
    """Other job ids, the same log."""
    for scenario in subject.scenarios():
        usual = scenario.workload()
        renamed = [
            msgspec.structs.replace(spec, id=f"other-{len(usual) - i}")
            for i, spec in enumerate(usual.specs)
        ]
        engine = run(subject, scenario, workload=Workload(renamed, usual.behaviours))
        same(happened(engine), happened(run(subject, scenario)), scenario)


def a_slower_clock_scales_everything(subject: Subject) -> None:
    """All times doubled in, all times doubled out."""
    if subject.scale_free is False or (subject.scale_free is None and _has_constants(subject)):
        raise Skip("it has constants in seconds")
    for scenario in subject.scenarios():
        usual = happened(run(subject, scenario))
        doubled = happened(run(subject, scenario.scaled(2)))
        same(doubled, [(2 * time_s, *rest) for time_s, *rest in usual], scenario)  # type: ignore[misc]  # an entry


def _has_constants(subject: Subject) -> bool:
    return bool(type(subject.make().params).__struct_fields__)


def a_resumed_run_goes_on_alike(subject: Subject) -> None:
    """Frozen anywhere, restored from plain data: the same log in the end."""
    for scenario in subject.scenarios():
        whole = happened(run(subject, scenario))
        times = sorted({time_s for time_s, *_ in whole})
        for until_s in times[:: max(1, len(times) // 3)]:
            engine = scenario.engine(subject.make())
            engine.run(until_s)
            state = msgspec.msgpack.decode(msgspec.msgpack.encode(freeze(engine)))
            resumed = scenario.engine(subject.make())
            restore(resumed, state)
            to_the_end(resumed)
            same(happened(resumed), whole, scenario)


def a_cancelled_job_is_gone(subject: Subject) -> None:
    """Waiting or running, the others go on without it."""
    for scenario in subject.scenarios(costs=False, outages=False):
        engine = scenario.engine(subject.make())
        engine.run(max(item.submit_s for item in scenario.jobs))
        for job in list(engine.view.active.values())[::2]:
            engine.cancel(job, None, engine.view.now_s)
        to_the_end(engine)
        must(not engine.view.active, f"never ended: {engine.view.jobs[:3]}\n  in {scenario}")


def nobody_beats_srpt_on_one_gpu(subject: Subject) -> None:
    """The sum of JCTs on one GPU is at least that of shortest remaining time first."""
    for seed in subject.seeds:
        rng = Random(seed)  # noqa: S311 - a workload, not a secret
        jobs = tuple(
            Item(rng.randint(0, 20) * UNIT_S, 1, rng.randint(1, 9) * UNIT_S) for _ in range(8)
        )
        engine = run(subject, Scenario(jobs, nodes=(1,)))
        total = ordered_sum(job.end_s - job.submit_s for job in engine.jobs.values())
        must(total >= srpt(jobs) - 1e-6, f"a total JCT of {total:g} s is impossible for {jobs}")


def srpt(jobs: tuple[Item, ...]) -> float:
    """The sum of JCTs under shortest remaining time first on one GPU: the least possible."""
    coming = sorted((job.submit_s, job.work) for job in jobs)
    present: list[list[float]] = []  # [work left, submitted]
    now_s = total = 0.0
    while coming or present:
        if not present:
            now_s = max(now_s, coming[0][0])
        while coming and coming[0][0] <= now_s:
            submit_s, work = coming.pop(0)
            present.append([work, submit_s])
        first = min(present)
        ran_s = min(first[0], coming[0][0] - now_s if coming else INF)
        now_s += ran_s
        first[0] -= ran_s
        if not first[0]:
            present.remove(first)
            total += now_s - first[1]
    return total


def no_gpu_idles_while_somebody_waits(subject: Subject) -> None:
    """One-GPU jobs: whenever one waits, all GPUs that are up are in use."""
    policy = subject.make()
    wanted = subject.work_conserving
    if wanted is None:
        wanted = isinstance(policy, PriorityPolicy) and not policy.strict
    if not wanted:
        raise Skip("it does not promise that")
    for scenario in subject.scenarios(sizes=(1,), costs=False, outages=False):
        engine = scenario.engine(subject.make())
        while engine.advance():
            waiting = engine.view.waiting
            idle = engine.view.up_gpus - ordered_sum(job.gpus for job in engine.view.running)
            must(
                not waiting or idle <= 0 or engine.lifecycle.backlog,
                f"at {engine.view.now_s:g} s {waiting[:1]} waits, {idle:g} GPUs idle in {scenario}",
            )


# --- against the references -----------------------------------------------------------------------


def the_naive_engine_agrees(subject: Subject) -> None:
    """On one pool and on nodes, with and without costs and failures."""
    make = subject.priority()

    def departs(scenario: Scenario) -> bool:
        try:
            return bool(scenario.mismatch(make))
        except RotaError:
            return True

    for placement in ("count", "consolidate"):
        for options in ({"costs": False, "outages": False}, {"costs": False}, {}):
            for scenario in subject.scenarios(placement=placement, sizes=POWERS, **options):
                if departs(scenario):
                    least = shrunk(scenario, departs)
                    raise AssertionError(f"the logs differ:\n{least.mismatch(make)}\n  in {least}")


def its_keys_keep_their_promises(subject: Subject) -> None:
    """At every moment the queues have the keys that the policy would give."""
    make = subject.priority()
    for scenario in subject.scenarios():
        engine = scenario.engine(make())
        engine.checker = Promises()
        to_the_end(engine)


def both_doors_decide_alike(subject: Subject) -> None:
    """Through the general door, asked anew at every event, on one pool."""
    make = subject.priority()
    if make().strict and make().preemptive:
        raise Skip("strict and preemptive: the general door has no such order")
    for scenario in subject.scenarios(placement="count", sizes=POWERS):
        slow = scenario.run(EveryEvent(make()))
        same(happened(run(subject, scenario)), happened(slow), scenario)


def it_hears_of_every_change(subject: Subject) -> None:
    """What it hears is what it would find by comparing everything at each decision."""
    if not isinstance(subject.make(), IncrementalPolicy):
        raise Skip("it is shown everything")
    for placement in ("count", "consolidate"):
        for scenario in subject.scenarios(placement=placement):
            policy = subject.make()
            must(isinstance(policy, IncrementalPolicy), "another policy each time")
            shown = scenario.run(ByComparison(cast("IncrementalPolicy[Any]", policy)))
            same(happened(run(subject, scenario)), happened(shown), scenario)


def partitions_do_not_depend_on_each_other(subject: Subject) -> None:
    """Jobs that could never use the same node fare as if each partition were a cluster.

    Through both doors. Not for policies that say why they cannot (`coupled`).
    """
    policy = subject.make()
    if policy.coupled:
        raise Skip(f"coupled: {policy.coupled}")
    makers: list[Callable[[], Policy[Any]]] = [subject.make]
    if isinstance(policy, PriorityPolicy) and not (policy.strict and policy.preemptive):
        makers.append(lambda: EveryEvent(subject.priority()()))
    for seed in subject.seeds:
        partitions = random_partitions(seed, unit_s=UNIT_S, lossy=False)
        for make in makers:
            found = partitions.mismatch(make)
            must(not found, f"{type(make()).__name__}: {found}\n  in {partitions}")


CHECKS: tuple[Callable[[Subject], None], ...] = (
    it_names_itself,
    its_parameters_survive_a_file,
    an_empty_workload_ends,
    one_job_runs_at_once,
    what_can_never_fit_is_refused,
    an_idle_cluster_lets_nobody_wait,
    simultaneous_jobs_all_end,
    equal_jobs_go_in_order,
    a_failing_job_makes_room,
    a_dead_node_loses_no_job,
    known_answers_come_out,
    every_job_ends,
    a_seed_gives_one_log,
    names_do_not_matter,
    a_slower_clock_scales_everything,
    a_resumed_run_goes_on_alike,
    a_cancelled_job_is_gone,
    nobody_beats_srpt_on_one_gpu,
    no_gpu_idles_while_somebody_waits,
    its_keys_keep_their_promises,
    the_naive_engine_agrees,
    both_doors_decide_alike,
    it_hears_of_every_change,
    partitions_do_not_depend_on_each_other,
    undeclared_knowledge_is_refused,
    true_durations_stay_hidden,
    estimates_stay_hidden,
    speeds_stay_hidden,
    mixed_clusters_and_requests_work,
)


# --- The other door of a priority policy ----------------------------------------------------------


class EveryEvent(DecidePolicy[Params]):
    """Fills the cluster in key order at every event; the fast door must decide the same.

    Exactly the same where GPUs are one pool. On nodes the general door displaces the latest
    starters first, so that there only what both promise can be compared. Not for policies that are
    strict and preemptive: there the fast door leaves those whom it displaced before it was blocked.
    """

    plan_type = EligibilityPlan

    def __init__(self, policy: PriorityPolicy[Any]) -> None:
        super().__init__()
        self.policy = policy
        self.name = policy.name  # type: ignore[misc]  # it stands in for that policy
        self.knowledge = policy.knowledge
        self._learnt = 0

    def decide(self, view: View) -> Plan:
        """Best key first; without preemption whoever runs goes on."""
        now_s = view.now_s
        policy = self.policy
        for job in view.finished[self._learnt :]:
            policy.finished(job, now_s)
        self._learnt = len(view.finished)
        plan = view.plan(EligibilityPlan)
        jobs = list(view.jobs)
        rank = {job.index: (policy.key(job, now_s), job.index) for job in jobs}
        jobs.sort(key=lambda job: rank[job.index])
        if not policy.preemptive:
            jobs.sort(key=lambda job: not job.running)
        if self._fill(plan, jobs):
            plan.wake_at(now_s)  # ask again when it is done: only then the new levels are known
        else:
            plan.wake_at(self._next_s(jobs, now_s))
        return plan

    def _fill(self, plan: EligibilityPlan, jobs: list[Job]) -> bool:
        """Place all; True if any of them starts or stops."""
        changed = False
        held = 0  # strict: nodes of those who wait; those behind them who run go on
        for job in jobs:
            placed = (job.running or not held & plan.eligible(job)) and plan.place(job)
            changed |= placed != job.running
            if self.policy.strict and not placed:
                held |= plan.eligible(job)
        return changed

    def _next_s(self, jobs: list[Job], now_s: float) -> float:
        phases = (WAITING, RUNNING) if self.policy.ages else (RUNNING,)
        levels = (self.policy.next_change(job, now_s) for job in jobs if job.phase in phases)
        return max(now_s, min(levels, default=INF))


class Promises(Invariants):
    """Compares the keys of all jobs every time, however many there are (see `check_keys`)."""

    def __init__(self) -> None:
        super().__init__(keys=False)

    def after(self, engine: Engine, events: list[Event], changes: Changes | None) -> None:
        """Raise PolicyError if a key is not what the policy would say."""
        super().after(engine, events, changes)
        if isinstance(engine.scheduler, PriorityScheduler):
            check_keys(engine, engine.scheduler, engine.view.now_s)


# --- All checks -----------------------------------------------------------------------------------

Maker = Callable[[], Policy[Any]]


def check_policy(
    policy: str | Maker | type[Policy[Any]],
    *,
    seeds: Sequence[int] = range(8),
    scale_free: bool | None = None,
    work_conserving: bool | None = None,
    only: str = "",
) -> Report:
    """Run all checks on a policy.

    The first check that fails raises `CheckFailed` with the scenario that shows it; otherwise the
    report names what was checked and what did not apply:

        from rota.testing import check_policy
        check_policy("my_policy.py")       # a file, a registered name, a class, or a function

    Args:
        policy: As of `--policy` (`name:key=value,...` or a Python file), a class that needs no
            arguments, or a function that makes one.
        seeds: Random workloads to try; each takes some milliseconds per check.
        scale_free: It has no constants in seconds, so that twice the times give twice the JCTs.
            None: it is tried if the policy has no parameters.
        work_conserving: No GPU idles while a one-GPU job waits. None: tried for priority policies
            that are not strict.
        only: Only checks whose name contains this.

    Raises:
        CheckFailed: A check failed.
    """
    make: Maker
    if isinstance(policy, str):
        text = policy

        def make() -> Policy[Any]:
            return make_policy(text)

    else:
        make = policy
    registered = isinstance(policy, str) and split(policy)[0] in names(POLICIES)
    subject = Subject(
        make=make,
        name=split(str(policy))[0] if registered else make().name,
        seeds=tuple(seeds),
        scale_free=scale_free,
        work_conserving=work_conserving,
    )
    chosen = [check for check in CHECKS if only in check.__name__]
    return run_checks(f"policy {subject.name}", chosen, subject)
