"""`rota export`."""

import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rota.cli.client import LONG_PATIENCE_S, connect, server_options
from rota.cli.options import FORCE
from rota.cli.show import warn_about
from rota.core.errors import install
from rota.core.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from rota.daemon.export import Export

SACCT = "sacct.txt"
URLS = ("http://", "https://")
STATE = click.option(
    "--state", metavar="DIR", type=click.Path(path_type=Path),
    help="State folder of a stopped daemon, instead of asking a running one.",
)  # fmt: skip


@click.command(
    epilog="Results of -o: events.parquet, jobs.csv and summary.json as of a simulation, "
    "workload.csv (the jobs with their observed durations), cluster.yaml if NxM does not say it "
    f"all, manifest.json. --perfetto and --otel need extras: {install('perfetto,otel')}."
)
@click.argument("run", metavar="[RUN]", required=False)
@click.option(
    "-o", "--output", metavar="DIR", type=click.Path(path_type=Path),
    help="Folder for the history of a daemon, in the form of a simulation.",
)  # fmt: skip
@FORCE
@STATE
@click.option(
    "--sacct", is_flag=True,
    help="Write sacct.txt, too: what `sacct --duplicates --parsable2` would print of these jobs.",
)  # fmt: skip
@click.option(
    "--perfetto", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
    help="Write a trace for ui.perfetto.dev: nodes as processes, GPUs as tracks, jobs as slices, "
    "preemptions as flows.",
)  # fmt: skip
@click.option(
    "--otel", metavar="URL",
    help="Send OpenTelemetry spans (jobs, what they did, decisions) to a collector, by OTLP over "
    "HTTP.",
)  # fmt: skip
@click.option(
    "--follow", is_flag=True,
    help="With --otel: go on, and send spans of a daemon as its jobs change state, until Ctrl-C.",
)  # fmt: skip
@server_options
def export(
    run: str | None,
    output: Path | None,
    state: Path | None,
    server: str | None,
    token_file: str | None,
    **values: Any,
) -> None:
    """Export a run, or the history of a daemon, for other tools.

    RUN is a folder that `rota simulate` made, the state folder of a stopped daemon, or the URL of
    one; without it, the daemon that you use. Asking a daemon takes the role operator.

    \b
    Examples:
      rota export -o live
      rota calibrate live -o calibrated
      rota simulate live/workload.csv --cluster 4x4 --policy srtf -o what-if
      rota export --sacct -o live
      rota export what-if --perfetto what-if.pftrace
      rota export --otel http://127.0.0.1:4318
      rota export --otel http://127.0.0.1:4318 --follow
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.daemon.export import EVENTS

    perfetto, otel = values["perfetto"], values["otel"]
    if values["follow"]:
        if otel is None or output is not None or perfetto is not None:
            raise click.UsageError("--follow goes with --otel URL, and with nothing else to write")
        if state is not None or (run is not None and not run.startswith(URLS)):
            raise click.UsageError("--follow is about a daemon that runs: leave the folder out")
        _follow(otel, run or server, token_file)
        return
    if output is None and perfetto is None and otel is None:
        raise click.UsageError("nothing to write: give -o DIR, --perfetto FILE or --otel URL")
    if run is not None and state is not None:
        raise click.UsageError(f"RUN ({run}) and --state ({state}) both say what: give one")
    if output is None and (values["sacct"] or values["force"]):
        raise click.UsageError("--sacct and --force are about the folder: give -o DIR, too")
    if run is not None and (Path(run) / EVENTS).is_file():
        if output is not None:
            raise click.UsageError(
                f"{run} is such a folder already: -o DIR is for the history of a daemon"
            )
        _write_traces(_read_log(Path(run)), perfetto, otel)
        return
    found = _history(run, state, server, token_file)
    if output is not None:
        _write_folder(found, output, force=values["force"], sacct=values["sacct"])
    _write_traces((found.log, found.made.epoch_unix), perfetto, otel)


def _follow(otel: str, server: str | None, token_file: str | None) -> None:
    from rota.tracing.live_spans import follow_spans

    def told(sent: int) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r{sent:,} spans", nl=False, err=True)

    with (
        connect(server, token_file, patience_s=LONG_PATIENCE_S) as rota,
        suppress(KeyboardInterrupt),
    ):
        follow_spans(rota.events(after=0, follow=True), otel, told)


def _history(
    run: str | None, state: Path | None, server: str | None, token_file: str | None
) -> "Export":
    from rota.daemon.export import export_stored

    if state is not None:
        return export_stored(state)
    if run is None or run.startswith(URLS):
        return download(run or server, token_file)
    return export_stored(Path(run))


def _write_folder(found: "Export", output: Path, *, force: bool, sacct: bool) -> None:
    from rota.daemon.export import FILES, write_export
    from rota.study.folder import OutputFolder

    with OutputFolder(output, force=force, own=[*FILES, SACCT]) as folder:
        notes = write_export(found, folder.path)
        if sacct:
            notes += _write_accounting(found, folder.path)
    click.echo(
        f"{output}: {counted(len(found.made.jobs), 'job')}, {counted(found.log.height, 'row')}"
    )
    warn_about(notes)


def _read_log(folder: Path) -> "tuple[pl.DataFrame, float | None]":
    """The log of a run, and the wall-clock time of its second 0: simulated runs have none."""
    import msgspec
    import polars as pl

    from rota.core.errors import InputError
    from rota.daemon.export import EVENTS, MANIFEST

    try:
        log = pl.read_parquet(folder / EVENTS, glob=False)
        manifest = folder / MANIFEST
        notes = msgspec.json.decode(manifest.read_bytes()) if manifest.is_file() else {}
    except (OSError, pl.exceptions.PolarsError, msgspec.DecodeError) as error:
        raise InputError(f"{folder}: cannot be read ({error})") from error
    return log, notes.get("epoch_unix")


def _write_traces(
    run: "tuple[pl.DataFrame, float | None]", perfetto: Path | None, otel: str | None
) -> None:
    log, epoch_unix = run
    if perfetto is not None:
        from rota.tracing.perfetto import write_perfetto

        click.echo(f"{perfetto}: {write_perfetto(log, perfetto):,} slices")
    if otel is not None:
        from time import time

        from rota.tracing.spans import send_spans

        if epoch_unix is None:  # as if the run ended now: collectors drop what is old
            epoch_unix = time() - float(log["time_s"][-1])
        click.echo(f"{otel}: {send_spans(log, otel, epoch_unix):,} spans")


def _write_accounting(found: "Export", folder: Path) -> list[str]:
    """The same jobs as Slurm's accounting; what that cannot hold."""
    import polars as pl

    from rota.core.events import INF
    from rota.jobfile.convert import to_spec
    from rota.traces.formats.slurm.write_sacct import write_sacct
    from rota.traces.read import read_trace

    specs = [to_spec(job.file, str(job.number), 0.0, job.user) for job in found.made.jobs]
    limits = {spec.id: spec.limit_s for spec in specs if spec.limit_s < INF}
    imported = read_trace(folder, "rota-log")
    limit = pl.col("job_id").replace_strict(limits, default=None, return_dtype=pl.Float64)
    imported.jobs = imported.jobs.with_columns(estimate_s=limit)
    lost = write_sacct(imported, folder / SACCT)
    return [f"{SACCT} does not hold {text}" for text in lost]


def download(server: str | None, token_file: str | None = None) -> "Export":
    """From a daemon that runs."""
    from rota.daemon.export import Export

    with connect(server, token_file) as rota:
        return Export.from_parquet(rota.export(), rota.place.server)


@contextmanager
def run_folder(
    run: str | None, server: str | None = None, token_file: str | None = None
) -> "Iterator[Path]":
    """The run folder that a user means: a folder, or what is exported from a URL or a store.

    Without any, what the daemon has that the user means.
    """
    from tempfile import TemporaryDirectory

    from rota.daemon.export import EVENTS, STORE, export_stored, history_notes, write_export

    stored = None if run is None or run.startswith(URLS) else Path(run)
    if stored is not None and ((stored / EVENTS).exists() or not (stored / STORE).exists()):
        yield stored
        return
    with TemporaryDirectory(prefix="rota-") as place:
        found = download(run or server, token_file) if stored is None else export_stored(stored)
        write_export(found, Path(place))
        warn_about(history_notes(found.made))
        yield Path(place)
