"""The report of a comparison, or of one run: one HTML page without any reference to the outside."""

from collections.abc import Iterable
from html import escape
from pathlib import PurePath

from rota.core.sums import ordered_sum
from rota.core.words import NONE, duration
from rota.metrics.delay import REASONS
from rota.metrics.vocabulary import Measure, alike, count, written
from rota.report import elastic, style
from rota.report.data import TIMES, cdf, judged
from rota.report.frame import PageSection, ReportPage, as_typed, folded, scrolling
from rota.report.groups import LEAST_JOBS, JobGroups, job_groups
from rota.report.payload import payload
from rota.report.source import ReportSource
from rota.report.style import coinciding
from rota.report.verdict import (
    loud,
    main_measure,
    scale_of,
    sentences,
    strip,
    tiles,
    told_ratio,
    winner,
)
from rota.study.compare_file import Measured, PolicyComparison, PolicyRow

_MARKS = {"better": "\u2713", "worse": "\u2717", "unclear": "\u2248"}
_WORDS = {
    "better": "better than the baseline", "worse": "worse than the baseline",
    "unclear": "no difference can be told",
}  # fmt: skip
_ONE = "One run: nothing is proven, so no winner is marked."
_SIDES = {"less": "less is better", "more": "more is better"}
_COLUMN_NAMES = {"jct_s": "completion times", "wait_s": "waiting times"}
_SHOWN = (
    "avg_jct_s", "p95_jct_s", "avg_wait_s", "avg_bounded_slowdown", "gpu_utilisation",
    "preemptions",
)  # fmt: skip
_GROUPS = {
    "size": "By size: GPUs that a job asks for",
    "duration": "By duration: run time of a job",
    "tenant": "By tenant",
}
_HINT = (
    "Drag to zoom, double-click for everything. With the keyboard: focus a picture, then + and "
    "-, arrow keys, 0. Or hold Ctrl and turn the wheel."
)


def html(source: ReportSource) -> str:
    """The page."""
    comparison = source.comparison
    verdict, *more = sentences(source)
    useless = loud(source.notes)
    return ReportPage(
        kind="One run" if source.single else "Comparison",
        title=_title(source),
        verdict=verdict,
        more=more,
        warnings=[f"{text[0].upper()}{text[1:]}." for text in useless],
        tiles=tiles(source),
        facts=_facts(comparison),
        sections=[
            PageSection("policies", "Numbers" if source.single else "Policies", _numbers(source)),
            PageSection("groups", "Who wins, who loses", _groups(source)),
            PageSection("why", "Why jobs waited", _delays(comparison)),
            PageSection("spread", "Distributions", _spread(source)),
            PageSection("time", "Over time", _over_time(source)),
            PageSection("lanes", "Jobs on GPUs", _closely(source)),
            PageSection("elastic", "Elastic jobs", elastic.section(source.looks)),
            PageSection("jobs", "Job by job", _jobs_section(source)),
            PageSection("notes", "Notes", _notes(source.notes)),
            PageSection("assumptions", "Assumptions", _assumptions(comparison)),
        ],
        command=as_typed(source.command),
        script="report.js",
        data=payload(source),
        footer="Beside this page: a folder per run with its jobs, event log and manifest "
        "(<code>rota rerun</code> proves a run). ",
    ).html()


def _title(source: ReportSource) -> str:
    comparison = source.comparison
    who = comparison.baseline if source.single else f"{len(comparison.rows)} policies"
    return (
        f"{who} on {PurePath(comparison.trace).name}, cluster {PurePath(comparison.cluster).name}"
    )


def _facts(comparison: PolicyComparison) -> list[tuple[str, str]]:
    return [
        ("trace", comparison.trace),
        ("cluster", comparison.cluster),
        ("baseline" if len(comparison.rows) > 1 else "policy", comparison.baseline),
        ("seeds", ", ".join(map(str, comparison.seeds))),
        ("windows of the trace", ", ".join(map(str, comparison.windows))),
        ("jobs", _jobs(comparison)),
    ]


def _jobs(comparison: PolicyComparison) -> str:
    """How many; of a trace that was cut they are means over its windows."""
    jobs = count(comparison.rows[0].jobs)
    return f"{jobs} per window" if len(comparison.windows) > 1 else jobs


# --- policies ------------------------------------------------------------------------------------


def _numbers(source: ReportSource) -> str:
    comparison = source.comparison
    every = _every_measure(comparison)
    if source.single:
        return every
    known = {measure.key: measure for measure in comparison.measures}
    shown = [known[key] for key in _SHOWN if key in known]
    shown += [one for one in comparison.measures if one not in shown][: max(0, 4 - len(shown))]
    shown = [one for one in shown if any(_of(row, one).mean is not None for row in comparison.rows)]
    main = main_measure(comparison)
    heads = "".join(
        f'<th scope="col" class="number" data-first="{one.better or "less"}" '
        f'title="{_SIDES.get(one.better or "", "")}">{escape(one.label)}</th>'
        for one in shown
    )
    of_main = [] if main is None else [_of(row, main) for row in comparison.rows]
    scale = scale_of(of_main)
    body = "".join(_policy_row(row, comparison, shown, main, scale) for row in comparison.rows)
    ratio = "" if main is None else (
        f'<th scope="col" class="wide" data-first="{main.better}">{escape(main.label)}, ratio to '
        f"{escape(comparison.baseline)}</th>"
    )  # fmt: skip
    table = (
        f'<table class="sortable policies"><caption>Policies, sorted by a click on a heading'
        f'</caption><thead><tr><th scope="col">policy</th>{ratio}{heads}<th scope="col">knows</th>'
        f"</tr></thead><tbody>{body}</tbody></table>"
    )
    return (
        f"{scrolling(table, 'Policies')}{_legend(comparison)}"
        f"{folded('All measures', every, printed=True)}"
    )


def _of(row: PolicyRow, measure: Measure) -> Measured:
    return row.measures.get(measure.key) or Measured(None)


def _policy_row(
    row: PolicyRow,
    comparison: PolicyComparison,
    shown: list[Measure],
    main: Measure | None,
    scale: tuple[float, float],
) -> str:
    base = row.policy == comparison.baseline
    cells = ""
    if main is not None:
        found = Measured(None, 1.0) if base else _of(row, main)
        text = "baseline" if base else told_ratio(found)
        cells += (
            f'<td class="wide {found.verdict or ""}" data-value="{_value(found.ratio)}">'
            f"{strip(found, scale)}<small>{_mark(found)}{text}</small></td>"
        )
    for measure in shown:
        values = [_of(other, measure).mean for other in comparison.rows]
        cells += _bar_cell(_of(row, measure), values, measure, comparison, row)
    return (
        f'<tr><th scope="row" data-policy="{escape(row.policy)}">{escape(row.policy)}</th>{cells}'
        f"<td>{escape(row.knowledge or NONE)}</td></tr>"
    )


def _bar_cell(
    found: Measured,
    values: list[float | None],
    measure: Measure,
    comparison: PolicyComparison,
    row: PolicyRow,
) -> str:
    """A number, a bar as long as it is large, and whether it is better."""
    most = max((abs(value) for value in values if value is not None), default=0.0)
    share = 0.0 if not most or found.mean is None else 100 * abs(found.mean) / most
    verdict = "" if row.policy == comparison.baseline else found.verdict or ""
    best = "best" if winner(comparison, measure) == row.policy else ""
    title = f' title="{told_ratio(found)}: {_WORDS[verdict]}"' if verdict else ""
    return (
        f'<td class="number {verdict} {best}" data-value="{_value(found.mean)}"{title}>'
        f"{_mark(found) if verdict else ''}{written(found.mean, measure.unit)}"
        f'<span class="inline" aria-hidden="true"><i style="width:{share:.1f}%"></i></span></td>'
    )


def _value(number: float | None) -> str:
    return "" if number is None else f"{number:.8g}"


def _mark(found: Measured) -> str:
    if not found.verdict:
        return ""
    return (
        f'<span class="mark" role="img" aria-label="{_WORDS[found.verdict]}">'
        f"{_MARKS[found.verdict]}</span> "
    )


def _every_measure(comparison: PolicyComparison) -> str:
    heads = "".join(
        f'<th scope="col" class="number">{escape(row.policy)}</th>' for row in comparison.rows
    )
    knows = "".join(
        f'<td class="number">{escape(row.knowledge or NONE)}</td>' for row in comparison.rows
    )
    body = "".join(_line(measure, comparison) for measure in comparison.measures)
    table = (
        f'<table class="measures"><thead><tr><th scope="col">measure</th>{heads}</tr></thead>'
        f'<tbody>{body}<tr><th scope="row">knows</th>{knows}</tr></tbody></table>'
    )
    return scrolling(table, "All measures")


def _line(measure: Measure, comparison: PolicyComparison) -> str:
    best = winner(comparison, measure)
    found = [_of(row, measure) for row in comparison.rows]
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
    title = f' title="{side}"' if side else ""
    return f'<tr><th scope="row"{title}>{escape(measure.label)}</th>{cells}</tr>'


def _cell(found: Measured, text: str, best: bool) -> str:  # noqa: FBT001 - private
    classes = " ".join(filter(None, ("number", found.verdict or "", "best" if best else "")))
    if found.ratio is not None:
        mark = f"{_MARKS[found.verdict]} " if found.verdict else ""
        text += f"<small>{mark}{told_ratio(found)}</small>"
    return f'<td class="{classes}">{text}</td>'


def _legend(comparison: PolicyComparison) -> str:
    text = comparison.method.strip().rstrip(".")
    method = f": {escape(text)}" if text else ""
    marks = (
        f" {_MARKS['better']} better and {_MARKS['worse']} worse only where the interval excludes "
        f"1, {_MARKS['unclear']} else. Bold: the best of those that are clearly better."
    )
    one = "" if "no winner" in text else f" {_ONE}"
    return (
        f'<p class="note">The dot is the ratio to {escape(comparison.baseline)}, the dashed mark '
        f"is 1, the line is the {comparison.level * 100:g} % interval{method}. Bars are as long as "
        f"the number is large.{marks if judged(comparison) else one}</p>"
    )


# --- who wins ------------------------------------------------------------------------------------


def _groups(source: ReportSource) -> str:
    found = job_groups(source, source.folder)
    if not found:
        return ""
    proven = judged(source.comparison)
    tables = "".join(_group_table(one, source.comparison) for one in found)
    colours = (
        "Green: better, red: worse, where the interval over the replications excludes 1. Grey: no "
        f"difference can be told, or fewer than {LEAST_JOBS} jobs. Of many cells one in twenty is "
        "coloured by chance."
        if proven
        else f"{_ONE} Colours are left out."
    )
    return (
        f"<p>Mean completion time (JCT) of the jobs of a group, relative to that under "
        f"{escape(source.comparison.baseline)}: below 1 they are done sooner.</p>"
        f'<div class="side-by-side">{tables}</div>'
        f'<p class="note">{colours}</p>'
    )


def _group_table(found: JobGroups, comparison: PolicyComparison) -> str:
    heads = "".join(
        f'<th scope="col" class="number">{escape(name)}<small>{count(jobs)} jobs</small></th>'
        for name, jobs in zip(found.names, found.jobs, strict=True)
    )
    body = ""
    for row in comparison.rows:
        cells = "".join(map(_group_cell, found.cells[row.policy]))
        body += (
            f'<tr><th scope="row" data-policy="{escape(row.policy)}">{escape(row.policy)}</th>'
            f"{cells}</tr>"
        )
    table = (
        f'<table class="sortable groups"><caption>{_GROUPS[found.by]}</caption><thead><tr>'
        f'<th scope="col">policy</th>{heads}</tr></thead><tbody>{body}</tbody></table>'
    )
    return f"<div><h3>{_GROUPS[found.by]}</h3>{scrolling(table, _GROUPS[found.by])}</div>"


def _group_cell(found: Measured) -> str:
    if found.mean is None:
        return f'<td class="number" data-value="">{NONE}</td>'
    if found.ratio is None:
        return f'<td class="number base" data-value="1">{duration(found.mean)}</td>'
    title = f"{duration(found.mean)}; ratio {told_ratio(found)}"
    verdict = found.verdict or ""
    mark = "" if verdict == "unclear" else _mark(found)
    return (
        f'<td class="number {verdict}" data-value="{_value(found.ratio)}" title="{title}">'
        f"{mark}{_brief(found.ratio)}<small>{duration(found.mean)}</small></td>"
    )


def _brief(ratio: float) -> str:
    """`0.63`, `12`, `0.0042`."""
    if ratio < 0.1:  # noqa: PLR2004 - digits that tell
        return f"{ratio:.2g}"
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}"  # noqa: PLR2004 - digits


# --- why -----------------------------------------------------------------------------------------


def _delays(comparison: PolicyComparison) -> str:
    shown = [name for name in REASONS if any(row.delay.get(name) for row in comparison.rows)]
    if not shown:
        return "<p>Nobody waited.</p>"
    most = max(ordered_sum(row.delay.values()) for row in comparison.rows)
    legend = "".join(
        f'<span><i class="swatch" style="background:{_reason_colour(name)}"></i>{escape(name)}'
        f"</span>"
        for name in shown
    )
    bars = "".join(_delay_row(row, shown, most) for row in comparison.rows)
    heads = "".join(f'<th scope="col" class="number">{escape(name)}</th>' for name in shown)
    body = "".join(
        f'<tr><th scope="row">{escape(row.policy)}</th>'
        + "".join(
            f'<td class="number">{duration(row.delay.get(name) or 0.0)}</td>' for name in shown
        )
        + f'<td class="number">{duration(ordered_sum(row.delay.values()))}</td></tr>'
        for row in comparison.rows
    )
    table = (
        f'<table><thead><tr><th scope="col">policy</th>{heads}<th scope="col" class="number">'
        f"together</th></tr></thead><tbody>{body}</tbody></table>"
    )
    return (
        f'<p>Mean wait of completed jobs, by what kept them waiting.</p><div class="legend">'
        f'{legend}</div><div class="stacks">{bars}</div>'
        f"{folded('The same as a table', scrolling(table, 'Waiting by reason'))}"
    )


def _reason_colour(name: str) -> str:
    light = style.REASON_COLOURS.get(name, "#777777")
    return f"light-dark({light}, {style.REASONS_ON_DARK.get(name, light)})"


def _delay_row(row: PolicyRow, shown: list[str], most: float) -> str:
    parts = "".join(
        f'<i style="width:{100 * (row.delay.get(name) or 0.0) / most:.2f}%;background:'
        f'{_reason_colour(name)}" title="{escape(name)}: {duration(row.delay.get(name) or 0.0)}">'
        f"</i>"
        for name in shown
        if row.delay.get(name)
    )
    total = duration(ordered_sum(row.delay.values()))
    told = ", ".join(f"{name} {duration(row.delay[name])}" for name in shown if row.delay.get(name))
    return (
        f'<div class="stack"><span class="who">{escape(row.policy)}</span><span class="parts" '
        f'role="img" aria-label="{escape(row.policy)}: {escape(told)}">{parts}</span>'
        f"<span>{total}</span></div>"
    )


# --- pictures: the script fills them -------------------------------------------------------------

_NOSCRIPT = "<noscript><p>These pictures need JavaScript; it is inside this file.</p></noscript>"


def _spread(source: ReportSource) -> str:
    if not source.looks:
        return ""
    return (
        f'{_NOSCRIPT}<div class="legend" data-legend></div><div class="pair">'
        "<figure><figcaption>Completion time (JCT): share of completed jobs within a time"
        '</figcaption><div class="figure" data-chart="cdf-jct_s"></div></figure>'
        "<figure><figcaption>Waiting time: share of completed jobs within a time</figcaption>"
        '<div class="figure" data-chart="cdf-wait_s"></div></figure></div>'
        f"{_coincide(source)}"
    )


def _over_time(source: ReportSource) -> str:
    if not source.looks:
        return ""
    return (
        f'{_NOSCRIPT}<div class="bar-of-tools" role="toolbar" aria-label="Time in view">'
        '<button type="button" data-zoom="in">Zoom in</button>'
        '<button type="button" data-zoom="out">Zoom out</button>'
        '<button type="button" data-zoom="left" aria-label="Earlier">←</button>'
        '<button type="button" data-zoom="right" aria-label="Later">→</button>'
        '<button type="button" data-zoom="reset">Whole time</button>'
        '<span id="range" role="status"></span></div>'
        f'<p class="note hint">All pictures over time show the same part of it. {_HINT}</p>'
        '<div class="multiples" id="multiples"></div>'
    )


def _closely(source: ReportSource) -> str:
    if not source.looks:
        return ""
    return (
        f'{_NOSCRIPT}<div class="bar-of-tools"><label>Policy <select id="policy"></select></label>'
        '<span class="quiet">Colour by</span><div class="tabs" id="ways" role="group" '
        'aria-label="Colour by"></div><span class="quiet" id="bars"></span></div>'
        '<div class="legend" data-keys="lanes"></div>'
        '<div class="figure tall" data-chart="lanes" tabindex="-1"></div>'
        '<p class="note hint">Click on a job to see why it waited, under every policy.</p>'
        "<details id='more-time'><summary>GPUs by tenant, and how full every node was</summary>"
        "<h3>GPUs by tenant, share of those that are up</h3>"
        '<div class="legend" data-keys="tenants"></div>'
        '<div class="figure" data-chart="tenants"></div>'
        "<h3>GPUs in use on every node</h3>"
        '<div class="legend" data-keys="heat"></div><div class="figure" data-chart="heat"></div>'
        '<div id="f-fragments"><h3>Free GPUs that are of no use for the jobs that usually come '
        "(fragments)</h3>"
        '<div class="legend" data-keys="fragments"></div>'
        '<div class="figure" data-chart="fragments"></div></div></details>'
    )


def _jobs_section(source: ReportSource) -> str:
    if not source.looks:
        return ""
    return (
        f'{_NOSCRIPT}<div class="bar-of-tools"><form id="find-job" role="search"><label>Job '
        '<input name="id" placeholder="id" autocomplete="off" required></label> '
        '<button type="submit">Explain</button></form>'
        '<div class="tabs" id="job-order" role="group" aria-label="Which jobs"></div>'
        '<label id="job-policy">under <select></select></label></div>'
        '<p id="job-said" role="status" class="quiet"></p><div id="job-list"></div>'
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


# --- the rest ------------------------------------------------------------------------------------


def _assumptions(comparison: PolicyComparison) -> str:
    """What differs gets a column per policy; what all share is said once."""
    policies = [row.policy for row in comparison.rows]
    heads = "".join(f'<th scope="col">{escape(policy)}</th>' for policy in policies)
    body = ""
    for assumption in comparison.assumptions:
        common = assumption.common
        if common is not None and len(policies) > 1:
            cells = f'<td colspan="{len(policies)}">{escape(common)}</td>'
        else:
            texts = (assumption.values.get(policy, NONE) for policy in policies)
            cells = "".join(f"<td>{escape(text)}</td>" for text in texts)
        body += f'<tr><th scope="row">{escape(assumption.key)}</th>{cells}</tr>'
    if not body:
        return ""
    head = f"<thead><tr><td></td>{heads}</tr></thead>"
    table = f'<table class="texts">{head}<tbody>{body}</tbody></table>'
    return folded("What every number rests on", scrolling(table, "Assumptions"), printed=True)


def _notes(notes: Iterable[str]) -> str:
    useless = loud(notes)
    items = "".join(
        f'<li class="warn">{escape(text)}</li>' if text in useless else f"<li>{escape(text)}</li>"
        for text in notes
    )
    return f"<ul>{items}</ul>" if items else ""
