"""What people may want of nodes: inputs for the engine, and how they are answered."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from rota.core.errors import ConflictError, NotFoundError
from rota.daemon.pictures import picture_nodes
from rota.live.inputs import Input, NodeWish, Noted
from rota.live.machines import Machine
from rota.wire import Actor, NodeInfo

if TYPE_CHECKING:
    from rota.daemon.core import Core


def wish_node(
    core: "Core", what: Literal["drain", "clear", "undrain"], name: str, actor: Actor
) -> tuple[list[Input], Callable[[], NodeInfo]]:
    """Drain it, drain it and stop what runs there, or use it again."""
    drained = _known(core, name).drained
    changes = drained if what == "undrain" else what == "clear" or not drained
    wanted: list[Input] = [NodeWish(what, name, actor.name)] if changes else []
    return wanted, lambda: _picture(core, name)


def remove_node(core: "Core", name: str, actor: Actor) -> tuple[list[Input], Callable[[], None]]:
    """Forget it. Its number stays, for the log; it comes back when its agent does."""
    _known(core, name)
    found = _picture(core, name)
    busy = list(dict.fromkeys([*found.jobs, *(run.job.id for run in core.cluster.runs.on(name))]))
    if busy:
        raise ConflictError(
            f"node {name} cannot be removed: {_jobs(busy)} there: drain it with "
            f"`rota drain {name} --stop`, and try again when it is drained"
        )
    if found.state == "up":
        raise ConflictError(
            f"node {name} cannot be removed while it is in use: `rota drain {name}` first, or stop "
            f"its agent with --leave"
        )
    note = Noted(f"node {name} removed by {actor.name}")
    return [NodeWish("remove", name, actor.name), note], lambda: None


def _known(core: "Core", name: str) -> Machine:
    machine = core.cluster.machines.by_name.get(name)
    if machine is None or machine.removed:
        raise NotFoundError(f"there is no node {name!r}: see `rota nodes`")
    return machine


def _picture(core: "Core", name: str) -> NodeInfo:
    nodes = picture_nodes(core.engine.view, core.cluster)
    return next(info for info in nodes if info.name == name)


def _jobs(ids: list[str]) -> str:
    return f"job {ids[0]} is" if len(ids) == 1 else f"{len(ids)} jobs are"
