"""How evenly a cluster treats jobs and tenants.

*Finish-time fairness* of a completed job is rho = jct / alone, as Themis (NSDI 2020) has it: the
time that the job took, relative to the time that it would have taken on a cluster of its own, a
part 1 / N of the real one. Above 1 the job was better off without sharing. Here

- N is the number of active jobs (submitted, not over) of the run, averaged over the job's life;
- a part 1 / N has G / N of the cluster's G GPUs (all nodes, also those that are down), and a job
  that asked for g of them is slower there by the factor max(1, g * N / G): speed is taken to be
  proportional to GPUs, and a job that fits its part is not slowed down at all;
- alone = run * max(1, g * N / G), where run is its run time with what it asked for, as in the
  bounded slowdown; run and jct count as at least 10 s, as there.

N depends on the policy: one that lets jobs pile up makes everybody's part smaller.

The *run time with what it asked for* (`work_s`) is how long a job takes on the GPUs that it asked
for, undisturbed. It does not depend on the policy: a job that was given twice as many GPUs and took
half as long was not slowed down less than one that had what it wanted. Where nobody knows it (on a
real cluster, or in a log alone) it is jct - wait - lost, the time of progress that was not lost.

*Jain's index* over tenants is (sum x)^2 / (n * sum x^2), where x is the mean bounded slowdown of
the completed jobs of a tenant and n the number of tenants with such jobs: 1 when all tenants are
slowed down alike, 1 / n when one of them bears it all. With fewer than two tenants there is none.
"""

import numpy as np
import polars as pl

from rota.core.eventlog import Bools, Floats, add_up

SHORTEST_RUN_S = 10.0  # shorter runs count as this long


def slowdowns(jobs: pl.DataFrame, lost_s: Floats | float = 0.0) -> Floats:
    """The bounded slowdown of each job of the table: max(jct / max(run, 10 s), 1).

    Args:
        jobs: The table.
        lost_s: Work of each of them that had to be done again: it does not count as run.
    """
    jct_s = _column(jobs, "jct_s")
    run_s = _undisturbed_s(jobs, lost_s)
    slower: Floats = np.maximum(jct_s / np.maximum(run_s, SHORTEST_RUN_S), 1.0)
    return slower


def _undisturbed_s(jobs: pl.DataFrame, lost_s: Floats | float) -> Floats:
    """Run times with what was asked for; where they are not known, the time of progress."""
    ran_s = _column(jobs, "jct_s") - _column(jobs, "wait_s") - lost_s
    if "work_s" not in jobs.columns:  # a table that an earlier Rota wrote
        return ran_s
    work_s = _column(jobs, "work_s")
    known: Floats = np.where(np.isnan(work_s), ran_s, work_s)
    return known


def finish_time_fairness(
    jobs: pl.DataFrame, gpus: float, end_s: float, lost_s: Floats | float = 0.0
) -> Floats:
    """Rho of every job of the whole table; NaN for those without a JCT.

    Args:
        jobs: The table of all jobs of a run.
        gpus: Of the whole cluster.
        end_s: When the log ends: until then unfinished jobs are active.
        lost_s: Work of each of them that had to be done again: it does not count as run.
    """
    jct_s = _column(jobs, "jct_s")
    run_s = _undisturbed_s(jobs, lost_s)
    others = _average_active(jobs, end_s)
    share = np.maximum(1.0, _column(jobs, "gpus") * others / gpus) if gpus else 1.0
    rho: Floats = np.maximum(jct_s, SHORTEST_RUN_S) / (np.maximum(run_s, SHORTEST_RUN_S) * share)
    return rho


def jain(values: Floats) -> float | None:
    """Jain's index; None for fewer than two values."""
    if len(values) < 2 or not values.any():  # noqa: PLR2004 - of one there is nothing to be fair to
        return None
    return float(values.sum() ** 2 / (len(values) * (values**2).sum()))


def tenant_jain(jobs: pl.DataFrame, lost_s: Floats | float = 0.0) -> float | None:
    """Jain's index of the tenants' mean slowdowns; the table holds completed jobs only."""
    tenant = jobs["tenant"].rank("dense").to_numpy().astype(np.int64) - 1
    if not len(tenant):
        return None
    return jain(add_up(tenant, slowdowns(jobs, lost_s)) / np.bincount(tenant))


def _average_active(jobs: pl.DataFrame, end_s: float) -> Floats:
    """Jobs that are active, averaged over the life of each job."""
    submit_s, over_s = _column(jobs, "submit_s"), _column(jobs, "end_s")
    over_s = np.where(np.isnan(over_s), end_s, over_s)
    counts: Bools = (jobs["state"] != "rejected").to_numpy()
    if not counts.any():
        return np.ones(len(submit_s))
    times_s = np.concatenate([submit_s[counts], over_s[counts]])
    change = np.repeat([1.0, -1.0], int(counts.sum()))
    order = np.argsort(times_s, kind="stable")
    times_s, active = times_s[order], np.cumsum(change[order])
    area = np.concatenate([[0.0], np.cumsum(active[:-1] * np.diff(times_s))])
    life_s = over_s - submit_s
    within = np.interp(over_s, times_s, area) - np.interp(submit_s, times_s, area)
    average: Floats = np.divide(within, life_s, out=np.ones_like(life_s), where=life_s > 0)
    return average


def _column(jobs: pl.DataFrame, name: str) -> Floats:
    """Numbers; NaN where there is none."""
    return jobs[name].to_numpy().astype(np.float64, copy=False)
