"""A plan as one HTML page: the answer in a sentence, and the curve of sizes that it rests on.

The page needs no network, and no script for its pictures: they are SVG inside it.
"""

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path, PurePath

from rota.core.unfinished import write_whole
from rota.report.frame import PageSection, ReportPage, ReportTile, as_typed, scrolling
from rota.report.style import COLOURS, log_ticks
from rota.study.replay.sizing import (
    ENDLESS_S,
    LEVEL,
    REPORT,
    PlanAnswer,
    ShapeAnswer,
    SizeTried,
    lasting,
)

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640.0, 280.0, 60.0, 34.0
_SHORTEST_S = 1.0  # the axis is logarithmic


def write_plan_page(answer: PlanAnswer, folder: Path, command: Sequence[str] = ()) -> Path:
    """Write the page into a folder."""
    return write_whole(folder / REPORT, html(answer, command))


def html(answer: PlanAnswer, command: Sequence[str] = ()) -> str:
    """The page."""
    best = answer.best or answer.shapes[0]
    others = [_sentence(answer, one) for one in answer.shapes if one is not best]
    return ReportPage(
        kind="Plan",
        title=f"How many nodes for {answer.question.target.describe()}?",
        verdict=_sentence(answer, best),
        more=[*others, f"{answer.replayed.model.sentence}."],
        warnings=[f"{text}." for text in answer.warnings],
        facts=_facts(answer),
        tiles=_key_numbers(answer, best),
        sections=[
            *(
                PageSection(
                    f"sizes-{number}",
                    f"Sizes: {one.shape}",
                    _curve(answer, one) + _table(answer, one),
                )
                for number, one in enumerate(answer.shapes)
            ),
            PageSection("meaning", "What the numbers mean", _meaning(answer)),
        ],
        command=as_typed(command),
    ).html()


def _sizes(answer: PlanAnswer, one: ShapeAnswer) -> str:
    return _curve(answer, one) + _table(answer, one)


def _key_numbers(answer: PlanAnswer, best: ShapeAnswer) -> list[ReportTile]:
    """Of the answer: the nodes, what they bring, and what was."""
    name = answer.question.target.name
    observed = "-" if answer.observed_s is None else lasting(answer.observed_s)
    if best.nodes is None:
        return [ReportTile(f"observed {name}", observed)]
    high = "more than was tried" if best.high is None else f"{best.high:+,}"
    interval = "" if best.low is None else f"{100 * LEVEL:.0f} % interval: {best.low:+,} to {high}"
    found = best.at(best.nodes)
    use = "-" if found.use is None else f"{found.use:.1%}"
    return [
        ReportTile("nodes more than today", f"{best.nodes:+,}", interval),
        ReportTile(f"{name} then", found.told, f"asked for: {answer.question.target.describe()}"),
        ReportTile(f"observed {name}", observed, "what happened"),
        ReportTile("GPU utilisation then", use),
    ]


def _facts(answer: PlanAnswer) -> list[tuple[str, str]]:
    replayed, question = answer.replayed, answer.question
    return [
        ("log", PurePath(replayed.asked.log).name),
        ("jobs", f"{len(replayed.recorded.jobs):,}"),
        ("partition", question.partition or "all"),
        ("tenant", question.tenant or "all"),
        ("model of today", f"{replayed.model.policy} ({replayed.model.verdict})"),
    ]


def _sentence(answer: PlanAnswer, one: ShapeAnswer) -> str:
    text = answer.sentence(one)
    return f"{text[0].upper()}{text[1:]}."


def _table(answer: PlanAnswer, one: ShapeAnswer) -> str:
    target = answer.question.target
    price = answer.question.price(one.gpu_type)
    heads = ["nodes", "GPUs", target.name, "target met", "GPU utilisation",
             "fragments (GPU-h)", *(["fragments (money)"] if price is not None else []),
             "jobs that it cannot run"]  # fmt: skip
    body = ""
    for size in one.sizes:
        useless = size.fragment_gpu_h
        cells = [
            f"{size.gpus:,}",
            size.told,
            "yes" if target.met(size.value_s) else "no",
            "-" if size.use is None else f"{size.use:.1%}",
            "-" if useless is None else f"{useless:,.0f}",
            *([] if price is None else ["-" if useless is None else f"{useless * price:,.0f}"]),
            f"{size.refused:,}",
        ]
        name = f"{size.nodes:+,}" if size.nodes else "today"
        tds = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        body += f"<tr><th scope='row'>{name}</th>{tds}</tr>"
    ths = "".join(f"<th scope='col'>{escape(name)}</th>" for name in heads)
    table = f'<table class="numbers"><thead><tr>{ths}</tr></thead><tbody>{body}</tbody></table>'
    return scrolling(table, f"Sizes of {one.shape}")


def _curve(answer: PlanAnswer, one: ShapeAnswer) -> str:
    """The statistic against the number of nodes, with its interval, as SVG."""
    target = answer.question.target
    shown = [size for size in one.sizes if size.value_s < ENDLESS_S]
    if len(shown) < 2:  # noqa: PLR2004 - one point is no curve
        return ""
    times = [time for size in shown for time in (*_ends(size), target.limit_s)]
    most = max([10 * _SHORTEST_S, *(time for time in times if time < ENDLESS_S)])
    first, last = shown[0].nodes, shown[-1].nodes

    def x(nodes: int) -> float:
        return _LEFT + (_WIDTH - _LEFT - 12) * (nodes - first) / max(last - first, 1)

    def y(seconds: float) -> float:
        share = math.log(max(min(seconds, most), _SHORTEST_S)) / math.log(most)
        return 8 + (_HEIGHT - _BOTTOM - 16) * (1 - share)

    marks = "".join(
        f'<text x="{_LEFT - 6}" y="{y(at_s) + 4:.1f}" text-anchor="end">{label}</text>'
        f'<line x1="{_LEFT}" x2="{_WIDTH - 12}" y1="{y(at_s):.1f}" y2="{y(at_s):.1f}" '
        f'stroke="currentColor" opacity=".15"/>'
        for at_s, label in log_ticks(_SHORTEST_S, most)
    )
    bars = "".join(
        f'<line x1="{x(size.nodes):.1f}" x2="{x(size.nodes):.1f}" y1="{y(_ends(size)[0]):.1f}" '
        f'y2="{y(_ends(size)[1]):.1f}" stroke="{COLOURS[0]}" opacity=".5" stroke-width="3"/>'
        f'<circle cx="{x(size.nodes):.1f}" cy="{y(size.value_s):.1f}" r="4" fill="{COLOURS[0]}"/>'
        f'<text x="{x(size.nodes):.1f}" y="{_HEIGHT - 14}" text-anchor="middle">{size.nodes:+}'
        f"</text>"
        for size in shown
    )
    line = " ".join(f"{x(size.nodes):.1f},{y(size.value_s):.1f}" for size in shown)
    limit = y(target.limit_s)
    return (
        f'<figure><svg viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" role="img" '
        f'aria-label="{escape(target.name)} by number of nodes" style="max-width:46rem;width:100%;'
        f'font-size:12px;fill:currentColor">{marks}'
        f'<line x1="{_LEFT}" x2="{_WIDTH - 12}" y1="{limit:.1f}" y2="{limit:.1f}" '
        f'stroke="{COLOURS[1]}" stroke-width="2" stroke-dasharray="6 4"/>'
        f'<polyline fill="none" stroke="{COLOURS[0]}" stroke-width="2" points="{line}"/>'
        f"{bars}</svg>"
        f"<figcaption>{escape(target.name)} by nodes more or less than today (logarithmic), with "
        f"{100 * LEVEL:.0f} % intervals; dashed: the target</figcaption></figure>"
    )


def _ends(size: SizeTried) -> tuple[float, float]:
    low = size.value_s if size.low_s is None else size.low_s
    high = size.value_s if size.high_s is None else size.high_s
    return low, high


def _meaning(answer: PlanAnswer) -> str:
    model = answer.replayed.model.policy
    return (
        f"<p>Every size is a simulation of the jobs of the log under {escape(model)}, the model of "
        "today (see report.html for how close it comes to what happened). All sizes meet the same "
        f"jobs and failures. The {100 * LEVEL:.0f} % interval of a size says what another log like "
        "this one might give, from resampling its jobs in blocks. The interval of the answer goes "
        "from the first size that might be enough to the first that is enough even at the upper "
        "end of its interval. A job that a cluster cannot run counts as waiting for ever. "
        "<b>Fragments</b> are GPUs that were free but of no use to the jobs that usually come, "
        "over the time of the log.</p>"
    )
