# ruff: noqa: PTH100,PTH102,PTH103,PTH104,PTH106,PTH108,PTH110,PTH112,PTH115,PTH116,PTH120,PTH123
# ruff: noqa: PTH208
# Why: to import pathlib would take as long as everything else that a shim does to start a job.
"""The parent of a job on one node: starts it, ends it, and records how it ended.

A script of its own (`python -I -S shim.py FOLDER`), standard library only, so that it starts
quickly and outlives its parent. Everything it needs to know is in its folder:

    order.json     what to run: written before the shim is started
    lock           held while the shim lives
    identity.json  boot id, process id and start time of the shim, its cgroup
    running        there when `setup` is over and every process was started: when that was; it is
                   touched now and then while the shim lives
    excess         `warn` or `stop`, and why: it uses more GPU memory than it may
    own            processes below it that are not the job's: they hold its box, or a way into it
    ends           there when it is being ended: then it does not wait for its turn on a GPU
    stop           `halt` (SIGTERM, grace, SIGKILL) or `kill`; a second word says on whose account
    exit.json      how it ended, when it began and when it ended: the last thing that is written
    job/           what the job itself may see of it: its scripts and its file of reports
    channels/      ways into the run (`Channel`): requests to open one (`NAME.json`), the sockets at
                   which they are served (`NAME.sock`), how they ended (`NAME.end`)

*Time limit*: with a `limit_s` the job is asked to end (SIGTERM, grace, SIGKILL) so long after its
launch, whoever else lives: neither agent nor daemon is needed for it. *Hooks*: `prolog` and
`epilog` are commands of the machine's operator, before and after the job, outside of its box;
`pre_stop` is a script of the job, which runs before SIGTERM whenever it is asked to end.

*Box*: with a `box` in the order, processes run in namespaces of their own, as another user. bwrap
makes the namespaces and holds them while it lives; each process enters them and is still our child,
so that its pid, its group and its exit code are what they are without. *Container*: the same,
but an engine (podman, apptainer) makes the namespaces from an image and holds them.

It leaves nobody behind: as the subreaper of its descendants it keeps those that make a session for
themselves, and it puts all into a cgroup where it may. Should it be killed, its *guard*, the parent
that it has for nothing else, inherits them and kills them all; should that be killed, the shim ends
the job. Both hold the lock, so nothing else begins before. When the disk is full it waits for
space; the place for the exit code was reserved before. *Times*: `time` is the time of day, `clock`
the seconds since boot, by which alone a run is measured (`boot` says since which one). *Lease*: a
file that says until when (seconds since boot) the job may run; when it is not renewed, the job is
killed. *Output* is appended to the files by the job itself. A file that is too long is copied to
`<file>.<offset of its first byte in the whole stream>` and truncated; the oldest copies go.
*Order*: the shim is notified of every write and notes how far both outputs have come
(`note_order`), so that they can be read as one. Of a burst that is over before it looks it knows
whose turn it was, not how much was written each time: then a turn is taken for a line.
*Channels*: a command or a connection that somebody wants inside of the run. A child of the shim
keeps it, so that it outlives the agent and ends with the run; what it starts is in the box and the
cgroups, as the job's user, with the job's variables.
"""

from __future__ import annotations  # nothing is evaluated, so `typing` need not be imported

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import sys
import time
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

PARENT_SIGNAL, SUBREAPER = 1, 36  # PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER
NO_NEW_PRIVS, DROP_BOUND, LAST_CAPABILITY = 38, 24, 63  # PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP
MOUNTS, IPC, USERS, PIDS = 0x20000, 0x8000000, 0x10000000, 0x20000000  # CLONE_NEW...
OWNER_OF = 0xB701  # NS_GET_USERNS
PERIOD_US = 100_000  # of a limit for processors
GIB = 1 << 30
LEFTOVERS_S = 2.0  # for those who outlive the processes that were started
IDLE_S, WATCH_S, ENDING_S, KILLING_S, RETRY_S = 5.0, 1.0, 0.25, 0.02, 0.5  # between looks
NOT_STARTED = 127  # the exit code that shells use
SETUP, PRE_STOP = -1, -2  # stand for the numbers of processes
STARTING_S = 0.05  # between looks while a container is made
CLOSE_S = 20.0  # for an engine to remove a container
HOOK_S = 300.0  # the longest that a prolog or an epilog may take
NEWS, TERMINATED = signal.SIGCONT, signal.SIGTERM  # SIGCONT: harmless to a shim that is not ready
WRITTEN = signal.SIGIO  # there is new output
UNGUARDED = signal.SIGUSR2  # the guard is gone
SIGNALS = {signal.SIGCHLD, NEWS, TERMINATED, signal.SIGINT, signal.SIGHUP, WRITTEN, UNGUARDED}
MODIFIED, EVENT = 2, 16  # IN_MODIFY, bytes of an event of a file
SHORTEST_S, LONGEST_S = 0.0005, 0.02  # between looks at the output
RECORD, MOST_ORDER = 34, 1 << 20  # bytes of an entry of the order of output, and of all of them
MOST_TURNS, MOST_LINES = (
    200,
    1 << 16,
)  # turns of the outputs between two looks, bytes of their lines
RUNNING, ENDING, LAST = range(3)
FOREVER = float("inf")
CHANNELS = "channels"
OWN, ENDS = "own", "ends"
SECRETS = "secrets.json"  # variables that are on disk only until they were read
KEPT_OUTPUT, KEPT_INPUT, PIECE = 1 << 20, 1 << 18, 1 << 16  # bytes of a channel
HEAD = 5  # bytes before each piece of a channel's output: which stream, and how long it is
OUT, ERR, ENDED = 1, 2, 3
MOST_LINE, MOST_WRITERS = 1 << 16, 64  # bytes of a request; who may send input
CHANNEL_IDLE_S = 300.0  # without a word from a client: nobody is there any more
LINGER_S, DRAIN_S, HANG_UP_S, ATTACHED_S = 3.0, 0.5, 1.0, 30.0
NOT_DUMPABLE = 4  # PR_SET_DUMPABLE
TERMINAL_SIZE, CONTROLLING = 0x5414, 0x540E  # TIOCSWINSZ, TIOCSCTTY
TRY = "--try"  # instead of a folder: only try to make this box


@contextlib.contextmanager
def opened(path: str, flags: int) -> Iterator[int]:
    """Open a file (0600 if it is new) and close it again."""
    fd = os.open(path, flags, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


def write_whole(path: str, text: str, *, reserved: str = "") -> None:
    """Make a file appear as a whole; `reserved`: lasting, and with the space of this file."""
    part = reserved or path + ".part"
    with opened(part, os.O_WRONLY | os.O_CREAT) as fd:
        data = text.encode()
        os.pwrite(fd, data, 0)
        os.ftruncate(fd, len(data))
        if reserved:
            os.fsync(fd)
    os.rename(part, path)
    if reserved:
        with opened(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY) as fd:
            os.fsync(fd)


def read(path: str) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def rotated(path: str) -> list[tuple[int, int, str]]:
    """Return [(offset, size, file)] of the copies of an output file, oldest first."""
    folder, name = os.path.split(path)
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            head, _, offset = entry.name.rpartition(".")
            if head == name and offset.isdigit():
                found.append((int(offset), entry.stat().st_size, entry.path))
    return sorted(found)


def base_of(copies: list[tuple[int, int, str]]) -> int:
    """Return the offset at which a file begins whose earlier parts are in these copies."""
    return copies[-1][0] + copies[-1][1] if copies else 0


def rotate(path: str, keep: int) -> None:
    """Copy and truncate an output file. What is written in between is lost: microseconds' worth."""
    copies = rotated(path)
    base = base_of(copies)
    part, flags = path + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        with opened(path, os.O_RDWR) as fd, opened(part, flags) as out:
            copied = copy(fd, out, 0)
            os.rename(part, f"{path}.{base}")
            copy(fd, out, copied)  # what was written meanwhile: a rename may take its time
            os.ftruncate(fd, 0)
        surplus = [name for _, _, name in copies[: max(0, len(copies) + 1 - keep)]]
    except OSError:  # no space: make some; the newest copy tells the offset
        surplus = [part, f"{path}.{base}", *(name for _, _, name in copies[:-1])]
    for name in surplus:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def end_of(path: str) -> tuple[int, int]:
    """Return the offset at which an output ends so far, and when it was last written to."""
    base = base_of(rotated(path))
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return base, 0
    return base + status.st_size, status.st_mtime_ns


@contextlib.contextmanager
def ordering(path: str) -> Iterator[int]:
    """Open the file with the order of output; only one at a time may change it, or rotate."""
    with opened(path, os.O_RDWR | os.O_CREAT) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield fd


def order_at(fd: int, number: int) -> tuple[int, int]:
    """Return an entry of the order: how far both outputs had come."""
    text = os.pread(fd, RECORD, number * RECORD)
    return int(text[:16], 16), int(text[17:33], 16)


def note_order(fd: int, out: str, err: str, turns: list[int] | None = None) -> bool:
    """Note how far both outputs have come; did the other one than before grow?

    Between two entries one of them has grown; where both have, the one that was written to first
    comes first. An entry of the one that grew before is replaced. `turns`: which of the two was
    written to (0, 1), in order, as far as is known; how much each time is not.
    """
    count = os.fstat(fd).st_size // RECORD
    if not count:
        os.pwrite(fd, b"%016x %016x\n" % (0, 0), 0)
        count = 1
    last = order_at(fd, count - 1)
    (out_end, out_s), (err_end, err_s) = end_of(out), end_of(err)
    now = max(last[0], out_end), max(last[1], err_end)
    if now == last:
        return False
    new = [now]
    if now[0] > last[0] and now[1] > last[1]:
        turns = turns if turns and {0, 1} <= set(turns) else [0, 1] if out_s <= err_s else [1, 0]
        new = taken_in_turns(turns, (out, err), last, now)
    grew = 0 if new[0][0] > last[0] else 1
    same = count > 1 and order_at(fd, count - 2)[1 - grew] == last[1 - grew]
    data = b"".join(b"%016x %016x\n" % each for each in new)
    os.pwrite(fd, data, (count - same) * RECORD)
    if count * RECORD > MOST_ORDER:
        kept = os.pread(fd, MOST_ORDER, (count // 2) * RECORD)
        os.pwrite(fd, kept, 0)
        os.ftruncate(fd, len(kept))
    return not same or len(new) > 1


def taken_in_turns(
    turns: list[int], paths: tuple[str, str], last: tuple[int, int], now: tuple[int, int]
) -> list[tuple[int, int]]:
    """Return entries for what was written to both in these turns: a line each, the last the rest.

    Programs that write to both by turns do so line by line. Whoever writes several lines at a time
    has a turn only for all of them, so which lines belong to which of several turns is a guess.
    """
    turns = [turn for i, turn in enumerate(turns) if not i or turn != turns[i - 1]][:MOST_TURNS]
    ends: list[list[int]] = [[], []]
    for which, path in enumerate(paths):
        others = turns.count(which) - 1
        if not others:
            continue
        at, base = last[which], base_of(rotated(path))
        if at < base:
            continue  # some of it is elsewhere already
        with opened(path, os.O_RDONLY) as fd:
            new = os.pread(fd, min(now[which] - at, MOST_LINES), at - base)
        for line in new.splitlines(keepends=True)[:others]:
            at += len(line)
            ends[which].append(at)
    reached, entries = list(last), [last]
    for i, turn in enumerate(turns):
        reached[turn] = now[turn]
        if turn in turns[i + 1 :] and ends[turn]:
            reached[turn] = ends[turn].pop(0)
        if (reached[0], reached[1]) != entries[-1]:
            entries.append((reached[0], reached[1]))
    return entries[1:]


def copy(fd: int, out: int, offset: int) -> int:
    """Copy everything from an offset on; where it ends."""
    while sent := os.sendfile(out, fd, offset, 1 << 24):
        offset += sent
    return offset


def stat_of(pid: int | str) -> tuple[int, int, int] | None:
    """Return (parent, group, start time) of a process, None if there is none."""
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (int(fields[1]), int(fields[2]), int(fields[19])) if fields else None


def descendants(root: int) -> dict[int, int]:
    """Return {pid: group} of everybody below a process."""
    below: dict[int, list[int]] = {}
    groups = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := stat_of(name)):
            below.setdefault(stat[0], []).append(int(name))
            groups[int(name)] = stat[1]
    found: dict[int, int] = {}
    todo = [root]
    while todo:
        children = below.get(todo.pop(), [])
        found.update((pid, groups[pid]) for pid in children)
        todo.extend(children)
    return found


def kill_all_below(patience_s: float = 0.0) -> bool:
    """End everybody below us, after some patience by force; did it take force?

    A namespace of processes has ended when its first process was reaped, not when it was killed.
    """
    until = time.monotonic() + patience_s
    while left := descendants(os.getpid()):
        if time.monotonic() >= until:
            for pid in left:
                send(os.kill, pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        signal.sigtimedwait({signal.SIGCHLD}, KILLING_S)
    return time.monotonic() >= until


def catches(pid: int, number: int) -> bool:
    """Does a process have a handler for a signal?"""
    for line in read(f"/proc/{pid}/status").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def send(kill: Callable[[int, int], None], target: int, number: int) -> None:
    """Send a signal to a process that may have gone already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        kill(target, number)


def as_any_program() -> None:
    """In a child: signals are as they are for any program."""
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def own_cgroups(root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> dict[str, str]:
    """Return {kind: folder} of the cgroups that we are in; `unified` is that of version 2."""
    found: dict[str, str] = {}
    for line in read(own).splitlines():
        number, kinds, path = line.split(":", 2)
        if number == "0":
            for mount in (f"{root}/unified", root):
                if os.path.exists(f"{mount}/cgroup.controllers"):
                    found.setdefault("unified", (mount + path).rstrip("/"))
        else:
            for kind in kinds.split(","):
                found[kind] = f"{root}/{kinds}{path}".rstrip("/")
    return found


def make_cgroup(key: str) -> str:
    """Return the folder of a new cgroup below our own, empty if that is not allowed.

    The unified hierarchy comes first: it can kill a whole group at once.
    """
    places = own_cgroups()
    for kind in ("unified", "freezer", "pids"):
        if kind not in places:
            continue
        folder = f"{places[kind]}/rota-{key}"
        with contextlib.suppress(OSError):
            os.mkdir(folder, 0o755)
            if os.access(f"{folder}/cgroup.procs", os.W_OK):
                return folder
            os.rmdir(folder)
    return ""


def limit(
    key: str, cgroup: str, limits: dict[str, float], places: dict[str, str]
) -> tuple[list[str], set[str]]:
    """Limit what a run may use; folders of further cgroups, and what could not be limited.

    `limits`: `mem_gib`, `cpus` and `processes`. Version 2 where its controllers are ours to use,
    else version 1.
    """
    mem = str(int(limits.get("mem_gib", 0) * GIB))
    quota = str(max(1000, int(limits.get("cpus", 0) * PERIOD_US)))
    count = str(int(limits.get("processes", 0)))
    wanted = (
        ("mem_gib", "memory", {"memory.max": mem}, {"memory.limit_in_bytes": mem}),
        ("cpus", "cpu", {"cpu.max": f"{quota} {PERIOD_US}"},
         {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": quota}),
        ("processes", "pids", {"pids.max": count}, {"pids.max": count}),
    )  # fmt: skip
    folders: list[str] = []
    left: set[str] = set()
    unified = places.get("unified", "")
    for name, kind, new, old in wanted:
        if not limits.get(name):
            continue
        below = unified and cgroup.startswith(f"{unified}/") and may_control(unified, kind)
        if below and write_settings(cgroup, new):
            continue
        folder = f"{places[kind]}/rota-{key}" if kind in places else ""
        try:
            if folder and folder != cgroup:
                os.mkdir(folder, 0o755)
                folders.append(folder)
        except OSError:
            folder = ""
        if not folder or not write_settings(folder, old):
            left.add(name)
    return folders, left


def may_control(folder: str, kind: str) -> bool:
    """Can cgroups below this one (version 2) limit this? Tries to make it so."""
    path = f"{folder}/cgroup.subtree_control"
    if kind not in read(path).split() and kind in read(f"{folder}/cgroup.controllers").split():
        with contextlib.suppress(OSError), opened(path, os.O_WRONLY | os.O_APPEND) as fd:
            os.write(fd, f"+{kind} ".encode())
    return kind in read(path).replace("+", "").split()


def write_settings(folder: str, values: dict[str, str]) -> bool:
    """Write files of a cgroup; were all taken?"""
    try:
        for name, value in values.items():
            with opened(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT) as fd:
                os.write(fd, value.encode())
    except OSError:
        return False
    return True


def killed_for_memory(folders: list[str]) -> bool:
    """Did the kernel kill anybody in these cgroups because of their memory?"""
    for folder in folders:
        for name in ("memory.events", "memory.oom_control"):
            for line in read(f"{folder}/{name}").splitlines():
                key, _, value = line.partition(" ")
                if key == "oom_kill" and value.strip() not in ("", "0"):
                    return True
    return False


def kill_cgroup(folder: str) -> None:
    """Kill all processes in a cgroup; to be repeated until none is left."""
    with contextlib.suppress(OSError), opened(f"{folder}/cgroup.kill", os.O_WRONLY) as fd:
        os.write(fd, b"1")
    for pid in read(f"{folder}/cgroup.procs").split():
        send(os.kill, int(pid), signal.SIGKILL)


def freeze(folder: str, value: str) -> bool:
    """Stop all in a cgroup (1), or let them go on (0); can that be done here (version 2)?"""
    path = f"{folder}/cgroup.freeze"
    return (
        bool(folder)
        and os.access(path, os.W_OK)
        and write_settings(folder, {"cgroup.freeze": value})
    )


class Box:
    """Namespaces for the processes of a run, made and held by bwrap."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.pids: set[int] = set()  # of those who hold it: bwrap, its init, and a `cat`
        self.holder = 0
        self._line = -1  # when we end, `cat` reads the end of it and all ends
        self._spaces: list[tuple[int, int]] = []
        self._processes = (-1, -1)  # where our children are: outside, inside
        self._libc = ctypes.CDLL(None, use_errno=True)

    def open(self, shim: Shim | None = None) -> None:  # noqa: ARG002 - a container needs it
        """Make the namespaces; processes that we start from now on have their pids in there."""
        told, tell = os.pipe()
        ready, say = os.pipe()
        bottom, self._line = os.pipe()
        argv = [*self.order["argv"], "--json-status-fd", str(tell), "--"]
        argv += ["/bin/sh", "-c", "echo; exec /bin/cat"]
        self.holder = os.fork()
        if not self.holder:
            try:
                os.setsid()
                signal.pthread_sigmask(signal.SIG_SETMASK, set())
                for fd, number in ((bottom, 0), (say, 1)):
                    os.dup2(fd, number)
                os.set_inheritable(tell, True)  # noqa: FBT003 - its only form
                os.execve(argv[0], argv, {})  # noqa: S606 - whoever is inside may read it
            finally:
                os._exit(NOT_STARTED)
        for fd in (tell, say, bottom):
            os.close(fd)
        with os.fdopen(told, "rb") as pipe, os.fdopen(ready, "rb") as started:
            known = pipe.readline()
            if not started.readline():
                os.waitpid(self.holder, 0)
                raise OSError("bwrap cannot make a sandbox: see shim.err of the run")
        inside = int(json.loads(known)["child-pid"])
        self.pids = {self.holder, *descendants(self.holder)}
        self._enter(f"/proc/{inside}/ns")

    def _enter(self, folder: str) -> None:
        spaces = {
            name: os.open(f"{folder}/{name}", os.O_RDONLY) for name in ("user", "mnt", "ipc", "pid")
        }
        self._spaces = [(spaces["ipc"], IPC), (spaces["mnt"], MOUNTS)]
        users = os.readlink(f"{folder}/user")
        if users != os.readlink("/proc/self/ns/user"):
            self.join(fcntl.ioctl(spaces["mnt"], OWNER_OF), USERS)
            if users != os.readlink("/proc/self/ns/user"):
                self._spaces.append((spaces["user"], USERS))
        self._processes = os.open("/proc/self/ns/pid", os.O_RDONLY), spaces["pid"]
        self.join(spaces["pid"], PIDS)

    def fork(self, *, outside: bool) -> int:
        """Fork; outside: a child that the job does not see, if we may (root may)."""
        if outside:
            with contextlib.suppress(OSError):
                self.join(self._processes[0], PIDS)
        try:
            return os.fork()
        finally:
            self.join(self._processes[1], PIDS)

    def join(self, space: int, kind: int) -> None:
        """Enter a namespace."""
        if self._libc.setns(space, kind):
            number = ctypes.get_errno()
            raise OSError(number, f"cannot enter a sandbox: {os.strerror(number)}")

    def become(self) -> None:
        """In a child: enter, be somebody else, and never be more than that."""
        for space, kind in self._spaces:
            self.join(space, kind)
        for name, value in self.order["rlimits"].items():
            number = getattr(resource, name)
            most = resource.getrlimit(number)[1]
            least = value if most == resource.RLIM_INFINITY else min(value, most)
            resource.setrlimit(number, (least, least))
        if self.order["switch"]:
            for number in range(LAST_CAPABILITY + 1):
                self._libc.prctl(DROP_BOUND, number, 0, 0, 0)
            os.setgroups(self.order["groups"])
            os.setresgid(*[self.order["gid"]] * 3)
            os.setresuid(*[self.order["uid"]] * 3)
        if self._libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError("cannot set no_new_privs")

    def inherited(self) -> dict[str, str]:
        """Return the variables that a process begins with."""
        kept = self.order["inherit"]
        return {n: v for n, v in os.environ.items() if kept is None or n in kept}

    def let_go(self) -> None:
        """In a child that stays: do not hold what we hold."""
        os.close(self._line)

    def close(self) -> None:
        """End whatever is still in there."""
        if self._line >= 0:
            os.close(self._line)
            self._line = -1
            kill_all_below()


class UnusableImageError(Exception):
    """No container can be made of an image: its engine ended with this code."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class ContainerBox(Box):
    """Namespaces of a container, made of an image and held by an engine.

    The container itself only waits: `sh` is its first process, reaps whoever is left there, and
    ends when we do. Further keys of the order: `image`, `env` of the engine, where the
    engine notes the first process (`pidfile`; empty: it is a descendant of ours), and what
    removes the container where it was not (`remove`).
    """

    def __init__(self, order: dict[str, Any]) -> None:
        super().__init__(order)
        self._root = -1
        self._variables: dict[str, str] = {}

    def open(self, shim: Shim | None = None) -> None:
        """As of any box; an image may have to be fetched first, which can be stopped."""
        assert shim is not None  # noqa: S101 - a container is never only tried
        ready, say = os.pipe()
        bottom, self._line = os.pipe()
        self.holder = os.fork()
        if not self.holder:
            self._hold(shim, bottom, say)
        for fd in (say, bottom):
            os.close(fd)
        os.set_blocking(ready, False)
        self.pids = {self.holder}
        begun = False
        while not begun and shim.goes_on():
            try:
                if not os.read(ready, 1):
                    break
                begun = True
            except BlockingIOError:
                pass
        os.close(ready)
        self.pids |= {*descendants(os.getpid())}
        if not begun:
            self._give_up(shim)
        elif not (inside := self._inside()):
            raise OSError(f"{self.order['argv'][0]} does not tell which process it started")
        else:
            variables = read(f"/proc/{inside}/environ").split("\0")
            self._variables = dict(each.split("=", 1) for each in variables if "=" in each)
            self._root = os.open(f"/proc/{inside}/root", os.O_RDONLY | os.O_DIRECTORY)
            self._enter(f"/proc/{inside}/ns")

    def _hold(self, shim: Shim, bottom: int, say: int) -> None:
        """In a child: turn into the engine. Its errors are errors of the job."""
        try:
            os.setsid()
            as_any_program()
            for fd, number in ((bottom, 0), (say, 1), (shim.output(shim.order["err"]), 2)):
                os.dup2(fd, number)
            os.execve(self.order["argv"][0], self.order["argv"], self.order["env"])  # noqa: S606 - its purpose
        except BaseException as error:  # noqa: BLE001 - whatever it is, it must not go on
            os.write(2, f"rota: {error}\n".encode(errors="replace"))
        finally:
            os._exit(NOT_STARTED)

    def _give_up(self, shim: Shim) -> None:
        """There is no container: because of the image, or nobody wants it any more."""
        if shim.phase != RUNNING:
            return
        status = os.waitpid(self.holder, 0)[1]
        self.holder = 0
        code = os.waitstatus_to_exitcode(status)
        said = read(shim.order["err"])[-1000:].strip().splitlines() or ["it says nothing"]
        engine = self.order["argv"][0].rpartition("/")[2]
        raise UnusableImageError(
            code if code > 0 else NOT_STARTED,
            f"image {self.order['image']} cannot be started ({engine}: exit code {code}): "
            f"{said[-1][:300]}",
        )

    def _inside(self) -> int:
        """Return the pid of a process of the container; 0: it is not known."""
        if self.order["pidfile"]:
            text = read(self.order["pidfile"]).strip()
            return int(text) if text.isdigit() else 0
        last = self.holder
        while below := [pid for pid in descendants(last) if (s := stat_of(pid)) and s[0] == last]:
            last = below[0]
        return last if last != self.holder else 0

    def become(self) -> None:
        """As in any box; an engine may have changed the root instead of mounting it there."""
        spaces, self._spaces = self._spaces, []
        for space, kind in spaces:
            self.join(space, kind)
        os.fchdir(self._root)
        os.chroot(".")
        super().become()

    def inherited(self) -> dict[str, str]:
        """Return the variables of the image."""
        return dict(self._variables)

    def close(self) -> None:
        """Let the container end, and its engine remove it; then whatever is left of both."""
        if self._line < 0:
            return
        os.close(self._line)
        self._line = -1
        if kill_all_below(CLOSE_S if self._root >= 0 else 0.0):
            self._remove()

    def _remove(self) -> None:
        """Take what is left of it out of the books of its engine."""
        if not self.order["remove"]:
            return
        pid = os.fork()
        if not pid:
            try:
                as_any_program()
                for number in (0, 1):
                    os.dup2(os.open(os.devnull, os.O_RDWR), number)
                os.execve(self.order["remove"][0], self.order["remove"], self.order["env"])  # noqa: S606 - its purpose
            finally:
                os._exit(NOT_STARTED)
        until = time.monotonic() + CLOSE_S
        while not os.waitpid(pid, os.WNOHANG)[0]:
            if time.monotonic() >= until:
                send(os.kill, pid, signal.SIGKILL)
            signal.sigtimedwait({signal.SIGCHLD}, KILLING_S)


class Shim:
    """Carries out the order of one folder."""

    def __init__(self, folder: str, guard: int) -> None:
        self.folder = folder
        self.guard = guard
        self.order: dict[str, Any] = json.loads(read(f"{self.folder}/order.json"))
        self.order["env"] |= json.loads(read(f"{self.folder}/{SECRETS}") or "{}")
        with contextlib.suppress(OSError):
            os.unlink(f"{self.folder}/{SECRETS}")
        self.own: set[int] = set()  # processes below us that are not the job's
        self.main: dict[int, int] = {}  # pid -> number of the process (or SETUP)
        self.groups: set[int] = set()  # every pid that was ever in `main`
        self.codes: dict[int, int] = {}  # number -> exit code
        self.phase, self.kill_at, self.lease_s = RUNNING, FOREVER, FOREVER
        self.asked = self.timed_out = self.told_excess = False
        self.excess = ""  # why it ends, if it used too much
        self.limit_at = self.warn_at = FOREVER  # by the clock since boot
        self.hook_problem = ""
        self.outside = ""  # why it ends, if neither the job nor its owner is the reason
        self.why, self.code = "", 0
        self.ran = False
        self.boot = read("/proc/sys/kernel/random/boot_id").strip()
        self.began: dict[str, Any] = {}  # when
        self.alive_until = 0.0
        self.cgroup = ""
        self.limits: list[str] = []  # further cgroups
        box = self.order.get("box")
        self.box = (ContainerBox(box) if "image" in box else Box(box)) if box else None
        self.marked = True  # False: it runs, and that is not on disk yet
        self.sizes: dict[str, int] = {}
        self.written = -1  # tells of new output
        self.watches: dict[int, int] = {}  # which of the two outputs
        self.pace_s = SHORTEST_S

    def work(self) -> None:
        """Run it all; returns when nothing of the job is left and its end is on disk."""
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
        self.cgroup = make_cgroup(self.order["key"])
        self.confine()
        self.insist(self.write_identity)
        self.tell()
        self.watch()
        self.look()
        self.prepare()
        self.enter_box()
        if self.order["setup"] and self.phase == RUNNING:
            self.start(SETUP, self.order["setup"], {})
            self.wait()
        if self.phase == RUNNING and not self.code:
            for number, env in enumerate(self.order["processes"]):
                if not self.code:
                    self.start(number, self.order["run"], env)
            self.ran = not self.code
            self.began = self.moment() if self.ran else {}
            self.marked = not self.ran
            self.mark()
            self.wait()
        ended = self.moment()
        if self.box is not None:
            self.box.close()
        self.hook("epilog")
        self.note()
        most = self.box.order["limits"].get("mem_gib") if self.box is not None else 0
        if most and self.code and killed_for_memory([self.cgroup, *self.limits]):
            self.why = f"it used more than its {most:g} GiB of memory: {self.why}"
        self.insist(lambda: self.write_exit(ended))
        for folder in (self.cgroup, *self.limits):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        self.tell()

    def prepare(self) -> None:
        """Run the prolog; then the time of the job begins."""
        if self.phase == RUNNING and not self.hook("prolog"):
            self.outside = self.outside or self.hook_problem
            self.end(0.0)
        limit_s = self.order.get("limit_s", 0.0)
        if limit_s:
            self.limit_at = time.clock_gettime(time.CLOCK_BOOTTIME) + limit_s
            self.warn_at = self.limit_at - min(self.order["warn_s"], limit_s / 2)

    def hook(self, which: str) -> bool:
        """Run a command of the machine's operator; did it succeed, or is there none?"""
        argv = self.order.get("hooks", {}).get(which)
        if not argv:
            return True
        environ = {**os.environ, **self.order["hooks"]["env"], "ROTA_HOOK": which}
        pid = os.fork()
        if not pid:
            try:
                os.setsid()
                signal.pthread_sigmask(signal.SIG_SETMASK, set())
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(2, 1)
                os.execvpe(argv[0], argv, environ)  # noqa: S606 - what the operator gave
            finally:
                os._exit(NOT_STARTED)
        until = time.monotonic() + HOOK_S
        self.keep_own(self.own | {pid})
        while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
            stopped = which == "prolog" and read(f"{self.folder}/stop")
            if stopped or time.monotonic() >= until:
                send(os.killpg, pid, signal.SIGKILL)
            signal.sigtimedwait({signal.SIGCHLD, NEWS}, ENDING_S)
        self.keep_own(self.own - {pid})
        code = os.waitstatus_to_exitcode(ended[1])
        if code:
            end = f"exit code {code}" if code > 0 else f"killed by signal {-code}"
            self.hook_problem = (
                f"the {which} of its node failed for run {self.order['name']}: {end}"
            )
        return not code

    def confine(self) -> None:
        """Limit what the run may use: by cgroups, and what they cannot by limits of a process."""
        if self.box is None:
            return
        wanted = self.box.order["limits"]
        self.limits, left = limit(self.order["key"], self.cgroup, wanted, own_cgroups())
        if "mem_gib" in left:
            self.box.order["rlimits"]["RLIMIT_DATA"] = int(wanted["mem_gib"] * GIB)
        if "processes" in left and self.box.order["switch"]:
            self.box.order["rlimits"]["RLIMIT_NPROC"] = int(wanted["processes"])

    def enter_box(self) -> None:
        """Make the sandbox, if there shall be one; without it nothing is started."""
        if self.box is None or self.phase != RUNNING:
            return
        try:
            self.box.open(self)
        except UnusableImageError as error:
            self.code, self.why = error.code, str(error)
        except OSError as error:
            self.outside = f"its sandbox cannot be made: {error}"
            self.end(0.0)
        self.keep_own(self.own | self.box.pids)
        ctypes.CDLL(None).prctl(PARENT_SIGNAL, UNGUARDED, 0, 0, 0)  # another user has none
        if os.getppid() != self.guard:
            os.kill(os.getpid(), UNGUARDED)

    def wait(self) -> None:
        """Until everything that was started is gone, and all that it started."""
        while True:
            alive = self.reap()
            self.look()
            if not alive:
                break
            now = time.monotonic()
            if not self.main:
                self.clear()
            if now >= self.kill_at:
                self.kill()
            self.mark()
            self.sleep(now)
        if not (self.asked or self.outside or self.timed_out or self.excess):
            self.phase, self.kill_at = RUNNING, FOREVER  # only leftovers had to be ended
            with contextlib.suppress(OSError):
                os.unlink(f"{self.folder}/{ENDS}")

    def reap(self) -> bool:
        """Take note of those that ended; is anybody left?"""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return bool(self.cgroup and read(f"{self.cgroup}/cgroup.procs").strip())
            if not pid:
                return bool(self.main or self.box is None or self.others())
            if self.box is not None and pid == self.box.holder:
                self.outside = self.outside or "its sandbox was killed"
            if pid in self.own:
                self.keep_own(self.own - {pid})
            number = self.main.pop(pid, None)
            if number is not None:
                self.ended(number, os.waitstatus_to_exitcode(status))

    def keep_own(self, pids: set[int]) -> None:
        """Say which processes below us are not the job's: they are never stopped for a while."""
        if pids != self.own:
            self.own = pids
            with contextlib.suppress(OSError):
                write_whole(f"{self.folder}/{OWN}", " ".join(map(str, sorted(pids))))

    def others(self) -> dict[int, int]:
        """Return {pid: group} of everybody below us who does not hold the sandbox."""
        held = self.box.pids if self.box is not None else ()
        return {pid: group for pid, group in descendants(os.getpid()).items() if pid not in held}

    def ended(self, number: int, code: int) -> None:
        """One of the processes ended; if that was a failure the others have to end too."""
        if number == PRE_STOP:
            self.terminate()
            return
        self.codes[number] = code
        if not code or self.code:
            return
        self.code, self.why = code, f"exit code {code}"
        if code < 0:
            self.why = f"killed by signal {-code} ({signal.strsignal(-code)})"
        if number == SETUP:
            self.why = f"setup failed: {self.why}"
        if self.main:
            self.end(self.order["grace_s"])

    def look(self) -> None:
        """Does anybody want it to end?"""
        stop = read(f"{self.folder}/stop").split()
        over = self.code or len(self.codes.keys() - {SETUP}) == len(self.order["processes"])
        if stop:
            if len(stop) > 1:
                self.outside = self.outside or " ".join(stop[1:])
            elif not (over or self.timed_out or self.excess):
                self.asked = True
            self.end(0.0 if stop[0] == "kill" else self.order["grace_s"])
        self.keep_limit(over=bool(over))
        self.keep_memory(over=bool(over))
        lease = self.order["lease"] and read(self.order["lease"])
        if lease:
            self.lease_s = float(lease) - time.clock_gettime(time.CLOCK_BOOTTIME)
            if self.lease_s <= 0:
                self.outside = self.outside or "killed: its node was cut off from the server"
                self.end(0.0)
        self.admit()

    def keep_limit(self, *, over: bool) -> None:
        """Warn the job before its time limit, and end it there."""
        if over or self.asked or self.outside or self.timed_out or self.excess:
            return
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        if now >= self.limit_at:
            self.timed_out = True
            self.end(self.order["grace_s"])
        elif now >= self.warn_at:
            self.warn_at = FOREVER
            self.say(f"the time limit ends this job in {self.limit_at - now:.0f} s")
            if self.order["warn_signal"]:
                number = getattr(signal, "SIG" + self.order["warn_signal"])
                for pid in self.others():
                    if catches(pid, number):  # a shell around it would die of it
                        send(os.kill, pid, number)

    def keep_memory(self, *, over: bool) -> None:
        """Tell the job that it uses more GPU memory than it may, and end it if it is to end."""
        if self.told_excess or over or self.asked or self.outside or self.timed_out:
            return
        how, _, why = read(f"{self.folder}/excess").partition(" ")
        if why:
            self.told_excess = True
            self.say(why)
            if how == "stop":
                self.excess = why
                self.end(self.order["grace_s"])

    def say(self, text: str) -> None:
        """Tell the job and its owner, in its error output."""
        with contextlib.suppress(OSError):
            fd = self.output(self.order["err"])
            os.write(fd, f"rota: {text}\n".encode())
            os.close(fd)

    def end(self, grace_s: float) -> None:
        """Ask it to end; those that have not by then are killed."""
        self.kill_at = min(self.kill_at, time.monotonic() + grace_s)
        if self.phase == RUNNING:
            self.phase = ENDING
            with contextlib.suppress(OSError):
                write_whole(f"{self.folder}/{ENDS}", "")  # it does not wait for turns any more
            if grace_s and self.order.get("pre_stop") and self.ran and self.main and not self.code:
                self.start(PRE_STOP, self.order["pre_stop"], {})
            elif grace_s:
                self.terminate()

    def terminate(self) -> None:
        """SIGTERM for everybody."""
        freeze(self.cgroup, "0")
        for group in self.groups & set(self.others().values()):
            send(os.killpg, group, signal.SIGTERM)
        for pid in self.others():
            send(os.kill, pid, signal.SIGCONT)  # one that is suspended cannot react

    def clear(self) -> None:
        """Nothing that was started is left, but what it started is."""
        if self.phase == RUNNING:
            self.end(min(self.order["grace_s"], LEFTOVERS_S))
        left = self.others()
        if self.phase == ENDING and not self.groups & set(left.values()):
            self.phase = LAST  # only those that made sessions of their own
            for pid in left:
                send(os.kill, pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill all processes; to be called until none is left."""
        if self.cgroup:
            kill_cgroup(self.cgroup)
        for pid in self.others():
            send(os.kill, pid, signal.SIGKILL)

    def environ(self, env: dict[str, str]) -> dict[str, str]:
        """Return the variables of a process."""
        inherited = {**os.environ} if self.box is None else self.box.inherited()
        environ = {**inherited, **self.order["env"], **env}
        for name in self.order["unset"]:
            environ.pop(name, None)
        return environ

    def start(self, number: int, script: str, env: dict[str, str]) -> None:
        """Start a script; that it cannot be started counts as its failure."""
        environ = self.environ(env)
        told, tell = os.pipe()
        terminal = bool(self.order.get("terminal")) and number != SETUP
        try:
            pid = self.fork(outside=terminal)
        except OSError as error:
            self.refused(number, str(error))
            return
        if not pid:
            try:
                if terminal:
                    Channel(self, "main", {"tty": True}, script, environ, tell).keep()
                self.become(script, environ)
            except BaseException as error:  # noqa: BLE001 - whatever it is, it must not go on
                os.write(tell, str(error).encode(errors="replace"))
            finally:
                os._exit(NOT_STARTED)
        os.close(tell)
        if terminal:
            self.keep_own(self.own | {pid})
        self.main[pid] = number
        self.groups.add(pid)
        with os.fdopen(told, "rb") as pipe:  # it closes when the script begins
            problem = pipe.read().decode(errors="replace")
        if problem:
            self.refused(number, problem)

    def fork(self, *, outside: bool) -> int:
        """Fork; outside: a child that keeps something and is no process of the job."""
        return os.fork() if self.box is None else self.box.fork(outside=outside)

    def refused(self, number: int, problem: str) -> None:
        """Note that a script could not be started; the others have to end too."""
        if number == PRE_STOP:
            self.terminate()
            return
        self.code = NOT_STARTED
        self.why = f"{'setup ' if number == SETUP else ''}cannot be started: {problem}"
        self.end(self.order["grace_s"])

    def admit(self) -> None:
        """Open the channels that somebody asked for."""
        if not self.ran or self.phase != RUNNING:
            return
        with contextlib.suppress(OSError):
            for entry in os.listdir(f"{self.folder}/{CHANNELS}"):
                name, dot, kind = entry.rpartition(".")
                if dot and kind == "json":
                    self.open_channel(name, f"{self.folder}/{CHANNELS}/{entry}")

    def open_channel(self, name: str, path: str) -> None:
        """Let a child keep it."""
        try:
            wanted = json.loads(read(path))
        except ValueError:
            wanted = {}
        os.unlink(path)  # from now on it is never opened again
        with contextlib.suppress(OSError):
            pid = self.fork(outside=True)
            if pid:
                self.keep_own(self.own | {pid})
                return
            try:
                environ = self.environ({**self.order["processes"][0], **wanted.get("env", {})})
                Channel(self, name, wanted, "", environ).keep()
            finally:
                os._exit(NOT_STARTED)

    def become(self, script: str, environ: dict[str, str]) -> None:
        """In the child: turn into the script."""
        os.setsid()
        self.enter_groups()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for fd, name in ((1, "out"), (2, "err")):
            os.dup2(self.output(self.order[name]), fd)
        self.settle()
        self.run_script(script, environ)

    def enter_groups(self) -> None:
        """In a child: count for the limits of the run; signals are as they are for any program."""
        if self.cgroup:
            with contextlib.suppress(OSError):
                os.write(os.open(f"{self.cgroup}/cgroup.procs", os.O_WRONLY), b"0")
        for folder in self.limits:
            os.write(os.open(f"{folder}/cgroup.procs", os.O_WRONLY), b"0")
        as_any_program()

    def settle(self) -> None:
        """In a child: be in the box and in the working folder, as the job's user."""
        if self.box is not None:
            self.box.become()
        for path in self.order.get("make", ()):
            with contextlib.suppress(OSError):  # then the job will say it better
                os.makedirs(path, 0o700, exist_ok=True)
        os.chdir(self.order["workdir"])

    def run_script(self, script: str, environ: dict[str, str]) -> None:
        """In a child: turn into a script of the run."""
        for shell in ("/bin/bash", "/bin/sh"):
            if os.access(shell, os.X_OK):
                os.execve(shell, [shell, f"{self.folder}/{script}"], environ)  # noqa: S606 - its purpose
        raise FileNotFoundError("there is neither /bin/bash nor /bin/sh")

    def output(self, path: str) -> int:
        """Open an output file; on a full disk the job runs without."""
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
            if self.box is not None and self.box.order["switch"]:
                os.fchown(fd, self.box.order["uid"], self.box.order["gid"])  # for /dev/stdout
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            fd = os.open(os.devnull, os.O_WRONLY)
        return fd

    def moment(self) -> dict[str, Any]:
        """Now, by both clocks."""
        clock = time.clock_gettime(time.CLOCK_BOOTTIME)
        return {"time": time.time(), "clock": clock, "boot": self.boot}

    def watch(self) -> None:
        """Be notified of every write to the output; without, its order is less exact."""
        with contextlib.suppress(OSError):
            for name in ("out", "err"):
                os.close(self.output(self.order[name]))
            libc = ctypes.CDLL(None)
            self.written = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            for number, name in enumerate(("out", "err")):
                path = os.fsencode(self.order[name])
                self.watches[libc.inotify_add_watch(self.written, path, MODIFIED)] = number
            fcntl.fcntl(self.written, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(self.written, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)

    def turns(self) -> list[int]:
        """Return which output was written to since the last look, in order."""
        data = b""
        with contextlib.suppress(OSError):
            if self.written >= 0:
                data = os.read(self.written, EVENT << 12)
        watches = (
            int.from_bytes(data[at : at + 4], sys.byteorder, signed=True)
            for at in range(0, len(data), EVENT)
        )
        return [self.watches[watch] for watch in watches if watch in self.watches]

    def note(self) -> None:
        """Note how far both outputs have come, and how soon to look again."""
        turns = self.turns()
        other = False
        with contextlib.suppress(OSError), ordering(self.order["order"]) as fd:
            other = note_order(fd, self.order["out"], self.order["err"], turns)
        self.pace_s = SHORTEST_S if other else min(2 * self.pace_s, LONGEST_S)

    def mark(self) -> None:
        """Say that it runs (tried again when there was no space), and that it still does."""
        now = time.monotonic()
        with contextlib.suppress(OSError):
            if not self.marked:
                write_whole(f"{self.folder}/running", json.dumps(self.began))
                self.marked = True
                self.tell()
            elif self.ran and now >= self.alive_until:
                os.utime(f"{self.folder}/running")
                self.alive_until = now + IDLE_S

    def write_identity(self) -> None:
        """Say who we are."""
        stat = stat_of("self")
        own = {"boot": self.boot, "pid": os.getpid(), "start": stat and stat[2]}
        own |= {"cgroup": self.cgroup, "limits": self.limits}
        write_whole(f"{self.folder}/identity.json", json.dumps(own))

    def write_exit(self, ended: dict[str, Any]) -> None:
        """Say how it ended."""
        codes = [self.codes.get(number) for number in range(len(self.order["processes"]))]
        if self.excess:  # however it ended then
            self.code, self.why = self.code or 1, self.excess
        end = {"code": self.code, "codes": codes, "asked": self.asked, "why": self.why}
        end |= {"timed_out": self.timed_out, "hook_problem": self.hook_problem}
        end |= {"lost": self.outside, "ran": self.ran, "began": self.began, **ended}
        write_whole(
            f"{self.folder}/exit.json", json.dumps(end), reserved=f"{self.folder}/exit.reserved"
        )

    def insist(self, write: Callable[[], None]) -> None:
        """Write until it is written, or the folder is gone."""
        while os.path.isdir(self.folder):
            try:
                write()
            except OSError:
                time.sleep(RETRY_S)
            else:
                return

    def tell(self) -> None:
        """Wake the agent, if there is one."""
        flags = os.O_WRONLY | os.O_NONBLOCK
        with contextlib.suppress(OSError), opened(self.order["wake"], flags) as fd:
            os.write(fd, b"\n")

    def sleep(self, now: float) -> None:
        """Until something may have happened."""
        longest_s = KILLING_S
        if now < self.kill_at:
            usual_s = WATCH_S if self.trim() else IDLE_S
            usual_s = ENDING_S if self.phase != RUNNING or not self.marked else usual_s
            longest_s = max(0.0, min(usual_s, self.lease_s, self.kill_at - now, self.limit_in()))
        until = now + longest_s
        while True:
            got = signal.sigtimedwait(SIGNALS, max(0.0, until - time.monotonic()))
            if got is None or got.si_signo != WRITTEN:
                break
            self.note()
            time.sleep(self.pace_s)
        self.heed(got)

    def goes_on(self) -> bool:
        """While something is made for the job: wait a little; shall it still start?"""
        self.heed(signal.sigtimedwait(SIGNALS - {WRITTEN}, STARTING_S))
        self.look()
        return self.phase == RUNNING

    def heed(self, got: signal.struct_siginfo | None) -> None:
        """A signal came, or none."""
        if got is not None and got.si_signo == UNGUARDED:
            self.outside = self.outside or "its guard died"
            self.end(0.0)
        elif got is not None and got.si_signo not in (signal.SIGCHLD, NEWS):
            self.outside = self.outside or f"its shim got signal {got.si_signo} from outside"
            self.end(self.order["grace_s"])

    def limit_in(self) -> float:
        """Return the seconds until the job is to be warned or ended because of its time limit."""
        if self.limit_at == FOREVER or self.timed_out:
            return FOREVER
        return min(self.warn_at, self.limit_at) - time.clock_gettime(time.CLOCK_BOOTTIME)

    def trim(self) -> bool:
        """Rotate the output where it is too long; did any of it grow?"""
        grew = False
        for name in ("out", "err"):
            path = self.order[name]
            with contextlib.suppress(OSError):
                size = os.stat(path).st_size
                grew |= size != self.sizes.get(name)
                self.sizes[name] = size
                if size >= self.order["log_limit"]:
                    with ordering(self.order["order"]) as fd:
                        note_order(fd, self.order["out"], self.order["err"])
                        rotate(path, self.order["log_keep"])
        return grew


class Channel:
    """Keeps one way into a run: a command, or a connection to one of its ports; in a child of ours.

    Clients come and go at its socket, a call each: a line of JSON and the bytes that it announces,
    answered likewise. All they read and write is counted, so that whoever was cut off goes on where
    it was. Output is kept until it was asked for what follows it; when there is too much, a command
    has to wait, and of a terminal the oldest goes. `script`: it is the run itself that has the
    terminal; then it stays while nobody is there, and its end is that of the run.
    """

    def __init__(
        self,
        shim: Shim,
        name: str,
        wanted: dict[str, Any],
        script: str,
        environ: dict[str, str],
        tell: int = -1,
    ) -> None:
        self.shim, self.name, self.wanted = shim, name, wanted
        self.script, self.environ, self.tell = script, environ, tell
        self.tty = bool(wanted.get("tty"))
        self.child = 0
        self.code: int | None = None
        self.sources: dict[int, int] = {}  # what is read -> OUT or ERR
        self.sink = -1  # what is written to
        self.log = -1  # of the run itself: its output file
        self.pieces: deque[tuple[int, bytes]] = deque()  # of output, each with where it begins
        self.start = self.end = self.asked = 0  # of output: kept from, to, and asked for
        self.input, self.closing = b"", False  # closing: no more input comes
        self.taken: dict[str, int] = {}  # bytes of input, by who sends it
        self.heard = time.monotonic()
        self.clients: dict[int, tuple[Any, bytes]] = {}  # with what came so far
        self.waiting: dict[int, tuple[dict[str, Any], float]] = {}  # reads and writes that wait
        self.hang_up_at, self.done_at = FOREVER, FOREVER
        self.over = self.unwanted = False

    def keep(self) -> None:
        """Serve until it is over; does not return."""
        code = NOT_STARTED
        try:
            os.setsid()
            ctypes.CDLL(None).prctl(NOT_DUMPABLE, 0, 0, 0, 0)  # the job must not look into us
            code = self.serve()
        except OSError as error:
            self.say(f"rota: a channel failed: {error}")
        finally:
            os._exit(code)

    def serve(self) -> int:
        """Begin, and answer calls until it is over; the exit code."""
        import select
        import socket
        import warnings  # noqa: F401 - `os.execvpe` needs it where no library may be in sight

        if self.shim.box is not None:
            self.shim.box.let_go()
        awake, wake = os.pipe()
        for fd in (awake, wake):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, self.told)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        os.chdir(f"{self.shim.folder}/{CHANNELS}")
        self.begin(socket)
        if self.tell >= 0:
            os.close(self.tell)
            self.tell = -1
        door = socket.socket(socket.AF_UNIX)
        door.bind(f".{self.name}")
        door.listen(64)
        door.setblocking(False)  # noqa: FBT003 - its only form
        os.rename(f".{self.name}", f"{self.name}.sock")  # there when it is served
        while not self.over:
            poll = select.poll()
            poll.register(awake, select.POLLIN)
            poll.register(door, select.POLLIN)
            for fd in self.readable():
                poll.register(fd, select.POLLIN | (select.POLLOUT if self.writes(fd) else 0))
            if self.sink >= 0 and self.input and self.sink not in self.readable():
                poll.register(self.sink, select.POLLOUT)
            for fd in self.clients:
                poll.register(fd, select.POLLIN)
            for fd, events in poll.poll(self.patience_ms()):
                self.attend(fd, events, awake, door, select)
            self.look()
        return self.finish()

    def say(self, text: str) -> None:
        """To whoever waits for the beginning, else to the errors of the shim."""
        with contextlib.suppress(OSError):
            os.write(self.tell if self.tell >= 0 else 2, f"{text}\n".encode(errors="replace"))

    def finish(self) -> int:
        """Leave the end behind, and end as the command did."""
        with contextlib.suppress(OSError):
            if "port" not in self.wanted:
                write_whole(f"{self.name}.end", json.dumps({"code": self.code}))
        with contextlib.suppress(OSError):
            os.unlink(f"{self.name}.sock")
        code = self.code or 0
        if code < 0 and self.script:
            if -code not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        return code if code >= 0 else 128 - code

    # --- the command or the connection ------------------------------------------------------------

    def begin(self, socket: Any) -> None:
        """Start the command, or connect."""
        if self.tty or "port" in self.wanted:
            self.hand_over(socket)
        else:
            inside, self.sink = os.pipe()
            out, told = os.pipe()
            err, failed = os.pipe()
            self.child = self.shim.fork(outside=False)
            if not self.child:
                self.become((inside, told, failed))
            for fd in (inside, told, failed):
                os.close(fd)
            self.sources = {out: OUT, err: ERR}
        for fd in (*self.sources, self.sink):
            if fd >= 0:
                os.set_blocking(fd, False)

    def hand_over(self, socket: Any) -> None:
        """Let a child make a terminal or a connection, as the job in its box, and give it to us."""
        if self.script:
            self.log = self.shim.output(self.shim.order["out"])
        ours, theirs = socket.socketpair()
        self.child = self.shim.fork(outside=False)
        if not self.child:
            try:
                self.make(socket, theirs)
            except BaseException as error:  # noqa: BLE001 - whatever it is, it must not go on
                why = getattr(error, "strerror", None) or error
                theirs.sendall(f"-{why}".encode(errors="replace"))
            finally:
                os._exit(NOT_STARTED)
        theirs.close()
        said, fds, _, _ = socket.recv_fds(ours, 1000, 1)
        ours.close()
        if "port" in self.wanted:
            os.waitpid(self.child, 0)
            self.child = 0
        if fds:
            self.sources, self.sink = {fds[0]: OUT}, fds[0]
            return
        why = said[1:].decode(errors="replace")
        if self.tell >= 0:
            raise OSError(f"its terminal cannot be made: {why}")
        if "port" in self.wanted:
            why = f"nothing listens on port {self.wanted['port']} in the job ({why})"
        self.put(ERR, f"rota: {why}\n".encode(errors="replace"))
        if not self.child:
            self.end_with(1)

    def make(self, socket: Any, line: Any) -> None:
        """In a child: make it."""
        os.setsid()
        self.shim.enter_groups()
        self.shim.settle()
        if "port" in self.wanted:
            made = socket.create_connection(("127.0.0.1", int(self.wanted["port"])))
            socket.send_fds(line, [b"+"], [made.fileno()])
            os._exit(0)
        outer, inner = os.openpty()
        self.resize(outer, self.wanted)
        fcntl.ioctl(inner, CONTROLLING, 0)
        socket.send_fds(line, [b"+"], [outer])
        os.close(outer)
        line.close()
        for number in range(3):
            os.dup2(inner, number)
        self.turn()

    def resize(self, fd: int, said: dict[str, Any]) -> None:
        """Set the size of the terminal, if it was said."""
        rows, columns = int(said.get("rows") or 0), int(said.get("cols") or 0)
        if self.tty and rows > 0 and columns > 0:
            size = rows.to_bytes(2, sys.byteorder) + columns.to_bytes(2, sys.byteorder) + bytes(4)
            with contextlib.suppress(OSError):
                fcntl.ioctl(fd, TERMINAL_SIZE, size)

    def become(self, ends: tuple[int, int, int]) -> None:
        """In a child: turn into the command, with these as its input and outputs."""
        try:
            os.setsid()
            for number, fd in enumerate(ends):
                os.dup2(fd, number)
            self.shim.enter_groups()
            self.shim.settle()
            self.turn()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is said
            self.say(f"rota: its place in the job cannot be made: {error}")
        finally:
            os._exit(NOT_STARTED)

    def turn(self) -> None:
        """In a child that is where it shall be: turn into the command."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        argv = [*self.shim.order.get("inside", ()), *self.wanted.get("argv", ())]
        if not argv:
            argv = [next(s for s in ("/bin/bash", "/bin/sh") if os.access(s, os.X_OK))]
        try:
            if self.script:
                self.shim.run_script(self.script, self.environ)
            os.execvpe(argv[0], argv, self.environ)  # noqa: S606 - its purpose
        except OSError as error:
            said = f"rota: {argv[0]} cannot be started: {error.strerror}\n"
            os.write(2, said.encode(errors="replace"))
        os._exit(NOT_STARTED)

    # --- what happens -----------------------------------------------------------------------------

    def told(self, number: int, _: object) -> None:
        """A signal: that it shall end."""
        if number == signal.SIGTERM:
            self.hang_up()

    def hang_up(self) -> None:
        """Let the command end: soon, if it does not by itself."""
        if self.child and self.code is None:
            send(os.killpg, self.child, signal.SIGTERM)
            if not self.script:  # an interactive shell does not mind SIGTERM
                send(os.killpg, self.child, signal.SIGHUP)
            send(os.killpg, self.child, signal.SIGCONT)
        elif self.code is None:
            self.end_with(0)
        if not self.script and self.hang_up_at == FOREVER:
            self.hang_up_at = time.monotonic() + HANG_UP_S
        self.done_at = min(self.done_at, time.monotonic() + (LINGER_S if self.attached() else 0.0))

    def attached(self) -> bool:
        """Is a client there, or was just now?"""
        return bool(self.waiting) or time.monotonic() - self.heard < ATTACHED_S

    def look(self) -> None:
        """What time it is, and who has ended."""
        now = time.monotonic()
        if self.child and self.code is None:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.child, os.WNOHANG)
                if pid:
                    self.drain()
                    self.end_with(os.waitstatus_to_exitcode(status))
        if now >= self.hang_up_at and self.child and self.code is None:
            send(os.killpg, self.child, signal.SIGKILL)
            self.hang_up_at = now + HANG_UP_S
        forsaken = self.code is None and now - self.heard > CHANNEL_IDLE_S and not self.waiting
        if forsaken and not self.script and self.hang_up_at == FOREVER:
            self.hang_up()
        for client, (call, until) in list(self.waiting.items()):
            self.try_answer(client, call, late=now >= until)
        read_all = self.code is not None and self.asked >= self.end and not self.waiting
        self.over = self.code is not None and (read_all or now >= self.done_at)

    def end_with(self, code: int) -> None:
        """It has ended: clients find that at the end of the output."""
        if self.code is None:
            self.code = code
            self.put(ENDED, json.dumps({"code": code if code >= 0 else 128 - code}).encode())
            linger = LINGER_S if self.script else ATTACHED_S
            linger = 0.0 if self.unwanted else linger
            linger_until = time.monotonic() + (linger if self.attached() else 0.0)
            self.done_at = min(self.done_at, linger_until)

    def drain(self) -> None:
        """Take what the command left, which somebody else may still hold open."""
        until = time.monotonic() + DRAIN_S
        while self.sources and time.monotonic() < until:
            before = self.end
            for fd in list(self.sources):
                self.take(fd)
            if self.end == before:
                break

    def patience_ms(self) -> int:
        """How long nothing need be looked at."""
        moments = [until for _, until in self.waiting.values()]
        moments += [self.hang_up_at, self.done_at, time.monotonic() + IDLE_S]
        return max(0, int(1000 * (min(moments) - time.monotonic())) + 1)

    def readable(self) -> list[int]:
        """What may be read now: a command has to wait while nobody takes what it says."""
        room = self.tty or self.end - self.asked < KEPT_OUTPUT
        return list(self.sources) if room and self.code is None else []

    def writes(self, fd: int) -> bool:
        """Is there input for it?"""
        return fd == self.sink and bool(self.input)

    def attend(self, fd: int, events: int, awake: int, door: Any, select: Any) -> None:
        """Something can be read or written."""
        if fd == awake:
            with contextlib.suppress(BlockingIOError):
                os.read(awake, 1 << 10)
        elif fd == door.fileno():
            with contextlib.suppress(OSError):
                client, _ = door.accept()
                client.settimeout(LINGER_S)  # it is our agent
                self.clients[client.fileno()] = client, b""
        elif fd in self.clients:
            self.hear(fd)
        else:
            if fd == self.sink and events & (select.POLLOUT | select.POLLERR):
                self.give()
            if fd in self.sources and events & ~select.POLLOUT:
                self.take(fd)

    def take(self, fd: int) -> None:
        """Read output; at its end there is no more of it."""
        try:
            data = os.read(fd, PIECE)
        except BlockingIOError:
            return
        except OSError:  # of a terminal that nobody has any more
            data = b""
        if data:
            self.put(self.sources[fd], data)
            if self.log >= 0:
                with contextlib.suppress(OSError):
                    os.write(self.log, data)
            return
        del self.sources[fd]
        if not self.child and self.code is None:  # a connection: the other side is done with it
            self.end_with(0)
        if fd != self.sink:
            os.close(fd)

    def put(self, stream: int, data: bytes) -> None:
        """Keep output; a terminal's oldest goes."""
        piece = bytes([stream]) + len(data).to_bytes(HEAD - 1, "big") + data
        self.pieces.append((self.end, piece))
        self.end += len(piece)
        while self.pieces and (
            self.end - self.start > KEPT_OUTPUT + PIECE
            if self.tty
            else self.pieces[0][0] + len(self.pieces[0][1]) <= self.asked
        ):
            self.pieces.popleft()
            self.start = self.pieces[0][0] if self.pieces else self.end

    def give(self) -> None:
        """Write input."""
        try:
            self.input = self.input[os.write(self.sink, self.input[:PIECE]) :]
        except BlockingIOError:
            return
        except OSError:  # nobody reads it
            self.input, self.closing = b"", True
        if self.closing and not self.input:
            self.close_input()

    def close_input(self) -> None:
        """There is no more."""
        import socket

        if self.sink in self.sources:  # a terminal or a connection
            if not self.tty:
                with contextlib.suppress(OSError):
                    socket.socket(fileno=os.dup(self.sink)).shutdown(socket.SHUT_WR)
            elif self.code is None:
                with contextlib.suppress(OSError):
                    os.write(self.sink, b"\x04")
        elif self.sink >= 0:
            os.close(self.sink)
        self.sink = -1

    # --- clients ----------------------------------------------------------------------------------

    def hear(self, fd: int) -> None:
        """Read what a client wants."""
        client, before = self.clients[fd]
        try:
            data = client.recv(PIECE)
        except OSError:
            data = b""
        text = before + data
        line, newline, body = text.partition(b"\n")
        if not data or (not newline and len(text) > MOST_LINE):
            self.leave(fd)
            return
        self.clients[fd] = client, text
        if not newline:
            return
        try:
            call = json.loads(line)
            size = min(int(call.get("size", 0)), KEPT_INPUT)
        except (ValueError, AttributeError, TypeError):
            self.leave(fd)
            return
        if len(body) >= size:
            call["body"] = body[:size]
            self.heard = time.monotonic()
            wait = max(0.0, min(60.0, float(call.get("wait", 0))))
            self.waiting[fd] = call, time.monotonic() + wait
            self.try_answer(fd, call, late=False)

    def leave(self, fd: int) -> None:
        """A client is gone."""
        self.waiting.pop(fd, None)
        self.clients.pop(fd)[0].close()

    def try_answer(self, fd: int, call: dict[str, Any], *, late: bool) -> None:
        """Answer a call, unless there is nothing to say yet."""
        what, data, wrong = call.get("do"), b"", ""
        if what == "read":
            offset = self.place(int(call.get("offset", 0)))
            self.asked = max(self.asked, min(offset, self.end))
            data = self.read(offset, int(call.get("limit", PIECE)))
            late = late or bool(data) or self.code is not None
        elif what == "write":
            late = self.write(call) or late
            wrong = call.get("wrong", "")
        elif what == "close":
            if not self.script or self.code is not None:  # that of the run itself stays
                self.unwanted = True
                self.hang_up()
                self.done_at = 0.0
            late = True
        else:
            late = True
        if not late:
            return
        self.heard = time.monotonic()
        state = {
            "offset": self.place(int(call.get("offset", 0))) if what == "read" else 0,
            "taken": self.taken.get(str(call.get("writer", "")), 0),
            "size": len(data), "code": self.code, "tty": self.tty, "wrong": wrong,
            "kind": "port" if "port" in self.wanted else "terminal" if self.script else "exec",
        }  # fmt: skip
        client = self.clients[fd][0]
        with contextlib.suppress(OSError):
            client.sendall(json.dumps(state).encode() + b"\n" + data)
        self.leave(fd)

    def place(self, offset: int) -> int:
        """Where the piece at or after an offset begins; below 0 it counts from the end."""
        wanted = self.end + offset if offset < 0 else offset
        if wanted <= self.start:
            return self.start
        found = self.end
        for start, _ in reversed(self.pieces):
            if start < wanted:
                break
            found = start
        return found

    def read(self, offset: int, limit: int) -> bytes:
        """Return whole pieces from there on, at least one."""
        found: list[bytes] = []
        for start, piece in reversed(self.pieces):
            if start < offset:
                break
            found.append(piece)
        found.reverse()
        size = 0
        for number, piece in enumerate(found):
            size += len(piece)
            if number and size > limit:
                return b"".join(found[:number])
        return b"".join(found)

    def write(self, call: dict[str, Any]) -> bool:
        """Take input, as much as there is room for; is all of it taken?"""
        if self.sources:
            self.resize(next(iter(self.sources)), call)
        offset, body, writer = int(call.get("offset", 0)), call["body"], str(call.get("writer", ""))
        taken = self.taken.setdefault(writer, 0)
        while len(self.taken) > MOST_WRITERS:
            del self.taken[next(iter(self.taken))]
        if offset > taken:
            call["wrong"] = f"input begins at {offset}, and {taken} is next"
            return True
        new = body[taken - offset :]
        if self.code is not None or self.sink < 0:
            self.taken[writer] = taken + len(new)  # nobody reads it any more
            return True
        room = new[: max(0, KEPT_INPUT - len(self.input))]
        self.input += room
        self.taken[writer] = taken + len(room)
        all_of_it = len(room) == len(new)
        if call.get("eof") and all_of_it:
            self.closing = True
            if not self.input:
                self.close_input()
        return all_of_it


def guard(shim: int) -> int:
    """Wait until a shim, our child, is gone and kill what it left; its exit code.

    Signals are meant for the shim. Whatever it started, however far it ran away, is below us now.
    """
    code = None
    while code is None:
        got = signal.sigwaitinfo(SIGNALS)
        if got.si_signo != signal.SIGCHLD:
            send(os.kill, shim, got.si_signo)
            continue
        with contextlib.suppress(ChildProcessError):
            while code is None and (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == shim:
                    code = os.waitstatus_to_exitcode(ended[1])
    kill_all_below()
    return code


def main(folder: str) -> int:
    """Run the order of a folder, once: in a child, with ourselves as its guard."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    lock = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # somebody else takes care of it
        return 0
    if os.path.exists(f"{folder}/exit.json"):
        return 0
    libc, parent = ctypes.CDLL(None), os.getpid()
    libc.prctl(SUBREAPER, 1, 0, 0, 0)
    child = os.fork()
    if child:
        return int(guard(child) != 0)
    os.setsid()  # who kills the guard's group does not mean us
    libc.prctl(PARENT_SIGNAL, UNGUARDED, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), UNGUARDED)
    Shim(os.path.abspath(folder), parent).work()
    return 0


def try_box(order: str) -> int:
    """Make a box and run something in it; an error says what is not possible here."""
    box = Box(json.loads(order))
    box.open()
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            box.become()
            os._exit(0)
        os._exit(NOT_STARTED)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    box.close()
    return code


if __name__ == "__main__":
    sys.exit(try_box(sys.argv[2]) if sys.argv[1] == TRY else main(sys.argv[1]))
