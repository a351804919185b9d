"""Placing the jobs of a round, as far as there is room for them."""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from rota.core.allocation import host_of
from rota.core.jobs import Job
from rota.core.view import Draft
from rota.policies.gavel.leases import ANYWHERE, Seat
from rota.policies.gavel.ledger import SLACK, Ledger, pair_number

LATE = 2.0  # rounds behind, from which on a job takes the place of others that would stay


class Choice(NamedTuple):
    """A job or a pair, the type that it gets, and the one that it counts as."""

    number: int
    kind: int
    counts: int


class Seats:
    """A plan in the making; `placed` are the jobs that have GPUs in it."""

    def __init__(self, draft: Draft, ledger: Ledger, jobs: Mapping[int, Job], now_s: float) -> None:
        self.draft = draft
        self.placed: dict[int, Seat] = {}
        self._ledger = ledger
        self._books = ledger.books
        self._jobs = jobs
        self._now_s = now_s

    # --- who need not be chosen -------------------------------------------------------------------

    def without_gpus(self) -> None:
        """Jobs without GPUs run as long as there is room; those that run go first."""
        idle = [job for job in self._jobs.values() if not job.gpus]
        for job in sorted(idle, key=lambda job: not job.running):
            self.draft.place(job)

    def keep(self, running: Iterable[Job]) -> None:
        """They go on where they are, and with whom."""
        guests = []
        for job in running:
            if not job.gpus:
                continue
            if host_of(job.allocation) >= 0:
                guests.append(job)
            elif self.draft.place(job):
                self._stay(job, job.index)
        for job in guests:
            host = self._jobs.get(host_of(job.allocation))
            if host is not None and host.index in self.placed:
                if self.draft.place(job, beside=host):
                    self._stay(host, pair_number(host.index, job.index))
                    self._stay(job, None)
            elif self.draft.place(job):
                self._stay(job, job.index)

    def _stay(self, job: Job, account: int | None) -> None:
        kind, lease = self._ledger.kind_of(job), self._ledger.leases.held.get(job.index)
        self.placed[job.index] = Seat(kind, kind if lease is None else lease.kind, account)

    def _unpaid(self, running: Iterable[Job]) -> list[Job]:
        """Who must not be stopped yet, and those who share their GPUs."""
        leases = self._ledger.leases
        found = {j.index for j in running if j.gpus and leases.unpaid(j, self._now_s)}
        pairs = [(job.index, host_of(job.allocation)) for job in running]
        for guest, host in pairs:
            if host >= 0 and not found.isdisjoint((guest, host)):
                found |= {guest, host}
        return [job for job in running if job.index in found]

    # --- a new round ------------------------------------------------------------------------------

    def begin(self, running: Sequence[Job], turns: Iterable[int]) -> None:
        """Who must not be stopped yet, whose turn it is, and those chosen."""
        free = list(self._books.capacity)
        unpaid = self._unpaid(running)
        self.keep(unpaid)
        for job in unpaid:
            for kind, gpus in self._ledger.used(job):
                free[kind] -= gpus
        for index in [index for index in turns if index in self._jobs]:
            if index not in self.placed and self.draft.place(self._jobs[index]):
                self.placed[index] = Seat(ANYWHERE, ANYWHERE, index)
        absent = [index for index in self._books.jobs if index not in self._jobs]
        chosen = self._books.choose(free=free, without={*absent, *self.placed})
        self._choose(self._faster(chosen, free))

    def _faster(self, chosen: Iterable[tuple[int, int]], free: list[float]) -> list[Choice]:
        """GPUs that nobody wants go to those who are faster there: it counts as what they want."""
        out = [Choice(number, kind, kind) for number, kind in chosen]
        if not self._books.options.spare or len(free) == 1:
            return out
        sizes = [self._books.size(choice.number) for choice in out]
        for choice, size in zip(out, sizes, strict=True):
            free[choice.kind] -= size
        for place, (choice, size) in enumerate(zip(out, sizes, strict=True)):
            speeds = self._books.worth([choice.number])[0].tolist()
            room = [kind for kind, gpus in enumerate(free) if gpus >= size - SLACK]
            best = max([*room, choice.kind], key=lambda kind: (speeds[kind], kind == choice.kind))
            if best != choice.kind:
                free[choice.kind] += size
                free[best] -= size
                out[place] = choice._replace(kind=best)
        return out

    def _choose(self, chosen: Iterable[Choice]) -> None:
        """Those far behind, then those that stay where they are, then the others."""
        behind = self._books.shortfall()
        rest = []
        for choice in chosen:
            if behind[choice.number] > LATE:
                self._anyhow(choice)
            else:
                rest.append((not self._stays(choice), choice))
        for _, choice in sorted(rest, key=itemgetter(0)):
            self._put(choice)

    def _stays(self, choice: Choice) -> bool:
        members = [self._jobs[index] for index in self._books.members(choice.number)]
        return all(job.running and self._ledger.kind_of(job) == choice.kind for job in members)

    def _anyhow(self, choice: Choice) -> None:
        """On another type if need be: it counts as the one that it should have."""
        speeds = self._books.worth([choice.number])[0]
        for other in sorted(range(len(speeds)), key=lambda k: (k != choice.kind, -speeds[k])):
            if speeds[other] > 0 and self._put(choice._replace(kind=other)):
                return

    def _put(self, choice: Choice) -> bool:
        """A job, or both of a pair, on GPUs of this type if there is room."""
        number, kind, counts = choice
        members = [self._jobs[index] for index in self._books.members(number)]
        # who has the GPUs already keeps them, and the other one comes to them
        members.sort(key=lambda job: (not job.running, host_of(job.allocation) >= 0))
        host = members[0]
        if not self._alone(host, kind):
            return False
        self.placed[host.index] = Seat(kind, counts, host.index)
        for guest in members[1:]:
            if self.draft.place(guest, beside=host):
                self.placed[host.index] = Seat(kind, counts, number)
                self.placed[guest.index] = Seat(kind, counts, None)
        return True

    def _alone(self, job: Job, kind: int) -> bool:
        if len(self._ledger.kinds) == 1:
            return self.draft.place(job)
        return self.draft.place(job, gpu_type=self._ledger.kinds[kind])

    # --- the rest ---------------------------------------------------------------------------------

    def fill(self) -> None:
        """What is left goes to whoever can use it, the most urgent first."""
        wishes = self._books.wishes()
        left = [index for index in wishes.jobs if index in self._jobs and index not in self.placed]
        for job in self.draft.candidates([self._jobs[index] for index in left]):
            kinds = wishes.kinds(job.index)
            here = self._ledger.kind_of(job) if job.running else ANYWHERE
            if here in kinds:  # it need not move for what nobody else wants
                kinds.sort(key=lambda kind: kind != here)
            if any(self._put(Choice(job.index, kind, kind)) for kind in kinds):
                continue
            if job.index in self._ledger.wide and self.draft.place(job):
                self.placed[job.index] = Seat(ANYWHERE, ANYWHERE, job.index)

    def all_served(self) -> bool:
        """Nobody who wants GPUs waits."""
        return all(index in self.placed for index, job in self._jobs.items() if job.gpus)
