"""The tables behind the figures: pure functions of an event log or a table of jobs.

Series over time are *steps*: the values of a row hold from its `time_s` until that of the next row,
from the first submission to the last end of a job. `binned` means keep all sums.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl

from rota.core.errors import OptionError
from rota.core.eventlog import Bools, Floats
from rota.metrics import History, Window, fold_summary, read_history
from rota.metrics.delay import REASONS
from rota.metrics.history import OVERHEAD, RUNS, WAITS
from rota.metrics.ledger import active_range
from rota.study.compare_file import PolicyComparison

Log: TypeAlias = pl.DataFrame | History
Column: TypeAlias = Literal["jct_s", "wait_s"]
TIMES = ("jct_s", "wait_s")
BINS = 200
NO_TENANT = "(none)"


def cdf(jobs: pl.DataFrame, column: str = "jct_s", window: Window | None = None) -> pl.DataFrame:
    """Share of completed jobs whose time is at most so long.

    Args:
        jobs: The table of jobs.
        column: `jct_s` or `wait_s`.
        window: Which jobs; by default all.

    Returns:
        Columns `column` (ascending, each value once) and `share` (ends at 1).
    """
    if column not in TIMES:
        raise OptionError(f"column {column!r} has no distribution: use {' or '.join(TIMES)}")
    chosen = (window or Window()).chooses(jobs)
    times = jobs.filter(pl.Series(chosen), pl.col("state") == "done")[column].drop_nulls()
    values, counts = np.unique(times.to_numpy(), return_counts=True)
    share = np.cumsum(counts) / max(len(times), 1)
    return pl.DataFrame({column: values, "share": share}, schema_overrides={column: pl.Float64})


def utilisation(log: Log, bins: int | None = None) -> pl.DataFrame:
    """GPUs by use over time.

    Args:
        log: The event log or its history.
        bins: Means over so many equal bins instead of every step.

    Returns:
        Columns `time_s`, `capacity` (of nodes that are up), `allocated`, `useful` (of jobs that
        make progress), `down` (of nodes that are not up).
    """
    history = read_history(log)
    useful = (history.state == RUNS) & (history.held > 0)
    overhead = (history.state == OVERHEAD) & (history.held > 0)
    total, down = _down(history)
    series = {
        "useful": _spans(history, useful, history.held),
        "overhead": _spans(history, overhead, history.held),
        "down": down,
    }
    table = _series(history, series, bins)
    return table.select(
        "time_s",
        capacity=total - pl.col("down"),
        allocated=pl.col("useful") + pl.col("overhead"),
        useful="useful",
        down="down",
    )


def queue(log: Log, bins: int | None = None) -> pl.DataFrame:
    """Jobs (of non-gang jobs: tasks) by what they do over time.

    Args:
        log: The event log or its history.
        bins: Means over so many equal bins instead of every step.

    Returns:
        Columns `time_s`, `waiting`, `overhead` (being started, stopped or moved), `running`.
    """
    history = read_history(log)
    ones = np.ones(len(history.state))
    series = {
        name: _spans(history, (history.state == state) & history.acting, ones)
        for name, state in (("waiting", WAITS), ("overhead", OVERHEAD), ("running", RUNS))
    }
    return _series(history, series, bins)


def tenant_shares(log: Log, bins: int = BINS) -> pl.DataFrame:
    """GPUs in the hands of each tenant over time; together they are what is allocated.

    Args:
        log: The event log or its history.
        bins: How many equal bins.

    Returns:
        A row per tenant and bin, by tenant: `tenant`, `from_s`, `until_s`, `gpus` (mean over the
        bin), `share` (of the GPUs of nodes that are up).
    """
    history = read_history(log)
    names, of_actor = _tenants(history)
    holds = history.held > 0
    edges = even_edges(history, bins)
    whole = binned(
        (history.from_s[holds], history.until_s[holds], history.held[holds]),
        edges,
        of_actor[history.actor[holds]],
        len(names),
    )
    length_s = np.diff(edges)
    total, down = _down(history)
    capacity = total - binned(down, edges)[0] / length_s
    gpus = whole / length_s
    share = np.divide(gpus, capacity, out=np.zeros_like(gpus), where=capacity > 0)
    return pl.DataFrame(
        {
            "tenant": pl.Series(names, dtype=pl.String).gather(np.arange(len(names)).repeat(bins)),
            "from_s": np.tile(edges[:-1], len(names)),
            "until_s": np.tile(edges[1:], len(names)),
            "gpus": gpus.ravel(),
            "share": share.ravel(),
        }
    ).sort("tenant", "from_s")


def delay_parts(runs: Mapping[str, Log | Mapping[str, Any]]) -> pl.DataFrame:
    """Mean wait of the completed jobs of every run by reason; the parts add up to the mean wait.

    Args:
        runs: By policy (or any other name): a log, its history, or a summary of it.

    Returns:
        Columns `policy`, `reason`, `wait_s` (mean per job); every reason for every policy.
    """
    rows = []
    for policy, run in runs.items():
        summary = run if isinstance(run, Mapping) else fold_summary(run)
        jobs = max(summary["completed"], 1)
        rows += [(policy, reason, summary["delay"].get(reason, 0.0) / jobs) for reason in REASONS]
    schema = {"policy": pl.String, "reason": pl.String, "wait_s": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


# --- steps and bins ------------------------------------------------------------------------------

Spans: TypeAlias = tuple[Floats, Floats, Floats]
"""From when, until when, how much."""


def even_edges(history: History, bins: int) -> Floats:
    """The edges of equal bins over the time in which there are jobs."""
    if bins < 1:
        raise OptionError(f"bins {bins}: give 1 or more")
    from_s, until_s = active_range(history)
    return np.linspace(from_s, until_s if until_s > from_s else from_s + 1.0, bins + 1)


def binned(spans: Spans, edges: Floats, group: Any = None, groups: int = 1) -> Floats:
    """The integral of what the spans hold, by group and bin: amount times seconds, exactly."""
    from_s, until_s, amount = spans
    start_s = edges[0]
    at = np.concatenate([from_s, until_s]) - start_s
    change = np.concatenate([amount, -amount])
    slot = np.zeros(len(at), dtype=np.int64) if group is None else np.concatenate([group, group])
    # What changes before an edge counts at this edge; changes after the last one count nowhere.
    edge = np.searchsorted(edges - start_s, at, side="left")
    size = len(edges) + 1
    cells = slot * size + edge
    level = _grid(cells, change, groups, size)
    moment = _grid(cells, change * at, groups, size)
    integral = level * (edges - start_s) - moment
    areas: Floats = np.maximum(np.diff(integral, axis=1), 0.0)
    return areas


def _grid(cells: Any, weights: Floats, groups: int, size: int) -> Floats:
    """Sums up to every edge, by group."""
    table = np.bincount(cells, weights=weights, minlength=groups * size).reshape(groups, size)
    sums: Floats = np.cumsum(table[:, :-1], axis=1)
    return sums


def _spans(history: History, chosen: Bools, amount: Floats) -> Spans:
    return history.from_s[chosen], history.until_s[chosen], amount[chosen]


def _series(history: History, series: Mapping[str, Spans], bins: int | None) -> pl.DataFrame:
    """Sums of spans over time, in columns."""
    if bins is not None:
        edges = even_edges(history, bins)
        means = {name: binned(spans, edges)[0] / np.diff(edges) for name, spans in series.items()}
        last = {name: np.append(mean, mean[-1]) for name, mean in means.items()}
        return pl.DataFrame({"time_s": edges, **last})
    from_s, until_s = active_range(history)
    moments = [np.concatenate(spans[:2]) for spans in series.values()]
    times = np.unique(np.clip(np.concatenate([*moments, [from_s, until_s]]), from_s, until_s))
    return pl.DataFrame(
        {"time_s": times, **{name: _levels(spans, times) for name, spans in series.items()}}
    )


def _levels(spans: Spans, times: Floats) -> Floats:
    """The sum of the spans from each of the times on; the times hold every change in between."""
    from_s, until_s, amount = spans
    at = np.concatenate([from_s, until_s])
    change = np.concatenate([amount, -amount])
    slot = np.searchsorted(times, at)
    level = np.cumsum(np.bincount(slot, weights=change, minlength=len(times) + 1))[: len(times)]
    return np.where(np.abs(level) < 1e-9, 0.0, level)  # noqa: PLR2004 - sums of fractions


def _down(history: History) -> tuple[float, Spans]:
    """All GPUs, and when how many of them were on nodes that were not up."""
    nodes = history.nodes
    sizes = dict(zip(nodes.number.tolist(), nodes.gpus.tolist(), strict=True))
    rows = [row for row in history.outages() if row[0] in sizes]
    at = np.array([row[1:] for row in rows], dtype=np.float64).reshape(-1, 2)
    amount = np.array([sizes[row[0]] for row in rows], dtype=np.float64)
    return float(sum(sizes.values())), (at[:, 0], at[:, 1], amount)


def _tenants(history: History) -> tuple[list[str], Any]:
    """Names, and the number of each actor's tenant among them."""
    names = [name or NO_TENANT for name in history.tenants.values()]
    number = {ref: i for i, ref in enumerate(history.tenants)}
    table = np.zeros(max(number, default=0) + 1, dtype=np.int64)
    table[list(number)] = list(number.values())
    return names or [NO_TENANT], table[history.tenant]


# --- Tables of a comparison -----------------------------------------------------------------------


def ratios(comparison: PolicyComparison) -> pl.DataFrame:
    """Ratios to the baseline of every measure that has any.

    Returns:
        Columns `key`, `measure` (for people), `better` (`less`, `more` or null), `policy`, `ratio`,
        `low`, `high` (null: no interval), `verdict`, `clear` (the interval excludes 1, and is one
        over several runs).
    """
    rows = []
    proven = judged(comparison)
    for measure in comparison.measures:
        for row in comparison.rows:
            found = row.measures.get(measure.key)
            if row.policy == comparison.baseline or found is None or found.ratio is None:
                continue
            known = proven and found.low is not None and found.high is not None
            clear = known and not (found.low or 0.0) <= 1.0 <= (found.high or 0.0)
            rows.append(
                (
                    measure.key, measure.label, measure.better, row.policy, found.ratio, found.low,
                    found.high, found.verdict, clear,
                )
            )  # fmt: skip
    schema = {
        "key": pl.String, "measure": pl.String, "better": pl.String, "policy": pl.String,
        "ratio": pl.Float64, "low": pl.Float64, "high": pl.Float64, "verdict": pl.String,
        "clear": pl.Boolean,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=schema, orient="row")


def judged(comparison: PolicyComparison) -> bool:
    """Anything is said to be better, worse or unclear: not of one run alone."""
    return any(one.verdict for row in comparison.rows for one in row.measures.values())


def delays(comparison: PolicyComparison) -> pl.DataFrame:
    """Mean wait per completed job by policy and reason: the columns of `delay_parts`."""
    rows = [
        (row.policy, reason, row.delay.get(reason) or 0.0)
        for row in comparison.rows
        for reason in REASONS
    ]
    schema = {"policy": pl.String, "reason": pl.String, "wait_s": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")
