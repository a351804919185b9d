"""`rota store backup|restore|check|repair|prune|audit`: the care of a daemon's store.

In a file of a state folder, or (`--store`) in a database of PostgreSQL.
"""

from pathlib import Path

import click

from rota.cli.client import clean, moment
from rota.cli.options import DEBUG, STATE, Finite
from rota.core.errors import RotaError

DATABASE = click.option(
    "--store", metavar="URL",
    help="A database of PostgreSQL (postgresql://USER@HOST:PORT/DATABASE) instead of a file.",
)  # fmt: skip


@click.group()
def store() -> None:
    """Back up, check and repair the file or database that holds a daemon's state."""


def _folder(state: Path | None) -> Path:
    from rota.sdk.place import state_folder

    return state or state_folder()


@store.command()
@click.argument("file", type=click.Path(path_type=Path))
@DATABASE
@STATE
@DEBUG
def backup(file: Path, state: Path | None, store: str | None) -> None:
    """Copy the store to FILE, as it is at one moment; the daemon may run.

    The copy of a database is a file, too: it can be restored into a state folder or a database.

    \b
    Examples:
      rota store backup rota-monday.db
      rota store backup rota-monday.db --store postgresql://rota@db.example/rota
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.daemon import shared_upkeep, upkeep

    if store is not None:
        shared_upkeep.backup(store, file)
    else:
        upkeep.backup(_folder(state), file)


@store.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@DATABASE
@STATE
@DEBUG
def restore(file: Path, state: Path | None, store: str | None) -> None:
    """Put the copy FILE in place of the store; stop the daemon first.

    Then start it with --accept-loss: what was submitted since the copy is missing.

    \b
    Example:
      rota store restore rota-monday.db && rota serve --accept-loss
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.daemon import shared_upkeep, upkeep

    before = (
        upkeep.restore(_folder(state), file)
        if store is None
        else shared_upkeep.restore(store, file)
    )
    was = f"the store as it was is {before}" if before else "there was no store"
    click.echo(f"restored; {was}; start with --accept-loss")


@store.command()
@DATABASE
@STATE
@DEBUG
def check(state: Path | None, store: str | None) -> None:
    """Look for damage: the file, snapshots, journal, log, and the chain of the audit log.

    \b
    Example:
      rota store check --state /var/lib/rota
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.daemon import shared_upkeep, upkeep

    found = (
        upkeep.check(_folder(state))
        if store is None
        else shared_upkeep.check(store, _folder(state))
    )
    for line in found:
        click.echo(line)
    if found:
        raise RotaError(f"{len(found)} findings in {_folder(state) if store is None else 'it'}")
    click.echo("sound")


@store.command()
@DATABASE
@STATE
@DEBUG
def repair(state: Path | None, store: str | None) -> None:
    """Repair what can be repaired without loss; stop the daemon first.

    \b
    Example:
      rota store check || rota store repair
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.daemon import shared_upkeep, upkeep

    done = upkeep.repair(_folder(state)) if store is None else shared_upkeep.repair(store)
    for line in done:
        click.echo(line)


@store.command()
@click.option(
    "--dry-run", is_flag=True, help="Only list what would be removed; the daemon may run."
)
@click.option(
    "--journal-days",
    metavar="D",
    type=Finite(min=1),
    help="Days to keep inputs that no snapshot needs; by default for ever.",
)
@click.option(
    "--keys-days",
    metavar="D",
    type=Finite(min=1),
    help="Days to keep the keys of submissions; by default for ever.",
)
@DATABASE
@STATE
@DEBUG
def prune(
    state: Path | None,
    store: str | None,
    *,
    dry_run: bool,
    journal_days: float | None,
    keys_days: float | None,
) -> None:
    """Remove what is too old, and give the room in the file back; stop the daemon first.

    A daemon does the same by itself, in small steps: see `retention` in the configuration. Of jobs
    and of the event log only what the daemon has forgotten goes. The audit log stays whole, and
    what a recovery needs is never touched.

    \b
    Examples:
      rota store prune
      rota store prune --dry-run --journal-days 30
      rota store prune --journal-days 30 --keys-days 7
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.daemon import shared_upkeep, upkeep
    from rota.daemon.settings import Retention

    retention = Retention(journal_days=journal_days, keys_days=keys_days)
    if store is None:
        gone = upkeep.prune(_folder(state), retention, really=not dry_run)
    else:
        gone = shared_upkeep.prune(store, retention, really=not dry_run)
    verb = "would go" if dry_run else "went"
    click.echo(
        f"{gone.batches} inputs, {gone.snapshots} snapshots, {gone.keys} keys, {gone.jobs} jobs "
        f"and {gone.rows} rows of the log {verb}"
    )


@store.command()
@DATABASE
@STATE
@DEBUG
def audit(state: Path | None, store: str | None) -> None:
    """Print who did what, oldest first; `rota store check` says whether it was tampered with.

    \b
    Example:
      rota store audit | grep cancel
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.daemon import shared_upkeep, upkeep

    lines = (
        upkeep.audit_lines(_folder(state)) if store is None else shared_upkeep.audit_lines(store)
    )
    for line in lines:
        click.echo(
            f"{line.number} {moment(line.at_unix)} {clean(line.actor) or '-'} {clean(line.act)}"
        )
