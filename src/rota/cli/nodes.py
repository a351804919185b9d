"""`rota nodes|drain|undrain`, `rota queues` and `rota reload`."""

from typing import TYPE_CHECKING, Any

import click

from rota.cli.client import (
    INTERVAL,
    LONG_PATIENCE_S,
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
from rota.core.errors import OptionError, RotaError
from rota.core.words import duration
from rota.wire import NewRestart, NodeInfo, QueueInfo, RestartInfo

if TYPE_CHECKING:
    from rota.sdk import Client

_SPARE_OF_NODES = ("mem_gib", "cpus", "type", "jobs")
_SPARE_OF_QUEUES = ("parent", "weight", "limit", "held", "quota")
_RESTART_LOOK_S = 0.5
_NODE = click.argument("node", metavar="NODE", shell_complete=complete_nodes)


@click.group(
    invoke_without_command=True, subcommand_metavar="[rm NODE... | history NODE | restart NODE...]"
)
@WATCH
@INTERVAL
@FORMAT
@server_options
@click.pass_context
def nodes(
    ctx: click.Context, /, *, server: str | None, token_file: str | None, **values: Any
) -> None:
    """List the nodes and what is free on them; remove some, or restart their agents.

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


@nodes.command()
@click.argument("node", metavar="[NODE]...", nargs=-1, shell_complete=complete_nodes)
@click.option("--all", is_flag=True, help="The agents of all nodes that are in contact.")
@click.option("--max-unavailable", metavar="N", type=click.IntRange(min=1), default=1,
              show_default=True, help="So many agents may be away at the same time.")  # fmt: skip
@click.option("--timeout", metavar="T", default="2m", show_default=True,
              help="An agent that is not back by then stops it all.")  # fmt: skip
@click.option("--drain", is_flag=True,
              help="Drain its nodes before, and use them again afterwards.")  # fmt: skip
@click.option("--deadline", metavar="T",
              help="With --drain: preempt what still runs there after T: 2h, 1d.")  # fmt: skip
@click.option("--reason", metavar="TEXT", default="", help="For the log.")
@click.option("--detach", is_flag=True, help="Do not wait: see --status later.")
@click.option("--status", is_flag=True, help="Only show how far it is, or how the last one ended.")
@click.option("--stop", is_flag=True, help="Restart no more of them.")
@FORMAT
@server_options
@click.pass_obj
def restart(
    above: tuple[str | None, str | None],
    /,
    *,
    node: tuple[str, ...],
    server: str | None,
    token_file: str | None,
    **values: Any,
) -> int:
    """Restart the agents of NODEs (n0 n1, or n[0-3]) one after the other; jobs run on.

    An agent replaces itself by the version that is installed now, takes over the jobs of its
    machine and reports back; then it is the next one's turn. If one does not come back, nothing
    more is restarted. A daemon that is killed meanwhile goes on where it was.

    With --drain each waits until nothing runs on its nodes any more.

    \b
    Examples:
      rota nodes restart --all --reason "version 0.4"
      rota nodes restart n[0-7] --max-unavailable 2
      rota nodes restart --all --drain --deadline 4h
      rota nodes restart --status
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.core.hostlist import expand
    from rota.jobfile.quantities import duration_s

    output = values["output"]
    whose = server or above[0], token_file or above[1]
    with connect(*whose) as rota:
        if values["status"] and values["stop"]:
            raise OptionError("--status and --stop exclude each other: --stop shows it, too")
        if values["status"] or values["stop"]:
            if node or values["all"]:
                raise OptionError("--status and --stop are for the whole restart: name no nodes")
            _show_restart(
                rota.stop_restart() if values["stop"] else rota.restart_progress(), output
            )
            return 0
        if bool(node) == values["all"]:
            raise OptionError("say whose agents: either NODEs or --all")
        names = [name for text in node for name in expand(text, OptionError)]
        if node and not names:  # an empty variable of a script: without names it would be all
            raise OptionError("the NODEs that are given are empty: name some, or give --all")
        timeout_s = duration_s(values["timeout"], "--timeout")
        if not timeout_s:
            raise OptionError("--timeout is 0: give agents time to come back, e.g. 2m")
        if values["deadline"] is not None and not values["drain"]:
            raise OptionError("--deadline is that of --drain: give both, or neither")
        deadline = values["deadline"]
        asked = NewRestart(
            nodes=names,
            max_unavailable=values["max_unavailable"],
            timeout_s=timeout_s,
            drain=values["drain"],
            deadline_s=None if deadline is None else duration_s(deadline, "--deadline"),
            reason=values["reason"],
        )
        begun = rota.begin_restart(asked)
    if not values["detach"]:
        with connect(*whose, patience_s=LONG_PATIENCE_S) as rota:  # a new daemon goes on with it
            begun = _follow_restart(rota, begun)
    _show_restart(begun, output)
    return 1 if begun.state in ("failed", "stopped") else 0


def _follow_restart(rota: "Client", known: RestartInfo) -> RestartInfo:
    """Tell of each agent as it comes back, until it is over."""
    import time

    told: set[str] = set()
    drained: set[str] = set()
    while True:
        for each in known.nodes:
            if each.state == "draining" and each.why and each.node not in drained:
                drained.add(each.node)
                click.echo(f"node {clean(each.node)}: draining, {clean(each.why)}", err=True)
            if each.state == "done" and each.node not in told:
                told.add(each.node)
                click.echo(
                    f"node {clean(each.node)}: restarted ({len(told)} of {len(known.nodes)})",
                    err=True,
                )
        if known.state != "going":
            return known
        time.sleep(_RESTART_LOOK_S)
        known = rota.restart_progress()


def _show_restart(known: RestartInfo, output: str) -> None:
    import msgspec

    if output != "table":
        emit(msgspec.to_builtins(known), output)
        return
    rows = [
        {"node": clean(each.node), "agent": each.state, "why": clean(each.why) or "-"}
        for each in known.nodes
    ]
    listing(rows, "table", spare=("why",))
    why = f": {clean(known.why)}" if known.why else ""
    click.echo(f"rolling restart: {known.state}{why}", err=True)


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
