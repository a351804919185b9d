"""Calls that may block, out of the event loop's way."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

import anyio
import anyio.to_thread

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(call: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> T:
    """Call it in a thread."""
    return await anyio.to_thread.run_sync(partial(call, *arguments, **options))


class Lane:
    """Threads for calls that take long, so that they never hold all the threads there are."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._limiter: anyio.CapacityLimiter | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, call: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> T:
        """Wait for a free thread of the lane, then call."""
        loop = asyncio.get_running_loop()
        if self._limiter is None or self._loop is not loop:  # it belongs to one event loop
            self._limiter, self._loop = anyio.CapacityLimiter(self._width), loop
        work = partial(call, *arguments, **options)
        return await anyio.to_thread.run_sync(
            work, limiter=self._limiter, abandon_on_cancel=True
        )  # whoever stops the server does not wait for it
