"""Synthetic workloads from a seed, at a chosen load.

The load is the work offered per GPU while jobs arrive: sum(GPUs * duration) / (G * span), where the
span reaches from the first submission to the last. It is met exactly, not on average: sizes and
durations are drawn first, the span follows from their sum as work / (G * load), and the arrivals
are then drawn within it, the first job at 0 and the last at its end. (A Poisson process, given its
number of arrivals, is just independent uniform times, so nothing is distorted.) Rounding the end to
whole seconds moves the load by at most 0.5 / span: spans below 51 s are refused unless `exact=yes`,
so the error stays below 1 %.

The load also holds over time, not only in total: the arrivals are cut into windows, and which job
comes when is chosen at random among the orders in which every window gets its share of the work (by
its length, or where arrivals come and go by its number of jobs). A job that is longer than the span
cannot be spread: `carried` tells when a few such jobs hold the load. `even=no` leaves it to chance.

A kind is a set of defaults; any option may be combined with any kind:

- `arrivals`: `steady` (Poisson), `bursts` (`on_s`, `off_s`: mean lengths of the phases; `ratio`: of
  the rates in them), `diurnal` (`swing` up to 1, `period_s`);
- `durations`: `exponential` (`mean_s`), `gavel`, `philly`; `max_s` cuts the tail;
- `sizes`: `1`, `gavel`, `philly` or weights `1:70/2:10/4:20`; sizes above G are left out of a mix;
- `vcs`, `users`: how many; number k gets 1 / (k + 1) of what the first gets;
- `estimate_factor`: users overestimate by U(1, factor);
- `even`: every window gets its share of the work;
- `exact`: seconds are not rounded to whole ones.

The kind `fit` draws from the model of a trace instead (see `fit` and `sampling`) and has options of
its own: `file`, `max_s` and `exact`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from rota.core.errors import OptionError
from rota.core.events import INF
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.products import dot
from rota.core.registry import parse_params, unknown
from rota.core.workload import OnDemand, Workload, fields
from rota.traces.synth import draws, sampling
from rota.traces.synth.draws import Floats, stream

_LEAST_SPAN_S = 51.0  # then 0.5 / span is below 1 %
_LEAST_DURATION_S = 1e-6
_CARRIED = 0.75  # of the load must be usable while jobs arrive
_NOTHING_SAID = JobSpec("", 0.0, Request.of())
_NAMED_SIZES = {"gavel": draws.GAVEL_SIZES, "philly": draws.PHILLY_SIZES}


class GeneratorParams(msgspec.Struct, frozen=True):
    """Options of all kinds."""

    arrivals: Literal["steady", "bursts", "diurnal"] = "steady"
    durations: Literal["exponential", "gavel", "philly"] = "exponential"
    sizes: str = "1"
    mean_s: float = 3_600.0
    max_s: float = INF
    on_s: float = 3_600.0
    off_s: float = 10_800.0
    ratio: float = 10.0
    swing: float = 0.8
    period_s: float = 86_400.0
    vcs: int = 0
    users: int = 0
    estimate_factor: float = 0.0
    even: bool = True
    exact: bool = False


KINDS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "poisson": ("Poisson arrivals, exponential durations, one GPU each", {}),
    "gavel-like": (
        "Poisson arrivals, durations and sizes as in Gavel's generator",
        {"durations": "gavel", "sizes": "gavel"},
    ),
    "philly-like": (
        "Poisson arrivals, durations and sizes as measured on Philly, independent of each other",
        {"durations": "philly", "sizes": "philly"},
    ),
    "bursts": (
        "arrivals in bursts: a high and a low load in turn",
        {"arrivals": "bursts", "sizes": "gavel"},
    ),
    "diurnal": (
        "arrivals that rise and fall every day",
        {"arrivals": "diurnal", "sizes": "gavel"},
    ),
}
"""What each kind is, and its defaults."""


def generate(
    kind: str, *, jobs: int, gpus: int, load: float, seed: int, options: Mapping[str, str]
) -> Workload:
    """A workload of this kind (see `KINDS`); the same arguments give the same workload.

    Args:
        kind: One of `KINDS`, or `fit`.
        jobs: How many jobs, at least 2.
        gpus: GPUs of the cluster that the load is for.
        load: Work offered per GPU and second, e.g. 0.95.
        seed: 0 or more.
        options: Those of the module's docstring; an unknown or bad one raises `OptionError`.
    """
    if kind == sampling.KIND:
        return sampling.sample(jobs=jobs, gpus=gpus, load=load, seed=seed, options=options)
    if kind not in KINDS:
        raise OptionError(unknown("kind of workload", kind, [*KINDS, sampling.KIND]))
    params: GeneratorParams = parse_params(kind, GeneratorParams, {**KINDS[kind][1], **options})
    _check(kind, params, {"jobs": jobs, "gpus": gpus, "load": load, "seed": seed})
    sizes = draws.sizes(stream(seed, "sizes"), jobs, _mix(kind, params.sizes, gpus))
    durations_s = _durations_s(stream(seed, "durations"), jobs, params)
    span_s = dot(sizes, durations_s) / (gpus * load)
    if span_s < _LEAST_SPAN_S and not params.exact:
        raise OptionError(
            f"{kind}: jobs={jobs} at load={load:g} on gpus={gpus} arrive within {span_s:.3g} s: "
            f"ask for more jobs, or for exact=yes since whole seconds are too coarse"
        )
    submits_s = _submits_s(stream(seed, "arrivals"), jobs, span_s, params)
    if params.even:
        order = draws.evenly(
            stream(seed, "order"),
            sizes * durations_s,
            submits_s,
            by_time=params.arrivals == "steady",
        )
        sizes, durations_s = sizes[order], durations_s[order]
    vcs = _names(stream(seed, "vcs"), jobs, "vc", params.vcs)
    users = _names(stream(seed, "users"), jobs, "user", params.users)
    estimates_s = _estimates_s(stream(seed, "estimates"), durations_s, params)
    specs = OnDemand(DrawnSpecs(submits_s, sizes, vcs, users, estimates_s), jobs)
    behaviours = OnDemand(DrawnBehaviours(durations_s), jobs)
    return Workload(specs, behaviours, name=f"{kind}-{jobs}-seed{seed}")


class DrawnSpecs:
    """What drawn jobs ask for, as columns."""

    def __init__(
        self,
        submits_s: Floats,
        sizes: NDArray[np.int64],
        tenants: Sequence[str],
        users: Sequence[str],
        estimates_s: Sequence[float],
    ) -> None:
        requests = {size: Request.of(size) for size in np.unique(sizes).tolist()}
        self._columns: dict[str, Any] = {
            "submit_s": submits_s,
            "request": _objects([requests[size] for size in sizes.tolist()]),
            "tenant": _objects(tenants),
            "user": _objects(users),
            "estimate_s": np.array(estimates_s),
        }
        self._numbers = np.arange(len(submits_s))

    def make(self, rows: slice | Sequence[int]) -> list[JobSpec]:
        """The specs of these rows."""
        cells = [column[rows].tolist() for column in self._columns.values()]
        return [
            JobSpec(str(number), submit_s, request, tenant, user, estimate_s=estimate_s)
            for number, submit_s, request, tenant, user, estimate_s in zip(
                self._numbers[rows].tolist(), *cells, strict=True
            )
        ]

    def field(self, name: str) -> Sequence[Any]:
        """One attribute of all specs."""
        if name in self._columns:
            values: list[Any] = self._columns[name].tolist()
            return values
        if name == "id":
            return list(map(str, self._numbers.tolist()))
        return [getattr(_NOTHING_SAID, name)] * len(self._numbers)


class DrawnBehaviours:
    """How long drawn jobs take."""

    def __init__(self, durations_s: Floats) -> None:
        self._durations_s = durations_s

    def make(self, rows: slice | Sequence[int]) -> list[Behaviour]:
        """The behaviours of these rows."""
        return list(map(Behaviour, self._durations_s[rows].tolist()))

    def field(self, name: str) -> Sequence[Any]:
        """One attribute of all behaviours."""
        if name == "work":
            values: list[float] = self._durations_s.tolist()
            return values
        return [getattr(Behaviour(0.0), name)] * len(self._durations_s)


def _objects(values: Sequence[Any]) -> Any:
    """A column of anything."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def offered_load(workload: Workload, gpus: float) -> float:
    """Work per GPU and second between the first and the last submission; inf when they coincide."""
    submits_s, requests = fields(workload.specs, "submit_s"), fields(workload.specs, "request")
    span_s = max(submits_s) - min(submits_s)
    gpus_of = {
        id(request): sum(group.count * group.gpus for group in request.groups)
        for request in requests
    }
    work_gpu_s = sum(
        work * gpus_of[id(request)]
        for work, request in zip(fields(workload.behaviours, "work"), requests, strict=True)
    )
    return work_gpu_s / (gpus * span_s) if span_s else INF


def carried(workload: Workload, gpus: float) -> str:
    """What to say where a few long jobs hold the load, which then is not what it seems; else "".

    Even if nobody waits, work that is done after the last submission loads nothing before it.
    """
    submits_s, works = fields(workload.specs, "submit_s"), fields(workload.behaviours, "work")
    last_s = max(submits_s, default=0.0)
    offered = offered_load(workload, gpus)
    if not offered < INF:
        return ""
    within = Workload(
        workload.specs,
        [Behaviour(min(work, last_s - at_s)) for work, at_s in zip(works, submits_s, strict=True)],
    )
    usable = offered_load(within, gpus)
    if usable >= _CARRIED * offered:
        return ""
    long = sum(work > last_s for work in works)
    return (
        f"a load of {offered:.2f} is asked for, but while jobs arrive at most {usable:.2f} can be "
        f"in use, because long jobs do most of their work later ({long:,} of {len(workload):,} are "
        f"longer than all that time). Draw more jobs, or cut the tail (max_s=)"
    )


def _durations_s(rng: np.random.Generator, count: int, params: GeneratorParams) -> Floats:
    makers: dict[str, Callable[[], Floats]] = {
        "exponential": lambda: draws.exponential_s(rng, count, params.mean_s),
        "gavel": lambda: draws.gavel_s(rng, count),
        "philly": lambda: draws.philly_s(rng, count),
    }
    durations_s = np.minimum(makers[params.durations](), params.max_s)
    if params.exact:
        return np.maximum(durations_s, _LEAST_DURATION_S)
    return np.maximum(np.rint(durations_s), 1.0)


def _submits_s(
    rng: np.random.Generator, count: int, span_s: float, params: GeneratorParams
) -> Floats:
    """Sorted; the first is 0 and the last the span."""
    inner = count - 2
    makers: dict[str, Callable[[], Floats]] = {
        "steady": lambda: draws.steady_s(rng, inner, span_s),
        "bursts": lambda: draws.bursts_s(
            rng, inner, span_s, on_s=params.on_s, off_s=params.off_s, ratio=params.ratio
        ),
        "diurnal": lambda: draws.diurnal_s(
            rng, inner, span_s, swing=params.swing, period_s=params.period_s
        ),
    }
    submits_s = np.sort(np.concatenate([[0.0, span_s], makers[params.arrivals]()]))
    return submits_s if params.exact else np.rint(submits_s)


def _names(rng: np.random.Generator, count: int, prefix: str, choices: int) -> list[str]:
    if not choices:
        return [""] * count
    names = [f"{prefix}{number}" for number in range(choices)]
    return [names[number] for number in draws.ranked(rng, count, choices).tolist()]


def _estimates_s(
    rng: np.random.Generator, durations_s: Floats, params: GeneratorParams
) -> list[float]:
    if not params.estimate_factor:
        return [INF] * durations_s.size
    estimates_s = durations_s * rng.uniform(1.0, params.estimate_factor, durations_s.size)
    rounded = estimates_s if params.exact else np.ceil(estimates_s)
    return [float(value) for value in rounded]


def _mix(kind: str, text: str, gpus: int) -> Mapping[int, float]:
    """The weights of the sizes that fit the cluster."""
    mix = _NAMED_SIZES.get(text) or _parse_mix(kind, text)
    fitting = {size: weight for size, weight in mix.items() if size <= gpus and weight > 0}
    if not fitting:
        raise OptionError(
            f"{kind}: sizes={text} has no size up to gpus={gpus}: add one or ask for more GPUs"
        )
    return fitting


def _parse_mix(kind: str, text: str) -> dict[int, float]:
    mix: dict[int, float] = {}
    for part in text.split("/"):
        size, _, weight = part.partition(":")
        try:
            mix[int(size)] = float(weight or 1)
        except ValueError:
            mix[0] = 0.0
    if any(size < 1 or not 0 <= weight < INF for size, weight in mix.items()):
        raise OptionError(
            f"{kind}: sizes={text} is not understood: write gpus:weight/gpus:weight, "
            f"e.g. 1:70/2:10/8:20, or {' or '.join(_NAMED_SIZES)}"
        )
    return mix


def _check(kind: str, params: GeneratorParams, arguments: Mapping[str, float]) -> None:
    """Refuse values that no workload can have."""
    least = {"jobs": 2, "gpus": 1, "seed": 0, "vcs": 0, "users": 0, "swing": 0}
    above = dict.fromkeys(("load", "mean_s", "max_s", "on_s", "off_s", "ratio", "period_s"), 0)
    values = {**arguments, **msgspec.structs.asdict(params)}
    for key, bound in least.items():
        if not bound <= values[key] < INF:
            raise OptionError(
                f"{kind}: {key}={values[key]:g} is out of range: give {bound} or more"
            )
    for key, bound in above.items():
        if not values[key] > bound or (values[key] == INF and key != "max_s"):
            raise OptionError(
                f"{kind}: {key}={values[key]:g} is out of range: give more than {bound}"
            )
    if params.swing > 1:
        raise OptionError(f"{kind}: swing={params.swing:g} is out of range: give at most 1")
    if params.estimate_factor and not 1 <= params.estimate_factor < INF:
        raise OptionError(
            f"{kind}: estimate_factor={params.estimate_factor:g} is out of range: give 1 or more"
        )
