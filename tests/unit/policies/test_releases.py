"""Ends of running jobs, apart for nodes that few compete for."""

from types import SimpleNamespace

from rota.policies.backfill.releases import Releases


class FakePlan:
    """Jobs may use the nodes of their shape, of four, and hold GPUs where `where` says."""

    nodes = 0b1111

    def __init__(self):
        self.asked = []
        self.looked_at = []

    def eligible(self, job):
        self.asked.append(job.index)
        return job.shape.number

    def gpus_on(self, nodes, job):
        self.looked_at.append(job.index)
        return job.held_gpus if job.where & nodes == job.where else 0


def job(index, shape, where=None, gpus=1):
    where = shape if where is None else where
    return SimpleNamespace(
        index=index, shape=SimpleNamespace(number=shape), where=where, held_gpus=gpus
    )


def on(releases, nodes):
    return [index for _, index, _ in releases.on(nodes)]


def filled(*ends):
    releases = Releases()
    for one, end_s in ends:
        releases.add(one, end_s)
    plan = FakePlan()
    releases.gather(plan)
    return releases, plan


def test_only_those_that_may_be_there_are_named_in_order_of_their_ends():
    releases, _ = filled((job(1, 0b0011), 30.0), (job(2, 0b1100), 20.0), (job(3, 0b0110), 10.0))
    assert on(releases, 0b0001) == [1]
    assert on(releases, 0b0010) == [3, 1]
    assert on(releases, 0b1111) == [3, 2, 1]
    assert on(releases, 0) == []


def test_a_job_on_nodes_that_it_could_not_use_any_more_is_expected_everywhere():
    releases, _ = filled((job(1, 0b0011, where=0b0100), 30.0), (job(2, 0b0011, gpus=0), 5.0))
    assert on(releases, 0b0100) == [2, 1]
    assert on(releases, 0b1000) == [2, 1]


def test_who_ends_leaves_whether_its_nodes_are_known_or_not():
    first, second = job(1, 0b01), job(2, 0b01)
    releases, _ = filled((first, 30.0))
    releases.add(second, 10.0)
    assert releases.ends == {1: 30.0, 2: 10.0}
    releases.remove(second)
    releases.remove(first)
    assert releases.ends == {}
    assert on(releases, 0b01) == []


def test_nodes_are_asked_for_once_until_the_cluster_changes():
    one = job(1, 0b01)
    releases, plan = filled((one, 30.0))
    releases.gather(plan)
    assert plan.asked == [1]
    one.shape.number = one.where = 0b10
    releases.scatter()
    releases.gather(plan)
    assert plan.asked == [1, 1]
    assert on(releases, 0b01) == []
    assert on(releases, 0b10) == [1]


def test_of_requests_that_may_use_all_nodes_one_is_asked_about():
    releases, plan = filled((job(1, 0b1111), 30.0), (job(2, 0b0011), 20.0))
    releases.add(job(3, 0b1111), 10.0)
    releases.gather(plan)
    assert plan.asked == [1, 2]
    assert plan.looked_at == [2]
    assert on(releases, 0b0001) == [3, 2, 1]
    assert on(releases, 0b1000) == [3, 1]
    assert on(releases, 0) == []
    plan.nodes = 0b11111  # one more: now they are jobs of a partition
    releases.scatter()
    releases.gather(plan)
    assert on(releases, 0b10000) == []
    assert on(releases, 0b0001) == [3, 2, 1]
