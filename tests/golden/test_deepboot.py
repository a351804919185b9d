"""Dialect `deepboot` against per-job files of DeepBoot's simulator, through the recipe."""

import polars as pl
import pytest

from rota.core.errors import OptionError
from rota.core.log import Record
from rota.core.topology import Topology
from rota.metrics.history import read_history
from rota.reproduce.deepboot import recipe
from rota.reproduce.deepboot.dialect import DeepBootDialect, DeepBootDialectParams
from rota.reproduce.deepboot.recipe import EQUAL, RECIPE, SECOND, THEIRS
from rota.reproduce.recipe import CheckVerdict
from rota.reproduce.run import reproduce
from rota.study.config import RunConfig
from rota.study.resume import Freeze
from rota.study.run import simulate
from shared_data import shared


@pytest.mark.parametrize(
    ("policies", "checks"), [(tuple(EQUAL), 8), pytest.param((*THEIRS,), 9, marks=pytest.mark.soak)]
)
def test_all_policies_come_out(policies, checks, monkeypatch):
    monkeypatch.setattr(recipe, "THEIRS", {policy: THEIRS[policy] for policy in policies})
    report = reproduce(RECIPE, data=shared("reference"))

    assert [check for check in report.checks if check.verdict != CheckVerdict.AGREES] == []
    assert len(report.checks) == checks


def test_deepboots_own_policy_begins_as_theirs():
    """Its fits take long: only what ends before the hundredth submission."""
    trace = shared("reference/deepboot/small-2h.csv")
    profiles = shared("reference/profiles/pollux-osdi21")
    config = RunConfig(
        trace=str(trace), format=f"deepboot:profiles={profiles}", cluster="16x4", like="deepboot",
        policy="deepboot", limit=100,
    )  # fmt: skip
    ours = simulate(config).jobs
    theirs = pl.read_csv(shared("reference/deepboot/small-2h.deepboot.csv"), infer_schema=False)
    theirs = theirs.select(
        job_id="name", theirs=pl.col("jct").cast(pl.Float64), trains=pl.col("inference") == "0"
    )
    both = ours.filter(pl.col("end_s") <= ours["submit_s"].max()).join(theirs, on="job_id")
    equal = both.filter((pl.col("jct_s") - pl.col("theirs")).abs() < SECOND)
    assert (both["trains"].sum(), len(both)) == (6, 96)
    # the ends of single jobs differ, because fits end in slightly different places
    assert equal["trains"].sum() >= 3
    assert len(equal) - equal["trains"].sum() >= 79


@pytest.mark.parametrize("policy", ["lyra", "tiresias"])
def test_every_plan_is_sound(policy):
    trace = shared("reference/deepboot/small-2h.csv")
    profiles = shared("reference/profiles/pollux-osdi21")
    config = RunConfig(
        trace=str(trace), format=f"deepboot:profiles={profiles}", cluster="16x4", policy=policy,
        like="deepboot", check=True, limit=60,
    )  # fmt: skip
    assert simulate(config).summary["completed"] == 60


def test_it_says_what_it_needs():
    topology = Topology.uniform(2, 4)
    with pytest.raises(OptionError, match="deepboot:profiles=DIR"):
        DeepBootDialect().build("afs", None, topology, seed=0)
    dialect = DeepBootDialect(DeepBootDialectParams(profiles="somewhere"))
    with pytest.raises(OptionError, match="knows the placement 'lists'"):
        dialect.build("afs", "spread", topology, seed=0)


@pytest.mark.parametrize("policy", DeepBootDialect.policies)
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(policy, tmp_path):
    profiles = shared("reference/profiles/pollux-osdi21")
    config = RunConfig(
        trace=str(shared("reference/deepboot/small-2h.csv")), cluster="16x4", policy=policy,
        format=f"deepboot:profiles={profiles}", like="deepboot", limit=100,
        mtbf=2.0, mttr=0.2,
    )  # fmt: skip
    saved = tmp_path / "run.snapshot"
    whole = simulate(config)
    simulate(config, freeze=Freeze(1_391.5, saved))
    resumed = simulate(config, resume=saved)
    assert len(read_history(whole.log).rows_of(Record.EVICTED)) > 0  # nodes fail, too
    assert resumed.jobs.equals(whole.jobs)
    assert resumed.summary["completed"] == 100
