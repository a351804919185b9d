"""`rota explain`."""

import csv
import sys
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
from rota.cli.show import emit, say, second, table
from rota.core.errors import InputError
from rota.core.sums import ordered_sum
from rota.wire import Explanation

if TYPE_CHECKING:
    from rota.metrics.story import Story

_URLS = ("http://", "https://")
_EVENTS = "events.parquet"
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
@click.option(
    "--html", metavar="FILE", type=click.Path(path_type=Path),
    help="Also write the story of a job in DIR as a page.",
)  # fmt: skip
@server_options
def explain(
    *, place: str | None, job: str | None, all: bool, output: str, html: Path | None,  # noqa: A002
    server: str | None, token_file: str | None,
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
      rota explain out 17 --html job.html
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
        if html is not None:
            from rota.report.explain_page import write_story_page

            page = write_story_page(found, html, ["rota", *sys.argv[1:]])
            click.echo(f"page: {page}", err=True)
    elif html is not None:
        raise click.UsageError("--html is for runs in folders: rota explain DIR JOB --html FILE")
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
    say(f"job {clean(found.id)}: {clean(found.text)}")
    if found.parts:
        total = ordered_sum(part.seconds for part in found.parts) or 1.0
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
        say(f"served first: {shortened(found.ahead, 10)}")
    if data.get("waits_for"):
        say(f"waits for: {shortened(data['waits_for'], 10)}")
    if found.preempted_by:
        say(f"preempted by: {shortened(found.preempted_by, 10)}")
    _print_course(data)
    _print_sizes(data.get("sizes", ()))


def _print_sizes(changes: Sequence[Mapping[str, Any]]) -> None:
    """When a live elastic job was started, grown and shrunk, and why."""
    if len(changes) <= 1:  # it has never changed
        return
    table(
        ["at", "what", ""],
        [
            [moment(change["at"]), clean(change["what"]), clean(change["text"])]
            for change in changes[-_MOST_STEPS:]
        ],
    )
    if len(changes) > _MOST_STEPS:
        click.echo(f"{len(changes) - _MOST_STEPS} before these: see them with -o json")


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
            [second(at_s), _clock(at_s), waited, what, clean(text)]
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
