"""`rota sweep`."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

from rota.cli.options import DEBUG
from rota.cli.show import IDLE, emit, table, warn_about
from rota.core.errors import OptionError
from rota.core.words import counted

if TYPE_CHECKING:
    from rich.progress import Progress

    from rota.study.sweep.local import RunExecutor
    from rota.study.sweep.run import Failed, SweepOutcome
    from rota.study.sweep.spec import Spec
    from rota.study.sweep.table import Mean

F = TypeVar("F", bound=Callable[..., Any])

FAILED, INTERRUPTED = 1, 130
SHOWN_RUNS = 200  # of --dry-run
NUMBERS = (
    "avg_jct_s", "p95_jct_s", "avg_wait_s", "makespan_s", "gpu_utilisation", "preemptions",
)  # fmt: skip
SPARE = ("preemptions", "makespan", "p95 JCT", "GPU utilisation", "mean wait", "runs")


_WHERE = (
    click.option(
        "--jobs", metavar="N", type=click.IntRange(min=0),
        help="Parallel runs, each in its own process; by default one per core. 0: one after the "
        "other in this process.",
    ),
    click.option(
        "--on", type=click.Choice(["local", "ray"]), default="local", show_default=True,
        help="Where to run: this machine, or a Ray cluster.",
    ),
    click.option(
        "--ray-address", metavar="A", default="auto", show_default=True,
        help="Ray cluster: auto, HOST:PORT, or local for a new one here.",
    ),
    click.option("--fresh", is_flag=True, help="Run everything again, even what is done."),
)  # fmt: skip


def executor_options(command: F) -> F:
    """Where runs are done, and how many at a time."""
    for option in reversed(_WHERE):
        command = option(command)
    return command


@click.command(
    epilog="Results: a folder per run in DIR/runs, results.csv and results.parquet (one row per "
    "run), failures.json. The same command again does only what is missing."
)
@click.argument("spec", metavar="SPEC", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", metavar="DIR", type=click.Path(path_type=Path),
    help="Output folder; created if missing, or that of a sweep to continue.",
)  # fmt: skip
@executor_options
@click.option(
    "--dry-run", is_flag=True, help="Check everything and list the runs without running them."
)
@click.option("--show", is_flag=True, help="SPEC is the folder of a sweep: print its table.")
@click.option("--json", is_flag=True, help="Print the table as JSON.")
@DEBUG
def sweep(spec: Path, output: Path | None, **values: Any) -> int:
    """Run a matrix: workloads x clusters x policies x options x loads x seeds.

    SPEC is a YAML file:

    \b
      workloads: [jobs.csv, "philly-like:max_s=86400,jobs=500"]
      clusters: [2x8]
      policies: [fifo, srtf, tiresias]
      parameters: {costs: [zero, pollux30]}
      loads: [0.9, 1.2]
      seeds: 3

    \b
    Examples:
      rota sweep loads.yaml --dry-run
      rota sweep loads.yaml -o loads
      rota sweep loads.yaml --on ray --ray-address auto -o loads
      rota sweep loads --show
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.study.sweep.run import load_sweep
    from rota.study.sweep.source import read_source
    from rota.study.sweep.spec import parse_spec

    if values["show"]:
        shown = load_sweep(spec)
        warn_about(shown.warnings)
        return _report(shown, as_json=values["json"])
    if spec.is_dir():
        raise OptionError(f"{spec}: is a folder: name a YAML file, or add --show to look at it")
    parsed = parse_spec(read_source(spec))
    if values["dry_run"]:
        return _rehearse(parsed, output)
    if output is None:
        raise click.UsageError("Missing option '-o' / '--output'.", click.get_current_context())
    return _run(parsed, output, values)


def _run(spec: "Spec", output: Path, values: dict[str, Any]) -> int:
    from rota.report.study_pages import REPORT, sweep_page, write_study_page
    from rota.study.sweep.run import load_sweep
    from rota.study.sweep.run import sweep as run
    from rota.study.sweep.store import SWEEP

    executor = make_executor(values)
    try:
        with RunsBar(spec.name) as bar:
            outcome = run(
                spec,
                output,
                executor,
                fresh=values["fresh"],
                command=["rota", *sys.argv[1:]],
                told=bar,
            )
    except KeyboardInterrupt:
        if not (output / SWEEP).exists():
            raise
        done = load_sweep(output)
        click.echo(
            f"interrupted: {len(done.rows):,} of {len(done.record.cells):,} runs are done; "
            f"the same command goes on with the others",
            err=True,
        )
        return INTERRUPTED
    warn_about(outcome.warnings)
    write_study_page(sweep_page(outcome, ["rota", *sys.argv[1:]]), output)
    click.echo(
        f"{counted(outcome.ran, 'run')} done, {outcome.found:,} found, "
        f"{len(outcome.failures):,} failed: {output / 'results.csv'}",
        err=True,
    )
    click.echo(f"report: {output / REPORT}", err=True)
    return _report(outcome, as_json=values["json"], failures=False)


def make_executor(values: dict[str, Any]) -> "RunExecutor":
    """Where the runs are done, as the options say."""
    from rota.study.sweep.local import Local
    from rota.study.sweep.on_ray import OnRay

    if values["on"] == "local":
        return Local(values["jobs"])
    if values["jobs"] is not None:
        raise OptionError("--jobs is for --on local: Ray uses all CPUs of its cluster")
    address = values["ray_address"]
    return OnRay(None if address == "local" else address)


# --- what is printed -----------------------------------------------------------------------------


def _rehearse(spec: "Spec", output: Path | None) -> int:
    from tempfile import TemporaryDirectory

    from rota.study.sweep.plan import make_plan
    from rota.study.sweep.run import missing_tasks
    from rota.study.sweep.store import RUNS, Runs

    with TemporaryDirectory(prefix="rota-sweep-") as scratch:
        plan = make_plan(spec, Path(scratch))
        found = ""
        if output is not None:
            missing = len(missing_tasks(plan, Runs(output / RUNS)))
            found = f", {len({task.key for task in plan.tasks}) - missing:,} of them done already"
    warn_about(plan.warnings)
    rows = [[_label(value) for value in cell.labels.values()] for cell in plan.cells]
    table(spec.axes, rows[:SHOWN_RUNS])
    if len(rows) > SHOWN_RUNS:
        click.echo(f"(and {len(rows) - SHOWN_RUNS:,} more)", err=True)
    click.echo(f"{len(rows):,} runs{found}", err=True)
    return 0


def _label(value: Any) -> str:
    return "-" if value is None else str(value)


def _report(outcome: "SweepOutcome", *, as_json: bool, failures: bool = True) -> int:
    """The table of means; 1 if a run failed or is missing."""
    if as_json:
        emit(outcome.table.to_dicts(), "json")
    elif outcome.rows:
        _print_means(outcome.means)
    if failures:
        for failed in outcome.failures:
            click.echo(f"failed: {failed.describe()}", err=True)
    missing = len(outcome.record.cells) - len(outcome.rows) - len(outcome.failures)
    if missing:
        click.echo(f"{missing:,} runs are not done yet: run the sweep again", err=True)
    return FAILED if outcome.failures or missing else 0


def _print_means(means: Sequence["Mean"]) -> None:
    from rota.metrics.vocabulary import BY_KEY, label_of, written

    axes = list(means[0].labels)
    shown = [
        axis
        for axis in axes
        if axis == "policy" or len({str(mean.labels[axis]) for mean in means}) > 1
    ]
    headings = [*shown, "runs", *(label_of(key) for key in NUMBERS), "ratio"]
    rows = [
        [
            *(_label(mean.labels[axis]) for axis in shown),
            str(mean.runs),
            *(written(mean.values[key], BY_KEY[key].unit) for key in NUMBERS),
            _ratio(mean),
        ]
        for mean in means
    ]
    gone = table(headings, rows, numbers=True, spare=SPARE)
    if gone:
        click.echo(f"(too narrow for: {', '.join(gone)}; they are in results.csv)", err=True)


def _ratio(mean: "Mean") -> str:
    ratio, low, high = mean.ratio
    if mean.idle:
        return IDLE
    if ratio is None:
        return "-"
    return f"{ratio:.3f}" + ("" if low is None or high is None else f" [{low:.3f}, {high:.3f}]")


# --- progress ------------------------------------------------------------------------------------


class RunsBar:
    """A bar on stderr with the time that is left, on a terminal; failures are shown anywhere."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._shown: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __call__(self, done: int, total: int, failed: "Failed | None") -> None:
        """A run has ended."""
        if failed is not None:
            text = f"failed: {failed.describe()}"
            if self._shown is None:
                click.echo(text, err=True)
            else:
                self._shown.console.print(text, markup=False, highlight=False)
        if not sys.stderr.isatty() or not total:
            return
        if self._shown is None:
            self._shown = _bar(self._title, total)
        self._shown.update(self._shown.task_ids[0], completed=done)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._shown is not None:
            self._shown.stop()


def _bar(title: str, total: int) -> "Progress":
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        speed_estimate_period=3600.0,
    )
    progress.add_task(title, total=total)
    progress.start()
    return progress
