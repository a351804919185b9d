"""Arrays: one description, many jobs that differ in a number."""

import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from rota.core.errors import InputError
from rota.jobfile.model import JobFile
from rota.jobfile.quantities import shown

MOST_TASKS = 10_000
LONGEST_TEXT = 100_000  # characters: so many numbers, one by one
MOST_BYTES = 128 << 20  # of all jobs of one submission: each is kept with all that it says
_PART = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7}))?(?::([0-9]{1,7}))?", re.ASCII)


class ArrayPlan(msgspec.Struct, frozen=True):
    """The numbers of the jobs of an array, and how many may be in the queue or run (0: all)."""

    indices: tuple[int, ...]
    limit: int = 0


@lru_cache(maxsize=1024)
def array_plan(text: str, where: str = "array") -> ArrayPlan:
    """`1-10`, `0-30:10`, `1,4,7`; `%2` behind it: at most two at once."""
    if len(text) > LONGEST_TEXT:
        raise InputError(
            f"{where} is {shown(text)}: at most {LONGEST_TEXT:,} characters: write ranges (0-9999)"
        )
    asked, percent, most = text.partition("%")
    if percent and not re.fullmatch(r"[0-9]{1,7}", most.strip(), re.ASCII):
        raise InputError(f"{where} is {shown(text)}: write how many at once behind %, e.g. 0-9%4")
    limit = int(most) if percent else 0
    if percent and not limit:
        raise InputError(f"{where} is {shown(text)}: at least 1 must be allowed at once")
    found: dict[int, None] = {}
    for part in asked.split(","):
        match = _PART.fullmatch(part.strip())
        step = int(match[3] or 1) if match else 0
        if match is None or not step:
            raise InputError(
                f"{where} is {shown(text)}: write 1-10, 0-30:10, 1,4,7 or 0-9%4 "
                "(numbers have at most 7 digits)"
            )
        span = range(int(match[1]), int(match[2] or match[1]) + 1, step)
        if len(found) + len(span) > MOST_TASKS:
            raise InputError(f"{where} is {shown(text)}: at most {MOST_TASKS:,} jobs in one array")
        found |= dict.fromkeys(span)
    if not found:
        raise InputError(f"{where} is {shown(text)}: it names no number: write 1-10")
    return ArrayPlan(tuple(found), limit)


def array_of(job: JobFile, id: str) -> tuple[str, ArrayPlan] | None:  # noqa: A002 - as in specs
    """The array of a job with this id, which is the id of its first one; None: it is in none."""
    if job.task is None or not job.array or not id.isdecimal():
        return None
    plan = array_plan(job.array)
    return str(int(id) - plan.indices.index(job.task)), plan


def expanded(jobs: Sequence[JobFile], most: int = MOST_TASKS) -> list[JobFile]:
    """Every array as the jobs that it consists of, one after the other; `most`: in all.

    Raises:
        InputError: A few lines would become more than can be kept. Nothing was made then.
    """
    if not any(job.array for job in jobs):
        return list(jobs)
    counts = [len(array_plan(job.array).indices) if job.array else 1 for job in jobs]
    if sum(counts) > most:
        raise InputError(
            f"{sum(counts):,} jobs with those of arrays in one submission: send {most:,} or fewer"
        )
    sizes = [
        len(msgspec.msgpack.encode(job)) * count for job, count in zip(jobs, counts, strict=True)
    ]
    if sum(sizes) > MOST_BYTES:
        large = max(range(len(jobs)), key=sizes.__getitem__)
        raise InputError(
            f"array {shown(jobs[large].array)}: {counts[large]:,} jobs with "
            f"{sizes[large] // counts[large]:,} bytes each are more than {MOST_BYTES >> 20} MiB: "
            "put its script and large values into files, or submit it in parts"
        )
    found: list[JobFile] = []
    for job in jobs:
        if not job.array:
            found.append(job)
            continue
        indices = array_plan(job.array).indices
        found += [msgspec.structs.replace(job, task=index) for index in indices]
    return found
