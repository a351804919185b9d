"""A page of this machine for this machine, and what is new of runs that are still simulated."""

from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from urllib.parse import parse_qs, urlsplit

from rota.core.errors import InputError, OptionError, RotaError
from rota.report.frame import embedded
from rota.report.source import ReportSource
from rota.report.watch import live_run, read_run, waiting_page, watch_data, watch_page
from rota.study.follow import LiveReader, find_live
from rota.study.output import EVENTS

HOST = "127.0.0.1"


class WatchedFolder:
    """A run that is done, or goes on, or has not begun."""

    def __init__(self, folder: Path, *, wait: bool) -> None:
        self.folder = folder
        self._wait = wait
        self._live: LiveReader | None = None
        self._made: ReportSource | None = None
        self._ended = False  # a simulation was seen, and it is no more
        self.has = ""
        """How much of it `source` knew: another text when there is more."""
        self.done = False

    def source(self) -> ReportSource | None:
        """The run as far as it is known; None: there is nothing to be seen yet.

        Raises:
            RotaError: It cannot be read, or it ended without a result.
        """
        if self.done:
            return self._made
        if self._live is None:
            self._live = find_live(self.folder)  # first: it may replace what is there
        live = self._live
        if live is not None:
            live.ask()
            if live.lives:
                return self._so_far(live)
            self._live, self._ended = None, True
        if (self.folder / EVENTS).exists() or not (self._ended or self._wait):
            self._made, self.done, self.has = read_run(self.folder), True, "all"
        elif self._ended:
            raise InputError(f"{self.folder}: the simulation ended without a result")
        return self._made

    def _so_far(self, live: LiveReader) -> ReportSource | None:
        log = live.read()
        if log is not None and str(log.height) != self.has:
            made = live_run(live.about, log)
            if made is not None:
                self._made, self.has = made, str(log.height)
        return self._made


class WatchServer(ThreadingHTTPServer):
    """Serves the page of runs on the loopback."""

    daemon_threads = True

    def __init__(self, runs: Sequence[Path], port: int = 0, *, wait: bool = False) -> None:
        """Take the port; without `wait` the runs have to be there now, or be simulated.

        Raises:
            RotaError: A run cannot be read, or the port is taken.
        """
        self._runs = [WatchedFolder(folder, wait=wait) for folder in runs]
        self._lock = Lock()  # requests come in threads
        self._page: tuple[str, str] = "", ""  # how much it knows, and the page
        self.page()
        try:
            super().__init__((HOST, port), _WatchHandler)
        except OSError as error:
            raise OptionError(
                f"port {port}: cannot be used ({error.strerror}): name another with --port"
            ) from error
        self.url = f"http://{HOST}:{self.server_address[1]}/"

    def page(self) -> str:
        """What is to be shown now."""
        with self._lock:
            sources, has = self._look()
            if sources is None:
                return waiting_page([run.folder for run in self._runs])
            if self._page[0] != has:
                self._page = has, watch_page(sources, None if self._done else has)
            return self._page[1]

    def news(self, had: str) -> str | None:
        """What is known now, for a page that knows `had`; None: the same."""
        with self._lock:
            sources, has = self._look()
            if sources is None or has == had:
                return None
            return embedded(watch_data(sources, None if self._done else has))

    @property
    def _done(self) -> bool:
        return all(run.done for run in self._runs)

    def _look(self) -> tuple[list[ReportSource] | None, str]:
        found = [run.source() for run in self._runs]
        known = [source for source in found if source is not None]
        return known if len(known) == len(found) else None, "+".join(run.has for run in self._runs)

    def knows(self, host: str | None) -> bool:
        """Was it asked for by its own name? If not, a page of somebody else asks."""
        port = self.server_address[1]
        return host in (f"{HOST}:{port}", f"localhost:{port}")


class _WatchHandler(BaseHTTPRequestHandler):
    server: WatchServer

    def do_GET(self) -> None:
        """The page, and what is new of it."""
        asked = urlsplit(self.path)
        if not self.server.knows(self.headers.get("Host")) or asked.path not in ("/", "/news"):
            self._answer(HTTPStatus.NOT_FOUND, "nothing is here\n", "text/plain")
            return
        try:
            if asked.path == "/":
                self._answer(HTTPStatus.OK, self.server.page(), "text/html")
                return
            news = self.server.news(parse_qs(asked.query).get("has", [""])[0])
            if news is None:
                self.send_response(HTTPStatus.NO_CONTENT)
                self.end_headers()
            else:
                self._answer(HTTPStatus.OK, news, "application/json")
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
