"""Numbers that change over time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.signals import Signal

INF = float("inf")
STEPS = [(0.0, 4.0), (10.0, 2.0), (20.0, 2.0), (30.0, 5.0)]


def test_a_step_holds_from_its_time_on_and_the_first_one_also_before():
    signal = Signal("lent", STEPS)

    assert [signal.at(t) for t in (-5, 0, 9.9, 10, 29, 30, 1e9)] == [4, 4, 4, 2, 2, 5, 5]


def test_a_step_to_the_same_number_is_no_change():
    signal = Signal("lent", STEPS)

    assert [signal.next_change(t) for t in (-5, 0, 10, 20, 30)] == [10, 10, 30, 30, INF]


def test_a_forecast_says_that_all_stays_as_it_is_unless_it_is_foreseen():
    assert Signal("price", STEPS).forecast(5, 15) == 4
    assert Signal("price", STEPS).forecast(15, 5) == 4
    assert Signal("tariff", STEPS, foreseen=True).forecast(5, 15) == 2


@pytest.mark.parametrize("steps", [[], [(0, 1), (0, 2)], [(5, 1), (4, 2)]])
def test_steps_that_cannot_be_are_refused(steps):
    with pytest.raises(ValueError, match="signal 'x'"):
        Signal("x", steps)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(-9, 9)), min_size=1, max_size=8,
             unique_by=lambda step: step[0]),
    st.integers(-10, 60), st.integers(-10, 60), st.integers(-10, 60),
)  # fmt: skip
def test_integrals_add_up_second_by_second(steps, a, b, c):
    signal = Signal("x", sorted(steps))
    whole = sum(signal.at(t) for t in range(min(a, b), max(a, b)))

    assert signal.integral(a, b) == pytest.approx(whole if a <= b else -whole)
    assert signal.integral(a, b) + signal.integral(b, c) == pytest.approx(signal.integral(a, c))
