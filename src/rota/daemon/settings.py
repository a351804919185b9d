"""The configuration of a daemon: `rota.yaml`, and what the command line says on top of it."""

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args, get_origin
from urllib.parse import urlsplit

import msgspec

from rota.core.errors import ClusterSpecError, InputError
from rota.core.events import INF
from rota.core.proof import is_loopback
from rota.core.resources import ResourceKind, check_kinds
from rota.core.tenants import PriorityClass, Tenant, TenantTree
from rota.core.validation import refused_value
from rota.core.yaml_text import YAMLError, read_yaml
from rota.jobfile.quantities import duration_s
from rota.live.agent.containers import ContainerMode
from rota.live.agent.sandbox import PROCESSES, IsolationMode
from rota.wire import PEOPLE, USER

BACKENDS = ("local", "slurm", "kubernetes", "ray", "pretend")
LEAST_LEASE_S = 1.0
SHORTEST_LOOK_S, LONGEST_LOOK_S = 1.0, 30 * 86_400.0
LEAST_DAYS = 1.0  # that things are kept
MOST_LOG_FILES = 1_000
LEAST_UID = 1000  # below are those of the system
SHORTEST_SESSION_S, LONGEST_SESSION_S = 60.0, 30 * 86_400.0


class Queue(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A queue: a tenant that jobs name in `queue`."""

    name: str  # the key of the mapping `queues`
    parent: str = ""  # the queue that it is a part of
    quota: float = 0.0  # GPUs that it is entitled to
    limit: float | None = None  # GPUs that it may use at most
    weight: float = 1.0  # for policies that share by weight
    lend: float | None = None  # GPUs of its quota that others may use; none: all
    borrow: float | None = None  # GPUs that it may use beyond its quota; none: up to its limit
    max_time: str | float | None = None  # the longest time limit of a job: 24h, or seconds
    default_time: str | float | None = None  # of jobs that do not say; none: max_time


class Scheduling(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Who decides, and how. It can be changed while the daemon runs."""

    policy: str = "fifo-skip"
    placement: str = "consolidate"
    admission: str = "accept-all"
    seed: int = 0
    queues: tuple[Queue, ...] = ()
    priority_classes: tuple[PriorityClass, ...] = ()
    resources: tuple[ResourceKind, ...] = ()  # kinds that jobs may ask for: licences

    def tenants(self) -> TenantTree:
        """The queues as the engine knows them."""
        return TenantTree(map(_tenant, self.queues), self.priority_classes)

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def _tenant(queue: Queue) -> Tenant:
    limit, lend, borrow = (
        INF if amount is None else amount for amount in (queue.limit, queue.lend, queue.borrow)
    )
    return Tenant(queue.name, queue.parent, queue.quota, limit, queue.weight, lend, borrow)


def queue_of(tenant: Tenant) -> Queue:
    """The same as a queue."""
    limit, lend, borrow = (
        None if amount == INF else amount for amount in (tenant.limit, tenant.lend, tenant.borrow)
    )
    return Queue(tenant.name, tenant.parent, tenant.quota, limit, tenant.weight, lend, borrow)


def changes(old: Scheduling, new: Scheduling) -> list[str]:
    """What is different, for people."""
    return [
        f"{key}: {_spelled(getattr(old, key))} -> {_spelled(getattr(new, key))}"
        for key in Scheduling.__struct_fields__
        if getattr(old, key) != getattr(new, key)
    ]


def _spelled(value: Any) -> str:
    if not isinstance(value, tuple):
        return str(value)
    queues = []
    for queue in value:
        said = {k: v for k, v in msgspec.to_builtins(queue).items() if k != "name"}
        options = ", ".join(f"{key} {option}" for key, option in said.items())
        queues.append(f"{queue.name} ({options})" if options else queue.name)
    return ", ".join(queues) or "none"


class LocalSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The backend `local`."""

    silent_s: float = 15.0  # an agent not heard of for so long gets nothing more to start
    lost_s: float = 120.0  # after so long its jobs are started elsewhere
    invited_only: bool | None = (
        None  # agents must join; none: if there is an authority (`rota tls`)
    )
    health_check: str = "auto"  # of the daemon's own nodes: auto (nvidia-smi, DCGM), off, a command
    prolog: str = ""  # a command before each job on the daemon's own nodes; see `rota agent`
    epilog: str = ""  # and one after it
    containers: ContainerMode = "auto"  # what runs images there: auto, podman, apptainer or off
    dcgm_exporter: str = ""  # read there how busy GPUs are; empty: nvidia-smi and dcgmi
    gpu_mem_excess: Literal["warn", "stop", "off"] = (
        "warn"  # to who uses more GPU memory than asked
    )
    reopen_healthy: bool = True  # use nodes again when their check has nothing to say any more


class SlurmSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The backend `slurm`."""

    conf: str = ""  # SLURM_CONF; empty: as the environment says
    partition: str = ""  # empty: the default partition
    account: str = ""  # empty: Slurm's default
    qos: str = ""  # empty: Slurm's default
    time_limit: str = ""  # as sbatch takes it; empty: the partition's default
    poll_s: float = 1.0  # between looks at Slurm
    parked_s: float = 6 * 3600.0  # how long a preempted job stays in Slurm's queue, held


class KubernetesSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The backend `kubernetes`."""

    kubeconfig: str = ""  # empty: KUBECONFIG, ~/.kube/config, or the account of Rota's own pod
    context: str = ""  # of the kubeconfig; empty: its current one
    namespace: str = ""  # for the pods of jobs; empty: that of the context, else `default`
    image: str = ""  # of jobs that name none
    service_account: str = ""  # of the pods of jobs; empty: none, and no token in them
    gpu_resource: str = "nvidia.com/gpu"  # what nodes offer and pods ask for
    node_selector: dict[str, str] = {}  # labels of the nodes that Rota may use; empty: all
    tolerations: tuple[str, ...] = ()  # keys of taints that pods of jobs tolerate
    checkpoint_claim: str = ""  # a volume claim for ROTA_CHECKPOINT_DIR that all nodes can mount
    lost_s: float = 120.0  # a node that is not ready for so long is lost
    keep_s: float = 3600.0  # pods that ended stay so long, for `kubectl describe`
    timeout_s: float = 20.0  # of a single request
    scheduler_name: str = ""  # pods of others with this schedulerName are jobs; empty: none are
    queue_kinds: tuple[str, ...] = ()  # such objects with the label rota.dev/queue wait: Job, ...
    successor_s: float = 120.0  # a job waits so long for another pod in place of one that is gone
    note_after_s: float = 10.0  # an object that waits so long is told why, on itself


class RaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The backend `ray`."""

    address: str = "auto"  # HOST:PORT of its head; auto: that of this machine
    python: str = ""  # the interpreter with the Ray of the cluster; empty: Rota's own
    folder: str = ""  # on each node, for files of jobs; empty: one in /tmp
    poll_s: float = 1.0  # between looks at Ray
    timeout_s: float = 60.0  # of a single request


class IsolationSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How jobs are kept apart from each other, and from the daemon."""

    mode: IsolationMode = "auto"  # auto: if this machine can; required: refuse to start; off
    users: dict[str, str | int] = {}  # accounts of the machines that jobs of a user run as
    uids: str = "1900000000-1900065535"  # numbers for the jobs of all others, one for each user
    visible: tuple[str, ...] = ()  # folders in /tmp, /run or a home that jobs see all the same
    environment: tuple[str, ...] = ()  # more variables of the agent that jobs inherit; * is allowed
    processes: int = PROCESSES  # that a job may have on a machine

    @property
    def range(self) -> tuple[int, int]:
        """The first and the last number of `uids`."""
        first, _, last = self.uids.partition("-")
        if not (first.isdecimal() and last.isdecimal() and LEAST_UID <= int(first) <= int(last)):
            raise InputError(
                f"isolation.uids is {self.uids!r}: write two numbers from {LEAST_UID} on, e.g. "
                "1900000000-1900065535"
            )
        return int(first), int(last)


class Permissions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What tokens of the role `user` may submit; operators and administrators may anything."""

    queues: dict[str, tuple[str, ...]] = {}  # who may submit there and to its parts; else: all
    priority_classes: dict[str, tuple[str, ...]] = {}  # who may use it; not named: all
    undeclared_queues: bool | None = None  # jobs may name other queues; none: if none is declared
    max_priority: int | None = None  # the highest priority of a job; none: any
    max_jobs: int = 10_000  # jobs of one user that are held, wait or run
    upload_gib: float = 100.0  # files that one user has sent for jobs and that are still kept


class Retention(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long things are kept; none: for ever."""

    jobs_days: float | None = None  # jobs that ended, with their rows of the event log
    jobs_count: int | None = None  # of them at most so many, the newest ones
    folders_days: float | None = None  # working folder, checkpoints and output of a job that ended
    keys_days: float | None = None  # keys of submissions; later ones with the same key are new
    journal_days: float | None = None  # inputs that the kept snapshots do not need
    log_mib: float = 64.0  # of `log_file`; then it is rotated
    log_files: int = 5  # older ones of it
    every_s: float = 3600.0  # how often to look


class OidcSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Log-in by an identity provider (OpenID Connect)."""

    issuer: str = ""  # its URL, as the provider writes it; empty: nobody logs in like that
    client_id: str = "rota"  # by which the provider knows this cluster
    client_secret_file: str = ""  # a file with the secret, if the provider demands one
    scopes: tuple[str, ...] = ("openid", "profile", "email")  # what is asked for
    name_claim: str = "preferred_username"  # how people are called here
    group_claim: str = "groups"  # what `roles` and `queues` are about
    roles: dict[str, str] = {}  # role by group; the highest counts
    default_role: str = ""  # of those in none of these groups; empty: they may not come in
    queues: dict[str, tuple[str, ...]] = {}  # queues by group; none named: as `permissions` say
    session_s: float = 12 * 3600.0  # how long a session lasts


class Webhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where messages are posted to, as JSON."""

    url: str
    secret_file: str = ""  # a file with a key: messages are signed with it (Rota-Signature)


class NotifySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where messages about jobs may go; nowhere else."""

    webhooks: dict[str, Webhook] = {}  # targets that jobs name: url, secret_file
    allow: tuple[str, ...] = ()  # others that jobs may give: https://HOST/PATH, mailto:*@HOST
    budgets: tuple[str, ...] = ()  # who hears of budgets that are nearly used up: webhooks, mailto:
    relay: str = ""  # the mail relay, HOST:PORT; empty: no mail
    relay_tls: bool = False  # encrypt with STARTTLS
    relay_user: str = ""  # empty: without a log-in
    relay_password_file: str = ""  # a file with the password
    mail_from: str = "rota@localhost"  # who the messages are from


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything in `rota.yaml`."""

    policy: str = "fifo-skip"  # as for `rota simulate`
    placement: str = "consolidate"  # as for `rota simulate`; it must name nodes
    admission: str = "accept-all"  # as for `rota simulate`
    seed: int = 0  # of placements that draw
    queues: tuple[Queue, ...] = ()  # a mapping by name, or a list
    priority_classes: tuple[PriorityClass, ...] = ()  # a mapping by name, or a list
    resources: tuple[ResourceKind, ...] = ()  # licences, ... that jobs may ask for: by name
    backend: str = "local"  # who runs the jobs: local (agents), slurm, kubernetes, ray, pretend
    cluster: str = ""  # nodes of this machine: 4x4 or a cluster file; empty: the nodes that join
    store: str = ""  # postgresql://USER@HOST:PORT/DATABASE; empty: a file in the state folder
    lease_s: float = 5.0  # on PostgreSQL: a leader that is silent for so long is replaced
    advertise: str = ""  # on PostgreSQL: the URL by which others reach this daemon; empty: `listen`
    listen: str = "127.0.0.1:7842"  # port 0: a free one
    socket: str = ""  # for users of this machine; empty: rota.sock in the state folder
    owner: str = ""  # the name of whoever runs the daemon; empty: that of their account
    socket_users: dict[str, str] = {}  # roles of other accounts of this machine on the socket
    tls_cert: str = ""  # a certificate (PEM) for HTTPS; empty: that of `rota tls init`, if any
    tls_key: str = ""  # its private key
    handshake_s: float = 10.0  # the longest that a client may take to agree on the encryption
    plain_text: bool = False  # no certificate is needed on addresses that others can reach
    public_metrics: bool = False  # /metrics without a token
    durable: bool = True  # survive a loss of power too, not only of the process
    check: bool = False  # verify every invariant at every event (slower)
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_json: bool = False  # log lines as JSON
    log_file: str = ""  # log there, and rotate it; empty: to the standard error output
    requests_per_s: float = 500.0  # per token
    permissions: Permissions = Permissions()
    oidc: OidcSettings = OidcSettings()
    retention: Retention = Retention()
    notify: NotifySettings = NotifySettings()
    local: LocalSettings = LocalSettings()
    isolation: IsolationSettings = IsolationSettings()
    slurm: SlurmSettings = SlurmSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    ray: RaySettings = RaySettings()

    @property
    def scheduling(self) -> Scheduling:
        """The part that can be changed while the daemon runs."""
        return Scheduling(
            policy=self.policy,
            placement=self.placement,
            admission=self.admission,
            seed=self.seed,
            queues=self.queues,
            priority_classes=self.priority_classes,
            resources=self.resources,
        )

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of `listen`."""
        host, _, port = self.listen.rpartition(":")
        if not host or not port.isdigit():
            raise InputError(f"listen {self.listen!r}: write HOST:PORT, e.g. 127.0.0.1:7842")
        return host.strip("[]"), int(port)


RELOADED = (*Scheduling.__struct_fields__, "permissions")
"""Keys that can be changed while the daemon runs."""


def needs_restart(old: Settings, new: Settings) -> list[str]:
    """What is different and holds only after a restart, for people."""
    before, after = _flat(old), _flat(new)
    return [
        f"{key}: {_said(before[key])} -> {_said(after[key])} (after a restart)"
        for key in before
        if key.partition(".")[0] not in RELOADED and before[key] != after[key]
    ]


def _flat(settings: msgspec.Struct, above: str = "") -> dict[str, Any]:
    """Values by their full key: `local.silent_s`."""
    found: dict[str, Any] = {}
    for key, value in msgspec.structs.asdict(settings).items():
        if isinstance(value, msgspec.Struct):
            found |= _flat(value, f"{above}{key}.")
        else:
            found[above + key] = value
    return found


def _said(value: Any) -> str:
    """As it stands in the file, without a password in a URL."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else masked(str(value)) or "(empty)"


def masked(text: str) -> str:
    """Without the password of a URL."""
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1:***@", text)


def read_settings(path: Path | None, said: Mapping[str, Any]) -> Settings:
    """The file (if any), and what was said on the command line, which wins."""
    content: Any = {}
    where = "the command line"
    if path is not None:
        where = str(path)
        try:
            content = read_yaml(path.read_text("utf-8"))
        except OSError as error:
            raise InputError(f"{path}: cannot read the configuration: {error.strerror}") from error
        except (YAMLError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: not valid YAML: {error}") from error
        if content is None:
            content = {}
        if not isinstance(content, dict):
            raise InputError(f"{path}: write `key: value` lines, e.g. policy: tiresias")
    licences = content.pop("licences", None)
    _refuse_unknown(content, Settings, f"{where}: ", short=("licences",))
    _rename(content, "queues", Queue, where)
    _rename(content, "priority_classes", PriorityClass, where)
    _add_licences(content, licences, where)
    _rename(content, "resources", ResourceKind, where)
    for key, value in said.items():
        if isinstance(value, Mapping) and isinstance(content.get(key, {}), Mapping):
            content[key] = {**content.get(key, {}), **value}
        elif value is not None:
            content[key] = value
    try:
        settings = msgspec.convert(content, Settings)
    except msgspec.ValidationError as error:
        raise InputError(_in_our_words(error, content, f"{where}: ")) from error
    _check(settings, where)
    return settings


def _rename(content: dict[Any, Any], key: str, kind: type[msgspec.Struct], where: str) -> None:
    """`queues` and the like may be mappings by name."""
    entries = content.get(key)
    if isinstance(entries, dict):
        entries = content[key] = [
            {**(options or {}), "name": name}
            if options is None or isinstance(options, dict)
            else _refuse_entry(f"{where}: {key}.{name}", kind)
            for name, options in entries.items()
        ]
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict):
            _refuse_unknown(entry, kind, f"{where}: {key}.{entry.get('name', number)}.")


def _add_licences(content: dict[Any, Any], licences: Any, where: str) -> None:
    """`licences: {matlab: 10}` is short for a resource of the whole cluster with that total."""
    if licences is None:
        return
    resources = content.get("resources") or {}
    if not isinstance(licences, dict) or not isinstance(resources, dict):
        raise InputError(f"{where}: licences and resources: write names with values: matlab: 10")
    for name, total in licences.items():
        if name in resources:
            raise InputError(f"{where}: licences.{name}: it is under resources, too: remove one")
        resources[name] = {"unit": "licence", "total": total}
    content["resources"] = resources


def _refuse_entry(where: str, kind: type[msgspec.Struct]) -> NoReturn:
    keys = ", ".join(key for key in kind.__struct_fields__ if key != "name")
    raise InputError(f"{where}: write keys with values: {keys}")


def _check(settings: Settings, where: str) -> None:
    local = settings.local
    if not 0 < local.silent_s < local.lost_s:
        raise InputError(
            f"{where}: local: silent_s={local.silent_s:g}, lost_s={local.lost_s:g}: "
            f"0 < silent_s < lost_s must hold"
        )
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise InputError(f"{where}: tls_cert and tls_key go together: give both or none")
    _check_socket(settings, where)
    _check_isolation(settings.isolation, where)
    _check_oidc(settings.oidc, f"{where}: oidc")
    _check_retention(settings.retention, f"{where}: retention")
    _check_notify(settings.notify, f"{where}: notify")
    if not 0 < settings.handshake_s < INF:
        raise InputError(f"{where}: handshake_s is {settings.handshake_s:g}: give more than 0")
    if settings.backend not in BACKENDS:
        raise InputError(f"{where}: backend {settings.backend!r}: write {', '.join(BACKENDS)}")
    _ = settings.address
    _check_shared(settings, where)
    for queue in settings.queues:
        _check_queue(queue, f"{where}: queues.{queue.name}")
    for each in settings.priority_classes:
        if not 0 <= each.min_runtime_s < INF:
            raise InputError(
                f"{where}: priority_classes.{each.name}: min_runtime_s is {each.min_runtime_s:g}: "
                f"give 0 or more"
            )
    settings.scheduling.tenants()
    _check_resources(settings.resources, f"{where}: resources")
    if settings.permissions.max_jobs < 0:
        most = settings.permissions.max_jobs
        raise InputError(f"{where}: permissions.max_jobs is {most}: give 0 or more")


def _check_resources(kinds: Sequence[ResourceKind], where: str) -> None:
    try:
        check_kinds(kinds, where)
    except ClusterSpecError as error:
        raise InputError(str(error)) from error
    for kind in kinds:
        if kind.total is None:
            raise InputError(
                f"{where}.{kind.name}: total is missing: say how much the cluster has; what single "
                "nodes have is declared in a file of the cluster (`cluster`)"
            )


def _check_socket(settings: Settings, where: str) -> None:
    for account, role in settings.socket_users.items():
        if role not in PEOPLE:
            raise InputError(
                f"{where}: socket_users.{account} is {role!r}: write one of {', '.join(PEOPLE)}"
            )
    if settings.socket_users and not settings.socket:
        raise InputError(
            f"{where}: socket_users: others cannot reach a socket in the state folder: set "
            "`socket` to a path in a folder that they may enter, e.g. /run/rota/rota.sock"
        )


def _check_isolation(isolation: IsolationSettings, where: str) -> None:
    try:
        _ = isolation.range
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    for user, account in isolation.users.items():
        if account in ("root", "0", 0):
            raise InputError(
                f"{where}: isolation.users.{user} is {account!r}: jobs of others are never run as "
                "root: name another account"
            )
    for path in isolation.visible:
        if not Path(path).is_absolute():
            raise InputError(f"{where}: isolation.visible {path!r}: write an absolute path")
    if isolation.processes < 1:
        raise InputError(f"{where}: isolation.processes is {isolation.processes}: give 1 or more")


def _check_oidc(oidc: OidcSettings, where: str) -> None:
    if not oidc.issuer:
        if oidc != OidcSettings():
            raise InputError(f"{where}: issuer is empty: give the URL of the identity provider")
        return
    parts = urlsplit(oidc.issuer)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(oidc.issuer)):
        raise InputError(
            f"{where}.issuer {oidc.issuer!r}: write the https:// URL of the identity provider"
        )
    if "openid" not in oidc.scopes:
        raise InputError(f"{where}.scopes {', '.join(oidc.scopes)}: openid must be among them")
    for key, role in (*oidc.roles.items(), ("default_role", oidc.default_role or USER)):
        if role not in PEOPLE:
            raise InputError(f"{where}: {key} is {role!r}: write one of {', '.join(PEOPLE)}")
    if not oidc.roles and not oidc.default_role:
        raise InputError(f"{where}: nobody would get a role: give roles, or default_role")
    if not SHORTEST_SESSION_S <= oidc.session_s <= LONGEST_SESSION_S:
        raise InputError(
            f"{where}.session_s is {oidc.session_s:g}: give {SHORTEST_SESSION_S:g} to "
            f"{LONGEST_SESSION_S:g}"
        )


def _check_notify(notify: NotifySettings, where: str) -> None:
    urls = [(f"webhooks.{name}.url", hook.url) for name, hook in notify.webhooks.items()]
    urls += [("allow", each) for each in notify.allow if not each.startswith("mailto:")]
    for key, url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise InputError(f"{where}: {key} {masked(url)!r}: write https://HOST/PATH")
    host, _, port = notify.relay.rpartition(":")
    if notify.relay and (not host or not port.isdigit()):
        raise InputError(f"{where}: relay {notify.relay!r}: write HOST:PORT, e.g. mail:25")


def _check_retention(retention: Retention, where: str) -> None:
    for key in ("jobs_days", "folders_days", "keys_days", "journal_days"):
        days = getattr(retention, key)
        if days is not None and not LEAST_DAYS <= days < INF:
            raise InputError(
                f"{where}.{key} is {days:g}: give {LEAST_DAYS:g} or more, or nothing for ever"
            )
    if retention.jobs_count is not None and retention.jobs_count < 1:
        raise InputError(
            f"{where}.jobs_count is {retention.jobs_count}: give 1 or more, or nothing"
        )
    if not SHORTEST_LOOK_S <= retention.every_s <= LONGEST_LOOK_S:
        raise InputError(
            f"{where}.every_s is {retention.every_s:g}: give {SHORTEST_LOOK_S:g} to "
            f"{LONGEST_LOOK_S:g}"
        )
    if not 1 <= retention.log_mib < INF or not 0 <= retention.log_files <= MOST_LOG_FILES:
        raise InputError(
            f"{where}: log_mib {retention.log_mib:g}, log_files {retention.log_files}: give 1 MiB "
            f"or more, and 0 to {MOST_LOG_FILES} files"
        )


def _check_shared(settings: Settings, where: str) -> None:
    """What several daemons share must not depend on one of their machines."""
    if not settings.store:
        return
    shown = masked(settings.store)
    if not settings.store.startswith("postgresql://"):
        raise InputError(
            f"{where}: store {shown!r}: write postgresql://USER@HOST:PORT/DATABASE, or leave it "
            f"empty for a file in the state folder"
        )
    if not LEAST_LEASE_S <= settings.lease_s <= settings.local.lost_s / 4:
        raise InputError(
            f"{where}: lease_s={settings.lease_s:g}: give {LEAST_LEASE_S:g} to a quarter of "
            f"local.lost_s ({settings.local.lost_s / 4:g}), so that agents outlive a change of "
            f"the leader"
        )
    if settings.backend in ("slurm", "kubernetes", "ray"):
        raise InputError(
            f"{where}: store {shown!r} with the backend {settings.backend}: its files are in the "
            f"state folder, which another daemon does not have: leave store empty"
        )
    if settings.backend == "local" and settings.cluster:
        raise InputError(
            f"{where}: store {shown!r} with cluster {settings.cluster!r}: nodes inside of a daemon "
            f"would be lost with it: leave cluster empty, and let machines join by `rota agent`"
        )


def check_permissions(allowed: Permissions, tenants: TenantTree) -> None:
    """Raise where a queue or a class is named that is not declared."""
    declared: dict[str, list[str]] = {
        "queues": list(tenants.names),
        "priority_classes": [each.name for each in tenants.classes],
    }
    for key, names in declared.items():
        for name in getattr(allowed, key):
            if name not in names:
                known = ", ".join(names) or "none"
                raise InputError(
                    f"permissions.{key}.{name}: it is not declared; declared here: {known}"
                )


def _check_queue(queue: Queue, where: str) -> None:
    for key in ("quota", "limit", "lend", "borrow"):
        amount = getattr(queue, key)
        if amount is not None and not 0 <= amount < INF:
            raise InputError(f"{where}: {key} is {amount:g}: give 0 or more")
    if queue.limit is not None and queue.limit < queue.quota:
        raise InputError(
            f"{where}: limit is {queue.limit:g}, below quota {queue.quota:g}: raise it or lower "
            f"the quota"
        )
    if not 0 < queue.weight < INF:
        raise InputError(f"{where}: weight is {queue.weight:g}: give more than 0")
    for key in ("max_time", "default_time"):
        time = getattr(queue, key)
        if time is not None and not duration_s(time, f"{where}: {key}"):
            raise InputError(f"{where}: {key} is {time}: give more than 0")


# --- mistakes, with the full path of the key and the keys of its level -------------------------

_INDEX = re.compile(r"\[([0-9]+)\]")


def _refuse_unknown(
    content: Mapping[Any, Any], kind: type[msgspec.Struct], where: str, short: tuple[str, ...] = ()
) -> None:
    """Raise at the first key or choice that there is not; `where`: the file, and the keys above.

    `short` are keys that stand for others and were taken out before: they are to be known.
    """
    known = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in content.items():
        if key not in known:
            keys = (*known, *short)
            near = difflib.get_close_matches(str(key), keys, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise InputError(
                f"{where}{key}: there is no such key{hint}: the keys here are {', '.join(keys)}"
            )
        choices = get_args(known[key]) if get_origin(known[key]) is Literal else ()
        if choices and value not in choices:
            raise InputError(f"{where}{key} is {value!r}: write one of {', '.join(choices)}")
        if isinstance(value, Mapping) and _is_struct(known[key]):
            _refuse_unknown(value, known[key], f"{where}{key}.")


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def _in_our_words(error: msgspec.ValidationError, content: Mapping[str, Any], where: str) -> str:
    """Which key of the configuration, what was given, what is wanted."""
    wrong = refused_value(error, content)
    problem = wrong.problem.replace("`", "")
    if wrong.key:
        problem = problem.replace(wrong.key, _by_name(wrong.key, content), 1)
    return where + (f"{problem}: {wrong.remedy}" if wrong.remedy else problem)


def _by_name(path: str, content: Mapping[str, Any]) -> str:
    """`queues[1].quota` is better known as `queues.research.quota`."""

    def named(match: re.Match[str]) -> str:
        items = content.get(path[: match.start()])
        item = items[int(match[1])] if isinstance(items, list) else None
        return f".{item['name']}" if isinstance(item, Mapping) and "name" in item else match[0]

    return _INDEX.sub(named, path)
