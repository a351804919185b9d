"""Fair parts of every GPU type, and trades between users by which nobody loses.

Every user first gets a part of each type in proportion to its tickets (`entitlements`). Users
differ in what a fast GPU is worth to them: for user u it is worth r_u = v_uf / v_us slow ones,
where v is the speed of the user's jobs. If r differs, both sides can gain: the user with the
largest r (the buyer) gives r' slow GPUs for a fast one to the user with the smallest r (the
seller), at the second price: r' is the largest r of all others that is not above the buyer's. Then
r_buyer >= r' >= r_seller, so with the throughput V_u = sum_t v_ut e_ut

    buyer gains   a (v_bf - r' v_bs) >= 0        for a fast GPUs that change hands,
    seller gains  a (r' v_ss - v_sf) >= 0.

Trades go on until no pair of types and users is left that gains. No user gets more GPUs than its
jobs can use: what would lie idle is no gain. Less than a hundredth of a GPU is not traded.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

EPSILON = 1e-9
LEAST = 0.01  # GPUs: over three types ever smaller trades could go on for ever
_ROUNDS = 1000


@dataclass(frozen=True)
class Market:
    """Users by row, GPU types by column.

    `speed` is 0 where a user's jobs cannot run; `demand` is how many GPUs they can use in all.
    """

    capacity: Array
    tickets: Array
    demand: Array
    speed: Array


@dataclass(frozen=True)
class Trade:
    """`buyer` gets `amount` GPUs of `fast` from `seller` for `rate` times as many of `slow`."""

    buyer: int
    seller: int
    fast: int
    slow: int
    amount: float
    rate: float


def entitlements(market: Market) -> Array:
    """GPUs of each type in proportion to tickets; what a user cannot use goes to the others.

    All fill up at the same speed, relative to their tickets, until they have all they can use.
    """
    users, kinds = market.speed.shape
    given = np.zeros((users, kinds))
    left = market.capacity.astype(float)
    able = (market.speed > 0) & (market.demand > EPSILON)[:, None]
    for _ in range(users + kinds):
        weight = np.where(able, market.tickets[:, None], 0.0)
        total = weight.sum(axis=0)
        offer = weight * np.divide(left, total, out=np.zeros(kinds), where=total > 0)[None, :]
        wanted = offer.sum(axis=1)
        if wanted.max(initial=0.0) <= EPSILON:
            break
        short = market.demand - given.sum(axis=1)
        part = np.divide(short, wanted, out=np.ones(users), where=wanted > EPSILON)
        step = min(1.0, float(part.min(initial=1.0)))
        given += step * offer
        left = np.maximum(0.0, left - step * offer.sum(axis=0))
        able &= (market.demand - given.sum(axis=1) > EPSILON)[:, None]
    return given


def trade(market: Market, given: Array) -> tuple[Array, list[Trade]]:
    """What users have after all trades, and the trades."""
    given = given.astype(float).copy()
    done: list[Trade] = []
    pairs = _pairs(market)
    while len(done) < _ROUNDS:
        found = next((deal for pair in pairs for deal in _deals(market, given, *pair)), None)
        if found is None:
            break
        given[found.buyer, found.fast] += found.amount
        given[found.seller, found.fast] -= found.amount
        given[found.buyer, found.slow] -= found.amount * found.rate
        given[found.seller, found.slow] += found.amount * found.rate
        np.maximum(given, 0.0, out=given)
        done.append(found)
    return given, done


def throughput(market: Market, given: Array) -> Array:
    """What every user's jobs make of these GPUs."""
    return np.asarray((market.speed * given).sum(axis=1))


def _pairs(market: Market) -> Sequence[tuple[int, int]]:
    """Types as (fast, slow), those that differ most on average first."""
    mean = market.speed.mean(axis=0) if len(market.speed) else np.zeros(len(market.capacity))
    pairs = [
        (one, other) if mean[one] >= mean[other] else (other, one)
        for one, other in combinations(range(len(mean)), 2)
    ]
    return sorted(pairs, key=lambda pair: (mean[pair[1]] - mean[pair[0]], pair))


def _deals(market: Market, given: Array, fast: int, slow: int) -> Iterator[Trade]:
    """What may be traded between two types; the pair of users that gains most first."""
    quick, dull = market.speed[:, fast], market.speed[:, slow]
    ratio = np.divide(quick, dull, out=np.full(len(quick), np.inf), where=dull > 0)
    order = np.argsort(-ratio, kind="stable").tolist()
    for buyer in order:
        if given[buyer, slow] <= EPSILON or quick[buyer] <= 0:
            continue
        others = [ratio[user] for user in order if user != buyer and np.isfinite(ratio[user])]
        rate = max((r for r in others if r <= ratio[buyer]), default=0.0)
        for seller in reversed(order):
            if not ratio[seller] < ratio[buyer] * (1 - EPSILON) or ratio[seller] > rate:
                break
            amount = _amount(market, given, (buyer, seller), (fast, slow), rate)
            if amount > LEAST:
                yield Trade(buyer, seller, fast, slow, float(amount), float(rate))


def _amount(
    market: Market, given: Array, users: tuple[int, int], kinds: tuple[int, int], rate: float
) -> float:
    """How many fast GPUs can change hands."""
    (buyer, seller), (fast, slow) = users, kinds
    most = float(given[seller, fast])
    if rate > 0:
        most = min(most, float(given[buyer, slow]) / rate)
    grows = seller if rate > 1 else buyer
    room = float(market.demand[grows] - given[grows].sum())
    return min(most, room / abs(rate - 1)) if abs(rate - 1) > EPSILON else most
