"""A comparison as texts for a terminal or a page."""

from collections.abc import Sequence

from rota.metrics.vocabulary import BY_KEY, label_of, written
from rota.study.compare_file import Assumption, Measured, PolicyComparison, PolicyRow

COLUMNS = (
    "avg_jct_s", "p50_jct_s", "p95_jct_s", "p99_jct_s", "avg_wait_s", "makespan_s",
    "gpu_utilisation", "preemptions",
)  # fmt: skip
HEADINGS = ("policy", *(label_of(key) for key in COLUMNS), "completed", "knows", "ratio")
FULL_HEADINGS = ("measure", "policy", "mean", "ratio")


def cells(row: PolicyRow) -> tuple[str, ...]:
    """A row as texts, in the order of `HEADINGS`."""
    jct = row.measures.get("avg_jct_s") or Measured(row.avg_jct_s, row.ratio)
    return (
        row.policy,
        *(written(getattr(row, key), BY_KEY[key].unit) for key in COLUMNS),
        f"{row.completed or 0:,.0f} of {row.jobs or 0:,.0f}",
        row.knowledge,
        ratio(jct),
    )


def full_cells(comparison: PolicyComparison) -> list[tuple[str, ...]]:
    """All measures of all policies, in the order of `FULL_HEADINGS`; a measure's name once.

    What is nothing but zeros is left out.
    """
    found: list[tuple[str, ...]] = []
    for measure in comparison.measures:
        if not any(row.measures[measure.key].mean for row in comparison.rows):
            continue
        label = measure.label
        for row in comparison.rows:
            one = row.measures[measure.key]
            if one.mean is not None:
                found.append((label, row.policy, written(one.mean, measure.unit), ratio(one)))
                label = ""
    return found


def ratio(one: Measured) -> str:
    """`0.854* [0.801, 0.910]`; the star: the interval excludes 1; ~: of the means."""
    if one.ratio is None:
        return "-"
    star = "*" if one.verdict in ("better", "worse") else ""
    text = f"{one.ratio:.3f}{star}{'~' if one.of_means else ''}"
    if one.low is None or one.high is None or (one.low == one.high and not star):
        return text
    return f"{text} [{_bound(one.low)}, {_bound(one.high)}]"


def _bound(number: float) -> str:
    """With more digits where it would seem to be 1 and is not."""
    text = f"{number:.3f}"
    return f"{number:.6f}" if text == "1.000" and number != 1 else text


def differing(assumptions: Sequence[Assumption]) -> list[tuple[str, str]]:
    """(assumption, `this: a, b; that: c`) for each that is not the same for all policies."""
    found = []
    for assumption in assumptions:
        if assumption.common is None:
            by_text: dict[str, list[str]] = {}
            for policy, text in assumption.values.items():
                by_text.setdefault(text, []).append(policy)
            parts = (f"{text}: {', '.join(policies)}" for text, policies in by_text.items())
            found.append((assumption.key, "; ".join(parts)))
    return found


def common(assumptions: Sequence[Assumption]) -> list[tuple[str, str]]:
    """(assumption, text) for each that is the same for all policies."""
    return [(one.key, one.common) for one in assumptions if one.common is not None]
