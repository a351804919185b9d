"""Workloads of DeepBoot's simulator (Chen et al., TPDS 2023): training beside inference.

Columns: name, time (seconds), application, num_replicas (GPUs), batch_size, duration, num_task.
Inference (application `infer-NAME-1`) has a duration and takes one GPU. Training has none: its run
time on what it asks for, and its speed on other numbers of GPUs, follow from a folder of profiles
in the layout of Pollux, which `profiles=DIR` names. A job's `name` is application@batch.
"""

from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from rota.core.errors import InputError, OptionError
from rota.core.workload import Quality
from rota.models.profiles import ApplicationProfile, application
from rota.traces.format import Reader
from rota.traces.formats.pollux import LAYOUT
from rota.traces.imported import Imported
from rota.traces.schema import as_json
from rota.traces.table import Table
from rota.traces.tidy import Common, Rest, import_rows

if TYPE_CHECKING:
    import polars as pl

INFERENCE = "infer-"
NODE_GPUS = 4
SIZES = (1, 2, 3, 4, 8, 12, 16)


class DeepBootParams(Common, frozen=True):
    """Options of the format."""

    profiles: str = ""


class DeepBootTrace(Reader):
    """Reads a workload with the profiles of its applications."""

    name = "deepboot"
    description = "workload of DeepBoot's simulator, with inference; needs profiles=DIR"
    verified = True
    params = DeepBootParams

    def import_file(self, path: Path, params: DeepBootParams) -> Imported:
        """All jobs, in the order of the file."""
        if not params.profiles:
            raise OptionError(
                "format deepboot: run times of training are not in the file: name the folder of "
                "profiles with deepboot:profiles=DIR"
            )
        quality = Quality()
        table = Table(path, LAYOUT, bad=params.bad, quality=quality).whole()
        frame = _jobs(table, Path(params.profiles))
        return import_rows(path, frame, params, quality, rest=Rest(name=path.stem, from_zero=True))


FORMAT = DeepBootTrace()


def _jobs(table: "pl.DataFrame", profiles: Path) -> "pl.DataFrame":
    import polars as pl

    durations: list[float] = []
    scalings: list[str | None] = []
    least, most = [], []
    for app, gpus, batch, duration in table.select(
        "application", "num_replicas", "batch_size", "duration"
    ).iter_rows():
        if app.startswith(INFERENCE):
            durations.append(max(duration or 0.0, 1.0))
            scalings.append(None)
            least.append(0)
            most.append(0)
            continue
        profile = application(profiles / app)
        speeds = {
            size: speed
            for size in sorted({*SIZES, int(gpus)})
            if (speed := _speed(profile, size, int(batch)))
        }
        own = speeds.get(int(gpus)) or max(speeds.values())
        durations.append(profile.iterations(int(batch), profile.epochs - 1) / own)
        scalings.append(as_json([[size, speed / own] for size, speed in speeds.items()]))
        least.append(1)
        most.append(64)
    named = pl.concat_str(
        "application", pl.lit("@"), pl.col("batch_size").fill_null(1).cast(pl.Int64)
    )
    return table.select(
        pl.col("name").alias("job_id"),
        pl.col("time").alias("submit_s"),
        pl.col("num_replicas").alias("num_gpus"),
        pl.Series("duration_s", durations, dtype=pl.Float64),
        pl.Series("scaling", scalings, dtype=pl.String),
        pl.Series("min_gpus", least, dtype=pl.Int64),
        pl.Series("max_gpus", most, dtype=pl.Int64),
        pl.col("application").alias("model"),
        named.alias("name"),
    )


def _speed(profile: ApplicationProfile, gpus: int, batch: int) -> float | None:
    """Steps of this batch per second; None: it was not measured."""
    full, rest = divmod(gpus, NODE_GPUS)
    placement = (NODE_GPUS,) * full + ((rest,) if rest else ())
    local = ceil(batch / gpus)
    passes = max(0, ceil(local / profile.limits.local_most) - 1)
    try:
        step_s, sync_s = profile.times(placement, ceil(local / (passes + 1)))
    except InputError:
        return None
    return 1 / (step_s + (step_s - sync_s) * passes)
