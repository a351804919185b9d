"""A moment of a Slurm on a simulated cluster: who runs where and since when, and who waits.

The policy `slurm` decides with the site's own rules and with the priorities that Slurm itself has
computed; how long jobs still run is drawn. Waiting jobs that Slurm would not start however much is
free (held, limits, a begin time) are not in the queue.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from rota.core import machine
from rota.core.allocation import Allocation
from rota.core.events import INF
from rota.core.jobs import Behaviour, Job, JobSpec, Shape
from rota.core.reasons import Reason
from rota.core.resources import CPU, MEMORY
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.engine.blame import why_not
from rota.engine.general import GeneralScheduler
from rota.engine.loop import Engine
from rota.engine.parts import make_admission, make_placement
from rota.engine.source import WorkloadSource
from rota.engine.wiring import DEFAULT_ADMISSION, DEFAULT_PLACEMENT, FIRST_TASK, Parts, make_engine
from rota.models.costs import Zero
from rota.models.rates import Uniform
from rota.policies.slurm.asks import SlurmRequests
from rota.policies.slurm.params import SlurmPolicyParams
from rota.policies.slurm.policy import SlurmPolicy
from rota.sim.cluster import SimCluster
from rota.sim.proposal import Proposal, propose

GUEST = "new"  # the id of a job that is not submitted


class WorldJob(msgspec.Struct, frozen=True):
    """A job at a moment; `start_s` None: it waits. `places`: GPUs, CPUs, GiB by node."""

    spec: JobSpec
    start_s: float | None = None
    places: Mapping[str, tuple[float, float, float]] = {}


class SlurmWorld:
    """Implements `Explained` of `rota.sim.verdict`."""

    def __init__(
        self,
        nodes: Sequence[NodeSpec],
        jobs: Sequence[WorldJob],
        now_s: float,
        params: SlurmPolicyParams,
        *,
        down: frozenset[str] = frozenset(),
        closed: frozenset[str] = frozenset(),
        reasons: Mapping[str, str] | None = None,
        partitions: Sequence[str] = (),
    ) -> None:
        """A moment.

        Args:
            nodes: All, with their partitions as labels.
            jobs: Those that run, and those that wait and could be started.
            now_s: The moment.
            params: The rules.
            down: Nodes that do not work.
            closed: Nodes on which nothing more is started.
            reasons: Why jobs wait, by Slurm's own account, as names of `Reason`.
            partitions: Their names.
        """
        self.now_s = now_s
        self.params = params
        self._nodes = tuple(nodes)
        self._running = [job for job in jobs if job.start_s is not None]
        self._waiting = [job for job in jobs if job.start_s is None]
        self._down, self._closed = down, closed
        self._reasons = reasons or {}
        self._partitions = list(partitions)
        specs = [job.spec for job in (*self._running, *self._waiting)]
        self.index = {spec.id: number for number, spec in enumerate(specs)}

    def thaw(
        self, change: Callable[[Engine], None] | None = None, proposal: Proposal | None = None
    ) -> Engine:
        """A simulated cluster in that state, after a first decision."""
        topology = Topology(self._nodes)
        for node in topology.nodes:
            node.up = node.name not in self._down
            node.closed = node.name in self._closed
        cluster = SimCluster(topology, Zero(), Uniform(topology))
        cluster.now_s = self.now_s
        scheduler = Parts(
            SlurmPolicy(self.params),
            make_placement(DEFAULT_PLACEMENT, topology, 0),
            make_admission(DEFAULT_ADMISSION),
        ).scheduler()
        specs = [job.spec for job in (*self._running, *self._waiting)]
        source = WorkloadSource(Workload(specs, [Behaviour(INF)] * len(specs)))
        engine = make_engine(scheduler, cluster, source)
        engine.view.now_s = self.now_s
        engine.view.up_gpus = sum(node.gpus for node in topology.nodes if node.up)
        taken = source.take(self.now_s)
        count = len(self._running)
        engine.lifecycle.submit([one for one in taken if one[0] < count], [])
        names = {node.name: node.id for node in topology.nodes}
        for index, placed in enumerate(self._running):
            job = engine.jobs[index]
            start_s = min(placed.start_s or 0.0, self.now_s)
            machine.start(job, _allocation(placed, names), start_s, 1.0)
            cluster.resume(job)
        engine.hand_over(scheduler)
        engine.lifecycle.submit([one for one in taken if one[0] >= count], engine.lifecycle.backlog)
        engine.advance(self.now_s)
        if proposal is not None:
            propose(engine, proposal, first_task=FIRST_TASK)
        if change is not None:
            change(engine)
        cluster.look_again(engine.view.active.values())
        return engine

    def newest(self, engine: Engine) -> Job:
        """The job that a proposal has become."""
        return engine.jobs[len(self.index)]

    def reason(self, engine: Engine, job: Job) -> str:
        """Slurm's own account; of a job that Slurm does not know, what is free and who is first."""
        told = self._reasons.get(job.id)
        if told is not None and told not in ("", Reason.CAPACITY.label):
            return told
        scheduler = engine.scheduler
        if not isinstance(scheduler, GeneralScheduler):  # pragma: no cover - it always is
            return Reason.UNKNOWN.label
        found = Reason(why_not(scheduler.placement, job.shape))
        if told is None and found == Reason.FRAGMENTATION and self.ahead(engine, job):
            fits = scheduler.placement.fits(job.shape)
            return Reason.ORDER.label if fits else found.label
        return found.label

    def ahead(self, engine: Engine, job: Job) -> list[Job]:
        """As Slurm orders: tier of the partition, priority, number; those for the same nodes."""
        requests = SlurmRequests(self.params, engine.view.topology)
        mine = requests.of(job)

        def key(other: Job) -> tuple[int, int, int, float, int]:
            ask = requests.of(other)
            ask.rank(other.spec.priority)
            first = ask.key
            return (*first[:3], 0.0, _number(other))

        waiting = [
            self.index[placed.spec.id] for placed in self._waiting if placed.spec.id in self.index
        ]
        others = [engine.jobs[number] for number in waiting if number != job.index]
        before = [o for o in others if key(o) < key(job) and requests.of(o).nodes & mine.nodes]
        return sorted(before, key=key)

    def held_by(self, engine: Engine, job: Job) -> str:
        """Whom it waits for."""
        blockers = engine.arrivals.blockers(job)
        return f"it waits for {', '.join(blockers)}" if blockers else ""

    def queues(self) -> Sequence[str]:
        """The partitions."""
        return self._partitions

    def in_queue(self, spec: JobSpec, queue: str) -> JobSpec:
        """The same job in another partition."""
        kept = tuple(label for label in spec.request.labels if label != spec.partition)
        request = msgspec.structs.replace(spec.request, labels=(*kept, queue))
        return msgspec.structs.replace(spec, partition=queue, request=request)

    def proposal(self, spec: JobSpec, priority: int | None = None) -> Proposal:
        """A job, submitted now; None: with the priority that such a job would get."""
        if priority is None:
            priority = self._priority(spec)
        mine = msgspec.structs.replace(spec, id=GUEST, priority=priority)
        return Proposal(spec=mine, behaviour=Behaviour(spec.estimate_s), index=len(self.index))

    def _priority(self, spec: JobSpec) -> int:
        """What Slurm would compute: its fixed part, and the fair share of its like.

        Fair shares are not in what Slurm prints of jobs, but the rest of the priorities of those
        that wait is known: what is left is taken for it.
        """
        waiting = [job.spec for job in self._waiting]
        if not waiting:
            return 1
        factors = msgspec.structs.replace(self.params, given_priorities=False)
        weights = (
            factors.weight_age, factors.weight_fairshare, factors.weight_job_size,
            factors.weight_partition, factors.weight_qos,
        )  # fmt: skip
        if not any(weights):  # first come, first served: numbers fall
            return min(other.priority for other in waiting) - 1
        requests = SlurmRequests(factors, Topology(self._nodes))

        def base(one: JobSpec) -> float:
            return requests.of(_job_of(one)).base

        def rest(one: JobSpec) -> float:
            age_s = min(max(self.now_s - one.submit_s, 0.0) / factors.max_age_s, 1.0)
            return one.priority - base(one) - factors.weight_age * age_s

        same = [one for one in waiting if one.user == spec.user] or [
            one for one in waiting if one.account == spec.account
        ]
        found = sorted(rest(one) for one in same or waiting)
        return int(base(spec) + found[len(found) // 2])


def _allocation(placed: WorldJob, names: Mapping[str, int]) -> Allocation:
    slices, extra = [], []
    for name, (gpus, cpus, mem_gib) in placed.places.items():
        if name not in names:
            continue
        if gpus:
            slices.append((names[name], gpus))
        extra += [(names[name], CPU.name, cpus)] * bool(cpus)
        extra += [(names[name], MEMORY.name, mem_gib)] * bool(mem_gib)
    return Allocation(slices, extra)


def _job_of(spec: JobSpec) -> Job:
    return Job(spec, Behaviour(INF), 0, Shape(0, spec.request))


def _number(job: Job) -> int:
    """Slurm's number of a job; one that it does not know comes last."""
    digits = job.id.partition("_")[0]
    return int(digits) if digits.isdecimal() else 1 << 62
