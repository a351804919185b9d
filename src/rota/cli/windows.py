"""`rota maintenance` and `rota reserve`: times in which nodes are not for everybody."""

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from rota.cli.client import amount, clean, complete, complete_nodes, moment, on_daemon, shortened
from rota.cli.show import FORMAT, emit, listing
from rota.core.errors import OptionError
from rota.core.hostlist import expand
from rota.core.words import counted
from rota.wire import NewWindow, WindowInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.sdk import Client

_WHEN = re.compile(r"\d+(\.\d+)?\s*[a-z]*")
_SPARE = ("by", "note", "gpus")


def _names(
    ctx: click.Context,
    param: click.Parameter,  # noqa: ARG001 - click's interface
    incomplete: str,
) -> list[CompletionItem]:
    """Names of windows."""

    def find(rota: "Client") -> "Iterator[CompletionItem]":
        for window in rota.windows():
            yield CompletionItem(window.name, help=window.kind)

    return complete(ctx, find, incomplete)


_START = click.option(
    "--start", metavar="T", default="now", show_default=True,
    help="When it begins: 2h (from now), or 2026-03-01T08:00 (UTC).",
)  # fmt: skip
_FOR = click.option("--for", metavar="T", help="How long it lasts: 4h, 2d.")
_END = click.option("--end", metavar="T", help="When it ends, written as the start.")
_PREEMPT = click.option(
    "--preempt", is_flag=True,
    help="Preempt jobs of others that still run there when it begins (they save and continue "
    "elsewhere); else they run on to their end.",
)  # fmt: skip
_NAME = click.option("--name", metavar="N", default="", help="Its name; else one is made.")
_NOTE = click.option("--note", metavar="TEXT", default="", help="What it is for.")


@click.group()
def maintenance() -> None:
    """Plan times in which nodes are out of use.

    Jobs that would not end before, by their time limit or estimate, do not start there any more
    (`rota why` says so). At its end the nodes are used again by themselves.
    """


@click.group()
def reserve() -> None:
    """Reserve nodes for users or queues.

    Others start there only if they end before, by their time limit or estimate.
    """


@maintenance.command("add")
@click.argument("nodes", metavar="NODES...", nargs=-1, required=True, shell_complete=complete_nodes)
@_START
@_FOR
@_END
@_PREEMPT
@_NAME
@_NOTE
@FORMAT
@on_daemon
def add_maintenance(rota: "Client", *, nodes: tuple[str, ...], output: str, **values: Any) -> None:
    """Take NODES (n0 n1, or n[0-3]) out of use for a time.

    \b
    Examples:
      rota maintenance add n[0-3] --start 12h --for 2h
      rota maintenance add n7 --start 2026-03-01T08:00 --for 4h --preempt --note "new PDU"
    """  # noqa: D301 - \b keeps click from wrapping the lines
    _add(rota, NewWindow(kind="maintenance", nodes=_expanded(nodes), **_times(values)), output)


@reserve.command("add")
@click.argument("nodes", metavar="[NODES]...", nargs=-1, shell_complete=complete_nodes)
@click.option("--gpus", metavar="N", type=click.IntRange(min=1),
              help="Instead of NODES: whole nodes with so many GPUs, chosen now.")  # fmt: skip
@click.option("--user", metavar="U", multiple=True, help="For this user; may be repeated.")
@click.option("--queue", metavar="Q", multiple=True,
              help="For this queue and those below it; may be repeated.")  # fmt: skip
@_START
@_FOR
@_END
@_PREEMPT
@_NAME
@_NOTE
@FORMAT
@on_daemon
def add_reservation(
    rota: "Client",
    *,
    nodes: tuple[str, ...],
    gpus: int | None,
    user: tuple[str, ...],
    queue: tuple[str, ...],
    output: str,
    **values: Any,
) -> None:
    """Reserve NODES, or a number of GPUs, for users or queues.

    \b
    Examples:
      rota reserve add --gpus 16 --user alice --start 2h --for 1d
      rota reserve add n[0-3] --queue research/nlp --start 2026-03-01T08:00 --end 2026-03-08T08:00
    """  # noqa: D301 - \b keeps click from wrapping the lines
    if not user and not queue:
        raise OptionError("a reservation is for somebody: give --user or --queue")
    if bool(nodes) == bool(gpus):
        raise OptionError("say what is reserved: either NODES or --gpus N")
    window = NewWindow(
        kind="reservation", nodes=_expanded(nodes), gpus=gpus or 0, users=[*user], queues=[*queue],
        **_times(values),
    )  # fmt: skip
    _add(rota, window, output)


@maintenance.command("ls")
@FORMAT
@on_daemon
def list_maintenance(rota: "Client", *, output: str) -> None:
    """List maintenance that is planned or going on.

    \b
    Example:
      rota maintenance ls
    """  # noqa: D301 - \b keeps click from wrapping the lines
    _list(rota, "maintenance", output)


@reserve.command("ls")
@FORMAT
@on_daemon
def list_reservations(rota: "Client", *, output: str) -> None:
    """List reservations.

    \b
    Example:
      rota reserve ls
    """  # noqa: D301 - \b keeps click from wrapping the lines
    _list(rota, "reservation", output)


@maintenance.command("rm")
@click.argument("name", metavar="NAME", shell_complete=_names)
@on_daemon
def remove_maintenance(rota: "Client", *, name: str) -> None:
    """Give a maintenance up, or end it early: its nodes are used again.

    \b
    Example:
      rota maintenance rm maintenance-1
    """  # noqa: D301 - \b keeps click from wrapping the lines
    _remove(rota, "maintenance", name)


@reserve.command("rm")
@click.argument("name", metavar="NAME", shell_complete=_names)
@on_daemon
def remove_reservation(rota: "Client", *, name: str) -> None:
    """Give a reservation up: its nodes are for everybody again.

    \b
    Example:
      rota reserve rm reservation-1
    """  # noqa: D301 - \b keeps click from wrapping the lines
    _remove(rota, "reservation", name)


# --- shared ---------------------------------------------------------------------------------------


def _expanded(nodes: tuple[str, ...]) -> list[str]:
    return [name for text in nodes for name in expand(text, OptionError)]


def _times(values: dict[str, Any]) -> dict[str, Any]:
    """The options that both have, as the daemon wants them."""
    from rota.jobfile.quantities import duration_s

    start, lasts, end = values["start"], values["for"], values["end"]
    now = datetime.now(UTC).timestamp()
    begins = None if start == "now" else _moment(start, "--start", now)
    if lasts is not None and end is not None:
        raise OptionError("--for and --end exclude each other: give one of them")
    ends = None
    if lasts is not None:
        ends = (now if begins is None else begins) + duration_s(lasts, "--for")
    elif end is not None:
        ends = _moment(end, "--end", now)
    return {
        "start": begins, "end": ends, "name": values["name"], "note": values["note"],
        "at_start": "preempt" if values["preempt"] else "wait",
    }  # fmt: skip


def _moment(text: str, option: str, now: float) -> float:
    """`2h` from now, or a time of day with its date."""
    from rota.jobfile.quantities import duration_s

    if _WHEN.fullmatch(text):
        return now + duration_s(text, option)
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise OptionError(
            f"{option} {text}: give a time from now, e.g. 2h, or a moment, e.g. 2026-03-01T08:00 "
            f"(UTC)"
        ) from error
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()


def _add(rota: "Client", window: NewWindow, output: str) -> None:
    import msgspec

    made = rota.add_window(window)
    if output != "table":
        emit(msgspec.to_builtins(made), output)
        return
    click.echo(f"{clean(made.name)}: {shortened(made.nodes)}, from {moment(made.start)}", err=True)
    if made.jobs:
        what = "are preempted then" if made.at_start == "preempt" else "run on to their end"
        click.echo(
            f"{counted(len(made.jobs), 'job')} may still run there when it begins "
            f"({shortened(made.jobs, 3)}): they {what}",
            err=True,
        )


def _remove(rota: "Client", kind: str, name: str) -> None:
    """Both have names of one kind; whoever ends a reservation does not mean a maintenance."""
    other = next((each.kind for each in rota.windows() if each.name == name), kind)
    if other != kind:
        group = "reserve" if other == "reservation" else other
        raise OptionError(f"{clean(name)} is a {other}: `rota {group} rm {clean(name)}` ends it")
    rota.remove_window(name)
    click.echo(f"{clean(name)}: removed", err=True)


def _list(rota: "Client", kind: str, output: str) -> None:
    import msgspec

    found = [window for window in rota.windows() if window.kind == kind]
    if output != "table":
        emit(msgspec.to_builtins(found), output)
    elif found:
        listing([_row(window) for window in found], "table", spare=_SPARE)
    else:
        click.echo("nothing is planned", err=True)


def _row(window: WindowInfo) -> dict[str, str]:
    row = {
        "name": clean(window.name),
        "state": window.state,
        "from": moment(window.start),
        "until": "removed" if window.end is None else moment(window.end),
        "nodes": shortened(window.nodes),
        "gpus": amount(window.gpus),
        "jobs": shortened(window.jobs) or "-",
        "by": clean(window.by) or "-",
        "note": clean(window.note) or "-",
    }
    if window.kind == "reservation":
        row["for"] = ", ".join(map(clean, (*window.users, *window.queues)))
    return row
