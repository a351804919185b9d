"""Where the daemon is, and with which token to speak to it."""

import fcntl
import os
import re
import ssl
import stat
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from rota.core.errors import InputError
from rota.core.proof import is_loopback, listens_anybody

USUAL = "the usual address"
UNIX = "unix:"
DEFAULT_SERVER = "http://127.0.0.1:7842"
MOST_TOKEN_BYTES = 4096


class Place(msgspec.Struct, frozen=True):
    """A daemon and a token for it; `found`: how it was found, for messages.

    `ca`: a file with the certificates to trust; empty: those that this machine trusts. `servers`:
    where several daemons take turns, all of them. `socket`: speak to it there, where the kernel
    tells both sides who the other is, and not at its address.
    """

    server: str
    token: str
    found: str
    ca: str = ""
    servers: tuple[str, ...] = ()
    socket: str = ""
    relayed: bool = False

    @property
    def needs_proof(self) -> bool:
        """Anybody on this machine may listen there; the token is for one of them."""
        return bool(self.token) and not self.socket and listens_anybody(self.server)

    @property
    def address(self) -> str:
        """Where it is called, for messages."""
        return f"{UNIX}{self.socket}" if self.socket else self.server

    @property
    def loopback(self) -> bool:
        """It is on this machine."""
        return is_loopback(self.server)

    def __repr__(self) -> str:  # a token must not end up in a log
        return f"Place({self.server!r}, found={self.found!r})"


class _Running(msgspec.Struct):
    url: str
    pid: int = 0
    socket: str = ""


def state_folder(env: Mapping[str, str] | None = None) -> Path:
    """Where a daemon on this machine keeps its files."""
    env = os.environ if env is None else env
    if env.get("ROTA_STATE"):
        return Path(env["ROTA_STATE"]).expanduser()
    base = env.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "rota"


def session_file(server: str, env: Mapping[str, str] | None = None) -> Path:
    """Where the token of a session of `rota login` at this server (or socket) is."""
    env = os.environ if env is None else env
    base = env.get("XDG_CONFIG_HOME")
    name = re.sub(r"[^A-Za-z0-9.-]+", "_", server) + "-" + sha256(server.encode()).hexdigest()[:8]
    return (Path(base) if base else Path.home() / ".config") / "rota" / "sessions" / name


def find_place(
    server: str | None = None,
    token: str | None = None,
    *,
    token_file: str | Path | None = None,
    ca: str | Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Place:
    """The daemon to speak to.

    In this order: what is given, ROTA_SERVER, ROTA_CA and ROTA_TOKEN or ROTA_TOKEN_FILE, a session
    of `rota login` at that server, the files `server.json` and `token` of the state folder
    (ROTA_STATE), the usual address. The token of the
    state folder is an administrator's: it is only ever sent to this machine, that is to a loopback
    address or to where the daemon of that folder says that it listens. Where that daemon has a
    socket, and no other server is named, it is reached there, and without a token. `unix:PATH`
    names a socket. ROTA_TUNNEL: an address of this machine is the end of a tunnel.
    """
    env = os.environ if env is None else env
    folder = state_folder(env)
    server, found, socket = _server(server, env, folder)
    token = token or _given_token(token_file, env)
    relayed = bool(env.get("ROTA_TUNNEL"))
    # not to the usual address: on a shared machine anybody may listen there
    servers = tuple(server.split(","))
    token = token or _read_token(session_file(socket or servers[0], env), required=False)
    here = all(map(is_loopback, servers)) or found == announced(folder)
    if not token and not socket and found != USUAL and here:
        token = _read_token(folder / "token", required=False)
    ca = ca or env.get("ROTA_CA", "")
    own = folder / "tls" / "ca.pem"  # of `rota tls init`
    if not ca and found == announced(folder) and servers[0].startswith("https:") and own.exists():
        ca = own
    return Place(servers[0], token or "", found, str(ca), servers, socket, relayed)


def _server(server: str | None, env: Mapping[str, str], folder: Path) -> tuple[str, str, str]:
    """Its URL, how it was found, and its socket if that is the way to it."""
    for given, where in ((server, "--server"), (env.get("ROTA_SERVER"), "ROTA_SERVER")):
        if given and given.startswith(UNIX):
            return "http://localhost", where, given.removeprefix(UNIX)
        if given:
            return checked_urls(given, where), where, ""
    try:
        running = msgspec.json.decode((folder / "server.json").read_bytes(), type=_Running)
    except (OSError, msgspec.DecodeError):
        return DEFAULT_SERVER, USUAL, ""
    return checked_url(running.url, announced(folder)), announced(folder), running.socket


def is_starting(folder: Path) -> bool:
    """Is a daemon using this folder that has not said yet where it is?"""
    if (folder / "server.json").exists():
        return False
    try:
        lock = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(lock)
    return False


def announced(folder: Path) -> str:
    """How a daemon is found that says where it is."""
    return str(folder / "server.json")


def _given_token(token_file: str | Path | None, env: Mapping[str, str]) -> str:
    if token_file:
        return _read_token(Path(token_file).expanduser())
    if env.get("ROTA_TOKEN"):
        return _clean(env["ROTA_TOKEN"], "ROTA_TOKEN")
    if env.get("ROTA_TOKEN_FILE"):
        return _read_token(Path(env["ROTA_TOKEN_FILE"]).expanduser())
    return ""


def checked_url(server: str, where: str) -> str:
    """The URL of a daemon as clients need it; `where` it comes from, for messages."""
    try:
        parts = urlsplit(server)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise InputError(f"{where} is {server[:200]!r}: give a URL such as {DEFAULT_SERVER}")
    return server.rstrip("/")


def checked_urls(servers: str, where: str) -> str:
    """As `checked_url`, for several with commas between them, of which one leads."""
    return ",".join(checked_url(server.strip(), where) for server in servers.split(","))


def _read_token(path: Path, *, required: bool = True) -> str:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(MOST_TOKEN_BYTES)
    except OSError as error:
        if not required:
            return ""
        raise InputError(
            f"{path}: the token cannot be read ({error.strerror}): check the path"
        ) from error
    if stat.S_ISREG(mode) and mode & 0o077:
        raise InputError(f"{path}: others can read this token: run `chmod 600 {path}`")
    return _clean(data.decode(errors="replace"), str(path))


def _clean(token: str, where: str) -> str:
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InputError(f"{where}: holds no token: put one there, from `rota token create`")
    return token


def connection(server: str, ca: str = "") -> dict[str, Any]:
    """How an HTTP client shall connect to a daemon; `ca`: a file with certificates to trust."""
    loopback = is_loopback(server)
    found: dict[str, Any] = {"trust_env": not loopback}  # no proxy sees what stays on this machine
    if server.startswith("https:") and ca:
        found["verify"] = _trusting(ca)
    elif server.startswith("https:") and loopback:
        found["verify"] = ssl.create_default_context()  # which knows SSL_CERT_FILE
    return found


def _trusting(ca: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=Path(ca).expanduser())
    except OSError as error:  # an SSLError is one too
        raise InputError(f"{ca}: no certificates there ({error}): name a file in PEM") from error
