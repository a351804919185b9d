"""Clusters as users describe them: `32x8`, `12x1:v100+12x1:p100`, a YAML file or a CSV node list.

A CSV node list has the columns of openb: sn (the name), cpu_milli, memory_mib, gpu, model. A YAML
file has nodes, the levels above them, and tenants:

```yaml
levels: [rack]                     # outermost first
nodes:
  - {count: 8, gpus: 8, gpu_type: v100, cpus: 64, mem_gib: 256, rack: r0, labels: [nvlink]}
  - {name: login, gpus: 0, cpus: 8, path: [r1]}
tenants:
  - {name: research, quota: 32}
  - {name: vision, parent: research, quota: 16, limit: 48, weight: 2, lend: 8, borrow: 16}
priority_classes:
  - {name: batch, value: 0, min_runtime_s: 600}
  - {name: urgent, value: 100, preemptible: false}
signals:
  lent: {steps: [[0, 4], [3600, 2]], foreseen: false}
windows:                           # of simulations; times from the beginning of the run
  - {kind: maintenance, nodes: "n[0-3]", start: 8h, for: 2h}
  - {kind: reservation, gpus: 16, start: 1d, for: 12h, queue: vision}
```

GPUs have memory (`gpu_mem_gib`, of each) and a mode of sharing (`sharing`: exclusive, fraction,
timeslice, mps or mig; one for all GPUs of a node, or a list with one for each). Both can be given
once for all nodes, beside `nodes`. Other kinds of resources are declared under `resources`, and
nodes say how much of them they have:

```yaml
nodes:
  - {count: 2, gpus: 8, gpu_type: a100, gpu_mem_gib: 40, sharing: mps, resources: {licence: 2}}
resources:
  licence: {unit: seat}
  net_gbps: {compressible: true}     # a shortage forbids nothing
  tokens: {renewable: false}         # used up by jobs that are over
  matlab: {total: 10}                # of the whole cluster: jobs use it on any node
licences: {ansys: 4}                 # the same, in short
```

A job that asks for GPU memory, or for a kind that nobody has declared, does not run on nodes that
do not say what they have.

A node gives its place by one key per level or by `path`. With `count` there are that many equal
nodes, named n0, n1, ... or, after a `name`, name0, name1, ... `nodes` may also be a text such as
`4x8:v100`.

A signal is a number that changes over time: from 0 s on 4, from 3,600 s on 2. Policies read it
(`view.topology.signals`). Nodes with `present: lent` come and go with it: as many of them are there
as it says, the first ones of the entry; what runs on the others is stopped in order and waits.

A YAML file of HiveD (`hived_yaml`) is a cluster, too.
"""

import re
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec

from rota.core.errors import ClusterSpecError
from rota.core.events import INF
from rota.core.registry import unknown
from rota.core.resources import ResourceKind, check_kinds, licence
from rota.core.signals import Signal
from rota.core.tenants import PriorityClass, Tenant, TenantTree
from rota.core.topology import NodeSpec, Topology
from rota.core.windows import KEYS
from rota.traces.sources import decode, read_bytes
from rota.traces.table import Column, Layout, Table, shortened

_PART = re.compile(r"(\d+)\s*x\s*(\d+)(?:\s*:\s*([^\s:+]+))?")
_MOST_GPUS = 1_000_000
_YAML = (".yaml", ".yml", ".json")

_NODE_LIST = Layout(
    (
        Column("sn", required=True, key=True),
        Column("cpu_milli", "number", required=True, least=0),
        Column("memory_mib", "number", required=True, least=0),
        Column("gpu", "number", required=True, least=0, whole=True),
        Column("model"),
    ),
    strict=True,
    remedy="remove it from the file",
    missing=("",),
    no_text=(),
)
_KEYS = (
    "nodes", "levels", "tenants", "priority_classes", "signals", "resources", "sharing",
    "gpu_mem_gib", "windows", "licences",
)  # fmt: skip
_MOST_NODES = 1_000_000
_MOST = 1e12
_MILLI = 1_000.0
_MIB_PER_GIB = 1_024.0


def parse_cluster(text: str) -> tuple[Topology, TenantTree]:
    """The machines and who shares them.

    Args:
        text: `NODESxGPUS[:TYPE]` joined by `+`, or the path of a `.yaml` or `.csv` file.

    Raises:
        ClusterSpecError: The text or the file is wrong; the message names the place and the remedy.
    """
    text = text.strip()
    if looks_like_counts(text):
        return Topology(parse_counts(text)), TenantTree()
    path = Path(text)
    suffix = path.suffix.lower()
    if suffix in _YAML:
        return _read_yaml(path)
    if suffix == ".csv":
        return Topology(read_node_list(path)), TenantTree()
    raise ClusterSpecError(
        f"cluster {text!r} is not understood: write NODESxGPUS (32x8), with types joined by + "
        f"(12x1:v100+12x1:p100), or name a .yaml or .csv file"
    )


def looks_like_counts(text: str) -> bool:
    """Every part is `NODESxGPUS` or `NODESxGPUS:TYPE`."""
    return all(_PART.fullmatch(part.strip()) for part in text.split("+"))


def parse_counts(text: str, what: str = "cluster") -> list[NodeSpec]:
    """The nodes of `12x1:v100+12x1:p100`, named n0, n1, ... throughout; errors name `what`."""
    nodes: list[NodeSpec] = []
    total = 0
    for part in text.split("+"):
        match = _PART.fullmatch(part.strip())
        if not match:
            raise ClusterSpecError(
                f"{what} {text!r}: {part!r} is not NODESxGPUS[:TYPE], e.g. 4x8:v100"
            )
        count, gpus = int(match[1]), int(match[2])
        if not count or not gpus:
            raise ClusterSpecError(
                f"{what} {text!r}: {part!r} has no GPUs: give at least 1x1 "
                f"(nodes without GPUs can be described in a YAML file)"
            )
        total += count * gpus
        if total > _MOST_GPUS:
            raise ClusterSpecError(
                f"{what} {text!r}: has more than {_MOST_GPUS:,} GPUs: give fewer nodes"
            )
        nodes += [NodeSpec(f"n{len(nodes) + i}", gpus, match[3] or "") for i in range(count)]
    return nodes


def read_node_list(path: Path) -> list[NodeSpec]:
    """The nodes of a CSV file with openb's columns."""
    frame = Table(path, _NODE_LIST, error=ClusterSpecError).whole()
    return [
        NodeSpec(name, int(gpus), model, cpu_milli / _MILLI, memory_mib / _MIB_PER_GIB)
        for name, cpu_milli, memory_mib, gpus, model in frame.select(_NODE_LIST.names).iter_rows()
    ]


# --- YAML ----------------------------------------------------------------------------------------


class _Node(msgspec.Struct, frozen=True):
    name: str | None = None
    count: int | None = None
    gpus: int = 0
    gpu_type: str = ""
    cpus: float = 0.0
    mem_gib: float = 0.0
    path: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    present: str = ""
    gpu_mem_gib: float | None = None
    sharing: str | tuple[str, ...] | None = None
    resources: dict[str, float] = {}


class _Signal(msgspec.Struct, frozen=True):
    steps: tuple[tuple[float, float], ...] = ()
    foreseen: bool = False


def _read_yaml(path: Path) -> tuple[Topology, TenantTree]:
    """The cluster that a YAML file describes."""
    from rota.traces.hived_yaml import hived_cluster, is_hived, read_hived  # imports a policy

    content = _load(path)
    if is_hived(content):
        return hived_cluster(read_hived(path))
    where = str(path)
    _check_keys(where, content, _KEYS)
    if "nodes" not in content:
        raise ClusterSpecError(f"{where}: there is no key 'nodes': list the machines under it")
    levels: tuple[str, ...] = _convert(
        f"{where}: levels", content.get("levels", ()), tuple[str, ...]
    )
    _check_levels(where, levels)
    tenants = [
        _tenant(f"{where}: tenants[{number}]", entry)
        for number, entry in enumerate(_entries(where, content, "tenants"))
    ]
    classes = [
        _priority_class(f"{where}: priority_classes[{number}]", entry)
        for number, entry in enumerate(_entries(where, content, "priority_classes"))
    ]
    signals = _signals(where, content)
    guests: list[tuple[Signal, tuple[str, ...]]] = []
    nodes = _nodes(where, content, levels, signals, guests)
    topology = Topology(nodes, levels, kinds=_kinds(where, content))
    topology.signals, topology.guests = signals, guests
    topology.planned = [
        _planned(f"{where}: windows[{number}]", entry)
        for number, entry in enumerate(_entries(where, content, "windows"))
    ]
    return topology, TenantTree(tenants, classes)


def refuse_windows(topology: Topology, what: str, remedy: str) -> None:
    """Raise for a cluster file with windows where nobody would keep to them."""
    if topology.planned:
        raise ClusterSpecError(f"{topology.planned[0]['where']}: {what}: {remedy}")


def _planned(where: str, entry: Any) -> dict[str, str]:
    """A maintenance or a reservation, as options of commands have it."""
    kind = str(entry.get("kind", "")) if isinstance(entry, dict) else ""
    keys = next((keys for name, keys in KEYS.items() if name == kind), None)
    if keys is None:
        raise ClusterSpecError(
            f"{where}: {f'kind is {kind!r}' if kind else 'kind is missing'}: give maintenance or "
            "reservation, e.g. "
            "{kind: maintenance, nodes: n0, start: 8h, for: 2h}"
        )
    _check_keys(where, entry, ("kind", *keys))
    found = {"kind": kind, "where": where}
    for key, value in entry.items():
        several = value if isinstance(value, list) else [value]
        if not several or not all(isinstance(one, str | int | float) for one in several):
            raise ClusterSpecError(f"{where}: {key} is {value!r}: give a text, or a list of texts")
        found[key] = ("," if key == "nodes" else "+").join(map(str, several))
    return found


def _kinds(where: str, content: Mapping[str, Any]) -> list[ResourceKind]:
    """The kinds of resources that a file declares; licences are totals without more words."""
    found = []
    keys = tuple(key for key in ResourceKind.__struct_fields__ if key != "name")
    for key, example in (("resources", "licence: {unit: seat}"), ("licences", "matlab: 10")):
        entries = content.get(key) or {}
        if not isinstance(entries, dict):
            raise ClusterSpecError(
                f"{where}: {key} is {entries!r}: give names, each with what it is: {example}"
            )
        for name, entry in entries.items():
            place = f"{where}: {key}.{name}"
            if key == "licences":
                found.append(licence(str(name), _convert(place, entry, float)))
                continue
            _check_keys(place, entry if entry is not None else {}, keys)
            found.append(_struct(place, {**(entry or {}), "name": str(name)}, ResourceKind))
    check_kinds(found, f"{where}: resources")
    return found


def _signals(where: str, content: Mapping[str, Any]) -> dict[str, Signal]:
    entries = content.get("signals") or {}
    if not isinstance(entries, dict):
        raise ClusterSpecError(
            f"{where}: signals is {entries!r}: give names, each with its steps: "
            "lent: {steps: [[0, 4], [3600, 2]]}"
        )
    found = {}
    for name, entry in entries.items():
        place = f"{where}: signals.{name}"
        _check_keys(place, entry, _Signal.__struct_fields__)
        told: _Signal = _struct(place, entry, _Signal)
        for time_s, value in told.steps:
            if not (isfinite(time_s) and isfinite(value)):
                raise ClusterSpecError(f"{place}: [{time_s:g}, {value:g}]: give finite numbers")
        try:
            found[str(name)] = Signal(str(name), told.steps, foreseen=told.foreseen)
        except ValueError as error:
            raise ClusterSpecError(f"{place}: {error}") from error
    return found


def _load(path: Path) -> Mapping[str, Any]:
    from rota.core.yaml_text import YAMLError, read_yaml

    text = decode(read_bytes(path, ClusterSpecError), path, ClusterSpecError)
    try:
        content = read_yaml(text)
    except (YAMLError, ValueError) as error:  # ValueError: a date that does not exist
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}:" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise ClusterSpecError(f"{path}:{line} is not YAML ({problem}): correct it") from error
    if not isinstance(content, dict):
        raise ClusterSpecError(f"{path}: holds no keys: it needs {', '.join(_KEYS)}")
    return content


def _entries(where: str, content: Mapping[str, Any], key: str) -> list[Any]:
    entries = content.get(key) or []
    if not isinstance(entries, list):
        raise ClusterSpecError(f"{where}: {key} is {entries!r}: give a list, one entry per line")
    return entries


def _nodes(
    where: str,
    content: Mapping[str, Any],
    levels: tuple[str, ...],
    signals: Mapping[str, Signal],
    guests: list[tuple[Signal, tuple[str, ...]]],
) -> list[NodeSpec]:
    mode = _convert(f"{where}: sharing", content.get("sharing", ""), str)
    mem_gib = _convert(f"{where}: gpu_mem_gib", content.get("gpu_mem_gib", 0.0), float)
    _check_amount(where, "gpu_mem_gib", mem_gib)
    if isinstance(content["nodes"], str):
        return [
            msgspec.structs.replace(spec, sharing=mode, gpu_mem_gib=mem_gib)
            for spec in parse_counts(content["nodes"])
        ]
    nodes: list[NodeSpec] = []
    unnamed = 0
    for number, entry in enumerate(_entries(where, content, "nodes")):
        place = f"{where}: nodes[{number}]"
        node = _node(place, entry, levels)
        count = 1 if node.count is None else node.count
        if len(nodes) + count > _MOST_NODES:
            raise ClusterSpecError(
                f"{place}: count is {count}: a cluster has at most {_MOST_NODES:,}"
            )
        if node.name is None:
            names = [f"n{unnamed + i}" for i in range(count)]
            unnamed += count
        elif node.count is None:
            names = [node.name]
        else:
            names = [f"{node.name}{i}" for i in range(count)]
        if node.present:
            if node.present not in signals:
                raise ClusterSpecError(
                    f"{place}: {unknown('signal', node.present, list(signals))}: "
                    "describe it under signals"
                )
            guests.append((signals[node.present], tuple(names)))
        nodes += [
            NodeSpec(
                name,
                node.gpus,
                node.gpu_type,
                node.cpus,
                node.mem_gib,
                node.path,
                node.labels,
                mem_gib if node.gpu_mem_gib is None else node.gpu_mem_gib,
                mode if node.sharing is None else node.sharing,
                tuple(sorted(node.resources.items())),
            )
            for name in names
        ]
    return nodes


def _node(where: str, entry: Any, levels: tuple[str, ...]) -> _Node:
    _check_keys(where, entry, (*_Node.__struct_fields__, *levels))
    given = {level: entry[level] for level in levels if level in entry}
    rest = {key: value for key, value in entry.items() if key not in given}
    node: _Node = _struct(where, rest, _Node)
    for key in ("gpus", "cpus", "mem_gib", "gpu_mem_gib"):
        _check_amount(where, key, getattr(node, key) or 0.0)
    if node.count is not None and node.count < 1:
        raise ClusterSpecError(f"{where}: count is {node.count}: give 1 or more")
    if given:
        if node.path:
            raise ClusterSpecError(
                f"{where}: has path and {', '.join(given)}: give only one of them"
            )
        _check_levels_given(where, given, levels)
        path = tuple(str(given[level]) for level in levels[: len(given)])
        node = msgspec.structs.replace(node, path=path)
    if len(node.path) > len(levels):
        raise ClusterSpecError(
            f"{where}: path is {list(node.path)} but levels is {list(levels)}: name every level"
        )
    return node


def _check_levels_given(where: str, given: Mapping[str, Any], levels: tuple[str, ...]) -> None:
    """A level can only be given below all that enclose it."""
    for level in levels[: len(given)]:
        if level not in given:
            raise ClusterSpecError(f"{where}: has {', '.join(given)} but not {level}: give it too")
    for level, name in given.items():
        if not isinstance(name, str | int):
            raise ClusterSpecError(f"{where}: {level} is {name!r}: give a name")


def _check_levels(where: str, levels: tuple[str, ...]) -> None:
    for level in levels:
        if level in _Node.__struct_fields__ or level in ("cluster", "node", "gpu", "pool"):
            raise ClusterSpecError(
                f"{where}: levels has {level!r}, which means something else: rename it"
            )
    if len(set(levels)) < len(levels):
        raise ClusterSpecError(f"{where}: levels is {list(levels)}: every level needs its own name")


def _tenant(where: str, entry: Any) -> Tenant:
    _check_keys(where, entry, Tenant.__struct_fields__)
    if not entry.get("name"):
        raise ClusterSpecError(f"{where}: has no name: give one")
    tenant: Tenant = _struct(where, entry, Tenant)
    _check_amount(where, "quota", tenant.quota)
    for key in ("limit", "lend", "borrow"):
        if getattr(tenant, key) != INF:
            _check_amount(where, key, getattr(tenant, key))
    if tenant.limit < tenant.quota:
        raise ClusterSpecError(
            f"{where}: limit is {tenant.limit:g}, below quota {tenant.quota:g}: "
            f"raise it or lower the quota"
        )
    if not 0 < tenant.weight < INF:
        raise ClusterSpecError(f"{where}: weight is {tenant.weight:g}: give more than 0")
    return tenant


def _priority_class(where: str, entry: Any) -> PriorityClass:
    _check_keys(where, entry, PriorityClass.__struct_fields__)
    if not entry.get("name"):
        raise ClusterSpecError(f"{where}: has no name: give one")
    made: PriorityClass = _struct(where, entry, PriorityClass)
    _check_amount(where, "min_runtime_s", made.min_runtime_s)
    return made


def _check_amount(where: str, key: str, value: float) -> None:
    most = _MOST_GPUS if key == "gpus" else _MOST
    if value > most:  # first: an integer may be too long for a float
        raise ClusterSpecError(
            f"{where}: {key} is {shortened(str(value))}: give {most:,.0f} at most"
        )
    if not isfinite(value) or value < 0:
        raise ClusterSpecError(f"{where}: {key} is {value:g}: give 0 or more")


def _check_keys(where: str, entry: Any, known: Sequence[str]) -> None:
    if not isinstance(entry, dict):
        raise ClusterSpecError(f"{where}: is {entry!r}: give keys, of {', '.join(known)}")
    for key in entry:
        if key not in known:
            raise ClusterSpecError(f"{where}: {unknown('key', str(key), list(known))}")


def _struct(where: str, entry: Mapping[str, Any], to: type[msgspec.Struct]) -> Any:
    """Convert key by key, so that an error names the key."""
    types = {field.name: field.type for field in msgspec.structs.fields(to)}
    return to(**{key: _convert(f"{where}: {key}", entry[key], types[key]) for key in entry})


def _convert(where: str, value: Any, to: Any) -> Any:
    try:
        return msgspec.convert(value, to)
    except msgspec.ValidationError as error:
        problem = str(error).replace("`", "").lower()
        shown = shortened(repr(value))
        raise ClusterSpecError(f"{where} is {shown}: {problem}: correct it") from error
