"""Spans as jobs change state: the log of a daemon is followed, and each part is sent as it ends.

The spans are those of `rota.tracing.spans`. Their ids follow from the log, so that whoever follows
again sends the same spans once more and no others.
"""

from collections.abc import Callable, Iterable
from hashlib import sha256
from time import time
from typing import TYPE_CHECKING, Any

from rota.core.errors import ClusterError
from rota.core.events import INF
from rota.core.log import LABELS, Record
from rota.core.reasons import Reason
from rota.metrics.history import TERMINAL
from rota.tracing.spans import BATCH, DECIDED, FAILED, NANO, make_tracer, otlp_exporter

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

    from rota.wire import Event

BEHIND_S = 2.0  # rows that are older are gathered, so that it catches up
_KINDS = {label: Record(number) for number, label in enumerate(LABELS)}
_ENTERS = (Record.SUBMIT, Record.TASK)
_PLACED = (Record.START, Record.MOVE)
_HALTED = (Record.STOP, Record.EVICTED)
_LIFE = (
    *_ENTERS, Record.ADMITTED, Record.HELD, *_PLACED, Record.RUN, *_HALTED, Record.STOPPED,
    Record.REASON, *TERMINAL,
)  # fmt: skip
_ENDS_STOP = (Record.STOPPED, Record.DONE, Record.FAILED, Record.TIMEOUT)


def follow_spans(events: "Iterable[Event]", endpoint: str, told: Callable[[int], None]) -> None:
    """Send spans to a collector as rows come, until there are no more; `told` how many were sent.

    Raises:
        ClusterError: The collector does not take them.
    """
    exporter = otlp_exporter(endpoint)
    try:
        stream_spans(events, exporter, endpoint, told)
    finally:
        exporter.shutdown()  # type: ignore[no-untyped-call]


def stream_spans(
    events: "Iterable[Event]",
    exporter: "SpanExporter",
    where: str,
    told: Callable[[int], None],
    clock: Callable[[], float] = time,
) -> None:
    """The same, to any exporter."""
    from opentelemetry.sdk.trace.export import SpanExportResult

    spans, sent = LiveSpans(), 0

    def send() -> None:
        nonlocal sent
        batch = spans.taken()
        if not batch:
            return
        if exporter.export(batch) is not SpanExportResult.SUCCESS:
            raise ClusterError(
                f"{where}: took {sent:,} spans and refused the next: is an OpenTelemetry collector "
                f"with OTLP over HTTP there?"
            )
        sent += len(batch)
        told(sent)

    for event in events:
        spans.row(event)
        if len(spans.ended) >= BATCH or event.at >= clock() - BEHIND_S:
            send()
    spans.decided()
    send()


class _OpenJob:
    """A job that is not over: its span, and the row at which its present part began."""

    def __init__(self, root: Any, kind: Record, time_s: float) -> None:
        self.root = root
        self.kind = kind
        self.time_s = time_s
        self.value = 0.0
        self.gpus = 0.0
        self.node = -1  # that failed under it
        self.back_s: float | None = None  # when that was up again


class LiveSpans:
    """Spans from rows of a log, one after the other; `ended`: those that are to be sent."""

    def __init__(self) -> None:
        from opentelemetry.sdk.trace.id_generator import IdGenerator

        class FromLog(IdGenerator):
            trace = span = ""

            def generate_trace_id(self) -> int:
                return int(sha256(self.trace.encode()).hexdigest()[:32], 16)

            def generate_span_id(self) -> int:
                return int(sha256(self.span.encode()).hexdigest()[:16], 16)

        self._ids = FromLog()
        self.ended: list[ReadableSpan] = []
        self._tracer = make_tracer(self.ended, self._ids)
        self._epoch_ns: int | None = None
        self._jobs: dict[int, _OpenJob] = {}
        self._names: dict[int, tuple[str, str]] = {}  # of jobs: name and tenant, for their tasks
        self._tenants: dict[int, str] = {}
        self._gpus: dict[int, float] = {}  # of allocations
        self._late_s: float | None = None
        self._decision: tuple[float, list[tuple[Record, Any]]] = -1.0, []

    def taken(self) -> "list[ReadableSpan]":
        """Those that are to be sent, once."""
        taken = list(self.ended)
        self.ended.clear()
        return taken

    def row(self, event: "Event") -> None:
        """Go on with a row."""
        kind = _KINDS[event.event]
        if self._epoch_ns is None:
            self._epoch_ns = round((event.at - event.time_s) * NANO)
        time_s, self._late_s = event.time_s if self._late_s is None else self._late_s, None
        value = INF if event.value is None else event.value  # JSON has no inf
        if self._decision[1] and time_s != self._decision[0]:
            self.decided()
        if kind == Record.LATE:
            self._late_s = value
        elif kind == Record.TENANT:
            self._tenants[event.ref] = event.text or ""
        elif kind == Record.ALLOCATION:
            self._gpus[event.ref] = self._gpus.get(event.ref, 0.0) + value
        elif kind == Record.NODE_UP:
            for job in self._jobs.values():
                if job.kind == Record.EVICTED and job.node == event.ref and job.back_s is None:
                    job.back_s = time_s
        elif event.job is not None and kind in _LIFE and (kind != Record.REASON or event.ref == -1):
            self._life(int(event.job), kind, time_s, event)

    # --- jobs -------------------------------------------------------------------------------------

    def _life(self, number: int, kind: Record, time_s: float, event: "Event") -> None:
        if kind in _ENTERS:
            self._enter(number, kind, time_s, event)
            return
        job = self._jobs.get(number)
        if job is None:
            return  # it came before the first row that is known
        self._part(job, kind, time_s, event.number)
        if kind in DECIDED:
            self._decide(kind, time_s, job)
        if kind in TERMINAL:
            self._end(number, job, kind, time_s, event.text)
            return
        job.kind, job.time_s = kind, time_s
        job.value = INF if event.value is None else event.value
        job.node, job.back_s = event.ref if kind == Record.EVICTED else -1, None
        if kind in _PLACED:
            job.gpus = self._gpus.get(event.ref, 0.0)

    def _enter(self, number: int, kind: Record, time_s: float, event: "Event") -> None:
        if kind == Record.SUBMIT:
            name, tenant = event.text or "", self._tenants.get(event.other, "")
            self._names[number] = name, tenant
        else:
            name, tenant = self._names.get(event.other, ("", ""))
        told = {"rota.job": name, "rota.gpus": event.value, "rota.tenant": tenant}
        self._ids.trace = f"{self._epoch_ns} {number}"
        self._ids.span = f"{self._epoch_ns} {number} root"
        what = "job" if kind == Record.SUBMIT else "task"
        self._jobs[number] = _OpenJob(self._start(f"{what} {name}", time_s, told), kind, time_s)

    def _part(self, job: _OpenJob, following: Record, time_s: float, row: int) -> None:
        """What it did until this row, which also says what that was."""
        from opentelemetry.trace import set_span_in_context

        inside = set_span_in_context(job.root)
        if job.back_s is not None and following not in _ENDS_STOP:  # the rest is plain waiting
            back_s, job.back_s = job.back_s, None
            self._part(job, following, back_s, -row)
            job.kind, job.time_s = Record.STOPPED, back_s
        if time_s > job.time_s:
            self._ids.span = f"{self._epoch_ns} {row}"
            name, told = _told(job, following)
            self._start(name, job.time_s, told, context=inside).end(self._ns(time_s))

    def _end(
        self, number: int, job: _OpenJob, kind: Record, time_s: float, text: str | None
    ) -> None:
        from opentelemetry.trace import Status, StatusCode

        job.root.set_attribute("rota.state", LABELS[kind])
        if kind in FAILED:
            job.root.set_status(Status(StatusCode.ERROR, text or LABELS[kind]))
        job.root.end(self._ns(time_s))
        del self._jobs[number]
        self._names.pop(number, None)

    # --- decisions --------------------------------------------------------------------------------

    def _decide(self, kind: Record, time_s: float, job: _OpenJob) -> None:
        if time_s != self._decision[0]:
            self._decision = time_s, []
        self._decision[1].append((kind, job.root.get_span_context()))

    def decided(self) -> None:
        """The last decision is known whole."""
        from opentelemetry.trace import Link

        time_s, changes = self._decision
        if not changes:
            return
        told = {f"rota.{LABELS[kind]}": sum(one == kind for one, _ in changes) for kind in DECIDED}
        links = [Link(context, {"rota.change": LABELS[kind]}) for kind, context in changes]
        self._ids.trace = self._ids.span = f"{self._epoch_ns} decision {time_s}"
        self._start("decision", time_s, told, links=links).end(self._ns(time_s))
        self._decision = -1.0, []

    def _start(self, name: str, time_s: float, told: dict[str, Any], **options: Any) -> Any:
        return self._tracer.start_span(
            name, attributes=told, start_time=self._ns(time_s), **options
        )

    def _ns(self, time_s: float) -> int:
        return (self._epoch_ns or 0) + round(time_s * NANO)


def _told(job: _OpenJob, following: Record) -> tuple[str, dict[str, Any]]:
    """What a job did after a row, as `rota.metrics.history` tells it: the next row may say more."""
    kind = job.kind
    runs = kind == Record.RUN or (kind in _PLACED and 0 <= job.value <= job.time_s)
    if runs:
        return "running", {"rota.gpus": job.gpus}
    if kind in _PLACED:
        held = 0.0 if job.value == INF else job.gpus
        return "overhead", {"rota.gpus": held}
    if kind in _HALTED and following in _ENDS_STOP:
        return "overhead", {"rota.gpus": job.gpus}
    reason = Reason(int(job.value)) if kind in (Record.HELD, Record.REASON) else Reason(0)
    if kind == Record.EVICTED and job.node >= 0:
        reason = Reason.DOWN
    return "waiting", {"rota.reason": reason.label} if reason else {}
