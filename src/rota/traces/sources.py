"""Files: bytes and text of a trace, plain or packed (gzip, zip, tar), in bounded memory.

A member of an archive with several files is named like a file in a folder:
`data.zip/Venus/cluster_log.csv`. An archive with one file needs no member.

A small file that unpacks to something enormous is refused: unpack it first if it is meant.
"""

import codecs
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, NoReturn, Protocol, cast

from rota.core.errors import InputError, OutputError, why_unwritten
from rota.core.unfinished import claim, clear_abandoned, release, unfinished

if TYPE_CHECKING:
    import tarfile
    import zipfile

BOM = b"\xef\xbb\xbf"

_BLOCK_BYTES = 1 << 23
_MOST_LINE_BYTES = 1 << 26
_GZIP = b"\x1f\x8b"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")  # the second: without a file
_TAR_MARK = (257, b"ustar")
_MOST_UNPACKED_BYTES = 1 << 27
_MOST_TIMES = 200
_STEP_BYTES = 1 << 22
_MOST_LETTERS = 120


class TraceSource(Protocol):
    """Bytes that can be read once, from the beginning."""

    def read(self, size: int = -1, /) -> bytes:
        """At most so many bytes; all that are left if negative."""


class _Unpacked:
    """Bytes that are unpacked while they are read, up to a limit that no trace comes near."""

    def __init__(
        self, file: IO[bytes], packed_bytes: int, path: Path, error: type[InputError]
    ) -> None:
        self._file = file
        self._most_bytes = max(_MOST_UNPACKED_BYTES, _MOST_TIMES * packed_bytes)
        self._bytes = 0
        self._path = path
        self._error = error

    def read(self, size: int = -1, /) -> bytes:
        if size >= 0:
            return self._counted(self._file.read(size))
        return b"".join(iter(lambda: self._counted(self._file.read(_STEP_BYTES)), b""))

    def _counted(self, data: bytes) -> bytes:
        self._bytes += len(data)
        if self._bytes > self._most_bytes:
            raise self._error(
                f"{self._path}: unpacks to more than {self._most_bytes:,} bytes, {_MOST_TIMES} "
                f"times what it has: this is hardly a trace; if it is, unpack it yourself"
            )
        return data


@contextmanager
def open_source(path: Path, error: type[InputError]) -> Iterator[TraceSource]:
    """The unpacked bytes of a file; whatever is wrong with it is raised as `error`."""
    outer, member = _split(path)
    if is_folder(outer):
        raise error(f"{path}: is a folder: name a file in it")
    with ExitStack() as stack:
        try:
            _refuse_pipe(outer, error)
            yield _unpacked(outer, member, stack, error)
        except FileNotFoundError as problem:
            raise error(f"{path}: there is no such file: check the path") from problem
        except NotADirectoryError as problem:
            raise error(
                f"{path}: there is no such file: {_file_in(path)} is no archive and no folder"
            ) from problem
        except _broken() as problem:
            reason = str(problem)[:_MOST_LETTERS]
            raise error(
                f"{path}: cannot be unpacked ({reason}): fetch it again or unpack it yourself"
            ) from problem
        except OSError as problem:
            reason = problem.strerror or str(problem)[:_MOST_LETTERS]
            raise error(f"{path}: cannot be read ({reason}): check its permissions") from problem


def _broken(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """What is raised for archives that cannot be unpacked; most traces are plain files."""
    import gzip
    import lzma
    import tarfile
    import zipfile
    import zlib

    return (
        EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError,
        gzip.BadGzipFile,
        RuntimeError,  # an encrypted member
        NotImplementedError,  # an unknown method of compression
        *others,
    )  # fmt: skip


def read_bytes(path: Path, error: type[InputError], *, limit: int = -1) -> bytes:
    """The content of a file, unpacked and without a byte-order mark; it must not be empty."""
    with open_source(path, error) as file:
        data = file.read(limit).removeprefix(BOM)
    if not data.strip():
        described = path.suffix in (".yaml", ".yml", ".json")
        needs = "at least one key" if described else "a header line and at least one row"
        raise error(f"{path}: is empty: it needs {needs}")
    return data


def decode(
    data: bytes, path: Path, error: type[InputError], *, whole: bool = True, start: int = 0
) -> str:
    """The bytes as text; only UTF-8 is accepted.

    Args:
        data: The file, or a part of it.
        path: For messages.
        error: What is raised.
        whole: The end does not cut a character.
        start: Where the part starts in the file.
    """
    if b"\0" in data:
        _refuse_binary(path, error, start + data.index(b"\0"), "a zero byte")
    try:
        return codecs.utf_8_decode(data, "strict", whole)[0]
    except UnicodeDecodeError as problem:
        _refuse_binary(path, error, start + problem.start, f"byte 0x{data[problem.start]:02x}")


def _refuse_binary(path: Path, error: type[InputError], position: int, what: str) -> NoReturn:
    raise error(
        f"{path}: is not UTF-8 text ({what} at position {position}): "
        f"unpack it if it is compressed, or save it as UTF-8"
    )


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[Path]:
    """A file beside the target to write to, then renamed: a reader never sees half a file.

    `private`: only its owner can read it.
    """
    clear_abandoned(path)
    part, held = unfinished(path), -1
    try:
        part.touch(mode=0o600 if private else 0o666)
        held = claim(part)
        yield part
        part.replace(path)
    except OSError as error:
        why = why_unwritten(error, "its folder must exist and be writable")
        raise OutputError(f"{path}: {why}") from error
    finally:
        part.unlink(missing_ok=True)
        release(held)


def is_folder(path: Path) -> bool:
    """There is such a folder, as far as one may look."""
    return _looks(path.is_dir)


def files_in(folder: Path, error: type[InputError]) -> list[Path]:
    """What is in a folder, by name."""
    try:
        return sorted(folder.iterdir())
    except OSError as problem:
        raise error(
            f"{folder}: cannot be listed ({problem.strerror}): check its permissions"
        ) from problem


def exists(path: Path) -> bool:
    """There is such a file, or such a member of an archive."""
    outer, member = _split(path)
    if not member:
        return _looks(outer.is_file)
    try:
        return member in map(_normal, _members(outer))
    except _broken(OSError):
        return False


def siblings(path: Path, error: type[InputError]) -> list[Path]:
    """Files beside a file (or in a folder), also inside an archive, by name."""
    outer, member = _split(path)
    if not member:
        folder = path if is_folder(path) else outer.parent
        return [file for file in files_in(folder, error) if _looks(file.is_file)]
    inner = PurePosixPath(member).parent
    names = map(_normal, _members(outer))
    return sorted(outer / name for name in names if PurePosixPath(name).parent == inner)


def blocks(
    path: Path, error: type[InputError], *, size: int = _BLOCK_BYTES, quotes: bool = True
) -> Iterator[bytes]:
    """The bytes in blocks that end where a line ends, outside quotes if these mean anything."""
    rest = b""
    with open_source(path, error) as file:
        first = True
        while data := file.read(size):
            if first:
                data = data.removeprefix(BOM)
                first = False
            rest += data
            cut = _cut(rest) if quotes else rest.rfind(b"\n") + 1
            if cut:
                yield rest[:cut]
                rest = rest[cut:]
            elif len(rest) > _MOST_LINE_BYTES:
                raise error(
                    f"{path}: a line has more than {_MOST_LINE_BYTES:,} bytes: it is not a table, "
                    f"or a quote is not closed"
                )
    if rest.strip():
        yield rest


def _cut(data: bytes) -> int:
    """Where to cut: after the last newline with an even number of quotes before it; 0: nowhere."""
    newline = data.rfind(b"\n")
    if b'"' not in data:
        return newline + 1
    odd = data.count(b'"', 0, max(newline, 0)) % 2
    while odd and newline > 0:
        quote = data.rfind(b'"', 0, newline)
        newline = data.rfind(b"\n", 0, quote)
        odd ^= data.count(b'"', max(newline, 0), quote + 1) % 2
    return newline + 1 if newline >= 0 and not odd else 0


def _looks(test: Callable[[], bool]) -> bool:
    """A look at a path; what may not be looked at, or has too long a name, is not there."""
    try:
        return test()
    except OSError:
        return False


def _split(path: Path) -> tuple[Path, str]:
    """The file on disk, and the member inside it."""
    for outer in (path, *path.parents):
        if outer != path and _looks(outer.is_file) and _is_archive(outer):
            return outer, path.relative_to(outer).as_posix()
        if _looks(outer.exists):
            break
    return path, ""


def _file_in(path: Path) -> Path:
    """The part of a path that is a file, though something follows."""
    return next((outer for outer in path.parents if _looks(outer.is_file)), path)


def _refuse_pipe(outer: Path, error: type[InputError]) -> None:
    if not stat.S_ISREG(outer.stat().st_mode):
        raise error(
            f"{outer}: is a pipe or a device, and a trace is read more than once: "
            f"write it to a file first"
        )


def _unpacked(outer: Path, member: str, stack: ExitStack, error: type[InputError]) -> TraceSource:
    file: IO[bytes] = stack.enter_context(outer.open("rb"))
    start = _peek(file)
    if start.startswith(_ZIP):
        import zipfile

        archive = stack.enter_context(zipfile.ZipFile(file))
        name = _choose(outer, member, _zip_members(archive), error)
        size = archive.getinfo(name).compress_size
        return _Unpacked(stack.enter_context(archive.open(name)), size, outer, error)
    packed_bytes = 0
    if start.startswith(_GZIP):
        import gzip

        packed_bytes = outer.stat().st_size
        file = cast("IO[bytes]", stack.enter_context(gzip.GzipFile(fileobj=file)))
        start = _peek(file)
    if _is_tar(start):
        import tarfile

        packed = stack.enter_context(tarfile.TarFile(fileobj=file))
        name = _choose(outer, member, _tar_members(packed), error)
        found = packed.extractfile(name)
        if found is None:
            _no_member(outer, name, error)
        file = stack.enter_context(found)
    elif member:
        raise error(f"{outer}: is not an archive, so there is no {member!r} in it")
    return _Unpacked(file, packed_bytes, outer, error) if packed_bytes else file


def _is_archive(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            start = _peek(file)
    except OSError:
        return False
    return start.startswith((*_ZIP, _GZIP)) or _is_tar(start)


def _members(outer: Path) -> list[str]:
    with outer.open("rb") as file:
        if _peek(file).startswith(_ZIP):
            import zipfile

            with zipfile.ZipFile(file) as archive:
                return _zip_members(archive)
        import tarfile

        with tarfile.open(fileobj=file) as packed:
            return _tar_members(packed)


def _zip_members(archive: "zipfile.ZipFile") -> list[str]:
    return [info.filename for info in archive.infolist() if not info.is_dir()]


def _tar_members(packed: "tarfile.TarFile") -> list[str]:
    return [info.name for info in packed.getmembers() if info.isfile()]


def _normal(name: str) -> str:
    """The name of a member as a path inside the archive."""
    return PurePosixPath("/", name).relative_to("/").as_posix()


def _choose(outer: Path, member: str, known: list[str], error: type[InputError]) -> str:
    names = [name for name in known if not PurePosixPath(name).name.startswith(".")]
    if not known:
        raise error(f"{outer}: is an archive without a file: fetch it again")
    if member:
        found = [name for name in known if _normal(name) == member]
        if not found:
            _no_member(outer, member, error, names)
        return found[-1]
    if len(names) != 1:
        raise error(
            f"{outer}: holds {len(names)} files: name one of them as {outer}/FILE "
            f"({_listed(names or known)})"
        )
    return names[0]


def _listed(names: list[str]) -> str:
    return ", ".join(_normal(name)[:_MOST_LETTERS] for name in names[:12])


def _no_member(
    outer: Path, member: str, error: type[InputError], names: list[str] | None = None
) -> NoReturn:
    raise error(f"{outer}: has no file {member!r}: it has {_listed(names or [])}")


def _peek(file: IO[bytes]) -> bytes:
    start = file.read(512)
    file.seek(0)
    return start


def _is_tar(start: bytes) -> bool:
    where, mark = _TAR_MARK
    return start[where : where + len(mark)] == mark
