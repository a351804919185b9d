"""Alibaba's cluster-trace-gpu-v2023 (openb): a list of pods, and lists of nodes beside it.

`mode=timed` (default if the file has times): pods arrive at `creation_time` and run from
`scheduled_time` to `deletion_time`; pending pods never ran and are dropped; pods that end with the
trace are cut there.
`mode=inflate`: pods are only a sequence, as in the FGD paper (Weng et al., ATC 2023): they are
shuffled, clones are appended until the GPUs asked for reach `ratio` times those of the cluster, and
nothing ever ends. Pod number i arrives at second i.

Options besides the common ones: `ratio`, `seed` (of the shuffle; it draws as the published runs
did), `order` (a CSV with a column `pod`: this order instead; clones are called NAME-tuned-N),
`nodes` (the node list; by default the one beside the file; `no`: none), `gpus` (of the cluster, if
there is no node list).

A pod with several GPUs needs them on one node. `priority` is the class of service: 3 Guaranteed,
2 LS (latency sensitive), 1 Burstable, 0 BE (best effort).
"""

import copy
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rota.core.errors import OptionError, TraceError
from rota.core.topology import NodeSpec
from rota.core.workload import Quality, RankNodes
from rota.traces.cluster import read_node_list
from rota.traces.format import Reader
from rota.traces.imported import Imported
from rota.traces.observed import DONE, FAILED, RUNNING
from rota.traces.sources import exists
from rota.traces.table import Column, Layout, Table
from rota.traces.tidy import Common, Rest, import_rows

if TYPE_CHECKING:
    import polars as pl

LAYOUT = Layout(
    (
        Column("name", required=True),
        Column("cpu_milli", "number", required=True, least=0),
        Column("memory_mib", "number", required=True, least=0),
        Column("num_gpu", "number", required=True, least=0),
        Column("gpu_milli", "number", required=True, least=0),
        Column("gpu_spec", optional=True),
        Column("qos", optional=True),
        Column("pod_phase", optional=True),
        Column("creation_time", "number", optional=True),
        Column("deletion_time", "number", optional=True),
        Column("scheduled_time", "number", optional=True),
    ),
    headerless=True,
)
_PRIORITY = {"Guaranteed": 3, "LS": 2, "Burstable": 1, "BE": 0}
_STATES = {"Succeeded": DONE, "Failed": FAILED, "Running": RUNNING}
_NODE_LISTS = ("openb_node_list_all_node.csv", "openb_node_list_gpu_node.csv")
_CLONE = re.compile(r"-tuned-\d+$")
_MILLI = 1_000.0
FOREVER_S = 1e9  # some 30 years: no pod of a sequence ends before the last one has arrived


class OpenbParams(Common, frozen=True):
    """Options of the format."""

    mode: Literal["", "timed", "inflate"] = ""
    ratio: float = 1.3
    order: str = ""
    nodes: str = ""
    gpus: int = 0


class Openb(Reader):
    """Reads a pod list."""

    name = "openb"
    description = "Alibaba gpu-v2023 (openb): a pod list; mode=timed or mode=inflate"
    verified = True
    params = OpenbParams

    def beside(self, path: Path, params: OpenbParams) -> Sequence[Path]:
        """The node list."""
        files = (path.with_name(name) for name in _NODE_LISTS)
        return () if params.nodes else tuple(file for file in files if exists(file))[:1]

    def import_file(self, path: Path, params: OpenbParams) -> Imported:
        """The pods, and the machines beside them."""
        quality = Quality()
        pods = Table(path, LAYOUT, bad=params.bad, quality=quality).whole()
        cluster = _cluster(params, self.beside(path, params))
        timed = bool(pods["creation_time"].count())
        if params.mode == "timed" and not timed:
            raise TraceError(f"{path}: has no column 'creation_time': use mode=inflate")
        original, ranks = None, None
        if params.mode == "inflate" or not timed:
            original = pods.select(*_asked())
            frame, ranks = _sequence(path, pods, cluster, params, quality)
            rest = Rest(name=path.stem, sort=False, cluster=cluster)
        else:
            frame = _timed(pods)
            pending = int((pods["pod_phase"] == "Pending").sum())
            notes = (f"{pending:,} pods are pending: they were never scheduled",) if pending else ()
            rest = Rest(name=path.stem, cluster=cluster, notes=notes)
        imported = import_rows(path, frame, params, quality, rest=rest)
        imported.original, imported.rank_nodes = original, ranks
        return imported


FORMAT = Openb()


def _asked() -> "list[pl.Expr]":
    import polars as pl

    whole = pl.col("num_gpu") > 1
    share = pl.when(whole).then(1.0).otherwise(pl.col("gpu_milli") / _MILLI)
    spec = pl.col("gpu_spec")
    return [
        pl.col("name").alias("job_id"),
        (pl.col("num_gpu") * share).alias("num_gpus"),
        (pl.col("cpu_milli") / _MILLI).alias("cpus"),
        (pl.col("memory_mib") / 1024).alias("mem_gib"),
        pl.when(spec == "").then(pl.lit([], pl.List(pl.String))).otherwise(spec.str.split("|"))
        .alias("gpu_type"),
        pl.col("qos").replace_strict(_PRIORITY, default=0, return_dtype=pl.Int64).alias("priority"),
        whole.alias("apart"),
    ]  # fmt: skip


def _timed(pods: "pl.DataFrame") -> "pl.DataFrame":
    import polars as pl

    start, end = pl.col("scheduled_time"), pl.col("deletion_time")
    last = end.max()
    cut = (end == last) & (pl.col("pod_phase") == "Running")
    state = pl.col("pod_phase").replace_strict(_STATES, default="", return_dtype=pl.String)
    ended = pl.when(cut).then(state).when(state == RUNNING).then(pl.lit(DONE)).otherwise(state)
    return pods.select(
        *_asked(),
        pl.col("creation_time").alias("submit_s"),
        pl.when(end >= start).then(end - start).alias("duration_s"),
        start.alias("_start_s"),
        pl.when(~cut).then(end).alias("_end_s"),
        pl.col("pod_phase").alias("_status"),
        ended.alias("_state"),
        cut.fill_null(value=False).alias("_cut"),
    )


def _sequence(
    path: Path,
    pods: "pl.DataFrame",
    cluster: tuple[NodeSpec, ...],
    params: OpenbParams,
    quality: Quality,
) -> "tuple[pl.DataFrame, RankNodes | None]":
    """The pods in the order of their arrival, with clones; and how the draw ranks nodes."""
    import polars as pl

    asked = pods.select(*_asked(), pl.col("num_gpu"), pl.col("gpu_milli"))
    names = asked["job_id"].to_list()
    if len(set(names)) < len(names):
        raise TraceError(f"{path}: column 'name': a pod is there twice: give every pod its own")
    ranks: RankNodes | None = None
    if params.order:
        order = _read_order(Path(params.order), set(names))
    else:
        capacity = params.gpus or sum(node.gpus for node in cluster)
        order, ranks = _inflated(path, asked, capacity, params)
    dropped = len(names) - len({_CLONE.sub("", name) for name in order} & set(names))
    if dropped:
        quality.dropped["not in the sequence"] = dropped
    clones = sum(_CLONE.search(name) is not None for name in order)
    if clones:
        quality.rows += clones
        quality.repaired["clone appended to reach the load"] = clones
    base = pl.DataFrame(
        {"job_id": [_CLONE.sub("", name) for name in order], "_pod": order},
        schema={"job_id": pl.String, "_pod": pl.String},
    )
    joined = base.join(asked, on="job_id", how="left", maintain_order="left")
    frame = joined.select(
        pl.col("_pod").alias("job_id"),
        pl.exclude("job_id", "_pod", "num_gpu", "gpu_milli"),
        pl.int_range(pl.len()).cast(pl.Float64).alias("submit_s"),
        pl.lit(FOREVER_S).alias("duration_s"),
    )
    return frame, ranks


def _inflated(
    path: Path, asked: "pl.DataFrame", capacity: int, params: OpenbParams
) -> tuple[list[str], RankNodes]:
    if not capacity:
        raise OptionError(
            f"format openb: mode=inflate needs the GPUs of the cluster, and there is no node list "
            f"beside {path}: give nodes=FILE or gpus=N"
        )
    if not 0 < params.ratio <= 100:  # noqa: PLR2004 - a guard against endless cloning
        raise OptionError(f"format openb: ratio={params.ratio:g}: give more than 0, at most 100")
    from rota.traces.formats.openb_inflation import Inflation, inflate, node_order

    by_name = asked.sort("job_id")
    inflation = Inflation(
        by_name["job_id"].to_list(),
        [int(milli) for milli in by_name["gpu_milli"]],
        [int(count) for count in by_name["num_gpu"]],
    )
    order, drawn = inflate(inflation, params.ratio * capacity * _MILLI, params.seed)

    def ranks(nodes: Sequence[str]) -> list[str]:
        return node_order(list(nodes), copy.deepcopy(drawn))  # the same however often it is asked

    return order, ranks


def _read_order(path: Path, known: set[str]) -> list[str]:
    table = Table(path, Layout((Column("pod", required=True),))).whole()
    order: list[str] = table["pod"].to_list()
    for name in order:
        if _CLONE.sub("", name) not in known:
            raise TraceError(f"{path}: column 'pod': {name!r} is not in the pod list: remove it")
    return order


def _cluster(params: OpenbParams, beside: Sequence[Path]) -> tuple[NodeSpec, ...]:
    if params.nodes == "no":
        return ()
    files = [Path(params.nodes)] if params.nodes else beside
    return tuple(read_node_list(files[0])) if files else ()
