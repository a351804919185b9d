"""Processes of this machine that somebody else started: are they there, who are they, end them."""

import contextlib
import os
import select
import signal
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from rota.live.agent import shim

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Another one after every start of the machine."""
    return BOOT_ID.read_text().strip()


def open_process(identity: dict[str, Any], boot: str) -> int:
    """A descriptor of the process with this identity; -1 if it is gone."""
    if not identity or identity.get("boot") != boot:
        return -1
    pid = int(identity["pid"])
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return -1
    stat = shim.stat_of(pid)  # asked after the opening: this process cannot become another one
    if stat is None or stat[2] != identity.get("start"):
        os.close(fd)
        return -1
    return fd


def has_ended(pidfd: int) -> bool:
    """Is this process over?"""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def reap(pids: Iterable[int]) -> None:
    """Wait for these children, whoever started them: a program may have been replaced by another.

    Returns when all have ended.
    """
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            found[os.pidfd_open(pid)] = pid
    poll = select.poll()
    for fd in found:
        poll.register(fd, select.POLLIN)
    while found:
        for fd, _ in poll.poll():
            with contextlib.suppress(ChildProcessError):  # it is the child of a child
                os.waitpid(found[fd], 0)
            poll.unregister(fd)
            os.close(fd)
            del found[fd]


def nudge(pidfd: int) -> None:
    """Let a shim look into its folder."""
    shim.send(signal.pidfd_send_signal, pidfd, shim.NEWS)


def stop_job(shim_pid: int, cgroup: str, own: Collection[int]) -> None:
    """Stop all processes of a job, and not those that its shim has for itself (`own`).

    Those in its cgroup are frozen at once, where there is one that can be; whoever else is below
    its shim is stopped by a signal, whatever it calls itself and whatever session it made. To be
    called as long as it shall stand still: one that is just being born is missed by signals.
    """
    frozen: set[int] = set()
    if cgroup and shim.freeze(cgroup, "1"):
        frozen = {int(pid) for pid in shim.read(f"{cgroup}/cgroup.procs").split()}
    for pid in shim.descendants(shim_pid) if shim_pid else ():
        if pid not in frozen and pid not in own:
            shim.send(os.kill, pid, signal.SIGSTOP)


def continue_job(shim_pid: int, cgroup: str) -> None:
    """Let everybody below a shim go on. The shim's own do not mind this signal."""
    if cgroup:
        shim.freeze(cgroup, "0")
    for pid in shim.descendants(shim_pid) if shim_pid else ():
        shim.send(os.kill, pid, signal.SIGCONT)


def kill_leftovers(cgroup: str, key: str) -> int:
    """Kill what is left of a part whose shim is gone; how many there were.

    To be called until there are none: one that is just being born may be missed.
    """
    found = set()
    if cgroup:
        found = {int(pid) for pid in shim.read(f"{cgroup}/cgroup.procs").split()}
        shim.kill_cgroup(cgroup)
    marker = f"ROTA_RUN_KEY={key}".encode() if key else b"\n"  # no variable is called that
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and marker in _environ(entry):
            found.add(int(entry.name))
    for pid in found:
        shim.send(os.kill, pid, signal.SIGKILL)
    return len(found)


def _environ(entry: Path) -> list[bytes]:
    try:
        return (entry / "environ").read_bytes().split(b"\0")
    except OSError:  # it ended, or it is somebody else's
        return []
