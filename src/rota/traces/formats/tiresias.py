"""The job file of the Tiresias simulator (Gu et al., NSDI 2019): one row per job, times in seconds.

`submit_time` and `duration` are the submission and the run time on the GPUs asked for, `model_name`
the network (placement `skew` reads it). `iterations` and `interval` are not used by any schedule.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rota.core.errors import TraceError
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.registry import parse_params
from rota.core.workload import Workload
from rota.traces.chunks import Chunks, Column, Layout, read_all
from rota.traces.format import Head, share_of
from rota.traces.formats.plain import NOT_NEGATIVE, POSITIVE
from rota.traces.imported import Imported
from rota.traces.table import Rule, Schema, read_table

if TYPE_CHECKING:
    import polars as pl

SCHEMA = Schema(
    required=("job_id", "num_gpu", "submit_time", "duration"),
    optional=("iterations", "model_name", "interval"),
    remedy="ignore unknown columns with --format tiresias:ignore=yes",
)

_LAYOUT = Layout(
    (
        Column("job_id", required=True),
        Column("num_gpu", "number", required=True, least=1),
        Column("submit_time", "number", required=True, least=0),
        Column("duration", "number", required=True, least=0),
        *(Column(name, optional=True) for name in SCHEMA.optional),
    ),
    missing=("",),
    no_text=(),
)
_CHRONUS = "expect_time_list"
_GPUS = Rule(least=1, whole=True)


class TiresiasParams(msgspec.Struct, frozen=True):
    """Options of the format."""

    ignore: bool = False


class Tiresias:
    """Reads the simulator's job file."""

    name = "tiresias"
    description = "job file of the Tiresias simulator"
    verified = True

    def recognises(self, head: Head) -> float:
        """By the required columns, which Chronus has too."""
        return share_of(SCHEMA.required, head) * (0.9 if _CHRONUS in head.columns else 1.0)

    def read(self, path: Path, options: Mapping[str, str]) -> Workload:
        """All rows, in the order of the file."""
        params: TiresiasParams = parse_params("format tiresias", TiresiasParams, options)
        table = read_table(path, SCHEMA, ignore=params.ignore)
        ids = table.keys("job_id")
        submits_s = table.numbers("submit_time", NOT_NEGATIVE)
        requests = map(Request.of, table.numbers("num_gpu", _GPUS))
        durations_s = table.numbers("duration", POSITIVE)
        models = table.texts("model_name")
        specs = [
            JobSpec(job, submit_s, request, model=model)
            for job, submit_s, request, model in zip(ids, submits_s, requests, models, strict=True)
        ]
        return Workload(specs, list(map(Behaviour, durations_s)), name=path.stem)

    def load(self, path: Path, options: Mapping[str, str]) -> Imported:
        """The same as a frame, which is quicker; a file with anything unusual is read by `read`."""
        params: TiresiasParams = parse_params("format tiresias", TiresiasParams, options)
        frame = _quick_frame(path, ignore=params.ignore)
        if frame is None:
            return Imported(self.read(path, options))
        return Imported(frame, name=path.stem)


FORMAT = Tiresias()


def _quick_frame(path: Path, *, ignore: bool) -> "pl.DataFrame | None":
    """Columns of `schema.JOBS`; None: read the file carefully, which says what is wrong."""
    import polars as pl

    chunks = Chunks(path, _LAYOUT)
    try:
        table = read_all(chunks)
    except TraceError:
        return None
    gpus = pl.col("num_gpu")
    wrong = (gpus != gpus.floor()) | (pl.col("duration") <= 0) | pl.col("job_id").is_duplicated()
    if (chunks.unused and not ignore) or table.select(wrong.any()).item():
        return None
    return table.select(
        "job_id",
        pl.col("submit_time").alias("submit_s"),
        gpus.alias("num_gpus"),
        pl.col("duration").alias("duration_s"),
        pl.col("model_name").alias("model"),
    )
