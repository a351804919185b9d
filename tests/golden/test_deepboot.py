"""Dialect `deepboot` against per-job files of DeepBoot's simulator, through the recipe."""

from pathlib import Path

import pytest

from rota.core.errors import OptionError
from rota.core.topology import Topology
from rota.reproduce.deepboot.dialect import DeepBootDialect, DeepBootDialectParams
from rota.reproduce.deepboot.loop import BootLoop
from rota.reproduce.deepboot.policies import TiresiasMinutes
from rota.reproduce.deepboot.recipe import RECIPE
from rota.reproduce.recipe import CheckVerdict
from rota.reproduce.run import reproduce
from rota.study.config import RunConfig
from rota.study.run import simulate
from shared_data import shared


def test_five_policies_come_out():
    report = reproduce(RECIPE, data=shared("reference"))

    assert [check for check in report.checks if check.verdict != CheckVerdict.AGREES] == []
    assert len(report.checks) == 9


@pytest.mark.parametrize("policy", ["lyra", "tiresias"])
def test_every_plan_is_sound(policy):
    trace = shared("reference/deepboot/small-2h.csv")
    profiles = shared("reference/profiles/pollux-osdi21")
    config = RunConfig(
        trace=str(trace), format=f"deepboot:profiles={profiles}", cluster="16x4", policy=policy,
        like="deepboot", check=True, limit=60,
    )  # fmt: skip
    assert simulate(config).summary["completed"] == 60


def test_it_says_what_it_needs_and_cannot_do():
    topology = Topology.uniform(2, 4)
    with pytest.raises(OptionError, match="deepboot:profiles=DIR"):
        DeepBootDialect().build("afs", None, topology, seed=0)
    dialect = DeepBootDialect(DeepBootDialectParams(profiles="somewhere"))
    with pytest.raises(OptionError, match="places jobs itself"):
        dialect.build("afs", "spread", topology, seed=0)
    loop = BootLoop("tiresias", topology, TiresiasMinutes(), profiles=Path())
    with pytest.raises(OptionError, match="cannot be interrupted"):
        loop.snapshot()
