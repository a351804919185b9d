"""Rolling means of run times by what jobs have in common: the estimates of Helios' QSSF.

Jobs are alike if user, name and GPUs are the same; else if user and GPUs are, else if GPUs are,
else all are. A plain mean at first; once a group has `window` jobs each new one counts 1 / window.
"""

from collections.abc import Hashable, Sequence
from typing import Any

Group = tuple[Any, ...]
Seen = dict[Group, tuple[int, float]]
"""Of each group: jobs, and the sum of their run times."""


def alike(user: Hashable, name: Hashable, gpus: float) -> tuple[Group, ...]:
    """Groups that such a job belongs to, from the most to the least alike."""
    return ((user, name, gpus), (user, gpus), (gpus,), ())


def rolling_mean(seen: Seen, groups: Sequence[Group]) -> float | None:
    """Of the first group that was seen; None: none was."""
    for group in groups:
        if group in seen:
            jobs, total_s = seen[group]
            return total_s / jobs
    return None


def roll(seen: Seen, groups: Sequence[Group], run_s: float, window: int) -> None:
    """Learn a run time."""
    for group in groups:
        jobs, total_s = seen.get(group, (0, 0.0))
        if jobs == window:
            jobs, total_s = jobs - 1, total_s - total_s / jobs
        seen[group] = (jobs + 1, total_s + run_s)
