"""The main numbers of a run in words."""

from collections.abc import Mapping
from typing import Any

from rota.metrics.vocabulary import BY_KEY, written

_FACTS = ("avg_jct_s", "p95_jct_s", "avg_wait_s", "makespan_s", "gpu_utilisation")


def facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(name, value) for people."""
    jobs = f"{summary.get('completed', 0):,} of {summary.get('jobs', 0):,} completed"
    measures = (BY_KEY[key] for key in _FACTS)
    return [("jobs", jobs), *((m.label, written(summary.get(m.key), m.unit)) for m in measures)]
