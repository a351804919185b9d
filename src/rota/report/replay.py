"""A replay as one HTML page: what happened, and what would have, side by side.

The page needs no network, and no script for its pictures: they are SVG inside it.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import polars as pl

from rota.core.unfinished import write_whole
from rota.core.words import NONE, counted, duration
from rota.metrics.vocabulary import alike, count, written
from rota.report.frame import PageSection, ReportPage, ReportTile, as_typed, folded, scrolling
from rota.report.style import COLOURS, log_ticks
from rota.study.fidelity import CLOSE, LEAST_JOBS, LIMITS, ROUGH, GroupFidelity
from rota.study.replay.recorded import NAME
from rota.study.replay.replay import REPORT, Answer
from rota.study.replay.tables import (
    ALSO,
    BETTER,
    BY,
    MODEL,
    OBSERVED,
    UNTRUSTED,
    WITHIN,
    WORSE,
    effect,
    lookup,
    main_groups,
    unserved,
)

MOST_GROUPS = 12
MOST_TILES = 5
SHOWN = (
    ("mean_wait_s", "mean wait", "s"),
    ("p50_wait_s", "median wait", "s"),
    ("p95_wait_s", "p95 wait", "s"),
    ("mean_jct_s", "mean JCT", "s"),
    ("use", "GPU utilisation", "share"),
    ("refused", "jobs that it cannot run", "count"),
    ("waiting", "jobs that wait for a maintenance or reservation without an end", "count"),
)
RARE = ("waiting",)  # left out where it is 0 everywhere
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640.0, 260.0, 46.0, 30.0
_POINTS = 200
_FIDELITY = ("jobs", "observed mean wait", "simulated", "bias", "mean error of a job",
             "rank correlation", "K-S distance", "mean distance", "verdict")  # fmt: skip
_LEGEND = (
    "<p class='note'>Small numbers: the change against the model, or the error of the model "
    "against what was observed. A change has a colour only where it is larger than that error.</p>"
)


def write_page(answer: Answer, folder: Path, command: Sequence[str] = ()) -> Path:
    """Write the page into a folder."""
    return write_whole(folder / REPORT, html(answer, command))


def html(answer: Answer, command: Sequence[str] = ()) -> str:
    """The page."""
    verdict, *more = _verdict(answer)
    return ReportPage(
        kind="Replay",
        title=f"Replay of {PurePath(answer.asked.log).name}",
        verdict=verdict,
        more=more,
        warnings=[f"{answer.model.sentence}."] if answer.far else [],
        tiles=_key_numbers(answer),
        facts=_facts(answer),
        sections=[
            PageSection("all", "What happened, and what would have", _overall(answer)),
            PageSection("added", "The jobs that were added", _added(answer)),
            PageSection("trust", "Can it be trusted?", _trust(answer)),
            PageSection("waits", "Waiting times", _curves(answer)),
            *(PageSection(f"by-{by}", f"By {by}", _by(answer, by)) for by in BY),
            PageSection("books", "The log and its books", _books(answer)),
            PageSection(
                "meaning", "What the numbers mean", folded("Definitions", _meaning(), printed=True)
            ),
        ],
        command=as_typed(command),
    ).html()


def _verdict(answer: Answer) -> list[str]:
    """What changes, as far as the model can tell; of a model that is far, nothing."""
    if answer.far:
        return ["No policy comes close to what happened: no change below can be trusted."]
    cells = _cells(answer, "all", "all")
    found = {
        schedule.name: (schedule.role, cell)
        for schedule, cell in zip(answer.schedules, cells, strict=True)
    }
    model = next((cell for role, cell in found.values() if role == MODEL), {})
    seen = next((cell for role, cell in found.values() if role == OBSERVED), {})
    said = [
        text
        for name, (role, cell) in found.items()
        if role not in (OBSERVED, MODEL) and (text := _said(name, cell, model, seen))
    ]
    return [*said, f"{answer.model.sentence}."] if said else [f"{answer.model.sentence}."]


def _said(name: str, cell: dict[str, Any], model: dict[str, Any], seen: dict[str, Any]) -> str:
    """One schedule against the model of today."""
    ours, theirs = cell.get("mean_wait_s"), model.get("mean_wait_s")
    same = unserved(cell) == unserved(model)
    kind = effect(ours, theirs, seen.get("mean_wait_s"), same_jobs=same)
    if kind not in (BETTER, WORSE):
        return (
            f"{name}: no difference to today can be told; the change is not larger than the "
            f"error of the model."
            if kind == WITHIN
            else ""
        )
    return (
        f"{name} is {kind} than today: the mean wait would be {duration(ours)} instead of "
        f"{duration(theirs)}, which is more than the error of the model."
    )


def _key_numbers(answer: Answer) -> list[ReportTile]:
    """Mean waits: what happened, the model of today with its error, and the others."""
    cells = _cells(answer, "all", "all")
    roles = [schedule.role for schedule in answer.schedules]
    model, seen = cells[roles.index(MODEL)], cells[roles.index(OBSERVED)]
    made = []
    for schedule, cell in zip(answer.schedules, cells, strict=True):
        value = cell.get("mean_wait_s")
        kind, note = "", ""
        if schedule.role == OBSERVED:
            note = "what happened"
        elif schedule.role == MODEL:
            bias = answer.model.whole.bias
            note = "the model of today" + ("" if bias is None else f", error {bias:+.0%}")
        else:
            same = unserved(cell) == unserved(model)
            found = (
                UNTRUSTED
                if answer.far
                else effect(
                    value, model.get("mean_wait_s"), seen.get("mean_wait_s"), same_jobs=same
                )
            )
            kind = found if found in (BETTER, WORSE) else ""
            note = f"against the model of today: {found or 'the same'}"
        made.append(ReportTile(f"mean wait, {schedule.name}", duration(value), note, kind))
    return made[:MOST_TILES]


def _facts(answer: Answer) -> list[tuple[str, str]]:
    facts = answer.facts()
    cluster = facts["cluster"]
    return [
        ("jobs", count(facts["ran"])),
        ("from", str(facts["origin"])),
        ("over", duration(facts["log_end_s"])),
        ("machines", f"{cluster['nodes']:,} with {cluster['gpus']:,} GPUs, from {cluster['from']}"),
        ("model of today", f"{answer.model.policy} ({answer.model.verdict})"),
        ("changes", str(facts["changes"] or "none")),
    ]


def _overall(answer: Answer) -> str:
    """A row per measure, a column per schedule, with the change against the model."""
    cells = _cells(answer, "all", "all")
    body = "".join(_line(answer, label, cells, key, unit) for key, label, unit in _shown(cells))
    gpus = "".join(f"<td>{schedule.gpus:,}</td>" for schedule in answer.schedules)
    body = f"<tr><th scope='row'>GPUs</th>{gpus}</tr>{body}"
    return f"<p>{escape(answer.model.sentence)}.</p>{_table('', _heads(answer), body)}{_LEGEND}"


def _shown(cells: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    return [each for each in SHOWN if each[0] not in RARE or any(c.get(each[0]) for c in cells)]


def _heads(answer: Answer) -> list[str]:
    """Names of schedules; the model is marked."""
    return [f"{s.name} = model" if s.role == MODEL else s.name for s in answer.schedules]


def _cells(answer: Answer, by: str, group: str) -> list[dict[str, Any]]:
    rows = lookup(answer.table)
    return [rows.get((by, group, schedule.name), {}) for schedule in answer.schedules]


def _line(answer: Answer, label: str, cells: Sequence[dict[str, Any]], key: str, unit: str) -> str:
    """Values of schedules; only a change beyond the error of the model has a colour."""
    roles = [schedule.role for schedule in answer.schedules]
    values: list[float | None] = [cell.get(key) for cell in cells]
    model, seen = cells[roles.index(MODEL)], cells[roles.index(OBSERVED)]
    text = ""
    for role, cell, value, shown in zip(roles, cells, values, alike(values, unit), strict=True):
        kind, small = "", ""
        base = seen.get(key) if role == MODEL else model.get(key)
        if unit == "s" and role != OBSERVED and base and value is not None:
            small = f"{value / base - 1:+.0%}"
            if role == MODEL:
                small = f"error {small}"
            else:
                same = unserved(cell) == unserved(model)
                found = (
                    UNTRUSTED if answer.far else effect(value, base, seen.get(key), same_jobs=same)
                )
                kind = found if found in (BETTER, WORSE) else ""
                small += f" ({found})" if found and not kind else ""
            small = f"<small>{small}</small>"
        text += f'<td class="{kind}">{escape(shown)}{small}</td>'
    return f"<tr><th scope='row'>{escape(label)}</th>{text}</tr>"


def _added(answer: Answer) -> str:
    """What jobs get that came beside those of the log."""
    rows = list(answer.table.filter(by=ALSO).iter_rows(named=True))
    if not rows:
        return ""
    body = ""
    for key, label, unit in _shown(rows):
        shown = alike([row[key] for row in rows], unit)
        cells = "".join(f"<td>{escape(text)}</td>" for text in shown)
        body += f"<tr><th scope='row'>{escape(label)}</th>{cells}</tr>"
    heads = [f"{row['group']} ({row['jobs']:,} jobs) under {row['schedule']}" for row in rows]
    note = "<p class='note'>They are in no other table: those are of the jobs of the log.</p>"
    return _table("", heads, body) + note


def _table(head: str, names: Iterable[str], body: str) -> str:
    heads = "".join(f"<th scope='col'>{escape(name)}</th>" for name in names)
    first = f"<th scope='col'>{escape(head)}</th>" if head else "<td></td>"
    top = f"<thead><tr>{first}{heads}</tr></thead>"
    table = f'<table class="numbers">{top}<tbody>{body}</tbody></table>'
    return scrolling(table, head or "Schedules side by side")


def _by(answer: Answer, by: str) -> str:
    """Mean waits, completion and use of the groups that used most."""
    groups = main_groups(answer.table, by, MOST_GROUPS)
    if not groups:
        return ""
    text = ""
    of_group = {group: _cells(answer, by, group) for group in groups}
    for key, label, unit in (SHOWN[0], SHOWN[2], SHOWN[3], SHOWN[4]):
        body = "".join(
            _line(answer, f"{group} ({cells[0].get('jobs', 0):,} jobs)", cells, key, unit)
            for group, cells in of_group.items()
        )
        shown = " open" if key == SHOWN[0][0] else ""
        made = _table(by, _heads(answer), body)
        text += f"<details{shown}><summary>{escape(label)}</summary>{made}</details>"
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
        mark = f'<i class="swatch" style="background:{colour}"></i>'
        legend += f"<span>{mark}{escape(schedule.name)}</span>"
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
    """How close the policies come to what happened, and what a closer model would need."""
    model = answer.model
    how = "It was asked for." if answer.asked.model else "It is the closest of those tried."
    text = f"<p><b>{escape(model.sentence)}.</b> {how}</p>"
    closest = answer.fidelity[0]
    if closest.policy != model.policy:
        text += f"<p>{escape(closest.policy)} comes closer: {escape(closest.sentence)}.</p>"
    if answer.undecided:
        text += f"<p>{escape(answer.undecided)}.</p>"
    body = "".join(_fidelity_line(one.policy, one.whole, one.verdict) for one in answer.fidelity)
    text += _table("policy, all jobs", _FIDELITY, body)
    parts = "".join(_fidelity_line(one.told, one, "") for one in model.groups[1:])
    if parts:
        text += _table(f"{model.policy}, by group", _FIDELITY, parts) + _pairs_figure(answer)
    if model.verdict != CLOSE:
        items = "".join(f"<li>{escape(one)}.</li>" for one in answer.lacks)
        text += f"<p>What may explain the difference, and would help:</p><ul>{items}</ul>"
    return text


def _fidelity_line(label: str, found: GroupFidelity, verdict: str) -> str:
    times = alike([found.observed_mean_wait_s, found.mean_wait_s], "s")
    bias = NONE if found.bias is None else f"{found.bias:+.0%}"
    cells = [
        count(found.jobs), *times, bias, duration(found.mae_s),
        written(found.rank_correlation, "index"),
        written(found.ks, "index"), duration(found.wasserstein_s), verdict,
    ]  # fmt: skip
    tds = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f"<tr><th scope='row'>{escape(label)}</th>{tds}</tr>"


def _pairs_figure(answer: Answer) -> str:
    """Mean waits of groups, observed and of the model, as bars."""
    groups = [one for one in answer.model.groups[1:] if one.mean_wait_s is not None][:MOST_GROUPS]
    pairs = [(one.observed_mean_wait_s or 0.0, one.mean_wait_s or 0.0) for one in groups]
    most = max((value for pair in pairs for value in pair), default=0.0)
    if most <= 0:
        return ""
    left, step, bar = 150.0, 30.0, 11.0
    wide = _WIDTH - left - 80
    bars = ""
    for number, (one, pair) in enumerate(zip(groups, pairs, strict=True)):
        top = number * step + 4
        bars += (
            f'<text x="{left - 8}" y="{top + bar + 4:.1f}" text-anchor="end">{escape(one.told)}'
            f"</text>"
        )
        for place, value in enumerate(pair):
            y = top + place * bar
            length = wide * value / most
            bars += (
                f'<rect x="{left}" y="{y:.1f}" width="{max(length, 0.5):.1f}" height="{bar - 1}" '
                f'fill="{COLOURS[place]}"/><text x="{left + length + 5:.1f}" y="{y + bar - 2:.1f}" '
                f'font-size="10">{escape(duration(value))}</text>'
            )
    legend = "".join(
        f'<span><i class="swatch" style="background:{COLOURS[place]}"></i>{escape(name)}</span>'
        for place, name in enumerate((NAME, answer.model.policy))
    )
    height = len(groups) * step + 8
    return (
        f'<div class="legend">{legend}</div><figure><svg viewBox="0 0 {_WIDTH:.0f} {height:.0f}" '
        f'role="img" aria-label="Mean waits by group, observed and of the model" '
        f'style="max-width:46rem;width:100%;font-size:12px;fill:currentColor">{bars}</svg>'
        f"<figcaption>Mean wait by group: what happened, and the model of today</figcaption>"
        f"</figure>"
    )


def _books(answer: Answer) -> str:
    """The check of the books, contradictions, and what the import left out."""
    recorded = answer.recorded
    total = len(recorded.jobs)
    exact = recorded.exact == total
    found = [
        f"Check of the books: with the recorded starts, the waiting times of {recorded.exact:,} of "
        f"{total:,} jobs come out to the second"
        + ("." if exact else f"; the largest difference is {duration(recorded.worst_s)}.")
        + " That the log was read right says nothing about policies.",
    ]
    quality = answer.imported.quality
    found += [f"Left out: {counted(many, 'row')}: {why}." for why, many in quality.dropped.items()]
    found += [f"Changed: {counted(many, 'row')}: {why}." for why, many in quality.repaired.items()]
    found += [f"{text}." for text in answer.warnings]
    items = "".join(f"<li>{escape(text)}</li>" for text in found)
    return f"<ul>{items}</ul>"


def _meaning() -> str:
    close, rough = LIMITS[CLOSE], LIMITS[ROUGH]
    return (
        f"<p><b>{NAME}</b> is the schedule of the log. The others are simulations of the same jobs "
        "with the run times of the log. Waits are all times since the submission in which a job "
        "made no progress. JCT is the time from the submission to the end, without jobs that still "
        "ran when the log was taken. GPU utilisation is a share of all GPUs, of a partition one of "
        "the GPUs of its own nodes. A simulation knows only those failures of nodes that the log "
        "shows, no reservations, and no limits but those that were given. "
        f"{NONE}: no number.</p>"
        "<p>The <b>bias</b> is the mean of simulated minus observed waits, as a share of the "
        "observed mean (of a minute if it is less). The rank correlation is Spearman's; the K-S "
        "distance (Kolmogorov-Smirnov) is the largest difference between the two distributions of "
        "waits, and the mean distance (Wasserstein) the mean one. Waits below a minute are alike "
        f"for ranks and K-S. <b>close</b>: the bias is at most {close.bias:.0%} for all jobs and "
        f"in every partition with {LEAST_JOBS} jobs or more, the mean distance within partitions "
        f"at most {close.distance:.0%} of the observed mean wait, the rank correlation at least "
        f"{close.rank_correlation:g}, and at most {close.refused:.0%} of the "
        f"jobs cannot be run. <b>rough</b>: {rough.bias:.0%}, {rough.distance:.0%}, "
        f"{rough.rank_correlation:g} and {rough.refused:.0%}. <b>far</b>: less than that.</p>"
    )
