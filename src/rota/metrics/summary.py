"""The numbers of a run: `summary.json`.

Averages and percentiles are over *completed* jobs (state done) of the window; percentiles are
interpolated linearly between the two nearest ranks (rank = q * (n - 1)). Numbers that need a
completed job are null when there is none.

- `jobs`: jobs in the window; `completed`: of them done; `censored`: of them unfinished when the
  run ended; `states`: how many are in each state;
- `makespan_s`: from the first submission to the last end (done, failed or cancelled) in the window;
- `avg_bounded_slowdown`, `p99_bounded_slowdown`: of max(jct / max(run, 10 s), 1), where run is the
  run time with what the job asked for (`work_s`); where nobody knows it, it is jct - wait - lost,
  the time in which the job made progress that was not lost;
- `gpu_utilisation`: useful GPU-seconds less those whose work was lost / GPU-seconds of nodes that
  were up, of all jobs, from the first submission to the last end in the window (`ledger` has the
  parts);
- `gpu_allocation`: the same of allocated GPU-seconds, overhead included;
- `fragmentation`: the same of fragmented GPU-seconds: GPUs that idle while a job waits for which
  enough are free, but not on as few nodes as it needs (whatever reasons the policy gave);
- `frag_amount`, `frag_ratio`: free GPUs that are of no use for the jobs that usually come, of all
  GPUs and of the free ones, see below; null for a log alone, which does not tell what is usual;
- `free_on_used_nodes`: of the free GPU-seconds, the share on nodes that were partly in use; null
  when a placement takes GPUs from a pool, so that nobody knows where they are;
- `avg_rho`, `p99_rho`, `max_rho`: finish-time fairness, see below; `jain_tenants`: Jain's index
  over tenants, see below;
- `with_deadline`, `deadline_misses`, `deadline_miss_share`: jobs with a deadline whose fate is
  known, those of them that were not done by then, and their share; `avg_tardiness_s`,
  `max_tardiness_s`: by how much those that are done were too late; all null for a log alone, which
  does not hold the deadlines;
- `delay`: seconds that the completed jobs waited, by reason; the parts add up to
  `avg_wait_s * completed`;
- `preemptions`, `migrations`, `resizes`: of all jobs in the window; `evictions`: times that a
  failure of a node stopped one of them;
- `events`, `decisions`: of the whole run, as its END row tells.
"""

from typing import Any

import numpy as np
import polars as pl

from rota.core.eventlog import Bools, Floats
from rota.core.log import Record
from rota.metrics.deadlines import fold_deadlines
from rota.metrics.delay import REASONS, total_delay
from rota.metrics.fairness import finish_time_fairness, slowdowns, tenant_jain
from rota.metrics.fragmentation import free_on_used_nodes
from rota.metrics.fragments import Fragments, averages
from rota.metrics.history import History, read_history
from rota.metrics.jobs import STATES, UNFINISHED, count_of, fold_jobs
from rota.metrics.ledger import active_range, fold_ledger, lost_work_s
from rota.metrics.window import Window

PERCENTILES = (50, 95, 99)


def fold_summary(
    log: pl.DataFrame | History,
    *,
    window: Window | None = None,
    jobs: pl.DataFrame | None = None,
    deadlines_s: Floats | None = None,
    fragments: Fragments | None = None,
) -> dict[str, Any]:
    """The summary of a log, or of some of its jobs.

    Args:
        log: The log or its history.
        window: The jobs that count; all by default.
        jobs: The table of all jobs if it is there already.
        deadlines_s: Of all jobs, inf for none; the log does not hold them.
        fragments: From `fold_fragments`, which needs the cluster and the workload.
    """
    history = read_history(log)
    table = fold_jobs(history) if jobs is None else jobs
    chosen = (window or Window()).chooses(table)
    inside = _only(table, chosen)
    done = chosen & (table["state"] == "done").to_numpy()
    completed = _only(table, done)
    delay = total_delay(history, done)
    range_s = _range(history, inside, window)
    ledger = fold_ledger(history, *range_s)
    lost_s = lost_work_s(history)
    counts = dict(inside["state"].value_counts().iter_rows())
    events, decisions = _end(history)
    return {
        "jobs": inside.height,
        "completed": completed.height,
        "censored": counts.get(UNFINISHED, 0),
        **_times(completed),
        "makespan_s": _makespan_s(inside),
        **_slowdown(completed, lost_s[done]),
        **_shares(ledger),
        **averages(history, fragments, *range_s),
        "free_on_used_nodes": free_on_used_nodes(history, *range_s),
        **_fairness(history, table, done, lost_s),
        **fold_deadlines(table, chosen, deadlines_s, history.end_s),
        "preemptions": int(inside["preemptions"].sum()),
        "migrations": int(inside["migrations"].sum()),
        "resizes": int(inside["resizes"].sum()),
        "evictions": int(count_of(history, Record.EVICTED)[history.is_job][chosen].sum()),
        "events": events,
        "decisions": decisions,
        "states": {name: counts.get(name, 0) for name in (*STATES.values(), UNFINISHED)},
        "delay": dict(zip(REASONS, delay.tolist(), strict=True)),
        "ledger": ledger,
        "measured": _measured(window, range_s),
    }


def _only(table: pl.DataFrame, chosen: Bools) -> pl.DataFrame:
    """These rows; all of them, as they nearly always are, are no copy."""
    return table if chosen.all() else table.filter(pl.Series(chosen))


def _times(completed: pl.DataFrame) -> dict[str, float | None]:
    jct_s = completed["jct_s"].to_numpy()
    percentiles = {f"p{q}_jct_s": percentile(jct_s, q) for q in PERCENTILES}
    return {
        "avg_jct_s": _mean(jct_s),
        **percentiles,
        "avg_wait_s": _mean(completed["wait_s"].to_numpy()),
        "p50_wait_s": percentile(completed["wait_s"].to_numpy(), 50),
        "p95_wait_s": percentile(completed["wait_s"].to_numpy(), 95),
    }


def percentile(values: Floats, q: float) -> float | None:
    """Interpolated linearly between the nearest ranks; None when there are no values."""
    return float(np.percentile(values, q, method="linear")) if len(values) else None


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _slowdown(completed: pl.DataFrame, lost_s: Floats) -> dict[str, float | None]:
    slower = slowdowns(completed, lost_s)
    return {
        "avg_bounded_slowdown": _mean(slower),
        "p99_bounded_slowdown": percentile(slower, 99),
    }


def _shares(ledger: dict[str, float]) -> dict[str, float | None]:
    whole = ledger["capacity_gpu_s"]
    kept = max(ledger["useful_gpu_s"] - ledger["lost_gpu_s"], 0.0)
    return {
        "gpu_utilisation": _ratio(kept, whole),
        "gpu_allocation": _ratio(ledger["allocated_gpu_s"], whole),
        "fragmentation": _ratio(ledger["fragmented_gpu_s"], whole),
    }


def _fairness(
    history: History, table: pl.DataFrame, done: Bools, lost_s: Floats
) -> dict[str, float | None]:
    gpus = float(history.nodes.gpus.sum())
    rho = finish_time_fairness(table, gpus, history.end_s, lost_s)[done]
    return {
        "avg_rho": _mean(rho),
        "p99_rho": percentile(rho, 99),
        "max_rho": percentile(rho, 100),
        "jain_tenants": tenant_jain(_only(table, done), lost_s[done]),
    }


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
    rows = history.rows_of(Record.END)
    return (int(history.ref[rows[-1]]), int(history.other[rows[-1]])) if len(rows) else (0, 0)


def _measured(window: Window | None, range_s: tuple[float, float]) -> dict[str, Any]:
    window = window or Window()
    return {"window": window.describe(), "from_s": range_s[0], "until_s": range_s[1]}
