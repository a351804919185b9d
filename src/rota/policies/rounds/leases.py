"""Leases: what each job has, since when, and on whose account."""

from collections.abc import Callable, Container, Iterable, Mapping

import msgspec

from rota.core.events import INF
from rota.core.jobs import RUNNING, STARTING, Job
from rota.core.topology import Topology
from rota.policies.rounds.types import held_type

_DUST = 1e-6  # seconds


class Seat(msgspec.Struct, frozen=True):
    """What a job has in a plan: GPUs of a type (None: of several types, or no GPUs).

    `counts` is the type that it counts as where shares are counted, and `account` for whom: for the
    job itself, for the number of a pair, or for nobody (of a pair one job counts for both).
    """

    kind: str | None
    gpus: float
    tenant: str
    counts: str | None = None
    account: int | None = None


class Lease(msgspec.Struct):
    """A seat since a job got it, or others of the same type.

    `began_s` and `ran_s` are the time and the job's seconds of progress then. `since_s`: what it
    got before is written down. `until_s`: the progress at which its term ends, if it has one.
    """

    seat: Seat
    began_s: float
    ran_s: float
    since_s: float
    until_s: float = -INF


Record = Callable[[int, Seat, float], None]
"""Write down for how many seconds a job had a seat."""


class Leases:
    """The leases of all jobs that run, by their numbers."""

    def __init__(self, record: Record | None = None) -> None:
        self.held: dict[int, Lease] = {}
        self._record = record

    # --- who has what -----------------------------------------------------------------------------

    def keep_only(self, running: Container[int], now_s: float) -> None:
        """Jobs that do not run any more have no leases."""
        self._end([index for index in self.held if index not in running], now_s)

    def settle(
        self, jobs: Mapping[int, Job], seats: Mapping[int, Seat], topology: Topology, now_s: float
    ) -> None:
        """Jobs have these seats from now on: who stays on a type keeps its lease."""
        self.keep_only(seats, now_s)
        for index, seat in seats.items():
            job, lease = jobs[index], self.held.get(index)
            if lease is not None and seat.kind in (None, held_type(job, topology)):
                if (lease.seat.counts, lease.seat.account) != (seat.counts, seat.account):
                    self._write(index, lease, now_s)
                lease.seat = seat
                continue
            if lease is not None:
                self._end([index], now_s)
            self.held[index] = Lease(seat, now_s, job.executed_s(now_s), now_s)

    def account(self, now_s: float) -> None:
        """Write down what everyone got so far."""
        for index, lease in self.held.items():
            self._write(index, lease, now_s)

    def _end(self, indices: Iterable[int], now_s: float) -> None:
        for index in indices:
            self._write(index, self.held.pop(index), now_s)

    def _write(self, index: int, lease: Lease, now_s: float) -> None:
        seconds, lease.since_s = now_s - lease.since_s, now_s
        if self._record is not None:
            self._record(index, lease.seat, seconds)

    # --- payback ----------------------------------------------------------------------------------

    def unpaid(self, job: Job, now_s: float) -> bool:
        """Its start took longer than it has made progress since."""
        if job.phase == STARTING or job.moving:
            return True
        lease = self.held.get(job.index)
        if lease is None:
            return False
        return now_s - lease.began_s > 2.0 * (job.executed_s(now_s) - lease.ran_s)

    def paid_s(self, job: Job, now_s: float) -> float:
        """When a job that makes progress will have paid for its start; now if it has."""
        if not self.unpaid(job, now_s):
            return now_s
        if job.phase == STARTING or job.moving:
            return INF
        lease = self.held[job.index]
        return now_s + (now_s - lease.began_s - 2 * (job.executed_s(now_s) - lease.ran_s))

    # --- terms ------------------------------------------------------------------------------------

    def extend(self, job: Job, now_s: float, length_s: float) -> None:
        """Its term is so many seconds of progress from now on."""
        self.held[job.index].until_s = job.executed_s(now_s) + length_s

    def lasts(self, job: Job, now_s: float) -> bool:
        """Its term has not ended."""
        lease = self.held.get(job.index)
        return lease is not None and lease.until_s - job.executed_s(now_s) > _DUST

    def end_s(self, job: Job, now_s: float) -> float:
        """When its term ends; inf while the job makes no progress yet."""
        lease = self.held.get(job.index)
        if lease is None or (job.running and job.phase != RUNNING):
            return INF
        return now_s + (lease.until_s - job.executed_s(now_s))
