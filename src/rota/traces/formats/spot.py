"""Alibaba's spot-gpu-v2026: `job_info_df.csv`, with `node_info_df.csv` beside it.

Every job has `worker_num` workers with `gpu_request` GPUs and `cpu_request` CPUs each. `priority`
is 1 for HP (high priority) and 0 for Spot jobs; the tenant is the organization. Times are seconds
from the first submission.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rota.core.topology import NodeSpec
from rota.core.workload import Quality
from rota.traces.format import Reader
from rota.traces.imported import Imported
from rota.traces.sources import exists
from rota.traces.table import Column, Layout, Table
from rota.traces.tidy import Common, Rest, import_rows

if TYPE_CHECKING:
    import polars as pl

LAYOUT = Layout(
    (
        Column("job_name", required=True),
        Column("organization"),
        Column("gpu_model"),
        Column("cpu_request", "number", least=0),
        Column("gpu_request", "number", required=True, least=0),
        Column("worker_num", "number", required=True, least=1),
        Column("submit_time", "number", required=True),
        Column("duration", "number", least=0),
        Column("job_type"),
    ),
    headerless=True,
)
NODES = Layout(
    (
        Column("node_name", required=True),
        Column("gpu_model"),
        Column("gpu_capacity_num", "number", required=True, least=0),
        Column("cpu_num", "number", least=0),
    )
)
_NODE_FILE = "node_info_df.csv"


class Spot(Reader):
    """Reads the job table."""

    name = "spot"
    description = "Alibaba spot-gpu-v2026: job_info_df.csv with node_info_df.csv beside it"
    params = Common

    def beside(self, path: Path, params: Common) -> Sequence[Path]:  # noqa: ARG002 - always
        """The machines."""
        file = path.with_name(_NODE_FILE)
        return (file,) if exists(file) else ()

    def import_file(self, path: Path, params: Common) -> Imported:
        """The jobs, and the machines beside them."""
        import polars as pl

        quality = Quality()
        chunks = Table(path, LAYOUT, bad=params.bad, quality=quality)
        frame = pl.concat([_jobs(chunk) for chunk in chunks])
        beside = self.beside(path, params)
        cluster = read_nodes(beside[0]) if beside else ()
        rest = Rest(name=path.stem, cluster=cluster)
        return import_rows(path, frame, params, quality, rest=rest)


FORMAT = Spot()


def read_nodes(path: Path) -> tuple[NodeSpec, ...]:
    """The machines of `node_info_df.csv`."""
    table = Table(path, NODES).whole().unique("node_name", keep="first", maintain_order=True)
    return tuple(
        NodeSpec(name, int(gpus), model, cpus or 0.0) for name, model, gpus, cpus in table.rows()
    )


def _jobs(chunk: "pl.DataFrame") -> "pl.DataFrame":
    import polars as pl

    workers, gpus = pl.col("worker_num"), pl.col("gpu_request")
    cpus = pl.col("cpu_request").fill_null(0.0)
    model = pl.col("gpu_model")
    several = (gpus > 1) | ((gpus > 0) & (gpus < 1) & (workers > 1)) | ((gpus == 0) & (workers > 1))
    role = pl.struct(
        role=pl.lit("worker"),
        count=workers.cast(pl.Int64),
        gpus=pl.when(gpus > 1).then(gpus.ceil()).otherwise(gpus),
        cpus=cpus,
        mem_gib=pl.lit(0.0),
        min_count=pl.lit(0, pl.Int64),
        max_count=pl.lit(0, pl.Int64),
    )
    return chunk.select(
        pl.col("job_name").alias("job_id"),
        pl.col("organization").alias("vc"),
        pl.when(model == "")
        .then(pl.lit([], pl.List(pl.String)))
        .otherwise(pl.concat_list(model))
        .alias("gpu_type"),
        (gpus * workers).alias("num_gpus"),
        (cpus * workers).alias("cpus"),
        pl.when(several).then(pl.concat_list(role)).alias("roles"),
        ((gpus >= 1) | (workers == 1)).alias("gang"),
        ((gpus > 1) & (workers == 1)).alias("apart"),
        pl.col("submit_time").alias("submit_s"),
        pl.col("duration").alias("duration_s"),
        (pl.col("job_type") == "HP").cast(pl.Int64).alias("priority"),
        pl.col("job_type").alias("_status"),
    )
