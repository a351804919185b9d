"""Seats: who has GPUs of which type in a plan in the making."""

from collections.abc import Iterable, Sequence

from rota.core.allocation import host_of
from rota.core.jobs import Job
from rota.core.plan import LocalityPlan, PairingPlan
from rota.core.view import View
from rota.policies.rounds.leases import Leases, Seat
from rota.policies.rounds.types import held_type


def pair_number(one: int, other: int) -> int:
    """The number of a pair of jobs: below those of all jobs."""
    return -1 - (min(one, other) << 31) - max(one, other)


class RoundPlan(LocalityPlan, PairingPlan):
    """Types of GPUs, and jobs that share them."""


class Seats:
    """A plan in the making; `placed` are the jobs that have a seat in it.

    With `any_type`, the only type of a cluster is not named to the placement.
    """

    def __init__(
        self, view: View, plan: RoundPlan, leases: Leases, *, any_type: bool = False
    ) -> None:
        self.view = view
        self.plan = plan
        self.placed: dict[int, Seat] = {}
        self._leases = leases
        self._any_type = any_type and len(view.topology.types) == 1

    # --- where they are ---------------------------------------------------------------------------

    def keep(self, jobs: Iterable[Job]) -> None:
        """They go on where they are and with whom, if there is still room."""
        guests = []
        for job in jobs:
            if job.index in self.placed or not job.running:
                continue
            if host_of(job.allocation) >= 0:
                guests.append(job)
            elif self.plan.place(job):
                self._stay(job, job.index)
        for job in guests:
            host = self.view.active.get(host_of(job.allocation))
            if host is not None and host.index in self.placed:
                if self.plan.place_beside(job, host):
                    self._stay(host, pair_number(host.index, job.index))
                    self._stay(job, None)
            elif self.plan.place(job):
                self._stay(job, job.index)

    def _stay(self, job: Job, account: int | None) -> None:
        kind = held_type(job, self.view.topology)
        lease = self._leases.held.get(job.index)
        counts = kind if lease is None else lease.seat.counts
        self.placed[job.index] = Seat(kind, job.gpus, job.tenant, counts, account)

    # --- on a type --------------------------------------------------------------------------------

    def seat(
        self, job: Job, kind: str, *, counts: str | None = None, max_nodes: int | None = None
    ) -> bool:
        """Start it on GPUs of a type or move it there, if there is room."""
        gpu_type = None if self._any_type else kind
        if not self.plan.place_on(job, gpu_type=gpu_type, max_nodes=max_nodes):
            return False
        counts = kind if counts is None else counts
        self.placed[job.index] = Seat(kind, job.gpus, job.tenant, counts, job.index)
        return True

    def seat_first(self, job: Job, kinds: Iterable[str]) -> bool:
        """The same on the first of these types that has room."""
        return any(self.seat(job, kind) for kind in kinds)

    def seat_together(self, jobs: Sequence[Job], kind: str, *, counts: str) -> bool:
        """Seat the first of these on GPUs of a type, and the others beside it if they can share."""
        host, *guests = jobs
        if not self.seat(host, kind, counts=counts):
            return False
        for guest in guests:
            if self.plan.place_beside(guest, host):
                account = pair_number(host.index, guest.index)
                self.placed[host.index] = Seat(kind, host.gpus, host.tenant, counts, account)
                self.placed[guest.index] = Seat(kind, guest.gpus, guest.tenant, counts, None)
        return True

    def anywhere(self, job: Job) -> bool:
        """Start it wherever the placement finds room."""
        if job.index in self.placed or not self.plan.place(job):
            return False
        self.placed[job.index] = Seat(None, job.gpus, job.tenant, None, job.index)
        return True
