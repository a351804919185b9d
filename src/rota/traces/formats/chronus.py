"""The job file of Chronus (Gao et al., SoCC 2021): Tiresias' columns, users and expectations.

Times are in minutes in the published files (`unit=60`, the default; `unit=1` for seconds). A job is
strict (it has a deadline), best effort, or soft. `expect_time_list` holds its expected times after
the submission, separated by `-` or `;`; the last one of a job that is not best effort becomes the
deadline.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from rota.core.errors import OptionError
from rota.core.workload import Quality
from rota.traces.format import Reader
from rota.traces.imported import Imported
from rota.traces.table import Column, Layout, Table
from rota.traces.tidy import Common, Rest, import_rows

if TYPE_CHECKING:
    import polars as pl

LAYOUT = Layout(
    (
        Column("job_id", required=True),
        Column("user", optional=True),
        Column("num_gpu", "number", required=True, least=0),
        Column("submit_time", "number", required=True),
        Column("iterations", "number", optional=True),
        Column("model_name", optional=True),
        Column("duration", "number", required=True, least=0),
        Column("interval", "number", optional=True),
        Column("expect_time_list", required=False),
        Column("expect_value_list", optional=True),
        Column("best_effort", "number", optional=True),
        Column("job_type", optional=True),
    )
)


class ChronusParams(Common, frozen=True):
    """Options of the format."""

    unit: float = 60.0


class ChronusFile(Reader):
    """Reads the job file."""

    name = "chronus"
    description = "job file of Chronus: Tiresias' columns, with expected times as deadlines"
    verified = True
    params = ChronusParams

    def import_file(self, path: Path, params: ChronusParams) -> Imported:
        """All jobs."""
        if params.unit <= 0:
            raise OptionError(f"format chronus: unit={params.unit:g}: give seconds above 0")
        quality = Quality()
        table = Table(path, LAYOUT, bad=params.bad, quality=quality).whole()
        rest = Rest(name=path.stem)
        return import_rows(path, _jobs(table, params.unit), params, quality, rest=rest)


FORMAT = ChronusFile()


def _jobs(table: "pl.DataFrame", unit_s: float) -> "pl.DataFrame":
    import polars as pl

    numbers = pl.col("expect_time_list").str.extract_all(r"[0-9]+(\.[0-9]+)?")
    expected = numbers.list.last().cast(pl.Float64, strict=False)
    best_effort = (pl.col("best_effort").fill_null(0.0) > 0) | (pl.col("job_type") == "best")
    deadline = pl.col("submit_time") + expected
    return table.select(
        "job_id",
        pl.col("user").alias("vc"),
        pl.col("user"),
        pl.col("num_gpu").alias("num_gpus"),
        (pl.col("submit_time") * unit_s).alias("submit_s"),
        (pl.col("duration") * unit_s).alias("duration_s"),
        pl.col("model_name").alias("model"),
        pl.when(~best_effort).then(deadline * unit_s).alias("deadline_s"),
        pl.col("job_type").alias("_status"),
    )
