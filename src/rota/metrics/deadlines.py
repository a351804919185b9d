"""Who was too late.

A job with a deadline *misses* it unless it is done by then; failed, rejected and cancelled jobs
miss theirs. An unfinished job has missed it if the run ended after the deadline, else nothing is
known and the job does not count. Its *tardiness* is by how much a job was done too late, 0 if it
was done in time.
"""

from typing import Any

import numpy as np
import polars as pl

from rota.core.eventlog import Bools, Floats
from rota.metrics.jobs import UNFINISHED

KEYS = (
    "with_deadline", "deadline_misses", "deadline_miss_share", "avg_tardiness_s", "max_tardiness_s",
)  # fmt: skip


def fold_deadlines(
    jobs: pl.DataFrame, chosen: Bools, deadlines_s: Floats | None, end_s: float
) -> dict[str, Any]:
    """Jobs with a deadline whose fate is known, how many of them missed it, and by how much.

    Args:
        jobs: The table of all jobs.
        chosen: Those that count.
        deadlines_s: Of every job on the clock of the log, inf for none; None: they are not known.
        end_s: When the log ends.
    """
    if deadlines_s is None:
        return dict.fromkeys(KEYS)
    state = jobs["state"]
    has = chosen & np.isfinite(deadlines_s)
    has &= (state != UNFINISHED).to_numpy() | (deadlines_s < end_s)
    ends_s = jobs["end_s"].fill_null(np.inf).to_numpy()
    met = (state == "done").to_numpy() & (ends_s <= deadlines_s)
    count, misses = int(has.sum()), int((has & ~met).sum())
    done = has & (state == "done").to_numpy()
    late_s = np.maximum(ends_s[done] - deadlines_s[done], 0.0)
    values = (
        count,
        misses,
        misses / count if count else None,
        float(late_s.mean()) if len(late_s) else None,
        float(late_s.max()) if len(late_s) else None,
    )
    return dict(zip(KEYS, values, strict=True))
