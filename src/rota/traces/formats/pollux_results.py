"""What Pollux' cluster did: `<policy>.log` (often in a zip), JSON lines of about one per minute.

Each line has a `timestamp` and the `submitted_jobs`, each with its name, creation and completion
times, phase and `allocation` (a list of nodes, one entry per GPU). The observed schedule is the
series of spans with the same allocation. A job is taken to ask for the number of GPUs that it held
for the longest time; its run time is the time in which it held any, weighted by that number.
"""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from rota.core.errors import TraceError
from rota.core.sums import ordered_sum
from rota.core.workload import Quality
from rota.traces.format import Reader
from rota.traces.imported import Imported
from rota.traces.observed import DONE, FAILED, RUNNING, Observed, Seen
from rota.traces.sources import blocks, decode
from rota.traces.tidy import Common, Rest, import_rows

_STATES = {"Succeeded": DONE, "Failed": FAILED, "Running": RUNNING}


class _Entry(msgspec.Struct, rename="camel"):
    name: str
    creation_timestamp: str | float | None = None
    completion_timestamp: str | float | None = None
    phase: str = ""
    allocation: list[str] | None = None


class _Line(msgspec.Struct):
    timestamp: float
    submitted_jobs: list[_Entry] = []


class _Span(msgspec.Struct):
    start_s: float
    end_s: float
    nodes: tuple[str, ...]


class _Life(msgspec.Struct):
    submit_s: float
    end_s: float | None = None
    phase: str = ""
    spans: list[_Span] = []


class PolluxResults(Reader):
    """Reads the log of a run."""

    name = "pollux-results"
    description = "log of a run of Pollux' cluster (JSON lines, also inside its zip)"

    def import_file(self, path: Path, params: Common) -> Imported:
        """All jobs, and how they were placed over time."""
        import polars as pl

        quality = Quality()
        lives = _lives(path, params, quality)
        quality.rows += len(lives)
        rows = [(name, *_job(life)) for name, life in lives.items()]
        schema = {
            "job_id": pl.String, "submit_s": pl.Float64, "num_gpus": pl.Float64,
            "duration_s": pl.Float64, "_cut": pl.Boolean, "_status": pl.String,
            "model": pl.String,
        }  # fmt: skip
        frame = pl.DataFrame(
            [(*row, row[0].rpartition("-")[0]) for row in rows], schema=schema, orient="row"
        )
        imported = import_rows(path, frame, params, quality, rest=Rest(name=path.stem, dated=True))
        origin_s = min((lives[name].submit_s for name in imported.jobs["job_id"]), default=0.0)
        observed = Observed.of(
            seen
            for index, name in enumerate(imported.jobs["job_id"])
            for seen in _seen(index, lives[name], origin_s)
        )
        return Imported(
            imported.jobs,
            observed=observed,
            quality=quality,
            name=imported.name,
            origin=imported.origin,
            notes=["jobs are elastic: the size is the one held for the longest time"],
        )


FORMAT = PolluxResults()


def _lives(path: Path, params: Common, quality: Quality) -> dict[str, _Life]:
    lives: dict[str, _Life] = {}
    decoder = msgspec.json.Decoder(_Line)
    number = 0
    for block in blocks(path, TraceError):
        for text in decode(block, path, TraceError).split("\n"):
            number += 1
            if not text.strip():
                continue
            try:
                line = decoder.decode(text)
                for entry in line.submitted_jobs:
                    _follow(lives, entry, line.timestamp)
            except (msgspec.DecodeError, ValueError, OverflowError) as error:
                if params.bad == "refuse":
                    raise TraceError(
                        f"{path}: line {number}: is not a line of the log ({error}): correct it, "
                        f"or drop such lines with the option bad=drop"
                    ) from error
                quality.rows += 1
                quality.drop("not a line of the log")
    if not lives:
        raise TraceError(f"{path}: names no jobs: give a log of a run")
    return lives


def _follow(lives: dict[str, _Life], entry: _Entry, now_s: float) -> None:
    """One look at a job: its allocation holds until the next look."""
    life = lives.get(entry.name)
    if life is None:
        submit_s = _time_s(entry.creation_timestamp)
        life = lives[entry.name] = _Life(now_s if submit_s is None else submit_s)
    life.phase = entry.phase or life.phase
    end_s = _time_s(entry.completion_timestamp)
    last = life.spans[-1] if life.spans else None
    if last is not None and life.end_s is None:
        last.end_s = max(last.start_s, min(now_s, now_s if end_s is None else end_s))
    life.end_s = end_s
    nodes = tuple(sorted(entry.allocation or ()))
    if end_s is None and nodes != (last.nodes if last else ()):
        life.spans.append(_Span(now_s, now_s, nodes))


def _time_s(value: Any) -> float | None:
    if value is None or value in ("", "None"):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    time = datetime.fromisoformat(value)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _job(life: _Life) -> tuple[float, float, float | None, bool, str]:
    held: Counter[int] = Counter()
    for span in life.spans:
        if span.nodes:
            held[len(span.nodes)] += max(1, round(span.end_s - span.start_s))
    if not held:
        return life.submit_s, 1.0, None, False, life.phase
    size = held.most_common(1)[0][0]
    service = ordered_sum((span.end_s - span.start_s) * len(span.nodes) for span in life.spans)
    return life.submit_s, float(size), service / size, life.end_s is None, life.phase


def _seen(index: int, life: _Life, origin_s: float) -> list[Seen]:
    spans = [span for span in life.spans if span.nodes]
    out = []
    for number, span in enumerate(spans):
        here = Counter(span.nodes)
        last = number == len(spans) - 1
        state = _STATES.get(life.phase, "") if last else "preempted"
        ended = not (last and life.end_s is None)
        out.append(
            Seen(
                index,
                span.start_s - origin_s,
                span.end_s - origin_s if ended else None,
                tuple(here),
                tuple(map(float, here.values())),
                state,
            )
        )
    return out
