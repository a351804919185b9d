"""`rota predict`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rota.cli.export import run_folder
from rota.cli.options import DEBUG, FILES, FORCE, names_of
from rota.cli.progress import ProgressBar
from rota.cli.show import emit, say, table, tell, warn_about
from rota.core.registry import FORMATS
from rota.core.words import counted, duration

if TYPE_CHECKING:
    from rota.study.predict.errors import Uncertain
    from rota.study.predict.predict import PredictAnswer
    from rota.study.predict.worth import PredictionWorth

HEADINGS = ("predictor", "jobs", "half within", "mean", "log error", "bias", "within 2x", "order")
SPARE = ("bias", "mean", "jobs", "log error")
NOBODY = "nobody better"


@click.command(
    epilog="Results of -o: predict.csv (a row per job, with every prediction), summary.json with "
    "every number, and report.html."
)
@click.argument("log", shell_complete=FILES)
@click.option(
    "--format", metavar="F", shell_complete=names_of(FORMATS),
    help="Format of LOG, with options: sacct:tz=Europe/Berlin; detected by default.",
)  # fmt: skip
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="Only the first N jobs.")
@click.option(
    "--last", metavar="K", type=click.IntRange(min=2), default=2, show_default=True,
    help="Runs of a user of which the predictor `mean` takes the mean.",
)  # fmt: skip
@click.option(
    "--cluster", metavar="SPEC",
    help="Also simulate what the predictions are worth on these machines: 16x8, a YAML file or a "
    "CSV node list.",
)  # fmt: skip
@click.option(
    "--nodes", metavar="FILE", shell_complete=FILES,
    help="The same on the machines of the log: what `scontrol show node`, `sinfo --json` or "
    "`kubectl get nodes -o json` prints.",
)  # fmt: skip
@click.option(
    "-o", "--output", metavar="DIR", type=click.Path(path_type=Path),
    help="Output folder; created if missing.",
)  # fmt: skip
@FORCE
@click.option("--json", is_flag=True, help="Print everything as JSON instead of tables.")
@DEBUG
def predict(log: str, output: Path | None, *, force: bool, **values: Any) -> None:
    """Measure how predictable the run times of LOG are.

    LOG is any trace or history: what `rota simulate` and `rota replay` read, an exported run, a
    daemon's address or state folder. Every job is foreseen at its submission by several predictors,
    from jobs that had ended by then: the user's estimate, the user's last runs, jobs that are
    alike. How wrong each is, what nobody could do better who knows only user, name, model and
    GPUs, and with --cluster or --nodes what a scheduler gains by it.

    \b
    Examples:
      rota predict jobs.txt
      rota predict philly.csv --limit 20000 -o predictable
      rota predict jobs.txt --nodes nodes.txt -o worth
      rota predict jobs.csv --cluster 16x8 --json
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.study.predict.predict import FILES as OWN
    from rota.study.predict.predict import PredictQuestion
    from rota.study.predict.predict import predict as answer_to

    as_json = values.pop("json")
    if values["nodes"] and values["cluster"]:
        raise click.UsageError("--nodes and --cluster both tell the machines: give one of them.")
    command = ["rota", *sys.argv[1:]]
    bar = ProgressBar("reading")

    def told(what: str, done: int, total: int) -> None:
        bar.retitle(what)(done, total)

    with run_folder(log) as path, bar:
        question = PredictQuestion(log=str(path), named=log, **values)
        if output is None:
            answer, _ = answer_to(question, told=told, command=command)
        else:
            from rota.report.predict import predict_page
            from rota.report.study_pages import write_study_page
            from rota.study.folder import OutputFolder

            with OutputFolder(output, force=force, own=OWN) as folder:
                answer, _ = answer_to(question, folder.path, told, command)
                write_study_page(predict_page(answer), folder.path)
    warn_about(answer.warnings)
    if as_json:
        import msgspec

        emit(msgspec.to_builtins(answer), "json")
    else:
        _show(answer)
    if output is not None:
        click.echo(f"report: {output / 'report.html'}", err=True)


def _show(answer: "PredictAnswer") -> None:
    for why, many in answer.left_out.items():
        tell(f"left out: {counted(many, 'job')}: {why}")
    _show_errors(answer)
    _show_groups(answer)
    if answer.worth is not None:
        _show_worth(answer.worth)
    say(answer.verdict)
    for text in answer.assumptions:
        tell(f"assumed: {text}")


def _show_errors(answer: "PredictAnswer") -> None:
    rows = [
        (
            one.predictor,
            f"{one.jobs:,}",
            _times(one.median_factor),
            _times(one.mean_factor),
            _plain(one.log_error),
            f"{one.bias_factor.value:.3g}x",
            _share(one.within_2),
            _plain(one.spearman),
        )
        for one in answer.whole.errors
    ]
    bound = answer.irreducible
    if bound.log_error is not None:
        rows.append(
            (
                NOBODY, f"{bound.jobs:,}", _times(bound.median_factor), _times(bound.mean_factor),
                _plain(bound.log_error), "", _share(bound.within_2), _plain(bound.spearman),
            )
        )  # fmt: skip
    table(HEADINGS, rows, numbers=True, spare=SPARE)
    for key, text in answer.predictors.items():
        tell(f"{key}: {text}")
    if bound.log_error is not None:
        tell(
            f"{NOBODY}: the spread of {bound.jobs:,} repeats of {bound.kinds:,} kinds of jobs "
            f"(same user, name, model and GPUs)"
        )


def _show_groups(answer: "PredictAnswer") -> None:
    """What the best predictors make of jobs of a size."""
    from rota.study.predict.predict import ALL

    rows = []
    for group in answer.groups:
        best, order = group.of(answer.best or ""), group.of(answer.best_order or "")
        if group.group != ALL and best is not None:
            rows.append(
                (
                    group.told, f"{group.jobs:,}", _times(best.median_factor),
                    _share(best.within_2), _plain(order.spearman if order else None),
                )
            )  # fmt: skip
    if rows:
        heads = (f"with {answer.best}", "jobs", "half within", "within 2x",
                 f"order ({answer.best_order})" if answer.best_order else "order")  # fmt: skip
        table(heads, rows, numbers=True)


def _show_worth(worth: "PredictionWorth") -> None:
    rows = [
        (
            row.knows,
            duration(row.avg_jct_s),
            duration(row.avg_wait_s),
            duration(row.p95_wait_s),
            "-" if row.ratio is None else f"{row.ratio:.3f}{_interval(row.low, row.high)}",
        )
        for row in worth.rows
    ]
    heads = ("qssf knows", "mean JCT", "mean wait", "p95 wait", "mean JCT, ratio to nothing")
    table(heads, rows, numbers=True, spare=("p95 wait",))


def _times(found: "Uncertain | None") -> str:
    if found is None:
        return "-"
    from rota.study.predict.predict import factor_text

    return f"{factor_text(found.value)}{_interval(found.low, found.high, 2)}"


def _share(found: "Uncertain | None") -> str:
    return "-" if found is None else f"{found.value:.0%}"


def _plain(found: "Uncertain | None") -> str:
    if found is None:
        return "-"
    return f"{found.value:.2f}{_interval(found.low, found.high, 2)}"


def _interval(low: float | None, high: float | None, digits: int = 3) -> str:
    return "" if low is None or high is None else f" [{low:.{digits}f}, {high:.{digits}f}]"
