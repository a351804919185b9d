"""The tables behind the figures, on logs whose answer can be worked out by hand."""

import numpy as np
import polars as pl
import pytest

from rota.core.errors import OptionError
from rota.metrics import Window, fold_jobs, fold_ledger
from rota.report import cdf, delay_parts, queue, tenant_shares, utilisation


def area(table, column):
    """Integrate a series of steps."""
    return float(table[column].to_numpy()[:-1] @ np.diff(table["time_s"].to_numpy()))


def simple(script):
    script.at(10).submit(0, 2).submit(1, 1, tenant=1).start(0, (1, 2), since=12).start(1, (4, 1))
    script.at(12).row("run", 0).at(20).row("done", 1).at(30).row("done", 0)
    return script.at(99).end()


def test_the_distribution_counts_completed_jobs_only():
    jobs = pl.DataFrame(
        {
            "job_id": ["0", "1", "2", "3", "4"],
            "submit_s": [0.0, 0.0, 0.0, 0.0, 50.0],
            "jct_s": [5.0, 1.0, 5.0, 9.0, 3.0],
            "wait_s": [0.0, 0.0, 1.0, 2.0, 1.0],
            "state": ["done", "done", "done", "failed", "done"],
        }
    )

    assert cdf(jobs).rows() == [(1.0, 0.25), (3.0, 0.5), (5.0, 1.0)]
    assert cdf(jobs, "wait_s").rows() == [(0.0, 0.5), (1.0, 1.0)]
    assert cdf(jobs, window=Window(after_s=40)).rows() == [(3.0, 1.0)]
    assert cdf(jobs.head(0)).height == 0


def test_only_times_have_a_distribution(run_of):
    with pytest.raises(OptionError, match="'gpus' has no distribution: use jct_s or wait_s"):
        cdf(run_of().jobs, "gpus")


def test_gpus_by_use(script):
    table = utilisation(simple(script))

    assert table.columns == ["time_s", "capacity", "allocated", "useful", "down"]
    assert table.rows() == [(10, 4, 3, 1, 0), (12, 4, 3, 3, 0), (20, 4, 2, 2, 0), (30, 4, 0, 0, 0)]


def test_a_node_that_is_down_is_no_capacity(script):
    script.submit(0).start(0, (1, 1)).at(2).row("node_down", -1, 4).at(5).row("node_up", -1, 4)
    table = utilisation(script.at(8).row("done", 0).end())

    assert table.select("time_s", "capacity", "down").rows() == [
        (0, 4, 0), (2, 2, 2), (5, 4, 0), (8, 4, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("bins", [None, 1, 37, 500])
@pytest.mark.parametrize("policy", ["fifo", "las:limits=100/400"])
def test_use_adds_up_to_the_ledger(run_of, policy, bins):
    log = run_of(policy).log
    ledger, table = fold_ledger(log), utilisation(log, bins)

    for name in ("capacity", "allocated", "useful"):
        assert area(table, name) == pytest.approx(ledger[f"{name}_gpu_s"]), name
    assert area(table, "down") > 0  # nodes failed


def test_waiting_and_running_jobs(script):
    script.submit(0).submit(1).start(0, (1, 1), since=3).at(3).row("run", 0).at(5).row("done", 0)
    script.start(1, (1, 1)).at(6).row("done", 1)

    assert queue(script.end()).rows() == [(0, 1, 1, 0), (3, 1, 0, 1), (5, 0, 0, 1), (6, 0, 0, 0)]


def test_waiting_adds_up_to_the_waits_of_the_jobs(run_of):
    result = run_of()
    table = queue(result.log)

    waited = area(table, "waiting") + area(table, "overhead")
    assert waited == pytest.approx(result.jobs["wait_s"].sum())
    assert area(queue(result.log, 50), "waiting") == pytest.approx(area(table, "waiting"))


def test_tenants_share_what_is_allocated(script):
    table = tenant_shares(simple(script), bins=2)  # from 10 to 20 to 30

    assert table.columns == ["tenant", "from_s", "until_s", "gpus", "share"]
    assert table.rows() == [
        ("(none)", 10, 20, 2, 0.5), ("(none)", 20, 30, 2, 0.5),
        ("team", 10, 20, 1, 0.25), ("team", 20, 30, 0, 0),
    ]  # fmt: skip


def test_the_shares_of_tenants_add_up(run_of):
    log = run_of().log
    table = tenant_shares(log, bins=40)
    used = table.select(((pl.col("until_s") - pl.col("from_s")) * pl.col("gpus")).sum()).item()

    assert set(table["tenant"]) == {"t0", "t1", "t2"}
    assert used == pytest.approx(fold_ledger(log)["allocated_gpu_s"])
    assert 0 < table["share"].max() <= 1 + 1e-9


def test_the_parts_of_the_delay_add_up_to_the_mean_wait(run_of):
    results = {"fifo": run_of("fifo"), "las": run_of()}
    from_logs = delay_parts({name: result.log for name, result in results.items()})
    from_summaries = delay_parts({name: result.summary for name, result in results.items()})

    assert from_logs.equals(from_summaries)
    for name, result in results.items():
        parts = from_logs.filter(pl.col("policy") == name)["wait_s"]
        assert parts.sum() == pytest.approx(result.summary["avg_wait_s"])
        assert parts.sum() > 0


def test_a_log_without_jobs_gives_empty_pictures(script):
    log = script.end()

    assert utilisation(log)["allocated"].sum() == 0
    assert queue(log)["waiting"].sum() == 0
    assert tenant_shares(log, 3)["gpus"].sum() == 0
    assert cdf(fold_jobs(log)).height == 0


def test_bins_must_be_some(run_of):
    with pytest.raises(OptionError, match="bins 0: give 1 or more"):
        tenant_shares(run_of().log, 0)
