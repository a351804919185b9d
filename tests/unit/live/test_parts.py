"""From allocations to what each node has to do, and the books of runs."""

import pytest
from msgspec.structs import replace

from rota.core.allocation import Allocation
from rota.core.errors import ClusterError
from rota.core.jobs import UNKNOWN, Job, JobSpec, Request, Shape
from rota.core.launch import Launch
from rota.core.topology import Topology
from rota.live.runs import RunTable, make_parts

CLUSTER = Topology.uniform(2, 2)
FIRST, SECOND = (node.id for node in CLUSTER.nodes)


def a_job(number=1, gpus=2):
    request = Request.of(gpus)
    return Job(JobSpec(str(number), 0.0, request, user="me"), UNKNOWN, number, Shape(0, request))


def test_one_process_per_node_or_per_gpu():
    place = Allocation([(SECOND, 2), (FIRST, 1)])
    nodes = make_parts(CLUSTER, place, Launch(run="x"))
    assert [(p.node, p.node_rank, p.first_rank, p.processes) for p in nodes] == [
        ("n1", 0, 0, 1), ("n0", 1, 1, 1),
    ]  # fmt: skip
    gpus = make_parts(CLUSTER, place, Launch(run="x", per="gpu"))
    assert [(p.node, p.first_rank, p.processes) for p in gpus] == [("n1", 0, 2), ("n0", 2, 1)]


def test_devices_are_numbered_on_their_node():
    device = CLUSTER.devices(SECOND)[1]
    (part,) = make_parts(CLUSTER, Allocation([(device, 0.5)]), Launch(run="x"))
    assert (part.node, part.slices, part.gpus) == ("n1", ((1, 0.5),), 0.5)


def test_a_job_without_gpus_has_a_place():
    place = Allocation([], [(FIRST, "cpu", 2.0), (FIRST, "memory", 8.0)])
    (part,) = make_parts(CLUSTER, place, Launch(run="x", per="gpu"))
    assert (part.node, part.slices, part.processes) == ("n0", (), 1)
    assert (part.cpus, part.mem_gib) == (2.0, 8.0)


def test_a_pool_is_no_place():
    with pytest.raises(ClusterError, match="names no node"):
        make_parts(CLUSTER, Allocation([(0, 2)]), Launch(run="x"))


def runs():
    return RunTable(CLUSTER, lambda job: Launch(run="x"))


def started(books, job):
    job.allocation = Allocation([(FIRST, 2)])
    return books.make(job)


def test_runs_are_numbered_and_never_come_back():
    books, job = runs(), a_job()
    first = started(books, job)
    assert (first.order.run, first.order.restart, first.order.world_size) == ("1.0", 0, 1)
    with pytest.raises(ClusterError, match="it runs already"):
        started(books, job)
    books.remove(first)
    second = started(books, job)
    assert (second.order.run, second.order.restart) == ("1.1", 1)
    assert second.order.master_port != first.order.master_port


def test_a_run_waits_until_nothing_is_left_of_the_one_before():
    books, job = runs(), a_job()
    first = started(books, job)
    assert books.give_up(job) is first
    second = started(books, job)
    assert second.waits
    assert books.remove(first) is second
    assert not second.waits


def test_a_run_that_waits_leaves_no_trace():
    books, job = runs(), a_job()
    first = started(books, job)
    books.give_up(job)
    started(books, job)
    assert books.give_up(job) is None
    third = started(books, job)
    assert third.waits
    assert books.remove(first) is third


def test_a_run_gets_what_is_left_of_the_time_limit():
    books, job = runs(), a_job()
    job.spec = replace(job.spec, limit_s=60.0)
    first = started(books, job)
    assert first.order.limit_s == 60.0
    books.remove(first)
    job.run_s = 45.0
    second = started(books, job)
    assert second.order.limit_s == 15.0
    books.remove(second)
    job.run_s = 61.0
    assert 0 < started(books, job).order.limit_s < 1  # 0 would be for ever


def test_books_can_be_saved_and_restored():
    books, job, other = runs(), a_job(1), a_job(2)
    started(books, job)
    books.give_up(job)
    started(books, job)
    started(books, other).halting = True
    copy = runs()
    copy.restore(books.snapshot(), {1: job, 2: other})
    assert copy.snapshot() == books.snapshot()
    assert {r: run.order for r, run in copy.by_id.items()} == {
        r: run.order for r, run in books.by_id.items()
    }
    assert copy.current[1].waits
    assert copy.current[2].halting
