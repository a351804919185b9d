"""From the rows of a trace to jobs: the options and rules that readers share.

A reader gives a frame with columns of `schema.JOBS`, times on the trace's own clock, and beside
them what happened: `_start_s` and `_end_s` (null: not known), `_status` (the trace's word),
`_state` (ours, see `observed`), `_nodes`, `_gpus`, `_cut` (true: still running at the end, so its
duration is only what was seen of it). All of them may be absent. Filters are off unless asked for.

A reader of logs in which jobs have several attempts gives these apart. The run time of such a job
is that of its `last` attempt: a job without checkpoints starts over. A job with checkpoints needs
the `sum` of its attempts. `longest` is the best guess where the last one was cut short, and `span`
is from the first start to the last end.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from rota.core.errors import OptionError, TraceError
from rota.core.sums import ordered_sum
from rota.core.topology import NodeSpec
from rota.core.workload import Quality
from rota.traces.imported import Imported
from rota.traces.observed import Observed, Seen
from rota.traces.schema import DEPENDENCIES

if TYPE_CHECKING:
    import polars as pl

CUT = "still running at the end of the trace: cut there"
SHORT = "duration below 1 s raised to 1 s"
UNEVEN = "share above one GPU rounded up to whole GPUs"
NO_TIME = "no submission time"
NO_DURATION = "never started, or without a run time"
NOTHING = "asks for nothing"
TWICE = "job id seen before"

Runtime = Literal["last", "longest", "sum", "span"]
RUNTIMES: tuple[Runtime, ...] = ("last", "longest", "sum", "span")


class Common(msgspec.Struct, frozen=True):
    """Options of every reader.

    `after` and `before` bound the time of submission (the first included, the second not) on the
    trace's own clock: seconds, or a date if the trace has dates.
    """

    min_duration: float = 0.0
    statuses: tuple[str, ...] = ()
    gpu_only: bool = False
    vc: tuple[str, ...] = ()
    after: str = ""
    before: str = ""
    unfinished: Literal["censor", "drop"] = "censor"
    sample: float = 1.0
    seed: int = 0
    bad: Literal["refuse", "drop"] = "refuse"


class Rest(msgspec.Struct, frozen=True):
    """What a reader knows beside its jobs."""

    name: str = ""
    dated: bool = False  # the clock counts seconds since 1970
    sort: bool = True  # by submission; otherwise the order of the file is kept
    numbered: bool = False  # jobs have no ids: they are numbered from 0 in their order
    from_zero: bool = False  # second 0 is that of the file, not its first submission
    cluster: tuple[NodeSpec, ...] = ()
    notes: tuple[str, ...] = ()


def import_rows(
    path: Path,
    frame: "pl.DataFrame",
    params: Common,
    quality: Quality,
    *,
    rest: Rest,
    events: "pl.DataFrame | None" = None,
    attempts: "pl.DataFrame | None" = None,
) -> Imported:
    """Filter, repair, sort and shift the rows; every step is counted.

    Args:
        path: For messages.
        frame: The rows as described above; they may be put in order in place. Who wants little
            memory keeps no other name for it.
        params: The options.
        quality: What was counted while reading; gets the counts of the steps here.
        rest: What else is known.
        events: Rows of `schema.EVENTS` on the trace's own clock.
        attempts: See `attempts_frame`; on the trace's own clock.

    Raises:
        TraceError: No job is left.
    """
    import polars as pl

    frame = _filtered(frame, _filters(frame, params, dated=rest.dated), quality)
    if not rest.numbered:
        frame = _filtered(frame, [(TWICE, pl.col("job_id").is_first_distinct())], quality)
    if not frame.height:
        dropped = ", ".join(f"{many:,} {why}" for why, many in quality.dropped.items())
        raise TraceError(f"{path}: no job is left ({dropped}): relax the options")
    frame = _repaired(frame, quality)
    if rest.sort and not frame["submit_s"].is_sorted():
        frame = _by_submission(frame)
    frame = _sampled(frame, params, quality)
    first_s = float(frame["submit_s"].min())  # type: ignore[arg-type]  # there are rows
    origin_s = 0.0 if rest.from_zero else first_s
    clock = [name for name in ("submit_s", "deadline_s", "_start_s", "_end_s") if name in frame]
    frame = frame.with_columns(pl.col(clock) - origin_s)
    if events is not None:
        events = events.with_columns(pl.col("time_s") - origin_s)
    quality.kept = frame.height
    if rest.numbered:
        frame = frame.with_columns(job_id=pl.int_range(pl.len()).cast(pl.String))
    if attempts is None:
        observed = _observed(frame)
    else:
        observed = _attempted(frame, attempts, origin_s)
        frame = _without_lost(frame)
    return Imported(
        frame.drop(name for name in frame.columns if name.startswith("_")),
        observed=observed,
        events=events,
        cluster=rest.cluster,
        quality=quality,
        name=rest.name or path.stem,
        origin=_origin(origin_s, dated=rest.dated),
        notes=rest.notes,
    )


def _filters(frame: "pl.DataFrame", params: Common, *, dated: bool) -> "list[tuple[str, pl.Expr]]":
    """What is dropped: (why, which rows are fine)."""
    import polars as pl

    out = [(NO_TIME, pl.col("submit_s").is_not_null())]
    if params.after:
        out.append((f"before {params.after}", pl.col("submit_s") >= _bound(params, "after", dated)))
    if params.before:
        bound = pl.col("submit_s") < _bound(params, "before", dated)
        out.append((f"not before {params.before}", bound))
    if params.statuses:
        column = "_status" if "_status" in frame else "_state"
        if column not in frame:
            raise OptionError("this format has no status of jobs: leave the option statuses out")
        out.append(("of another status", pl.col(column).is_in(list(params.statuses))))
    if params.gpu_only:
        out.append(("asks for no GPU", pl.col("num_gpus") > 0))
    if params.vc:
        out.append(("of other virtual clusters", pl.col("vc").is_in(list(params.vc))))
    if params.unfinished == "drop" and "_cut" in frame:
        out.append(("still running at the end of the trace", ~pl.col("_cut")))
    out.append((NO_DURATION, pl.col("duration_s").is_not_null()))
    if params.min_duration:
        why = f"shorter than {params.min_duration:g} s"
        out.append((why, pl.col("duration_s") >= params.min_duration))
    amounts = [name for name in ("num_gpus", "cpus", "mem_gib") if name in frame]
    out.append((NOTHING, pl.any_horizontal(pl.col(amounts) > 0)))
    return out


def _bound(params: Common, key: str, dated: bool) -> float:  # noqa: FBT001 - private
    text = getattr(params, key)
    try:
        if dated:
            return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
        bound = float(text)
    except ValueError as error:
        form = "a time YYYY-MM-DD HH:MM:SS" if dated else "a number of seconds"
        raise OptionError(f"{key}={text} is not {form}: write one") from error
    if not -inf < bound < inf:
        raise OptionError(f"{key}={text} is not a finite number: write one")
    return bound


def _filtered(
    frame: "pl.DataFrame", filters: "list[tuple[str, pl.Expr]]", quality: Quality
) -> "pl.DataFrame":
    """The rows that are fine; every other one is counted once, under the first reason."""
    import polars as pl

    masks = frame.select(fine.fill_null(value=False).alias(why) for why, fine in filters)
    fine = pl.Series([True], dtype=pl.Boolean).new_from_index(0, frame.height)
    for mask in masks:
        if not mask.all():
            quality.drop(mask.name, int((fine & ~mask).sum()))
            fine &= mask
    return frame if fine.all() else frame.filter(fine)


def _repaired(frame: "pl.DataFrame", quality: Quality) -> "pl.DataFrame":
    """Changes without which the jobs could not be simulated."""
    import polars as pl

    gpus, duration = pl.col("num_gpus"), pl.col("duration_s")
    uneven = (gpus > 1) & (gpus != gpus.ceil())
    if "gang" in frame:  # tasks that start one by one may each have a share
        uneven &= pl.col("gang")
    counts = {SHORT: duration < 1, UNEVEN: uneven}
    if "_cut" in frame:
        counts[CUT] = pl.col("_cut")
    sums = frame.select(fine.sum().alias(why) for why, fine in counts.items()).row(0, named=True)
    for why, many in sums.items():
        quality.repair(why, many)
    if not (sums[SHORT] or sums[UNEVEN]):
        return frame
    return frame.with_columns(
        pl.when(duration < 1).then(1.0).otherwise(duration).alias("duration_s"),
        pl.when(uneven).then(gpus.ceil()).otherwise(gpus).alias("num_gpus"),
    )


def _by_submission(frame: "pl.DataFrame") -> "pl.DataFrame":
    """The rows in order, column by column: never a second copy of the whole table in memory."""
    import polars as pl

    order = frame.select(pl.arg_sort_by("submit_s", maintain_order=True)).to_series()
    for place, name in enumerate(frame.columns):
        frame.replace_column(place, frame[name].rechunk().gather(order))  # in place
    return frame


def _sampled(frame: "pl.DataFrame", params: Common, quality: Quality) -> "pl.DataFrame":
    if params.sample == 1:
        return frame
    if not 0 < params.sample < 1:
        raise OptionError(f"sample={params.sample:g} is no share: give more than 0, at most 1")
    import numpy as np
    import polars as pl

    count = max(1, round(params.sample * frame.height))
    chosen = np.random.default_rng(params.seed).choice(frame.height, count, replace=False)
    kept = frame[pl.Series(np.sort(chosen))]
    if count < frame.height:
        quality.dropped["not in the sample"] = frame.height - count
    return kept


def _observed(frame: "pl.DataFrame") -> Observed | None:
    import polars as pl

    if "_start_s" not in frame:
        return None
    wanted = [name for name in ("_end_s", "_state", "_nodes", "_gpus") if name in frame]
    seen = frame.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("job"),
        pl.col("_start_s").alias("start_s"),
        *(pl.col(name).alias(name[1:]) for name in wanted),
    )
    if seen["start_s"].null_count():
        seen = seen.drop_nulls("start_s")
    return Observed(seen) if seen.height else None


def _origin(origin_s: float, *, dated: bool) -> str:
    if not dated:
        return f"{origin_s:.15g} s"
    try:
        return str(datetime.fromtimestamp(origin_s, UTC).replace(tzinfo=None))
    except (ValueError, OverflowError, OSError):
        return f"{origin_s:.15g} s"


# --- attempts ------------------------------------------------------------------------------------


def run_s(seen: Sequence[Seen], until_s: float, runtime: Runtime) -> float:
    """How long a job ran; `until_s`: the end of the log, for an attempt that goes on."""
    ends_s = [until_s if one.end_s is None else one.end_s for one in seen]
    lengths = [max(end_s - one.start_s, 0.0) for end_s, one in zip(ends_s, seen, strict=True)]
    if runtime == "last":
        return lengths[-1]
    if runtime == "longest":
        return max(lengths)
    return (
        ordered_sum(lengths)
        if runtime == "sum"
        else seen[-1].start_s + lengths[-1] - seen[0].start_s
    )


def told_of_attempts(
    imported: Imported, attempts: Mapping[str, Sequence[Seen]], until_s: float, runtime: Runtime
) -> list[str]:
    """What the choice of the run time changes, for people; nothing: no job has several attempts."""
    sizes: dict[str, float] = dict(imported.jobs.select("job_id", "num_gpus").iter_rows())
    several = {name: seen for name, seen in attempts.items() if len(seen) > 1 and name in sizes}
    if not several:
        return []
    parts = []
    for choice in sorted(RUNTIMES, key=lambda each: each != runtime):
        runs_s = {name: run_s(seen, until_s, choice) for name, seen in several.items()}
        hours = ordered_sum(sizes[name] * length_s for name, length_s in runs_s.items()) / 3_600
        other = sum(runs_s[name] != run_s(s, until_s, runtime) for name, s in several.items())
        parts.append(f"{choice} {hours:,.1f}" + (f" ({other:,} differ)" if other else ""))
    what = "1 job has" if len(several) == 1 else f"{len(several):,} jobs have"
    rest = ", ".join(parts[1:])
    return [f"{what} several attempts; GPU-hours with runtime={parts[0]}; with {rest}"]


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


def _attempted(frame: "pl.DataFrame", attempts: "pl.DataFrame", origin_s: float) -> Observed:
    """The attempts of the jobs that are left, on their clock."""
    import polars as pl

    numbers = frame.select("job_id").with_row_index("job").cast({"job": pl.Int64})
    rows = attempts.join(numbers, on="job_id", how="inner", maintain_order="left").drop("job_id")
    return Observed(rows.with_columns(pl.col("start_s", "end_s") - origin_s))


def _without_lost(frame: "pl.DataFrame") -> "pl.DataFrame":
    """No job waits for one that is not there, or came later."""
    import polars as pl

    place: dict[str, int] = {}
    for column in DEPENDENCIES:
        if column not in frame or not frame[column].list.len().sum():
            continue
        place = place or {name: number for number, name in enumerate(frame["job_id"])}
        kept = [
            [other for other in others if place.get(other, number) < number]
            for number, others in enumerate(frame[column].to_list())
        ]
        frame = frame.with_columns(pl.Series(column, kept, dtype=pl.List(pl.String)))
    return frame


def open_jobs(imported: Imported) -> int:
    """Jobs with GPUs of which only the nodes are known, not how many GPUs they held on each."""
    import polars as pl

    open_rows = (pl.col("nodes").list.len() > 0) & (pl.col("gpus").list.len() == 0)
    rows = imported.observed.frame.filter(open_rows)["job"].unique()
    sizes = imported.jobs["num_gpus"].gather(rows.cast(pl.UInt32))
    return int((sizes > 0).sum())
