"""The reference engine itself, against answers that were worked out by hand."""

import pytest

from rota.core.registry import POLICIES, load
from rota.testing import tiny
from rota.testing.scenario import Fixed, Item, Outage, Scenario

POOL = -1


def naive(name, scenario):
    return scenario.naive(load(POLICIES, name)())


def test_one_job():
    assert naive("fifo", tiny.ONE) == [(5, "start", 0, ((POOL, 2),)), (15, "done", 0, ())]


def test_a_short_job_displaces_a_long_one_and_pays_for_the_start():
    assert naive("srtf", tiny.COSTLY) == [
        (0, "start", 0, ((POOL, 1),)),
        (3, "run", 0, ()),
        (5, "stop", 0, ()),
        (5, "start", 1, ((POOL, 1),)),
        (8, "run", 1, ()),
        (10, "done", 1, ()),
        (10, "start", 0, ((POOL, 1),)),
        (13, "run", 0, ()),
        (31, "done", 0, ()),
    ]


def test_a_start_waits_until_the_victim_has_left():
    scenario = Scenario((Item(0, 1, 20), Item(5, 1, 2)), nodes=(1,), costs=Fixed(stop_s=4))
    assert naive("srtf", scenario) == [
        (0, "start", 0, ((POOL, 1),)),
        (5, "stop", 0, ()),
        (5, "start", 1, ((POOL, 1),)),
        (9, "stopped", 0, ()),
        (9, "run", 1, ()),
        (11, "done", 1, ()),
        (11, "start", 0, ((POOL, 1),)),
        (26, "done", 0, ()),
    ]


def test_lost_work_is_done_again():
    scenario = Scenario((Item(0, 1, 20), Item(5, 1, 2)), nodes=(1,), costs=Fixed(lost=3))
    assert naive("srtf", scenario)[-1] == (25, "done", 0, ())


def test_no_more_is_lost_than_was_done():
    crash = (Outage(2, 0, up=False), Outage(3, 0, up=True))
    scenario = Scenario((Item(0, 1, 5),), nodes=(1,), costs=Fixed(crash=100), outages=crash)
    assert naive("fifo", scenario)[-1] == (8, "done", 0, ())


def test_in_a_pool_the_latest_starters_go():
    outages = (Outage(3, 1, up=False), Outage(20, 1, up=True))
    scenario = Scenario(
        (Item(0, 1, 9), Item(1, 1, 9), Item(2, 2, 9)), nodes=(2, 2), outages=outages
    )
    log = naive("fifo", scenario)
    assert (3, "evicted", 2, ()) in log
    assert (10, "start", 2, ((POOL, 2),)) in log


@pytest.mark.parametrize(
    ("gpus", "slices"),
    [
        (1, ((1, 1),)),  # the fullest node that suffices
        (3, ((0, 3),)),
        (5, None),  # one idle node, and no other with one GPU more than is free: waits
        (7, None),
    ],
)
def test_consolidate_takes_the_fullest_node_or_idle_ones(gpus, slices):
    busy = (Item(0, 4, 100), Item(0, 3, 100))  # node 0 is full until 100 s, node 1 has one GPU left
    jobs = (*busy, Item(1, gpus, 5))
    scenario = Scenario(jobs, nodes=(4, 4), placement="consolidate")
    if gpus == 3:
        scenario = Scenario(
            (Item(0, 1, 100), Item(0, 4, 100), Item(1, 3, 5)), (4, 4), "consolidate"
        )
    found = [entry for entry in naive("fifo-skip", scenario) if entry[1:3] == ("start", 2)]
    assert found[0][3] == slices if slices else found[0][0] == 100


def test_displaced_and_placed_elsewhere_is_a_move():
    """A whole node is wanted: the longest job leaves it for a GPU that is free elsewhere."""
    jobs = (Item(0, 1, 100), Item(0, 1, 3), Item(0, 1, 50), Item(4, 2, 1))
    log = naive("srtf", Scenario(jobs, nodes=(2, 2), placement="consolidate"))
    assert [entry for entry in log if entry[0] == 4] == [
        (4, "move", 0, ((0, 1),)),
        (4, "start", 3, ((1, 2),)),
    ]


def test_whoever_leaves_room_on_the_chosen_node_stays():
    """Two jobs were taken away until there was room; the better-ranked one still fits beside."""
    jobs = (Item(0, 1, 100), Item(0, 2, 50), Item(4, 2, 1))
    log = naive("srtf", Scenario(jobs, nodes=(3,), placement="consolidate"))
    assert [entry for entry in log if entry[0] == 4] == [
        (4, "stop", 1, ()),
        (4, "start", 2, ((0, 2),)),
    ]


def agreed(scenario, name="fifo-skip"):
    """Return what the reference says, if the real engine says the same."""
    assert scenario.mismatch(load(POLICIES, name)) == ""
    return [(time_s, what, job) for time_s, what, job, _ in naive(name, scenario)]


def test_a_time_limit_counts_all_runs_and_a_lost_node_comes_first():
    outages = (Outage(5, 0, up=False), Outage(8, 0, up=True))
    scenario = Scenario((Item(0, 1, 20, limit_s=5),), nodes=(1,), outages=outages)
    events = [entry for entry in agreed(scenario) if not entry[1].startswith("node")]
    assert events == [(0, "start", 0), (5, "evicted", 0), (8, "start", 0), (8, "timeout", 0)]
    assert agreed(Scenario((Item(0, 1, 5, limit_s=5),), nodes=(1,)))[-1] == (5, "done", 0)


def test_a_job_is_tried_again_after_longer_and_longer_pauses():
    scenario = Scenario((Item(0, 1, 9, 2, retries=2, backoff_s=3),), nodes=(1,))
    assert agreed(scenario) == [
        (0, "start", 0), (2, "evicted", 0), (5, "start", 0), (7, "evicted", 0), (13, "start", 0),
        (15, "failed", 0),
    ]  # fmt: skip


def test_of_an_array_no_more_run_than_may():
    jobs = tuple(Item(0, 1, 3 + i, array="a", array_limit=2) for i in range(4))
    assert [entry for entry in agreed(Scenario(jobs, nodes=(4,))) if entry[1] == "start"] == [
        (0, "start", 0), (0, "start", 1), (3, "start", 2), (4, "start", 3),
    ]  # fmt: skip


def test_dependencies_by_how_jobs_end():
    jobs = (
        Item(0, 1, 9, 2), Item(0, 1, 1, after=(0,)), Item(0, 1, 1, after_any=(0,)),
        Item(0, 1, 1, after_fail=(0,)), Item(0, 1, 1, after_fail=(2,)),
    )  # fmt: skip
    found = agreed(Scenario(jobs, nodes=(4,)))
    assert {(2, "rejected", 1), (2, "start", 2), (2, "start", 3), (3, "cancelled", 4)} <= {*found}
