"""The picture of the cluster that a policy decides on."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rota.core.allocation import Amount
from rota.core.errors import KnowledgeError, PolicyError
from rota.core.jobs import RUNNING, STARTING, WAITING, Job
from rota.core.knowledge import Knowledge
from rota.core.plan import Plan
from rota.core.tenants import TenantTree
from rota.core.topology import Topology

if TYPE_CHECKING:
    import numpy as np

K = TypeVar("K", bound=Plan)


class View:
    """Read-only. Rows are the live jobs; NumPy columns are built on demand, once per decision."""

    __slots__ = (
        "_columns", "active", "by_phase", "everyone", "finished", "head", "knowledge", "now_s",
        "planner", "rank", "shared_reasons", "sharing", "spent", "tenants", "topology",
        "up_gpus", "version",
    )  # fmt: skip

    def __init__(self, topology: Topology, tenants: TenantTree) -> None:
        self.now_s = 0.0
        self.version = 0
        self.topology = topology
        self.tenants = tenants
        self.up_gpus: Amount = topology.gpus
        self.active: dict[int, Job] = {}
        self.knowledge = Knowledge.NOTHING
        self.sharing = False  # two jobs may use the same GPUs: the cluster knows their speeds
        self.everyone: Mapping[int, Job] = {}  # for schedulers that are restored; by index
        self.shared_reasons: dict[tuple[str, int], int] = {}  # by tenant and number of the shape
        self.spent: dict[tuple[int, str], float] = {}
        """Of what is not renewable, by vertex and kind: what jobs that are over have used up."""
        self.planner: Callable[[], Plan] | None = None
        self.rank: Callable[[Job], tuple[Any, int]] = arrival  # in the queue, by the scheduler
        self.head: Callable[[int], Job | None] = _nobody  # in the queue, of a shape
        # waiting and running jobs, if the scheduler keeps them apart
        self.by_phase: tuple[Mapping[int, Job], Mapping[int, Job]] | None = None
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
        if self.by_phase is not None:
            return list(self.by_phase[0].values())
        return [job for job in self.active.values() if job.phase == WAITING]

    @property
    def running(self) -> list[Job]:
        """Jobs that hold resources, in order of arrival."""
        if self.by_phase is not None:
            return sorted(self.by_phase[1].values(), key=arrival)
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

    def ordered_by(self, *columns: str) -> list[Job]:
        """All jobs sorted by columns (the first counts most), ties in order of arrival."""
        import numpy as np

        if not columns:
            return list(self.jobs)
        table = self.columns
        order = np.lexsort([getattr(table, name) for name in reversed(columns)])
        jobs = table.jobs
        return [jobs[i] for i in order.tolist()]

    @overload
    def plan(self) -> Plan: ...

    @overload
    def plan(self, kind: type[K]) -> K: ...

    def plan(self, kind: type[Plan] = Plan) -> Plan:
        """A plan to write and return from `decide`; `kind`: with the capabilities declared."""
        if self.planner is None:  # pragma: no cover - the engine always provides one
            raise RuntimeError("this view has no placement to plan with")
        made = self.planner()
        if not isinstance(made, kind):
            raise PolicyError(
                f"a {kind.__name__} was asked for, but the policy has not declared it: set "
                f"`plan_type = {kind.__name__}`"
            )
        return made

    def follow(self, other: "View", active: dict[int, Job]) -> None:
        """Show what another view shows, but only these jobs."""
        self.now_s, self.version, self.up_gpus = other.now_s, other.version, other.up_gpus
        self.knowledge, self.sharing = other.knowledge, other.sharing
        self.rank, self.head = other.rank, other.head
        self.everyone, self.finished = other.everyone, other.finished
        self.active = active
        self._columns = None


def arrival(job: Job) -> tuple[float, int]:
    """Order of arrival."""
    return (job.submit_s, job.index)


def _nobody(shape: int) -> Job | None:  # noqa: ARG001 - a scheduler may know better
    return None


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
                job.true_left
                - (now_s - job.since_s) * job.true_rate
                + (job.belief - 1.0) * job.true_work
                if job.phase == RUNNING
                else job.true_left + (job.belief - 1.0) * job.true_work
                for job in self.jobs
            ],
        )
