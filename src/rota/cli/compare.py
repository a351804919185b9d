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
    figure_formats,
    names_of,
    run_options,
)
from rota.cli.progress import ProgressBar
from rota.cli.show import IDLE, table, tell, tell_assumptions, tell_notes
from rota.core.registry import POLICIES

if TYPE_CHECKING:
    from rota.study.compare_file import PolicyComparison
    from rota.study.config import RunConfig

SPARE = (
    "completed", "knows", "p99 JCT", "makespan", "preemptions", "median JCT", "mean wait",
    "GPU utilisation",
)  # fmt: skip
SMALL_BYTES = 200_000  # of all traces of a comparison: not worth other processes
JOB_BYTES = 40  # about what a line of a trace has


@click.command(
    epilog="Results: a folder per run (as of `rota simulate`), compare.json with every number, "
    "report.html, and figures/ with --figures."
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
    help="Number of seeds; every policy runs with each of them.",
)  # fmt: skip
@click.option(
    "--windows", metavar="N", type=click.IntRange(min=1), default=1, show_default=True,
    help="Cut TRACE into N consecutive parts with equal numbers of jobs; each is run on its own, "
    "from an empty cluster.",
)  # fmt: skip
@click.option(
    "--jobs", metavar="N", type=click.IntRange(min=1),
    help="Parallel runs, each in its own process; by default one per core.",
)  # fmt: skip
@click.option(
    "--figures", metavar="F,...", default="none", show_default=True, callback=figure_formats,
    help="Also write each figure of the page to files: svg, png, pdf.",
)  # fmt: skip
@click.option("--full", is_flag=True, help="Print all measures with their intervals.")
@OUTPUT_DIR
@FORCE
@DEBUG
def compare(
    output: Path,
    policy: tuple[str, ...],
    *,
    repeat: int,
    windows: int,
    jobs: int | None,
    figures: tuple[str, ...],
    force: bool,
    full: bool,
    **values: Any,
) -> None:
    """Run several policies on the jobs of TRACE and put them side by side.

    The ratio is the mean JCT relative to the first policy, with a 95 % interval in brackets; over
    several runs it is the typical (geometric mean) of the ratios run by run. A star
    says that the interval excludes 1: below 1 the policy is better, above 1 worse. Without a star
    nothing is proven.

    One run of one trace says little about the next, so nobody wins by it. Repeat it: with --windows
    on other parts of the trace, with --repeat under other seeds. Seeds matter where something is
    random: failures (--mtbf), wrong estimates (--estimate-error), or a workload that is drawn anew
    for every seed, generate:KIND:jobs=N,load=L as TRACE (see `rota trace generate --help`). In
    every repetition all policies meet the same jobs, failures and errors.

    \b
    Examples:
      rota compare jobs.csv --cluster 16x8 --policy fifo --policy las -o report
      rota compare jobs.csv --cluster 16x8 --policy fifo --policy las \\
          --windows 8 -o report
      rota compare generate:gavel-like:jobs=500,load=1 --cluster 4x8 \\
          --policy fifo-skip --policy las --repeat 10 --full -o report
      rota compare jobs.csv --cluster 16x8 --policy srtf --policy las \\
          --repeat 5 --estimate-error cv=1 -o report
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.report.write import draw_run, figure_files, write_report
    from rota.study.compare import Pictures, own_files
    from rota.study.compare import compare as run
    from rota.study.config import RunConfig
    from rota.study.folder import OutputFolder

    if values["cluster"] is None:
        raise click.UsageError("Missing option '--cluster'.", click.get_current_context())
    config = RunConfig(policy=policy[0], **values)
    workers = jobs or _workers(config, len(policy) * repeat * windows)
    bar = ProgressBar("comparing")
    pictures = Pictures(draw_run)

    own = [*own_files(output), *figure_files(output)]
    with OutputFolder(output, force=force, own=own) as folder, bar:
        found = run(
            config,
            policy,
            folder.path,
            repeat=repeat,
            windows=windows,
            workers=workers,
            command=["rota", *sys.argv[1:]],
            told=bar,
            pictures=pictures,
        )
        bar.retitle("writing the report")
        write_report(
            folder.path,
            formats=figures,
            told=lambda _, done, total: bar(done, total),
            comparison=found,
            pictures=pictures.of,
            target=output,
        )
    for message in dict.fromkeys(
        f"{one.policy}: {text}" for one in found.runs for text in one.warnings
    ):
        tell(f"warning: {message}")
    _show(found, full=full)
    click.echo(f"report: {output / 'report.html'}", err=True)


def _workers(config: "RunConfig", runs: int) -> int:
    """All cores, or this process alone if the others would not be ready before it is done."""
    from rota.study.pool import cores
    from rota.study.workloads import amount_of, is_generated

    try:
        if is_generated(config.trace):
            size = amount_of(config.trace) * JOB_BYTES
        else:
            size = Path(config.trace).stat().st_size
    except OSError:
        return 1  # reading it will say what is wrong
    return 1 if size * runs < SMALL_BYTES else min(cores(), runs)


def _about_ratio(found: "PolicyComparison") -> str:
    stars = any(one.verdict for row in found.rows for one in row.measures.values())
    text = f"ratio: mean JCT relative to {found.baseline}, {found.method}"
    return f"{text}; *: it excludes 1" if stars else text


def _show(found: "PolicyComparison", *, full: bool) -> None:
    from rota.study.notes import NOBODY_WAITED
    from rota.study.table import FULL_HEADINGS, HEADINGS, cells, full_cells

    rows = [cells(row) for row in found.rows]
    if any(note.startswith(NOBODY_WAITED) for note in found.notes):
        rows = [(*row[:-1], IDLE) for row in rows]
    gone = table(HEADINGS, rows, numbers=True, spare=SPARE)
    if full:
        table(FULL_HEADINGS, full_cells(found))
    if gone:
        tell(f"(too narrow for: {', '.join(gone)}; they are in the report)")
    if len(found.rows) > 1:
        tell(_about_ratio(found))
    tell_notes(found.notes)
    tell_assumptions(found.assumptions)
