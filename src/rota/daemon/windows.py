"""Maintenance and reservations of a living cluster, as operators ask for them and see them."""

from collections.abc import Iterable

from rota.core.errors import ConflictError, InputError
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.sums import ordered_sum
from rota.core.topology import Topology
from rota.core.view import View
from rota.core.windows import (
    NodeWindow,
    check,
    choose_nodes,
    declared_s,
    with_queues_below,
)
from rota.daemon.pictures import places
from rota.engine.executor import on_cluster
from rota.wire import NewWindow, WindowInfo


def made(
    asked: NewWindow,
    present: Iterable[NodeWindow],
    view: View,
    now_s: float,
    epoch: float,
    by: str,
    *,
    strict: bool,
) -> NodeWindow:
    """The window that somebody asks for; what is wrong with it is said.

    `strict`: only queues that are declared make sense, where any is.
    """
    others = list(present)
    names = {other.name for other in others}
    if asked.name in names:
        raise ConflictError(
            f"there is a window {asked.name!r} already: `rota {_noun(asked.kind)} rm {asked.name}` "
            f"first, or give another name"
        )
    number = 1
    while f"{asked.kind}-{number}" in names:
        number += 1
    start_s = now_s if asked.start is None else max(asked.start - epoch, 0.0)
    end_s = INF if asked.end is None else asked.end - epoch
    if asked.nodes and asked.gpus:
        raise InputError("nodes and gpus exclude each other: name nodes, or say how many GPUs")
    nodes = tuple(dict.fromkeys(asked.nodes))
    if asked.gpus:
        taken = {
            node
            for other in others
            if other.start_s < end_s and start_s < other.end_s
            for node in other.nodes
        }
        busy = _held_at(start_s, view)
        nodes = choose_nodes(view.topology, asked.gpus, taken, busy, ConflictError)
    window = NodeWindow(
        name=asked.name or f"{asked.kind}-{number}",
        kind=asked.kind,
        nodes=nodes,
        start_s=start_s,
        end_s=end_s,
        users=tuple(asked.users),
        queues=tuple(asked.queues),
        at_start=asked.at_start,
        note=asked.note,
        by=by,
    )
    check(window, view.topology, InputError, now_s)
    seen = {job.tenant for job in view.active.values()} if len(view.tenants) else ()
    return with_queues_below(window, view.tenants, seen, InputError, strict=strict)


def picture_window(window: NodeWindow, view: View, now_s: float, epoch: float) -> WindowInfo:
    """As people see it."""
    nodes = set(window.nodes)
    return WindowInfo(
        name=window.name,
        kind=window.kind,
        state="active" if window.start_s <= now_s else "planned",
        nodes=list(window.nodes),
        gpus=ordered_sum(node.gpus for node in view.topology.nodes if node.name in nodes),
        start=epoch + window.start_s,
        end=None if window.end_s == INF else epoch + window.end_s,
        users=list(window.users),
        queues=list(window.queues),
        at_start=window.at_start,
        note=window.note,
        by=window.by,
        jobs=[
            job.id
            for job in view.active.values()
            if on_cluster(job)
            and not window.admits(job.spec)
            and _ends_s(job) > window.start_s
            and not nodes.isdisjoint(places(job, view.topology))
        ],
    )


def _ends_s(job: Job) -> float:
    """When it ends at the latest, as it says itself."""
    began_s = job.since_s if job.since_s < INF else job.start_s
    return began_s + max(0.0, declared_s(job.spec) - job.run_s)


def _held_at(start_s: float, view: View) -> dict[str, float]:
    """GPUs of every node that running jobs may still hold then."""
    topology: Topology = view.topology
    held: dict[str, float] = {}
    for job in view.active.values():
        if on_cluster(job) and _ends_s(job) > start_s:
            for name, gpus in places(job, topology).items():
                held[name] = held.get(name, 0.0) + gpus
    return held


def _noun(kind: str) -> str:
    return "maintenance" if kind == "maintenance" else "reserve"
