"""A desired state in the making, for policies that say where every job goes."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from rota.core.allocation import Allocation
from rota.core.errors import PolicyError
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.plan import Plan, Wake
from rota.core.reasons import Reason
from rota.core.view import Supply, View


class ExplicitDraft:
    """Implements `core.view.Draft` for policies that name every slice; the engine checks them."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._wanted: dict[int, tuple[Job, Allocation]] = {}
        self._wake_s = INF
        self.plan = Plan(view.version)

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
        self._wanted[job.index] = (job, job.allocation)
        return True

    def supply(self, job: Job, supply: Supply) -> bool:  # noqa: ARG002
        """An explicit policy says how much."""
        raise PolicyError(f"job {job.id}: an explicit policy says how much: use `place_at`")

    def displace(self, job: Job, victims: Sequence[Job], *, must: int = 0) -> Sequence[Job] | None:  # noqa: ARG002
        """An explicit policy says where."""
        raise PolicyError(f"job {job.id}: an explicit policy says where: use `place_at`")

    def remark(self, job: Job, why: str, *, because_of: Job | None = None) -> None:
        """Say why a running job is stopped, and for whom."""
        self.plan.remark(job, why, because_of=because_of)

    def refuse(self, job: Job, message: str) -> None:
        """Turn a job away for good."""
        self.plan.reject(job, message)

    def withdraw(self, job: Job) -> None:
        """Take `place` or `place_at` back."""
        del self._wanted[job.index]

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
        self._wanted[job.index] = (job, allocation)

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
        self._wake_s = min(self._wake_s, time_s)

    def watch(self, job: Job, quantity: str, value: float) -> None:
        """Ask again when a quantity of the job reaches the value."""
        self.plan.watch(job, quantity, value)

    def finish(self, wake: Wake) -> Plan:
        """The changes that lead to the desired state."""
        plan = self.plan
        cancelled = {job.index for job, _ in plan.cancels}
        for index, job in self._view.active.items():
            if job.running and index not in self._wanted and index not in cancelled:
                plan.stops.append(job)
        for job, allocation in self._wanted.values():
            if not job.running or allocation != job.allocation:
                plan.starts.append((job, allocation))
        if self._wake_s < INF:
            plan.wake = msgspec.structs.replace(wake, at_s=self._wake_s)
        return plan
