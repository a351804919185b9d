"""Answers the calls of the server, beside the reports and never in their place."""

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

from rota.live.calls import WAIT_S, CallAnswer, LaneAnswer, LaneCall, LaneOrders, LaneReport

log = logging.getLogger("rota.agent")

LaneTransport: TypeAlias = Callable[[LaneReport], LaneOrders]
"""Carries answers to the server and calls back; raises if that fails. Used by many threads."""

MOST_CALLS = 64  # that are answered at the same time
IDLE_S = 60.0  # without a call: then the server says again when there is one
RETRY_S, TRIES = 0.2, 5


class AgentLane:
    """Opened when the server says that there are calls; closes by itself when none come.

    A thread waits for calls, others answer them. An answer that cannot be delivered is dropped: who
    asked asks again.
    """

    def __init__(
        self, agent: str, answer: Callable[[LaneCall], CallAnswer], transport: LaneTransport
    ) -> None:
        self._agent = agent
        self._answer = answer
        self._transport = transport
        self._lock = threading.Lock()
        self._running = False
        self._stopped = threading.Event()
        self._room = threading.BoundedSemaphore(MOST_CALLS)

    def rouse(self) -> None:
        """There are calls."""
        with self._lock:
            if self._running or self._stopped.is_set():
                return
            self._running = True
        threading.Thread(target=self._wait, name="rota-agent-calls", daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        self._stopped.set()

    def _wait(self) -> None:
        idle_since_s = time.monotonic()
        while not self._stopped.is_set() and time.monotonic() - idle_since_s < IDLE_S:
            try:
                orders = self._transport(LaneReport(self._agent, wait_s=WAIT_S))
            except Exception as error:  # noqa: BLE001 - whatever it is, jobs must go on
                log.warning("lane.unreachable", extra={"why": str(error) or repr(error)})
                self._stopped.wait(RETRY_S * 5)
                continue
            if orders.calls:
                idle_since_s = time.monotonic()
            self._take(orders)
        with self._lock:
            self._running = False

    def _take(self, orders: LaneOrders) -> None:
        for call in orders.calls:
            if not self._stopped.is_set():
                threading.Thread(
                    target=self._work, args=(call,), name="rota-agent-call", daemon=True
                ).start()

    def _work(self, call: LaneCall) -> None:
        if not self._room.acquire(blocking=False):
            answer = CallAnswer(error="its machine has too many calls: try again", wrong="busy")
        else:
            try:
                answer = self._answer(call)
            except Exception as error:  # one bad call must not cost the others theirs
                log.exception("lane.failed")
                answer = CallAnswer(error=repr(error)[:300], wrong="conflict")
            finally:
                self._room.release()
        for _ in range(TRIES):
            try:
                self._take(self._transport(LaneReport(self._agent, (LaneAnswer(call.id, answer),))))
            except Exception as error:  # noqa: BLE001 - as above
                log.warning("lane.delayed", extra={"why": str(error) or repr(error)})
                if self._stopped.wait(RETRY_S):
                    return
            else:
                return
