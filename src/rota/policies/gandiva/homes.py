"""Where jobs live: each has GPUs (its home), on which it runs or waits for its turn.

Several jobs may have the same home; who runs when is for the policy to say. A server has the
affinity of the first job that came when it was empty: servers for jobs with 1 GPU, with 2, ...
"""

from collections.abc import Iterator, Sequence

from rota.core.allocation import TERMS
from rota.core.jobs import Job
from rota.core.sharing import DUST, OVERCOMMITS, GpuPart, conflict
from rota.core.sums import ordered_sum
from rota.core.topology import Topology, Vertex
from rota.core.view import View
from rota.policies._gpus import SharedGpu, SharedGpus, gpus_needed, part_for

Home = tuple[int, ...]
"""Numbers of GPUs."""


def beside_gpus(topology: Topology, node: Vertex) -> dict[str, float]:
    """How much a server has of all that is counted there, and of which a shortage forbids jobs."""
    found = {
        kind.name: node.resources.get(kind.name, 0.0)
        for kind in topology.kinds.values()
        if kind.name not in TERMS and kind.total is None and not kind.compressible
    }
    found.pop("gpu", None)
    for kind, amount in (("cpu", "cpus"), ("memory", "mem_gib")):
        if any(getattr(each, amount) for each in topology.nodes):
            found[kind] = getattr(node, amount)
        else:
            found.pop(kind, None)
    return found


class Homes:
    """The homes of all jobs that have one.

    `idle`: GPUs of a cluster where nobody is.
    """

    def __init__(
        self,
        view: View,
        homes: dict[int, Home],
        labels: dict[int, int],
        idle: SharedGpus | None = None,
    ) -> None:
        topology, jobs = view.topology, view.active
        self._topology = topology
        self._spent = view.spent
        self._vertices = topology.vertices
        self.of = homes  # by number of the job
        self.labels = labels  # by server: its affinity
        self._jobs = jobs
        self.living: dict[int, list[int]] = {}  # by GPU: numbers of jobs, as they came
        for index, home in homes.items():
            for device in home:
                self.living.setdefault(device, []).append(index)
        foreign = (job for job in jobs.values() if job.running and job.index not in homes)
        self._gpus = idle or SharedGpus(topology, foreign, view.spent)
        self._devices: dict[int, list[int]] = {}  # by server

    # --- servers ----------------------------------------------------------------------------------

    def servers(self, job: Job) -> Iterator[Vertex]:
        """Those on which it may run."""
        return (
            node
            for node in self._gpus.nodes
            if self._gpus.accepts(node, job) and self._could_hold(node, job)
        )

    def _could_hold(self, node: Vertex, job: Job) -> bool:
        """Has it enough beside GPUs, if nobody else is there?"""
        shape = job.shape
        if not (shape.cpus or shape.mem_gib or shape.resources):
            return True
        have = beside_gpus(self._topology, node)
        part = min(1.0, node.gpus / max(1, gpus_needed(job)))  # of a job on several servers
        wants = {"cpu": shape.cpus, "memory": shape.mem_gib, **shape.resources}
        return all(
            have[kind] - self._spent.get((node.id, kind), 0.0) >= amount * part - DUST
            for kind, amount in wants.items()
            if kind in have
        )

    def devices(self, node: Vertex) -> list[int]:
        """The GPUs of a server that jobs can live on."""
        known = self._devices.get(node.id)
        if known is None:
            known = self._devices[node.id] = [gpu.id for gpu in self._gpus.on(node)]
        return known

    def node_of(self, device: int) -> int:
        """The server of a GPU."""
        return self._vertices[device].node

    def gpus(self, index: int) -> list[SharedGpu]:
        """The home of a job."""
        return [self._gpus[device] for device in self.of[index]]

    def free(self, node: Vertex, job: Job | None = None) -> list[int]:
        """GPUs of a server on which nobody lives, or parts of others that the job may have."""
        devices = self.devices(node) if job is None else self._suiting(node, job)
        empty = [device for device in devices if not self._taken(device)]
        if job is None or job.gpus >= 1:
            return empty
        part = part_for(job)
        shared = [
            device for device in devices if self._taken(device) and self._has_part(device, part)
        ]
        return shared + empty

    def _suiting(self, node: Vertex, job: Job) -> list[int]:
        """The GPUs of a server that could be the job's if nobody else were there."""
        devices, wanted = self.devices(node), job.shape.gpu_mem_gib
        if not wanted and (job.gpus >= 1 or not self._topology.shared):
            return devices
        part = part_for(job)
        return [device for device in devices if self.together(device, part)]

    def _taken(self, device: int) -> bool:
        return bool(self.living.get(device)) or bool(self._gpus[device].parts)

    def _has_part(self, device: int, part: GpuPart) -> bool:
        """Only parts of it are taken, and there is room for one more without any turns."""
        if self._gpus[device].parts:
            return False
        parts = [part_for(self._jobs[index]) for index in self.living.get(device, ())]
        return ordered_sum(each.gpus for each in parts) + part.gpus <= 1 and self.together(
            device, part, *parts
        )

    def together(self, device: int, *parts: GpuPart) -> bool:
        """May a GPU have all these parts at the same time?"""
        there = self._vertices[device]
        return not conflict(there.sharing, there.gpu_mem_gib, parts, there.gpu_type)

    def load(self, node: Vertex) -> float:
        """GPUs that jobs would have which live there, over those that there are."""
        living = sum(len(self.living.get(device, ())) for device in self.devices(node))
        return living / node.gpus if node.gpus else 0.0

    def crowded(self, node: Vertex) -> bool:
        """Some of its GPUs are home to several jobs in turns."""
        return any(len(self.living.get(device, ())) > 1 for device in self.devices(node))

    def idle(self, node: Vertex) -> bool:
        """Nobody lives there."""
        return len(self.free(node)) == node.gpus

    def shareable(self, one: Job, two: Job) -> bool:
        """The GPUs of the first can run both at the same time."""
        parts = (part_for(one), part_for(two))
        return all(
            self._vertices[device].sharing in OVERCOMMITS and self.together(device, *parts)
            for device in self.of[one.index]
        )

    def on(self, node: Vertex) -> list[int]:
        """Who lives on a server, and nowhere else."""
        here = set(self._topology.devices(node.id))
        found = dict.fromkeys(i for device in here for i in self.living.get(device, ()))
        return sorted(index for index in found if here.issuperset(self.of[index]))

    @property
    def nodes(self) -> Sequence[Vertex]:
        """Servers where something may be started."""
        return self._gpus.nodes

    # --- moving in and out ------------------------------------------------------------------------

    def enter(self, job: Job, home: Sequence[int]) -> None:
        """It lives there from now on."""
        self.leave(job.index)
        self.of[job.index] = tuple(home)
        for device in home:
            self.living.setdefault(device, []).append(job.index)
            self.labels.setdefault(self.node_of(device), gpus_needed(job))

    def leave(self, index: int) -> None:
        """It lives there no more; an empty server has no affinity."""
        home = self.of.pop(index, ())
        for device in home:
            self.living[device].remove(index)
        for node in {self.node_of(device) for device in home}:
            if not any(self.living.get(device) for device in self._topology.devices(node)):
                self.labels.pop(node, None)

    def takes_turns(self, index: int) -> bool:
        """Others live on some of its GPUs, and all of them want whole ones."""
        return any(
            len(self.living[device]) > 1 and self._jobs[self.living[device][0]].gpus >= 1
            for device in self.of[index]
        )

    def neighbours(self, index: int) -> list[int]:
        """Jobs with exactly the same home, as they came."""
        home = self.of[index]
        return [each for each in self.living[home[0]] if self.of[each] == home and each != index]

    # --- where to? --------------------------------------------------------------------------------

    def find(self, job: Job) -> Home | None:
        """GPUs for itself: on a server of its affinity, of none, of another, least load first."""
        if job.shape.apart:
            each = int(job.gpus) // job.shape.apart
            return self._spread(job, [each] * job.shape.apart)
        count = gpus_needed(job)
        rooms = [(node, self.free(node, job)) for node in self.servers(job)]
        fitting = [(node, room) for node, room in rooms if len(room) >= count]
        if not fitting:
            return self._across(job, count)
        _, room = min(
            fitting, key=lambda each: (self._strangeness(each[0], count), self.load(each[0]))
        )
        return tuple(room[:count])

    def _strangeness(self, node: Vertex, count: int) -> int:
        """0: of its affinity; 1: of none; 2: of another."""
        label = self.labels.get(node.id)
        return 1 if label is None else 2 * (label != count)

    def fuller(self, job: Job, *, than: int, but: Vertex) -> Home | None:
        """GPUs on a server with fewer free ones than that, the fewest that suffice."""
        count = gpus_needed(job)
        rooms = [
            (len(room), self._strangeness(node, count), number, room)
            for number, node in enumerate(self.servers(job))
            for room in [self.free(node, job)]
            if node is not but and count <= len(room) < than and not self.crowded(node)
        ]
        return tuple(min(rooms)[3][:count]) if rooms else None

    def _across(self, job: Job, count: int) -> Home | None:
        """A job that no server can hold has the largest ones, and a part of one more."""
        sizes = sorted((node.gpus for node in self.servers(job)), reverse=True)
        if not sizes or not sizes[0] < count <= sum(sizes):
            return None
        parts: list[int] = []
        for size in sizes:
            parts.append(min(size, count - sum(parts)))
            if sum(parts) == count:
                break
        return self._spread(job, parts)

    def _spread(self, job: Job, parts: Sequence[int]) -> Home | None:
        """One server for each part, the fullest that suffice."""
        rooms = sorted((self.free(node, job) for node in self.servers(job)), key=len)
        home: list[int] = []
        for part in parts:
            room = next((room for room in rooms if len(room) >= part), None)
            if room is None:
                return None
            rooms.remove(room)
            home += room[:part]
        return tuple(home)

    def crowd(self, job: Job, most: float) -> Home | None:
        """GPUs to be used in turns, on the server of its affinity with the least load."""
        count = gpus_needed(job)
        fitting = [
            node
            for node in self.servers(job)
            if self.labels.get(node.id) == count
            and len(self._suiting(node, job)) >= count
            and self.load(node) + count / node.gpus <= most
        ]
        if not fitting or job.shape.apart or job.gpus < 1:
            return None
        node = min(fitting, key=self.load)
        devices = sorted(  # stable
            self._suiting(node, job), key=lambda device: len(self.living.get(device, ()))
        )
        return tuple(sorted(devices[:count]))
