"""The machines of a history: as recorded, as far as jobs show them, and with changes.

Without a list of nodes, a node is as large as the most GPUs that were held there at once. Nodes
that are added are like those that are there: with as many GPUs, the CPUs and memory of the most
common node of that size (or per GPU of the most common one), and all labels, so that every job may
use them.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from rota.core.errors import OptionError
from rota.core.events import INF
from rota.core.topology import NodeSpec
from rota.traces.cluster import parse_counts
from rota.traces.imported import Imported
from rota.traces.observed import Observed


class Changes(msgspec.Struct, frozen=True):
    """What is to be different: nodes to add (`4x8`), nodes to remove, GPUs of tenants at most."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    quotas: tuple[tuple[str, float], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.add or self.remove or self.quotas)

    def describe(self) -> str:
        """`+4x8, -n3, vision<=64`."""
        quotas = [f"{tenant}<={most:g}" for tenant, most in self.quotas]
        return ", ".join(
            [*(f"+{one}" for one in self.add), *(f"-{n}" for n in self.remove), *quotas]
        )


def parse_quota(text: str) -> tuple[str, float]:
    """From `team=64`."""
    tenant, equals, amount = text.rpartition("=")
    try:
        most = float(amount)
    except ValueError:
        most = -1.0
    if not equals or not tenant.strip() or not 0 <= most < float("inf"):
        raise OptionError(f"quota {text!r} is not understood: write TENANT=GPUS, e.g. vision=64")
    return tenant.strip(), most


def held_frame(observed: Observed) -> pl.DataFrame:
    """A row per attempt and node: `job`, `start_s`, `end_s`, `node`, `gpus`.

    Attempts whose nodes are not recorded, or that took no time, are left out; those that go on hold
    their nodes for ever.
    """
    frame = observed.frame.filter(
        (pl.col("nodes").list.len() > 0) & (pl.col("nodes").list.len() == pl.col("gpus").list.len())
    )
    return (
        frame.with_columns(pl.col("end_s").fill_null(INF))
        .filter(pl.col("end_s") > pl.col("start_s"))
        .select("job", "start_s", "end_s", pl.col("nodes").alias("node"), "gpus")
        .explode("node", "gpus")
    )


def peaks(held: pl.DataFrame) -> dict[str, float]:
    """The most GPUs that were held at once, by node."""
    changes = pl.concat(
        [
            held.select("node", pl.col("start_s").alias("time_s"), "gpus", order=pl.lit(1)),
            held.select("node", pl.col("end_s").alias("time_s"), -pl.col("gpus"), order=pl.lit(0)),
        ]
    ).sort("node", "time_s", "order")
    level = pl.col("gpus").cum_sum().over("node")
    found = changes.with_columns(level.alias("level")).group_by("node").agg(pl.col("level").max())
    return {node: max(round(level, 6), 0.0) for node, level in found.iter_rows()}


def peak(imported: Imported) -> float:
    """The most GPUs that were held at once, whatever is known of nodes."""
    sizes = imported.jobs.select("num_gpus").with_row_index("job").cast({"job": pl.Int64})
    frame = imported.observed.frame.join(sizes, on="job")
    frame = frame.with_columns(pl.col("end_s").fill_null(INF)).filter(
        pl.col("end_s") > pl.col("start_s")
    )
    if not frame.height:
        return 0.0
    return peaks(frame.select(pl.lit("").alias("node"), "start_s", "end_s", gpus="num_gpus"))[""]


def with_shares(imported: Imported, nodes: Sequence[NodeSpec] = ()) -> Observed:
    """The attempts, with GPUs per node also where only their sum is known.

    Slurm's accounting often tells the sum only. It is split evenly over the nodes of a job if that
    is possible in whole GPUs and they had room for it as long as the job ran; else as Slurm deals
    GPUs out: the first nodes as full as can be, with at least one GPU on each of the others.
    Without a list of nodes there is always room, and what is left over goes to the first nodes.
    """
    frame = imported.observed.frame
    open_rows = (pl.col("nodes").list.len() > 0) & (pl.col("gpus").list.len() == 0)
    if not frame.select(open_rows.any()).item():
        return imported.observed
    sizes = imported.jobs["num_gpus"].to_list()
    room = {node.name: float(node.gpus) for node in nodes}
    rows = frame.select("job", "start_s", "end_s", "nodes", "gpus").rows()
    shares = [list(row[4]) for row in rows]
    held: dict[str, list[tuple[float, float, float]]] = {}
    unknown = []
    for number, (_, start_s, end_s, names, _) in enumerate(rows):
        if names and not shares[number]:
            unknown.append((start_s, number))
        _hold(held, names, shares[number], (start_s, INF if end_s is None else end_s))
    for start_s, number in sorted(unknown):
        job, _, end_s, names, _ = rows[number]
        span = (start_s, INF if end_s is None else end_s)
        left = [room.get(name, 0.0) - _most(held.get(name, ()), *span) for name in names]
        shares[number] = _split(sizes[job], left if nodes else [INF] * len(names))
        _hold(held, names, shares[number], span)
    return Observed(frame.with_columns(gpus=pl.Series(shares, dtype=pl.List(pl.Float64))))


def _hold(
    held: dict[str, list[tuple[float, float, float]]],
    names: Sequence[str],
    shares: Sequence[float],
    span: tuple[float, float],
) -> None:
    if span[1] > span[0]:
        for name, share in zip(names, shares, strict=False):
            held.setdefault(name, []).append((*span, share))


def _most(held: Iterable[tuple[float, float, float]], start_s: float, end_s: float) -> float:
    """The most GPUs in use at once between two times."""
    inside = [(max(a, start_s), b, gpus) for a, b, gpus in held if a < end_s and b > start_s]
    changes = [(a, 1, gpus) for a, _, gpus in inside] + [(b, 0, -gpus) for _, b, gpus in inside]
    return max(accumulate(gpus for _, _, gpus in sorted(changes)), default=0.0)


def _split(gpus: float, room: Sequence[float]) -> list[float]:
    """GPUs on each of so many nodes; empty: there is no way in whole GPUs."""
    count = len(room)
    even = [float(gpus // count + (number < gpus % count)) for number in range(count)]
    fits = all(share <= left for share, left in zip(even, room, strict=True))
    if fits and (gpus % count == 0 or INF in room):
        return even
    share = []
    rest = gpus
    for number, left in enumerate(room):
        mine = min(max(1.0, left), rest - (count - 1 - number))
        share.append(mine)
        rest -= mine
    if rest == 0 and min(share) >= 1:
        return share
    return even if gpus % count == 0 else []


def seen_cluster(imported: Imported) -> tuple[NodeSpec, ...]:
    """The nodes that jobs were seen on, as large as was seen."""
    held = held_frame(with_shares(imported))
    if not held.height:
        return ()
    labels = imported.jobs.select("labels").with_row_index("job").cast({"job": pl.Int64})
    of_nodes: dict[str, list[str]] = {}
    marked = held.join(labels, on="job").explode("labels").drop_nulls("labels")
    for node, label in marked.select("node", "labels").unique(maintain_order=True).iter_rows():
        of_nodes.setdefault(node, []).append(label)
    return tuple(
        NodeSpec(node, int(np.ceil(most)), labels=tuple(sorted(of_nodes.get(node, ()))))
        for node, most in sorted(peaks(held).items())
    )


def changed(nodes: Sequence[NodeSpec], changes: Changes) -> tuple[NodeSpec, ...]:
    """The machines with those added and without those removed."""
    names = {node.name for node in nodes}
    for name in changes.remove:
        if name not in names:
            raise OptionError(
                f"remove {name!r}: there is no such node: it has {', '.join(sorted(names)[:12])}"
            )
    left = [node for node in nodes if node.name not in changes.remove]
    for text in changes.add:
        left += _added(nodes, text, {node.name for node in left})
    if not left:
        raise OptionError("no node is left: remove fewer")
    return tuple(left)


def _added(nodes: Sequence[NodeSpec], text: str, taken: Iterable[str]) -> list[NodeSpec]:
    labels = tuple(dict.fromkeys(label for node in nodes for label in node.labels))
    known = set(taken)
    made: list[NodeSpec] = []
    for wanted in parse_counts(text):
        like = _alike(nodes, wanted)
        number = len(made) + 1
        while f"new{number}" in known:
            number += 1
        known.add(f"new{number}")
        made.append(
            NodeSpec(
                f"new{number}",
                wanted.gpus,
                wanted.gpu_type or like.gpu_type,
                like.cpus,
                like.mem_gib,
                like.path,
                labels,
            )
        )
    return made


def _alike(nodes: Sequence[NodeSpec], wanted: NodeSpec) -> NodeSpec:
    """The most common node with as many GPUs, or the most common one with any, in proportion."""
    alike = [node for node in nodes if not wanted.gpu_type or node.gpu_type == wanted.gpu_type]
    alike = alike or list(nodes)
    same = [node for node in alike if node.gpus == wanted.gpus]
    some = same or [node for node in alike if node.gpus] or alike
    kinds = Counter((n.gpus, n.gpu_type, n.cpus, n.mem_gib, n.path) for n in some)
    gpus, gpu_type, cpus, mem_gib, path = kinds.most_common(1)[0][0]
    share = wanted.gpus / gpus if gpus else 1.0
    return NodeSpec("", wanted.gpus, gpu_type, cpus * share, mem_gib * share, path)


def write_cluster(nodes: Sequence[NodeSpec], quotas: Mapping[str, float], path: Path) -> None:
    """As a YAML file for `--cluster`, one node per line."""
    depth = max(len(node.path) for node in nodes)
    lines = [f"levels: {json.dumps([f'level{i + 1}' for i in range(depth)])}"] if depth else []
    lines += ["nodes:", *(f"  - {json.dumps(_entry(node))}" for node in nodes)]
    if quotas:
        tenants = ({"name": name, "limit": most} for name, most in quotas.items())
        lines += ["tenants:", *(f"  - {json.dumps(tenant)}" for tenant in tenants)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _entry(node: NodeSpec) -> dict[str, Any]:
    values = msgspec.to_builtins(node)
    return {key: value for key, value in values.items() if value or key in ("name", "gpus")}
