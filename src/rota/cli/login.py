"""`rota login` and `rota logout`: a session by the cluster's identity provider."""

import os
import webbrowser
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import click

from rota.cli.client import connect, moment, on_daemon, server_options
from rota.core.errors import ForbiddenError, InputError, NotFoundError, OutputError, RotaError

if TYPE_CHECKING:
    from rota.sdk import Client
    from rota.sdk.place import Place

WAIT_S = 600.0  # for a person to log in


class _Callback(HTTPServer):
    """Waits on this machine for the browser to come back from the identity provider."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Visitor)
        self.timeout = WAIT_S
        self.answer: dict[str, str] | None = None

    def wait(self) -> dict[str, str]:
        """What the browser brought."""
        while self.answer is None:
            self.handle_request()
        return self.answer

    def handle_timeout(self) -> None:
        raise RotaError(f"nobody logged in within {WAIT_S:g} s: try again")

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/callback"


class _Visitor(BaseHTTPRequestHandler):
    server: _Callback
    timeout = 10.0  # for the browser to send its request

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        given = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if parts.path != "/callback" or not {"code", "error"} & set(given):
            self.send_error(404)
            return
        self.server.answer = given
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(b"Go back to your terminal.\n")

    def log_message(self, *_: object) -> None:
        """Say nothing: the address holds a code."""


@click.command()
@click.option("--show", is_flag=True, help="Open the address in a browser on this machine.")
@on_daemon
def login(rota: "Client", *, show: bool) -> None:
    """Log in by the identity provider of the cluster (`oidc` in its configuration).

    Prints an address for a browser on this machine. When you have logged in there, this command
    gets a token that is good for the time of a session; `rota` finds it from now on.

    \b
    Examples:
      rota login --server https://head.example.org:7842
      rota login --show
    """  # noqa: D301 - \b keeps click from wrapping the lines
    place = rota.place
    if not place.socket and place.server.startswith("http:") and not place.relayed:
        raise InputError(
            f"{place.server}: anybody could answer there and log in as you: use https (see `rota "
            "tls init`) or the daemon's socket; ROTA_TUNNEL=1 if it is the end of your own tunnel"
        )
    with _Callback() as callback:
        start = rota.begin_login(callback.address)
        click.echo(start.url)
        if show:
            webbrowser.open(start.url)
        answer = callback.wait()
    if "code" not in answer:
        raise ForbiddenError(f"the identity provider says {answer['error'][:200]!r}: try again")
    made = rota.finish_login(start.secret, answer.get("state", ""), answer["code"])
    _write(_kept_in(place), made.token)
    click.echo(f"logged in as {made.user} ({made.role}) until {moment(made.until)}", err=True)


@click.command()
@server_options
def logout(server: str | None, token_file: str | None) -> None:
    """End the session of `rota login`, and forget its token.

    \b
    Example:
      rota logout --server https://head.example.org:7842
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.core.proof import token_digest, token_label

    with connect(server, token_file) as rota:
        path = _kept_in(rota.place)
        if not path.exists():
            raise NotFoundError(f"you are not logged in at {rota.place.server}: see `rota login`")
        token = path.read_text("utf-8").strip()
        with suppress(ForbiddenError, NotFoundError):  # it was over already
            rota.end_session(token_label(token_digest(token))[:12])
        path.unlink()


def _kept_in(place: "Place") -> Path:
    from rota.sdk.place import session_file

    return session_file(place.socket or place.server)


def _write(path: Path, token: str) -> None:
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(token + "\n")
        part.replace(path)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from error
