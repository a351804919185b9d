"""What a careful reader of a comparison must know, in words."""

from collections.abc import Mapping, Sequence

from rota.experiments.comparison import Row, RunOf
from rota.experiments.statistics import FEW

NOTHING_RANDOM = "the seed made no difference: nothing in these runs is random"

Units = Mapping[tuple[int, int | None], int]
"""The unit of each replication (seed, window)."""


def describe_method(runs: Sequence[RunOf], units: Units) -> str:
    """Where the intervals come from."""
    count = len(set(units.values()))
    if count == 1:
        return (
            "95 % intervals over the jobs of one run (moving-block bootstrap): how much depends on "
            "single jobs, not what other workloads would show, so no winner is marked"
        )
    what = _what(runs, units)
    how = "Student's t on log ratios" if count < FEW else "studentised bootstrap of log ratios"
    return f"95 % intervals over {count} {what}, paired ({how})"


def find_notes(rows: Sequence[Row], runs: Sequence[RunOf], units: Units) -> list[str]:
    """Footnotes of the table."""
    notes = [
        "each interval is at 95 % on its own: of many measures, one in twenty excludes 1 by chance",
    ]
    notes += _about_replications(runs, units)
    window = runs[0].summary["measured"]["window"]
    if window != "all":
        measured = sum(run.summary["jobs"] for run in runs if run.policy == rows[0].policy)
        notes.append(f"only jobs of the window {window} are measured: {measured:,} per policy")
    notes += [
        f"{row.policy}: {row.censored:,.0f} jobs unfinished when the run ended; "
        f"they are in no average"
        for row in rows
        if row.censored
    ]
    if len({row.completed for row in rows}) > 1:
        notes.append("the policies completed different jobs: their averages are not of the same")
    return notes


def _about_replications(runs: Sequence[RunOf], units: Units) -> list[str]:
    seeds = {run.seed for run in runs}
    count = len(set(units.values()))
    if count == 1 and len(seeds) > 1:
        remedy = "cut the trace with --windows N, or draw it with generate:KIND:jobs=N"
        return [f"{NOTHING_RANDOM}; {remedy}"]
    if count == 1:
        return ["one run proves nothing about others: add --windows N or --repeat N (seeds)"]
    notes = []
    if runs[0].window is not None:
        notes.append(
            "every window begins with an empty cluster: queues are shorter than in the whole trace"
        )
    if len(units) > count:
        what = _what(runs, units)
        notes.append(f"runs of the same {what[:-1]} are averaged first: they are not independent")
    if count < 5:  # noqa: PLR2004 - Student's factor is then 2.8 or more
        notes.append(f"{count} {_what(runs, units)} are few: intervals are wide for that reason")
    return notes


def _what(runs: Sequence[RunOf], units: Units) -> str:
    """What the units are."""
    by_window = runs[0].window is not None and all(
        unit == window for (_, window), unit in units.items()
    )
    return "windows" if by_window else "seeds"
