"""The measures: one name, one unit and one way of writing each, in all commands, pages and figures.

`docs/reference/measures.md` defines them for users; its table is made from `MEASURES`.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from rota.core.words import NONE, duration

Unit = Literal["s", "share", "count", "ratio", "index"]


class Measure(msgspec.Struct, frozen=True):
    """A number that schedules are compared by: which way is better (None: neither)."""

    key: str
    label: str
    unit: Unit
    better: Literal["less", "more"] | None


MEASURES = (
    Measure("avg_jct_s", "mean JCT", "s", "less"),
    Measure("p50_jct_s", "median JCT", "s", "less"),
    Measure("p95_jct_s", "p95 JCT", "s", "less"),
    Measure("p99_jct_s", "p99 JCT", "s", "less"),
    Measure("avg_wait_s", "mean wait", "s", "less"),
    Measure("p50_wait_s", "median wait", "s", "less"),
    Measure("p95_wait_s", "p95 wait", "s", "less"),
    Measure("makespan_s", "makespan", "s", "less"),
    Measure("avg_bounded_slowdown", "mean slowdown", "ratio", "less"),
    Measure("p99_bounded_slowdown", "p99 slowdown", "ratio", "less"),
    Measure("gpu_utilisation", "GPU utilisation", "share", "more"),
    Measure("gpu_allocation", "GPU allocation", "share", None),
    Measure("fragmentation", "GPUs idle by fragmentation", "share", "less"),
    Measure("free_on_used_nodes", "free GPUs on used nodes", "share", "less"),
    Measure("frag_amount", "GPUs that are fragments", "share", "less"),
    Measure("preemptions", "preemptions", "count", "less"),
    Measure("migrations", "migrations", "count", "less"),
    Measure("resizes", "resizes", "count", "less"),
    Measure("evictions", "evictions by failures", "count", None),
    Measure("avg_rho", "mean rho (finish-time fairness)", "ratio", "less"),
    Measure("p99_rho", "p99 rho", "ratio", "less"),
    Measure("max_rho", "largest rho", "ratio", "less"),
    Measure("jain_tenants", "Jain index of tenants", "index", "more"),
    Measure("deadline_misses", "deadlines missed", "count", "less"),
    Measure("deadline_miss_share", "share of deadlines missed", "share", "less"),
    Measure("avg_tardiness_s", "mean tardiness", "s", "less"),
    Measure("max_tardiness_s", "largest tardiness", "s", "less"),
    Measure("completed", "jobs completed", "count", "more"),
    Measure("censored", "jobs unfinished", "count", "less"),
)
"""All of them, in the order of tables."""

BY_KEY = {measure.key: measure for measure in MEASURES}
_THOUSAND, _TEN = 1_000.0, 10.0


def label_of(key: str) -> str:
    """The name of a measure; a key that is none, in words."""
    return BY_KEY[key].label if key in BY_KEY else key.replace("_", " ")


def written(value: float | None, unit: str) -> str:
    """A number of a measure as people read it: `2h 04m`, `81.2%`, `1,234`, `1.234`."""
    if value is None:
        return NONE
    if unit == "s":
        return duration(value)
    if unit == "share":
        return f"{value:.1%}"
    if unit == "count":
        return count(value)
    digits = 0 if abs(value) >= _THOUSAND else 2 if abs(value) >= _TEN else 3
    return f"{value:,.{digits}f}"


def count(number: float | None) -> str:
    """`1,234`, or with a digit where it is a mean."""
    if number is None:
        return NONE
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.1f}"


def alike(values: Iterable[float | None], unit: str) -> list[str]:
    """Numbers of one measure side by side."""
    return [written(value, unit) for value in values]
