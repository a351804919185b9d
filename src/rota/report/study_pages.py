"""Pages of studies, in the design of all reports: robustness, sweeps, reproductions."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from rota.core.unfinished import write_whole
from rota.core.words import counted
from rota.metrics.vocabulary import BY_KEY, label_of, written
from rota.report.frame import PageSection, ReportPage, ReportTile, as_typed, folded, scrolling
from rota.report.predict import predict_page
from rota.report.style import COLOURS, dash
from rota.report.tune import tune_page
from rota.report.verdict import Scale, scale_of, strip, told_ratio
from rota.reproduce.recipe import CheckVerdict, Value
from rota.reproduce.run import Reproduction
from rota.study.compare_file import Measured, Verdict
from rota.study.predict.predict import TABLE as PREDICTIONS
from rota.study.predict.predict import load_answer
from rota.study.robustness import TABLE, VARIED, CurvePoint, Curves, RobustLine, load_curves
from rota.study.statistics import Ratio
from rota.study.sweep.run import SweepOutcome, load_sweep
from rota.study.sweep.store import SWEEP
from rota.study.sweep.table import POLICY, Mean
from rota.study.tune.run import RECORD as TUNING
from rota.study.tune.run import load_tune

REPORT = "report.html"
MOST_TILES = 5
_WIDE, _HIGH, _LEFT, _FOOT = 720.0, 260.0, 54.0, 30.0


def write_study_page(page: ReportPage, folder: Path) -> Path:
    """Write a page into a folder, in one step."""
    return write_whole(folder / REPORT, page.html())


def study_page(folder: Path) -> ReportPage | None:
    """The page of a study (a sweep, a tuning, ...) that is there; None: there is none."""
    if (folder / TUNING).exists():
        return tune_page(load_tune(folder))
    if (folder / SWEEP).exists():
        outcome = load_sweep(folder)
        return sweep_page(outcome, outcome.record.command)
    if (folder / TABLE).exists():
        curves = load_curves(folder)
        return robust_page(curves, VARIED[curves.axis.kind], curves.command)
    if (folder / PREDICTIONS).exists():
        return predict_page(load_answer(folder))
    return None


def _as_measured(
    mean: float | None, found: Ratio | CurvePoint, verdict: Verdict | None
) -> Measured:
    return Measured(mean, found.ratio, found.low, found.high, verdict)


def _clear(found: Ratio | CurvePoint) -> bool:
    """The interval excludes 1."""
    known = found.low is not None and found.high is not None
    return known and not (found.low or 0.0) <= 1.0 <= (found.high or 0.0)


# --- robustness ----------------------------------------------------------------------------------


def robust_page(curves: Curves, what: str, command: Sequence[str] = ()) -> ReportPage:
    """How much policies depend on what is varied (`what`, in words)."""
    measure = BY_KEY[curves.by]
    first, last = curves.axis.levels[0], curves.axis.levels[-1]
    ends = [(line, line.spots[-1]) for line in curves.lines if line.spots[-1].ratio is not None]
    ends.sort(key=lambda pair: abs((pair[1].ratio or 1.0) - 1.0))
    scale = scale_of(_as_measured(None, spot, None) for _, spot in ends)
    tiles = [
        ReportTile(
            line.policy,
            f"{told_ratio(_as_measured(None, spot, None)).partition(' ')[0]} times",
            f"{measure.label} at {last}: {written(spot.mean, measure.unit)}"
            + ("" if spot.low is None else f", {told_ratio(_as_measured(None, spot, None))}"),
            "",
            strip(_as_measured(spot.mean, spot, None), scale),
        )
        for line, spot in ends[:MOST_TILES]
    ]
    heads = "".join(f"<th scope='col'>{escape(level)}</th>" for level in curves.axis.levels)
    rows = "".join(_robust_row(line, measure.unit) for line in curves.lines)
    table = (
        f'<table class="numbers"><thead><tr><th scope="col">policy</th>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )
    return ReportPage(
        kind="Robustness",
        title=f"{measure.label} at levels of {what}",
        verdict=_robust_verdict(ends, measure.label, first, last),
        more=[] if len(curves.seeds) > 1 else ["One seed: nothing is proven; add --repeat N."],
        warnings=curves.warnings,
        tiles=tiles,
        facts=[("levels", ", ".join(curves.axis.levels)), ("seeds", f"{len(curves.seeds)}")],
        sections=[
            PageSection("curves", "Curves", _curve_figure(curves, measure.label)),
            PageSection("levels", "Levels", scrolling(table, "Policies at all levels")),
            PageSection("notes", "Notes", _listed(curves.notes)),
        ],
        command=as_typed(command),
    )


def _robust_verdict(
    ends: Sequence[tuple[RobustLine, CurvePoint]], label: str, first: str, last: str
) -> str:
    """Who changes, as far as the intervals tell; of one seed: what was seen."""
    if not ends:
        return f"There is no ratio of the {label} at {last} to that at {first}."
    if all(spot.low is None for _, spot in ends):
        line, spot = ends[-1]
        return (
            f"In one run per level the {label} of {line.policy} changes most from {first} to "
            f"{last}: it becomes {_times(spot)}."
        )
    clear = [pair for pair in reversed(ends) if _clear(pair[1])]
    others = [line.policy for line, spot in ends if not _clear(spot)]
    if not clear:
        return f"From {first} to {last} no change of the {label} can be told for any policy."
    told = "; that of ".join(f"{line.policy} becomes {_times(spot)}" for line, spot in clear[:3])
    rest = f"; no change can be told for {', '.join(others[:5])}" if others else ""
    return f"From {first} to {last} the {label} of {told}{rest}."


def _times(spot: CurvePoint) -> str:
    return f"{told_ratio(_as_measured(None, spot, None))} times as high"


def _robust_row(line: RobustLine, unit: str) -> str:
    cells = ""
    for number, spot in enumerate(line.spots):
        small = told_ratio(_as_measured(None, spot, None)) if number and spot.ratio else ""
        cells += f"<td>{written(spot.mean, unit)}<small>{small}</small></td>"
    return f'<tr><th scope="row">{escape(line.policy)}</th>{cells}</tr>'


def _curve_figure(curves: Curves, label: str) -> str:
    """Ratios to the first level, with intervals, as SVG."""
    places = curves.axis.places
    spots = [spot for line in curves.lines for spot in line.spots if spot.ratio]
    ends = [value for spot in spots for value in (spot.ratio, spot.low, spot.high) if value]
    low, high = min([0.95, *ends]), max([1.05, *ends])
    span = max(places[-1] - places[0], 1e-9)

    def x(place: float) -> float:
        return _LEFT + (_WIDE - _LEFT - 20) * (place - places[0]) / span

    def y(ratio: float) -> float:
        return 8 + (_HIGH - _FOOT - 16) * (high - ratio) / (high - low)

    parts, legend = "", ""
    for number, line in enumerate(curves.lines):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(
            f"{x(spot.place):.1f},{y(spot.ratio or 1.0):.1f}" for spot in line.spots if spot.ratio
        )
        dashes = " ".join(f"{3 * one:g}" for one in dash(number))
        parts += (
            f'<polyline fill="none" stroke="{colour}" stroke-width="2.5" points="{points}" '
            f'stroke-dasharray="{dashes}"/>'
        )
        parts += "".join(
            f'<line x1="{x(spot.place):.1f}" x2="{x(spot.place):.1f}" y1="{y(spot.low):.1f}" '
            f'y2="{y(spot.high):.1f}" stroke="{colour}" stroke-width="2" opacity=".6"/>'
            for spot in line.spots
            if spot.low and spot.high
        )
        legend += (
            f'<span><i class="swatch" style="background:{colour}"></i>{escape(line.policy)}</span>'
        )
    marks = "".join(
        f'<text x="{x(place):.1f}" y="{_HIGH - 8}" text-anchor="middle">{escape(level)}</text>'
        for place, level in zip(places, curves.axis.levels, strict=True)
    )
    marks += "".join(
        f'<text x="{_LEFT - 8}" y="{y(ratio) + 4:.1f}" text-anchor="end">{ratio:.2f}</text>'
        f'<line x1="{_LEFT}" x2="{_WIDE - 20}" y1="{y(ratio):.1f}" y2="{y(ratio):.1f}" '
        f'stroke="currentColor" opacity=".2"/>'
        for ratio in sorted({1.0, low, high})
    )
    return (
        f'<div class="legend">{legend}</div><figure><svg viewBox="0 0 {_WIDE:.0f} {_HIGH:.0f}" '
        f'role="img" aria-label="Ratios to the first level" style="max-width:52rem;width:100%;'
        f'font-size:12px;fill:currentColor">{marks}{parts}</svg></figure>'
        f'<p class="note">{escape(label)}, relative to the first level; lines up and down: 95 % '
        f"intervals.</p>"
    )


# --- sweeps --------------------------------------------------------------------------------------


def sweep_page(outcome: SweepOutcome, command: Sequence[str] = ()) -> ReportPage:
    """Means over the seeds, and where a policy is better than the baseline of its point."""
    means = outcome.means if outcome.rows else []
    judged = [mean for mean in means if mean.ratio.low is not None and not mean.idle]
    better = [mean for mean in judged if _clear(mean.ratio) and (mean.ratio.ratio or 1.0) < 1]
    worse = [mean for mean in judged if _clear(mean.ratio) and (mean.ratio.ratio or 1.0) > 1]
    idle = [mean for mean in means if mean.idle]
    missing = len(outcome.record.cells) - len(outcome.rows) - len(outcome.failures)
    warnings = [f"failed: {failed.describe()}" for failed in outcome.failures]
    if idle:
        warnings.append(
            f"nobody waited in {counted(len(idle), 'group')}: there is nothing to compare there"
        )
    if missing:
        warnings.append(f"{counted(missing, 'run')} not done yet: run the sweep again")
    return ReportPage(
        kind="Sweep",
        title=str(outcome.folder.name),
        verdict=_sweep_verdict(judged, better, worse, means),
        warnings=warnings,
        tiles=[
            ReportTile("runs", f"{len(outcome.rows):,}", f"of {len(outcome.record.cells):,}"),
            ReportTile("failed", f"{len(outcome.failures):,}"),
            ReportTile("groups better", f"{len(better):,}", "than the baseline of their point"),
            ReportTile("groups worse", f"{len(worse):,}", "than the baseline of their point"),
            ReportTile(
                "no difference to be told",
                f"{len(judged) - len(better) - len(worse):,}",
                f"of {len(judged):,} groups with an interval",
            ),
        ],
        sections=[PageSection("means", "Means over the seeds", _means_table(means))],
        command=as_typed(command),
    )


def _sweep_verdict(
    judged: Sequence[Mean], better: Sequence[Mean], worse: Sequence[Mean], means: Sequence[Mean]
) -> str:
    if not means:
        return "No run is done yet."
    if not judged:
        return "Nothing is proven: no ratio has an interval. Add seeds to the matrix."
    if not better and not worse:
        return "No difference in mean JCT to the baselines can be told in any group."
    names = sorted({str(mean.labels.get(POLICY)) for mean in better})
    if not better:
        return (
            f"No policy is better than its baseline in mean JCT; {len(worse):,} groups are worse."
        )
    best = min(better, key=lambda mean: mean.ratio.ratio or 1.0)
    found = _as_measured(None, best.ratio, "better")
    return (
        f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} better than the baseline in "
        f"{len(better):,} of {len(judged):,} groups; at best the mean JCT is {told_ratio(found)} "
        f"times the baseline's."
    )


def _means_table(means: Sequence[Mean]) -> str:
    if not means:
        return ""
    axes = [
        axis
        for axis in means[0].labels
        if axis == POLICY or len({str(mean.labels[axis]) for mean in means}) > 1
    ]
    keys = [key for key in means[0].values if key in BY_KEY]
    scale = scale_of(_as_measured(None, mean.ratio, None) for mean in means)
    heads = "".join(f'<th scope="col">{escape(axis)}</th>' for axis in axes)
    heads += '<th scope="col" class="number">runs</th>'
    heads += '<th scope="col" class="wide">mean JCT, ratio to the baseline</th>'
    heads += "".join(
        f'<th scope="col" class="number" data-first="{BY_KEY[key].better or "less"}">'
        f"{escape(label_of(key))}</th>"
        for key in keys
    )
    rows = "".join(_mean_row(mean, axes, keys, scale) for mean in means)
    table = (
        f'<table class="sortable policies"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>'
        f"</table>"
    )
    note = "Green and red only where the interval excludes 1."
    return f'{scrolling(table, "Means over the seeds")}<p class="note">{note}</p>'


def _mean_row(mean: Mean, axes: Sequence[str], keys: Sequence[str], scale: Scale) -> str:
    verdict: Verdict | None = None
    if mean.ratio.low is not None and not mean.idle:
        verdict = "unclear"
        if _clear(mean.ratio):
            verdict = "better" if (mean.ratio.ratio or 1.0) < 1 else "worse"
    found = _as_measured(None, mean.ratio, verdict)
    first, *others = [_label(mean.labels[axis]) for axis in axes]
    cells = "".join(f"<td>{escape(text)}</td>" for text in others)
    told = "nobody waited" if mean.idle else told_ratio(found)
    value = "" if mean.ratio.ratio is None else f"{mean.ratio.ratio:.8g}"
    cells += f'<td class="number" data-value="{mean.runs}">{mean.runs:,}</td>'
    cells += (
        f'<td class="wide {verdict or ""}" data-value="{value}">'
        f"{'' if mean.idle else strip(found, scale)}<small>{told}</small></td>"
    )
    for key in keys:
        number = mean.values[key]
        shown = "" if number is None else f"{number:.8g}"
        cells += f'<td class="number" data-value="{shown}">{written(number, BY_KEY[key].unit)}</td>'
    return f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>'


def _label(value: object) -> str:
    return "-" if value is None else str(value)


# --- reproductions -------------------------------------------------------------------------------


def reproduction_page(found: Reproduction, command: Sequence[str] = ()) -> ReportPage:
    """Theirs and ours, check by check."""
    counts = {verdict: found.count(verdict) for verdict in CheckVerdict}
    kinds = {CheckVerdict.AGREES: "better", CheckVerdict.DEVIATES: "", CheckVerdict.FAILS: "worse"}
    names = {
        CheckVerdict.AGREES: "checks agree", CheckVerdict.DEVIATES: "deviate, for known reasons",
        CheckVerdict.FAILS: "fail",
    }  # fmt: skip
    rows = "".join(
        f'<tr><th scope="row">{escape(check.quantity)}</th><td>{_text(check.theirs)}</td>'
        f"<td>{_text(check.ours)}</td><td>{escape(check.expected)}</td>"
        f'<td class="{kinds[check.verdict]}"><span class="mark">{check.verdict.value}</span>'
        f"<small>{escape(check.reason)}</small></td></tr>"
        for check in found.checks
    )
    heads = "".join(
        f'<th scope="col">{name}</th>'
        for name in ("quantity", "theirs", "ours", "expected", "verdict")
    )
    head = f"<thead><tr>{heads}</tr></thead>"
    table = f'<table class="sortable texts">{head}<tbody>{rows}</tbody></table>'
    text = {
        CheckVerdict.AGREES: "agrees with what was published",
        CheckVerdict.DEVIATES: "deviates from what was published, for known reasons",
        CheckVerdict.FAILS: "does not agree with what was published",
    }[found.verdict]
    return ReportPage(
        kind="Reproduction",
        title=f"{found.recipe}: {found.summary}",
        verdict=(
            f"{found.recipe} {text}: of {counted(len(found.checks), 'check')} "
            f"{counts[CheckVerdict.AGREES]:,} agree, {counts[CheckVerdict.DEVIATES]:,} deviate, "
            f"{counts[CheckVerdict.FAILS]:,} fail."
        ),
        more=[f"Small leaves out: {found.leaves_out}."] if found.leaves_out else [],
        tiles=[
            *(
                ReportTile(
                    names[verdict],
                    f"{counts[verdict]:,}",
                    "",
                    kinds[verdict] if counts[verdict] else "",
                )
                for verdict in CheckVerdict
            ),
            ReportTile("scale", found.scale.value),
        ],
        facts=[("paper", found.paper), ("theirs", found.source)],
        sections=[
            PageSection("checks", "Checks", scrolling(table, "Checks")),
            PageSection(
                "known",
                "Known reasons",
                folded("Why numbers may differ", _listed(found.known), printed=True)
                if found.known
                else "",
            ),
        ],
        command=as_typed(command),
    )


def _text(value: Value) -> str:
    if value is None:
        return "-"
    return escape(value) if isinstance(value, str) else f"{value:,}"


def _listed(texts: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""
