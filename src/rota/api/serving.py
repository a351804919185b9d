"""Runs the app in a thread of its own."""

import os
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Protocol

import uvicorn
from starlette.applications import Starlette

from rota.api.context import ApiSettings
from rota.api.door import Doorkeeper, GuardedProtocol
from rota.core.errors import InputError, UnavailableError

START_S = 10.0
STOP_S = 5.0


class Served(Protocol):
    """What the state of an app holds as `context`."""

    settings: ApiSettings
    closing: threading.Event


class Server:
    """An app that is being served."""

    def __init__(
        self, app: Starlette, listener: socket.socket, local: socket.socket | None = None
    ) -> None:
        self._context: Served = app.state.context
        settings = self._context.settings
        app.state.door = self.door = Doorkeeper(settings)
        self._listeners = [listener, *([local] if local else [])]
        self._certificate = b""
        config = uvicorn.Config(
            app,
            access_log=False,
            http=GuardedProtocol,
            lifespan="off",
            log_config=None,
            proxy_headers=False,  # a client must not claim another address
            server_header=False,
            timeout_graceful_shutdown=int(STOP_S),
            timeout_keep_alive=settings.keep_alive_s,
            ws="none",
        )
        config.load()  # here and not in the thread, whose errors would be lost
        try:
            self.renew_certificate()
        except InputError:
            for each in self._listeners:
                each.close()
            raise
        self._server = uvicorn.Server(config)
        self.url = url_of(listener, tls=bool(settings.tls_cert))
        self.port = listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, name="rota-api", daemon=True)

    def renew_certificate(self) -> bool:
        """Read the certificate again, for connections from now on; is it another one?

        Raises:
            InputError: It cannot be used; the one before it stays.
        """
        settings = self._context.settings
        if not settings.tls_cert:
            return False
        self.door.tls = _tls(settings)
        before, self._certificate = self._certificate, Path(settings.tls_cert).read_bytes()
        return before != self._certificate

    def _run(self) -> None:
        self._server.run(sockets=self._listeners)

    def start(self) -> None:
        """Serve; returns when requests are answered."""
        self._thread.start()
        deadline_s = time.monotonic() + START_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline_s:
                raise UnavailableError(f"the API cannot be served at {self.url}")
            time.sleep(0.01)

    @property
    def is_alive(self) -> bool:
        """Is it still served?"""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End streams, let requests finish, stop. May be called again."""
        self._context.closing.set()
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(2 * STOP_S)
        for listener in self._listeners:
            listener.close()


def listen_locally(path: Path, mode: int = 0o600) -> socket.socket:
    """A unix socket that users of this machine may open as its mode says.

    Raises:
        UnavailableError: It cannot be made there.
    """
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)  # of a daemon that was killed; ours holds the state folder
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:  # by way of the folder, because the address of a socket must be short
            before = os.umask(0o777 & ~mode)
            try:
                line.bind(f"/proc/self/fd/{folder}/{path.name}")
            finally:
                os.umask(before)
        finally:
            os.close(folder)
        line.listen(1024)
    except OSError as error:
        line.close()
        raise UnavailableError(f"cannot listen on {path}: {error}") from error
    return line


def _tls(settings: ApiSettings) -> ssl.SSLContext:
    """How connections are encrypted; clients may show a certificate, if there is an authority."""
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        made.load_cert_chain(settings.tls_cert, settings.tls_key)
        if settings.tls_clients:
            made.load_verify_locations(settings.tls_clients)
            made.verify_mode = ssl.CERT_OPTIONAL
    except OSError as error:  # an SSLError is one too
        raise InputError(
            f"tls_cert {settings.tls_cert!r}, tls_key {settings.tls_key!r}: {error}: "
            "name two PEM files that belong together"
        ) from error
    return made


def url_of(listener: socket.socket, *, tls: bool) -> str:
    """Where a socket listens."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{shown}:{port}"


def listen(host: str, port: int) -> socket.socket:
    """A socket at which others may knock already; port 0: a free one.

    Raises:
        UnavailableError: The address is taken or not of this machine.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=1024)
        # Connections inherit it. Without it every small answer waits 40 ms for the client's ACK.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise UnavailableError(f"cannot listen on {host}:{port}: {error}") from error
    return listener


def serve(
    app: Starlette,
    host: str = "127.0.0.1",
    port: int = 7842,
    *,
    listener: socket.socket | None = None,
    local: socket.socket | None = None,
) -> Server:
    """Serve an app of `create_app`, at an address or at a socket of `listen`, which is then ours.

    `local`: also there, a socket of `listen_locally`.

    Raises:
        UnavailableError: The address is taken or not of this machine.
        InputError: The certificate cannot be used.
    """
    try:
        listener = listener or listen(host, port)
    except UnavailableError:
        if local is not None:
            local.close()
        raise
    server = Server(app, listener, local)
    try:
        server.start()
    except UnavailableError:
        server.stop()
        raise
    return server
