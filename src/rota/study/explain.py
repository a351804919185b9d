"""Why the jobs of a run waited, from its folder: simulated, or exported from a daemon."""

from difflib import get_close_matches
from pathlib import Path
from typing import Any

import polars as pl

from rota.core.errors import InputError
from rota.metrics.delay import REASONS, fold_delay
from rota.metrics.history import History, read_history
from rota.metrics.jobs import UNFINISHED, fold_jobs, leave_open, read_promised
from rota.metrics.story import Stories, Story
from rota.study.calibration.setting import read_log
from rota.study.output import EVENTS, JOBS

SHOWN = 5  # ids in a message


def explain_folder(folder: Path, job: str) -> Story:
    """The story of one job, by its id."""
    history = read_history(open_log(folder))
    stories = Stories(history, _open_ended(folder, history), read_promised(folder / JOBS))
    try:
        number = stories.ids.index(job)
    except ValueError:
        raise InputError(no_job(folder, job, stories.ids)) from None
    return stories.tell(number)


def explain_all(folder: Path) -> list[dict[str, Any]]:
    """A row per job: its wait and the seconds of it by reason, which add up to it."""
    history = read_history(open_log(folder))
    jobs = leave_open(fold_jobs(history), _open_ended(folder, history)).select("job_id", "state")
    parts = pl.DataFrame(fold_delay(history), schema=list(REASONS))
    waits = parts.select(wait_s=pl.sum_horizontal(pl.all()))
    return pl.concat([jobs, waits, parts], how="horizontal").to_dicts()


def _open_ended(folder: Path, history: History) -> list[str]:
    """Jobs that end in the log of the folder, but in its table still run."""
    file = folder / JOBS
    if not file.exists():
        return []
    try:
        table = pl.read_csv(file, columns=["job_id", "state"], infer_schema=False)
    except (pl.exceptions.PolarsError, OSError):
        return []  # the log alone tells all but this
    still = table.filter(pl.col("state") == UNFINISHED)["job_id"]
    if not len(still):
        return []
    ended = fold_jobs(history).filter(pl.col("state") == "done")["job_id"]
    return ended.filter(ended.is_in(still.implode())).to_list()


def open_log(folder: Path) -> pl.DataFrame:
    """The log of a folder; of a folder with several runs the error names them."""
    if not (folder / EVENTS).exists():
        runs = sorted(str(path.parent) for path in folder.glob(f"*/{EVENTS}"))
        if runs:
            more = f", ... ({len(runs)} in all)" if len(runs) > SHOWN else ""
            raise InputError(
                f"{folder}: holds several runs: name one of them: {', '.join(runs[:SHOWN])}{more}"
            )
    return read_log(folder)


def no_job(folder: Path, job: str, ids: list[str]) -> str:
    """What to say of an id that a run (its folder or its snapshot) does not have."""
    if not ids:
        return f"{folder}: there are no jobs in this run"
    close = get_close_matches(job, ids, n=3)
    if close:
        return f"{folder}: there is no job {job!r}: did you mean {', '.join(close)}?"
    shown = ", ".join(ids[:SHOWN]) + (", ..." if len(ids) > SHOWN else "")
    return f"{folder}: there is no job {job!r} among its {len(ids):,}: {shown}"
