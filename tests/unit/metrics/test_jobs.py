"""The table of jobs, from logs whose answer can be worked out by hand."""

import io

import numpy as np
import polars as pl
import pytest

from rota.metrics import fold_jobs, write_jobs
from rota.metrics.jobs import COLUMNS


def rows(log):
    return {row["job_id"]: row for row in fold_jobs(log).iter_rows(named=True)}


def test_a_job_that_starts_at_once_never_waits(script):
    log = script.at(5).submit(0, 2, tenant=1).start(0, 2).at(25).row("done", 0).end()

    assert rows(log)["j0"] == {
        "job_id": "j0", "tenant": "team", "gpus": 2.0, "submit_s": 5.0, "first_start_s": 5.0,
        "end_s": 25.0, "wait_s": 0.0, "jct_s": 20.0, "service_gpu_s": 40.0, "preemptions": 0,
        "migrations": 0, "state": "done", "deadline_s": None, "tardiness_s": None, "resizes": 0,
        "mean_gpus": 2.0, "work_s": None,
    }  # fmt: skip


def test_columns_are_the_public_ones_in_their_order(script):
    log = script.submit(0).start(0).at(1).row("done", 0).end()

    assert tuple(fold_jobs(log).columns) == COLUMNS


def test_a_preempted_job_waits_twice(script):
    script.at(0).submit(0, 2).at(10).start(0, 2).at(15).stop(0).at(40).start(0, 2)
    job = rows(script.at(45).row("done", 0).end())["j0"]

    assert job["first_start_s"] == 10
    assert job["wait_s"] == 10 + 25
    assert job["service_gpu_s"] == 2 * (5 + 5)
    assert job["preemptions"] == 1


def test_starting_and_stopping_count_as_waiting_but_not_as_service(script):
    script.submit(0, 2).start(0, 2, since=30).at(30).row("run", 0, value=1.0)
    script.at(50).stop(0).at(55).row("stopped", 0).at(60).start(0, 2, since=70)
    job = rows(script.at(70).row("run", 0).at(80).row("done", 0).end())["j0"]

    assert job["first_start_s"] == 0
    assert job["service_gpu_s"] == 2 * (20 + 10)
    assert job["wait_s"] == 30 + 5 + 5 + 10
    assert job["wait_s"] + 30 == job["jct_s"]


def test_a_run_that_is_stopped_while_it_starts_made_no_progress(script):
    script.submit(0).start(0, since=30).at(10).stop(0).at(20).start(0).at(25).row("done", 0)
    job = rows(script.end())["j0"]

    assert job["service_gpu_s"] == 5
    assert job["wait_s"] == 20


def test_a_change_of_rate_changes_neither_service_nor_waiting(script):
    script.submit(0, 2).start(0, 2).at(10).row("rate", 0, value=0.5).at(30).row("done", 0)
    job = rows(script.end())["j0"]

    assert job["service_gpu_s"] == 60
    assert job["wait_s"] == 0


def test_a_move_without_cost_changes_the_gpus_at_once(script):
    script.submit(0, 2).start(0, 2).at(10).move(0, 4).at(15).row("done", 0)
    job = rows(script.end())["j0"]

    assert job["service_gpu_s"] == 2 * 10 + 4 * 5
    assert job["migrations"] == job["resizes"] == 1
    assert job["preemptions"] == 0
    assert job["mean_gpus"] == pytest.approx(40 / 15)


def test_a_move_to_as_many_gpus_is_no_resize_nor_is_another_start(script):
    script.submit(0, 2).start(0, 2).at(10).move(0, 2).at(12).stop(0).at(14).start(0, 4)
    job = rows(script.at(20).row("done", 0).end())["j0"]

    assert (job["migrations"], job["resizes"], job["preemptions"]) == (1, 0, 1)
    assert job["mean_gpus"] == pytest.approx((2 * 12 + 4 * 6) / 18)


def test_resizes_of_one_job_do_not_count_for_the_next(script):
    script.submit(0, 2).submit(1, 4).start(0, 2).start(1, 4).at(5).move(1, 2).at(9).move(1, 8)
    found = rows(script.at(20).row("done", 0).row("done", 1).end())

    assert (found["j0"]["resizes"], found["j1"]["resizes"]) == (0, 2)


@pytest.mark.parametrize(
    ("ending", "due_s", "late_s"),
    [
        ("done", 30.0, 0.0),
        ("done", 20.0, 0.0),
        ("done", 12.0, 8.0),
        ("failed", 12.0, None),
        ("done", float("inf"), None),
    ],
)
def test_tardiness_is_of_jobs_that_are_done(script, ending, due_s, late_s):
    log = script.submit(0).start(0).at(20).row(ending, 0).end()
    job = fold_jobs(log, np.array([due_s])).row(0, named=True)

    assert job["tardiness_s"] == late_s
    assert job["deadline_s"] == (None if due_s == float("inf") else due_s)


def test_a_move_that_takes_time_is_overhead_until_it_runs_again(script):
    script.submit(0, 2).start(0, 2).at(10).move(0, 2, since=18).at(18).row("run", 0)
    job = rows(script.at(20).row("done", 0).end())["j0"]

    assert job["service_gpu_s"] == 2 * (10 + 2)
    assert job["wait_s"] == 8


def test_a_move_that_has_to_stop_first(script):
    script.submit(0, 2).start(0, 2).at(10).move(0, 4, since=float("inf"))
    script.at(13).row("stopped", 0).start(0, 4, since=15).at(15).row("run", 0)
    job = rows(script.at(20).row("done", 0).end())["j0"]

    assert job["service_gpu_s"] == 2 * 10 + 4 * 5
    assert job["wait_s"] == 5
    assert job["migrations"] == job["resizes"] == 1


@pytest.mark.parametrize(
    ("ending", "end_s"),
    [("done", 9.0), ("failed", 9.0), ("cancelled", 9.0), ("rejected", None), (None, None)],
)
def test_states(script, ending, end_s):
    script.submit(0)
    if ending != "rejected":
        script.start(0)
    script.at(9)
    if ending:
        script.row(ending, 0)
    job = rows(script.at(20).end())["j0"]

    assert job["state"] == (ending or "unfinished")
    assert job["end_s"] == end_s
    assert job["jct_s"] == end_s
    assert job["wait_s"] == (None if end_s is None else 0.0)
    assert job["first_start_s"] == (None if ending == "rejected" else 0.0)


def test_an_unfinished_job_has_the_service_that_it_got(script):
    log = script.submit(0, 3).at(5).start(0, 3).at(15).end()

    assert rows(log)["j0"]["service_gpu_s"] == 30


def test_rows_are_in_the_order_of_the_trace_not_of_arrival(script):
    script.submit(2).start(2).at(1).submit(0).start(0).at(2).submit(1).start(1)
    script.at(3).row("done", 1).row("done", 2).row("done", 0)

    assert fold_jobs(script.end())["job_id"].to_list() == ["j0", "j1", "j2"]


def test_tasks_are_folded_into_their_job(script):
    first, second = 1 << 24, (1 << 24) + 1
    script.at(1).submit(0, 2).task(first, 0).task(second, 0).submit(1)
    script.at(3).start(second).at(5).start(first).start(1).at(8).stop(first)
    script.at(9).row("done", second).at(12).start(first).at(20).row("done", first).row("done", 0)
    job = rows(script.at(30).row("done", 1).end())["j0"]

    assert job["gpus"] == 2
    assert job["first_start_s"] == 3
    assert job["end_s"] == 20
    assert job["preemptions"] == 1
    assert job["service_gpu_s"] == (8 - 5) + (9 - 3) + (20 - 12)
    # no task makes progress from 1 to 3 and from 9 to 12
    assert job["wait_s"] == 2 + 3
    assert rows(script.end())["j1"]["service_gpu_s"] == 25


def written(log):
    file = io.BytesIO()
    write_jobs(fold_jobs(log), file)
    return file.getvalue().decode()


def test_a_column_has_points_everywhere_or_nowhere_and_nothing_for_never(script):
    script.submit(0, 8).start(0, 8).at(89179.8).row("done", 0).submit(1, 0.5)

    assert written(script.end()) == (
        "job_id,tenant,gpus,submit_s,first_start_s,end_s,wait_s,jct_s,service_gpu_s,preemptions,"
        "migrations,state,deadline_s,tardiness_s,resizes,mean_gpus,work_s\n"
        "j0,,8.0,0.0,0,89179.8,0,89179.8,713438.4,0,0,done,,,0,8,\n"
        "j1,,0.5,89179.8,,,,,0.0,0,0,unfinished,,,0,,\n"
    )


def test_the_csv_is_read_back_to_the_same_numbers(script):
    end_s = 0.1 + 0.2
    script.submit(0).start(0).at(end_s).row("done", 0).at(1e15 / 3).submit(1)
    table = pl.read_csv(io.StringIO(written(script.end())))

    assert table["end_s"][0] == end_s
    assert table["submit_s"][1] == 1e15 / 3


def test_readers_that_guess_from_the_first_rows_guess_right(script):
    """Polars looks at a hundred of them."""
    for job in range(200):
        script.at(job).submit(job).start(job).row("done", job)
    script.at(200.5).submit(200).start(200).at(201).row("done", 200)
    table = pl.read_csv(io.StringIO(written(script.end())))

    assert table["submit_s"].dtype == pl.Float64
    assert table["gpus"].dtype == pl.Int64
    assert table["submit_s"][200] == 200.5


def test_an_empty_log_has_no_jobs(script):
    assert fold_jobs(script.end()).height == 0
