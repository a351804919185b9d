"""Keeps an agent and its server in contact, over whatever carries the messages."""

import logging
import random
import threading
from collections.abc import Callable
from typing import TypeAlias

from rota.core.errors import ClusterError
from rota.live.agent.agent import Agent
from rota.live.agent.lane import AgentLane, LaneTransport
from rota.live.agent.messages import WAIT_S, AgentOrders, AgentReport
from rota.live.clock import boot_time_s

log = logging.getLogger("rota.agent")

Transport: TypeAlias = Callable[[AgentReport], AgentOrders]
"""Carries a report to the server; raises if that fails. Used by two threads at a time."""

OFTEN = 4  # how often there shall be contact before the server gives up
FIRST_S, LONGEST_S = 0.2, 5.0  # between attempts to reach the server
REFUSED_S = 5.0


class AgentLink:
    """Three threads: one watches the jobs, one listens for orders, one tells news at once."""

    def __init__(
        self, agent: Agent, transport: Transport, lane: LaneTransport | None = None
    ) -> None:
        self.agent = agent
        self._transport = transport
        self._lane = None if lane is None else AgentLane(agent.id, agent.answer, lane)
        self._stop = threading.Event()
        self._wait_s = WAIT_S
        self._threads = [
            threading.Thread(target=target, args=args, name=f"rota-agent-{name}", daemon=True)
            for name, target, args in (
                ("watch", agent.run, (self._stop,)),
                ("listen", self._listen, ()),
                ("tell", self._news, ()),
            )
        ]

    def start(self) -> None:
        """Begin; returns at once."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Let the threads end as soon as they can."""
        self._stop.set()
        if self._lane is not None:
            self._lane.close()
        self.agent.wake()
        self.agent.news.set()

    def stop(self, timeout_s: float | None = None) -> None:
        """End contact; what runs goes on. Then only the caller uses the agent."""
        self.end()
        for thread in self._threads:
            thread.join(timeout_s)

    def leave(self, timeout_s: float) -> bool:
        """End all jobs, say goodbye and stop; did the server hear it?"""
        self.agent.leave()
        waiter = threading.Event()
        for _ in range(int(timeout_s / FIRST_S)):
            if self.agent.idle:
                break
            waiter.wait(FIRST_S)
        self._stop.set()
        try:
            self._transport(self.agent.report(left=True))
        except Exception as error:  # noqa: BLE001 - then the server will notice by itself
            log.warning("server.unreachable", extra={"why": str(error)})
            return False
        return True

    def _listen(self) -> None:
        while not self._stop.is_set():
            asked_s = boot_time_s()
            urgent = self._talk(self._wait_s)
            if not urgent and boot_time_s() - asked_s < FIRST_S:
                self._stop.wait(FIRST_S)  # a server that never waits shall not be run over

    def _news(self) -> None:
        while not self._stop.is_set():
            self.agent.news.wait()
            self._talk(0.0)

    def _talk(self, wait_s: float) -> bool:
        """Report and obey, again and again until it was heard; was there anything to do?"""
        pause_s = FIRST_S
        while not self._stop.is_set():
            asked_s = boot_time_s()
            try:
                orders = self._transport(self.agent.report(wait_s))
                if not orders.error:
                    self.agent.obey(orders, asked_s)
            except Exception as error:  # noqa: BLE001 - whatever it is, jobs must go on
                if self._stop.is_set():
                    return False
                refused = isinstance(error, ClusterError) and not error.retryable
                event = "server.refuses" if refused else "server.unreachable"
                log.warning(event, extra={"why": str(error) or repr(error)})
                self._stop.wait(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - to spread load
                pause_s = min(2 * pause_s, LONGEST_S, self._wait_s)  # jobs here have a lease
                continue
            pause_s = FIRST_S
            if orders.error:
                log.error("server.refuses", extra={"why": orders.error})
                self._stop.wait(REFUSED_S)
                continue
            if orders.lane and self._lane is not None:
                self._lane.rouse()
            if orders.lost_s:
                self._wait_s = min(WAIT_S, orders.lost_s / OFTEN)
            return orders.urgent
        return False
