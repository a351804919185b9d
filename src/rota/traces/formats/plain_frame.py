"""The plain csv as a frame: the quick way for files in which nothing is wrong or unusual."""

from pathlib import Path
from typing import TYPE_CHECKING

from rota.core.errors import TraceError
from rota.traces.chunks import Chunks, Column, Layout, read_all

if TYPE_CHECKING:
    import polars as pl

_TEXTS = ("user", "group", "name", "model", "account", "partition", "qos", "gpu_type")
_LAYOUT = Layout(
    (
        Column("job_id", required=True),
        Column("submit_s", "number", required=True, least=0),
        Column("num_gpus", "number", required=True, least=0),
        Column("duration_s", "number", required=True, least=0),
        Column("vc", optional=True, other=("queue", "tenant")),
        *(Column(name, optional=True) for name in _TEXTS),
        *(
            Column(name, "number", optional=True, least=0)
            for name in ("cpus", "mem_gib", "deadline_s", "estimate_s")
        ),
        Column("priority", "number", optional=True),
    ),
    missing=("",),
    no_text=(),
)


def quick_frame(path: Path, *, ignore: bool) -> "pl.DataFrame | None":
    """All rows as columns of `schema.JOBS`; None: read the file carefully.

    That is so when a cell is wrong (the careful way says where and why) or when a column is there
    that this way does not know (`gang`, `min_gpus`, `max_gpus`, `depends_on`).
    """
    import polars as pl

    chunks = Chunks(path, _LAYOUT)
    try:
        table = read_all(chunks)
    except TraceError:
        return None
    careful = {"gang", "min_gpus", "max_gpus", "depends_on"}
    if chunks.unused and (not ignore or careful & set(chunks.unused)):
        return None
    gpus, duration = pl.col("num_gpus"), pl.col("duration_s")
    priority = pl.col("priority").fill_null(0.0)
    nothing = (gpus + pl.col("cpus").fill_null(0.0) + pl.col("mem_gib").fill_null(0.0)) == 0
    wrong = (
        ((gpus > 1) & (gpus != gpus.floor()))
        | (duration <= 0)
        | (pl.col("estimate_s") <= 0).fill_null(value=False)
        | (pl.col("deadline_s") < pl.col("submit_s")).fill_null(value=False)
        | (priority != priority.floor())
        | nothing
        | pl.col("job_id").is_duplicated()
    )
    if table.select(wrong.any()).item():
        return None
    return _tidy(table)


def _tidy(table: "pl.DataFrame") -> "pl.DataFrame":
    import polars as pl

    types = (
        pl.col("gpu_type")
        .str.split("|")
        .list.eval(pl.element().str.strip_chars().filter(pl.element().str.strip_chars() != ""))
    )
    frame = table.with_columns(
        pl.col("cpus", "mem_gib").fill_null(0.0),
        pl.col("priority").fill_null(0.0).cast(pl.Int64),
        types
        if (table["gpu_type"] != "").any()
        else pl.lit([], pl.List(pl.String)).alias("gpu_type"),
    )
    empty = [name for name in ("vc", *_TEXTS[:-1]) if not (table[name] != "").any()]
    return frame.drop(empty)
