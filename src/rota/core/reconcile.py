"""From a plan to commands: the one place where desire meets reality.

Pure: it looks at the jobs' present state, refuses what makes no sense, drops what is stale, and
says what has to be done. Unequal allocations mean a move; equal ones are renewed for free.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import TypeAlias

from rota.core.allocation import NOTHING, Allocation
from rota.core.errors import InvalidPlanError
from rota.core.jobs import RUNNING, STARTING, STOPPING, WAITING, Job, Phase
from rota.core.plan import Plan


class Verb(IntEnum):
    """What to do with a job."""

    STOP = 0
    START = 1
    MOVE = 2


STOP, START, MOVE = map(int, Verb)

Command: TypeAlias = tuple[int, Job, Allocation, Job | None]
"""(verb, job, new allocation, who caused it)."""


def reconcile(plan: Plan, version: int) -> list[Command]:
    """Commands that turn the present state into what the plan wants: stops first."""
    if plan.version != version:
        _drop_stale(plan)
    commands: list[Command] = []
    stopping: set[int] = set()
    if plan.stops:
        _add_stops(plan, commands, stopping)
    for job, allocation in plan.starts:
        phase = job.phase
        if phase == WAITING or job.index in stopping:
            commands.append((START, job, allocation, None))
        elif phase in (RUNNING, STARTING):
            if allocation != job.allocation:
                commands.append((MOVE, job, allocation, None))
        else:
            raise _senseless(job, "start")
    if len(plan.starts) > 1 and len({job.index for job, _ in plan.starts}) != len(plan.starts):
        raise InvalidPlanError(
            f"the plan starts a job twice: {_twice(job for job, _ in plan.starts)}"
        )
    return commands


def _drop_stale(plan: Plan) -> None:
    """Parts about jobs that changed since the plan's view are void; the planner is asked again."""
    plan.stops = [job for job in plan.stops if job.version <= plan.version]
    plan.starts = [(job, a) for job, a in plan.starts if job.version <= plan.version]


def _add_stops(plan: Plan, commands: list[Command], stopping: set[int]) -> None:
    causes = plan.causes or {}
    for job in plan.stops:
        if not STARTING <= job.phase <= STOPPING:
            raise _senseless(job, "stop")
        stopping.add(job.index)
        commands.append((STOP, job, NOTHING, causes.get(job.index)))
    if len(stopping) != len(plan.stops):
        raise InvalidPlanError(f"the plan stops a job twice: {_twice(plan.stops)}")


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
