"""The cluster in numbers."""

from collections import Counter
from typing import Any

from rota.core.version import VERSION
from rota.daemon.loop import DaemonLoop
from rota.daemon.pictures import picture_nodes, picture_queues, state_of


def status_of(loop: DaemonLoop) -> dict[str, Any]:
    """Version, policy, times, counts by state, GPUs; in the engine's thread."""
    state, store = loop.state, loop.store
    engine = state.engine
    nodes = picture_nodes(engine.view, state.cluster)
    free = sum(node.free_gpus for node in nodes)
    total = sum(node.gpus for node in nodes if node.state != "down")
    return {
        "version": VERSION,
        "policy": state.scheduling.policy,
        "placement": state.scheduling.placement,
        "admission": state.scheduling.admission,
        "backend": loop.driver.name,
        "now": store.epoch_unix + state.cluster.now_s,
        "epoch_unix": store.epoch_unix,
        "last_event": store.log_number,
        "jobs": dict(Counter(state_of(j) for j in engine.jobs.values() if j.parent is None)),
        "gpus": {
            "total": total, "free": free, "used": total - free,
            "down": sum(node.gpus for node in nodes if node.state == "down"),
        },
        "nodes": dict(Counter(node.state for node in nodes)),
        "queues": {queue.name: queue.gpus for queue in picture_queues(engine.view)},
        "decisions": engine.decisions,
        "preemptions": state.projection.preemptions,
        "restarts": state.projection.restarts,
        "journal_lag_s": loop.lag_s,
    }  # fmt: skip
