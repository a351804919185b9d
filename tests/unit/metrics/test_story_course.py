"""What a story says of starts, moves, stops, failures and of work that was lost."""

import pytest

import decisions
from policy_runs import engine, finish, job
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.log import Record
from rota.core.words import duration
from rota.metrics import read_history
from rota.metrics.jobs import Promised
from rota.metrics.story import MOST, Stories
from rota.policies.fifo import Fifo
from rota.policies.srtf import Srtf
from rota.study.config import RunConfig
from rota.study.run import simulate


def story(log, name):
    stories = Stories(log)
    return stories.tell(stories.ids.index(name))


def stays(told):
    return [(stay.at_s, stay.what, stay.ran_s, stay.text) for stay in told.stays]


# --- who displaced it -----------------------------------------------------------------------------


@pytest.fixture
def chain():
    """Return a log in which w, which needs a whole node, drives m away, and m drives v away."""
    jobs = [
        decisions.job("t", 3, 10),
        decisions.job("v", 1, 100),
        decisions.job("m", 1, 50, at=1),
        decisions.job("w", 4, 5, at=2),
    ]
    return decisions.run(Srtf(), jobs, (2, 4), placement="consolidate").log.frame()


def test_who_was_moved_out_of_the_way_is_not_the_cause(chain):
    told = story(chain, "v")
    (halt,) = told.halts
    assert (halt.at_s, halt.by, told.preempted_by) == (2, ["w"], ["w"])
    assert halt.text == (
        "made room for w, which the policy preferred "
        "(4 GPUs asked for, 3 free; m moved to its node)"
    )
    assert told.text.endswith("; preempted once by w")


def test_the_log_has_the_first_cause(chain):
    history = read_history(chain)
    (stop,) = (history.event == Record.STOP).nonzero()[0]
    assert (history.job[stop], history.other[stop]) == (1, 3)


def test_everybody_who_was_served_first_is_counted_once_and_in_both_places():
    jobs = [job(f"j{i}", 0, 1, 1) for i in range(MOST + 10)]
    told = story(finish(engine(Fifo(), jobs)), f"j{MOST + 9}")
    assert told.ahead == [f"j{i}" for i in range(MOST + 9)]
    assert f"(j0, j1, j2, j3, j4 and {MOST + 4} more)" in told.text
    assert max(interval.ahead_count for interval in told.intervals) <= MOST + 9


# --- where it ran, and for how long ---------------------------------------------------------------


def test_starts_and_moves(chain):
    assert stays(story(chain, "m")) == [
        (1, "started", 1, "on n1 (1 GPU), ran 1 s"),
        (2, "moved", 49, "on n0 (1 GPU), ran 49 s"),
    ]
    again = story(chain, "v").stays
    assert [(stay.what, stay.nodes, stay.gpus) for stay in again] == [
        ("started", ["n0"], 1),
        ("started again", ["n1"], 1),
    ]


def test_run_and_wait_add_up_to_the_whole_time(chain):
    for name in "tvmw":
        told = story(chain, name)
        assert sum(stay.ran_s for stay in told.stays) == told.run_s
        assert told.run_s + told.wait_s == told.end_s - told.submit_s


def test_many_nodes_and_none():
    wide = [decisions.job("a", 8, 5)]
    made = decisions.run(Fifo(), wide, (2, 4), placement="consolidate")
    assert stays(story(made.log.frame(), "a")) == [(0, "started", 5, "on n0, n1 (8 GPUs), ran 5 s")]
    pooled = decisions.run(Fifo(), wide, (2, 4), placement="count")
    assert stays(story(pooled.log.frame(), "a")) == [(0, "started", 5, "on 8 GPUs, ran 5 s")]


def test_a_start_that_waits_for_others_to_leave_counts_from_when_they_have(script):
    script.submit(0).start(0, since=float("inf")).at(4).row("run", 0).at(9).row("done", 0)
    assert stays(story(script.end(), "j0")) == [(4, "started", 5, "on n0 (1 GPU), ran 5 s")]


def test_a_start_that_is_taken_back_is_none(script):
    script.submit(0).start(0, since=float("inf")).at(4).stop(0).at(6).start(0)
    told = story(script.at(9).row("done", 0).end(), "j0")
    assert [(stay.at_s, stay.ran_s) for stay in told.stays] == [(6, 3)]


def test_a_move_after_a_stop_that_takes_time(script):
    script.submit(0).start(0).at(4).move(0, since=float("inf")).at(6).row("stopped", 0).start(0)
    told = story(script.at(9).row("done", 0).end(), "j0")
    assert [(stay.at_s, stay.what, stay.ran_s) for stay in told.stays] == [
        (0, "started", 4),
        (6, "moved", 3),
    ]


def test_tasks_have_stays_of_their_own():
    jobs = [(JobSpec("a", 0.0, Request.of(2, gang=False)), Behaviour(10.0))]
    told = story(finish(engine(Fifo(), jobs, gpus=1)), "a")
    assert [(stay.task, stay.at_s) for stay in told.stays] == [(0, 0), (1, 10)]
    assert told.run_s == 20


def test_who_never_started_did_not_run(script):
    told = story(script.submit(0).at(30).end(), "j0")
    assert (told.stays, told.run_s, told.wait_s) == ([], 0, 30)


# --- failures and lost work -----------------------------------------------------------------------


def test_a_failure_is_in_the_headline():
    outages = [(10, NODE_DOWN, 0), (25, NODE_UP, 0)]
    told = story(finish(engine(Fifo(), [job("a", 0, 2, 30)], gpus=2, outages=outages)), "a")
    assert told.text.endswith("; evicted once by the failure of n0")
    assert told.halts[0].by == ["n0"]
    assert told.preempted_by == []


def evicted(script, state):
    script.submit(0).start(0).at(500).row("evicted", 0, 1, value=50).row("node_down", -1, 1)
    script.at(510).row("node_up", -1, 1).start(0).at(900).row("evicted", 0, 1, value=20)
    script.row("node_up", -1, 1).start(0).at(1400)
    return story((script.row(state, 0) if state else script).end(), "j0")


def test_work_that_was_lost(script):
    told = evicted(script, "done")
    assert told.text.endswith(
        "; evicted 2 times by failures of n0; 1m 10s of work were lost and done again"
    )
    assert [halt.text for halt in told.halts] == [
        "node n0 failed; 50 s of work were lost",
        "node n0 failed; 20 s of work were lost",
    ]
    assert told.lost_s == 70
    assert told.run_s + told.wait_s == told.end_s == 1400


@pytest.mark.parametrize(
    ("state", "words"), [("", "lost and must be done again"), ("cancelled", "work were lost")]
)
def test_work_that_was_lost_and_is_not_done_again_yet(script, state, words):
    assert evicted(script, state).text.endswith(words)


def test_work_that_was_lost_in_moves_and_stops(script):
    script.submit(0).start(0).at(5).row("lost", 0, value=2).move(0).at(9).stop(0, lost=3)
    told = story(script.at(12).start(0).at(30).row("done", 0).end(), "j0")
    assert told.lost_s == 5
    assert told.text.endswith("; preempted once; 5 s of work were lost and done again")
    assert told.halts[0].text == "stopped by the policy; 3 s of work were lost"


# --- a job that ends while it is being stopped ----------------------------------------------------


@pytest.mark.parametrize("end", ["done", "failed"])
@pytest.mark.parametrize("moved", [False, True])
def test_quicker_than_the_stop(script, end, moved):
    script.submit(0).start(0).at(5).stop(0)
    if moved:
        script.at(6).move(0, since=float("inf"))
    log = script.at(9).row(end, 0).end()
    assert {part.reason: part.seconds for part in story(log, "j0").parts} == {"overhead": 4}
    history = read_history(log)
    held = history.held * history.length_s
    assert held.sum() == 9  # it has its GPU until the end


def test_a_job_that_was_stopped_and_is_cancelled_has_waited(script):
    log = script.submit(0).start(0).at(5).stop(0).at(9).row("cancelled", 0).end()
    assert [part.reason for part in story(log, "j0").parts] == ["order"]


def test_a_move_that_has_to_wait_and_then_goes_elsewhere_at_once(script):
    script.submit(0).start(0).at(5).move(0, since=float("inf")).at(7).move(0).at(9).row("done", 0)
    history = read_history(script.end())
    assert (history.held * history.length_s).sum() == 5 + 2  # nothing from 5 to 7


# --- other sizes ----------------------------------------------------------------------------------


RESIZED = (
    "job_id,submit_s,num_gpus,duration_s,min_gpus,max_gpus\n"
    "long,0,1,4000,1,8\nshort,100,1,400,1,8\n"
)


def resized(tmp_path, text=RESIZED, **options):
    path = tmp_path / "jobs.csv"
    path.write_text(text)
    made = {"trace": str(path), "cluster": "1x8", "policy": "afs", "rates": "scaling"}
    return simulate(RunConfig(**(made | options)))


@pytest.mark.parametrize(
    ("costs", "took"), [("custom:start_s=30", ", which took 1m 00s"), (None, "")]
)
def test_resizes_are_counted_with_what_they_took(tmp_path, costs, took):
    log = resized(tmp_path, costs=costs).log

    told = story(log, "long")

    assert [stay.what for stay in told.stays] == ["started", "shrunk", "grown"]
    assert f"; grown once and shrunk once (on 4 to 8 GPUs), for short{took}" in told.text
    assert told.resizing_s == (60 if costs else 0)
    assert "grown" not in story(log, "short").text


def test_a_shrink_names_who_took_the_gpus(tmp_path):
    shrunk = story(resized(tmp_path).log, "long").stays[1]

    assert shrunk.by == ["short"]
    assert shrunk.text.endswith(
        "; shrunk from 8 GPUs because the policy gave GPUs that it left to short"
    )


def test_a_shrink_for_somebody_on_other_nodes_and_for_nobody(script):
    wide = make_wide(script)
    script.submit(0, 3).submit(1, 1).start(0, 3).at(5).move(0, 2)
    script.row("start", 1, wide, 0, 5.0).at(9).move(0, 1).at(20).row("done", 0).row("done", 1)
    told = story(script.end(), "j0")

    assert [stay.what for stay in told.stays] == ["started", "shrunk", "shrunk"]
    assert told.stays[1].text.endswith("when the policy gave more GPUs to j1, on other nodes")
    assert told.stays[2].text.endswith("although nobody took its GPUs at that time")


def make_wide(script):
    """An allocation on a second node."""
    script.row("vertex", ref=2, other=0, value=4, text="node:n1")
    script.row("allocation", ref=9, other=2, value=1)
    return 9


def test_speed_and_efficiency_follow_from_the_work(tmp_path):
    """1 GPU was asked for; on 8 and 4 of them it is 8 and 4 times as fast, at the same GPU time."""
    result = resized(tmp_path, costs="custom:start_s=30")
    works = Promised(works_s=dict(result.jobs.select("job_id", "work_s").iter_rows()))
    told = Stories(result.log, promised=works).tell(0)

    ran_s = sum(stay.ran_s for stay in told.stays)
    assert told.speed == pytest.approx(4000 / ran_s)
    assert told.efficiency == pytest.approx(1)
    assert [stay.speed for stay in told.stays] == pytest.approx([8, 4, 8])
    assert f"ran at {told.speed:.2f} times its speed with what it asked for" in told.text
    assert Stories(result.log).tell(0).speed is None  # a log alone does not tell the work


def test_slow_phases_are_told(tmp_path):
    text = RESIZED.replace("long,0,1,4000", "long,0,8,4000")
    told = story(resized(tmp_path, text, costs="custom:start_s=30").log, "long")

    slow = [stay for stay in told.stays if stay.gpus < 8]
    assert slow
    assert told.slow_s == pytest.approx(sum(stay.ran_s for stay in slow))
    assert told.text.endswith(f"; slow (below 0.9 of it) for {duration(told.slow_s)}")
    assert f" at speed {slow[0].gpus / 8:.2f}" in slow[0].text


def test_work_lost_by_resizing_is_told(script):
    script.submit(0, 4).start(0, 4).at(50).row("lost", 0, value=20).move(0, 2)
    told = story(script.at(90).row("done", 0).end(), "j0")

    assert told.resizing_lost_s == 20
    assert "shrunk once (on 2 to 4 GPUs), which lost 20 s of work" in told.text
