"""The report as one HTML page without any reference to the outside."""

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import PurePath
from typing import Any

import numpy as np
import polars as pl

from rota.core.eventlog import Floats
from rota.core.version import VERSION
from rota.core.words import NONE, duration
from rota.metrics.delay import REASONS
from rota.metrics.history import History
from rota.metrics.ledger import active_range
from rota.metrics.vocabulary import Measure, alike, count
from rota.report import elastic, style
from rota.report.data import (
    TIMES,
    cdf,
    delays,
    judged,
    queue,
    ratios,
    tenant_shares,
    utilisation,
    without_ratio,
)
from rota.report.lanes import fragment_heat, gantt, node_heat, node_outages
from rota.report.source import ReportSource, RunView
from rota.report.style import by_tenant, coinciding, lane_rows, main_tenants, short_names
from rota.study.compare_file import Measured, PolicyComparison, PolicyRow
from rota.study.notes import LOUD

_MARKS = {"better": "\u2713", "worse": "\u2717", "unclear": "\u2248"}
_ONE = "One run: nothing is proven, so no winner is marked."
_SIDES = {"less": "less is better", "more": "more is better"}
_COLUMN_NAMES = {"jct_s": "completion times", "wait_s": "waiting times"}


def html(source: ReportSource) -> str:
    """The page."""
    comparison = source.comparison
    parts = {
        "title": escape(_title(source)),
        "facts": _facts(comparison),
        "numbers": _numbers(source),
        "notes": _notes(source.notes),
        "coincide": _coincide(source),
        "delays": _delays(comparison),
        "elastic": elastic.section(source.looks),
        "ratio_note": _ratio_note(comparison),
        "assumptions": _assumptions(comparison),
        "version": escape(VERSION),
        "css": _file("page.css"),
        "js": _file("page.js"),
        "data": embedded(payload(source)),
    }
    return _filled(_file("page.html"), parts)


def embedded(data: object) -> str:
    """JSON that can stand inside a script element: no text in it can end the element."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _filled(template: str, parts: Mapping[str, str]) -> str:
    """The template with its marks replaced, once: what is put in is not looked at again."""
    pieces = template.split("{{")
    out = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        out += [parts[name], rest]
    return "".join(out)


def _file(name: str) -> str:
    return (files("rota.report") / name).read_text(encoding="utf-8")


def _title(source: ReportSource) -> str:
    comparison = source.comparison
    who = comparison.baseline if source.single else f"{len(comparison.rows)} policies"
    return (
        f"{who} on {PurePath(comparison.trace).name}, cluster {PurePath(comparison.cluster).name}"
    )


def _facts(comparison: PolicyComparison) -> str:
    facts = [
        ("trace", comparison.trace),
        ("cluster", comparison.cluster),
        ("baseline" if len(comparison.rows) > 1 else "policy", comparison.baseline),
        ("seeds", ", ".join(map(str, comparison.seeds))),
        ("windows of the trace", ", ".join(map(str, comparison.windows))),
        ("jobs", _jobs(comparison)),
    ]
    items = (f"<li>{escape(name)}: <b>{escape(text)}</b></li>" for name, text in facts if text)
    return f'<ul class="facts">{"".join(items)}</ul>'


def _jobs(comparison: PolicyComparison) -> str:
    """How many; of a trace that was cut they are means over its windows."""
    jobs = count(comparison.rows[0].jobs)
    return f"{jobs} per window" if len(comparison.windows) > 1 else jobs


# --- tables --------------------------------------------------------------------------------------


def _numbers(source: ReportSource) -> str:
    comparison = source.comparison
    heads = "".join(f"<th scope='col'>{escape(row.policy)}</th>" for row in comparison.rows)
    knows = "".join(f"<td>{escape(row.knowledge or NONE)}</td>" for row in comparison.rows)
    body = "".join(_line(measure, comparison) for measure in comparison.measures)
    legend = "" if source.single else _legend(comparison)
    return (
        f'<div class="scroll"><table><thead><tr><th scope="col">measure</th>{heads}</tr></thead>'
        f"<tbody>{body}<tr><th scope='row'>knows</th>{knows}</tr></tbody></table></div>{legend}"
    )


def _line(measure: Measure, comparison: PolicyComparison) -> str:
    best = _best(measure, comparison.rows)
    found = [row.measures.get(measure.key) or Measured(None) for row in comparison.rows]
    if all(one.mean is None for one in found):
        return ""
    texts = alike((one.mean for one in found), measure.unit)
    cells = "".join(
        _cell(
            one if row.policy != comparison.baseline else Measured(None), text, row.policy == best
        )
        for row, one, text in zip(comparison.rows, found, texts, strict=True)
    )
    side = _SIDES.get(measure.better or "", "")
    title = f" title='{side}'" if side else ""
    return f"<tr><th scope='row'{title}>{escape(measure.label)}</th>{cells}</tr>"


def _cell(found: Measured, text: str, best: bool) -> str:  # noqa: FBT001 - private
    classes = " ".join(filter(None, (found.verdict or "", "best" if best else "")))
    if found.ratio is not None:
        mark = f"{_MARKS[found.verdict]} " if found.verdict else ""
        text += f"<small>{mark}{_ratio(found.ratio)}{_interval(found)}</small>"
    return f'<td class="{classes}">{text}</td>'


def _interval(found: Measured) -> str:
    if found.low is None or found.high is None:
        return ""
    ends = [_ratio(found.low), _ratio(found.high)]
    if found.ratio is not None and {*ends, _ratio(found.ratio)} == {"1.000"}:
        return ""  # nothing differs: nothing to be in doubt about
    return f" [{ends[0]}, {ends[1]}]"


def _best(measure: Measure, rows: Iterable[PolicyRow]) -> str | None:
    """The policy with the best mean, if it is clearly better than the baseline."""
    sign = {"less": 1.0, "more": -1.0}.get(measure.better or "")
    if sign is None:
        return None
    found = [(row.policy, row.measures.get(measure.key)) for row in rows]
    known = [(policy, m) for policy, m in found if m is not None and m.mean is not None]
    if not known:
        return None
    policy, first = min(known, key=lambda pair: sign * (pair[1].mean or 0.0))
    return policy if first.verdict == "better" else None


def _legend(comparison: PolicyComparison) -> str:
    text = comparison.method.strip().rstrip(".")
    method = f" ({escape(text)})" if text else ""
    marks = (
        f" {_MARKS['better']} better and {_MARKS['worse']} worse only where the interval excludes "
        f"1, {_MARKS['unclear']} else. Bold: the best of those that are clearly better."
    )
    one = "" if "no winner" in text else f" {_ONE}"
    return (
        f'<p class="note">Small: the ratio to {escape(comparison.baseline)} and its '
        f"{comparison.level * 100:g} % interval{method}.{marks if judged(comparison) else one}</p>"
    )


def _ratio_note(comparison: PolicyComparison) -> str:
    legend = "Filled: the interval excludes 1." if judged(comparison) else _ONE
    missing = "; ".join(without_ratio(comparison))
    return (
        f"{legend} Each label says which side is better. An arrow: the interval goes on beyond the "
        f"picture." + (f" Not drawn: {escape(missing)}." if missing else "")
    )


def _ratio(value: float) -> str:
    """`0.630`, `12.3`, `0.00021`: of ratios side by side all have the same digits."""
    size = abs(value)
    if 0 < size < 0.001:  # noqa: PLR2004 - would be written as 0.000
        return f"{value:.2g}"
    return f"{value:,.{3 if size < 10 else 1 if size < 100 else 0}f}"  # noqa: PLR2004 - digits


def _delays(comparison: PolicyComparison) -> str:
    shown = [name for name in REASONS if any(row.delay.get(name) for row in comparison.rows)]
    heads = "".join(f"<th scope='col'>{escape(name)}</th>" for name in shown)
    body = "".join(
        f"<tr><th scope='row'>{escape(row.policy)}</th>"
        + "".join(f"<td>{duration(row.delay.get(name) or 0.0)}</td>" for name in shown)
        + f"<td>{duration(sum(row.delay.values()))}</td></tr>"
        for row in comparison.rows
    )
    return (
        "<details><summary>The same as a table</summary><div class='scroll'><table><thead><tr>"
        f"<th scope='col'>policy</th>{heads}<th scope='col'>together</th></tr></thead>"
        f"<tbody>{body}</tbody></table></div></details>"
    )


def _assumptions(comparison: PolicyComparison) -> str:
    """What differs gets a column per policy; what all share is said once."""
    policies = [row.policy for row in comparison.rows]
    heads = "".join(f"<th scope='col'>{escape(policy)}</th>" for policy in policies)
    body = ""
    for assumption in comparison.assumptions:
        common = assumption.common
        if common is not None and len(policies) > 1:
            cells = f"<td colspan='{len(policies)}'>{escape(common)}</td>"
        else:
            texts = (assumption.values.get(policy, NONE) for policy in policies)
            cells = "".join(f"<td>{escape(text)}</td>" for text in texts)
        body += f"<tr><th scope='row'>{escape(assumption.key)}</th>{cells}</tr>"
    return (
        f'<div class="scroll"><table class="texts"><thead><tr><th></th>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _notes(notes: Iterable[str]) -> str:
    items = "".join(
        f'<li class="warn">{escape(text)}</li>'
        if text.startswith(LOUD)
        else f"<li>{escape(text)}</li>"
        for text in notes
    )
    if not items:
        return ""
    return (
        f'<section aria-labelledby="h-notes"><h2 id="h-notes">Notes</h2><ul>{items}</ul></section>'
    )


def _coincide(source: ReportSource) -> str:
    legend = ""
    for column in TIMES:
        curves = {look.name: cdf(look.jobs, column, look.window) for look in source.looks}
        for _, names, _ in coinciding(curves):
            if len(names) > 1:
                legend += (
                    f'<p class="note">The {_COLUMN_NAMES[column]} of '
                    f"{escape(' and '.join(names))} coincide.</p>"
                )
    return legend


# --- The data of the figures inside the page, kept small ------------------------------------------

POINTS = 2_000  # at most, of a curve
BARS = 40_000  # at most, of a policy; longer ones first
OUTAGES = 20_000  # at most, of a policy
CELLS = 60_000  # about as many in a heat map
DOWN_CELL = 255
FULL_CELL = 250


def payload(source: ReportSource) -> dict[str, Any]:
    """Everything that is drawn, as plain data."""
    comparison = source.comparison
    shares = {look.name: tenant_shares(look.history) for look in source.looks}
    kept = main_tenants(shares.values()) if shares else []
    tables: list[dict[str, Any]] = []
    looks = [_look(look, by_tenant(shares[look.name], kept), tables) for look in source.looks]
    policies = [row.policy for row in comparison.rows]
    waits = [sum(row.delay.values()) for row in comparison.rows]
    return {
        "baseline": comparison.baseline,
        "colours": {"light": style.COLOURS, "dark": style.COLOURS_ON_DARK},
        "dashes": [style.dash(number) for number in range(len(policies))],
        "reasons": {"light": style.REASON_COLOURS, "dark": style.REASONS_ON_DARK},
        "short": short_names(policies),
        "wait_texts": alike(waits, "s"),
        "uses": {"useful": style.USEFUL, "overhead": style.OVERHEAD, "down": style.DOWN},
        "policies": policies,
        "ratios": ratios(comparison).filter(pl.col("ratio").is_finite()).to_dicts(),
        "delays": [
            [_short(value) for value in part["wait_s"].to_list()]
            for part in delays(comparison).partition_by("policy", maintain_order=True)
        ],
        "jobs": tables,
        "looks": looks,
    }


def _look(look: RunView, tenants: pl.DataFrame, tables: list[dict[str, Any]]) -> dict[str, Any]:
    history = look.history
    origin_s, until_s = active_range(history)
    return {
        "policy": look.name,
        "until_s": _short(until_s - origin_s, 3),
        "cdf": {column: _curve(cdf(look.jobs, column, look.window)) for column in TIMES},
        "utilisation": _series(history, utilisation, origin_s),
        "queue": _series(history, queue, origin_s),
        "tenants": {
            "names": tenants.columns[1:],
            "shares": [_rounded(tenants[name].to_numpy(), 4) for name in tenants.columns[1:]],
        },
        "heat": _heat(lambda bins: node_heat(history, bins)),
        "fragments": _heat(
            lambda bins: fragment_heat(history, look.basis, bins), style.LEAST_SHARE
        ),
        "jobs": _job_table(look.jobs, tables),
        "gantt": _gantt(history, origin_s),
    }


def _curve(table: pl.DataFrame) -> list[list[float]]:
    """Times and shares; of many points some, evenly in share, with both ends."""
    if table.height > POINTS:
        wanted = np.linspace(0.0, 1.0, POINTS)
        chosen = np.unique(np.minimum(table["share"].search_sorted(wanted), table.height - 1))
        table = table[np.append(0, chosen).tolist()].unique("share", keep="first").sort("share")
    times, shares = (table[name].to_numpy() for name in table.columns)
    return [_rounded(times, 2), _rounded(shares, 5)]


def _series(history: History, fold: Any, origin_s: float) -> dict[str, list[float]]:
    """Every step, or means over equal bins if there are too many."""
    table: pl.DataFrame = fold(history)
    if table.height > POINTS:
        table = fold(history, POINTS // 2)
    columns = {name: _rounded(table[name].to_numpy(), 3) for name in table.columns[1:]}
    return {"time_s": _rounded(table["time_s"].to_numpy() - origin_s, 1), **columns}


def _heat(fold: Callable[[int], pl.DataFrame | None], least: float = 1.0) -> dict[str, Any] | None:
    """Nodes and bins of time as bytes, of which 250 is `top`; None if there is no such table."""
    coarse = fold(1)
    bins = int(np.clip(CELLS // max(coarse.height, 1), 20, 400)) if coarse is not None else 1
    table = fold(bins) if coarse is not None else None
    if table is None:
        return None
    share = np.clip(table["share"].to_numpy(), 0.0, 1.0)
    top = max(least, float(share.max(initial=0.0)))
    cells = np.rint(share / top * FULL_CELL).astype(np.uint8)
    cells[table["down"].to_numpy() > 0.5] = DOWN_CELL  # noqa: PLR2004 - most of the bin
    names = table["node"].gather_every(bins).to_list()
    return {"nodes": names, "bins": bins, "cells": packed(cells), "top": top}


def _job_table(jobs: pl.DataFrame, tables: list[dict[str, Any]]) -> int:
    """Where the table of jobs is; policies that ran the same jobs share it."""
    table = {
        "id": jobs["job_id"].to_list(),
        "gpus": _rounded(jobs["gpus"].to_numpy(), 3),
        "tenant": jobs["tenant"].to_list(),
        "submit_s": _rounded(jobs["submit_s"].to_numpy(), 1),
    }
    if table not in tables:
        tables.append(table)
    return tables.index(table)


def _gantt(history: History, origin_s: float) -> dict[str, Any]:
    bars = gantt(history)
    rows = lane_rows(bars)
    drawn = bars
    if bars.height > BARS:
        area = (pl.col("end_s") - pl.col("start_s")) * pl.col("lanes")
        drawn = bars.sort(area, descending=True).head(BARS).sort("start_s", "job")
    numbers = history.actors[history.is_job]
    placed = drawn.join(rows, on="node", how="left", maintain_order="left")
    return {
        "nodes": rows["node"].to_list(),
        "rows": rows["rows"].to_list(),
        "count": placed.height,
        "all": bars.height,
        "job": packed(np.searchsorted(numbers, placed["job"].to_numpy()).astype("<i4")),
        "lane": packed((placed["first"] + placed["lane"]).to_numpy().astype("<f4")),
        "lanes": packed(placed["lanes"].to_numpy().astype("<f4")),
        "start": packed((placed["start_s"] - origin_s).to_numpy().astype("<f4")),
        "end": packed((placed["end_s"] - origin_s).to_numpy().astype("<f4")),
        "down": _down(history, rows["node"].to_list(), origin_s),
        "overhead": packed((placed["kind"] == "overhead").to_numpy().astype(np.uint8)),
    }


def _down(history: History, nodes: list[str], origin_s: float) -> list[list[float]]:
    """(number of the node, from when, until when) of the outages of nodes that are drawn."""
    number = {name: i for i, name in enumerate(nodes)}
    return [
        [number[name], _short(from_s - origin_s, 1), _short(until_s - origin_s, 1)]
        for name, from_s, until_s in node_outages(history).iter_rows()
        if name in number
    ][:OUTAGES]


def packed(values: Any) -> str:
    """Numbers of a typed array as text."""
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")


def _rounded(values: Floats, digits: int) -> list[float]:
    numbers: Sequence[float] = np.round(np.asarray(values, dtype=np.float64), digits).tolist()
    return [int(number) if number.is_integer() else number for number in numbers]


def _short(value: float, digits: int = 2) -> float:
    number = round(value, digits)
    return int(number) if number.is_integer() else number
