"""`rota top`: the cluster at a glance."""

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING, Any

import click

from rota.cli.client import (
    INTERVAL,
    LONG_PATIENCE_S,
    amount,
    clean,
    connect,
    server_options,
    shortened,
    ticking,
)
from rota.cli.show import WIDE, too_wide
from rota.core.errors import UnavailableError
from rota.wire import ENDED, PAGE, STATES, JobInfo, NodeInfo, QueueInfo

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from rota.sdk import Client

_BAR = 20  # characters of a bar
_WAITING = ("PENDING", "HELD")
_ORDER = {"STOPPING": 0, "STARTING": 1, "RUNNING": 2, "PENDING": 3, "HELD": 4}
_MOST_NODES, _MOST_QUEUES, _MOST_JOBS = 16, 8, 200
_LEAST = 2  # rows of a table, however small the screen
_FRAME = 4  # lines of a table that are not rows
_SPARE = ("ran", "queue", "user", "age", "nodes", "gpus")


@click.command()
@click.option("--once", is_flag=True, help="Print once and exit.")
@INTERVAL
@server_options
def top(*, once: bool, interval: float, server: str | None, token_file: str | None) -> None:
    """Watch nodes, queues and jobs on one screen, until Ctrl-C.

    \b
    Examples:
      rota top
      rota top --interval 5
      rota top --once
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rich.console import Console
    from rich.live import Live

    with connect(server, token_file, patience_s=1.0 if once else LONG_PATIENCE_S) as rota:
        width = None if sys.stdout.isatty() else WIDE
        console = Console(highlight=False, markup=False, emoji=False, width=width)
        if once or not console.is_terminal:
            height = console.height if console.is_terminal else 0
            console.print(_Picture(rota).draw(height, console.width))
            return
        rota.patience_s = 0  # the screen says it when the daemon is away
        picture = _Picture(rota)
        with suppress(KeyboardInterrupt), Live(console=console, screen=True) as live:
            while True:
                live.update(picture.draw(console.height, console.width), refresh=True)
                time.sleep(interval)


class _Picture:
    """What was seen last, and how it looks."""

    def __init__(self, rota: "Client") -> None:
        self._rota = rota
        self._status: dict[str, Any] | None = None
        self._nodes: list[NodeInfo] = []
        self._queues: list[QueueInfo] = []
        self._jobs: list[JobInfo] = []
        self._cut = False  # more are waiting than were asked for

    def draw(self, height: int, width: int = WIDE) -> "Group":
        """Look and draw; if the daemon is away, what was seen before (if anything was).

        What there is no room for is counted.
        """
        from rich.console import Group

        trouble = ""
        try:
            self._look()
        except UnavailableError as error:
            if self._status is None:
                raise
            trouble = f"  [{error}]"
        header = clean(self._header() + trouble)
        nodes, queues, jobs = self._most(height - ceil(len(header) / width) if height else 0)
        parts: list[str | Table] = [header, _nodes(self._nodes, nodes, width)]
        if self._queues:
            parts.append(_queues(self._queues, queues, width))
        parts.append(_jobs(self._jobs, jobs, width, cut=self._cut))
        return Group(*parts)

    def _most(self, lines: int) -> tuple[int, int, int]:
        """Rows of nodes, queues and jobs; `lines`: that there are, 0 for as many as one likes."""
        if not lines:
            return _MOST_NODES, _MOST_QUEUES, _MOST_JOBS
        lines -= _FRAME * (3 if self._queues else 2)
        nodes = min(_MOST_NODES, max(_LEAST, lines // 3))
        queues = min(_MOST_QUEUES, max(_LEAST, lines // 5)) if self._queues else 0
        shown = _rows(self._nodes, nodes) + _rows(self._queues, queues)
        return nodes, queues, max(_LEAST, lines - shown - 1)

    def _look(self) -> None:
        self._status = self._rota.status()
        self._nodes = self._rota.nodes()
        self._queues = self._rota.queues()
        on_nodes = [state for state in STATES if state not in (*_WAITING, *ENDED)]
        waiting = list(self._rota.jobs(states=_WAITING, active=True, limit=PAGE))
        placed = list(self._rota.jobs(states=on_nodes, active=True, limit=PAGE))
        found = [*waiting, *placed]
        self._jobs = list({job.id: job for job in found}.values())  # one may just have started
        self._cut = PAGE in (len(waiting), len(placed))

    def _header(self) -> str:
        status = self._status or {}
        gpus = status.get("gpus") or {}
        jobs = status.get("jobs") or {}
        counts = ", ".join(f"{count} {state.lower()}" for state, count in sorted(jobs.items()))
        since = status.get("started_at")
        up = f", up {ticking(status.get('now', time.time()) - since)}" if since else ""
        return clean(
            f"rota {status.get('version', '?')}  {status.get('policy', '?')} on "
            f"{status.get('placement', '?')} ({status.get('backend', '?')}){up}  "
            f"GPUs {amount(gpus.get('used'))} of {amount(gpus.get('total'))} in use  "
            f"jobs: {counts or 'none'}"
        )


def _rows(items: Sequence[Any], most: int) -> int:
    """Lines that a table takes for these, with the one that says how many more there are."""
    return min(len(items), most + 1)


def _table(
    headings: Sequence[str],
    rows: list[list[str]],
    more: int,
    width: int,
    spare: Sequence[str],
    *,
    cut: bool = False,
) -> "Table":
    """One line for each row; what has no room is left out or cut."""
    from rich import box
    from rich.table import Table

    if more > 0:
        count = f"{more} or more" if cut else f"{more} more"
        rows = [*rows, [f"\N{HORIZONTAL ELLIPSIS} {count}", *[""] * (len(headings) - 1)]]
    gone = too_wide(headings, rows, width, spare)
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        if heading not in gone:
            made.add_column(heading, no_wrap=True, overflow="ellipsis")
    for row in rows:
        cells = zip(headings, row, strict=True)
        made.add_row(*(cell for heading, cell in cells if heading not in gone))
    return made


def bar(used: float, total: float) -> str:
    """A bar of `#` and dots."""
    filled = round(_BAR * min(1.0, max(0.0, used / total))) if total > 0 else 0
    return "#" * filled + "." * (_BAR - filled)


def _nodes(nodes: list[NodeInfo], most: int, width: int) -> "Table":
    headings = ("node", "state", "gpus in use", "", "type", "jobs")
    fullest = sorted(nodes, key=lambda node: (node.state == "up", node.free_gpus - node.gpus))
    rows = []
    for node in fullest[:most]:
        used = node.gpus - node.free_gpus
        rows.append(
            [clean(node.name), node.state, bar(used, node.gpus),
             f"{amount(round(used, 2))}/{amount(node.gpus)}", clean(node.gpu_type) or "-",
             shortened(node.jobs, 4)]
        )  # fmt: skip
    return _table(headings, rows, len(nodes) - most, width, ("type", "jobs", "gpus in use"))


def _queues(queues: list[QueueInfo], most: int, width: int) -> "Table":
    headings = ("queue", "quota", "gpus", "asked", "running", "pending", "held")
    busiest = sorted(queues, key=lambda queue: -(queue.gpus + queue.asked_gpus))
    rows = [
        [clean(queue.name) or "(none)", amount(queue.quota), amount(queue.gpus),
         amount(queue.asked_gpus), str(queue.running), str(queue.pending), str(queue.held)]
        for queue in busiest[:most]
    ]  # fmt: skip
    return _table(headings, rows, len(queues) - most, width, ("held", "quota", "asked"))


def _jobs(jobs: list[JobInfo], most: int, width: int, *, cut: bool) -> "Table":
    headings = ("job", "name", "user", "queue", "state", "why", "gpus", "nodes", "age", "ran")
    now = time.time()
    first = sorted(jobs, key=lambda job: (_ORDER.get(job.state, 9), job.submitted_at))
    rows = [
        [job.id, clean(job.name) or "-", clean(job.user) or "-", clean(job.queue) or "-",
         job.state, clean(job.reason) or "-", job.sized(), shortened(list(job.nodes), 2),
         ticking(now - job.submitted_at), ticking(job.run_s) if job.starts else "-"]
        for job in first[:most]
    ]  # fmt: skip
    return _table(headings, rows, len(jobs) - most, width, _SPARE, cut=cut)
