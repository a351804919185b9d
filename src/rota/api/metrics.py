"""Numbers for Prometheus. Seconds are the unit; no label takes more than a few dozen values."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from rota.core.errors import RotaError
from rota.daemon.ports import Service
from rota.wire import QueueInfo

OTHER = "other"
LATENCIES_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Keys of `Service.status()` (see `rota.wire.Status`): metric and what it means.
_COUNTERS = {
    "submissions": ("rota_submissions", "Jobs accepted"),
    "decisions": ("rota_decisions", "Decisions of the policy"),
    "preemptions": ("rota_preemptions", "Runs stopped in favour of other jobs"),
    "restarts": ("rota_restarts", "Starts of jobs that had run before"),
    "last_event": ("rota_log_rows", "Rows of the event log"),
}
_GAUGES = {
    "journal_lag_s": ("rota_journal_lag_seconds", "Age of the oldest input not journaled yet"),
    "started_at": ("rota_start_time_seconds", "When the daemon started (Unix time)"),
}
_BY_STATE = {
    "jobs": ("rota_jobs", "Jobs by state"),
    "nodes": ("rota_nodes", "Nodes by state"),
    "agents": ("rota_agents", "Agents by state"),
}
_DISTRIBUTIONS = {
    "decision_s": ("rota_decision_seconds", "Time for one decision"),
    "start_s": ("rota_start_seconds", "Time from the decision to start a job to its progress"),
    "commit_s": ("rota_store_commit_seconds", "Time for one transaction of the store"),
}
_GPUS = {
    "total": ("rota_gpus", "GPUs of the nodes that are not down"),
    "free": ("rota_gpus_free", "GPUs that no job has"),
    "used": ("rota_gpus_used", "GPUs that jobs have"),
    "down": ("rota_gpus_down", "GPUs of the nodes that are down"),
}
_LICENCES = {
    "total": ("rota_licences", "Licences of the whole cluster, by kind"),
    "used": ("rota_licences_used", "Licences that jobs have"),
    "spent": ("rota_licences_spent", "Of kinds that are not renewable: used up for good"),
    "asked": ("rota_licences_asked", "Licences that waiting jobs ask for"),
}
_QUEUES = (
    ("rota_queue_gpus_used", "GPUs that jobs of the queue have", "gpus"),
    ("rota_queue_gpus_asked", "GPUs that waiting jobs of the queue ask for", "asked_gpus"),
    ("rota_queue_gpus_quota", "GPUs that the queue is entitled to", "quota"),
)


class Metrics:
    """All numbers of one app, in a registry of their own."""

    def __init__(self, service: Service, queue_labels: int) -> None:
        # It would add a second series for each counter.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no hint there
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "rota_api_requests",
            "Requests by route and class of status",
            ["route", "method", "status"],
            registry=self._registry,
        )
        self._latency = Histogram(
            "rota_api_request_seconds",
            "Time until the answer begins",
            ["route", "method"],
            buckets=LATENCIES_S,
            registry=self._registry,
        )
        self._streams = _Streams()
        self._registry.register(self._streams)
        self._registry.register(_Daemon(service, queue_labels))
        ProcessCollector(registry=self._registry)

    def count_request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests.labels(route, method, f"{status // 100}xx").inc()
        self._latency.labels(route, method).observe(seconds)

    def count_streams(self, taken: int) -> None:
        """Record how many streams are open."""
        self._streams.taken = taken

    def render(self) -> bytes:
        """The text for Prometheus."""
        return generate_latest(self._registry)


class _Streams(Collector):
    """Streams that are open now."""

    def __init__(self) -> None:
        self.taken = 0

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("rota_api_streams", "Open streams", value=self.taken)


class _Daemon(Collector):
    """Numbers of the daemon, asked for at each scrape. Missing keys give no metric."""

    def __init__(self, service: Service, queue_labels: int) -> None:
        self._service = service
        self._labels = queue_labels
        self._queues: set[str] = set()  # a queue that has its label keeps it

    def collect(self) -> Iterator[Metric]:
        try:
            ready = self._service.ready()[0]
            status: Mapping[str, Any] = self._service.status()
            queues = self._service.queues()
        except RotaError:
            ready, status, queues = False, {}, []
        yield GaugeMetricFamily("rota_ready", "1 if work is accepted", value=float(ready))
        yield _info(status)
        yield from _numbers(status)
        yield from _states(status)
        yield from _distributions(status)
        yield from _licences(status)
        yield from self._by_queue(queues)

    def _by_queue(self, queues: list[QueueInfo]) -> Iterator[Metric]:
        for queue in queues:
            if len(self._queues) < self._labels:
                self._queues.add(queue.name)
        jobs = GaugeMetricFamily("rota_queue_jobs", "Jobs by queue", labels=["queue", "state"])
        for state in ("running", "pending", "held"):
            for name, value in self._sums(queues, state).items():
                jobs.add_metric([name, state], value)
        yield jobs
        for metric, about, field in _QUEUES:
            family = GaugeMetricFamily(metric, about, labels=["queue"])
            for name, value in self._sums(queues, field).items():
                family.add_metric([name], value)
            yield family

    def _sums(self, queues: list[QueueInfo], field: str) -> dict[str, float]:
        sums: dict[str, float] = {}
        for queue in queues:
            name = queue.name if queue.name in self._queues else OTHER
            sums[name] = sums.get(name, 0.0) + getattr(queue, field)
        return sums


def _info(status: Mapping[str, Any]) -> Metric:
    keys = ["version", "policy", "backend"]
    family = GaugeMetricFamily("rota_info", "What runs here", labels=keys)
    family.add_metric([str(status.get(key, "")) for key in keys], 1.0)
    return family


def _numbers(status: Mapping[str, Any]) -> Iterator[Metric]:
    for key, (name, about) in _COUNTERS.items():
        if key in status:
            yield CounterMetricFamily(name, about, value=float(status[key]))
    for key, (name, about) in _GAUGES.items():
        if key in status:
            yield GaugeMetricFamily(name, about, value=float(status[key]))
    gpus = status.get("gpus", {})
    for key, (name, about) in _GPUS.items():
        if key in gpus:
            yield GaugeMetricFamily(name, about, value=float(gpus[key]))


def _licences(status: Mapping[str, Any]) -> Iterator[Metric]:
    for key, (name, about) in _LICENCES.items() if status.get("licences") else ():
        family = GaugeMetricFamily(name, about, labels=["licence"])
        for kind, use in status["licences"].items():
            family.add_metric([kind], float(use[key]))
        yield family


def _states(status: Mapping[str, Any]) -> Iterator[Metric]:
    for key, (name, about) in _BY_STATE.items():
        if isinstance(status.get(key), Mapping):
            family = GaugeMetricFamily(name, about, labels=["state"])
            for state, count in status[key].items():
                family.add_metric([state.lower()], float(count))
            yield family


def _distributions(status: Mapping[str, Any]) -> Iterator[Metric]:
    for key, (name, about) in _DISTRIBUTIONS.items():
        found = status.get(key)
        if isinstance(found, Mapping) and {"count", "sum", "buckets"} <= set(found):
            buckets = [(str(float(bound)), float(count)) for bound, count in found["buckets"]]
            buckets.append(("+Inf", float(found["count"])))
            family = HistogramMetricFamily(name, about)
            family.add_metric([], buckets=buckets, sum_value=float(found["sum"]))
            yield family
