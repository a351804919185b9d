"""The main numbers of a run in words."""

from collections.abc import Mapping
from typing import Any

from rota.report.words import duration, percent

_FACTS = (
    ("mean JCT", "avg_jct_s", duration),
    ("p95 JCT", "p95_jct_s", duration),
    ("mean wait", "avg_wait_s", duration),
    ("makespan", "makespan_s", duration),
    ("GPUs used", "gpu_utilisation", percent),
)


def facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(name, value) for people."""
    jobs = f"{summary.get('completed', 0):,} of {summary.get('jobs', 0):,} completed"
    return [("jobs", jobs), *((name, write(summary.get(key))) for name, key, write in _FACTS)]
