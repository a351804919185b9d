"""`rota store backup|restore|check|repair|audit`: the care of a daemon's store."""

from pathlib import Path

import click

from rota.cli.client import clean, moment
from rota.cli.options import DEBUG, STATE
from rota.core.errors import RotaError


@click.group()
def store() -> None:
    """Copy, check and mend the file in which a daemon keeps everything."""


def _folder(state: Path | None) -> Path:
    from rota.sdk.place import state_folder

    return state or state_folder()


@store.command()
@click.argument("file", type=click.Path(path_type=Path))
@STATE
@DEBUG
def backup(file: Path, state: Path | None) -> None:
    """Copy the store to FILE, as it is at one moment; the daemon may run.

    \b
    Example:
      rota store backup rota-monday.db
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.daemon import upkeep

    upkeep.backup(_folder(state), file)


@store.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@STATE
@DEBUG
def restore(file: Path, state: Path | None) -> None:
    """Put the copy FILE in place of the store; stop the daemon first.

    Then start it with --accept-loss: what was submitted since the copy is missing.

    \b
    Example:
      rota store restore rota-monday.db && rota serve --accept-loss
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.daemon import upkeep

    before = upkeep.restore(_folder(state), file)
    click.echo(f"restored; the store as it was is {before}; start with --accept-loss")


@store.command()
@STATE
@DEBUG
def check(state: Path | None) -> None:
    """Look for damage: the file, snapshots, journal, log, and the chain of the audit log.

    \b
    Example:
      rota store check --state /var/lib/rota
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.daemon import upkeep

    found = upkeep.check(_folder(state))
    for line in found:
        click.echo(line)
    if found:
        raise RotaError(f"{len(found)} findings in {_folder(state)}")
    click.echo("sound")


@store.command()
@STATE
@DEBUG
def repair(state: Path | None) -> None:
    """Mend what can be mended without losing anything; stop the daemon first.

    \b
    Example:
      rota store check || rota store repair
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.daemon import upkeep

    for line in upkeep.repair(_folder(state)):
        click.echo(line)


@store.command()
@STATE
@DEBUG
def audit(state: Path | None) -> None:
    """Print who did what, oldest first; `rota store check` says whether it was tampered with.

    \b
    Example:
      rota store audit | grep cancel
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.daemon import upkeep

    for line in upkeep.audit_lines(_folder(state)):
        click.echo(
            f"{line.number} {moment(line.at_unix)} {clean(line.actor) or '-'} {clean(line.act)}"
        )
