"""Tiresias' yarn scheme: by hand, and against the recorded runs of Tiresias itself."""

import csv
from heapq import heappop, heappush

import pytest

from placement_cases import Maker, cluster, put, where
from rota.core.topology import NodeSpec, Topology
from rota.placement.yarn import Yarn


@pytest.fixture
def maker():
    return Maker()


def placed(placement, maker, *args, **asked):
    return where(placement.topology, maker.start(placement, *args, **asked).allocation)


def test_one_node_requests_take_the_first_node_with_room(maker):
    placement = Yarn(cluster(4, 4, 4))
    put(placement, maker, a=2, b=3)
    assert placed(placement, maker, 3) == {"c": 3}
    assert placed(placement, maker, 1) == {"a": 1}
    assert not placement.fits(maker.shape(3))


def test_larger_requests_take_idle_nodes_and_the_first_with_room_for_the_rest(maker):
    placement = Yarn(cluster(4, 4, 4, 4, 4))
    put(placement, maker, a=1, c=2)
    # consolidate would put the rest on c, which it fills
    assert placed(placement, maker, 10) == {"b": 4, "d": 4, "a": 2}
    assert not placement.fits(maker.shape(8))
    assert placed(placement, maker, 6) == {"e": 4, "c": 2}


def test_all_nodes_of_a_job_are_under_one_switch(maker):
    placement = Yarn(
        cluster(*[(4, {"path": ("s0",)})] * 2, *[(4, {"path": ("s1",)})] * 3, levels=("switch",))
    )
    assert placement.never(maker.shape(12)) is None
    assert placement.never(maker.shape(13)) is not None
    put(placement, maker, a=1)
    assert placed(placement, maker, 8) == {"c": 4, "d": 4}
    assert not placement.fits(maker.shape(8))  # b and e are idle, but far from each other
    assert placed(placement, maker, 7) == {"b": 4, "a": 3}


def test_what_fits_one_node_may_go_under_any_switch(maker):
    placement = Yarn(cluster((4, {"path": ("s0",)}), (4, {"path": ("s1",)}), levels=("switch",)))
    put(placement, maker, a=2)
    assert placed(placement, maker, 3) == {"b": 3}


def test_cpus_and_memory_count_where_the_requests_have_them(maker):
    placement = Yarn(cluster(4, 4, 4, cpus=26))
    assert placed(placement, maker, 1, cpus=6) == {"a": 1}
    assert placed(placement, maker, 6, cpus=36) == {"b": 4, "a": 2}
    assert not placement.fits(maker.shape(3, cpus=27))  # c serves two of them
    assert placed(placement, maker, 2, cpus=12) == {"c": 2}


# --- against Tiresias -----------------------------------------------------------------------------


def run(topology, jobs, *, strict):
    """First come, first served without preemption; end times by job."""
    placement = Yarn(topology)
    maker = Maker()
    arriving = sorted(jobs, key=lambda job: job[1])
    waiting, ending, ends = [], [], {}
    while arriving or ending:
        now_s = min([arriving[0][1]] if arriving else [], default=1e18)
        now_s = min(now_s, ending[0][0]) if ending else now_s
        while ending and ending[0][0] == now_s:
            _, _, job = heappop(ending)
            placement.give(job, job.allocation)
        while arriving and arriving[0][1] == now_s:
            waiting.append(arriving.pop(0))
        left = []
        for row in waiting:
            name, _, gpus, duration_s = row
            if (strict and left) or not placement.fits(maker.shape(gpus)):
                left.append(row)
                continue
            job = maker.start(placement, gpus)
            ends[name] = now_s + duration_s
            heappush(ending, (ends[name], job.index, job))
        waiting = left
    return ends


@pytest.mark.parametrize(("schedule", "strict"), [("fifo", True), ("fjf", False)])
@pytest.mark.parametrize(
    ("workload", "columns", "reference", "nodes", "gpus"),
    [
        (
            "reference/tiresias/60_job.csv",
            ("job_id", "submit_time", "num_gpu", "duration"),
            "60j_n4g4",
            4,
            4,
        ),
        (
            "reference/common/philly1000.csv",
            ("job_id", "submit_s", "num_gpus", "duration_s"),
            "philly1000_n48g8",
            48,
            8,
        ),
    ],
)
def test_every_job_ends_when_it_ends_in_tiresias(
    shared, schedule, strict, workload, columns, reference, nodes, gpus
):
    # CPUs and memory never bind in these runs, so that GPUs alone give the same result
    with shared(workload).open() as file:
        rows = list(csv.DictReader(file))
    jobs = [(row[columns[0]], *(int(row[name]) for name in columns[1:])) for row in rows]
    with shared(f"reference/tiresias/{reference}/{schedule}-yarn.csv").open() as file:
        expected = {row["job_id"]: int(row["end_time"]) for row in csv.DictReader(file)}
    nodes = [NodeSpec(f"n{i}", gpus, path=("s0",)) for i in range(nodes)]
    assert run(Topology(nodes, ["switch"]), jobs, strict=strict) == expected
