"""Dialect `sia` against runs of the simulator itself (see the README of the folder)."""

import pytest

from rota.reproduce.recipe import CheckVerdict, Scale
from rota.reproduce.run import reproduce
from rota.reproduce.sia import recipe
from shared_data import shared

ROOT = shared("reference")


def test_gavel_by_job_and_sia_on_average():
    report = reproduce(recipe.RECIPE, data=ROOT)
    assert [check.verdict for check in report.checks] == [CheckVerdict.AGREES] * 2


@pytest.mark.soak
def test_the_larger_workload():
    report = reproduce(recipe.RECIPE, Scale.PAPER, data=ROOT)
    assert [check.verdict for check in report.checks] == [CheckVerdict.AGREES] * 4
