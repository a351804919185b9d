"""Where all other threads leave what the engine's thread has to know."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from threading import Condition, get_ident
from typing import Any, Generic, TypeVar

from rota.core.errors import UnavailableError
from rota.live.inputs import Input

T = TypeVar("T")


class LaterError(Exception):
    """What was asked for has to wait for the next batch."""


class Ask(Generic[T]):
    """Something to be done in the engine's thread, between two batches.

    `act` returns inputs (which are journaled and then happen) and a function that makes the answer
    after that; whatever it raises is the answer.
    """

    __slots__ = ("act", "future")

    def __init__(self, act: Callable[[], tuple[list[Input], Callable[[], T]]]) -> None:
        self.act = act
        self.future: Future[T] = Future()

    def reply(self, make: Callable[[], T]) -> None:
        """Make the answer and hand it over; whatever goes wrong is the answer too."""
        try:
            result = make()
        except Exception as error:  # noqa: BLE001 - as said
            self.future.set_exception(error)
            return
        with suppress(InvalidStateError):  # whoever asked has given up
            self.future.set_result(result)


class Mailbox:
    """Inputs of the driver and wishes of people, in the order in which they came."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._messages: deque[Input] = deque()
        self._asks: deque[Ask[Any]] = deque()
        self._closed = False
        self._alarm = False
        self.owner = 0  # the engine's thread

    def post(self, message: Input) -> None:
        """Leave a message; from any thread."""
        with self._changed:
            self._messages.append(message)
            self._changed.notify()

    def ask(self, ask: Ask[T], timeout_s: float = 60.0) -> T:
        """Have something done and wait for the answer."""
        if get_ident() == self.owner:
            raise RuntimeError("the engine's thread must not wait for itself")
        with self._changed:
            if self._closed:
                raise UnavailableError("the daemon is stopping: try again in a moment")
            self._asks.append(ask)
            self._changed.notify()
        try:
            return ask.future.result(timeout_s)
        except TimeoutError:
            raise UnavailableError(
                f"the daemon did not answer within {timeout_s:g} s: look at its log"
            ) from None

    def take(self) -> tuple[list[Input], list[Ask[Any]]]:
        """Everything that is there."""
        with self._changed:
            messages, asks = list(self._messages), list(self._asks)
            self._messages.clear()
            self._asks.clear()
        return messages, asks

    def put_back(self, messages: list[Input]) -> None:
        """These shall be taken first next time."""
        with self._changed:
            self._messages.extendleft(reversed(messages))

    def ask_again(self, ask: Ask[Any]) -> None:
        """It shall be considered first next time."""
        with self._changed:
            self._asks.append(ask)

    def wait(self, longest_s: float) -> None:
        """Until there is something, at most so long."""
        with self._changed:
            if not (self._messages or self._asks or self._alarm or self._closed):
                self._changed.wait(max(0.0, longest_s))
            self._alarm = False

    def rouse(self) -> None:
        """End a `wait`."""
        with self._changed:
            self._alarm = True
            self._changed.notify()

    def close(self) -> None:
        """Nobody is heard any more; who waits for an answer learns it."""
        with self._changed:
            self._closed = True
            asks = list(self._asks)
            self._asks.clear()
            self._changed.notify()
        for ask in asks:
            ask.future.set_exception(
                UnavailableError("the daemon is stopping: try again in a moment")
            )
