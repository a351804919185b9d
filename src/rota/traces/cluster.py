"""Clusters as users describe them: `32x8`, `12x1:v100+12x1:p100`, a YAML file or a CSV node list.

A YAML file has the keys `nodes`, `levels` and `tenants` (see `cluster_yaml`). A CSV node list has
the columns of openb: sn (the name), cpu_milli, memory_mib, gpu, model.
"""

import re
from pathlib import Path

from rota.core.errors import ClusterSpecError
from rota.core.tenants import TenantTree
from rota.core.topology import NodeSpec, Topology
from rota.traces.table import Rule, Schema, read_table

_PART = re.compile(r"(\d+)\s*x\s*(\d+)(?:\s*:\s*([^\s:+]+))?")
_MOST_GPUS = 1_000_000
_YAML = (".yaml", ".yml", ".json")

_NODE_LIST = Schema(
    required=("sn", "cpu_milli", "memory_mib", "gpu", "model"), remedy="remove it from the file"
)
_AMOUNT = Rule(least=0)
_COUNT = Rule(least=0, whole=True)
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
        from rota.traces.cluster_yaml import read_yaml

        return read_yaml(path)
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
    table = read_table(path, _NODE_LIST, error=ClusterSpecError)
    rows = zip(
        table.keys("sn"),
        table.numbers("gpu", _COUNT),
        table.texts("model"),
        table.numbers("cpu_milli", _AMOUNT),
        table.numbers("memory_mib", _AMOUNT),
        strict=True,
    )
    return [
        NodeSpec(name, int(gpus), model, cpu_milli / _MILLI, memory_mib / _MIB_PER_GIB)
        for name, gpus, model, cpu_milli, memory_mib in rows
    ]
