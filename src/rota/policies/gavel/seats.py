"""Placing the jobs of a round, as far as there is room for them."""

from collections.abc import Iterable, Mapping

from rota.core.jobs import Job
from rota.core.view import Draft
from rota.policies.gavel.leases import ANYWHERE, Seat
from rota.policies.gavel.ledger import Ledger

LATE = 2.0  # rounds behind, from which on a job takes the place of others that would stay


class Seats:
    """A plan in the making; `placed` are the jobs that have GPUs in it."""

    def __init__(self, draft: Draft, ledger: Ledger, jobs: Mapping[int, Job], now_s: float) -> None:
        self.draft = draft
        self.placed: dict[int, Seat] = {}
        self._ledger = ledger
        self._books = ledger.books
        self._jobs = jobs
        self._now_s = now_s

    def put(self, job: Job, kind: int) -> bool:
        """On GPUs of this type, if there is room."""
        if len(self._ledger.kinds) == 1:
            return self.draft.place(job)
        return self.draft.place(job, gpu_type=self._ledger.kinds[kind])

    def without_gpus(self) -> None:
        """Jobs without GPUs run as long as there is room; those that run go first."""
        idle = [job for job in self._jobs.values() if not job.gpus]
        for job in sorted(idle, key=lambda job: not job.running):
            self.draft.place(job)

    def keep(self, running: Iterable[Job]) -> None:
        """They go on where they are."""
        held = self._ledger.leases.held
        for job in running:
            if job.gpus:
                self.draft.place(job)
                kind, lease = self._ledger.kind_of(job), held.get(job.index)
                self.placed[job.index] = Seat(kind, kind if lease is None else lease.kind)

    def begin(self, running: Iterable[Job], turns: Iterable[int]) -> None:
        """A new round: who must not be stopped yet, whose turn it is, and those chosen."""
        leases, free = self._ledger.leases, list(self._books.capacity)
        unpaid = [job for job in running if job.gpus and leases.unpaid(job, self._now_s)]
        self.keep(unpaid)
        for job in unpaid:
            for kind, gpus in self._ledger.used(job):
                free[kind] -= gpus
        for index in [index for index in turns if index in self._jobs]:
            if index not in self.placed and self.draft.place(self._jobs[index]):
                self.placed[index] = Seat(ANYWHERE, ANYWHERE)
        absent = [index for index in self._books.jobs if index not in self._jobs]
        self._choose(self._books.choose(free=free, without={*absent, *self.placed}))

    def _choose(self, chosen: list[tuple[int, int]]) -> None:
        """Those far behind, then those that stay where they are, then the others."""
        behind = self._books.shortfall()
        others = []
        for index, kind in chosen:
            if behind[index] > LATE:
                self._anyhow(index, kind)
        for index, kind in chosen:
            job = self._jobs[index]
            if index in self.placed:
                continue
            if not job.running or self._ledger.kind_of(job) != kind or not self.put(job, kind):
                others.append((index, kind))
            else:
                self.placed[index] = Seat(kind, kind)
        for index, kind in others:
            if self.put(self._jobs[index], kind):
                self.placed[index] = Seat(kind, kind)

    def _anyhow(self, index: int, kind: int) -> None:
        """On another type if need be: it counts as the one that it should have."""
        speeds = self._books.worth([index])[0]
        for other in sorted(range(len(speeds)), key=lambda k: (k != kind, -speeds[k])):
            if speeds[other] > 0 and self.put(self._jobs[index], other):
                self.placed[index] = Seat(other, kind)
                return

    def fill(self) -> None:
        """What is left goes to whoever can use it, the most urgent first."""
        wishes = self._books.wishes()
        left = [index for index in wishes.jobs if index in self._jobs and index not in self.placed]
        for job in self.draft.candidates([self._jobs[index] for index in left]):
            kinds = wishes.kinds(job.index)
            here = self._ledger.kind_of(job) if job.running else ANYWHERE
            if here in kinds:  # it need not move for what nobody else wants
                kinds.sort(key=lambda kind: kind != here)
            for kind in kinds:
                if self.put(job, kind):
                    self.placed[job.index] = Seat(kind, kind)
                    break
            else:
                if job.index in self._ledger.wide and self.draft.place(job):
                    self.placed[job.index] = Seat(ANYWHERE, ANYWHERE)

    def all_served(self) -> bool:
        """Nobody who wants GPUs waits."""
        return all(index in self.placed for index, job in self._jobs.items() if job.gpus)
