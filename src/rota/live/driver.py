"""Drivers: orders of runs go in, messages about runs and nodes come out.

A *run* is one attempt to execute a job; its id never comes back. All calls of a driver are
idempotent by run, return at once and never raise for what goes wrong outside: that is reported
later.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from rota.core.errors import ConflictError
from rota.core.launch import Launch
from rota.core.sums import ordered_sum
from rota.core.topology import NodeSpec
from rota.live.calls import CallAnswer, FileCall, RunCall


class RunPart(msgspec.Struct, frozen=True):
    """The share of a run on one node.

    `slices` are (device, amount): `device` is the number of a GPU of the node, or -1 for whichever
    is free; amounts below 1 share a GPU. Of a GPU that it shares it may use `gpu_mem_gib` of the
    memory and the part `gpu_limit` of the compute (0: nobody said), and where jobs take turns it
    has them by `gpu_weight` (0: by what it holds). `paused`: it keeps its memory and does nothing.
    """

    node: str
    slices: tuple[tuple[int, float], ...]
    node_rank: int
    first_rank: int  # of the processes on this node
    processes: int
    cpus: float = 0.0
    mem_gib: float = 0.0
    gpu_mem_gib: float = 0.0
    gpu_limit: float = 0.0
    gpu_weight: float = 0.0
    paused: bool = False

    @property
    def gpus(self) -> float:
        """GPUs of this part."""
        return ordered_sum(amount for _, amount in self.slices)


class RunOrder(msgspec.Struct, frozen=True):
    """Execute this job there."""

    run: str  # `17.2`: the second run of job 17 (runs are numbered from 0)
    job: str
    launch: Launch
    parts: tuple[RunPart, ...]
    world_size: int
    master_port: int
    restart: int = 0  # how often the job ran before
    user: str = ""
    name: str = ""
    limit_s: float = 0.0  # it is ended (as `halt` does) so long after its launch; 0: never


class RunStatus(msgspec.Struct, frozen=True, tag="run"):
    """What became of a run.

    `running`: every process was started and `setup` is over. `ended`: nothing of it is left;
    `code` is 0 or the first other exit code (negative: the signal), `asked` whether it was asked to
    end before it did, `timed_out` whether its time limit ended it. `lost`: nothing of it is left
    and nobody knows how it ended (its node, agent or shim died): not the job's fault.

    `began_s`, `ended_s`: when that really happened, if the driver knows; of a lost run, until when
    it was seen. Drivers tell moments of `boot_time_s`; in the journal they are on the clock of the
    cluster. A run is as long as its executor measured: where another machine's clock
    is translated, the beginning is, and the end is the beginning plus that duration.
    """

    run: str
    state: Literal["running", "ended", "lost"]
    code: int = 0
    asked: bool = False
    why: str = ""  # for people: `exit code 3`, `killed by signal 9 (Killed)`, `setup failed: ...`
    began_s: float | None = None
    ended_s: float | None = None
    timed_out: bool = False


class NodeStatus(msgspec.Struct, frozen=True, tag="node"):
    """What became of a node.

    `up`: usable; with a `spec` if it may be new or changed. `silent`: not heard of for a while,
    nothing more is started there, what runs may go on. `lost`: whatever ran there is over. `sick`:
    a check says that something is wrong with it (`why`): as if somebody had drained it. `well`: no
    check says so any more; with a `why` it stays drained until somebody has looked.
    """

    node: str
    state: Literal["up", "silent", "lost", "sick", "well"]
    spec: NodeSpec | None = None
    why: str = ""


class RunMetrics(msgspec.Struct, frozen=True, tag="measured"):
    """What a job reported through `rota.job`."""

    run: str
    values: Mapping[str, float]


Message: TypeAlias = RunStatus | NodeStatus | RunMetrics
Listener: TypeAlias = Callable[[Message], None]
"""May be called from any thread; returns at once."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend can do. What it cannot is refused when the daemon starts or a job comes."""

    preempt: bool = True  # stop a job and start it again later
    fractions: bool = True  # several jobs on one GPU
    parts: int = 0  # into so many equal ones a GPU can be divided; 0: into any
    devices: bool = True  # exactly these GPUs of a node
    several_nodes: bool = True
    per_gpu: bool = True  # one process for each GPU
    measured: bool = True  # jobs can report through `rota.job`
    joins: bool = True  # nodes may come at run time
    logs: bool = True
    channels: bool = False  # commands, terminals and connections into a job that runs
    secrets: bool = False  # values that only the job may read
    files: bool = False  # folders of files that travel with a job, and its results back
    images: bool = False  # jobs in containers, on nodes with that label
    hooks: bool = True  # `pre_stop` and `warn_signal` of a job
    terms: bool = False  # weights of GPUs in turns, and pauses, can change while a job runs


class Driver(Protocol):
    """Makes real what `LiveCluster` wants: agents on machines, Slurm, Ray, Kubernetes."""

    name: str
    capabilities: Capabilities

    def open(self, listener: Listener) -> None:
        """Begin to listen to the outside; called once, before everything else."""
        ...

    def adopt(self, runs: Sequence[RunOrder], halting: frozenset[str]) -> None:
        """After a start of the daemon: these runs shall exist (`halting`: and end gracefully).

        A run that was never launched is launched now, one that runs is watched again, one that
        ended meanwhile is told. Whatever else of this daemon runs out there is killed.
        """
        ...

    def launch(self, order: RunOrder) -> None:
        """Execute it as soon as those who leave its devices have left."""
        ...

    def halt(self, run: str) -> None:
        """SIGTERM, its `grace_s`, SIGKILL; `ended` follows (also if it was never launched)."""
        ...

    def kill(self, run: str) -> None:
        """SIGKILL at once; `ended` follows."""
        ...

    def new_terms(self, order: RunOrder) -> None:
        """A run goes on with other terms on its GPUs; asked only with the capability `terms`."""
        raise ConflictError(f"the backend {self.name!r} cannot change the terms of run {order.run}")

    def forget(self, run: str) -> None:
        """Its end was understood: no more news of it, its traces may go (its logs stay)."""
        ...

    def retire(self, job: str) -> None:
        """The job is over: it will not be launched again."""
        ...

    def read_log(self, job: str, stream: str, node_rank: int, offset: int, limit: int) -> bytes:
        """A piece of the output (`out`, `err` or `all`) of a job on one of its nodes.

        The output of all its runs is one stream; offsets count from its beginning even where the
        oldest part was rotated away (`GoneError` says where the rest begins), or from its end if
        they are negative. Empty at the end. May block; raises `ClusterError`.
        """
        ...

    def reach(self, job: str, node_rank: int, call: RunCall) -> CallAnswer:
        """Call the machine where this part of a job runs, into the job.

        May block as long as the call says; raises `NotFoundError`, `ConflictError` or
        `ClusterError`. A backend without `channels` has no way in.
        """
        raise ConflictError(
            f"job {job}, rank {node_rank}: the backend {self.name!r} has no way into jobs "
            f"({type(call).__name__}): log in to its machine by the means of that backend"
        )

    def reach_files(self, job: str, call: FileCall) -> CallAnswer:
        """Ask a machine that has the folder of a job, which need not run any more."""
        raise ConflictError(
            f"job {job}: the backend {self.name!r} keeps no files of jobs ({type(call).__name__}): "
            "they are where the job wrote them"
        )

    def trouble(self) -> str:
        """What keeps jobs from being started and watched; empty: nothing that is known."""
        return ""

    def close(self) -> None:
        """Stop listening. What runs goes on and is adopted by the next daemon."""
        ...
