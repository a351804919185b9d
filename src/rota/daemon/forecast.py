"""When a job will start: the present state, simulated on with the same policy, several times.

How long jobs run is drawn (see `rota.sim.durations`). No new jobs arrive.
"""

from collections.abc import Callable
from time import monotonic
from typing import Any, TypeAlias

from rota.core.events import INF
from rota.core.jobs import RUNNING, STARTING, STOPPING, Behaviour, Job
from rota.core.topology import Topology
from rota.daemon.pictures import state_of
from rota.daemon.state import ClusterState, SubmissionQueue
from rota.engine.loop import Engine
from rota.engine.snapshot import freeze, restore
from rota.engine.wiring import make_engine
from rota.models.costs import Zero
from rota.models.rates import Uniform
from rota.sim.cluster import SimCluster
from rota.sim.durations import Durations
from rota.sim.foresight import backtest, is_placed, members, nobody_new, sentence, spread_of, starts
from rota.wire import Forecast

Ask: TypeAlias = Callable[[Callable[[], Any]], Any]
"""Has something done in the engine's thread."""
BUDGET_S = 5.0  # of real time


def forecast(
    state: ClusterState, epoch: float, ask: Ask, find: Callable[[], Job], runs: int
) -> Forecast:
    """Freeze in the engine's thread, simulate in this one."""

    def look() -> Any:
        job = find()
        if is_placed(job) or job.terminal:
            return job, None
        return job, Living(state)

    job, living = ask(look)
    if living is None:
        return _settled(job, epoch)
    durations = Durations.of(living.thaw())
    deadline = monotonic() + BUDGET_S
    found = starts(
        living, durations, job.index, runs=runs, give_up=lambda: monotonic() > deadline
    )  # fmt: skip
    newcomers = nobody_new(state.engine.scheduler, state.scheduling.policy)
    assumed = {**durations.describe(), "new_jobs": newcomers, "costs": "none"}
    spread = spread_of(found)

    def at(value: float) -> float | None:
        return epoch + value if value < INF else None

    return Forecast(
        id=job.id,
        state=state_of(job),
        starts_at=at(spread.median_s),
        earliest_at=at(spread.earliest_s),
        latest_at=at(spread.latest_s),
        share=spread.share,
        runs=len(found),
        never=found.count(INF),
        text=sentence(spread, living.now_s, durations.doubt, again=job.started),
        assumptions=assumed,
        backtest=backtest(durations),
    )


def _settled(job: Job, epoch: float) -> Forecast:
    """Nothing to foresee."""
    placed = [one.start_s for one in members(job) if one.running]
    at = epoch + min(placed) if placed else None
    text = "has started already" if placed else "is over"
    return Forecast(
        id=job.id, state=state_of(job), starts_at=at, earliest_at=at, latest_at=at, runs=0,
        never=0, text=text, assumptions={},
    )  # fmt: skip


class Living:
    """The state of the living cluster, as it was when this was made."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._frozen = freeze(state.engine)
        self._growth = [list(group) for group in state.growth]
        jobs = state.engine.jobs.values()
        self._specs = [job.spec for job in jobs if job.parent is None]
        self.now_s = state.engine.cluster.now_s  # it may be later than the last event

    def thaw(self, change: Callable[[Engine], None] | None = None) -> Engine:
        """A simulated cluster in that state."""
        state = self._state
        topology = Topology(self._growth[0], state.levels, growing=True)
        for group in self._growth[1:]:
            topology.extend(group)
        cluster = SimCluster(topology, Zero(), Uniform(topology))
        cluster.now_s = self.now_s
        source = SubmissionQueue()
        source.announce([(int(spec.id), spec, Behaviour(INF)) for spec in self._specs])
        tenants = state.scheduling.tenants()
        scheduler = state.compose(state.scheduling, topology)
        engine = make_engine(scheduler, cluster, source, tenants=tenants)
        restore(engine, {**self._frozen, "cluster": cluster.snapshot()})
        if change is not None:
            change(engine)
        for job in engine.view.active.values():
            launched = job not in engine.executor.deferred  # else others have to leave first
            if job.phase in (STARTING, RUNNING, STOPPING) and launched:
                cluster.resume(job)
        return engine
