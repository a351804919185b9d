"""Capacity scheduling, by a policy that remembers nothing."""

from plain.forgetful import Forgetful
from rota.policies import capacity


class Capacity(Forgetful, capacity.Capacity):
    """See `rota.policies.capacity`."""
