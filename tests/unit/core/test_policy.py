"""Defaults of policies."""

from typing import Annotated

import msgspec
import pytest

from live_jobs import live
from rota.core.changes import ON_EVERY_EVENT
from rota.core.events import INF
from rota.core.knowledge import Knowledge
from rota.core.plan import Plan
from rota.core.policy import DecidePolicy, Params, Policy, PriorityPolicy


class Limits(Params, frozen=True):
    most: Annotated[int, msgspec.Meta(ge=1)] = 3


class Limited(Policy[Limits]):
    name = "limited"
    Parameters = Limits


def test_parameters_have_defaults():
    assert Limited().params == Limits(most=3)
    assert Limited(Limits(most=5)).params.most == 5
    assert Policy().params == Params()


def test_parameters_are_checked():
    with pytest.raises(msgspec.ValidationError, match="unknown field `more`"):
        msgspec.convert({"more": 1}, Limits)
    with pytest.raises(msgspec.ValidationError, match=">= 1"):
        msgspec.convert({"most": 0}, Limits)
    with pytest.raises(AttributeError, match="immutable"):
        Limits().most = 4


def test_a_policy_knows_and_keeps_nothing_unless_it_says_so():
    policy = Limited()
    assert policy.knowledge == Knowledge.NOTHING
    assert policy.snapshot() == {}
    policy.restore({})
    assert policy.params == Limits()


def test_a_key_is_constant_unless_the_policy_says_otherwise():
    policy = PriorityPolicy()
    assert (policy.slope(live()), policy.next_change(live(), 5.0)) == (0.0, INF)
    assert (policy.preemptive, policy.strict, policy.state_key, policy.ages) == (
        True, False, False, False,
    )  # fmt: skip
    with pytest.raises(NotImplementedError):
        policy.key(live(), 0.0)


def test_a_decision_must_be_written():
    policy = DecidePolicy()
    assert (policy.wake, policy.plan_type) == (ON_EVERY_EVENT, Plan)
    with pytest.raises(NotImplementedError):
        policy.decide(None)
