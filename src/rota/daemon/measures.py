"""How long things take: counts by bound since the start, and the last values for quantiles."""

from bisect import bisect_left
from collections import deque
from typing import Any

BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
            30.0, 60.0)  # fmt: skip


class Histogram:
    """Written by one thread, read by any."""

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._recent: deque[float] = deque(maxlen=1000)

    def observe(self, seconds: float) -> None:
        """One more."""
        self.count += 1
        self.sum += seconds
        self._counts[bisect_left(BOUNDS_S, seconds)] += 1
        self._recent.append(seconds)

    def quantile(self, share: float) -> float:
        """Of the last thousand; 0 if there are none."""
        values = sorted(self._recent.copy())
        return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0

    def as_dict(self) -> dict[str, Any]:
        """As the API tells it."""
        total = 0
        buckets = []
        for bound, count in zip(BOUNDS_S, self._counts, strict=False):
            total += count
            buckets.append((bound, total))
        return {
            "count": self.count, "sum": self.sum, "buckets": buckets,
            "p50": self.quantile(0.5), "p99": self.quantile(0.99),
        }  # fmt: skip
