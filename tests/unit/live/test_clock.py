"""Time goes on whatever the system's clock does."""

import pytest

from rota.live import clock as module
from rota.live.clock import WallClock


class System:
    """The clocks of a machine: one that people set, one that nobody can."""

    def __init__(self, monkeypatch):
        self.wall_s, self.steady_s = 1_000_000.0, 50.0
        monkeypatch.setattr(module, "time", lambda: self.wall_s)
        monkeypatch.setattr(module, "monotonic", lambda: self.steady_s)

    def pass_s(self, seconds):
        self.wall_s += seconds
        self.steady_s += seconds

    def set_clock(self, by_s):
        self.wall_s += by_s


@pytest.fixture
def system(monkeypatch):
    return System(monkeypatch)


@pytest.mark.parametrize("step_s", [-7200.0, 7200.0])
def test_a_step_within_a_life_is_not_seen(system, step_s):
    clock = WallClock(system.wall_s - 10.0)
    assert clock.now_s() == 10.0
    system.set_clock(step_s)
    system.pass_s(3.0)
    assert clock.now_s() == 13.0
    assert clock.wait_s(20.0) == 7.0


def test_between_lives_time_goes_on(system):
    epoch = system.wall_s
    system.pass_s(100.0)
    reached_s = WallClock(epoch).now_s()
    system.pass_s(60.0)
    assert WallClock(epoch, reached_s).now_s() == 160.0


def test_a_clock_set_back_between_lives_does_not_take_time_back(system):
    epoch = system.wall_s
    system.pass_s(100.0)
    reached_s = WallClock(epoch).now_s()
    system.set_clock(-5000.0)
    later = WallClock(epoch, reached_s)
    assert later.now_s() == reached_s
    system.pass_s(5.0)
    assert later.now_s() == reached_s + 5.0


def test_a_clock_set_forth_between_lives_moves_time_on(system):
    epoch = system.wall_s
    system.pass_s(100.0)
    reached_s = WallClock(epoch).now_s()
    system.set_clock(5000.0)
    assert WallClock(epoch, reached_s).now_s() == 5100.0


def test_a_beginning_in_the_future_is_now(system):
    clock = WallClock(system.wall_s + 1000.0)
    assert clock.now_s() == 0.0
    system.pass_s(1.0)
    assert clock.now_s() == 1.0


def test_a_rehearsal_runs_faster(system):
    clock = WallClock(system.wall_s, speed=10.0)
    system.pass_s(2.0)
    assert clock.now_s() == 20.0
    assert clock.wait_s(30.0) == 1.0
