"""Orders to a driver: the runs that it is to carry out, and the one thread that does so."""

import signal
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Generic, Protocol, TypeVar

from rota.core.errors import ClusterError
from rota.live.driver import Driver, Listener, Message, RunOrder, RunStatus

RUN, HALT, KILL = "run", "halt", "kill"
REFUSED = 125  # the exit code of a run that the cluster does not take


class OrderedRun:
    """A run, what is wanted of it (`RUN`, `HALT`, `KILL`), and how it ended."""

    def __init__(self, order: RunOrder, want: str = RUN) -> None:
        self.order = order
        self.want = want
        self.running = False  # reported
        self.over: RunStatus | None = None

    @property
    def ending(self) -> bool:
        """Somebody wants it to end."""
        return self.want != RUN


R = TypeVar("R", bound=OrderedRun)


class OrderedRuns(Generic[R]):
    """All runs of a driver, by id, and who is told of them. For one thread."""

    def __init__(self) -> None:
        self.runs: dict[str, R] = {}
        self.tell: Listener = _nobody

    def end(self, name: str, want: str) -> None:
        """Let a run end; `want`: `HALT`, or `KILL`, which nothing takes back."""
        run = self.runs.get(name)
        if run is None:  # it was never launched
            self.tell(RunStatus(name, "ended", asked=True))
        elif run.over is not None:
            self.tell(run.over)
        elif run.want != KILL:
            run.want = want


def describe_code(code: int) -> str:
    """An exit code for people; negative: the signal. Empty: it is 0."""
    if code >= 0:
        return f"exit code {code}" if code else ""
    return f"killed by signal {-code} ({signal.strsignal(-code) or 'unknown'})"


def _nobody(message: Message) -> None:
    """There is no listener yet."""


class DriverThread:
    """A driver's thread and what it was ordered to do: orders come from any thread, in order.

    Args:
        name: Of the thread.
        work: What the thread does: it asks `goes_on`, obeys, and looks at the outside, in turns.
    """

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self._orders: deque[Callable[[], None]] = deque()
        self._news = threading.Condition()
        self._heard = False
        self._closing = False
        self._thread = threading.Thread(target=work, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End, after the turn that is under way."""
        with self._news:
            self._closing = True
            self._news.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def order(self, action: Callable[[], None]) -> None:
        """Let the thread do this."""
        with self._news:
            self._orders.append(action)
            self._news.notify()

    def wake(self) -> None:
        """There is something to look at."""
        with self._news:
            self._heard = True
            self._news.notify()

    # --- for the thread itself --------------------------------------------------------------------

    def goes_on(self, until_s: float) -> bool:
        """Wait for an order or news, at most until then (monotonic); False: it is to end."""
        with self._news:
            if not (self._orders or self._heard or self._closing):
                self._news.wait(max(0.0, until_s - monotonic()))
            self._heard = False
            return not self._closing

    def pause(self, seconds: float) -> None:
        """Wait although there may be something to do: the last try has failed."""
        with self._news:
            if not self._closing:
                self._news.wait(seconds)

    def obey(self) -> bool:
        """Carry out the orders, one by one. Was there any?

        Raises what stands in the way: one that the cluster does not take now is tried again with
        the next call, one that cannot be carried out at all is dropped.
        """
        any_given = False
        while True:
            with self._news:
                if not self._orders:
                    return any_given
                action = self._orders[0]
            try:
                action()
            except ClusterError:
                raise
            except Exception:
                self._orders.popleft()
                raise
            self._orders.popleft()
            any_given = True


class RunsOfThread(Protocol):
    """Runs that a driver's thread carries out: `OrderedRuns` of whatever kind."""

    def end(self, name: str, want: str) -> None:
        """Let a run end."""
        ...

    def forget(self, name: str) -> None:
        """Its end was understood."""
        ...


class ThreadedDriver(Driver):
    """A driver that carries out what is wanted in one thread: every call becomes an order to it."""

    def __init__(self, thread: str) -> None:
        """Name the thread, which `open` of the driver has to start."""
        self._thread = DriverThread(thread, self._work)
        self._adopted = False  # runs were handed over, and nobody has looked for them yet

    @abstractmethod
    def _work(self) -> None:
        """What the thread does."""

    @abstractmethod
    def _take(self, order: RunOrder, want: str, *, adopted: bool) -> None:
        """In the thread: this run shall exist; `adopted`: it may exist already."""

    @abstractmethod
    def _holder(self, run: str) -> RunsOfThread:
        """Who carries out this run."""

    def adopt(self, runs: Sequence[RunOrder], halting: frozenset[str]) -> None:
        """These runs shall exist; each is looked for before anything is created."""

        def take() -> None:
            for order in runs:
                self._take(order, HALT if order.run in halting else RUN, adopted=True)
            self._adopted = True

        self._thread.order(take)

    def launch(self, order: RunOrder) -> None:
        """Execute it."""
        self._thread.order(lambda: self._take(order, RUN, adopted=False))

    def halt(self, run: str) -> None:
        """SIGTERM, its grace, SIGKILL."""
        self._thread.order(lambda: self._holder(run).end(run, HALT))

    def kill(self, run: str) -> None:
        """SIGKILL."""
        self._thread.order(lambda: self._holder(run).end(run, KILL))

    def forget(self, run: str) -> None:
        """No more news of it."""
        self._thread.order(lambda: self._holder(run).forget(run))
