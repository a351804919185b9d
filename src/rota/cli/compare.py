"""`rota compare`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rota.cli.options import (
    DEBUG,
    FORCE,
    OUTPUT_DIR,
    POLICY_HELP,
    config_values,
    names_of,
    run_options,
)
from rota.cli.progress import Bar
from rota.cli.show import table
from rota.core.registry import POLICIES

if TYPE_CHECKING:
    from rota.experiments.run import Progress


@click.command(
    epilog="Results: a folder per policy (as of `rota simulate`), compare.json, report.html and a "
    "picture."
)
@click.argument("trace")
@click.option(
    "--policy", "policies", metavar="P", multiple=True, required=True,
    help=f"{POLICY_HELP} Give several; the first is the baseline.",
    shell_complete=names_of(POLICIES),
)  # fmt: skip
@run_options
@click.option(
    "--repeat", metavar="N", type=click.IntRange(min=1), default=1, show_default=True,
    help="Seeds per policy; with several the ratio gets an interval.",
)  # fmt: skip
@click.option(
    "--jobs", "workers", metavar="N", type=click.IntRange(min=1), default=1, show_default=True,
    help="Runs at the same time, in processes of their own.",
)  # fmt: skip
@OUTPUT_DIR
@FORCE
@DEBUG
def compare(
    folder: Path,
    policies: tuple[str, ...],
    *,
    repeat: int,
    workers: int,
    force: bool,
    **values: Any,
) -> None:
    """Run several policies on the jobs of TRACE and put them side by side.

    \b
    Examples:
      rota compare jobs.csv --cluster 16x8 --policy fifo --policy las --policy srtf -o report
      rota compare jobs.csv --cluster 16x8 --policy srtf --policy las --estimate-error cv=1 \\
          --repeat 5 --jobs 2 -o report
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.experiments.compare import compare as run
    from rota.experiments.compare import own_files
    from rota.experiments.config import RunConfig
    from rota.experiments.folder import OutputFolder
    from rota.experiments.report import HEADINGS, cells

    if values["cluster"] is None:
        raise click.UsageError("Missing option '--cluster'.", click.get_current_context())
    config = RunConfig(policy=policies[0], **config_values(values))
    with (
        OutputFolder(folder, force=force, own=own_files(folder)) as output,
        Bar("comparing") as bar,
    ):

        def told(label: str, number: int, total: int) -> "Progress":
            return bar.retitle(f"{number + 1}/{total} {label}")

        rows = run(
            config,
            policies,
            output.path,
            repeat=repeat,
            workers=workers,
            command=["rota", *sys.argv[1:]],
            told=told,
        )
    table(HEADINGS, [cells(row) for row in rows], numbers=True)
    click.echo(f"report: {folder / 'report.html'}", err=True)
