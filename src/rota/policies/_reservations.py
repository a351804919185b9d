"""Reservations: whoever waits first for its nodes is promised a time, and nobody may break it.

A head is a waiting job before which nobody waits that competes with it (`Draft.eligible`). There is
one in every partition: jobs whose eligible nodes have none in common have heads of their own.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from rota.core.jobs import Job
from rota.core.view import Draft


class Reservation(msgspec.Struct, frozen=True):
    """What a head was promised: it fits on its nodes at this time (inf: nobody knows when)."""

    job: Job
    nodes: int
    start_s: float


class Reservations:
    """The heads of one decision, and the ends of all jobs that run or start in it.

    `releases` are the running jobs, all named in the draft, with the times at which they end by
    estimate.
    """

    def __init__(self, plan: Draft, releases: Iterable[tuple[float, Job]]) -> None:
        self.heads: list[Reservation] = []
        self._plan = plan
        self._releases = list(releases)
        self._delaying: dict[int, float] = {}  # shape -> a promise that one more would break

    def serve(self, waiting: Sequence[Job], end_s: Callable[[Job], float]) -> None:
        """Start who fits and breaks no promise, in this order; heads get reservations.

        `end_s`: when a job ends by estimate if it starts now.
        """
        plan = self._plan
        first = next((i for i, job in enumerate(waiting) if not self.start(job, end_s(job))), -1)
        if first < 0:
            return
        self.reserve(waiting[first])
        held = self.heads[0].nodes  # nodes of those who wait
        others = waiting[first:]
        started: set[int] = set()
        for job in plan.candidates(others[1:]):
            if self.start(job, end_s(job)):
                started.add(job.index)
                continue
            nodes = plan.eligible(job)
            if not nodes & held and not self._behind(job, nodes, others, started):
                self.reserve(job)
            held |= nodes

    def start(self, job: Job, end_s: float) -> bool:
        """Start it now if it fits and delays no head; it ends at `end_s` by estimate."""
        plan = self._plan
        if end_s > self._delaying.get(job.shape.number, end_s) or not plan.place(job):
            return False
        self._releases.append((end_s, job))
        nodes = plan.eligible(job)
        for head in self.heads:
            if (
                end_s > head.start_s
                and nodes & head.nodes
                and plan.earliest(head.job, self._releases) > head.start_s
            ):
                plan.withdraw(job)
                self._releases.pop()
                # until somebody starts, one like it would go to the same place
                self._delaying[job.shape.number] = head.start_s
                return False
        self._delaying.clear()
        return True

    def reserve(self, job: Job) -> float:
        """Promise it the earliest time at which it fits if nobody else starts."""
        start_s = self._plan.earliest(job, self._releases)
        self.heads.append(Reservation(job, self._plan.eligible(job), start_s))
        return start_s

    def _behind(self, job: Job, nodes: int, waiting: Sequence[Job], started: set[int]) -> bool:
        """Does anybody wait before it for the same nodes, tried or not?"""
        for other in waiting:
            if other is job:
                return False
            if other.index not in started and self._plan.eligible(other) & nodes:
                return True
        return False
