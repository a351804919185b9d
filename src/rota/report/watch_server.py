"""A page of this machine for this machine: one address, one answer."""

from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from rota.core.errors import OptionError, RotaError
from rota.report.watch import is_ready, read_runs, waiting_page, watch_page

HOST = "127.0.0.1"


class WatchServer(ThreadingHTTPServer):
    """Serves the page of runs on the loopback; made once, when all runs are there."""

    daemon_threads = True

    def __init__(self, runs: Sequence[Path], port: int = 0, *, wait: bool = False) -> None:
        """Take the port; without `wait` the runs have to be there now.

        Raises:
            RotaError: A run cannot be read, or the port is taken.
        """
        self._runs = tuple(runs)
        self._page: str | None = None
        if not wait or is_ready(self._runs):
            self._page = watch_page(read_runs(self._runs))
        try:
            super().__init__((HOST, port), _WatchHandler)
        except OSError as error:
            raise OptionError(
                f"port {port}: cannot be used ({error.strerror}): name another with --port"
            ) from error
        self.url = f"http://{HOST}:{self.server_address[1]}/"

    def page(self) -> str:
        """What is to be shown now."""
        if self._page is None and is_ready(self._runs):
            self._page = watch_page(read_runs(self._runs))
        return self._page or waiting_page(self._runs)

    def knows(self, host: str | None) -> bool:
        """Was it asked for by its own name? If not, a page of somebody else asks."""
        port = self.server_address[1]
        return host in (f"{HOST}:{port}", f"localhost:{port}")


class _WatchHandler(BaseHTTPRequestHandler):
    server: WatchServer

    def do_GET(self) -> None:
        """The page, and nothing else."""
        if not self.server.knows(self.headers.get("Host")) or self.path.partition("?")[0] != "/":
            self._answer(HTTPStatus.NOT_FOUND, "nothing is here\n", "text/plain")
            return
        try:
            self._answer(HTTPStatus.OK, self.server.page(), "text/html")
        except RotaError as error:
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, f"{error}\n", "text/plain")

    def _answer(self, status: HTTPStatus, text: str, kind: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - of the base class
        """Say nothing: the terminal is for the address."""
