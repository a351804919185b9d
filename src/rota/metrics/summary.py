"""The numbers of a run: `summary.json`.

Averages and percentiles are over *completed* jobs (state done) of the window; percentiles are
interpolated linearly between the two nearest ranks (rank = q * (n - 1)). Numbers that need a
completed job are null when there is none.

- `jobs`: jobs in the window; `completed`: of them done; `censored`: of them unfinished when the
  run ended; `states`: how many are in each state;
- `makespan_s`: from the first submission to the last end (done, failed or cancelled) in the window;
- `avg_bounded_slowdown`: mean of max(jct / max(run, 10 s), 1), where run = jct - wait is the time
  in which the job made progress;
- `gpu_utilisation`: useful GPU-seconds / GPU-seconds of nodes that were up, of all jobs, from the
  first submission to the last end in the window (`ledger` has the parts);
- `delay`: seconds that the completed jobs waited, by reason; the parts add up to
  `avg_wait_s * completed`;
- `preemptions`, `migrations`: of all jobs in the window;
- `events`, `decisions`: of the whole run, as its END row tells.
"""

from typing import Any

import numpy as np
import polars as pl

from rota.core.events import Record
from rota.metrics.delay import REASONS, fold_delay
from rota.metrics.history import Floats, History, read_history
from rota.metrics.jobs import STATES, UNFINISHED, fold_jobs
from rota.metrics.ledger import active_range, fold_ledger
from rota.metrics.window import Window

SHORTEST_RUN_S = 10.0  # of the bounded slowdown: shorter runs count as this long
PERCENTILES = (50, 95, 99)


def fold_summary(
    log: pl.DataFrame | History,
    *,
    window: Window | None = None,
    jobs: pl.DataFrame | None = None,
) -> dict[str, Any]:
    """The summary of a log, or of some of its jobs (`jobs`: their table if it is there already)."""
    history = read_history(log)
    table = fold_jobs(history) if jobs is None else jobs
    chosen = (window or Window()).chooses(table)
    inside = table.filter(pl.Series(chosen))
    done = chosen & (table["state"] == "done").to_numpy()
    completed = table.filter(pl.Series(done))
    delay = fold_delay(history)[done].sum(axis=0)
    range_s = _range(history, inside, window)
    ledger = fold_ledger(history, *range_s)
    counts = dict(inside["state"].value_counts().iter_rows())
    events, decisions = _end(history)
    return {
        "jobs": inside.height,
        "completed": completed.height,
        "censored": counts.get(UNFINISHED, 0),
        **_times(completed),
        "makespan_s": _makespan_s(inside),
        "avg_bounded_slowdown": _bounded_slowdown(completed),
        "gpu_utilisation": _ratio(ledger["useful_gpu_s"], ledger["capacity_gpu_s"]),
        "preemptions": int(inside["preemptions"].sum()),
        "migrations": int(inside["migrations"].sum()),
        "events": events,
        "decisions": decisions,
        "states": {name: counts.get(name, 0) for name in (*STATES.values(), UNFINISHED)},
        "delay": dict(zip(REASONS, delay.tolist(), strict=True)),
        "ledger": ledger,
        "measured": _measured(window, range_s),
    }


def _times(completed: pl.DataFrame) -> dict[str, float | None]:
    jct_s = completed["jct_s"].to_numpy()
    percentiles = {f"p{q}_jct_s": percentile(jct_s, q) for q in PERCENTILES}
    return {
        "avg_jct_s": _mean(jct_s),
        **percentiles,
        "avg_wait_s": _mean(completed["wait_s"].to_numpy()),
    }


def percentile(values: Floats, q: float) -> float | None:
    """Interpolated linearly between the nearest ranks; None when there are no values."""
    return float(np.percentile(values, q, method="linear")) if len(values) else None


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _bounded_slowdown(completed: pl.DataFrame) -> float | None:
    jct_s = completed["jct_s"].to_numpy()
    run_s = jct_s - completed["wait_s"].to_numpy()
    return _mean(np.maximum(jct_s / np.maximum(run_s, SHORTEST_RUN_S), 1.0))


def _makespan_s(inside: pl.DataFrame) -> float | None:
    submits_s, ends_s = inside["submit_s"].to_numpy(), inside["end_s"].drop_nulls().to_numpy()
    return float(ends_s.max() - submits_s.min()) if len(ends_s) else None


def _range(history: History, inside: pl.DataFrame, window: Window | None) -> tuple[float, float]:
    """From the window's first submission to its last end."""
    first_s, last_s = active_range(history)
    if window is None or window.whole or not inside.height:
        return first_s, last_s
    submit_s, end_s = inside["submit_s"].min(), inside["end_s"].max()
    if end_s is None or (inside["state"] == UNFINISHED).any():
        end_s = last_s
    return float(submit_s), float(end_s)  # type: ignore[arg-type]  # both are numbers


def _end(history: History) -> tuple[int, int]:
    rows = np.flatnonzero(history.event == Record.END)
    return (int(history.ref[rows[-1]]), int(history.other[rows[-1]])) if len(rows) else (0, 0)


def _measured(window: Window | None, range_s: tuple[float, float]) -> dict[str, Any]:
    window = window or Window()
    return {"window": window.describe(), "from_s": range_s[0], "until_s": range_s[1]}
