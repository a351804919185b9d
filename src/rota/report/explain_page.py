"""Why one job waited, as a page: `rota explain DIR JOB --html FILE`."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from rota.core.errors import OptionError
from rota.core.words import NONE, duration
from rota.metrics.story import Story
from rota.report.frame import (
    PageSection,
    ReportPage,
    ReportTile,
    as_typed,
    scrolling,
    write_whole_page,
)
from rota.report.style import REASON_COLOURS, REASONS_ON_DARK

ENDINGS = (".html", ".htm")
MOST_STEPS = 500


def write_story_page(story: Story, to: Path, command: Sequence[str] = ()) -> Path:
    """Write the page; a file that is there is replaced."""
    if to.suffix.lower() not in ENDINGS:
        raise OptionError(f"html {str(to)!r} is no page: name a file that ends in .html")
    write_whole_page(to, story_page(story, command).html(), option="--html")
    return to


def story_page(story: Story, command: Sequence[str] = ()) -> ReportPage:
    """The story of a job."""
    end_s = None if story.end_s is None else story.end_s - story.submit_s
    stops = len(story.halts)
    return ReportPage(
        kind="Job",
        title=f"Job {story.id}",
        verdict=f"{story.text[:1].upper()}{story.text[1:]}.",
        tiles=[
            ReportTile("waited", duration(story.wait_s)),
            ReportTile("ran", duration(story.run_s)),
            ReportTile("from submission to end", duration(end_s), story.state),
            ReportTile("stopped", f"{stops:,}", _by(story.preempted_by)),
            ReportTile("GPUs", f"{story.gpus:g}", story.tenant),
        ],
        sections=[
            PageSection("parts", "Why it waited", _parts(story)),
            PageSection("life", "Its life", _life(story)),
            PageSection("steps", "Step by step", _steps(story)),
            PageSection("first", "Served first", _names(story.ahead)),
        ],
        command=as_typed(command),
    )


def _by(names: Sequence[str]) -> str:
    return f"for {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}" if names else ""  # noqa: PLR2004 - a few


def _colour(reason: str) -> str:
    light = REASON_COLOURS.get(reason, "#777777")
    return f"light-dark({light}, {REASONS_ON_DARK.get(reason, light)})"


def _parts(story: Story) -> str:
    if not story.parts:
        return "<p>It did not wait.</p>"
    rows = "".join(
        f'<tr><th scope="row"><i class="swatch" style="background:{_colour(part.reason)}"></i>'
        f'{escape(part.reason)}</th><td class="number">{duration(part.seconds)}</td>'
        f'<td class="number">{part.seconds / max(story.wait_s, 1e-9):.0%}</td>'
        f"<td>{escape(part.text)}</td></tr>"
        for part in story.parts
    )
    table = (
        '<table><thead><tr><th scope="col">reason</th><th scope="col" class="number">waited</th>'
        '<th scope="col" class="number">share</th><th scope="col">what</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )
    return scrolling(table, "Reasons")


def _life(story: Story) -> str:
    """From its submission to its end: waiting by reason, running."""
    last = [one.until_s for one in story.intervals] + [
        stay.at_s + stay.ran_s for stay in story.stays
    ]
    until_s = story.end_s if story.end_s is not None else max(last, default=story.submit_s)
    whole_s = max(until_s - story.submit_s, 1e-9)
    pieces = "".join(
        f'<i style="left:{100 * (one.from_s - story.submit_s) / whole_s:.2f}%;'
        f'width:{max(0.2, 100 * one.seconds / whole_s):.2f}%;background:{_colour(one.reason)}" '
        f'title="{escape(one.reason)}: {duration(one.seconds)}"></i>'
        for one in story.intervals
        if one.task in (None, 0)
    )
    return (
        '<span class="strip-of-life tall" role="img" aria-label="Its life: coloured where it '
        f'waited, dark where it ran"><i class="life ran" style="width:100%"></i>{pieces}</span>'
        f'<p class="note">From its submission to its end, {duration(whole_s)}: in colours it '
        "waited, by reason; dark: it ran.</p>"
    )


def _steps(story: Story) -> str:
    steps = [(halt.at_s, 0, "", halt.what, halt.text) for halt in story.halts]
    steps += [(stay.at_s, 1, "", stay.what, stay.text) for stay in story.stays]
    steps += [
        (one.from_s, 2, duration(one.seconds), one.reason, one.text) for one in story.intervals
    ]
    steps.sort(key=lambda step: step[:2])
    rows = "".join(
        f'<tr><td class="number">{duration(at_s - story.submit_s)}</td><td>{escape(what)}</td>'
        f'<td class="number">{waited or NONE}</td><td>{escape(text)}</td></tr>'
        for at_s, _, waited, what, text in steps[:MOST_STEPS]
    )
    if not rows:
        return ""
    table = (
        '<table><thead><tr><th scope="col" class="number">after its submission</th><th scope="col">'
        'what</th><th scope="col" class="number">waited</th><th scope="col">why, where</th></tr>'
        f"</thead><tbody>{rows}</tbody></table>"
    )
    cut = len(steps) - MOST_STEPS
    note = f'<p class="note">And {cut:,} more.</p>' if cut > 0 else ""
    return f"{scrolling(table, 'Step by step')}{note}"


def _names(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - 60:,} more" if len(names) > 60 else ""  # noqa: PLR2004 - a paragraph
    return f"<p>{escape(', '.join(names[:60]))}{more}</p>"
