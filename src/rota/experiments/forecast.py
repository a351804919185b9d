"""When a job will start, told from a snapshot of a run: the run goes on, several times.

With `exact` the durations of the trace are known, and future failures too; one simulation is
enough. Otherwise durations are drawn (see `rota.sim.foresight`) from what is known at the snapshot:
what the policy's own oracle says where it has one, else users' estimates, else the past. Nodes do
not fail any more; those that are down come back when the run says so. With `arrivals` the rest of
the trace comes as it is written there; without, nobody else comes.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from rota.core.errors import InputError
from rota.core.events import INF
from rota.core.jobs import Job, Phase
from rota.core.knowledge import Knowledge
from rota.core.words import spell
from rota.core.workload import Workload
from rota.engine.loop import Engine
from rota.engine.snapshot import restore
from rota.engine.source import WorkloadSource
from rota.experiments.build import build
from rota.experiments.config import RunConfig
from rota.experiments.explain import no_job
from rota.experiments.resume import frozen_state
from rota.experiments.workloads import load_workload
from rota.metrics.story import Stories
from rota.sim.cluster import SimCluster
from rota.sim.foresight import (
    SHARE,
    Durations,
    Spread,
    is_placed,
    members,
    next_start_s,
    nobody_new,
    redraw,
    spread_of,
)

Told = Callable[[int, int], None]
"""Told (simulations made, simulations in all)."""


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


class Oracle:
    """A frozen run that can be continued again and again."""

    def __init__(self, snapshot: Path, *, exact: bool = False, arrivals: bool = False) -> None:
        self.snapshot = snapshot
        self.exact = exact
        self.arrivals = arrivals
        config, self._state = frozen_state(snapshot)
        self.config: RunConfig = msgspec.structs.replace(config, check=False)
        self.workload: Workload = load_workload(config)
        self.now = self._thaw()

    def _thaw(self) -> Engine:
        engine = build(self.config, self.workload).engine
        restore(engine, self._state)
        if not self.arrivals and isinstance(engine.source, WorkloadSource):
            engine.source.close()
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
        runs = 1 if self.exact else runs
        found = []
        for number in range(runs):
            found.append(self._start(index, Random(f"{seed} {number}")))  # noqa: S311
            if told is not None:
                told(number + 1, runs)
        return found

    def _start(self, index: int, dice: Random) -> float:
        engine = self._thaw()
        cluster = engine.cluster
        if not self.exact and isinstance(cluster, SimCluster):
            redraw(engine, self.durations(engine), dice)
            cluster.look_again(engine.view.active.values())
            cluster.no_more_failures()
        while index not in engine.jobs:  # it is still to come
            if not engine.advance():
                return INF
        return next_start_s(engine, engine.jobs[index], lambda: False)

    def durations(self, engine: Engine) -> Durations:
        """What is known at the snapshot about how long jobs run."""
        view = engine.view
        said = _believed if self._knows_all(engine) else _estimated
        return Durations(view.finished, view.active.values(), engine.cluster.now_s, said)

    def _knows_all(self, engine: Engine) -> bool:
        return bool(engine.scheduler.knowledge & Knowledge.REMAINING_WORK)

    def assumptions(self) -> dict[str, Any]:
        """What the answer rests on."""
        found: dict[str, Any] = {"durations": "exact, of the trace"}
        if not self.exact:
            learnt = self.durations(self.now).describe()
            said = (
                "what the policy's oracle says"
                if self._knows_all(self.now)
                else "users' estimates where there are any"
            )
            found["durations"] = f"drawn: {said}, and {learnt['finished_jobs']:,} finished jobs"
            found |= learnt
        config = self.config
        found["new_jobs"] = (
            "the rest of the trace"
            if self.arrivals
            else nobody_new(config.policy, admission=config.admission is not None)
        )
        found["failures"] = "those of the run" if self.exact else "none"
        return found

    def story(self, job: Job) -> tuple[str, str]:
        """The reason by which it waits now, and how long it has waited for what."""
        engine = self._thaw()
        engine.view.now_s = engine.cluster.now_s  # it may be later than the last event
        engine.finish()
        stories = Stories(engine.log.frame())
        told = stories.tell(stories.ids.index(job.id))
        return told.reason, told.text.removeprefix("unfinished; ")


def _believed(job: Job) -> float:
    return job.work * job.belief


def _estimated(job: Job) -> float:
    return job.spec.estimate_s


def forecast(
    snapshot: Path,
    job: str,
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
        job: Its id.
        runs: Simulations.
        exact: The durations of the trace are known.
        arrivals: The rest of the trace is known to come.
        seed: Of the draws.
        told: Told after every simulation.
    """
    oracle = Oracle(snapshot, exact=exact, arrivals=arrivals)
    index = oracle.index(job)
    now_s = oracle.now.cluster.now_s
    known = oracle.now.jobs.get(index)
    if known is not None and (known.terminal or is_placed(known)):
        return _settled(known, now_s)
    reason, why = oracle.story(known) if known is not None else ("", "")
    starts = oracle.starts(index, runs, seed=seed, told=told)
    spread = spread_of(starts)
    never = starts.count(INF)
    return Outlook(
        id=job,
        state=Phase(known.phase).name.lower() if known is not None else "to come",
        now_s=now_s,
        starts_s=_finite(spread.median_s),
        earliest_s=_finite(spread.earliest_s),
        latest_s=_finite(spread.latest_s),
        runs=len(starts),
        never=never,
        reason=reason,
        text=_sentence(spread, now_s, again=known is not None and _has_run(known)),
        why=why,
        assumptions=oracle.assumptions(),
    )


def _has_run(job: Job) -> bool:
    return any(one.started for one in members(job))


def _finite(value: float) -> float | None:
    return value if value < INF else None


def _settled(job: Job, now_s: float) -> Outlook:
    """Nothing to foresee."""
    starts = [one.start_s for one in members(job) if one.running]
    start_s = min(starts) if starts else None
    state = Phase(job.phase).name.lower()
    text = f"is over: {state} at second {job.end_s:.15g}"
    if start_s is not None:
        state = "running"
        text = f"has started already, at second {start_s:.15g}"
    return Outlook(
        id=job.id, state=state, now_s=now_s, starts_s=start_s, earliest_s=start_s,
        latest_s=start_s, text=text,
    )  # fmt: skip


def _sentence(spread: Spread, now_s: float, *, again: bool) -> str:
    if spread.median_s == INF:
        return "is not expected to start with what is known now"
    text = f"is expected to start {'again ' if again else ''}in {spell(spread.median_s - now_s)}"
    if spread.earliest_s == spread.latest_s:
        return text
    latest = "never" if spread.latest_s == INF else spell(spread.latest_s - now_s)
    return f"{text} ({SHARE * 100:g} % between {spell(spread.earliest_s - now_s)} and {latest})"
