"""Tiresias' `dlas-gpu-gittins`: the queues of `dlas-gpu`, each sorted by a Gittins-like index.

At every event each queue is sorted by index, largest first, and then by submission; the sort is
stable, so equals keep the order of the event before. The index comes from a table over samples of
GPU-time. It differs from the textbook: the expected service uses the samples as they are instead of
what is left of them, the quantum is fixed instead of optimised, and Python 2 cuts the division to a
whole number. Rounding is Python 2's too: halves go away from zero.
"""

from bisect import bisect_right
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from itertools import accumulate
from operator import attrgetter
from pathlib import Path

from rota.core.errors import OptionError
from rota.core.events import INF
from rota.core.jobs import WAITING, Job
from rota.core.knowledge import Knowledge
from rota.core.plan import Plan
from rota.core.topology import Topology
from rota.reproduce.tiresias.queues import LIMITS, Entry, Queue, QueueScheduler

DELTA = 3250
"""GPU-seconds of the quantum (jobs.py: the limit of the first queue)."""
SCALE = 1_000_000
EARLY_S = 1e-6  # looked at a little early, so that rounding cannot hide a change

_key = attrgetter("key")


def read_samples(path: str) -> list[int]:
    """GPU-seconds of past jobs: a file with the header `duration`, one whole number per line."""
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"gittins: cannot read distribution {path!r}: {error}") from error
    header, *rows = (line.strip() for line in lines)
    if header != "duration":
        raise OptionError(
            f"gittins: distribution {path!r} begins with {header!r}: "
            f"its first line must be 'duration'"
        )
    samples = []
    for number, row in enumerate(rows, start=2):
        if not row:
            continue
        if not (row.isascii() and row.isdigit()) or int(row) < 1:
            raise OptionError(
                f"gittins: distribution {path!r}, line {number}: {row!r} is not a whole number of "
                f"seconds above 0"
            )
        samples.append(int(row))
    if not samples:
        raise OptionError(
            f"gittins: distribution {path!r} has no samples: give at least one below 'duration'"
        )
    return samples


class IndexTable:
    """The index by attained service."""

    def __init__(self, samples: Sequence[int], delta: int = DELTA) -> None:
        self.sizes = sorted(samples)
        self.indices = self._compute(delta)

    def _compute(self, delta: int) -> list[float]:
        sizes = self.sizes
        count = len(sizes)
        largest = sizes[-1]
        sums = [0, *accumulate(sizes)]
        out: list[float] = []
        for position, size in enumerate(sizes):
            if position and size == sizes[position - 1]:
                out.append(out[-1])
                continue
            reached = size - 1 + delta
            first = position
            last = count - 1 if reached > largest - 1 else bisect_right(sizes, reached)
            alive = count - first
            chance = _round((last - first) / alive, 5)
            expected = (sums[last] - sums[first] + delta * (count - last)) // alive
            out.append(_round(chance * SCALE / expected, 4))
        return out

    def rank(self, attained: int) -> tuple[float, float]:
        """The index for this much service, and the service at which it changes."""
        position = bisect_right(self.sizes, attained)
        if position == len(self.sizes):
            return 0.0, INF
        return self.indices[position], self.sizes[position]


def _round(value: float, digits: int) -> float:
    return float(Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


class GittinsScheduler(QueueScheduler):
    """Three queues by attained GPU-time, each in the order of the index."""

    def __init__(
        self,
        name: str,
        topology: Topology,
        table: IndexTable,
        *,
        limits: Sequence[float] = LIMITS,
    ) -> None:
        super().__init__(name, topology, limits=limits, knowledge=Knowledge.DISTRIBUTION)
        self._table = table

    def _enter(self, job: Job) -> Entry:
        entry = super()._enter(job)
        self._rank(entry, 0)
        return entry

    def _resume(self, entry: Entry) -> None:
        super()._resume(entry)
        self._rank(entry, int(entry.executed_s * entry.weight))

    def _rank(self, entry: Entry, attained: int) -> None:
        index, change = self._table.rank(attained)
        entry.key = (-index, entry.job.submit_s)
        entry.change_s = change / entry.weight - EARLY_S

    def fill(self, plan: Plan, free: float, now_s: float) -> None:
        """Queue by queue: whoever fits runs, in the order of the index."""
        for queue in self.queues:
            running = [*queue.running.values(), *queue.dropped]
            for entry in running:
                if now_s - entry.origin_s >= entry.change_s:
                    self._rank(entry, int((now_s - entry.origin_s) * entry.weight))
            if running or queue.waiting:
                order = [*queue.running.values(), *queue.waiting, *queue.dropped]
                order.sort(key=_key)
                free = self._serve(queue, order, free, plan, now_s)

    def _serve(
        self, queue: Queue, order: list[Entry], free: float, plan: Plan, now_s: float
    ) -> float:
        """Whoever fits, as far as there is room; what is left."""
        waiting: list[Entry] = []
        running: list[Entry] = []
        room = free
        for position, entry in enumerate(order):
            if not free:
                waiting += order[position:]
                break
            if entry.gpus <= free and (entry.runs or entry.job.phase == WAITING):
                free -= entry.gpus
                running.append(entry)
            else:
                waiting.append(entry)
        for entry in waiting:
            if entry.runs:
                self._stop(entry, plan, now_s)
        for entry in running:
            if not entry.runs:
                self._start(entry, plan, now_s)
        queue.running = {entry.number: entry for entry in running}
        queue.held = room - free
        queue.waiting = waiting
        queue.dropped.clear()
        return free
