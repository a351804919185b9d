"""Auctions: payments worked out by hand, all allocations tried, and lies that do not pay."""

from itertools import product
from math import log

import numpy as np
import pytest

from rota.policies.themis.auction import Bid, Option, auction, packs, taken_from, winners

ONE_NODE = {"": [3.0]}


def bid(number, nothing, *options):
    """Options as (GPUs, value), on one node."""
    return Bid(number, nothing, tuple(Option("", gpus, 1, value) for gpus, value in options))


def kept(awards):
    return {award.bidder: award.kept for award in awards}


def test_payments_by_hand():
    # A and B want 2 of 3 GPUs, C one. A and C: 4 x 1 x 2 = 8; B and C: 1 x 3 x 2 = 6.
    awards = auction(ONE_NODE, [bid(0, 1, (2, 4)), bid(1, 1, (2, 3)), bid(2, 1, (1, 2))])
    # Without A the others have 3 x 2 = 6, with it 1 x 2: it keeps a third.
    # Without C they have 4 x 1, as with it: it is in nobody's way and keeps all.
    assert kept(awards) == pytest.approx({0: 1 / 3, 2: 1.0})


def test_payments_where_nothing_is_worth_nothing_are_those_of_the_paper():
    # Two GPUs; A: 1 for one, 2 for both; B: 3 and 4. One each: 1 x 3 = 3 beats 2 x 0 and 0 x 4.
    bids = [bid(0, 0, (1, 1), (2, 2)), bid(1, 0, (1, 3), (2, 4))]
    awards = auction({"": [2.0]}, bids)
    assert [award.option.gpus for award in awards] == [1, 1]
    # A costs B one of four (c = 3/4), B costs A one of two (c = 1/2).
    assert kept(awards) == pytest.approx({0: 3 / 4, 1: 1 / 2})


def test_of_equal_bidders_for_one_place_the_first_wins_and_pays_what_the_other_loses():
    awards = auction({"": [1.0]}, [bid(0, 1, (1, 2)), bid(1, 1, (1, 2))])
    assert kept(awards) == pytest.approx({0: 0.5})


def test_without_rivals_nobody_pays():
    awards = auction({"": [4.0]}, [bid(0, 1, (2, 2)), bid(1, 1, (2, 9))])
    assert kept(awards) == pytest.approx({0: 1.0, 1: 1.0})


def test_what_is_worse_than_nothing_is_not_taken():
    assert auction(ONE_NODE, [bid(0, 1, (1, 0.5)), bid(1, 1, (4, 9))]) == []


# --- against all allocations ----------------------------------------------------------------------


def ways(option, free):
    """Every way to take the GPUs of an option from nodes, as what is left of them."""
    for taken in product(*(range(int(node) + 1) for node in free)):
        if sum(taken) == option.gpus and (
            not option.nodes or sum(1 for gpus in taken if gpus) <= option.nodes
        ):
            yield tuple(node - gpus for node, gpus in zip(free, taken, strict=True))


def possible(options, free):
    if not options:
        return True
    return any(possible(options[1:], left) for left in ways(options[0], free))


def best_of_all(offer, bids):
    best = 0.0
    for chosen in product(*((None, *one.options) for one in bids)):
        taken = [option for option in chosen if option is not None]
        gain = sum(
            one.gain(option) for one, option in zip(bids, chosen, strict=True) if option is not None
        )
        if gain > best and all(
            possible([option for option in taken if option.kind == kind], tuple(free))
            for kind, free in offer.items()
        ):
            best = gain
    return best


def random_bids(rng, most, kinds=("a", "b")):
    bids = []
    for number in range(int(rng.integers(1, 5))):
        gpus, options = int(rng.integers(1, most + 1)), []
        nothing = float(rng.uniform(0.1, 1))
        for kind in kinds:
            value = nothing * float(rng.choice([1.5, 2.0, 3.0]))
            options += [Option(kind, gpus, 1, value), Option(kind, gpus, 0, 0.8 * value)]
        bids.append(Bid(number, nothing, tuple(options)))
    return bids


@pytest.mark.parametrize("seed", range(60))
def test_the_winners_are_those_of_the_best_of_all_allocations(seed):
    rng = np.random.default_rng(seed)
    offer = {"a": rng.integers(0, 4, 2).tolist(), "b": rng.integers(0, 4, 2).tolist()}
    bids = random_bids(rng, 3)
    found, won = winners(offer, bids, effort=100_000)
    assert found == pytest.approx(best_of_all(offer, bids))
    assert sum(bids[number].gain(option) for number, option in won.items()) == pytest.approx(found)


@pytest.mark.parametrize("seed", range(15))
def test_nobody_gains_by_stating_other_values(seed):
    rng = np.random.default_rng(seed)
    offer = {"a": rng.integers(1, 4, 2).tolist()}

    def random_values():
        return np.sort(rng.uniform(0.2, 3, 3))

    truth = {number: random_values() for number in range(3)}

    def ends_with(stated, liar):
        """What a bidder really has after the auction: nothing is worth nothing."""
        bids = [
            Bid(n, 0.0, tuple(Option("a", gpus, 1, values[gpus - 1]) for gpus in (1, 2, 3)))
            for n, values in stated.items()
        ]
        awards = auction(offer, bids, effort=100_000)
        won = {award.bidder: (award.kept, award.option.gpus) for award in awards}
        kept, gpus = won.get(liar, (0.0, 1))
        return kept * truth[liar][gpus - 1]

    for liar, values in truth.items():
        honest = ends_with(truth, liar)
        for lie in (random_values(), values * 3, values / 3, values + 1):
            assert ends_with({**truth, liar: lie}, liar) <= honest + 1e-9


def test_a_search_that_is_cut_short_still_gives_what_is_there():
    rng = np.random.default_rng(3)
    bids = [
        Bid(n, 1.0, (Option("", float(rng.integers(1, 5)), 1, float(rng.uniform(1.1, 4))),))
        for n in range(30)
    ]
    gained, won = winners({"": [4.0, 4.0, 4.0]}, bids, effort=40)
    best, _ = winners({"": [4.0, 4.0, 4.0]}, bids, effort=20_000)
    assert packs([4.0, 4.0, 4.0], list(won.values()))
    assert 0.7 * best <= gained <= best


# --- close together -------------------------------------------------------------------------------


def gang(gpus, nodes=1):
    return Option("", gpus, nodes, 2.0)


def test_gangs_are_packed_on_nodes():
    assert packs([2, 3], [gang(3), gang(2)])
    assert not packs([2, 3], [gang(2), gang(2), gang(2)])
    assert packs([4, 4], [gang(2), gang(2), gang(3)])
    assert not packs([4, 4], [gang(3), gang(3), gang(2)])
    assert packs([4, 4], [gang(3), gang(3), gang(2, 0)])  # scattered ones take what is left
    assert packs([1], [gang(0.5), gang(0.5)])
    assert not packs([1], [gang(0.5), gang(0.75)])


def test_a_gang_for_several_nodes_takes_the_freest_ones():
    assert packs([4, 4, 2], [gang(8, 2), gang(2)])
    assert not packs([4, 3, 3], [gang(8, 2)])
    assert packs([8, 1], [gang(6, 2), gang(2)])
    assert taken_from([1, 4, 2], 5) == [0, 1, 1]


def test_a_gang_of_several_types_takes_what_all_have():
    wide = Bid(0, 1.0, (Option(None, 5, 0, 3.0),))
    small = Bid(1, 1.0, (Option("a", 2, 1, 2.0),))
    gained, won = winners({"a": [3.0], "b": [3.0]}, [wide, small])
    assert list(won) == [0]
    assert gained == pytest.approx(log(3))
