"""The files of jobs on this machine: those that came with them, and what they made of them."""

import contextlib
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from heapq import nsmallest

import msgspec

from rota.core.errors import ClusterError, InputError, RotaError
from rota.core.manifest import DIGITS, FileManifest, bad_path
from rota.live.agent.folders import PRIVATE, AgentFolder, folder_name, remove
from rota.live.calls import CallAnswer, FoundFile, ListFiles, ReadFile, conflict, missing

Fetch = Callable[[str, str], bytes]
"""A piece of what came with a job, by its digest; raises `ClusterError`."""

RETRY_S = 2.0
MOST_DEPTH = 100
MOST_SKIPPED = 100  # that an answer names
NAMES = 10_000  # of a folder that are kept in order at the same time
NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not keep us waiting


class SentFiles:
    """Makes the working folders of jobs that came with files, in the background.

    A folder appears as a whole: it is made under another name first. A job that is started again
    finds its folder as it left it.
    """

    def __init__(self, root: AgentFolder, done: Callable[[], None]) -> None:
        self._root = root
        self._done = done
        self.fetch: Fetch | None = None
        self._lock = threading.Lock()
        self._at_work: dict[str, str] = {}  # by job: empty, or why it can never be made

    def ready(self, job: str, upload: str) -> bool:
        """Is it there? If not, it is being made.

        Raises:
            InputError: It cannot be made.
        """
        if (self._root.jobs / folder_name(job) / "work").is_dir():
            return True
        with self._lock:
            why = self._at_work.get(job)
            if why:
                del self._at_work[job]
                raise InputError(why)
            if why is None:
                self._at_work[job] = ""
                threading.Thread(
                    target=self._make, args=(job, upload), name="rota-agent-files", daemon=True
                ).start()
        return False

    def _make(self, job: str, upload: str) -> None:
        why = ""
        while True:
            try:
                self._build(job, upload)
            except ClusterError as error:
                if error.retryable:
                    time.sleep(RETRY_S)
                    continue
                why = f"its files cannot be fetched: {error}"
            except (RotaError, OSError, ValueError, msgspec.MsgspecError) as error:
                why = f"its files cannot be made: {error}"
            break
        with self._lock:
            if why:
                self._at_work[job] = why
            else:
                self._at_work.pop(job, None)
        self._done()

    def _build(self, job: str, upload: str) -> None:
        if self.fetch is None:
            raise InputError("this agent cannot fetch files: update it")
        listed = upload[-DIGITS:]
        manifest = msgspec.json.decode(_checked(self.fetch(job, listed), listed), type=FileManifest)
        manifest.check()
        top = self._root.jobs / folder_name(job)
        top.mkdir(PRIVATE, exist_ok=True)
        new = self._root.unfinished()
        new.mkdir(PRIVATE)
        try:
            for file in manifest.files:
                path = new / file.path
                path.parent.mkdir(PRIVATE, parents=True, exist_ok=True)
                mode = 0o700 if file.executable else 0o600
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                with os.fdopen(os.open(path, flags, mode), "wb") as out:
                    for digest in file.chunks:
                        out.write(_checked(self.fetch(job, digest), digest))
                    if out.tell() != file.size:
                        raise InputError(f"{file.path} has {out.tell()} bytes, not {file.size}")
            with contextlib.suppress(FileExistsError):
                try:
                    new.rename(top / "work")
                except OSError:  # another agent with the same folder was faster
                    if not (top / "work").is_dir():
                        raise
        finally:
            remove(new)


def _checked(data: bytes, digest: str) -> bytes:
    if sha256(data).hexdigest() != digest:
        raise ClusterError(f"piece {digest[:12]} is damaged", retryable=True)
    return data


# --- results --------------------------------------------------------------------------------------


def list_files(root: AgentFolder, job: str, call: ListFiles) -> CallAnswer:
    """Plain files of a job below a path, in order; links and other things are named as skipped.

    No more is looked at than the answer needs: a job may have made millions of files.
    """
    found: list[FoundFile] = []
    skipped: list[str] = []
    more = False
    try:
        with _opened(root, job, call.folder) as (top, owner):
            for path, status in _walk(top, call.path, call.after):
                if stat.S_ISREG(status.st_mode) and status.st_uid == owner and not bad_path(path):
                    if len(found) == call.limit:
                        more = True
                        break
                    run = bool(status.st_mode & 0o100)
                    found.append(FoundFile(path, status.st_size, status.st_mtime_ns, run))
                elif len(skipped) < MOST_SKIPPED:
                    skipped.append(path)
    except FileNotFoundError:
        return missing(f"there is no {call.path or call.folder!r} of it here")
    except OSError as error:
        return conflict(f"{call.path or call.folder}: {error.strerror}")
    return CallAnswer(files=tuple(found), skipped=tuple(skipped), taken=int(more))


def read_file(root: AgentFolder, job: str, call: ReadFile) -> CallAnswer:
    """A piece of a plain file of a job."""
    if bad_path(call.path):
        return missing(f"there is no file {call.path[:200]!r}: {bad_path(call.path)}")
    *folders, name = call.path.split("/")
    with contextlib.ExitStack() as opened:
        try:
            at, owner = opened.enter_context(_opened(root, job, call.folder))
            for each in folders:
                at = _open(opened, each, os.O_RDONLY | os.O_DIRECTORY, at)
            fd = _open(opened, name, os.O_RDONLY, at)
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != owner:
                return conflict(f"{call.path} is no plain file of the job")
            data = os.pread(fd, call.limit, call.offset)
        except FileNotFoundError:
            return missing(f"there is no file {call.path!r}")
        except OSError as error:  # a link, or too deep
            return conflict(f"{call.path} cannot be read: {error.strerror}")
    return CallAnswer(data, call.offset)


def _open(opened: contextlib.ExitStack, name: str, flags: int, at: int | None = None) -> int:
    fd = os.open(name, flags | NO_LINK, dir_fd=at)
    opened.callback(os.close, fd)
    return fd


@contextlib.contextmanager
def _opened(root: AgentFolder, job: str, folder: str) -> Iterator[tuple[int, int]]:
    """A folder of a job and whose it is: the job's files, and nothing else, are that user's."""
    path = root.jobs / folder_name(job) / folder
    with contextlib.ExitStack() as opened:
        fd = _open(opened, str(path), os.O_RDONLY | os.O_DIRECTORY)
        yield fd, os.fstat(fd).st_uid


def _walk(top: int, path: str, after: str) -> Iterator[tuple[str, os.stat_result]]:
    """Everything below a path that is no folder, after a path; nothing is followed."""
    with contextlib.ExitStack() as opened:
        at = top
        parts = path.split("/") if path else []
        if path and bad_path(path):
            raise FileNotFoundError(path)
        for number, part in enumerate(parts):
            status = os.stat(part, dir_fd=at, follow_symlinks=False)
            if number == len(parts) - 1 and not stat.S_ISDIR(status.st_mode):
                if path > after:
                    yield path, status
                return
            at = _open(opened, part, os.O_RDONLY | os.O_DIRECTORY, at)
        done = after.split("/") if after else []
        below = done[: len(parts)] == parts
        if below or done < parts:
            yield from _below(at, path, 0, done[len(parts) :] if below else [])


def _below(
    at: int, path: str, depth: int, done: Sequence[str]
) -> Iterator[tuple[str, os.stat_result]]:
    """`done`: the names on the way to the last one that need not come again."""
    for name in _names(at, done[0] if done else ""):
        inside = f"{path}/{name}" if path else name
        rest = done[1:] if done and name == done[0] else []
        try:
            status = os.stat(name, dir_fd=at, follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode):
                if [name] != done:
                    yield inside, status
            elif depth < MOST_DEPTH:
                fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | NO_LINK, dir_fd=at)
                try:
                    yield from _below(fd, inside, depth + 1, rest)
                finally:
                    os.close(fd)
        except FileNotFoundError:  # the job has just removed it
            continue


def _names(at: int, first: str) -> Iterator[str]:
    """What is in a folder from this name on, in order; of a large one some are kept at a time."""
    last = None
    while True:
        with os.scandir(at) as entries:
            names = (entry.name for entry in entries)
            some = nsmallest(NAMES, (n for n in names if n >= first and (last is None or n > last)))
        yield from some
        if len(some) < NAMES:
            return
        last = some[-1]
