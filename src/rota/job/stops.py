"""Noticing that the job is to stop: SIGTERM, a grace period, SIGKILL.

The handler only notes the time. The job looks when it suits it (`should_stop`), saves its state and
leaves. Nothing in the handler takes a lock: it may interrupt the holder of one.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from math import inf
from threading import Lock, local
from time import monotonic
from typing import TYPE_CHECKING, Any

from rota.job.environment import info

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import NoReturn

RESTART_CODE = 75
"""Exit code of `exit_for_restart` (what BSD calls EX_TEMPFAIL)."""


class _StopState:
    """Of this process."""

    def __init__(self) -> None:
        self.asked_s = inf  # when SIGTERM came, by `monotonic`
        self.before: Any = None  # who handled SIGTERM before
        self.installed = False
        self.watches_forks = False


_state = _StopState()
_changing = Lock()
_forking = local()


def install() -> None:
    """Notice SIGTERM from now on; a previous handler is still called.

    Comes by itself with the first `should_stop`. Call it early if SIGTERM must not end the process
    before that, and after frameworks that install a handler of their own.

    Raises:
        RuntimeError: This is not the main thread, which alone may install handlers.
    """
    if _state.installed:
        return
    with _changing:
        if not _state.installed:
            _take_over()


def _take_over() -> None:
    try:
        before = signal.signal(signal.SIGTERM, _noticed)
    except ValueError:
        raise RuntimeError(
            "rota.job cannot notice SIGTERM from this thread: call rota.job.install() in the main "
            "thread first"
        ) from None
    _state.before = before
    _state.installed = True
    if not _state.watches_forks:
        os.register_at_fork(before=_fork, after_in_parent=_forked, after_in_child=_born)
        _state.watches_forks = True


def _hand_back() -> None:
    if signal.getsignal(signal.SIGTERM) is _noticed:  # else somebody took it over since
        # None: the handler was not made by Python and cannot be put back
        signal.signal(signal.SIGTERM, signal.SIG_DFL if _state.before is None else _state.before)
        _state.installed = False


# Children are not the job: `multiprocessing` ends its workers by SIGTERM, so they must not take our
# handler over. Python forgets signals that come to a child too early, hence they are kept back.


def _fork() -> None:
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _forked() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _born() -> None:
    if _state.installed:
        _hand_back()
    _forked()


def _noticed(number: int, frame: FrameType | None) -> None:
    _state.asked_s = min(_state.asked_s, monotonic())
    if callable(_state.before):
        _state.before(number, frame)


def should_stop() -> bool:
    """SIGTERM came: save the state and leave, within `seconds_left()`.

    Quick enough to be asked at every step. In a job of several processes SIGTERM does not reach
    them at the same step: let them agree on one before they stop (see `examples/training/ddp.py`).
    """
    if not _state.installed:
        install()
    return _state.asked_s < inf


def seconds_left() -> float:
    """Of the grace period, 0 when it is over; inf before SIGTERM, or if its length is unknown."""
    if _state.asked_s == inf:
        return inf
    return max(0.0, info().grace_s - (monotonic() - _state.asked_s))


@contextmanager
def stop_signal() -> Iterator[Callable[[], bool]]:
    """Notice SIGTERM inside a block only; gives the question `should_stop` to it."""
    mine = not _state.installed
    install()
    try:
        yield should_stop
    finally:
        if mine:
            with _changing:
                _hand_back()


def ignore_stop(worker: int = 0) -> None:  # noqa: ARG001 - PyTorch's interface
    """Let this helper process outlive SIGTERM, which goes to all processes of a job.

    For workers that the main process still needs while it saves, and ends itself:
    `DataLoader(..., worker_init_fn=rota.job.ignore_stop)`.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def exit_for_restart() -> NoReturn:
    """Leave in order to be started again.

    A run that was asked to stop counts as preempted however it ends: it is started again, and its
    exit code is not looked at. One that leaves this way without having been asked has failed, and
    is repeated as often as `retries` of the job file says.
    """
    sys.exit(RESTART_CODE)
