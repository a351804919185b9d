"""Plans on a placement: what policies write where Rota chooses the slices.

Jobs are placed in the order in which the policy names them. A running job that is named keeps its
slices. A waiting job goes on free slices if it can; otherwise it displaces running jobs that have
not been named yet, those that started last first; a displaced job that is named later is placed
again (elsewhere: it is moved). Running jobs that are never named stop.

`PlacementPlan` has the verbs of every plan. Each capability is a class that adds its own, and
`plan_class` composes what a policy has declared.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar, cast

import msgspec

from rota.core.allocation import NOTHING, Allocation
from rota.core.changes import Changes, Wake, check_amounts, check_present
from rota.core.errors import InvalidPlanError, PolicyError
from rota.core.events import INF
from rota.core.jobs import WAITING, Job, Request, Shape
from rota.core.plan import (
    ClosingPlan,
    DisplacingPlan,
    EligibilityPlan,
    LocalityPlan,
    PairingPlan,
    Plan,
    ReservingPlan,
    Supply,
    SupplyingPlan,
    composed,
)
from rota.core.view import View
from rota.placement.base import EPSILON, Placement

B = TypeVar("B", bound="PlacementPlan")


class Shapes:
    """Shapes of other requests than a job asked for: other sizes, supplies or GPU types."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, float], Shape] = {}
        self._supplied: dict[tuple[int, Supply], Shape] = {}
        self._typed: dict[tuple[int, str], Shape] = {}
        self._gpus_only: bool | None = None

    def gpus_only(self, placement: Placement) -> bool:
        """The cluster has nothing to offer to a job without GPUs."""
        if self._gpus_only is None:
            nodes = placement.topology.nodes
            self._gpus_only = not any(node.cpus or node.mem_gib for node in nodes)
        return self._gpus_only

    def sized(self, shape: Shape, gpus: float | None) -> Shape:
        """The same request with another number of GPUs; None: as it is."""
        if gpus is None or gpus == shape.gpus:
            return shape
        made = self._made.get((shape.number, gpus))
        if made is None:
            opened = None if shape.opened is None else self.sized(shape.opened, gpus)
            request = shape.request.resized(gpus)
            made = self._made[shape.number, gpus] = self._new(request, opened)
        return made

    def smallest(self, shape: Shape) -> Shape:
        """The same request with the fewest GPUs that it takes."""
        return self.sized(shape, shape.request.sizes[0])

    def supplied(self, shape: Shape, supply: Supply) -> Shape:
        """The same request with other CPUs and memory; a job without GPUs keeps what it asks."""
        if not shape.gpus:
            return shape
        made = self._supplied.get((shape.number, supply))
        if made is None:
            cpus, mem_gib = supply[0] / shape.gpus, supply[1] / shape.gpus
            groups = tuple(
                msgspec.structs.replace(group, cpus=cpus * group.gpus, mem_gib=mem_gib * group.gpus)
                for group in shape.request.groups
            )
            opened = None if shape.opened is None else self.supplied(shape.opened, supply)
            request = msgspec.structs.replace(shape.request, groups=groups)
            made = self._supplied[shape.number, supply] = self._new(request, opened)
        return made

    def typed(self, shape: Shape, gpu_type: str) -> Shape:
        """The same request for GPUs of one type only."""
        if shape.types == (gpu_type,):
            return shape
        made = self._typed.get((shape.number, gpu_type))
        if made is None:
            opened = None if shape.opened is None else self.typed(shape.opened, gpu_type)
            request = msgspec.structs.replace(shape.request, gpu_types=(gpu_type,))
            made = self._typed[shape.number, gpu_type] = self._new(request, opened)
        return made

    def without_supply(self, shape: Shape) -> Shape:
        """Only its GPUs."""
        return self.supplied(shape, (0.0, 0.0))

    def _new(self, request: Request, opened: Shape | None) -> Shape:
        """Numbers are below those of requests and of -1, which is nobody's."""
        made = Shape(-2 - len(self._made) - len(self._supplied) - len(self._typed), request)
        made.opened = opened
        return made


class PlacedJob(msgspec.Struct, frozen=True):
    """What it takes to undo a `place`."""

    job: Job
    victims: Sequence[Job]
    resized: bool  # it was running, with another number of GPUs
    displaced: bool  # it was running, until its slices were given to another job
    failed: int  # how many shapes had failed before


class Holder:
    """Stands for a job that holds other slices in a plan than it has."""

    __slots__ = ("allocation", "index")

    def __init__(self, allocation: Allocation, index: int) -> None:
        self.allocation = allocation
        self.index = index


class PlacementPlan(Plan):
    """A plan on a placement, which it changes as it goes."""

    _may_displace = True  # a waiting job may take the place of those that were not named
    _by_start: list[Job] | None = None
    _latest: PlacedJob | None = None

    def __init__(
        self, view: View, placement: Placement, shapes: Shapes, running: dict[int, Job]
    ) -> None:
        super().__init__(view.version, view.now_s, view.active)
        self._view = view
        self._placement = placement
        self._shapes = shapes
        self._open = self._unnamed(running)  # running jobs that were not named yet
        self._placed: dict[int, tuple[Job, Allocation]] = {}  # without those that just go on
        self._displaced: dict[int, Job] = {}
        self._again: set[int] = set()  # were displaced, and placed again
        self._failed: dict[int, None] = {}  # shapes, in the order in which they failed
        self._room = view.up_gpus  # GPUs that no job placed so far needs

    def _gpus_only(self) -> bool:
        return self._shapes.gpus_only(self._placement)

    def _unnamed(self, running: dict[int, Job]) -> dict[int, Job]:
        return running.copy()

    # --- what a policy calls --------------------------------------------------------------------

    def _place(self, job: Job, gpus: float | None) -> bool:
        index = job.index
        if gpus is not None:
            self._check_once(job, gpus)
        if index in self._open and gpus in (None, job.allocation.gpus):
            self._go_on(job)
            return True
        if index in self._placed or self._goes_on(job):
            return True
        return self._place_anew(job, self._shapes.sized(job.shape, gpus))

    def _has_place(self, job: Job) -> bool:
        return job.index in self._placed or self._goes_on(job)

    def _stop(self, job: Job) -> None:
        """Others can have its slices."""
        if job.index in self._open:
            self._release(job)
            self._displaced[job.index] = job
            self._failed.clear()
            self._latest = None  # what was placed before it can no longer be taken back alone

    def fill(self, jobs: Iterable[Job]) -> None:
        """`place` all in this order."""
        keep = self._open.pop
        failed = self._failed
        for job in jobs:
            if keep(job.index, None) is not None:
                self._room -= job.allocation.gpus
            elif self._room <= 0 and job.gpus:
                if self._gpus_only():
                    return
            elif job.shape.number not in failed:
                self.place(job)

    def candidates(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Those whose request has not failed yet, while there is anything left to give."""
        failed = self._failed
        for job in jobs:
            if self._room <= 0 and job.gpus:
                if self._gpus_only():
                    return
            elif job.shape.number not in failed:
                yield job

    def cancel(self, jobs: Sequence[Job], *, because_of: Job | None = None) -> None:
        """End these jobs for good."""
        super().cancel(jobs, because_of=because_of)
        for job in jobs:
            self._open.pop(job.index, None)  # the engine takes its slices back

    # --- how it is done -------------------------------------------------------------------------

    def _check_once(self, job: Job, gpus: float) -> None:
        held = self._held(job).gpus
        if job.index not in self._open and held not in (0, gpus):
            raise InvalidPlanError(
                f"job {job.id} is placed twice, with {held:g} GPUs and then with {gpus:g}: place "
                "it once, or `withdraw` it first"
            )

    def _held(self, job: Job) -> Allocation:
        """What it holds in this plan."""
        if job.index in self._placed:
            return self._placed[job.index][1]
        return job.allocation if job.running and job.index not in self._displaced else NOTHING

    def _go_on(self, job: Job) -> None:
        """A running job is named and keeps its slices."""
        del self._open[job.index]
        self._room -= job.allocation.gpus

    def _goes_on(self, job: Job) -> bool:
        """A running job that was named before and keeps its slices."""
        return job.running and job.index not in self._open and job.index not in self._displaced

    def _nodes(self, allocation: Allocation) -> int:
        """Number of nodes that it touches; pools are no nodes."""
        vertices = self._view.topology.vertices
        return len({vertices[vertex].node for vertex in allocation.vertices} - {-1})

    def _fits_free(self, shape: Shape) -> bool:
        return shape.gpus <= self._placement.free + EPSILON and self._placement.fits(shape)

    def _place_on(
        self, job: Job, gpus: float | None, gpu_type: str | None, max_nodes: int | None
    ) -> bool:
        """`place`, limited to a type and a number of nodes."""
        self._part_running(job, gpu_type)
        index = job.index
        if gpus is not None:
            self._check_once(job, gpus)
        shape = self._shapes.sized(job.shape, gpus)
        if gpu_type is not None:
            on_type = self._on_type(job, gpu_type)
            shape = self._shapes.typed(shape, gpu_type)
            if not on_type:
                may = index in self._open and gpu_type in (job.shape.types or (gpu_type,))
                return may and self._place_within(job, shape, max_nodes)
        if index in self._open and gpus in (None, job.allocation.gpus):
            self._go_on(job)
            return True
        if index in self._placed or self._goes_on(job):
            return True
        if gpus is None and job.shape.number in self._failed:
            return False  # anywhere: so on no type either
        return self._place_within(job, shape, max_nodes)

    def _part_running(self, job: Job, gpu_type: str | None = None) -> None:
        """It is placed by itself, whoever it shares GPUs with now."""

    def _on_type(self, job: Job, gpu_type: str) -> bool:
        """It may have GPUs of this type, and holds no others in this plan."""
        if gpu_type not in self._view.topology.types:
            known = ", ".join(repr(kind) for kind in self._view.topology.types)
            raise PolicyError(
                f"job {job.id}: the cluster has no GPUs of type {gpu_type!r}, only {known}"
            )
        if job.shape.types and gpu_type not in job.shape.types:
            return False
        return self._view.topology.types_at(self._held(job).vertices) <= {gpu_type}

    def _place_within(self, job: Job, shape: Shape, max_nodes: int | None) -> bool:
        """Place it anew, unless that takes more nodes than this."""
        if not self._place_anew(job, shape):
            return False
        if max_nodes is None or self._nodes(self._placed[job.index][1]) <= max_nodes:
            return True
        self._withdraw(job)
        return False

    def _place_anew(self, job: Job, shape: Shape) -> bool:
        if shape.number in self._failed:
            return False
        victims: Sequence[Job] = ()
        resizes = job.index in self._open
        if resizes:
            self._release(job)
        if not self._fits_free(shape):
            if not self._may_displace or not self._placement.walk(shape, self._latest_first()):
                if resizes:
                    self._placement.hold(job, job.allocation)
                    self._open[job.index] = job
                else:
                    self._failed[shape.number] = None
                return False
            victims = self._placement.victims()
            for victim in victims:
                self._displace(victim, job)
        self._seat(job, shape, victims, resizes=resizes)
        return True

    def _seat(self, job: Job, shape: Shape, victims: Sequence[Job], *, resizes: bool) -> None:
        """There is room for it now."""
        displaced = self._displaced.pop(job.index, None) is not None
        if displaced:
            self._again.add(job.index)
        self._latest = PlacedJob(job, victims, resizes, displaced, len(self._failed))
        self._placed[job.index] = (job, self._placement.take(job, shape))
        self._room -= shape.gpus

    def _release(self, job: Job) -> None:
        self._placement.give(job, job.allocation)
        del self._open[job.index]
        self._by_start = None

    def _displace(self, victim: Job, winner: Job) -> None:
        self._release(victim)
        self._displaced[victim.index] = victim
        changes = self.changes
        if changes.causes is None:
            changes.causes = {}
        # one that was displaced itself passes on who is the cause
        displaced = winner.index in self._displaced
        changes.causes[victim.index] = (
            changes.causes.get(winner.index, winner) if displaced else winner
        )

    def _reinstate(self, victims: Iterable[Job]) -> None:
        """They keep their slices after all."""
        for victim in victims:
            self._placement.hold(victim, victim.allocation)
            self._open[victim.index] = victim
            del self._displaced[victim.index]
            if self.changes.causes is not None:
                del self.changes.causes[victim.index]
            if self.changes.whys is not None:
                self.changes.whys.pop(victim.index, None)
        self._by_start = None

    def _latest_first(self) -> Iterator[Job]:
        if self._by_start is None:
            self._by_start = sorted(
                self._open.values(), key=lambda job: (job.start_s, job.index), reverse=True
            )
        return (job for job in self._by_start if job.index in self._open)

    def _withdraw(self, job: Job) -> None:
        """Take the latest successful placing back, its victims included."""
        latest, self._latest = self._latest, None
        if latest is None or latest.job is not job:
            raise PolicyError(f"job {job.id} was not placed last: only that can be withdrawn")
        self._forgo(job)
        self._reinstate(latest.victims)
        if latest.displaced:
            self._again.discard(job.index)  # pairs do not note it
            self._displaced[job.index] = job
        if latest.resized:
            self._placement.hold(job, job.allocation)
            self._open[job.index] = job
        self._by_start = None
        while len(self._failed) > latest.failed:  # they failed beside this job
            self._failed.popitem()
        self._undone(job)

    def _undone(self, job: Job) -> None:
        """A placing was taken back."""

    def _forgo(self, job: Job) -> None:
        """It does not get what it was placed on."""
        _, allocation = self._placed.pop(job.index)
        self._placement.give(job, allocation)
        self._room += allocation.gpus

    def _chosen(self) -> Iterable[int]:
        return self._placed

    def finish(self, wake: Wake) -> Changes:
        """The changes that lead to the desired state."""
        changes = super().finish(wake)
        changes.stops.extend(self._displaced.values())  # cancelled ones too: their slices are gone
        self._stop_unnamed(changes)
        for job, allocation in self._placed.values():
            if job.running and allocation == job.allocation:
                self._stays(job)
            else:
                changes.starts.append((job, allocation))
        return changes

    def _stays(self, job: Job) -> None:
        """It was displaced, and has got the same slices again."""

    def _stop_unnamed(self, changes: Changes) -> None:
        cancelled = {job.index for job, _ in changes.cancels}
        stops = changes.stops
        stops.extend(job for job in self._open.values() if job.index not in cancelled)
        for job in self._open.values():
            self._placement.give(job, job.allocation)


class ChangePlan(PlacementPlan):
    """A plan of changes: running jobs that are not named go on.

    It works on the very dictionary of running jobs and takes those out that lose their slices.
    """

    _may_displace = False

    def _unnamed(self, running: dict[int, Job]) -> dict[int, Job]:
        self._kept: set[int] = set()  # running jobs that were named
        return running

    def _place(self, job: Job, gpus: float | None) -> bool:
        if job.index in self._open:
            if gpus in (None, job.allocation.gpus):
                self._go_on(job)
                return True
        elif gpus is None and job.phase == WAITING and job.index not in self._placed:
            return self._place_anew(job, job.shape)
        return super()._place(job, gpus)

    def _go_on(self, job: Job) -> None:
        self._kept.add(job.index)

    def _has_place(self, job: Job) -> bool:
        return job.index in self._kept or super()._has_place(job)

    def fill(self, jobs: Iterable[Job]) -> None:
        """`place` all in this order."""
        for job in self.candidates(jobs):
            self.place(job)

    def candidates(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Those whose request has not failed yet, while there is anything left to give."""
        failed, placement = self._failed, self._placement
        for job in jobs:
            if placement.free <= 0 and job.gpus:
                if self._gpus_only():
                    return
            elif job.shape.number not in failed:
                yield job

    def cancel(self, jobs: Sequence[Job], *, because_of: Job | None = None) -> None:
        """End these jobs for good; until then they go on."""
        Plan.cancel(self, jobs, because_of=because_of)

    def _stop_unnamed(self, changes: Changes) -> None:
        """They go on."""

    def _stays(self, job: Job) -> None:
        """It goes on."""
        self._open[job.index] = job


# --- capabilities ---------------------------------------------------------------------------------


class Reserves(PlacementPlan, ReservingPlan):
    """Questions to the placement."""

    def fits(self, job: Job) -> bool:
        """Would `place` succeed? Changes nothing."""
        if job.index in self._open or job.index in self._placed or self._goes_on(job):
            return True
        if self._fits_free(job.shape):
            return True
        return self._may_displace and self._placement.walk(job.shape, self._latest_first())

    def earliest(
        self, job: Job, releases: Iterable[tuple[float, Job]], *, ordered: bool = False
    ) -> float:
        """Let them go one by one until it fits; changes nothing."""
        shape = job.shape
        if self._fits_free(shape):
            return self._now_s
        if not ordered:
            releases = sorted(releases, key=lambda release: (release[0], release[1].index))
        times: list[float] = []
        if self._placement.walk(shape, self._leaving(shape, releases, times)):
            return times[self._placement.walked() - 1]
        return INF

    def _leaving(
        self, shape: Shape, releases: Iterable[tuple[float, Job]], times: list[float]
    ) -> Iterator[Job]:
        """Those whose slices matter to a request; notes when they leave."""
        placement, placed, displaced = self._placement, self._placed, self._displaced
        nodes = placement.eligible(shape)
        anywhere = nodes == placement.up_nodes
        touches = placement.touches
        for time_s, job in releases:
            holder = job
            if job.index in placed or job.index in displaced:
                held = self._held(job)
                holder = cast("Job", Holder(held, job.index))
            if anywhere or touches(nodes, holder.allocation):
                times.append(time_s)
                yield holder

    def withdraw(self, job: Job) -> None:
        """Take the latest successful `place` or `displace` back, its victims included."""
        self._withdraw(job)


class Distinguishes(PlacementPlan, EligibilityPlan):
    """The placement knows which nodes a request may use."""

    def eligible(self, job: Job) -> int:
        """The nodes that could ever host a part of it."""
        return self._placement.eligible(job.shape)

    @property
    def nodes(self) -> int:
        """All nodes that are up."""
        return self._placement.up_nodes

    def gpus_on(self, nodes: int, job: Job | None = None) -> float:
        """GPUs of these nodes, or what a running job holds of them."""
        placement = self._placement
        if nodes == placement.up_nodes:
            return self._view.up_gpus if job is None else job.held_gpus
        return placement.gpus_on(nodes, None if job is None else job.allocation)


class Closes(PlacementPlan, ClosingPlan):
    """To the placement, closed nodes are down."""

    @contextmanager
    def closed(self, nodes: int) -> Iterator[None]:
        """Nothing is placed on these nodes meanwhile."""
        placement = self._placement
        up = [] if self.pooled else placement.room.up
        shut = [
            node
            for i, node in enumerate(self._view.topology.nodes[: len(up)])
            if nodes >> i & 1 and up[i]
        ]
        failed = self._failed.copy()
        for node in shut:
            placement.set_node(node, up=False)
        try:
            yield
        finally:
            for node in shut:
                placement.set_node(node, up=True)
            self._failed.clear()  # in place: `candidates` looks at it
            self._failed.update(failed)  # what failed meanwhile may fit there

    @property
    def pooled(self) -> bool:
        """GPUs are pools."""
        return self._placement.room.divisible


class Displaces(PlacementPlan, DisplacingPlan):
    """The policy chooses the victims."""

    def displace(self, job: Job, victims: Iterable[Job], *, must: int = 0) -> Sequence[Job] | None:
        """Run it, if need be in the place of some of these, the first ones first."""
        check_present(job, self._view.active)
        if job.index in self._open or job.index in self._placed or self._goes_on(job):
            raise InvalidPlanError(f"job {job.id} displaces others, but it has a place already")
        chosen: list[Job] = []
        if must or not self._fits_free(job.shape):
            still = (victim for victim in victims if victim.index in self._open)
            chosen += islice(still, must)
            for victim in chosen:
                self._displace(victim, job)
            if not must or not self._fits_free(job.shape):
                if not self._placement.walk(job.shape, still):
                    self._reinstate(chosen)
                    return None
                more = self._placement.victims()
                for victim in more:
                    self._displace(victim, job)
                chosen += more
        self._seat(job, job.shape, chosen, resizes=False)
        return chosen

    def give_up(self, job: Job) -> None:
        """Take the start or the move of a job back; those that left for it do not come back."""
        displaced = job.index in self._again
        if job.index not in self._placed or (job.running and not displaced):
            raise PolicyError(f"job {job.id} cannot be given up: this plan does not start it")
        if displaced:
            self._again.discard(job.index)
            self._displaced[job.index] = job
        self._forgo(job)
        self._failed.clear()  # they failed beside this job
        self._latest = None
        self._undone(job)

    def holding(self, job: Job) -> Allocation:
        """What it holds in this plan."""
        return self._held(job)


class Supplies(PlacementPlan, SupplyingPlan):
    """CPUs and memory apart from GPUs."""

    def _place_with(self, job: Job, supply: Supply) -> bool:
        self._part_running(job)
        if job.index in self._open:
            self._keep(job, supply)
            return True
        if job.index in self._placed or self._goes_on(job):
            return True
        return self._place_anew(job, self._shapes.supplied(job.shape, supply))

    def _keep(self, job: Job, supply: Supply) -> None:
        """It goes on where it is, with these CPUs and memory if there is room for them."""
        self._release(job)
        allocation = self._placement.supplied(job.allocation, *supply) or job.allocation
        self._placement.hold(job, allocation)
        self._latest = PlacedJob(
            job, victims=(), resized=True, displaced=False, failed=len(self._failed)
        )
        self._placed[job.index] = (job, allocation)
        self._room -= allocation.gpus
        if allocation is not job.allocation:
            self._failed.clear()  # it may hold less than before

    def supply(self, job: Job, supply: Supply) -> bool:
        """Give a placed job other CPUs and memory where it is."""
        check_amounts(job, supply)
        old = self._held(job)
        if job.index in self._open or old is NOTHING:
            raise PolicyError(f"job {job.id} has no place in this plan: call `place` first")
        self._placement.give(job, old)
        new = self._placement.supplied(old, *supply)
        self._placement.hold(job, new or old)
        if new is None:
            return False
        self._placed[job.index] = (job, new)
        self._failed.clear()  # a job may have got less
        self._latest = None
        return True


class Locates(PlacementPlan, LocalityPlan):
    """Types and numbers of nodes: `PlacementPlan._place_on` does it."""


class NoPairs(PlacementPlan, PairingPlan):
    """On clusters that do not know how fast jobs run that share GPUs."""

    def place_beside(self, job: Job, host: Job) -> bool:
        """There are no pairs."""
        raise PolicyError(
            f"job {job.id} beside {host.id}: nobody knows how fast jobs run here that share "
            "GPUs: simulate with rates that do, e.g. --rates types+pairs:table=FILE"
        )


IMPLEMENTED: Mapping[type[Plan], type[PlacementPlan]] = {
    ReservingPlan: Reserves,
    EligibilityPlan: Distinguishes,
    ClosingPlan: Closes,
    DisplacingPlan: Displaces,
    SupplyingPlan: Supplies,
    LocalityPlan: Locates,
    PairingPlan: NoPairs,
}


def plan_class(declared: type[Plan], base: type[B], pairs: type[PlacementPlan]) -> type[B]:
    """The class of plans with the capabilities that a policy has declared, and no others.

    Args:
        declared: `plan_type` of the policy.
        base: What all plans on this cluster are.
        pairs: How `PairingPlan` is implemented there.
    """
    parts = [
        pairs if capability is PairingPlan else part
        for capability, part in IMPLEMENTED.items()
        if issubclass(declared, capability)
    ]
    return composed(declared, base, parts)
