"""Queues by key."""

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
    found = [(key, number, entry.job.id) for key, number, entry in index.lowest_first(50.0)]
    assert found == [(3.0, 4, "a"), (1.0, 9, "b"), (1.0, 2, "c")]


def test_keys_with_a_slope_drift_and_overtake():
    index = Index()
    fast = ranked("fast", 10.0, index=0, slope=-2.0)
    still = ranked("still", 6.0, index=1)
    index.push_running(fast, 5.0)
    index.push_running(still, 5.0)
    assert fast.vkey == 20.0
    assert [(key, entry.job.id) for key, _, entry in index.lowest_first(6.0)] == [
        (8, "fast"),
        (6, "still"),
    ]
    assert [(key, entry.job.id) for key, _, entry in index.lowest_first(8.0)] == [
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
    assert (index.running_count, jobs[1].where) == (2, NOWHERE)
    assert [entry.job.id for _, _, entry in index.lowest_first(2.0)] == ["c", "a"]
    index.insert_running(jobs[1])
    assert (index.running_count, jobs[1].where) == (3, ON_CLUSTER)
    assert [entry.job.id for _, _, entry in index.lowest_first(2.0)] == ["c", "b", "a"]


def test_an_empty_index_has_nobody():
    index = Index()
    assert list(index.lowest_first(0.0)) == []
    assert [*index.queued(), *index.placed()] == []
