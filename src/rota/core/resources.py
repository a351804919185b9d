"""Kinds of resources and how they behave when there is not enough."""

import msgspec


class ResourceKind(msgspec.Struct, frozen=True):
    """One kind of resource.

    `compressible`: a shortage slows the job down; otherwise it forbids the placement.
    `renewable`: given back at release; otherwise it is used up (a budget).
    `scope`: where it lives: device, node, link, cluster or tenant.
    """

    name: str
    unit: str
    step: float = 1.0
    compressible: bool = False
    renewable: bool = True
    scope: str = "node"


GPU = ResourceKind("gpu", "device", step=0.001, scope="device")
CPU = ResourceKind("cpu", "core", step=0.001)
MEMORY = ResourceKind("memory", "GiB", step=0.001)
GPU_MEMORY = ResourceKind("gpu_mem_gib", "GiB", step=0.001, scope="device")
STEP_MEMORY = ResourceKind("gpu_mem_step_gib", "GiB", step=0.001, scope="device")
LIMIT = ResourceKind("gpu_limit", "part", step=0.001, compressible=True, scope="device")
WEIGHT = ResourceKind("gpu_weight", "weight", step=0.001, compressible=True, scope="device")
SPILL = ResourceKind("gpu_mem_spill_gib", "GiB", step=0.001, compressible=True, scope="device")
BUILT_IN = (GPU, CPU, MEMORY, GPU_MEMORY, STEP_MEMORY, LIMIT, WEIGHT, SPILL)
"""Known on every cluster; others are declared with it."""
