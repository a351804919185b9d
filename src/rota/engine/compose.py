"""Building a scheduler from its parts."""

from typing import Any

from rota.core.admission import Admission
from rota.core.errors import OptionError
from rota.core.policy import DecidePolicy, Policy, PriorityPolicy
from rota.core.ports import Scheduler
from rota.engine.general import GeneralScheduler
from rota.engine.priority import PriorityScheduler
from rota.placement.base import Placement


def compose(
    policy: Policy[Any], placement: Placement, admission: Admission, *, frictionless: bool = False
) -> Scheduler:
    """Who may enter, who and how much, and where: one scheduler.

    `frictionless`: transitions on the cluster cost nothing (lets the fast door skip work).
    """
    if isinstance(policy, PriorityPolicy):
        return PriorityScheduler(policy, placement, admission, frictionless=frictionless)
    if isinstance(policy, DecidePolicy):
        return GeneralScheduler(policy, placement, admission)
    raise OptionError(
        f"policy {policy.name!r} is neither a PriorityPolicy nor a DecidePolicy: derive from one"
    )
