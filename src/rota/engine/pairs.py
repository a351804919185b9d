"""Two jobs on the same whole GPUs: plans that know and make such pairs.

A pair is one holding. The host holds the GPUs; its guest names the same places with no GPUs of its
own (`core.allocation.as_guest`), so that no GPU is counted twice. When the host has ended, the
guest inherits its GPUs (`engine.executor`).

Pairs are made anew in every plan: a job that is not placed beside another gets GPUs of its own, and
a pair goes on without any change if the two are paired again.
"""

from collections.abc import Iterable, Mapping, Sequence

from rota.core.allocation import NOTHING, Allocation, as_guest, host_of
from rota.core.changes import check_present
from rota.core.errors import PolicyError
from rota.core.jobs import Job, Shape
from rota.core.plan import PairingPlan
from rota.core.view import View
from rota.engine.plans import ChangePlan, PlacedJob, PlacementPlan, Shapes
from rota.placement.base import Placement

Guests = Mapping[int, tuple[Job, Allocation]]
"""By number of the host: the guest, and what it holds."""


def guests_of(jobs: Iterable[Job]) -> dict[int, tuple[Job, Allocation]]:
    """The guests among running jobs."""
    return {
        host_of(job.allocation): (job, job.allocation)
        for job in jobs
        if host_of(job.allocation) >= 0
    }


class SharedPlan(PlacementPlan):
    """A plan on a cluster where jobs share GPUs, be it that another policy paired them."""

    def __init__(
        self,
        view: View,
        placement: Placement,
        shapes: Shapes,
        running: dict[int, Job],
        guests: Guests,
    ) -> None:
        super().__init__(view, placement, shapes, running)
        self._guests = guests
        self._guest_of = {host: guest for host, (guest, _) in guests.items()}  # as the plan began
        self._seated: dict[int, Job] = {}  # in this plan, by number of the host
        self._hosts: dict[int, Job] = {}  # the same the other way round

    def pairs(self) -> Guests:
        """The pairs of the desired state."""
        return {host: (guest, self._held(guest)) for host, guest in self._seated.items()}

    # --- what a policy calls --------------------------------------------------------------------

    def _place(self, job: Job, gpus: float | None) -> bool:
        """Run it, alone."""
        self._part_running(job)
        return super()._place(job, gpus)

    def fill(self, jobs: Iterable[Job]) -> None:
        """`place` all in this order: none of them beside another."""
        if not self._guest_of:
            super().fill(jobs)
            return
        for job in jobs:
            self.place(job)

    def _stop(self, job: Job) -> None:
        """A guest that was not named yet loses its place with its host."""
        guest = self._guest_of.get(job.index)
        if guest is not None and job.index in self._open:
            self._unseat(guest, job)
        super()._stop(job)

    def _undone(self, job: Job) -> None:
        self._part(job)

    # --- how it is done -------------------------------------------------------------------------

    def _offered(self, host: Job) -> Allocation:
        """The GPUs that another job may use, too: those that it has in this plan."""
        return NOTHING if host.index in self._open else self._held(host)

    def _part_running(self, job: Job, gpu_type: str | None = None) -> None:
        """One of a running pair is placed by itself."""
        if job.index in self._open and self._guest_of:
            if job.index in self._guest_of:
                self._unseat(self._guest_of[job.index], job)
            elif host_of(job.allocation) >= 0:
                self._leave_host(job, gpu_type)

    def _part(self, job: Job) -> None:
        host = self._hosts.pop(job.index, None)
        guest = self._seated.pop(job.index, None)
        if host is not None:
            del self._seated[host.index]
        if guest is not None:  # it had been swapped
            del self._hosts[guest.index]
            self._take_over(guest, job)

    def _unseat(self, guest: Job, host: Job) -> None:
        """A guest that was not named yet has no place any more."""
        if guest.index in self._open:
            self._displace(guest, host)

    def _leave_host(self, guest: Job, gpu_type: str | None) -> None:
        """A running guest is placed without its host: it takes over, or loses its place."""
        number = host_of(guest.allocation)
        host = self._open.get(number)
        former = self._view.everyone.get(number)
        if former is not None and self._cancelled(former):
            self._seated[number] = guest  # it inherits when that is carried out
            self._hosts[guest.index] = former
        elif host is not None and (gpu_type is None or self._on_type(guest, gpu_type)):
            self._displace(host, guest)
            del self._open[guest.index]
            self._by_start = None
            self._take_over(guest, host)
            self._latest = None
        else:
            self._displace(guest, former or guest)

    def _cancelled(self, job: Job | None) -> bool:
        return any(job is other for other, _ in self.changes.cancels)

    def _take_over(self, guest: Job, host: Job) -> None:
        """The GPUs of its host are the guest's own."""
        allocation = Allocation(host.allocation.slices, guest.allocation.extra)
        self._placement.give(guest, guest.allocation)
        self._placement.hold(guest, allocation)
        self._placed[guest.index] = (guest, allocation)
        self._room -= allocation.gpus

    def _seat(self, job: Job, shape: Shape, victims: Sequence[Job], *, resizes: bool) -> None:
        company = self._company(victims)
        for guest in company:
            self._displace(guest, job)
        super()._seat(job, shape, [*victims, *company], resizes=resizes)

    def _company(self, victims: Sequence[Job]) -> Sequence[Job]:
        """Guests go with their hosts."""
        named = {victim.index for victim in victims}
        guests = (self._guest_of.get(victim.index) for victim in victims)
        return [
            guest
            for guest in guests
            if guest is not None and guest.index in self._open and guest.index not in named
        ]


class Pairs(SharedPlan, PairingPlan):
    """The policy pairs jobs."""

    def place_beside(self, job: Job, host: Job) -> bool:
        """Share all GPUs of the host."""
        check_present(job, self._active)
        if self._cancelled(self._hosts.get(host.index)):
            return False  # the host has to inherit its GPUs first
        held = self._check_pair(job, host)
        parts = any(amount % 1 for _, amount in held.slices)  # of pools, beside parts of GPUs
        more = job.shape.resources or host.shape.resources  # a guest has nothing of other kinds
        if parts or more or not self._placement.accepts(job.shape, held):
            return False
        if not self._placement.shareable(held, job.shape.gpu_mem_gib + host.shape.gpu_mem_gib):
            return False
        if self._swap(job, host, held):
            return True
        resizes = job.index in self._open
        if resizes:
            self._release(job)
        supplied = self._placement.supplied(
            Allocation(held.slices), job.shape.cpus, job.shape.mem_gib
        )
        if supplied is None:
            if resizes:
                self._placement.hold(job, job.allocation)
                self._open[job.index] = job
            return False
        company = self._company([job]) if resizes else ()
        for guest in company:
            self._displace(guest, job)
        allocation = as_guest(host.index, held, supplied.extra)
        self._placement.hold(job, allocation)
        displaced = self._displaced.pop(job.index, None) is not None
        self._latest = PlacedJob(job, company, resizes, displaced, len(self._failed))
        self._placed[job.index] = (job, allocation)
        self._seated[host.index], self._hosts[job.index] = job, host
        return True

    def _check_pair(self, job: Job, host: Job) -> Allocation:
        """What the host holds in this plan; raises if the two cannot be a pair."""
        held = self._offered(host)
        what = f"job {job.id} beside {host.id}"
        if not held.slices:
            raise PolicyError(f"{what}: place {host.id} first")
        if job.index in self._placed or self._goes_on(job):
            raise PolicyError(f"{what}: {job.id} has a place already")
        if host.index in self._seated or host.index in self._hosts:
            raise PolicyError(f"{what}: {host.id} shares its GPUs already: two jobs at most")
        if held.gpus != job.gpus or job.gpus % 1:
            raise PolicyError(
                f"{what}: {job.gpus:g} and {held.gpus:g} GPUs: only jobs with equally many whole "
                "GPUs can share them"
            )
        return held

    def _swap(self, job: Job, host: Job, held: Allocation) -> bool:
        """The pair goes on as it is, although the policy names its guest first."""
        if (
            self._guest_of.get(job.index) is not host
            or job.index not in self._displaced
            or held.slices != job.allocation.slices
        ):
            return False
        del self._displaced[job.index]
        self._placement.give(host, held)
        for each in (job, host):
            self._placement.hold(each, each.allocation)
            self._placed[each.index] = (each, each.allocation)
        self._seated[job.index], self._hosts[host.index] = host, job
        self._latest = PlacedJob(job, (), resized=False, displaced=True, failed=len(self._failed))
        return True


class SharedChangePlan(ChangePlan, SharedPlan):
    """A plan of changes there: pairs last until one of the two leaves."""

    def _offered(self, host: Job) -> Allocation:
        """A running job that is not named goes on, and from now on must."""
        if host.index not in self._open:
            return self._held(host)
        guest = self._guest_of.get(host.index)
        if host_of(host.allocation) >= 0 or (guest is not None and guest.index in self._open):
            raise PolicyError(f"job {host.id} shares its GPUs already: two jobs at most")
        self._go_on(host)
        return host.allocation

    def pairs(self) -> Guests:
        """The pairs that last, and those of this plan."""
        last = {
            host: (guest, held)
            for host, (guest, held) in self._guests.items()
            if host in self._open and guest.index in self._open
        }
        return {**last, **super().pairs()}
