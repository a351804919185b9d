"""Jobs with several attempts: the observed schedule beside what `tidy.import_rows` makes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from rota.traces.imported import Imported
from rota.traces.observed import Observed, Seen

if TYPE_CHECKING:
    import polars as pl


def with_attempts(
    imported: Imported, frame: "pl.DataFrame", attempts: Mapping[str, Sequence[Seen]]
) -> Imported:
    """The same with the observed schedule of the jobs that are left, on their clock.

    Args:
        imported: The jobs that are left; what happened to them is not told yet.
        frame: The rows that they were made from, on the trace's own clock.
        attempts: By id of the job, on that clock; their number of the job does not matter.
    """
    ids = imported.jobs["job_id"].to_list()
    before_s = dict(frame.select("job_id", "submit_s").iter_rows())
    origin_s = before_s[ids[0]] - imported.jobs["submit_s"][0]
    rows = []
    for number, name in enumerate(ids):
        for one in attempts.get(name, ()):
            end_s = None if one.end_s is None else one.end_s - origin_s
            start_s = one.start_s - origin_s
            rows.append(msgspec.structs.replace(one, job=number, start_s=start_s, end_s=end_s))
    return Imported(
        _without_lost(imported.jobs, ids),
        observed=Observed.of(rows),
        cluster=imported.cluster,
        quality=imported.quality,
        name=imported.name,
        origin=imported.origin,
        notes=imported.notes,
    )


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
