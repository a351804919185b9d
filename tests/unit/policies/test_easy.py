import pytest
from hypothesis import given

from decisions import estimated_jobs, job, run, starts
from rota.core.events import NODE_DOWN, NODE_UP
from rota.policies.easy import Easy, EasyParams


class Recording(Easy):
    """Remembers everything that was ever promised to a head."""

    def __init__(self, params=None):
        super().__init__(params)
        self.promised = {}

    def decide(self, view):
        plan = super().decide(view)
        for index, start_s in self.reservations.items():
            self.promised.setdefault(index, []).append(start_s)
        return plan


def test_a_short_job_starts_before_the_reservation():
    jobs = [
        job("first", 3, 10, estimate=10),
        job("head", 4, 5, at=1, estimate=5),
        job("too-long", 1, 8, at=2, estimate=9),
        job("ends-in-time", 1, 7, at=3, estimate=7),
    ]
    policy = Recording()
    made = run(policy, jobs, (1, 4))
    assert starts(made) == {"first": 0, "head": 10, "too-long": 15, "ends-in-time": 3}
    assert policy.promised == {1: [10, 10, 10], 2: [15]}


def test_a_long_job_starts_on_what_the_head_leaves_over():
    jobs = [
        job("first", 2, 10, estimate=10),
        job("head", 3, 10, at=1, estimate=10),
        job("beside", 1, 100, at=2, estimate=100),
        job("would-delay", 1, 100, at=3, estimate=100),
    ]
    assert starts(run(Easy(), jobs, (1, 4))) == {
        "first": 0, "head": 10, "beside": 2, "would-delay": 20,
    }  # fmt: skip


@pytest.mark.parametrize(("placement", "expected"), [("count", 2), ("consolidate", 10)])
def test_the_reservation_is_for_nodes_where_the_placement_knows_nodes(placement, expected):
    jobs = [
        job("left", 3, 10, estimate=10),
        job("right", 3, 20, estimate=20),
        job("head", 4, 10, at=1, estimate=10),
        job("small", 1, 50, at=2, estimate=50),  # would go to the first node, which the head gets
    ]
    made = run(Easy(), jobs, (2, 4), placement=placement)
    assert starts(made) == {"left": 0, "right": 0, "head": 10, "small": expected}


def test_others_of_a_shape_that_delays_the_head_may_still_be_short_enough():
    jobs = [
        job("first", 3, 10, estimate=10),
        job("head", 4, 5, at=1, estimate=5),
        job("long", 1, 20, at=2, estimate=20),
        job("short", 1, 8, at=2, estimate=8),
    ]
    assert starts(run(Easy(), jobs, (1, 4))) == {"first": 0, "head": 10, "long": 15, "short": 2}


def test_an_early_end_moves_the_head_up():
    jobs = [job("first", 4, 3, estimate=10), job("head", 4, 1, at=1, estimate=1)]
    policy = Recording()
    assert starts(run(policy, jobs, (1, 4))) == {"first": 0, "head": 3}
    assert policy.promised == {1: [10]}


def test_without_estimates_nothing_is_promised_and_whatever_fits_starts():
    jobs = [job("first", 3, 10), job("head", 4, 5, at=1), job("small", 1, 20, at=2)]
    policy = Recording()
    assert starts(run(policy, jobs, (1, 4))) == {"first": 0, "head": 22, "small": 2}
    assert set(policy.promised[1][:2]) == {float("inf")}


def test_a_default_estimate_takes_the_place_of_a_missing_one():
    jobs = [job("first", 3, 10), job("head", 4, 5, at=1), job("small", 1, 20, at=2)]
    made = run(Easy(EasyParams(default_estimate_s=12)), jobs, (1, 4))
    assert starts(made) == {"first": 0, "head": 10, "small": 15}


def test_a_job_that_outlives_its_estimate_is_expected_to_end_any_moment():
    jobs = [
        job("first", 3, 10, estimate=5),
        job("head", 4, 5, at=1, estimate=5),
        job("late", 1, 1, at=6, estimate=1),
    ]
    policy = Recording()
    assert starts(run(policy, jobs, (1, 4))) == {"first": 0, "head": 10, "late": 15}
    assert policy.promised == {1: [5, 6], 2: [15]}


def test_an_evicted_job_needs_only_the_rest_of_its_estimate():
    jobs = [
        job("evicted", 4, 10, estimate=10),
        job("head", 4, 1, at=1, estimate=1),
    ]
    policy = Recording()
    outages = [(6, NODE_DOWN, 0), (7, NODE_UP, 0)]
    made = run(policy, jobs, (1, 4), outages=outages)
    assert starts(made)["head"] == 11
    assert policy.promised[1] == [10, 11]


@pytest.mark.parametrize("placement", ["count", "consolidate"])
@given(jobs=estimated_jobs(8))
def test_nobody_delays_the_head_beyond_its_first_reservation(placement, jobs):
    policy = Recording()
    made = run(policy, jobs, (2, 4), placement=placement)
    started = {j.index: j.first_start_s for j in made.view.finished}
    assert len(started) == len(jobs)
    for index, promised in policy.promised.items():
        assert promised == sorted(promised, reverse=True)
        assert started[index] <= promised[-1]
