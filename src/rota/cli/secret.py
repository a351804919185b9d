"""`rota secret set|ls|rm`."""

import re
import sys
from typing import TYPE_CHECKING

import click

from rota.cli.client import moment, on_daemon
from rota.cli.show import FORMAT, emit, listing
from rota.core.errors import InputError

if TYPE_CHECKING:
    from rota.sdk import Client

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]{0,199}", re.ASCII)


@click.group()
def secret() -> None:
    """Keep passwords and keys for your jobs: written here, read by jobs, never shown."""


@secret.command("set")
@click.argument("name")
@on_daemon
def set_(rota: "Client", *, name: str) -> None:
    """Keep a secret NAME; its value is typed, or comes on the standard input, never as an argument.

    A job that names it (`rota submit --secret NAME`) finds it as a variable, or with `file:NAME` as
    a file in $ROTA_SECRETS_DIR. A blank line at the end of the input does not count.

    \b
    Examples:
      rota secret set WANDB_API_KEY
      rota secret set HF_TOKEN < token
    """  # noqa: D301 - \b keeps click from wrapping the lines
    if not _NAME.fullmatch(name):
        raise InputError(
            f"name is {name[:60]!r}: write letters, digits and _, as variables are called: HF_TOKEN"
        )
    if sys.stdin.isatty():
        value = click.prompt(name, hide_input=True, err=True)
    else:
        value = sys.stdin.read().removesuffix("\n")
    if not value:
        raise InputError(
            f"the value of {name} is empty: type it, or write it to the standard input"
        )
    rota.set_secret(name, value)
    click.echo(f"secret {name} is kept", err=True)


@secret.command()
@FORMAT
@on_daemon
def ls(rota: "Client", *, output: str) -> None:
    """List the names of your secrets, and when they were set.

    \b
    Example:
      rota secret ls
    """  # noqa: D301 - \b keeps click from wrapping the lines
    found = rota.secrets()
    if output == "table":
        listing([{"name": each.name, "set": moment(each.set_at)} for each in found], "table")
    else:
        import msgspec

        emit([msgspec.to_builtins(each) for each in found], output)


@secret.command()
@click.argument("name")
@on_daemon
def rm(rota: "Client", *, name: str) -> None:
    """Forget the secret NAME; jobs that have it already keep it.

    \b
    Example:
      rota secret rm HF_TOKEN
    """  # noqa: D301 - \b keeps click from wrapping the lines
    rota.remove_secret(name)
    click.echo(f"secret {name} is gone", err=True)
