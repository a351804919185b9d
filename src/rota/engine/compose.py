"""Building a scheduler from its parts."""

from typing import Any

from rota.core.admission import Admission
from rota.core.errors import OptionError
from rota.core.policy import ComposingPolicy, DecidePolicy, Policy, PriorityPolicy, RoundPolicy
from rota.core.ports import Successor
from rota.placement.base import Placement


def compose(
    policy: Policy[Any],
    placement: Placement,
    admission: Admission,
    *,
    frictionless: bool = False,
    patient: bool = False,
) -> Successor:
    """Who may enter, who and how much, and where: one scheduler.

    Args:
        policy: Who, and how much.
        placement: Where.
        admission: Who may enter.
        frictionless: Transitions on the cluster cost nothing (lets the fast door skip work).
        patient: What can never fit waits instead of being rejected: nodes may still come.
    """
    if isinstance(policy, PriorityPolicy):
        from rota.engine.priority import PriorityScheduler  # a run needs one door only

        return PriorityScheduler(
            policy, placement, admission, frictionless=frictionless, patient=patient
        )
    if isinstance(policy, ComposingPolicy):
        made: Successor = policy.scheduler(
            placement, admission, frictionless=frictionless, patient=patient
        )
        return made
    if isinstance(policy, RoundPolicy):
        from rota.policies.rounds.drive import drive  # NumPy: only where it is needed

        policy = drive(policy)
    if isinstance(policy, DecidePolicy):
        from rota.engine.general import GeneralScheduler

        return GeneralScheduler(policy, placement, admission, patient=patient)
    raise OptionError(
        f"policy {policy.name!r} is neither a PriorityPolicy nor a DecidePolicy: derive from one"
    )
