"""How many GPUs are free from now on, by estimate: a step function of time."""

from bisect import bisect_left
from collections.abc import Iterable

from rota.core.events import INF

EPSILON = 1e-9  # fractions of GPUs are sums of floats


class Profile:
    """`free[i]` GPUs are free from `times[i]` until `times[i + 1]`, the last for ever."""

    def __init__(
        self, now_s: float, gpus: float, uses: Iterable[tuple[float, float, float]] = ()
    ) -> None:
        """`uses` are (start, end, GPUs), none of them before now."""
        changes = {now_s: gpus}
        for start_s, end_s, used in uses:
            changes[start_s] = changes.get(start_s, 0.0) - used
            changes[end_s] = changes.get(end_s, 0.0) + used
        changes.pop(INF, None)
        self.times = sorted(changes)
        self.free: list[float] = []
        level = 0.0
        for time_s in self.times:
            level += changes[time_s]
            self.free.append(level)

    def earliest(self, gpus: float, seconds: float) -> float:
        """The first time from which so many are free for so long; inf if there is none."""
        need = gpus - EPSILON
        start_s, fits = INF, False
        for time_s, free in zip(self.times, self.free, strict=True):
            if fits and time_s >= start_s + seconds:
                return start_s
            if free < need:
                fits = False
            elif not fits:
                start_s, fits = time_s, True
        return start_s if fits else INF

    def take(self, start_s: float, end_s: float, gpus: float) -> None:
        """One more use."""
        if start_s < end_s:
            for i in range(self._step(start_s), self._step(end_s)):
                self.free[i] -= gpus

    def _step(self, time_s: float) -> int:
        """The number of the step that begins at this time, made if need be."""
        if time_s == INF:
            return len(self.times)
        i = bisect_left(self.times, time_s)
        if i == len(self.times) or self.times[i] != time_s:
            self.times.insert(i, time_s)
            self.free.insert(i, self.free[i - 1])
        return i
