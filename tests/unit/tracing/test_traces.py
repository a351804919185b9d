"""Runs as traces for other tools: what is in them adds up to the event log."""

import http.server
import subprocess
import sys
import threading
from collections import Counter

import numpy as np
import polars as pl
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from rota.cli.app import run
from rota.core.errors import ClusterError
from rota.core.eventlog import EventLog
from rota.core.log import LABELS
from rota.metrics import read_history
from rota.metrics.history import RUNS
from rota.study.config import RunConfig
from rota.study.run import simulate
from rota.tracing.live_spans import LiveSpans, stream_spans
from rota.tracing.perfetto import write_perfetto
from rota.tracing.spans import export_spans
from rota.wire import Event
from shared_data import shared

NANO = 1_000_000_000
JOBS = """\
job_id,submit_s,num_gpus,duration_s,vc
long,0,8,1000,research
short,100,4,50,teaching
half,200,0.5,40,teaching
quarter,200,0.25,70,teaching
"""


@pytest.fixture(scope="module")
def preempted(tmp_path_factory):
    """Return the folder of a run with a preemption, starts that cost time, and fractions."""
    place = tmp_path_factory.mktemp("run")
    (place / "jobs.csv").write_text(JOBS)
    code = run([
        "simulate", str(place / "jobs.csv"), "--cluster", "2x4", "--policy", "srtf",
        "--costs", "pollux30", "-o", str(place / "out"),
    ])  # fmt: skip
    assert code == 0
    return place / "out"


def log_of(folder):
    return pl.read_parquet(folder / "events.parquet")


class Opened:
    """A trace, as a tool reads it that knows only Perfetto's schema."""

    def __init__(self, path):
        trace = Trace.FromString(path.read_bytes())
        self.tracks = {
            packet.track_descriptor.uuid: packet.track_descriptor
            for packet in trace.packet
            if packet.HasField("track_descriptor")
        }
        self.events = [
            (packet.timestamp, packet.track_event)
            for packet in trace.packet
            if packet.HasField("track_event")
        ]
        self.slices = []
        open_ = {}
        for at, event in sorted(self.events, key=lambda pair: pair[0]):
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                assert event.track_uuid not in open_, "two slices of a track overlap"
                open_[event.track_uuid] = (at, event)
            elif event.type == TrackEvent.TYPE_SLICE_END:
                began, begin = open_.pop(event.track_uuid)
                self.slices.append((began, at, begin))
        assert not open_, "every slice ends"

    def where(self, event):
        track = self.tracks[event.track_uuid]
        return self.tracks[track.parent_uuid].process.process_name, track.name

    def counter(self, name):
        (uuid,) = [uuid for uuid, track in self.tracks.items() if track.name == name]
        return [(at / NANO, event.double_counter_value) for at, event in self.events
                if event.track_uuid == uuid]  # fmt: skip


def gpu_seconds(folder):
    history = read_history(log_of(folder))
    return float((history.held * history.length_s).sum())


def test_slices_add_up_to_the_gpus_that_jobs_held(preempted, tmp_path):
    path = tmp_path / "run.pftrace"
    assert write_perfetto(log_of(preempted), path) == len(Opened(path).slices)
    opened = Opened(path)
    widths = {"half": 0.5, "quarter": 0.25}
    held = sum((end - begin) * widths.get(event.name, 1) for begin, end, event in opened.slices)
    assert held / NANO == pytest.approx(gpu_seconds(preempted), rel=1e-12)
    assert Counter(track.process.process_name for track in opened.tracks.values()
                   if track.HasField("process")) == {"n0": 1, "n1": 1}  # fmt: skip
    places = {opened.where(event) for _, _, event in opened.slices if event.name == "long"}
    assert {f"GPU {number}" for number in range(4)} == {gpu for _, gpu in places}
    assert {node for node, _ in places} == {"n0", "n1"}
    assert {event.categories[0] for _, _, event in opened.slices} == {"running", "overhead"}


def test_a_preemption_is_a_flow_to_where_the_job_goes_on(preempted, tmp_path):
    write_perfetto(log_of(preempted), tmp_path / "t")
    opened = Opened(tmp_path / "t")
    stops = (log_of(preempted)["event"] == "stop").sum()
    leaves = {flow: (end, event.name) for _, end, event in opened.slices for flow in event.flow_ids}
    arrives = {flow: (begin, event.name) for begin, _, event in opened.slices
               for flow in event.terminating_flow_ids}  # fmt: skip
    assert stops >= 1
    assert len(leaves) == len(arrives) == stops
    for flow, (end, name) in leaves.items():
        assert arrives[flow][1] == name == "long"
        assert arrives[flow][0] >= end


def test_the_counters_follow_the_queue(preempted, tmp_path):
    write_perfetto(log_of(preempted), tmp_path / "t")
    opened = Opened(tmp_path / "t")
    waiting = opened.counter("Jobs that wait")
    assert max(value for _, value in waiting) >= 1
    assert waiting[-1][1] == 0
    assert max(value for _, value in opened.counter("GPUs in use")) == 8


def test_philly_adds_up(tmp_path, capsys):
    trace = shared("reference/common/philly1000.csv")
    out, path = tmp_path / "out", tmp_path / "philly.pftrace"
    options = ["--cluster", "36x8", "--policy", "tiresias", "-o", str(out)]
    assert run(["simulate", str(trace), *options]) == 0
    capsys.readouterr()
    assert run(["export", str(out), "--perfetto", str(path)]) == 0
    opened = Opened(path)
    assert capsys.readouterr().out == f"{path}: {len(opened.slices):,} slices\n"
    total = sum(end - begin for begin, end, _ in opened.slices) / NANO
    assert total == pytest.approx(gpu_seconds(out), rel=1e-12)
    assert len({event.name for _, _, event in opened.slices}) == 1000


# --- OpenTelemetry --------------------------------------------------------------------------------


def test_a_job_is_a_trace_and_its_parts_fill_it(preempted):
    memory = InMemorySpanExporter()
    log = log_of(preempted)
    count = export_spans(log, memory, 1_700_000_000.0, "memory")
    spans = memory.get_finished_spans()
    assert len(spans) == count
    roots = {span.context.trace_id: span for span in spans if span.name.startswith("job ")}
    assert len(roots) == 4
    history = read_history(log)
    ran_ns = 0
    for trace, root in roots.items():
        parts = [span for span in spans if span.parent and span.context.trace_id == trace]
        assert sum(part.end_time - part.start_time for part in parts) == pytest.approx(
            root.end_time - root.start_time, abs=len(parts)
        )
        assert root.attributes["rota.state"] == "done"
        ran_ns += sum(part.end_time - part.start_time for part in parts if part.name == "running")
    ran_s = float(np.where(history.state == RUNS, history.length_s, 0).sum())
    assert ran_ns / NANO == pytest.approx(ran_s, rel=1e-9)
    first = min(root.start_time for root in roots.values())
    assert first == 1_700_000_000 * NANO

    decisions = [span for span in spans if span.name == "decision"]
    changes = Counter()
    for decision in decisions:
        changes.update({key: decision.attributes[f"rota.{key}"] for key in ("start", "stop")})
        assert all(link.context.trace_id in roots for link in decision.links)
    events = log["event"].cast(pl.String)
    assert changes == {"start": (events == "start").sum(), "stop": (events == "stop").sum()}


def test_spans_that_a_collector_refuses_are_an_error(preempted):
    class Refuses(InMemorySpanExporter):
        def export(self, spans):
            return SpanExportResult.FAILURE

    with pytest.raises(ClusterError, match="took 0 spans"):
        export_spans(log_of(preempted), Refuses(), 0.0, "http://collector")


def events_of(log, epoch_unix=1_700_000_000.0):
    """The rows of a log as a daemon tells them."""
    for number, row in enumerate(EventLog(log), 1):
        yield Event(
            number=number, time_s=row.time_s, at=epoch_unix + row.time_s, event=LABELS[row.event],
            job=str(row.job) if row.job >= 0 else None, ref=row.ref, other=row.other,
            value=row.value, text=row.text,
        )  # fmt: skip


def seen(spans):
    """What spans say, without their ids: those of one job have one number."""
    names = {span.context.trace_id: span.name for span in spans if span.parent is None}
    return sorted(
        (
            names[span.context.trace_id], span.name, span.start_time, span.end_time,
            sorted(span.attributes.items()), span.status.status_code.name,
            sorted((names[each.context.trace_id], *each.attributes.values())
                   for each in span.links),
        )
        for span in spans
    )  # fmt: skip


@pytest.fixture(scope="module")
def troubled(tmp_path_factory):
    """Return the log of a run with failures of nodes, preemptions and starts that cost time."""
    place = tmp_path_factory.mktemp("run")
    lines = [f"{i},{i * 37},{(1, 2, 4, 8)[i % 4]},{60 + i * 97 % 900},t{i % 3}" for i in range(60)]
    (place / "jobs.csv").write_text("\n".join([JOBS.splitlines()[0], *lines]) + "\n")
    config = RunConfig(
        trace=str(place / "jobs.csv"), cluster="4x4", policy="las:limits=100/400",
        costs="pollux30", mtbf=0.5, mttr=0.1,
    )  # fmt: skip
    return simulate(config).log


def test_spans_that_are_streamed_are_those_of_the_whole_log(preempted, troubled):
    for log in (log_of(preempted), troubled):
        whole, live = InMemorySpanExporter(), InMemorySpanExporter()
        count = export_spans(log, whole, 1_700_000_000.0, "memory")
        told = []
        stream_spans(events_of(log), live, "memory", told.append)
        assert seen(live.get_finished_spans()) == seen(whole.get_finished_spans())
        assert told[-1] == count


def test_a_span_is_sent_when_its_part_ends(preempted):
    sent = []

    class Counted(InMemorySpanExporter):
        def export(self, spans):
            sent.append((number, [span.name for span in spans]))
            return SpanExportResult.SUCCESS

    number = 0

    def rows():
        nonlocal number
        for event in events_of(log_of(preempted)):
            number = event.number
            yield event

    stream_spans(rows(), Counted(), "memory", lambda _: None, clock=lambda: 0.0)
    order = [name for _, names in sent for name in names]
    assert order.index("running") < order.index("job short"), "parts come before the end"
    assert len({row for row, _ in sent}) > 5, "with the rows, not at the end"

    sent.clear()
    stream_spans(rows(), Counted(), "memory", lambda _: None, clock=lambda: 1e12)
    assert len(sent) == 1, "what is old is gathered"


def test_who_follows_again_sends_the_same_spans(preempted):
    found = []
    for _ in range(2):
        memory = InMemorySpanExporter()
        stream_spans(events_of(log_of(preempted)), memory, "memory", lambda _: None)
        spans = memory.get_finished_spans()
        found.append([(span.context.trace_id, span.context.span_id) for span in spans])
    assert found[0] == found[1]
    assert len(set(found[0])) == len(found[0])


def test_a_row_that_nobody_saw_in_time_has_its_own():
    spans = LiveSpans()
    rows = [
        (1.0, "submit", "1", 0, 0, 1.0, "a"), (3.0, "start", "1", 0, 0, 3.0, None),
        (9.0, "late", None, -1, -1, 7.0, None), (9.0, "failed", "1", -1, -1, 0.0, "exit 3"),
    ]  # fmt: skip
    for number, (time_s, kind, job, ref, other, value, text) in enumerate(rows, 1):
        spans.row(
            Event(number=number, time_s=time_s, at=100 + time_s, event=kind, job=job, ref=ref,
                  other=other, value=value, text=text)
        )  # fmt: skip
    waiting, decision, running, job = spans.taken()
    assert [waiting.name, running.name, job.name] == ["waiting", "running", "job a"]
    assert decision.name == "decision", "told with the next instant"
    assert [job.start_time, running.end_time, job.end_time] == [101 * NANO, 107 * NANO, 107 * NANO]
    assert (job.status.status_code.name, job.status.description) == ("ERROR", "exit 3")


@pytest.mark.parametrize(
    "words",
    [["--follow"], ["--follow", "--otel", "u", "-o", "d"], ["d", "--follow", "--otel", "u"]],
)
def test_following_is_about_a_daemon_and_a_collector(words, capsys):
    assert run(["export", *words]) == 2
    assert "--follow" in capsys.readouterr().err


def test_spans_arrive_at_a_collector(preempted, capsys):
    got = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            import gzip

            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            got.append((self.path, ExportTraceServiceRequest.FromString(body)))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(ExportTraceServiceResponse().SerializeToString())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        assert run(["export", str(preempted), "--otel", url]) == 0
    finally:
        server.shutdown()
        server.server_close()
    assert {path for path, _ in got} == {"/v1/traces"}
    names = Counter(
        span.name
        for _, request in got
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    )
    assert names["job long"] == 1
    assert f"{sum(names.values()):,} spans" in capsys.readouterr().out


# --- the command ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "nothing to write: give -o DIR, --perfetto FILE or --otel URL"),
        (["RUN", "--state", "x", "--perfetto", "t"], "both say what: give one"),
        (["RUN", "-o", "folder"], "is such a folder already"),
        (["--perfetto", "t", "--sacct"], "give -o DIR, too"),
        (["RUN", "--perfetto", "no/such/folder/t"], "No such file or directory"),
    ],
)
def test_what_makes_no_sense_is_refused(preempted, options, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["export", *(str(preempted) if word == "RUN" else word for word in options)]) != 0
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra_it_says_how_to_get_it(preempted):
    code = (
        "import sys; sys.modules['perfetto'] = None; from rota.cli.app import run; "
        f"sys.exit(run(['export', {str(preempted)!r}, '--perfetto', '/nowhere']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "needs the package perfetto" in done.stderr
    assert ".[perfetto]" in done.stderr
