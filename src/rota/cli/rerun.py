"""`rota rerun`."""

from pathlib import Path

import click

from rota.cli.options import DEBUG
from rota.cli.progress import ProgressBar
from rota.cli.show import warn


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@DEBUG
@click.pass_context
def rerun(ctx: click.Context, folder: Path) -> None:
    """Repeat the run that made DIR and compare the event log and the table of jobs.

    Prints `same`, or what is different (exit code 1). Nothing is written.

    \b
    Example:
      rota rerun out
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.study.rerun import rerun as run

    with ProgressBar(f"again: {folder}") as bar:
        verdict = run(folder, bar)
    for note in verdict.notes:
        warn(note)
    for problem in verdict.problems:
        click.echo(f"different: {problem}")
    if not verdict.same:
        ctx.exit(1)
    click.echo("same: event log and jobs.csv")
