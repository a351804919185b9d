"""Pods and the affinity groups they start in: what is asked for, and where it was bound."""

import msgspec

from rota.core.errors import RequestError

OPPORTUNISTIC = -1
"""Priority of pods that use what is idle and may be stopped at any time."""
LOWEST_GUARANTEED = 0
HIGHEST_GUARANTEED = 1000


class Member(msgspec.Struct, frozen=True, rename="camel"):
    """So many pods of a size."""

    pod_number: int
    leaf_cell_number: int


class GroupSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The pods that start together."""

    name: str
    members: tuple[Member, ...]


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What one pod asks for, in HiveD's words."""

    virtual_cluster: str
    priority: int
    leaf_cell_number: int
    leaf_cell_type: str = ""
    pinned_cell_id: str = ""
    lazy_preemption_enable: bool = False
    ignore_k8s_suggested_nodes: bool = msgspec.field(name="ignoreK8sSuggestedNodes", default=True)
    affinity_group: GroupSpec | None = None
    chain: str = ""
    """Not one of HiveD's words: only cells of this chain; any if empty."""
    apart: bool = False
    """Not one of HiveD's words: every pod of the group on a node of its own."""


class PodPlacement(msgspec.Struct, frozen=True, rename="camel"):
    """Where one pod of a group is: node, leaf cells, and of which promised cells they are part."""

    physical_node: str
    physical_leaf_cell_indices: tuple[int, ...]
    preassigned_cell_types: tuple[str, ...]


class BindInfo(msgspec.Struct, frozen=True, rename="camel"):
    """A decision to run a pod, with the places of all pods of its group.

    It is what a pod carries along: enough to find the cells of the whole group again after a
    restart, even under another configuration.
    """

    node: str
    leaf_cells: tuple[int, ...]
    chain: str
    group: tuple[tuple[PodPlacement, ...], ...]
    """For each pod size the places of its pods."""

    def index(self, size: int) -> int | None:
        """Which of the pods of this size of the group this one is."""
        for placements in self.group:
            if len(placements[0].physical_leaf_cell_indices) != size:
                continue
            for number, place in enumerate(placements):
                leaves = place.physical_leaf_cell_indices
                if place.physical_node == self.node and self.leaf_cells[0] in leaves:
                    return number
        return None


class HivedPod(msgspec.Struct, frozen=True):
    """A pod that has its place."""

    name: str
    bind: BindInfo


def pod_numbers(spec: PodSpec) -> dict[int, int]:
    """Number of pods by size; members of equal size are one.

    In the order of the members: a group gives its cells back in this order, which shows in the
    order of the free cells.
    """
    numbers: dict[int, int] = {}
    for member in group_of(spec).members:
        size = member.leaf_cell_number
        numbers[size] = numbers.get(size, 0) + member.pod_number
    return numbers


def group_of(spec: PodSpec) -> GroupSpec:
    """The group of a checked request."""
    assert spec.affinity_group is not None  # noqa: S101 - `checked` gives every pod a group
    return spec.affinity_group


def checked(pod: str, spec: PodSpec) -> PodSpec:
    """The request with a group; a pod without one is a group of its own.

    Raises:
        RequestError: It makes no sense.
    """
    group = spec.affinity_group or GroupSpec(pod, (Member(1, spec.leaf_cell_number),))
    for wrong, what in (
        (not spec.virtual_cluster, "virtualCluster is empty"),
        (
            not OPPORTUNISTIC <= spec.priority <= HIGHEST_GUARANTEED,
            f"priority {spec.priority} is not within {OPPORTUNISTIC}..{HIGHEST_GUARANTEED}",
        ),
        (spec.leaf_cell_number < 1, f"leafCellNumber is {spec.leaf_cell_number}, not 1 or more"),
        (not group.name, "affinityGroup.name is empty"),
        (
            any(member.pod_number < 1 or member.leaf_cell_number < 1 for member in group.members),
            "a member of affinityGroup has a podNumber or leafCellNumber below 1",
        ),
        (
            all(member.leaf_cell_number != spec.leaf_cell_number for member in group.members),
            f"affinityGroup has no member with leafCellNumber {spec.leaf_cell_number}",
        ),
    ):
        if wrong:
            message = f"pod {pod!r}: {what}"
            raise RequestError(message)
    return msgspec.structs.replace(spec, affinity_group=group)


def recalled(bind: BindInfo | None, size: int, number: int) -> PodPlacement:
    """The place of a pod as other pods of its group remember it."""
    for places in bind.group if bind is not None else ():
        if len(places[0].physical_leaf_cell_indices) == size:
            return places[number]
    message = f"no pod of the group knows the place of pod {number} with {size} leaf cells"
    raise RequestError(message)
