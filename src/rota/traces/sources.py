"""Bytes of a trace, whether the file is plain, gzip, zip or tar, in bounded memory.

A member of an archive with several files is named like a file in a folder:
`data.zip/Venus/cluster_log.csv`. An archive with one file needs no member.
"""

import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, NoReturn, cast

from rota.core.errors import InputError

BOM = b"\xef\xbb\xbf"

_BLOCK_BYTES = 1 << 23
_MOST_LINE_BYTES = 1 << 26
_GZIP = b"\x1f\x8b"
_ZIP = b"PK\x03\x04"
_TAR_MARK = (257, b"ustar")
_BROKEN = (
    EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile,
    RuntimeError,  # an encrypted member
    NotImplementedError,  # an unknown method of compression
)  # fmt: skip


@contextmanager
def open_source(path: Path, error: type[InputError]) -> Iterator[IO[bytes]]:
    """The unpacked bytes of a file; whatever is wrong with it is told as `error`."""
    outer, member = _split(path)
    if outer.is_dir():
        raise error(f"{path}: is a folder: name a file in it")
    with ExitStack() as stack:
        try:
            yield _unpacked(outer, member, stack, error)
        except FileNotFoundError as problem:
            raise error(f"{path}: there is no such file: check the path") from problem
        except _BROKEN as problem:
            raise error(
                f"{path}: cannot be unpacked ({problem}): fetch it again or unpack it yourself"
            ) from problem
        except OSError as problem:
            reason = problem.strerror or str(problem)
            raise error(f"{path}: cannot be read ({reason}): check its permissions") from problem


def exists(path: Path) -> bool:
    """There is such a file, or such a member of an archive."""
    outer, member = _split(path)
    if not member:
        return outer.is_file()
    try:
        return member in _members(outer)
    except (OSError, *_BROKEN):
        return False


def siblings(path: Path) -> list[Path]:
    """Files beside a file (or in a folder), also inside an archive, by name."""
    if path.is_dir():
        return sorted(filter(Path.is_file, path.iterdir()))
    outer, member = _split(path)
    if not member:
        return sorted(filter(Path.is_file, outer.parent.iterdir()))
    folder = PurePosixPath(member).parent
    return sorted(outer / name for name in _members(outer) if PurePosixPath(name).parent == folder)


def blocks(path: Path, error: type[InputError], *, size: int = _BLOCK_BYTES) -> Iterator[bytes]:
    """The bytes in blocks that end where a line ends, outside quotes if there are any."""
    rest = b""
    with open_source(path, error) as file:
        first = True
        while data := file.read(size):
            if first:
                data = data.removeprefix(BOM)
                first = False
            rest += data
            cut = _cut(rest)
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


def _split(path: Path) -> tuple[Path, str]:
    """The file on disk, and the member inside it."""
    for outer in (path, *path.parents):
        if outer.is_file() and outer != path and _is_archive(outer):
            return outer, path.relative_to(outer).as_posix()
        if outer.exists():
            break
    return path, ""


def _unpacked(outer: Path, member: str, stack: ExitStack, error: type[InputError]) -> IO[bytes]:
    file: IO[bytes] = stack.enter_context(outer.open("rb"))
    start = _peek(file)
    if start.startswith(_ZIP):
        archive = stack.enter_context(zipfile.ZipFile(file))
        name = _choose(outer, member, _zip_members(archive), error)
        return stack.enter_context(archive.open(name))
    if start.startswith(_GZIP):
        file = cast("IO[bytes]", stack.enter_context(gzip.GzipFile(fileobj=file)))
        start = _peek(file)
    if _is_tar(start):
        packed = stack.enter_context(tarfile.TarFile(fileobj=file))
        name = _choose(outer, member, _tar_members(packed), error)
        found = packed.extractfile(name)
        if found is None:
            _no_member(outer, name, error)
        return stack.enter_context(found)
    if member:
        raise error(f"{outer}: is not an archive, so there is no {member!r} in it")
    return file


def _is_archive(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            start = _peek(file)
    except OSError:
        return False
    return start.startswith((_ZIP, _GZIP)) or _is_tar(start)


def _members(outer: Path) -> list[str]:
    with outer.open("rb") as file:
        if _peek(file).startswith(_ZIP):
            with zipfile.ZipFile(file) as archive:
                return _zip_members(archive)
        with tarfile.open(fileobj=file) as packed:
            return _tar_members(packed)


def _zip_members(archive: zipfile.ZipFile) -> list[str]:
    return [info.filename for info in archive.infolist() if not info.is_dir()]


def _tar_members(packed: tarfile.TarFile) -> list[str]:
    return [info.name for info in packed.getmembers() if info.isfile()]


def _choose(outer: Path, member: str, known: list[str], error: type[InputError]) -> str:
    names = [name for name in known if not PurePosixPath(name).name.startswith(".")]
    if member:
        if member not in known:
            _no_member(outer, member, error, names)
        return member
    if len(names) != 1:
        raise error(
            f"{outer}: holds {len(names)} files: name one of them as {outer}/FILE "
            f"({', '.join(names[:12])})"
        )
    return names[0]


def _no_member(
    outer: Path, member: str, error: type[InputError], names: list[str] | None = None
) -> NoReturn:
    raise error(f"{outer}: has no file {member!r}: it has {', '.join((names or [])[:12])}")


def _peek(file: IO[bytes]) -> bytes:
    start = file.read(512)
    file.seek(0)
    return start


def _is_tar(start: bytes) -> bool:
    where, mark = _TAR_MARK
    return start[where : where + len(mark)] == mark
