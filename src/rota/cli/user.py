"""`rota user add|change|disable|enable|ls` and `rota session ls|revoke`."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from rota.cli.client import clean, complete, moment, on_daemon
from rota.cli.show import FORMAT, emit, listing
from rota.wire import PEOPLE, NewPerson, Person, PersonChange, SessionInfo

if TYPE_CHECKING:
    from rota.sdk import Client

AS_CONFIGURED = "any"  # what takes a limit off
_KEYS = {"queue": "queues", "priority_class": "priority_classes"}  # given several times


def _complete_people(
    ctx: click.Context,
    param: click.Parameter,  # noqa: ARG001 - click's interface
    incomplete: str,
) -> list[CompletionItem]:
    def find(rota: "Client") -> Iterator[CompletionItem]:
        for person in rota.people():
            yield CompletionItem(person.name, help=person.role)

    return complete(ctx, find, incomplete)


def _complete_sessions(
    ctx: click.Context,
    param: click.Parameter,  # noqa: ARG001 - click's interface
    incomplete: str,
) -> list[CompletionItem]:
    def find(rota: "Client") -> Iterator[CompletionItem]:
        for each in rota.sessions():
            yield CompletionItem(each.id, help=clean(f"{each.user} {each.via}"))

    return complete(ctx, find, incomplete)


NAME = click.argument("name", shell_complete=_complete_people)


def _number(_: click.Context, param: click.Parameter, value: str | None) -> Any:
    """A number, `any` (None), or nothing."""
    if value is None or value == AS_CONFIGURED:
        return value
    try:
        return int(value)
    except ValueError:
        raise click.BadParameter(f"give a number, or {AS_CONFIGURED}", param=param) from None


def _limits(command: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.option("--queue", metavar="Q", multiple=True,
                     help="They may submit there and to its parts; repeat it for more. `any` takes "
                     "the limit off."),
        click.option("--priority-class", metavar="C", multiple=True,
                     help="They may use it; repeat it for more. `any` takes the limit off."),
        click.option("--max-priority", metavar="N", callback=_number,
                     help="Highest priority of their jobs; `any`: as configured."),
        click.option("--max-jobs", metavar="N", callback=_number,
                     help="Jobs that may be held, wait or run; `any`: as configured."),
        click.option("--own-queues/--no-own-queues", default=None,
                     help="They may name queues that are not declared."),
        click.option("--subject", metavar="S",
                     help="Who they are at the identity provider (the claim `sub`)."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def _wanted(values: dict[str, Any]) -> dict[str, Any]:
    """What was said on the command line, for the daemon."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if value is None or value == ():
            continue
        free = value in (AS_CONFIGURED, (AS_CONFIGURED,))
        found[_KEYS.get(key, key)] = None if free else value
    return found


@click.group()
def user() -> None:
    """Add, change, disable and list the people who use a cluster.

    A person has a role and limits; tokens and sessions belong to people, and are refused
    while their person is disabled.
    """


@user.command()
@click.argument("name")
@click.option("--role", metavar="R", type=click.Choice(PEOPLE), default="user", show_default=True,
              help=f"Their role: {', '.join(PEOPLE)}.")  # fmt: skip
@_limits
@on_daemon
def add(rota: "Client", *, name: str, role: str, **limits: Any) -> None:
    """Add a person. A token called NAME, if there is one, is theirs from now on.

    \b
    Examples:
      rota user add ann --queue research --max-jobs 200
      rota token create ann-laptop --user ann
    """  # noqa: D301 - \b keeps click from wrapping the lines
    rota.add_person(NewPerson(name=name, role=role, **_wanted(limits)))


@user.command()
@NAME
@click.option("--role", metavar="R", type=click.Choice(PEOPLE),
              help=f"Their role: {', '.join(PEOPLE)}.")  # fmt: skip
@_limits
@on_daemon
def change(rota: "Client", *, name: str, **wanted: Any) -> None:
    """Change a person's role and limits; it takes effect at once.

    \b
    Examples:
      rota user change ann --role operator
      rota user change ann --queue research --queue vision
      rota user change ann --queue any
    """  # noqa: D301 - \b keeps click from wrapping the lines
    said = _wanted(wanted)
    if not said:
        raise click.UsageError("say what shall be different, e.g. --role operator")
    rota.change_person(name, PersonChange(**said))


@user.command()
@NAME
@on_daemon
def disable(rota: "Client", *, name: str) -> None:
    """Lock a person out: their sessions end at once, their tokens are refused.

    Their jobs go on: `rota ls --user NAME`, `rota cancel`.

    \b
    Example:
      rota user disable ann
    """  # noqa: D301 - \b keeps click from wrapping the lines
    rota.disable_person(name)


@user.command()
@NAME
@on_daemon
def enable(rota: "Client", *, name: str) -> None:
    """Let a person in again; their tokens work again.

    \b
    Example:
      rota user enable ann
    """  # noqa: D301 - \b keeps click from wrapping the lines
    rota.enable_person(name)


@user.command()
@FORMAT
@on_daemon
def ls(rota: "Client", *, output: str) -> None:
    """List the people.

    \b
    Example:
      rota user ls -o json
    """  # noqa: D301 - \b keeps click from wrapping the lines
    if output == "table":
        listing([_row(person) for person in rota.people()], "table")
    else:
        import msgspec

        emit([msgspec.to_builtins(person) for person in rota.people()], output)


def _row(person: Person) -> dict[str, str]:
    return {
        "name": clean(person.name),
        "role": person.role,
        "state": "disabled" if person.disabled else "enabled",
        "queues": "as configured" if person.queues is None else clean(", ".join(person.queues)),
        "max jobs": "as configured" if person.max_jobs is None else str(person.max_jobs),
    }


@click.group()
def session() -> None:
    """List and end sessions: your own, or as an administrator all."""


@session.command(name="ls")
@FORMAT
@on_daemon
def list_them(rota: "Client", *, output: str) -> None:
    """List the sessions of people who logged in.

    \b
    Example:
      rota session ls
    """  # noqa: D301 - \b keeps click from wrapping the lines
    found = rota.sessions()
    if output == "table":
        listing(list(map(_session_row, found)), "table")
    else:
        import msgspec

        emit([msgspec.to_builtins(each) for each in found], output)


def _session_row(found: SessionInfo) -> dict[str, str]:
    return {
        "id": found.id,
        "user": clean(found.user),
        "role": found.role,
        "via": found.via,
        "began": moment(found.began_at),
        "until": moment(found.until),
    }


@session.command()
@click.argument("session", metavar="ID", shell_complete=_complete_sessions)
@on_daemon
def revoke(rota: "Client", *, session: str) -> None:
    """End the session ID, at once.

    \b
    Example:
      rota session revoke 0123456789ab
    """  # noqa: D301 - \b keeps click from wrapping the lines
    rota.end_session(session)
