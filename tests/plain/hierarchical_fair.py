"""Weighted fair sharing down a tree of queues, by a policy that remembers only what queues had."""

from plain.forgetful import Forgetful
from rota.policies import hierarchical_fair


class HierarchicalFair(Forgetful, hierarchical_fair.HierarchicalFair):
    """See `rota.policies.hierarchical_fair`."""
