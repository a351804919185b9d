"""Kinds of resources and how they behave when there is not enough."""

from collections.abc import Sequence
from math import isfinite

import msgspec

from rota.core.errors import ClusterSpecError


class ResourceKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One kind of resource, as those declare it who describe a cluster.

    With a `total` it belongs to the cluster as a whole (licences): it is counted over all nodes,
    and an allocation names the places at which a job uses it all the same. Without one, nodes or
    GPUs say what they have.
    """

    name: str
    unit: str = ""  # for people; empty: the name
    compressible: bool = False  # a shortage slows jobs down; otherwise it forbids the placement
    renewable: bool = True  # given back at release; otherwise it is used up (a budget)
    total: float | None = None  # of the whole cluster


GPU = ResourceKind("gpu", "device")
CPU = ResourceKind("cpu", "core")
MEMORY = ResourceKind("memory", "GiB")
GPU_MEMORY = ResourceKind("gpu_mem_gib", "GiB")
STEP_MEMORY = ResourceKind("gpu_mem_step_gib", "GiB")
LIMIT = ResourceKind("gpu_limit", "part", compressible=True)
WEIGHT = ResourceKind("gpu_weight", "weight", compressible=True)
SPILL = ResourceKind("gpu_mem_spill_gib", "GiB", compressible=True)
BUILT_IN = (GPU, CPU, MEMORY, GPU_MEMORY, STEP_MEMORY, LIMIT, WEIGHT, SPILL)
"""Known on every cluster; others are declared with it."""


def licence(name: str, total: float) -> ResourceKind:
    """Licences of the whole cluster."""
    return ResourceKind(name, "licence", total=total)


def check_kinds(kinds: Sequence[ResourceKind], where: str) -> None:
    """Raise for names and amounts that cannot be."""
    taken = {kind.name for kind in BUILT_IN}
    for kind in kinds:
        if kind.name in taken or not kind.name.isidentifier():
            raise ClusterSpecError(
                f"{where}.{kind.name}: the name is taken or no word: choose another"
            )
        taken.add(kind.name)
        if kind.total is not None and not (isfinite(kind.total) and kind.total >= 0):
            raise ClusterSpecError(f"{where}.{kind.name}: total is {kind.total:g}: give 0 or more")
