"""Recipes about jobs that share GPUs: Gandiva's scenes, and ways to share side by side."""

import pytest

from rota.reproduce.recipe import CheckVerdict, Scale
from rota.reproduce.run import reproduce
from rota.reproduce.sharing import gandiva, pooling, side_by_side
from shared_data import shared


def odd(report):
    """Return the checks that do not agree."""
    return [check for check in report.checks if check.verdict != CheckVerdict.AGREES]


def test_gandivas_scenes_come_out():
    report = reproduce(gandiva.RECIPE)
    assert odd(report) == []
    assert len(report.checks) == 11


def test_a_gandiva_that_never_undoes_a_packing_fails(monkeypatch):
    config = gandiva._config

    def blind(setting, name, scene):
        made = config(setting, name, scene)
        return type(made)(**{**made.as_dict(), "policy": f"{made.policy},gain=0"})

    monkeypatch.setattr(gandiva, "_config", blind)
    found = odd(reproduce(gandiva.RECIPE))
    assert [check.quantity for check in found] == ["a pair that uses 2 of a GPU: slices together"]


def test_ways_to_share_are_compared_on_the_same_jobs(tmp_path):
    report = reproduce(side_by_side.RECIPE, output=tmp_path)
    assert odd(report) == []
    rows = (tmp_path / "series.csv").read_text().splitlines()
    assert len(rows) == 17  # seven ways for whole GPUs, nine for parts
    assert {row.split(",")[0] for row in rows[1:]} == {"week", "parts"}


def test_a_pool_of_gpus_is_worth_something_and_a_network_takes_of_it():
    report = reproduce(pooling.RECIPE)
    assert odd(report) == []
    assert len(report.checks) == 5


@pytest.mark.soak
def test_a_pool_at_many_loads():
    assert odd(reproduce(pooling.RECIPE, Scale.PAPER)) == []


@pytest.mark.soak
def test_ways_to_share_on_recorded_jobs():
    report = reproduce(side_by_side.RECIPE, Scale.PAPER, data=shared("reference"))
    assert odd(report) == []
