"""Jobs in order of their time."""

import pytest

from decisions import job
from rota.core.events import INF
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.workload import Workload
from rota.engine.source import BLOCK, WorkloadSource


def source(*times):
    jobs = [job(f"j{i}", 1, i, at=time_s) for i, time_s in enumerate(times)]
    return WorkloadSource(Workload(*zip(*jobs, strict=True)))


def taken(made, now_s):
    return [(index, spec.id, how.work) for index, spec, how in made.take(now_s)]


def test_everything_up_to_now_is_handed_out_once():
    made = source(0.0, 5.0, 5.0, 9.0)
    assert (made.total, made.next_s) == (4, 0.0)
    assert taken(made, 4.9) == [(0, "j0", 0)]
    assert made.next_s == 5.0
    assert taken(made, 5.0) == [(1, "j1", 1), (2, "j2", 2)]
    assert taken(made, 8.0) == []
    assert taken(made, 99.0) == [(3, "j3", 3)]
    assert (made.next_s, taken(made, INF)) == (INF, [])


def test_an_unsorted_file_is_served_by_time_and_ties_by_line():
    made = source(7.0, 2.0, 7.0, 0.0)
    assert made.next_s == 0.0
    assert [index for index, _, _ in taken(made, 2.0)] == [3, 1]
    assert [index for index, _, _ in taken(made, 7.0)] == [0, 2]


def test_an_empty_workload_has_nothing_to_come():
    made = WorkloadSource(Workload([], []))
    assert (made.next_s, made.take(INF), made.linked) == (INF, [], False)


def test_linked_says_whether_jobs_depend_on_each_other():
    spec = JobSpec("b", 0.0, Request.of(1), depends_on=("a",))
    assert WorkloadSource(Workload([spec], [Behaviour(1.0)])).linked
    assert not source(0.0).linked


@pytest.mark.parametrize("step", [1, 700, 2 * BLOCK])
@pytest.mark.parametrize("times", [range(2 * BLOCK + 5), range(2 * BLOCK + 5, 0, -1)])
def test_jobs_are_fetched_in_blocks_and_none_is_lost(step, times):
    specs = [JobSpec(str(i), float(t), Request.of(1)) for i, t in enumerate(times)]
    made = WorkloadSource(Workload(specs, [Behaviour(float(t + 1)) for t in times]))
    found = []
    while made.next_s < INF:
        found += made.take(made.next_s + step - 1)
    assert len(found) == len(times)
    assert all(spec is specs[index] for index, spec, _ in found)
    assert all(how.work == spec.submit_s + 1 for _, spec, how in found)
    assert [spec.submit_s for _, spec, _ in found] == sorted(map(float, times))
