"""The books of a policy that works in rounds: who is there, where it is, what it has got."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.topology import Topology
from rota.core.view import View, arrival
from rota.policies._dispatch import Dispatcher, DispatchOptions
from rota.policies._kinds import room_by_type
from rota.policies.gavel.leases import ANYWHERE, Leases, Seat
from rota.policies.gavel.problem import Array

SLACK = 1e-9  # rounds, and GPUs

Speed = Callable[[Job, str], float]


@dataclass(frozen=True)
class Shares:
    """Shares of time by job and type, and of pairs of jobs (by their numbers) by pair and type.

    `worth`: how fast pairs are by type.
    """

    alone: Array
    pairs: Sequence[tuple[int, int]]
    together: Array
    worth: Array


def pair_number(one: int, other: int) -> int:
    """The number of a pair in the books: below those of all jobs."""
    return -1 - (min(one, other) << 31) - max(one, other)


class Ledger:
    """Everything that is remembered from one decision to the next.

    `wide` are the jobs that no single type can serve: the gang is larger than any, or it is fast
    nowhere. `stale`: jobs or nodes have changed since the shares were found.
    """

    def __init__(self, round_s: float, options: DispatchOptions, speed: Speed) -> None:
        self.round_s = round_s
        self.kinds: tuple[str, ...] = ()
        self.books = Dispatcher([], round_s, options)
        self.leases = Leases()
        self.wide: set[int] = set()
        self.stale = True
        self.crowded = False  # somebody waited after the last decision
        self.quiet = 0  # rounds since anything changed
        self.began_s = self.ends_s = -INF  # the present round
        self._speed = speed
        self._topology = Topology((), growing=True)
        self._kind: list[int] = []  # of its vertices
        self._fits: dict[int, list[bool]] = {}  # by shape: types that are large enough

    # --- who is there -----------------------------------------------------------------------------

    def meet(self, view: View, jobs: Mapping[int, Job], running: Sequence[Job]) -> None:
        """Jobs that came join the books, those that are over leave them."""
        if tuple(view.topology.types) != self.kinds:
            self._open(view)
        if len(self._kind) != len(view.topology.vertices):
            self._survey(view.topology)
        books = self.books
        fresh = view.now_s >= self.ends_s
        if fresh or view.up_gpus != sum(books.capacity):
            up = list(view.up_by_type.values())
            self.stale |= up != books.capacity
            books.capacity = up
        alive = {job.index for job in running}
        self.leases.end([i for i in self.leases.held if i not in alive], view.now_s, books)
        missing = [index for index in books.jobs if index not in jobs and index >= 0]
        over = [index for index in missing if _is_over(view, index)]
        if over:
            books.leave(*over)
            self.wide.difference_update(over)
        new = [job for index, job in jobs.items() if index not in books and job.gpus]
        if new:
            self._join(sorted(new, key=arrival))
        self.stale |= bool(over or new)

    def _open(self, view: View) -> None:
        """The cluster is new, or has other types than before: the books begin anew."""
        self.kinds = tuple(view.topology.types)
        self.books = Dispatcher(list(view.up_by_type.values()), self.round_s, self.books.options)
        self.leases = Leases()
        self.wide = set()
        self.stale = True

    def _survey(self, topology: Topology) -> None:
        numbers = {kind: number for number, kind in enumerate(self.kinds)}
        self._kind = [numbers.get(vertex.gpu_type, 0) for vertex in topology.vertices]
        self._topology, self._fits = topology, {}

    def _join(self, new: Sequence[Job]) -> None:
        speeds = [self.speeds(job) for job in new]
        self.books.join_all([job.index for job in new], [job.gpus for job in new], speeds)
        self.wide.update(job.index for job, row in zip(new, speeds, strict=True) if not any(row))

    def rethink(self, view: View) -> None:
        """Speeds are believed to be others than before."""
        numbers = [number for number in self.books.jobs if number in view.everyone]
        speeds = [self.speeds(view.everyone[number]) for number in numbers]
        self.books.rate(numbers, speeds)
        rows = zip(numbers, speeds, strict=True)
        self.wide = {number for number, row in rows if not any(row)}
        self.stale = True

    def speeds(self, job: Job) -> list[float]:
        """How fast it is on each type; 0 where it may not run or is too large."""
        number = job.shape.number
        if number not in self._fits:
            room = room_by_type(self._topology, job.shape)
            self._fits[number] = [job.gpus <= room.get(kind, 0.0) + SLACK for kind in self.kinds]
        return [
            self._speed(job, kind) if fits else 0.0
            for kind, fits in zip(self.kinds, self._fits[number], strict=True)
        ]

    def kind_of(self, job: Job) -> int:
        """The type that a running job is on (one of them, if it is on several)."""
        return self._kind[job.allocation.slices[0][0]] if len(self.kinds) > 1 else 0

    def used(self, job: Job) -> list[tuple[int, float]]:
        """The GPUs that a running job has, by type."""
        return [(self._kind[vertex], amount) for vertex, amount in job.allocation.slices]

    # --- rounds -----------------------------------------------------------------------------------

    def turn(self, now_s: float) -> list[int]:
        """A round ends and the next one begins; returns the wide jobs whose turn it is."""
        books = self.books
        lasted_s = now_s - self.began_s if self.began_s > -INF else 0.0
        self.leases.account(now_s, books)
        books.advance(lasted_s)
        self.quiet = 0 if self.stale else self.quiet + 1
        self.began_s = now_s
        self.ends_s = (int(now_s / self.round_s + SLACK) + 1) * self.round_s
        jobs = sum(index >= 0 for index in books.jobs)
        total = sum(books.capacity) / max(jobs, 1)
        parts = {index: min(1.0, total / books.size(index)) for index in sorted(self.wide)}
        return self.leases.owe(parts, lasted_s)

    def retarget(self, now_s: float, jobs: Sequence[Job], found: Shares) -> None:
        """From now on these shares hold; pairs without a share are none."""
        books = self.books
        pairs = {pair_number(*pair): pair for pair in found.pairs}
        books.leave(*[number for number in books.jobs if number < 0 and number not in pairs])
        for (number, pair), able in zip(pairs.items(), found.worth, strict=True):
            if number not in books:
                books.join(number, books.size(pair[0]), able, pair)
        numbers = [job.index for job in jobs] + list(pairs)
        books.retarget_all(now_s, numbers, np.vstack([found.alone, found.together]))
        self.stale = False

    def note(self, jobs: Mapping[int, Job], placed: Mapping[int, Seat], now_s: float) -> None:
        """These jobs have GPUs now."""
        leases = self.leases
        leases.end([index for index in leases.held if index not in placed], now_s, self.books)
        for index, seat in placed.items():
            job = jobs[index]
            if index in leases.held and seat.kind in (ANYWHERE, self.kind_of(job)):
                leases.change(index, seat, now_s, self.books)
                continue
            if index in leases.held:
                leases.end([index], now_s, self.books)
            leases.give(job, seat, now_s)

    def restless(self, placed: Mapping[int, Seat]) -> bool:
        """Somebody should spend a part of its time on another type than where it is."""
        places = [
            (seat.account, seat.counts)
            for seat in placed.values()
            if seat.account is not None and seat.account in self.books and seat.counts != ANYWHERE
        ]
        return not self.books.complete(places)

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "kinds": list(self.kinds),
            "books": self.books.snapshot(),
            "leases": self.leases.snapshot(),
            "wide": sorted(self.wide),
            "round": (self.stale, self.crowded, self.quiet, self.began_s, self.ends_s),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the state of `snapshot` up again; the cluster is looked at with the next view."""
        self.kinds = tuple(state["kinds"])
        options, capacity = self.books.options, state["books"]["capacity"]
        self.books = Dispatcher(capacity, self.round_s, options)
        self.books.restore(state["books"])
        self.leases.restore(state["leases"])
        self.wide = set(state["wide"])
        self.stale, self.crowded, self.quiet, self.began_s, self.ends_s = state["round"]


def _is_over(view: View, index: int) -> bool:
    """Not only out of sight while it is being stopped."""
    job = view.everyone.get(index)
    return job is None or job.terminal
