"""A small model of a trace, from which workloads like it are drawn (see `sampling`).

The model is one JSON file with these keys:

- `rota_fit`: version of the file;
- `source`, `jobs`, `span_s`: the trace, and what of it was fitted; `left_out`: jobs that were not,
  by reason;
- `levels`: shares between 0 and 1 to which all quantiles in the file belong;
- `arrivals`: `starts_s` is the first submission, in seconds since Monday 0:00; `hours` and `days`
  are rates by hour of the day and day of the week, 1 on average; `gaps` are quantiles of the time
  between submissions after these rates were divided out, in units of its mean; `correlation` is
  that of one gap with the next, by rank;
- `classes`: jobs of similar size: `sizes` (GPUs, jobs) and quantiles `durations_s`;
- `owners`: tenants and users with their jobs, the 1,000 busiest.

Nothing is assumed about the form of a distribution: quantiles are joined by straight lines (of the
logarithm, for durations). Durations depend on the size; owners depend on neither. Hours are fitted
from 3 days on and days of the week from 2 weeks on, since less would be noise. Gaps keep their own
distribution and how much one tells about the next: bursts longer than that are not kept.
"""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from rota.core.errors import OutputError, TraceError
from rota.traces.imported import Imported
from rota.traces.sources import read_bytes, replacing
from rota.traces.synth.draws import Floats

if TYPE_CHECKING:
    import polars as pl

VERSION = 1
HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S
WEEK_S = 7 * DAY_S
LEVELS = (
    0.0, 0.0001, 0.001, 0.002, 0.005, *(number / 100 for number in range(1, 100)), 0.995, 0.998,
    0.999, 0.9999, 1.0,
)  # fmt: skip

_LEAST_CLASS = 50  # jobs whose durations make a table of their own
_MOST_OWNERS = 1_000
_LEAST_RATE = 0.01
_LEAST_JOBS = 10


class ArrivalModel(msgspec.Struct, frozen=True):
    """When jobs come."""

    starts_s: float
    hours: list[float]
    days: list[float]
    gaps: list[float]
    correlation: float = 0.0


class SizeClass(msgspec.Struct, frozen=True):
    """Jobs of similar size."""

    sizes: list[tuple[float, int]]
    durations_s: list[float]

    @property
    def jobs(self) -> int:
        """How many there are."""
        return sum(count for _, count in self.sizes)


class Owner(msgspec.Struct, frozen=True):
    """A user of a tenant."""

    vc: str
    user: str
    jobs: int


class TraceModel(msgspec.Struct, frozen=True):
    """The model; the module's docstring explains the fields."""

    rota_fit: int
    source: str
    jobs: int
    span_s: float
    left_out: dict[str, int]
    levels: list[float]
    arrivals: ArrivalModel
    classes: list[SizeClass]
    owners: list[Owner]


def fit(imported: Imported, *, source: str = "", anonymous: bool = False) -> TraceModel:
    """The model of a trace.

    Args:
        imported: The trace.
        source: What the model says about its origin; default: the name of the trace.
        anonymous: Tenants and users are called vc0, user0, ..., the busiest first.

    Raises:
        TraceError: It has too few jobs that ask for GPUs, or all are submitted at once.
    """
    import polars as pl

    jobs = imported.jobs
    asks, runs = pl.col("num_gpus") > 0, pl.col("duration_s") > 0
    frame = jobs.filter(asks & runs & pl.col("duration_s").is_finite()).sort("submit_s")
    without = jobs.filter(~asks).height
    left_out = {"without GPUs": without, "no duration": jobs.height - without - frame.height}
    submits_s = frame["submit_s"].to_numpy()
    if frame.height < _LEAST_JOBS or submits_s[0] == submits_s[-1]:
        raise TraceError(
            f"{imported.name or source}: {frame.height} jobs with GPUs and a duration are too few "
            f"to fit, or all come at once: give a trace of {_LEAST_JOBS} or more"
        )
    return TraceModel(
        VERSION,
        source or imported.name,
        frame.height,
        float(submits_s[-1] - submits_s[0]),
        {why: count for why, count in left_out.items() if count},
        list(LEVELS),
        _arrivals(submits_s, _monday_s(imported.origin)),
        _classes(frame["num_gpus"].to_numpy(), frame["duration_s"].to_numpy()),
        _owners(frame, anonymous=anonymous),
    )


def save_fit(model: TraceModel, path: Path, *, force: bool = False) -> None:
    """Write the model; the file appears whole or not at all.

    Raises:
        OutputError: The file is there or cannot be written.
    """
    if path.exists() and not force:
        raise OutputError(f"{path}: is there already: choose another name or use --force")
    with replacing(path) as part:
        part.write_bytes(as_text(model))


def as_text(model: TraceModel) -> bytes:
    """The content of the file."""
    return msgspec.json.format(msgspec.json.encode(model), indent=1) + b"\n"


def load_fit(path: Path) -> TraceModel:
    """Read a model.

    Raises:
        TraceError: It is not a model, of another version, or damaged.
    """
    try:
        model = msgspec.json.decode(read_bytes(path, TraceError), type=TraceModel)
    except msgspec.DecodeError as error:
        raise TraceError(
            f"{path}: is not the model of a trace ({error}): make one with `rota trace fit`"
        ) from error
    if model.rota_fit != VERSION:
        raise TraceError(
            f"{path}: has version {model.rota_fit}, this Rota knows {VERSION}: fit the trace again"
        )
    wrong = _problem(model)
    if wrong:
        raise TraceError(f"{path}: {wrong}: fit the trace again")
    return model


# --- the clock of a week -------------------------------------------------------------------------


def weekly(arrivals: ArrivalModel) -> Floats:
    """The rate in every hour of the week, 1 on average."""
    rates = np.outer(arrivals.days, arrivals.hours).ravel()
    rates = np.maximum(rates, _LEAST_RATE)
    return np.asarray(rates / rates.mean())


def expected(times_s: Floats, rates: Floats) -> Floats:
    """Integral of the rates from Monday 0:00 to these times."""
    edges_s, sums = _sums(rates)
    weeks, rest_s = np.divmod(times_s, WEEK_S)
    return np.asarray(weeks * WEEK_S + np.interp(rest_s, edges_s, sums))


def times(sums_wanted: Floats, rates: Floats) -> Floats:
    """The inverse of `expected`."""
    edges_s, sums = _sums(rates)
    weeks, rest = np.divmod(sums_wanted, WEEK_S)
    return np.asarray(weeks * WEEK_S + np.interp(rest, sums, edges_s))


def _sums(rates: Floats) -> tuple[Floats, Floats]:
    edges_s = np.arange(rates.size + 1, dtype=np.float64) * HOUR_S
    sums = np.concatenate([[0.0], np.cumsum(rates * HOUR_S)])
    sums[-1] = WEEK_S  # the rates are 1 on average; rounding must not open a gap
    return edges_s, sums


def _monday_s(origin: str) -> float:
    """Seconds from Monday 0:00 to second 0 of the trace; 0 when it has no dates."""
    try:
        time = datetime.fromisoformat(origin)
    except ValueError:
        return 0.0
    return time.weekday() * DAY_S + time.hour * HOUR_S + time.minute * 60.0 + time.second


# --- the parts -----------------------------------------------------------------------------------


def _arrivals(submits_s: Floats, monday_s: float) -> ArrivalModel:
    clock_s = submits_s + monday_s
    first_s, last_s = float(clock_s[0]), float(clock_s[-1])
    counts = np.bincount((clock_s % WEEK_S // HOUR_S).astype(int), minlength=168).reshape(7, 24)
    seconds = _exposure_s(first_s, last_s).reshape(7, 24)
    span_s = last_s - first_s
    hours = _rates(counts.sum(0), seconds.sum(0), enough=span_s >= 3 * DAY_S)
    days = _rates(counts.sum(1), seconds.sum(1), enough=span_s >= 2 * WEEK_S)
    arrivals = ArrivalModel(first_s % WEEK_S, hours, days, [])
    gaps = np.diff(expected(clock_s - first_s + first_s % WEEK_S, weekly(arrivals)))
    quantiles = np.quantile(gaps / gaps.mean(), LEVELS)
    return msgspec.structs.replace(
        arrivals, gaps=_rounded(quantiles), correlation=round(_rank_correlation(gaps), 4)
    )


def _exposure_s(first_s: float, last_s: float) -> Floats:
    """How many seconds of each hour of the week lie between two times."""
    weeks, rest_s = divmod(last_s - first_s, WEEK_S)
    edges_s = np.arange(2 * 168 + 1) * HOUR_S
    start_s = first_s % WEEK_S
    inside = np.diff(np.clip(edges_s, start_s, start_s + rest_s))
    return np.asarray(weeks * HOUR_S + inside.reshape(2, 168).sum(0))


def _rates(counts: Floats, seconds: Floats, *, enough: bool) -> list[float]:
    if not enough:
        return [1.0] * counts.size
    rates = counts / np.maximum(seconds, 1.0)
    return _rounded(rates / rates.mean())


def _rank_correlation(gaps: Floats) -> float:
    """Of each gap with the next; equal gaps share a rank."""
    _, inverse, counts = np.unique(gaps, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2.0)[inverse]
    if ranks.std() == 0:
        return 0.0
    scaled = (ranks - ranks.mean()) / ranks.std()
    return float((scaled[1:] * scaled[:-1]).mean())


def _classes(sizes: Floats, durations_s: Floats) -> list[SizeClass]:
    """Neighbouring sizes together until each class has enough jobs."""
    distinct, counts = np.unique(sizes, return_counts=True)
    groups: list[list[int]] = [[]]
    for number in range(distinct.size):
        if counts[groups[-1]].sum() >= _LEAST_CLASS:
            groups.append([])
        groups[-1].append(number)
    if len(groups) > 1 and counts[groups[-1]].sum() < _LEAST_CLASS:
        rest = groups.pop()
        groups[-1] += rest
    made = []
    for group in groups:
        chosen = durations_s[np.isin(sizes, distinct[group])]
        pairs = [(float(distinct[number]), int(counts[number])) for number in group]
        made.append(SizeClass(pairs, _rounded(np.quantile(chosen, LEVELS))))
    return made


def _owners(frame: "pl.DataFrame", *, anonymous: bool) -> list[Owner]:
    """The busiest, by jobs and then by name."""
    found = frame.group_by("vc", "user").len("jobs")
    found = found.sort("jobs", "vc", "user", descending=[True, False, False])
    owners = [Owner(*row) for row in found.head(_MOST_OWNERS).rows()]
    if not anonymous:
        return owners
    vcs = _aliases("vc", [owner.vc for owner in owners])
    users = _aliases("user", [owner.user for owner in owners])
    return [Owner(vcs[owner.vc], users[owner.user], owner.jobs) for owner in owners]


def _aliases(prefix: str, names: list[str]) -> dict[str, str]:
    said = dict.fromkeys(filter(None, names))
    return {"": "", **{name: f"{prefix}{number}" for number, name in enumerate(said)}}


def _rounded(values: Floats) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


# --- a file that someone edited ------------------------------------------------------------------


def _problem(model: TraceModel) -> str:
    """What is wrong with a model; empty: nothing."""
    return next((text for text, fine in _checks(model) if not fine), "")


def _checks(model: TraceModel) -> Iterator[tuple[str, bool]]:
    """What must hold, in an order in which each check may rely on those before it."""
    arrivals, levels, classes = model.arrivals, model.levels, model.classes
    ends = levels[:1] + levels[-1:]
    yield "its levels do not rise from 0 to 1", _rises(levels) and ends == [0.0, 1.0]
    tables = [arrivals.gaps, *(each.durations_s for each in classes)]
    long_enough = all(len(table) == len(levels) and _rises(table) for table in tables)
    yield "a table of quantiles does not rise, or not at all levels", long_enough
    rates = [*arrivals.hours, *arrivals.days]
    complete = (len(arrivals.hours), len(arrivals.days)) == (24, 7)
    yield "its rates are not those of 24 hours and 7 days", complete and min(rates) >= 0
    yield "its correlation is not between -1 and 1", -1 < arrivals.correlation < 1
    yield "its gaps are negative or all 0", arrivals.gaps[0] >= 0 and arrivals.gaps[-1] > 0
    yield "it has no sizes", bool(classes) and all(each.sizes for each in classes)
    least = (min(map(min, each.sizes)) for each in classes)
    yield "a size or its number of jobs is not above 0", min(least) > 0
    yield "a duration is not above 0", all(each.durations_s[0] > 0 for each in classes)
    yield "it has no owners", bool(model.owners) and all(owner.jobs > 0 for owner in model.owners)


def _rises(values: list[float]) -> bool:
    return bool(values) and bool((np.diff(values) >= 0).all())
