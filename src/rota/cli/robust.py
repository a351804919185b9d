"""`rota robust`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rota.cli.options import DEBUG, FORCE, OUTPUT_DIR, POLICY_HELP, names_of, run_options
from rota.cli.progress import ProgressBar
from rota.cli.show import table, tell_assumptions, tell_notes, warn, warn_about
from rota.core.errors import install
from rota.core.registry import POLICIES

if TYPE_CHECKING:
    from rota.study.robustness import CurvePoint, Curves

F = TypeVar("F", bound=Callable[..., Any])

LEVELS = {
    "estimate_error": "error of estimates",
    "mtbf": "mean hours between failures of a node",
    "costs": "costs of starting, stopping and moving",
}
"""What can be varied, in words."""
SMALL_BYTES = 200_000  # of the traces of all runs: not worth other processes


def _other_options(command: F) -> F:
    """Those of a run, without the ones that take several levels here."""
    run_options(command)
    kept = [option for option in command.__click_params__ if option.name not in LEVELS]  # type: ignore[attr-defined]  # click's
    command.__click_params__ = kept  # type: ignore[attr-defined]  # click's
    return command


@click.command(
    epilog="Results: curve.csv (a row per run), robust.json (a row per policy and level) and "
    "curve.svg."
)
@click.argument("trace")
@click.option(
    "--policy",
    metavar="P",
    multiple=True,
    required=True,
    help=f"{POLICY_HELP} Give several.",
    shell_complete=names_of(POLICIES),
)
@click.option(
    "--estimate-error",
    metavar="cv=E,E,...",
    help="Levels of wrong estimates: cv=0,0.5,1 (or bias=...). At cv=0 policies that use "
    "estimates are told the truth.",
)
@click.option(
    "--mtbf",
    metavar="H,H,...",
    help="Levels of mean hours between failures of a node, inf: none. Needs --mttr.",
)
@click.option("--costs", metavar="C,C,...", help="Levels of costs (see `rota costs ls`).")
@_other_options
@click.option(
    "--by",
    metavar="M",
    default="avg_jct_s",
    show_default=True,
    help="The measure that is shown: a number of summary.json, e.g. p99_jct_s.",
)
@click.option(
    "--repeat",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of seeds; every policy and level runs with each.",
)
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(min=1),
    help="Parallel runs, each in its own process; by default one per core.",
)
@OUTPUT_DIR
@FORCE
@DEBUG
def robust(
    output: Path,
    policy: tuple[str, ...],
    *,
    by: str,
    repeat: int,
    jobs: int | None,
    force: bool,
    **values: Any,
) -> None:  # fmt: skip
    """Run policies on TRACE at growing levels of errors, failures or costs, and draw curves.

    One of --estimate-error, --mtbf and --costs has several levels; the first is what a policy is
    compared with. With one level it holds for all runs. The interval (95 %) of a ratio needs
    --repeat.

    \b
    Examples:
      rota robust jobs.csv --cluster 16x8 --policy srtf --policy las \\
          --estimate-error cv=0,0.25,0.5,1,2 --repeat 5 -o errors
      rota robust jobs.csv --cluster 16x8 --policy fifo --policy srtf \\
          --mtbf inf,1000,200,50 --mttr 1 --costs suspend -o failures
      rota robust jobs.csv --cluster 16x8 --policy srtf --policy las \\
          --costs zero,suspend,pollux30 -o costs
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.report.study_pages import REPORT, robust_page, write_study_page
    from rota.study.config import RunConfig
    from rota.study.folder import OutputFolder
    from rota.study.robustness import FILES, VARIED, trace_curves, vary

    if values["cluster"] is None:
        raise click.UsageError("Missing option '--cluster'.", click.get_current_context())
    levels = {key: values.pop(key) for key in LEVELS}
    axis, fixed = vary(mttr=values.pop("mttr"), **levels)
    config = RunConfig(policy=policy[0], **values, **fixed)
    bar = ProgressBar("robustness")
    with OutputFolder(output, force=force, own=FILES) as folder, bar:
        workers = jobs or _workers(config.trace, len(policy) * repeat * len(axis.levels))
        curves = trace_curves(
            config, policy, axis, folder.path, by=by, repeat=repeat, workers=workers, told=bar,
            command=["rota", *sys.argv[1:]],
        )  # fmt: skip
        drawn = _draw(curves, folder.path)
        page = robust_page(curves, VARIED[curves.axis.kind], curves.command)
        write_study_page(page, folder.path)
    warn_about(curves.warnings)
    _show(curves)
    if drawn:
        click.echo(f"picture: {output / drawn}", err=True)
    click.echo(f"report: {output / REPORT}", err=True)


def _workers(trace: str, runs: int) -> int | None:
    """1 if other processes would not be ready before this one is done; None: as many as fit."""
    path = Path(trace)
    return 1 if path.is_file() and path.stat().st_size * runs < SMALL_BYTES else None


def _draw(curves: "Curves", folder: Path) -> str:
    """The name of the picture; empty: none can be drawn here."""
    from rota.study.robustness import PICTURE

    try:
        from rota.report.figures import curve_figure, save
    except ImportError as error:
        warn(f"no picture: {error.name} is missing, {install('plot')}")
        return ""
    label, unit = _measure(curves.by)
    axis = LEVELS[curves.axis.kind.replace("-", "_")]
    key, named, _ = curves.axis.levels[0].partition("=")
    if named and ":" not in key:
        axis += f" ({key})"
    save(
        curve_figure(curves.table(), measure=label, unit=unit, axis=axis),
        folder / PICTURE,
    )
    return PICTURE


def _measure(by: str) -> tuple[str, str]:
    from rota.metrics.vocabulary import MEASURES

    return next((measure.label, measure.unit) for measure in MEASURES if measure.key == by)


def _show(curves: "Curves") -> None:
    label, unit = _measure(curves.by)
    click.echo(
        f"{label}, and its ratio to {curves.axis.levels[0]}"
        + (f" ({len(curves.seeds)} seeds)" if len(curves.seeds) > 1 else "")
    )
    rows = [
        [line.policy, line.knowledge, *(_cell(spot, unit, i) for i, spot in enumerate(line.spots))]
        for line in curves.lines
    ]
    table(["policy", "knows", *curves.axis.levels], rows, numbers=True)
    tell_notes(curves.notes)
    tell_assumptions(curves.assumptions)


def _cell(spot: "CurvePoint", unit: str, number: int) -> str:
    if spot.mean is None:
        return "-"
    from rota.metrics.vocabulary import written

    text = written(spot.mean, unit)
    if not number or spot.ratio is None:
        return text
    text += f" x{spot.ratio:.3f}"
    if spot.low is None or spot.high is None:
        return text
    return f"{text} [{spot.low:.3f}, {spot.high:.3f}]"
