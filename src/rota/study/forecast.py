"""When a job will start, from a snapshot of a run: the run goes on, several times.

With `exact` the durations of the trace are known, and future failures too; one simulation is
enough. Otherwise durations are drawn (see `rota.sim.durations`) from what is known at the snapshot:
what the policy's own oracle says where it has one, else users' estimates, else the past. Nodes do
not fail any more; those that are down come back when the run says so. With `arrivals` the rest of
the trace comes as it is written there; without, no other jobs come.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rota.core.backtest import Backtest
from rota.core.errors import InputError
from rota.core.jobs import Behaviour, Job, JobSpec, Phase
from rota.core.knowledge import Knowledge
from rota.core.verdict import Verdict
from rota.core.workload import Workload
from rota.engine.loop import Engine
from rota.engine.snapshot import restore
from rota.engine.source import WorkloadSource
from rota.engine.wiring import FIRST_TASK
from rota.metrics.story import Stories, Story
from rota.sim.cluster import SimCluster
from rota.sim.durations import Durations, believed
from rota.sim.foresight import (
    SHARE,
    Foreseen,
    Told,
    foresee,
    is_placed,
    nobody_new,
    started_s,
    starts,
)
from rota.sim.proposal import Proposal, members, propose, refuse_hopeless
from rota.sim.verdict import judge
from rota.study.build import build
from rota.study.config import RunConfig
from rota.study.explain import no_job
from rota.study.resume import frozen_state
from rota.study.workloads import load_workload

NEW = "new"  # the name of a job that is not submitted


class Outlook(msgspec.Struct, kw_only=True):
    """When a job starts; times are seconds of the simulation, None: not at all.

    `earliest_s` and `latest_s` hold the start with a probability of `share`. `starts_s` of a job
    that runs is when it started.
    """

    id: str
    state: str
    now_s: float
    starts_s: float | None
    earliest_s: float | None
    latest_s: float | None
    share: float = SHARE
    runs: int = 0
    never: int = 0  # simulations in which it did not start
    reason: str = ""  # by which it waits now
    text: str
    why: str = ""
    assumptions: dict[str, Any] = {}
    backtest: Backtest | None = None  # None: nothing is drawn


class Oracle:
    """A frozen run that can be continued again and again."""

    def __init__(self, snapshot: Path, *, exact: bool = False, arrivals: bool = False) -> None:
        self.snapshot = snapshot
        self.exact = exact
        self.arrivals = arrivals
        config, self._state = frozen_state(snapshot)
        self.config: RunConfig = msgspec.structs.replace(config, check=False)
        self.workload: Workload = load_workload(config)
        self.now = self.thaw()
        self.now_s = self.now.cluster.now_s

    def thaw(
        self, change: Callable[[Engine], None] | None = None, proposal: Proposal | None = None
    ) -> Engine:
        """An engine in that state; with a change of durations there are no more failures."""
        engine = build(self.config, self.workload).engine
        restore(engine, self._state)
        if not self.arrivals and isinstance(engine.source, WorkloadSource):
            engine.source.close()
        if proposal is not None:
            propose(engine, proposal, first_task=FIRST_TASK)
        cluster = engine.cluster
        if change is not None and isinstance(cluster, SimCluster):
            change(engine)
            cluster.look_again(engine.view.active.values())
            cluster.no_more_failures()
        return engine

    def index(self, job: str) -> int:
        """The number of a job."""
        ids = [spec.id for spec in self.workload.specs]
        if job not in ids:
            raise InputError(no_job(self.snapshot, job, ids))
        index = ids.index(job)
        if index not in self.now.jobs and not self.arrivals:
            raise InputError(
                f"{self.snapshot}: job {job!r} is submitted at second "
                f"{self.workload.specs[index].submit_s:.15g}, after the snapshot (second "
                f"{self.now.cluster.now_s:.15g}): include it with --with-arrivals"
            )
        return index

    def starts(
        self, index: int, runs: int, *, seed: int = 0, told: Told | None = None
    ) -> list[float]:
        """When the job, which waits or is still to come, starts in each simulation."""
        return starts(self, self.durations(), index, runs=runs, seed=seed, told=told)

    def durations(self) -> Durations | None:
        """What is known at the snapshot about how long jobs run; None: everything."""
        if self.exact:
            return None
        if self._knows_all:
            return Durations.of(self.now, believed, sure=self.config.estimate_error is None)
        return Durations.of(self.now)

    @property
    def _knows_all(self) -> bool:
        return bool(self.now.scheduler.knowledge & Knowledge.REMAINING_WORK)

    def assumptions(self) -> dict[str, Any]:
        """What the answer rests on."""
        found: dict[str, Any] = {"durations": "exact, of the trace"}
        durations = self.durations()
        if durations is not None:
            learnt = durations.describe()
            said = (
                "what the policy's oracle says"
                if self._knows_all
                else "users' estimates where there are any"
            )
            found["durations"] = f"drawn: {said}, and {learnt['finished_jobs']:,} finished jobs"
            found |= learnt
        config = self.config
        found["new_jobs"] = (
            "the rest of the trace"
            if self.arrivals
            else nobody_new(self.now.scheduler, config.policy)
        )
        found["failures"] = "those of the run" if self.exact else "none"
        return found

    def story(self, job: Job) -> tuple[str, str]:
        """The reason by which it waits now, and how long it has waited for what."""
        told = present_story(self.thaw(), job)
        return told.reason, told.text.removeprefix("unfinished; ")

    # --- why it waits -----------------------------------------------------------------------------

    def newest(self, engine: Engine) -> Job:
        """The job that a proposal has become: its number is that after the last of the trace."""
        return engine.jobs[len(self.workload)]

    def proposal(self, spec: JobSpec) -> Proposal:
        """Such a job, submitted now."""
        return Proposal(
            spec=msgspec.structs.replace(spec, id=NEW), behaviour=Behaviour(spec.estimate_s),
            index=len(self.workload),
        )  # fmt: skip

    def reason(self, engine: Engine, job: Job) -> str:
        """As the log says."""
        return present_story(engine, job, later_s=1.0).reason

    def ahead(self, engine: Engine, job: Job) -> list[Job]:
        """Those in the queue that rank before it."""
        return engine.ahead_of(job)

    def held_by(self, engine: Engine, job: Job) -> str:
        """Whom it waits for, or which limit keeps it out."""
        blockers = engine.arrivals.blockers(job)
        if blockers:
            return f"it waits for {', '.join(blockers)}"
        return engine.scheduler.why_held(job, engine.view)

    def queues(self) -> Sequence[str]:
        """The tenants that are declared."""
        return list(self.now.view.tenants.names)

    def in_queue(self, spec: JobSpec, queue: str) -> JobSpec:
        """The same job of another tenant."""
        return msgspec.structs.replace(spec, tenant=queue)


def present_story(engine: Engine, job: Job, *, later_s: float = 0.0) -> Story:
    """What the log of a thawed state says of a job, up to now; the log is closed for it.

    Who comes at this very instant has not waited yet: the reason is that of a moment `later_s`.
    """
    engine.view.now_s = engine.cluster.now_s + later_s  # it may be later than the last event
    engine.finish()
    stories = Stories(engine.log.frame())
    return stories.tell(stories.ids.index(job.id))


def forecast(
    snapshot: Path,
    job: str | JobSpec,
    *,
    runs: int = 20,
    exact: bool = False,
    arrivals: bool = False,
    seed: int = 0,
    told: Told | None = None,
) -> Outlook:
    """When a job starts, or starts again.

    Args:
        snapshot: The file.
        job: Its id, or one that is not in the run and is submitted at the snapshot.
        runs: Simulations.
        exact: The durations of the trace are known.
        arrivals: The rest of the trace is known to come.
        seed: Random seed of the draws.
        told: Called after every simulation.
    """
    oracle = Oracle(snapshot, exact=exact, arrivals=arrivals)
    if isinstance(job, JobSpec):
        return _foreseen_new(oracle, oracle.proposal(job), runs=runs, seed=seed, told=told)
    index = oracle.index(job)
    now_s = oracle.now_s
    known = oracle.now.jobs.get(index)
    if known is not None and (known.terminal or is_placed(known)):
        return _settled(known, now_s)
    reason, why = oracle.story(known) if known is not None else ("", "")
    found = foresee(
        oracle, oracle.durations(), index, again=known is not None and _has_run(known),
        runs=runs, seed=seed, told=told,
    )  # fmt: skip
    return Outlook(
        id=job,
        state=Phase(known.phase).name.lower() if known is not None else "to come",
        now_s=now_s,
        reason=reason,
        why=why,
        assumptions=oracle.assumptions(),
        **msgspec.structs.asdict(found),
    )


def _foreseen_new(
    oracle: Oracle, proposal: Proposal, *, runs: int, seed: int, told: Told | None
) -> Outlook:
    engine = oracle.thaw(None, proposal)
    job = oracle.newest(engine)
    refuse_hopeless(engine, job)
    found = foresee(
        oracle, oracle.durations(), job.index, again=False, runs=runs, seed=seed, told=told,
        proposal=proposal,
    )  # fmt: skip
    return Outlook(
        id=NEW,
        state="not submitted",
        now_s=oracle.now_s,
        reason="" if is_placed(job) else oracle.reason(engine, job),
        assumptions=oracle.assumptions(),
        **msgspec.structs.asdict(found),
    )


def why(
    snapshot: Path,
    job: str | JobSpec,
    *,
    runs: int = 20,
    exact: bool = False,
    arrivals: bool = False,
    seed: int = 0,
) -> Verdict:
    """Why a job does not run at a snapshot, and the smallest change that would start it.

    Args:
        snapshot: The file.
        job: Its id, or one that is not in the run and is submitted at the snapshot.
        runs: Simulations, if the answer is a time.
        exact: The durations of the trace are known.
        arrivals: The rest of the trace is known to come.
        seed: Random seed of the draws.
    """
    oracle = Oracle(snapshot, exact=exact, arrivals=arrivals)
    if isinstance(job, JobSpec):
        given = proposal = oracle.proposal(job)
        engine = oracle.thaw(None, proposal)
        asked = oracle.newest(engine)
        refuse_hopeless(engine, asked)
        state = "not submitted"
    else:
        engine, proposal = oracle.thaw(), None
        index = oracle.index(job)
        if index not in engine.jobs:
            raise InputError(f"{snapshot}: job {job!r} is still to come: ask `rota when`")
        asked = engine.jobs[index]
        state = Phase(asked.phase).name.lower()
        given = msgspec.structs.replace(oracle.proposal(asked.spec), instead_of=index)

    def starts() -> Foreseen:
        return foresee(
            oracle, oracle.durations(), asked.index, again=_has_run(asked), runs=runs, seed=seed,
            proposal=proposal,
        )  # fmt: skip

    verdict = judge(oracle, engine, asked, given, state=state, forecast=starts)
    if proposal is not None and is_placed(asked):
        verdict.text = "it would start now"
    return verdict


def _has_run(job: Job) -> bool:
    return any(one.started for one in members(job))


def _settled(job: Job, now_s: float) -> Outlook:
    """Nothing to foresee."""
    start_s = started_s(job)
    state = Phase(job.phase).name.lower()
    text = f"is over: {state} at second {job.end_s:.15g}"
    if start_s is not None:
        state = "running"
        text = f"has started already, at second {start_s:.15g}"
    return Outlook(
        id=job.id, state=state, now_s=now_s, starts_s=start_s, earliest_s=start_s,
        latest_s=start_s, text=text,
    )  # fmt: skip
