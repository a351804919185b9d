"""Work beside the loop: a thread that does a step now and then."""

import logging
import threading
from collections.abc import Callable

from rota.core.errors import RotaError


class PeriodicThread:
    """Does a step every so many seconds; what fails is logged, and tried again with the next one.

    Args:
        name: Of the thread (`rota-NAME`) and of its lines in the daemon's log (`NAME.delayed`).
        step: What to do.
        every_s: How long to wait before each step.
    """

    def __init__(self, name: str, step: Callable[[], None], every_s: float) -> None:
        self._name, self._step, self._every_s = name, step, every_s
        self._log = logging.getLogger(f"rota.{name}")
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"rota-{name}", daemon=True)

    @property
    def stopped(self) -> bool:
        """It is to end: a long step ends early."""
        return self._stopped.is_set()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the step that is under way."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                self._step()
            except RotaError as error:  # the store or the daemon is busy: the next step has it
                self._log.warning("%s.delayed", self._name, extra={"why": str(error)})
            except Exception:  # noqa: BLE001 - one bad step must not end all others
                self._log.exception("%s.failed", self._name)
