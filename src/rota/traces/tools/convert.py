"""An imported trace in the form that the name of the output asks for."""

from pathlib import Path

from rota.core.errors import OutputError
from rota.traces.imported import Imported


def convert(
    imported: Imported, output: Path, *, source: str = "", force: bool = False
) -> list[str]:
    """Write `.csv`, `.swf` or (without an ending) a folder; returns what the form cannot hold.

    Raises:
        OutputError: The ending is unknown, the output is there, or it cannot be written.
    """
    suffix = output.suffix.lower()
    if suffix == ".csv":
        from rota.traces.write import write_workload

        write_workload(imported.workload, output, force=force)
        return []
    if suffix == ".swf":
        from rota.traces.formats.swf_write import write_swf

        return write_swf(imported, output, force=force)
    if suffix:
        raise OutputError(f"{output}: end it with .csv or .swf, or give a folder without an ending")
    from rota.traces.formats.store import save

    save(imported, output, source=source, force=force)
    return []


def count_written(imported: Imported, output: Path) -> int:
    """How many of the jobs the form of the output has room for."""
    if output.suffix.lower() != ".swf":
        return len(imported)
    from rota.traces.formats.swf_write import sized_jobs

    return int(sized_jobs(imported)[0].height)
