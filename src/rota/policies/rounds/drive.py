"""The driver of a policy that plans in rounds."""

from typing import Any

from rota.core.errors import PolicyError
from rota.policies.rounds import RoundPolicy
from rota.policies.rounds.choice import ChoicePolicy
from rota.policies.rounds.choices import ChoiceRounds
from rota.policies.rounds.driver import Rounds
from rota.policies.rounds.shares import ShareRounds
from rota.policies.rounds.targets import SharePolicy


def drive(policy: RoundPolicy[Any]) -> Rounds[Any]:
    """A policy that decides what the given one says."""
    if isinstance(policy, SharePolicy):
        return ShareRounds(policy)
    if isinstance(policy, ChoicePolicy):
        return ChoiceRounds(policy)
    raise PolicyError(
        f"policy {policy.name!r} says neither who runs nor what the shares are: derive from "
        f"ChoicePolicy (rota.policies.rounds.choice) or SharePolicy (rota.policies.rounds.targets)"
    )
