"""Waiting by reason, from logs whose answer can be worked out by hand."""

import numpy as np
import pytest

from rota.core.reasons import Reason
from rota.metrics import delay, fold_delay, fold_jobs
from rota.metrics.delay import REASONS, total_delay
from rota.metrics.history import read_history
from rota.study.config import RunConfig
from rota.study.run import simulate
from rota.traces.synth.generate import generate


def delays(log):
    """Per job, the reasons that are not zero."""
    table = fold_delay(log)
    waits = fold_jobs(log)["wait_s"].to_list()
    for row, wait_s in zip(table, waits, strict=True):
        assert wait_s is None or row.sum() == pytest.approx(wait_s, abs=1e-9)
    return [
        {name: seconds for name, seconds in zip(REASONS, row.tolist(), strict=True) if seconds}
        for row in table
    ]


def finish(script, *jobs):
    for job in jobs:
        script.row("done", job)
    return script.end()


def test_the_reasons_are_the_public_ones():
    assert REASONS == (
        "order", "capacity", "fragmentation", "quota", "gang", "constraint", "admission",
        "dependency", "overhead", "down", "unknown", "backoff", "array",
        "maintenance", "reserved", "memory",
    )  # fmt: skip


def test_without_any_reason_it_is_order(script):
    log = finish(script.submit(0).at(5).start(0).at(9), 0)

    assert delays(log) == [{"order": 5.0}]


def test_the_head_of_a_shape_waits_by_its_reason_and_the_others_by_order(script):
    script.submit(0).submit(1).blame(1, Reason.CAPACITY, head=0)
    script.at(10).start(0).at(14).start(1).at(20)

    # 0 is the head until it starts; then 1, which comes next in the trace
    assert delays(finish(script, 0, 1)) == [{"capacity": 10.0}, {"order": 10.0, "capacity": 4.0}]


def test_the_head_is_who_the_log_names_even_if_it_is_not_the_first(script):
    script.submit(0).submit(1).blame(1, Reason.CAPACITY, head=1)
    script.at(10).start(1).at(14).start(0).at(20)

    assert delays(finish(script, 0, 1)) == [{"order": 10.0, "capacity": 4.0}, {"capacity": 10.0}]


def test_a_reason_changes_and_ends(script):
    script.submit(0).blame(1, Reason.CAPACITY, 0).at(3).blame(1, Reason.FRAGMENTATION, 0)
    script.at(7).blame(1, Reason.NONE).at(9).start(0).at(10)

    assert delays(finish(script, 0)) == [{"capacity": 3.0, "fragmentation": 4.0, "order": 2.0}]


def test_shapes_have_heads_of_their_own(script):
    script.submit(0, 1).submit(1, 2).blame(2, Reason.FRAGMENTATION, 1).at(6)

    assert delays(finish(script.start(0).start(1, 2).at(9), 0, 1)) == [
        {"order": 6.0},
        {"fragmentation": 6.0},
    ]


def test_jobs_of_a_tenant_share_a_reason_however_it_changes(script):
    script.submit(0, tenant=1).submit(1, tenant=1).submit(2, tenant=0)
    script.submit(3, 2, tenant=1)
    script.share(1, 1, Reason.QUOTA).at(3).share(1, 1, Reason.ORDER).at(7)
    script.share(1, 1, Reason.QUOTA).at(8).submit(4, tenant=1).at(10).start(0).at(12)
    for job in (1, 2, 4):
        script.start(job)
    log = finish(script.start(3, 2).at(20), *range(5))

    of_both = [{"order": 4.0, "quota": 6.0}, {"order": 4.0, "quota": 8.0}]
    assert delays(log) == [*of_both, {"order": 12.0}, {"order": 12.0}, {"quota": 4.0}]
    waits = delay.Waits(read_history(log))
    assert [tuple(wait)[:3] for wait in waits.of(1)] == [
        (0, 3, Reason.QUOTA), (3, 7, Reason.ORDER), (7, 12, Reason.QUOTA),
    ]  # fmt: skip
    assert [tuple(wait)[:3] for wait in waits.of(4)] == [(8, 12, Reason.QUOTA)]


def test_a_reason_of_its_own_comes_before_a_shared_one(script):
    script.submit(0, tenant=1).submit(1, tenant=1).share(1, 1, Reason.QUOTA)
    script.at(2).row("reason", 0, value=Reason.CAPACITY).at(5).row("reason", 0)
    log = finish(script.at(9).start(0).start(1).at(20), 0, 1)

    assert delays(log) == [{"capacity": 3.0, "quota": 6.0}, {"quota": 9.0}]


def test_who_shares_a_reason_is_no_head_until_it_is_taken_back(script):
    script.submit(0, tenant=1).submit(1, tenant=0).blame(1, Reason.CAPACITY).at(2)
    script.share(1, 1, Reason.QUOTA).at(5).share(1, 1, Reason.NONE)
    log = finish(script.at(9).start(0).start(1).at(20), 0, 1)

    # 0 is the head of its shape but for the time in which it shares a reason: then it is 1
    assert delays(log) == [
        {"capacity": 6.0, "quota": 3.0},
        {"order": 6.0, "capacity": 3.0},
    ]
    waits = delay.Waits(read_history(log))
    assert [tuple(wait)[:3] for wait in waits.of(0)] == [
        (0, 2, Reason.CAPACITY), (2, 5, Reason.QUOTA), (5, 9, Reason.CAPACITY),
    ]  # fmt: skip


def test_order_as_the_reason_of_a_shape(script):
    script.submit(0).blame(1, Reason.ORDER).at(6).start(0).at(9)

    assert delays(finish(script, 0)) == [{"order": 6.0}]


def test_a_preempted_job_is_head_again(script):
    script.submit(0).start(0).at(5).submit(1).blame(1, Reason.CAPACITY, 1)
    script.at(6).stop(0).start(1).at(10).start(0).at(20)

    # after 1 has started, 0 is the only one that waits
    assert delays(finish(script, 0, 1)) == [{"capacity": 4.0}, {"capacity": 1.0}]


def test_held_jobs_wait_by_the_reason_of_the_row_until_they_are_admitted(script):
    script.submit(0).row("held", 0, value=Reason.DEPENDENCY).blame(1, Reason.CAPACITY)
    script.at(4).row("admitted", 0).at(6).start(0).at(9)

    assert delays(finish(script, 0)) == [{"dependency": 4.0, "capacity": 2.0}]


def test_a_reason_of_its_own_counts_until_the_job_starts(script):
    script.submit(0).submit(1).blame(1, Reason.CAPACITY)
    script.at(2).row("reason", 0, -1, value=Reason.QUOTA)
    script.at(5).start(0).at(6).stop(0).at(9).start(0).start(1).at(10)

    # while 0 waits by quota, 1 is the head; afterwards 0 is again
    assert delays(finish(script, 0, 1)) == [
        {"capacity": 2.0 + 3.0, "quota": 3.0},
        {"order": 2.0 + 3.0, "capacity": 3.0 + 1.0},
    ]


def test_a_reason_of_its_own_can_be_taken_back(script):
    script.submit(0).row("reason", 0, -1, value=Reason.GANG)
    script.at(3).row("reason", 0, -1, value=Reason.NONE).at(5).start(0).at(6)

    assert delays(finish(script, 0)) == [{"gang": 3.0, "order": 2.0}]


def test_overhead(script):
    script.submit(0).blame(1, Reason.CAPACITY).at(1).start(0, since=4).at(4).row("run", 0)
    script.at(9).stop(0).at(11).row("stopped", 0).at(12).start(0, since=15)
    script.at(15).row("run", 0).at(16)

    assert delays(finish(script, 0)) == [{"capacity": 1.0 + 1.0, "overhead": 3.0 + 2.0 + 3.0}]


def test_a_failed_node_is_the_reason_until_it_is_up_again(script):
    script.submit(0).start(0).at(10).row("node_down", -1, 1).row("evicted", 0, 1)
    script.blame(1, Reason.CAPACITY, 0)
    script.at(14).row("node_up", -1, 1).at(20).start(0).at(21)

    assert delays(finish(script, 0)) == [{"down": 4.0, "capacity": 6.0}]


def test_a_failed_node_is_the_reason_until_the_job_runs_elsewhere(script):
    script.submit(0).start(0).at(10).row("node_down", -1, 1).row("evicted", 0, 1)
    script.at(13).start(0).at(14).row("node_up", -1, 1).at(21)

    assert delays(finish(script, 0)) == [{"down": 3.0}]


def test_who_is_tried_again_waits_for_that_and_not_for_a_node(script):
    script.submit(0).start(0).at(10).row("evicted", 0, -1, text="exit code 1")
    script.row("held", 0, -1, value=Reason.BACKOFF).at(15).row("admitted", 0).at(16).start(0)
    script.at(18).row("evicted", 0, -1, text="exit code 1").blame(1, Reason.CAPACITY, 0)
    script.at(20).start(0).at(21)

    assert delays(finish(script, 0)) == [{"backoff": 5.0, "order": 1.0, "capacity": 2.0}]


def test_other_nodes_coming_up_do_not_count(script):
    script.submit(0).start(0).at(10).row("node_down", -1, 1).row("evicted", 0, 1)
    script.at(11).row("node_up", -1, 2).at(13).start(0).at(21)

    assert delays(finish(script, 0)) == [{"down": 3.0}]


def test_the_target_of_a_move_fails_while_the_job_still_stops(script):
    script.submit(0).start(0).at(10).move(0, since=float("inf"))
    script.at(11).row("node_down", -1, 1).row("evicted", 0, 1).at(13).row("node_up", -1, 1)
    script.at(14).row("stopped", 0).at(16).start(0).at(18)

    assert delays(finish(script, 0)) == [{"overhead": 4.0, "order": 2.0}]


def test_the_wait_of_a_non_gang_job_is_divided_like_those_of_its_tasks(script):
    first, second = 1 << 24, (1 << 24) + 1
    script.submit(0, 2).task(first, 0).task(second, 0).blame(1, Reason.CAPACITY, first)
    script.at(4).start(first).start(second).at(9)
    script.row("done", first).row("done", second)

    # each task waits 4 s, one as the head; the job itself waits 4 s
    assert delays(finish(script, 0)) == [{"capacity": 2.0, "order": 2.0}]


def test_unfinished_jobs_wait_until_the_end_of_the_log(script):
    log = script.submit(0).blame(1, Reason.CAPACITY).at(30).end()

    assert fold_delay(log)[0, REASONS.index("capacity")] == 30


@pytest.mark.parametrize("part", [1, 7, 1_000])
def test_sums_in_parts_are_the_sums_of_the_whole_to_the_last_bit(monkeypatch, part):
    jobs = generate("philly-like", jobs=120, gpus=8, load=1.4, seed=3, options={})
    config = RunConfig(trace="generated", cluster="2x4", policy="srtf", placement="consolidate")
    history = read_history(simulate(config, workload=jobs).log)
    chosen = np.arange(120) % 3 > 0
    whole = fold_delay(history)
    assert whole.any()
    monkeypatch.setattr(delay, "_PART", part)
    assert total_delay(history, chosen).tolist() == whole[chosen].sum(axis=0).tolist()
    everybody = np.ones(120, dtype=np.bool_)
    assert total_delay(history, everybody).tolist() == whole.sum(axis=0).tolist()
