"""HiveD's cells and the jobs of a run: which pods a job is, and on which GPUs they are."""

from collections.abc import Container, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from rota.core.allocation import TERMS, Allocation
from rota.core.errors import ClusterSpecError
from rota.core.jobs import Job, Shape
from rota.core.resources import CPU
from rota.core.sharing import GpuPart, conflict
from rota.core.topology import Topology, Vertex
from rota.policies.hived import leaves, snapshot
from rota.policies.hived.algorithm import EVERYWHERE, Hived, HivedWait, Preempt
from rota.policies.hived.asks import HivedRequests, HivedRules, named
from rota.policies.hived.cells import AffinityGroup, CellState, HivedCell, PhysicalCell
from rota.policies.hived.config import HivedConfig
from rota.policies.hived.pods import (
    LOWEST_GUARANTEED,
    BindInfo,
    GroupSpec,
    Member,
    PodPlacement,
    PodSpec,
)
from rota.policies.hived.topology_search import room_on


class Placed(msgspec.Struct, frozen=True):
    """A pod of a job that runs."""

    pod: str
    spec: PodSpec
    bind: BindInfo


class CellSpot(NamedTuple):
    """Where an adopted job is on one node."""

    node: str
    chain: str
    indices: tuple[int, ...]


class Fleet:
    """A HiveD on the nodes of a topology."""

    def __init__(self, topology: Topology, config: HivedConfig, rules: HivedRules) -> None:
        self.hived = Hived(config, thorough=True)
        self.placed: dict[int, tuple[Placed, ...]] = {}
        """Pods by job; jobs are known by their number."""
        self._config = config
        self._topology = topology
        self._grows = rules.grows
        self._absent: set[str] = set()
        self._devices = self._find_devices()
        self.types = self._find_types()
        """Type of GPU of each chain."""
        self._choosy: dict[int, bool] = {}  # by number of the shape
        self.asks = HivedRequests(
            self.hived, self._chains(), rules, self._has_place, self.is_choosy
        )
        self._empty: Hived | None = None

    # --- nodes ------------------------------------------------------------------------------------

    def _find_devices(self) -> dict[tuple[str, str, int], int]:
        """The GPU of each leaf cell: the leaf cells of a node in order of chain and index."""
        nodes = {node.name: node for node in self._topology.nodes}
        found: dict[tuple[str, str, int], int] = {}
        for name, cells in self.hived.cells.on_node.items():
            node = nodes.get(name)
            if node is None or node.gpus < len(cells):
                self._absent.add(name)  # on a growing cluster it may come
                have = "is not there" if node is None else f"has {node.gpus} GPUs"
                message = (
                    f"the HiveD configuration has {len(cells)} leaf cells on node {name!r}, which "
                    f"{have} in the cluster: give the same file as --cluster"
                )
                if not self._grows:
                    raise ClusterSpecError(message)
                continue
            ordered = sorted(cells, key=lambda leaf: leaf.indices[0])
            for leaf, device in zip(ordered, self._topology.devices(node.id), strict=False):
                found[leaf.chain, name, leaf.indices[0]] = device
        return found

    def _find_types(self) -> dict[str, str]:
        """As the nodes have them; their names in the configuration if no node is there yet."""
        found = {chain: self.hived.cells.levels[chain].leaf for chain in self.hived.cells.tops}
        for (chain, _, _), device in reversed(self._devices.items()):
            found[chain] = self._topology.vertices[device].gpu_type
        return found

    def _chains(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for chain in (chain for chains in self.hived.chains.values() for chain in chains):
            found.setdefault(self.types[chain], []).append(chain)
        return found

    def look_at_nodes(self) -> bool:
        """Nodes that are closed or down are bad; whether any has changed."""
        changed = False
        bad, known = self.hived.bad_nodes, self.hived.cells.on_node
        for node in self._topology.nodes:
            name = node.name
            if node.open == (name in bad) and name in known and name not in self._absent:
                changed = True
                if node.open:
                    self.hived.set_healthy(name)
                else:
                    self.hived.set_bad(name)
        return changed

    def _suited(self, shape: Shape) -> Container[str]:
        """Nodes with its labels, and whose GPUs can be what it asks for; all of them: nothing."""
        if not self.is_choosy(shape):
            return EVERYWHERE
        return frozenset(node.name for node in self._topology.nodes if self._suits(node, shape))

    def is_choosy(self, shape: Shape) -> bool:
        """Not every node of the right type will do."""
        known = self._choosy.get(shape.number)
        if known is None:
            nodes = self._topology.nodes
            known = not all(self._suits(node, shape) for node in nodes if node.gpus)
            self._choosy[shape.number] = known
        return known

    def _suits(self, node: Vertex, shape: Shape) -> bool:
        """Of what belongs to a node all is the job's that has its cells: it must only be enough."""
        kinds, vertices = self._topology.kinds, self._topology.vertices
        part = GpuPart(min(1.0, shape.gpus), shape.gpu_mem_gib)
        return (
            set(shape.labels) <= set(node.labels)
            and all(
                not conflict(gpu.sharing, gpu.gpu_mem_gib, [part], gpu.gpu_type)
                for gpu in map(vertices.__getitem__, self._topology.devices(node.id))
                if shape.gpus
            )
            and all(
                node.resources.get(kind, 0.0) >= amount
                for kind, amount in shape.resources.items()
                if kind not in TERMS and kinds[kind].total is None and not kinds[kind].compressible
            )
        )

    def _has_place(self, spec: PodSpec, shape: Shape) -> bool:
        """Whether an empty, healthy cluster has a place for this request on labelled nodes."""
        empty = self._empty_one()
        orders = [(search, list(search.nodes)) for search in empty.searches()]
        probe = msgspec.structs.replace(spec, affinity_group=GroupSpec("probe", _members(spec)))
        found = empty.schedule("probe", probe, self._suited(shape))
        for search, nodes in orders:  # what is asked later must not depend on it
            search.nodes = nodes
        return isinstance(found, BindInfo)

    def _empty_one(self) -> Hived:
        if self._empty is None:
            self._empty = Hived(self._config, thorough=True)
            for node in self._empty.cells.on_node:
                self._empty.set_healthy(node)
        return self._empty

    def _is_untouched(self) -> bool:
        """Nothing runs, and all nodes are healthy."""
        return not self.hived.groups and not self.hived.bad_nodes

    # --- jobs -------------------------------------------------------------------------------------

    def start(
        self, job: Job, *, eager: bool = False, gpu_type: str | None = None
    ) -> Allocation | Preempt | HivedWait:
        """Place a job if it can be; else who has to leave, or why it waits.

        An eager job goes before others of its priority, until `rerank`. With a `gpu_type` only
        leaf cells of this type will do.
        """
        answer = self._start(job, eager=eager, gpu_type=gpu_type)
        if isinstance(answer, HivedWait) and self.is_choosy(job.shape) and self._is_untouched():
            # Which cells it is offered depends on the past; without one it was found to fit.
            snapshot.load(self.hived, snapshot.save(self._empty_one()))
            answer = self._start(job, eager=eager, gpu_type=gpu_type)
        return answer

    def _start(
        self, job: Job, *, eager: bool, gpu_type: str | None
    ) -> Allocation | Preempt | HivedWait:
        waits = HivedWait("too few cells of a kind that it accepts are free")
        suggested = self._suited(job.shape)
        for asked in self.asks.of(job).pods:
            if gpu_type is not None and self.types[asked.chain] != gpu_type:
                continue
            priority = asked.priority + eager
            if not self.has_room(asked, priority):
                continue
            spec = _ranked(named(asked, job), priority)
            decision = self.hived.schedule(f"{job.index}-0", spec, suggested)
            if isinstance(decision, BindInfo):
                return self._add(job, spec, decision)
            if isinstance(decision, Preempt):
                return decision
            waits = decision
        return waits

    def has_room(self, spec: PodSpec, priority: int) -> bool:
        """Whether its chain has as many leaf cells left for a priority, wherever they are."""
        needed = sum(member.leaf_cell_number for member in _members(spec))
        cells = self.hived.cells
        tops: Sequence[HivedCell] = cells.tops[spec.chain]
        if spec.priority >= LOWEST_GUARANTEED:
            tops = cells.tops_of(spec.virtual_cluster, spec.chain, spec.pinned_cell_id)
        for top in tops:
            needed -= room_on(top, priority, apart=False)
            if needed <= 0:
                return True
        return False

    def take_over(self, job: Job) -> Allocation | Preempt | HivedWait:
        """Place a job that has reserved cells; those whom it displaces may have left now."""
        spec = self.group(job.index).spec
        decision = self.hived.schedule(f"{job.index}-0", spec, self._suited(job.shape))
        return self._add(job, spec, decision) if isinstance(decision, BindInfo) else decision

    def _add(self, job: Job, spec: PodSpec, first: BindInfo) -> Allocation:
        placed: list[Placed] = []
        for number, member in enumerate(_members(spec)):
            pod = f"{job.index}-{number}"
            own = msgspec.structs.replace(spec, leaf_cell_number=member.leaf_cell_number)
            bind = first if number == 0 else self.hived.schedule(pod, own)
            assert isinstance(bind, BindInfo)  # noqa: S101 - its group has its cells
            self.hived.add_allocated(pod, own, bind)
            placed.append(Placed(pod, own, bind))
        self.placed[job.index] = tuple(placed)
        return self._allocation(job, placed)

    def _allocation(self, job: Job, placed: Iterable[Placed]) -> Allocation:
        devices = sorted(
            self._devices[one.bind.chain, one.bind.node, index]
            for one in placed
            for index in one.bind.leaf_cells
        )
        if not job.gpus:  # a leaf cell's place, and CPUs as everybody has them: uncounted
            nodes = dict.fromkeys(self._topology.vertices[device].node for device in devices)
            return Allocation((), [(node, CPU.name, 0.0) for node in nodes])
        share = min(1, job.gpus / len(devices))  # the rest of a leaf cell stays idle
        return Allocation([(device, share) for device in devices])

    def give_up(self, job: Job) -> None:
        """A job leaves its would-be victims alone."""
        group = self.hived.groups[f"{job.index}"]
        for pod in sorted(group.preempting):
            self.hived.delete_unallocated(pod, group.spec)

    def rerank(self, index: int, *, eager: bool) -> None:
        """Let a job that runs go before others of its priority, or be one of them again."""
        group = self.group(index)
        priority = group.priority - group.priority % 2 + eager
        if group.virtual is None or group.priority == priority:
            return
        for leaf in group.leaves():
            leaves.rerank(leaf, priority)
        group.priority = priority
        group.spec = _ranked(group.spec, priority)
        self.placed[index] = tuple(
            msgspec.structs.replace(one, spec=_ranked(one.spec, priority))
            for one in self.placed[index]
        )

    def group(self, index: int) -> AffinityGroup:
        """The affinity group of a job that has cells."""
        return self.hived.groups[f"{index}"]

    def leave(self, index: int) -> tuple[Placed, ...]:
        """A job leaves its cells, perhaps not for long; where it was."""
        placed = self.placed[index]
        self.stop(index)
        return placed

    def come_back(self, index: int, placed: tuple[Placed, ...]) -> None:
        """It returns to the cells that it has just left."""
        self._add_again(index, placed)

    def stop(self, index: int) -> None:
        """The pods of a job have left."""
        for one in self.placed.pop(index):
            self.hived.delete_allocated(one.pod, one.spec, one.bind)

    # --- jobs that run already --------------------------------------------------------------------

    def adopt(self, job: Job) -> bool:
        """Take over a job that somebody else started; False if its place is not one of cells."""
        asked = self.asks.of(job)
        spots = self._spots(job)
        if not spots or any(spot.chain != spots[0].chain for spot in spots):
            return False
        chain, vc = spots[0].chain, self.hived.cells.vcs.get(asked.place[0] if asked.place else "")
        base = next((spec for spec in asked.pods if spec.chain == chain), None)
        promised = ""
        if vc is not None and base is not None and not base.pinned_cell_id:
            promised = self.hived.cells.type_at[chain][max(vc.free_tops[chain])]
        if base is None or not promised:
            base = PodSpec(next(iter(self.hived.cells.vcs), "-"), -1, 0)
        members = tuple(Member(1, len(spot.indices)) for spot in spots)
        spec = msgspec.structs.replace(base, affinity_group=GroupSpec(f"{job.index}", members))
        self._take_up(job.index, spec, spots, promised)
        return True

    def _take_up(self, index: int, spec: PodSpec, spots: list[CellSpot], promised: str) -> None:
        by_size: dict[int, list[PodPlacement]] = {}
        for spot in spots:
            size = len(spot.indices)
            place = PodPlacement(spot.node, spot.indices, (promised,) * size)
            by_size.setdefault(size, []).append(place)
        group = tuple(tuple(places) for places in by_size.values())
        placed = []
        for number, spot in enumerate(spots):
            own = msgspec.structs.replace(spec, leaf_cell_number=len(spot.indices))
            bind = BindInfo(spot.node, spot.indices, spot.chain, group)
            placed.append(Placed(f"{index}-{number}", own, bind))
        self._add_again(index, placed)

    def _spots(self, job: Job) -> list[CellSpot]:
        """The free leaf cells of a running job's GPUs, node by node; none if they are not there."""
        cells = self.hived.cells
        at = {device: key for key, device in self._devices.items()}
        found: dict[str, list[PhysicalCell]] = {}
        held: Sequence[tuple[int, float]] = job.allocation.slices
        if not job.gpus:
            held = [(vertex, 1) for vertex in {v: None for v, _, _ in job.allocation.extra}]
        for vertex, amount in held:
            place = self._topology.vertices[vertex]
            node = self._topology.vertices[place.node].name if place.node >= 0 else ""
            taken = found.setdefault(node, [])
            if vertex in at:
                taken.append(cells.leaves[at[vertex]])
                continue
            free = [leaf for leaf in cells.on_node.get(node, ()) if leaf.state is CellState.FREE]
            if len(free) < amount:
                return []
            taken += free[: int(amount)]
        if any(leaf.state is not CellState.FREE for taken in found.values() for leaf in taken):
            return []
        return [
            CellSpot(node, taken[0].chain, tuple(leaf.indices[0] for leaf in taken))
            for node, taken in found.items()
        ]

    def _add_again(self, index: int, placed: Iterable[Placed]) -> None:
        kept = tuple(placed)
        for one in kept:
            self.hived.add_allocated(one.pod, one.spec, one.bind)
        self.placed[index] = kept
        if next(self.group(index).leaves(), None) is None:
            self.stop(index)  # its cells are not there any more

    # --- state ------------------------------------------------------------------------------------

    def save(self) -> dict[str, Any]:
        """State as plain data."""
        placed = [(index, msgspec.to_builtins(pods)) for index, pods in self.placed.items()]
        return {"cells": self._print(), "hived": snapshot.save(self.hived), "placed": placed}

    def load(self, state: Mapping[str, Any]) -> bool:
        """Take a saved state up again; False: the cells are others, the pods were found in them."""
        placed = {
            index: msgspec.convert(pods, tuple[Placed, ...]) for index, pods in state["placed"]
        }
        if state["cells"] == self._print():
            snapshot.load(self.hived, state["hived"])
            self.placed = placed
            return True
        self.look_at_nodes()
        for index, pods in placed.items():
            self._add_again(index, pods)
        return False

    def _print(self) -> str:
        return sha256(msgspec.json.encode(self._config)).hexdigest()


def _members(spec: PodSpec) -> tuple[Member, ...]:
    return () if spec.affinity_group is None else spec.affinity_group.members


def _ranked(spec: PodSpec, priority: int) -> PodSpec:
    return msgspec.structs.replace(spec, priority=priority)
