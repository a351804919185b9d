"""The jobs of a run: a file or a generator that the seed of the run feeds, whole or a window.

*Generated.* `generate:KIND:jobs=300,load=0.9,...` as a trace draws the workload from the seed of
the run, so that every seed meets other jobs. Options are those of `rota trace generate`; `gpus` is
the cluster's number unless it is given. With `seed=N` the workload is the same for all seeds.
`generate:fit:FILE,jobs=300,...` draws from the model of a trace (see `rota trace fit`).

*Windows.* `I/N` keeps the I-th of N consecutive parts of the trace. Jobs are taken in the order of
submission; the parts have equal numbers of jobs (the first ones one more if it does not work out).
A part is a workload of its own: its first job is submitted at 0 (deadlines move along), on an empty
cluster, and nobody waits for a job of another part.
"""

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np

from rota.core.errors import OptionError, TraceError
from rota.core.events import INF
from rota.core.jobs import JobSpec, Request
from rota.core.registry import parse_params
from rota.core.sums import ordered_sum
from rota.core.workload import Failures, Quality, Workload, at, fields
from rota.study.config import RunConfig
from rota.traces.cluster import parse_cluster
from rota.traces.read import read_workload

GENERATE = "generate:"
MOST_S = 1e12  # some 30,000 years
MOST_GPUS = 1_000_000
_WINDOW = re.compile(r"(\d+)/(\d+)")
_OTHER_PART = "dependency on a job of another window removed"


class _Amounts(msgspec.Struct, frozen=True):
    """How much to generate."""

    jobs: int = 1_000
    load: float = 0.9
    gpus: int = 0
    seed: int | None = None


def is_generated(trace: str) -> bool:
    """Whether a trace is the description of a generator."""
    return trace.startswith(GENERATE)


def generators() -> tuple[str, ...]:
    """What may follow `GENERATE`: kinds of `rota trace generate`."""
    from rota.traces.synth.generate import KINDS
    from rota.traces.synth.sampling import KIND

    return (*KINDS, KIND)


def kind_and_options(trace: str) -> tuple[str, dict[str, str]]:
    """What a generated trace is drawn from: the kind of generator, and its options."""
    from rota.traces.synth.sampling import split_kind

    return split_kind(trace.removeprefix(GENERATE))


def is_drawn(trace: str) -> bool:
    """Whether every seed of a run draws jobs of its own."""
    if not is_generated(trace):
        return False
    return _amounts(trace, kind_and_options(trace)[1]).seed is None


def load_workload(config: RunConfig) -> Workload:
    """The jobs that a run is about."""
    whole = _whole(config)
    return whole if config.window is None else cut(whole, config.window)


def _whole(config: RunConfig) -> Workload:
    if is_generated(config.trace):
        if config.format is not None:
            raise OptionError(f"trace {config.trace!r} is generated: leave --format out")
        whole = _generated(config.trace, config.cluster, config.seed)
        return _first(whole, config.limit)
    whole = read_workload(config.trace, config.format, limit=config.limit)
    _refuse_huge(config.trace, whole)
    return whole


def _refuse_huge(trace: str, workload: Workload) -> None:
    """Beyond these numbers sums of seconds and of GPUs are not exact any more."""
    specs = workload.specs
    requests = fields(specs, "request")
    gpus = {id(request): _gpus_of(request) for request in requests}
    columns: tuple[tuple[str, Sequence[float], float, str], ...] = (
        ("submit_s", fields(specs, "submit_s"), MOST_S, "are these milliseconds?"),
        ("duration_s", fields(workload.behaviours, "work"), MOST_S, "are these milliseconds?"),
        ("num_gpus", [gpus[id(request)] for request in requests], MOST_GPUS, "correct it"),
    )
    for name, found, most, remedy in columns:
        if max(found, default=0) > most:
            number = next(i for i, value in enumerate(found) if value > most)
            raise TraceError(
                f"{trace}: job {specs[number].id!r}: {name} is {found[number]:g}, more than "
                f"{most:,.0f}: {remedy}"
            )


def _gpus_of(request: Request) -> float:
    return ordered_sum(group.count * group.gpus for group in request.groups)


def load_again(config: RunConfig) -> Workload:
    """The same, kept for the next run; give a config that differs in nothing but the jobs.

    Of a trace that is cut the whole is kept, too: the next window is taken from it.
    """
    stamps = _stamps(config.trace)
    if config.window is None:
        return _kept(config, stamps)
    return _kept_window(config, stamps)


@lru_cache(maxsize=1)
def _kept(config: RunConfig, stamps: tuple[object, ...]) -> Workload:
    del stamps  # they only tell files apart that have the same name
    return _whole(config)


@lru_cache(maxsize=1)
def _kept_window(config: RunConfig, stamps: tuple[object, ...]) -> Workload:
    assert config.window is not None  # noqa: S101 - see `load_again`
    return cut(_kept(msgspec.structs.replace(config, window=None), stamps), config.window)


def draw_ahead(configs: Iterable[RunConfig]) -> None:
    """Draw the jobs of these runs before processes are forked for them, if they are the same.

    What was drawn is shared with them. A file is left to them: reading one starts the threads of
    polars, and then they could not be forked any more.
    """
    wanted = {jobs_of(config) for config in configs}
    if len({msgspec.structs.replace(jobs, window=None) for jobs in wanted}) == 1:
        jobs = wanted.pop()
        if is_generated(jobs.trace):
            _kept(msgspec.structs.replace(jobs, window=None), _stamps(jobs.trace))


def _stamps(trace: str) -> tuple[object, ...]:
    """Where the files that a trace names are, and when they were last written."""
    stamps: list[tuple[object, ...]] = []
    for name in sorted({trace, *re.split("[:,=]", trace)} - {""}):
        with suppress(OSError):  # not a file
            path = Path(name).resolve(strict=True)
            files = [(file, file.stat()) for file in (path, *sorted(path.glob("*")))]
            stamps += [(file, stat.st_mtime_ns, stat.st_size) for file, stat in files]
    return tuple(stamps)


def jobs_of(config: RunConfig) -> RunConfig:
    """A config that tells the workload, and nothing else: equal for runs on the same jobs."""
    return RunConfig(
        trace=config.trace,
        cluster=config.cluster if is_generated(config.trace) else "",
        policy="",
        format=config.format,
        limit=config.limit,
        seed=config.seed if is_drawn(config.trace) else 0,
        window=config.window,
    )


def draw_seed(config: RunConfig) -> int:
    """The seed of failures, wrong estimates and random placements: windows do not share them."""
    which = 0 if config.window is None else parse_window(config.window)[0]
    return config.seed + (which << 32)


# --- generated -----------------------------------------------------------------------------------


def _generated(trace: str, cluster: str, seed: int) -> Workload:
    from rota.traces.synth.generate import generate

    kind, options = kind_and_options(trace)
    if kind not in generators():
        raise OptionError(
            f"trace {trace!r}: there is no generator {kind!r}: "
            f"write generate:KIND:jobs=N,load=L, KIND is one of {', '.join(generators())}"
        )
    amounts = _amounts(trace, options)
    gpus = amounts.gpus or int(parse_cluster(cluster)[0].gpus)
    drawn = seed if amounts.seed is None else amounts.seed
    return generate(
        kind, jobs=amounts.jobs, gpus=gpus, load=amounts.load, seed=drawn, options=options
    )


def amount_of(trace: str) -> int:
    """How many jobs a generator is asked for."""
    return _amounts(trace, kind_and_options(trace)[1]).jobs


def _amounts(trace: str, options: dict[str, str]) -> _Amounts:
    """Taken out of the options."""
    given = {key: options.pop(key) for key in _Amounts.__struct_fields__ if key in options}
    amounts: _Amounts = parse_params(f"trace {trace!r}", _Amounts, given)
    return amounts


def _first(workload: Workload, limit: int | None) -> Workload:
    if limit is None or limit >= len(workload):
        return workload
    specs = workload.specs[:limit]
    return Workload(specs, workload.behaviours[:limit], name=workload.name)


# --- windows -------------------------------------------------------------------------------------


def parse_window(text: str) -> tuple[int, int]:
    """(which, of how many) from `2/5`."""
    match = _WINDOW.fullmatch(text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise OptionError(f"window {text!r} is not understood: write I/N, e.g. 2/5: I from 1 to N")
    return int(match[1]), int(match[2])


def cut(workload: Workload, window: str) -> Workload:
    """One window of a workload."""
    which, count = parse_window(window)
    if count > len(workload):
        raise OptionError(
            f"window {window}: the trace has {len(workload):,} jobs: ask for fewer windows"
        )
    submits_s = fields(workload.specs, "submit_s")
    order = np.argsort(submits_s, kind="stable")
    inside = np.sort(np.array_split(order, count)[which - 1]).tolist()
    old = workload.quality
    quality = Quality(old.rows, len(inside), dict(old.dropped), dict(old.repaired))
    specs = _shifted(at(workload.specs, inside), quality)
    behaviours = at(workload.behaviours, inside)
    part = workload.like(specs, behaviours, name=f"{workload.name} {window}", quality=quality)
    began_s = min(submits_s[number] for number in inside)
    part.origin_s += began_s
    part.failures = _failures_from(workload.failures, began_s)
    return part


def _failures_from(failures: Failures, began_s: float) -> Failures:
    """What happened to nodes from a time on, which is second 0 then; who was down still is."""
    down = {name: up for at_s, name, up in failures if at_s <= began_s}
    later = [(at_s - began_s, name, up) for at_s, name, up in failures if at_s > began_s]
    return [*((0.0, name, up) for name, up in down.items() if not up), *later]


def _shifted(specs: Sequence[JobSpec], quality: Quality) -> list[JobSpec]:
    first_s = min(spec.submit_s for spec in specs)
    known = {spec.id for spec in specs}
    shifted = []
    for spec in specs:
        others = tuple(other for other in spec.depends_on if other in known)
        if others != spec.depends_on:
            quality.repaired[_OTHER_PART] = quality.repaired.get(_OTHER_PART, 0) + 1
        shifted.append(
            msgspec.structs.replace(
                spec,
                submit_s=spec.submit_s - first_s,
                deadline_s=spec.deadline_s - first_s if spec.deadline_s < INF else INF,
                depends_on=others,
            )
        )
    return shifted
