"""A whole daemon: state folder, store, driver, loop, service and API, put together in one place.

The only module that knows both the daemon and its API; `rota serve` makes one and runs it.
"""

import os
import pwd
import socket
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
import structlog

from rota.api import ApiSettings, Server, allowed_hosts, create_app, serve
from rota.api.context import LOOPBACK
from rota.api.serving import listen_locally
from rota.core.errors import ClusterError, InputError
from rota.core.registry import nearest, unknown
from rota.core.resources import BUILT_IN
from rota.core.sharing import MIG
from rota.core.topology import NodeSpec, Topology
from rota.daemon.accounts import LOCAL, Accounts, find_owner
from rota.daemon.authority import Authority
from rota.daemon.budgets import BudgetWatch
from rota.daemon.database import AUTHORITY, PostgresDatabase
from rota.daemon.efficiency import UsageBook
from rota.daemon.folder import StateFolder
from rota.daemon.intake import Intake
from rota.daemon.lease import LeaderLease
from rota.daemon.loop import DaemonLoop
from rota.daemon.notify import Notifier, check_budget_targets
from rota.daemon.oidc import Provider
from rota.daemon.restarts import RollingRestart
from rota.daemon.retention import Pruner, RetentionThread
from rota.daemon.secrets import SecretStore
from rota.daemon.service import Daemon
from rota.daemon.settings import Permissions, Scheduling, Settings, check_permissions, queue_of
from rota.daemon.store import Store
from rota.daemon.tokens import Tokens
from rota.daemon.uploads import UploadStore
from rota.engine.invariants import Invariants
from rota.engine.parts import make_admission
from rota.live.agent.containers import ContainerEngine, find_engine
from rota.live.agent.health import make_check, make_hooks
from rota.live.agent.machine import find_gpus, gpu_type
from rota.live.agent.messages import PartUsage
from rota.live.agent.sandbox import Sandbox, may_isolate
from rota.live.agent.usage import checked_exporter
from rota.live.driver import Driver, NodeStatus
from rota.live.drivers.local.driver import AgentDriver
from rota.live.drivers.local.embedded import EmbeddedAgent
from rota.live.drivers.pretend import PretendDriver
from rota.live.external import ExternalSource
from rota.traces.cluster import parse_cluster, refuse_windows
from rota.wire import ADMIN, TOKEN_NAME, Actor

PIECE = 1 << 20
log = structlog.get_logger("rota")


def declared(settings: Settings) -> tuple[Topology, Scheduling]:
    """The nodes that are declared, and the scheduling with their queues."""
    scheduling = settings.scheduling
    if not settings.cluster:
        check_permissions(settings.permissions, scheduling.tenants())
        check_admission(scheduling, settings.permissions)
        return Topology((), growing=True), scheduling
    topology, tenants = parse_cluster(settings.cluster)
    refuse_windows(
        topology, "times are counted from the beginning of a run, which a daemon does not have",
        "plan it with `rota maintenance add` or `rota reserve add`",
    )  # fmt: skip
    if not scheduling.queues and len(tenants):
        scheduling = msgspec.structs.replace(scheduling, queues=tuple(map(queue_of, tenants)))
    if not scheduling.resources:
        kinds = tuple(kind for kind in topology.kinds.values() if kind not in BUILT_IN)
        scheduling = msgspec.structs.replace(scheduling, resources=kinds)
    elif any(spec.resources for spec in topology.specs):
        raise InputError(
            f"{settings.cluster}: its nodes have resources: declare all kinds there, and leave "
            "`resources` and `licences` out of the configuration"
        )
    if not scheduling.priority_classes:
        scheduling = msgspec.structs.replace(scheduling, priority_classes=tenants.classes)
    check_permissions(settings.permissions, scheduling.tenants())
    check_admission(scheduling, settings.permissions)
    return topology, scheduling


def check_admission(scheduling: Scheduling, allowed: Permissions) -> None:
    """Raise where a budget is that of a queue which is not declared, and nobody may name others."""
    known = list(scheduling.tenants().names)
    for name in make_admission(scheduling.admission).queues() if known else ():
        if name not in known and not allowed.undeclared_queues:
            raise InputError(
                f"admission {scheduling.admission}: {unknown('queue', name, known)} "
                f"(permissions.undeclared_queues lets jobs name others)"
            )
        if name not in known and (near := nearest(name, known)):
            log.warning("admission.queue", queue=name, did_you_mean=near)


def dated(scheduling: Scheduling, epoch_unix: float) -> Scheduling:
    """Months of a budget are those of the calendar: say when second 0 was, once and for all."""
    kind, _, options = scheduling.admission.partition(":")
    keys = options.split(",")
    if kind != "budget" or "per=month" not in keys or any(k.startswith("start=") for k in keys):
        return scheduling
    start = datetime.fromtimestamp(epoch_unix, UTC).replace(tzinfo=None).isoformat()
    return msgspec.structs.replace(scheduling, admission=f"{scheduling.admission},start={start}")


class LeadersTurn(msgspec.Struct, frozen=True):
    """A daemon's turn to lead, where several share a database."""

    engine: sa.Engine
    lease: LeaderLease
    listener: socket.socket


class Assembly:
    """Everything that a daemon consists of, in the order in which it has to be closed.

    `state` is its own from now on: whatever happens, it is closed here.
    """

    def __init__(
        self,
        state: StateFolder,
        settings: Settings,
        *,
        config: Path | None = None,
        said: Mapping[str, Any] | None = None,
        accept_loss: bool = False,
        turn: LeadersTurn | None = None,
    ) -> None:
        self.settings = settings
        self._turn = turn
        self._embedded_works = False
        self.containers: ContainerEngine | None = None
        self._external: list[ExternalSource] = []  # what others bring to the platform
        with ExitStack() as opened:
            self.folder = opened.enter_context(state)
            store = self.store = self._store()
            opened.callback(store.close)
            store.seal(self.folder.seal, accept_loss=accept_loss)
            store.skip_to(self.folder.last_job())
            topology, scheduling = declared(settings)
            scheduling = dated(scheduling, store.epoch_unix)
            tokens = Tokens(store)
            self.owner = self._find_owner(tokens)
            self.accounts = Accounts(store, settings.isolation, settings.socket_users, self.owner)
            self.driver, topology = self._driver(topology)
            checker = Invariants if settings.check else None
            self.loop = DaemonLoop(
                store, self.driver, scheduling, topology, checker=checker,
                patient=not topology.nodes,
            )  # fmt: skip
            if isinstance(self.driver, AgentDriver):
                self.driver.claim = tokens.claim
            self.authority = tokens.members.authority = self._authority()
            if turn is not None:
                store.note_fact(
                    AUTHORITY, self.authority.fingerprint.hex() if self.authority else ""
                )
            tokens.invited_only = self._invited_only()
            tokens.local_file(self.folder.token, self.owner)
            self.daemon = Daemon(
                self.loop, tokens, config=config, said=said, settings=settings,
                complete=lambda settings: dated(declared(settings)[1], store.epoch_unix),
                provider=Provider(settings.oidc) if settings.oidc.issuer else None,
            )  # fmt: skip
            self.daemon.on_submit = self.accounts.ensure
            if isinstance(self.driver, AgentDriver):
                self.driver.expired = self.daemon.expired
                self.driver.pieces = self.daemon.piece
                self.driver.secrets = self.daemon.secrets_of
                self.daemon.restarts = RollingRestart(
                    self.driver, self.daemon, store, self.daemon.note
                )
                opened.callback(self.daemon.restarts.thread.stop)
            if self._turn is None:  # else the next leader would not have them
                self.daemon.uploads = UploadStore(
                    self.folder.path / "uploads", int(settings.permissions.upload_gib * 2**30)
                )
                keys = self.folder.path / "secrets.key"
                self.daemon.vault = SecretStore(self.folder.path / "secrets", keys)
                self.daemon.vault.copy_of(Actor(LOCAL, ADMIN), self.owner)
            self.retention = RetentionThread(
                Pruner(store, settings.retention), settings.retention.every_s,
                self.daemon.forget_ended,
            )  # fmt: skip
            opened.callback(self.retention.stop)
            self.daemon.usage = UsageBook(self.folder.path / "usage.db")
            opened.callback(self.daemon.usage.close)
            if isinstance(self.driver, AgentDriver):
                self.driver.on_usage = self._take_usage
            self.budgets = BudgetWatch(self.daemon.budgets, store, self.daemon.note)
            opened.callback(self.budgets.thread.stop)
            check_budget_targets(settings.notify)
            self.intakes = [Intake(self.daemon, source) for source in self._external]
            opened.callback(self._stop_intakes)
            self.notifier = Notifier(self.daemon, store, settings.notify)
            opened.callback(self.notifier.stop)
            self.embedded = self._embed(topology, config)
            opened.callback(self._close_embedded)
            self.server = self._listen()
            self.daemon.on_reload = self._renew_certificate
            opened.callback(self.server.stop)
            self.folder.announce(_from_here(self.server.url), self._socket)
            self._opened = opened.pop_all()

    def _take_usage(self, used: Sequence[PartUsage]) -> None:
        """Keep what jobs use; who cannot loses numbers, nothing else."""
        if self.daemon.usage is not None:
            try:
                self.daemon.usage.take(used, time.time())
            except sqlite3.Error as error:
                log.warning("usage is not kept", error=str(error))

    def _store(self) -> Store:
        if self._turn is None:
            return Store(self.folder.store, durable=self.settings.durable)
        return Store(PostgresDatabase(self._turn.engine, self._turn.lease))

    def _find_owner(self, tokens: Tokens) -> Actor:
        """Whose socket, token and jobs are the daemon's own; each on one database has another."""
        if self._turn is not None:
            return Actor(f"{LOCAL}-{self.folder.identity()}", ADMIN)
        account, said = account_name(), self.settings.owner
        if said and not TOKEN_NAME.fullmatch(said):
            raise InputError(
                f"owner is {said!r}: use up to 64 letters, digits, '.', '_', '@' and '-', and "
                f"begin with a letter or a digit"
            )
        owner = find_owner(self.store, tokens, said or account)
        if owner.name not in (said, account):
            free = TOKEN_NAME.fullmatch(account) is None
            log.warning(
                "whoever runs the daemon is called local", account=account,
                why="no name here looks like that of the account" if free else
                "the name of the account is somebody's",
            )  # fmt: skip
        return owner

    def _driver(self, topology: Topology) -> tuple[Driver, Topology]:
        backend = self.settings.backend
        if backend == "slurm":
            return self._slurm(topology)
        if backend == "kubernetes":
            return self._kubernetes(), Topology((), growing=True)
        if backend == "ray":
            return self._ray(), Topology((), growing=True)
        if backend == "pretend":
            return PretendDriver(), topology
        return self._agents(topology)

    def _agents(self, topology: Topology) -> tuple[Driver, Topology]:
        settings = self.settings
        lease = None if self._turn is None else self._turn.lease
        agents = AgentDriver(
            silent_s=settings.local.silent_s, lost_s=settings.local.lost_s,
            term=lease.term if lease else 0, leads=self._leads, account=self.accounts.of,
            reopens=settings.local.reopen_healthy,
        )  # fmt: skip
        agents.separated = settings.isolation.mode == "required"
        if not topology.nodes and lease is None:
            gpus = find_gpus()
            if gpus:
                spec = NodeSpec(socket.gethostname(), len(gpus), gpu_type(gpus))
                topology = Topology([spec])
        divided = next((spec.name for spec in topology.specs if MIG in spec.modes), "")
        if divided:
            raise InputError(
                f"node {divided}: sharing is mig: the backend local hands out GPUs, not instances "
                "of them: use fraction, timeslice or mps, or the instances as GPUs of their own"
            )
        if topology.nodes:
            self.containers = self._containers()
        able = () if self.containers is None else self.containers.labels
        for spec in topology.specs:
            topology.relabel(spec.name, tuple(dict.fromkeys((*spec.labels, *able))))
        return agents, topology

    def _slurm(self, topology: Topology) -> tuple[Driver, Topology]:
        from rota.live.drivers.slurm.driver import SlurmDriver
        from rota.live.drivers.slurm.options import SlurmOptions

        options = SlurmOptions(**msgspec.structs.asdict(self.settings.slurm))
        slurm = SlurmDriver(self.store.id, self.folder.path / "slurm", options)
        for note in slurm.preflight():
            log.warning("slurm", note=note)
        return slurm, topology if topology.nodes else Topology(slurm.nodes())

    def _kubernetes(self) -> Driver:
        from rota.live.drivers.kubernetes import KubernetesDriver, KubernetesOptions

        chosen = KubernetesOptions(**msgspec.structs.asdict(self.settings.kubernetes))
        pods = KubernetesDriver(self.store.id, self.folder.path / "kubernetes", chosen)
        for note in pods.preflight():
            log.info("kubernetes", note=note)
        if chosen.scheduler_name:
            self._external.append(pods.guests)
        if chosen.queue_kinds:
            self._external.append(pods.queued)
        return pods

    def _ray(self) -> Driver:
        from rota.live.drivers.ray import RayDriver, RayOptions

        chosen = RayOptions(**msgspec.structs.asdict(self.settings.ray))
        actors = RayDriver(self.store.id, self.folder.path / "ray", chosen)
        try:
            for note in actors.preflight():
                log.info("ray", note=note)
        except ClusterError:
            actors.port.close()
            raise
        return actors

    def _stop_intakes(self) -> None:
        for intake in self.intakes:
            intake.thread.stop()

    def _leads(self) -> bool:
        return self._turn is None or self._turn.lease.holds

    def _embed(self, topology: Topology, config: Path | None) -> EmbeddedAgent | None:
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
        return EmbeddedAgent(
            self.driver, self.folder.agent, topology.specs, jobs=self.folder.jobs,
            sandbox=self._sandbox(config), containers=self.containers,
            check=make_check(self.settings.local.health_check),
            hooks=make_hooks(self.settings.local.prolog, self.settings.local.epilog),
            exporter=checked_exporter(self.settings.local.dcgm_exporter),
            gpu_mem_excess=self.settings.local.gpu_mem_excess,
        )  # fmt: skip

    def _sandbox(self, config: Path | None) -> Sandbox | None:
        """How the jobs of this machine are kept apart; None: they are not, which is said once."""
        isolation, settings = self.settings.isolation, self.settings
        may, why = may_isolate(isolation.mode)
        if not may:
            log.warning(
                "jobs are not kept apart: each can read the files of the others and of this "
                "daemon, with its token", why=why or "isolation.mode is off",
            )  # fmt: skip
            return None
        secrets = [str(config or ""), settings.socket, settings.tls_key]
        return Sandbox(
            [self.folder.path], secrets=[Path(path) for path in secrets if path],
            visible=isolation.visible, environment=isolation.environment,
            processes=isolation.processes, embedded=True,
        )  # fmt: skip

    def _containers(self) -> ContainerEngine | None:
        """What runs images on this machine; None: nothing does, and jobs that name one wait."""
        found, why = find_engine(self.settings.local.containers, self.settings.isolation.visible)
        if found is None:
            log.info("no containers on this machine", why=why)
        else:
            log.info("containers", engine=found.program)
        return found

    def _close_embedded(self) -> None:
        if self.embedded is not None and self._embedded_works:
            self.embedded.close()

    def _authority(self) -> Authority | None:
        """That of `rota tls init`; a certificate in the configuration takes its place."""
        folder = self.folder.tls
        if self.settings.tls_cert or not Authority.is_in(folder):
            return None
        return Authority(folder)

    def _invited_only(self) -> bool:
        said = self.settings.local.invited_only
        return self.authority is not None if said is None else said

    def _renew_certificate(self) -> list[str]:
        return ["the certificate was replaced"] if self.server.renew_certificate() else []

    def _listen(self) -> Server:
        settings = self.settings
        host, port = settings.address
        hosts = allowed_hosts(host)
        certificate, key = settings.tls_cert, settings.tls_key
        if self.authority is not None:
            certificate, key = map(str, self.authority.server)
        if hosts != LOOPBACK and not certificate:
            if not settings.plain_text:
                raise InputError(
                    f"listen {settings.listen}: tokens would travel unencrypted: make certificates "
                    "with `rota tls init`, or set tls_cert; --plain-text if the network is safe"
                )
            log.warning("tokens travel unencrypted", listen=settings.listen, remedy="set tls_cert")
        app = create_app(
            self.daemon,
            settings=ApiSettings(
                hosts=hosts,
                open_metrics=settings.public_metrics,
                requests_per_s=settings.requests_per_s,
                burst=max(1, int(2 * settings.requests_per_s)),
                tls_cert=certificate,
                tls_key=key,
                tls_clients=str(self.authority.folder / "ca.pem") if self.authority else "",
                handshake_timeout_s=settings.handshake_s,
            ),
            agent_sync=self.driver.sync_json if isinstance(self.driver, AgentDriver) else None,
            agent_calls=self.driver.lane_bytes if isinstance(self.driver, AgentDriver) else None,
            agent_pieces=self.driver.piece_bytes if isinstance(self.driver, AgentDriver) else None,
            export_log=self._export,
            leads=self._leads,
            peers=peers(settings.socket_users, self.owner),
        )
        mode = 0o666 if settings.socket_users else 0o600
        return serve(
            app, host, port, listener=self._turn.listener if self._turn else None,
            local=listen_locally(self._socket, mode),
        )  # fmt: skip

    @property
    def _socket(self) -> Path:
        return Path(self.settings.socket) if self.settings.socket else self.folder.socket

    def _export(self) -> Iterator[bytes]:
        """The whole event log, and what it was made with, as Parquet, in pieces."""
        data = self.daemon.export().parquet()
        for at in range(0, len(data), PIECE):
            yield data[at : at + PIECE]

    # --- running ----------------------------------------------------------------------------------

    def work(self) -> None:
        """Serve and schedule until `stop`."""
        if self.embedded is not None:
            self._embedded_works = True
            self.embedded.start()
        self.retention.start()
        self.budgets.thread.start()
        if self.daemon.restarts is not None:
            self.daemon.restarts.thread.start()
        for intake in self.intakes:
            intake.thread.start()
        if self.settings.notify.webhooks or self.settings.notify.allow:
            self.notifier.start()
        loop = self.loop
        log.info(
            "ready", url=self.server.url, state=str(self.folder.path), backend=self.driver.name,
            policy=loop.wanted.policy, nodes=len(loop.state.cluster.topology.nodes),
            gpus=loop.state.cluster.topology.gpus, jobs=len(loop.state.engine.view.active),
        )  # fmt: skip
        self.daemon.run()

    def stop(self, signal: str) -> None:
        """End `work`, from any thread."""
        self.daemon.stop()
        log.info("stopping", signal=signal)

    def step_down(self) -> None:
        """End `work` without writing anything more: another daemon leads; from any thread."""
        self.daemon.abandon()

    def reload(self) -> None:
        """Read the configuration again; a bad one is logged and changes nothing."""
        try:
            changed = self.daemon.reload(self.owner)
        except Exception as error:  # noqa: BLE001 - a bad file must not end the daemon
            log.warning("reload failed", error=str(error))
        else:
            log.info("reloaded", changed=changed)

    def close(self) -> None:
        """Let everything go; jobs run on."""
        self._opened.close()
        log.info("stopped", state=str(self.folder.path))


def account_name() -> str:
    """The name of the account that this process has; `local` if it has none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return LOCAL


def peers(users: Mapping[str, str], owner: Actor) -> dict[int, Actor]:
    """Who calls over the local socket, by uid: whoever owns the daemon, root, and accounts."""
    found: dict[int, Actor] = {}
    for account, role in users.items():
        try:
            found[pwd.getpwnam(account).pw_uid] = Actor(account, role)
        except KeyError as error:
            raise InputError(
                f"socket_users.{account}: this machine has no such account: make it, or take it out"
            ) from error
    return found | dict.fromkeys({os.geteuid(), 0}, owner)


def _from_here(url: str) -> str:
    """Where clients on this machine find a daemon that listens everywhere."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
