"""A log as a predictor meets it: jobs in the order of their submissions, and when each ended.

A job counts if it has ended and ran: one that still ran when the log was taken, never started, or
ran for no time is left out, and counted. Where a log does not tell when jobs ended, each is taken
to have started when it was submitted.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import polars as pl

from rota.core.errors import InputError
from rota.traces.imported import Imported

LEAST_S = 1.0
"""Shorter run times, and predictions, count as this."""

STILL_RAN = "still running when the log was taken"
NEVER_RAN = "never started"
NO_TIME = "no time between start and end"
ENDLESS = "without an end"


class LoggedJob(NamedTuple):
    """What is known of a job: at its submission, and (`run_s`, `end_s`) when it is over."""

    number: int  # in the log
    submit_s: float
    user: str
    name: str
    model: str
    gpus: float
    estimate_s: float  # inf: none
    run_s: float
    end_s: float

    @property
    def kind(self) -> tuple[str, str, str, float]:
        """What repeats of a job have in common."""
        return self.user, self.name, self.model, self.gpus


class JobHistory(msgspec.Struct, frozen=True):
    """The jobs that count, by submission; `left_out` of the others, by reason."""

    jobs: list[LoggedJob]
    left_out: dict[str, int]
    told_ends: bool  # the log says when jobs ended

    def unfold(self) -> Iterator[tuple[LoggedJob, list[LoggedJob]]]:
        """Each job, with those that have ended since the one before and before its submission."""
        ends = sorted(self.jobs, key=lambda job: (job.end_s, job.number))
        known = 0
        for job in self.jobs:
            first = known
            while known < len(ends) and ends[known].end_s < job.submit_s:
                known += 1
            yield job, ends[first:known]


def read_job_history(imported: Imported, named: str = "") -> JobHistory:
    """From a trace that was read; `named`: what messages call it, if its file is a copy that goes.

    Raises:
        InputError: No job of it has a run time.
    """
    frame = imported.jobs.select(
        "submit_s", "user", "name", "model", "num_gpus", "estimate_s", "duration_s"
    ).with_row_index("job")
    told_ends = len(imported.observed) > 0
    if told_ends:
        seen = imported.observed.per_job().select(
            pl.col("job").cast(pl.UInt32), "end_s", "attempts"
        )
        frame = frame.join(seen, on="job", how="left", maintain_order="left")
    else:
        frame = frame.with_columns(end_s=pl.col("submit_s") + pl.col("duration_s"), attempts=1)
    left_out: dict[str, int] = {}
    jobs = []
    for row in frame.iter_rows(named=True):
        reason = _why_not(row["attempts"], row["end_s"], row["duration_s"])
        if reason:
            left_out[reason] = left_out.get(reason, 0) + 1
            continue
        estimate_s = row["estimate_s"]
        jobs.append(
            LoggedJob(
                row["job"], row["submit_s"], row["user"], row["name"], row["model"],
                row["num_gpus"], estimate_s or math.inf,
                max(row["duration_s"], LEAST_S), max(row["end_s"], row["submit_s"]),
            )
        )  # fmt: skip
    if not jobs:
        raise InputError(
            f"{named or imported.name or 'the log'}: no job has a run time "
            f"({_listed(left_out)}): name a log of jobs that have ended"
        )
    jobs.sort(key=lambda job: (job.submit_s, job.number))
    return JobHistory(jobs, left_out, told_ends)


def _why_not(attempts: int | None, end_s: float | None, run_s: float | None) -> str:
    if not attempts:
        return NEVER_RAN
    if end_s is None:
        return STILL_RAN
    if run_s is None or not math.isfinite(run_s):
        return ENDLESS
    return NO_TIME if run_s <= 0 else ""


def _listed(left_out: dict[str, int]) -> str:
    return ", ".join(f"{many:,} {why}" for why, many in left_out.items()) or "it has no jobs"


def kinds_of(jobs: Sequence[LoggedJob]) -> list[int]:
    """The number of each job's kind: equal numbers are repeats of each other."""
    known: dict[tuple[str, str, str, float], int] = {}
    return [known.setdefault(job.kind, len(known)) for job in jobs]
