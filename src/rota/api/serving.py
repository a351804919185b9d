"""Runs the app in a thread of its own."""

import socket
import threading
import time

import uvicorn
from starlette.applications import Starlette

from rota.api.context import Context
from rota.api.door import Doorkeeper, GuardedProtocol
from rota.core.errors import InputError, UnavailableError

START_S = 10.0
STOP_S = 5.0


class Server:
    """An app that is being served."""

    def __init__(self, app: Starlette, listener: socket.socket) -> None:
        self._context: Context = app.state.context
        settings = self._context.settings
        app.state.door = self.door = Doorkeeper(settings)
        self._listener = listener
        config = uvicorn.Config(
            app,
            access_log=False,
            http=GuardedProtocol,
            lifespan="off",
            log_config=None,
            proxy_headers=False,  # a client must not claim another address
            server_header=False,
            ssl_certfile=settings.tls_cert or None,
            ssl_keyfile=settings.tls_key or None,
            timeout_graceful_shutdown=int(STOP_S),
            timeout_keep_alive=settings.keep_alive_s,
            ws="none",
        )
        try:
            config.load()  # here and not in the thread, whose errors would be lost
        except OSError as error:
            listener.close()
            raise InputError(
                f"tls_cert {settings.tls_cert!r}, tls_key {settings.tls_key!r}: {error}: "
                "name two PEM files that belong together"
            ) from error
        self._server = uvicorn.Server(config)
        host, port = listener.getsockname()[:2]
        scheme = "https" if settings.tls_cert else "http"
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{scheme}://{shown}:{port}"
        self.port = port
        self._thread = threading.Thread(target=self._run, name="rota-api", daemon=True)

    def _run(self) -> None:
        self._server.run(sockets=[self._listener])

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
        self._listener.close()


def serve(app: Starlette, host: str = "127.0.0.1", port: int = 7842) -> Server:
    """Serve an app of `create_app`; port 0: a free one.

    Raises:
        UnavailableError: The address is taken or not of this machine.
        InputError: The certificate cannot be used.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=1024)
        # Connections inherit it. Without it every small answer waits 40 ms for the client's ACK.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise UnavailableError(f"cannot listen on {host}:{port}: {error}") from error
    server = Server(app, listener)
    try:
        server.start()
    except UnavailableError:
        server.stop()
        raise
    return server
