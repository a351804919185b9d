"""What a trace format is, and the first look at a file by which formats recognise theirs."""

import codecs
import csv
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn, Protocol

import msgspec

from rota.core.errors import InputError, TraceError
from rota.core.workload import Workload
from rota.traces.sources import BOM, files_in, is_folder, open_source

_HEAD_BYTES = 1 << 16


class Head(msgspec.Struct, frozen=True):
    """The beginning of a file, or the list of a folder: enough to tell whose it is."""

    text: str
    columns: tuple[str, ...] = ()  # of the first line, when the file is not JSON
    name: str = ""  # of the file
    files: tuple[str, ...] = ()  # in the folder

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

    @property
    def verified(self) -> bool:
        """A test reads a real file of this format; otherwise only its description is known.

        A format with several forms may have an attribute `forms`, which tells it of each by name.
        """

    def recognises(self, head: Head) -> float:
        """How sure the format is that the file is its own: 0 (no) to 1 (certainly)."""

    def read(self, path: Path, options: Mapping[str, str]) -> Workload:
        """All jobs of the file.

        A format that also knows what happened has a method `load` with the same parameters, which
        returns an `Imported` (see `read.read_trace`). One that finds other files by itself has a
        method `companions`, again with these parameters, which lists them (see `read.files_of`).
        """


def checked(format_: Format) -> dict[str, bool]:
    """By form (one without a name if there are not several): is it verified on a real file?"""
    return dict(getattr(format_, "forms", None) or {"": bool(getattr(format_, "verified", False))})


def share_of(wanted: tuple[str, ...], head: Head) -> float:
    """The share of the wanted columns that the file has: how sure a csv format may be."""
    return sum(column in head.columns for column in wanted) / len(wanted)


_LONG = 60


def shortened(text: str) -> str:
    """A value for a message; of a long one only its beginning."""
    return text if len(text) <= _LONG else f"{text[:20]}... ({len(text)} characters)"


def separated(header: str) -> str:
    """What is wrong with a header that should be divided by commas, and is not; empty: nothing."""
    for mark, called in ((";", "';'"), ("\t", "tabs")):
        if mark in header:
            return (
                f"columns seem to be separated by {called} ({shortened(header)!r}): separate them "
                "by commas, and write numbers with a decimal point"
            )
    return ""


def first_look(path: Path) -> Head:
    """Read the beginning of a file, or list a folder."""
    if is_folder(path):
        names = [item.name for item in files_in(path, TraceError)]
        return Head("", name=path.name, files=tuple(names))
    data = read_bytes(path, TraceError, limit=_HEAD_BYTES)
    text = decode(data, path, TraceError, whole=False)
    head = Head(text, name=path.name)
    if head.is_json:
        return head
    line = next(filter(str.strip, text.splitlines()), "")
    titles = next(csv.reader([line], skipinitialspace=True))
    return Head(text, tuple(title.strip() for title in titles), path.name)


def read_bytes(path: Path, error: type[InputError], *, limit: int = -1) -> bytes:
    """The content of a file, unpacked and without a byte-order mark; it must not be empty."""
    with open_source(path, error) as file:
        data = file.read(limit).removeprefix(BOM)
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
