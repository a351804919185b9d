"""When a job will start: the present state, simulated on with the same policy, several times.

How long jobs run is drawn (see `rota.sim.foresight`). No new jobs arrive.
"""

import random
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

from rota.backends.live.source import LiveSource
from rota.core.events import INF
from rota.core.jobs import RUNNING, STARTING, STOPPING, Behaviour, Job
from rota.core.topology import Topology
from rota.daemon.info import Forecast
from rota.daemon.pictures import state_of
from rota.engine.loop import Engine
from rota.engine.snapshot import freeze, restore
from rota.rates.costs import Zero
from rota.rates.models import Uniform
from rota.sim.cluster import SimCluster
from rota.sim.foresight import (
    Durations,
    is_placed,
    members,
    next_start_s,
    nobody_new,
    redraw,
    spread_of,
)

if TYPE_CHECKING:
    from rota.daemon.core import Core

Ask: TypeAlias = Callable[[Callable[[], Any]], Any]
"""Has something done in the engine's thread."""
BUDGET_S = 5.0  # of real time


def forecast(core: "Core", ask: Ask, find: Callable[[], Job], runs: int) -> Forecast:
    """Freeze in the engine's thread, simulate in this one."""

    def look() -> Any:
        job = find()
        if is_placed(job) or job.terminal:
            return job, None, None
        state = freeze(core.engine)
        state["growth"] = [list(group) for group in core.growth]
        state["specs"] = [j.spec for j in core.engine.jobs.values() if j.parent is None]
        view = core.engine.view
        return job, state, Durations(view.finished, view.active.values(), core.engine.cluster.now_s)

    job, state, durations = ask(look)
    epoch = core.store.epoch_unix
    if state is None:
        placed = [one.start_s for one in members(job) if one.running]
        at = epoch + min(placed) if placed else None
        text = "it has started already" if placed else "it is over"
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
    newcomers = nobody_new(
        core.scheduling.policy, admission=core.scheduling.admission != "accept-all"
    )
    return _summary(job, starts, epoch, {**durations.describe(), "new_jobs": newcomers}, made)


def _simulate(
    core: "Core", state: dict[str, Any], durations: Durations, index: int, dice: random.Random,
    deadline: float,
) -> float:  # fmt: skip
    engine = _thaw(core, state, durations, dice)
    return next_start_s(engine, engine.jobs[index], lambda: monotonic() > deadline)


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
    redraw(engine, durations, dice)
    for job in engine.view.active.values():
        launched = job not in engine.executor.deferred  # else others have to leave first
        if job.phase in (STARTING, RUNNING, STOPPING) and launched:
            cluster.resume(job)
    return engine


def _summary(
    job: Job, starts: list[float], epoch: float, assumed: Mapping[str, Any], made: int
) -> Forecast:
    def at(value: float) -> float | None:
        return epoch + value if value < INF else None

    spread = spread_of(starts)
    never = sum(1 for start in starts if start == INF)
    text = "it is not expected to start with what is known now"
    if spread.median_s < INF:
        again = "again" if job.started else ""
        text = f"expected to start {again}".rstrip() + f"; {made} simulations of the present state"
    return Forecast(
        id=job.id, state=state_of(job), starts_at=at(spread.median_s),
        earliest_at=at(spread.earliest_s), latest_at=at(spread.latest_s),
        runs=made, never=never, text=text,
        assumptions={**assumed, "costs": "none"},
    )  # fmt: skip
