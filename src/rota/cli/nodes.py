"""`rota nodes|drain|undrain`, `rota queues` and `rota reload`."""

from typing import TYPE_CHECKING, Any

import click

from rota.cli.client import (
    INTERVAL,
    WATCH,
    amount,
    clean,
    complete_nodes,
    connect,
    moment,
    on_daemon,
    repeat,
    server_options,
    shortened,
    stopping,
)
from rota.cli.show import FORMAT, emit, listing
from rota.core.errors import RotaError
from rota.core.words import duration
from rota.wire import NodeInfo, QueueInfo

if TYPE_CHECKING:
    from rota.sdk import Client

_SPARE_OF_NODES = ("mem_gib", "cpus", "type", "jobs")
_SPARE_OF_QUEUES = ("parent", "weight", "limit", "held", "quota")
_NODE = click.argument("node", metavar="NODE", shell_complete=complete_nodes)


@click.group(invoke_without_command=True, subcommand_metavar="[rm NODE... | history NODE]")
@WATCH
@INTERVAL
@FORMAT
@server_options
@click.pass_context
def nodes(
    ctx: click.Context, /, *, server: str | None, token_file: str | None, **values: Any
) -> None:
    """List the nodes and what is free on them, or remove some.

    \b
    Examples:
      rota nodes
      rota nodes --watch
      rota nodes -o json
      rota nodes rm gpu7
    """  # noqa: D301 - \b keeps click from wrapping the lines
    ctx.obj = (server, token_file)
    if ctx.invoked_subcommand is None:
        with connect(server, token_file) as rota:
            _list(rota, **values)


@nodes.command()
@click.argument("node", metavar="NODE...", nargs=-1, required=True, shell_complete=complete_nodes)
@server_options
@click.pass_obj
def rm(
    above: tuple[str | None, str | None],
    *,
    node: tuple[str, ...],
    server: str | None,
    token_file: str | None,
) -> int:
    """Forget NODEs that are down or drained, with nothing left there.

    A node is there again when its agent comes back, or is started again.

    \b
    Examples:
      rota nodes rm gpu7
      rota drain gpu7 --stop && rota nodes rm gpu7
    """  # noqa: D301 - \b keeps click from wrapping the lines
    failed = 0
    with connect(server or above[0], token_file or above[1]) as rota:
        for name in node:
            try:
                rota.remove_node(name)
            except RotaError as error:
                failed += 1
                click.echo(f"error: {error}", err=True)
            else:
                click.echo(f"node {clean(name)}: removed", err=True)
    return 1 if failed else 0


@nodes.command()
@_NODE
@FORMAT
@server_options
@click.pass_obj
def history(
    above: tuple[str | None, str | None],
    *,
    node: str,
    output: str,
    server: str | None,
    token_file: str | None,
) -> None:
    """Tell when a NODE was lost and came back, and when and why nothing was started there.

    \b
    Examples:
      rota nodes history gpu7
      rota nodes history gpu7 -o json
    """  # noqa: D301 - \b keeps click from wrapping the lines
    import msgspec

    with connect(server or above[0], token_file or above[1]) as rota:
        found = rota.node_history(node)
    if output != "table":
        emit(msgspec.to_builtins(found), output)
        return
    rows = [
        {"at": moment(one.at), "event": one.event, "why": clean(one.text) or "-"} for one in found
    ]
    listing(rows, "table")
    if not found:
        click.echo("nothing has happened to it", err=True)


def _list(rota: "Client", *, watch: bool, interval: float, output: str) -> None:
    import msgspec

    def show() -> None:
        found = rota.nodes()
        if output != "table":
            emit([msgspec.to_builtins(node) for node in found], output)
        elif found:
            listing([node_row(node) for node in found], "table", spare=_SPARE_OF_NODES)
        else:
            click.echo("no nodes yet: start an agent with `rota agent`", err=True)

    repeat(show, watch=watch, interval=interval)


def node_row(node: NodeInfo) -> dict[str, str]:
    """A node as a line of a table."""
    return {
        "node": clean(node.name),
        "state": node.state,
        "gpus": amount(node.gpus),
        "free": amount(node.free_gpus),
        "type": clean(node.gpu_type) or "-",
        "cpus": amount(node.cpus) if node.cpus else "-",
        "mem_gib": amount(round(node.mem_gib, 1)) if node.mem_gib else "-",
        "jobs": shortened(node.jobs),
        "why": "; ".join(filter(None, [clean(node.why), _deadline(node), _ending(node)])) or "-",
    }


def _deadline(node: NodeInfo) -> str:
    """When a drained node must be empty."""
    return "" if node.clear_in_s is None else f"empty in {duration(node.clear_in_s)}"


def _ending(node: NodeInfo) -> str:
    """Who is being stopped there."""
    if node.stopping_s is None:
        return ""
    jobs = f"job{'s' if len(node.stopping) > 1 else ''} {shortened(node.stopping, 3)}"
    return f"{jobs} {stopping(node.stopping_s)}"


def _told(node: NodeInfo, output: str) -> None:
    import msgspec

    if output == "table":
        ending = _ending(node)
        more = f", {ending}" if ending else ""
        click.echo(f"node {clean(node.name)}: {node.state}{more}", err=True)
    else:
        emit(msgspec.to_builtins(node), output)


@click.command()
@_NODE
@click.option("--stop", is_flag=True, help="Preempt running jobs; they continue elsewhere.")
@click.option("--deadline", metavar="T",
              help="Preempt what still runs there after this time: 2h, 1d.")  # fmt: skip
@FORMAT
@on_daemon
def drain(rota: "Client", *, node: str, stop: bool, deadline: str | None, output: str) -> None:
    """Start nothing more on a NODE; what runs there may end, until the deadline if there is one.

    \b
    Examples:
      rota drain n3
      rota drain n3 --stop
      rota drain n3 --deadline 2h
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.jobfile.quantities import duration_s

    within_s = None if deadline is None else duration_s(deadline, "--deadline")
    _told(rota.drain(node, stop=stop, deadline_s=within_s), output)


@click.command()
@_NODE
@FORMAT
@on_daemon
def undrain(rota: "Client", *, node: str, output: str) -> None:
    """Use a drained NODE again.

    \b
    Example:
      rota undrain n3
    """  # noqa: D301 - \b keeps click from wrapping the lines
    _told(rota.undrain(node), output)


@click.command()
@WATCH
@INTERVAL
@FORMAT
@on_daemon
def queues(rota: "Client", *, watch: bool, interval: float, output: str) -> None:
    """List the queues, what they use and what they ask for.

    \b
    Examples:
      rota queues
      rota queues -o json
    """  # noqa: D301 - \b keeps click from wrapping the lines
    import msgspec

    def show() -> None:
        found = rota.queues()
        if output != "table":
            emit([msgspec.to_builtins(queue) for queue in found], output)
        elif found:
            listing([queue_row(queue) for queue in found], "table", spare=_SPARE_OF_QUEUES)
        else:
            click.echo("no queues yet: a queue appears with its first job", err=True)

    repeat(show, watch=watch, interval=interval)


def queue_row(queue: QueueInfo) -> dict[str, str]:
    """A queue as a line of a table."""
    return {
        "queue": clean(queue.name) or "(none)",
        "parent": clean(queue.parent) or "-",
        "quota": amount(queue.quota),
        "limit": amount(queue.limit),
        "weight": amount(queue.weight),
        "running": str(queue.running),
        "pending": str(queue.pending),
        "held": str(queue.held),
        "gpus": amount(queue.gpus),
        "asked": amount(queue.asked_gpus),
    }


@click.command()
@on_daemon
def reload(rota: "Client") -> None:
    """Let the daemon read its configuration file again; prints what changed.

    \b
    Example:
      rota reload --server http://127.0.0.1:7842
    """  # noqa: D301 - \b keeps click from wrapping the lines
    changes = rota.reload()
    for change in changes:
        click.echo(clean(change))
    if not changes:
        click.echo("nothing changed", err=True)
