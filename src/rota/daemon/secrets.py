"""Secrets of users for their jobs: set and used, never shown again.

Kept encrypted in the state folder, with a key in a file of its own. Values leave the daemon only
with the order to start a job that names them, over the connection of its agent.
"""

import secrets
import shutil
from pathlib import Path

import msgspec
from cryptography.fernet import Fernet, InvalidToken

from rota.core.errors import InputError, NotFoundError, UnavailableError
from rota.daemon.uploads import home_of
from rota.jobfile.check import LONGEST_ENV
from rota.live.files import replace_file
from rota.wire import PATH_PARTS, Actor, SecretInfo

PRIVATE = 0o700
MOST_SECRETS = 100  # of one user
OWNER = ".owner"


class SecretStore:
    """A folder with the secrets of all users, and the file of the key."""

    def __init__(self, folder: Path, key: Path) -> None:
        self._folder = folder
        self._key = key
        for path in list(folder.glob("**/.*")):
            if path.name != OWNER:  # a daemon was killed while it wrote it
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def set(self, name: str, value: str, owner: Actor) -> None:
        """Keep one, in the place of an older one."""
        if not PATH_PARTS["secret"].pattern.fullmatch(name):  # a line break behind it, for example
            raise InputError(f"secret {name!r}: use letters, digits and _, no digit first")
        if "\0" in value or len(value.encode()) > LONGEST_ENV:
            raise InputError(
                f"secret {name}: give up to {LONGEST_ENV:,} bytes, without a zero character"
            )
        home = self._folder / home_of(owner)
        if name not in {info.name for info in self.all(owner)} and (
            len(self.all(owner)) >= MOST_SECRETS
        ):
            raise InputError(f"secret {name}: you have {MOST_SECRETS}: remove one first")
        try:
            home.mkdir(PRIVATE, parents=True, exist_ok=True)
            replace_file(home / OWNER, msgspec.json.encode(owner), private=True)
            replace_file(home / name, self._cipher().encrypt(value.encode()), private=True)
        except OSError as error:
            raise UnavailableError(
                f"the secret cannot be kept ({error.strerror}): nothing was changed, try again"
            ) from error

    def copy_of(self, former: Actor, owner: Actor) -> None:
        """Let somebody who goes by another name now have their secrets there, too."""
        old, new = self._folder / home_of(former), self._folder / home_of(owner)
        if old.is_dir() and not new.exists():
            part = new.with_name(f".{secrets.token_hex(8)}")
            shutil.copytree(old, part)
            replace_file(part / OWNER, msgspec.json.encode(owner), private=True)
            part.rename(new)

    def all(self, owner: Actor) -> list[SecretInfo]:
        """Names, and when each was set."""
        home = self._folder / home_of(owner)
        found = sorted(home.iterdir()) if home.is_dir() else []
        return [SecretInfo(p.name, p.stat().st_mtime) for p in found if not p.name.startswith(".")]

    def remove(self, name: str, owner: Actor) -> None:
        """Forget one."""
        try:
            (self._folder / home_of(owner) / name).unlink()
        except OSError as error:
            raise NotFoundError(f"there is no secret {name!r}: see `rota secret ls`") from error

    def values(self, names: tuple[str, ...], user: str, job: int) -> dict[str, str]:
        """Values of secrets of the user who submitted a job; those that are gone are missing."""
        home = self._home(user, job)
        found: dict[str, str] = {}
        if home is None:
            return found
        for name in names:
            try:
                found[name] = self._cipher().decrypt((home / name).read_bytes()).decode()
            except (OSError, InvalidToken):
                continue
        return found

    def _home(self, user: str, job: int) -> Path | None:
        """Of whoever had the name when the job was submitted."""
        best: tuple[int, Path | None] = -1, None
        for path in self._folder.glob("[!.]*"):
            owner = msgspec.json.decode((path / OWNER).read_bytes(), type=Actor)
            if owner.name == user and best[0] < owner.after_job < job:
                best = owner.after_job, path
        return best[1]

    def _cipher(self) -> Fernet:
        if not self._key.exists():
            replace_file(self._key, Fernet.generate_key(), private=True)
        return Fernet(self._key.read_bytes())
