"""Requests about nodes: the inputs they become, and how they are answered."""

from collections.abc import Callable
from typing import Literal

from rota.core.errors import ConflictError, NotFoundError
from rota.daemon.pictures import picture_nodes
from rota.daemon.state import ClusterState
from rota.live.inputs import Input, NodeRequest, Noted
from rota.live.nodes import NodeRecord
from rota.wire import Actor, NodeInfo


def request_node(
    state: ClusterState, what: Literal["drain", "clear", "undrain"], name: str, actor: Actor
) -> tuple[list[Input], Callable[[], NodeInfo]]:
    """Drain it, drain it and stop what runs there, or use it again."""
    drained = _known(state, name).drained
    changes = drained if what == "undrain" else what == "clear" or not drained
    wanted: list[Input] = [NodeRequest(what, name, actor.name)] if changes else []
    return wanted, lambda: _picture(state, name)


def remove_node(
    state: ClusterState, name: str, actor: Actor
) -> tuple[list[Input], Callable[[], None]]:
    """Forget it. Its number stays, for the log; it comes back when its agent does."""
    _known(state, name)
    found = _picture(state, name)
    busy = list(dict.fromkeys([*found.jobs, *(run.job.id for run in state.cluster.runs.on(name))]))
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
    return [NodeRequest("remove", name, actor.name), note], lambda: None


def _known(state: ClusterState, name: str) -> NodeRecord:
    node = state.cluster.nodes.by_name.get(name)
    if node is None or node.removed:
        raise NotFoundError(f"there is no node {name!r}: see `rota nodes`")
    return node


def _picture(state: ClusterState, name: str) -> NodeInfo:
    nodes = picture_nodes(state.engine.view, state.cluster)
    return next(info for info in nodes if info.name == name)


def _jobs(ids: list[str]) -> str:
    return f"job {ids[0]} is" if len(ids) == 1 else f"{len(ids)} jobs are"
