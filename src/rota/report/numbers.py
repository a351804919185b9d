"""Tables of a comparison: ratios with intervals, and waits by reason."""

import polars as pl

from rota.metrics.delay import REASONS
from rota.study.comparison import Comparison


def ratios(comparison: Comparison) -> pl.DataFrame:
    """Ratios to the baseline of every measure that has any.

    Returns:
        Columns `key`, `measure` (for people), `better` (`less`, `more` or null), `policy`, `ratio`,
        `low`, `high` (null: no interval), `verdict`, `clear` (the interval excludes 1, and is one
        over several runs).
    """
    rows = []
    proven = judged(comparison)
    for measure in comparison.measures:
        for row in comparison.rows:
            found = row.measures.get(measure.key)
            if row.policy == comparison.baseline or found is None or found.ratio is None:
                continue
            known = proven and found.low is not None and found.high is not None
            clear = known and not (found.low or 0.0) <= 1.0 <= (found.high or 0.0)
            rows.append(
                (
                    measure.key, measure.label, measure.better, row.policy, found.ratio, found.low,
                    found.high, found.verdict, clear,
                )
            )  # fmt: skip
    schema = {
        "key": pl.String, "measure": pl.String, "better": pl.String, "policy": pl.String,
        "ratio": pl.Float64, "low": pl.Float64, "high": pl.Float64, "verdict": pl.String,
        "clear": pl.Boolean,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=schema, orient="row")


def judged(comparison: Comparison) -> bool:
    """Anything is said to be better, worse or unclear: not of one run alone."""
    return any(one.verdict for row in comparison.rows for one in row.measures.values())


def without_ratio(comparison: Comparison) -> list[str]:
    """In words, what has no point on a logarithmic axis of ratios."""
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    others = [row for row in comparison.rows if row.policy != comparison.baseline]
    for measure in comparison.measures:
        known = [(row.policy, row.measures.get(measure.key)) for row in others]
        zero = tuple(policy for policy, one in known if one is not None and one.ratio == 0.0)
        none = tuple(
            policy
            for policy, one in known
            if one is not None and one.mean is not None and one.ratio is None
        )
        for why, who in (("the ratio is 0", zero), ("no ratio to 0", none)):
            if who:
                found.setdefault((why, who), []).append(measure.label)
    return [
        f"{', '.join(labels)}{_of(who, len(others))} ({why})"
        for (why, who), labels in found.items()
    ]


def _of(policies: tuple[str, ...], everybody: int) -> str:
    return "" if len(policies) == everybody else f" of {', '.join(policies)}"


def delays(comparison: Comparison) -> pl.DataFrame:
    """Mean wait per completed job by policy and reason: the columns of `delay_parts`."""
    rows = [
        (row.policy, reason, row.delay.get(reason) or 0.0)
        for row in comparison.rows
        for reason in REASONS
    ]
    schema = {"policy": pl.String, "reason": pl.String, "wait_s": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")
