"""What the commands share that speak to a daemon."""

import functools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from rota.cli.options import DEBUG, Finite
from rota.core.errors import InputError, NotFoundError
from rota.core.words import duration
from rota.wire import ENDED, MAX_FILTER, PAGE

if TYPE_CHECKING:
    from rota.sdk import Client
    from rota.wire import JobInfo

F = TypeVar("F", bound=Callable[..., Any])

INTERRUPTED = 130
PATIENCE_S = 1.0  # a person waits; a daemon that is just being restarted is back by then
LONG_PATIENCE_S = 60.0  # of commands that go on for long
MOST_COMPLETIONS = 200
_ARRAY, _TASK = re.compile("@[0-9]+", re.ASCII), re.compile("([0-9]+)_([0-9]+)", re.ASCII)
_LISTED = re.compile(r"(.+)\[([0-9]+)\]", re.ASCII)  # `sweep[3]`
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

_TRUSTED = "rota.client.ca"
_SERVER = click.option(
    "--server", metavar="URL",
    help="Address of the daemon (several that take turns: with commas between them); default "
    "ROTA_SERVER, then the local one.",
)  # fmt: skip
_TOKEN_FILE = click.option(
    "--token-file", metavar="F",
    help="File with your token; else ROTA_TOKEN, ROTA_TOKEN_FILE, else the local one.",
)  # fmt: skip
_CA = click.option(
    "--ca", metavar="F", envvar="ROTA_CA", expose_value=False,
    callback=lambda ctx, _, path: ctx.meta.update({_TRUSTED: path}),
    help="File with the certificates to trust (PEM), for a daemon that speaks HTTPS.",
)  # fmt: skip
WATCH = click.option("--watch", is_flag=True, help="Refresh until Ctrl-C.")
INTERVAL = click.option(
    "--interval", metavar="S", type=Finite(min=0.1), default=2.0, show_default=True,
    help="Seconds between refreshes.",
)  # fmt: skip


def server_options(command: F) -> F:
    """How to find the daemon."""
    for option in (DEBUG, _CA, _TOKEN_FILE, _SERVER):
        command = option(command)
    return command


def on_daemon(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of the daemon; the command gets a client as its first argument."""

    @functools.wraps(command)
    def connected(*, server: str | None, token_file: str | None, **values: Any) -> Any:
        with connect(server, token_file) as rota:
            return command(rota, **values)

    return server_options(connected)


@contextmanager
def connect(
    server: str | None = None, token_file: str | None = None, *, patience_s: float = PATIENCE_S
) -> "Iterator[Client]":
    """A client for the daemon that the user means."""
    from rota.sdk import Client

    context = click.get_current_context(silent=True)
    ca = context.meta.get(_TRUSTED) if context else None
    with Client(server, token_file=token_file, ca=ca, patience_s=patience_s) as rota:
        rota.on_start = lambda text: click.echo(text, err=True)
        yield rota


# --- jobs by name --------------------------------------------------------------------------------


def job_id(rota: "Client", text: str) -> str:
    """The id of a job that was given by id, by name, or as task 3 of array 17: `17_3`.

    Of an array with a name `sweep[3]`, as it is listed.
    """
    if text.isascii() and text.isdecimal():
        return text
    if _ARRAY.fullmatch(text):
        raise InputError(f"{text} is an array: name one of its jobs, such as {text[1:]}_0")
    match = _TASK.fullmatch(text)
    if match is not None:
        return _task(rota, match[1], match[2], text)
    found = _named(rota, text)
    listed = _LISTED.fullmatch(text)
    if not found and listed is not None:
        arrays = {job.array for job in _named(rota, listed[1])} - {""}
        if len(arrays) == 1:
            return _task(rota, arrays.pop(), listed[2], text)
    if not found:
        raise NotFoundError(f"there is no job {text!r}: see `rota ls --all`")
    ids = list(dict.fromkeys(f"@{job.array}" if job.array else job.id for job in found))
    if len(ids) == 1 and not found[0].array:
        return ids[0]
    if len(ids) == 1:
        one = f"{text}[{found[0].task}]"
        raise InputError(f"{text} is an array: name one of its jobs, such as {one}")
    raise NotFoundError(
        f"{len(found)} jobs are called {text!r}: give one of the ids {', '.join(ids[:10])}"
    )


def _task(rota: "Client", array: str, task: str, text: str) -> str:
    for job in rota.jobs(array=array):
        if job.task == int(task):
            return job.id
    raise NotFoundError(f"there is no job {text!r}: see `rota show @{array}`")


def _named(rota: "Client", text: str) -> "list[JobInfo]":
    """Those of a name that are not over; if all are, the latest one."""
    named = list(rota.jobs(name=text)) if 0 < len(text) <= MAX_FILTER else []
    return [job for job in named if job.state not in ENDED] or named[-1:]


def array_id(rota: "Client", text: str) -> str:
    """The id of an array that is given as `@17` or by its name; empty if it means a job."""
    if _ARRAY.fullmatch(text):
        return text[1:]
    if (text.isascii() and text.isdecimal()) or _TASK.fullmatch(text):
        return ""
    arrays = {job.array for job in _named(rota, text)}
    return arrays.pop() if len(arrays) == 1 else ""


def members(rota: "Client", array: str) -> "list[JobInfo]":
    """The jobs of an array."""
    found = list(rota.jobs(array=array))
    if not found:
        raise NotFoundError(f"there is no array {array!r}: see `rota ls --all`")
    return found


def complete(
    ctx: click.Context, find: "Callable[[Client], Iterator[CompletionItem]]", incomplete: str
) -> list[CompletionItem]:
    """Names that the daemon knows. Nothing at all if it cannot be asked: this is only a help."""
    with (
        suppress(Exception),
        connect(ctx.params.get("server"), ctx.params.get("token_file"), patience_s=0) as rota,
    ):
        items = (item for item in find(rota) if str(item.value).startswith(incomplete))
        return [item for item, _ in zip(items, range(MOST_COMPLETIONS), strict=False)]
    return []


def complete_jobs(
    ctx: click.Context,
    param: click.Parameter,  # noqa: ARG001 - click's interface
    incomplete: str,
) -> list[CompletionItem]:
    """Ids of jobs that are not over."""

    def find(rota: "Client") -> Iterator[CompletionItem]:
        arrays: set[str] = set()
        for job in rota.jobs(active=True, limit=PAGE):
            yield CompletionItem(job.id, help=clean(f"{job.name} {job.state}".strip()))
            if job.array and job.array not in arrays:
                arrays.add(job.array)
                yield CompletionItem(f"@{job.array}", help=clean(f"{job.name} (array)".strip()))

    return complete(ctx, find, incomplete)


def complete_nodes(
    ctx: click.Context,
    param: click.Parameter,  # noqa: ARG001 - click's interface
    incomplete: str,
) -> list[CompletionItem]:
    """Names of nodes."""

    def find(rota: "Client") -> Iterator[CompletionItem]:
        for node in rota.nodes():
            yield CompletionItem(node.name, help=node.state)

    return complete(ctx, find, incomplete)


JOB = click.argument("job", metavar="JOB", shell_complete=complete_jobs)
JOBS = click.argument(
    "job", metavar="JOB...", nargs=-1, required=True, shell_complete=complete_jobs
)


# --- again and again -----------------------------------------------------------------------------


def repeat(show: Callable[[], None], *, watch: bool, interval: float) -> None:
    """Show once, or until Ctrl-C."""
    if not watch:
        show()
        return
    with suppress(KeyboardInterrupt):
        while True:
            click.clear()  # does nothing unless it is a terminal
            show()
            time.sleep(interval)


# --- for people ----------------------------------------------------------------------------------


def clean(text: str) -> str:
    """A text of somebody else for a terminal: nothing that moves its cursor, or turns lines."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def amount(value: float | None) -> str:
    """A number without needless digits."""
    return "-" if value is None else f"{value:g}"


def span(seconds: float | None) -> str:
    """A duration; what clocks that disagree make negative is 0."""
    return duration(None if seconds is None else max(0, seconds))


def ticking(seconds: float | None) -> str:
    """A duration that grows while one looks: in whole seconds."""
    return span(None if seconds is None else round(seconds))


def moment(unix_s: float | None) -> str:
    """A point in time on the clock of this machine."""
    if unix_s is None:
        return "-"
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_s))
    except (OverflowError, ValueError, OSError):
        return amount(unix_s)


def stopping(grace_s: float | None) -> str:
    """For what is being stopped, until it is over; else empty."""
    if grace_s is None:
        return ""
    return f"stopping (grace up to {amount(grace_s)} s)" if grace_s > 0 else "stopping (killed)"


def shortened(items: Sequence[str], most: int = 6) -> str:
    """The first few of a list."""
    more = f", ... {len(items) - most} more" if len(items) > most else ""
    return clean(", ".join(items[:most])) + more or "-"
