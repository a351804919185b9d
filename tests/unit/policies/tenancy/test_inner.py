"""A policy inside another one: with one queue it decides alone, and as it always does."""

import pytest

from rota.core.errors import OptionError
from rota.core.knowledge import Knowledge
from rota.core.registry import POLICIES, load
from rota.policies.capacity import Capacity, CapacityParams
from rota.policies.hierarchical_fair import HierarchicalFair, HierarchicalFairParams
from rota.policies.tenancy.inner import InnerPolicy
from rota.testing import check_policy
from rota.testing.scenario import random_scenario
from rota.testing.subject import happened

ORDERS = ("fifo", "fifo-skip", "sjf", "srtf", "srsf", "las", "tiresias", "gittins", "qssf")


@pytest.mark.parametrize("name", ORDERS)
def test_in_one_queue_it_decides_as_it_does_alone(name):
    for seed in range(8):
        placement = ("count", "consolidate")[seed % 2]
        scenario = random_scenario(seed, placement=placement, unit_s=300, sizes=(1, 2, 4, 8))
        alone = happened(scenario.run(load(POLICIES, name)()))
        assert happened(scenario.run(Capacity(CapacityParams(inside=name)))) == alone
        fair = HierarchicalFair(HierarchicalFairParams(inside=name))
        assert happened(scenario.run(fair)) == alone


@pytest.mark.parametrize(
    "given",
    [
        {"inside": "tiresias:limits=3600/7200;promote=2"},
        {"inside": "qssf:estimate=history", "preset": "kueue", "aging_s": 1800.0},
        {"inside": "srtf", "victims": "least-progress", "min_runtime_s": 300.0, "preset": "yarn"},
    ],
)
@pytest.mark.parametrize("kind", [Capacity, HierarchicalFair])
def test_the_kit_finds_nothing(kind, given):
    report = check_policy(lambda: kind(kind.Parameters(**given)), seeds=range(2))
    assert "a_resumed_run_goes_on_alike" in report.passed


def test_parameters_are_given_with_the_name():
    inside = InnerPolicy("tiresias:limits=10/20;promote=2", "capacity")
    assert inside.policy.params.limits == (10.0, 20.0)
    assert inside.ages
    assert inside.moves
    assert not inside.drifts


def test_what_it_knows_is_declared():
    assert Capacity(CapacityParams(inside="srtf")).knowledge == Knowledge.REMAINING_WORK
    assert Capacity().knowledge == Knowledge.NOTHING


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("srft", "policy 'capacity': inside: unknown policy 'srft': did you mean 'srtf'"),
        ("easy", "inside=easy has no order of jobs of its own: take one that ranks"),
        ("las:limit=3", "unknown parameter 'limit'"),
    ],
)
def test_what_cannot_be_inside_is_told(text, message):
    with pytest.raises(OptionError, match=message):
        Capacity(CapacityParams(inside=text))
