"""Puts a daemon together: store, backend, engine, API. `rota serve` runs it."""

import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import structlog

from rota.api import ApiSettings, Server, allowed_hosts, create_app, serve
from rota.api.context import LOOPBACK
from rota.cli.signals import work_until_done
from rota.core.topology import NodeSpec, Topology
from rota.daemon.folder import StateFolder
from rota.daemon.loop import DaemonLoop
from rota.daemon.service import Daemon
from rota.daemon.settings import Scheduling, Settings, check_permissions, queue_of
from rota.daemon.store import Store
from rota.daemon.tokens import Tokens
from rota.engine.invariants import Invariants
from rota.live.agent.machine import find_gpus, gpu_type
from rota.live.driver import Driver, NodeStatus
from rota.live.drivers.local.driver import AgentDriver
from rota.live.drivers.local.embedded import EmbeddedAgent
from rota.live.drivers.pretend import PretendDriver
from rota.traces.cluster import parse_cluster
from rota.wire import ADMIN, Actor

OWNER = "local"
PIECE = 1 << 20
log = structlog.get_logger("rota")


def declared(settings: Settings) -> tuple[Topology, Scheduling]:
    """The nodes that are declared, and the scheduling with their queues."""
    scheduling = settings.scheduling
    if not settings.cluster:
        check_permissions(settings.permissions, scheduling.tenants())
        return Topology((), growing=True), scheduling
    topology, tenants = parse_cluster(settings.cluster)
    if not scheduling.queues and len(tenants):
        scheduling = msgspec.structs.replace(scheduling, queues=tuple(map(queue_of, tenants)))
    if not scheduling.priority_classes:
        scheduling = msgspec.structs.replace(scheduling, priority_classes=tenants.classes)
    check_permissions(settings.permissions, scheduling.tenants())
    return topology, scheduling


class Assembly:
    """Everything that a daemon consists of, in the order in which it has to be closed."""

    def __init__(
        self,
        state: Path,
        settings: Settings,
        *,
        config: Path | None = None,
        said: Mapping[str, Any] | None = None,
        accept_loss: bool = False,
    ) -> None:
        self.settings = settings
        self._embedded_works = False
        with ExitStack() as opened:
            self.folder = opened.enter_context(StateFolder(state))
            store = self.store = Store(self.folder.store, durable=settings.durable)
            opened.callback(store.close)
            store.seal(self.folder.seal, accept_loss=accept_loss)
            store.skip_to(self.folder.last_job())
            topology, scheduling = declared(settings)
            self.driver, topology = self._driver(topology)
            checker = Invariants if settings.check else None
            self.loop = DaemonLoop(
                store, self.driver, scheduling, topology, checker=checker,
                patient=not topology.nodes,
            )  # fmt: skip
            tokens = Tokens(store)
            if isinstance(self.driver, AgentDriver):
                self.driver.claim = tokens.claim
            tokens.local_file(self.folder.token, OWNER, ADMIN)
            self.daemon = Daemon(
                self.loop, tokens, config=config, said=said, settings=settings,
                complete=lambda settings: declared(settings)[1],
            )  # fmt: skip
            self.embedded = self._embed(topology)
            opened.callback(self._close_embedded)
            self.server = self._listen()
            opened.callback(self.server.stop)
            self.folder.announce(_from_here(self.server.url))
            self._opened = opened.pop_all()

    def _driver(self, topology: Topology) -> tuple[Driver, Topology]:
        settings = self.settings
        if settings.backend == "slurm":
            from rota.live.drivers.slurm.driver import SlurmDriver
            from rota.live.drivers.slurm.options import SlurmOptions

            options = SlurmOptions(**msgspec.structs.asdict(settings.slurm))
            slurm = SlurmDriver(self.store.id, self.folder.path / "slurm", options)
            for note in slurm.preflight():
                log.warning("slurm", note=note)
            return slurm, topology if topology.nodes else Topology(slurm.nodes())
        if settings.backend == "pretend":
            return PretendDriver(), topology
        agents = AgentDriver(silent_s=settings.local.silent_s, lost_s=settings.local.lost_s)
        if not topology.nodes:
            gpus = find_gpus()
            if gpus:
                spec = NodeSpec(socket.gethostname(), len(gpus), gpu_type(gpus))
                topology = Topology([spec])
        return agents, topology

    def _embed(self, topology: Topology) -> EmbeddedAgent | None:
        if not isinstance(self.driver, AgentDriver):
            return None
        here = [node.name for node in topology.nodes]
        gone = set(self.store.note("nodes_here", here)) - set(here)
        for name in sorted(gone):  # they were parts of this machine
            self.loop.mailbox.post(NodeStatus(name, "lost", why="not declared any more"))
        known = self.loop.state.cluster.nodes.by_name.items()
        self.driver.expect(n for n, machine in known if n not in gone and not machine.removed)
        if not topology.nodes:
            return None
        return EmbeddedAgent(self.driver, self.folder.agent, topology.specs, jobs=self.folder.jobs)

    def _close_embedded(self) -> None:
        if self.embedded is not None and self._embedded_works:
            self.embedded.close()

    def _listen(self) -> Server:
        settings = self.settings
        host, port = settings.address
        hosts = allowed_hosts(host)
        if hosts != LOOPBACK and not settings.tls_cert:
            log.warning("tokens travel unencrypted", listen=settings.listen, remedy="set tls_cert")
        app = create_app(
            self.daemon,
            settings=ApiSettings(
                hosts=hosts,
                open_metrics=settings.public_metrics,
                requests_per_s=settings.requests_per_s,
                burst=max(1, int(2 * settings.requests_per_s)),
                tls_cert=settings.tls_cert,
                tls_key=settings.tls_key,
            ),
            agent_sync=self.driver.sync_json if isinstance(self.driver, AgentDriver) else None,
            export_log=self._export,
        )
        return serve(app, host, port)

    def _export(self) -> Iterator[bytes]:
        """The whole event log, and what it was made with, as Parquet, in pieces."""
        data = self.daemon.export().parquet()
        for at in range(0, len(data), PIECE):
            yield data[at : at + PIECE]

    # --- running ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until a signal says stop."""
        handlers: dict[int, Callable[[int], None]] = {
            signal.SIGTERM: self._stop,
            signal.SIGINT: self._stop,
            signal.SIGHUP: self._reload,
        }
        try:
            work_until_done(self._work, handlers)
        finally:
            self.close()
        log.info("stopped", state=str(self.folder.path))

    def _work(self) -> None:
        if self.embedded is not None:
            self._embedded_works = True
            self.embedded.start()
        loop = self.loop
        log.info(
            "ready", url=self.server.url, state=str(self.folder.path), backend=self.driver.name,
            policy=loop.wanted.policy, nodes=len(loop.state.cluster.topology.nodes),
            gpus=loop.state.cluster.topology.gpus, jobs=len(loop.state.engine.view.active),
        )  # fmt: skip
        self.daemon.run()

    def close(self) -> None:
        """Let everything go; jobs run on."""
        self._opened.close()

    def _stop(self, number: int) -> None:
        log.info("stopping", signal=signal.Signals(number).name)
        self.daemon.stop()

    def _reload(self, number: int) -> None:  # noqa: ARG002 - as for the other signals
        def reload() -> None:
            try:
                changed = self.daemon.reload(Actor(OWNER, ADMIN))
            except Exception as error:  # noqa: BLE001 - a bad file must not end the daemon
                log.warning("reload failed", error=str(error))
            else:
                log.info("reloaded", changed=changed)

        threading.Thread(target=reload, name="rota-reload", daemon=True).start()


def _from_here(url: str) -> str:
    """Where clients on this machine find a daemon that listens everywhere."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
