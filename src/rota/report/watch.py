"""Runs as animations: one page with the cluster, the queue and the decisions of one run or two.

The page is a single file. What happens when is packed into it (`columns`); `web/watch.js` plays it.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import polars as pl

from rota.core.errors import InputError
from rota.core.events import INF
from rota.core.log import LABELS, Record
from rota.core.reasons import Reason
from rota.core.version import VERSION
from rota.metrics.delay import Waits
from rota.metrics.history import History
from rota.metrics.ledger import active_range
from rota.report import style
from rota.report.columns import Times, packed, singles
from rota.report.data import queue, tenant_shares
from rota.report.frame import embedded, policy_of, write_whole_page
from rota.report.lanes import gantt, shown_nodes
from rota.report.payload import BARS, POINTS, among, fates, job_table
from rota.report.source import ReportSource, RunView, read_source, source_of
from rota.report.style import main_tenants, natural
from rota.study.follow import FollowedRun, find_live
from rota.study.output import EVENTS
from rota.web import asset, bundle

MOST_RUNS = 2
WAITS = 60_000
"""Intervals of waiting of a run, at most; longer ones first."""
_DECISIONS = (
    Record.START, Record.MOVE, Record.STOP, Record.EVICTED, Record.REJECTED, Record.NODE_DOWN,
    Record.NODE_UP,
)  # fmt: skip
_STARTS, _AGAIN, _MOVES, _STOPPED, _LOSES, _REFUSED, _DOWN, _UP = range(8)
_WHAT = {
    Record.START: _STARTS, Record.MOVE: _MOVES, Record.STOP: _STOPPED, Record.EVICTED: _LOSES,
    Record.REJECTED: _REFUSED, Record.NODE_DOWN: _DOWN, Record.NODE_UP: _UP,
}  # fmt: skip


def write_watch_page(folders: Sequence[Path], to: Path) -> Path:
    """Write the page of one run or two; a file that is there is replaced."""
    write_whole_page(to, watch_page(read_runs(folders)), option="-o")
    return to


def read_runs(folders: Sequence[Path]) -> list[ReportSource]:
    """The runs of these folders, each of which holds one that is done."""
    return [read_run(folder) for folder in folders]


def read_run(folder: Path) -> ReportSource:
    """The run of a folder."""
    if not (folder / EVENTS).exists() and find_live(folder) is not None:
        raise InputError(
            f"{folder}: is still being simulated: watch it without -o, or wait until it is done"
        )
    source = read_source(folder)
    if len(source.comparison.runs) > 1:
        names = ", ".join(str(folder / run.folder) for run in source.comparison.runs[:5])
        raise InputError(f"{folder}: holds several runs: name one or two of them: {names}")
    return source


def live_run(about: FollowedRun, log: pl.DataFrame) -> ReportSource | None:
    """A run that is still being simulated, as far as its log goes; None: no job has come yet."""
    if not (log["event"] == LABELS[Record.SUBMIT]).any():
        return None
    return source_of([RunView(about.policy, {}, log)], about.trace, about.cluster, [])


def watch_page(sources: Sequence[ReportSource], follow: str | None = None) -> str:
    """The page; `follow`: what it has of runs that go on, in the words of who serves it."""
    names = [source.comparison.baseline for source in sources]
    first = sources[0].comparison
    title = (
        f"{' and '.join(names)} on {PurePath(first.trace).name}, cluster "
        f"{PurePath(first.cluster).name}"
    )
    script = bundle("watch.js")
    css = "\n".join(asset(name).decode() for name in ("base.css", "watch.css"))
    data = embedded(watch_data(sources, follow))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"{policy_of(script, asks=follow is not None)}"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta name="generator" content="Rota {escape(VERSION)}">\n'
        f'<title>{escape(title)}</title>\n<link rel="icon" href="data:,">\n'
        f"<style>\n{css}\n</style>\n</head>\n<body>\n"
        f'<header class="head"><h1>{escape(title)}</h1><p><span id="about">'
        f"{_about(sources, follow)}</span> Space plays and "
        "pauses, a point steps to the next decision, arrows move.</p></header>\n"
        '<main><div id="controls" role="toolbar" aria-label="Player"></div>'
        '<div id="legend" class="legend"></div><div id="stages"></div></main>\n'
        "<noscript><p>This page needs JavaScript; it is inside this file.</p></noscript>\n"
        f'<script type="application/json" id="data">{data}</script>\n'
        f"<script>\n{script}\n</script>\n</body>\n</html>\n"
    )


def waiting_page(folders: Sequence[Path]) -> str:
    """What is shown until the runs are done: it asks again by itself."""
    names = " and ".join(escape(str(folder)) for folder in folders)
    css = asset("base.css").decode()
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"{policy_of('')}"
        '<meta http-equiv="refresh" content="1">\n<meta name="color-scheme" content="light dark">\n'
        f"<title>Not done yet</title>\n<style>\n{css}\n</style>\n</head>\n<body>\n<main>"
        f"<h1>{names}: not done yet</h1><p>The run is shown here when its log is written.</p>"
        "</main>\n</body>\n</html>\n"
    )


def _about(sources: Sequence[ReportSource], follow: str | None) -> str:
    jobs = sources[0].looks[0].jobs.height
    many = f"{jobs:,} jobs" if jobs != 1 else "one job"
    if follow is not None:
        return f"{many} so far: it is still being simulated, and the page goes on with it."
    return f"{many}, {'the same for both, on one clock.' if len(sources) > 1 else 'as they ran.'}"


# --- data ----------------------------------------------------------------------------------------


def watch_data(sources: Sequence[ReportSource], follow: str | None = None) -> dict[str, Any]:
    """What happens in the runs, as plain data."""
    looks = [source.looks[0] for source in sources]
    tables: list[dict[str, Any]] = []
    origin_s = min(active_range(look.history)[0] for look in looks)
    runs = [_run(look, origin_s, tables) for look in looks]
    if len({run["policy"] for run in runs}) < len(runs):
        for run, source in zip(runs, sources, strict=True):
            run["policy"] += f" ({source.folder})"
    return {
        "about": _about(sources, follow),
        "follow": follow,
        "kept": main_tenants([tenant_shares(look.history) for look in looks]),
        "reasons": [
            [
                reason.label,
                style.REASON_COLOURS.get(reason.label, "#888888"),
                style.REASONS_ON_DARK.get(reason.label, "#999999"),
            ]
            for reason in Reason
        ],
        "jobs": tables,
        "runs": runs,
    }


def _run(look: RunView, origin_s: float, tables: list[dict[str, Any]]) -> dict[str, Any]:
    history = look.history
    bars = gantt(history)
    if bars.height > BARS:
        area = (pl.col("end_s") - pl.col("start_s")) * pl.col("lanes")
        bars = bars.sort(area, descending=True).head(BARS).sort("start_s", "job")
    used = bars.group_by("node").agg(most=(pl.col("lane") + pl.col("lanes")).max().round(6).ceil())
    shown = shown_nodes(history).join(used, on="node", how="left")
    shown = shown.with_columns(gpus=pl.max_horizontal("gpus", pl.col("most").fill_null(0.0)))
    rows = sorted(shown.iter_rows(named=True), key=lambda row: natural(row["node"]))
    number = {row["node"]: i for i, row in enumerate(rows)}
    numbers = history.actors[history.is_job]
    table: pl.DataFrame = queue(history)
    if table.height > POINTS:
        table = queue(history, POINTS - 1)
    return {
        "policy": look.name,
        "until_s": round(active_range(history)[1] - origin_s, 3),
        "nodes": [{"name": row["node"], "gpus": int(row["gpus"])} for row in rows],
        "jobs": among(tables, job_table(look.jobs, origin_s)),
        "fates": fates(look),
        "bars": packed(
            {
                "job": np.searchsorted(numbers, bars["job"].to_numpy()).astype("<i4"),
                "node": np.array([number[name] for name in bars["node"]], dtype="<u2"),
                "lane": singles(bars["lane"].to_numpy()),
                "lanes": singles(bars["lanes"].to_numpy()),
                "gpus": singles(bars["gpus"].to_numpy()),
                "start": Times(bars["start_s"].to_numpy() - origin_s),
                "length": singles((bars["end_s"] - bars["start_s"]).to_numpy()),
                "overhead": (bars["kind"] == "overhead").to_numpy().astype(np.uint8),
            }
        ),
        "waits": _waits(history, origin_s),
        "events": _events(history, origin_s, number),
        "queue": packed(
            {
                "time": Times(table["time_s"].to_numpy() - origin_s),
                "waiting": singles(table["waiting"].to_numpy()),
            }
        ),
    }


def _job_of(history: History, actors: Any) -> Any:
    """The numbers of the jobs of actors, in the order of the trace."""
    numbers = history.actors[history.is_job]
    return np.searchsorted(numbers, history.actors[history.owner[actors]])


def _waits(history: History, origin_s: float) -> dict[str, Any]:
    """Who waited from when on, for how long and why; being started is no waiting."""
    waits = Waits(history)
    found = [
        (actor, wait.from_s, wait.seconds, wait.reason)
        for actor in range(len(history.actors))
        for wait in waits.of(actor)
        if wait.reason != Reason.OVERHEAD
    ]
    if len(found) > WAITS:
        found = sorted(found, key=lambda row: -row[2])[:WAITS]
    found.sort(key=lambda row: (row[1], row[0]))
    actor, from_s, seconds, reason = (np.array(column) for column in zip(*found, strict=True)) if (
        found
    ) else (np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0), np.zeros(0))  # fmt: skip
    return packed(
        {
            "job": _job_of(history, actor.astype(np.int64)).astype("<i4"),
            "from": Times(from_s - origin_s),
            "length": singles(seconds),
            "reason": reason.astype(np.uint8),
        }
    )


def _events(history: History, origin_s: float, nodes: dict[str, int]) -> dict[str, Any]:
    """What was decided, and what befell: see `WHAT` of `web/play.js`."""
    rows = history.rows_of(*_DECISIONS)
    # A start that waits for others to leave is told when they have left.
    rows = rows[~((history.event[rows] == Record.START) & (history.value[rows] == INF))]
    event, job, other = history.event[rows], history.job[rows], history.other[rows]
    what = np.array([_WHAT[Record(kind)] for kind in event.tolist()], dtype=np.uint8)
    what[(event == Record.START) & (other == 1)] = _AGAIN
    of_job = np.full(len(rows), -1, dtype=np.int64)
    mine = job >= 0
    of_job[mine] = _job_of(history, history.actor_of(job[mine]))
    by = np.full(len(rows), -1, dtype=np.int64)
    displaced = (event == Record.STOP) & (other >= 0)
    by[displaced] = _job_of(history, history.actor_of(other[displaced]))
    about_nodes = np.isin(event, (Record.NODE_DOWN, Record.NODE_UP))
    vertices = dict(zip(history.nodes.number.tolist(), history.nodes.names, strict=True))
    by[about_nodes] = [
        nodes.get(vertices.get(ref, ""), -1) for ref in history.ref[rows[about_nodes]].tolist()
    ]
    kept = ~about_nodes | (by >= 0)
    return packed(
        {
            "time": Times(history.time_s[rows][kept] - origin_s),
            "what": what[kept],
            "job": of_job[kept].astype("<i4"),
            "other": by[kept].astype("<i4"),
        }
    )
