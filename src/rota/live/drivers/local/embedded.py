"""An agent inside the daemon: `rota serve --nodes 4x4` needs no other process."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rota.core.errors import ClusterError, NotFoundError, RotaError, UnavailableError
from rota.core.topology import NodeSpec
from rota.live.agent.agent import WARN, Agent
from rota.live.agent.containers import ContainerEngine
from rota.live.agent.health import HealthWatch
from rota.live.agent.link import AgentLink
from rota.live.agent.messages import AgentNode, AgentOrders, AgentReport
from rota.live.agent.sandbox import Sandbox
from rota.live.agent.usage import UsageWatch
from rota.live.drivers.local.driver import AgentDriver


def nodes_here(specs: Sequence[NodeSpec], devices: Sequence[str] | None = None) -> list[AgentNode]:
    """Nodes that are parts of this machine: their GPUs are numbered through.

    On two nodes with two GPUs each the second has 2 and 3. `devices` replaces the numbers.
    """
    nodes: list[AgentNode] = []
    first = 0
    for spec in specs:
        numbers = range(first, first + spec.gpus)
        names = tuple(str(n) if devices is None else devices[n] for n in numbers)
        nodes.append(AgentNode(spec, "127.0.0.1", names))
        first += spec.gpus
    return nodes


def _piece(driver: AgentDriver, job: str, digest: str) -> bytes:
    """A piece of what was sent for a job: that there is none will not pass."""
    try:
        return driver.pieces(job, digest)
    except NotFoundError as error:
        raise ClusterError(str(error)) from error
    except RotaError as error:
        raise ClusterError(str(error), retryable=True) from error


class EmbeddedAgent:
    """Runs an agent in threads of this process, against the driver directly."""

    def __init__(  # noqa: PLR0913 - what a machine has
        self,
        driver: AgentDriver,
        root: Path,
        specs: Sequence[NodeSpec],
        *,
        jobs: Path | None = None,
        devices: Sequence[str] | None = None,
        sandbox: Sandbox | None = None,
        containers: ContainerEngine | None = None,
        check: Callable[[], str] | None = None,
        hooks: Mapping[str, Sequence[str]] | None = None,
        exporter: str = "",
        gpu_mem_excess: str = WARN,
    ) -> None:
        nodes = nodes_here(specs, devices)
        self.agent = Agent(
            root, nodes, name="here", jobs=jobs, sandbox=sandbox, containers=containers,
            hooks=hooks, gpu_mem_excess=gpu_mem_excess,
        )  # fmt: skip
        self.agent.files.fetch = lambda job, digest: _piece(driver, job, digest)
        self._driver = driver
        self._link = AgentLink(self.agent, self._carry)
        self._watch = None if check is None else HealthWatch(check, self.agent.checked)
        self._usage = UsageWatch(
            self.agent.watched, self.agent.measured_usage, exporter=exporter,
            exceeded=self.agent.exceeded,
        )  # fmt: skip
        driver.embed(
            self.agent.id, self.agent.root.jobs, lambda: self.agent.trouble, self.agent.answer
        )

    def start(self) -> None:
        """Begin to work."""
        self._link.start()
        self._usage.start()
        if self._watch is not None:
            self._watch.start()

    def close(self) -> None:
        """Stop working, and close the driver: without it there is nothing to do. Jobs go on."""
        self._usage.stop()
        if self._watch is not None:
            self._watch.stop()
        self._link.end()
        self._driver.close()  # it may wait with an answer for us
        self._link.stop()
        self.agent.close()

    def _carry(self, report: AgentReport) -> AgentOrders:
        try:
            return self._driver.sync(report)
        except UnavailableError:  # the daemon stops: there will be no answer
            self._link.end()
            return AgentOrders()
