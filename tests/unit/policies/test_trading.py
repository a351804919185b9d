"""Parts in proportion to tickets, and trades by which nobody loses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.policies.gandiva_fair.trading import LEAST, Market, entitlements, throughput, trade


def market(speed, capacity, *, tickets=None, demand=None):
    users = len(speed)
    return Market(
        capacity=np.array(capacity, float),
        tickets=np.ones(users) if tickets is None else np.array(tickets, float),
        demand=np.full(users, 1e6) if demand is None else np.array(demand, float),
        speed=np.array(speed, float),
    )


def test_every_type_is_divided_in_proportion_to_tickets():
    given_ = entitlements(market([[1, 1], [1, 1]], [8, 4], tickets=[3, 1]))
    assert given_ == pytest.approx(np.array([[6, 3], [2, 1]]))


def test_what_a_user_cannot_use_goes_to_the_others():
    given_ = entitlements(market([[1], [1], [1]], [12], demand=[2, 9, 9]))
    assert given_.ravel() == pytest.approx([2, 5, 5])
    given_ = entitlements(market([[1, 0], [1, 1]], [4, 4]))
    assert given_ == pytest.approx(np.array([[2, 0], [2, 4]]))


def test_two_users_and_two_types():
    # fast GPUs are worth 4 slow ones to A and 1.5 to B; with nobody else that is the second price
    of = market([[4, 1], [1.5, 1]], [4, 4])
    before = entitlements(of)
    after, trades = trade(of, before)
    assert [(t.buyer, t.seller, t.rate) for t in trades] == [(0, 1, 1.5)]
    assert trades[0].amount == pytest.approx(2 / 1.5)  # A gives its 2 slow GPUs
    assert after == pytest.approx(np.array([[2 + 2 / 1.5, 0], [2 - 2 / 1.5, 4]]))
    assert throughput(of, before) == pytest.approx([10, 5])
    assert throughput(of, after) == pytest.approx([40 / 3, 5])


def test_the_price_is_the_second_largest():
    of = market([[5, 1], [3, 1], [1.5, 1]], [6, 6])
    before = entitlements(of)
    after, trades = trade(of, before)
    first = trades[0]
    assert (first.buyer, first.seller, first.rate) == (0, 2, 3)
    assert throughput(of, after)[2] > throughput(of, before)[2]  # the seller gains too


def test_users_to_whom_types_are_worth_the_same_do_not_trade():
    of = market([[2, 1], [4, 2]], [4, 4])
    assert trade(of, entitlements(of))[1] == []


def test_a_seller_takes_no_more_than_its_jobs_can_use():
    of = market([[4, 1], [2, 1]], [4, 4], demand=[9, 4.5])
    before = entitlements(of)
    after, trades = trade(of, before)
    assert trades[0].amount == pytest.approx(0.5)  # each fast GPU given away brings two slow ones
    assert after.sum(axis=1)[1] == pytest.approx(4.5)


def test_a_user_whose_jobs_cannot_run_on_slow_gpus_gives_them_all_for_fast_ones():
    of = Market(
        np.array([4.0, 4.0]), np.ones(2), np.array([9.0, 9.0]), np.array([[1.0, 0.0], [2.0, 1.0]])
    )
    after, trades = trade(of, np.array([[2.0, 2.0], [2.0, 2.0]]))
    assert [(t.buyer, t.rate) for t in trades] == [(0, 2.0)]
    assert after == pytest.approx(np.array([[3, 0], [1, 4]]))


speeds = st.one_of(st.just(0.0), st.floats(0.05, 10))


@st.composite
def markets(draw, most_kinds=4, least_kinds=1):
    users, kinds = draw(st.integers(1, 6)), draw(st.integers(least_kinds, most_kinds))

    def numbers(of, count):
        return np.array(draw(st.lists(of, min_size=count, max_size=count)), float)

    return Market(
        capacity=numbers(st.integers(0, 40), kinds),
        tickets=numbers(st.floats(0.1, 5), users),
        demand=numbers(st.integers(0, 60), users),
        speed=numbers(speeds, users * kinds).reshape(users, kinds),
    )


@given(of=markets())
def test_no_user_loses(of):
    before = entitlements(of)
    after, trades = trade(of, before)
    assert (throughput(of, after) >= throughput(of, before) - 1e-6).all()
    assert after.sum(axis=0) == pytest.approx(before.sum(axis=0), abs=1e-6)  # no GPU is made
    assert (before.sum(axis=0) <= of.capacity + 1e-6).all()
    assert (after >= 0).all()
    assert (after.sum(axis=1) <= of.demand + 1e-6).all()
    assert all(one.amount >= LEAST and one.buyer != one.seller for one in trades)


@given(of=markets(2, 2))
def test_in_the_end_no_two_users_are_left_that_could_both_gain(of):
    of = Market(of.capacity, of.tickets, np.full(len(of.tickets), 1e9), of.speed)
    after, _ = trade(of, entitlements(of))
    fast, slow = (0, 1) if of.speed[:, 0].mean() >= of.speed[:, 1].mean() else (1, 0)
    both = (of.speed > 0).all(axis=1)
    worth = of.speed[both, fast] / of.speed[both, slow]
    sells = worth[after[both, fast] > 2 * LEAST]
    buys = worth[after[both, slow] > 2 * LEAST * np.maximum(worth, 1)]
    if len(sells) and len(buys):
        assert buys.max() <= sells.min() * (1 + 1e-6)
