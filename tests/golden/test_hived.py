"""HiveD against recorded decisions of the original: unit scenarios and random sequences."""

import pytest

from rota.study.scenario.hived import RecordedDecision
from rota.study.scenario.play import read_scenarios, run_scenario
from shared_data import shared

UNITS = [
    "unit_01_normal_operations",
    "unit_02_suggested_nodes",
    "unit_03_backtracking_cell_binding",
    "unit_04_stateful_preemption",
    "unit_05_bad_nodes",
    "unit_06_safe_relaxed_buddy_alloc",
    "unit_07_reconfiguration_before",
]
RANDOM = 30


def scenarios(name):
    path = shared(f"reference/hived/scenarios/{name}")
    return read_scenarios(path), path.parent


def unmet(lines):
    return [(line.scenario, line.event, line.unmet) for line in lines if line.unmet]


@pytest.mark.parametrize("name", UNITS)
def test_unit_scenario(name):
    (one,), folder = scenarios(f"{name}.json")
    lines = list(run_scenario(one, folder, strict=True))
    assert len(lines) == len(one["events"])
    assert unmet(lines) == []


def test_pods_are_found_again_under_another_configuration():
    (before,), folder = scenarios("unit_07_reconfiguration_before.json")
    (after,), _ = scenarios("unit_08_reconfiguration_after.json")
    recorded = RecordedDecision()
    assert unmet(run_scenario(before, folder, recorded=recorded, strict=True)) == []
    lines = list(run_scenario(after, folder, recorded=recorded, strict=True))
    assert unmet(lines) == []
    lazy = {
        name
        for line in lines
        for name, status in line.outcome.get("groups_changed", {}).items()
        if status.get("lazy_preempted_by")
    }
    assert lazy  # those whose cells are gone from the virtual cluster go on as opportunistic ones


def test_a_configuration_that_promises_too_much_is_refused_with_the_cell():
    (one,), folder = scenarios("unit_09_invalid_initial_assignment.json")
    (line,) = run_scenario(one, folder)
    assert line.unmet == ()
    assert "'CT1'" in line.outcome["refused"]
    assert "'CT1-NODE'" in line.outcome["refused"]


@pytest.mark.parametrize("part", range(5))
def test_random_sequences(part):
    everything, folder = scenarios("fuzz.json.gz")
    assert len(everything) == RANDOM
    for one in everything[part::5]:
        lines = list(run_scenario(one, folder, strict=True))
        assert len(lines) == len(one["events"])  # also those that crash the original
        assert unmet(lines) == []
