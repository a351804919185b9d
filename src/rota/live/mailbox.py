"""The mailbox of the engine's thread: where all other threads leave messages and calls."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from threading import Condition, get_ident
from typing import Any, Generic, TypeVar

from rota.core.errors import UnavailableError
from rota.live.driver import Message
from rota.live.inputs import Input

T = TypeVar("T")


class LaterError(Exception):
    """This call has to wait for the next batch."""


class PendingCall(Generic[T]):
    """Something to be done in the engine's thread, between two batches.

    `act` returns inputs (which are journaled and then applied) and a function that makes the answer
    after that; whatever it raises is the answer.
    """

    __slots__ = ("act", "future")

    def __init__(self, act: Callable[[], tuple[list[Input], Callable[[], T]]]) -> None:
        self.act = act
        self.future: Future[T] = Future()

    def reply(self, make: Callable[[], T]) -> None:
        """Make the answer and hand it over; an error is an answer too."""
        try:
            result = make()
        except Exception as error:  # noqa: BLE001 - as said
            self.future.set_exception(error)
            return
        with suppress(InvalidStateError):  # the caller has given up
            self.future.set_result(result)


class Mailbox:
    """Messages of the driver and calls of other threads, in the order in which they came."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._messages: deque[Message] = deque()
        self._calls: deque[PendingCall[Any]] = deque()
        self._closed = False
        self._alarm = False
        self.owner = 0  # the engine's thread

    def post(self, message: Message) -> None:
        """Leave a message; from any thread."""
        with self._changed:
            self._messages.append(message)
            self._changed.notify()

    def call(self, call: PendingCall[T], timeout_s: float = 60.0) -> T:
        """Have something done and wait for the answer."""
        if get_ident() == self.owner:
            raise RuntimeError("the engine's thread must not wait for itself")
        with self._changed:
            if self._closed:
                raise UnavailableError("the daemon is stopping: try again in a moment")
            self._calls.append(call)
            self._changed.notify()
        try:
            return call.future.result(timeout_s)
        except TimeoutError:
            raise UnavailableError(
                f"the daemon did not answer within {timeout_s:g} s: look at its log"
            ) from None

    def take(self) -> tuple[list[Message], list[PendingCall[Any]]]:
        """Everything that is there."""
        with self._changed:
            messages, calls = list(self._messages), list(self._calls)
            self._messages.clear()
            self._calls.clear()
        return messages, calls

    def put_back(self, messages: list[Message]) -> None:
        """Requeue messages at the front."""
        with self._changed:
            self._messages.extendleft(reversed(messages))

    def call_again(self, call: PendingCall[Any]) -> None:
        """Requeue a call."""
        with self._changed:
            self._calls.append(call)

    def wait(self, longest_s: float) -> None:
        """Until there is something, at most so long."""
        with self._changed:
            if not (self._messages or self._calls or self._alarm or self._closed):
                self._changed.wait(max(0.0, longest_s))
            self._alarm = False

    def rouse(self) -> None:
        """End a `wait`."""
        with self._changed:
            self._alarm = True
            self._changed.notify()

    def close(self) -> None:
        """Accept no more calls; those that wait are refused."""
        with self._changed:
            self._closed = True
            calls = list(self._calls)
            self._calls.clear()
            self._changed.notify()
        for call in calls:
            call.future.set_exception(
                UnavailableError("the daemon is stopping: try again in a moment")
            )
