"""Fairness among jobs and tenants, worked out by hand."""

import math

import numpy as np
import polars as pl
import pytest

from rota.metrics import fold_jobs, fold_summary
from rota.metrics.fairness import finish_time_fairness, jain, slowdowns, tenant_jain


def jobs(*rows):
    """Return a table of (submit, end, wait, GPUs, tenant); end None: unfinished."""
    submits, ends, waits, gpus, tenants = zip(*rows, strict=True)
    pairs = list(zip(submits, ends, strict=True))
    return pl.DataFrame(
        {
            "submit_s": pl.Series(submits, dtype=pl.Float64),
            "end_s": pl.Series(ends, dtype=pl.Float64),
            "jct_s": pl.Series([e if e is None else e - s for s, e in pairs], dtype=pl.Float64),
            "wait_s": pl.Series(waits, dtype=pl.Float64),
            "gpus": pl.Series(gpus, dtype=pl.Float64),
            "tenant": list(tenants),
            "state": ["unfinished" if end is None else "done" for end in ends],
        }
    )


def test_a_job_alone_is_treated_fairly():
    assert finish_time_fairness(jobs((0, 100, 0, 4, "")), 4, 100).tolist() == [1]


def test_two_jobs_that_each_want_all_have_a_right_to_half():
    """Both are there during the first job's life; the second is alone for half of its own."""
    table = jobs((0, 100, 0, 4, ""), (0, 200, 100, 4, ""))

    # own half: 100 s on 2 of 4 GPUs take 200 s; the second shares with 1.5 jobs on average
    assert finish_time_fairness(table, 4, 200) == pytest.approx([100 / 200, 200 / 150])


def test_a_job_that_fits_its_part_is_not_slowed_down_by_it():
    table = jobs((0, 100, 0, 1, ""), (0, 300, 200, 1, ""))

    assert finish_time_fairness(table, 4, 300) == pytest.approx([1, 3])


def test_unfinished_jobs_compete_and_have_no_fairness_of_their_own():
    rho = finish_time_fairness(jobs((0, 100, 0, 4, ""), (50, None, None, 4, "")), 4, 150)

    assert rho[0] == pytest.approx(100 / 150)
    assert math.isnan(rho[1])


def test_rejected_jobs_do_not_compete():
    table = jobs((0, 100, 0, 4, ""), (0, None, None, 4, ""))
    rejected = table.with_columns(state=pl.Series(["done", "rejected"]))

    assert finish_time_fairness(rejected, 4, 100)[0] == 1
    assert math.isnan(finish_time_fairness(rejected[1:], 4, 100)[0])


def test_short_jobs_count_as_ten_seconds():
    table = jobs((0, 2, 0, 1, ""), (0, 30, 28, 1, ""))

    assert finish_time_fairness(table, 4, 30) == pytest.approx([1, 3])
    assert slowdowns(table).tolist() == [1, 3]


@pytest.mark.parametrize(
    ("values", "index"),
    [([2, 2, 2], 1.0), ([1, 0, 0, 0], 0.25), ([1, 3], 16 / 20), ([5], None), ([0, 0], None)],
)
def test_jain(values, index):
    assert jain(np.array(values, dtype=float)) == index


def test_tenants_are_compared_by_their_mean_slowdown():
    table = jobs((0, 20, 0, 1, "a"), (0, 60, 40, 1, "a"), (0, 40, 20, 1, "b"), (0, 120, 60, 1, "b"))

    # a: 1 and 3, b: 2 and 2
    assert tenant_jain(table) == 1
    assert tenant_jain(table[1:]) == pytest.approx(jain(np.array([3.0, 2.0])))
    assert tenant_jain(table[:2]) is None
    assert tenant_jain(table[:0]) is None


def test_the_summary_has_them(script):
    script.submit(0, 4).submit(1, 4, tenant=1).start(0, 4)
    script.at(100).row("done", 0).start(1, 4).at(200).row("done", 1)
    log = script.end()
    summary = fold_summary(log)

    rho = [100 / 200, 200 / 150]
    assert finish_time_fairness(fold_jobs(log), 4, 200) == pytest.approx(rho)
    assert summary["avg_rho"] == pytest.approx(sum(rho) / 2)
    assert summary["max_rho"] == pytest.approx(rho[1])
    assert summary["p99_rho"] == pytest.approx(rho[0] + 0.99 * (rho[1] - rho[0]))
    assert summary["jain_tenants"] == pytest.approx(jain(np.array([1.0, 2.0])))
    assert summary["p95_wait_s"] == pytest.approx(95)
    assert summary["p99_bounded_slowdown"] == pytest.approx(1.99)


def test_an_empty_summary_has_none(script):
    summary = fold_summary(script.submit(0).row("rejected", 0).end())

    assert summary["avg_rho"] is summary["jain_tenants"] is summary["p95_wait_s"] is None


def test_lost_work_is_no_run():
    table = jobs((0, 100, 20, 4, ""))

    assert slowdowns(table, np.array([30.0])).tolist() == [2]
    assert finish_time_fairness(table, 4, 100, np.array([30.0])) == pytest.approx([2])


def test_more_gpus_than_asked_for_are_no_smaller_slowdown():
    """Half the time on twice the GPUs: beside one that had what it wanted, nobody was slowed."""
    table = jobs((0, 50, 0, 4, ""), (0, 150, 50, 4, ""), (0, 400, 0, 4, ""))
    known = table.with_columns(work_s=pl.Series([100.0, 100.0, 100.0]))

    assert slowdowns(known).tolist() == [1, 1.5, 4]  # the last one had a quarter of its GPUs
    assert slowdowns(table).tolist() == [1, 1.5, 1]  # where nobody knows what it was to take
    assert finish_time_fairness(known[2:], 4, 400).tolist() == [4]


def test_work_that_is_not_known_is_the_time_of_progress():
    table = jobs((0, 100, 20, 4, ""), (0, 100, 20, 4, ""))
    known = table.with_columns(work_s=pl.Series([50.0, None]))

    assert slowdowns(known, np.array([0.0, 40.0])).tolist() == [2, 2.5]
