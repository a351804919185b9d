"""Rates from tables of throughputs (see `throughputs`): jobs by GPU type and size, and pairs.

Jobs are found in the table by their model and number of GPUs. `table` gives the rate of a job
alone; `pairs` only how much slower it is beside another job, so that it is multiplied with a model
that knows GPU types: `types+pairs:table=FILE`, `table:table=FILE+pairs:table=FILE`.
"""

from collections.abc import Sequence
from math import prod
from typing import Literal

from rota.core.allocation import Allocation, host_of
from rota.core.errors import OptionError
from rota.core.jobs import Job
from rota.core.policy import Params
from rota.core.sums import ordered_sum
from rota.core.topology import DEVICE, Topology
from rota.models.rates import Rates, Share, interpolated
from rota.models.throughputs import ByType, Kind, load_throughputs


class TableParams(Params, frozen=True):
    """The file, and the GPU type on which a job's work was measured (its speed there is 1)."""

    table: str = ""
    reference: str = "v100"


class TableRates(Rates):
    """The throughput on what a job holds, relative to that with what it asks for on the reference.

    On GPUs of several nodes the unconsolidated values count, where the table has them. Numbers of
    GPUs that the table lacks are interpolated between those that it has. A job on several types
    waits for the slowest. A job whose model is not in the table runs as with `types`.
    """

    name = "table"
    Parameters = TableParams

    def __init__(self, topology: Topology, params: TableParams | None = None) -> None:
        super().__init__(topology, params)
        self._table = load_throughputs(_required(self.name, self.params.table))
        known = self._table.gpu_types
        if self.params.reference not in known:
            raise OptionError(
                f"rates {self.name!r}: {self.params.table} has no GPU type "
                f"{self.params.reference!r}: give reference=TYPE, one of {', '.join(known)}"
            )
        self._points: dict[tuple[str, str, bool], tuple[tuple[float, float], ...]] = {}

    def speed(self, job: Job, gpu_type: str) -> float:
        """As the table says, else the job's own speed."""
        return self._rate(job, job.gpus, gpu_type, scattered=False)

    def speed_with(self, job: Job, gpus: float, nodes: int, gpu_type: str) -> float:
        """As the table says, else the job's own speed."""
        return self._rate(job, gpus, gpu_type or self.topology.types[0], scattered=nodes > 1)

    def rate(self, job: Job, allocation: Allocation, sharers: Sequence[Job]) -> float:  # noqa: ARG002
        """The slowest of its types decides."""
        vertices = self.topology.vertices
        scattered = len({vertices[vertex].node for vertex in allocation.vertices} - {-1}) > 1
        # a guest holds no GPUs of its own: it runs on as many as it asks for
        gpus = job.gpus if host_of(allocation) >= 0 else allocation.gpus
        types = self.topology.types_at(allocation.vertices)
        return min(
            (self._rate(job, gpus, kind, scattered=scattered) for kind in types), default=1.0
        )

    def _rate(self, job: Job, gpus: float, gpu_type: str, *, scattered: bool) -> float:
        model = job.spec.model
        base = self._steps(model, job.gpus, self.params.reference, scattered=False)
        steps = self._steps(model, gpus, gpu_type, scattered=scattered)
        if not base or steps is None:
            return (job.truth.speeds or {}).get(gpu_type, 1.0)
        return steps / base

    def _steps(self, model: str, gpus: float, gpu_type: str, *, scattered: bool) -> float | None:
        """Steps per second; None if the table does not know the model on this type."""
        points = self._known(model, gpu_type, scattered=scattered)
        if not points and scattered:
            points = self._known(model, gpu_type, scattered=False)
        return interpolated(gpus, points) if points else None

    def _known(
        self, model: str, gpu_type: str, *, scattered: bool
    ) -> tuple[tuple[float, float], ...]:
        key = (model, gpu_type, scattered)
        if key not in self._points:
            table = self._table.scattered if scattered else self._table.alone
            self._points[key] = tuple(sorted(_sizes(table, model, gpu_type)))
        return self._points[key]


def _sizes(table: dict[Kind, ByType], model: str, gpu_type: str) -> list[tuple[float, float]]:
    return [
        (gpus, speeds[gpu_type])
        for (name, gpus), speeds in table.items()
        if name == model and gpu_type in speeds
    ]


class PairsParams(Params, frozen=True):
    """The file, and the factor for pairs that are not in it.

    `rule`: what more than two jobs on a GPU do to each other. `product`: each neighbour slows by
    its own factor; `max-min`: they want the same thing, so that what they take of it adds up;
    `roofline`: they want different things, so that only the worst neighbour counts.
    """

    table: str = ""
    unknown: Share = 0.5
    rule: Literal["product", "max-min", "roofline"] = "product"


class PairRates(Rates):
    """How much slower a job is beside others on the same GPUs, by a table of pairs.

    A pair that the table lacks runs at `unknown` times its speed, each of the two. Of more jobs the
    table knows nothing: a rule makes one factor of those of the pairs.
    """

    name = "pairs"
    Parameters = PairsParams

    def __init__(self, topology: Topology, params: PairsParams | None = None) -> None:
        super().__init__(topology, params)
        self.neighbours = True
        self.packs = True
        self._table = load_throughputs(_required(self.name, self.params.table))
        self._is_gpu = [vertex.level == DEVICE for vertex in topology.vertices]

    def beside(self, job: Job, other: Job, gpu_type: str) -> float:
        """The throughput beside the other, relative to that alone."""
        kind, partner = _kind(job), _kind(other)
        alone = self._table.alone.get(kind, {}).get(gpu_type, 0.0)
        together = self._table.pairs.get((kind, partner), {}).get(gpu_type)
        if together is None:
            unknown: float = self.params.unknown
            return unknown
        return together / alone if alone else 0.0

    def keys(self, job: Job) -> Sequence[int]:
        """Its own number and that of its host (below 0, where no vertex is), and single GPUs."""
        host = host_of(job.allocation)
        mine = [-1 - job.index] if host < 0 else [-1 - job.index, -1 - host]
        return mine + [vertex for vertex in job.allocation.vertices if self._is_gpu[vertex]]

    def rate(self, job: Job, allocation: Allocation, sharers: Sequence[Job]) -> float:
        """Alone 1; beside others the slowest of its types decides."""
        host = host_of(allocation)
        gpus = {vertex for vertex in allocation.vertices if self._is_gpu[vertex]}
        others = [
            other
            for other in sharers
            if other.index == host
            or host_of(other.allocation) == job.index
            or not gpus.isdisjoint(other.allocation.vertices)
        ]
        if not others:
            return 1.0
        types = self.topology.types_at(allocation.vertices)
        return min((self._among(job, others, kind) for kind in types), default=1.0)

    def _among(self, job: Job, others: Sequence[Job], gpu_type: str) -> float:
        return combined([self.beside(job, other, gpu_type) for other in others], self.params.rule)


def combined(factors: Sequence[float], rule: str) -> float:
    """One factor for a job beside several others, of those beside each of them alone."""
    if rule == "product":
        return prod(factors)
    if rule == "roofline" or not all(factors):
        return min(factors)
    return 1.0 / (1.0 + ordered_sum(1.0 / factor - 1.0 for factor in factors))


def _kind(job: Job) -> Kind:
    return (job.spec.model, int(job.gpus))


def _required(name: str, file: str) -> str:
    if not file:
        raise OptionError(f"rates {name!r}: give the table of throughputs, {name}:table=FILE")
    return file
