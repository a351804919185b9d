"""The true state of a Slurm as jobs and nodes of Rota: who waits, who runs where and since when."""

from collections.abc import Mapping, Sequence

import msgspec

from rota.core import machine
from rota.core.allocation import Allocation
from rota.core.errors import ClusterError
from rota.core.jobs import RUNNING, WAITING, Behaviour, Job, JobSpec, Request
from rota.core.topology import NodeSpec, Topology
from rota.engine.arrivals import Arrivals
from rota.live.drivers.slurm.layout import PENDING, SeenJob, SeenNode

KEPT_BACK = (
    "JobHeld", "Dependency", "BeginTime", "JobArrayTaskLimit", "Reservation", "Assoc", "QOS",
    "Licenses", "PartitionDown", "PartitionInactive", "AccountNotAllowed", "InvalidAccount",
)  # fmt: skip
"""Beginnings of reasons for which Slurm would not start a job however much is free."""

REMEMBERED = 10_000  # finished jobs, for policies that learn


class SlurmChanges(msgspec.Struct):
    """What Slurm did between two looks, in the order of its doing."""

    came: list[Job] = []
    starting: list[Job] = []
    brief: list[Job] = []  # waited at the last look, and is over now
    stopped: list[Job] = []  # back in the queue
    ended: list[Job] = []


class Mirror:
    """Jobs with GPUs only; CPUs and memory are not looked at.

    What a job will really need is not known: for policies that want to know, its time limit stands
    for it. Times are seconds since `epoch_s`.
    """

    def __init__(self, partition: str = "") -> None:
        self.topology: Topology | None = None
        self.jobs: dict[int, Job] = {}  # by Slurm's number, without those that are over
        self.seen: dict[int, SeenJob] = {}
        self.finished: list[Job] = []
        self.waiting: list[Job] = []  # those that could be started
        self.kept_back = 0
        self.epoch_s = 0.0
        self.now_s = 0.0
        self._partition = partition
        self._arrivals: Arrivals | None = None
        self._specs: tuple[NodeSpec, ...] = ()
        self._next = 0

    def use(self, arrivals: Arrivals) -> None:
        """How jobs are made."""
        self._arrivals = arrivals

    @property
    def running(self) -> list[Job]:
        """Jobs on the cluster, in order of arrival."""
        return [job for job in self.jobs.values() if job.phase == RUNNING]

    # --- nodes -----------------------------------------------------------------------------------

    def see_nodes(self, nodes: Sequence[SeenNode]) -> Topology:
        """Take in the nodes; the topology is made anew when they are not the same any more."""
        mine = [
            node
            for node in nodes
            if node.gpus and (not self._partition or self._partition in node.partitions)
        ]
        if not mine:
            where = f" in the partition {self._partition!r}" if self._partition else ""
            raise ClusterError(f"Slurm has no nodes with GPUs{where}: see `sinfo -o '%N %G %P'`")
        specs = tuple(NodeSpec(node.name, node.gpus, node.gpu_type) for node in mine)
        if self.topology is None or specs != self._specs:
            self._specs, self.topology = specs, Topology(specs)
            for number, job in list(self.jobs.items()):
                if job.phase == RUNNING:
                    job.allocation = self._allocation(self.seen[number])
        for vertex, node in zip(self.topology.nodes, mine, strict=True):
            vertex.up = node.health != "lost"
            vertex.closed = node.health == "silent"
        return self.topology

    def _allocation(self, job: SeenJob) -> Allocation:
        """What a job holds of our nodes."""
        topology = self.topology
        ids = {node.name: node.id for node in topology.nodes} if topology else {}
        counts: Sequence[float] = job.node_gpus
        if len(counts) != len(job.nodes):  # not known by node: an even share
            counts = [job.gpus / len(job.nodes)] * len(job.nodes) if job.nodes else []
        return Allocation(
            [(ids[n], count) for n, count in zip(job.nodes, counts, strict=True) if n in ids]
        )

    # --- jobs ------------------------------------------------------------------------------------

    def see_jobs(self, found: Sequence[SeenJob], unix_s: float) -> SlurmChanges:
        """Take in who came, ended or was stopped; what was started is taken in by `start`."""
        mine = {
            job.id: job
            for job in found
            if job.gpus and (not self._partition or self._partition in job.partition.split(","))
        }
        if not self.epoch_s:
            self.epoch_s = min([unix_s, *(job.submit_s for job in mine.values() if job.submit_s)])
        self.now_s = unix_s - self.epoch_s
        changes = SlurmChanges()
        for number, job in sorted(mine.items(), key=lambda item: (item[1].submit_s, item[0])):
            self._see(number, job, changes)
        for number in [n for n in self.jobs if n not in mine]:
            self._end(number, None, changes)
        self.seen = {number: mine[number] for number in self.jobs}
        del self.finished[:-REMEMBERED]
        self._sort(changes)
        return changes

    def _sort(self, changes: SlurmChanges) -> None:
        """Who could be started, by Slurm's own account?"""
        starting = {job.index for job in changes.starting}
        waiting = [n for n, job in self.jobs.items() if job.phase == WAITING]
        self.waiting = [
            self.jobs[n]
            for n in waiting
            if self.jobs[n].index in starting or eligible(self.seen[n])
        ]
        self.waiting.sort(key=lambda job: (job.submit_s, job.index))
        self.kept_back = len(waiting) - len(self.waiting)

    def start(self, changes: SlurmChanges) -> None:
        """Take in what Slurm has started."""
        for job in changes.starting:
            seen = self.seen[int(job.id)]
            start_s = seen.start_s - self.epoch_s if seen.start_s else self.now_s
            _launch(job, self._allocation(seen), min(start_s, self.now_s))
        changes.starting.sort(key=lambda job: (job.start_s, job.index))
        self.waiting = [job for job in self.waiting if job.phase == WAITING]

    def _see(self, number: int, job: SeenJob, changes: SlurmChanges) -> None:
        gone = job.over or (job.busy and job.state != PENDING)
        known = self.jobs.get(number)
        if known is None:
            if gone:
                return
            known = self.jobs[number] = self._make(job)
            changes.came.append(known)
        before = self.seen.get(number)
        restarted = before is not None and job.restarts > before.restarts
        if known.phase == RUNNING and (restarted or job.state == PENDING) and not gone:
            machine.begin_stop(known, self.now_s, 0.0)
            machine.stopped(known)
            known.preemptions += 1
            changes.stopped.append(known)
        if gone:
            self._end(number, job, changes)
        elif job.state != PENDING and known.phase == WAITING:
            changes.starting.append(known)

    def _end(self, number: int, job: SeenJob | None, changes: SlurmChanges) -> None:
        known = self.jobs.pop(number)
        end_s = job.end_s - self.epoch_s if job is not None and job.end_s else self.now_s
        end_s = min(end_s, self.now_s)
        if known.phase == WAITING and job is not None and job.start_s and job.nodes:
            start_s = min(job.start_s - self.epoch_s, end_s)  # it was quicker than we look
            _launch(known, self._allocation(job), start_s)
            changes.brief.append(known)
        if known.phase == RUNNING:
            machine.finish(known, max(end_s, known.start_s))
            self.finished.append(known)
        else:
            machine.cancel(known, self.now_s)
        changes.ended.append(known)

    def _make(self, job: SeenJob) -> Job:
        if self._arrivals is None:
            raise RuntimeError("nobody said how jobs are made")
        spec = JobSpec(
            str(job.id),
            job.submit_s - self.epoch_s,
            Request.of(job.gpus, gpu_types=(job.gpu_type,) if job.gpu_type else ()),
            tenant=job.account or job.user,
            user=job.user,
            name=job.name,
            estimate_s=job.limit_s,
        )
        made = self._arrivals.job(self._next, spec, Behaviour(job.limit_s))
        self._next += 1
        return made

    def nodes_of(self, allocation: Allocation) -> Mapping[str, float]:
        """GPUs by name of node."""
        vertices = self.topology.vertices if self.topology else []
        found: dict[str, float] = {}
        for vertex, amount in allocation.slices:
            name = vertices[vertices[vertex].node].name
            found[name] = found.get(name, 0) + amount
        return found


def _launch(job: Job, allocation: Allocation, start_s: float) -> None:
    """Slurm tells of no time between a start and the first progress."""
    machine.start(job, allocation, start_s)
    machine.run(job, start_s, 1.0)


def eligible(job: SeenJob) -> bool:
    """Would Slurm start it if there were room?"""
    return not job.held and not job.reason.startswith(KEPT_BACK)
