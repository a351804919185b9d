from bisect import bisect_right

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decisions import ends, estimated_jobs, job, run, starts
from rota.core.events import INF, NODE_DOWN, NODE_UP
from rota.policies.backfill.ahead import plan_ahead
from rota.policies.backfill.profile import Profile
from rota.policies.comparing import ByComparison
from rota.policies.conservative import Conservative, ConservativeParams


class Recording(Conservative):
    """Remembers everything that was ever promised to anybody."""

    def __init__(self, params=None):
        super().__init__(params)
        self.promised = {}

    def decide(self, view):
        plan = super().decide(view)
        for index, start_s in self.reserved_s.items():
            self.promised.setdefault(index, []).append(start_s)
        return plan


class Forgetful(Conservative):
    """Knows nothing but its snapshot from one decision to the next."""

    def decide(self, view):
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(self.snapshot()))
        fresh = ByComparison(Conservative(self.params))
        fresh.restore(state)
        plan = fresh.decide(view)
        self.restore(fresh.snapshot())
        return plan


def test_a_profile_finds_the_first_gap_that_is_long_enough():
    profile = Profile(0, 4, [(0, 10, 3), (10, 15, 4), (20, INF, 2)])
    assert (profile.times, profile.free) == ([0, 10, 15, 20], [1, 0, 4, 2])
    assert profile.earliest(1, 10) == 0
    assert profile.earliest(1, 11) == 15
    assert profile.earliest(4, 5) == 15
    assert profile.earliest(4, 6) == INF
    assert profile.earliest(2, INF) == 15
    profile.take(15, 18, 3)
    assert (profile.times, profile.free) == ([0, 10, 15, 18, 20], [1, 0, 1, 4, 2])
    assert profile.earliest(2, 1) == 18
    assert profile.earliest(0, 0) == 0


@given(
    uses=st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9), st.integers(1, 4)), max_size=6),
    asked=st.lists(st.tuples(st.integers(0, 8), st.integers(1, 9)), max_size=20),
)
def test_a_profile_finds_what_a_search_over_all_times_finds(uses, asked):
    taken = [(start_s, start_s + seconds, gpus) for start_s, seconds, gpus in uses]
    profile = Profile(0, 8, taken)

    def fits(start_s, gpus, seconds):
        return all(
            gpus + sum(used for since_s, until_s, used in taken if since_s <= t < until_s) <= 8
            for t in range(start_s, start_s + seconds)
        )

    for gpus, seconds in asked:
        expected = next((t for t in range(400) if fits(t, gpus, seconds)), INF)
        assert profile.earliest(gpus, seconds) == expected
        profile.take(expected, expected + seconds, gpus)
        taken.append((expected, expected + seconds, gpus))


@given(
    uses=st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9), st.integers(1, 4)), max_size=6),
    now_s=st.integers(0, 12),
    asked=st.tuples(st.integers(1, 8), st.integers(1, 9), st.integers(0, 30)),
)
def test_a_profile_is_as_if_it_had_been_made_without_what_was_given_back(uses, now_s, asked):
    taken = [(start_s, start_s + seconds, gpus) for start_s, seconds, gpus in uses]
    profile = Profile(0, 8, taken)
    for use in taken[::2]:
        profile.give(*use)
    profile.advance(now_s)
    left = [(max(a, now_s), b, gpus) for a, b, gpus in taken[1::2] if b > now_s]
    other = Profile(now_s, 8, left)

    def free(of, time_s):
        return of.free[bisect_right(of.times, time_s) - 1]

    assert [free(profile, t) for t in range(now_s, 40)] == [
        free(other, t) for t in range(now_s, 40)
    ]
    gpus, seconds, start_s = asked
    sooner = (
        t
        for t in range(now_s, start_s)
        if all(free(profile, u) >= gpus for u in range(t, min(start_s, t + seconds)))
    )
    assert profile.sooner(gpus, seconds, start_s) == next(sooner, start_s)


def test_a_job_may_not_delay_anybody_who_waits():
    jobs = [
        job("first", 2, 10, estimate=10),
        job("second", 3, 10, at=1, estimate=10),
        job("third", 4, 5, at=2, estimate=5),
        job("long", 1, 30, at=3, estimate=30),  # beside the second, but the third would wait
        job("short", 1, 16, at=4, estimate=16),  # over when the third starts
    ]
    policy = Recording()
    made = run(policy, jobs, (1, 4))
    assert starts(made) == {"first": 0, "second": 10, "third": 20, "long": 25, "short": 4}
    assert {index: set(times) for index, times in policy.promised.items()} == {
        1: {10}, 2: {20}, 3: {25},
    }  # fmt: skip


def test_an_early_end_moves_everybody_up_in_the_order_of_their_reservations():
    jobs = [
        job("first", 4, 4, estimate=10),
        job("second", 3, 5, at=1, estimate=5),
        job("third", 4, 5, at=2, estimate=5),
        job("fourth", 1, 3, at=3, estimate=3),
    ]
    policy = Recording()
    made = run(policy, jobs, (1, 4))
    assert starts(made) == {"first": 0, "second": 4, "third": 9, "fourth": 4}
    assert policy.promised == {1: [10, 10, 10], 2: [15, 15, 9, 9], 3: [10]}


def test_without_estimates_nothing_is_foreseeable():
    jobs = [job("first", 3, 10), job("second", 4, 5, at=1), job("small", 1, 20, at=2)]
    policy = Recording()
    assert starts(run(policy, jobs, (1, 4))) == {"first": 0, "second": 22, "small": 2}
    assert policy.promised[1] == [INF, INF, INF]


def test_a_default_estimate_takes_the_place_of_a_missing_one():
    jobs = [job("first", 3, 10), job("second", 4, 5, at=1), job("small", 1, 20, at=2)]
    made = run(Conservative(ConservativeParams(default_estimate_s=12)), jobs, (1, 4))
    assert starts(made) == {"first": 0, "second": 10, "small": 15}


def test_a_job_that_outlives_its_estimate_is_expected_to_end_any_moment():
    jobs = [
        job("first", 3, 10, estimate=5),
        job("second", 4, 5, at=1, estimate=5),
        job("third", 1, 1, at=6, estimate=1),
    ]
    policy = Recording()
    assert starts(run(policy, jobs, (1, 4))) == {"first": 0, "second": 10, "third": 15}
    assert policy.promised == {1: [5, 6], 2: [11, 15]}


def test_where_the_placement_finds_no_node_a_due_job_goes_on_waiting():
    jobs = [
        job("left", 3, 10, estimate=10),
        job("right", 3, 20, estimate=20),
        job("two", 2, 5, at=1, estimate=5),  # two are free, but on two nodes
    ]
    policy = Recording()
    made = run(policy, jobs, (2, 4), placement="consolidate")
    assert starts(made)["two"] == 10
    assert policy.promised == {2: [1]}


def test_a_lost_node_makes_everybody_wait_longer():
    jobs = [
        job("first", 4, 10, estimate=10),
        job("second", 4, 10, estimate=10),
        job("third", 8, 1, at=1, estimate=1),
    ]
    outages = [(2, NODE_DOWN, 1), (30, NODE_UP, 1)]
    made = run(Conservative(), jobs, (2, 4), outages=outages)
    assert ends(made) == {"first": 10, "second": 18, "third": 31}


@given(jobs=estimated_jobs(8))
def test_nobody_starts_later_than_it_was_ever_told(jobs):
    policy = Recording()
    made = run(policy, jobs, (1, 8))
    started = {j.index: j.first_start_s for j in made.view.finished}
    assert len(started) == len(jobs)
    for index, promised in policy.promised.items():
        assert promised == sorted(promised, reverse=True)
        assert started[index] <= promised[-1]


@pytest.mark.parametrize("placement", ["count", "consolidate"])
@given(jobs=estimated_jobs(8))
def test_a_snapshot_is_all_it_needs(placement, jobs):
    expected = run(Conservative(), jobs, (2, 4), placement=placement)
    assert starts(run(Forgetful(), jobs, (2, 4), placement=placement)) == starts(expected)


@given(
    uses=st.lists(
        st.tuples(st.sampled_from((-2, 0, 1, 2, 5, 12, INF)), st.integers(1, 4)), max_size=8
    ),
    wants=st.lists(
        st.tuples(st.sampled_from((0.5, 1, 2, 4, 8, 9)), st.sampled_from((0, 1, 2, 3.5, 7, INF))),
        max_size=12,
    ),
)
def test_planning_for_all_is_reserving_for_one_after_the_other(uses, wants):
    together, starts = plan_ahead(0.0, 8.0, [(end_s, g / 2) for end_s, g in uses], wants)
    apart = Profile(0.0, 8.0, [(0.0, max(end_s, 0.0), g / 2) for end_s, g in uses])
    found = []
    for gpus, seconds in wants:
        found.append(apart.earliest(gpus, seconds))
        apart.take(found[-1], found[-1] + seconds, gpus)
    assert starts == found
    assert (together.times, together.free) == (apart.times, apart.free)
