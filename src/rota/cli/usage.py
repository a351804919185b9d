"""`rota usage`."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from rota.cli.client import clean, server_options
from rota.cli.options import FILES, names_of, one_of
from rota.cli.show import listing, table, tell
from rota.core.registry import FORMATS

if TYPE_CHECKING:
    import polars as pl

STYLES = ("table", "csv", "json", "yaml")
LITTLE = 0.05  # GPU-hours that would be written as none


class CalendarDay(click.DateTime):
    """A day or a month; an error shows how it is written."""

    def __init__(self, form: str, example: str) -> None:
        super().__init__([form])
        self._example = example

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Read it."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is not in the calendar: write {self._example}", param, ctx)


DAY = CalendarDay("%Y-%m-%d", "2026-03-01")


def _keys() -> tuple[str, ...]:
    from rota.study.usage import KEYS

    return KEYS


@click.command()
@click.argument("log", metavar="[LOG]", required=False, shell_complete=FILES)
@click.option(
    "--by", metavar="KEY", multiple=True, default=("user",), shell_complete=one_of(_keys),
    help="Add up by user, queue, account, group, qos, partition, model, job, month or day. May be "
    "repeated.  [default: user]",
)  # fmt: skip
@click.option("--since", metavar="DAY", type=DAY, help="From this day on (UTC): 2026-03-01.")
@click.option("--until", metavar="DAY", type=DAY, help="Until this day, which is not counted.")
@click.option(
    "--month", metavar="MONTH", type=CalendarDay("%Y-%m", "2026-03"),
    help="Only this month of the calendar (UTC): 2026-03.",
)  # fmt: skip
@click.option(
    "--price", metavar="PRICE", multiple=True,
    help="Money for a GPU-hour: 2.5, or by type: a100=2.5. May be repeated.",
)  # fmt: skip
@click.option(
    "--budget", metavar="NAME=GPU_H", multiple=True,
    help="GPU-hours that NAME (of the key of --by) may use, in each month or day if that is a key "
    "too: a warning from 80 % on, exit code 1 if it is exceeded. May be repeated.",
)  # fmt: skip
@click.option(
    "--format", metavar="F", shell_complete=names_of(FORMATS),
    help="Format of LOG, with options; detected by default.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=click.Choice(STYLES), default="table", show_default=True,
    help="Output format.",
)  # fmt: skip
@server_options
def usage(
    log: str | None, output: str, *, server: str | None, token_file: str | None, **values: Any
) -> int:
    """Add up GPU-hours, and what they cost, by user, queue, project and month.

    LOG is a history: the accounting of Slurm, an exported run, a daemon's address or state folder,
    or any trace that tells when its jobs ran; without it, that of the daemon that you use, which
    takes the role operator. GPUs count for as long as a job held them.

    \b
    Examples:
      rota usage
      rota usage jobs.txt
      rota usage jobs.txt --by account --by month --price 2.1
      rota usage jobs.txt --by queue --month 2026-03 -o csv
      rota usage http://127.0.0.1:7690 --by queue --by user
      rota usage jobs.txt --by queue --by month --budget vision=1000 --budget speech=400
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.cli.export import run_folder
    from rota.cli.show import warn
    from rota.study.replay.changes import parse_quota
    from rota.study.replay.sizing import parse_price
    from rota.study.usage import UsageQuestion, fold_usage, next_month, over_budget, unsaid
    from rota.traces.read import read_trace

    days = {key: values[key].date() for key in ("since", "until") if values[key] is not None}
    if values["month"] is not None:
        if days:
            raise click.UsageError("--month stands for --since and --until: give one of both")
        first = values["month"].date()
        days = {"since": first, "until": next_month(first)}
    prices = tuple(parse_price(text) for text in values["price"])
    form = "NAME=GPU_H, e.g. vision=1000"
    budgets = tuple(parse_quota(text, "--budget", form) for text in values["budget"])
    by = tuple(dict.fromkeys(values["by"]))
    question = UsageQuestion(by=by, prices=prices, budgets=budgets, **days)
    with run_folder(log, server, token_file) as path:
        imported = read_trace(path, values["format"])
        found = fold_usage(imported, question)
    if output == "csv":
        click.echo(found.write_csv(), nl=False)
    elif output != "table":
        listing(found.to_dicts(), output)
    else:
        _show(found, question.by)
    said = [(text, False) for text in unsaid(imported, question)] + over_budget(found)
    names = {str(row[key]) for key in by for row in found.iter_rows(named=True)}
    said += [(f"{name}: used nothing: is it the right name?", False)
             for name, _ in budgets if name not in names]  # fmt: skip
    for text, _ in said:
        warn(text)
    return int(any(exceeded for _, exceeded in said))


def _show(found: "pl.DataFrame", by: tuple[str, ...]) -> None:
    priced, budgeted = "cost" in found.columns, "budget" in found.columns
    periods = "period_share" in found.columns
    cells = [
        (
            *(clean(str(row[key])) for key in by),
            f"{row['jobs']:,}",
            _hours(row["gpu_h"]),
            f"{row['share']:.1%}",
            *([f"{row['period_share']:.1%}"] if periods else []),
            *([f"{row['cost']:,.2f}"] if priced else []),
            *([_hours(row["budget"]), _hours(row["left"])] if budgeted else []),
        )
        for row in found.iter_rows(named=True)
    ]
    heads = (
        *by, "jobs", "GPU-hours", "share", *(["of the period"] if periods else []),
        *(["cost"] if priced else []), *(["budget", "left"] if budgeted else []),
    )  # fmt: skip
    table(heads, cells, numbers=True)
    cost = f", cost {found['cost'].sum():,.2f}" if priced else ""
    tell(f"in all {_hours(float(found['gpu_h'].sum()))} GPU-hours{cost}.")


def _hours(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2g}" if 0 < value < LITTLE else f"{value:,.1f}"
