"""The server's end of the lanes: calls wait for their agents, and callers for their answers."""

import threading
import time
from collections import deque
from collections.abc import Sequence

from rota.core.errors import ClusterError, UnavailableError
from rota.live.calls import WAIT_S, CallAnswer, FileCall, LaneAnswer, LaneCall, RunCall

MOST_PENDING = 128  # calls to one agent that it has not taken
PRESENT_S = WAIT_S + 5.0  # an agent that took calls so recently needs no hint
HINT_S = 1.0  # between hints in its orders


class _AgentLane:
    """What is known of one agent."""

    def __init__(self) -> None:
        self.calls: deque[LaneCall] = deque()
        self.waits = 0  # calls of the agent that wait here
        self.hinted_s = -HINT_S


class CallLanes:
    """Carries calls to agents that cannot be called: they come and take them.

    Bounded: so many calls to an agent, each with so many bytes; a caller waits only so long.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._lines: dict[str, _AgentLane] = {}
        self._answers: dict[int, CallAnswer | None] = {}
        self._asked: dict[int, str] = {}
        self._number = time.time_ns()  # an answer to the server before this one fits no call
        self._closed = False

    def post(self, agent: str, job: str, run: str, node_rank: int, call: RunCall | FileCall) -> int:
        """Leave a call for an agent; its number, for `wait`.

        Raises:
            ClusterError: It has too many calls already.
        """
        with self._changed:
            line = self._lines.setdefault(agent, _AgentLane())
            if len(line.calls) >= MOST_PENDING:
                raise ClusterError("its machine has too many calls: try again", retryable=True)
            self._number += 1
            number = self._number
            self._answers[number], self._asked[number] = None, agent
            line.calls.append(LaneCall(number, job, run, node_rank, call))
            self._changed.notify_all()
        return number

    def wait(self, number: int, patience_s: float) -> CallAnswer:
        """The answer to a call.

        Raises:
            ClusterError: None came in time.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._answers[number] is not None or self._closed, patience_s
            )
            answer = self._answers.pop(number)
            line = self._lines[self._asked.pop(number)]
            line.calls = deque(each for each in line.calls if each.id != number)
        if answer is None:
            raise ClusterError("its machine does not answer: try again", retryable=True)
        return answer

    def is_wanted(self, agent: str) -> bool:
        """Shall an agent be told to come? Not again and again while it is on its way."""
        with self._changed:
            line = self._lines.get(agent)
            if line is None or not line.calls or line.waits:
                return False
            now_s = time.monotonic()
            if now_s - line.hinted_s < HINT_S:
                return False
            line.hinted_s = now_s
            return True

    def exchange(
        self, agent: str, answers: Sequence[LaneAnswer], wait_s: float
    ) -> tuple[LaneCall, ...]:
        """An agent brings answers, and waits for calls for at most so long."""
        until_s = time.monotonic() + min(wait_s, WAIT_S)
        with self._changed:
            for each in answers:
                if self._asked.get(each.id) == agent:
                    self._answers[each.id] = each.answer
                    self._changed.notify_all()
            line = self._lines.setdefault(agent, _AgentLane())
            line.waits += 1
            try:
                while not line.calls and not self._closed:
                    left_s = until_s - time.monotonic()
                    if left_s <= 0:
                        return ()
                    self._changed.wait(left_s)
            finally:
                line.waits -= 1
            if self._closed:
                raise UnavailableError("the daemon is stopping: try again")
            calls = tuple(line.calls)
            line.calls.clear()
            return calls

    def close(self) -> None:
        """Let everybody go."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
