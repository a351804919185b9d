"""A run as OpenTelemetry spans: the life of every job, and the decisions that changed it.

| In Rota | In OpenTelemetry |
| --- | --- |
| job, from its submission to its end | root of a trace; its status is an error if it failed |
| waiting (with its reason), overhead, running | children of the job's span |
| decision that started, stopped or moved jobs | span without length, with links to these jobs |

Spans have wall-clock times: a daemon's log knows when it began, a simulated run is told.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

from rota.core.errors import ClusterError, OptionError, install
from rota.core.log import LABELS, Record
from rota.core.reasons import Reason
from rota.metrics import History, read_history
from rota.metrics.history import OVER, OVERHEAD, RUNS, TERMINAL
from rota.report.data import Log

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.trace import SpanContext, Tracer

NANO = 1_000_000_000
BATCH = 512
MOST_LINKS = 1_000_000  # of a decision: every job that it changed
TRACES = "/v1/traces"
FAILED = (Record.FAILED, Record.TIMEOUT, Record.REJECTED)
DECIDED = (Record.START, Record.STOP, Record.MOVE)


def send_spans(log: Log, endpoint: str, epoch_unix: float) -> int:
    """Send the spans of a run to a collector, by OTLP over HTTP.

    Args:
        log: The event log or its history.
        endpoint: URL of the collector; `/v1/traces` is added where it has no path.
        epoch_unix: Wall-clock time of second 0 of the log.

    Returns:
        How many spans were sent.
    """
    exporter = otlp_exporter(endpoint)
    try:
        return export_spans(log, exporter, epoch_unix, endpoint)
    finally:
        exporter.shutdown()  # type: ignore[no-untyped-call]


def otlp_exporter(endpoint: str) -> "OTLPSpanExporter":
    """Who sends spans there; `/v1/traces` is added where it is missing."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise OptionError(f"spans need OpenTelemetry: {install('otel')}") from error
    where = endpoint.rstrip("/")
    return OTLPSpanExporter(endpoint=where if where.endswith(TRACES) else where + TRACES)


def export_spans(log: Log, exporter: "SpanExporter", epoch_unix: float, where: str) -> int:
    """Give the spans of a run to an exporter, in batches; an error if it does not take them."""
    from opentelemetry.sdk.trace.export import SpanExportResult

    sent = 0
    spans = JobSpans(read_history(log), epoch_unix).spans()
    while batch := list(islice(spans, BATCH)):
        if exporter.export(batch) is not SpanExportResult.SUCCESS:
            raise ClusterError(
                f"{where}: took {sent:,} spans and refused the next: is an OpenTelemetry collector "
                f"with OTLP over HTTP there?"
            )
        sent += len(batch)
    return sent


def make_tracer(ended: "list[ReadableSpan]", ids: "IdGenerator | None" = None) -> "Tracer":
    """What makes spans, each of them kept in a list when it ends; `ids`: random, if not given."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    class Ended(SpanProcessor):
        def on_end(self, span: "ReadableSpan") -> None:
            ended.append(span)

    provider = TracerProvider(
        sampler=ALWAYS_ON,
        resource=Resource({"service.name": "rota"}),
        shutdown_on_exit=False,
        span_limits=SpanLimits(max_links=MOST_LINKS),
        id_generator=ids,
    )
    provider.add_span_processor(Ended())
    return provider.get_tracer("rota")


class JobSpans:
    """The spans of one run."""

    def __init__(self, history: History, epoch_unix: float) -> None:
        ended: list[ReadableSpan] = []
        self._tracer = make_tracer(ended)
        self._ended = ended
        self._history = history
        self._epoch_ns = round(epoch_unix * NANO)
        self._jobs: dict[int, SpanContext] = {}
        first = history.first.nonzero()[0].tolist()
        last = history.last.nonzero()[0].tolist()
        self._bounds = list(zip(first, last, strict=True))

    def spans(self) -> Iterator["ReadableSpan"]:
        """Jobs first, each after its parts; then the decisions."""
        for job in range(len(self._history.actors)):
            self._job(job)
            yield from self._taken()
        rows = self._history.only(*DECIDED)
        for time_s, group in groupby(rows, key=lambda row: row.time_s):
            self._decision(time_s, [(row.event, row.job) for row in group])
            yield from self._taken()

    def _taken(self) -> "list[ReadableSpan]":
        taken = list(self._ended)
        self._ended.clear()
        return taken

    def _job(self, slot: int) -> None:
        """An actor: a job, or a task of a non-gang job, which is a root of its own."""
        from opentelemetry.trace import Status, StatusCode, set_span_in_context

        history = self._history
        first, last = self._bounds[slot]
        entry = int(history.entry_row[slot])
        owner = int(history.owner[slot])
        name = history.text(int(history.entry_row[owner]))
        over = history.kind[last] in TERMINAL
        state = LABELS[history.kind[last]] if over else "unfinished"
        told = {
            "rota.job": name,
            "rota.gpus": float(history.value[entry]),
            "rota.tenant": history.tenants.get(int(history.tenant[slot]), ""),
            "rota.state": state,
        }
        kind = "job" if owner == slot else "task"
        root = self._start(f"{kind} {name}", float(history.from_s[first]), told)
        self._jobs[int(history.actors[slot])] = root.get_span_context()
        if history.kind[last] in FAILED:
            root.set_status(Status(StatusCode.ERROR, history.text(int(history.row[last])) or state))
        inside = set_span_in_context(root)
        for span in range(first, last + 1):
            if history.state[span] == OVER or not history.length_s[span]:
                continue
            part = self._start(*self._part(span), context=inside)
            part.end(self._ns(float(history.until_s[span])))
        root.end(self._ns(float(history.until_s[last])))

    def _part(self, span: int) -> tuple[str, float, dict[str, Any]]:
        history = self._history
        begins = float(history.from_s[span])
        if history.state[span] == RUNS:
            return "running", begins, {"rota.gpus": float(history.held[span])}
        if history.state[span] == OVERHEAD:
            return "overhead", begins, {"rota.gpus": float(history.held[span])}
        reason = Reason(int(history.reason[span]))
        return "waiting", begins, {"rota.reason": reason.label} if reason else {}

    def _decision(self, time_s: float, changes: list[tuple[int, int]]) -> None:
        from opentelemetry.trace import Link

        told = {
            f"rota.{LABELS[kind]}": sum(event == kind for event, _ in changes) for kind in DECIDED
        }
        links = [Link(self._jobs[job], {"rota.change": LABELS[event]}) for event, job in changes]
        self._start("decision", time_s, told, links=links).end(self._ns(time_s))

    def _start(self, name: str, time_s: float, told: Mapping[str, Any], **options: Any) -> Any:
        return self._tracer.start_span(
            name, attributes=dict(told), start_time=self._ns(time_s), **options
        )

    def _ns(self, time_s: float) -> int:
        return self._epoch_ns + round(time_s * NANO)
