"""`auto`: a policy that looks ahead, and lets the candidate decide whose forecast is the best.

Every `every_s` seconds each candidate is simulated from the present state on: the jobs that wait
and run, with what is known of how long they still need, and those that are expected to come. The
one with the best forecast of the goal takes over, unless the present one is nearly as good. The
log says why.

*Percentiles.* Who is among the 5 % with the longest waits depends on how many jobs of another kind
come later: where as many come again, today's longest 10 % are the 5 % of all, and where twice as
many do, the longest 15 %. Nobody knows how many, so the forecast of a 95th percentile is the mean
of these three: of the 85th, the 90th and the 95th.

*What is expected.* The jobs of the last `window_s` seconds come again, as they came. How long jobs
run is what the candidates may know: the truth if one of them has an oracle, else users' estimates
if one of them reads those, else lengths of jobs that have ended here, longer than the job has run
already. Nothing else is known: the knowledge of `auto` is the union of its candidates'. All
candidates are simulated with the same draws.

*In between* `auto` is exactly the present candidate. Transitions cost nothing in its forecasts, all
GPUs are equally fast, and no node fails.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from rota.core import machine
from rota.core.admission import Admission, BudgetUse
from rota.core.changes import Changes
from rota.core.errors import OptionError
from rota.core.events import ENDS, INF, JOB_SUBMIT, Event
from rota.core.jobs import HELD, RUNNING, STARTING, WAITING, Behaviour, Job, JobSpec, Shape
from rota.core.knowledge import Knowledge
from rota.core.policy import ComposingPolicy, Params, Policy
from rota.core.ports import Successor
from rota.core.state import State
from rota.core.sums import ordered_sum
from rota.core.topology import Topology
from rota.core.view import View
from rota.core.wake import Wake
from rota.core.words import duration
from rota.core.workload import Workload
from rota.engine.compose import compose
from rota.engine.loop import Engine
from rota.engine.parts import make_policy
from rota.engine.source import WorkloadSource
from rota.engine.wiring import make_engine
from rota.models.costs import Zero
from rota.models.rates import Uniform
from rota.placement.base import Placement
from rota.sim.cluster import SimCluster

Goal = Literal["p95-wait", "mean-wait", "p95-jct", "mean-jct", "mean-slowdown"]
PERCENTILES = ("p95-wait", "p95-jct")
MOST_SEEN = 2_000  # jobs that came, and lengths of those that ended, that are remembered
MOST_JOBS = 2_000  # expected ones
MOST_BATCHES = 50_000  # of a simulation
LEAST = 30  # jobs that ended last, from which lengths are drawn whenever they ended
GUESS_S = 3_600.0  # how long a job runs, before any has ended
SHORT_S = 10.0  # shorter jobs count as so long in a slowdown
PERCENTILE = 95.0  # of a goal
TAIL = (85.0, 90.0, 95.0)  # what may be the 95th when the other jobs have come
_EARLY = 16  # times as often at the beginning
_LATE = 1e-6  # relative rounding of times at which reviews are due


class AutoParams(Params, frozen=True):
    """What to aim for, with whom, and how often to look.

    Attributes:
        goal: What is made small.
        candidates: Policies, with + between them; the first one begins. Their own parameters are
            written in brackets: `tiresias(limits=3600/7200)`.
        every_s: Between two looks ahead.
        window_s: How far back arrivals are looked at, and how far ahead they are expected.
        margin: By how much (relative) a forecast must be better to take over.
        runs: Simulations of each candidate with different draws.
        seed: Of the draws.
    """

    goal: Goal = "mean-jct"
    candidates: str = "fifo-skip+las+srtf"
    every_s: Annotated[float, msgspec.Meta(gt=0)] = 3_600.0
    window_s: Annotated[float, msgspec.Meta(gt=0)] = 14_400.0
    margin: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.05
    runs: Annotated[int, msgspec.Meta(ge=1, le=20)] = 1
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0


def parse_candidates(text: str) -> list[str]:
    """`a+b(k=v)` as texts for `make_policy`."""
    found = []
    for part in text.split("+"):
        name, bracket, options = part.strip().partition("(")
        if not name or (bracket and not options.endswith(")")):
            raise OptionError(
                f"policy 'auto': candidates={text}: write names with + between them, parameters "
                f"in brackets: fifo-skip+tiresias(limits=3600/7200)"
            )
        found.append(name + (":" + options[:-1].replace(";", ",") if bracket else ""))
    if len(set(found)) < max(2, len(found)):
        raise OptionError(f"policy 'auto': candidates={text}: name at least two different ones")
    return found


class Auto(ComposingPolicy[AutoParams]):
    """Lets the candidate decide that forecasts the best of its goal."""

    name = "auto"
    paper = ""
    Parameters = AutoParams
    coupled = "all jobs share the candidate that a forecast chose"

    def __init__(self, params: AutoParams | None = None) -> None:
        super().__init__(params)
        self.texts = parse_candidates(self.params.candidates)
        made = [self.candidate(text) for text in self.texts]
        for policy in made:
            if isinstance(policy, ComposingPolicy):
                raise OptionError("policy 'auto' cannot be a candidate of itself: name others")
        self.knowledge = Knowledge.NOTHING
        for policy in made:
            self.knowledge |= policy.knowledge
        self.elastic = any(policy.elastic for policy in made)
        said = {policy.preemptive for policy in made}
        self.preemptive = said.pop() if len(said) == 1 else (True if True in said else None)

    def candidate(self, text: str) -> Policy[Any]:
        """A fresh one, which may know what all of them know."""
        return make_policy(text)

    def scheduler(
        self,
        placement: Placement,
        admission: Admission,
        *,
        frictionless: bool = False,
        patient: bool = False,
    ) -> Successor:
        """The first candidate decides until the first look ahead."""
        return AutoScheduler(
            self, placement, admission, Memory(), self.texts[0], frictionless=frictionless,
            patient=patient,
        )  # fmt: skip


class Memory(State):
    """What was seen so far."""

    next_review_s: float = 0.0
    reviews: int = 0
    came: list[tuple[float, int]] = []  # when, and the number of the job
    outcomes: list[tuple[float, float, float]] = []  # of jobs that ended: wait, time, length
    ended_s: list[float] = []  # when they did


class AutoScheduler(Successor):
    """The present candidate, and the looks ahead."""

    def __init__(
        self,
        policy: Auto,
        placement: Placement,
        admission: Admission,
        memory: Memory,
        current: str,
        *,
        frictionless: bool,
        patient: bool,
    ) -> None:
        self.policy = policy
        self.name = policy.name
        self.knowledge = policy.knowledge
        self.memory = memory
        self._placement = placement
        self._admission = admission
        self._options = {"frictionless": frictionless, "patient": patient}
        self.current = current
        self.inner = self._composed(current, placement, admission)
        self._asked = self.inner.wake
        self._expected: Workload | None = None
        self.refine = self.inner.refine

    def _composed(self, text: str, placement: Placement, admission: Admission) -> Successor:
        made = compose(self.policy.candidate(text), placement, admission, **self._options)
        if not made.trusted:
            raise OptionError(
                f"policy 'auto': the candidate {text} places jobs itself: choose one that leaves "
                f"that to the placement"
            )
        return made

    # --- the present candidate --------------------------------------------------------------------

    trusted = True
    settles = True

    @property
    def placement(self) -> Placement:
        """What it knows of places."""
        return self._placement

    @property
    def hears_phases(self) -> bool:  # type: ignore[override]  # as the present candidate
        """As the present candidate."""
        return self.inner.hears_phases

    @property
    def wake(self) -> Wake:  # type: ignore[override]  # as the present candidate, and for looks
        """When the present candidate wants to be asked, and for looks ahead."""
        asked = self._asked
        return Wake(asked.on, asked.at_s, asked.every_s or self.policy.params.every_s)

    def expect(self, workload: Workload) -> None:
        """For the placement."""
        self._expected = workload
        self.inner.expect(workload)

    def step(self, view: View, events: Sequence[Event]) -> Changes | None:
        """Look ahead if it is time; else the present candidate decides."""
        self._remember(events)
        if self._is_due(view):
            successor = self._review(view)
            if successor is not None:
                return successor
        changes = self.inner.step(view, events)
        return self._waking(view, changes)

    def _waking(self, view: View, changes: Changes | None) -> Changes | None:
        """What the candidate asks for, with the next look."""
        if changes is not None and changes.wake is not None:
            self._asked = changes.wake
            changes.wake = self.wake
        elif self._asked.at_s <= view.now_s:  # that time has come
            self._asked = Wake(self._asked.on, INF, self._asked.every_s)
        return changes

    def settle(self, view: View, changes: Changes) -> Sequence[tuple[float, Job]]:
        """As the present candidate."""
        return self.inner.settle(view, changes) if self.inner.settles else ()

    def overhear(self, view: View, events: Sequence[Event]) -> Changes | None:
        """As the present candidate."""
        return self.inner.overhear(view, events)

    def reshape(self, job: Job, shape: Shape, now_s: float) -> None:
        """As the present candidate."""
        self.inner.reshape(job, shape, now_s)

    def rank(self, job: Job) -> tuple[Any, int]:
        """As the present candidate."""
        return self.inner.rank(job)

    def why_held(self, job: Job, view: View) -> str:
        """As the present candidate."""
        return self.inner.why_held(job, view)

    def budgets(self, view: View, now_s: float) -> Sequence[BudgetUse]:
        """As the one at work."""
        return self.inner.budgets(view, now_s)

    def explained_shapes(self) -> Sequence[int]:
        """As the present candidate."""
        return self.inner.explained_shapes()

    def adopt(self, view: View, placed: Sequence[Job], stopping: Sequence[Job]) -> None:
        """Take over from another scheduler."""
        self.inner.adopt(view, placed, stopping)

    def snapshot(self) -> Mapping[str, Any]:
        """Who decides, what was seen, and the candidate's own state."""
        inner = dict(self.inner.snapshot())
        return {
            "current": self.current,
            "memory": self.memory.save(),
            "asked": msgspec.to_builtins(self._asked),
            "placement": inner.pop("placement", None),
            "inner": inner,
        }

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Take it up again."""
        if state["current"] != self.current:
            if state["current"] not in self.policy.texts:
                raise OptionError(f"policy 'auto': {state['current']} is no candidate any more")
            self.current = state["current"]
            self.inner = self._composed(self.current, self._placement, self._admission)
        self.memory = Memory.load(state["memory"], "policy 'auto'")
        self._asked = msgspec.convert(state["asked"], Wake)
        self.inner.restore(view, {**state["inner"], "placement": state["placement"]})

    # --- looking ahead ----------------------------------------------------------------------------

    def _remember(self, events: Sequence[Event]) -> None:
        memory = self.memory
        for at_s, kind, _, job, _ in events:
            if kind == JOB_SUBMIT and not job.started:
                known = memory.came and memory.came[-1] == (job.submit_s, job.index)
                if not known:
                    memory.came.append((job.submit_s, job.index))
            elif kind in ENDS and job.started and job.parent is None:
                memory.outcomes.append(_outcome(job, at_s))
                memory.ended_s.append(at_s)
        if len(memory.came) > 2 * MOST_SEEN:
            del memory.came[:-MOST_SEEN]
        if len(memory.outcomes) > 2 * MOST_SEEN:
            del memory.outcomes[:-MOST_SEEN], memory.ended_s[:-MOST_SEEN]

    def _is_due(self, view: View) -> bool:
        """It is time, and somebody waits: else there is nothing to decide."""
        if view.now_s < self.memory.next_review_s * (1 - _LATE):
            return False
        return any(job.phase == WAITING for job in view.active.values())

    def _review(self, view: View) -> Changes | None:
        """Changes with a successor, if another candidate promises more."""
        params, memory = self.policy.params, self.memory
        memory.reviews += 1
        age_s = view.now_s - memory.came[0][0] if memory.came else 0.0
        memory.next_review_s = min(
            (view.now_s // params.every_s + 1) * params.every_s,
            view.now_s + max(params.every_s / _EARLY, age_s),  # at first there is much to learn
        )
        found = {text: self._forecast(view, text) for text in self.policy.texts}
        mine = found[self.current]
        best = min(found, key=lambda text: (found[text], text != self.current))
        if best == self.current or not found[best] < mine * (1 - params.margin):
            return None
        goal = f"{params.goal} (p85 to p95)" if params.goal in PERCENTILES else params.goal
        return self.successor(
            view,
            best,
            f"a forecast {goal} of {_said(found[best], params.goal)} instead of "
            f"{_said(mine, params.goal)}",
        )

    def successor(self, view: View, text: str, why: str) -> Changes:
        """Changes by which another candidate takes over."""
        changes = Changes(view.version)
        admission = type(self._admission)(self._admission.params)
        successor = AutoScheduler(
            self.policy, self._placement.renewed(), admission, self.memory, text, **self._options
        )
        if self._expected is not None:
            successor.expect(self._expected)
        changes.hand_over(successor, f"auto: {text} instead of {self.current}: {why}")
        return changes

    def _forecast(self, view: View, text: str) -> float:
        """The goal under a candidate, on average."""
        params = self.policy.params
        total = 0.0
        for number in range(params.runs):
            rng = np.random.default_rng([params.seed, self.memory.reviews, number])
            jobs = [*self.memory.outcomes, *Future(self, view, rng).run(text)]
            total += forecast_of(params.goal, jobs)
        return total / params.runs

    def candidate_on(self, text: str, topology: Topology) -> Successor:
        """A candidate for a simulation."""
        return compose(
            self.policy.candidate(text),
            self._placement.renewed(topology),
            type(self._admission)(self._admission.params),
            frictionless=True,
        )


class Future:
    """The present state and what is expected, simulated on under a candidate."""

    def __init__(self, auto: AutoScheduler, view: View, rng: np.random.Generator) -> None:
        self._auto, self._view, self._rng = auto, view, rng
        self._oracle = bool(auto.knowledge & Knowledge.REMAINING_WORK)
        self._estimates = bool(auto.knowledge & Knowledge.USER_ESTIMATE)
        since_s = view.now_s - auto.policy.params.window_s
        recent = bisect_right(auto.memory.ended_s, since_s)
        recent = max(0, min(recent, len(auto.memory.outcomes) - LEAST))
        lengths = [length for *_, length in auto.memory.outcomes[recent:]]
        self._past = np.sort(np.array(lengths, dtype=np.float64))

    def run(self, text: str) -> list[tuple[float, float, float]]:
        """Of every job: its wait, its time from submission to end, and its length."""
        view = self._view
        there = [
            job
            for job in view.active.values()
            if not (job.family is not None and job.parent is None)  # its tasks are there
            and not (job.phase == HELD and job.spec.depends_on)
        ]
        known = [self._known(job) for job in there]
        coming = self._coming()
        engine = self._engine(text, there, known, coming)
        for _ in range(MOST_BATCHES):
            if not engine.view.active and engine.source.next_s == INF:
                break
            if not engine.advance():
                break
        return [_outcome(job, engine.view.now_s) for job in engine.jobs.values()]

    def _engine(
        self, text: str, there: Sequence[Job], known: Sequence[float],
        coming: Sequence[tuple[JobSpec, float]],
    ) -> Engine:  # fmt: skip
        view = self._view
        topology = deepcopy(view.topology)
        cluster = SimCluster(topology, Zero(), Uniform(topology))
        cluster.now_s = view.now_s
        specs = [msgspec.structs.replace(job.spec, depends_on=()) for job in there]
        specs = [
            msgspec.structs.replace(
                spec, submit_s=min(job.submit_s, view.now_s), request=_whole(job)
            )
            for spec, job in zip(specs, there, strict=True)
        ] + [spec for spec, _ in coming]
        works = [Behaviour(length) for length in (*known, *(length for _, length in coming))]
        source = WorkloadSource(Workload(specs, works))
        scheduler = self._auto.candidate_on(text, topology)
        engine = make_engine(scheduler, cluster, source, tenants=view.tenants)
        engine.view.now_s = view.now_s
        engine.view.up_gpus = view.up_gpus
        taken = sorted(source.take(view.now_s), key=lambda one: one[0])
        engine.lifecycle.submit(taken, [])
        for number, job in enumerate(there):
            copy = engine.jobs[number]
            _copied(copy, job, view.now_s)
            if copy.phase == RUNNING:
                cluster.resume(copy)
        engine.hand_over(scheduler)
        return engine

    def _known(self, job: Job) -> float:
        """How long it runs in all, as far as it is known or drawn."""
        done_s = job.executed_s(self._view.now_s)
        if self._oracle:
            return done_s + max(job.remaining_s(self._view.now_s), 0.0)
        if self._estimates and job.spec.estimate_s < INF:
            return max(job.spec.estimate_s, done_s + 1.0)
        return self._drawn(done_s)

    def _drawn(self, beyond_s: float) -> float:
        first = int(np.searchsorted(self._past, beyond_s, side="right"))
        if first < len(self._past):
            return float(self._past[int(self._rng.integers(first, len(self._past)))])
        return max(2 * beyond_s, GUESS_S)

    def _coming(self) -> list[tuple[JobSpec, float]]:
        """Jobs that came in the last while come again, with how long they run."""
        view, memory = self._view, self._auto.memory
        window_s = self._auto.policy.params.window_s
        now_s = view.now_s
        recent = [(at_s, index) for at_s, index in memory.came if at_s > now_s - window_s]
        recent = recent[-MOST_JOBS:]
        if not recent:
            return []
        span_s = min(window_s, now_s - min(memory.came[0][0], recent[0][0]))
        if span_s <= 0:
            return []
        found: list[tuple[JobSpec, float]] = []
        shift_s, number = span_s, 0
        while shift_s < window_s * (1 + _LATE) and len(found) < MOST_JOBS:
            for at_s, index in recent:
                job = view.everyone.get(index)
                if job is None or at_s + shift_s <= now_s or at_s + shift_s > now_s + window_s:
                    continue
                number += 1
                spec = msgspec.structs.replace(
                    job.spec, id=f"expected-{number}", submit_s=at_s + shift_s, depends_on=(),
                    group="", deadline_s=INF, request=_whole(job),
                )  # fmt: skip
                found.append((spec, self._length(job)))
            shift_s += span_s
        return found

    def _length(self, job: Job) -> float:
        """Of a job like this one."""
        if job.terminal and job.started:
            return max(job.executed_s(self._view.now_s), 1e-3)
        return self._known(job) if not job.terminal else self._drawn(0.0)


def _whole(job: Job) -> Any:
    """Its request; parts that may start one by one are not told apart here."""
    request = job.spec.request
    return request if request.gang else msgspec.structs.replace(request, gang=True)


def _copied(copy: Job, job: Job, now_s: float) -> None:
    """Bring a fresh job into the state of another; being started counts as running."""
    copy.preemptions, copy.first_start_s = job.preemptions, job.first_start_s
    done_s = job.executed_s(now_s)
    copy.service = job.attained_gpu_s(now_s)
    copy.run_s = done_s
    copy.true_left = max(copy.true_work - done_s, 0.0)
    if job.phase in (RUNNING, STARTING):
        first_s = copy.first_start_s
        machine.start(copy, job.allocation, now_s, 1.0)
        copy.first_start_s, copy.start_s = min(first_s, now_s), min(job.start_s, now_s)


def _outcome(job: Job, now_s: float) -> tuple[float, float, float]:
    end_s = job.end_s if job.terminal else now_s
    took_s = max(end_s - job.submit_s, 0.0)
    ran_s = job.executed_s(end_s)
    return max(took_s - ran_s, 0.0), took_s, max(ran_s, 1e-9)


def goal_of(
    goal: Goal, jobs: Sequence[tuple[float, float, float]], percentile: float = PERCENTILE
) -> float:
    """What is made small, of some jobs."""
    if not jobs:
        return 0.0
    waits, times, lengths = (np.array(column) for column in zip(*jobs, strict=True))
    measures: dict[str, Callable[[], Any]] = {
        "p95-wait": lambda: np.percentile(waits, percentile),
        "mean-wait": waits.mean,
        "p95-jct": lambda: np.percentile(times, percentile),
        "mean-jct": times.mean,
        "mean-slowdown": lambda: np.maximum(times / np.maximum(lengths, SHORT_S), 1.0).mean(),
    }
    return float(measures[goal]())


def forecast_of(goal: Goal, jobs: Sequence[tuple[float, float, float]]) -> float:
    """What the goal is expected to be when nobody knows how many jobs of another kind come yet."""
    tail = TAIL if goal in PERCENTILES else (PERCENTILE,)
    return ordered_sum(goal_of(goal, jobs, percentile) for percentile in tail) / len(tail)


def _said(value: float, goal: str) -> str:
    return f"{value:.3g}" if goal == "mean-slowdown" else duration(value)
