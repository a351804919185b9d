"""GPU-seconds by use, from logs whose answer can be worked out by hand."""

import pytest

from rota.metrics import fold_ledger


def parts(log, *range_s):
    ledger = fold_ledger(log, *range_s)
    assert ledger["allocated_gpu_s"] == ledger["useful_gpu_s"] + ledger["overhead_gpu_s"]
    assert ledger["capacity_gpu_s"] == pytest.approx(
        ledger["allocated_gpu_s"] + ledger["idle_gpu_s"]
    )
    names = ("capacity", "useful", "overhead", "idle", "fragmented", "lost")
    return tuple(ledger[f"{name}_gpu_s"] for name in names)


def test_the_parts_of_a_simple_run(script):
    script.at(10).submit(0, 3).start(0, 3, since=12).at(12).row("run", 0).at(20).row("done", 0)

    # 4 GPUs from the first submission (10) to the last end (20)
    assert parts(script.at(99).end()) == (40, 24, 6, 10, 0, 0)


def test_a_node_that_is_down_is_no_capacity(script):
    script.submit(0, 1).start(0).at(2).row("node_down", -1, 1).row("evicted", 0, 1, value=1.5)
    script.at(5).row("node_up", -1, 1).start(0).at(10).row("done", 0)

    assert parts(script.end()) == (4 * 7, 7, 0, 21, 0, 1.5)


def test_a_job_that_leaves_keeps_its_old_gpus_until_it_has_stopped(script):
    script.submit(0, 2).start(0, 2).at(4).move(0, 4, since=float("inf"))
    script.at(6).row("stopped", 0).start(0, 4).at(7).row("done", 0)

    assert parts(script.end()) == (28, 8 + 4, 2 * 2, 12, 0, 0)


def test_a_start_that_waits_for_others_to_leave_holds_nothing_yet(script):
    script.submit(0, 4).submit(1, 4).start(0, 4).at(4).stop(0)
    script.start(1, 4, since=float("inf")).at(6).row("stopped", 0).row("run", 1)
    script.at(8).row("done", 1).row("cancelled", 0)

    assert parts(script.end()) == (32, 4 * 4 + 4 * 2, 4 * 2, 0, 0, 0)


def test_a_second_start_row_tells_that_they_have_left(script):
    script.submit(0, 4).start(0, 4, since=float("inf")).at(6).start(0, 4, since=8)
    script.at(8).row("run", 0).at(10).row("done", 0)

    assert parts(script.end()) == (40, 8, 8, 24, 0, 0)


def test_lost_work_counts_the_gpus_that_were_asked_for(script):
    script.submit(0, 2).start(0, 2).at(5).stop(0, lost=3.0).at(6).start(0, 2)
    script.at(7).row("lost", 0, value=1.0).move(0, 2).at(9).row("done", 0)

    assert parts(script.end())[5] == 2 * 3.0 + 2 * 1.0


def test_a_range_of_time(script):
    script.submit(0, 2).start(0, 2).at(10).row("done", 0).at(15).submit(1).start(1)
    log = script.at(20).row("done", 1).end()

    assert parts(log, 5.0, 17.0) == (4 * 12, 2 * 5 + 1 * 2, 0, 36, 0, 0)


def test_unfinished_jobs_count_until_the_end_of_the_log(script):
    assert parts(script.submit(0, 2).start(0, 2).at(10).end()) == (40, 20, 0, 20, 0, 0)
