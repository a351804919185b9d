"""Numbers that change over time: nodes that are lent, prices, carbon.

A signal is a series of steps: a number that holds from its time on, the first one also before. What
it will be is not told to policies by accident: `forecast` says that all stays as it is, and a
signal that is known in advance has to be declared so.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from rota.core.events import INF

Step = tuple[float, float]
"""From when on, and how much."""


class Signal:
    """A piecewise constant series."""

    __slots__ = ("_times", "_values", "foreseen", "name")

    def __init__(self, name: str, steps: Sequence[Step], *, foreseen: bool = False) -> None:
        """Put it together.

        Args:
            name: What it is called.
            steps: At least one; times rise.
            foreseen: Everybody knows in advance what it will be (a tariff, a timetable).
        """
        if not steps:
            raise ValueError(f"signal {name!r} has no steps: give at least one, [0, number]")
        for (before_s, _), (time_s, _) in pairwise(steps):
            if time_s <= before_s:
                raise ValueError(
                    f"signal {name!r}: the step at {time_s:g} s comes after one at {before_s:g} s: "
                    "give them in order of time, each time once"
                )
        self.name = name
        self.foreseen = foreseen
        self._times = [float(time_s) for time_s, _ in steps]
        self._values = [float(value) for _, value in steps]

    @property
    def steps(self) -> list[Step]:
        """All of them: what only a simulator knows, unless the signal is foreseen."""
        return list(zip(self._times, self._values, strict=True))

    def at(self, time_s: float) -> float:
        """How much it is then."""
        return self._values[max(bisect_right(self._times, time_s) - 1, 0)]

    def next_change(self, time_s: float) -> float:
        """The next time after this one at which it is another number; inf: it stays."""
        place = bisect_right(self._times, time_s)
        now = self.at(time_s)
        for later_s, value in zip(self._times[place:], self._values[place:], strict=True):
            if value != now:
                return later_s
        return INF

    def integral(self, from_s: float, until_s: float) -> float:
        """How much it adds up to, per second: money, carbon, GPU-seconds."""
        if until_s < from_s:
            return -self.integral(until_s, from_s)
        total, at_s = 0.0, from_s
        while at_s < until_s:
            place = bisect_right(self._times, at_s)
            next_s = min(self._times[place] if place < len(self._times) else INF, until_s)
            total += self.at(at_s) * (next_s - at_s)
            at_s = next_s
        return total

    def forecast(self, made_at_s: float, time_s: float) -> float:
        """What one expects at one time that it will be at another: as it is, unless foreseen."""
        return self.at(time_s if self.foreseen or time_s <= made_at_s else made_at_s)
