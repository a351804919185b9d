"""How many GPUs are free from now on, by estimate: step functions of time."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from rota.core.events import INF
from rota.core.sums import ordered_sum

EPSILON = 1e-9  # fractions of GPUs are sums of floats


Found = dict[float, tuple[list[float], list[float]]]
"""How early uses could begin at best, by GPUs: seconds and starts, both increasing."""


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
        # what `earliest` found so far
        self._found: Found = {}
        self._openings: dict[float, list[tuple[float, float]]] = {}  # when so many are free

    @classmethod
    def of(cls, times: list[float], free: list[float], found: Found) -> "Profile":
        """With these steps; `found`: as `earliest` would have found."""
        made = cls(times[0], free[0])
        made.times, made.free, made._found = times, free, found
        return made

    def earliest(self, gpus: float, seconds: float) -> float:
        """The first time from which so many are free for so long; inf if there is none."""
        need = gpus - EPSILON
        start_s, fits = INF, False
        first = bisect_left(self.times, self._bound(gpus, seconds))
        steps = zip(self.times, self.free, strict=True)
        for time_s, free in islice(steps, first, None):
            if fits and time_s >= start_s + seconds:
                break
            if free < need:
                fits = False
            elif not fits:
                start_s, fits = time_s, True
        found_s = start_s if fits else INF
        self._remember(gpus, seconds, found_s)
        return found_s

    def _bound(self, gpus: float, seconds: float) -> float:
        """It cannot start before those that asked for no more: what is free only shrinks."""
        bound_s = -INF
        for other, (longs, starts) in self._found.items():
            if other <= gpus:
                i = bisect_right(longs, seconds)
                if i and starts[i - 1] > bound_s:
                    bound_s = starts[i - 1]
        return bound_s

    def _remember(self, gpus: float, seconds: float, start_s: float) -> None:
        longs, starts = self._found.setdefault(gpus, ([], []))
        i = bisect_left(longs, seconds)
        last = bisect_right(starts, start_s, lo=i)  # they ask for more and found no later time
        longs[i:last], starts[i:last] = [seconds], [start_s]

    def take(self, start_s: float, end_s: float, gpus: float) -> None:
        """One more use."""
        if start_s < end_s:
            self._add(start_s, end_s, -gpus)

    def give(self, start_s: float, end_s: float, gpus: float) -> None:
        """One use less."""
        if start_s < end_s:
            first, last = self._add(start_s, end_s, gpus)
            for i in (last, first):  # steps at which nothing changes any more
                if 0 < i < len(self.times) and self.free[i] == self.free[i - 1]:
                    del self.times[i], self.free[i]
            self._found.clear()

    def _add(self, start_s: float, end_s: float, gpus: float) -> tuple[int, int]:
        first = self._step(start_s)
        last = self._step(end_s)
        self.free[first:last] = [free + gpus for free in self.free[first:last]]
        self._openings.clear()
        return first, last

    def advance(self, now_s: float) -> None:
        """What was before now is over."""
        past = bisect_right(self.times, now_s) - 1
        del self.times[:past], self.free[:past]
        self.times[0] = now_s
        self._openings.clear()

    def sooner(self, gpus: float, seconds: float, start_s: float) -> float:
        """The first time at which a use that begins at `start_s` could begin instead.

        From `start_s` on its own place is kept for it.
        """
        for since_s, until_s in self.openings(gpus):
            if since_s >= start_s:
                break
            if until_s >= start_s or until_s >= since_s + seconds:
                return since_s
        return start_s

    def openings(self, gpus: float) -> Sequence[tuple[float, float]]:
        """From when until when so many are free."""
        found = self._openings.get(gpus)
        if found is None:
            found = self._openings[gpus] = list(self._free_for(gpus))
        return found

    def _free_for(self, gpus: float) -> Iterator[tuple[float, float]]:
        need = gpus - EPSILON
        since_s: float | None = None
        for time_s, free in zip(self.times, self.free, strict=True):
            if free < need:
                if since_s is not None:
                    yield since_s, time_s
                    since_s = None
            elif since_s is None:
                since_s = time_s
        if since_s is not None:
            yield since_s, INF

    def least(self, start_s: float, end_s: float) -> float:
        """So many are free all the time between these."""
        first = bisect_right(self.times, start_s) - 1
        return min(self.free[first : max(bisect_left(self.times, end_s), first + 1)])

    def _step(self, time_s: float) -> int:
        """The number of the step that begins at this time, made if need be."""
        if time_s == INF:
            return len(self.times)
        i = bisect_left(self.times, time_s)
        if i == len(self.times) or self.times[i] != time_s:
            self.times.insert(i, time_s)
            self.free.insert(i, self.free[i - 1])
        return i


class Profiles:
    """Profiles of sets of nodes that have none in common; a job may use several of them."""

    def __init__(self, parts: Mapping[int, Profile]) -> None:
        self._parts = parts

    @property
    def only(self) -> Profile:
        """The one profile that there is."""
        (profile,) = self._parts.values()
        return profile

    def reserve(self, nodes: int, gpus: float, seconds: float) -> float:
        """Take so many of these nodes for so long as soon as possible; the start, inf: never."""
        parts = [profile for part, profile in self._parts.items() if part & nodes]
        if len(parts) == 1:
            start_s = parts[0].earliest(gpus, seconds)
            parts[0].take(start_s, start_s + seconds, gpus)
            return start_s
        for start_s in sorted({time_s for part in parts for time_s in part.times}):
            end_s = start_s + seconds
            spare = [max(part.least(start_s, end_s), 0.0) for part in parts]
            if ordered_sum(spare) >= gpus - EPSILON:
                for part, most in zip(parts, spare, strict=True):
                    part.take(start_s, end_s, min(most, gpus))
                    gpus -= min(most, gpus)
                return start_s
        return INF
