"""Helios (Hu et al., SC 2021): the job log of one of four clusters, and the GPUs of its VCs by day.

`cluster_log.csv` has one row per job; `cluster_gpu_number.csv` beside it has one row per day, a
column per virtual cluster and the total, which become capacity events. A simulation does not use
these events: it has the machines of `--cluster`, and the quotas that a cluster file declares for
tenants stay the same all the time. Times have no zone. Jobs without GPUs (`gpu_num` 0) ask for
their CPUs. A job without a start never ran and is dropped; so is one that has neither a duration
nor an end.

Options besides the common ones: `capacity` (the file of capacities; `no`: do not look for one) and
`repair=authors`: as the authors do, leave out the test cluster vc7Bz and clusters that never have
GPUs.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rota.core.errors import OptionError
from rota.core.workload import Quality
from rota.traces.format import Reader
from rota.traces.imported import Imported
from rota.traces.observed import CANCELLED, DONE, FAILED, NODE_FAIL, TIMEOUT
from rota.traces.schema import CAPACITY
from rota.traces.sources import exists
from rota.traces.table import Column, Layout, Table
from rota.traces.tidy import Common, Rest, import_rows

if TYPE_CHECKING:
    import polars as pl

LAYOUT = Layout(
    (
        Column("job_id", required=True),
        Column("user"),
        Column("vc"),
        Column("gpu_num", "number", required=True, least=0),
        Column("cpu_num", "number", optional=True, least=0),
        Column("node_num", "number", optional=True, least=0),
        Column("state", optional=True),
        Column("submit_time", "time", required=True),
        Column("start_time", "time", optional=True),
        Column("end_time", "time", optional=True),
        Column("duration", "number", optional=True, least=0),
        Column("queue", "number", optional=True),
        Column("jobname", optional=True),
    )
)
STATES = {
    "COMPLETED": DONE,
    "CANCELLED": CANCELLED,
    "FAILED": FAILED,
    "TIMEOUT": TIMEOUT,
    "NODE_FAIL": NODE_FAIL,
}
NO_NODES = "node numbers are not in this trace: only start and end are observed"
NOT_SIMULATED = (
    "the GPUs of virtual clusters by day are kept as capacity events, but a simulation does not "
    "use them: its machines are those of --cluster, and quotas those of tenants in a cluster file"
)
_CAPACITY_FILE = "cluster_gpu_number.csv"
_TEST_VC = "vc7Bz"


class HeliosParams(Common, frozen=True):
    """Options of the format."""

    capacity: str = ""
    repair: Literal["", "authors"] = ""


class HeliosReader(Reader):
    """Reads a cluster's job log."""

    name = "helios"
    description = "Helios (SenseTime): cluster_log.csv with the daily GPUs of its virtual clusters"
    params = HeliosParams

    def beside(self, path: Path, params: HeliosParams) -> Sequence[Path]:
        """The capacities."""
        file = path.with_name(_CAPACITY_FILE)
        return (file,) if not params.capacity and exists(file) else ()

    def import_file(self, path: Path, params: HeliosParams) -> Imported:
        """The log and the capacities beside it."""
        quality = Quality()
        events = _capacity(params, self.beside(path, params))
        notes = [NO_NODES, NOT_SIMULATED] if events is not None and events.height else [NO_NODES]
        rest = Rest(name=path.stem, dated=True, notes=tuple(notes))
        return import_rows(  # nothing here keeps the rows in memory
            path, _rows(path, params, quality, events), params, quality, rest=rest, events=events
        )


FORMAT = HeliosReader()


def _rows(
    path: Path, params: HeliosParams, quality: Quality, events: "pl.DataFrame | None"
) -> "pl.DataFrame":
    import polars as pl

    chunks = Table(path, LAYOUT, bad=params.bad, quality=quality)
    unused = [] if params.statuses else ["_status"]
    frame = pl.concat([_jobs(chunk).drop(unused) for chunk in chunks])
    if "jobname" not in chunks.titles:
        frame = frame.drop("name")
    return _as_the_authors(frame, events, quality) if params.repair else frame


def _jobs(chunk: "pl.DataFrame") -> "pl.DataFrame":
    import polars as pl

    ran = pl.col("end_time") - pl.col("start_time")
    started = pl.col("start_time").is_not_null()
    return chunk.select(
        "job_id",
        "user",
        "vc",
        pl.col("submit_time").alias("submit_s"),
        pl.col("gpu_num").alias("num_gpus"),
        pl.col("cpu_num").fill_null(0.0).alias("cpus"),
        pl.when(started).then(pl.coalesce("duration", ran)).alias("duration_s"),
        pl.col("jobname").alias("name"),
        pl.col("start_time").alias("_start_s"),
        pl.col("end_time").alias("_end_s"),
        pl.col("state").alias("_status"),
        pl.col("state").replace_strict(STATES, default="", return_dtype=pl.String).alias("_state"),
    )


def _capacity(params: HeliosParams, beside: Sequence[Path]) -> "pl.DataFrame | None":
    """The GPUs of each cluster, whenever they change."""
    if params.capacity == "no":
        return None
    if params.capacity and not exists(Path(params.capacity)):
        raise OptionError(f"capacity={params.capacity}: there is no such file: check the path")
    files = [Path(params.capacity)] if params.capacity else beside
    return read_capacity(files[0]) if files else None


def read_capacity(path: Path) -> "pl.DataFrame":
    """Capacity events from a table with a `date` and a column of GPUs per virtual cluster."""
    import polars as pl

    from rota.traces.sniff import first_look

    titles = first_look(path).columns
    names = [title for title in titles if title not in ("", "date")]
    columns = [Column("date", required=True), *(Column(n, "number", least=0) for n in names)]
    table = Table(path, Layout(tuple(columns))).whole()
    days = table.select(
        pl.col("date").str.slice(0, 10).str.to_date("%Y-%m-%d", strict=False).alias("day"),
        pl.col(names),
    ).drop_nulls("day")
    long = days.sort("day").unpivot(names, index="day", variable_name="subject")
    changed = pl.col("value").ne_missing(pl.col("value").shift()).over("subject")
    return (
        long.filter(changed)
        .select(
            (pl.col("day").cast(pl.Datetime("ms")).dt.epoch("ms") / 1_000).alias("time_s"),
            pl.lit(CAPACITY).alias("kind"),
            pl.when(pl.col("subject") == "total")
            .then(pl.lit(""))
            .otherwise(pl.col("subject"))
            .alias("subject"),
            pl.col("value").fill_null(0.0),
            pl.lit("").alias("text"),
        )
        .sort("time_s", maintain_order=True)
    )


def _as_the_authors(
    frame: "pl.DataFrame", events: "pl.DataFrame | None", quality: Quality
) -> "pl.DataFrame":
    import polars as pl

    gone = {_TEST_VC: "of the test cluster (repair=authors)"}
    if events is not None:
        most = events.group_by("subject").agg(pl.col("value").max())
        for vc in most.filter(pl.col("value") == 0)["subject"]:
            gone.setdefault(vc, "of a cluster that never has GPUs (repair=authors)")
    for vc, why in gone.items():
        quality.drop(why, int((frame["vc"] == vc).sum()))
    return frame.filter(~pl.col("vc").is_in(list(gone)))
