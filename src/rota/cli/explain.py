"""`rota explain` and `rota when`."""

import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rota.cli.client import (
    JOB,
    clean,
    complete_jobs,
    connect,
    job_id,
    moment,
    on_daemon,
    server_options,
    shortened,
    span,
)
from rota.cli.show import FORMAT, emit, table
from rota.core.errors import InputError

if TYPE_CHECKING:
    from rota.daemon.info import Explanation
    from rota.sdk import Client

_URLS = ("http://", "https://")


@click.command()
@click.argument("place", metavar="[DIR|URL]", required=False, shell_complete=complete_jobs)
@click.argument("job", metavar="JOB", required=False, shell_complete=complete_jobs)
@FORMAT
@server_options
def explain(
    place: str | None, job: str | None, output: str, server: str | None, token_file: str | None
) -> None:
    """Tell why a JOB waits or waited, in parts that add up.

    With one argument the daemon is asked; with two, the daemon at a URL, or the folder DIR of a
    simulation.

    \b
    Examples:
      rota explain 17
      rota explain http://cluster:7842 17
      rota explain out 17 -o json
    """  # noqa: D301 - \b keeps click from wrapping the lines
    if place is None:
        raise click.UsageError("Missing argument 'JOB'.")
    asked, source = (place, None) if job is None else (job, place)
    if source is not None and not source.startswith(_URLS):
        found = _of_folder(Path(source), asked)
    else:
        with connect(source or server, token_file) as rota:
            found = rota.explain(job_id(rota, asked))
    print_explanation(found, output)


def _of_folder(folder: Path, job: str) -> Any:
    if not folder.is_dir():
        raise InputError(
            f"{str(folder)!r} is neither a folder nor a URL: name what `rota simulate -o` wrote"
        )
    try:
        module = import_module("rota.experiments.explain")
    except ImportError as error:
        raise InputError(
            "folders of simulations cannot be explained by this version: ask a daemon with "
            "`rota explain JOB`"
        ) from error
    return module.explain_folder(folder, job)


def print_explanation(found: "Explanation", output: str) -> None:
    """A sentence and a table, or everything."""
    import msgspec

    if output != "table":
        emit(msgspec.to_builtins(found), output)
        return
    click.echo(f"job {found.id}: {clean(found.text)}")
    if found.parts:
        total = sum(part.seconds for part in found.parts) or 1.0
        table(
            ["reason", "waited", "share", "what"],
            [
                [clean(part.reason), span(part.seconds), f"{part.seconds / total:.0%}",
                 clean(part.text)]
                for part in found.parts
            ],
        )  # fmt: skip
    click.echo(f"waited in all: {span(found.wait_s)}")
    if found.ahead:
        click.echo(f"served first: {shortened(found.ahead, 10)}")
    if found.preempted_by:
        click.echo(f"preempted by: {shortened(found.preempted_by, 10)}")


@click.command()
@JOB
@click.option("--runs", metavar="N", type=click.IntRange(1, 200), default=20, show_default=True,
              help="Simulations to take.")  # fmt: skip
@FORMAT
@on_daemon
def when(rota: "Client", *, job: str, runs: int, output: str) -> None:
    """Tell when a JOB will start: the daemon simulates its own future.

    \b
    Examples:
      rota when 17
      rota when resnet-50 --runs 100 -o json
    """  # noqa: D301 - \b keeps click from wrapping the lines
    import msgspec

    found = rota.when(job_id(rota, job), runs=runs)
    if output != "table":
        emit(msgspec.to_builtins(found), output)
        return
    click.echo(f"job {found.id} ({found.state}): {clean(found.text)}")
    if not found.runs:  # nothing to foresee
        if found.starts_at is not None:
            click.echo(f"started:   {moment(found.starts_at)}")
        return
    now = time.time()
    for label, at in (
        ("starts", found.starts_at),
        ("earliest", found.earliest_at),
        ("latest", found.latest_at),
    ):
        if at is not None:
            click.echo(f"{label + ':':<11}{moment(at)} (in {span(at - now)})")
    if found.never:
        click.echo(f"in {found.never} of {found.runs} simulations it did not start in time")
    if found.assumptions:
        told = [f"{key}: {value}" for key, value in found.assumptions.items()]
        click.echo(f"assumed:   {shortened(told, 10)}")
