import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.live.agent.devices import ANY, GpuShares


def test_whole_devices_are_exclusive():
    books = GpuShares(2)
    assert books.take([(ANY, 1.0)]) == [(0, 1.0)]
    assert books.take([(ANY, 2.0)]) is None
    assert books.take([(0, 1.0)]) is None
    assert books.take([(1, 1.0)]) == [(1, 1.0)]
    assert books.take([(ANY, 0.1)]) is None


def test_fractions_share_the_fullest_device():
    books = GpuShares(2)
    assert books.take([(1, 0.5)]) == [(1, 0.5)]
    assert books.take([(ANY, 0.5)]) == [(1, 0.5)]
    assert books.take([(ANY, 0.5)]) == [(0, 0.5)]
    assert books.take([(ANY, 0.6)]) is None


def test_a_refusal_takes_nothing():
    books = GpuShares(2)
    assert books.take([(0, 1.0), (1, 0.5), (1, 0.6)]) is None
    assert books.used == (0.0, 0.0)


def test_named_devices_come_first():
    assert GpuShares(2).take([(ANY, 1.0), (0, 1.0)]) == [(0, 1.0), (1, 1.0)]


def test_devices_that_others_wait_for_come_last():
    assert GpuShares(3).take([(ANY, 2.0)], avoid={0}) == [(1, 1.0), (2, 1.0)]
    assert GpuShares(2).take([(ANY, 2.0)], avoid={0}) == [(0, 1.0), (1, 1.0)]


def test_given_back_is_free_again():
    books = GpuShares(1)
    shares = books.take([(ANY, 0.3)])
    books.give(shares)
    assert books.used == (0.0,)
    assert books.take([(ANY, 1.0)]) == [(0, 1.0)]


@pytest.mark.parametrize(
    ("slices", "answer"), [([(2, 1.0)], False), ([(ANY, 3.0)], False), ([(1, 1.0)], True)]
)
def test_what_can_never_be(slices, answer):
    assert GpuShares(2).fits(slices) is answer


requests = st.lists(
    st.tuples(st.integers(ANY, 3), st.sampled_from([0.25, 0.5, 1.0, 2.0])), min_size=1, max_size=3
)


@given(st.lists(st.tuples(requests, st.booleans()), max_size=30))
def test_no_device_is_ever_taken_twice(steps):
    books, held = GpuShares(4), []
    for slices, giving in steps:
        if giving and held:
            books.give(held.pop(0))
        shares = books.take([(device, min(amount, 1.0 if device >= 0 else amount))
                             for device, amount in slices])  # fmt: skip
        if shares is not None:
            held.append(shares)
        totals = [0.0] * 4
        for device, amount in (share for shares in held for share in shares):
            totals[device] += amount
        assert max(totals) <= 1.0 + 1e-9
        assert list(books.used) == pytest.approx(totals)
