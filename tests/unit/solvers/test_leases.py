"""Leases: the programme against trying everything, and the quick packing."""

from itertools import combinations, product
from random import Random

import pytest

from rota.solvers.leases import LeaseNeed, pack_leases, share_leases


def used(needs, leases, t):
    return sum(n.gpus for n, has in zip(needs, leases, strict=True) if t < len(has) and has[t])


def best_first(needs, capacity, *, fill):
    """Return the most or fewest GPUs of the first lease; None if nothing is possible."""
    ways = [
        [
            [t in chosen for t in range(need.within)]
            for chosen in combinations(range(need.within), need.leases)
        ]
        for need in needs
    ]
    found = [
        used(needs, leases, 0)
        for leases in product(*ways)
        if all(used(needs, leases, t) <= room for t, room in enumerate(capacity))
    ]
    return (max if fill else min)(found, default=None)


@pytest.mark.parametrize("fill", [True, False])
def test_the_first_lease_is_as_full_or_as_empty_as_can_be(fill):
    draw = Random(5)  # noqa: S311 - jobs, no secrets
    none = 0
    for _ in range(60):
        needs = []
        for _ in range(draw.randint(1, 4)):
            within = draw.randint(1, 4)
            needs.append(LeaseNeed(draw.choice([1, 2, 4]), draw.randint(0, within), within))
        capacity = [draw.choice([3, 4, 6]) for _ in range(4)]
        leases = share_leases(needs, capacity, fill=fill)
        best = best_first(needs, capacity, fill=fill)
        if best is None:
            none += 1
            assert leases is None
            continue
        assert [(len(has), sum(has)) for has in leases] == [(n.within, n.leases) for n in needs]
        assert all(used(needs, leases, t) <= room for t, room in enumerate(capacity))
        assert used(needs, leases, 0) == best
    assert 5 < none < 55


def test_who_is_favoured_has_the_first_lease_if_others_can_wait():
    needs = [LeaseNeed(4, 1, 3), LeaseNeed(4, 1, 3), LeaseNeed(4, 1, 3)]
    for one in range(3):
        leases = share_leases(needs, [4, 4, 4], fill=True, favoured={one})
        assert [has[0] for has in leases] == [place == one for place in range(3)]
    tight = [LeaseNeed(4, 1, 1), LeaseNeed(4, 1, 2)]
    assert share_leases(tight, [4, 4], fill=True, favoured={1}) == [[True], [False, True]]


def test_more_leases_than_there_are_cannot_be_had():
    assert share_leases([LeaseNeed(1, 3, 2)], [8, 8], fill=True) is None
    assert share_leases([], [], fill=True) == []


def test_packing_takes_the_last_leases_with_room_and_leaves_the_others():
    room = [4, 2, 4, 4]
    needs = [LeaseNeed(4, 1, 3), LeaseNeed(2, 3, 4), LeaseNeed(4, 2, 4)]
    assert pack_leases(needs, room) == [
        [False, False, True],
        [True, True, False, True],
        None,
    ]
    assert room == [2, 0, 0, 2]
