"""A desired state in the making, for policies that say where every job goes."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager

import msgspec

from rota.core.allocation import NOTHING, Allocation
from rota.core.changes import Changes, Wake, check_fates, check_present, check_size, check_wake
from rota.core.errors import InvalidPlanError, PolicyError
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.reasons import Reason
from rota.core.view import Supply, View


class ExplicitDraft:
    """Implements `core.view.Draft` for policies that name every slice; the engine checks them."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._wanted: dict[int, tuple[Job, Allocation]] = {}
        self._wake_s = INF
        self.plan = Changes(view.version)

    def place(
        self,
        job: Job,
        *,
        gpus: float | None = None,
        max_nodes: int | None = None,
        supply: Supply | None = None,
        gpu_type: str | None = None,
        beside: Job | None = None,
    ) -> bool:
        """Keep a running job where it is; others need `place_at`."""
        del max_nodes  # it stays where it is
        if beside is not None:
            raise PolicyError(f"job {job.id}: an explicit policy cannot pair jobs")
        if gpu_type is not None and self._view.topology.types_at(job.allocation.vertices) != {
            gpu_type
        }:
            raise PolicyError(f"job {job.id}: an explicit policy says where: use `place_at`")
        resized = gpus is not None and gpus != job.allocation.gpus
        if not job.running or resized or supply is not None:
            raise PolicyError(f"job {job.id}: an explicit policy says where: use `place_at`")
        self._want(job, job.allocation)
        return True

    def supply(self, job: Job, supply: Supply) -> bool:  # noqa: ARG002
        """An explicit policy says how much."""
        raise PolicyError(f"job {job.id}: an explicit policy says how much: use `place_at`")

    def displace(self, job: Job, victims: Sequence[Job], *, must: int = 0) -> Sequence[Job] | None:  # noqa: ARG002
        """An explicit policy says where."""
        raise PolicyError(f"job {job.id}: an explicit policy says where: use `place_at`")

    def closed(self, nodes: int) -> AbstractContextManager[None]:
        """An explicit policy says where."""
        raise PolicyError(f"an explicit policy says where: nodes {nodes:b} cannot be closed")

    @property
    def pooled(self) -> bool:
        """It names nodes."""
        return False

    def holding(self, job: Job) -> Allocation:
        """What it holds in this draft."""
        return self._wanted[job.index][1] if job.index in self._wanted else NOTHING

    def remark(self, job: Job, why: str, *, because_of: Job | None = None) -> None:
        """Say why a running job is stopped, and for whom."""
        self.plan.remark(job, why, because_of=because_of)

    def refuse(self, job: Job, message: str) -> None:
        """Turn a job away for good."""
        self.plan.reject(job, message)

    def withdraw(self, job: Job) -> None:
        """Take `place` or `place_at` back."""
        if self._wanted.pop(job.index, None) is None:
            raise PolicyError(f"job {job.id} was not placed: only what was can be withdrawn")

    give_up = withdraw

    def earliest(self, job: Job, releases: Iterable[tuple[float, Job]]) -> float:  # noqa: ARG002
        """An explicit policy keeps its own books."""
        raise PolicyError(f"job {job.id}: an explicit policy keeps its own books of what is free")

    def eligible(self, job: Job) -> int:
        """An explicit policy keeps its own books."""
        raise PolicyError(f"job {job.id}: an explicit policy keeps its own books of its nodes")

    @property
    def nodes(self) -> int:
        """An explicit policy keeps its own books."""
        raise PolicyError("an explicit policy keeps its own books of nodes")

    def gpus_on(self, nodes: int, job: Job | None = None) -> float:
        """An explicit policy keeps its own books."""
        raise PolicyError(f"an explicit policy keeps its own books of nodes {nodes:b} ({job})")

    def fill(self, jobs: Iterable[Job], *, strict: bool = False) -> None:  # noqa: ARG002
        """An explicit policy says where."""
        raise PolicyError(f"an explicit policy says where: use `place_at` for {list(jobs)[:1]}")

    def candidates(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """All: an explicit policy keeps its own books."""
        return iter(jobs)

    def place_at(self, job: Job, allocation: Allocation) -> None:
        """Run it exactly there."""
        if not isinstance(allocation, Allocation):
            raise InvalidPlanError(
                f"job {job.id} is placed at {allocation!r}: give an Allocation of slices"
            )
        check_present(job, self._view.active)
        check_size(job, allocation.gpus)
        self._check_tasks(job, allocation)
        self._want(job, allocation)

    def _check_tasks(self, job: Job, allocation: Allocation) -> None:
        """Tasks that ask for a node each have one each, with all their GPUs."""
        tasks = job.shape.apart
        if not tasks:
            return
        vertices = self._view.topology.vertices
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

    def _want(self, job: Job, allocation: Allocation) -> None:
        _, before = self._wanted.setdefault(job.index, (job, allocation))
        if before != allocation:
            raise InvalidPlanError(
                f"job {job.id} is placed twice, at {before} and then at {allocation}: place it "
                "once, or `withdraw` it first"
            )

    def fits(self, job: Job) -> bool:
        """An explicit policy keeps its own books."""
        raise PolicyError(f"job {job.id}: an explicit policy keeps its own books of what is free")

    def explain(self, job: Job, reason: Reason) -> None:
        """Say why it waits."""
        self.plan.explain(job, reason)

    def cancel(self, jobs: Sequence[Job], *, because_of: Job | None = None) -> None:
        """End these jobs for good."""
        self.plan.cancel(jobs, because_of=because_of)

    def wake_at(self, time_s: float) -> None:
        """Ask again at this time."""
        check_wake(time_s, self._view.now_s)
        self._wake_s = min(self._wake_s, time_s)

    def watch(self, job: Job, quantity: str, value: float) -> None:
        """Ask again when a quantity of the job reaches the value."""
        self.plan.watch(job, quantity, value)

    def finish(self, wake: Wake) -> Changes:
        """The changes that lead to the desired state."""
        plan = self.plan
        cancelled = {job.index for job, _ in plan.cancels}
        if plan.cancels or plan.rejects:
            check_fates(plan, self._wanted)
        for index, job in self._view.active.items():
            if job.running and index not in self._wanted and index not in cancelled:
                plan.stops.append(job)
        for job, allocation in self._wanted.values():
            if not job.running or allocation != job.allocation:
                plan.starts.append((job, allocation))
        if self._wake_s < INF:
            plan.wake = msgspec.structs.replace(wake, at_s=self._wake_s)
        return plan
