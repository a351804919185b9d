"""Windows: times in which nodes are not for everybody, such as maintenance and reservations.

A window bars jobs from its nodes: from all of them during a maintenance, from those of others
during a reservation. A job is barred from the moment on at which it would not end before the window
begins, by its time limit or, lacking one, by the estimate that its owner declared. One that says
neither may run for ever, so it is barred as soon as the window is known.

Which windows bar a job stands in the request by which it is placed, as labels that begin with
`BAR`: so every policy and every placement keeps to them without knowing of them.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import nextafter
from typing import Literal

import msgspec

from rota.core.errors import OptionError, RotaError
from rota.core.events import INF
from rota.core.hostlist import expand
from rota.core.reasons import Reason
from rota.core.registry import unknown
from rota.core.spec import BAR, JobSpec, Request
from rota.core.tenants import TenantTree
from rota.core.topology import Topology, Vertex
from rota.core.words import duration

Kind = Literal["maintenance", "reservation"]
AtStart = Literal["wait", "preempt"]
REASONS: Mapping[Kind, Reason] = {
    "maintenance": Reason.MAINTENANCE,
    "reservation": Reason.RESERVED,
}
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
FEW = 3  # nodes that are named one by one


class NodeWindow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Nodes that are kept free from `start_s` until `end_s`, but for those whom it admits.

    `at_start` says what becomes of jobs of others that are still there when it begins: they end in
    their own time, or they are stopped as in a preemption. `number` tells it from earlier windows
    of the same name.
    """

    name: str
    kind: Kind
    nodes: tuple[str, ...]
    start_s: float
    end_s: float = INF
    users: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    at_start: AtStart = "wait"
    note: str = ""
    by: str = ""
    number: int = 0

    @property
    def mark(self) -> str:
        """The label in the requests of those whom it bars."""
        return f"{BAR}{self.kind[0]}:{self.name}/{self.number}"

    def admits(self, spec: JobSpec) -> bool:
        """May this job use the nodes while it lasts?"""
        if spec.user in self.users:
            return True
        return any(
            spec.tenant == queue or spec.tenant.startswith(f"{queue}/") for queue in self.queues
        )

    def last_start_s(self, spec: JobSpec, run_s: float) -> float:
        """Until when it may start there, after having run for so long already."""
        left_s = declared_s(spec) - run_s
        return self.start_s - left_s if left_s > 0 else nextafter(self.start_s, -INF)

    def describe(self) -> str:
        """For people: `maintenance pdu of n0, n1`."""
        nodes = ", ".join(self.nodes[:FEW])
        if len(self.nodes) > FEW:
            nodes += f" and {len(self.nodes) - FEW:,} more"
        text = f"{self.kind} {self.name} of {nodes}"
        if self.users or self.queues:
            text += f" for {', '.join((*self.users, *self.queues))}"
        return text


def declared_s(spec: JobSpec) -> float:
    """How long it may run as it says itself: its time limit, else its estimate; inf: for ever."""
    return spec.limit_s if spec.limit_s < INF else spec.estimate_s


# --- in requests ----------------------------------------------------------------------------------


def bars(labels: Iterable[str]) -> tuple[str, ...]:
    """The windows among these labels."""
    return tuple(label for label in labels if label.startswith(BAR))


def barred(request: Request, marks: Sequence[str]) -> Request:
    """The same request, kept out of these windows and of no others."""
    labels = (*(label for label in request.labels if not label.startswith(BAR)), *marks)
    return request if labels == request.labels else msgspec.structs.replace(request, labels=labels)


def reason_of(labels: Iterable[str]) -> Reason:
    """Why a job with these labels waits if it is for a window."""
    begins = f"{BAR}{'maintenance'[0]}:"
    maintained = any(label.startswith(begins) for label in labels)
    return REASONS["maintenance" if maintained else "reservation"]


# --- as people write them -------------------------------------------------------------------------


class WindowText(msgspec.Struct):
    """A window as options of a command have it: `nodes=n[0-3],start=2h,for=4h,user=ann`.

    `where`: what errors name, the option or the place in a file.
    """

    kind: Kind
    values: Mapping[str, str]
    where: str

    @classmethod
    def read(cls, kind: Kind, text: str) -> "WindowText":
        """Split at commas that are followed by a key."""
        option = OPTIONS[kind]
        values: dict[str, str] = {}
        for part in re.split(r",(?=[a-z-]+=)", text):
            key, equals, value = part.partition("=")
            if not equals or key not in KEYS[kind]:
                raise OptionError(
                    f"{option} {text}: cannot read {part!r}: give key=value with "
                    f"{', '.join(KEYS[kind])}, e.g. {EXAMPLES[kind]}"
                )
            if key in values:
                several = f", several as {key}=a+b" if key in ("user", "queue") else ""
                raise OptionError(f"{option} {text}: {key} is there twice: give it once{several}")
            values[key] = value.strip()
        return cls(kind, values, option)

    @classmethod
    def declared(cls, values: Mapping[str, str]) -> "WindowText":
        """From a cluster file: with `kind` and `where` among the values."""
        kind: Kind = "maintenance" if values["kind"] == "maintenance" else "reservation"
        rest = {key: value for key, value in values.items() if key not in ("kind", "where")}
        return cls(kind, rest, values["where"])

    def window(self, topology: Topology, number: int, others: Iterable[NodeWindow]) -> NodeWindow:
        """The window on these nodes."""
        values, option = self.values, self.where
        if "nodes" in values and "gpus" in values:
            raise OptionError(f"{option}: nodes and gpus exclude each other: give one")
        if "start" not in values:
            raise OptionError(f"{option}: start is missing: say when, e.g. {EXAMPLES[self.kind]}")
        start_s = seconds(values["start"], f"{option} start")
        if "for" in values and "end" in values:
            raise OptionError(f"{option}: for and end exclude each other: give one of them")
        end_s = INF
        if "for" in values:
            end_s = start_s + seconds(values["for"], f"{option} for")
        elif "end" in values:
            end_s = seconds(values["end"], f"{option} end")
        at_start = values.get("at-start", "wait")
        if at_start not in ("wait", "preempt"):
            raise OptionError(f"{option}: at-start={at_start}: give wait or preempt")
        nodes: tuple[str, ...] = ()
        if "nodes" in values:
            nodes = expand(values["nodes"], OptionError)
        elif "gpus" in values:
            taken = {n for o in others if o.start_s < end_s and start_s < o.end_s for n in o.nodes}
            nodes = choose_nodes(topology, _gpus(values["gpus"], option), taken)
        window = NodeWindow(
            name=values.get("name", f"{self.kind}-{number}"),
            kind=self.kind,
            nodes=nodes,
            start_s=start_s,
            end_s=end_s,
            users=_names(values.get("user", "")),
            queues=_names(values.get("queue", "")),
            at_start="preempt" if at_start == "preempt" else "wait",
            note=values.get("note", ""),
        )
        check(window, topology)
        return window


OPTIONS: Mapping[Kind, str] = {"maintenance": "--maintenance", "reservation": "--reserve"}
_COMMON = ("nodes", "start", "for", "end", "at-start", "name", "note")
KEYS: Mapping[Kind, tuple[str, ...]] = {
    "maintenance": _COMMON,
    "reservation": ("gpus", "user", "queue", *_COMMON),
}
EXAMPLES: Mapping[Kind, str] = {
    "maintenance": "nodes=n[0-3],start=8h,for=2h",
    "reservation": "gpus=16,start=8h,for=1d,user=ann",
}
_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw]?)")


def seconds(text: str, what: str) -> float:
    """`90`, `45s`, `30m`, `2h`, `1.5d`."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise OptionError(f"{what}={text}: give seconds, or a number with s, m, h, d or w")
    return float(found[1]) * _UNITS[found[2] or "s"]


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in re.split(r"[+,]", text) if name)


def _gpus(text: str, option: str) -> int:
    if not text.isdecimal() or not int(text):
        raise OptionError(f"{option}: gpus={text}: give a whole number, e.g. gpus=16")
    return int(text)


def check(
    window: NodeWindow, topology: Topology, error: type[RotaError] = OptionError, now_s: float = 0.0
) -> None:
    """Raise if this cannot be a window of these nodes."""
    name = f"{window.kind} {window.name}"
    if not NAME.fullmatch(window.name):
        raise error(f"{name!r}: names have letters, digits, '.', '_' and '-', and at most 63")
    if not window.nodes:
        raise error(f"{name}: no nodes are named: give nodes=n0,n1")
    known = {node.name for node in topology.nodes}
    strange = [node for node in window.nodes if node not in known]
    if strange:
        raise error(f"{name}: there is no node {strange[0]!r}: known are {_listed(sorted(known))}")
    if window.end_s <= now_s:
        raise error(f"{name}: its end is in the past: give one that is still to come")
    if not window.start_s < window.end_s:
        early_s = window.start_s - window.end_s
        when = f"{duration(early_s)} before it starts" if early_s else "when it starts"
        raise error(f"{name}: it would end {when}: give an end after its start")
    owned = bool(window.users or window.queues)
    if (window.kind == "reservation") != owned:
        whom = "is for nobody: give user= or queue=" if not owned else "admits nobody"
        raise error(f"{name} {whom}")


def with_queues_below(
    window: NodeWindow,
    tenants: TenantTree,
    seen: Collection[str] = (),
    error: type[RotaError] = OptionError,
    *,
    strict: bool = True,
) -> NodeWindow:
    """The same, for the queues that are declared below its own, too.

    A queue that nobody knows is a typing error, where there are names to compare it with: those
    that are declared, and those of jobs (`seen`); not `strict`: others may come, too.
    """
    known = sorted({*tenants.names, *filter(None, seen)})
    queues: list[str] = []
    for queue in window.queues:
        if (
            strict
            and known
            and not any(name == queue or name.startswith(f"{queue}/") for name in known)
        ):
            raise error(f"{window.kind} {window.name}: {unknown('queue', queue, known)}")
        below = [name for name in tenants.names if queue in (t.name for t in tenants.path(name))]
        queues += [queue, *below]
    return msgspec.structs.replace(window, queues=tuple(dict.fromkeys(queues)))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - FEW:,} more" if len(names) > FEW else ""
    return ", ".join(names[:FEW]) + more


def choose_nodes(
    topology: Topology,
    gpus: int,
    taken: Collection[str],
    busy: Mapping[str, float] | None = None,
    error: type[RotaError] = OptionError,
) -> tuple[str, ...]:
    """Whole nodes with at least so many GPUs: those with the least to wait for, the last first.

    Args:
        topology: All nodes.
        gpus: How many GPUs are wanted.
        taken: Nodes that are in other windows at the time.
        busy: GPUs of each node that will still be held when it begins.
        error: What is raised if there are too few.
    """
    busy = busy or {}
    free: list[tuple[float, int, Vertex]] = [
        (busy.get(node.name, 0.0), -place, node)
        for place, node in enumerate(topology.nodes)
        if node.gpus and node.open and node.name not in taken
    ]
    chosen: list[str] = []
    left = gpus
    for _, _, node in sorted(free, key=lambda found: found[:2]):
        if left <= 0:
            break
        chosen.append(node.name)
        left -= node.gpus
    if left > 0:
        raise error(
            f"{gpus:,} GPUs cannot be reserved: the nodes that are up and in no other window at "
            f"the time have {gpus - left:,}"
        )
    return tuple(sorted(chosen))
