"""When a job will start: the present state, simulated on with the same policy, several times.

How long jobs run is drawn (see `rota.sim.durations`). No new jobs arrive.
"""

from collections.abc import Callable, Sequence
from time import monotonic

from rota.core.events import INF
from rota.core.jobs import RUNNING, STARTING, STOPPING, Behaviour, Job
from rota.core.topology import NodeSpec, Topology
from rota.daemon.pictures import state_of
from rota.daemon.settings import Scheduling
from rota.daemon.state import ClusterState, SubmissionQueue
from rota.engine.loop import Engine
from rota.engine.snapshot import freeze, restore
from rota.engine.wiring import make_engine
from rota.models.costs import Zero
from rota.models.rates import Uniform
from rota.sim.cluster import SimCluster
from rota.sim.durations import Durations
from rota.sim.foresight import foresee, is_placed, nobody_new, started_s
from rota.wire import Forecast

BUDGET_S = 5.0  # of real time


class FrozenCluster:
    """The state of the living cluster, as it was when this was made (in the engine's thread).

    `thaw` may be called in any thread, again and again.
    """

    def __init__(self, state: ClusterState) -> None:
        self._compose = state.compose
        self.scheduling = state.scheduling
        self._levels = list(state.levels)
        self.newcomers = nobody_new(state.engine.scheduler, state.scheduling.policy)
        self._frozen = freeze(state.engine)
        self._growth = [list(group) for group in state.growth]
        jobs = state.engine.jobs.values()
        self._specs = [job.spec for job in jobs if job.parent is None]
        self.now_s = state.engine.cluster.now_s  # it may be later than the last event

    def thaw(self, change: Callable[[Engine], None] | None = None) -> Engine:
        """A simulated cluster in that state."""
        topology = Topology(self._growth[0], self._levels, growing=True)
        for group in self._growth[1:]:
            topology.extend(group)
        cluster = SimCluster(topology, Zero(), Uniform(topology))
        cluster.now_s = self.now_s
        source = SubmissionQueue()
        source.announce([(int(spec.id), spec, Behaviour(INF)) for spec in self._specs])
        tenants = self.scheduling.tenants()
        scheduler = self._compose(self.scheduling, topology)
        engine = make_engine(scheduler, cluster, source, tenants=tenants)
        restore(engine, {**self._frozen, "cluster": cluster.snapshot()})
        if change is not None:
            change(engine)
        for job in engine.view.active.values():
            launched = job not in engine.executor.deferred  # else others have to leave first
            if job.phase in (STARTING, RUNNING, STOPPING) and launched:
                cluster.resume(job)
        return engine

    def hand_over(self, engine: Engine, wanted: Scheduling, nodes: Sequence[NodeSpec]) -> None:
        """Let a thawed cluster go on with another configuration, and with more nodes."""
        topology = engine.view.topology
        before = len(topology.nodes)
        if nodes:
            topology.extend(nodes)
            engine.view.up_gpus += sum(spec.gpus for spec in nodes)
        engine.hand_over(self._compose(wanted, topology), None, joined=topology.nodes[before:])


class JobOutlook:
    """A job and the state of the living cluster, as they were when this was made.

    It is made in the engine's thread; `forecast` may be called in any.
    """

    def __init__(self, state: ClusterState, job: Job) -> None:
        self._job = job
        self._settled = is_placed(job) or job.terminal
        if not self._settled:  # else there is nothing to foresee
            self._cluster = FrozenCluster(state)

    def forecast(self, epoch: float, runs: int) -> Forecast:
        """When the job will start; times are counted from `epoch`."""
        job = self._job

        def at(time_s: float | None) -> float | None:
            return None if time_s is None else epoch + time_s

        if self._settled:
            start = at(started_s(job))
            return Forecast(
                id=job.id, state=state_of(job), starts_at=start, earliest_at=start,
                latest_at=start, runs=0, never=0,
                text="is over" if start is None else "has started already", assumptions={},
            )  # fmt: skip
        cluster = self._cluster
        durations = Durations.of(cluster.thaw())
        deadline = monotonic() + BUDGET_S
        found = foresee(
            cluster, durations, job.index, again=job.started, runs=runs,
            give_up=lambda: monotonic() > deadline,
        )  # fmt: skip
        return Forecast(
            id=job.id,
            state=state_of(job),
            starts_at=at(found.starts_s),
            earliest_at=at(found.earliest_s),
            latest_at=at(found.latest_s),
            share=found.share,
            runs=found.runs,
            never=found.never,
            text=found.text,
            assumptions={**durations.describe(), "new_jobs": cluster.newcomers, "costs": "none"},
            backtest=found.backtest,
        )
