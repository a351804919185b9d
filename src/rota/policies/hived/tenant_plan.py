"""What a policy that runs inside a virtual cluster writes: a plan of its cells.

It behaves as any plan: jobs are placed in the order in which the policy names them, running jobs
that are named stay, waiting ones go to free cells or displace running jobs that have not been named
yet, and running jobs that are never named stop. Which of these leave is HiveD's choice. Jobs of
lower priority and opportunistic ones leave for any job.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rota.core.errors import PolicyError
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.plan import Plan
from rota.core.reasons import Reason
from rota.core.sums import ordered_sum
from rota.core.view import View
from rota.policies.hived.algorithm import HivedWait, Preempt
from rota.policies.hived.decision import CellDecision, Rooms, victims_of
from rota.policies.hived.fleet import Placed


class Latest(NamedTuple):
    """What it takes to undo a `place`."""

    job: Job
    preempt: Preempt | None
    """Whose victims have not left yet."""
    victims: dict[int, Job]
    """Running jobs of this plan among the victims."""
    marks: tuple[int, Mapping[str, int]]
    before: tuple[Placed, ...] = ()
    """Where it was if it was moved."""
    """How many requests had failed before."""


class TenantPlan(Plan):
    """A plan on the cells of a virtual cluster, with the verbs of reservations and types.

    HiveD itself places jobs and chooses who leaves: policies that want to are refused (`inner`).
    """

    def __init__(
        self,
        decision: CellDecision,
        name: str,
        view: View,
        gpus: Mapping[str, float],
        *,
        keeps_unnamed: bool = False,
    ) -> None:
        super().__init__(view.version, view.now_s, view.active)
        self.changes = decision.plan.changes  # of the whole cluster
        self._decision = decision
        self._gpus = gpus  # of the virtual cluster, by type
        self._fleet = decision.fleet
        self._name = name
        self._open: dict[int, Job] = {}
        """Running jobs that were not named yet; none if all go on that are not named."""
        if not keeps_unnamed:
            self._open = {i: job for i, job in view.active.items() if decision.runs(job)}
        self._eager: set[int] = set()
        """Jobs that go before those: they have the higher of the two priorities of their class."""
        self._named: list[int] = []
        self._kept: set[int] = set()
        """Running jobs that were placed."""
        self._failed: dict[tuple[int, str], None] = {}
        self._latest: Latest | None = None
        self._choosy = False
        """Somebody who asks for certain nodes found no place."""

    # --- what a policy calls ----------------------------------------------------------------------

    def _place(self, job: Job, gpus: float | None) -> bool:
        return self._place_on(job, gpus, None, None)

    def _place_on(
        self, job: Job, gpus: float | None, gpu_type: str | None, max_nodes: int | None
    ) -> bool:
        """Run it if its virtual cluster has cells for it beside what is placed already."""
        if gpus not in (None, job.gpus):
            raise self._cannot("resizes jobs, but cells are given as jobs ask for them")
        if job.index in self._open:
            if gpu_type is not None and self._type_of(job) != gpu_type:
                return self._move(job, gpu_type)
            del self._open[job.index]
            self._named.append(job.index)
            self._kept.add(job.index)
            return True
        if self._decision.runs(job) or self._reserved(job):
            if job.running:
                self._kept.add(job.index)
            return True
        if not self._start(job, gpu_type):
            return False
        if max_nodes is None or self._nodes(job) <= max_nodes:
            return True
        self.withdraw(job)
        return False

    def place_beside(self, job: Job, host: Job) -> bool:
        """A cell has one job."""
        raise self._cannot(f"lets jobs share GPUs ({job.id}, {host.id}), but a cell has one job")

    def _has_place(self, job: Job) -> bool:
        return job.index in self._kept and (self._decision.runs(job) or self._reserved(job))

    def _stop(self, job: Job) -> None:
        """Others can have its cells."""
        if self._decision.runs(job):
            self._open.pop(job.index, None)
            self._commit()
            self._decision.displace(job.index, None)

    def withdraw(self, job: Job) -> None:
        """Take the latest successful `place` back, its victims included."""
        latest, self._latest = self._latest, None
        if latest is None or latest.job is not job:
            raise PolicyError(f"job {job.id} was not placed last: only that can be withdrawn")
        if latest.preempt is not None:
            self._fleet.give_up(job)
            self._open.update(latest.victims)
        else:
            self._decision.take_back(job)
        self._eager.discard(job.index)
        if latest.before:
            self._fleet.come_back(job.index, latest.before)
            self._open[job.index] = job
        self._kept.discard(job.index)
        while len(self._failed) > latest.marks[0]:  # they failed beside this job
            self._failed.popitem()
        self._decision.hopeless.back_to(latest.marks[1])

    def earliest(
        self, job: Job, releases: Iterable[tuple[float, Job]], *, ordered: bool = False
    ) -> float:
        """Let them go one by one until there is room in the virtual cluster; changes nothing."""
        rooms = [Rooms(self._fleet, spec) for spec in self._fleet.asks.of(job).pods]
        if any(room.enough() for room in rooms):
            return self._decision.view.now_s
        if not ordered:
            releases = sorted(releases, key=lambda release: (release[0], release[1].index))
        for time_s, other in releases:
            for room in rooms:
                room.leave(other)
            if any(room.enough() for room in rooms):
                return time_s
        return INF

    def eligible(self, job: Job) -> int:
        """Types of GPUs that it accepts: cells of a type stand in for nodes."""
        types = self._decision.view.topology.types
        return sum(1 << i for i, kind in enumerate(types) if kind in (job.shape.types or types))

    @property
    def nodes(self) -> int:
        """All types."""
        return (1 << len(self._decision.view.topology.types)) - 1

    def gpus_on(self, nodes: int, job: Job | None = None) -> float:
        """GPUs of these types in the virtual cluster, or what a running job holds of them."""
        types = [t for i, t in enumerate(self._decision.view.topology.types) if nodes >> i & 1]
        if job is None:
            return ordered_sum(self._gpus.get(kind, 0) for kind in types)
        return job.held_gpus if self._type_of(job) in types else 0.0

    def candidates(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Those whose request has not failed yet."""
        return (job for job in jobs if (job.shape.number, job.tenant) not in self._failed)

    def fits(self, job: Job) -> bool:
        """Whether there is room for it in the virtual cluster."""
        if job.index in self._open or self._decision.runs(job) or self._reserved(job):
            return True
        rooms = [Rooms(self._fleet, spec) for spec in self._fleet.asks.of(job).pods]
        for room in rooms:
            for other in self._open.values():
                room.leave(other)
        return any(room.enough() for room in rooms)

    def explain(self, job: Job, reason: Reason) -> None:
        """Say why it waits."""
        self._decision.explain(job, reason)

    def cancel(self, jobs: Sequence[Job], *, because_of: Job | None = None) -> None:
        """End these jobs for good."""
        super().cancel(jobs, because_of=because_of)
        self._named += [job.index for job in jobs if self._open.pop(job.index, None) is not None]

    def wake_at(self, time_s: float) -> None:
        """Ask the whole cluster again at this time."""
        self._decision.plan.wake_at(time_s)

    # --- how it is done ---------------------------------------------------------------------------

    def settle(self) -> None:
        """The policy has decided: running jobs that it did not name leave."""
        self._commit()
        for index in sorted(self._eager):
            if index in self._fleet.placed:  # it may have been displaced since
                self._fleet.rerank(index, eager=False)
        for index in self._open:
            self._decision.displace(index, None)
        if self._open and self._choosy:
            # HiveD displaces nobody for certain nodes while it sees others: now these are free
            self.wake_at(self._decision.view.now_s)

    def _start(self, job: Job, gpu_type: str | None) -> bool:
        key = (job.shape.number, job.tenant)
        if gpu_type is None and key in self._failed:
            return False
        self._commit()
        marks = (len(self._failed), self._decision.hopeless.marks())
        eager = False
        answer = self._decision.attempt(job, gpu_type=gpu_type)
        if isinstance(answer, HivedWait) and self._open:
            self._rank_named()
            eager = True
            answer = self._decision.attempt(job, eager=True, gpu_type=gpu_type)
        if isinstance(answer, HivedWait):
            self._choosy |= self._decision.fleet.is_choosy(job.shape)
            if gpu_type is None:
                self._failed[key] = None
            return False
        victims: dict[int, Job] = {}
        preempt = answer if isinstance(answer, Preempt) else None
        if preempt is not None:
            found = ((index, self._open.pop(index, None)) for index in victims_of(preempt))
            victims = {index: victim for index, victim in found if victim is not None}
        if eager:
            self._eager.add(job.index)
        else:
            self._named.append(job.index)
        if job.running:  # it moves, or was stopped before
            self._kept.add(job.index)
        self._latest = Latest(job, preempt, victims, marks)
        return True

    def _move(self, job: Job, gpu_type: str) -> bool:
        """Let it go on with GPUs of another type, if there are any for it."""
        self._commit()
        del self._open[job.index]
        before = self._fleet.leave(job.index)
        if self._start(job, gpu_type):
            assert self._latest is not None  # noqa: S101 - it has just been placed
            self._latest = self._latest._replace(before=before)
            return True
        self._fleet.come_back(job.index, before)
        self._open[job.index] = job
        return False

    def _commit(self) -> None:
        """The latest `place` cannot be withdrawn any more: its victims leave."""
        latest, self._latest = self._latest, None
        if latest is not None and latest.preempt is not None:
            self._decision.settle(latest.job, latest.preempt)

    def _rank_named(self) -> None:
        """Jobs that were named go before those that were not."""
        for index in self._named:
            if index in self._fleet.placed:
                self._fleet.rerank(index, eager=True)
                self._eager.add(index)
        self._named.clear()

    def _reserved(self, job: Job) -> bool:
        return self._latest is not None and self._latest.job is job

    def _nodes(self, job: Job) -> int:
        return len({leaf.nodes[0] for leaf in self._fleet.group(job.index).leaves()})

    def _type_of(self, job: Job) -> str:
        return self._fleet.types[next(self._fleet.group(job.index).leaves()).chain]

    def _cannot(self, what: str) -> PolicyError:
        return PolicyError(f"policy 'hived': inside={self._name} {what}: take another policy")
