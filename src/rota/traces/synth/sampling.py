"""Workloads drawn from a fitted model (see `fit`), at a chosen load.

As with the other kinds the load is met exactly: sizes and durations come first, the span follows
from their sum, and the arrivals are laid into it. Hours of the day and days of the week stay where
they are, whatever the load is.
"""

from collections.abc import Mapping
from pathlib import Path
from statistics import NormalDist

import msgspec
import numpy as np
from numpy.typing import NDArray

from rota.core.errors import OptionError
from rota.core.events import INF
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.products import dot
from rota.core.registry import parse_params, split
from rota.core.workload import Workload
from rota.traces.synth.draws import Floats, evenly, stream
from rota.traces.synth.fit import (
    ArrivalModel,
    SizeClass,
    TraceModel,
    expected,
    load_fit,
    times,
    weekly,
)

KIND = "fit"

_LEAST_SPAN_S = 51.0  # as for the other kinds: whole seconds move the load by less than 1 %
_LEAST_DURATION_S = 1e-6


class FitParams(msgspec.Struct, frozen=True):
    """Options of the kind `fit`."""

    file: str = ""
    max_s: float = INF
    exact: bool = False


def split_kind(text: str) -> tuple[str, dict[str, str]]:
    """`kind:key=value,...` as (kind, options); `fit:FILE,...` is short for `fit:file=FILE,...`."""
    kind, colon, rest = text.partition(":")
    first, comma, others = rest.partition(",")
    if kind.strip() == KIND and colon and "=" not in first:
        _, options = split(f"{KIND}:{others}" if comma else KIND)
        return KIND, {"file": first.strip(), **options}
    return split(text)


def sample(*, jobs: int, gpus: int, load: float, seed: int, options: Mapping[str, str]) -> Workload:
    """A workload from the model that the option `file` names; arguments as of `generate`.

    Raises:
        OptionError: An argument or an option is out of range.
        TraceError: The file is no model.
    """
    params: FitParams = parse_params(KIND, FitParams, options)
    _check(params, {"jobs": jobs, "gpus": gpus, "load": load, "seed": seed})
    model = load_fit(Path(params.file))
    sizes, shares = _mix(model, gpus, params.file)
    chosen = stream(seed, "sizes").choice(len(sizes), jobs, p=shares)
    durations_s = _durations_s(stream(seed, "durations"), model, sizes, chosen, params)
    gpus_each = np.array([size for size, _ in sizes])[chosen]
    span_s = dot(gpus_each, durations_s) / (gpus * load)
    if span_s < _LEAST_SPAN_S and not params.exact:
        raise OptionError(
            f"{KIND}: jobs={jobs} at load={load:g} on gpus={gpus} arrive within {span_s:.3g} s: "
            f"ask for more jobs, or for exact=yes since whole seconds are too coarse"
        )
    submits_s = _submits_s(stream(seed, "arrivals"), jobs, span_s, model)
    if not params.exact:
        submits_s = np.rint(submits_s)
    order = evenly(stream(seed, "order"), gpus_each * durations_s, submits_s, by_time=False)
    gpus_each, durations_s = gpus_each[order], durations_s[order]
    owners = model.owners
    weights = np.array([owner.jobs for owner in owners], float)
    picked = stream(seed, "owners").choice(len(owners), jobs, p=weights / weights.sum())
    columns = zip(submits_s.tolist(), gpus_each.tolist(), picked.tolist(), strict=True)
    specs = [
        JobSpec(str(i), submit_s, Request.of(size), owners[owner].vc, owners[owner].user)
        for i, (submit_s, size, owner) in enumerate(columns)
    ]
    behaviours = list(map(Behaviour, durations_s.tolist()))
    return Workload(specs, behaviours, name=f"{Path(params.file).stem}-{jobs}-seed{seed}")


def _mix(model: TraceModel, gpus: int, file: str) -> tuple[list[tuple[float, SizeClass]], Floats]:
    """The sizes that fit the cluster, each with its class, and their shares."""
    fitting = [
        (size, each, count) for each in model.classes for size, count in each.sizes if size <= gpus
    ]
    if not fitting:
        raise OptionError(f"{KIND}: {file} has no size up to gpus={gpus}: ask for more GPUs")
    counts = np.array([count for _, _, count in fitting], float)
    sizes = [(int(size) if size == int(size) else size, each) for size, each, _ in fitting]
    return sizes, counts / counts.sum()


def _durations_s(
    rng: np.random.Generator,
    model: TraceModel,
    sizes: list[tuple[float, SizeClass]],
    chosen: NDArray[np.int64],
    params: FitParams,
) -> Floats:
    """Quantiles of each job's class, joined by straight lines in log(duration)."""
    uniform = rng.random(chosen.size)
    made = np.empty(chosen.size)
    for number, (_, each) in enumerate(sizes):
        mine = chosen == number
        logs = np.interp(uniform[mine], model.levels, np.log(each.durations_s))
        made[mine] = np.exp(logs)
    made = np.minimum(made, params.max_s)
    if params.exact:
        return np.maximum(made, _LEAST_DURATION_S)
    return np.maximum(np.rint(made), 1.0)


def _submits_s(rng: np.random.Generator, count: int, span_s: float, model: TraceModel) -> Floats:
    """Sorted; the first is 0 and the last the span."""
    arrivals = model.arrivals
    gaps = np.interp(_uniform(rng, count - 1, arrivals), model.levels, arrivals.gaps)
    total = gaps.sum()
    if total <= 0:  # by chance all drawn at once: spread them evenly
        gaps, total = np.ones(count - 1), float(count - 1)
    done = np.concatenate([[0.0], np.cumsum(gaps / total)])
    rates = weekly(arrivals)
    low, high = expected(np.array([arrivals.starts_s, arrivals.starts_s + span_s]), rates)
    submits_s = times(low + done * (high - low), rates) - arrivals.starts_s
    submits_s[0], submits_s[-1] = 0.0, span_s
    return np.asarray(np.clip(submits_s, 0.0, span_s))


def _uniform(rng: np.random.Generator, count: int, arrivals: ArrivalModel) -> Floats:
    """Uniform numbers, each with the fitted rank correlation to the next.

    They are those of a normal chain: its coefficient follows from the rank correlation.
    """
    if not arrivals.correlation:
        return rng.random(count)
    slope = 2.0 * np.sin(np.pi * arrivals.correlation / 6.0)
    noise = rng.standard_normal(count)
    noise[1:] *= np.sqrt(1.0 - slope**2)
    chain, last = [], 0.0
    for fresh in noise.tolist():
        last = slope * last + fresh
        chain.append(last)
    return np.array(list(map(NormalDist().cdf, chain)))


def _check(params: FitParams, arguments: Mapping[str, float]) -> None:
    if not params.file:
        raise OptionError(f"{KIND}: file is missing: write {KIND}:FILE.json, see `rota trace fit`")
    for key, bound in {"jobs": 2, "gpus": 1, "seed": 0}.items():
        if not bound <= arguments[key] < INF:
            raise OptionError(
                f"{KIND}: {key}={arguments[key]:g} is out of range: give {bound} or more"
            )
    for key, value in {"load": arguments["load"], "max_s": params.max_s}.items():
        if not value > 0 or (key == "load" and value == INF):
            raise OptionError(f"{KIND}: {key}={value:g} is out of range: give more than 0")
