"""Alibaba's cluster-trace-gpu-v2020 (PAI): tables of jobs, tasks, instances, groups and machines.

Name the folder of the tables, or the job table; the others are found beside it by their names
(`*task_table*`, `*instance_table*`, `*group_tag_table*`, `*machine_spec*`), packed or not. The
files have no header. Times are seconds on a shifted clock; 0 or empty is unknown. A job's start is
its submission; it really started with its first instance (of the instance table, or else of the
task table). `plan_cpu` and `plan_gpu` are in percent of one, `plan_mem` in GB.

The tasks of a job become roles, each with `inst_num` equal tasks. A task without `plan_gpu` is
taken as one without GPUs (`gpu=drop` drops its job). Jobs whose tasks share GPUs start task by task
(no gang), because shares are placed one by one. The group tag becomes the job's name, its workload
the model. `observed=no` skips the instance table, by far the largest.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rota.core.errors import TraceError
from rota.core.topology import NodeSpec
from rota.core.workload import Quality
from rota.traces.format import Reader
from rota.traces.imported import Imported
from rota.traces.observed import DONE, FAILED, RUNNING
from rota.traces.sources import exists, is_folder, siblings
from rota.traces.table import Bad, Column, Layout, Table
from rota.traces.tidy import Common, Rest, import_rows

if TYPE_CHECKING:
    import polars as pl

JOB = Layout(
    (
        Column("job_name", required=True),
        Column("inst_id"),
        Column("user"),
        Column("status"),
        Column("start_time", "number"),
        Column("end_time", "number"),
    ),
    headerless=True,
)
TASK = Layout(
    (
        Column("job_name", required=True),
        Column("task_name"),
        Column("inst_num", "number"),
        Column("status"),
        Column("start_time", "number"),
        Column("end_time", "number"),
        Column("plan_cpu", "number"),
        Column("plan_mem", "number"),
        Column("plan_gpu", "number"),
        Column("gpu_type"),
    ),
    headerless=True,
)
INSTANCE = Layout(
    (
        Column("job_name", required=True),
        Column("task_name"),
        Column("inst_name"),
        Column("worker_name"),
        Column("inst_id"),
        Column("status"),
        Column("start_time", "number"),
        Column("end_time", "number"),
        Column("machine"),
    ),
    headerless=True,
)
GROUP = Layout(
    (
        Column("inst_id", required=True),
        Column("user"),
        Column("gpu_type_spec"),
        Column("group"),
        Column("workload"),
    ),
    headerless=True,
)
MACHINE = Layout(
    (
        Column("machine", required=True),
        Column("gpu_type"),
        Column("cap_cpu", "number"),
        Column("cap_mem", "number"),
        Column("cap_gpu", "number"),
    ),
    headerless=True,
)
_STATES = {"Terminated": DONE, "Failed": FAILED, "Running": RUNNING}
_UNPLANNED = "task without plan_gpu taken as one without GPUs"
_ROUNDED = "task with a share above one GPU rounded up to whole GPUs"
TABLES = ("job_table", "task_table", "instance_table", "group_tag", "machine_spec")


class PaiParams(Common, frozen=True):
    """Options of the format."""

    gpu: Literal["none", "drop"] = "none"
    observed: bool = True


class Pai(Reader):
    """Reads the tables."""

    name = "alibaba-2020"
    description = "Alibaba gpu-v2020 (PAI): folder with job, task, instance, group, machine tables"
    params = PaiParams

    def beside(self, path: Path, params: PaiParams) -> Sequence[Path]:
        """All tables but the one that is named."""
        files = _PaiTables(path, params.bad)
        wanted = [name for name in TABLES if params.observed or name != "instance_table"]
        found = [file for file in map(files.find, wanted) if file is not None]
        return [file for file in found if file != path]

    def import_file(self, path: Path, params: PaiParams) -> Imported:
        """The jobs with their tasks; what is beside them if it is there."""
        files = _PaiTables(path, params.bad)
        quality = Quality()
        jobs = files.read("job_table", JOB, quality=quality)
        tasks = files.read("task_table", TASK)
        if jobs is None or tasks is None:
            missing = "job" if jobs is None else "task"
            raise TraceError(f"{path}: there is no {missing} table beside it: name their folder")
        frame = _jobs(jobs, _roles(tasks, params, quality))
        frame = _with_instances(frame, files.instances() if params.observed else None)
        frame = _with_groups(frame, files.read("group_tag", GROUP))
        machines = files.read("machine_spec", MACHINE)
        rest = Rest(name=path.stem, cluster=() if machines is None else _cluster(machines))
        return import_rows(path, _timed(frame), params, quality, rest=rest)


FORMAT = Pai()


class _PaiTables:
    """The files of the trace."""

    def __init__(self, path: Path, bad: Bad) -> None:
        self._path = path
        self._bad: Bad = bad
        self._files = siblings(path, TraceError) if is_folder(path) or exists(path) else []

    def find(self, what: str) -> Path | None:
        """The table whose name has these words."""
        if what == "job_table" and not is_folder(self._path):
            return self._path
        fine = (file for file in self._files if what in file.name and "header" not in file.suffix)
        return next(fine, None)

    def read(
        self, what: str, layout: Layout, *, quality: Quality | None = None
    ) -> "pl.DataFrame | None":
        """A whole table."""
        file = self.find(what)
        if file is None:
            return None
        return Table(file, layout, bad=self._bad, quality=quality).whole()

    def instances(self) -> "pl.DataFrame | None":
        """First start, last end and machines by job; the table itself is never in memory."""
        import polars as pl

        file = self.find("instance_table")
        if file is None:
            return None
        parts = [
            chunk.select("job_name", _positive("start_time"), _positive("end_time"), "machine")
            .group_by("job_name")
            .agg(
                pl.col("start_time").min(),
                pl.col("end_time").max(),
                pl.col("machine").filter(pl.col("machine") != "").unique().sort(),
            )
            for chunk in Table(file, INSTANCE, bad=self._bad)
        ]
        return (
            pl.concat(parts)
            .group_by("job_name", maintain_order=True)
            .agg(
                pl.col("start_time").min().alias("_first_s"),
                pl.col("end_time").max().alias("_last_s"),
                pl.col("machine").explode().unique().sort().alias("_nodes"),
            )
        )


def _positive(name: str) -> "pl.Expr":
    """0 means unknown."""
    import polars as pl

    return pl.when(pl.col(name) > 0).then(name).alias(name)


def _roles(tasks: "pl.DataFrame", params: PaiParams, quality: Quality) -> "pl.DataFrame":
    """What the tasks of each job ask for."""
    import polars as pl

    plan = pl.col("plan_gpu") / 100
    count = pl.col("inst_num").fill_null(1.0).clip(lower_bound=1.0)
    unplanned, uneven = plan.is_null(), (plan > 1) & (plan != plan.ceil())
    counts = tasks.select(a=unplanned.sum(), b=uneven.sum()).row(0)
    for why, many in zip((_UNPLANNED, _ROUNDED), counts, strict=True):
        if many and not (why == _UNPLANNED and params.gpu == "drop"):
            quality.repaired[why] = many
    gpus = pl.when(plan > 1).then(plan.ceil()).otherwise(plan.fill_null(0.0)).alias("gpus")
    rows = tasks.select(
        "job_name",
        unplanned.alias("unplanned"),
        "gpu_type",
        pl.col("task_name").alias("role"),
        count.cast(pl.Int64).alias("count"),
        gpus,
        (pl.col("plan_cpu").fill_null(0.0) / 100).alias("cpus"),
        pl.col("plan_mem").fill_null(0.0).alias("mem_gib"),
        pl.lit(0, pl.Int64).alias("min_count"),
        pl.lit(0, pl.Int64).alias("max_count"),
        _positive("start_time"),
        _positive("end_time"),
    )
    role = pl.struct("role", "count", "gpus", "cpus", "mem_gib", "min_count", "max_count")
    shares = (pl.col("gpus") > 0) & (pl.col("gpus") < 1)
    total = pl.col("count").sum()
    types = pl.col("gpu_type").filter((pl.col("gpu_type") != "") & (pl.col("gpus") > 0))
    return rows.group_by("job_name", maintain_order=True).agg(
        role.alias("roles"),
        *((pl.col("count") * pl.col(name)).sum().alias(name) for name in ("gpus", "cpus")),
        (pl.col("count") * pl.col("mem_gib")).sum().alias("mem_gib"),
        (~shares.any() | (total == 1)).alias("gang"),
        ((total == 1) & (pl.col("gpus") > 1).any()).alias("apart"),
        types.unique().sort().alias("gpu_type"),
        (pl.col("unplanned").any() & pl.lit(params.gpu == "drop")).alias("unplanned"),
        pl.col("start_time").min().alias("_task_start"),
        pl.col("end_time").max().alias("_task_end"),
    )


def _jobs(jobs: "pl.DataFrame", roles: "pl.DataFrame") -> "pl.DataFrame":
    import polars as pl

    joined = jobs.join(roles, on="job_name", how="left", maintain_order="left")
    return joined.select(
        pl.col("job_name").alias("job_id"),
        "inst_id",
        "user",
        _positive("start_time").alias("submit_s"),
        _positive("end_time").alias("_job_end"),
        pl.col("status").alias("_status"),
        pl.col("gpus").fill_null(0.0).alias("num_gpus"),
        pl.col("cpus", "mem_gib").fill_null(0.0),
        "roles",
        pl.col("gang").fill_null(value=True),
        pl.col("apart").fill_null(value=False),
        "gpu_type",
        "unplanned",
        "_task_start",
        "_task_end",
    )


def _with_instances(frame: "pl.DataFrame", instances: "pl.DataFrame | None") -> "pl.DataFrame":
    import polars as pl

    if instances is None:
        nothing = pl.lit(None, pl.Float64)
        return frame.with_columns(
            _first_s=nothing, _last_s=nothing, _nodes=pl.lit([], pl.List(pl.String))
        )
    return frame.join(
        instances, left_on="job_id", right_on="job_name", how="left", maintain_order="left"
    )


def _with_groups(frame: "pl.DataFrame", groups: "pl.DataFrame | None") -> "pl.DataFrame":
    import polars as pl

    if groups is None:
        return frame
    tags = groups.select(
        "inst_id", pl.col("group").alias("name"), pl.col("workload").alias("model")
    ).unique("inst_id", keep="last", maintain_order=True)
    return frame.join(tags, on="inst_id", how="left", maintain_order="left")


def _timed(frame: "pl.DataFrame") -> "pl.DataFrame":
    """Observed start and end, and the run time between them."""
    import polars as pl

    running = pl.col("_status") == "Running"
    start = pl.coalesce("_first_s", "_task_start")
    end = pl.coalesce("_last_s", "_task_end", "_job_end")
    last = pl.max_horizontal(
        pl.col("_last_s").max(), pl.col("_job_end").max(), pl.col("_task_end").max()
    )
    state = pl.col("_status").replace_strict(_STATES, default="", return_dtype=pl.String)
    timed = frame.with_columns(_start_s=start, _end_s=pl.when(~running).then(end), _state=state)
    until = pl.when(running).then(last).otherwise(pl.col("_end_s"))
    waiting = pl.col("_status") == "Waiting"
    fine = (until >= pl.col("_start_s")) & ~waiting & ~pl.col("unplanned").fill_null(value=False)
    return timed.with_columns(
        duration_s=pl.when(fine).then(until - pl.col("_start_s")), _cut=running
    ).drop("_first_s", "_last_s", "_task_start", "_task_end", "_job_end", "inst_id", "unplanned")


def _cluster(machines: "pl.DataFrame") -> tuple[NodeSpec, ...]:
    rows = machines.unique("machine", keep="first", maintain_order=True).select(
        "machine", "cap_gpu", "gpu_type", "cap_cpu", "cap_mem"
    )
    return tuple(
        NodeSpec(name, int(gpus or 0), "" if not gpus else kind, cpus or 0.0, mem or 0.0)
        for name, gpus, kind, cpus, mem in rows.rows()
    )
