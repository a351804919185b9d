"""Who may do what. Every other place asks these functions.

The table is `rota.wire.OPERATIONS`: each operation names the least role that may call it and the
jobs that it reaches. The API checks the role before it calls the daemon; the daemon checks the job,
because only it knows whose a job is.
"""

from typing import Any

from rota.core.errors import ForbiddenError, NotFoundError
from rota.wire import ADMIN, AGENT, OPERATOR, USER, VIEWER, Actor, Operation

# An agent's token is good for nothing but the agent's own route; an admin may stand in for one.
_INCLUDES = {
    VIEWER: {VIEWER},
    USER: {VIEWER, USER},
    OPERATOR: {VIEWER, USER, OPERATOR},
    ADMIN: {VIEWER, USER, OPERATOR, ADMIN, AGENT},
    AGENT: {AGENT},
}


def is_enough(role: str, least: str) -> bool:
    """Does the role include the least one that is needed?"""
    return least in _INCLUDES.get(role, ())


def check_role(operation: Operation[Any], actor: Actor) -> None:
    """Refuse actors whose role is not enough."""
    if not is_enough(actor.role, operation.role):
        raise ForbiddenError(f"role {actor.role} may not do this: it takes role {operation.role}")


def sees_all_jobs(actor: Actor) -> bool:
    """Users see only their own jobs; viewers (dashboards) and operators see all."""
    return actor.role != USER


def submitted_job(actor: Actor, owner: str, job: int) -> bool:
    """Is it the actor's own? A name may have had another holder before."""
    return owner == actor.name and job > actor.after_job


def sees_job(actor: Actor, owner: str, job: int) -> bool:
    """Does the actor see this job of an owner?"""
    return sees_all_jobs(actor) or submitted_job(actor, owner, job)


def owns_job(actor: Actor, owner: str, job: int) -> bool:
    """May the actor work on this job of an owner? Operators work on all."""
    return submitted_job(actor, owner, job) or is_enough(actor.role, OPERATOR)


def sees_submission(actor: Actor, owner: str, job: int) -> bool:
    """Is the actor shown what was submitted (commands and variables may hold secrets)?"""
    return submitted_job(actor, owner, job) or actor.role == ADMIN


def sees_notes(actor: Actor) -> bool:
    """Is the actor shown who created tokens, changed the configuration or removed nodes?"""
    return is_enough(actor.role, OPERATOR)


def check_job(operation: Operation[Any], actor: Actor, job: str, owner: str | None) -> None:
    """Refuse a job that the operation must not reach; `owner` is None if there is no such job."""
    if owner is None or not sees_job(actor, owner, int(job)):
        raise NotFoundError(f"there is no job {job!r}: see `rota ls --all`")
    if operation.reach == "own" and not owns_job(actor, owner, int(job)):
        raise ForbiddenError(f"job {job} belongs to {owner!r}: it is private to them and operators")
    if operation.reach == "inside" and not sees_submission(actor, owner, int(job)):
        raise ForbiddenError(
            f"job {job} belongs to {owner!r}: only they and administrators may look inside"
        )
