"""The search within bounds: known answers, bounds that hold, and SciPy's where it has one."""

import random

import pytest

from rota.models.bounded import Stops, least

INF = float("inf")


def rosenbrock(x):
    value, slopes = 0.0, [0.0] * len(x)
    for at in range(len(x) - 1):
        bent, rest = x[at + 1] - x[at] ** 2, 1 - x[at]
        value += 100 * bent**2 + rest**2
        slopes[at] += -400 * x[at] * bent - 2 * rest
        slopes[at + 1] += 200 * bent
    return value, slopes


@pytest.mark.parametrize("memory", [10, None])
def test_a_curved_valley_is_followed_to_its_end(memory):
    found, value = least(rosenbrock, [-1.2, 1.0, 2.0], [-INF] * 3, [INF] * 3, Stops(memory=memory))
    assert found == pytest.approx([1, 1, 1], abs=1e-4)
    assert value < 1e-8


@pytest.mark.parametrize("memory", [10, None])
def test_bounds_hold_and_what_has_no_room_stays(memory):
    asked = []

    def watched(x):
        asked.append(list(x))
        return rosenbrock(x)

    low, high = [-2.0, 1.5, -2.0, 0.3], [2.0, 2.0, 0.7, 0.3]
    found, _ = least(watched, [-1.2, 9.0, 0.0, 0.3], low, high, Stops(memory=memory))
    for each in asked:
        assert all(a <= x <= b for a, x, b in zip(low, each, high, strict=True))
    assert found[3] == 0.3
    assert found[1] == 1.5
    assert found[2] == 0.7


def test_where_nothing_can_be_gained_it_stays():
    calls = []

    def down(x):
        calls.append(x)
        return x[0], [1.0]

    assert least(down, [1.0], [1.0], [2.0]) == ([1.0], 1.0)
    assert len(calls) == 1


def test_it_ends_where_scipys_ends():
    optimize = pytest.importorskip("scipy.optimize")
    rng = random.Random(7)  # noqa: S311 - not for secrets
    for _ in range(20):
        size = rng.randint(1, 6)
        bent = [rng.uniform(0.1, 9) for _ in range(size)]
        goal = [rng.uniform(-2, 2) for _ in range(size)]

        def bowl(x, bent=bent, goal=goal):
            value, slopes, over = 0.0, [], 0.0
            for a, b, c in zip(x, bent, goal, strict=True):
                value += b * (a - c) ** 2
                over += a
                slopes.append(2 * b * (a - c))
            return value + over**4, [each + 4 * over**3 for each in slopes]

        low = [rng.choice([-INF, rng.uniform(-1.5, 0)]) for _ in range(size)]
        high = [rng.choice([INF, rng.uniform(0, 1.5)]) for _ in range(size)]
        ours, value = least(bowl, [0.0] * size, low, high)
        theirs, same, _ = optimize.fmin_l_bfgs_b(
            bowl, [0.0] * size, bounds=list(zip(low, high, strict=True))
        )
        assert value == pytest.approx(same, rel=1e-7, abs=1e-9)
        assert ours == pytest.approx(theirs, abs=1e-3)
