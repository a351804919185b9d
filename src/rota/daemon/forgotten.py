"""Jobs that a daemon knew and has forgotten: which they are, and which may be.

A daemon that runs for years would keep every job in memory and make all of them again at each
start. After a while nobody needs to know them: they are over, nothing waits for them, and nothing
of them is left on a machine. Their numbers are never given again.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

import msgspec

from rota.core.jobs import Job
from rota.daemon.settings import Retention
from rota.engine.lifecycle import with_tasks
from rota.engine.loop import Engine
from rota.live.runs import RunTable

DAY_S = 86_400.0
MOST = 20_000  # jobs that are forgotten at once: the engine waits meanwhile


class Forgotten(msgspec.Struct):
    """Numbers of forgotten jobs, as first and last ones in order; `since_s`: see `Reconfigured`."""

    ranges: list[tuple[int, int]] = []
    since_s: float = 0.0

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.ranges, number, key=lambda found: found[0])
        return at > 0 and number <= self.ranges[at - 1][1]

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    def add(self, numbers: Iterable[int], since_s: float) -> None:
        """Take more of them in."""
        pieces = [*self.ranges, *ranges_of(sorted(numbers))]
        self.ranges = []
        for first, last in sorted(pieces):
            if self.ranges and first <= self.ranges[-1][1] + 1:
                self.ranges[-1] = (self.ranges[-1][0], max(last, self.ranges[-1][1]))
            else:
                self.ranges.append((first, last))
        self.since_s = max(self.since_s, since_s)


def ranges_of(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Sorted numbers as first and last ones."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def expendable(
    engine: Engine, runs: RunTable, retention: Retention, now_s: float
) -> tuple[list[Job], float]:
    """Whole jobs that may be forgotten now, and since when all that ended are still known.

    The newest job stays, and so does whatever an unfinished one may ask for: dependencies, other
    members of its group, runs that are still being ended.
    """
    over = sorted(
        (job for job in engine.jobs.values() if job.parent is None and job.terminal),
        key=lambda job: (job.end_s, job.index),
    )
    days, count = retention.jobs_days, retention.jobs_count
    too_many = 0 if count is None else max(0, len(over) - count)
    before_s = -1.0 if days is None else now_s - days * DAY_S
    chosen = [job for n, job in enumerate(over) if n < too_many or job.end_s < before_s]
    newest = max((job.index for job in engine.jobs.values() if job.parent is None), default=0)
    kept = still_needed(engine, runs) | {newest}
    going = {job.index for job in chosen}
    found = [
        job
        for job in chosen
        if kept.isdisjoint(each.index for each in with_tasks(job))
        and (job.group is None or all(other.index in going for other in job.group.members))
    ][:MOST]
    return found, found[-1].end_s if found else 0.0


def still_needed(engine: Engine, runs: RunTable) -> set[int]:
    """Numbers of jobs to which something refers that is not over."""
    needed = {run.job.index for run in runs.by_id.values()}
    needed |= {event[3].index for event in engine.lifecycle.backlog if isinstance(event[3], Job)}
    needed |= {job.index for job in engine.executor.deferred}
    needed |= set(engine.executor.moving)
    known = engine.arrivals.by_id
    for job in engine.view.active.values():
        needed |= {known[name].index for name in job.spec.dependencies if name in known}
    return needed
