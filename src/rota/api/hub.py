"""One thread waits for new rows of the event log, on behalf of all who stream them."""

import asyncio
import threading

from rota.api.lanes import in_thread
from rota.daemon.ports import Service

TURN_S = 0.5  # the longest that a stop of the server waits for the thread
PAUSE_S = 0.02  # many rows in a short time become one piece of news


class Hub:
    """Wakes streams when there is something new."""

    def __init__(self, service: Service, closing: threading.Event) -> None:
        self._service = service
        self._closing = closing
        self._waiting: dict[asyncio.Future[bool], int] = {}
        self._pump: asyncio.Task[None] | None = None

    async def wait(self, after: int, timeout_s: float) -> bool:
        """Until there may be rows after this number; False if the time is over."""
        woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[woken] = after
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._run())
        try:
            return await asyncio.wait_for(woken, timeout_s)
        except TimeoutError:
            return False
        finally:
            self._waiting.pop(woken, None)

    async def _run(self) -> None:
        while self._waiting:
            # Whoever waits has read everything up to its number: the lowest is the first to know.
            after = min(self._waiting.values())
            try:
                news = await in_thread(self._service.wait_events, after, TURN_S)
            except Exception:  # noqa: BLE001 - whoever streams reads next, and meets the error there
                news = True
            if news or self._closing.is_set():
                for woken in self._waiting:
                    if not woken.done():
                        woken.set_result(news)
                self._waiting.clear()
                await asyncio.sleep(PAUSE_S)
