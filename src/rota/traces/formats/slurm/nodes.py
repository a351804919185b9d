"""Machines of a Slurm cluster, from what its commands print.

- `scontrol show node` (text, or `--json`);
- `sinfo --json`;
- `sinfo --Node --format "%N %c %m %G %P"`: a table with the titles NODELIST, CPUS, MEMORY, GRES and
  PARTITION, separated by blanks or `|`.

Also any cluster that `--cluster` takes (a YAML file or a CSV node list). Partitions and features
become labels of a node. A node in several partitions is one node. A GPU that is divided into
instances of MIG is one GPU: nodes with instances of one kind have as many GPUs as are needed for
them, others as many as their sevenths make.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rota.core.errors import ClusterSpecError
from rota.core.hostlist import expand
from rota.core.topology import NodeSpec
from rota.traces.cluster import parse_cluster
from rota.traces.formats.slurm.fields import MISSING, gres_on_node, shards_on_node
from rota.traces.sources import decode, read_bytes

_GRES = re.compile(r"(?:^|\s)Gres=(\S+)")
_JSON_GRES = re.compile(r'"(?:gres|total)"\s*:\s*"([^"]*)"')
_CELL = re.compile(r"[^\s|]*shard:[^\s|]*")
_PAIR = re.compile(r"(\w+)=(\S*)")
_KNOWN = (".yaml", ".yml", ".csv")
_MIB_PER_GIB = 1_024.0
_MOST_GPUS = 4_096


def read_nodes_file(path: Path) -> tuple[NodeSpec, ...]:
    """The machines that a file describes.

    Raises:
        ClusterSpecError: It is none of the forms, or lists no node.
    """
    if path.suffix.lower() in _KNOWN:
        return tuple(parse_cluster(str(path))[0].specs)
    if not path.exists() and re.match(r"\d+x\d", str(path)):
        raise ClusterSpecError(f"{path}: there is no such file: give a shape as --cluster {path}")
    text = decode(read_bytes(path, ClusterSpecError), path, ClusterSpecError)
    if text.lstrip().startswith("{"):
        nodes = _from_json(path, text)
    elif "NodeName=" in text:
        nodes = _from_scontrol(text)
    else:
        nodes = _from_sinfo(path, text)
    found = _joined(nodes)
    if not found:
        raise ClusterSpecError(
            f"{path}: lists no nodes: give what `scontrol show node` or `sinfo --json` prints"
        )
    return found


def shards_per_gpu(path: Path) -> tuple[float, bool]:
    """Shards that make a GPU on most nodes (0: there are none), and whether it is so on all."""
    if path.suffix.lower() in _KNOWN:
        return 0.0, True
    text = decode(read_bytes(path, ClusterSpecError), path, ClusterSpecError)
    if "shard" not in text:
        return 0.0, True
    pattern = (
        _JSON_GRES if text.lstrip().startswith("{") else _GRES if "NodeName=" in text else _CELL
    )
    counts = Counter(filter(None, map(shards_on_node, pattern.findall(text))))
    if not counts:
        return 0.0, True
    return counts.most_common(1)[0][0], len(counts) == 1


def _from_scontrol(text: str) -> list[NodeSpec]:
    """Blocks of `NodeName=n1 CPUTot=64 Gres=gpu:a100:8 ...`."""
    nodes = []
    for block in re.split(r"(?:^|\s)(?=NodeName=)", text):
        pairs = dict(reversed(_PAIR.findall(block)))  # the first of a name counts
        if not pairs.get("NodeName"):
            continue
        gpus, gpu_type = gres_on_node(pairs.get("Gres", ""))
        labels = [*_words(pairs.get("Partitions", "")), *_words(pairs.get("ActiveFeatures", ""))]
        nodes += _named(
            pairs["NodeName"],
            gpus,
            gpu_type,
            _number(pairs.get("CPUTot") or pairs.get("CPUs")),
            _number(pairs.get("RealMemory")) / _MIB_PER_GIB,
            labels,
        )
    return nodes


def _from_sinfo(path: Path, text: str) -> list[NodeSpec]:
    lines = [line for line in text.splitlines() if line.strip()] or [""]
    mark = "|" if "|" in lines[0] else None
    titles = [title.strip().upper() for title in lines[0].split(mark)]
    if "NODELIST" not in titles or "JOBID" in titles:
        raise ClusterSpecError(
            f"{path}: is not understood: give what `scontrol show node`, `sinfo --json` or "
            f"`sinfo --Node --format '%N|%c|%m|%G|%P'` prints, or a .yaml or .csv file"
        )
    nodes = []
    for line in lines[1:]:
        cells = dict(zip(titles, (cell.strip() for cell in line.split(mark)), strict=False))
        gpus, gpu_type = gres_on_node(cells.get("GRES", ""))
        nodes += _named(
            cells["NODELIST"],
            gpus,
            gpu_type,
            _number(cells.get("CPUS", "").rstrip("+")),
            _number(cells.get("MEMORY", "").rstrip("+")) / _MIB_PER_GIB,
            [name.rstrip("*") for name in _words(cells.get("PARTITION", ""))],
        )
    return nodes


def _from_json(path: Path, text: str) -> list[NodeSpec]:
    try:
        content = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, RecursionError) as error:
        raise ClusterSpecError(f"{path}: is not JSON ({error}): print it again") from error
    entries = _objects(content.get("nodes"))
    nodes = []
    for entry in entries:
        gpus, gpu_type = gres_on_node(str(entry.get("gres") or ""))
        labels = [*_listed(entry.get("partitions")), *_listed(entry.get("active_features"))]
        nodes += _named(
            str(entry.get("name") or ""),
            gpus,
            gpu_type,
            _plain(entry.get("cpus")),
            _plain(entry.get("real_memory")) / _MIB_PER_GIB,
            labels,
        )
    return nodes + [node for group in _objects(content.get("sinfo")) for node in _group(group)]


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _group(group: Mapping[str, Any]) -> list[NodeSpec]:
    """One row of newer versions of `sinfo --json`: nodes that are alike, by partition."""

    def most(key: str) -> float:
        value = group.get(key)
        return _plain(value.get("minimum")) if isinstance(value, dict) else _plain(value)

    names, gres, partition = (group.get(key) for key in ("nodes", "gres", "partition"))
    listed = _listed(names.get("nodes")) if isinstance(names, dict) else []
    total = gres.get("total") if isinstance(gres, dict) else ""
    label = partition.get("name") if isinstance(partition, dict) else ""
    gpus, gpu_type = gres_on_node(str(total or ""))
    return [
        node
        for text in listed
        for node in _named(
            text,
            gpus,
            gpu_type,
            most("cpus"),
            most("memory") / _MIB_PER_GIB,
            [label] if isinstance(label, str) and label else [],
        )
    ]


def _named(
    names: str, gpus: int, gpu_type: str, cpus: float, mem_gib: float, labels: Iterable[str]
) -> list[NodeSpec]:
    if not names or names in MISSING:
        return []
    unique = tuple(dict.fromkeys(labels))
    gpus = min(gpus, _MOST_GPUS)
    return [
        NodeSpec(name, gpus, gpu_type, cpus, mem_gib, (), unique)
        for name in expand(names, ClusterSpecError)
    ]


def _joined(nodes: Iterable[NodeSpec]) -> tuple[NodeSpec, ...]:
    """Each node once, with the labels of all its rows."""
    found: dict[str, NodeSpec] = {}
    for node in nodes:
        old = found.get(node.name)
        labels = node.labels if old is None else tuple(dict.fromkeys(old.labels + node.labels))
        found[node.name] = msgspec.structs.replace(node, labels=labels)
    return tuple(found.values())


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word and word not in MISSING]


def _listed(value: Any) -> list[str]:
    if isinstance(value, str):
        return _words(value)
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []


def _number(text: str | None) -> float:
    return float(text) if text and text.isdecimal() and len(text) <= 12 else 0.0  # noqa: PLR2004


def _plain(value: Any) -> float:
    if isinstance(value, dict):
        value = value.get("number")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 <= value < 1e12 else 0.0  # noqa: PLR2004 - nonsense
