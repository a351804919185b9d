"""The picture of the cluster that a policy decides on."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from rota.core.changes import Changes
from rota.core.errors import KnowledgeError
from rota.core.jobs import RUNNING, STARTING, WAITING, Job
from rota.core.knowledge import Knowledge
from rota.core.reasons import Reason
from rota.core.tenants import TenantTree
from rota.core.topology import Topology

if TYPE_CHECKING:
    import numpy as np

    from rota.core.allocation import Allocation

Supply: TypeAlias = tuple[float, float]
"""CPUs and memory in GiB, for a whole job."""


class Draft(Protocol):
    """A desired state in the making: placed jobs run, running jobs that are not placed stop."""

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
        """Run it if it fits beside what is placed already; True if it does.

        `max_nodes`: a waiting job only starts where the placement needs no more nodes than this
        (a pool has no nodes: there it always holds). `supply`: CPUs and memory in GiB for the whole
        job instead of what it asks for; a running job gets them where it is, if there is room.
        `gpu_type`: only on GPUs of this type; a running job on another type is moved. False if
        there is no room on GPUs of this type, or the job does not accept them: then it is as if
        nothing had been asked, and a running job may still be placed where it is. `beside`: share
        all GPUs of this job, which has been placed in this draft, asks for as many whole GPUs and
        shares them with nobody else. Pairs do not last by themselves: a job that is placed without
        `beside` gets GPUs of its own. Only where `view.sharing` is set.
        """
        ...

    def supply(self, job: Job, supply: Supply) -> bool:
        """Give a placed job other CPUs and memory where it is; True if there is room for them."""
        ...

    def displace(self, job: Job, victims: Sequence[Job], *, must: int = 0) -> Sequence[Job] | None:
        """Run a job that waits, if need be in the place of some of these, the first ones first.

        Returns those that have to go (none where it fits beside all that run); None if it would not
        even fit without all of them. Only running jobs that were not named yet can go; others keep
        their slices, named or not. The first `must` go even if there is room beside them.
        """
        ...

    def closed(self, nodes: int) -> AbstractContextManager[None]:
        """As long as this context is open, nothing is placed on these nodes.

        A set: bit i is the i-th node of the topology. Who is there stays. Where GPUs are one pool
        (`pooled`), nodes cannot be closed and nothing changes.
        """
        ...

    @property
    def pooled(self) -> bool:
        """GPUs are pools: only amounts matter, not nodes."""
        ...

    def holding(self, job: Job) -> "Allocation":
        """What it holds in this draft; nothing if it is not placed."""
        ...

    def remark(self, job: Job, why: str, *, because_of: Job | None = None) -> None:
        """Say in the log why a running job is stopped, and for whom."""
        ...

    def refuse(self, job: Job, message: str) -> None:
        """Turn a job away that has never run, for good; the message reaches its owner."""
        ...

    def withdraw(self, job: Job) -> None:
        """Take the latest successful `place` (or `displace`) back, as if it had not been asked."""
        ...

    def give_up(self, job: Job) -> None:
        """Take the start of a waiting (or displaced) job back, though others were placed after it.

        Those that left for it do not come back by that: they can be placed again.
        """
        ...

    def earliest(self, job: Job, releases: Iterable[tuple[float, Job]]) -> float:
        """When would a waiting job fit if each of these jobs left at its time, and no other did?

        Now if it fits already, else the time of a release; inf if it would not even fit after the
        last. The others are running jobs, or jobs that this draft has placed.
        """
        ...

    def eligible(self, job: Job) -> int:
        """The nodes that are up and could ever host a part of it, as a set: bit i is node i.

        Jobs whose sets have no node in common (`not a & b`) never compete: whoever keeps an order
        or makes reservations does so among jobs that compete. Bits may stand for pools instead of
        nodes; they mean the same for all jobs of one draft.
        """
        ...

    @property
    def nodes(self) -> int:
        """All nodes that are up, as such a set."""
        ...

    def gpus_on(self, nodes: int, job: Job | None = None) -> float:
        """GPUs of the nodes of such a set; with `job`: those that this running job holds there."""
        ...

    def fill(self, jobs: Iterable[Job], *, strict: bool = False) -> None:
        """`place` all in this order.

        `strict`: who does not fit holds back all behind it that compete with it (`eligible`).
        """
        ...

    def candidates(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Those that may still be placed: skips what cannot fit any more, ends when all is full."""
        ...

    def place_at(self, job: Job, allocation: "Allocation") -> None:
        """Run it exactly there."""
        ...

    def fits(self, job: Job) -> bool:
        """Would it fit beside what is placed already?"""
        ...

    def explain(self, job: Job, reason: Reason) -> None:
        """Say why it waits."""
        ...

    def cancel(self, jobs: Sequence[Job], *, because_of: Job | None = None) -> None:
        """End these jobs for good."""
        ...

    def wake_at(self, time_s: float) -> None:
        """Ask again at this time."""
        ...

    def watch(self, job: Job, quantity: str, value: float) -> None:
        """Ask again when a quantity of the job reaches the value."""
        ...


class DraftMaker(Protocol):
    """Makes an empty draft for a view."""

    def __call__(self, view: "View") -> Draft:
        """Start a draft."""
        ...


class View:
    """Read-only. Rows are the live jobs; NumPy columns are built on demand, once per decision."""

    __slots__ = (
        "_columns", "active", "books", "draft_maker", "everyone", "finished", "knowledge", "now_s",
        "rank", "sharing", "tenants", "topology", "up_gpus", "version",
    )  # fmt: skip

    def __init__(self, topology: Topology, tenants: TenantTree) -> None:
        self.now_s = 0.0
        self.version = 0
        self.topology = topology
        self.tenants = tenants
        self.up_gpus: float = topology.gpus
        self.active: dict[int, Job] = {}
        self.knowledge = Knowledge.NOTHING
        self.sharing = False  # two jobs may use the same GPUs: the cluster knows their speeds
        self.everyone: Mapping[int, Job] = {}  # for schedulers that are restored; by index
        self.draft_maker: DraftMaker | None = None
        self.rank: Callable[[Job], tuple[Any, int]] = arrival  # in the queue, by the scheduler
        self.books: tuple[Mapping[int, Job], Mapping[int, Job]] | None = None  # who waits, who runs
        self.finished: list[Job] = []  # for the engine; policies read `history`
        self._columns: Columns | None = None

    @property
    def up_by_type(self) -> Mapping[str, float]:
        """GPUs of nodes that are up by GPU type, in the order of `topology.types`."""
        found: dict[str, float] = dict.fromkeys(self.topology.types, 0)
        for node in self.topology.nodes:
            if node.up and node.gpus:
                found[node.gpu_type] += node.gpus
        return found

    @property
    def jobs(self) -> Sequence[Job]:
        """All jobs in the queue or on the cluster, in order of arrival."""
        return list(self.active.values())

    @property
    def waiting(self) -> list[Job]:
        """Jobs in the queue, in order of arrival."""
        if self.books is not None:
            return list(self.books[0].values())
        return [job for job in self.active.values() if job.phase == WAITING]

    @property
    def running(self) -> list[Job]:
        """Jobs that hold resources, in order of arrival."""
        if self.books is not None:
            return sorted(self.books[1].values(), key=arrival)
        return [job for job in self.active.values() if job.phase in (RUNNING, STARTING)]

    @property
    def history(self) -> Sequence[Job]:
        """Finished jobs, in order of completion (needs Knowledge.HISTORY)."""
        if not self.knowledge & Knowledge.HISTORY:
            raise KnowledgeError("a policy read `view.history` without declaring Knowledge.HISTORY")
        return self.finished

    @property
    def columns(self) -> "Columns":
        """The rows of `jobs` as NumPy arrays."""
        if self._columns is None or self._columns.version != self.version:
            self._columns = Columns(self.jobs, self.now_s, self.version)
        return self._columns

    def forget_columns(self) -> None:
        """The rows changed within one decision."""
        self._columns = None

    def ordered_by(self, *columns: str) -> list[Job]:
        """All jobs sorted by columns (the first counts most), ties in order of arrival."""
        import numpy as np

        if not columns:
            return list(self.jobs)
        table = self.columns
        order = np.lexsort([getattr(table, name) for name in reversed(columns)])
        jobs = table.jobs
        return [jobs[i] for i in order.tolist()]

    def plan(self) -> Draft:
        """A desired state to fill; return it from `decide`."""
        if self.draft_maker is None:  # pragma: no cover - the engine always provides one
            raise RuntimeError("this view has no placement to plan with")
        return self.draft_maker(self)

    def delta(self) -> Changes:
        """An empty plan of changes, for schedulers that say only what changes."""
        return Changes(self.version)


def arrival(job: Job) -> tuple[float, int]:
    """Order of arrival."""
    return (job.submit_s, job.index)


class Columns:
    """NumPy columns over rows, each built on first use."""

    def __init__(self, jobs: Sequence[Job], now_s: float, version: int) -> None:
        self.jobs = jobs
        self.version = version
        self._now_s = now_s
        self._made: dict[str, Any] = {}

    def _column(self, name: str, dtype: str, values: list[Any]) -> "np.ndarray[Any, Any]":
        if name not in self._made:
            import numpy as np

            array = np.array(values, dtype=dtype)
            array.flags.writeable = False
            self._made[name] = array
        made: np.ndarray[Any, Any] = self._made[name]
        return made

    @property
    def index(self) -> "np.ndarray[Any, Any]":
        """Number of each job in the workload."""
        return self._column("index", "int64", [job.index for job in self.jobs])

    @property
    def gpus(self) -> "np.ndarray[Any, Any]":
        """GPUs asked."""
        return self._column("gpus", "float64", [job.gpus for job in self.jobs])

    @property
    def held_gpus(self) -> "np.ndarray[Any, Any]":
        """GPUs held now."""
        return self._column("held_gpus", "float64", [job.held_gpus for job in self.jobs])

    @property
    def submit_s(self) -> "np.ndarray[Any, Any]":
        """Submission times."""
        return self._column("submit_s", "float64", [job.submit_s for job in self.jobs])

    @property
    def running(self) -> "np.ndarray[Any, Any]":
        """Whether each job holds resources."""
        return self._column("running", "bool", [job.running for job in self.jobs])

    @property
    def attained_gpu_s(self) -> "np.ndarray[Any, Any]":
        """GPU-seconds of progress so far."""
        now_s = self._now_s
        return self._column(
            "attained_gpu_s", "float64", [job.attained_gpu_s(now_s) for job in self.jobs]
        )

    @property
    def remaining_s(self) -> "np.ndarray[Any, Any]":
        """Oracle: seconds still needed (needs Knowledge.REMAINING_WORK)."""
        now_s = self._now_s
        if self.jobs:
            self.jobs[0].remaining_s(now_s)  # raises if it is not declared; the same for all jobs
        return self._column(
            "remaining_s",
            "float64",
            [
                job.left - (now_s - job.since_s) * job.rate + (job.belief - 1.0) * job.work
                if job.phase == RUNNING
                else job.left + (job.belief - 1.0) * job.work
                for job in self.jobs
            ],
        )
