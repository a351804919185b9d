"""HiveD: requests of pods, reports about pods and nodes in; decisions out.

`Hived` is driven by the policy, or by a scenario. `schedule` only decides (and reserves cells for a
preemption); `add_allocated` and `delete_allocated` tell that a pod has its place or has left it.
Every node counts as bad until it is reported healthy.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import ExitStack
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from rota.core.errors import RequestError
from rota.policies.hived import leaves, preemption
from rota.policies.hived.build import Cells
from rota.policies.hived.cells import (
    FREE,
    AffinityGroup,
    CellState,
    GroupState,
    PhysicalCell,
    VirtualCell,
    place_of,
)
from rota.policies.hived.config import HivedConfig
from rota.policies.hived.free_cells import FreeCells, open_free_cells
from rota.policies.hived.mapping import Usable, map_placement
from rota.policies.hived.pods import (
    LOWEST_GUARANTEED,
    BindInfo,
    HivedPod,
    PodPlacement,
    PodSpec,
    checked,
    group_of,
    pod_numbers,
    recalled,
)
from rota.policies.hived.recovery import find_leaf, physical_leaves
from rota.policies.hived.topology_search import Placement, TopologySearch


class HivedPhase(Enum):
    """Why a pod is asked about: only while preempting may cells be reserved."""

    FILTERING = "Filtering"
    PREEMPTING = "Preempting"


class Preempt(msgspec.Struct, frozen=True):
    """Pods that have to leave first; none are named while filtering."""

    victims: tuple[str, ...]


class HivedWait(msgspec.Struct, frozen=True):
    """Not now, and why."""

    reason: str


Decision = BindInfo | Preempt | HivedWait


class Everywhere(Container[str]):
    """All nodes are suggested."""

    def __contains__(self, node: object) -> bool:
        """Always."""
        return True


EVERYWHERE = Everywhere()


class Chosen(NamedTuple):
    """A placement for a new group."""

    physical: Placement[PhysicalCell]
    virtual: Placement[VirtualCell] | None


class Hived:
    """The state of a cluster under HiveD."""

    def __init__(
        self,
        config: HivedConfig,
        chain_order: Mapping[str, Iterable[str]] | None = None,
        *,
        thorough: bool = False,
    ) -> None:
        """No pods, all nodes bad.

        Args:
            config: The cells, and who was promised which.
            chain_order: By type of leaf cell, the chains to try first.
            thorough: Look harder for a place than the original does (see `TopologySearch`).
        """
        self.cells = Cells(config)
        self.free_cells = open_free_cells(self.cells)
        self.groups: dict[str, AffinityGroup] = {}
        self.chains = self.cells.chains_of_leaves(chain_order or {})
        self._searches = {
            (vc.name, chain): TopologySearch(lists, across_priorities=True, thorough=thorough)
            for vc in self.cells.vcs.values()
            for chain, lists in vc.cells.items()
        }
        self._pinned = {
            (vc.name, pinned): TopologySearch(lists, across_priorities=True, thorough=thorough)
            for vc in self.cells.vcs.values()
            for pinned, lists in vc.pinned.items()
        }
        self._opportunistic = {
            chain: TopologySearch(lists, across_priorities=False, thorough=thorough)
            for chain, lists in self.cells.chains.items()
        }
        self.bad_nodes: set[str] = set()
        for tops in self.cells.tops.values():
            for node in (node for top in tops for node in top.nodes):
                self.set_bad(node)

    def searches(self) -> list[TopologySearch[Any]]:
        """All searches, each with its order of nodes."""
        return [*self._searches.values(), *self._pinned.values(), *self._opportunistic.values()]

    def searches_of(self, vc: str) -> list[TopologySearch[VirtualCell]]:
        """The searches in a virtual cluster and in its pinned cells."""
        found = (*self._searches.items(), *self._pinned.items())
        return [search for (name, _), search in found if name == vc]

    def search_of(self, spec: PodSpec, chain: str) -> TopologySearch[Any] | None:
        """The search that a request uses in a chain; None if its tenant has no cells there."""
        if spec.pinned_cell_id:
            pinned = self._pinned[spec.virtual_cluster, spec.pinned_cell_id]
            return pinned if pinned.nodes[0].chain == chain else None
        if spec.priority < LOWEST_GUARANTEED:
            return self._opportunistic[chain]
        return self._searches.get((spec.virtual_cluster, chain))

    def set_bad(self, node: str) -> None:
        """A node has failed or is not there."""
        if node not in self.bad_nodes:
            self.bad_nodes.add(node)
            leaves.set_bad(self.free_cells, self.cells.on_node.get(node, ()))

    def set_healthy(self, node: str) -> None:
        """A node can be used."""
        if node in self.bad_nodes:
            self.bad_nodes.discard(node)
            leaves.set_healthy(self.free_cells, self.cells.on_node.get(node, ()))

    def schedule(
        self,
        pod: str,
        spec: PodSpec,
        suggested: Container[str] = EVERYWHERE,
        phase: HivedPhase = HivedPhase.PREEMPTING,
    ) -> Decision:
        """Where a pod shall run; what has to leave first; or why it waits.

        Raises:
            RequestError: The request can never be met as it is.
        """
        spec = checked(pod, spec)
        group = self.groups.get(group_of(spec).name)
        if group is not None and group.state is not GroupState.PREEMPTING:
            if any(leaf.reserving is not None for leaf in group.leaves()):
                return HivedWait(f"group {group.name} is being preempted")
            return self._next_pod(pod, spec, group)
        if group is not None:
            if phase is HivedPhase.FILTERING or _all_usable(group, suggested):
                return self._go_on(pod, spec, group, phase)
            self._cancel(group)
        return self._new_group(pod, spec, suggested, phase)

    def add_allocated(self, pod: str, spec: PodSpec, bind: BindInfo) -> None:
        """A pod runs where it was bound to."""
        spec = checked(pod, spec)
        name = group_of(spec).name
        group = self.groups.get(name)
        number: int | None = 0
        if group is None:
            group = self.groups[name] = self._add_group(spec, bind)
        else:
            if group.state is GroupState.PREEMPTING:
                preemption.take_over(group)
            number = bind.index(spec.leaf_cell_number)
        if number is not None:
            group.pods[spec.leaf_cell_number][number] = HivedPod(pod, bind)

    def delete_allocated(self, pod: str, spec: PodSpec, bind: BindInfo) -> None:
        """A pod has left its place; with the last one the group gives its cells back."""
        spec = checked(pod, spec)
        group = self.groups.get(group_of(spec).name)
        number = bind.index(spec.leaf_cell_number)
        if group is None or number is None:
            return
        group.pods[spec.leaf_cell_number][number] = None
        if next(group.members(), None) is None:
            self._delete_group(group)

    def delete_unallocated(self, pod: str, spec: PodSpec) -> None:
        """A pod that had no place is gone; with the last one a preemption is given up."""
        group = self.groups.get(group_of(checked(pod, spec)).name)
        if group is not None and group.state is GroupState.PREEMPTING:
            group.preempting.discard(pod)
            if not group.preempting:
                self._cancel(group)

    def _cancel(self, group: AffinityGroup) -> None:
        """A preempting group gives up."""
        preemption.cancel(self.free_cells, group)
        del self.groups[group.name]

    def _next_pod(self, pod: str, spec: PodSpec, group: AffinityGroup) -> Decision:
        """One more pod of a group that has its cells: it gets its slot, come what may."""
        number = group.free_slot(spec.leaf_cell_number)
        if number is None:
            message = (
                f"pod {pod!r}: group {group.name!r} has only "
                f"{group.numbers.get(spec.leaf_cell_number, 0)} pods "
                f"with {spec.leaf_cell_number} leaf cells, and all of them run"
            )
            raise RequestError(message)
        return self._bind(spec, number, group.physical, group.virtual, group)

    def _go_on(self, pod: str, spec: PodSpec, group: AffinityGroup, phase: HivedPhase) -> Decision:
        """A group that preempts others: wait until they have left."""
        group.preempting.add(pod)
        using, _ = preemption.victims_on(list(group.leaves()))
        if any(True for victim in using for _ in victim.members()):
            return _preempt(using, phase)
        return self._bind(spec, 0, group.physical, group.virtual, group)

    def _new_group(
        self, pod: str, spec: PodSpec, suggested: Container[str], phase: HivedPhase
    ) -> Decision:
        with ExitStack() as plans:
            return self._decide(pod, spec, self._choose(pod, spec, suggested, plans), phase)

    def _decide(self, pod: str, spec: PodSpec, chosen: Chosen | str, phase: HivedPhase) -> Decision:
        """What follows from a placement, or from there being none."""
        if isinstance(chosen, str):
            return HivedWait(chosen)
        placed = [leaf for pods in chosen.physical.values() for cells in pods for leaf in cells]
        using, waiting = preemption.victims_on(placed)
        if phase is HivedPhase.PREEMPTING:
            for other in waiting:
                self._cancel(other)
        if using:
            if phase is HivedPhase.PREEMPTING and chosen.virtual is not None:
                group = preemption.reserve(self.free_cells, spec, chosen.physical, chosen.virtual)
                group.preempting.add(pod)
                self.groups[group.name] = group
            return _preempt(using, phase)
        return self._bind(spec, 0, chosen.physical, chosen.virtual, None)

    def _choose(
        self, pod: str, spec: PodSpec, suggested: Container[str], plans: ExitStack
    ) -> Chosen | str:
        """A placement for a new group, or why there is none."""
        self._check(pod, spec)
        if spec.pinned_cell_id:
            search = self._pinned[spec.virtual_cluster, spec.pinned_cell_id]
            return self._guaranteed(spec, search, None, suggested, plans)
        types = [spec.leaf_cell_type] if spec.leaf_cell_type else list(self.chains)
        reason = f"no cell of the types asked for in virtual cluster {spec.virtual_cluster!r}"
        for chain in (chain for leaf in types for chain in self.chains[leaf]):
            if spec.chain not in ("", chain):
                continue
            if spec.priority < LOWEST_GUARANTEED:
                found = self._opportunistically(spec, chain, suggested)
            elif chain in self.cells.vcs[spec.virtual_cluster].free_tops:
                search = self._searches[spec.virtual_cluster, chain]
                found = self._guaranteed(spec, search, self.free_cells[chain], suggested, plans)
            else:
                continue
            if isinstance(found, Chosen):
                return found
            reason = found
        return reason

    def _check(self, pod: str, spec: PodSpec) -> None:
        """Refuse what no change of the cluster's state could satisfy."""
        vc = self.cells.vcs.get(spec.virtual_cluster)
        leaf, pinned = spec.leaf_cell_type, spec.pinned_cell_id
        guaranteed = spec.priority >= LOWEST_GUARANTEED
        wrong = ""
        if vc is None:
            wrong = f"there is no virtual cluster {spec.virtual_cluster!r}"
        elif pinned and pinned not in vc.pinned:
            wrong = f"virtual cluster {vc.name!r} has no pinned cell {pinned!r}"
        elif pinned and not guaranteed:
            wrong = f"an opportunistic pod cannot use the pinned cell {pinned!r}"
        elif pinned:
            return
        elif leaf and leaf not in self.chains:
            wrong = f"the cluster has no leaf cells of type {leaf!r}"
        elif leaf and guaranteed and not any(c in vc.free_tops for c in self.chains[leaf]):
            wrong = f"virtual cluster {vc.name!r} has no leaf cells of type {leaf!r}"
        if wrong:
            message = f"pod {pod!r}: {wrong}"
            raise RequestError(message)

    def _guaranteed(
        self,
        spec: PodSpec,
        search: TopologySearch[VirtualCell],
        free_cells: FreeCells | None,
        suggested: Container[str],
        plans: ExitStack,
    ) -> Chosen | str:
        """Search in the virtual cluster, then map to physical cells."""
        anywhere = spec.ignore_k8s_suggested_nodes
        virtual = search.find(
            sizes_of(spec), spec.priority, suggested, anywhere=anywhere, apart=spec.apart
        )
        if isinstance(virtual, str):
            return f"{virtual} when scheduling in VC {spec.virtual_cluster}"
        plans.enter_context(preemption.planning(self.free_cells, virtual))
        preempted = preemption.preempt_on(self.free_cells, virtual, group_of(spec).name)
        usable = Usable(suggested, anywhere=anywhere)
        physical = map_placement(virtual, free_cells, usable)
        if physical is not None:
            return Chosen(physical, virtual)
        for group, before in preempted:
            preemption.revert(self.free_cells, group, before)
        what = "bad" if anywhere else "bad or non-suggested"
        return f"mapping the virtual placement would need to use at least one {what} node"

    def _opportunistically(
        self, spec: PodSpec, chain: str, suggested: Container[str]
    ) -> Chosen | str:
        """Search among all cells of a chain."""
        anywhere = spec.ignore_k8s_suggested_nodes
        search = self._opportunistic[chain]
        found = search.find(
            sizes_of(spec), spec.priority, suggested, anywhere=anywhere, apart=spec.apart
        )
        if isinstance(found, str):
            return f"{found} when scheduling in physical cluster"
        return Chosen(found, None)

    def _bind(
        self,
        spec: PodSpec,
        number: int,
        physical: Mapping[int, Sequence[Sequence[PhysicalCell | None]]],
        virtual: Mapping[int, Sequence[Sequence[VirtualCell | None]]] | None,
        group: AffinityGroup | None,
    ) -> BindInfo:
        """The decision for one pod, with the places of all pods of its group."""
        known = next((pod.bind for pod in group.members()), None) if group is not None else None
        members: list[tuple[PodPlacement, ...]] = []
        for size in physical:
            places = [
                place_of(pod, virtual[size][index] if virtual is not None else ())
                or recalled(known, size, index)
                for index, pod in enumerate(physical[size])
            ]
            members.append(tuple(places))
        own = members[list(physical).index(spec.leaf_cell_number)][number]
        first = physical[spec.leaf_cell_number][number][0]
        chain = first.chain if first is not None else ("" if known is None else known.chain)
        return BindInfo(own.physical_node, own.physical_leaf_cell_indices, chain, tuple(members))

    def _add_group(self, spec: PodSpec, bind: BindInfo) -> AffinityGroup:
        """A group that runs: find its cells by the bind information of its first pod."""
        group = AffinityGroup(spec, GroupState.ALLOCATED)
        lost = False
        with leaves.planning(self.free_cells, physical_leaves(self.cells, bind)):
            for places in bind.group:
                for number, place in enumerate(places):
                    lost = self._add_pod(group, spec, bind.chain, (number, place), lost=lost)
        if lost:
            preemption.preempt_lazily(self.free_cells, group, group.name)
        return group

    def _add_pod(
        self,
        group: AffinityGroup,
        spec: PodSpec,
        chain: str,
        pod: tuple[int, PodPlacement],
        *,
        lost: bool,
    ) -> bool:
        """The cells of one pod; whether the group has lost its place in the virtual cluster."""
        number, place = pod
        size = len(place.physical_leaf_cell_indices)
        for at in range(size):
            wanted = None if lost or group.virtual is None else spec
            found = find_leaf(self.cells, chain, place, at, wanted)
            if found is None:
                continue
            leaf, virtual = found.leaf, found.virtual
            if leaf.reserving is not None:  # it was bound without a phase of preempting
                self._cancel(leaf.reserving)
            group.physical[size][number][at] = leaf
            if found.opportunistic:
                group.virtual = None
            elif virtual is not None and group.virtual is not None:
                group.virtual[size][number][at] = virtual
                if leaf.is_free() and virtual.preassigned.priority > FREE:
                    # The promised cell is in use elsewhere: the group there loses it.
                    preemption.preempt_cell(self.free_cells, virtual.preassigned, group.name)
            else:
                lost = lost or found.lost
            safe = leaves.allocate(self.free_cells, leaf, virtual, spec.priority, group.vc)
            leaf.using = group
            leaf.state = CellState.USED
            lost = lost or not safe
        return lost

    def _delete_group(self, group: AffinityGroup) -> None:
        """All its pods have left; cells that a preempting group waits for stay with that one."""
        for leaf in group.leaves():
            leaf.using = None
            if leaf.state is CellState.USED:
                leaves.release(self.free_cells, leaf, group.vc)
                leaf.state = CellState.FREE
            else:
                leaf.state = CellState.RESERVED
        del self.groups[group.name]


def sizes_of(spec: PodSpec) -> list[int]:
    """The sizes of all pods of a group, ascending."""
    return sorted(size for size, number in pod_numbers(spec).items() for _ in range(number))


def _preempt(victims: list[AffinityGroup], phase: HivedPhase) -> Preempt:
    if phase is HivedPhase.FILTERING:
        return Preempt(())
    return Preempt(tuple(pod.name for group in victims for pod in group.members()))


def _all_usable(group: AffinityGroup, suggested: Container[str]) -> bool:
    return all(leaf.healthy and leaf.nodes[0] in suggested for leaf in group.leaves())
