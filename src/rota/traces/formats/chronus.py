"""The job file of Chronus (Gao et al., SoCC 2021): Tiresias' columns, users and expectations.

Times are in minutes in the published files (`unit=60`, the default; `unit=1` for seconds). A job is
strict (it has a deadline), best effort, or soft. `expect_time_list` holds its expected times after
the submission, separated by `-` or `;`; the last one of a job that is not best effort becomes the
deadline. A list that cannot be read is refused: part of it would be another deadline.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from rota.core.errors import OptionError, TraceError
from rota.core.workload import Quality
from rota.traces.format import Reader
from rota.traces.imported import Imported
from rota.traces.table import Column, Layout, Table
from rota.traces.tidy import Common, Rest, import_rows

if TYPE_CHECKING:
    import polars as pl

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
TYPES = ("strict", "soft", "best")
_TIMES = rf"^\s*{_NUMBER}(?:\s*[-;]\s*{_NUMBER})*\s*$"

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
        table = _readable(table, path, params, quality)
        rest = Rest(name=path.stem)
        return import_rows(path, _jobs(table, params.unit), params, quality, rest=rest)


FORMAT = ChronusFile()


def _readable(
    table: "pl.DataFrame", path: Path, params: ChronusParams, quality: Quality
) -> "pl.DataFrame":
    """The rows whose type and expected times can be read; others are refused, or dropped."""
    import polars as pl

    times = pl.col("expect_time_list").fill_null("")
    checks = (
        (
            "expect_time_list",
            (times.str.strip_chars() == "") | times.str.contains(_TIMES),
            "list of times",
            "20, or 20-40",
        ),
        (
            "job_type",
            pl.col("job_type").fill_null("").is_in(["", *TYPES]),
            "type",
            ", ".join(TYPES),
        ),
    )
    for column, fine, what, remedy in checks:
        wrong = table.filter(~fine)
        if wrong.height and params.bad == "refuse":
            job, text = wrong["job_id"][0], wrong[column][0]
            raise TraceError(
                f"{path}: job {job!r}, column {column!r}: {text[:60]!r} is no {what}: "
                f"write {remedy}, or drop such rows with the option bad=drop"
            )
        quality.drop(f"{column} is no {what}", wrong.height)
        table = table.filter(fine)
    return table


def _jobs(table: "pl.DataFrame", unit_s: float) -> "pl.DataFrame":
    import polars as pl

    numbers = pl.col("expect_time_list").str.extract_all(_NUMBER)
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
