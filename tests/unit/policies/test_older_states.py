"""States that were saved before they had versions are taken up as they were meant."""

from math import inf

import pytest

from rota.core.errors import StateError
from rota.core.state import State
from rota.policies.admission.load import LoadState
from rota.policies.admission.quota import QuotaState
from rota.policies.conservative import ConservativeState
from rota.policies.elas import ElasState
from rota.policies.gandiva_random import GandivaRandomState
from rota.policies.gittins import GittinsState
from rota.policies.qssf import QssfState
from rota.policies.tenancy.policy import TenantState
from rota.policies.tiresias import Promotion, TiresiasState
from rota.policies.yarn_cs import YarnCsState

OLDER = [
    ({"measured": [[3, 1, 2]]}, ElasState({3: (1, 2)})),
    (
        {"seen": [[["u", "v"], 2, 5.0]], "given": [[3, 4.0]]},
        QssfState({("u", "v"): (2, 5.0)}, {3: 4.0}),
    ),
    (
        {"reserved_s": [[3, 4.0]], "known": [[3, "ff", 1.0, 2.0]], "unplaced": [3]},
        ConservativeState({3: 4.0}, {3: ("ff", 1.0, 2.0)}, {3}),
    ),
    ({"scattered_s": [[3, 4.0]]}, YarnCsState({3: 4.0})),
    (
        {"samples": [1.0], "fitted": 1, "fitted_s": 2.0, "revision": 3},
        GittinsState([1.0], 1, 2.0, 3),
    ),
    (
        {"promotions": [[3, 1.0, 2.0, 4.0, inf]], "due": [[3, 9.0]]},
        TiresiasState({3: Promotion(1.0, 2.0, 4.0)}, {3: 9.0}),
    ),
    (
        {"past": [["a", 1.0, 2.0]], "at_s": 3.0, "inside": {}},
        TenantState([("a", 1.0, 2.0)], 3.0, {}),
    ),
    (
        {"demand": [["a", 1.0]], "charged": [[3, ["a", "b"]]], "held": [["a", [4, 2]]]},
        QuotaState({"a": 1.0}, {3: ("a", "b")}, {"a": {4: None, 2: None}}),
    ),
    (
        {"inside": [[3, 1.0]], "demand": 1.0, "held": [4]},
        LoadState({3: 1.0}, 1.0, {4: None}),
    ),
]


@pytest.mark.parametrize(("saved", "state"), OLDER, ids=[type(s).__name__ for _, s in OLDER])
def test_a_state_without_a_version(saved, state):
    assert type(state).load(saved, "policy 'x'") == state


def test_what_cannot_be_migrated_is_refused_with_both_versions():
    message = r"policy 'x': its saved state is of version 0, this one reads 1"
    with pytest.raises(StateError, match=message):
        GandivaRandomState.load({"together": []}, "policy 'x'")
    assert issubclass(GandivaRandomState, State)
