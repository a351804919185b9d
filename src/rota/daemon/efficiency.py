"""What jobs used, as series: a small database of its own beside the store.

It is no part of the state that decides: who loses it loses only numbers. Of a long job the older
samples are thinned out, and after some months all are dropped.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rota.core.efficiency import JobUsage, advice
from rota.core.jobs import Shape
from rota.core.sums import ordered_sum
from rota.live.agent.messages import PartUsage
from rota.wire import UsageSummary

MOST_SAMPLES = 2000  # of one job
MOST_POINTS = 200  # in an answer
KEPT_S = 90 * 86_400.0
SCHEMA = """
CREATE TABLE IF NOT EXISTS sample (
    job INTEGER, at REAL, run TEXT, node_rank INTEGER, cpus REAL, mem_gib REAL, busy REAL, idle REAL
);
CREATE INDEX IF NOT EXISTS of_job ON sample (job, at);
"""

MOST_BUSY = 20_000  # jobs


class UsageBook:
    """Samples by job; from any thread."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self.taken = 0  # reports so far
        self.busy: dict[int, float] = {}  # by job: the last that was heard of its GPUs
        self._base = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._base.execute("PRAGMA journal_mode=WAL")
        self._base.execute("PRAGMA synchronous=NORMAL")
        self._base.executescript(SCHEMA)
        self._base.execute("DELETE FROM sample WHERE at < ?", (time.time() - KEPT_S,))

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._base.close()

    def take(self, used: Iterable[PartUsage], at: float) -> None:
        """Keep what was measured."""
        rows = [
            (int(job), at, each.run, each.node_rank, each.cpus, each.mem_gib, each.busy, each.idle)
            for each in used
            if (job := each.run.partition(".")[0].partition("#")[0]).isdecimal()
        ]
        self._note_busy(rows)
        with self._lock:
            self._base.execute("BEGIN")
            self._base.executemany("INSERT INTO sample VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            for number in {row[0] for row in rows}:
                self._thin(number)
            self._base.execute("COMMIT")

    def _note_busy(self, rows: Sequence[tuple[Any, ...]]) -> None:
        heard: dict[int, list[float]] = {}
        for row in rows:
            if row[6] is not None:
                heard.setdefault(row[0], []).append(row[6])
        if len(self.busy) > MOST_BUSY:
            self.busy = {}  # most of them are over; the others tell again soon
        self.busy |= {job: ordered_sum(values) / len(values) for job, values in heard.items()}
        self.taken += bool(heard)

    def _thin(self, job: int) -> None:
        """Of too many every second one goes, of all but the newest tenth."""
        query = "SELECT count(*) FROM sample WHERE job = ?"
        if self._base.execute(query, (job,)).fetchone()[0] > MOST_SAMPLES:
            self._base.execute(
                "DELETE FROM sample WHERE job = ? AND rowid % 2 = 0 AND rowid NOT IN "
                "(SELECT rowid FROM sample WHERE job = ? ORDER BY at DESC LIMIT ?)",
                (job, job, MOST_SAMPLES // 10),
            )

    def of(self, job: int, shape: Shape, *, series: bool = False) -> JobUsage:
        """What a job used; its nodes together, as far as they were measured at about one time."""
        with self._lock:
            ranks = self._base.execute(
                "SELECT count(*), avg(cpus), max(cpus), avg(mem_gib), max(mem_gib), avg(busy), "
                "avg(idle) FROM sample WHERE job = ? GROUP BY node_rank",
                (job,),
            ).fetchall()
            points = []
            if series:
                points = self._base.execute(
                    "SELECT at, cpus, mem_gib, busy FROM sample WHERE job = ? ORDER BY at", (job,)
                ).fetchall()
        used = JobUsage(
            cpus_asked=shape.cpus, mem_asked_gib=shape.mem_gib, gpus_asked=float(shape.gpus)
        )
        if ranks:
            busy = [rank[5] for rank in ranks if rank[5] is not None]
            idle = [rank[6] for rank in ranks if rank[6] is not None]
            used.samples = max(rank[0] for rank in ranks)
            used.cpus_mean, used.cpus_peak, used.mem_mean_gib, used.mem_peak_gib = (
                sum(rank[place] for rank in ranks) for place in range(1, 5)
            )
            used.gpu_busy = ordered_sum(busy) / len(busy) if busy else None
            used.gpus_idle = ordered_sum(idle) if idle else None
        step = max(1, -(-len(points) // MOST_POINTS))
        used.series = [tuple(point) for point in points[::step]]
        used.advice = advice(used)
        return used


def summaries(jobs: Iterable[tuple[str, JobUsage, float]]) -> list[UsageSummary]:
    """Add jobs up by name, each with the seconds that it ran; those of which nothing is known do
    not count.
    """  # noqa: D205 - one sentence
    groups: dict[str, list[tuple[JobUsage, float]]] = {}
    for name, used, run_s in jobs:
        if used.samples:
            groups.setdefault(name, []).append((used, max(run_s, 1e-9)))
    return [_summary(name, found) for name, found in sorted(groups.items())]


def _summary(name: str, found: list[tuple[JobUsage, float]]) -> UsageSummary:
    total_s = ordered_sum(run_s for _, run_s in found)

    def mean(value: Callable[[JobUsage], float]) -> float:
        return ordered_sum(value(used) * run_s for used, run_s in found) / total_s

    told = [(used, run_s) for used, run_s in found if used.gpu_busy is not None]
    gpu_s = ordered_sum(used.gpus_asked * run_s for used, run_s in told)
    busy_s = ordered_sum((used.gpu_busy or 0.0) * used.gpus_asked * run_s for used, run_s in told)
    return UsageSummary(
        name=name,
        jobs=len(found),
        cpus_asked=mean(lambda used: used.cpus_asked),
        cpus_used=mean(lambda used: used.cpus_mean),
        mem_asked_gib=mean(lambda used: used.mem_asked_gib),
        mem_peak_gib=mean(lambda used: used.mem_peak_gib),
        gpus_asked=mean(lambda used: used.gpus_asked),
        gpu_busy=busy_s / gpu_s if gpu_s else None,
        gpus_idle=ordered_sum((used.gpus_idle or 0.0) * run_s for used, run_s in told) / total_s
        if told
        else None,
    )
