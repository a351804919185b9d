"""Queues by key."""

import pytest

from live_jobs import live
from rota.engine.packer import IN_QUEUE, NOWHERE, ON_CLUSTER, Entry, Index


def ranked(name, key, *, index, slope=0.0, number=0):
    made = Entry(live(name, index=index, number=number))
    made.key, made.slope = key, slope
    return made


def drained(index, heap):
    out = ""
    while heap:
        out += index.pop_waiting(heap).job.id
    return out


def test_waiting_jobs_leave_by_key_then_by_index():
    index = Index()
    for name, key, number in (("a", 3.0, 4), ("b", 1.0, 9), ("c", 1.0, 2)):
        heap = index.push_waiting(ranked(name, key, index=number))
    assert (index.waiting_count, heap[0][3].where) == (3, IN_QUEUE)
    assert drained(index, heap) == "cba"
    assert index.waiting_count == 0


def test_every_shape_has_its_own_heap():
    index = Index()
    one = index.push_waiting(ranked("a", 2.0, index=0, number=0))
    other = index.push_waiting(ranked("b", 1.0, index=1, number=5))
    assert one is not other
    assert set(index.waiting) == {0, 5}
    assert index.pop_waiting(one).job.id == "a"


def test_a_dropped_job_is_skipped_wherever_it_was():
    index = Index()
    jobs = [ranked(name, float(i), index=i) for i, name in enumerate("abcd")]
    for job in jobs:
        heap = index.push_waiting(job)
    index.drop_waiting(jobs[1])  # in the middle: stale
    assert len(heap) == 4
    index.drop_waiting(jobs[0])  # at the head: both go
    assert (len(heap), jobs[0].where, index.waiting_count) == (2, NOWHERE, 2)
    assert drained(index, heap) == "cd"


def test_a_job_queued_again_counts_with_its_new_key_only():
    index = Index()
    a, b = ranked("a", 1.0, index=0), ranked("b", 2.0, index=1)
    for job in (a, b):
        heap = index.push_waiting(job)
    index.drop_waiting(a)
    a.key = 3.0
    index.push_waiting(a)
    assert [entry.job.id for entry in index.queued()] in (["a", "b"], ["b", "a"])
    assert drained(index, heap) == "ba"


def test_running_jobs_come_worst_first():
    index = Index()
    for name, key, number in (("a", 3.0, 4), ("b", 1.0, 9), ("c", 1.0, 2)):
        index.push_running(ranked(name, key, index=number), 0.0)
    found = [(key, number, job.id) for key, number, job in index.lowest_first(50.0)]
    assert found == [(3.0, 4, "a"), (1.0, 9, "b"), (1.0, 2, "c")]


def test_keys_with_a_slope_drift_and_overtake():
    index = Index()
    fast = ranked("fast", 10.0, index=0, slope=-2.0)
    still = ranked("still", 6.0, index=1)
    index.push_running(fast, 5.0)
    index.push_running(still, 5.0)
    assert fast.vkey == 20.0
    assert [(key, job.id) for key, _, job in index.lowest_first(6.0)] == [
        (8, "fast"),
        (6, "still"),
    ]
    assert [(key, job.id) for key, _, job in index.lowest_first(8.0)] == [
        (6, "still"),
        (4, "fast"),
    ]


def test_a_single_slope_drifts_too():
    index = Index()
    index.push_running(ranked("a", 10.0, index=0, slope=-1.0), 4.0)
    assert [key for key, _, _ in index.lowest_first(9.0)] == [5.0]


def test_dropping_and_restoring_a_running_job():
    index = Index()
    jobs = [ranked(name, 1.0, index=i, slope=-1.0) for i, name in enumerate("abc")]
    for job in jobs:
        index.push_running(job, 2.0)
    index.drop_running(jobs[1])
    assert (len(index.running[-1.0]), jobs[1].where) == (2, NOWHERE)
    assert [job.id for _, _, job in index.lowest_first(2.0)] == ["c", "a"]
    index.insert_running(jobs[1])
    assert (len(index.running[-1.0]), jobs[1].where) == (3, ON_CLUSTER)
    assert [job.id for _, _, job in index.lowest_first(2.0)] == ["c", "b", "a"]


def test_an_empty_index_has_nobody():
    index = Index()
    assert list(index.lowest_first(0.0)) == []
    assert [*index.queued(), *index.placed()] == []


def lower_by_looking(index, entry, now_s):
    """What `lower` must give: the walk from the worst up to the first that ranks higher."""
    found = []
    for rank, number, job in index.lowest_first(now_s):
        if (rank, number) < (entry.key, entry.index):
            break
        found.append(job)
    return found


@pytest.mark.parametrize("slope", [0.0, -1.0, -1 / 3])
@pytest.mark.parametrize("now_s", [0.0, 3.0, 1e9 + 1 / 3])
def test_lower_jobs_are_those_that_rank_below_now(slope, now_s):
    index = Index()
    keys = [7.0, 5.0, 5.0, 1 / 3, 5.0000000000001, 5.1, 1e-9, 12.0]
    for number, key in enumerate(keys):
        run = ranked(f"r{number}", key, index=2 * number, slope=slope)
        index.entries[run.index] = run
        index.push_running(run, now_s / 7)
    for number in range(-1, 2 * len(keys), 3):
        for rank, _, _ in list(index.lowest_first(now_s)):
            head = ranked("head", rank, index=number)
            assert list(index.lower(head, now_s)) == lower_by_looking(index, head, now_s)


def test_the_worst_is_the_first_of_the_lowest():
    index = Index()
    assert index.worst(0.0) is None
    for number, slope in enumerate([0.0, -1.0, 0.0, -2.0]):
        index.push_running(ranked("r", 10.0, index=number, slope=slope), 0.0)
        for now_s in (0.0, 2.0, 5.0):
            assert index.worst(now_s)[:2] == next(index.lowest_first(now_s))[:2]
