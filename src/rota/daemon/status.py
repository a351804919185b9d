"""The cluster in numbers, and how long things take."""

from bisect import bisect_left
from collections import Counter, deque
from typing import Any

from rota.core.sharing import DUST
from rota.core.sums import ordered_sum
from rota.core.version import VERSION
from rota.core.view import View
from rota.daemon.loop import DaemonLoop
from rota.daemon.pictures import picture_nodes, picture_queues, state_of
from rota.engine.executor import on_cluster
from rota.wire import LicenceUse

WAITING_SHOWN = 10  # jobs that wait for a licence, by number

BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
            30.0, 60.0)  # fmt: skip


class Histogram:
    """Counts by bound since the start, and the last values for quantiles.

    Written by one thread, read by any.
    """

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._recent: deque[float] = deque(maxlen=1000)

    def observe(self, seconds: float) -> None:
        """One more."""
        self.count += 1
        self.sum += seconds
        self._counts[bisect_left(BOUNDS_S, seconds)] += 1
        self._recent.append(seconds)

    def quantile(self, share: float) -> float:
        """Of the last thousand; 0 if there are none."""
        values = sorted(self._recent.copy())
        return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0

    def as_dict(self) -> dict[str, Any]:
        """As in the API."""
        total = 0
        buckets = []
        for bound, count in zip(BOUNDS_S, self._counts, strict=False):
            total += count
            buckets.append((bound, total))
        return {
            "count": self.count, "sum": self.sum, "buckets": buckets,
            "p50": self.quantile(0.5), "p99": self.quantile(0.99),
        }  # fmt: skip


def licences_of(view: View) -> dict[str, LicenceUse]:
    """What the cluster has as a whole, who has it, and who waits for it."""
    supply = view.topology.supply
    if not supply:
        return {}
    found: dict[str, LicenceUse] = {
        kind: {"total": total, "used": 0.0, "spent": 0.0, "asked": 0.0, "waiting": []}
        for kind, total in supply.items()
    }
    for (_, kind), amount in view.spent.items():
        if kind in found:
            found[kind]["spent"] += amount
    for job in view.active.values():
        for _, kind, amount in job.allocation.extra if on_cluster(job) else ():
            if kind in found:
                found[kind]["used"] += amount
    for job in view.waiting:
        for kind in job.shape.resources.keys() & found.keys():
            _wait(found[kind], job.shape.resources[kind], job.id)
    return found


def _wait(use: LicenceUse, amount: float, job: str) -> None:
    use["asked"] += amount
    lacks = amount > use["total"] - use["used"] - use["spent"] + DUST
    if lacks and len(use["waiting"]) < WAITING_SHOWN:
        use["waiting"].append(job)


def status_of(loop: DaemonLoop) -> dict[str, Any]:
    """Version, policy, times, counts by state, GPUs; in the engine's thread."""
    state, store = loop.state, loop.store
    engine = state.engine
    loop.flush()  # all that is counted is up to `last_event`
    nodes = picture_nodes(engine.view, state.cluster)
    free = ordered_sum(node.free_gpus for node in nodes)
    total = ordered_sum(node.gpus for node in nodes if node.state != "down")
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
            "down": ordered_sum(node.gpus for node in nodes if node.state == "down"),
        },
        "nodes": dict(Counter(node.state for node in nodes)),
        "licences": licences_of(engine.view),
        "queues": {queue.name: queue.gpus for queue in picture_queues(engine.view)},
        "decisions": engine.decisions,
        "preemptions": state.projection.preemptions,
        "restarts": state.projection.restarts,
        "journal_lag_s": loop.lag_s,
        "forgotten": len(state.forgotten),
        "history_since": store.epoch_unix + state.forgotten.since_s,
    }  # fmt: skip
