"""Workloads of Pollux (Qiao et al., OSDI 2021), of Sia (SOSP 2023) and of DeepBoot.

Columns: name, time (seconds), application, num_replicas (GPUs), batch_size; Sia may add `category`
(adaptive, scale-gpus, rigid), DeepBoot `duration` and `num_task`; ours may have `deadline_s`, a
point in time. **The files have no run times**: they follow from the goodput of an application.
Without a duration in the file a job gets the middle of its size class in the paper (GPU-hours:
small 0.5, medium 3, large 30, very large 300) divided by its GPUs, which the report counts as a
repair. `hours=NAME:H/NAME:H` sets other GPU-hours.

With `profiles=DIR` (a folder per application, see `rota.models.profiles`) jobs train as they were
measured there: run times are those with the GPUs and the batch of the file, jobs are elastic from 1
GPU to what their largest batch can be divided into; the rate model `goodput`, or the dialect
`pollux`, knows the rest.
Times are then those of the file: second 0 is its own, since the simulator counts its rounds from
there.
"""

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rota.core.errors import OptionError, TraceError
from rota.core.workload import Quality
from rota.models.profiles import MeasuredTraining
from rota.traces.format import Reader
from rota.traces.imported import Imported
from rota.traces.table import Column, Layout, Table
from rota.traces.tidy import Common, Rest, import_rows

if TYPE_CHECKING:
    import polars as pl

LAYOUT = Layout(
    (
        Column("name", required=True),
        Column("time", "number", required=True),
        Column("application", required=True),
        Column("num_replicas", "number", required=True, least=1),
        Column("batch_size", "number", optional=True),
        Column("category", optional=True),
        Column("duration", "number", optional=True),
        Column("num_task", "number", optional=True),
        Column("deadline_s", "number", optional=True),
    )
)
HOURS = {
    "cifar10": 0.5,
    "ncf": 0.5,
    "deepspeech2": 3.0,
    "bert": 3.0,
    "yolov3": 30.0,
    "imagenet": 300.0,
    "gpt_pmp": 300.0,
}
GUESSED = "run time not in the file: GPU-hours of the application's size class"
GIVEN = "run time not in the file: GPU-hours of the option hours"
_HOUR_S = 3_600.0
MOST_GPUS = 64  # of one job, in the simulators that these workloads are for


class PolluxParams(Common, frozen=True):
    """GPU-hours by application, or a folder of profiles from which run times follow."""

    hours: tuple[str, ...] = ()
    profiles: str = ""


class Pollux(Reader):
    """Reads a workload of Pollux."""

    name = "pollux"
    description = "workload of Pollux's simulator (run times are not in the file)"
    verified = True
    params = PolluxParams

    def import_file(self, path: Path, params: PolluxParams) -> Imported:
        """All jobs."""
        given = _hours(params)
        quality = Quality()
        table = Table(path, LAYOUT, bad=params.bad, quality=quality).whole()
        frame = _jobs(table, {**HOURS, **given})
        open_ones = frame.filter("_open")["model"]
        stated = int(open_ones.is_in(list(given)).sum())
        for why, many in ((GUESSED, len(open_ones) - stated), (GIVEN, stated)):
            if many:
                quality.repaired[why] = many
        profiled = bool(params.profiles)
        if profiled:
            quality.repaired.clear()
            frame = _with_profiles(frame, table, Path(params.profiles), path)
        rest = Rest(name=path.stem, from_zero=profiled)
        imported = import_rows(path, frame, params, quality, rest=rest)
        return _trained(imported, table, Path(params.profiles)) if profiled else imported


FORMAT = Pollux()


def _hours(params: PolluxParams) -> dict[str, float]:
    out = {}
    for part in params.hours:
        name, _, text = part.partition(":")
        try:
            out[name] = float(text)
        except ValueError as error:
            raise OptionError(f"hours={part} is not NAME:HOURS, e.g. bert:3/ncf:0.5") from error
        if not 0 < out[name] < float("inf"):
            raise OptionError(f"hours={part}: give hours above 0")
    return out


def _jobs(table: "pl.DataFrame", hours: dict[str, float]) -> "pl.DataFrame":
    import polars as pl

    gpus = pl.col("num_replicas")
    known = pl.when(pl.col("duration") > 0).then(pl.col("duration"))
    total = pl.col("application").replace_strict(hours, default=None, return_dtype=pl.Float64)
    return table.select(
        pl.col("name").alias("job_id"),
        pl.col("time").alias("submit_s"),
        gpus.alias("num_gpus"),
        pl.col("application").alias("model"),
        pl.coalesce(known, total * _HOUR_S / gpus).alias("duration_s"),
        (known.is_null() & total.is_not_null()).alias("_open"),
        pl.col("category").alias("_status"),
        pl.col("deadline_s"),
    )


# --- with profiles --------------------------------------------------------------------------------


def _with_profiles(
    frame: "pl.DataFrame", table: "pl.DataFrame", folder: Path, path: Path
) -> "pl.DataFrame":
    """Run times and sizes as the profiles have them."""
    import polars as pl

    if not table["batch_size"].is_not_null().all():
        raise TraceError(f"{path}: profiles need a batch_size for every job: add the column")
    seconds, most = [], []
    for name, gpus, batch in table.select("application", "num_replicas", "batch_size").iter_rows():
        training = _training(folder, name, int(batch))
        limits = training.profile.limits
        seconds.append(training.profile.seconds(int(gpus), int(batch)))
        most.append(max(int(gpus), min(MOST_GPUS, limits.most // limits.local_least)))
    return frame.with_columns(
        pl.Series("duration_s", seconds),
        pl.lit(1).alias("min_gpus"),
        pl.Series("max_gpus", most),
    ).drop("_open")


def _trained(imported: Imported, table: "pl.DataFrame", folder: Path) -> Imported:
    """The same jobs, with how they train."""
    made = imported.workload
    batches = dict(table.select("name", "batch_size").iter_rows())
    behaviours = [
        msgspec.structs.replace(
            behaviour, training=_training(folder, spec.model, int(batches[spec.id]))
        )
        for spec, behaviour in made
    ]
    workload = made.like(list(made.specs), behaviours, quality=made.quality)
    return Imported(workload, name=imported.name, origin=imported.origin, notes=imported.notes)


@lru_cache(maxsize=4096)
def _training(folder: Path, name: str, batch: int) -> MeasuredTraining:
    if not (folder / name).is_dir():
        known = ", ".join(sorted(p.name for p in folder.glob("*") if p.is_dir()))
        if not known:
            what = "has no folder of an application" if folder.is_dir() else "is no folder"
            raise TraceError(
                f"profiles={folder}: {what}: name the folder that has one per application"
            )
        raise TraceError(
            f"profiles={folder}: no folder for the application {name!r}, only {known}: name the "
            "folder that has one per application"
        )
    return MeasuredTraining(str(folder), name, batch)
