"""When a job will start: the present state, simulated on with the same policy, several times.

How long jobs run is not known. Each simulation draws it: an owner's estimate times the ratio of
some finished job to its estimate; without an estimate the run time of some finished job. A job that
has run longer than what was drawn needs as long again as it has run. No new jobs arrive.
"""

import random
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

from rota.backends.live.source import LiveSource
from rota.core.events import INF
from rota.core.jobs import DONE, RUNNING, STARTING, STOPPING, Behaviour, Job
from rota.core.topology import Topology
from rota.daemon.info import Forecast
from rota.daemon.pictures import state_of
from rota.engine.loop import Engine
from rota.engine.snapshot import freeze, restore
from rota.rates.costs import Zero
from rota.rates.models import Uniform
from rota.sim.cluster import SimCluster

if TYPE_CHECKING:
    from rota.daemon.core import Core

Ask: TypeAlias = Callable[[Callable[[], Any]], Any]
"""Has something done in the engine's thread."""
BUDGET_S = 5.0  # of real time
MOST_BATCHES = 100_000  # in one simulation
GUESS_S = 3600.0  # where nothing is known at all
ENOUGH = 3  # finished jobs from which something can be learnt


class Durations:
    """What finished jobs teach about how long jobs run."""

    def __init__(self, finished: list[Job]) -> None:
        ran = [job for job in finished if job.phase == DONE and job.run_s > 0]
        self.run_s = [job.run_s for job in ran]
        self.ratios = [j.run_s / j.spec.estimate_s for j in ran if 0 < j.spec.estimate_s < INF]

    def draw(self, job: Job, executed_s: float, dice: random.Random) -> float:
        """How long this one will have run in all."""
        estimate_s = job.spec.estimate_s
        if estimate_s < INF:
            factor = dice.choice(self.ratios) if len(self.ratios) >= ENOUGH else 1.0
            total_s = estimate_s * factor
        else:
            total_s = dice.choice(self.run_s) if len(self.run_s) >= ENOUGH else GUESS_S
        return total_s if total_s > executed_s else 2 * executed_s

    def describe(self) -> dict[str, Any]:
        """For the assumptions."""
        return {
            "finished_jobs": len(self.run_s),
            "with_estimates": len(self.ratios),
            "without_any": f"{GUESS_S:g} s" if len(self.run_s) < ENOUGH else "not needed",
            "new_jobs": "none",
            "costs": "none",
        }


def forecast(core: "Core", ask: Ask, find: Callable[[], Job], runs: int) -> Forecast:
    """Freeze in the engine's thread, simulate in this one."""

    def look() -> Any:
        job = find()
        if job.started or job.terminal:
            return job, None, None
        state = freeze(core.engine)
        state["growth"] = [list(group) for group in core.growth]
        state["specs"] = [j.spec for j in core.engine.jobs.values() if j.parent is None]
        return job, state, Durations(core.engine.view.finished)

    job, state, durations = ask(look)
    epoch = core.store.epoch_unix
    if state is None:
        at = epoch + job.first_start_s if job.started else None
        text = "it has started already" if job.started else "it is over"
        return Forecast(
            id=job.id, state=state_of(job), starts_at=at, earliest_at=at, latest_at=at, runs=0,
            never=0, text=text, assumptions={},
        )  # fmt: skip
    deadline = monotonic() + BUDGET_S
    starts: list[float] = []
    made = 0
    for number in range(max(1, runs)):
        starts.append(_simulate(core, state, durations, job.index, random.Random(number), deadline))  # noqa: S311
        made += 1
        if monotonic() > deadline:
            break
    return _summary(job, sorted(starts), epoch, durations, made)


def _simulate(
    core: "Core", state: dict[str, Any], durations: Durations, index: int, dice: random.Random,
    deadline: float,
) -> float:  # fmt: skip
    engine = _thaw(core, state, durations, dice)
    job = engine.jobs[index]
    for _ in range(MOST_BATCHES):
        if job.phase in (STARTING, RUNNING):
            return engine.view.now_s
        if job.terminal or monotonic() > deadline or not engine.advance():
            break
    return INF


def _thaw(core: "Core", state: dict[str, Any], durations: Durations, dice: random.Random) -> Engine:
    """A simulated cluster in the state of the living one."""
    topology = Topology(state["growth"][0], core.levels, growing=True)
    for group in state["growth"][1:]:
        topology.extend(group)
    cluster = SimCluster(topology, Zero(), Uniform(topology))
    cluster.now_s = state["now_s"]
    source = LiveSource()
    source.announce([(int(spec.id), spec, Behaviour(INF)) for spec in state["specs"]])
    engine = Engine(cluster, core.compose_on(topology), source, tenants=core.scheduling.tenants())
    restore(engine, {**state, "cluster": cluster.snapshot()})
    for job in engine.view.active.values():
        executed_s = job.executed_s(cluster.now_s)
        job.work = durations.draw(job, executed_s, dice)
        job.behaviour = Behaviour(job.work)
        job.left = job.work - job.run_s
        launched = job not in engine.executor.deferred  # else others have to leave first
        if job.phase in (STARTING, RUNNING, STOPPING) and launched:
            cluster.resume(job)
    return engine


def _summary(
    job: Job, starts: list[float], epoch: float, durations: Durations, made: int
) -> Forecast:
    def at(share: float) -> float | None:
        value = starts[min(len(starts) - 1, int(share * len(starts)))]
        return epoch + value if value < INF else None

    never = sum(1 for start in starts if start == INF)
    text = "it is not expected to start with what is known now"
    if at(0.5) is not None:
        text = f"expected to start; {made} simulations of the present state"
    return Forecast(
        id=job.id, state=state_of(job), starts_at=at(0.5), earliest_at=at(0.1), latest_at=at(0.9),
        runs=made, never=never, text=text, assumptions=durations.describe(),
    )  # fmt: skip
