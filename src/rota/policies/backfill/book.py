"""Reservations of all jobs on one set of nodes, kept from one decision to the next.

Planning all jobs anew in the order of their reservations gives the same as moving them up one by
one in this order, each beside all others: before the reservation of a job only those hold anything
that come before it in the order, and from then on its own place is kept for it.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rota.core.events import INF
from rota.core.jobs import Job
from rota.policies.backfill.ahead import plan_ahead
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
        self._waiting: dict[int, Job] = {}
        self._wants: dict[int, tuple[float, float]] = {}  # of those: GPUs, seconds by estimate
        self._starts: dict[int, float] = {}  # of those: when
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

    def waiting(self) -> Iterable[tuple[int, float]]:
        """Who is to start when."""
        return self._starts.items()

    # --- entries that the profile contains already ------------------------------------------------

    def note_running(self, job: Job, end_s: float, gpus: float) -> None:
        """It runs until then."""
        self._running[job.index] = (end_s, gpus, job)

    def note_waiting(self, job: Job, needs_s: float, start_s: float) -> None:
        """It waits until then."""
        index, gpus = job.index, job.gpus
        self._waiting[index] = job
        self._wants[index] = (gpus, needs_s)
        self._starts[index] = start_s
        self._sizes[gpus] += 1
        insort(self._order, (start_s, job.submit_s, index))

    def note_start(self, job: Job, now_s: float) -> None:
        """It starts now, as planned."""
        _, needs_s = self._forget(job)
        self._running[job.index] = (now_s + needs_s, job.gpus, job)

    def _forget(self, job: Job) -> tuple[float, float]:
        """It waits no more; when it was to start, and for how long."""
        index, gpus = job.index, job.gpus
        del self._waiting[index]
        _, needs_s = self._wants.pop(index)
        start_s = self._starts.pop(index)
        del self._order[bisect_left(self._order, (start_s, job.submit_s, index))]
        self._sizes[gpus] -= 1
        if not self._sizes[gpus]:
            del self._sizes[gpus]
        return start_s, needs_s

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
                start_s, needs_s = self._forget(job)
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
        profile, wants = self._profile, self._wants
        moved: dict[int, float] = {}
        more = any(map(profile.openings, self._sizes))
        for was_s, _, index in self._order if more else ():
            gpus, needs_s = wants[index]
            start_s = profile.sooner(gpus, needs_s, was_s)
            if start_s < was_s:
                profile.give(was_s, was_s + needs_s, gpus)
                profile.take(start_s, start_s + needs_s, gpus)
                moved[index] = start_s
                if not any(map(profile.openings, self._sizes)):  # nobody else finds an earlier time
                    break
        if not moved:
            return self.due(now_s)
        return self._due([moved.get(index, was_s) for was_s, _, index in self._order], now_s)

    def _due(self, starts: Sequence[float], now_s: float) -> list[Job]:
        """These are the starts of all in the order of planning; in it, those that are due now."""
        if not starts:
            return []
        waiting = self._waiting
        _, submits, indices = zip(*self._order, strict=True)
        self._starts = dict(zip(indices, starts, strict=True))
        self._order = sorted(zip(starts, submits, indices, strict=True))
        return [waiting[i] for start_s, i in zip(starts, indices, strict=True) if start_s <= now_s]

    def plan_anew(
        self, gone: Iterable[Job], new: Iterable[tuple[Job, float]], now_s: float
    ) -> list[Job]:
        """Reserve again for all in the order of planning, last for new ones; see `_due`."""
        for job in gone:
            if job.index in self._running:
                del self._running[job.index]
            elif job.index in self._waiting:
                self._forget(job)
        for job, needs_s in new:
            self.note_waiting(job, needs_s, INF)
        uses = [(end_s, gpus) for end_s, gpus, _ in self._running.values()]
        wants = self._wants
        asked = [wants[index] for _, _, index in self._order]
        self._profile, starts = plan_ahead(now_s, self.gpus, uses, asked)
        return self._due(starts, now_s)

    def due(self, now_s: float) -> list[Job]:
        """Those that are to start now, in the order of planning."""
        found = []
        for start_s, _, index in self._order:
            if start_s > now_s:
                break
            found.append(self._waiting[index])
        return found

    def start_s(self, job: Job) -> float:
        """When it is to start."""
        return self._starts[job.index]
