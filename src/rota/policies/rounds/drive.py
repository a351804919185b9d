"""Which rounds belong to a policy that plans in them."""

from typing import Any

from rota.core.errors import PolicyError
from rota.core.policy import RoundPolicy
from rota.policies.rounds.choice_policy import ChoicePolicy
from rota.policies.rounds.choice_rounds import ChoiceRounds
from rota.policies.rounds.rounds import Rounds
from rota.policies.rounds.share_policy import SharePolicy
from rota.policies.rounds.share_rounds import ShareRounds


def drive(policy: RoundPolicy[Any]) -> Rounds[Any]:
    """A policy that decides what the given one says."""
    if isinstance(policy, SharePolicy):
        return ShareRounds(policy)
    if isinstance(policy, ChoicePolicy):
        return ChoiceRounds(policy)
    raise PolicyError(
        f"policy {policy.name!r} says neither who runs nor what the shares are: derive from "
        f"ChoicePolicy (rota.policies.rounds.choice_policy) or SharePolicy (share_policy there)"
    )
