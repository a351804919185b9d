"""Traces of ElasticFlow's simulator (Gu et al., ASPLOS 2023).

Columns: job_id, submit_time (s), iteration (how many), model_name, ddl (a point in time),
batch_size (of all GPUs together), num_gpu, duration; `best_effort` (1: no deadline) may follow.
**Run times follow from a table** of iterations per second by number of GPUs, so the option
`throughputs=DIR` is needed: a folder with `throughputs_GPU/MODEL.csv`, or with the files of one
type of GPU, each with the columns global_batch_size, 1, 2, 4, ... A job may have any number of GPUs
with a throughput; its `name` is model@batch.
"""

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from rota.core.errors import OptionError, TraceError
from rota.core.workload import Quality
from rota.traces.format import Reader
from rota.traces.imported import Imported
from rota.traces.schema import as_json
from rota.traces.table import Column, Layout, Table
from rota.traces.tidy import Common, Rest, import_rows

if TYPE_CHECKING:
    import polars as pl

LAYOUT = Layout(
    (
        Column("job_id", required=True),
        Column("submit_time", "number", required=True),
        Column("iteration", "number", required=True, least=0),
        Column("model_name", required=True),
        Column("ddl", "number", required=True),
        Column("batch_size", "number", required=True, least=1),
        Column("num_gpu", "number", required=True, least=1),
        Column("duration", "number", optional=True),
        Column("best_effort", "number", optional=True),
        Column("real_iteration", "number", optional=True),
        Column("real_duration", "number", optional=True),
    )
)
BATCH = "global_batch_size"

Speeds = Mapping[tuple[str, int], Mapping[int, float]]


class ElasticFlowTraceParams(Common, frozen=True):
    """Options of the format."""

    throughputs: str = ""
    gpu: str = ""


class ElasticFlowTrace(Reader):
    """Reads a trace with its tables of throughputs."""

    name = "elasticflow"
    description = "trace of ElasticFlow's simulator; needs throughputs=DIR (iterations/s by GPUs)"
    verified = True
    params = ElasticFlowTraceParams

    def import_file(self, path: Path, params: ElasticFlowTraceParams) -> Imported:
        """All jobs, in the order of the file."""
        if not params.throughputs:
            raise OptionError(
                "format elasticflow: a trace has iterations, not run times: give the folder with "
                "tables of iterations per second with elasticflow:throughputs=DIR,gpu=T4"
            )
        folder = _folder(Path(params.throughputs), params.gpu)
        quality = Quality()
        table = Table(path, LAYOUT, bad=params.bad, quality=quality).whole()
        frame = _jobs(path, table, folder)
        return import_rows(path, frame, params, quality, rest=Rest(name=path.stem))


FORMAT = ElasticFlowTrace()


def _folder(folder: Path, gpu: str) -> Path:
    """Where the files of one type of GPU are."""
    if not folder.is_dir():
        raise OptionError(
            f"throughputs={folder}: is no folder: name the one with throughputs_T4 and others"
        )
    kinds = sorted(one.name.partition("_")[2] for one in folder.glob("throughputs_*"))
    if not kinds:
        return folder
    if gpu not in kinds:
        wrong = f"gpu={gpu}: {folder} has" if gpu else f"{folder} has"
        raise OptionError(
            f"{wrong} throughputs of {', '.join(kinds)}: name one of them with gpu={kinds[0]}"
        )
    return folder / f"throughputs_{gpu}"


def read_speeds(folder: Path, model: str) -> dict[int, dict[int, float]]:
    """Iterations per second of a model by batch and GPUs; where it cannot run there is none."""
    import polars as pl

    path = folder / f"{model}.csv"
    if not path.is_file():
        known = ", ".join(sorted(one.stem for one in folder.glob("*.csv"))) or "no models"
        raise TraceError(f"{path}: there is no such file: {folder} has {known}")
    try:
        table = pl.read_csv(path, infer_schema=False)
        found: dict[int, dict[int, float]] = {}
        for row in table.iter_rows(named=True):
            batch = int(row.pop(BATCH))
            rates = {int(gpus): float(text or "nan") for gpus, text in row.items()}
            found[batch] = {
                gpus: rate for gpus, rate in sorted(rates.items()) if isfinite(rate) and rate > 0
            }
    except (pl.exceptions.PolarsError, KeyError, ValueError, TypeError) as error:
        raise TraceError(
            f"{path}: is no table of throughputs: give {BATCH} and a column for each number of "
            f"GPUs ({error})"
        ) from error
    return found


def _jobs(path: Path, table: "pl.DataFrame", folder: Path) -> "pl.DataFrame":
    import polars as pl

    speeds = {model: read_speeds(folder, model) for model in table["model_name"].unique()}
    durations, scalings, least, most = [], [], [], []
    for job, model, batch, gpus, iterations in table.select(
        "job_id", "model_name", "batch_size", "num_gpu", "iteration"
    ).iter_rows():
        rates = speeds[model].get(int(batch), {})
        if int(gpus) not in rates:
            raise TraceError(
                f"{path}: job {job}: {folder / model}.csv has no throughput of batch {batch:g} on "
                f"{gpus:g} GPUs: give the tables that belong to the trace"
            )
        rate = rates[int(gpus)]
        durations.append(iterations / rate)
        scalings.append(as_json([[size, speed / rate] for size, speed in rates.items()]))
        least.append(min(rates))
        most.append(max(rates))
    effort = pl.col("best_effort").fill_null(0)
    return table.select(
        pl.col("job_id"),
        pl.col("submit_time").alias("submit_s"),
        pl.col("num_gpu").alias("num_gpus"),
        pl.Series("duration_s", durations, dtype=pl.Float64),
        pl.Series("scaling", scalings, dtype=pl.String),
        pl.Series("min_gpus", least, dtype=pl.Int64),
        pl.Series("max_gpus", most, dtype=pl.Int64),
        pl.col("model_name").alias("model"),
        pl.concat_str("model_name", pl.lit("@"), pl.col("batch_size").cast(pl.Int64)).alias("name"),
        pl.when(effort != 1).then(pl.col("ddl")).alias("deadline_s"),
    )
