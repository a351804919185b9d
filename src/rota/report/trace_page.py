"""What an import found, as one HTML page: `rota trace inspect --html`.

The page needs no network, and no script for its pictures: they are SVG inside it.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from rota.core.errors import OptionError
from rota.core.words import NONE, duration
from rota.metrics.vocabulary import count
from rota.report.frame import (
    PageSection,
    ReportPage,
    ReportTile,
    as_typed,
    folded,
    scrolling,
    write_whole_page,
)
from rota.traces.tools.report import MOST_TENANTS, TraceReport

ENDINGS = (".html", ".htm")
_ROW, _NAME, _BAR, _VALUE = 24, 110, 420, 110  # pixels of a picture with lying bars
_SLOT, _HIGH, _LEFT, _FOOT, _HEAD = 26, 150, 64, 22, 8  # and with standing ones
_HOURS_APART = 3


def check_name(path: Path) -> None:
    """Refuse what does not look like a page, so that no trace is overwritten by mistake."""
    if path.suffix.lower() not in ENDINGS:
        raise OptionError(f"html {str(path)!r} is no page: name a file that ends in .html")


def write_trace_page(found: TraceReport, path: Path, command: Sequence[str] = ()) -> None:
    """Write the page; a file that is there is replaced."""
    check_name(path)
    write_whole_page(path, html(found, command), option="--html")


def html(found: TraceReport, command: Sequence[str] = ()) -> str:
    """The page."""
    return ReportPage(
        kind="Trace",
        title=f"Quality of {found.name or 'a trace'}",
        verdict=_verdict(found),
        facts=_facts(found),
        tiles=_key_numbers(found),
        sections=[
            PageSection("import", "What the import did", _import(found)),
            PageSection("contradictions", "Contradictions", _contradictions(found.contradictions)),
            PageSection("notes", "Notes", _list(found.notes)),
            PageSection("sizes", "GPUs per job", _lying("Jobs by number of GPUs", found.sizes)),
            PageSection("durations", "Durations", _lying("Jobs by duration", found.durations)),
            PageSection("hours", "Load by hour of the day", _hours(found)),
            PageSection("tenants", "By tenant", _tenants(found)),
            PageSection("jobs", "Jobs", folded("All numbers", _jobs(found), printed=True)),
            PageSection("observed", "What was observed", _observed(found.observed)),
        ],
        command=as_typed(command),
    ).html()


def _verdict(found: TraceReport) -> str:
    """Can it be used as it is?"""
    dropped, repaired = sum(found.dropped.values()), sum(found.repaired.values())
    wrong = sum(found.contradictions.values())
    text = f"All {found.kept:,} jobs of this trace can be used"
    if dropped:
        text = (
            f"{found.kept:,} of {found.rows:,} rows of this trace can be used, {dropped:,} cannot"
        )
    if repaired:
        text += f"; {repaired:,} {'was' if repaired == 1 else 'were'} repaired"
    if wrong:
        return f"{text}; {wrong:,} things in it cannot be true together."
    return f"{text}; nothing in it contradicts itself."


def _key_numbers(found: TraceReport) -> list[ReportTile]:
    jobs = found.jobs
    single = jobs["single_gpu_pct"]
    one = "" if single is None else f"{single:.1f} % of those with GPUs ask for one at most"
    return [
        ReportTile("jobs", count(jobs["jobs"]), one),
        ReportTile("submitted over", duration(jobs["span_s"])),
        ReportTile(
            "median duration",
            duration(jobs["median_duration_s"]),
            f"95 % end within {duration(jobs['p95_duration_s'])}",
        ),
        ReportTile("GPU-hours", count(jobs["gpu_hours"]), "asked for in all"),
        ReportTile(
            "GPUs busy on average", count(jobs["mean_gpus_needed"]), "if nobody had to wait"
        ),
    ]


# --- tables --------------------------------------------------------------------------------------


def _facts(found: TraceReport) -> list[tuple[str, str]]:
    cluster = found.cluster
    pairs = [
        ("rows read", count(found.rows)),
        ("jobs kept", count(found.kept)),
        ("second 0", found.origin or "not known"),
        ("submitted over", duration(found.jobs["span_s"])),
    ]
    if cluster["nodes"] or cluster["events"]:
        machines = f"{cluster['nodes']:,} with {cluster['gpus']:,} GPUs"
        pairs += [("machines", machines), ("events of the cluster", count(cluster["events"]))]
    return pairs


def _import(found: TraceReport) -> str:
    """Every row is accounted for: kept, dropped by reason, repaired by rule."""
    rows: list[tuple[str, str, int]] = [("read", "", found.rows), ("kept", "", found.kept)]
    rows += [("dropped", why, many) for why, many in found.dropped.items()]
    rows += [("repaired", why, many) for why, many in found.repaired.items()]
    rows.append(("censored", "still ran when the log was taken", _censored(found)))
    body = [[what, why or NONE, f"{many:,}"] for what, why, many in rows]
    note = "" if found.dropped or found.repaired else "Nothing was dropped, nothing repaired."
    return _table(["rows", "why", "how many"], body, texts=True) + _note(note)


def _censored(found: TraceReport) -> int:
    return int(found.observed.get("censored", 0))


def _contradictions(counts: Mapping[str, int]) -> str:
    if not counts:
        return "<p>None was found.</p>"
    body = [[what, f"{many:,}"] for what, many in counts.items()]
    return _table(["things that cannot both be true", "how many"], body)


def _jobs(found: TraceReport) -> str:
    jobs = found.jobs
    single = jobs["single_gpu_pct"]
    rows = [
        ("jobs", count(jobs["jobs"])),
        ("without GPUs", count(jobs["without_gpus"])),
        (
            "of those with GPUs, ask for one at most",
            NONE if single is None else f"{single:.1f} %",
        ),
        ("tenants", count(jobs["virtual_clusters"] or None)),
        ("users", count(jobs["users"] or None)),
        ("without an end", count(jobs["endless"])),
        ("median duration", duration(jobs["median_duration_s"])),
        ("p95 duration", duration(jobs["p95_duration_s"])),
        ("p99 duration", duration(jobs["p99_duration_s"])),
        ("GPU-hours in all", count(jobs["gpu_hours"])),
        ("GPUs that would be busy on average", count(jobs["mean_gpus_needed"])),
    ]
    types = found.cluster["gpus_by_type"]
    rows += [(f"GPUs of type {name or '(not said)'}", count(many)) for name, many in types.items()]
    return _table(["measure", "value"], [list(row) for row in rows])


def _observed(seen: Mapping[str, object]) -> str:
    if not seen.get("attempts"):
        return "<p>The trace does not say when jobs really started.</p>"
    rows = [
        ["attempts", _amount(seen, "attempts")],
        ["jobs that started", _amount(seen, "jobs")],
        ["attempts with names of nodes", _amount(seen, "with_nodes")],
        ["median wait", duration(_value(seen, "median_wait_s"))],
        ["p95 wait", duration(_value(seen, "p95_wait_s"))],
    ]
    states = seen.get("states")
    if isinstance(states, Mapping):
        rows += [[f"attempts that ended as: {name}", f"{many:,}"] for name, many in states.items()]
    return _table(["measure", "value"], rows)


def _amount(seen: Mapping[str, object], key: str) -> str:
    return count(_value(seen, key))


def _value(seen: Mapping[str, object], key: str) -> float | None:
    value = seen.get(key)
    return float(value) if isinstance(value, int | float) else None


def _tenants(found: TraceReport) -> str:
    if not found.tenants:
        return ""
    total = found.jobs["gpu_hours"] or 0.0
    body = [
        [
            row["tenant"] or "(none)",
            count(row["jobs"]),
            count(row["users"] or None),
            count(row["gpu_hours"]),
            f"{100 * row['gpu_hours'] / total:.1f} %" if total else NONE,
            duration(row["median_duration_s"]),
        ]
        for row in found.tenants
    ]
    heads = ["tenant", "jobs", "users", "GPU-hours", "share of all", "median duration"]
    many = found.jobs["virtual_clusters"]
    cut = f"The {MOST_TENANTS} of {many:,} with most GPU-hours." if many > len(body) else ""
    return _table(heads, body) + _note(cut)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, texts: bool = False) -> str:
    """A table of plain texts; the first column names the row."""
    head = "".join(f"<th scope='col'>{escape(name)}</th>" for name in heads)
    body = "".join(
        f"<tr><th scope='row'>{escape(first)}</th>"
        + "".join(f"<td>{escape(text)}</td>" for text in others)
        + "</tr>"
        for first, *others in rows
    )
    kind = "texts" if texts else "numbers"
    table = f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return scrolling(table, ", ".join(heads))


def _list(texts: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def _note(text: str) -> str:
    return f"<p class='note'>{escape(text)}</p>" if text else ""


# --- pictures ------------------------------------------------------------------------------------


def _lying(title: str, counts: Mapping[str, int]) -> str:
    """A bar per name, from the left to the right."""
    most = max(counts.values(), default=0)
    if not most:
        return ""
    total = sum(counts.values())
    bars = ""
    for number, (name, many) in enumerate(counts.items()):
        middle = number * _ROW + _ROW / 2
        wide = max(1.0, _BAR * many / most) if many else 0.0
        bars += (
            f'<text x="{_NAME - 8}" y="{middle + 4:.0f}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{_NAME}" y="{middle - 8:.0f}" width="{wide:.1f}" height="16" '
            f'style="fill:var(--accent)"/>'
            f'<text x="{_NAME + wide + 6:.1f}" y="{middle + 4:.0f}">{many:,} '
            f"({100 * many / total:.1f} %)</text>"
        )
    return _figure(bars, _NAME + _BAR + _VALUE, len(counts) * _ROW, title)


def _hours(found: TraceReport) -> str:
    return (
        '<div class="pair">'
        + _standing("Jobs submitted", found.submissions_by_hour)
        + _standing("GPU-hours submitted", found.gpu_hours_by_hour)
        + "</div>"
    )


def _standing(title: str, values: Sequence[float]) -> str:
    """A bar per hour of the day."""
    most = max(values, default=0)
    if not most:
        return ""
    floor = _HEAD + _HIGH
    bars = ""
    for hour, value in enumerate(values):
        high = max(1.0, _HIGH * value / most) if value else 0.0
        x = _LEFT + hour * _SLOT
        bars += (
            f'<rect x="{x + 2}" y="{floor - high:.1f}" width="{_SLOT - 4}" height="{high:.1f}" '
            f'style="fill:var(--accent)"><title>{hour}:00: {count(value)}</title></rect>'
        )
        if hour % _HOURS_APART == 0:
            bars += (
                f'<text x="{x + _SLOT / 2:.0f}" y="{floor + 16}" text-anchor="middle">{hour}</text>'
            )
    for share in (0, 1):
        y = floor - share * _HIGH
        bars += (
            f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{count(share * most)}</text>'
            f'<line x1="{_LEFT}" x2="{_LEFT + _SLOT * len(values)}" y1="{y}" y2="{y}" '
            f'opacity=".25" stroke="currentColor"/>'
        )
    return _figure(bars, _LEFT + _SLOT * len(values), floor + _FOOT, f"{title} by hour of the day")


def _figure(inside: str, wide: int, high: int, title: str) -> str:
    return (
        f'<figure><svg viewBox="0 0 {wide} {high}" role="img" aria-label="{escape(title)}" '
        f'style="max-width:{wide}px;width:100%;font-size:12px;fill:currentColor">{inside}</svg>'
        f"<figcaption>{escape(title)}</figcaption></figure>"
    )
