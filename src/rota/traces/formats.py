"""What a trace format is, and the first look at a file by which formats recognise theirs."""

import codecs
import csv
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn, Protocol

import msgspec

from rota.core.errors import InputError, TraceError
from rota.core.workload import Workload

_HEAD_BYTES = 1 << 16
_BOM = b"\xef\xbb\xbf"


class Head(msgspec.Struct, frozen=True):
    """The beginning of a file: enough to tell whose it is."""

    text: str
    columns: tuple[str, ...] = ()  # of the first line, when the file is not JSON

    @property
    def is_json(self) -> bool:
        """It starts like a JSON array or object."""
        return self.text.lstrip()[:1] in ("[", "{")


class Format(Protocol):
    """One trace format; an instance is registered in the entry-point group `rota.formats`."""

    @property
    def name(self) -> str:
        """What `--format` calls it."""

    @property
    def description(self) -> str:
        """One line for listings."""

    def recognises(self, head: Head) -> float:
        """How sure the format is that the file is its own: 0 (no) to 1 (certainly)."""

    def read(self, path: Path, options: Mapping[str, str]) -> Workload:
        """All jobs of the file."""


def share_of(wanted: tuple[str, ...], head: Head) -> float:
    """The share of the wanted columns that the file has: how sure a csv format may be."""
    return sum(column in head.columns for column in wanted) / len(wanted)


def first_look(path: Path) -> Head:
    """Read the beginning of a file."""
    data = read_bytes(path, TraceError, limit=_HEAD_BYTES)
    text = decode(data, path, TraceError, whole=False)
    head = Head(text)
    if head.is_json:
        return head
    line = next(filter(str.strip, text.splitlines()), "")
    titles = next(csv.reader([line], skipinitialspace=True))
    return Head(text, tuple(title.strip() for title in titles))


def read_bytes(path: Path, error: type[InputError], *, limit: int = -1) -> bytes:
    """The content of a file without a byte-order mark; it must be readable and not empty."""
    if path.is_dir():
        raise error(f"{path}: is a folder: name a file in it")
    try:
        with path.open("rb") as file:
            data = file.read(limit).removeprefix(_BOM)
    except FileNotFoundError as problem:
        raise error(f"{path}: there is no such file: check the path") from problem
    except OSError as problem:
        raise error(
            f"{path}: cannot be read ({problem.strerror}): check its permissions"
        ) from problem
    if not data.strip():
        raise error(f"{path}: is empty: it needs a header line and at least one row")
    return data


def decode(data: bytes, path: Path, error: type[InputError], *, whole: bool = True) -> str:
    """The bytes as text; only UTF-8 is accepted. Unless whole, the end may cut a character."""
    if b"\0" in data:
        _refuse_binary(path, error, data.index(b"\0"), "a zero byte")
    try:
        return codecs.utf_8_decode(data, "strict", whole)[0]
    except UnicodeDecodeError as problem:
        _refuse_binary(path, error, problem.start, f"byte 0x{data[problem.start]:02x}")


def _refuse_binary(path: Path, error: type[InputError], position: int, what: str) -> NoReturn:
    raise error(
        f"{path}: is not UTF-8 text ({what} at position {position}): "
        f"unpack it if it is compressed, or save it as UTF-8"
    )
