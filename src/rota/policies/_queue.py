"""Jobs in order of arrival, for policies that keep queues between decisions."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from rota.core.jobs import Job

Entry = tuple[float, int, Job]
"""When it was submitted, its number, the job."""


class ArrivalQueue:
    """Jobs in order of arrival; those that return to the queue find their old place."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def __len__(self) -> int:
        """How many there are."""
        return len(self.entries)

    def __iter__(self) -> Iterator[Job]:
        """In order of arrival."""
        return (job for _, _, job in self.entries)

    @property
    def first(self) -> Job:
        """The oldest one."""
        return self.entries[0][2]

    def add(self, job: Job) -> None:
        """It comes, or returns."""
        entries = self.entries
        entry = (job.submit_s, job.index, job)
        if not entries or entry[:2] > entries[-1][:2]:
            entries.append(entry)
        else:
            insort(entries, entry)

    def discard(self, job: Job) -> bool:
        """It leaves; False if it was not there."""
        entries = self.entries
        at = bisect_left(entries, (job.submit_s, job.index))
        if at < len(entries) and entries[at][2] is job:
            del entries[at]
            return True
        return False
