"""What a careful reader of a comparison must know, in words."""

from collections.abc import Mapping, Sequence

from rota.study.compare_file import PolicyRow, RunOf
from rota.study.statistics import FEW, LEAST_JOBS

NOTHING_RANDOM = "the seed made no difference: nothing in these runs is random"
NOBODY_WAITED = "nobody waited under any policy, so there is nothing to compare"
RAISE_LOAD = "raise the load (a smaller --cluster, or load=L of a generated workload)"
LOUD = (NOTHING_RANDOM, NOBODY_WAITED)
"""What makes a comparison useless: notes that begin so are warnings."""

Units = Mapping[tuple[int, int | None], int]
"""The unit of each replication (seed, window)."""


def describe_method(runs: Sequence[RunOf], units: Units) -> str:
    """Where the intervals come from."""
    count = len(set(units.values()))
    if count == 1:
        return (
            "95 % intervals over the jobs of one run (moving-block bootstrap; none for fewer than "
            f"{LEAST_JOBS} jobs, since it would be too narrow): how much depends on single jobs, "
            "not what other workloads would show, so no winner is marked"
        )
    what = _what(runs, units)
    how = "Student's t on log ratios" if count < FEW else "studentised bootstrap of log ratios"
    return f"95 % intervals over {count} {what}, paired ({how})"


def find_notes(
    rows: Sequence[PolicyRow],
    runs: Sequence[RunOf],
    units: Units,
    schedules: Mapping[str, Sequence[str]] | None = None,
) -> list[str]:
    """Footnotes of the table.

    Args:
        rows: The policies.
        runs: All runs.
        units: The unit of each replication.
        schedules: What tells the schedules of each policy apart, by run.
    """
    notes = _about_policies(rows, schedules or {})
    if len(rows) > 1:
        notes += _about_ratios(rows, units)
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


def _about_policies(rows: Sequence[PolicyRow], schedules: Mapping[str, Sequence[str]]) -> list[str]:
    """Policies between which there is nothing to choose."""
    if len(rows) == 1:
        return ["there is one policy, and nothing to compare it with: name more with --policy"]
    groups: dict[tuple[str, ...], list[str]] = {}
    for policy, found in schedules.items():
        groups.setdefault(tuple(found), []).append(policy)
    if not any(row.avg_wait_s for row in rows):
        return [f"{NOBODY_WAITED}: {RAISE_LOAD}"]
    if len(groups) == 1:
        return ["all policies gave the same schedule: these jobs do not tell them apart"]
    return [
        f"the same schedule, job by job: {', '.join(policies)}"
        for policies in groups.values()
        if len(policies) > 1
    ]


def _about_ratios(rows: Sequence[PolicyRow], units: Units) -> list[str]:
    notes = [
        "each interval is at 95 % on its own: of many measures, one in twenty excludes 1 by chance",
    ]
    if len(set(units.values())) > 1:
        notes.append(
            "a ratio is the typical one (geometric mean) of the paired ratios, so it is not the "
            "ratio of the means beside it"
        )
    if any(one.of_means for row in rows for one in row.measures.values()):
        notes.append(
            "~: the ratio of the means, without an interval: the measure is 0 in some runs"
        )
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
    return notes + few_note(count, _what(runs, units))


def few_note(count: int, what: str) -> list[str]:
    """That intervals of so few are wide."""
    if count < 5:  # noqa: PLR2004 - Student's factor is then 2.8 or more
        return [f"{count} {what} are few: intervals are wide for that reason"]
    return []


def _what(runs: Sequence[RunOf], units: Units) -> str:
    """What the units are."""
    by_window = runs[0].window is not None and all(
        unit == window for (_, window), unit in units.items()
    )
    return "windows" if by_window else "seeds"
