"""A backend that runs nothing: everything else is real. For trials, demonstrations and load tests.

A job "runs" for as many seconds as its variable PRETEND_S says (else 10), over all its runs. What a
daemon pretended is forgotten when it ends: the next one begins these runs anew.
"""

import contextlib
import threading
from collections.abc import Sequence
from heapq import heappop, heappush
from time import monotonic

from rota.core.errors import ClusterError
from rota.live.driver import Capabilities, Driver, Listener, RunOrder, RunStatus

VARIABLE = "PRETEND_S"
USUAL_S = 10.0


class PretendDriver(Driver):
    """Implements `Driver` with a thread and a list of ends."""

    name = "pretend"
    capabilities = Capabilities(measured=False, joins=False, logs=False)

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ends: list[tuple[float, int, RunStatus]] = []
        self._began: dict[str, float] = {}
        self._done: dict[str, float] = {}  # by job: seconds that earlier runs took
        self._count = 0
        self._closed = False
        self._listener: Listener | None = None
        self._thread = threading.Thread(target=self._run, name="rota-pretend", daemon=True)

    def open(self, listener: Listener) -> None:
        """Begin to pretend."""
        self._listener = listener
        self._thread.start()

    def adopt(self, runs: Sequence[RunOrder], halting: frozenset[str]) -> None:
        """Begin these runs anew."""
        for order in runs:
            self.launch(order)
        for run in halting:
            self.halt(run)

    def launch(self, order: RunOrder) -> None:
        """It runs at once."""
        lasts_s = USUAL_S
        with contextlib.suppress(ValueError):
            lasts_s = float(order.launch.envs.get(VARIABLE, USUAL_S))
        with self._changed:
            if order.run in self._began:
                return
            self._began[order.run] = monotonic()
            left_s = max(0.0, lasts_s - self._done.get(order.job, 0.0))
            self._later(0.0, RunStatus(order.run, "running"))
            over = bool(order.limit_s) and order.limit_s < left_s
            ends_s = order.limit_s if over else left_s
            self._later(ends_s, RunStatus(order.run, "ended", timed_out=over))

    def halt(self, run: str) -> None:
        """It ends at once."""
        with self._changed:
            self._later(0.0, RunStatus(run, "ended", asked=True))

    def kill(self, run: str) -> None:
        """It ends at once."""
        self.halt(run)

    def forget(self, run: str) -> None:
        """Its end was understood."""
        with self._changed:
            began = self._began.pop(run, None)
            if began is not None:
                job = run.rpartition(".")[0]
                self._done[job] = self._done.get(job, 0.0) + monotonic() - began

    def retire(self, job: str) -> None:
        """Forget how long it took."""
        with self._changed:
            self._done.pop(job, None)

    def read_log(self, job: str, stream: str, node_rank: int, offset: int, limit: int) -> bytes:  # noqa: ARG002
        """Nothing was written."""
        raise ClusterError(f"job {job} wrote nothing: it only pretends to run")

    def close(self) -> None:
        """Stop pretending."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _later(self, in_s: float, status: RunStatus) -> None:
        self._count += 1
        heappush(self._ends, (monotonic() + in_s, self._count, status))
        self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (not self._ends or self._ends[0][0] > monotonic()):
                    self._changed.wait(self._ends[0][0] - monotonic() if self._ends else None)
                if self._closed:
                    return
                status = heappop(self._ends)[2]
                known = status.run in self._began
            if known and self._listener is not None:
                self._listener(status)
