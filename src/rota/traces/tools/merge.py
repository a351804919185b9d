"""Several workloads as one: the jobs of a cluster and those of a group that is to come.

Second 0 of every trace is the same moment unless an offset says otherwise; with `by_clock` the
moments are those of the traces' own dates, and a job with the id and the submission of one in
another trace is the same job, as in exports that overlap: it is there once. Jobs are in the order
of their submission, those of earlier traces first. Tenants, users and everything else that a job
says of itself stay. An id that an earlier trace has makes all ids of a trace (and its dependencies)
begin with the trace's name.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from rota.core.errors import OptionError
from rota.core.topology import NodeSpec
from rota.core.workload import Quality
from rota.traces.imported import Imported
from rota.traces.observed import Observed
from rota.traces.schema import CAPACITY, DEPENDENCIES
from rota.traces.tools.change import later, with_jobs

if TYPE_CHECKING:
    import polars as pl

TWICE = "job that another trace has, too (the same id, submitted at the same time)"


class NamedTrace(msgspec.Struct):
    """A trace to merge: its short name, and when its second 0 is."""

    name: str
    imported: Imported
    offset_s: float = 0.0


class Merged(msgspec.Struct):
    """The trace, and of each source the positions of its jobs in it."""

    imported: Imported
    positions: list[list[int]]


def merge(sources: Sequence[NamedTrace], *, by_clock: bool = False) -> Merged:
    """All jobs in one trace.

    Raises:
        OptionError: A trace has no dates to align it by, or two nodes have the same name.
    """
    import polars as pl

    offsets_s = _offsets(sources, by_clock=by_clock)
    notes: list[str] = []
    taken: set[str] = set()
    frames, seen, events = [], [], []
    count = 0
    kept = _once(sources, offsets_s) if by_clock else [range(len(one.imported)) for one in sources]
    for number, (source, offset_s) in enumerate(zip(sources, offsets_s, strict=True)):
        imported = source.imported
        mine = kept[number]
        jobs = imported.jobs[list(mine)] if len(mine) < len(imported) else imported.jobs
        jobs = jobs.with_columns(pl.col("submit_s", "deadline_s") + offset_s)
        prefix = _prefix(source.name, jobs["job_id"].to_list(), taken)
        if prefix:
            renamed = pl.lit(prefix) + pl.col("job_id")
            waits = [pl.col(name).list.eval(pl.lit(prefix) + pl.element()) for name in DEPENDENCIES]
            array = pl.col("array")
            arrays = pl.when(array != "").then(pl.lit(prefix) + array).otherwise(array)
            jobs = jobs.with_columns(renamed.alias("job_id"), *waits, arrays.alias("array"))
            notes.append(f"ids of {source.name} begin with {prefix}: another trace has the same")
        taken.update(jobs["job_id"].to_list())
        frames.append(jobs.with_columns(_source=pl.lit(number), _job=pl.int_range(pl.len())))
        shifted = pl.col("start_s", "end_s") + offset_s
        happened = imported.observed
        happened = happened.only(mine) if len(mine) < len(imported) else happened
        seen.append(happened.frame.with_columns(shifted, pl.col("job") + count))
        events.append(imported.events.with_columns(pl.col("time_s") + offset_s))
        count += jobs.height
    whole = pl.concat(frames).with_row_index("_was").sort("submit_s", maintain_order=True)
    positions = [
        whole.with_row_index("_now").filter(pl.col("_source") == number).sort("_job")["_now"]
        for number in range(len(sources))
    ]
    observed = Observed(pl.concat(seen)).only(whole["_was"].to_list())
    happenings = _events(events, notes)
    first = sources[0].imported
    quality = _quality([source.imported.quality for source in sources])
    again = sum(len(source.imported) for source in sources) - count
    if again:
        quality.kept -= again
        quality.drop(TWICE, again)
    made = with_jobs(
        first,
        whole.drop("_was", "_source", "_job"),
        observed=observed,
        events=happenings.unique(maintain_order=True) if again else happenings,
        quality=quality,
        origin=later(first.origin, -offsets_s[0]),
    )
    made.cluster = _nodes(sources)
    made.name = "+".join(source.name for source in sources)
    named = [f"{s.name} from second {o:g}" for s, o in zip(sources, offsets_s, strict=True)]
    told = [note for source in sources[1:] for note in source.imported.notes]
    made.notes = [*first.notes, *told, f"merged: {', '.join(named)}", *notes]
    return Merged(made, [position.to_list() for position in positions])


def _once(sources: Sequence[NamedTrace], offsets_s: Sequence[float]) -> list[list[int]]:
    """Of each trace the jobs to take: of two that are the same the one whose end is known.

    If both tell as much, the one of the later trace counts.
    """
    import polars as pl

    found: dict[tuple[str, float], tuple[int, int]] = {}
    ended: list[set[int]] = []
    for number, (source, offset_s) in enumerate(zip(sources, offsets_s, strict=True)):
        seen = source.imported.observed.per_job()
        ended.append(set(seen.filter(pl.col("end_s").is_not_null())["job"].to_list()))
        rows = source.imported.jobs.select("job_id", "submit_s").iter_rows()
        for job, (name, submit_s) in enumerate(rows):
            key = (name, round(submit_s + offset_s, 3))
            other = found.get(key)
            if other is None or job in ended[number] or other[1] not in ended[other[0]]:
                found[key] = (number, job)
    kept: list[list[int]] = [[] for _ in sources]
    for number, job in found.values():
        kept[number].append(job)
    return [sorted(jobs) for jobs in kept]


def _offsets(sources: Sequence[NamedTrace], *, by_clock: bool) -> list[float]:
    """When second 0 of each is, on the clock of the result: none is below 0."""
    found = [source.offset_s for source in sources]
    if by_clock:
        starts = [_start(source) for source in sources]
        if len({type(start) for start in starts}) > 1:
            raise OptionError("the traces' clocks differ (dates and seconds): give --offset")
        for number, start in enumerate(starts):
            try:
                ahead = start - starts[0]  # type: ignore[operator]
            except TypeError as error:
                raise OptionError(
                    "one trace tells the zone of its dates and another does not: give --offset"
                ) from error
            found[number] += ahead if isinstance(ahead, float) else ahead.total_seconds()
    least = min(found)
    return [offset_s - least for offset_s in found] if least < 0 else found


def _start(source: NamedTrace) -> datetime | float:
    origin = source.imported.origin
    try:
        return float(origin[:-2]) if origin.endswith(" s") else datetime.fromisoformat(origin)
    except ValueError as error:
        raise OptionError(
            f"{source.name}: does not tell the date of its first second: give --offset instead"
        ) from error


def _prefix(name: str, ids: Sequence[str], taken: set[str]) -> str:
    """What makes the ids unlike those that are taken; empty: they are."""
    if taken.isdisjoint(ids):
        return ""
    number, prefix = 1, f"{name}-"
    while not taken.isdisjoint(prefix + job for job in ids):
        number += 1
        prefix = f"{name}{number}-"
    return prefix


def _events(frames: "Sequence[pl.DataFrame]", notes: list[str]) -> "pl.DataFrame":
    """Outages and capacities of all; the capacity of the whole cluster only from one of them."""
    import polars as pl

    whole = (pl.col("kind") == CAPACITY) & (pl.col("subject") == "")
    if sum(frame.filter(whole).height > 0 for frame in frames) > 1:
        frames = [frame.filter(~whole) for frame in frames]
        notes.append("capacities of whole clusters were left out: there is one for each trace")
    return pl.concat(frames).sort("time_s", maintain_order=True)


def _nodes(sources: Sequence[NamedTrace]) -> tuple[NodeSpec, ...]:
    """The machines of all; equal ones are the same."""
    found: dict[str, NodeSpec] = {}
    for source in sources:
        for node in source.imported.cluster:
            if found.setdefault(node.name, node) != node:
                raise OptionError(
                    f"{source.name}: another trace has another node {node.name!r}: rename it in "
                    f"one of the lists of nodes, or leave one of them out"
                )
    return tuple(found.values())


def _quality(parts: Sequence[Quality]) -> Quality:
    whole = Quality()
    for part in parts:
        whole.rows += part.rows
        whole.kept += part.kept
        for counts, more in ((whole.dropped, part.dropped), (whole.repaired, part.repaired)):
            for why, many in more.items():
                counts[why] = counts.get(why, 0) + many
    return whole
