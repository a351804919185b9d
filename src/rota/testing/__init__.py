"""The public kit: what parts of one's own must do, a reference engine, tiny workloads.

Needs neither pytest nor hypothesis; `rota.testing.strategies` needs hypothesis.
"""

from rota.testing.admission_checks import check_admission
from rota.testing.cluster_checks import check_cluster
from rota.testing.naive import NaiveEngine
from rota.testing.placement_checks import check_placement
from rota.testing.policy_checks import check_policy
from rota.testing.scenario import Fixed, Item, Outage, Scenario, random_scenario
from rota.testing.subject import CheckFailed, Report

__all__ = [
    "CheckFailed",
    "Fixed",
    "Item",
    "NaiveEngine",
    "Outage",
    "Report",
    "Scenario",
    "check_admission",
    "check_cluster",
    "check_placement",
    "check_policy",
    "random_scenario",
]
