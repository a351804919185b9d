"""Requests in other sizes, with other CPUs and memory, or for fewer GPU types than were asked."""

import msgspec

from rota.core.jobs import Request, Shape
from rota.core.view import Supply
from rota.placement.base import Placement


class Shapes:
    """Shapes of other sizes than a job asked for (elastic jobs)."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, float], Shape] = {}
        self._supplied: dict[tuple[int, Supply], Shape] = {}
        self._typed: dict[tuple[int, str], Shape] = {}
        self._gpus_only: bool | None = None

    def gpus_only(self, placement: Placement) -> bool:
        """The cluster has nothing to offer to a job without GPUs."""
        if self._gpus_only is None:
            nodes = placement.topology.nodes
            self._gpus_only = not any(node.cpus or node.mem_gib for node in nodes)
        return self._gpus_only

    def resized(self, shape: Shape, gpus: float) -> Shape:
        """The same request with another number of GPUs; CPUs and memory in proportion."""
        made = self._made.get((shape.number, gpus))
        if made is None:
            scale = gpus / shape.gpus
            request = Request.of(
                gpus, gpu_types=shape.types, cpus=shape.cpus * scale,
                mem_gib=shape.mem_gib * scale, labels=shape.labels,
            )  # fmt: skip
            made = self._made[shape.number, gpus] = Shape(self._next_number(), request)
        return made

    def supplied(self, shape: Shape, supply: Supply) -> Shape:
        """The same request with other CPUs and memory; a job without GPUs keeps what it asks."""
        if not shape.gpus:
            return shape
        made = self._supplied.get((shape.number, supply))
        if made is None:
            cpus, mem_gib = supply[0] / shape.gpus, supply[1] / shape.gpus
            groups = tuple(
                msgspec.structs.replace(group, cpus=cpus * group.gpus, mem_gib=mem_gib * group.gpus)
                for group in shape.request.groups
            )
            request = msgspec.structs.replace(shape.request, groups=groups)
            made = self._supplied[shape.number, supply] = Shape(self._next_number(), request)
        return made

    def typed(self, shape: Shape, gpu_type: str) -> Shape:
        """The same request for GPUs of one type only."""
        if shape.types == (gpu_type,):
            return shape
        made = self._typed.get((shape.number, gpu_type))
        if made is None:
            request = msgspec.structs.replace(shape.request, gpu_types=(gpu_type,))
            made = self._typed[shape.number, gpu_type] = Shape(self._next_number(), request)
        return made

    def wanted(
        self, shape: Shape, gpus: float | None, supply: Supply | None, gpu_type: str | None = None
    ) -> Shape:
        """The request, or another size of it, or one with other CPUs, memory or GPU types."""
        if gpus is not None and gpus != shape.gpus:
            shape = self.resized(shape, gpus)
        if gpu_type is not None:
            shape = self.typed(shape, gpu_type)
        return shape if supply is None else self.supplied(shape, supply)

    def without_supply(self, shape: Shape) -> Shape:
        """Only its GPUs."""
        return self.supplied(shape, (0.0, 0.0))

    def _next_number(self) -> int:
        """Below those of requests and of -1, which is nobody's."""
        return -2 - len(self._made) - len(self._supplied) - len(self._typed)
