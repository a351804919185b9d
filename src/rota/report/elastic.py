"""The part of the report about jobs whose size changed: sizes over time, speed, what it took."""

from collections.abc import Sequence
from html import escape

import numpy as np

from rota.core.sums import ordered_sum
from rota.core.words import NONE, duration
from rota.metrics.story import Stories, Story
from rota.report.source import RunView

MOST = 12  # jobs of a policy, those with the most changes of size
WIDTH, HEIGHT = 240, 28
COLUMNS = (
    "job", "asked", "mean GPUs", "GPUs over its life", "resizes", "speed", "efficiency",
    "slow for", "lost to resizing",
)  # fmt: skip
LEGEND = (
    "Speed and efficiency are 1 and 100 % for a job that ran undisturbed on what it asked for: "
    "progress per second of running, and the GPU time that it would have used so, relative to what "
    "it used. Slow: below 0.9. <code>rota explain DIR JOB</code> tells of each change for whom it "
    "was."
)


def section(looks: Sequence[RunView]) -> str:
    """Of all policies that resized jobs; empty: none did."""
    tables = "".join(filter(None, map(_table, looks)))
    if not tables:
        return ""
    return f'{tables}<p class="note">{LEGEND}</p>'


def _table(look: RunView) -> str:
    history = look.history
    counts = look.jobs["resizes"].to_numpy()
    resized = np.flatnonzero(counts)
    if not len(resized):
        return ""
    most = resized[np.argsort(-counts[resized], kind="stable")][:MOST]
    stories = Stories(history, promised=look.promised)
    rows = "".join(_row(stories.tell(number)) for number in sorted(most.tolist()))
    heads = "".join(f"<th scope='col'>{head}</th>" for head in COLUMNS)
    spent = float((history.held * history.length_s)[history.resizing].sum()) / 3600
    shown = f" Those with the most changes ({len(most)}):" if len(resized) > len(most) else ""
    return (
        f"<h3>{escape(look.name)}</h3><p>{len(resized):,} of {len(counts):,} jobs were resized, "
        f"{int(counts.sum()):,} times in all; {spent:,.1f} GPU-hours went into it.{shown}</p>"
        f"<div class='scroll'><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
        "</div>"
    )


def _row(story: Story) -> str:
    held = [stay.gpus * stay.ran_s for stay in story.stays]
    ran_s = ordered_sum(stay.ran_s for stay in story.stays)
    resizes = sum(stay.what in ("grown", "shrunk") for stay in story.stays)
    lost_s = story.resizing_s + story.resizing_lost_s
    cells = (
        f"{story.gpus:g}",
        f"{ordered_sum(held) / ran_s:.1f}" if ran_s else NONE,
        _sizes(story),
        f"{resizes}",
        NONE if story.speed is None else f"{story.speed:.2f}",
        NONE if story.efficiency is None else f"{story.efficiency:.0%}",
        duration(story.slow_s) if story.slow_s else NONE,
        duration(lost_s) if lost_s else NONE,
    )
    told = "".join(f"<td>{cell}</td>" for cell in cells)
    return f"<tr><th scope='row'>{escape(story.id)}</th>{told}</tr>"


def _sizes(story: Story) -> str:
    """Steps from its first start to its end, with a text for those who do not see them."""
    stays = [stay for stay in story.stays if stay.task in (None, 0)]
    from_s = stays[0].at_s
    until_s = story.end_s if story.end_s is not None else stays[-1].at_s + stays[-1].ran_s
    most, whole_s = max(stay.gpus for stay in stays), max(until_s - from_s, 1e-9)
    points = []
    for stay, next_s in zip(stays, [*(stay.at_s for stay in stays[1:]), until_s], strict=True):
        high = HEIGHT - 2 - stay.gpus / most * (HEIGHT - 4)
        points += [
            f"{(at_s - from_s) / whole_s * WIDTH:.1f},{high:.1f}" for at_s in (stay.at_s, next_s)
        ]
    text = " → ".join(f"{stay.gpus:g}" for stay in stays)
    return (
        f"<svg role='img' width='{WIDTH}' height='{HEIGHT}' viewBox='0 0 {WIDTH} {HEIGHT}'>"
        f"<title>{escape(text)} GPUs</title><polyline fill='none' stroke='currentColor' "
        f"points='{' '.join(points)}'/></svg>"
    )
