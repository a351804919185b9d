"""The seams of Rota: what a scheduler, a cluster, a source or a cost model must answer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from rota.core.admission import BudgetUse
from rota.core.allocation import Allocation
from rota.core.changes import Changes, Wake
from rota.core.events import INF, Event
from rota.core.jobs import Behaviour, Job, JobSpec, Request, Shape
from rota.core.knowledge import Knowledge
from rota.core.topology import Topology, Vertex
from rota.core.view import View
from rota.core.workload import Workload


class ClusterCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster promises; one that promises nothing is always correct."""

    instant_stop: bool = False
    """`stop` frees at once: the engine need not wait for victims to leave."""
    frictionless: bool = False
    """Moreover starting takes no time, no work is ever lost and every rate is 1."""
    shares: bool = False
    """It knows how fast two jobs run on the same GPUs."""
    exact_ends: bool = False
    """A job ends at the very moment at which its work is done."""
    new_terms: bool = False
    """How much jobs may use of the GPUs that they have can change while they run (`accepts`)."""
    phased: bool = False
    """Rates change by themselves (JOB_PHASE), and jobs tell of it (`measured`)."""


class Cluster(Protocol):
    """Where jobs really run: the simulator, local processes, Slurm, ... all behind these calls.

    The clock belongs to the cluster.
    """

    now_s: float
    topology: Topology
    capabilities: ClusterCapabilities

    def poll(self, until_s: float) -> list[Event]:
        """Wait for the next events, not beyond `until_s`; all share the time `now_s` afterwards."""
        ...

    def start(self, job: Job) -> float:
        """Launch on `job.allocation`; when progress begins (inf: JOB_RUNNING will tell)."""
        ...

    def rate(self, job: Job) -> float:
        """Progress per second on its present allocation."""
        ...

    def stop(self, job: Job, *, to: Allocation | None = None) -> tuple[float, bool]:
        """End it (`to`: in order to move there): (work lost, already stopped?).

        If it has not stopped yet, JOB_STOPPED follows.
        """
        ...

    def evict(self, job: Job) -> float:
        """Its node died: forget the run; the work that is lost."""
        ...

    def release(self, job: Job) -> None:
        """The job is over (done, failed, cancelled): forget it, ending what still runs."""
        ...

    def failure(self, subject: Job | Vertex) -> str:
        """Why a job failed or was lost, who asked for what happens to it; why a node is closed."""
        ...

    def measured(self, job: Job) -> Mapping[str, float]:
        """What the job reported last (after REPORT, or when it begins a phase)."""
        ...

    def rerated(self) -> Sequence[tuple[Job, float]]:
        """Jobs whose rate changed because their neighbours changed, with the new rate."""
        ...

    def accepts(self, job: Job, allocation: Allocation) -> bool:
        """May a job that runs go on, on these other terms? With that capability; else it moves."""
        ...

    def new_terms(self, job: Job) -> None:
        """It has its GPUs on other terms from now on (`job.allocation`); see the capability."""
        ...

    def close(self) -> None:
        """End everything that this cluster started."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """What is under way, as plain data."""
        ...

    def restore(self, state: dict[str, Any], jobs: dict[int, Job]) -> None:
        """Resume from the state of `snapshot`, with these jobs by their number."""
        ...


class Source(Protocol):
    """Where jobs come from: a trace, or an API."""

    next_s: float
    """Time of the next submission that is known already; inf if none."""
    linked: bool
    """Jobs may depend on each other."""

    def take(self, now_s: float) -> Sequence[tuple[int, JobSpec, Behaviour]]:
        """Submissions up to now, each with its number in the workload."""
        ...


class TransitionCost(msgspec.Struct, frozen=True):
    """What a change of allocation costs.

    The old slices stay busy for `stop_s`, the new ones for `start_s`, both without progress;
    `lost_work` is done again; for `slow_s` seconds after the start the rate is times `slow_factor`.
    """

    stop_s: float = 0.0
    start_s: float = 0.0
    lost_work: float = 0.0
    slow_s: float = 0.0
    slow_factor: float = 1.0


FREE = TransitionCost()


class Costs(Protocol):
    """Mechanism costs."""

    @property
    def name(self) -> str:
        """As registered."""
        ...

    @property
    def free(self) -> bool:
        """Nothing ever costs anything: a cluster need not ask."""
        ...

    @property
    def instant_stop(self) -> bool:
        """Stopping takes no time."""
        ...

    def transition(
        self, job: Job, old: Allocation | None, new: Allocation | None, now_s: float
    ) -> TransitionCost:
        """From what the job holds (None: it waits) to `new` (None: it stops)."""
        ...

    def failure_loss(self, job: Job, now_s: float) -> float:
        """Work lost when a node dies under the job."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """For the assumptions printed with every result."""
        ...


class RatePhase(NamedTuple):
    """A rate that holds until a time or a level of work, whichever comes first.

    `told` is what the job reports of it (names as in `core.hints`).
    """

    rate: float
    until_s: float = INF
    until_done: float = INF
    told: Mapping[str, float] | None = None


class RateModel(Protocol):
    """Progress per second. Only `name`, `rate` and `describe` are required of those that derive."""

    name: str
    unit: bool = False
    """The rate is 1.0 for every job and allocation."""
    neighbours: bool = False
    """The rate depends on the jobs that have a key in common (see `keys`)."""
    packs: bool = False
    """It knows how fast two jobs run on the same GPUs."""
    phased: bool = False
    """Rates change while a job runs: `phase` is asked instead of `rate`."""

    def keys(self, job: Job) -> Sequence[int]:
        """Numbers that neighbours have in common: the vertices of their slices.

        A slice names a GPU, a node or a pool: with node-level slices all jobs of a node share.
        """
        return job.allocation.vertices

    def rate(self, job: Job, allocation: Allocation, sharers: Sequence[Job]) -> float:
        """`sharers` are its neighbours (only when `neighbours` is set)."""
        ...

    def phase(
        self,
        job: Job,
        allocation: Allocation,
        sharers: Sequence[Job],
        done: float,  # noqa: ARG002 - for those that change
        now_s: float,  # noqa: ARG002
    ) -> RatePhase:
        """The rate from now on, with so much work done, and for how long it holds.

        It ends after now and beyond `done`. Asked twice for the same it says the same.
        """
        return RatePhase(self.rate(job, allocation, sharers))

    def speed(self, job: Job, gpu_type: str) -> float:
        """The rate on GPUs of this type, alone, with what it asks for."""
        return (job.truth.speeds or {}).get(gpu_type, 1.0)

    def speed_with(self, job: Job, gpus: float, nodes: int, gpu_type: str) -> float:  # noqa: ARG002
        """The rate with so many GPUs of a type on so many nodes (0: on few), alone."""
        return self.speed(job, gpu_type)

    def beside(self, job: Job, other: Job, gpu_type: str) -> float:  # noqa: ARG002
        """The factor on its speed while another job uses the same GPUs (if the model `packs`)."""
        return 1.0

    def describe(self) -> Mapping[str, Any]:
        """For the assumptions printed with every result."""
        ...

    def snapshot(self) -> Mapping[str, Any]:
        """What it remembers of jobs, as plain data."""
        return {}

    def restore(self, state: Mapping[str, Any], jobs: Mapping[int, Job]) -> None:  # noqa: ARG002
        """Take the state of `snapshot` up again."""
        return


class Scheduler(Protocol):
    """What the engine calls. `compose` builds one from admission, policy and placement.

    `step`, `snapshot` and `restore` are required. The rest has defaults for schedulers that derive
    from this class and do not need it.
    """

    name: str
    knowledge: Knowledge
    wake: Wake
    trusted: bool
    """Its own accounts are exact (a placement of Rota keeps them): plans are not checked twice."""
    hears_phases: bool = False
    """A job that goes on at another rate by itself (JOB_PHASE) is a reason to ask."""
    settles: bool = False
    """`settle` must be called after the changes of each step."""
    in_order: bool = False
    """Jobs are served in the order of arrival: none is overtaken by one that comes later."""
    looks_back: bool = True
    """It may read of jobs that are over, so the view keeps them."""
    refine: Callable[[JobSpec], Request] | None = None
    """The request by which a job is placed, if the placement tells more jobs apart than that."""

    def expect(self, workload: Workload) -> None:  # noqa: ARG002
        """The jobs that will come, before the first one, if they are known."""
        return

    def step(self, view: View, events: Sequence[Event]) -> Changes | None:
        """Events since the last call; the changes, or None when there are none."""
        ...

    def settle(self, view: View, changes: Changes) -> Sequence[tuple[float, Job]]:  # noqa: ARG002
        """After the changes were carried out: times at which a job must be looked at again."""
        return ()

    def overhear(self, view: View, events: Sequence[Event]) -> Changes | None:  # noqa: ARG002
        """Events that `step` gets later: only the reasons that they change."""
        return None

    def reshape(self, job: Job, shape: Shape, now_s: float) -> None:  # noqa: ARG002
        """From now on a job is placed by this request: other windows bar it (`core.windows`)."""
        job.shape = shape

    def rank(self, job: Job) -> tuple[Any, int]:
        """The place of a waiting job in the queue: smaller ones come first."""
        return (0.0, job.index)

    def head(self, shape: int) -> Job | None:  # noqa: ARG002
        """The waiting job of a shape that ranks before the others of it; None: not known."""
        return None

    def why_held(self, job: Job, view: View) -> str:  # noqa: ARG002
        """What a job that is kept out of the queue waits for; empty: the reason says it all."""
        return ""

    def budgets(self, view: View, now_s: float) -> Sequence[BudgetUse]:  # noqa: ARG002
        """What was used of budgets, if there are any."""
        return ()

    def explained_shapes(self) -> Sequence[int]:
        """Shapes for which a reason is in force in the log."""
        return ()

    def snapshot(self) -> Mapping[str, Any]:
        """Private state as plain data (what msgspec can encode)."""
        ...

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Take the state of `snapshot` up again, with the jobs of the view."""
        ...


class Successor(Scheduler, Protocol):
    """A scheduler that can take over on a living cluster (composed ones can).

    The item `placement` of its state is what the placement remembers; None in `restore`: another
    placement is used now, and what the former one remembered does not hold for it.
    """

    def adopt(self, view: View, placed: Sequence[Job], stopping: Sequence[Job]) -> None:
        """Take over from another scheduler: these jobs have places, or are on their way out.

        Those that wait are announced with JOB_SUBMIT like new ones.
        """
        ...
