"""`rota compare`."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from rota.cli.options import DEBUG, FORCE, OUTPUT_DIR, POLICY_HELP, names_of, run_options
from rota.cli.progress import Bar
from rota.cli.show import table, warn_about
from rota.core.registry import POLICIES

SPARE = ("completed", "knows", "p99", "makespan", "preemptions", "p50", "mean wait")


@click.command(
    epilog="Results: a folder per policy (as of `rota simulate`), compare.json, report.html and a "
    "picture."
)
@click.argument("trace")
@click.option(
    "--policy", metavar="P", multiple=True, required=True,
    help=f"{POLICY_HELP} Give several; the first is the baseline.",
    shell_complete=names_of(POLICIES),
)  # fmt: skip
@run_options
@click.option(
    "--repeat", metavar="N", type=click.IntRange(min=1), default=1, show_default=True,
    help="Seeds per policy; with several the ratio gets an interval.",
)  # fmt: skip
@click.option(
    "--jobs", metavar="N", type=click.IntRange(min=1), default=1, show_default=True,
    help="Runs at the same time, in processes of their own.",
)  # fmt: skip
@OUTPUT_DIR
@FORCE
@DEBUG
def compare(
    output: Path, policy: tuple[str, ...], *, repeat: int, jobs: int, force: bool, **values: Any
) -> None:
    """Run several policies on the jobs of TRACE and put them side by side.

    \b
    Examples:
      rota compare jobs.csv --cluster 16x8 --policy fifo --policy las --policy srtf -o report
      rota compare jobs.csv --cluster 16x8 --policy srtf --policy las --repeat 5 -o report \\
          --estimate-error cv=1
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.experiments.compare import compare as run
    from rota.experiments.compare import own_files
    from rota.experiments.config import RunConfig
    from rota.experiments.folder import OutputFolder
    from rota.experiments.report import HEADINGS, cells

    if values["cluster"] is None:
        raise click.UsageError("Missing option '--cluster'.", click.get_current_context())
    config = RunConfig(policy=policy[0], **values)
    bar = Bar("comparing")
    with OutputFolder(output, force=force, own=own_files(output)) as folder, bar:
        rows = run(
            config,
            policy,
            folder.path,
            repeat=repeat,
            workers=jobs,
            command=["rota", *sys.argv[1:]],
            told=lambda label, number, total: bar.retitle(f"{number + 1}/{total} {label}"),
        )
    warn_about(_warnings(output))
    gone = table(HEADINGS, [cells(row) for row in rows], numbers=True, spare=SPARE)
    if gone:
        click.echo(f"(too narrow for: {', '.join(gone)}; they are in the report)", err=True)
    click.echo(f"report: {output / 'report.html'}", err=True)


def _warnings(output: Path) -> list[str]:
    """What the runs had to say, with the policy that it is about."""
    data = json.loads((output / "compare.json").read_text(encoding="utf-8"))
    return [f"{run['policy']}: {text}" for run in data["runs"] for text in run["warnings"]]
