"""Smaller, denser or other workloads from a trace: scaled load, a window, some of the users.

Every change returns a new `Imported` whose notes say what was done, so that a folder written from
it carries its own history. What a change leaves out is counted in `quality`.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING

from rota.core.errors import OptionError
from rota.core.events import INF
from rota.core.workload import Quality
from rota.traces.imported import Imported
from rota.traces.observed import Observed
from rota.traces.schema import CAPACITY, without_lost

if TYPE_CHECKING:
    import polars as pl

_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_TIME = re.compile(r"(\d+(?:\.\d+)?)([smhdw]?)")


def chance(seed: int, rule: str, name: str) -> float:
    """A number in [0, 1) that depends on nothing but these: a subset of jobs gets the same."""
    digest = blake2b(f"{seed}\0{rule}\0{name}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)


def with_jobs(
    imported: Imported,
    jobs: "pl.DataFrame",
    note: str = "",
    *,
    observed: Observed | None = None,
    events: "pl.DataFrame | None" = None,
    quality: Quality | None = None,
    origin: str | None = None,
) -> Imported:
    """The same trace with other jobs and one note more; what is not given stays."""
    made = Imported(
        jobs,
        observed=imported.observed if observed is None else observed,
        events=imported.events if events is None else events,
        cluster=imported.cluster,
        quality=quality or imported.quality,
        name=imported.name,
        origin=imported.origin if origin is None else origin,
        notes=[*imported.notes, *filter(None, [note])],
    )
    made.rank_nodes, made.queues = imported.rank_nodes, imported.queues
    return made


def scale_load(imported: Imported, factor: float) -> Imported:
    """The same jobs `factor` times as densely: submissions and cluster events are divided by it.

    Deadlines keep their distance from the submission. The observed schedule belongs to the old
    times and is left out.
    """
    import polars as pl

    if not 0 < factor < INF:
        raise OptionError(f"scale-load {factor:g}: is not above 0: 2 doubles the load, 0.5 halves")
    submit_s = pl.col("submit_s") / factor
    later_s = pl.col("deadline_s") - pl.col("submit_s")
    jobs = imported.jobs.with_columns(submit_s=submit_s, deadline_s=submit_s + later_s)
    events = imported.events.with_columns(pl.col("time_s") / factor)
    if not (jobs["submit_s"].is_finite().all() and events["time_s"].is_finite().all()):
        raise OptionError(f"scale-load {factor:g}: times become endless: give a larger factor")
    lost = "; the observed schedule was left out" if len(imported.observed) else ""
    return with_jobs(
        imported, jobs, f"scale-load {factor:g}{lost}", observed=Observed(), events=events
    )


def window(imported: Imported, from_s: float, to_s: float) -> Imported:
    """Only jobs submitted in [from_s, to_s) of the trace's clock; `from_s` becomes second 0.

    Capacities and outages at the beginning are those of that moment.
    """
    import polars as pl

    inside = pl.col("submit_s").is_between(from_s, to_s, closed="left")
    if not imported.jobs.select(inside.any()).item():
        low_s, high_s = imported.jobs.select(low=pl.min("submit_s"), high=pl.max("submit_s")).row(0)
        raise OptionError(
            f"window {from_s:g}:{to_s:g}: keeps none of {len(imported):,} jobs, which were "
            f"submitted from {low_s or 0.0:.15g} to {high_s or 0.0:.15g} s: cut there"
        )
    kept = _only(imported, inside, "outside the window", f"window {from_s:g}:{to_s:g}")
    jobs = kept.jobs.with_columns(pl.col("submit_s", "deadline_s") - from_s)
    observed = kept.observed.frame.with_columns(pl.col("start_s", "end_s") - from_s)
    return with_jobs(
        kept,
        jobs,
        observed=Observed(observed),
        events=_events(imported.events, from_s, to_s),
        origin=later(imported.origin, from_s),
    )


def sample_users(imported: Imported, share: float, seed: int) -> Imported:
    """All jobs of a share of the users; a smaller share keeps some of those of a larger one."""
    import polars as pl

    if not 0 < share <= 1:
        raise OptionError(f"sample-users {share:g}: is not a share: give more than 0, at most 1")
    users = imported.jobs["user"].unique().sort().to_list()
    if users == [""]:
        raise OptionError(
            f"sample-users: {imported.name or 'the trace'} does not say who submitted a job: "
            f"cut a --window instead"
        )
    chosen = [user for user in users if chance(seed, "users", user) < share]
    note = f"sample-users {share:g} seed {seed}: {len(chosen)} of {len(users)} users"
    return _only(imported, pl.col("user").is_in(chosen), "users not sampled", note)


def parse_window(text: str) -> tuple[float, float]:
    """`FROM:TO` in seconds or with a unit (90, 30m, 12h, 2d, 1w); an empty end is open."""
    start, colon, end = text.partition(":")
    from_s = _seconds(f"window {text!r}", start) if start else 0.0
    to_s = _seconds(f"window {text!r}", end) if end else INF
    if not colon or from_s >= to_s:
        raise OptionError(f"window {text!r}: write FROM:TO with FROM before TO, e.g. 1d:8d")
    return from_s, to_s


def parse_offset(text: str) -> float:
    """Seconds of `90`, `30m`, `12h`, `2d`, `1w`; with a minus it is earlier."""
    text = text.strip()
    sign = -1.0 if text.startswith("-") else 1.0
    return sign * _seconds(f"offset {text!r}", text.removeprefix("-"))


def _seconds(what: str, text: str) -> float:
    match = _TIME.fullmatch(text.strip())
    if not match:
        raise OptionError(f"{what}: {text!r} is not a time: give seconds or 30m, 12h, 2d, 1w")
    return float(match[1]) * _UNITS_S[match[2]]


def _only(imported: Imported, which: "pl.Expr", why: str, note: str) -> Imported:
    """Only some jobs, without dependencies on others; the rest is counted as dropped."""
    numbered = imported.jobs.with_row_index("_job").filter(which)
    if not numbered.height:
        raise OptionError(f"{note}: keeps none of {len(imported):,} jobs: ask for more")
    rows: Sequence[int] = numbered["_job"].to_list()
    frame = numbered.drop("_job")
    old = imported.quality
    gone = len(imported) - frame.height
    dropped = {**old.dropped, **({why: old.dropped.get(why, 0) + gone} if gone else {})}
    quality = Quality(old.rows, frame.height, dropped, dict(old.repaired))
    frame, lost = without_lost(frame)
    if lost:
        quality.repaired["dependency on a job that was left out removed"] = lost
    return with_jobs(imported, frame, note, observed=imported.observed.only(rows), quality=quality)


def _events(events: "pl.DataFrame", from_s: float, to_s: float) -> "pl.DataFrame":
    import polars as pl

    about = (pl.col("kind") == CAPACITY).alias("_about")
    before = events.filter(pl.col("time_s") < from_s)
    state = before.group_by(about, "subject", maintain_order=True).last().select(events.columns)
    later = events.filter(pl.col("time_s").is_between(from_s, to_s, closed="left"))
    moved = (pl.col("time_s") - from_s).clip(lower_bound=0.0)
    return pl.concat([state, later]).with_columns(moved)


def later(origin: str, seconds: float) -> str:
    """What second 0 is on the trace's own clock after a shift."""
    if origin.endswith(" s"):
        return f"{float(origin[:-2]) + seconds:.15g} s"
    try:
        return str(datetime.fromisoformat(origin) + timedelta(seconds=seconds))
    except (ValueError, OverflowError):
        return ""
