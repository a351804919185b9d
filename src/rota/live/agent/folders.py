"""The files of an agent: its root folder, and a folder for each part of a run.

In the root folder are:

    lock           held while the agent lives
    agent.json     its id and how often it was started
    wake           a pipe: shims say that something happened
    lease          until when its jobs may run without news from the server
    term           of the newest leader that it knows, where several servers take turns
    forgotten      the last run of each job whose folder was removed
    shim.pyc       the script of the shims, compiled: saves a quarter of their start
    runs/          a folder for each part: see `rota.live.agent.shim`
    jobs/          working folder, checkpoints and output of each job
"""

import contextlib
import errno
import fcntl
import json
import os
import py_compile
import secrets
import shutil
import stat
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from heapq import nsmallest
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from rota.core.errors import ClusterError
from rota.live.agent import shim
from rota.live.agent.messages import PartKey

RESERVED = 4096  # bytes for the exit record
JOBS_KEPT = 10_000  # in `forgotten`
PRIVATE = 0o700
LEASE_WIDTH = 24
LONGEST_NAME = 100
GONE, NEW = ".gone-", ".new-"  # in the folder of jobs: to be removed, not complete yet
SEEN, TEMPORARY = "job", "temporary"  # in the folder of a part: what the job may see of it

Owner: TypeAlias = tuple[int, int]
"""(uid, gid)."""


def folder_name(text: str) -> str:
    """A name for a folder that stays where it is put, and is another one for every text."""
    name = quote(text, safe=" ")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if not name or len(name) > LONGEST_NAME:
        name = f"{name[:60]}%{sha256(text.encode(errors='surrogatepass')).hexdigest()[:32]}"
    return name


def job_and_number(run: str) -> tuple[str, int]:
    """`17.2` is the run 2 of job 17."""
    job, _, number = run.rpartition(".")
    return (job, int(number)) if job and number.isdecimal() else (run, 0)


class AgentFolder:
    """The root folder of an agent: one agent at a time."""

    def __init__(self, path: Path, jobs: Path | None = None) -> None:
        self.path = path.absolute()
        self.runs = self.path / "runs"
        self.jobs = (jobs or self.path / "jobs").absolute()
        self.wake = self.path / "wake"
        self.lease = self.path / "lease"
        self.hooks: Mapping[str, Sequence[str]] = {}  # `prolog`, `epilog`: commands around each job
        try:
            for folder in (self.path, self.runs, self.jobs):
                folder.mkdir(PRIVATE, parents=True, exist_ok=True)
            self.path.chmod(PRIVATE)
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            self._hold()
            self.agent, self.session = self._count_start()
            self.jobs_id = self._name_jobs()
            self._clear_jobs()
            if not self.wake.exists():
                os.mkfifo(self.wake, 0o600)
        except OSError as error:
            raise ClusterError(f"cannot use {path} as the agent's folder: {error}") from error
        self._forgotten = self._read_forgotten()
        self.shim = self._compile_shim()

    def close(self) -> None:
        """Let another agent have it."""
        os.close(self._lock)

    def _hold(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise ClusterError(
                f"another agent uses {self.path}: stop it, or give another folder"
            ) from None

    def _compile_shim(self) -> str:
        try:
            made = py_compile.compile(shim.__file__, str(self.path / "shim.pyc"), doraise=True)
        except (OSError, py_compile.PyCompileError):
            made = None
        return made or shim.__file__

    def _count_start(self) -> tuple[str, int]:
        path = self.path / "agent.json"
        try:
            known = json.loads(path.read_text())
            agent, session = str(known["id"]), int(known["session"]) + 1
        except (OSError, ValueError, KeyError, TypeError):
            agent, session = secrets.token_hex(8), 1
        shim.write_whole(str(path), json.dumps({"id": agent, "session": session}))
        return agent, session

    def _name_jobs(self) -> str:
        """An id of the folder of jobs: agents may share one."""
        path = self.jobs / ".id"
        with contextlib.suppress(FileExistsError), path.open("x") as file:
            file.write(secrets.token_hex(8))
        return path.read_text()

    def unfinished(self) -> Path:
        """A name for a folder that is to become one of a job; agents may share the place."""
        return self.jobs / f"{NEW}{self.agent}-{secrets.token_hex(8)}"

    def _clear_jobs(self) -> None:
        """Remove what an earlier session did not complete, and what nobody sees any more."""
        for path in self.jobs.iterdir():
            if path.name.startswith((GONE, f"{NEW}{self.agent}-")):
                threading.Thread(target=remove, args=(path,), daemon=True).start()

    # --- the lease ----------------------------------------------------------------------------

    def renew(self, until_s: float) -> None:
        """Jobs may run until then (seconds since boot); written in place: that needs no space."""
        text = f"{until_s:<{LEASE_WIDTH}.3f}".encode()
        with shim.opened(str(self.lease), os.O_WRONLY | os.O_CREAT) as fd:
            os.pwrite(fd, text, 0)

    def term(self) -> int:
        """The newest term that was noted."""
        try:
            return int((self.path / "term").read_text())
        except (OSError, ValueError):
            return 0

    def note_term(self, term: int) -> None:
        """Obey no leader from before this term any more; in place, as the lease."""
        with shim.opened(str(self.path / "term"), os.O_WRONLY | os.O_CREAT) as fd:
            os.pwrite(fd, f"{term:<{LEASE_WIDTH}}".encode(), 0)

    # --- parts --------------------------------------------------------------------------------

    def folder(self, key: PartKey) -> Path:
        """Of a part."""
        return self.runs / f"{folder_name(key.run)}-{key.node_rank}"

    def parts(self) -> Iterator[Path]:
        """Folders of all parts; what was never completed is removed."""
        for path in sorted(self.runs.iterdir()):
            if path.name.startswith("."):
                remove(path)
            elif path.is_dir():
                yield path

    def create(self, key: PartKey, files: Mapping[str, str], owner: Owner | None = None) -> Path:
        """Make the folder of a part appear with all its files; it was not there before.

        `owner`: of what the job itself may see of it.
        """
        path = self.folder(key)
        if path.exists():
            raise FileExistsError(path)
        new = self.runs / f".{secrets.token_hex(8)}"
        new.mkdir(PRIVATE)
        try:
            for name in (SEEN, TEMPORARY, shim.CHANNELS):
                (new / name).mkdir(PRIVATE)
            for name in ("tmp", "var"):
                (new / TEMPORARY / name).mkdir(PRIVATE)
            for name, text in {**files, "lock": "", "exit.reserved": " " * RESERVED}.items():
                with shim.opened(str(new / name), os.O_WRONLY | os.O_CREAT) as fd:
                    _write_all(fd, text.encode(errors="surrogateescape"))
            if owner is not None:
                give(new / SEEN, owner)
                give(new / TEMPORARY, owner)
            new.rename(path)
            with shim.opened(str(self.runs), os.O_RDONLY | os.O_DIRECTORY) as fd:
                os.fsync(fd)
        except OSError:
            shutil.rmtree(new, ignore_errors=True)
            raise
        return path

    def job_folders(self, job: str, owner: Owner | None = None) -> dict[str, Path]:
        """Folders of a job that stay between its runs; made if they are not there.

        The output stays ours: who may replace a file there could let us write where we may.
        """
        top = self.jobs / folder_name(job)
        top.mkdir(PRIVATE, exist_ok=True)
        found = {name: top / name for name in ("work", "checkpoint", "logs")}
        for name, folder in found.items():
            folder.mkdir(PRIVATE, parents=True, exist_ok=True)
            if owner is not None and name != "logs":
                give(folder, owner)
        (found["logs"] / "since").touch(0o600, exist_ok=True)
        return found

    def stale_jobs(self, before_unix: float, after: int, most: int) -> list[str]:
        """Jobs in whose folders nothing was begun since then, the next ones after a number."""
        found = []
        with contextlib.suppress(OSError):
            for entry in os.scandir(self.jobs):
                number = int(entry.name) if entry.name.isascii() and entry.name.isdigit() else -1
                if number > after and entry.stat(follow_symlinks=False).st_mtime < before_unix:
                    found.append(number)
        return [str(number) for number in nsmallest(most, found)]

    def discard(self, job: str) -> None:
        """Remove the folder of a job: at once from sight, and then all of it in the background."""
        folder = self.jobs / folder_name(job)
        gone = self.jobs / f"{GONE}{secrets.token_hex(8)}"
        with contextlib.suppress(OSError):
            folder.rename(gone)
            threading.Thread(target=remove, args=(gone,), daemon=True).start()

    # --- what was forgotten -------------------------------------------------------------------

    def was_forgotten(self, run: str) -> bool:
        """Was it here before?"""
        job, number = job_and_number(run)
        return number <= self._forgotten.get(job, -1)

    def forget(self, key: PartKey) -> None:
        """Remove the folder of a part, but remember that it was there."""
        job, number = job_and_number(key.run)
        if number > self._forgotten.get(job, -1):
            line = json.dumps([job, number]) + "\n"
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            with shim.opened(str(self.path / "forgotten"), flags) as fd:
                _write_all(fd, line.encode())
            self._forgotten[job] = number
        remove(self.folder(key))

    def _read_forgotten(self) -> dict[str, int]:
        path = self.path / "forgotten"
        known: dict[str, int] = {}
        for line in shim.read(str(path)).splitlines():
            with contextlib.suppress(ValueError, TypeError):  # the last line may be torn
                job, number = json.loads(line)
                known[job] = max(int(number), known.pop(job, -1))
        newest = dict(list(known.items())[-JOBS_KEPT:])
        text = "".join(json.dumps([job, number]) + "\n" for job, number in newest.items())
        with contextlib.suppress(OSError):  # on a full disk the long file stays
            shim.write_whole(str(path), text)
        return known


def give(folder: Path, owner: Owner) -> None:
    """Let a folder and all in it belong to somebody; at once if it does already.

    Files with several names are left: one of them may be outside.
    """
    if folder.stat().st_uid == owner[0]:
        return
    try:
        for _, folders, files, at in os.fwalk(folder):
            for name in (*folders, *files):
                status = os.stat(name, dir_fd=at, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode) or status.st_nlink == 1:
                    os.chown(name, *owner, dir_fd=at, follow_symlinks=False)
    except RecursionError:
        raise OSError(errno.ENAMETOOLONG, "too many folders in each other", folder) from None
    os.chown(folder, *owner)  # last: it says that all is done


def remove(folder: Path) -> None:
    """Remove a folder, however a job left it: closed to us, or too deep to be walked through."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        with contextlib.suppress(OSError, RecursionError):
            for _, folders, _, at in os.fwalk(folder):
                for name in folders:
                    if stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                        os.chmod(name, PRIVATE, dir_fd=at)
        subprocess.run(  # noqa: S603 - it walks through any depth
            ["/bin/rm", "-rf", "--one-file-system", "--", str(folder)],
            stderr=subprocess.DEVNULL, check=False,
        )  # fmt: skip


def _write_all(fd: int, data: bytes) -> None:
    """Write everything: a disk that becomes full takes a part and then fails."""
    while data:
        data = data[os.write(fd, data) :]


def read_record(folder: Path, name: str) -> dict[str, Any]:
    """A record of a part; empty if it is not there (or not whole: a reboot)."""
    try:
        record = json.loads((folder / name).read_bytes())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def read_moment(folder: Path) -> dict[str, Any]:
    """When a part began to run; shims up to version 0.1 wrote the time of day and nothing else."""
    record = read_record(folder, "running")
    if not record:
        with contextlib.suppress(ValueError):
            record = {"time": float(shim.read(str(folder / "running")))}
    return record


def last_sign(folder: Path) -> dict[str, Any]:
    """When a part began whose end was not seen, and until when its shim is known to have lived."""
    try:
        return {"began": read_moment(folder), "time": (folder / "running").stat().st_mtime}
    except OSError:
        return {}


def write_end(folder: Path, end: Mapping[str, Any]) -> None:
    """Record the end of a part that has no shim."""
    shim.write_whole(
        str(folder / "exit.json"), json.dumps(end), reserved=str(folder / "exit.reserved")
    )


@contextlib.contextmanager
def without_shim(folder: Path) -> Iterator[bool]:
    """Is there no shim? And while this lasts none can begin."""
    with shim.opened(str(folder / "lock"), os.O_RDWR | os.O_CREAT) as fd:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
