"""`rota audit`."""

from pathlib import Path

import click

from rota.cli.client import clean, connect, server_options
from rota.cli.options import FILES
from rota.cli.show import FORMAT, emit, say

_URLS = ("http://", "https://")


@click.command()
@click.argument("place", metavar="[DIR|URL]", required=False, shell_complete=FILES)
@FORMAT
@server_options
def audit(place: str | None, *, output: str, server: str | None, token_file: str | None) -> None:
    """Find starved queues beside others that borrow, idle quotas, and what else keeps jobs waiting.

    Also who causes preemptions, jobs that can never start, and users and queues at their limits:
    each with numbers and a remedy. Of the daemon as it is now, or of a whole run in a folder DIR
    (of `rota simulate` or `rota export`; its cluster file declares the quotas).

    \b
    Examples:
      rota audit
      rota audit out
      rota audit -o json
    """  # noqa: D301 - \b keeps click from wrapping the lines
    import msgspec

    if place is not None and not place.startswith(_URLS):
        from rota.study.audit import audit_folder

        found = audit_folder(Path(place))
    else:
        with connect(place or server, token_file) as rota:
            found = rota.audit()
    if output != "table":
        emit(msgspec.to_builtins(found), output)
        return
    for one in found:
        say(f"{one.kind}: {clean(one.text)}")
        say(f"    remedy: {clean(one.remedy)}", indent=6)
    if not found:
        click.echo("nothing was found")
