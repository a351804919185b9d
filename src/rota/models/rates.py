"""How fast a job runs on an allocation: factors that can be multiplied.

The rate 1 is that of the job on the allocation it asked for, on GPUs of speed 1, alone. Each model
here answers for one effect and says 1 where it knows nothing; `make_rates` multiplies them:
`types+scaling+locality:factor=0.9`.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from rota.core.allocation import Allocation, host_of
from rota.core.errors import OptionError
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.policy import Params
from rota.core.ports import RateModel, RatePhase
from rota.core.registry import RATES, load, parse_params, split
from rota.core.sharing import EXCLUSIVE, LIMIT, MIG, SPILL, TIMESLICE, WEIGHT
from rota.core.sums import ordered_sum
from rota.core.topology import DEVICE, Topology
from rota.models.slicing import (
    DUST,
    GpuClaim,
    divide,
    pipelined_switch_s,
    slice_tax,
    spilled_rate,
)

Factor = Annotated[float, msgspec.Meta(gt=0, le=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Rates:
    """Common part of all models; implements `core.ports.RateModel`.

    `unit` promises the rate 1 for everyone, `neighbours` asks for the other jobs on the same
    places, `packs` says that it knows how fast two jobs run on the same GPUs.
    """

    name: str = ""
    Parameters: ClassVar[type[Params]] = Params

    def __init__(self, topology: Topology, params: Params | None = None) -> None:
        self.topology = topology
        self.params: Any = params if params is not None else self.Parameters()
        self.unit = False
        self.neighbours = False
        self.packs = False
        self.phased = False

    def speed(self, job: Job, gpu_type: str) -> float:  # noqa: ARG002 - most care for neither
        """The rate on GPUs of this type, alone, with what it asks for."""
        return 1.0

    def speed_with(self, job: Job, gpus: float, nodes: int, gpu_type: str) -> float:  # noqa: ARG002
        """The rate with so many GPUs of a type on so many nodes (0: on few), alone."""
        return self.speed(job, gpu_type)

    def phase(
        self,
        job: Job,
        allocation: Allocation,
        sharers: Sequence[Job],
        done: float,  # noqa: ARG002 - for those that change
        now_s: float,  # noqa: ARG002
    ) -> RatePhase:
        """The rate from now on, with so much work done, and for how long it holds."""
        return RatePhase(self.rate(job, allocation, sharers))

    def snapshot(self) -> Mapping[str, Any]:
        """What it remembers of jobs: most remember nothing."""
        return {}

    def restore(self, state: Mapping[str, Any], jobs: Mapping[int, Job]) -> None:
        """Take the state of `snapshot` up again."""

    def beside(self, job: Job, other: Job, gpu_type: str) -> float:  # noqa: ARG002 - see above
        """By how much it is slower while another job uses the same GPUs of this type."""
        return 1.0

    def keys(self, job: Job) -> Sequence[int]:
        """Jobs with a key in common are neighbours."""
        return job.allocation.vertices

    def rate(self, job: Job, allocation: Allocation, sharers: Sequence[Job]) -> float:
        """Progress per second."""
        raise NotImplementedError

    def describe(self) -> Mapping[str, Any]:
        """Name and parameters."""
        return {"name": self.name, **msgspec.structs.asdict(self.params)}


class Uniform(Rates):
    """Every job runs as fast as on the allocation it asked for, whatever it gets."""

    name = "uniform"

    def __init__(self, topology: Topology, params: Params | None = None) -> None:
        super().__init__(topology, params)
        self.unit = True

    def rate(self, job: Job, allocation: Allocation, sharers: Sequence[Job]) -> float:  # noqa: ARG002
        """Always 1."""
        return 1.0


class TypesParams(Params, frozen=True):
    """Speeds of GPU types for jobs that bring none of their own, written v100:1/k80:0.3."""

    speeds: tuple[str, ...] = ()


class Types(Rates):
    """GPU types differ in speed; a job on several types waits for the slowest.

    The speed is the job's own (`Behaviour.speeds`) if it has one for the type, else that of the
    parameter `speeds`, else 1.
    """

    name = "types"
    Parameters = TypesParams

    def __init__(self, topology: Topology, params: TypesParams | None = None) -> None:
        super().__init__(topology, params)
        self._speeds = dict(_speed(text, topology) for text in self.params.speeds)
        single = topology.types[0] if len(topology.types) == 1 else ""
        # the pool of a cluster with one type is the cluster itself, which has no type
        self._types = [vertex.gpu_type or single for vertex in topology.vertices]

    def speed(self, job: Job, gpu_type: str) -> float:
        """Its own, that of the type, or 1."""
        own = job.truth.speeds or {}
        return own.get(gpu_type, self._speeds.get(gpu_type, 1.0))

    def rate(self, job: Job, allocation: Allocation, sharers: Sequence[Job]) -> float:  # noqa: ARG002
        """The speed of the slowest GPU that it holds."""
        own = job.truth.speeds or {}
        types = {self._types[vertex] for vertex, _ in allocation.slices}
        return min((own.get(kind, self._speeds.get(kind, 1.0)) for kind in types), default=1.0)


def _speed(text: str, topology: Topology) -> tuple[str, float]:
    kind, colon, number = text.rpartition(":")
    try:
        speed = float(number)
    except ValueError:
        speed = -1.0
    if not colon or speed < 0:
        raise OptionError(
            f"rates 'types': {text!r} is no speed: write TYPE:SPEED, e.g. speeds=v100:1/k80:0.3"
        )
    if kind not in topology.types:
        known = ", ".join(kind or "untyped" for kind in topology.types)
        raise OptionError(f"rates 'types': the cluster has no GPUs of type {kind!r}, only {known}")
    return kind, speed


class Scaling(Rates):
    """More or fewer GPUs than asked make a job faster or slower.

    `Behaviour.scaling` lists (GPUs, rate) with rate 1 at what the job asked for; between its points
    the rate is interpolated, below the first it falls in proportion, beyond the last it stays.
    Without it the rate is in proportion to the GPUs.
    """

    name = "scaling"

    def rate(self, job: Job, allocation: Allocation, sharers: Sequence[Job]) -> float:  # noqa: ARG002
        """The rate at the number of GPUs that it holds."""
        gpus = allocation.gpus if host_of(allocation) < 0 else job.gpus  # see `as_guest`
        return self._scaled(job, gpus)

    def speed_with(self, job: Job, gpus: float, nodes: int, gpu_type: str) -> float:  # noqa: ARG002
        """By the number alone."""
        return self._scaled(job, gpus)

    def _scaled(self, job: Job, gpus: float) -> float:
        points = job.truth.scaling
        if points:
            return interpolated(gpus, tuple(sorted(tuple(point) for point in points)))
        return gpus / job.gpus if job.gpus and gpus != job.gpus else 1.0


@lru_cache(maxsize=4096)
def interpolated(gpus: float, points: tuple[tuple[float, float], ...]) -> float:
    """Between the points; below the first in proportion, beyond the last as there."""
    place = bisect_left(points, (gpus, -1.0))
    if place == len(points):
        return points[-1][1]
    right, high = points[place]
    left, low = points[place - 1] if place else (0.0, 0.0)
    return low + (high - low) * (gpus - left) / (right - left) if right > left else high


class LocalityParams(Params, frozen=True):
    """The rate is times `factor` for every level of the tree that an allocation has to climb."""

    factor: Factor = 1.0


class Locality(Rates):
    """A job whose parts are far from each other is slower.

    On one node nothing is lost; nodes under one switch or rack climb one level, and so on. With the
    default factor of 1 distance does not matter.
    """

    name = "locality"
    Parameters = LocalityParams

    def __init__(self, topology: Topology, params: LocalityParams | None = None) -> None:
        super().__init__(topology, params)
        self.unit = self.params.factor == 1
        self._levels: dict[tuple[int, ...], int] = {}

    def rate(self, job: Job, allocation: Allocation, sharers: Sequence[Job]) -> float:  # noqa: ARG002
        """One factor per level."""
        if len(allocation.slices) <= 1:
            return 1.0
        places = tuple(allocation.vertices)
        levels = self._levels.get(places)
        if levels is None:
            levels = self._levels[places] = self.topology.distance(places)
        factor: float = self.params.factor
        return factor**levels


class SharingParams(Params, frozen=True):
    """The rate is times `factor` for every other job on the same GPU.

    `rule`: how several jobs at the same time divide a GPU: `max-min` by their claims and what they
    use of its compute, `roofline` where any of compute, memory bandwidth or PCIe may be short
    (column `demand`), `product` of what each neighbour would cost alone. `quantum_s` and
    `switch_s`: slices of a GPU in turns (mode `timeslice`), and what a switch costs. With
    `switch=pipelined` or `whole` a job's model (`gpu_mem_gib` less what its steps need) has to be
    sent, too: in `groups` of layers that compute while the next ones come (PipeSwitch), or as a
    whole. `pcie_gib_s`, `step_s`: the bandwidth for it, and the length of a step.
    """

    factor: Factor = 1.0
    rule: Literal["max-min", "roofline", "product"] = "max-min"
    quantum_s: Annotated[float, msgspec.Meta(gt=0)] = 0.2
    switch_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    switch: Literal["fixed", "pipelined", "whole"] = "fixed"
    groups: Annotated[int, msgspec.Meta(ge=1)] = 10
    pcie_gib_s: Annotated[float, msgspec.Meta(gt=0)] = 12.0
    step_s: Annotated[float, msgspec.Meta(gt=0)] = 0.5


class Sharing(Rates):
    """Jobs on the same GPU disturb each other, and divide it when they want more than there is.

    A job that holds half of a GPU has what it asked for: it runs at rate 1, times `factor` for each
    neighbour. Where the jobs on a GPU (or node) hold more than it has, all of them slow down in
    proportion, or by their weights (`gpu_weight`), and none uses more than its limit (`gpu_limit`).
    GPUs in turns (`timeslice`) serve one at a time; MIG instances and exclusive GPUs know no
    neighbours. Memory that is kept on the node (`gpu_mem_spill_gib`) costs two transfers a step. A
    job on several places waits for the slowest.
    """

    name = "sharing"
    Parameters = SharingParams

    def __init__(self, topology: Topology, params: SharingParams | None = None) -> None:
        super().__init__(topology, params)
        self.neighbours = True
        self._gpus = [vertex.gpus for vertex in topology.vertices]
        self._is_device = [vertex.level == DEVICE for vertex in topology.vertices]
        self._modes = [vertex.sharing for vertex in topology.vertices] if topology.shared else []

    def rate(self, job: Job, allocation: Allocation, sharers: Sequence[Job]) -> float:
        """The slowest of its places decides."""
        factor: float = self.params.factor
        slowest = 1.0 if not self._modes else INF
        for vertex, amount in allocation.slices:
            if self._modes and self._is_device[vertex]:
                slowest = min(slowest, self._on_gpu(vertex, job, allocation, sharers))
                continue
            others = [dict(other.allocation.slices).get(vertex, 0.0) for other in sharers]
            wanted = amount + ordered_sum(others)
            rate = min(1.0, self._gpus[vertex] / wanted) if wanted else 1.0
            if self._is_device[vertex]:
                rate *= factor ** sum(1 for other in others if other)
            slowest = min(slowest, rate)
        return slowest if slowest < INF else 1.0

    def _on_gpu(
        self, vertex: int, job: Job, allocation: Allocation, sharers: Sequence[Job]
    ) -> float:
        """The rate that one GPU with a mode allows."""
        mode = self._modes[vertex]
        if mode in (EXCLUSIVE, MIG):
            return 1.0
        in_turns = mode == TIMESLICE
        mine = claim_on(vertex, job, allocation, in_turns=in_turns)
        others = [
            claim_on(vertex, other, other.allocation, in_turns=in_turns)
            for other in sharers
            if vertex in other.allocation.vertices
        ]
        if mine.most <= 0:
            return 0.0  # it is paused: it keeps its memory
        others = [other for other in others if other.most > 0]
        if in_turns or self.params.rule == "max-min":
            rate = divide([mine, *others])[0] / mine.need
        elif self.params.rule == "product":
            rate = mine.most / mine.need
            for other in others:
                rate *= divide([mine, other])[0] / mine.most
        else:
            there = [other for other in sharers if vertex in other.allocation.vertices]
            claims = [claim_on(vertex, other, other.allocation, in_turns=False) for other in there]
            rate = mine.most / mine.need * roofline(job, mine, zip(there, claims, strict=True))
        if in_turns and others:
            there = [job, *(o for o in sharers if vertex in o.allocation.vertices)]
            switch_s = ordered_sum(map(self._switch_s, there)) / len(there)
            rate *= 1.0 - slice_tax(self.params.quantum_s, switch_s)
        spill = ordered_sum(a for v, kind, a in allocation.extra if v == vertex and kind == SPILL)
        if spill:
            rate *= spilled_rate(spill, self.params.step_s, self.params.pcie_gib_s)
        factor: float = self.params.factor
        return rate * factor ** len(others)

    def _switch_s(self, job: Job) -> float:
        """Until a job whose turn it is goes on."""
        params = self.params
        if params.switch == "fixed":
            fixed_s: float = params.switch_s
            return fixed_s
        groups = params.groups if params.switch == "pipelined" else 1
        gib = job.shape.gpu_mem_gib - job.shape.gpu_mem_step_gib
        sent = [(gib / groups, params.step_s / groups)] * groups
        return pipelined_switch_s(sent, params.pcie_gib_s, begin_s=params.switch_s)


def claim_on(vertex: int, job: Job, allocation: Allocation, *, in_turns: bool) -> GpuClaim:
    """What a job wants of one GPU: by what it holds, its limit and weight, and what it uses."""
    held = dict(allocation.slices).get(vertex, 0.0) or 1.0
    limit, weight = held, held
    for place, kind, amount in allocation.extra:
        if place == vertex and kind == LIMIT:
            limit = amount
        elif place == vertex and kind == WEIGHT:
            weight = amount
    uses = 1.0 if in_turns else (job.truth.demand or {}).get("compute", 1.0)
    return GpuClaim(held * uses or DUST, min(limit, max(limit, held) * uses), weight)


def roofline(job: Job, mine: GpuClaim, others: Iterable[tuple[Job, GpuClaim]]) -> float:
    """By how much the scarcest of what it uses slows a job down, with what the others use."""
    used = dict(_used(job, mine))
    total = used.copy()
    for other, claim in others:
        for kind, amount in _used(other, claim):
            total[kind] = total.get(kind, 0.0) + amount
    return min(
        (1.0 / max(1.0, total[kind]) for kind, amount in used.items() if amount), default=1.0
    )


def _used(job: Job, claim: GpuClaim) -> Iterator[tuple[str, float]]:
    """What it uses of each part of a GPU, at the most that it may."""
    held = claim.most / claim.need
    for kind, amount in (job.truth.demand or {"compute": claim.need}).items():
        yield kind, amount * min(1.0, held)


class CourseRates(Rates):
    """The rate changes along the training: `Behaviour.course` lists (work, factor).

    From each level of work on the rate is times its factor; before the first it is 1.
    """

    name = "course"

    def __init__(self, topology: Topology, params: Params | None = None) -> None:
        super().__init__(topology, params)
        self.phased = True

    def rate(self, job: Job, allocation: Allocation, sharers: Sequence[Job]) -> float:
        """At its beginning."""
        return self.phase(job, allocation, sharers, 0.0, 0.0).rate

    def phase(
        self,
        job: Job,
        allocation: Allocation,  # noqa: ARG002
        sharers: Sequence[Job],  # noqa: ARG002
        done: float,
        now_s: float,  # noqa: ARG002
    ) -> RatePhase:
        """The factor of the last level that was reached, until the next."""
        factor = 1.0
        for level, following in sorted(tuple(point) for point in job.truth.course or ()):
            if level > done:
                return RatePhase(factor, until_done=level)
            factor = following
        return RatePhase(factor)


class Product:
    """Several effects at once: their rates are multiplied."""

    def __init__(self, models: Sequence[RateModel]) -> None:
        self.models = tuple(models)
        self.name = "+".join(model.name for model in models)
        self.unit = all(model.unit for model in models)
        self.neighbours = any(model.neighbours for model in models)
        self.packs = any(model.packs for model in models)
        self.phased = any(model.phased for model in models)
        self._slow = [model for model in models if not model.unit]

    def rate(self, job: Job, allocation: Allocation, sharers: Sequence[Job]) -> float:
        """The product."""
        rate = 1.0
        for model in self._slow:
            rate *= model.rate(job, allocation, sharers)
        return rate

    def phase(
        self,
        job: Job,
        allocation: Allocation,
        sharers: Sequence[Job],
        done: float,
        now_s: float,
    ) -> RatePhase:
        """The product, until the first of them changes; all that they tell."""
        rate, until_s, until_done = 1.0, INF, INF
        told: dict[str, float] = {}
        for model in self._slow:
            phase = model.phase(job, allocation, sharers, done, now_s)
            rate *= phase.rate
            until_s, until_done = min(until_s, phase.until_s), min(until_done, phase.until_done)
            told.update(phase.told or {})
        return RatePhase(rate, until_s, until_done, told or None)

    def snapshot(self) -> Mapping[str, Any]:
        """Those of all parts."""
        return {"parts": [model.snapshot() for model in self.models]}

    def restore(self, state: Mapping[str, Any], jobs: Mapping[int, Job]) -> None:
        """To all parts."""
        for model, part in zip(self.models, state["parts"], strict=True):
            model.restore(part, jobs)

    def speed_with(self, job: Job, gpus: float, nodes: int, gpu_type: str) -> float:
        """The product."""
        speed = 1.0
        for model in self._slow:
            speed *= model.speed_with(job, gpus, nodes, gpu_type)
        return speed

    def speed(self, job: Job, gpu_type: str) -> float:
        """The product of those that know types."""
        speed = 1.0
        for model in self._slow:
            speed *= model.speed(job, gpu_type)
        return speed

    def beside(self, job: Job, other: Job, gpu_type: str) -> float:
        """The product of those that know pairs."""
        factor = 1.0
        for model in self._slow:
            factor *= model.beside(job, other, gpu_type)
        return factor

    def keys(self, job: Job) -> Sequence[int]:
        """Those of all parts that care for neighbours."""
        found: dict[int, None] = {}
        for model in self._slow:
            if model.neighbours:
                found.update(dict.fromkeys(model.keys(job)))
        return list(found)

    def describe(self) -> Mapping[str, Any]:
        """All parts by name."""
        return {"name": self.name, "parts": [dict(model.describe()) for model in self.models]}


def make_rates(text: str, topology: Topology) -> RateModel:
    """The rate model for `name`, `name:key=value,..`, or several of them joined by `+`."""
    models = [_made(part, topology) for part in text.split("+")]
    return models[0] if len(models) == 1 else Product(models)


def _made(text: str, topology: Topology) -> RateModel:
    name, options = split(text)
    kind: type[Rates] = load(RATES, name)
    return kind(topology, parse_params(f"rates {name!r}", kind.Parameters, options))
