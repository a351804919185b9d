"""The rules: roles, and whose jobs."""

import pytest

from rota.core.errors import ForbiddenError, NotFoundError
from rota.daemon.access import (
    check_job,
    check_role,
    is_enough,
    owns_job,
    sees_notes,
    sees_submission,
)
from rota.wire import AGENT, OPERATIONS, PUBLIC, ROLES, Actor

RANKS = ("viewer", "user", "operator", "admin")
ACTORS = [Actor("eve", role) for role in RANKS]
REACHING = [operation for operation in OPERATIONS.values() if operation.reach]


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda found: found.name)
@pytest.mark.parametrize("role", [*ROLES, "stranger"])
def test_the_least_role_and_those_above_it_are_enough(operation, role):
    if operation.role == PUBLIC:
        return
    if operation.role == AGENT:
        enough = role in (AGENT, "admin")
    else:
        enough = role in RANKS[RANKS.index(operation.role) :]
    assert is_enough(role, operation.role) == enough
    if enough:
        check_role(operation, Actor("eve", role))
    else:
        with pytest.raises(ForbiddenError, match=f"it takes role {operation.role}"):
            check_role(operation, Actor("eve", role))


def test_operations_on_one_job_say_which_jobs_they_reach():
    assert {found.name for found in OPERATIONS.values() if "{job}" in found.path} <= {
        found.name for found in REACHING
    }
    changing = {found.name for found in REACHING if found.method != "GET"}
    inside = {found.name for found in REACHING if found.reach == "inside"}
    assert {found.name for found in REACHING if found.reach == "own"} == {
        *changing - inside, "read_job_log",
    }  # fmt: skip
    assert {found.name for found in OPERATIONS.values() if "/channels" in found.path} == {
        *inside - {"list_files", "read_job_file"}
    }


@pytest.mark.parametrize("operation", REACHING, ids=lambda found: found.name)
@pytest.mark.parametrize("actor", ACTORS, ids=lambda actor: actor.role)
def test_jobs_of_others(operation, actor):
    check_job(operation, actor, "7", "eve")
    with pytest.raises(NotFoundError, match="there is no job '7'"):
        check_job(operation, actor, "7", None)
    if actor.role == "user":
        with pytest.raises(NotFoundError, match="there is no job '7'"):
            check_job(operation, actor, "7", "adam")
    elif (operation.reach, actor.role) in (
        ("own", "viewer"), ("inside", "viewer"), ("inside", "operator"),
    ):  # fmt: skip
        with pytest.raises(ForbiddenError, match="belongs to 'adam'"):
            check_job(operation, actor, "7", "adam")
    else:
        check_job(operation, actor, "7", "adam")


def test_what_only_some_are_shown():
    assert [sees_notes(actor) for actor in ACTORS] == [False, False, True, True]
    assert [owns_job(actor, "adam", 7) for actor in ACTORS] == [False, False, True, True]
    assert [sees_submission(actor, "adam", 7) for actor in ACTORS] == [False, False, False, True]
    assert all(sees_submission(actor, "eve", 7) for actor in ACTORS)


@pytest.mark.parametrize("operation", REACHING, ids=lambda found: found.name)
def test_a_name_that_is_given_again_inherits_nothing(operation):
    eve = Actor("eve", "user", after_job=7)
    with pytest.raises(NotFoundError, match="there is no job '7'"):
        check_job(operation, eve, "7", "eve")
    check_job(operation, eve, "8", "eve")
    assert not sees_submission(eve, "eve", 7)
    assert sees_submission(eve, "eve", 8)
