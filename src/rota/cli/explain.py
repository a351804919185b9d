"""`rota explain` and `rota when`."""

import csv
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rota.cli.client import (
    clean,
    complete_jobs,
    connect,
    job_id,
    moment,
    server_options,
    shortened,
    span,
)
from rota.cli.progress import ProgressBar
from rota.cli.show import FORMAT, emit, table, terminal_width
from rota.core.errors import InputError
from rota.wire import Explanation, Forecast

if TYPE_CHECKING:
    from rota.metrics.story import Story
    from rota.study.forecast import Outlook

_URLS = ("http://", "https://")
_EVENTS = "events.parquet"
_SNAPSHOT = b"\x78\x01"  # how a snapshot begins
_MOST_STEPS = 20
_FORMAT = click.option(
    "-o", "--output", default="table", show_default=True,
    type=click.Choice(["table", "json", "yaml", "csv"]), help="Output format.",
)  # fmt: skip


@click.command()
@click.argument("place", metavar="[DIR|URL]", required=False, shell_complete=complete_jobs)
@click.argument("job", metavar="JOB", required=False, shell_complete=complete_jobs)
@click.option("--all", is_flag=True,
              help="Every job of the run in DIR: seconds waited, by reason.")  # fmt: skip
@_FORMAT
@server_options
def explain(
    *, place: str | None, job: str | None, all: bool, output: str, server: str | None,  # noqa: A002
    token_file: str | None,
) -> None:  # fmt: skip
    """Tell why a JOB waits or waited, in parts that add up.

    With one argument the daemon is asked; with two, the daemon at a URL, or the folder DIR of a run
    (of `rota simulate`, or exported from a daemon).

    \b
    Examples:
      rota explain 17
      rota explain http://cluster:7842 17
      rota explain out 17
      rota explain out 17 -o json
      rota explain out --all -o csv
    """  # noqa: D301 - \b keeps click from wrapping the lines
    if all:
        _print_everyone(place, job, output)
        return
    if place is None or (job is None and (Path(place) / _EVENTS).is_file()):
        raise click.UsageError("Missing argument 'JOB'.")
    asked, source = (place, None) if job is None else (job, place)
    if source is not None and not source.startswith(_URLS):
        found = _from_folder(Path(source)).explain_folder(Path(source), asked)
    else:
        with connect(source or server, token_file) as rota:
            found = rota.explain(job_id(rota, asked))
    print_explanation(found, output)


def _from_folder(folder: Path) -> Any:
    """Import the folder explainer."""
    if not folder.is_dir():
        raise InputError(
            f"{str(folder)!r} is neither a folder nor a URL: name what `rota simulate -o` wrote"
        )
    try:
        return import_module("rota.study.explain")
    except ImportError as error:
        raise InputError(
            "folders of simulations cannot be explained by this version: ask a daemon with "
            "`rota explain JOB`"
        ) from error


def _print_everyone(place: str | None, job: str | None, output: str) -> None:
    if place is None or job is not None or place.startswith(_URLS):
        raise click.UsageError("--all takes a folder and no job: rota explain DIR --all")
    rows = _from_folder(Path(place)).explain_all(Path(place))
    if output == "csv":
        _emit_csv(rows)
    elif output != "table":
        emit(rows, output)
    else:
        used = [key for key in rows[0] if any(row[key] for row in rows)] if rows else []
        told = [
            [clean(str(row[key])) if isinstance(row[key], str) else span(row[key]) for key in used]
            for row in rows
        ]
        table([key.removesuffix("_s") for key in used], told)


def _emit_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    """Lists as texts with blanks between."""
    if not rows:
        return
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(rows[0])
    for row in rows:
        out.writerow(" ".join(cell) if isinstance(cell, list) else cell for cell in row.values())


def print_explanation(found: "Explanation | Story", output: str) -> None:
    """A sentence and tables, or everything."""
    import msgspec

    data = msgspec.to_builtins(found)
    if output == "csv":
        _emit_csv(data.get("intervals", data["parts"]))
        return
    if output != "table":
        emit(data, output)
        return
    _say(f"job {clean(found.id)}: {clean(found.text)}")
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
    if data.get("run_s"):
        lost = f" (with {span(data['lost_s'])} of work that was lost)" if data["lost_s"] else ""
        click.echo(f"ran in all: {span(data['run_s'])}{lost}")
    if found.ahead:
        _say(f"served first: {shortened(found.ahead, 10)}")
    if data.get("waits_for"):
        _say(f"waits for: {shortened(data['waits_for'], 10)}")
    if found.preempted_by:
        _say(f"preempted by: {shortened(found.preempted_by, 10)}")
    _print_course(data)


def _say(text: str, indent: int = 2) -> None:
    """A line, or several on a narrow terminal."""
    width = terminal_width()
    lines = [text]
    if width is not None:
        lines = textwrap.wrap(
            text, max(width, 2 * indent), subsequent_indent=" " * indent, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
    click.echo("\n".join(lines))


def _print_course(data: Mapping[str, Any]) -> None:
    """Starts, intervals and stops one after the other, as far as they were told."""
    waits, halts, stays = (data.get(key, ()) for key in ("intervals", "halts", "stays"))
    if len(waits) + len(halts) <= len(data["parts"]) and len(stays) <= 1:  # it has all been said
        return
    # a stop comes before what it led to, and a start before the time that it takes
    steps = [(halt["at_s"], 0, "", halt["what"], halt["text"]) for halt in halts]
    steps += [(stay["at_s"], 1, "", stay["what"], _of_task(stay) + stay["text"]) for stay in stays]
    steps += [
        (i["from_s"], 2, span(i["seconds"]), i["reason"], _of_task(i) + i["text"]) for i in waits
    ]
    steps.sort(key=lambda step: step[:2])
    table(
        ["at second", "that is", "waited", "what", ""],
        [
            [_second(at_s), _clock(at_s), waited, what, clean(text)]
            for at_s, _, waited, what, text in steps[:_MOST_STEPS]
        ],
    )
    if len(steps) > _MOST_STEPS:
        click.echo(f"... and {len(steps) - _MOST_STEPS} more: see them with -o json")


def _clock(at_s: float) -> str:
    """Days, hours and minutes since second 0: `4d 08:19`."""
    days, minutes = divmod(int(at_s // 60), 24 * 60)
    return f"{days}d {minutes // 60:02}:{minutes % 60:02}"


def _of_task(step: Mapping[str, Any]) -> str:
    return "" if step["task"] is None else f"task {step['task']}: "


def _second(at_s: float) -> str:
    return f"{round(at_s, 3):.15g}"


@click.command()
@click.argument("place", metavar="[SNAPSHOT|URL]", required=False, shell_complete=complete_jobs)
@click.argument("job", metavar="JOB", required=False, shell_complete=complete_jobs)
@click.option(
    "--runs",
    metavar="N",
    type=click.IntRange(1, 200),
    default=20,
    show_default=True,
    help="Number of simulations.",
)
@click.option(
    "--with-arrivals",
    is_flag=True,
    help="With a snapshot: the rest of the trace arrives; otherwise no job arrives.",
)
@click.option(
    "--exact",
    is_flag=True,
    help="With a snapshot: durations are those of the trace; otherwise they are drawn.",
)
@click.option(
    "--seed",
    metavar="N",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="With a snapshot: random seed of the draws.",
)
@FORMAT
@server_options
def when(
    *, place: str | None, job: str | None, runs: int, output: str, server: str | None,
    token_file: str | None, **known: Any,
) -> None:  # fmt: skip
    """Tell when a JOB will start, by simulating on from the present state.

    With one argument the daemon is asked for its own future; with two, the daemon at a URL, or a
    SNAPSHOT, the file that `rota simulate --snapshot-at T` wrote.

    \b
    Examples:
      rota when 17
      rota when resnet-50 --runs 100 -o json
      rota when out/snapshot.rota 17
      rota when out/snapshot.rota 17 --exact --with-arrivals
    """  # noqa: D301 - \b keeps click from wrapping the lines
    if place is None or (job is None and _is_snapshot(Path(place))):
        raise click.UsageError("Missing argument 'JOB'.")
    if job is not None and not place.startswith(_URLS):
        _when_frozen(Path(place), job, runs, output, known)
        return
    if known["with_arrivals"] or known["exact"]:
        raise click.UsageError(
            "--with-arrivals and --exact need a snapshot: rota when SNAPSHOT JOB"
        )
    with connect(place if job is not None else server, token_file) as rota:
        found = rota.when(job_id(rota, place if job is None else job), runs=runs)
    _print_forecast(found, output)


def _is_snapshot(path: Path) -> bool:
    """Does a file begin like one? A job may have the name of a file."""
    try:
        with path.open("rb") as file:
            return file.read(2) == _SNAPSHOT
    except OSError:
        return False


def _when_frozen(path: Path, job: str, runs: int, output: str, known: Mapping[str, Any]) -> None:
    import msgspec

    from rota.study.forecast import forecast

    if not path.is_file():
        raise InputError(
            f"{str(path)!r} is neither a file nor a URL: name what "
            f"`rota simulate --snapshot-at` wrote"
        )
    with ProgressBar("forecasting") as bar:
        found = forecast(
            path, job, runs=runs, exact=known["exact"], arrivals=known["with_arrivals"],
            seed=known["seed"], told=bar,
        )  # fmt: skip
    if output != "table":
        emit(msgspec.to_builtins(found), output)
        return
    _say(f"job {clean(found.id)} ({found.state}) {found.text}")
    if not found.runs:
        return
    click.echo(f"{'now:':<11}second {_second(found.now_s)}")
    for label, at_s in (
        ("starts", found.starts_s),
        ("earliest", found.earliest_s),
        ("latest", found.latest_s),
    ):
        if at_s is not None:
            click.echo(f"{label + ':':<11}second {_second(at_s)} (in {span(at_s - found.now_s)})")
    if found.why:
        _say(f"{'why:':<11}{clean(found.why)}", indent=11)
    _print_doubts(found)


def _print_forecast(found: Forecast, output: str) -> None:
    import msgspec

    if output != "table":
        emit(msgspec.to_builtins(found), output)
        return
    _say(f"job {found.id} ({found.state}) {clean(found.text)}")
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
    _print_doubts(found)


def _print_doubts(found: "Forecast | Outlook") -> None:
    """How often it did not start, and what all of it rests on."""
    if found.never:
        click.echo(f"in {found.never} of {found.runs} simulations it did not start in time")
    if found.assumptions:
        told = [f"{key}: {value}" for key, value in found.assumptions.items()]
        _say(f"assumed:   {shortened(told, 10)}", indent=11)
    if found.backtest is not None:
        _say(f"back-test: {found.backtest}", indent=11)
