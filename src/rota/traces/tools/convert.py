"""A trace on disk, in the form that its name asks for, together with what was done to it.

A folder keeps it as `notes` in its `trace.json`. Files of other forms have no room for it: a
file of the same name and `.json` beside them has. Commands that change such a file again read it
first.
"""

from pathlib import Path

import msgspec

from rota.core.errors import OutputError
from rota.traces.formats.store import DESCRIPTION
from rota.traces.imported import Imported
from rota.traces.read import read_trace
from rota.traces.sources import exists, replacing


def convert(
    imported: Imported, output: Path, *, source: str = "", force: bool = False
) -> list[str]:
    """Write `.csv`, `.swf`, `.sacct` or (without an ending) a folder; returns what is lost by it.

    Raises:
        OutputError: The ending is unknown, the output is there, or it cannot be written.
    """
    suffix = output.suffix.lower()
    if suffix == ".csv":
        from rota.traces.write import write_workload

        write_workload(imported.workload, output, force=force)
        return []
    if suffix == ".swf":
        from rota.traces.formats.swf import write_swf

        return write_swf(imported, output, force=force)
    if suffix == ".sacct":
        from rota.traces.formats.slurm.write_sacct import write_sacct

        return write_sacct(imported, output, force=force)
    if suffix:
        raise OutputError(
            f"{output}: end it with .csv, .swf or .sacct, or give a folder without an ending"
        )
    from rota.traces.formats.store import save

    save(imported, output, source=source, force=force)
    return []


def count_written(imported: Imported, output: Path) -> int:
    """How many of the jobs the form of the output has room for."""
    if output.suffix.lower() != ".swf":
        return len(imported)
    from rota.traces.formats.swf import sized_jobs

    return int(sized_jobs(imported)[0].height)


VERSION = 1
_NOT_IN_CSV = {
    "speeds": "GPU type",
    "scaling": "number of GPUs",
    "course": "progress",
    "sensitivity": "CPUs and memory",
}


class Provenance(msgspec.Struct):
    """The content of the file beside a workload."""

    rota_provenance: int
    source: str
    notes: list[str]


def read_known(path: str | Path, format_text: str | None, limit: int | None) -> Imported:
    """`read_trace`, with the notes of the file beside it and one that names what was read."""
    path = Path(path)
    imported = read_trace(path, format_text, limit=limit)
    origin = [path.name, format_text or "", "" if limit is None else f"limit {limit}"]
    imported.notes = [*_told(path), *imported.notes, " ".join(["from", *filter(None, origin)])]
    return imported


def _told(path: Path) -> list[str]:
    try:
        return msgspec.json.decode(_beside(path).read_bytes(), type=Provenance).notes
    except (OSError, msgspec.DecodeError):  # there is none: the usual case
        return []


def write_known(imported: Imported, output: Path, *, source: str, force: bool = False) -> list[str]:
    """`convert`, and the file beside it; returns what the form cannot hold.

    Raises:
        OutputError: As of `convert`, or a csv is asked to hold speeds.
    """
    for column, what in _NOT_IN_CSV.items():
        if output.suffix.lower() == ".csv" and imported.jobs[column].is_not_null().any():
            raise OutputError(
                f"{output}: csv has no room for speeds by {what}: "
                f"give a folder, that is a name without an ending"
            )
    lost = convert(imported, output, source=source, force=force)
    if output.suffix:
        _save(Provenance(VERSION, source, imported.notes), _beside(output))
    return lost


def convert_known(
    imported: Imported, path: str | Path, output: Path, *, source: str, force: bool = False
) -> list[str]:
    """`convert`; what was done to the trace at `path` before is kept, and no other history."""
    path = Path(path)
    origin = _told(path)
    stored = path.name == DESCRIPTION or exists(path / DESCRIPTION)
    if origin or (stored and imported.notes):
        imported.notes = [*origin, *imported.notes]
        return write_known(imported, output, source=source, force=force)
    lost = convert(imported, output, source=source, force=force)
    if output.suffix and _told(output):  # of what was replaced
        _beside(output).unlink(missing_ok=True)
    return lost


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def _save(about: Provenance, path: Path) -> None:
    with replacing(path) as part:
        part.write_bytes(msgspec.json.format(msgspec.json.encode(about), indent=2) + b"\n")
