"""`rota top`: the cluster at a glance."""

import sys
import time
from contextlib import suppress
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
    span,
)
from rota.cli.show import WIDE
from rota.core.errors import UnavailableError

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from rota.daemon.info import JobInfo, NodeInfo, QueueInfo
    from rota.sdk import Client

_BAR = 20  # characters of a bar
_ORDER = {"STOPPING": 0, "STARTING": 1, "RUNNING": 2, "PENDING": 3, "HELD": 4}
_MOST_NODES, _MOST_QUEUES, _MOST_JOBS = 16, 8, 200


@click.command()
@click.option("--once", is_flag=True, help="Print one picture and end.")
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
            console.print(_Picture(rota).draw(console.height if console.is_terminal else 0))
            return
        rota.patience_s = 0  # the screen says it when the daemon is away
        picture = _Picture(rota)
        with suppress(KeyboardInterrupt), Live(console=console, screen=True) as live:
            while True:
                live.update(picture.draw(console.height), refresh=True)
                time.sleep(interval)


class _Picture:
    """What was seen last, and how it looks."""

    def __init__(self, rota: "Client") -> None:
        self._rota = rota
        self._status: dict[str, Any] | None = None
        self._nodes: list[NodeInfo] = []
        self._queues: list[QueueInfo] = []
        self._jobs: list[JobInfo] = []

    def draw(self, height: int) -> "Group":
        """Look and draw; if the daemon is away, what was seen before (if anything was)."""
        from rich.console import Group

        trouble = ""
        try:
            self._look()
        except UnavailableError as error:
            if self._status is None:
                raise
            trouble = f"  [{error}]"
        parts: list[str | Table] = [self._header() + clean(trouble), _nodes(self._nodes)]
        if self._queues:
            parts.append(_queues(self._queues))
        used = 8 + min(len(self._nodes), _MOST_NODES) + min(len(self._queues), _MOST_QUEUES) + 6
        most = max(3, height - used) if height else _MOST_JOBS
        parts.append(_jobs(self._jobs, most))
        return Group(*parts)

    def _look(self) -> None:
        self._status = self._rota.status()
        self._nodes = self._rota.nodes()
        self._queues = self._rota.queues()
        self._jobs = list(self._rota.jobs(active=True))

    def _header(self) -> str:
        status = self._status or {}
        gpus = status.get("gpus") or {}
        jobs = status.get("jobs") or {}
        counts = ", ".join(f"{count} {state.lower()}" for state, count in sorted(jobs.items()))
        since = status.get("started_at")
        up = f", up {span(status.get('now', time.time()) - since)}" if since else ""
        return clean(
            f"rota {status.get('version', '?')}  {status.get('policy', '?')} on "
            f"{status.get('placement', '?')} ({status.get('backend', '?')}){up}  "
            f"GPUs {amount(gpus.get('used'))} of {amount(gpus.get('total'))} in use  "
            f"jobs: {counts or 'none'}"
        )


def _table(*headings: str) -> "Table":
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        made.add_column(heading, no_wrap=True, overflow="ellipsis")
    return made


def bar(used: float, total: float) -> str:
    """A bar of `#` and dots."""
    filled = round(_BAR * min(1.0, max(0.0, used / total))) if total > 0 else 0
    return "#" * filled + "." * (_BAR - filled)


def _nodes(nodes: "list[NodeInfo]") -> "Table":
    made = _table("node", "state", "gpus in use", "", "type", "jobs")
    fullest = sorted(nodes, key=lambda node: (node.state == "up", node.free_gpus - node.gpus))
    for node in fullest[:_MOST_NODES]:
        used = node.gpus - node.free_gpus
        made.add_row(
            clean(node.name), node.state, bar(used, node.gpus),
            f"{amount(round(used, 2))}/{amount(node.gpus)}", clean(node.gpu_type) or "-",
            shortened(node.jobs, 4),
        )  # fmt: skip
    if len(nodes) > _MOST_NODES:
        made.add_row(f"... {len(nodes) - _MOST_NODES} more", "", "", "", "", "")
    return made


def _queues(queues: "list[QueueInfo]") -> "Table":
    made = _table("queue", "quota", "gpus", "asked", "running", "pending", "held")
    busiest = sorted(queues, key=lambda queue: -(queue.gpus + queue.asked_gpus))
    for queue in busiest[:_MOST_QUEUES]:
        made.add_row(
            clean(queue.name) or "(none)", amount(queue.quota), amount(queue.gpus),
            amount(queue.asked_gpus), str(queue.running), str(queue.pending), str(queue.held),
        )  # fmt: skip
    return made


def _jobs(jobs: "list[JobInfo]", most: int) -> "Table":
    made = _table("job", "name", "user", "queue", "state", "why", "gpus", "nodes", "age", "ran")
    now = time.time()
    jobs = sorted(jobs, key=lambda job: (_ORDER.get(job.state, 9), job.submitted_at))
    for job in jobs[:most]:
        made.add_row(
            job.id, clean(job.name) or "-", clean(job.user) or "-", clean(job.queue) or "-",
            job.state, clean(job.reason) or "-", amount(job.gpus), shortened(list(job.nodes), 2),
            span(now - job.submitted_at), span(job.run_s) if job.starts else "-",
        )  # fmt: skip
    if len(jobs) > most:
        made.add_row("...", f"{len(jobs) - most} more", *[""] * 8)
    return made
