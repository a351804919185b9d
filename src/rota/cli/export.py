"""`rota export`."""

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rota.cli.client import connect, server_options
from rota.cli.options import FORCE, OUTPUT_DIR
from rota.cli.show import warn_about

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.daemon.export import Export

SACCT = "sacct.txt"
URLS = ("http://", "https://")
STATE = click.option(
    "--state", metavar="DIR", type=click.Path(path_type=Path),
    help="State folder of a stopped daemon, instead of asking a running one.",
)  # fmt: skip


@click.command(
    epilog="Results: events.parquet, jobs.csv and summary.json as of a simulation, workload.csv "
    "(the jobs with their observed durations), cluster.yaml if NxM does not say it all, "
    "manifest.json."
)
@OUTPUT_DIR
@FORCE
@STATE
@click.option(
    "--sacct", is_flag=True,
    help="Write sacct.txt, too: what `sacct --duplicates --parsable2` would print of these jobs.",
)  # fmt: skip
@server_options
def export(
    output: Path,
    state: Path | None,
    server: str | None,
    token_file: str | None,
    *,
    force: bool,
    sacct: bool,
) -> None:
    """Export a daemon's history to a folder, in the form of a simulation.

    It takes the role operator.

    \b
    Examples:
      rota export -o live
      rota calibrate live -o calibrated
      rota simulate live/workload.csv --cluster 4x4 --policy srtf -o what-if
      rota export --sacct -o live
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.daemon.export import FILES, export_stored, write_export
    from rota.study.folder import OutputFolder

    with OutputFolder(output, force=force, own=[*FILES, SACCT]) as folder:
        found = export_stored(state) if state is not None else download(server, token_file)
        notes = write_export(found, folder.path)
        if sacct:
            notes += _write_accounting(folder.path)
    click.echo(f"{output}: {len(found.made.jobs):,} jobs, {found.log.height:,} rows")
    warn_about(notes)


def _write_accounting(folder: Path) -> list[str]:
    """The same jobs as Slurm's accounting; what that cannot hold."""
    from rota.traces.formats.slurm.write_sacct import write_sacct
    from rota.traces.read import read_trace

    lost = write_sacct(read_trace(folder, "rota-log"), folder / SACCT)
    return [f"{SACCT} does not hold {text}" for text in lost]


def download(server: str | None, token_file: str | None = None) -> "Export":
    """From a daemon that runs."""
    from rota.daemon.export import Export

    with connect(server, token_file) as rota:
        return Export.from_parquet(rota.export(), rota.place.server)


@contextmanager
def run_folder(run: str) -> "Iterator[Path]":
    """The run folder that a user means: a folder, or what is exported from a URL or a store."""
    from tempfile import TemporaryDirectory

    from rota.daemon.export import EVENTS, STORE, export_stored, history_notes, write_export

    is_url = run.startswith(URLS)
    if not is_url and ((Path(run) / EVENTS).exists() or not (Path(run) / STORE).exists()):
        yield Path(run)
        return
    with TemporaryDirectory(prefix="rota-") as place:
        found = download(run) if is_url else export_stored(Path(run))
        write_export(found, Path(place))
        warn_about(history_notes(found.made))
        yield Path(place)
