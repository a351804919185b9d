"""The csv derived from Philly's log as a frame: the quick way for files without anything wrong."""

from pathlib import Path
from typing import TYPE_CHECKING

from rota.core.errors import TraceError
from rota.core.workload import Quality
from rota.traces.chunks import Chunks, Column, Layout, read_all

if TYPE_CHECKING:
    import polars as pl

SHORT = "duration below 1 s raised to 1 s"
_LAYOUT = Layout(
    (
        Column("timestamp", "time", required=True),
        Column("duration", "number", required=True, least=0),
        Column("num_gpus", "number", required=True, least=1),
        Column("gpu_time", optional=True),
        Column("cluster", optional=True),
    ),
    missing=("",),
    no_text=(),
)


def quick_frame(path: Path, *, ignore: bool) -> "tuple[pl.DataFrame, Quality, float] | None":
    """Columns of `schema.JOBS`, what was done, and second 0; None: read the file carefully.

    That is so when a cell is wrong (the careful way says where and why) or a column is not known.
    """
    import polars as pl

    chunks = Chunks(path, _LAYOUT)
    try:
        table = read_all(chunks)
    except TraceError:
        return None
    needed = pl.col("timestamp", "duration", "num_gpus")
    gpus = pl.col("num_gpus")
    wrong = pl.any_horizontal(needed.is_null()) | (gpus != gpus.floor())
    if (chunks.unused and not ignore) or table.select(wrong.any()).item():
        return None
    table = table.sort("timestamp", maintain_order=True)
    origin_s = float(table["timestamp"][0])
    duration = pl.col("duration").floor()
    short = int(table.select((duration < 1).sum()).item())
    frame = table.select(
        pl.int_range(pl.len()).cast(pl.String).alias("job_id"),
        (pl.col("timestamp") - origin_s).alias("submit_s"),
        gpus,
        duration.clip(lower_bound=1.0).alias("duration_s"),
        pl.col("cluster").alias("vc"),
    )
    repaired = {SHORT: short} if short else {}
    return frame, Quality(table.height, table.height, repaired=repaired), origin_s
