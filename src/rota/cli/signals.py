"""Signals for a program whose work is done by other threads.

Python runs handlers in the main thread, between two of its instructions. A main thread that waits
for a lock may not notice a signal for as long as it waits; one that waits for a file does.
"""

import select
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Protocol


def work_until_done(
    work: Callable[[], None], handlers: Mapping[int, Callable[[int], None]]
) -> None:
    """Do the work in a thread of its own; meanwhile the main thread answers to signals.

    Whatever the work raises is raised here.
    """
    failures: list[BaseException] = []
    reader, writer = socket.socketpair()
    for end in (reader, writer):
        end.settimeout(0)

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again below
            failures.append(error)
        finally:
            writer.send(b"\0")

    for number in handlers:
        signal.signal(number, lambda *_: None)  # its number comes through the socket
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    worker = threading.Thread(target=run, name="rota-engine")
    worker.start()
    try:
        while worker.is_alive():
            select.select([reader], [], [])
            for number in reader.recv(4096):  # here, where no handler can interrupt another
                if number in handlers:
                    handlers[number](number)
            worker.join(0.05)
    finally:
        worker.join()
        signal.set_wakeup_fd(before)
        reader.close()
        writer.close()
    if failures:
        raise failures[0]


class Stoppable(Protocol):
    """A program that works until it is stopped, and can read its configuration again."""

    def work(self) -> None:
        """Until it is stopped."""
        ...

    def stop(self, signal: str) -> None:
        """End the work."""
        ...

    def reload(self) -> None:
        """Read the configuration again."""
        ...


def run_until_told(program: Stoppable) -> None:
    """Work until a signal says stop; SIGHUP reads the configuration again."""

    def stop(number: int) -> None:
        program.stop(signal.Signals(number).name)

    def reload(_: int) -> None:  # it may take a while, and the main thread answers to signals
        threading.Thread(target=program.reload, name="rota-reload", daemon=True).start()

    work_until_done(
        program.work, {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: reload}
    )
