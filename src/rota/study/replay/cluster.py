"""The machines of a history: as recorded, or as far as jobs show them.

Without a list of nodes, a node is as large as the most GPUs that were held there at once.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from rota.core.events import INF
from rota.core.sums import ordered_sum
from rota.core.tenants import TenantTree
from rota.core.topology import NodeSpec
from rota.traces.imported import Imported
from rota.traces.observed import Observed


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
    """The nodes that jobs were seen on, as large as was seen.

    Jobs whose GPUs on each node are known come first: the others are split over nodes of that size
    if they can be, since a guess must not make a node larger than it is.
    """
    told = peaks(held_frame(imported.observed))
    listed = set(imported.observed.frame["nodes"].explode().drop_nulls().unique())
    sizes = [NodeSpec(name, int(np.ceil(most))) for name, most in told.items()]
    held = held_frame(with_shares(imported, sizes if listed <= set(told) else ()))
    if not held.height:
        return ()
    labels = imported.jobs.select("labels").with_row_index("job").cast({"job": pl.Int64})
    of_nodes: dict[str, list[str]] = {}
    marked = held.join(labels, on="job").explode("labels").drop_nulls("labels")
    for node, label in marked.select("node", "labels").unique(maintain_order=True).iter_rows():
        of_nodes.setdefault(node, []).append(label)
    types = _seen_types(imported, held)
    return tuple(
        NodeSpec(
            node,
            int(np.ceil(most)),
            types.get(node, ""),
            labels=tuple(sorted(of_nodes.get(node, ()))),
        )
        for node, most in sorted(peaks(held).items())
    )


def _seen_types(imported: Imported, held: pl.DataFrame) -> dict[str, str]:
    """GPU types of nodes: what most of the jobs that got GPUs there and named one type asked for.

    Who asks for a type could run nowhere if no node had one.
    """
    one = pl.col("gpu_type").list.len() == 1
    asked = imported.jobs.select("gpu_type").with_row_index("job").cast({"job": pl.Int64})
    named = asked.filter(one).select("job", pl.col("gpu_type").list.first())
    counts = (
        held.filter(pl.col("gpus") > 0)
        .join(named, on="job")
        .group_by("node", "gpu_type")
        .len()
        .sort("node", "len", "gpu_type", descending=[False, True, False])
    )
    return dict(counts.unique("node", keep="first").select("node", "gpu_type").iter_rows())


OTHERS = "(all others)"
"""The tenant above those who have no guarantee."""


def write_cluster(
    nodes: Sequence[NodeSpec],
    levels: Sequence[str],
    quotas: Mapping[str, float],
    path: Path,
    *,
    guarantees: Mapping[str, float] | None = None,
    tenants: Iterable[str] = (),
    site: TenantTree | None = None,
) -> None:
    """As a YAML file for `--cluster`, one node per line.

    `guarantees`: GPUs that all other `tenants` together leave to these. `site`: the queues as they
    are.
    """
    names = [*tenants]
    lines = [f"levels: {json.dumps(list(levels))}"] if levels else []
    lines += ["nodes:", *(f"  - {json.dumps(_entry(node))}" for node in nodes)]
    declared: list[dict[str, Any]] = []
    if guarantees:
        left = ordered_sum(node.gpus for node in nodes) - ordered_sum(guarantees.values())
        declared.append({"name": OTHERS, "limit": max(left, 0)})
        declared += [
            {"name": name, "parent": OTHERS} | ({"limit": quotas[name]} if name in quotas else {})
            for name in sorted({*names} - {*guarantees})
        ]
    shown = {one["name"] for one in declared}
    declared += [{"name": n, "limit": most} for n, most in quotas.items() if n not in shown]
    if site is not None and len(site):
        declared = _merged(site, quotas)
        shown = {one["name"] for one in declared}
        declared += [{"name": name} for name in sorted({*names} - shown)]  # they are no mistakes
    if declared:
        lines += ["tenants:", *(f"  - {json.dumps(tenant)}" for tenant in declared)]
    if site is not None and site.classes:
        entries = (json.dumps(msgspec.to_builtins(one)) for one in site.classes)
        lines += ["priority_classes:", *(f"  - {entry}" for entry in entries)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _merged(site: TenantTree, limits: Mapping[str, float]) -> list[dict[str, Any]]:
    """The queues of the site with other limits; a quota is never above its limit."""
    found: dict[str, dict[str, Any]] = {tenant.name: tenant.entry() for tenant in site}
    for name, most in limits.items():
        old = found.setdefault(name, {"name": name})
        old["limit"] = most
        old["quota"] = min(old.get("quota", 0.0), most)
    return list(found.values())


def _entry(node: NodeSpec) -> dict[str, Any]:
    values = msgspec.to_builtins(node)
    return {key: value for key, value in values.items() if value or key in ("name", "gpus")}
