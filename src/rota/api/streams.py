"""Answers that go on: how many there may be, and when they end."""

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from rota.api.auth import HANG_UP, sender_of
from rota.api.context import Context
from rota.wire import Actor


class Stream(StreamingResponse):
    """A response that holds a slot until it ends, in whatever way."""

    def __init__(
        self,
        context: Context,
        actor: Actor,
        content: Any,
        media_type: str,
        *,
        page: bool = False,
    ) -> None:
        super().__init__(content, media_type=media_type)
        self._context = context
        self._page = page
        self._slot = ExitStack()
        self._slot.enter_context((context.pages if page else context.slots).one(actor))
        self._count()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; pages that take nothing for a while are hung up on (they come again)."""
        if self._page:
            send = self._within(send, scope.get("state", {}).get(HANG_UP, lambda: None))
        try:
            await super().__call__(scope, receive, send)
        except _TooSlowError:
            raise ClientDisconnect from None
        finally:
            self._slot.close()
            self._count()

    def _within(self, send: Send, hang_up: Callable[[], None]) -> Send:
        async def patient(message: Message) -> None:
            try:
                async with asyncio.timeout(self._context.settings.slow_s):
                    await send(message)
            except TimeoutError:
                hang_up()
                raise _TooSlowError from None

        return patient

    def _count(self) -> None:
        context = self._context
        context.metrics.count_streams(context.slots.taken + context.pages.taken)


class _TooSlowError(Exception):
    """A reader does not read."""


class StreamLife:
    """When a stream ends: the server stops, it is old, or its sender may not come in any more."""

    def __init__(self, context: Context, request: Request) -> None:
        self._context = context
        self._request = request
        self._until_s = time.monotonic() + context.settings.stream_s
        self._check_s = time.monotonic() + context.settings.heartbeat_s

    async def is_over(self) -> bool:
        """Does it have to end now?"""
        now = time.monotonic()
        if self._context.closing.is_set() or now >= self._until_s:
            return True
        if now < self._check_s:
            return False
        self._check_s = now + self._context.settings.heartbeat_s
        return sender_of(self._context, self._request) is None

    def patience_s(self) -> float:
        """How long to wait before looking again."""
        return max(0.01, min(self._context.settings.heartbeat_s, self._until_s - time.monotonic()))
