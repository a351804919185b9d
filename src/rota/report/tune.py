"""A tuning as a page: the verdict, the rungs, all trials, and the command that uses the winner."""

from collections.abc import Sequence
from html import escape

from rota.metrics.vocabulary import written
from rota.report.frame import (
    PageSection,
    ReportPage,
    ReportTile,
    as_typed,
    command_box,
    scrolling,
)
from rota.report.style import COLOURS
from rota.report.verdict import scale_of, strip
from rota.study.compare_file import Measured
from rota.study.tune.run import TuneRecord, trials_table

_WIDE, _HIGH, _LEFT, _FOOT = 720.0, 280.0, 84.0, 40.0


def tune_page(record: TuneRecord) -> ReportPage:
    """The page of a tuning, finished or not."""
    goal = record.measure
    return ReportPage(
        kind="Tuning",
        title=f"The best {goal.label}: {record.name}",
        verdict=record.verdict,
        more=[record.cost] if record.judgement else [],
        warnings=[*record.warnings, *(f"failed: {one.describe()}" for one in record.failures)],
        tiles=_tiles(record),
        facts=[
            ("trials", f"{len(record.trials):,}"),
            ("varied", ", ".join(_varied(record))),
            ("points", f"{len(record.points):,}"),
        ],
        sections=[
            PageSection("rungs", "Rungs", _rungs(record) + _figure(record)),
            PageSection("use", "Use it", command_box(record.use, "use-it") if record.use else ""),
            PageSection("trials", "Trials", _trials(record)),
            PageSection("meaning", "What the numbers mean", _meaning(record)),
        ],
        command=as_typed(record.command),
    )


def _varied(record: TuneRecord) -> list[str]:
    return [
        axis
        for axis in record.axes
        if len({str(trial.values.get(axis)) for trial in record.trials}) > 1
    ]


def _tiles(record: TuneRecord) -> list[ReportTile]:
    goal, found = record.measure, record.judgement
    judged = 0 if found is None else found.simulated
    share = f"{(record.simulated - judged) / record.grid:.0%}" if record.grid else "-"
    tiles = [
        ReportTile("trials", f"{len(record.trials):,}", f"{len(record.rungs)} rungs"),
        ReportTile("jobs of the search", share, "of all trials on the whole workload"),
    ]
    if found is None:
        return tiles
    kind = found.verdict if found.verdict in ("better", "worse") else ""
    ends = "" if found.low is None else f"[{found.low:.3f}, {found.high:.3f}], {found.how}"
    measured = Measured(found.winner_value, found.ratio, found.low, found.high, None)
    picture = strip(measured, scale_of([measured])) if found.low is not None else ""
    ratio = "-" if found.ratio is None or not found.winner else f"{found.ratio:.3f}"
    return [
        ReportTile("ratio to the default", ratio, ends, kind, picture),
        ReportTile(f"{goal.label}, winner", written(found.winner_value, goal.unit)),
        ReportTile(f"{goal.label}, default", written(found.default_value, goal.unit)),
        *tiles,
    ]


def _table(heads: Sequence[str], rows: str, kind: str = "numbers") -> str:
    titles = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    return f'<table class="{kind}"><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>'


def _rungs(record: TuneRecord) -> str:
    goal = record.measure
    rows = ""
    for number, rung in enumerate(record.rungs):
        best = escape(record.trials[rung.kept[0]].label) if rung.kept else "-"
        rows += (
            f'<tr><th scope="row">{number}</th><td>{rung.jobs:,}</td><td>{len(rung.values):,}</td>'
            f"<td>{len(rung.kept):,}</td><td>{written(rung.best, goal.unit)}</td><td>{best}</td>"
            f"</tr>"
        )
    heads = ("rung", "jobs of a run", "trials", "go on", f"best {goal.label}", "best trial")
    return scrolling(_table(heads, rows), "Rungs") if rows else ""


def _trials(record: TuneRecord) -> str:
    goal = record.measure
    table = trials_table(record)
    axes = _varied(record)
    rungs = [name for name in table.columns if name.endswith(f"_{goal.key}")]
    rows = ""
    for row in table.iter_rows(named=True):
        cells = "".join(
            f"<td>{escape('-' if row[axis] is None else str(row[axis]))}</td>" for axis in axes
        )
        cells += f"<td>{escape(row['fate'])}</td>"
        for name in rungs:
            shown = "" if row[name] is None else f"{row[name]:.8g}"
            cells += f'<td class="number" data-value="{shown}">{written(row[name], goal.unit)}</td>'
        name = "0 (default)" if not row["trial"] else str(row["trial"])
        rows += f'<tr><th scope="row">{name}</th>{cells}</tr>'
    heads = ("trial", *axes, "fate", *(f"rung {number}" for number in range(len(rungs))))
    return scrolling(_table(heads, rows, "sortable policies"), "All trials")


def _figure(record: TuneRecord) -> str:
    """The goal of every trial at each rung: a line ends where its trial was stopped."""
    ratios = [
        {number: value / rung.best for number, value in rung.values.items() if value is not None}
        for rung in record.rungs
        if rung.best
    ]
    if len(ratios) < max(2, len(record.rungs)):  # one rung is no line, and of 0 there is no ratio
        return ""
    values = [value for rung in ratios for value in rung.values()]
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    goal, last = record.measure, len(ratios) - 1

    def x(rung: int) -> float:
        return _LEFT + (_WIDE - _LEFT - 50) * rung / last

    def y(value: float) -> float:
        return 8 + (_HIGH - _FOOT - 16) * (high - value) / span

    parts = ""
    winner = None if record.judgement is None else record.judgement.winner
    for trial in record.trials:
        points = [
            (x(number), y(value))
            for number, rung in enumerate(ratios)
            if (value := rung.get(trial.number)) is not None
        ]
        colour, width = (COLOURS[1], 3) if trial.number == winner else (COLOURS[0], 1.5)
        if trial.number == 0 and winner != 0:
            colour, width = COLOURS[2], 3
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        parts += (
            f'<polyline fill="none" stroke="{colour}" stroke-width="{width}" points="{line}" '
            f'opacity=".8"/>'
        )
        parts += "".join(
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.5" fill="{colour}"/>' for a, b in points
        )
    marks = "".join(
        f'<text x="{x(number):.1f}" y="{_HIGH - 18}" text-anchor="middle">{rung.jobs:,} jobs</text>'
        for number, rung in enumerate(record.rungs)
    )
    marks += "".join(
        f'<text x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.2f}</text>'
        for value in dict.fromkeys((low, high))
    )
    legend = "".join(
        f'<span><i class="swatch" style="background:{colour}"></i>{name}</span>'
        for colour, name in (
            (COLOURS[1], "winner"),
            (COLOURS[2], "default"),
            (COLOURS[0], "others"),
        )
    )
    return (
        f'<div class="legend">{legend}</div><figure><svg viewBox="0 0 {_WIDE:.0f} {_HIGH:.0f}" '
        f'role="img" aria-label="{escape(goal.label)} of trials at each rung" '
        f'style="max-width:52rem;width:100%;font-size:12px;fill:currentColor">{marks}{parts}</svg>'
        f"<figcaption>{escape(goal.label)} of every trial, relative to the best of its rung; a "
        f"line ends where its trial was stopped</figcaption></figure>"
    )


def _meaning(record: TuneRecord) -> str:
    return (
        f"<p>Trials of a rung meet the same jobs with the same seeds; the best 1 in {record.eta} "
        f"go on (and who is as good as the last of them). Parts of a workload begin on an empty "
        f"cluster, so numbers of different rungs are not comparable with each other.</p>"
        f"<p>The winner was chosen because it was good on these jobs. The ratio to the default is "
        f"therefore measured on others where jobs are drawn (fresh seeds); of a file there are no "
        f"others, and consecutive parts of it, each on its own, flatter the winner a little. The "
        f"interval is at 95 %.</p>"
    )
