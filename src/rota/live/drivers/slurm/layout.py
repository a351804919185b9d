"""What Slurm's commands print with `--json`: only the fields that Rota needs, from any version.

Up to 22.05 (v0.0.38) numbers are plain and a state is a word; later versions wrap numbers as
`{"set": true, "infinite": false, "number": 3}` and give states as lists.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from rota.core.errors import ClusterError
from rota.core.events import INF
from rota.core.hostlist import expand
from rota.core.sharing import FRACTION
from rota.core.sums import ordered_sum
from rota.core.topology import NodeSpec

PENDING, RUNNING, SUSPENDED = "PENDING", "RUNNING", "SUSPENDED"
COMPLETING = "COMPLETING"
STATES = (
    PENDING, RUNNING, SUSPENDED, "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL",
    "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY",
)  # fmt: skip
BEGINNING = ("CONFIGURING", "RESV_DEL_HOLD", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "STAGE_OUT",
             "SIGNALING", "STOPPED", "SPECIAL_EXIT", "REVOKED", "RESIZING")  # fmt: skip
DEAD = ("down", "error", "future")
DEAD_FLAGS = {"POWERED_DOWN", "POWERING_DOWN", "INVALID_REG", "FAIL", "REBOOT_ISSUED"}
CLOSED = {"DRAIN", "MAINTENANCE", "POWERING_UP"}
GPU = re.compile(r"(?:^|[,/])(?:gres[:/])?gpu(?:[:/]([^:=,()]+))?[:=](\d+)")
SHARDS = re.compile(r"(?:^|,)shard(?::[^:,()]*[^:,()\d][^:,()]*)?:(\d{1,6})")
AFTER = re.compile(r"after(?:ok|any|notok|corr|burstbuffer)?:(\d+)")
SIGNALLED = 128
MINUTE_S = 60.0
FOREVER_S = 315_360_000.0  # ten years: Slurm writes "no limit" as large numbers


class SeenJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job as Slurm tells it. Times are Unix seconds; 0 (or inf for the limit): not known.

    `state` is one of `STATES`; `busy`: its processes or nodes are still being cleaned up, whatever
    the state. `code` is that of the batch script, negative for a signal.
    """

    id: int
    state: str
    busy: bool = False
    held: bool = False
    reason: str = ""
    name: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    comment: str = ""
    code: int = 0
    restarts: int = 0
    nodes: tuple[str, ...] = ()
    node_gpus: tuple[int, ...] = ()  # of each node, while it runs (if Slurm says)
    gpus: int = 0  # asked, in all
    gpu_type: str = ""
    cpus: float = 0.0
    mem_gib: float = 0.0
    priority: int = 0
    submit_s: float = 0.0
    eligible_s: float = 0.0
    start_s: float = 0.0
    end_s: float = 0.0
    limit_s: float = INF
    node_count: int = 1  # asked, at least
    qos: str = ""
    after: tuple[str, ...] = ()  # numbers of jobs that it waits for
    features: tuple[str, ...] = ()  # all required of every node

    @property
    def over(self) -> bool:
        """Nothing of it is left, and Slurm will not start it again."""
        return not self.busy and self.state not in (PENDING, RUNNING, SUSPENDED)


class SeenNode(msgspec.Struct, frozen=True):
    """One node as Slurm tells it."""

    name: str
    address: str
    state: str  # lower case, without flags
    flags: frozenset[str]
    reason: str
    gpus: int
    gpu_type: str
    cpus: float
    mem_gib: float
    partitions: tuple[str, ...]
    gpus_used: int = 0
    shards: int = 0  # that make a GPU (`gres/shard`); 0: its GPUs cannot be divided
    features: tuple[str, ...] = ()

    @property
    def forgotten_gpus(self) -> bool:
        """GPUs count as used although nothing runs there.

        Seen with 22.05 after a job on several nodes lost one of them: they stay used for ever.
        """
        return self.state == "idle" and "COMPLETING" not in self.flags and self.gpus_used > 0

    @property
    def spec(self) -> NodeSpec:
        """As a node of a topology."""
        mode = FRACTION if self.shards else ""
        return NodeSpec(self.name, self.gpus, self.gpu_type, self.cpus, self.mem_gib, sharing=mode)

    @property
    def health(self) -> str:
        """`lost`, `silent` or `up`, in the sense of `NodeStatus`."""
        if self.state in DEAD or self.flags & DEAD_FLAGS:
            return "lost"
        if self.state == "unknown" or self.flags & (CLOSED | {"NOT_RESPONDING"}):
            return "silent"  # unknown: the controller has just been started
        return "up"

    @property
    def refuses(self) -> bool:
        """Nothing will be started there soon."""
        return self.health == "lost" or bool(self.flags & CLOSED)


class _Page(msgspec.Struct):
    """What every answer looks like."""

    errors: list[Any] = []
    jobs: list[dict[str, Any]] = []
    nodes: list[dict[str, Any]] = []


def read_jobs(text: str) -> list[SeenJob]:
    """The jobs in an answer of `squeue --json`."""
    return joined(_page(text).jobs)


def joined(raws: Iterable[Mapping[str, Any]]) -> list[SeenJob]:
    """Jobs as objects of Slurm's JSON, the components of a heterogeneous one as one job."""
    whole: dict[int, list[SeenJob]] = {}
    for raw in raws:
        job = _job(raw)
        whole.setdefault(int(number(raw.get("het_job_id"))) or job.id, []).append(job)
    return [_joined(parts) if len(parts) > 1 else parts[0] for parts in whole.values()]


def _joined(parts: list[SeenJob]) -> SeenJob:
    """The components of a heterogeneous job as one job."""
    parts.sort(key=lambda part: part.id)
    leader = parts[0]
    over = leader.over and not all(part.over for part in parts)
    return msgspec.structs.replace(
        leader,
        busy=leader.busy or over,
        nodes=tuple(name for part in parts for name in part.nodes),
        node_gpus=tuple(count for part in parts for count in part.node_gpus),
        gpus=ordered_sum(part.gpus for part in parts),
        cpus=ordered_sum(part.cpus for part in parts),
        mem_gib=ordered_sum(part.mem_gib for part in parts),
    )


def read_nodes(text: str) -> list[SeenNode]:
    """The nodes in an answer of `sinfo --json` or `scontrol show nodes --json`."""
    return [seen_node(raw) for raw in _page(text).nodes]


def _page(text: str) -> _Page:
    try:
        page = msgspec.json.decode(text, type=_Page)
    except msgspec.DecodeError as error:
        raise ClusterError(f"cannot understand Slurm's answer ({error})", retryable=True) from error
    if page.errors:
        raise ClusterError(
            f"Slurm answers with an error: {_complaint(page.errors)}", retryable=True
        )
    return page


def _complaint(errors: Sequence[Any]) -> str:
    first = errors[0]
    if isinstance(first, Mapping):
        return str(first.get("description") or first.get("error") or first)
    return str(first)


# --- values --------------------------------------------------------------------------------------


def number(value: Any, default: float = 0.0) -> float:
    """A number, wrapped or not; the default where it is not set."""
    if isinstance(value, Mapping):
        if value.get("infinite"):
            return INF
        value = value.get("number") if value.get("set", True) else None
    return float(value) if isinstance(value, (int, float)) else default


def words(value: Any) -> list[str]:
    """A word or a list of words, in capitals."""
    found = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return [str(word).upper() for word in found]


def exit_code(value: Any) -> int:
    """0, the exit code, or minus the signal."""
    if isinstance(value, Mapping) and ("return_code" in value or "signal" in value):
        raw = value.get("signal")
        signal = int(number(raw.get("id") if isinstance(raw, Mapping) and "id" in raw else raw))
        return -signal if signal else int(number(value.get("return_code")))
    status = int(number(value))
    return -(status & 0x7F) if status & 0x7F else status >> 8


def gpus_in(text: str) -> tuple[int, str]:
    """GPUs in `gpu:a100:2(IDX:0-1)`, `gres:gpu:2`, `cpu=2,gres/gpu=4`: how many, of which type."""
    types: dict[str, int] = {}
    for kind, count in GPU.findall(text):
        types[kind] = types.get(kind, 0) + int(count)
    named = [kind for kind in types if kind]
    total = sum(types[kind] for kind in named) or types.get("", 0)  # `gres/gpu=` repeats the types
    return total, named[0] if len(named) == 1 else ""


# --- jobs ----------------------------------------------------------------------------------------


def _job(raw: Mapping[str, Any]) -> SeenJob:
    state, flags = _state(words(raw.get("job_state")))
    nodes = expand(str(raw.get("nodes") or "")) if state != PENDING else ()
    detail = [gpus_in(str(piece)) for piece in raw.get("gres_detail") or ()]
    gpus, gpu_type = _asked(raw)
    priority = number(raw.get("priority"), 1.0)
    reason = str(raw.get("state_reason") or "")
    limit_s = number(raw.get("time_limit"), INF) * MINUTE_S
    return SeenJob(
        id=int(number(raw.get("job_id"))),
        state=state,
        busy=COMPLETING in flags,
        held=state == PENDING and (priority == 0 or reason.startswith("JobHeld")),
        reason=reason,
        name=str(raw.get("name") or ""),
        user=str(raw.get("user_name") or ""),
        account=str(raw.get("account") or ""),
        partition=str(raw.get("partition") or ""),
        comment=str(raw.get("comment") or ""),
        code=exit_code(raw.get("exit_code")),
        restarts=int(number(raw.get("restart_cnt"))),
        nodes=nodes,
        node_gpus=tuple(count for count, _ in detail),
        gpus=gpus or sum(count for count, _ in detail),
        gpu_type=gpu_type,
        cpus=number(raw.get("cpus")),
        mem_gib=_memory(raw),
        priority=int(min(priority, 2.0**32)),
        submit_s=number(raw.get("submit_time")),
        eligible_s=number(raw.get("eligible_time")),
        start_s=number(raw.get("start_time")),
        end_s=number(raw.get("end_time")),
        limit_s=limit_s if 0 < limit_s < FOREVER_S else INF,
        node_count=max(1, int(number(raw.get("node_count"), 1.0))),
        qos=str(raw.get("qos") or ""),
        after=tuple(AFTER.findall(str(raw.get("dependency") or ""))),
        features=_required(str(raw.get("features") or "")),
    )


def _required(text: str) -> tuple[str, ...]:
    """Features that are all required; what leaves a choice requires none for sure."""
    if any(mark in text for mark in "|[]*()"):
        return ()
    return tuple(word for word in text.replace(",", "&").split("&") if word)


def _state(found: list[str]) -> tuple[str, set[str]]:
    """The base state and the flags. 22.05 shows only a flag while there is one."""
    base = [word for word in found if word in STATES]
    flags = {word for word in found if word not in STATES}
    if base:
        return base[0], flags
    if flags & {"CONFIGURING", COMPLETING, "STAGE_OUT", "SIGNALING", "RESIZING", "STOPPED"}:
        return RUNNING, flags
    if flags & set(BEGINNING):
        return PENDING, flags
    return "FAILED" if found else PENDING, flags


def _asked(raw: Mapping[str, Any]) -> tuple[int, str]:
    """GPUs asked by the whole job, and their type."""
    nodes = max(1, int(number(raw.get("node_count"), 1.0)))
    tasks = max(1, int(number(raw.get("tasks"), 1.0)))
    for key, times in (("tres_per_job", 1), ("tres_per_node", nodes), ("tres_per_task", tasks)):
        count, kind = gpus_in(str(raw.get(key) or ""))
        if count:
            return count * times, kind
    return gpus_in(str(raw.get("tres_req_str") or ""))


def _memory(raw: Mapping[str, Any]) -> float:
    """GiB of the whole job."""
    per_cpu = number(raw.get("memory_per_cpu"))
    if per_cpu:
        return per_cpu * number(raw.get("cpus")) / 1024
    nodes = max(1.0, number(raw.get("node_count"), 1.0))
    return number(raw.get("memory_per_node")) * nodes / 1024


# --- nodes ---------------------------------------------------------------------------------------


def seen_node(raw: Mapping[str, Any]) -> SeenNode:
    """A node from an object of Slurm's JSON."""
    found = words(raw.get("state"))
    flags = frozenset((*found[1:], *words(raw.get("state_flags"))))
    gpus, gpu_type = gpus_in(str(raw.get("gres") or ""))
    shards = sum(map(int, SHARDS.findall(str(raw.get("gres") or ""))))
    name = str(raw.get("name") or "")
    return SeenNode(
        name=name,
        address=str(raw.get("address") or name),
        state=found[0].lower() if found else "unknown",
        flags=flags,
        reason=str(raw.get("reason") or ""),
        gpus=gpus,
        gpu_type=gpu_type,
        cpus=number(raw.get("cpus")),
        mem_gib=number(raw.get("real_memory")) / 1024,
        partitions=tuple(str(part) for part in raw.get("partitions") or ()),
        gpus_used=gpus_in(str(raw.get("gres_used") or ""))[0],
        shards=shards // gpus if gpus else 0,
        features=_listed(raw.get("active_features")),
    )


def _listed(value: Any) -> tuple[str, ...]:
    """Names in a list, or in a text with commas between them."""
    found = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(str(word) for word in found if word and word != "(null)")
