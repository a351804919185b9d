"""Scenario files: events in, decisions out, expectations checked."""

import json

import pytest
from click.testing import CliRunner

from rota.cli.scenario import scenario as command
from rota.core.errors import InputError
from rota.study.scenario.play import read_scenarios, run_scenario

QUEUE = {
    "name": "the short one first",
    "policy": "srtf",
    "placement": "first-fit",
    "cluster": "2x4",
    "events": [
        {"op": "submit", "job": "long", "gpus": 8, "work_s": 100,
         "expect": {"running": {"long": {"n0": 4, "n1": 4}}, "start": ["long"]}},
        {"op": "submit", "job": "short", "gpus": 4, "work_s": 10, "at_s": 5,
         "expect": {"running": ["short"], "waiting": ["long"], "preempt": ["long"],
                    "reasons": {"long": "capacity"}}},
        {"op": "advance", "to_s": 15, "expect": {"done": ["short"], "running": ["long"]}},
        {"op": "node_down", "node": "n0", "expect": {"evict": ["long"], "running": []}},
        {"op": "node_up", "node": "n0", "expect": {"running": ["long"], "now_s": 15}},
        {"op": "finish", "job": "long", "expect": {"done": ["long"], "waiting": []}},
    ],
}  # fmt: skip
CELLS = {
    "name": "two tenants",
    "config": {
        "physicalCluster": {
            "cellTypes": {
                "node": {"childCellType": "gpu", "childCellNumber": 2, "isNodeLevel": True}
            },
            "physicalCells": [{"cellType": "node", "cellAddress": name} for name in "ab"],
        },
        "virtualClusters": {
            "x": {"virtualCells": [{"cellType": "node", "cellNumber": 1}]},
            "y": {"virtualCells": [{"cellType": "node", "cellNumber": 1}]},
        },
    },
    "events": [
        {"op": "schedule", "pod": "p", "spec": {"virtualCluster": "x", "priority": 0,
                                                "leafCellNumber": 2},
         "expect": {"result": "bind", "leaf_cells": [0, 1]}},
        {"op": "add_allocated", "pod": "p", "groups_changed": {"p": {"state": "Allocated"}}},
        {"op": "schedule", "pod": "q", "spec": {"virtualCluster": "x", "priority": 0,
                                                "leafCellNumber": 1},
         "expect": {"result": "wait"}},
        {"op": "schedule", "pod": "r", "spec": {"virtualCluster": "z", "priority": 0,
                                                "leafCellNumber": 1},
         "expect": {"result": "user_error"}},
        {"op": "bad_node", "node": "b", "vc_cells_changed": {"y/0": {"health": "Bad"}}},
        {"op": "healthy_node", "node": "b", "vc_cells_changed": {"y/0": {"health": "Healthy"}}},
        {"op": "delete_allocated", "pod": "p", "groups_removed": ["p"]},
    ],
}  # fmt: skip


def changed(scenario, number, **changes):
    events = [dict(event) for event in scenario["events"]]
    events[number] |= changes
    return {**scenario, "events": events}


def unmet(scenario, folder, **options):
    return [line.unmet for line in run_scenario(scenario, folder, **options) if line.unmet]


def test_reasons_that_a_tenants_jobs_share_are_theirs(tmp_path):
    submit = {"op": "submit", "gpus": 1, "tenant": "A", "work_s": 50}
    scenario = {
        "name": "behind the first", "policy": "yarn-cs", "placement": "count", "cluster": "1x2",
        "events": [
            {**submit, "job": "runs", "gpus": 2},
            {**submit, "job": "first", "gpus": 2},
            {**submit, "job": "next"},
            {**submit, "job": "last", "expect": {
                "reasons": {"first": "quota", "next": "quota", "last": "quota"}}},
        ],
    }  # fmt: skip
    assert unmet(scenario, tmp_path) == []


@pytest.mark.parametrize("scenario", [QUEUE, CELLS], ids=["queue", "cells"])
def test_expectations_are_met(scenario, tmp_path):
    lines = list(run_scenario(scenario, tmp_path))
    assert [line.op for line in lines] == [event["op"] for event in scenario["events"]]
    assert [line for line in lines if line.unmet] == []


@pytest.mark.parametrize(
    ("scenario", "number", "changes", "told"),
    [
        (QUEUE, 0, {"expect": {"running": []}}, "running is ['long'], expected []"),
        (QUEUE, 2, {"expect": {"done": []}}, "done is ['short'], expected []"),
        (CELLS, 0, {"expect": {"node": "z"}}, "expected 'z'"),
        (CELLS, 1, {"groups_changed": {"p": {"state": "Preempting"}}}, "state is 'Allocated'"),
        (CELLS, 1, {"groups_removed": ["p"]}, "group p: expected to be gone"),
        (CELLS, 4, {"vc_cells_changed": {"y/0": {"health": "Healthy"}}}, "health is 'Bad'"),
    ],
)
def test_what_is_not_met_is_told(scenario, number, changes, told, tmp_path):
    (wrong,) = unmet(changed(scenario, number, **changes), tmp_path)
    assert told in " ".join(wrong)


def test_strictly_every_change_must_be_listed(tmp_path):
    silent = changed(CELLS, 1, groups_changed={})
    assert unmet(silent, tmp_path) == []
    assert unmet(silent, tmp_path, strict=True)


@pytest.mark.parametrize(
    ("scenario", "told"),
    [
        ({"events": []}, "needs 'config'"),
        ({"policy": "fifo", "events": []}, "'cluster' is missing"),
        (changed(QUEUE, 0, op="jump"), "event 0 (jump): there is no op 'jump'"),
        (changed(QUEUE, 2, to_s=1), "it is 5 s already"),
        (changed(QUEUE, 5, job="short"), "job 'short' does not run"),
        (changed(QUEUE, 3, node="n9"), "there is no node 'n9'"),
        (changed(QUEUE, 0, gpu=1), "unknown field `gpu`"),
        (changed(QUEUE, 0, expect={"runs": []}), "nothing called 'runs'"),
        (changed(CELLS, 1, pod="s"), "pod 's' was never scheduled"),
        (changed(CELLS, 4, node="c"), "on node 'c'"),
        (changed(CELLS, 0, op="jump"), "there is no op 'jump'"),
        ({"config": "nowhere.yaml", "events": []}, "there is no file 'nowhere.yaml'"),
    ],
)
def test_nonsense_is_refused(scenario, told, tmp_path):
    with pytest.raises(InputError) as caught:
        list(run_scenario(scenario, tmp_path))
    assert told in str(caught.value)


def test_a_configuration_that_was_to_be_refused(tmp_path):
    lines = list(run_scenario({**CELLS, "expect_config_error": "too much"}, tmp_path))
    assert lines[0].unmet


def test_the_command_prints_a_line_per_event_and_fails_when_something_is_not_met(tmp_path):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps([QUEUE, CELLS]))
    bad.write_text(json.dumps(changed(QUEUE, 0, expect={"running": []})))
    passed = CliRunner().invoke(command, ["run", str(good)])
    failed = CliRunner().invoke(command, ["run", "-q", str(bad)])
    assert passed.exit_code == 0
    lines = [json.loads(line) for line in passed.stdout.splitlines()]
    assert len(lines) == len(QUEUE["events"]) + len(CELLS["events"])
    assert failed.exit_code == 1
    assert len(failed.stdout.splitlines()) == 1


def test_a_file_must_hold_scenarios(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("{]")
    with pytest.raises(InputError, match="is not JSON"):
        read_scenarios(path)
    path.write_text("[3]")
    with pytest.raises(InputError, match="scenario 0"):
        read_scenarios(path)
