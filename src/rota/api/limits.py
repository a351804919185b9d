"""How much one caller may ask for, and how many calls may block at the same time."""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import ParamSpec, TypeVar

import anyio
import anyio.to_thread

from rota.api.problems import Refusal
from rota.wire import Problem

P = ParamSpec("P")
T = TypeVar("T")
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


# --- threads -------------------------------------------------------------------------------------


async def in_thread(call: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> T:
    """Call it in a thread, out of the event loop's way."""
    return await anyio.to_thread.run_sync(partial(call, *arguments, **options))


class Lane:
    """Threads for calls that take long, so that they never hold all the threads there are.

    `queue`: so many calls may wait for a thread; more are refused. `each`: so many calls of one
    caller may be there, so that nobody takes the whole lane.
    """

    def __init__(self, width: int, queue: int | None = None, each: int | None = None) -> None:
        self._width = width
        self._queue = queue
        self._each = each
        self._callers: Counter[Hashable] = Counter()
        self._waiting = 0
        self._limiter: anyio.CapacityLimiter | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, call: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> T:
        """Wait for a free thread of the lane, then call."""
        loop = asyncio.get_running_loop()
        if self._limiter is None or self._loop is not loop:  # it belongs to one event loop
            self._limiter, self._loop = anyio.CapacityLimiter(self._width), loop
        if self._queue is not None and self._waiting >= self._width + self._queue:
            raise too_many(1.0, "too many calls of this kind at the same time", "try again")
        work = partial(call, *arguments, **options)
        self._waiting += 1
        try:
            return await anyio.to_thread.run_sync(
                work, limiter=self._limiter, abandon_on_cancel=True
            )  # a stop of the server does not wait for it
        finally:
            self._waiting -= 1

    async def run_for(
        self, caller: Hashable, call: Callable[P, T], /, *arguments: P.args, **options: P.kwargs
    ) -> T:
        """The same on behalf of somebody, who may not have too many calls here already."""
        if self._each is not None and self._callers[caller] >= self._each:
            raise too_many(
                1.0, f"{self._each} calls of yours of this kind wait already", "let them end first"
            )
        self._callers[caller] += 1
        try:
            return await self.run(call, *arguments, **options)
        finally:
            self._callers[caller] -= 1
            if not self._callers[caller]:
                del self._callers[caller]
