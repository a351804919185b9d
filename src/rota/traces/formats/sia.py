"""Workloads of Sia (Jayaram Subramanya et al., SOSP 2023): Pollux' columns and a category.

Without profiles they are read as those of Pollux are. `sia:profiles=DIR` takes a folder of profiles
by GPU type (`rota.models.profiles`): run times are those on `reference` GPUs with the GPUs
and the batch of the file, jobs that are not rigid take 1 to 64 GPUs, and the rate model
`goodput` knows the rest. Second 0 is then that of the file: rounds are aligned to it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.core.errors import OptionError, TraceError
from rota.core.workload import Quality
from rota.models.profiles import MeasuredTraining, load_profiles
from rota.traces.formats.pollux import LAYOUT, Pollux, PolluxParams
from rota.traces.imported import Imported
from rota.traces.schema import as_json
from rota.traces.table import Table
from rota.traces.tidy import Rest, import_rows

if TYPE_CHECKING:
    import polars as pl

ADAPTIVE = ("", "adaptive")
CATEGORIES = (*ADAPTIVE, "scale-gpus", "rigid")
MOST_GPUS = 64  # of a job: no profile has more


class SiaTraceParams(PolluxParams, frozen=True):
    """Options of the format: with a folder of `profiles` by GPU type jobs train as these say.

    `reference` is the GPU type on which run times are those of the file's GPUs and batches.
    """

    profiles: str = ""
    reference: str = "aws"


class Sia(Pollux):
    """Reads a workload of Sia, which has Pollux' columns.

    With profiles the run times follow from them, adaptive and scale-gpus jobs are elastic, and
    second 0 is that of the file.
    """

    name = "sia"
    description = "workload of Sia's simulator (Pollux' columns, perhaps with a category)"
    params = SiaTraceParams

    def import_file(self, path: Path, params: PolluxParams) -> Imported:
        """All jobs."""
        if not isinstance(params, SiaTraceParams) or not params.profiles:
            return super().import_file(path, params)
        quality = Quality()
        table = Table(path, LAYOUT, bad=params.bad, quality=quality).whole()
        trained = TrainedWorkload(path, table, params)
        rest = Rest(name=path.stem, from_zero=True)
        imported = import_rows(path, trained.frame(), params, quality, rest=rest)
        imported.training = trained.by_id
        return imported


class TrainedWorkload:
    """The rows of a file with what profiles say of them."""

    def __init__(self, path: Path, table: "pl.DataFrame", params: SiaTraceParams) -> None:
        self._path, self._table, self._params = path, table, params
        self._folder = load_profiles(params.profiles)
        self.by_id = {row["name"]: self._training(row) for row in table.iter_rows(named=True)}

    def _training(self, row: Mapping[str, Any]) -> MeasuredTraining:
        if (row["category"] or "") not in CATEGORIES:
            raise TraceError(
                f"{self._path}: job {row['name']} has the category {row['category']!r}: write one "
                f"of {', '.join(filter(None, CATEGORIES))}, or leave the column out"
            )
        application = row["application"]
        if not row["batch_size"]:
            raise TraceError(
                f"{self._path}: job {row['name']} has no batch_size: with profiles each job needs "
                "the batch of its user"
            )
        batches = self._folder.learning(application).batches
        if not batches[0] <= row["batch_size"] <= batches[-1]:
            raise TraceError(
                f"{self._path}: job {row['name']} has batch_size {row['batch_size']:g}: its "
                f"profile knows {batches[0]} to {batches[-1]}"
            )
        return MeasuredTraining(
            self._params.profiles,
            application,
            int(row["batch_size"]),
            tuned=(row["category"] or "") in ADAPTIVE,
        )

    def frame(self) -> "pl.DataFrame":
        """Columns of `schema.JOBS`."""
        import polars as pl

        rows = self._table.select("application", "num_replicas", "batch_size").rows()
        known = {row: self._run_times(*row) for row in dict.fromkeys(rows)}
        rigid = pl.col("category").fill_null("") == "rigid"
        none = pl.lit(0)
        return self._table.select(
            pl.col("name").alias("job_id"),
            pl.col("time").alias("submit_s"),
            pl.col("num_replicas").alias("num_gpus"),
            pl.col("application").alias("model"),
            pl.Series("duration_s", [known[row][0] for row in rows], dtype=pl.Float64),
            pl.Series("speeds", [known[row][1] for row in rows], dtype=pl.String),
            pl.when(rigid).then(none).otherwise(pl.lit(1)).alias("min_gpus"),
            pl.when(rigid).then(none).otherwise(pl.lit(MOST_GPUS)).alias("max_gpus"),
            pl.col("category").alias("_status"),
            pl.col("deadline_s"),
        )

    def _run_times(self, application: str, gpus: float, batch: float) -> tuple[float, str]:
        """Seconds with what was asked for on the reference type, and relative speeds on others."""
        params, folder = self._params, self._folder
        seconds = {}
        for gpu_type in folder.types(application):
            training = MeasuredTraining(params.profiles, application, int(batch), tuned=False)
            seconds[gpu_type] = training.alone_s(int(gpus), gpu_type)
        reference = seconds.get(params.reference)
        if not reference:
            known = ", ".join(kind for kind, took_s in seconds.items() if took_s)
            remedy = f"name one of {known}" if known else "no other type has: ask for fewer"
            if not seconds:
                remedy = f"profiles={params.profiles} is a folder without GPU types"
            raise OptionError(
                f"format sia: reference={params.reference} has no profile of {application!r} on "
                f"{gpus:g} GPUs: {remedy}"
            )
        return reference, as_json(
            {kind: reference / took_s for kind, took_s in seconds.items() if took_s}
        )


FORMAT = Sia()
