"""Files that users sent for their jobs: pieces by their digest, each once for each user.

A piece is whole or not there, and a manifest is kept only when all its pieces are: a sender that
was cut off sends what is missing. Users do not share pieces: whoever knows a digest only must not
get the content.
"""

import contextlib
import os
import time
from collections.abc import Collection, Iterator
from hashlib import sha256
from pathlib import Path

import msgspec

from rota.core.errors import InputError, NotFoundError, UnavailableError
from rota.core.manifest import CHUNK, DIGEST, DIGITS, UPLOAD, FileManifest
from rota.live.files import replace_file
from rota.wire import USER, Actor

PRIVATE = 0o700
QUOTA = 100 << 30  # bytes
KEPT_S = 14 * 86_400.0  # that a piece stays which no unfinished job needs


class UploadStore:
    """A folder with the files of all users."""

    def __init__(self, folder: Path, quota: int = QUOTA) -> None:
        self._folder = folder
        self._quota = quota  # bytes of one user
        self._used: dict[str, int] = {}  # by folder of a user, once it was counted
        for path in self._all():
            if path.name.startswith("."):  # a daemon was killed while it wrote it
                path.unlink(missing_ok=True)

    def plan(self, manifest: FileManifest, owner: Actor) -> tuple[str, list[str]]:
        """The id of an upload, and digests of its pieces that are missing; none: it is kept."""
        manifest.check()
        home = home_of(owner)
        wanted = dict.fromkeys(digest for file in manifest.files for digest in file.chunks)
        missing = [digest for digest in wanted if not _touched(self._folder / home / digest)]
        sizes = manifest.chunk_sizes()
        self._refuse_too_much(home, sum(sizes.get(digest, 0) for digest in missing), owner)
        if not missing:
            self._write(self._folder / home / manifest.id, msgspec.json.encode(manifest))
        return home + manifest.id, missing

    def take(self, digest: str, data: bytes, owner: Actor) -> None:
        """Keep a piece."""
        if len(data) > CHUNK or sha256(data).hexdigest() != digest:
            raise InputError(
                f"piece {digest[:12]}: these {len(data):,} bytes are others, or too many: send it "
                "again"
            )
        if not (self._folder / home_of(owner) / digest).exists():
            self._refuse_too_much(home_of(owner), len(data), owner)
        self._write(self._folder / home_of(owner) / digest, data)

    def read(self, upload: str, digest: str) -> bytes:
        """A piece of an upload, or the manifest itself."""
        if not UPLOAD.fullmatch(upload) or not DIGEST.fullmatch(digest):
            raise NotFoundError(f"there is no piece {digest[:80]!r}")
        try:
            return (self._folder / upload[:-DIGITS] / digest).read_bytes()
        except OSError as error:
            raise NotFoundError(
                f"the files that were sent for it are gone ({digest[:12]}): submit it again with "
                "--upload"
            ) from error

    def check(self, upload: str, owner: Actor) -> None:
        """Raise unless somebody has sent all of this upload."""
        whole = False
        with contextlib.suppress(NotFoundError, msgspec.DecodeError):
            found = msgspec.json.decode(self.read(upload, upload[-DIGITS:]), type=FileManifest)
            whole = upload[:-DIGITS] == home_of(owner) and not self.plan(found, owner)[1]
        if not whole:
            raise InputError(
                f"upload {upload[:12]!r}: there is no such upload of yours, or some of it is gone: "
                "send it first (`rota submit --upload DIR` does)"
            )

    def _refuse_too_much(self, home: str, more: int, owner: Actor) -> None:
        """What one user keeps here would fill the disk of all."""
        if owner.role != USER or not more:
            return
        if home not in self._used:
            folder = self._folder / home
            found = folder.iterdir() if folder.is_dir() else ()
            self._used[home] = sum(path.stat().st_size for path in found)
        if self._used[home] + more > self._quota:
            raise InputError(
                f"upload: {owner.name} keeps {self._used[home] / 2**30:.3g} GiB here, and "
                f"{more / 2**30:.3g} more would exceed {self._quota / 2**30:.3g} "
                "(permissions.upload_gib): send less (.rotaignore), or wait: files that no "
                f"unfinished job needs go after {KEPT_S / 86_400:g} days"
            )

    def prune(self, needed: Collection[str]) -> int:
        """Remove what nobody has needed for long; `needed`: uploads of unfinished jobs."""
        kept: set[Path] = set()
        for upload in needed:
            home = self._folder / upload[:-DIGITS]
            kept.add(home / upload[-DIGITS:])
            with contextlib.suppress(NotFoundError, msgspec.DecodeError):
                found = msgspec.json.decode(self.read(upload, upload[-DIGITS:]), type=FileManifest)
                kept |= {home / digest for file in found.files for digest in file.chunks}
        gone = 0
        for path in self._all():
            if path not in kept and path.stat().st_mtime < time.time() - KEPT_S:
                path.unlink(missing_ok=True)
                gone += 1
        self._used.clear()
        return gone

    def _all(self) -> Iterator[Path]:
        if self._folder.is_dir():
            for home in self._folder.iterdir():
                yield from home.iterdir()

    def _write(self, path: Path, data: bytes) -> None:
        """Whole, and lasting, or not at all."""
        if _touched(path):
            return
        try:
            path.parent.mkdir(PRIVATE, parents=True, exist_ok=True)
            replace_file(path, data, private=True)
            if path.parent.name in self._used:
                self._used[path.parent.name] += len(data)
        except OSError as error:
            raise UnavailableError(
                f"files cannot be kept ({error.strerror}): nothing was accepted, try again"
            ) from error


def home_of(owner: Actor) -> str:
    """The folder of somebody; a later holder of the same name has another one."""
    return sha256(f"{owner.name}\0{owner.after_job}".encode()).hexdigest()[:32]


def _touched(path: Path) -> bool:
    """Is it there? Then it is needed again."""
    try:
        os.utime(path)
    except OSError:
        return False
    return True
