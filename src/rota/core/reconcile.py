"""From changes to commands: the one place where desire meets reality.

Pure: it looks at the jobs' present state, refuses what makes no sense, drops what is stale, and
says what has to be done. Unequal allocations mean a move; equal ones are renewed for free.
"""

from collections.abc import Iterable
from typing import TypeAlias

from rota.core.allocation import Allocation
from rota.core.changes import Changes
from rota.core.errors import InvalidPlanError
from rota.core.jobs import RUNNING, WAITING, Job, Phase

Placed: TypeAlias = tuple[Job, Allocation]


Commands: TypeAlias = tuple[list[Job], list[Placed], list[Placed]]
"""What to do, in this order: stops, starts, moves."""


def reconcile(changes: Changes, version: int) -> Commands:
    """The commands that carry out these changes."""
    if changes.version != version:
        _drop_stale(changes)
    stops, starts = changes.stops, changes.starts
    if stops:
        _refuse_bad_stops(stops)
    for job, _ in starts:
        if job.phase != WAITING:
            return _with_moves(changes)
    if len(starts) > 1:
        _refuse_twice("starts", [job for job, _ in starts])
    return stops, starts, []


def _drop_stale(changes: Changes) -> None:
    """Changes of jobs that differ from what the policy saw are void; it is asked again."""
    changes.stops = [job for job in changes.stops if job.version <= changes.version]
    changes.starts = [(job, a) for job, a in changes.starts if job.version <= changes.version]


def _refuse_bad_stops(stops: list[Job]) -> None:
    for job in stops:
        if job.phase != RUNNING and not job.running:
            raise _senseless(job, "stop")
    if len(stops) > 1:
        _refuse_twice("stops", stops)


def _with_moves(changes: Changes) -> Commands:
    """Some of those to be started run already: moved, resized, restarted or just renewed."""
    _refuse_twice("starts", [job for job, _ in changes.starts])
    stopping = {job.index for job in changes.stops}
    starts: list[Placed] = []
    moves: list[Placed] = []
    for job, allocation in changes.starts:
        if job.phase == WAITING or job.index in stopping:
            starts.append((job, allocation))
        elif not job.running:
            raise _senseless(job, "start")
        elif allocation != job.allocation:
            moves.append((job, allocation))
    return changes.stops, starts, moves


def _refuse_twice(verb: str, jobs: list[Job]) -> None:
    if len({job.index for job in jobs}) != len(jobs):
        raise InvalidPlanError(f"the plan {verb} a job twice: {_twice(jobs)}")


def _senseless(job: Job, verb: str) -> InvalidPlanError:
    return InvalidPlanError(
        f"the plan wants to {verb} job {job.id}, which is {Phase(job.phase).name.lower()}"
    )


def _twice(jobs: Iterable[Job]) -> str:
    seen: set[int] = set()
    for job in jobs:
        if job.index in seen:
            return job.id
        seen.add(job.index)
    return ""  # pragma: no cover - only called when there is one
