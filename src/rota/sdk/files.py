"""Folders that travel with jobs: what of a folder is sent, and how results are written here."""

import fnmatch
import os
import stat
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from rota.core.errors import InputError, OutputError
from rota.core.manifest import CHUNK, FileEntry, FileManifest, bad_path

IGNORE_FILE = ".rotaignore"
ALWAYS_IGNORED = (".git/", "__pycache__/", IGNORE_FILE)
LIMIT = 1 << 30  # bytes, unless another limit is given
LARGEST_SHOWN = 3


class Ignored:
    """Patterns as in .gitignore: `*.pt`, `data/`, `/build`, `!keep`; the last that fits counts."""

    def __init__(self, lines: list[str]) -> None:
        kept = (line.strip() for line in lines)
        self._patterns = [line for line in kept if line and not line.startswith("#")]

    @classmethod
    def of(cls, folder: Path) -> "Ignored":
        """What the file in a folder says."""
        path = folder / IGNORE_FILE
        try:
            own = path.read_text("utf-8").splitlines() if path.is_file() else []
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: cannot be read ({error}): write it as UTF-8") from error
        return cls([*ALWAYS_IGNORED, *own])

    def has(self, path: str, *, folder: bool) -> bool:
        """Is it left out?"""
        found = False
        for pattern in self._patterns:
            wanted = pattern.removeprefix("!")
            if wanted.endswith("/"):
                if not folder:
                    continue
                wanted = wanted[:-1]
            name = path if "/" in wanted else path.rpartition("/")[2]
            if fnmatch.fnmatchcase(name, wanted.removeprefix("/")):
                found = not pattern.startswith("!")
        return found


class ScannedFolder:
    """The files of a folder that shall be sent, and their pieces."""

    def __init__(self, folder: str | Path, limit: int = LIMIT) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise InputError(f"--upload {folder}: is no folder: name one")
        self._real = self.folder.resolve()
        self._where: dict[str, tuple[str, int]] = {}  # by digest: a file and an offset
        self._sizes: dict[str, int] = {}
        paths = list(self._scan("", Ignored.of(self.folder)))
        total = sum(self._sizes.values())
        if total > limit:
            largest = sorted(self._sizes, key=lambda path: -self._sizes[path])[:LARGEST_SHOWN]
            told = ", ".join(f"{path} ({shown_size(self._sizes[path])})" for path in largest)
            raise InputError(
                f"--upload {folder}: {shown_size(total)} in all, and {shown_size(limit)} is the "
                f"limit: name what is not needed in {IGNORE_FILE} (the largest: {told}), or give "
                "--upload-limit"
            )
        self.manifest = FileManifest(tuple(self._entry(path) for path in sorted(paths)))
        self.manifest.check()

    def _scan(self, below: str, ignored: Ignored) -> Iterator[str]:
        for entry in sorted(os.scandir(self.folder / below), key=lambda each: each.name):
            path = f"{below}/{entry.name}" if below else entry.name
            if ignored.has(path, folder=entry.is_dir()):
                continue
            if entry.is_symlink():
                self._refuse_link(path)
            status = entry.stat()
            if stat.S_ISDIR(status.st_mode):
                yield from self._scan(path, ignored)
            elif stat.S_ISREG(status.st_mode):
                if bad_path(path):
                    raise InputError(f"--upload: {path!r}: {bad_path(path)}: rename or ignore it")
                self._sizes[path] = status.st_size
                yield path
            else:
                raise InputError(
                    f"--upload: {path} is neither file nor folder: name it in {IGNORE_FILE}"
                )

    def _refuse_link(self, path: str) -> None:
        """A link to a file of the folder is sent as that file; others lead elsewhere."""
        target = (self.folder / path).resolve()
        if not target.is_file() or not target.is_relative_to(self._real):
            raise InputError(
                f"--upload: {path} is a link to {target}: only links to files inside of the folder "
                f"are sent: name it in {IGNORE_FILE}, or copy what it leads to"
            )

    def _entry(self, path: str) -> FileEntry:
        chunks, size = [], 0
        with (self.folder / path).open("rb") as file:
            executable = bool(os.fstat(file.fileno()).st_mode & 0o100)
            while piece := file.read(CHUNK):
                digest = sha256(piece).hexdigest()
                self._where.setdefault(digest, (path, size))
                chunks.append(digest)
                size += len(piece)
        return FileEntry(path, size, tuple(chunks), executable)

    def piece(self, digest: str) -> bytes:
        """The bytes of a piece; raises if the file has changed since."""
        path, offset = self._where[digest]
        with (self.folder / path).open("rb") as file:
            file.seek(offset)
            data = file.read(CHUNK)
        if sha256(data).hexdigest() != digest:
            raise InputError(f"--upload: {path} has changed meanwhile: submit again")
        return data


def shown_size(size: int) -> str:
    """Bytes for people."""
    amount = float(size)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:  # noqa: PLR2004 - the next unit
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} GB"


class ResultFolder:
    """Where results are written: below one folder, never through a link, each file whole."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{folder}: cannot be made ({error.strerror})") from error

    def has(self, path: str, size: int, mtime_ns: int) -> bool:
        """Is the same file here already?"""
        self._check(path)
        try:
            status = os.lstat(self.folder / path)
        except OSError:
            return False
        same = (status.st_size, status.st_mtime_ns) == (size, mtime_ns)
        return same and stat.S_ISREG(status.st_mode)

    def write(self, path: str, pieces: Iterator[bytes], mtime_ns: int, *, executable: bool) -> int:
        """Write a file; it appears when it is whole. Its size."""
        self._check(path)
        target = self.folder / path
        part = target.with_name(f"{target.name[:200]}.part")
        size = 0
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            part.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            fd = os.open(part, flags, 0o777 if executable else 0o666)
            with os.fdopen(fd, "wb") as out:
                for piece in pieces:
                    out.write(piece)
                    size += len(piece)
            os.utime(part, ns=(mtime_ns, mtime_ns))
            part.replace(target)
        except OSError as error:
            raise OutputError(f"{target}: cannot be written ({error.strerror})") from error
        return size

    def _check(self, path: str) -> None:
        """The daemon says the path: it must not lead out of the folder."""
        why = bad_path(path)
        above = self.folder
        for part in [] if why else path.split("/")[:-1]:
            above /= part
            if above.is_symlink():
                why = f"{above} is a link here"
        if why:
            raise OutputError(f"file {path[:200]!r}: {why}: it is not written")
