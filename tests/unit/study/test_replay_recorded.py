"""A recorded schedule in the simulator: it comes out as it was, or says why it cannot."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.topology import NodeSpec
from rota.metrics.story import Stories
from rota.study.replay import recorded
from rota.study.replay.cluster import seen_cluster, with_shares
from rota.study.replay.recorded import replay_recorded
from rota.traces.imported import Imported
from rota.traces.observed import Observed, Seen
from rota.traces.schema import events_frame

NODES = [NodeSpec("n1", 4), NodeSpec("n2", 4)]


def history(jobs, attempts):
    """Return a trace of (submit, GPUs) jobs with these attempts."""
    frame = pl.DataFrame(
        {
            "job_id": [str(n) for n in range(len(jobs))],
            "submit_s": [float(submit) for submit, _ in jobs],
            "num_gpus": [float(gpus) for _, gpus in jobs],
            "duration_s": [1.0] * len(jobs),
        }
    )
    return Imported(frame, observed=Observed.of(attempts), name="history")


def test_waits_come_out_to_the_second():
    trace = history(
        [(0, 4), (1, 4), (2, 8)],
        [
            Seen(0, 0, 10, ("n1",), (4,)), Seen(1, 5, 15, ("n2",), (4,)),
            Seen(2, 15, 20, ("n1", "n2"), (4, 4)),
        ],
    )  # fmt: skip
    found = replay_recorded(trace, NODES)
    assert found.result.jobs["wait_s"].to_list() == [0.0, 4.0, 13.0]
    assert found.result.jobs["jct_s"].to_list() == [10.0, 14.0, 18.0]
    assert (found.exact, found.worst_s, found.counted, found.contradictions) == (3, 0.0, False, {})


def test_attempts_are_runs_with_a_stop_in_between():
    trace = history(
        [(0, 4)],
        [
            Seen(0, 3, 3, ("n1",), (4,)), Seen(0, 5, 10, ("n1",), (4,)),
            Seen(0, 12, 20, ("n2",), (4,)),
        ],
    )  # fmt: skip
    found = replay_recorded(trace, NODES)
    row = found.result.jobs.row(0, named=True)
    assert (row["first_start_s"], row["end_s"], row["wait_s"]) == (3.0, 20.0, 7.0)
    assert row["preemptions"] == 2
    assert found.exact == 1


def test_a_job_that_took_no_time():
    found = replay_recorded(history([(0, 1)], [Seen(0, 2, 2, ("n1",), (1,))]), NODES)
    assert found.result.jobs["end_s"].to_list() == [2.0]
    assert found.exact == 1


def test_jobs_that_never_ran_are_not_replayed_and_running_ones_are_cut():
    trace = history([(0, 1), (0, 1), (0, 1)], [
        Seen(0, 0, 50, ("n1",), (1,)), Seen(2, 10, None, ("n1",), (1,), "running"),
    ])  # fmt: skip
    found = replay_recorded(trace, NODES)
    assert found.jobs == [0, 2]
    assert found.result.jobs["end_s"].to_list() == [50.0, None]  # it had not ended
    assert found.exact == 2


@pytest.mark.parametrize(
    ("attempts", "what"),
    [
        ([Seen(0, 0, 9, ("n1",), (5,))], recorded.TOO_MANY),
        ([Seen(0, 0, 9, ("n9",), (5,))], recorded.UNLISTED),
        ([Seen(0, 0, 9)], recorded.NO_NODES),
        ([Seen(0, 0, 9, ("n1",), (2.5,))], recorded.PARTS),
        (
            [Seen(0, 0, 9, ("n1",), (3,)), Seen(1, 5, 9, ("n1",), (3,))],
            recorded.CROWDED,
        ),
    ],
)
def test_contradictions_are_counted_and_gpus_are_then_only_counted(attempts, what):
    trace = history([(0, 5), (0, 3)], attempts)
    found = replay_recorded(trace, NODES)
    assert found.contradictions[what] == 1
    assert found.counted
    assert found.exact == len(attempts)


def test_more_gpus_than_there_are_do_not_stop_the_replay():
    trace = history([(0, 8), (0, 8)], [Seen(0, 0, 9), Seen(1, 4, 9)])
    found = replay_recorded(trace, NODES)
    assert found.contradictions[recorded.MANY] == 1
    assert [node.gpus for node in found.nodes] == [16]
    assert found.exact == 2


def test_a_start_before_the_submission_is_a_contradiction():
    trace = history([(5, 1)], [Seen(0, 2, 9, ("n1",), (1,))])
    found = replay_recorded(trace, NODES)
    assert found.contradictions == {recorded.EARLY: 1}
    assert (found.exact, found.worst_s) == (0, 3.0)
    assert found.result.jobs["first_start_s"].to_list() == [5.0]


def test_attempts_that_overlap_are_cut():
    trace = history([(0, 1)], [Seen(0, 0, 9, ("n1",), (1,)), Seen(0, 5, 8, ("n1",), (1,))])
    found = replay_recorded(trace, NODES)
    assert found.contradictions == {recorded.OVERLAP: 1}
    assert found.result.jobs["end_s"].to_list() == [8.0]


@pytest.mark.parametrize(
    ("gpus", "beside", "expected"),
    [
        (4, (), [2.0, 2.0]),  # evenly, if there is room
        (5, (), [4.0, 1.0]),  # as Slurm does
        (5, (Seen(1, 0, 9, ("n1",), (3,)),), [1.0, 4.0]),
        (4, (Seen(1, 5, 9, ("n1",), (3,)),), [1.0, 3.0]),  # one that comes later needs its place
        (5, (Seen(1, 9, 12, ("n1",), (3,)),), [4.0, 1.0]),
    ],
)
def test_gpus_per_node_that_are_not_told_are_found(gpus, beside, expected):
    trace = history([(0, gpus), (0, 3)], [Seen(0, 1, 9, ("n1", "n2"), ()), *beside])
    assert with_shares(trace, NODES).frame["gpus"][0].to_list() == expected
    found = replay_recorded(trace, NODES)
    assert (found.counted, found.exact, found.guessed) == (False, 1 + len(beside), 1)


JOBS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 9), st.integers(0, 20), st.integers(0, 3)),
    min_size=1, max_size=12,
)  # fmt: skip


@settings(max_examples=2 * settings().max_examples)
@given(JOBS)
def test_any_schedule_comes_out_as_it_was(jobs):
    trace = history(
        [(submit, gpus) for submit, _, _, gpus in jobs],
        [
            Seen(n, submit + wait, submit + wait + run, (f"m{n}",), (gpus,))
            for n, (submit, wait, run, gpus) in enumerate(jobs)
        ],
    )
    nodes = [NodeSpec(f"m{n}", 3) for n in range(len(jobs))]
    found = replay_recorded(trace, nodes)
    assert found.result.jobs["wait_s"].to_list() == [float(wait) for _, wait, _, _ in jobs]
    assert found.exact == len(jobs)


def test_why_a_job_waited_is_not_known_where_the_log_cannot_tell():
    trace = history(
        [(0, 4), (1, 4), (2, 4), (2, 4)],
        [
            Seen(0, 0, 10, ("n1",), (4,)), Seen(1, 3, 15, ("n2",), (4,)),
            Seen(2, 12, 20, ("n1",), (4,), "preempted"), Seen(2, 25, 30, ("n2",), (4,)),
            Seen(3, 20, 50, ("n1",), (4,)),
        ],
    )  # fmt: skip
    result = replay_recorded(trace, NODES).result
    delay = result.summary["delay"]
    assert delay["unknown"] == sum(delay.values()) == 2 + 10 + 5 + 18
    stories = Stories(result.log)
    for number, waited_s in enumerate((0, 2, 15, 18)):
        story = stories.tell(number)
        parts = [(part.reason, part.seconds) for part in story.parts]
        assert parts == ([("unknown", float(waited_s))] if waited_s else [])
        assert not story.ahead
        assert not story.preempted_by  # although others started where it was stopped
        told = ["preempted or requeued, the log does not tell for whom"] * (number == 2)
        assert [halt.text for halt in story.halts] == told
        assert not waited_s or "not known" in story.text


def test_a_failure_is_known_until_the_node_is_seen_again():
    trace = history(
        [(0, 4), (0, 4)],
        [
            Seen(0, 0, 10, ("n1",), (4,), "node-fail"), Seen(0, 60, 90, ("n1",), (4,)),
            Seen(1, 30, 50, ("n1",), (4,)),
        ],
    )  # fmt: skip
    events = events_frame([(10.0, "node_down", "n1", 0.0, ""), (30.0, "node_up", "n1", 0.0, "")])
    failed = Imported(trace.jobs, observed=trace.observed, events=events)
    found = replay_recorded(failed, NODES)
    parts = Stories(found.result.log).tell(0).parts
    assert [(part.reason, part.seconds) for part in parts] == [("unknown", 30.0), ("down", 20.0)]
    assert found.exact == 2


def test_a_guess_makes_no_node_larger_than_it_was_seen():
    """Without a list: both nodes were full with jobs of 4; the job of 6 GPUs is split 4 + 2."""
    trace = history(
        [(0, 4), (0, 4), (0, 2), (0, 6)],
        [
            Seen(0, 0, 10, ("n1",), (4,)), Seen(1, 0, 10, ("n2",), (4,)),
            Seen(2, 10, 20, ("n2",), (2,)), Seen(3, 10, 20, ("n1", "n2")),
        ],
    )  # fmt: skip
    assert [(node.name, node.gpus) for node in seen_cluster(trace)] == [("n1", 4), ("n2", 4)]
