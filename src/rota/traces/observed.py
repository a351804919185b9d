"""The schedule as it really happened, kept apart from what was asked: no policy ever sees it.

A reader returns an `Imported`: the jobs, and beside them this table. One row is one *attempt*: a
span in which a job held the same nodes. Times are on the clock of the jobs' `submit_s`. Columns:

| Column | Type | Meaning |
| --- | --- | --- |
| `job` | int | position of the job in the workload, from 0 |
| `attempt` | int | number of the attempt of this job, from 0, in order of time |
| `start_s` | float | when it started |
| `end_s` | float or null | when it ended; null: still running when the log was taken |
| `nodes` | list of text | names of its nodes, or empty: not recorded |
| `gpus` | list of float | GPUs held on each of these nodes, or empty: not recorded |
| `state` | text | one of `STATES`, how the attempt ended |

A job that never started has no row.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import polars as pl

DONE = "done"
FAILED = "failed"
CANCELLED = "cancelled"
TIMEOUT = "timeout"
NODE_FAIL = "node-fail"
PREEMPTED = "preempted"
RUNNING = "running"
UNKNOWN = ""
STATES = (DONE, FAILED, CANCELLED, TIMEOUT, NODE_FAIL, PREEMPTED, RUNNING, UNKNOWN)


class Seen(msgspec.Struct, frozen=True):
    """One attempt of one job; the columns are explained above."""

    job: int
    start_s: float
    end_s: float | None = None
    nodes: tuple[str, ...] = ()
    gpus: tuple[float, ...] = ()
    state: str = UNKNOWN
    attempt: int = 0


class Observed:
    """The table of attempts, sorted by job and attempt; `frame` is its only content."""

    def __init__(self, frame: "pl.DataFrame | None" = None) -> None:
        """Take a frame with at least `job` and `start_s`; other columns get their defaults."""
        self.frame = _complete(frame)

    @classmethod
    def of(cls, rows: Iterable[Seen]) -> "Observed":
        """The table of these attempts; those of a job are numbered by their start."""
        import polars as pl

        seen = list(rows)
        columns = {name: [getattr(row, name) for row in seen] for name in Seen.__struct_fields__}
        columns["nodes"] = [list(row.nodes) for row in seen]
        columns["gpus"] = [list(row.gpus) for row in seen]
        del columns["attempt"]
        return cls(pl.DataFrame(columns, schema_overrides=_types(columns)))

    def __len__(self) -> int:
        return int(self.frame.height)

    def rows(self) -> list[Seen]:
        """Every attempt as an object."""
        return [
            Seen(**{**row, "nodes": tuple(row["nodes"]), "gpus": tuple(row["gpus"])})
            for row in self.frame.iter_rows(named=True)
        ]

    def per_job(self) -> "pl.DataFrame":
        """One row per job that started, by job.

        Columns: `job`, `attempts`, `start_s` (the first), `end_s` (the last; null when it still
        ran), `run_s` (sum of its ended attempts), and `nodes`, `gpus`, `state` of the last attempt.
        """
        import polars as pl

        last_end = (
            pl.when(pl.col("end_s").is_null().any()).then(None).otherwise(pl.col("end_s").max())
        )
        return self.frame.group_by("job", maintain_order=True).agg(
            pl.len().cast(pl.Int64).alias("attempts"),
            pl.col("start_s").min(),
            last_end.alias("end_s"),
            (pl.col("end_s") - pl.col("start_s")).sum().alias("run_s"),
            pl.col("nodes", "gpus", "state").last(),
        )

    def only(self, jobs: Sequence[int]) -> "Observed":
        """The attempts of these jobs, which get the numbers 0, 1, ... in the order given."""
        import polars as pl

        new = pl.DataFrame(
            {"job": list(jobs), "_new": range(len(jobs))},
            schema={"job": pl.Int64, "_new": pl.Int64},
        )
        kept = self.frame.join(new, on="job", how="inner").with_columns(job=pl.col("_new"))
        return Observed(kept.drop("_new"))


def _types(names: Iterable[str]) -> "dict[str, pl.DataType]":
    import polars as pl

    known: dict[str, pl.DataType] = {
        "job": pl.Int64(),
        "attempt": pl.Int64(),
        "start_s": pl.Float64(),
        "end_s": pl.Float64(),
        "nodes": pl.List(pl.String()),
        "gpus": pl.List(pl.Float64()),
        "state": pl.String(),
    }
    return {name: known[name] for name in known if name in names}


def _complete(frame: "pl.DataFrame | None") -> "pl.DataFrame":
    import polars as pl

    types = _types(["job", *Seen.__struct_fields__])
    if frame is None:
        return pl.DataFrame(schema=types)
    empty: dict[str, pl.Expr] = {
        "end_s": pl.lit(None, pl.Float64),
        "nodes": pl.lit([], pl.List(pl.String)),
        "gpus": pl.lit([], pl.List(pl.Float64)),
        "state": pl.lit(UNKNOWN),
    }
    frame = frame.with_columns(
        **{name: value for name, value in empty.items() if name not in frame.columns}
    )
    lists = [name for name in ("nodes", "gpus") if frame[name].null_count()]
    frame = frame.with_columns(pl.col(name).fill_null(empty[name]) for name in lists)
    if (frame["job"].diff().slice(1) > 0).all():  # the usual case: one attempt of each, in order
        frame = frame.with_columns(attempt=pl.lit(0, pl.Int64))
    else:
        numbers = pl.int_range(pl.len(), dtype=pl.Int64).over("job").alias("attempt")
        frame = frame.sort("job", "start_s", maintain_order=True).with_columns(numbers)
    return frame.select(pl.col(name).cast(kind) for name, kind in types.items())
