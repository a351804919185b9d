"""The summary, from logs whose answer can be worked out by hand."""

import pytest

from rota.core.errors import OptionError
from rota.core.reasons import Reason
from rota.metrics import Window, fold_summary


def jobs_one_after_the_other(script, durations_s):
    """Jobs submitted together that run alone, in order."""
    for job in range(len(durations_s)):
        script.submit(job)
    script.blame(1, Reason.CAPACITY, 0)
    now_s = 0.0
    for job, duration_s in enumerate(durations_s):
        script.at(now_s).start(job)
        now_s += duration_s
        script.at(now_s).row("done", job)
    return script.end(events=11, decisions=5)


def test_the_numbers_of_a_run(script):
    summary = fold_summary(jobs_one_after_the_other(script, [10, 20, 5]))

    jcts = [10.0, 30.0, 35.0]
    assert summary["jobs"] == summary["completed"] == 3
    assert summary["avg_jct_s"] == sum(jcts) / 3
    assert summary["p50_jct_s"] == 30
    assert summary["p95_jct_s"] == pytest.approx(30 + 0.9 * 5)  # rank 1.9
    assert summary["p99_jct_s"] == pytest.approx(30 + 0.98 * 5)
    assert summary["avg_wait_s"] == (0 + 10 + 30) / 3
    assert summary["makespan_s"] == 35
    # runs of 10, 20 and (5, which counts as) 10 s
    assert summary["avg_bounded_slowdown"] == pytest.approx((1 + 1.5 + 3.5) / 3)
    assert summary["gpu_utilisation"] == 35 / (4 * 35)
    assert (summary["events"], summary["decisions"]) == (11, 5)
    assert (summary["preemptions"], summary["migrations"]) == (0, 0)


def test_a_short_job_that_does_not_wait_is_not_faster_than_possible(script):
    summary = fold_summary(jobs_one_after_the_other(script, [2]))

    assert summary["avg_bounded_slowdown"] == 1


def test_the_parts_of_the_delay_add_up(script):
    summary = fold_summary(jobs_one_after_the_other(script, [10, 20, 5]))

    assert sum(summary["delay"].values()) == summary["avg_wait_s"] * summary["completed"] == 40
    assert summary["delay"]["capacity"] == 30
    assert summary["delay"]["order"] == 10


def test_only_completed_jobs_enter_the_averages(script):
    script.submit(0).start(0).submit(1).submit(2).submit(3).row("rejected", 3)
    script.at(10).row("done", 0).start(1).at(15).row("failed", 1).at(30)
    summary = fold_summary(script.end())

    assert summary["avg_jct_s"] == 10
    assert summary["delay"]["order"] == 0
    assert summary["jobs"] == 4
    assert summary["censored"] == 1
    assert summary["states"] == {
        "done": 1, "failed": 1, "rejected": 1, "cancelled": 0, "timeout": 0, "unfinished": 1,
    }  # fmt: skip
    assert summary["makespan_s"] == 15


def test_without_a_completed_job_there_are_no_averages(script):
    summary = fold_summary(script.submit(0).at(5).end())

    assert summary["avg_jct_s"] is None
    assert summary["p99_jct_s"] is None
    assert summary["makespan_s"] is None
    assert summary["avg_bounded_slowdown"] is None


def test_an_empty_run(script):
    summary = fold_summary(script.end())

    assert summary["jobs"] == 0
    assert summary["gpu_utilisation"] is None


def numbered(script, durations_s):
    log = jobs_one_after_the_other(script, durations_s)
    return log.with_columns(text=log["text"].str.strip_prefix("j"))


def test_a_window_of_ids_leaves_its_end_out(script):
    summary = fold_summary(numbered(script, [10, 20, 5]), window=Window.parse("ids=1:2"))

    assert summary["jobs"] == 1
    assert summary["avg_jct_s"] == 30
    assert sum(summary["delay"].values()) == 10
    assert summary["makespan_s"] == 30
    assert summary["measured"] == {"window": "ids=1:2", "from_s": 0.0, "until_s": 30.0}
    assert summary["gpu_utilisation"] == 30 / (4 * 30)
    assert summary["events"] == 11  # of the whole run


def test_a_window_after_a_time(script):
    script.submit(0).start(0).at(7).submit(1).at(10).row("done", 0).start(1)
    script.at(12).submit(2).at(20).row("done", 1)
    summary = fold_summary(script.at(25).end(), window=Window.parse("after=7"))

    assert summary["jobs"] == 2
    assert summary["completed"] == 1
    assert summary["censored"] == 1
    assert summary["avg_jct_s"] == 13
    assert summary["measured"]["until_s"] == 25  # a job of the window goes on


@pytest.mark.parametrize("text", ["ids=2:", "ids=:2", "ids=0:99", "after=3.5"])
def test_windows_are_told_as_they_were_written(text):
    assert Window.parse(text).describe() == text


@pytest.mark.parametrize(
    "text", ["", "ids", "ids=", "ids=:", "ids=3", "ids=5:5", "ids=a:b", "after=", "after=-1",
             "after=nan", "before=3", "ids=1:2,after=3"],
)  # fmt: skip
def test_windows_that_are_not_understood(text):
    with pytest.raises(OptionError, match="ids=A:B"):
        Window.parse(text)


def test_a_window_without_jobs_is_refused(script):
    with pytest.raises(OptionError, match="no job of the trace"):
        fold_summary(numbered(script, [10]), window=Window.parse("ids=5:9"))


def test_a_window_of_ids_needs_numbers(script):
    with pytest.raises(OptionError, match=r"'j0'.*after=T"):
        fold_summary(jobs_one_after_the_other(script, [10]), window=Window.parse("ids=0:1"))
