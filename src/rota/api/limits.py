"""How much one caller may ask for."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from rota.api.problems import Problem, Refusal

KEPT = 10_000  # callers that are remembered; a forgotten one begins with a full bucket


class Buckets:
    """A token bucket for each caller. Used in one thread (that of the event loop)."""

    def __init__(
        self, per_s: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_s = per_s
        self._burst = float(burst)
        self._clock = clock
        self._levels: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, caller: Hashable) -> None:
        """Count a request, or refuse it."""
        now = self._clock()
        level, seen = self._levels.pop(caller, (self._burst, now))
        level = min(self._burst, level + (now - seen) * self._per_s)
        enough = level >= 1.0
        self._levels[caller] = (level - 1.0 if enough else level, now)
        if len(self._levels) > KEPT:
            self._levels.popitem(last=False)
        if not enough:
            raise too_many((1.0 - level) / self._per_s)


class Slots:
    """Streams that are open, in total and for each caller. Used in one thread."""

    def __init__(self, total: int, each: int) -> None:
        self._total = total
        self._each = each
        self._open: dict[Hashable, int] = {}

    @property
    def taken(self) -> int:
        """Streams that are open."""
        return sum(self._open.values())

    @contextmanager
    def one(self, caller: Hashable) -> Iterator[None]:
        """Hold a slot, or refuse."""
        if self.taken >= self._total or self._open.get(caller, 0) >= self._each:
            raise too_many(5.0, "too many open streams", "close one, or ask for pages instead")
        self._open[caller] = self._open.get(caller, 0) + 1
        try:
            yield
        finally:
            self._open[caller] -= 1
            if not self._open[caller]:
                del self._open[caller]


def too_many(
    wait_s: float,
    error: str = "too many requests",
    remedy: str = "ask less often, or submit many jobs in one request",
) -> Refusal:
    """Come back later."""
    seconds = max(1, min(60, round(wait_s + 0.5)))
    return Refusal(429, Problem(error, "too_many", remedy), {"Retry-After": str(seconds)})
