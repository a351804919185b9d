"""The cluster in numbers."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from rota.core.version import VERSION
from rota.daemon.pictures import picture_nodes, picture_queues, state_of

if TYPE_CHECKING:
    from rota.daemon.core import Core


def status_of(core: "Core") -> dict[str, Any]:
    """Version, policy, times, counts by state, GPUs; in the engine's thread."""
    engine = core.engine
    nodes = picture_nodes(engine.view, core.cluster)
    free = sum(node.free_gpus for node in nodes)
    total = sum(node.gpus for node in nodes if node.state != "down")
    return {
        "version": VERSION,
        "policy": core.scheduling.policy,
        "placement": core.scheduling.placement,
        "admission": core.scheduling.admission,
        "backend": core.driver.name,
        "now": core.store.epoch_unix + core.cluster.now_s,
        "epoch_unix": core.store.epoch_unix,
        "last_event": core.store.log_number,
        "jobs": dict(Counter(state_of(j) for j in engine.jobs.values() if j.parent is None)),
        "gpus": {
            "total": total, "free": free, "used": total - free,
            "down": sum(node.gpus for node in nodes if node.state == "down"),
        },
        "nodes": dict(Counter(node.state for node in nodes)),
        "queues": {queue.name: queue.gpus for queue in picture_queues(engine.view)},
        "decisions": engine.decisions,
        "preemptions": core.projection.preemptions,
        "restarts": core.projection.restarts,
        "journal_lag_s": core.cluster.lag_s,
    }  # fmt: skip
