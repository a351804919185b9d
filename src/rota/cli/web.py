"""`rota web`: log a browser in."""

import webbrowser
from typing import TYPE_CHECKING

import click

from rota.cli.client import on_daemon

if TYPE_CHECKING:
    from rota.sdk import Client


@click.command()
@click.option("--show", is_flag=True, help="Open it in a browser of this machine.")
@on_daemon
def web(rota: "Client", *, show: bool) -> None:
    """Print an address that logs one browser in as you, once and within a minute.

    The browser gets a session that ends after 12 hours, or when your token is revoked. Your
    token never reaches it.

    \b
    Examples:
      rota web
      rota web --show
    """  # noqa: D301 - \b keeps click from wrapping the lines
    address = rota.place.server + rota.web_code().path
    click.echo(address)
    if show:
        webbrowser.open(address)
