"""A command with everything that it starts: spawn it, ask it to end, notice that it is gone."""

import os
import selectors
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import IO

from rota.core.events import INF

PROC = Path("/proc")


class ProcessGroup:
    """A process in a session of its own. It is over when nobody is left in its group.

    Members that outlive the first process are ended as well. A child that makes a session for
    itself (a daemon) escapes; only a container or a cgroup could hold it.

    The end of the first process wakes `selector` where the system has pidfds; elsewhere, and while
    only other members are left, one has to look again (`quiet` is False).
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        selector: selectors.BaseSelector,
        *,
        out: IO[bytes] | int = subprocess.DEVNULL,
        err: IO[bytes] | int = subprocess.DEVNULL,
        grace_s: float = 5.0,
    ) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - to run what users give is the purpose
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self.exit_code: int | None = None
        """Of the first process, negative: killed by this signal. None while it runs, or if somebody
        else in this program has waited for it."""
        self.kill_s = INF
        """When it will be killed, by `time.monotonic`."""
        self._exited = self._asked = self._killed = self._over = False
        self._grace_s = grace_s
        self._selector = selector
        self._fd = _watch(self.pid, selector)

    @property
    def quiet(self) -> bool:
        """The selector will tell when there is news, unless `kill_s` comes first."""
        return self._fd >= 0

    def exited(self) -> bool:
        """Has the first process ended? Others may be left."""
        if not self._exited:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self._reaped(None)
            else:
                if pid:
                    self._reaped(os.waitstatus_to_exitcode(status))
        return self._exited

    def over(self) -> bool:
        """Is nothing left of it? To be asked again and again: it kills when the time has come."""
        if self._over:  # and not asked again: the number may be somebody else's by now
            return True
        if self.exited():
            if not _has_members(self.pid):
                self._over = True
                return True
            self.end()
        if self._killed or monotonic() >= self.kill_s:
            self.kill()
        return False

    def end(self) -> None:
        """Ask all members to end; those that have not in `grace_s` seconds are killed."""
        if not self._asked:
            self._asked = True
            self.kill_s = monotonic() + self._grace_s
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # one that is suspended could not react

    def kill(self) -> None:
        """End all members without asking."""
        self._asked = self._killed = True
        self.kill_s = INF
        self._signal(signal.SIGKILL)

    def abandon(self) -> None:
        """Kill what is left and look no further."""
        if not self.over():
            self.kill()
        if not self._exited:
            self._reaped(None)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _reaped(self, code: int | None) -> None:
        self._exited = True
        self.exit_code = code
        self._process.returncode = -signal.SIGKILL if code is None else code
        if self._fd >= 0:
            self._selector.unregister(self._fd)
            os.close(self._fd)
            self._fd = -1


def _watch(pid: int, selector: selectors.BaseSelector) -> int:
    """Let the selector wake when the process ends; the descriptor, -1 where that is impossible."""
    try:
        fd = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1
    try:
        selector.register(fd, selectors.EVENT_READ)
    except (OSError, ValueError):
        os.close(fd)
        return -1
    return fd


def _has_members(group: int) -> bool:
    """Is anybody but zombies in this group? Whoever adopts orphans may never reap them."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's: look who
        pass
    if not PROC.is_dir():
        return True
    return any(_lives_in(group, entry) for entry in PROC.iterdir() if entry.name.isdigit())


def _lives_in(group: int, entry: Path) -> bool:
    try:
        text = (entry / "stat").read_text(errors="replace")
    except OSError:  # it ended in the meantime
        return False
    state, _, its_group = text.rpartition(")")[2].split()[:3]  # its name may contain anything
    return int(its_group) == group and state not in ("Z", "X")
