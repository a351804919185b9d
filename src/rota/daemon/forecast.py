"""When a job will start and why it does not: the present state, simulated on, several times.

How long jobs run is drawn (see `rota.sim.durations`). No new jobs arrive. The job may also be one
that nobody has submitted yet.
"""

from collections.abc import Callable, Sequence
from time import monotonic

import msgspec

from rota.core.events import INF
from rota.core.jobs import RUNNING, STARTING, STOPPING, Behaviour, Job, JobSpec
from rota.core.sums import ordered_sum
from rota.core.topology import NodeSpec, Topology
from rota.core.verdict import Verdict
from rota.daemon.explain import size_of
from rota.daemon.pictures import reason_of, state_of
from rota.daemon.settings import Scheduling
from rota.daemon.state import ClusterState, SubmissionQueue
from rota.engine.loop import Engine
from rota.engine.snapshot import freeze, restore
from rota.engine.wiring import FIRST_TASK, make_engine
from rota.models.costs import Zero
from rota.models.rates import Uniform
from rota.sim.cluster import SimCluster
from rota.sim.durations import Durations
from rota.sim.foresight import Foreseen, foresee, is_placed, nobody_new, started_s
from rota.sim.proposal import Proposal, propose, refusal
from rota.sim.verdict import judge
from rota.wire import Forecast

BUDGET_S = 5.0  # of real time
NEW = "new"  # the name of a job that is not submitted
NOT_YET = "not submitted"


class ClusterOutlook:
    """The state of the living cluster as it was when this was made, and a job in it.

    It is made in the engine's thread; its questions may be asked in any.
    """

    def __init__(
        self, state: ClusterState, job: Job | None = None, proposal: Proposal | None = None
    ) -> None:
        """Freeze the state.

        Args:
            state: Of the daemon.
            job: The job in question; None: it is the one that is proposed.
            proposal: Is submitted now.
        """
        self._job = job
        self._proposal = proposal
        self._settled = job is not None and (is_placed(job) or job.terminal)
        self._told = state.projection.messages.get(job.index, "") if job is not None else ""
        self._size = size_of(job) if job is not None else ""
        if self._settled:  # there is nothing to foresee
            return
        self._compose = state.compose
        self.scheduling = state.scheduling
        self._levels = list(state.levels)
        self.newcomers = nobody_new(state.engine.scheduler, state.scheduling.policy)
        self._frozen = freeze(state.engine)
        self._growth = [list(group) for group in state.growth]
        jobs = state.engine.jobs.values()
        self._specs = [job.spec for job in jobs if job.parent is None]
        self._reasons = state.projection.reasons()
        self.now_s = state.engine.cluster.now_s  # it may be later than the last event

    # --- questions --------------------------------------------------------------------------------

    def forecast(self, epoch: float, runs: int) -> Forecast:
        """When the job will start; times are counted from `epoch`."""

        def at(time_s: float | None) -> float | None:
            return None if time_s is None else epoch + time_s

        job = self._job
        if job is not None and self._settled:
            start = at(started_s(job))
            return Forecast(
                id=job.id, state=state_of(job), starts_at=start, earliest_at=start,
                latest_at=start, runs=0, never=0,
                text="is over" if start is None else "has started already", assumptions={},
            )  # fmt: skip
        durations = Durations.of(self.thaw())
        _, asked = self._asked()
        self._refuse_hopeless(asked)
        found = self._foresee(durations, asked, runs, again=asked.started and not is_placed(asked))
        return Forecast(
            id=NEW if job is None else job.id,
            state=NOT_YET if job is None else state_of(job),
            starts_at=at(found.starts_s),
            earliest_at=at(found.earliest_s),
            latest_at=at(found.latest_s),
            share=found.share,
            runs=found.runs,
            never=found.never,
            text=found.text,
            assumptions={**durations.describe(), "new_jobs": self.newcomers, "costs": "none"},
            backtest=found.backtest,
        )

    def why(self, runs: int) -> Verdict:
        """Why it does not run, and what would start it."""
        if self._job is not None and self._settled:
            over = f"it is over{self._told and f': {self._told}'}"
            text = over if self._job.terminal else "; ".join(filter(None, ("it runs", self._size)))
            return Verdict(id=self._job.id, state=state_of(self._job), reason="", text=text)
        engine, asked = self._asked()
        self._refuse_hopeless(asked)
        durations = Durations.of(self.thaw())
        spec = msgspec.structs.replace(asked.spec, id="")
        given = self._proposal or Proposal(
            spec=spec, behaviour=Behaviour(spec.estimate_s), instead_of=asked.index
        )
        state = NOT_YET if self._job is None else state_of(asked)
        verdict = judge(
            self, engine, asked, given, state=state,
            forecast=lambda: self._foresee(durations, asked, runs, again=asked.started),
        )  # fmt: skip
        if self._job is None:
            verdict.id = NEW
            if is_placed(asked):
                verdict.text = "it would start now"
        return verdict

    def _asked(self) -> tuple[Engine, Job]:
        engine = self.thaw(None, self._proposal)
        self._reasons.fold(engine.log.take())  # what the proposal has changed
        return engine, engine.jobs[self._job.index] if self._job else self.newest(engine)

    def _refuse_hopeless(self, job: Job) -> None:
        if job.terminal:
            raise refusal(self._reasons.messages.get(job.index))

    def _foresee(self, durations: Durations, job: Job, runs: int, *, again: bool) -> Foreseen:
        deadline = monotonic() + BUDGET_S
        return foresee(
            self, durations, job.index, again=again, runs=runs, proposal=self._proposal,
            give_up=lambda: monotonic() > deadline,
        )  # fmt: skip

    # --- the frozen state -------------------------------------------------------------------------

    def thaw(
        self, change: Callable[[Engine], None] | None = None, proposal: Proposal | None = None
    ) -> Engine:
        """A simulated cluster in that state."""
        kinds = self.scheduling.resources
        topology = Topology(self._growth[0], self._levels, growing=True, kinds=kinds)
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
        there = {
            job.index
            for job in engine.view.active.values()
            if job.phase in (STARTING, RUNNING, STOPPING)
        }
        if proposal is not None:
            propose(engine, proposal, first_task=FIRST_TASK)
        if change is not None:
            change(engine)
        for job in engine.view.active.values():
            launched = job not in engine.executor.deferred  # else others have to leave first
            if job.phase in (STARTING, RUNNING, STOPPING) and launched and job.index in there:
                cluster.resume(job)
        if proposal is not None:  # what it has set going has its length only now
            cluster.look_again(engine.view.active.values())
        return engine

    def hand_over(self, engine: Engine, wanted: Scheduling, nodes: Sequence[NodeSpec]) -> None:
        """Let a thawed cluster go on with another configuration, and with more nodes."""
        topology = engine.view.topology
        before = len(topology.nodes)
        if nodes:
            topology.extend(nodes)
            engine.view.up_gpus += ordered_sum(spec.gpus for spec in nodes)
        engine.hand_over(self._compose(wanted, topology), None, joined=topology.nodes[before:])

    def newest(self, engine: Engine) -> Job:
        """The job that a proposal has become."""
        return engine.jobs[max(index for index in engine.jobs if index < FIRST_TASK)]

    def reason(self, engine: Engine, job: Job) -> str:
        """As the log says."""
        return reason_of(job, self._reasons, engine.view)

    def ahead(self, engine: Engine, job: Job) -> list[Job]:
        """Those in the queue that rank before it."""
        return engine.ahead_of(job)

    def held_by(self, engine: Engine, job: Job) -> str:
        """Whom it waits for, or which limit keeps it out."""
        blockers = engine.arrivals.blockers(job)
        if blockers:
            be = "is" if len(blockers) == 1 else "are"
            return f"it waits until {', '.join(blockers)} {be} done"
        return engine.scheduler.why_held(job, engine.view)

    def queues(self) -> Sequence[str]:
        """Those that are declared."""
        return list(self.scheduling.tenants().names)

    def in_queue(self, spec: JobSpec, queue: str) -> JobSpec:
        """The same job of another tenant."""
        return msgspec.structs.replace(spec, tenant=queue)
