"""How predictable a log is, as a page: the verdict, the predictors, and what they are worth."""

import math
from collections.abc import Sequence
from html import escape
from pathlib import PurePath

from rota.core.words import counted, duration
from rota.report.frame import PageSection, ReportPage, ReportTile, as_typed, scrolling
from rota.report.style import COLOURS, dash
from rota.study.predict.errors import PredictorErrors, Uncertain
from rota.study.predict.predict import (
    ALL,
    BOUND,
    ESTIMATE,
    PredictAnswer,
    PredictorGroup,
    factor_text,
)
from rota.study.predict.worth import PredictionWorth

NOBODY = "nobody better"
MOST_TILES = 5
_WIDE, _HIGH, _LEFT, _FOOT = 720.0, 280.0, 54.0, 40.0
_MARKS = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)
_HEADS = (
    "jobs",
    "half within",
    "mean factor",
    "log error",
    "bias",
    "within 2x",
    "order (Spearman)",
)


def predict_page(answer: PredictAnswer) -> ReportPage:
    """The page of an answer."""
    sizes = [group for group in answer.groups if group.group != ALL]
    left_out = [f"{counted(many, 'job')} left out: {why}." for why, many in answer.left_out.items()]
    return ReportPage(
        kind="Predictability",
        title=f"How predictable is {PurePath(answer.log).name}?",
        verdict=" ".join(answer.sentences[:2]),
        more=answer.sentences[2:],
        warnings=answer.warnings,
        facts=[("jobs", f"{answer.jobs:,}"), ("judged", f"{answer.judged:,}")],
        tiles=_tiles(answer),
        sections=[
            PageSection("predictors", "Predictors", _predictors(answer)),
            PageSection("curve", "How far off", _curve(answer)),
            PageSection("groups", "By size", _groups(answer, sizes)),
            PageSection("worth", "What it is worth", _worth(answer.worth)),
            PageSection("notes", "What it rests on", _listed([*left_out, *answer.assumptions])),
        ],
        command=as_typed(answer.command),
    )


def _tiles(answer: PredictAnswer) -> list[ReportTile]:
    whole = answer.whole
    found = []
    best, order, said = (whole.of(key or "") for key in (answer.best, answer.best_order, ESTIMATE))
    if best is not None:
        found.append(
            _tile("half predicted within", best.median_factor, best.predictor, factor=True)
        )
    if said is not None and best is not said:
        found.append(_tile("with users' estimates", said.median_factor, ESTIMATE, factor=True))
    if order is not None and order.spearman is not None:
        found.append(_tile("order (Spearman)", order.spearman, order.predictor))
    bound = answer.irreducible
    if bound.median_factor is not None:
        note = f"the spread of repeats, {bound.share:.0%} of the jobs"
        found.append(_tile("nobody better than", bound.median_factor, note, factor=True))
    if answer.worth is not None and answer.worth.gain is not None:
        note = "of what perfect knowledge would gain"
        found.append(ReportTile("gained by it", f"{answer.worth.gain:.0%}", note))
    if best is not None:
        note = f"wrong by a factor of 2 at most, {best.predictor}{_interval(best.within_2)}"
        found.append(ReportTile("within 2x", f"{best.within_2.value:.0%}", note))
    return found[:MOST_TILES]


def _tile(label: str, found: Uncertain, note: str, *, factor: bool = False) -> ReportTile:
    shown = factor_text(found.value) if factor else f"{found.value:.2f}"
    return ReportTile(label, shown, f"{note}{_interval(found)}")


def _interval(found: Uncertain) -> str:
    return "" if found.low is None else f" [{found.low:.3g}, {found.high:.3g}]"


def _predictors(answer: PredictAnswer) -> str:
    rows = "".join(_row(one, answer.predictors[one.predictor]) for one in answer.whole.errors)
    bound = answer.irreducible
    if bound.log_error is not None:
        cells = [
            _cell(bound.median_factor, factor=True), _cell(bound.mean_factor, factor=True),
            _cell(bound.log_error), "<td></td>", _cell(bound.within_2, share=True),
            _cell(bound.spearman),
        ]  # fmt: skip
        told = f"spread of repeats of {bound.kinds:,} kinds of jobs"
        rows += (
            f'<tr><th scope="row">{NOBODY}<small>{told}</small></th><td>{bound.jobs:,}</td>'
            f"{''.join(cells)}</tr>"
        )
    unknown = f"What nobody could predict better is not known: {bound.why_not}."
    note = f'<p class="note">{escape(unknown)}</p>' if bound.why_not else ""
    return scrolling(_numbers("predictor", _HEADS, rows), "Predictors side by side") + note


def _row(one: PredictorErrors, told: str) -> str:
    cells = [
        _cell(one.median_factor, factor=True), _cell(one.mean_factor, factor=True),
        _cell(one.log_error), _cell(one.bias_factor, factor=True),
        _cell(one.within_2, share=True), _cell(one.spearman),
    ]  # fmt: skip
    name = f"{escape(one.predictor)}<small>{escape(told)}</small>"
    return f'<tr><th scope="row">{name}</th><td>{one.jobs:,}</td>{"".join(cells)}</tr>'


def _cell(found: Uncertain | None, *, factor: bool = False, share: bool = False) -> str:
    if found is None:
        return "<td>-</td>"
    shown = f"{found.value:.0%}" if share else (
        factor_text(found.value) if factor else f"{found.value:.2f}"
    )  # fmt: skip
    return f"<td>{shown}<small>{_interval(found)}</small></td>"


def _numbers(first: str, heads: Sequence[str], rows: str) -> str:
    titles = "".join(f'<th scope="col">{escape(name)}</th>' for name in (first, *heads))
    return f'<table class="numbers"><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>'


def _groups(answer: PredictAnswer, groups: Sequence[PredictorGroup]) -> str:
    """The median error of every predictor, group by group."""
    if not groups:
        return ""
    rows = ""
    for group in groups:
        cells = ""
        for key in answer.predictors:
            one = group.of(key)
            cells += _cell(one.median_factor if one else None, factor=True)
        rows += f'<tr><th scope="row">{escape(group.told)}</th><td>{group.jobs:,}</td>{cells}</tr>'
    table = _numbers("half within", ("jobs", *answer.predictors), rows)
    return scrolling(table, "Errors by group of jobs")


def _worth(worth: PredictionWorth | None) -> str:
    if worth is None:
        return ""
    rows = ""
    for row in worth.rows:
        ends = "" if row.low is None else f"<small>[{row.low:.3f}, {row.high:.3f}]</small>"
        ratio = "-" if row.ratio is None else f"{row.ratio:.3f}{ends}"
        rows += (
            f'<tr><th scope="row">{escape(row.knows)}</th><td>{duration(row.avg_jct_s)}</td>'
            f"<td>{duration(row.avg_wait_s)}</td><td>{duration(row.p95_wait_s)}</td>"
            f"<td>{ratio}</td></tr>"
        )
    heads = ("mean JCT", "mean wait", "p95 wait", "mean JCT, ratio to nothing")
    note = (
        f"Simulated on {worth.cluster} under qssf, which serves the least expected GPU-time first. "
        f"Intervals are over the jobs of this log: other logs may show something else."
    )
    return (
        f"{scrolling(_numbers('qssf knows', heads, rows), 'What it is worth')}"
        f'<p class="note">{escape(note)}</p>'
    )


def _listed(texts: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>" if texts else ""


def _curve(answer: PredictAnswer) -> str:
    """The share of jobs that are predicted within a factor, a line per predictor, as SVG."""
    if answer.best is None:
        return ""
    last = math.log(answer.factors[-1])

    def x(factor: float) -> float:
        return _LEFT + (_WIDE - _LEFT - 20) * math.log(factor) / last

    def y(share: float) -> float:
        return 8 + (_HIGH - _FOOT - 16) * (1 - share)

    parts, legend = "", ""
    for number, (key, shares) in enumerate(answer.curves.items()):
        colour = "currentColor" if key == BOUND else COLOURS[number % len(COLOURS)]
        points = " ".join(
            f"{x(factor):.1f},{y(share):.1f}"
            for factor, share in zip(answer.factors, shares, strict=True)
        )
        dashes = " ".join(f"{3 * one:g}" for one in dash(number))
        parts += (
            f'<polyline fill="none" stroke="{colour}" stroke-width="2.5" points="{points}" '
            f'stroke-dasharray="{dashes}"/>'
        )
        name = NOBODY if key == BOUND else key
        legend += f'<span><i class="swatch" style="background:{colour}"></i>{escape(name)}</span>'
    marks = "".join(
        f'<text x="{x(factor):.1f}" y="{_HIGH - 18}" text-anchor="middle">{factor:g}x</text>'
        for factor in _MARKS
    )
    marks += "".join(
        f'<text x="{_LEFT - 8}" y="{y(share) + 4:.1f}" text-anchor="end">{share:.0%}</text>'
        f'<line x1="{_LEFT}" x2="{_WIDE - 20}" y1="{y(share):.1f}" y2="{y(share):.1f}" '
        f'stroke="currentColor" opacity=".2"/>'
        for share in (0.0, 0.25, 0.5, 0.75, 1.0)
    )
    return (
        f'<div class="legend">{legend}</div><figure><svg viewBox="0 0 {_WIDE:.0f} {_HIGH:.0f}" '
        f'role="img" aria-label="Share of jobs by the error of their prediction" '
        f'style="max-width:52rem;width:100%;font-size:12px;fill:currentColor">{marks}{parts}'
        f"</svg></figure>"
        f'<p class="note">Share of run times that are predicted within a factor; further up and to '
        f"the left is better.</p>"
    )
