"""Tables of a comparison: ratios with intervals, and waits by reason."""

import polars as pl

from rota.experiments.comparison import Comparison
from rota.metrics.delay import REASONS


def ratios(comparison: Comparison) -> pl.DataFrame:
    """Ratios to the baseline of every measure that has any.

    Returns:
        Columns `key`, `measure` (for people), `better` (`less`, `more` or null), `policy`, `ratio`,
        `low`, `high` (null: no interval), `verdict`, `clear` (the interval excludes 1).
    """
    rows = []
    for measure in comparison.measures:
        for row in comparison.rows:
            found = row.measures.get(measure.key)
            if row.policy == comparison.baseline or found is None or found.ratio is None:
                continue
            known = found.low is not None and found.high is not None
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


def delays(comparison: Comparison) -> pl.DataFrame:
    """Mean wait per completed job by policy and reason: the columns of `delay_parts`."""
    rows = [
        (row.policy, reason, row.delay.get(reason) or 0.0)
        for row in comparison.rows
        for reason in REASONS
    ]
    schema = {"policy": pl.String, "reason": pl.String, "wait_s": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")
