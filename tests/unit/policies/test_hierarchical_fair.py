"""Weighted fair sharing down a tree, worked by hand."""

import msgspec
import pytest

from policy_runs import engine, finish, job, runs, runs_of
from rota.core.tenants import Tenant
from rota.policies.hierarchical_fair import (
    PRESENT,
    HierarchicalFair,
    HierarchicalFairParams,
    crossing_s,
    pour,
)
from tenant_runs import random_run


def make(**given):
    return HierarchicalFair(HierarchicalFairParams(**given))


def many(tenant, number, work, at=0):
    return [job(f"{tenant}{i}", at, 1, work, tenant=tenant) for i in range(number)]


def begun(found, tenant):
    return sorted(intervals[0][0] for name, intervals in found.items() if name[0] == tenant)


# --- turns ----------------------------------------------------------------------------------------


def test_those_who_come_together_are_served_in_turns():
    found = runs(make(), [*many("a", 6, 10), *many("b", 6, 10)], gpus=4)
    assert begun(found, "a") == begun(found, "b") == [0, 0, 10, 10, 20, 20]


def test_weights_count():
    tenants = [Tenant("a", weight=3), Tenant("b")]
    found = runs(make(), [*many("a", 9, 10), *many("b", 3, 10)], gpus=4, tenants=tenants)
    assert begun(found, "a") == [0] * 3 + [10] * 3 + [20] * 3
    assert begun(found, "b") == [0, 10, 20]


def test_weights_count_at_every_level():
    """The lab has a half; its two queues share that half, not the cluster."""
    tenants = [Tenant("lab"), Tenant("x", "lab"), Tenant("y", "lab"), Tenant("b")]
    jobs = [*many("x", 3, 10), *many("y", 3, 10), *many("b", 6, 10)]
    found = runs(make(), jobs, gpus=4, tenants=tenants)
    assert begun(found, "x") == begun(found, "y") == [0, 10, 20]
    assert begun(found, "b") == [0, 0, 10, 10, 20, 20]


@pytest.mark.parametrize(("half_life_s", "first"), [(1000.0, ["b"] * 4), (0.0, ["a", "b"] * 2)])
def test_who_has_had_much_waits(half_life_s, first):
    """a had the cluster for 100 s; then both come."""
    jobs = [*many("a", 4, 100), *many("b", 4, 10, at=99)]
    jobs += [job(f"a{i}", 99, 1, 10, tenant="a") for i in range(5, 9)]
    found = runs(make(half_life_s=half_life_s, reclaim=False), jobs, gpus=4)
    at_100 = sorted(name[0] for name, intervals in found.items() if intervals[0][0] == 100)
    assert at_100 == sorted(first)


def test_a_quota_is_served_first():
    tenants = [Tenant("a", quota=3), Tenant("b", weight=100)]
    found = runs(make(), [*many("b", 4, 10), *many("a", 4, 10)], gpus=4, tenants=tenants)
    assert begun(found, "a") == [0, 0, 0, 10]


# --- reclaiming -----------------------------------------------------------------------------------


def test_a_fair_share_is_taken_back():
    found = runs(make(), [*many("a", 4, 100), *many("b", 4, 20, at=10)], gpus=4)
    assert begun(found, "b") == [10, 10, 30, 30]
    assert sorted(len(found[f"a{i}"]) for i in range(4)) == [1, 1, 2, 2]


def test_a_share_that_others_do_not_use_is_shared_too():
    """Of 8 GPUs c wants one only: a and b are owed 3.5 each."""
    jobs = [*many("a", 8, 100), *many("b", 8, 20, at=10), *many("c", 1, 20, at=10)]
    found = runs(make(), jobs, gpus=8)
    assert begun(found, "c") == [10]
    assert begun(found, "b")[:4] == [10, 10, 10, 30]


def test_nobody_is_pushed_below_its_quota_for_a_fair_share():
    tenants = [Tenant("a", quota=4), Tenant("b", weight=50)]
    found = runs(make(), [*many("a", 4, 30), *many("b", 4, 20, at=10)], gpus=4, tenants=tenants)
    assert all(len(intervals) == 1 for intervals in found.values())


def test_who_has_had_more_gets_its_share_only_later():
    """b had its time before a came. It takes 2 GPUs back when a has had more than itself."""
    jobs = [*many("b", 4, 200), *many("a", 4, 400, at=201)]
    jobs += [job(f"b{i}", 202, 1, 10, tenant="b") for i in range(5, 7)]
    found = runs(make(half_life_s=100.0), jobs, gpus=4)
    # had: b 4 (1 - 2^-2) = 3 at 200 s, fading; a rising to 4: they meet where 3 x = 4 (1 - x)
    for name in ("b5", "b6"):
        assert found[name][0][0] == pytest.approx(280, abs=4)


@pytest.mark.parametrize("inside", ["fifo", "las", "tiresias", "srtf"])
def test_a_start_that_is_taken_back_is_no_change(inside):
    """a would borrow what b is owed; b waits for c's jobs, which are protected until 600 s.

    An inner policy that ranks those who start anew has nothing to look at again before that.
    """
    tenants = [Tenant("a"), Tenant("b", weight=4), Tenant("c")]
    jobs = [*many("c", 4, 1000), job("a", 10, 2, 50, tenant="a"), job("b", 10, 3, 50, tenant="b")]
    made = engine(make(inside=inside, min_runtime_s=600.0), jobs, gpus=6, tenants=tenants)
    found = runs_of(finish(made))
    assert found["b"] == [(600, 650)]  # on GPUs of c, so that a may borrow what is idle
    assert found["a"] == [(600, 650)]
    assert made.decisions < 30


def test_when_two_queues_meet():
    seconds = crossing_s(ahead=-4.0, past=3.0, half_life_s=100.0)
    left = 0.5 ** (seconds / 100.0)
    assert 3 * left == pytest.approx(4 * (1 - left) + PRESENT * 4)
    assert crossing_s(ahead=4.0, past=-3.0, half_life_s=100.0) == float("inf")
    assert crossing_s(ahead=-4.0, past=-3.0, half_life_s=100.0) == float("inf")


# --- shares ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "weights", "have", "most", "found"),
    [
        (8, [1, 1], [0, 0], [9, 9], [4, 4]),
        (8, [1, 3], [0, 0], [9, 9], [2, 6]),
        (8, [1, 1, 2], [0, 0, 0], [1, 9, 9], [1, 7 / 3, 14 / 3]),
        (2, [1, 1], [3, 0], [4, 9], [4, 1]),
        (9, [1, 1], [0, 0], [2, 3], [2, 3]),
        (5, [1, 1], [2, 1], [2, 9], [2, 6]),
    ],
)
def test_pouring(amount, weights, have, most, found):
    assert pour(amount, weights, have, most) == pytest.approx(found)


def test_presets():
    assert make(preset="slurm").chosen["reclaim"] is False
    assert make(preset="slurm").chosen["half_life_s"] == 7 * 86400
    assert make(preset="kueue").chosen["half_life_s"] == 0
    assert make(preset="yarn", half_life_s=5.0).chosen["half_life_s"] == 5


# --- state ----------------------------------------------------------------------------------------


class Forgetful(HierarchicalFair):
    """Knows nothing but its snapshot from one decision to the next."""

    def decide(self, view):
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(self.snapshot()))
        fresh = HierarchicalFair(self.params)
        fresh.restore(state)
        plan = fresh.decide(view)
        self.restore(fresh.snapshot())
        return plan


def test_the_past_is_in_the_snapshot():
    given = HierarchicalFairParams(half_life_s=20.0, aging_s=30.0)
    for seed in range(6):
        whole = random_run(seed, lambda: HierarchicalFair(given), lambda _: None)
        again = random_run(seed, lambda: Forgetful(given), lambda _: None)
        assert again.log.frame().equals(whole.log.frame())


def test_the_log_tells_why():
    made = engine(make(), [*many("a", 4, 100), *many("b", 1, 20, at=10)], gpus=4)
    log = finish(made)
    (why,) = log.filter(log["event"] == "stop")["text"].to_list()
    assert why == "queue 'b' has 0 of the 1 GPUs it is owed, queue 'a' has 4 of 3"
