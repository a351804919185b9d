"""Reservations of all jobs on one set of nodes, kept from one decision to the next.

Planning all jobs anew in the order of their reservations gives the same as moving them up one by
one in this order, each beside all others: before the reservation of a job only those hold anything
that come before it in the order, and from then on its own place is kept for it.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator

from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.view import arrival
from rota.policies.backfill.profile import Profile

Place = tuple[float, float, int]
"""When a job is to start, when it was submitted, its number: the order of planning."""


class Book:
    """Who runs until when, who is to start when, and what is free beside all of them."""

    def __init__(self, nodes: int, gpus: float, profile: Profile) -> None:
        self.nodes = nodes
        self.gpus = gpus  # of these nodes
        self._profile = profile
        self._running: dict[int, tuple[float, float, Job]] = {}  # end by estimate, GPUs
        self._waiting: dict[int, tuple[Job, float, float]] = {}  # seconds by estimate, start
        self._order: list[Place] = []
        self._sizes: Counter[float] = Counter()  # how many of those that wait ask for so many GPUs

    @property
    def next_s(self) -> float:
        """When the first job is to start."""
        return self._order[0][0] if self._order else INF

    def end_s(self, job: Job) -> float | None:
        """When a running job is to end; None: it does not run."""
        found = self._running.get(job.index)
        return None if found is None else found[0]

    def running(self) -> Iterator[tuple[int, float]]:
        """Who runs until when."""
        return ((index, end_s) for index, (end_s, _, _) in self._running.items())

    def waiting(self) -> Iterator[tuple[int, float]]:
        """Who is to start when."""
        return ((index, start_s) for index, (_, _, start_s) in self._waiting.items())

    # --- entries that the profile contains already ------------------------------------------------

    def note_running(self, job: Job, end_s: float, gpus: float) -> None:
        """It runs until then."""
        self._running[job.index] = (end_s, gpus, job)

    def note_waiting(self, job: Job, needs_s: float, start_s: float) -> None:
        """It waits until then."""
        self._waiting[job.index] = (job, needs_s, start_s)
        self._sizes[job.gpus] += 1
        insort(self._order, (start_s, job.submit_s, job.index))

    def note_start(self, job: Job, now_s: float) -> None:
        """It starts now, as planned."""
        needs_s = self._forget(job.index)[1]
        self._running[job.index] = (now_s + needs_s, job.gpus, job)

    def _forget(self, index: int) -> tuple[Job, float, float]:
        entry = self._waiting.pop(index)
        job, _, start_s = entry
        del self._order[bisect_left(self._order, (start_s, job.submit_s, index))]
        self._sizes[job.gpus] -= 1
        if not self._sizes[job.gpus]:
            del self._sizes[job.gpus]
        return entry

    # --- changes ----------------------------------------------------------------------------------

    def advance(self, now_s: float) -> None:
        """It is now so late."""
        self._profile.advance(now_s)

    def release(self, jobs: Iterable[Job], now_s: float) -> bool:
        """These run or wait no more; True if others may start earlier by that."""
        freed = False
        for job in jobs:
            if job.index in self._running:
                end_s, gpus, _ = self._running.pop(job.index)
                if end_s > now_s:
                    self._profile.give(now_s, end_s, gpus)
                    freed = True
            elif job.index in self._waiting:
                _, needs_s, start_s = self._forget(job.index)
                self._profile.give(start_s, start_s + needs_s, job.gpus)
                freed = True
        return freed

    def reserve(self, jobs: Iterable[tuple[Job, float]]) -> None:
        """These are new, with the seconds that they need: each starts as early as possible."""
        for job, needs_s in jobs:
            start_s = self._profile.earliest(job.gpus, needs_s)
            self._profile.take(start_s, start_s + needs_s, job.gpus)
            self.note_waiting(job, needs_s, start_s)

    def move_up(self, new: Iterable[tuple[Job, float]], now_s: float) -> list[Job]:
        """Move everybody up in the order of planning, after that new ones; see `_due`."""
        for job, needs_s in new:
            self.note_waiting(job, needs_s, INF)
        profile, waiting = self._profile, self._waiting
        if not any(map(profile.openings, self._sizes)):  # nobody finds more than he has
            return self.due(now_s)
        planned = self._order
        order = planned.copy()
        for number, (was_s, submit_s, index) in enumerate(planned):
            job, needs_s, _ = waiting[index]
            start_s = profile.sooner(job.gpus, needs_s, was_s)
            if start_s < was_s:
                profile.give(was_s, was_s + needs_s, job.gpus)
                profile.take(start_s, start_s + needs_s, job.gpus)
                waiting[index] = (job, needs_s, start_s)
                order[number] = (start_s, submit_s, index)
        return self._due(order, now_s)

    def _due(self, planned: list[Place], now_s: float) -> list[Job]:
        """Take over where everybody is now; those that are to start now, in order of planning."""
        self._order = sorted(planned)
        return [self._waiting[index][0] for start_s, _, index in planned if start_s <= now_s]

    def plan_anew(
        self, gone: Iterable[Job], new: Iterable[tuple[Job, float]], now_s: float
    ) -> list[Job]:
        """Reserve again for all in the order of planning, last for new ones; see `_due`."""
        for job in gone:
            if job.index in self._running:
                del self._running[job.index]
            elif job.index in self._waiting:
                self._forget(job.index)
        for job, needs_s in new:
            self.note_waiting(job, needs_s, INF)
        running = sorted(self._running.values(), key=lambda entry: arrival(entry[2]))
        uses = [(now_s, max(end_s, now_s), gpus) for end_s, gpus, _ in running]
        profile = self._profile = Profile(now_s, self.gpus, uses)
        waiting, planned = self._waiting, self._order
        wants = [waiting[index] for _, _, index in planned]
        starts = profile.reserve([(job.gpus, needs_s) for job, needs_s, _ in wants])
        order = planned.copy()
        for number, start_s in enumerate(starts):
            was_s, submit_s, index = planned[number]
            if start_s != was_s:
                job, needs_s, _ = wants[number]
                waiting[index] = (job, needs_s, start_s)
                order[number] = (start_s, submit_s, index)
        return self._due(order, now_s)

    def due(self, now_s: float) -> list[Job]:
        """Those that are to start now, in the order of planning."""
        found = []
        for start_s, _, index in self._order:
            if start_s > now_s:
                break
            found.append(self._waiting[index][0])
        return found

    def start_s(self, job: Job) -> float:
        """When it is to start."""
        return self._waiting[job.index][2]
