"""A replay as one HTML page: what happened, and what would have, side by side.

The page needs no script and no network: pictures are SVG inside it.
"""

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import polars as pl

from rota.experiments.replay import REPORT, Answer
from rota.experiments.replay_recorded import NAME
from rota.experiments.replay_tables import BY, lookup, main_groups
from rota.report.frame import framed
from rota.report.style import COLOURS, log_ticks
from rota.report.words import NOTHING, alike, count, duration

MOST_GROUPS = 12
SHOWN = (
    ("mean_wait_s", "mean wait", "s"),
    ("p50_wait_s", "median wait", "s"),
    ("p95_wait_s", "95 % of waits below", "s"),
    ("mean_jct_s", "mean JCT", "s"),
    ("use", "GPUs used until the end of the log", "share"),
    ("refused", "jobs that it cannot run", "count"),
)
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640.0, 260.0, 46.0, 30.0
_POINTS = 200


def write_page(answer: Answer, folder: Path) -> Path:
    """Write the page into a folder."""
    page = folder / REPORT
    part = page.with_name(page.name + ".part")
    part.write_text(html(answer), encoding="utf-8")
    part.replace(page)
    return page


def html(answer: Answer) -> str:
    """The page."""
    title = f"Replay of {PurePath(answer.asked.log).name}"
    css = (files("rota.report") / "page.css").read_text(encoding="utf-8")
    sections = [
        ("What happened, and what would have", _overall(answer)),
        ("Waiting times", _curves(answer)),
        *((f"By {by}", text) for by in BY if (text := _by(answer, by))),
        ("Can it be trusted?", _trust(answer)),
        ("What the numbers mean", _meaning()),
    ]
    return framed(title, css, _facts(answer), sections)


def _facts(answer: Answer) -> str:
    facts = answer.facts()
    cluster = facts["cluster"]
    pairs = [
        ("jobs", count(facts["ran"])),
        ("from", facts["origin"]),
        ("over", duration(facts["log_end_s"])),
        ("machines", f"{cluster['nodes']:,} with {cluster['gpus']:,} GPUs, from {cluster['from']}"),
        ("changes", facts["changes"] or "none"),
    ]
    items = "".join(f"<li>{escape(name)}: <b>{escape(str(text))}</b></li>" for name, text in pairs)
    return f'<ul class="facts">{items}</ul>\n'


def _overall(answer: Answer) -> str:
    """A row per measure, a column per schedule, with the change to what was observed."""
    rows = lookup(answer.table)
    names = [schedule.name for schedule in answer.schedules]
    cells = [rows["all", "all", name] for name in names]
    body = "".join(
        _line(label, [cell[key] for cell in cells], unit, better="less" if unit == "s" else "")
        for key, label, unit in SHOWN
    )
    gpus = "".join(f"<td>{schedule.gpus:,}</td>" for schedule in answer.schedules)
    body = f"<tr><th scope='row'>GPUs</th>{gpus}</tr>{body}"
    return _table("", names, body)


def _line(label: str, values: Sequence[float | None], unit: str, *, better: str) -> str:
    cells = ""
    first = values[0]
    for value, text in zip(values, alike(values, unit), strict=True):
        kind, small = "", ""
        if better and first and value is not None and value is not values[0]:
            change = value / first - 1
            kind = "better" if change < 0 else "worse" if change > 0 else ""
            small = f"<small>{change:+.0%}</small>"
        cells += f'<td class="{kind}">{escape(text)}{small}</td>'
    return f"<tr><th scope='row'>{escape(label)}</th>{cells}</tr>"


def _table(head: str, names: Iterable[str], body: str) -> str:
    heads = "".join(f"<th scope='col'>{escape(name)}</th>" for name in names)
    return (
        f"<div class='scroll'><table><thead><tr><th scope='col'>{escape(head)}</th>{heads}</tr>"
        f"</thead><tbody>{body}</tbody></table></div>"
    )


def _by(answer: Answer, by: str) -> str:
    """Mean waits, completion and use of the groups that used most."""
    groups = main_groups(answer.table, by, MOST_GROUPS)
    if not groups:
        return ""
    rows = lookup(answer.table)
    names = [schedule.name for schedule in answer.schedules]
    text = ""
    for key, label, unit in (SHOWN[0], SHOWN[2], SHOWN[3], SHOWN[4]):
        body = ""
        for group in groups:
            cells: list[dict[str, Any]] = [rows.get((by, group, name), {}) for name in names]
            jobs = cells[0].get("jobs", 0)
            values = [cell.get(key) for cell in cells]
            better = "less" if unit == "s" else ""
            body += _line(f"{group} ({jobs:,} jobs)", values, unit, better=better)
        shown = " open" if key == SHOWN[0][0] else ""
        text += (
            f"<details{shown}><summary>{escape(label)}</summary>{_table(by, names, body)}</details>"
        )
    total = answer.table.filter(pl.col("by") == by)["group"].n_unique()
    if total > len(groups):
        text += (
            f"<p class='note'>The {len(groups)} of {total:,} that used most; all are in "
            f"replay.csv.</p>"
        )
    return text


def _curves(answer: Answer) -> str:
    """Shares of jobs that waited at most so long, as SVG."""
    waits = [
        np.sort(schedule.jobs["wait_s"].drop_nulls().to_numpy()) for schedule in answer.schedules
    ]
    most = max((float(values[-1]) for values in waits if len(values)), default=0.0)
    if most < 1:
        return "<p>Nobody waited.</p>"
    top = np.log10(max(most, 10.0) + 1.0)
    lines, legend = "", ""
    for number, (schedule, values) in enumerate(zip(answer.schedules, waits, strict=True)):
        colour = COLOURS[number % len(COLOURS)]
        dash = "" if number == 0 else f' stroke-dasharray="{8 - number % 4 * 2} {1 + number % 3}"'
        lines += (
            f'<polyline fill="none" stroke="{colour}" stroke-width="2"{dash} '
            f'points="{_points(values, top)}"/>'
        )
        legend += f'<span><i style="background:{colour}"></i>{escape(schedule.name)}</span>'
    marks = ""
    for at_s, label in log_ticks(1, most):
        x = _x(at_s, top)
        marks += (
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{_HEIGHT - _BOTTOM}" opacity=".15" '
            f'stroke="currentColor"/>'
            f'<text x="{x:.1f}" y="{_HEIGHT - 10}" text-anchor="middle">{label}</text>'
        )
    for share in (0.0, 0.5, 1.0):
        y = _y(share)
        marks += f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>'
    return (
        f'<div class="legend">{legend}</div><figure><svg viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" '
        f'role="img" aria-label="Shares of jobs by waiting time" style="max-width:46rem;width:100%;'
        f'font-size:12px;fill:currentColor">{marks}{lines}</svg>'
        f"<figcaption>Share of jobs that waited at most so long (logarithmic)</figcaption></figure>"
    )


def _points(values: Any, top: float) -> str:
    """The steps of a distribution, thinned out."""
    if not len(values):
        return ""
    places = np.unique(np.linspace(0, len(values) - 1, _POINTS).astype(int))
    found = [f"{_LEFT:.1f},{_y(0.0):.1f}"]
    for place in places.tolist():
        share = (place + 1) / len(values)
        found.append(f"{_x(float(values[place]), top):.1f},{_y(share):.1f}")
    found.append(f"{_WIDTH - 4:.1f},{_y(1.0):.1f}")
    return " ".join(found)


def _x(seconds: float, top: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - 4) * float(np.log10(seconds + 1.0)) / top


def _y(share: float) -> float:
    return 6 + (_HEIGHT - _BOTTOM - 12) * (1 - share)


def _trust(answer: Answer) -> str:
    """The check of the recorded schedule, contradictions, and what the import left out."""
    recorded = answer.recorded
    total = len(recorded.jobs)
    exact = recorded.exact == total
    found = [
        f"Replayed with the recorded starts, the waiting times of {recorded.exact:,} of {total:,} "
        f"jobs come out to the second"
        + ("." if exact else f"; the largest difference is {duration(recorded.worst_s)}."),
    ]
    quality = answer.imported.quality
    found += [f"Left out: {many:,} rows: {why}." for why, many in quality.dropped.items()]
    found += [f"Changed: {many:,} rows: {why}." for why, many in quality.repaired.items()]
    found += [f"{text}." for text in answer.warnings]
    items = "".join(f"<li>{escape(text)}</li>" for text in found)
    return f"<ul>{items}</ul>"


def _meaning() -> str:
    return (
        f"<p><b>{NAME}</b> is the schedule of the log. The others are simulations of the same jobs "
        "with the run times of the log. Waits are all times since the submission in which a job "
        "made no progress. JCT is the time from the submission to the end, without jobs that still "
        "ran when the log was taken. A simulation knows only those failures of nodes that the log "
        "shows, no reservations and "
        f"no limits but those that were given. {NOTHING}: no number.</p>"
    )
