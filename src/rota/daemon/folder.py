"""The state folder of a daemon: one daemon at a time, private files."""

import fcntl
import os
import secrets
from pathlib import Path
from typing import Self

import msgspec

from rota.core.errors import ConflictError, InputError
from rota.live.files import replace_file

PRIVATE = 0o700
TLS = "tls"  # the folder of an authority of one's own


class StateFolder:
    """Made if it is not there; locked while a daemon uses it."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        try:
            self.path.mkdir(PRIVATE, parents=True, exist_ok=True)
            self.path.chmod(PRIVATE)
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be the state folder: {error.strerror}: choose another with "
                f"--state"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise ConflictError(
                f"{self.path}: another daemon uses this state folder: stop it, or choose another "
                f"with --state"
            ) from None
        # Of a daemon that was killed: it is not there any more, or the lock would be its own.
        (self.path / "server.json").unlink(missing_ok=True)

    store = property(lambda self: self.path / "rota.db")
    seal = property(lambda self: self.path / "rota.seal")
    token = property(lambda self: self.path / "token")
    socket = property(lambda self: self.path / "rota.sock")
    agent = property(lambda self: self.path / "agent")
    jobs = property(lambda self: self.path / "jobs")
    tls = property(lambda self: self.path / TLS)

    def identity(self) -> str:
        """A name for this folder, made once: several daemons may share a database."""
        path = self.path / "id"
        if not path.exists():
            replace_file(path, secrets.token_hex(4).encode())
        return path.read_text("ascii")

    def last_job(self) -> int:
        """The largest number of a job that has a folder; 0 if none has."""
        if not self.jobs.is_dir():
            return 0
        names = (entry.name for entry in self.jobs.iterdir())
        return max((int(name) for name in names if name.isascii() and name.isdigit()), default=0)

    def announce(self, url: str, socket: Path | None = None) -> None:
        """Tell clients on this machine where the daemon is."""
        part = self.path / "server.json.part"
        known = {"url": url, "socket": str(socket or ""), "pid": os.getpid()}
        part.write_bytes(msgspec.json.encode(known))
        part.replace(self.path / "server.json")

    def close(self) -> None:
        """Let others use it."""
        (self.path / "server.json").unlink(missing_ok=True)
        self.socket.unlink(missing_ok=True)
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
