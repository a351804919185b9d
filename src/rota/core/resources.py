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
