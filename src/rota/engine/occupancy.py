"""Who physically occupies what: for clusters where stopping takes time, and for untrusted plans."""

from collections.abc import Mapping

from rota.core.allocation import Allocation
from rota.core.errors import InvalidPlanError
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.resources import CPU, GPU, GPU_MEMORY, MEMORY
from rota.core.sharing import DUST, EXCLUSIVE, INSTANCE, OVERCOMMITS, GpuPart, conflict, parts_of
from rota.core.sums import ordered_sum
from rota.core.topology import DEVICE, NODE, Topology, Vertex

EPSILON = 1e-6
GPUS = GPU.name


class Occupancy:
    """What is in use per vertex and kind. A shared GPU is one whole GPU less for its node.

    Where GPUs have modes or memory, what each job has of each of them is kept apart: the rules of
    `core.sharing` decide whether they go together.
    """

    def __init__(
        self, topology: Topology, spent: Mapping[tuple[int, str], float] | None = None
    ) -> None:
        self._topology = topology
        self._spent = {} if spent is None else spent  # by vertex and kind; somebody else's
        self._on: dict[int, list[GpuPart]] | None = (
            {} if topology.shared or topology.has_gpu_mem else None
        )
        self._vertices = topology.vertices
        self._used: dict[tuple[int, str], float] = {}
        self._given: float = 0.0  # GPUs in all, those that are shared as often as they are

    def _places(self, allocation: Allocation) -> dict[tuple[int, str], float]:
        wanted: dict[tuple[int, str], float] = {}
        for vertex, amount in allocation.slices:
            wanted[vertex, GPUS] = wanted.get((vertex, GPUS), 0.0) + amount
        for vertex, kind, amount in allocation.extra:
            place = self._counted_at(vertex, kind)
            wanted[place, kind] = wanted.get((place, kind), 0.0) + amount
        return wanted

    def _counted_at(self, vertex: int, kind: str) -> int:
        """Of what the cluster has as a whole it does not matter where it is used."""
        return 0 if kind in self._topology.supply else vertex

    def change(self, allocation: Allocation, sign: int) -> None:
        """Occupy (+1) or vacate (-1)."""
        for place, amount in self._places(allocation).items():
            self._used[place] = self._used.get(place, 0.0) + sign * amount
        self._given += sign * allocation.gpus
        if self._on is not None:
            for vertex, part in parts_of(allocation).items():
                if self._vertices[vertex].level == DEVICE:
                    here = self._on.setdefault(vertex, [])
                    here.append(part) if sign > 0 else here.remove(part)

    def fits(self, allocation: Allocation) -> bool:
        """Is there room besides what is occupied?"""
        wanted = self._places(allocation)
        if any(
            self._used.get(place, 0.0) + amount > self._capacity(*place) + EPSILON
            for place, amount in wanted.items()
        ):
            return False
        if self._on is not None and self._conflict(allocation):
            return False
        nodes = {self._vertices[vertex].node for vertex, kind in wanted if kind == GPUS}
        return all(node < 0 or self._whole_gpus(node, wanted) for node in nodes)

    def _whole_gpus(self, node: int, wanted: Mapping[tuple[int, str], float]) -> bool:
        """Do whole GPUs and shared ones go together on a node?"""
        total = self._used.get((node, GPUS), 0.0) + wanted.get((node, GPUS), 0.0)
        for device in self._topology.devices(node):
            in_use = self._used.get((device, GPUS), 0.0) + wanted.get((device, GPUS), 0.0)
            total += in_use > EPSILON
        return total <= self._vertices[node].gpus + EPSILON

    def _conflict(self, allocation: Allocation) -> str:
        """Why it cannot be beside those that are on its GPUs; empty if it can."""
        assert self._on is not None  # noqa: S101 - asked only then
        for vertex, part in parts_of(allocation).items():
            gpu = self._vertices[vertex]
            if gpu.level != DEVICE:
                continue
            here = [*self._on.get(vertex, ()), part]
            why = conflict(gpu.sharing, gpu.gpu_mem_gib, here, gpu.gpu_type)
            if why:
                return f"{gpu.name} would have {why}"
        return ""

    def exceeded(self, vertex: int) -> bool:
        """Is more of anything in use there than there is?"""
        return any(
            used > self._capacity(place, kind) + EPSILON
            for (place, kind), used in self._used.items()
            if place == vertex
        )

    def _capacity(self, vertex: int, kind: str) -> float:
        """What there is, less what is used up for good."""
        gone = ordered_sum(
            amount
            for (where, what), amount in self._spent.items()
            if what == kind and self._counted_at(where, kind) == vertex
        )
        return self._there(vertex, kind) - gone

    def _there(self, vertex: int, kind: str) -> float:
        place = self._vertices[vertex]
        if kind in self._topology.supply:
            return self._topology.supply[kind] if self._declared(kind) else INF
        if place.level == DEVICE and kind != GPUS:
            return INF  # `_conflict` decides
        if place.level in (NODE, DEVICE):
            if kind == GPUS and place.sharing in OVERCOMMITS:
                return INF
            return _amount(place, kind) if self._declared(kind) else INF
        return ordered_sum(
            _amount(node, kind) if self._declared(kind) else INF
            for node in self._nodes_of(place)
            if node.up
        )

    def _nodes_of(self, place: Vertex) -> list[Vertex]:
        """The nodes of a pool; of what is no pool, all."""
        nodes, pools = self._topology.nodes, self._topology.pools
        if place not in pools:
            return nodes
        return [node for node in nodes if self._topology.pool_of(node) is place]

    def _declared(self, kind: str) -> bool:
        """A cluster that declares no CPUs (or memory) anywhere does not limit them.

        Of all other kinds there is as much as was declared.
        """
        if kind in (CPU.name, MEMORY.name):
            return any(_amount(node, kind) for node in self._topology.nodes)
        known = self._topology.kind(kind)
        return known is None or not known.compressible

    def _place(self, job: Job, vertex: int) -> Vertex:
        if not 0 <= vertex < len(self._vertices):
            raise InvalidPlanError(
                f"job {job.id}: there is no place {vertex}: use the `id` of a node, a GPU or a "
                "pool of `view.topology`"
            )
        return self._vertices[vertex]

    def check(self, job: Job, allocation: Allocation) -> None:
        """Refuse an allocation that cannot be."""
        self._check_extra(job, allocation)
        for vertex, amount in allocation.slices:
            place = self._place(job, vertex)
            if not 0 < amount < INF:
                raise InvalidPlanError(
                    f"job {job.id}: {amount:g} GPUs at {place.name}: give more than 0"
                )
            if place.level not in (NODE, DEVICE):
                if place not in self._topology.pools:
                    raise InvalidPlanError(
                        f"job {job.id}: {place.level} {place.name} cannot be given away as such: "
                        f"name nodes, GPUs or a pool"
                    )
                continue
            node = self._vertices[place.node]
            if not node.open:
                raise InvalidPlanError(
                    f"job {job.id}: placed on {place.name}, which is "
                    f"{'drained' if node.up else 'down'}: use nodes that are `open`"
                )
            shape = job.shape
            if (shape.types and node.gpu_type not in shape.types) or not node.suits(shape.labels):
                raise InvalidPlanError(
                    f"job {job.id} asks for {shape.describe()}: {place.name} is not of that kind"
                )
        self._check_memory(job, allocation)
        self._check_supply(job, allocation)
        # pools and nodes overlap: together they must not exceed what is up
        if not self.fits(allocation) or not self._within_all(allocation):
            why = self._conflict(allocation) if self._on is not None else ""
            raise InvalidPlanError(
                f"job {job.id}: {allocation} over-commits a place: "
                f"{why or 'its resources are taken already'}"
            )

    def _check_extra(self, job: Job, allocation: Allocation) -> None:
        """Amounts and kinds that there are."""
        for vertex, kind, amount in allocation.extra:
            node = self._place(job, vertex)
            if not 0 <= amount < INF:
                raise InvalidPlanError(
                    f"job {job.id}: {amount} of {kind} at {node.name}: give 0 or more"
                )
            if not kind.startswith(INSTANCE) and self._topology.kind(kind) is None:
                known = ", ".join(self._topology.kinds)
                raise InvalidPlanError(
                    f"job {job.id}: {amount:g} of {kind} at {node.name}: there is no such kind of "
                    f"resource here, only {known}: declare it with the cluster"
                )

    def _within_all(self, allocation: Allocation) -> bool:
        """Is there as much in the whole cluster? A GPU that jobs share is one GPU."""
        up = sum(node.gpus for node in self._topology.nodes if node.up)
        if self._given + allocation.gpus <= up + EPSILON / 2:
            return True  # even if no GPU were shared
        total = 0.0
        wanted = self._places(allocation)
        for place, kind in {**self._used, **wanted}:
            if kind == GPUS:
                amount = self._used.get((place, kind), 0.0) + wanted.get((place, kind), 0.0)
                total += min(1.0, amount) if self._vertices[place].level == DEVICE else amount
        return total <= up + EPSILON

    def _check_memory(self, job: Job, allocation: Allocation) -> None:
        """It has the GPU memory that it asks for, on every GPU."""
        asked = job.shape.gpu_mem_gib
        if not asked:
            return
        parts = parts_of(allocation)
        for vertex, _ in allocation.slices:
            place, part = self._vertices[vertex], parts[vertex]
            whole = place.level != DEVICE or (
                part.gpus >= 1 - DUST and place.sharing in ("", EXCLUSIVE)
            )
            given = part.mem_gib + part.step_gib + part.spill_gib
            if whole:
                given = max(given, self._memory_of(place))
            if given < asked - DUST:
                raise InvalidPlanError(
                    f"job {job.id} asks for {asked:g} GiB of GPU memory and is given {given:g} at "
                    f"{place.name}: give {GPU_MEMORY.name} there"
                )

    def _check_supply(self, job: Job, allocation: Allocation) -> None:
        """It has what it asks for of the kinds that the cluster has as a whole."""
        for kind in self._topology.supply.keys() & job.shape.resources.keys():
            asked = job.shape.resources[kind]
            if allocation.gpus < job.shape.gpus:  # a part of the job, with its part of the rest
                asked *= allocation.gpus / job.shape.gpus
            given = ordered_sum(amount for _, name, amount in allocation.extra if name == kind)
            if given < asked - DUST:
                raise InvalidPlanError(
                    f"job {job.id} asks for {asked:g} {kind} and is given {given:g}: give it at "
                    "the nodes where the job runs"
                )

    def _memory_of(self, place: Vertex) -> float:
        """Of each GPU there; of a pool that of the smallest."""
        if place.level in (NODE, DEVICE):
            return place.gpu_mem_gib
        sizes = (node.gpu_mem_gib for node in self._nodes_of(place) if node.gpus)
        return min(sizes, default=0.0)


def _amount(place: Vertex, kind: str) -> float:
    """What there is at a node or GPU; of kinds that nobody has declared there is nothing."""
    if kind == GPUS:
        return place.gpus
    if kind == CPU.name:
        return place.cpus
    if kind == MEMORY.name:
        return place.mem_gib
    if kind == GPU_MEMORY.name:
        return place.gpus * place.gpu_mem_gib
    return place.resources.get(kind, 0.0)
