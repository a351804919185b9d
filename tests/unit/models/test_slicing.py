"""How jobs divide one GPU: shares by formula, and turns that follow them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.models.slicing import (
    GpuClaim,
    SliceTurns,
    divide,
    pipelined_switch_s,
    remote_step_s,
    slice_tax,
    spilled_rate,
)

weights = st.lists(st.integers(1, 20).map(float), min_size=1, max_size=7)


@given(weights)
def test_weighted_processor_sharing(some):
    shares = divide([GpuClaim(1.0, 1.0, weight) for weight in some])
    assert shares == pytest.approx([weight / sum(some) for weight in some])


claims = st.lists(
    st.builds(
        GpuClaim,
        need=st.just(1.0),
        most=st.integers(0, 10).map(lambda tenths: tenths / 10),
        weight=st.integers(0, 5).map(float),
    ),
    min_size=1,
    max_size=6,
)


@given(claims)
def test_nobody_has_more_than_it_wants_and_nothing_is_wasted(some):
    shares = divide(some)
    assert all(0 <= share <= claim.most + 1e-9 for share, claim in zip(shares, some, strict=True))
    weighted = [claim for claim in some if claim.weight]
    wanted = sum(claim.most for claim in some)
    assert sum(shares) <= 1 + 1e-9
    if len(weighted) == len(some):
        assert sum(shares) == pytest.approx(min(1.0, wanted))
    for one, mine in zip(
        shares, some, strict=True
    ):  # who is short has no less than others by weight
        for other, theirs in zip(shares, some, strict=True):
            if one < mine.most - 1e-9 and theirs.weight and mine.weight:
                assert one / mine.weight >= other / theirs.weight - 1e-9


@given(weights, st.integers(1, 60))
@settings(deadline=None)
def test_turns_lag_by_less_than_one_slice(some, slices):
    turns = SliceTurns({f"j{i}": weight for i, weight in enumerate(some)})
    for _ in range(slices):
        turns.next()
        for i in range(len(some)):
            assert abs(turns.lag(f"j{i}")) < 1.0


def test_three_equal_jobs_take_turns():
    turns = SliceTurns({"a": 1.0, "b": 1.0, "c": 1.0})
    assert "".join(turns.next() for _ in range(7)) == "abcabca"


def test_a_switch_that_is_pipelined_by_hand():
    """Two layers: 1 GiB each at 10 GiB/s, 0.3 s of compute each: the second one hides."""
    groups = [(1.0, 0.3), (1.0, 0.3)]
    assert pipelined_switch_s(groups, 10.0) == pytest.approx(0.1)
    slow_link = pipelined_switch_s(groups, 2.0)  # arrives at 0.5 and 1.0: ends at 1.3
    assert slow_link == pytest.approx(1.3 - 0.6)
    assert pipelined_switch_s([(2.0, 0.6)], 10.0) == pytest.approx(0.2)  # nothing overlaps


def test_a_remote_gpu_by_the_formula():
    assert remote_step_s(0.5, 1.0, 100, gib_s=10.0, rtt_s=0.001) == pytest.approx(0.7)
    assert remote_step_s(0.5, 1.0, 100, gib_s=10.0, rtt_s=0.001, sharers=3) == pytest.approx(0.9)


@given(st.lists(st.floats(0, 40), min_size=2, max_size=5).map(sorted))
def test_more_spill_is_never_faster(spills):
    rates = [spilled_rate(spill, 0.5, 12.0) for spill in spills]
    assert rates == sorted(rates, reverse=True)
    assert spilled_rate(0.0, 0.5, 12.0) == 1.0


def test_the_tax_of_switching():
    assert slice_tax(0.2, 0.0) == 0.0
    assert slice_tax(0.9, 0.1) == pytest.approx(0.1)
