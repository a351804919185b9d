"""`rota token create|join|ls|revoke`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rota.cli.client import clean, moment, on_daemon
from rota.cli.show import FORMAT, emit, listing
from rota.core.errors import OutputError
from rota.wire import ROLES

if TYPE_CHECKING:
    from rota.sdk import Client
    from rota.wire import TokenInfo


@click.group()
def token() -> None:
    """Make, list and revoke the tokens with which others speak to the daemon."""


@token.command()
@click.argument("name")
@click.option("--role", metavar="R", type=click.Choice(ROLES), default="user", show_default=True,
              help=f"Role of the token: {', '.join(ROLES)}.")  # fmt: skip
@click.option(
    "--user",
    metavar="U",
    default="",
    help="Person it belongs to (`rota user add`); by default the one of that name, if any.",
)
@click.option("--valid", metavar="D", help="How long it is valid, e.g. 90d; by default for ever.")
@click.option("--file", metavar="F", type=click.Path(path_type=Path),
              help="Write it there, readable by you only, and do not print it.")  # fmt: skip
@on_daemon
def create(
    rota: "Client", *, name: str, role: str, user: str, valid: str | None, file: Path | None
) -> None:
    """Make a token NAME. It is shown this once; the daemon keeps only its hash.

    \b
    Examples:
      rota token create ann
      rota token create watcher --role viewer
      rota token create ann-laptop --user ann --valid 90d
      rota token create n7 --role agent --file n7.token
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.jobfile.quantities import duration_s

    valid_s = None if valid is None else duration_s(valid, "--valid")
    if file is None:
        click.echo(rota.create_token(name, role, user=user, valid_s=valid_s))
        return
    try:  # before the token is made, so that none is lost
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise OutputError(
            f"{file}: cannot be written ({error.strerror}): name a new file"
        ) from error
    with os.fdopen(handle, "w") as out:
        try:
            out.write(rota.create_token(name, role, user=user, valid_s=valid_s) + "\n")
        except BaseException:
            file.unlink()
            raise
    click.echo(f"{file}: a token for {name} with the role {role}", err=True)


@token.command()
@click.argument("node")
@click.option("--valid", metavar="D", default="1h", show_default=True,
              help="How long the code is valid, e.g. 30m or 2d; at most 7d.")  # fmt: skip
@on_daemon
def join(rota: "Client", *, node: str, valid: str) -> None:
    """Make a code with which one machine joins the cluster, once, as NODE.

    The machine exchanges it for a credential of its own, which is good for that node only: a
    certificate where the daemon has an authority (`rota tls init`), else a token. `rota token
    revoke NODE` makes that worthless.

    \b
    Example:
      rota token join gpu1
      rota agent --server https://head.example.org:7842 --join CODE   # there
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.jobfile.quantities import duration_s

    click.echo(rota.invite(node, duration_s(valid, "--valid")))


@token.command()
@FORMAT
@on_daemon
def ls(rota: "Client", *, output: str) -> None:
    """List the tokens, and whose they are.

    \b
    Example:
      rota token ls -o json
    """  # noqa: D301 - \b keeps click from wrapping the lines
    tokens = rota.tokens()
    if output == "table":
        owned = any(each.user for each in tokens)
        ends = any(each.until for each in tokens)
        listing([_row(each, owned=owned, ends=ends) for each in tokens], "table")
    else:
        import msgspec

        emit([msgspec.to_builtins(each) for each in tokens], output)


def _row(token: "TokenInfo", *, owned: bool, ends: bool) -> dict[str, str]:
    """Columns that would be empty are not shown."""
    row = {"name": clean(token.name), "role": clean(token.role)}
    if owned:
        row["user"] = clean(token.user)
    if ends:
        row["until"] = moment(token.until)
    return row


@token.command()
@click.argument("name")
@on_daemon
def revoke(rota: "Client", *, name: str) -> None:
    """Revoke the token NAME: it is refused from now on.

    \b
    Example:
      rota token revoke ann
    """  # noqa: D301 - \b keeps click from wrapping the lines
    rota.revoke_token(name)
    click.echo(f"the token of {name} is worth nothing any more", err=True)
