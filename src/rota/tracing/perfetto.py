"""A run as a trace for Perfetto (ui.perfetto.dev): what was on which GPU, and how long the queue.

| In Rota | In the trace |
| --- | --- |
| node (or pool) | process |
| GPU | track of its process; fractions of a GPU have tracks of their own |
| job on a GPU | slice, category `running` or `overhead` (being started, stopped or moved) |
| preemption, eviction | flow from the slice that ended to the one that goes on |
| jobs that wait, jobs that run, GPUs in use | counters |
| node down, up, closed, opened | instants of the process |

The slices add up to the GPU-seconds that jobs held. The log says how many GPUs of a node a job has,
not which: they are numbered as in the report. Time 0 is the beginning of the run.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl

from rota.core.errors import OptionError, OutputError, install, why_unwritten
from rota.core.eventlog import NODE_CHANGES
from rota.core.log import LABELS, Record
from rota.metrics import History, read_history
from rota.report.data import Log, queue, utilisation
from rota.report.lanes import gantt

NANO = 1_000_000_000
SEQUENCE = 1
_DUST = 1e-6  # of a GPU


def write_perfetto(log: Log, path: Path) -> int:
    """Write the trace of a run.

    Args:
        log: The event log or its history.
        path: The file; it is there only when it is complete.

    Returns:
        How many slices it has.
    """
    trace = PerfettoTrace(read_history(log))
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.writelines(trace.packets())
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise OutputError(f"{path}: {why_unwritten(error, 'name another file')}") from error
    return trace.slices


class PerfettoTrace:
    """The packets of one run; a trace is nothing but one packet after the other."""

    def __init__(self, history: History) -> None:
        try:
            from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema
        except ImportError as error:
            raise OptionError(
                f"a trace for Perfetto needs the package perfetto: {install('perfetto')}"
            ) from error
        self._schema: Any = schema
        self._event: Any = schema.TrackEvent
        self._history = history
        self._processes: dict[str, int] = {}
        self._tracks: dict[tuple[str, float], int] = {}
        self._last = 0  # number of the last track
        self.slices = 0

    def packets(self) -> Iterator[bytes]:
        """Every track comes before what is on it."""
        bars = gantt(self._history).sort("start_s", maintain_order=True)
        nodes = self._history.nodes.names
        pools = [name for name in bars["node"].unique(maintain_order=True) if name not in nodes]
        shown = nodes if not pools or bars["node"].is_in(nodes).any() else []
        for name in [*shown, *pools]:
            yield self._process(name)
        yield from self._counters()
        yield from self._jobs(bars)
        yield from self._node_changes()

    # --- tracks -----------------------------------------------------------------------------------

    def _process(self, name: str) -> bytes:
        track = self._new_track()
        self._processes[name] = track.uuid
        track.process.pid = len(self._processes)
        track.process.process_name = name
        return self._descriptor(track)

    def _gpu(self, node: str, lane: float) -> Iterator[bytes]:
        """The track of a GPU, or of a part of it that begins at a fraction."""
        if (node, lane) in self._tracks:
            return
        gpu, offset = int(lane + _DUST), lane - int(lane + _DUST)
        track = self._new_track()
        self._tracks[node, lane] = track.uuid
        track.parent_uuid = self._processes[node]
        track.name = f"GPU {gpu}" if offset < _DUST else f"GPU {gpu}, from {offset:.3g}"
        track.sibling_order_rank = round(lane * 1000)
        yield self._descriptor(track)

    def _new_track(self) -> Any:
        self._last += 1
        return self._schema.TrackDescriptor(uuid=self._last)

    def _descriptor(self, track: Any) -> bytes:
        packet = self._schema.TracePacket(track_descriptor=track)
        return self._bytes(packet)

    # --- events -----------------------------------------------------------------------------------

    def _counters(self) -> Iterator[bytes]:
        jobs = queue(self._history)
        use = utilisation(self._history)
        for name, table, column in (
            ("Jobs that wait", jobs, "waiting"),
            ("Jobs that run", jobs, "running"),
            ("GPUs in use", use, "allocated"),
        ):
            track = self._new_track()
            track.name = name
            track.counter.SetInParent()
            yield self._descriptor(track)
            before = None
            for time_s, value in table.select("time_s", column).iter_rows():
                if value != before:
                    event = self._event(
                        type=self._event.TYPE_COUNTER,
                        track_uuid=track.uuid,
                        double_counter_value=value,
                    )
                    yield self._at(time_s, event)
                before = value

    def _jobs(self, bars: pl.DataFrame) -> Iterator[bytes]:
        """A slice for every GPU of a bar; the first of them carries the flows."""
        leaves, arrives = self._flows(bars)
        known = self._entries()
        for number, bar in enumerate(bars.iter_rows(named=True)):
            told = {**known[bar["job"]], "gpus_here": bar["gpus"]}
            for turn, lane in enumerate(_lanes(bar["lane"], bar["lanes"])):
                yield from self._gpu(bar["node"], lane)
                event = self._event(
                    type=self._event.TYPE_SLICE_BEGIN,
                    track_uuid=self._tracks[bar["node"], lane],
                    name=bar["job_id"],
                    categories=[bar["kind"]],
                )
                self._annotate(event, told)
                if not turn:
                    event.flow_ids.extend(leaves.get(number, ()))
                    event.terminating_flow_ids.extend(arrives.get(number, ()))
                yield self._at(bar["start_s"], event)
                end = self._event(type=self._event.TYPE_SLICE_END, track_uuid=event.track_uuid)
                yield self._at(bar["end_s"], end)
                self.slices += 1

    def _entries(self) -> dict[int, dict[str, Any]]:
        """What every slice of a job says of it."""
        history = self._history
        rows = history.entry_row[history.is_job]
        tenants = history.tenants
        return {
            int(history.job[row]): {
                "number": int(history.job[row]),
                "gpus": float(history.value[row]),
                "submitted_s": float(history.time_s[row]),
                "tenant": tenants.get(int(history.other[row]), ""),
            }
            for row in rows.tolist()
        }

    def _flows(self, bars: pl.DataFrame) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
        """For bars by their numbers: flows that leave them, and flows that arrive.

        Tasks of a non-gang job share its number, so nobody can tell which of them goes on: they
        have none.
        """
        of_job: dict[int, tuple[list[float], list[int]]] = {}
        for number, (job, start_s) in enumerate(bars.select("job", "start_s").iter_rows()):
            starts, numbers = of_job.setdefault(job, ([], []))
            starts.append(start_s)
            numbers.append(number)
        leaves: dict[int, list[int]] = {}
        arrives: dict[int, list[int]] = {}
        halted: dict[int, int] = {}  # bar that ended, by job
        flow = 0
        for row in self._history.only(Record.STOP, Record.EVICTED, Record.START, Record.MOVE):
            starts, numbers = of_job.get(row.job, ([], []))
            at = bisect_left(starts, row.time_s)
            if row.event in (Record.STOP, Record.EVICTED):
                if at:
                    halted.setdefault(row.job, numbers[at - 1])
            elif row.job in halted and at < len(starts):
                flow += 1
                leaves.setdefault(halted.pop(row.job), []).append(flow)
                arrives.setdefault(numbers[at], []).append(flow)
        return leaves, arrives

    def _node_changes(self) -> Iterator[bytes]:
        nodes = self._history.nodes
        names = dict(zip(nodes.number.tolist(), nodes.names, strict=True))
        for row in self._history.only(*NODE_CHANGES):
            track = self._processes.get(names.get(row.node, ""))
            if track is not None:
                event = self._event(
                    type=self._event.TYPE_INSTANT,
                    track_uuid=track,
                    name=LABELS[row.event].replace("_", " "),
                    categories=["node"],
                )
                self._annotate(event, {"why": row.text} if row.text else {})
                yield self._at(row.time_s, event)

    # --- packets ----------------------------------------------------------------------------------

    @staticmethod
    def _annotate(event: Any, told: Mapping[str, Any]) -> None:
        for name, value in told.items():
            note = event.debug_annotations.add(name=name)
            if isinstance(value, str):
                note.string_value = value
            elif isinstance(value, int):
                note.int_value = value
            else:
                note.double_value = value

    def _at(self, time_s: float, event: Any) -> bytes:
        packet = self._schema.TracePacket(timestamp=round(time_s * NANO), track_event=event)
        return self._bytes(packet)

    def _bytes(self, packet: Any) -> bytes:
        packet.trusted_packet_sequence_id = SEQUENCE
        written: bytes = self._schema.Trace(packet=[packet]).SerializeToString()
        return written


def _lanes(first: float, width: float) -> list[float]:
    """Where the slices of a bar are: one for each whole GPU, or its part of one."""
    if width < 1 - _DUST:
        return [round(first, 6)]
    return [first + turn for turn in range(round(width))]
