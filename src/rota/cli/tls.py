"""`rota tls init|renew|show`."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rota.cli.options import STATE
from rota.cli.show import FORMAT, emit
from rota.core.errors import InputError

if TYPE_CHECKING:
    from rota.daemon.authority import Authority

Command = TypeVar("Command", bound=Callable[..., Any])


def _of_certificates(command: Command) -> Command:
    """Options of commands that make the daemon's certificate."""
    for option in (
        click.option("--days", metavar="N", type=click.IntRange(1, 3650), default=365,
                     show_default=True, help="Days until the daemon's certificate expires."),
        click.option("--name", metavar="HOST", multiple=True,
                     help="Name or address by which clients call the daemon; may be repeated."),
    ):  # fmt: skip
        command = option(command)
    return STATE(command)


@click.group()
def tls() -> None:
    """Encrypt what travels between the daemon, its clients and its machines."""


@tls.command()
@_of_certificates
def init(*, state: Path | None, name: tuple[str, ...], days: int) -> None:
    """Make an authority and a certificate for the daemon, in its state folder.

    The daemon uses them from its next start on. Clients need the file ca.pem (--ca, ROTA_CA);
    those on the daemon's machine find it themselves. Machines join with `rota token join`, and then
    have certificates of their own.

    \b
    Example:
      rota tls init --name head.example.org
    """  # noqa: D301 - \b keeps click from wrapping the lines
    kind = _authority()
    made = kind.create(_folder(state))
    _tell(made, made.issue_server(name, days))
    click.echo(f"clients need {made.folder / 'ca.pem'}", err=True)


@tls.command()
@_of_certificates
def renew(*, state: Path | None, name: tuple[str, ...], days: int) -> None:
    """Make a new key and certificate for the daemon, by default with the same names.

    `rota reload` makes a running daemon use it; open connections stay. Clients and
    machines trust it already: it is signed by the same authority. Machines renew theirs themselves.

    \b
    Example:
      rota tls renew && rota reload
    """  # noqa: D301 - \b keeps click from wrapping the lines
    known = _authority()(_folder(state))
    _tell(known, known.issue_server(name, days))


@tls.command()
@STATE
@FORMAT
def show(*, state: Path | None, output: str) -> None:
    """Show when the daemon's certificate expires, and the names it is for.

    \b
    Example:
      rota tls show -o json
    """  # noqa: D301 - \b keeps click from wrapping the lines
    known = _authority()(_folder(state))
    found = known.server_certificate()
    if found is None:
        raise InputError(f"{known.server[0]}: cannot be read: `rota tls renew` makes another")
    until = found.not_valid_after_utc
    row = {
        "names": ", ".join(known.server_names()),
        "until": until.isoformat(),
        "days_left": (until - datetime.now(UTC)).days,
        "authority": known.fingerprint.hex(),
    }
    if output == "table":
        click.echo("\n".join(f"{key}: {value}" for key, value in row.items()))
    else:
        emit([row], output)


def _tell(known: "Authority", names: list[str]) -> None:
    click.echo(f"{known.server[0]}: a certificate for {', '.join(names)}", err=True)


def _folder(state: Path | None) -> Path:
    from rota.daemon.folder import TLS
    from rota.sdk.place import state_folder

    return (state or state_folder()) / TLS


def _authority() -> "type[Authority]":
    from rota.daemon.authority import Authority

    return Authority
