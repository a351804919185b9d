"""Reading a workload in any registered format, named or recognised."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from rota.core.errors import OptionError, TraceError
from rota.core.jobs import JobSpec
from rota.core.registry import FORMATS, load, names, split
from rota.core.workload import Quality, Workload
from rota.traces.format import Format
from rota.traces.imported import Imported
from rota.traces.schema import DEPENDENCIES
from rota.traces.sniff import CERTAIN, PATTERNS, Head, first_look
from rota.traces.sources import exists, is_folder
from rota.traces.table import separated

_SURE = 0.5


def read_workload(
    path: str | Path, format_text: str | None = None, *, limit: int | None = None
) -> Workload:
    """The jobs of a file, in its order (formats with dates: in the order of submission).

    Args:
        path: The file.
        format_text: `name` or `name:key=value,...`; None to recognise the format by the file.
            Every format knows the option `limit`.
        limit: Keep only the first jobs.

    Raises:
        TraceError: The file cannot be read as asked; the message names the place and the remedy.
        OptionError: The format or one of its options is unknown or has a bad value.
    """
    path = Path(path)
    format_, options, limits = _asked(path, format_text, limit)
    with _no_collections():
        workload = format_.read(path, options)
    return _first(workload, limits)


def read_trace(
    path: str | Path, format_text: str | None = None, *, limit: int | None = None
) -> Imported:
    """Everything that a trace tells: jobs, the observed schedule, events, machines.

    Parameters and errors are those of `read_workload`. Of a format that knows only jobs the rest is
    empty.
    """
    path = Path(path)
    format_, options, limits = _asked(path, format_text, limit)
    with _no_collections():
        imported = format_.load(path, options)
    return imported.first(_least(limits)) if limits else imported


def files_of(path: str | Path, format_text: str | None = None) -> list[Path]:
    """The files that reading a trace reads; those that the options of the format name are not here.

    The first is the file itself (or the member of an archive), unless the path is a folder. Empty:
    there is nothing. What is no trace is a file all the same.
    """
    path = Path(path)
    own = [path] if exists(path) else []
    if not own and not is_folder(path):
        return []
    try:
        format_, options, _ = _asked(path, format_text, None)
        others = format_.companions(path, options)
    except (TraceError, OptionError):
        return own  # reading it will say what is wrong
    return own + [other for other in others if exists(other)]


def _asked(
    path: Path, format_text: str | None, limit: int | None
) -> tuple[Format, dict[str, str], list[int]]:
    name, options = split(format_text or "")
    limits = [] if limit is None else [limit]
    if "limit" in options:
        limits.append(_whole(options.pop("limit")))
    return load_format(name) if name else recognise(path), options, limits


def recognise(path: Path) -> Format:
    """The format that claims the file most surely; only this one is imported if it is certain."""
    head = first_look(path)
    known = names(FORMATS)
    claims = {name: PATTERNS[name](head) for name in known if name in PATTERNS}
    best = max(claims.values(), default=0.0)
    if best < CERTAIN:  # a format of another package may be surer
        others = [name for name in known if name not in PATTERNS]
        claims |= {name: load_format(name).recognises(head) for name in others}
        best = max(claims.values(), default=0.0)
    winners = [name for name, claim in claims.items() if claim == best]
    if best < _SURE and is_folder(path):
        raise TraceError(f"{path}: is a folder: name a file in it")
    if best < _SURE and len(head.columns) == 1 and separated(head.columns[0]):
        raise TraceError(f"{path}: line 1: {separated(head.columns[0])}, or name its --format")
    if best < _SURE:
        raise TraceError(
            f"{path}: its format is not recognised (it starts with {_start(head)}): "
            f"name it with --format, known: {', '.join(known)}"
        )
    if len(winners) > 1:
        raise TraceError(
            f"{path}: could be of format {' or '.join(winners)}: name one with --format"
        )
    return load_format(winners[0])


@contextmanager
def _no_collections() -> Iterator[None]:
    """Pause the cyclic collector: a reader makes many objects and no cycles (it halves the CPU)."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def load_format(name: str) -> Format:
    """A registered format; an OptionError says what one of another package lacks."""
    try:
        found: Any = load(FORMATS, name)
    except TypeError as error:  # an abstract method is missing
        raise OptionError(
            f"format {name!r}: {error}: define what rota.traces.format.Format asks for"
        ) from error
    if not isinstance(found, Format):
        raise OptionError(
            f"format {name!r}: the entry point names {found!r}, which is no instance of Format: "
            "derive a class from rota.traces.format.Format and name an instance of it"
        )
    missing = [member for member in ("name", "description") if not hasattr(found, member)]
    if missing:
        raise OptionError(
            f"format {name!r}: {type(found).__name__} lacks {' and '.join(missing)}: every "
            "rota.traces.format.Format has these, and the methods recognises and read"
        )
    return found


def _start(head: Head) -> str:
    if head.columns:
        return "the columns " + ", ".join(head.columns[:12])
    return repr(head.text.strip()[:40])


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise OptionError(
            f"limit={text} is not a whole number: give how many jobs to keep"
        ) from error


def _least(limits: list[int]) -> int:
    limit = min(limits)
    if limit < 1:
        raise OptionError(f"limit={limit} keeps no job: give 1 or more")
    return limit


def _first(workload: Workload, limits: list[int]) -> Workload:
    if not limits:
        return workload
    limit = _least(limits)
    if limit >= len(workload):
        return workload
    old = workload.quality
    dropped = {**old.dropped, "beyond the limit": len(workload) - limit}
    quality = Quality(old.rows, limit, dropped, dict(old.repaired))
    specs = _without_lost_dependencies(workload.specs[:limit], quality)
    return workload.like(specs, workload.behaviours[:limit], quality=quality)


def _without_lost_dependencies(specs: Sequence[JobSpec], quality: Quality) -> list[JobSpec]:
    """Without dependencies on jobs that were cut off."""
    known = {spec.id for spec in specs}
    kept = []
    for spec in specs:
        if known.issuperset(spec.dependencies):
            kept.append(spec)
            continue
        others = {
            name: tuple(other for other in getattr(spec, name) if other in known)
            for name in DEPENDENCIES
        }
        quality.repair("dependency on a job beyond the limit removed")
        kept.append(msgspec.structs.replace(spec, **others))
    return kept
