"""What a policy writes: a plan of who runs, and with how many GPUs.

`Plan` has the verbs that every policy needs. What only some need are capabilities: plans with more
verbs. A policy declares the plan that it writes (`plan_type = ReservingPlan`) and asks the view for
it (`plan = view.plan(ReservingPlan)`); one that needs several capabilities derives a class from all
of them:

    class BackfillPlan(ReservingPlan, DisplacingPlan):
        "Reservations, and jobs that take the place of others."

What can be checked without knowing the cluster (sizes, times, jobs that exist) is checked here, the
same for all plans: a broken promise raises InvalidPlanError.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from rota.core.allocation import NOTHING, Allocation
from rota.core.changes import (
    Changes,
    Wake,
    check_amounts,
    check_fates,
    check_present,
    check_size,
    check_wake,
)
from rota.core.errors import InvalidPlanError, PolicyError
from rota.core.events import INF
from rota.core.jobs import Job, Shape
from rota.core.reasons import Reason
from rota.core.sharing import EPHEMERAL, GPU_MEM, SPILL
from rota.core.topology import DEVICE, Topology

Supply: TypeAlias = tuple[float, float]
"""CPUs and memory in GiB, for a whole job."""


K = TypeVar("K", bound="Plan")


class UndeclaredError(PolicyError, AttributeError):
    """A plan was asked for something that only a plan with another capability has."""


class Plan:
    """The state that a policy wants: placed jobs run, running jobs that are not named stop."""

    def __init__(self, version: int, now_s: float, active: Mapping[int, Job]) -> None:
        self.changes = Changes(version)
        self._now_s = now_s
        self._active = active  # the jobs that may be named, by index
        self._wake_s = INF

    # --- who runs ---------------------------------------------------------------------------------

    def place(self, job: Job, *, gpus: float | None = None) -> bool:
        """Run it if it fits beside what is placed already; True if it does.

        `gpus`: with so many, if its sizes allow it. Without, a running job keeps what it has.
        """
        check_present(job, self._active)
        if gpus is not None:
            check_size(job, gpus)
        return self._place(job, gpus)

    def _place(self, job: Job, gpus: float | None) -> bool:
        raise NotImplementedError

    def resize(self, job: Job, gpus: float) -> bool:
        """Give a running job so many GPUs; False: there is no room, and it goes on as before."""
        self._check_running(job, "resized", "`place` starts it with any of its sizes")
        if self.place(job, gpus=gpus):
            return True
        self.place(job)
        return False

    def keep(self, job: Job) -> bool:
        """Let a running job go on; False if its place was given away and there is no other."""
        self._check_running(job, "kept", "use `place`")
        return self.place(job)

    def stop(self, job: Job, *, why: str = "", because_of: Job | None = None) -> None:
        """Stop a running job; `why` and for whom are said in the log. Its GPUs are free at once.

        A job that this plan has placed or kept cannot be stopped; one that it has stopped can be
        placed again.
        """
        self._check_running(job, "stopped", "`cancel` ends it, `refuse` turns it away")
        if self._has_place(job):
            raise InvalidPlanError(f"the plan places job {job.id} and stops it: do one of the two")
        if why or because_of is not None:
            self.changes.remark(job, why, because_of=because_of)
        self._stop(job)

    def _has_place(self, job: Job) -> bool:
        """A running job that was placed, kept or resized."""
        raise NotImplementedError

    def _stop(self, job: Job) -> None:
        raise NotImplementedError

    def fill(self, jobs: Iterable[Job]) -> None:
        """`place` all in this order, as far as they fit."""
        for job in jobs:
            self.place(job)

    def candidates(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Those that may still fit: skips equal requests that failed, ends when all is full."""
        return iter(jobs)

    # --- who leaves for good, and why others wait -------------------------------------------------

    def cancel(self, jobs: Sequence[Job], *, because_of: Job | None = None) -> None:
        """End these jobs for good."""
        self.changes.cancel(jobs, because_of=because_of)

    def refuse(self, job: Job, message: str) -> None:
        """Turn a job away that has never run, for good; the message reaches its owner."""
        self.changes.reject(job, message)

    def explain(self, job: Job, reason: Reason) -> None:
        """Say why it waits."""
        self.changes.explain(job, reason)

    def explain_alike(self, tenant: str, shape: Shape, reason: Reason) -> None:
        """Say why jobs of a tenant with this request wait, except those with a reason of their own.

        It holds for those that come later, too, and costs the same however many there are. An own
        reason is taken back with `explain(job, Reason.NONE)`. The log knows jobs by the requests
        with which they came: jobs that a window bars from nodes (`shape.opened`) are told one by
        one.
        """
        self.changes.explain_alike(tenant, shape.number, reason)

    # --- when to ask again ------------------------------------------------------------------------

    def wake_at(self, time_s: float) -> None:
        """Ask again at this time."""
        check_wake(time_s, self._now_s)
        self._wake_s = min(self._wake_s, time_s)

    def watch(self, job: Job, quantity: str, value: float) -> None:
        """Ask again when a quantity of the job (see `Level`) reaches the value."""
        self.changes.watch(job, quantity, value)

    # --- for those who make plans -----------------------------------------------------------------

    def _check_running(self, job: Job, what: str, instead: str) -> None:
        check_present(job, self._active)
        if not job.running:
            raise InvalidPlanError(f"job {job.id} is {what}, but it does not run: {instead}")

    def finish(self, wake: Wake) -> Changes:
        """The policy has decided: the changes that lead to the state it wants."""
        changes = self.changes
        if changes.cancels or changes.rejects:
            check_fates(changes, self._chosen())
        if self._wake_s < INF:
            changes.wake = msgspec.structs.replace(wake, at_s=self._wake_s)
        return changes

    def _chosen(self) -> Iterable[int]:
        """The jobs that were placed, by index, except those that just go on."""
        raise NotImplementedError

    if not TYPE_CHECKING:  # a type checker knows what a plan has

        def __getattr__(self, name: str) -> Any:
            for capability in CAPABILITIES:
                if name in vars(capability):
                    raise UndeclaredError(
                        f"`plan.{name}` is part of {capability.__name__}: declare "
                        f"`plan_type = {capability.__name__}` on the policy and ask for "
                        f"`view.plan({capability.__name__})` (from rota.core.plan)"
                    )
            raise AttributeError(f"a plan has no {name!r}")


# --- capabilities ---------------------------------------------------------------------------------


class ReservingPlan(Plan):
    """Who could run, and when: for queues with reservations."""

    def fits(self, job: Job) -> bool:
        """Would `place` succeed? Changes nothing."""
        raise NotImplementedError

    def earliest(
        self, job: Job, releases: Iterable[tuple[float, Job]], *, ordered: bool = False
    ) -> float:
        """When would a waiting job fit if each of these jobs left at its time, and no other did?

        Now if it fits already, else the time of a release; inf if it would not even fit after the
        last. The others are running jobs, or jobs that this plan has placed. `ordered`: they come
        in order of their times, and of their numbers at equal times.
        """
        raise NotImplementedError

    def withdraw(self, job: Job) -> None:
        """Take the latest start or move (`place`, `displace`) back, as if it had not been asked.

        Only the latest, and not after a `stop`: later ones may depend on it. A running job that
        goes on where it is needs no withdrawing.
        """
        raise NotImplementedError


class EligibilityPlan(Plan):
    """Which nodes a job may ever use, as sets: who competes with whom."""

    def eligible(self, job: Job) -> int:
        """The nodes that are up and could ever host a part of it, as a set: bit i is node i.

        Jobs whose sets have no node in common (`not a & b`) never compete: an order or reservations
        are kept among jobs that compete. Bits may stand for pools instead of nodes; they mean the
        same for all jobs of one plan.
        """
        raise NotImplementedError

    @property
    def nodes(self) -> int:
        """All nodes that are up, as such a set."""
        raise NotImplementedError

    def gpus_on(self, nodes: int, job: Job | None = None) -> float:
        """GPUs of the nodes of such a set; with `job`: those that this running job holds there."""
        raise NotImplementedError


class ClosingPlan(Plan):
    """Some nodes are out of bounds for a while."""

    def closed(self, nodes: int) -> AbstractContextManager[None]:
        """As long as this context is open, nothing is placed on these nodes.

        A set: bit i is the i-th node of the topology. Jobs that run there stay. Where GPUs are one
        pool (`pooled`), nodes cannot be closed and nothing changes.
        """
        raise NotImplementedError

    @property
    def pooled(self) -> bool:
        """GPUs are pools: only amounts matter, not nodes."""
        raise NotImplementedError


class DisplacingPlan(Plan):
    """Jobs take the place of others that the policy chooses."""

    def displace(self, job: Job, victims: Iterable[Job], *, must: int = 0) -> Sequence[Job] | None:
        """Run a job that waits, if need be in the place of some of these, the first ones first.

        Returns those that have to go (none where it fits beside all that run); None if it would not
        even fit without all of them. Only running jobs that were not named yet can go; others keep
        their slices, named or not. The first `must` go even if there is room beside them.
        """
        raise NotImplementedError

    def give_up(self, job: Job) -> None:
        """Take the start of a waiting (or displaced) job back, though others were placed after it.

        Those that left for it do not come back by that: they can be placed again.
        """
        raise NotImplementedError

    def holding(self, job: Job) -> Allocation:
        """What it holds in this plan; nothing if it is not placed."""
        raise NotImplementedError

    def remark(self, job: Job, why: str, *, because_of: Job | None = None) -> None:
        """Say in the log why a job that was displaced is stopped, and for whom."""
        self.changes.remark(job, why, because_of=because_of)


class SupplyingPlan(Plan):
    """Jobs get other CPUs and memory than they ask for: to enter, only their GPUs must fit."""

    def place_with(self, job: Job, supply: Supply) -> bool:
        """`place` it with these CPUs and GiB instead of what it asks for.

        A running job gets them where it is, if there is room for them.
        """
        check_present(job, self._active)
        check_amounts(job, supply)
        return self._place_with(job, supply)

    def _place_with(self, job: Job, supply: Supply) -> bool:
        raise NotImplementedError

    def supply(self, job: Job, supply: Supply) -> bool:
        """Give a placed job other CPUs and memory where it is; True if there is room for them."""
        raise NotImplementedError


class LocalityPlan(Plan):
    """The policy says which GPUs a job may have: of which type, on how many nodes."""

    def place_on(
        self,
        job: Job,
        *,
        gpus: float | None = None,
        gpu_type: str | None = None,
        max_nodes: int | None = None,
    ) -> bool:
        """`place` it only on GPUs of this type, and only on so many nodes.

        A running job on another type is moved. False if there is no room, or the job does not
        accept the type: then it is as if nothing had been asked, and a running job may still be
        placed where it is. A running job on more nodes stays; a pool counts as no node.
        """
        check_present(job, self._active)
        if gpus is not None:
            check_size(job, gpus)
        return self._place_on(job, gpus, gpu_type, max_nodes)

    def _place_on(
        self, job: Job, gpus: float | None, gpu_type: str | None, max_nodes: int | None
    ) -> bool:
        raise NotImplementedError


class PairingPlan(Plan):
    """Two jobs may share GPUs, where the cluster knows how fast they run then (`view.sharing`)."""

    def place_beside(self, job: Job, host: Job) -> bool:
        """Share all GPUs of a job that is placed, asks for as many whole GPUs and shares with none.

        Pairs do not last by themselves: a job that is placed alone gets GPUs of its own.
        """
        raise NotImplementedError


class ExplicitPlan(Plan):
    """The policy names every slice itself; no placement is asked. The engine checks the result.

    So jobs share GPUs: several that name the same GPU (the `id` of one of `topology.devices`), as
    far as its mode allows (`rota.core.sharing`). GPU memory that a job asks for is added where the
    allocation says nothing of it.
    """

    def __init__(
        self, version: int, now_s: float, active: Mapping[int, Job], topology: Topology
    ) -> None:
        super().__init__(version, now_s, active)
        self._topology = topology
        self._wanted: dict[int, tuple[Job, Allocation]] = {}

    def place_at(self, job: Job, allocation: Allocation) -> None:
        """Run it exactly there."""
        if not isinstance(allocation, Allocation):
            raise InvalidPlanError(
                f"job {job.id} is placed at {allocation!r}: give an Allocation of slices"
            )
        check_present(job, self._active)
        check_size(job, allocation.gpus)
        self._check_tasks(job, allocation)
        if job.shape.gpu_mem_gib:
            allocation = self._with_memory(job, allocation)
        if self._topology.supply and job.shape.resources:
            allocation = self._with_supply(job, allocation)
        self._want(job, allocation)

    def _with_supply(self, job: Job, allocation: Allocation) -> Allocation:
        """What it asks for of the kinds of the whole cluster, where nothing is said of them."""
        said = {kind for _, kind, _ in allocation.extra}
        places = [*allocation.vertices, *(vertex for vertex, _, _ in allocation.extra)]
        more = [
            (places[0], kind, amount)
            for kind, amount in job.shape.resources.items()
            if places and kind in self._topology.supply and kind not in said
        ]
        if not more:
            return allocation
        return Allocation(allocation.slices, [*allocation.extra, *more], allocation.config)

    def _with_memory(self, job: Job, allocation: Allocation) -> Allocation:
        """On every GPU that it names and says nothing of, the memory that the job asks for."""
        vertices, shape = self._topology.vertices, job.shape
        said = {v for v, kind, _ in allocation.extra if kind in (GPU_MEM, EPHEMERAL, SPILL)}
        extra = list(allocation.extra)
        for vertex, _ in allocation.slices:
            known = 0 <= vertex < len(vertices) and vertices[vertex].level == DEVICE
            if known and vertex not in said:
                extra.append((vertex, GPU_MEM, shape.gpu_mem_gib - shape.gpu_mem_step_gib))
                if shape.gpu_mem_step_gib:
                    extra.append((vertex, EPHEMERAL, shape.gpu_mem_step_gib))
        return Allocation(allocation.slices, extra, allocation.config)

    def withdraw(self, job: Job) -> None:
        """Take `place_at` or `keep` back, in any order: here none depends on another."""
        if self._wanted.pop(job.index, None) is None:
            raise PolicyError(f"job {job.id} was not placed: only what was can be withdrawn")

    def holding(self, job: Job) -> Allocation:
        """What it holds in this plan."""
        return self._wanted[job.index][1] if job.index in self._wanted else NOTHING

    def _place(self, job: Job, gpus: float | None) -> bool:
        if not job.running or (gpus is not None and gpus != job.allocation.gpus):
            raise PolicyError(f"job {job.id}: an explicit policy says where: use `place_at`")
        self._want(job, job.allocation)
        return True

    def _has_place(self, job: Job) -> bool:
        return job.index in self._wanted

    def _stop(self, job: Job) -> None:
        """Who is not named stops."""

    def _want(self, job: Job, allocation: Allocation) -> None:
        _, before = self._wanted.setdefault(job.index, (job, allocation))
        if before != allocation:
            raise InvalidPlanError(
                f"job {job.id} is placed twice, at {before} and then at {allocation}: place it "
                "once, or `withdraw` it first"
            )

    def _check_tasks(self, job: Job, allocation: Allocation) -> None:
        """Tasks that ask for a node each have one each, with all their GPUs."""
        tasks = job.shape.apart
        if not tasks:
            return
        vertices = self._topology.vertices
        on: dict[int, float] = {}
        for vertex, amount in allocation.slices:
            node = vertices[vertex].node if 0 <= vertex < len(vertices) else vertex
            on[node] = on.get(node, 0.0) + amount
        each = job.gpus / tasks
        if len(on) != tasks or any(amount != each for amount in on.values()):
            given = ", ".join(f"{amount:g}" for amount in on.values())
            raise InvalidPlanError(
                f"job {job.id} asks for {job.shape.describe()} ({each:g} on each) and is given "
                f"{given} on {len(on)}: give every task a node of its own"
            )

    def _chosen(self) -> Iterable[int]:
        return self._wanted

    def finish(self, wake: Wake) -> Changes:
        """Everybody who was not named stops."""
        changes = super().finish(wake)
        cancelled = {job.index for job, _ in changes.cancels}
        for index, job in self._active.items():
            if job.running and index not in self._wanted and index not in cancelled:
                changes.stops.append(job)
        for job, allocation in self._wanted.values():
            if not job.running or allocation != job.allocation:
                changes.starts.append((job, allocation))
        return changes


def composed(declared: type[Plan], base: type[K], parts: Sequence[type[Plan]] = ()) -> type[K]:
    """The class of plans that are what a policy has declared, implemented by these classes."""
    key = (declared, base, *parts)
    if key not in _COMPOSED:
        _COMPOSED[key] = type(base.__name__, (*parts, base, declared), {})
    made: type[K] = _COMPOSED[key]
    return made


_COMPOSED: dict[tuple[type, ...], Any] = {}

CAPABILITIES: Sequence[type[Plan]] = (
    ReservingPlan, EligibilityPlan, ClosingPlan, DisplacingPlan, SupplyingPlan, LocalityPlan,
    PairingPlan, ExplicitPlan,
)  # fmt: skip
