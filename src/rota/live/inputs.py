"""Everything that enters the engine of a living cluster, as it stands in the journal.

Inputs are plain data; the same inputs in the same batches give the same decisions. That is what
recovery rests on.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from rota.core.jobs import Job
from rota.core.topology import NodeSpec
from rota.core.windows import NodeWindow
from rota.live.driver import NodeStatus, RunMetrics, RunStatus


class Submitted(msgspec.Struct, frozen=True, tag="submitted"):
    """New jobs, whose files are in the store."""

    first: int
    count: int


class JobRequest(msgspec.Struct, frozen=True, tag="job"):
    """A user's request about a job."""

    what: Literal["cancel", "hold", "release"]
    job: int
    by: str


class NodeRequest(msgspec.Struct, frozen=True, tag="wish"):
    """An operator's request about a node.

    `clear`: drain it and stop what runs there. `remove`: forget it; nothing runs there.
    """

    what: Literal["drain", "clear", "undrain", "remove"]
    node: str
    by: str
    clear_at_s: float | None = None  # of `drain`: what still runs there then is stopped


class WindowChange(msgspec.Struct, frozen=True, tag="window"):
    """A maintenance or a reservation is planned, or one of this name is given up."""

    by: str
    add: NodeWindow | None = None
    remove: str = ""


class Reconfigured(msgspec.Struct, frozen=True, tag="config"):
    """From here on another configuration holds, or more nodes. Always alone in its batch.

    A node with the name of one that is known takes its place: that one is lost and empty. `forget`:
    jobs that are over and need not be known any more, as first and last numbers; `since_s`: all
    that ended later are kept.
    """

    config: Mapping[str, Any] | None = None
    nodes: tuple[NodeSpec, ...] = ()
    by: str = ""
    forget: tuple[tuple[int, int], ...] = ()
    since_s: float = 0.0


class Noted(msgspec.Struct, frozen=True, tag="note"):
    """Something for the log alone."""

    text: str


Input: TypeAlias = (
    RunStatus
    | NodeStatus
    | RunMetrics
    | Submitted
    | JobRequest
    | NodeRequest
    | WindowChange
    | Reconfigured
    | Noted
)


class Batch(msgspec.Struct, frozen=True):
    """Inputs that were seen together; `version` is the number of the batch in the engine.

    `back`: the first of a daemon that was away; it may be later than what the engine waited for.
    """

    version: int
    time_s: float
    inputs: tuple[Input, ...]
    back: bool = False

    @property
    def change(self) -> Reconfigured | None:
        """The change of the configuration, if it is one."""
        first = self.inputs[0] if self.inputs else None
        return first if isinstance(first, Reconfigured) else None


class BatchDraft:
    """A batch that is being gathered. The rule of what may happen together is here.

    At most one input for each job (with its tasks), so that none depends on another; inputs about
    nodes are by themselves, because they change what becomes of jobs.
    """

    def __init__(self) -> None:
        self.inputs: list[Input] = []
        self.about_nodes = False
        self._jobs: set[int] = set()

    def admits(self, jobs: Collection[int] = (), *, nodes: bool = False) -> bool:
        """Whether inputs about these jobs, or about nodes, may be in it."""
        if nodes:
            return self.about_nodes or not self.inputs
        return not self.about_nodes and self._jobs.isdisjoint(jobs)

    def add(
        self, inputs: Iterable[Input], jobs: Collection[int] = (), *, nodes: bool = False
    ) -> None:
        """Take inputs in that it admits."""
        self.inputs += inputs
        self._jobs.update(jobs)
        self.about_nodes = self.about_nodes or nodes


def root(job: Job) -> int:
    """The number of the whole job: its tasks are one thing for people."""
    return job.index if job.parent is None else job.parent.index


ENCODER = msgspec.msgpack.Encoder()
DECODER = msgspec.msgpack.Decoder(Batch)
