"""Who was too late.

A job with a deadline *misses* it unless it is done by then; failed, rejected and cancelled jobs
miss theirs. An unfinished job has missed it if the run ended after the deadline, else nothing is
known and the job does not count.
"""

from typing import Any

import numpy as np
import polars as pl

from rota.core.eventlog import Bools, Floats
from rota.metrics.jobs import UNFINISHED


def fold_deadlines(
    jobs: pl.DataFrame, chosen: Bools, deadlines_s: Floats | None, end_s: float
) -> dict[str, Any]:
    """Jobs with a deadline whose fate is known, those that missed it, and their share.

    Args:
        jobs: The table of all jobs.
        chosen: Those that count.
        deadlines_s: Of every job on the clock of the log, inf for none; None: they are not known.
        end_s: When the log ends.
    """
    if deadlines_s is None:
        return {"with_deadline": None, "deadline_misses": None, "deadline_miss_share": None}
    state = jobs["state"]
    has = chosen & np.isfinite(deadlines_s)
    has &= (state != UNFINISHED).to_numpy() | (deadlines_s < end_s)
    ends_s = jobs["end_s"].fill_null(np.inf).to_numpy()
    met = (state == "done").to_numpy() & (ends_s <= deadlines_s)
    count, misses = int(has.sum()), int((has & ~met).sum())
    return {
        "with_deadline": count,
        "deadline_misses": misses,
        "deadline_miss_share": misses / count if count else None,
    }
