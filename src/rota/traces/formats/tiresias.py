"""The job file of the Tiresias simulator (Gu et al., NSDI 2019): one row per job, times in seconds.

`submit_time` and `duration` are the submission and the run time on the GPUs asked for, `model_name`
the network (placement `skew` reads it). `iterations` and `interval` are not used by any schedule.
"""

from pathlib import Path

import msgspec

from rota.traces.format import Reader
from rota.traces.imported import Imported
from rota.traces.table import Column, Layout, Table

LAYOUT = Layout(
    (
        Column("job_id", required=True, key=True),
        Column("num_gpu", "number", required=True, least=1, whole=True),
        Column("submit_time", "number", required=True, least=0),
        Column("duration", "number", required=True, above=0),
        Column("iterations", optional=True),
        Column("model_name", optional=True),
        Column("interval", optional=True),
    ),
    strict=True,
    remedy="ignore unknown columns with --format tiresias:ignore=yes",
    missing=("",),
    no_text=(),
)


class TiresiasReaderParams(msgspec.Struct, frozen=True):
    """Options of the format."""

    ignore: bool = False


class TiresiasReader(Reader):
    """Reads the simulator's job file."""

    name = "tiresias"
    description = "job file of the Tiresias simulator"
    verified = True
    params = TiresiasReaderParams

    def import_file(self, path: Path, params: TiresiasReaderParams) -> Imported:
        """All rows, in the order of the file."""
        import polars as pl

        frame = Table(path, LAYOUT, ignore=params.ignore).whole()
        columns = {
            "job_id": "job_id",
            "submit_time": "submit_s",
            "num_gpu": "num_gpus",
            "duration": "duration_s",
            "model_name": "model",
        }
        return Imported(
            frame.select(pl.col(name).alias(ours) for name, ours in columns.items()),
            name=path.stem,
        )


FORMAT = TiresiasReader()
