"""The comparison of elastic policies: its drawn jobs, what it adds up, and what it would catch."""

from pathlib import Path

import polars as pl
import pytest

from rota.reproduce.elastic.drawn import (
    APPLICATIONS,
    GPU_TYPE,
    alone_s,
    write_jobs,
    write_profiles,
)
from rota.reproduce.elastic.recipe import ELASTIC, RECIPE, RIGID
from rota.reproduce.recipe import CheckVerdict, RecipeRun, RecipeSetting, Scale
from rota.study.config import RunConfig
from rota.study.run import simulate
from rota.traces.read import read_workload

CSV = "job_id,submit_s,num_gpus,duration_s,min_gpus,max_gpus\n"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Return the profiles and a small workload of them."""
    folder = tmp_path_factory.mktemp("drawn")
    profiles = write_profiles(folder / "profiles")
    return profiles, write_jobs(folder / "jobs.csv", profiles, jobs=8, load=1.0, seed=3)


def test_the_same_seed_draws_the_same_jobs(drawn, tmp_path):
    profiles, first = drawn
    again = write_jobs(tmp_path / "again.csv", profiles, jobs=8, load=1.0, seed=3)
    other = write_jobs(tmp_path / "other.csv", profiles, jobs=8, load=1.0, seed=4)
    texts = [Path(path).read_text() for path in (first, again, other)]
    assert texts[0] == texts[1] != texts[2]


def test_drawn_jobs_are_elastic_and_have_deadlines(drawn):
    profiles, jobs = drawn
    workload = read_workload(jobs, f"sia:profiles={profiles},reference={GPU_TYPE}")
    for spec, behaviour in workload:
        assert spec.request.takes(1)
        assert spec.request.takes(16)
        slack = (spec.deadline_s - spec.submit_s) / behaviour.work
        assert 1.1 < slack < 3.1


def test_drawn_applications_scale_less_and_less(drawn):
    profiles, _ = drawn
    for name in APPLICATIONS:
        times_s = [alone_s(profiles, name, gpus, 1024) for gpus in (1, 2, 4)]
        assert times_s[0] > times_s[1] > times_s[2] > times_s[0] / 4


def lost(tmp_path, rows, policy, cluster, rates="uniform"):
    """Return what the recipe keeps of a run on these jobs."""
    path = tmp_path / "jobs.csv"
    path.write_text(CSV + rows)
    return RECIPE.digest(
        simulate(
            RunConfig(
                trace=str(path), cluster=cluster, policy=policy, rates=rates,
                costs="custom:start_s=30",
            )
        )
    )  # fmt: skip


def test_first_starts_are_not_lost_but_restarts_are(tmp_path):
    rows = "long,0,4,1000,,\nshort,100,4,50,,\n"
    assert lost(tmp_path, rows, "fifo-skip", "1x4") == {"lost_gpu_s": 0.0, "longest_s": 0.0}
    assert lost(tmp_path, rows, "srtf", "1x4") == {"lost_gpu_s": 4 * 30.0, "longest_s": 30.0}


def test_resizes_cost_what_the_job_then_holds(tmp_path):
    rows = "long,0,1,4000,1,8\nshort,100,1,400,1,8\n"
    found = lost(tmp_path, rows, "afs", "1x8", "scaling")
    assert found == {"lost_gpu_s": (4 + 8) * 30.0, "longest_s": 30.0}  # shrunk, then grown


def made_up(policy, *, jct_s, resizes, state="done", longest_s=30.0):
    jobs = pl.DataFrame({"job_id": ["a", "b"], "submit_s": [0.0, 5.0], "state": ["done", state]})
    summary = {
        "completed": 2, "avg_jct_s": jct_s, "p95_jct_s": jct_s, "makespan_s": jct_s,
        "deadline_misses": 0, "preemptions": 0, "resizes": resizes,
        "assumptions": {"knowledge": "nothing"},
    }  # fmt: skip
    config = RunConfig(trace="jobs.csv", cluster="1x1", policy=policy)
    return RecipeRun(config, jobs, summary, {"lost_gpu_s": 60.0, "longest_s": longest_s})


def verdicts(tmp_path, changed=None):
    """Return the checks that fail, of plausible runs in which one policy's are replaced."""
    runs = {}
    for number in (1, 2):
        for policy in RIGID:
            runs[f"{policy}-{number}"] = made_up(policy, jct_s=100.0 + number, resizes=0)
        for policy in ELASTIC:
            runs[f"{policy}-{number}"] = made_up(policy, jct_s=50.0 + number, resizes=2)
        for policy, options in (changed or {}).items():
            runs[f"{policy}-{number}"] = made_up(policy, **options)
    checks = RECIPE.checks(RecipeSetting(Scale.SMALL, tmp_path), runs)
    return [check.quantity for check in checks if check.verdict == CheckVerdict.FAILS]


@pytest.mark.parametrize(
    ("policy", "options", "quantity"),
    [
        ("srtf", {"jct_s": 100.0, "resizes": 1}, "resizes by rigid policies"),
        ("afs", {"jct_s": 50.0, "resizes": 0}, "elastic policies that resized nobody"),
        ("las", {"jct_s": 99.0, "resizes": 0, "state": "rejected"}, "jobs that were refused"),
        ("las", {"jct_s": 99.0, "resizes": 0, "state": "running"}, "runs in which jobs differ"),
        ("lyra", {"jct_s": 50.0, "resizes": 1, "longest_s": 31.0}, "longest time"),
        ("sia", {"jct_s": 150.0, "resizes": 1}, "mean JCT (s): sia"),
    ],
)
def test_a_comparison_that_is_not_fair_fails(tmp_path, policy, options, quantity):
    assert verdicts(tmp_path) == []
    failed = verdicts(tmp_path, {policy: options})
    assert len(failed) == 1
    assert failed[0].startswith(quantity)


def test_ratios_are_paired_and_have_an_interval():
    runs = {}
    for number, base_s in ((1, 100.0), (2, 400.0)):
        for policy in (*RIGID, *ELASTIC):
            slower = {"afs": 0.5, "sia": 0.5 * number}.get(policy, 1.0)
            runs[f"{policy}-{number}"] = made_up(policy, jct_s=base_s * slower, resizes=0)
    table = RECIPE.series(runs)
    found = {row["policy"]: row for row in table.to_dicts()}
    assert [found["afs"][name] for name in ("jct_ratio", "low", "high")] == [0.5, 0.5, 0.5]
    assert found["sia"]["low"] < found["sia"]["jct_ratio"] == 0.707 < found["sia"]["high"]
    assert found["afs"]["lost_gpu_h"] == pytest.approx(60 / 3600, abs=0.005)
