"""The driver of Slurm: one thread that looks at Slurm, and carries out what is wanted."""

import logging
from math import gcd
from pathlib import Path
from time import monotonic

from msgspec.structs import replace

from rota.core.errors import ClusterError
from rota.core.topology import NodeSpec
from rota.live.driver import (
    Capabilities,
    Listener,
    NodeStatus,
    RunOrder,
)
from rota.live.drivers.orders import ThreadedDriver
from rota.live.drivers.slurm.commands import Recorder, SlurmCommands
from rota.live.drivers.slurm.folders import SlurmFolders
from rota.live.drivers.slurm.layout import SeenNode
from rota.live.drivers.slurm.names import plain
from rota.live.drivers.slurm.options import SlurmOptions
from rota.live.drivers.slurm.preflight import check, usable_nodes
from rota.live.drivers.slurm.runs import SlurmRun, SlurmRuns

log = logging.getLogger("rota.slurm")

SOON = 0.25  # of the time between looks, when something was just ordered
LONGEST_NAP_S = 30.0
HEALTH = {"lost": "down", "silent": "not to be used now"}


class SlurmDriver(ThreadedDriver):
    """Implements `Driver`: Rota decides, Slurm executes.

    Args:
        store: A name for the daemon's store: by it the driver knows its Slurm jobs again.
        folder: For the files of jobs and runs; all nodes must see it under the same path.
        options: How to use the Slurm.
        recorder: Told of every command of Slurm that is called.

    Jobs run as the user who runs the daemon. Which GPUs of a node a job gets is up to Slurm. A part
    of a GPU is a number of shards, where nodes have those.
    """

    name = "slurm"
    capabilities = Capabilities(fractions=False, devices=False, joins=False, hooks=False)

    def __init__(
        self,
        store: str,
        folder: Path,
        options: SlurmOptions | None = None,
        *,
        recorder: Recorder | None = None,
    ) -> None:
        super().__init__("rota-slurm")
        self.options = options or SlurmOptions()
        self.commands = SlurmCommands(
            self.options.conf, timeout_s=self.options.timeout_s, recorder=recorder
        )
        self._folders = SlurmFolders(folder)
        self._carrier = SlurmRuns(self.commands, self._folders, self.options, plain("store", store))
        self._looked = False
        self._health: dict[str, str] = {}
        self._failures = 0

    # --- before it starts ------------------------------------------------------------------------

    def preflight(self) -> list[str]:
        """Can this Slurm be used? Raises if not; otherwise what is worth knowing."""
        remarks = check(self.commands, self.options)
        shards = {node.shards for node in usable_nodes(self.commands, self.options)} - {0}
        if shards:
            self.capabilities = replace(self.capabilities, fractions=True, parts=gcd(*shards))
        return remarks

    def nodes(self) -> list[NodeSpec]:
        """The machines, for the daemon's topology; raises if there are none."""
        return [node.spec for node in usable_nodes(self.commands, self.options)]

    # --- the protocol ----------------------------------------------------------------------------

    def open(self, listener: Listener) -> None:
        """Begin to look at Slurm."""
        self._carrier.tell = listener
        self._thread.start()

    def _take(self, order: RunOrder, want: str, *, adopted: bool) -> None:
        self._carrier.runs.setdefault(order.run, SlurmRun(order, unsure=adopted, want=want))

    def _holder(self, run: str) -> SlurmRuns:  # noqa: ARG002 - there is one
        return self._carrier

    def retire(self, job: str) -> None:
        """A job is over for good: its Slurm job need not wait for another run."""
        self._thread.order(lambda: self._carrier.retire(job))

    def read_log(self, job: str, stream: str, node_rank: int, offset: int, limit: int) -> bytes:
        """A piece of the output of a job."""
        return self._folders.read_log(job, stream, node_rank, offset, limit)

    def close(self) -> None:
        """Stop looking; what runs goes on."""
        self._thread.close()

    # --- the thread ------------------------------------------------------------------------------

    def _work(self) -> None:
        next_look_s = monotonic()
        while self._thread.goes_on(next_look_s):
            try:
                ordered = self._thread.obey()
                if monotonic() >= next_look_s:
                    self._look()
                    next_look_s = monotonic() + self.options.poll_s
                if self._looked:
                    self._step_all()
                self._failures = 0
            except ClusterError as error:
                next_look_s = self._nap(error)
                continue
            except Exception:
                log.exception("the Slurm driver stumbled; it goes on")
                next_look_s = self._nap(None)
                continue
            if ordered:
                next_look_s = min(next_look_s, monotonic() + SOON * self.options.poll_s)

    def _nap(self, error: ClusterError | None) -> float:
        """Slurm does not answer: try again, ever more rarely. When to look again."""
        self._failures += 1
        nap_s: float = min(LONGEST_NAP_S, self.options.poll_s * 2.0 ** min(self._failures - 1, 10))
        if error is not None:
            log.warning("%s; next try in %g s", error, nap_s)
        next_look_s = monotonic() + nap_s
        self._thread.pause(nap_s)
        return next_look_s

    def _look(self) -> None:
        asked_s = monotonic()
        jobs = {job.id: job for job in self.commands.jobs()}
        nodes = {node.name: node for node in self.commands.nodes()}
        self._carrier.look(jobs, nodes, asked_s)
        self._looked = True
        self._tell_health(nodes)
        if self._adopted:
            self._adopted = False
            self._carrier.claim_parked()
        self._carrier.expire()

    def _step_all(self) -> None:
        for run in list(self._carrier.runs.values()):
            self._carrier.step(run)

    def _tell_health(self, nodes: dict[str, SeenNode]) -> None:
        partition = self.options.partition
        for name, node in nodes.items():
            if partition and partition not in node.partitions:
                continue
            health = node.health
            if self._health.get(name) != health:
                why = node.reason or ", ".join(sorted(node.flags)) or HEALTH.get(health, "")
                self._carrier.tell(NodeStatus(name, health, why=f"Slurm: {why}" if why else ""))  # type: ignore[arg-type]
            self._health[name] = health
        for name in self._health.keys() - nodes.keys():
            del self._health[name]
            self._carrier.tell(NodeStatus(name, "lost", why="Slurm does not know it any more"))
