"""Jobs with several attempts: the observed schedule beside what `tidy.import_rows` makes.

The run time of such a job is that of its `last` attempt: a job without checkpoints starts over. A
job with checkpoints needs the `sum` of its attempts. `longest` is the best guess where the last one
was cut short, and `span` is from the first start to the last end.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from rota.traces.imported import Imported
from rota.traces.observed import Observed, Seen

if TYPE_CHECKING:
    import polars as pl


Runtime = Literal["last", "longest", "sum", "span"]
RUNTIMES: tuple[Runtime, ...] = ("last", "longest", "sum", "span")


def run_s(seen: Sequence[Seen], until_s: float, runtime: Runtime) -> float:
    """How long a job ran; `until_s`: the end of the log, for an attempt that goes on."""
    ends_s = [until_s if one.end_s is None else one.end_s for one in seen]
    lengths = [max(end_s - one.start_s, 0.0) for end_s, one in zip(ends_s, seen, strict=True)]
    if runtime == "last":
        return lengths[-1]
    if runtime == "longest":
        return max(lengths)
    return sum(lengths) if runtime == "sum" else seen[-1].start_s + lengths[-1] - seen[0].start_s


def told_of_attempts(
    imported: Imported, attempts: Mapping[str, Sequence[Seen]], until_s: float, runtime: Runtime
) -> list[str]:
    """What the choice of the run time changes, for people; nothing: no job has several attempts."""
    sizes: dict[str, float] = dict(imported.jobs.select("job_id", "num_gpus").iter_rows())
    several = {name: seen for name, seen in attempts.items() if len(seen) > 1 and name in sizes}
    if not several:
        return []
    told = []
    for choice in sorted(RUNTIMES, key=lambda each: each != runtime):
        runs_s = {name: run_s(seen, until_s, choice) for name, seen in several.items()}
        hours = sum(sizes[name] * length_s for name, length_s in runs_s.items()) / 3_600
        other = sum(runs_s[name] != run_s(s, until_s, runtime) for name, s in several.items())
        told.append(f"{choice} {hours:,.1f}" + (f" ({other:,} differ)" if other else ""))
    what = "1 job has" if len(several) == 1 else f"{len(several):,} jobs have"
    rest = ", ".join(told[1:])
    return [f"{what} several attempts; GPU-hours with runtime={told[0]}; with {rest}"]


def attempts_frame(attempts: Mapping[str, Sequence[Seen]]) -> "pl.DataFrame":
    """Attempts by `job_id`, as columns."""
    import polars as pl

    pairs = [(name, one) for name, mine in attempts.items() for one in mine]
    columns = {
        "job_id": [name for name, _ in pairs],
        "start_s": [one.start_s for _, one in pairs],
        "end_s": [one.end_s for _, one in pairs],
        "nodes": [list(one.nodes) for _, one in pairs],
        "gpus": [list(one.gpus) for _, one in pairs],
        "state": [one.state for _, one in pairs],
    }
    kinds = {
        "job_id": pl.String(), "start_s": pl.Float64(), "end_s": pl.Float64(),
        "nodes": pl.List(pl.String()), "gpus": pl.List(pl.Float64()), "state": pl.String(),
    }  # fmt: skip
    return pl.DataFrame(columns, schema=kinds)


def with_attempts(
    imported: Imported,
    frame: "pl.DataFrame",
    attempts: "Mapping[str, Sequence[Seen]] | pl.DataFrame",
) -> Imported:
    """The same with the observed schedule of the jobs that are left, on their clock.

    Args:
        imported: The jobs that are left; what happened to them is not told yet.
        frame: The rows that they were made from, on the trace's own clock.
        attempts: By id of the job, on that clock; their number of the job does not matter.
    """
    import polars as pl

    seen = attempts_frame(attempts) if isinstance(attempts, Mapping) else attempts
    ids = imported.jobs["job_id"]
    before_s = frame.filter(pl.col("job_id") == ids[0])["submit_s"][0]
    origin_s = before_s - imported.jobs["submit_s"][0]
    numbers = pl.DataFrame({"job_id": ids}).with_row_index("job").cast({"job": pl.Int64})
    rows = seen.join(numbers, on="job_id", how="inner", maintain_order="left").drop("job_id")
    return Imported(
        _without_lost(imported.jobs, ids.to_list()),
        observed=Observed(rows.with_columns(pl.col("start_s", "end_s") - origin_s)),
        events=imported.events,
        cluster=imported.cluster,
        quality=imported.quality,
        name=imported.name,
        origin=imported.origin,
        notes=imported.notes,
    )


def open_jobs(imported: Imported) -> int:
    """Jobs with GPUs of which only the nodes are known, not how many GPUs they held on each."""
    import polars as pl

    open_rows = (pl.col("nodes").list.len() > 0) & (pl.col("gpus").list.len() == 0)
    rows = imported.observed.frame.filter(open_rows)["job"].unique()
    sizes = imported.jobs["num_gpus"].gather(rows.cast(pl.UInt32))
    return int((sizes > 0).sum())


def _without_lost(frame: "pl.DataFrame", ids: list[str]) -> "pl.DataFrame":
    """Nobody waits for a job that is not there, or came later."""
    import polars as pl

    if not frame["depends_on"].list.len().sum():
        return frame
    place = {name: number for number, name in enumerate(ids)}
    kept = [
        [other for other in others if place.get(other, number) < number]
        for number, others in enumerate(frame["depends_on"].to_list())
    ]
    return frame.with_columns(depends_on=pl.Series(kept, dtype=pl.List(pl.String)))
