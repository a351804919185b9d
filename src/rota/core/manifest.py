"""Folders of files that travel with a job: what is in them, by the digests of their pieces."""

import re
from hashlib import sha256
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.core.errors import InputError

CHUNK = 4 << 20  # bytes of a piece
MOST_FILES = 50_000
LONGEST_PATH, LONGEST_PART = 1_000, 255
LARGEST_UPLOAD = 10 << 30
DIGITS = 64  # of a digest
DIGEST = re.compile("[0-9a-f]{64}", re.ASCII)
UPLOAD = re.compile("[0-9a-f]{96}", re.ASCII)  # whose, and the digest of the manifest
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class FileEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A file: where it is, and its pieces in their order (each 4 MiB, the last one shorter)."""

    path: Annotated[str, Meta(max_length=LONGEST_PATH)]
    size: Annotated[int, Meta(ge=0, le=LARGEST_UPLOAD)]
    chunks: tuple[Digest, ...] = ()
    executable: bool = False


class FileManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All files of a folder, by path."""

    files: Annotated[tuple[FileEntry, ...], Meta(max_length=MOST_FILES)]

    @property
    def id(self) -> str:
        """The same for the same files."""
        return sha256(msgspec.json.encode(self)).hexdigest()

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def chunk_sizes(self) -> dict[str, int]:
        """Bytes of each piece."""
        return {
            digest: min(CHUNK, file.size - number * CHUNK)
            for file in self.files
            for number, digest in enumerate(file.chunks)
        }

    def check(self) -> None:
        """Raise an `InputError` unless it can become a folder, and nothing but that."""
        seen: set[str] = set()
        folders: set[str] = set()
        for file in self.files:
            why = bad_path(file.path)
            pieces = -(-file.size // CHUNK)
            if not why and len(file.chunks) != pieces:
                why = f"{file.size:,} bytes are {pieces} pieces, not {len(file.chunks)}"
            if not why and (file.path in seen or file.path in folders):
                why = "it is there twice"
            parts = file.path.split("/")
            above = {"/".join(parts[:count]) for count in range(1, len(parts))}
            if not why and above & seen:
                why = "it is a file and a folder"
            if why:
                raise InputError(f"file {file.path[:200]!r}: {why}: correct it")
            seen.add(file.path)
            folders |= above
        if self.size > LARGEST_UPLOAD:
            raise InputError(
                f"the files have {self.size:,} bytes in all: {LARGEST_UPLOAD:,} is the most"
            )


def bad_path(path: str) -> str:
    """Why a path could lead out of its folder, or cannot be made; empty: it is good."""
    parts = path.split("/")
    if not path or _CONTROL.search(path) or len(path) > LONGEST_PATH:
        return "a path needs 1 to 1,000 printable characters"
    if any(part in ("", ".", "..") for part in parts):
        return "a path is relative, without . and .."
    try:
        longest = max(len(part.encode()) for part in parts)
    except UnicodeEncodeError:
        return "it is not Unicode text"
    return "a name in it is too long" if longest > LONGEST_PART else ""
