"""Tuning: the best of a planted space is found, early, and noise is called noise."""

import json
import math
import random
from pathlib import Path

import polars as pl
import pytest

import rota
from rota.cli.app import run
from rota.core.errors import InputError
from rota.core.jobs import Behaviour, JobSpec, Request, TaskGroup
from rota.core.workload import Workload
from rota.study.sweep.local import Local
from rota.study.sweep.source import parse_source
from rota.study.tune.run import busiest, load_tune, rungs_of, tune
from rota.study.tune.space import TuneRange, with_parameters
from rota.study.tune.spec import parse_tune

PLANTED = """\
from math import exp
from random import Random
from rota.core.knowledge import Knowledge
from rota.core.policy import Params, PriorityPolicy

class PlantedParams(Params, frozen=True):
    x: int = 0
    y: int = 0
    noise: float = 1.0

class Planted(PriorityPolicy[PlantedParams]):
    '''The shortest first, but for an error that grows with the distance from x=5, y=1.'''

    name = "planted"
    knowledge = Knowledge.REMAINING_WORK
    Parameters = PlantedParams

    def key(self, job, now_s):
        x, y = self.params.x - 5, self.params.y - 1
        off = abs(x + 0.1 * (x > 0)) + abs(0.37 * y + 0.05 * (y > 0))
        wrong = Random(job.id).gauss(0, 1) * self.params.noise * off
        return (exp(wrong) * job.duration_s(),)
"""
SPACE = """\
workloads: [jobs.csv]
clusters: [1x8]
policies: [planted.py]
tune:
  goal: avg_jct_s
  space:
    x: [0, 1, 2, 3, 4, 5, 6, 7, 8]
    y: [0, 1, 2]
  min_jobs: 50
"""
JOBS = 1_350


def jobs_csv(count, seed=0):
    draw = random.Random(seed)  # noqa: S311 - jobs, not secrets
    lines = ["job_id,submit_s,num_gpus,duration_s"]
    time_s = 0.0
    for number in range(count):
        time_s += draw.expovariate(1 / 120)
        run_s = min(20_000.0, math.exp(draw.gauss(6, 1.2)))
        lines.append(f"{number},{time_s:.0f},{draw.choice([1, 1, 2, 4])},{run_s:.1f}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Return a folder with the jobs and the policy."""
    folder = tmp_path_factory.mktemp("tune")
    (folder / "jobs.csv").write_text(jobs_csv(JOBS))
    (folder / "planted.py").write_text(PLANTED)
    return folder


def parsed(home, text=SPACE):
    return parse_tune(parse_source(text, home / "space.yaml"))


@pytest.fixture(scope="module")
def found(home):
    """Return what became of the planted space."""
    return tune(parsed(home), home / "out", Local(0), command=["rota", "tune", "space.yaml"])


# --- the search -----------------------------------------------------------------------------------


def test_the_best_of_a_planted_space_is_found(found):
    assert found.winner.values == {"policy": "planted.py", "x": 5, "y": 1}
    assert found.winner.options["policy"] == "planted.py:x=5,y=1"
    assert found.judgement.verdict == "better"
    assert found.judgement.high < 1
    assert found.judgement.winner_value < found.judgement.default_value
    assert found.verdict.startswith("planted.py:x=5,y=1 is better than the default: its mean JCT")
    assert "5 consecutive parts of the workload" in found.verdict


def test_bad_trials_are_stopped_early(found):
    assert [(len(rung.values), len(rung.kept)) for rung in found.rungs] == [
        (27, 9), (9, 3), (3, 1), (2, 1),
    ], "at last the default comes back"  # fmt: skip
    windows = [rung.window or "1/1" for rung in found.rungs]
    assert [window.partition("/")[2] for window in windows] == ["27", "9", "3", "1"]
    assert [rung.jobs for rung in found.rungs] == [50, 150, 450, 1350]
    assert [rung.simulated for rung in found.rungs] == [27 * 50, 9 * 150, 3 * 450, 2 * 1350]
    assert found.judgement.simulated == 2 * JOBS, "both in parts; the whole is done"
    assert found.grid == 27 * JOBS
    assert found.simulated < 0.5 * found.grid
    assert found.cost == (
        "The search simulated 6,750 jobs, 19% of those of all 27 trials on the whole workload; the "
        "last comparison 2,700."
    )


def test_a_row_per_trial(found, home):
    table = pl.read_csv(home / "out" / "trials.csv")
    assert table.height == 27
    assert table.filter(trial=0).select("policy", "x", "y").row(0) == ("planted.py", None, None)
    winner = table.filter(fate="winner")
    assert winner["policy"].to_list() == ["planted.py:x=5,y=1"]
    assert winner["rungs"].item() == 4
    fates = table["fate"].value_counts().sort("fate").rows()
    assert fates == [
        ("default", 1), ("stopped at rung 0", 17), ("stopped at rung 1", 6),
        ("stopped at rung 2", 2), ("winner", 1),
    ]  # fmt: skip
    assert table["rung_1_avg_jct_s"].count() == 9
    assert table.filter(trial=0)["rung_3_avg_jct_s"].item() == found.judgement.default_value
    assert load_tune(home / "out") == found


def test_numbers_are_those_of_simulations(found, home):
    whole = rota.simulate(home / "jobs.csv", cluster="1x8", policy=f"{home / 'planted.py'}:x=5,y=1")
    assert found.judgement.winner_value == whole.summary["avg_jct_s"]
    part = rota.simulate(
        home / "jobs.csv",
        cluster="1x8",
        policy=f"{home / 'planted.py'}:x=3,y=0",
        window=found.rungs[0].window,
    )
    trial = next(one for one in found.trials if one.label == "planted.py:x=3,y=0")
    assert found.rungs[0].values[trial.number] == part.summary["avg_jct_s"]


def test_the_same_again_runs_nothing_and_gives_the_same_bytes(found, home):
    before = {path: path.read_bytes() for path in (home / "out").glob("*.*")}
    marks = {path: path.stat().st_ino for path in (home / "out" / "runs").iterdir()}
    again = tune(parsed(home), home / "out", Local(0), command=["rota", "tune", "space.yaml"])
    assert again == found
    assert {path: path.stat().st_ino for path in (home / "out" / "runs").iterdir()} == marks
    assert {path: path.read_bytes() for path in (home / "out").glob("*.*")} == before


# --- honest ---------------------------------------------------------------------------------------


def test_noise_is_called_noise(home, tmp_path):
    """What is varied changes next to nothing: the least mean is chance."""
    text = SPACE.replace("x: [0, 1, 2, 3, 4, 5, 6, 7, 8]", "noise: [0.001, 0.002, 0.003]")
    text = text.replace("    y: [0, 1, 2]\n", "").replace("planted.py", "'planted.py:x=5,noise=0'")
    record = tune(parsed(home, text), tmp_path / "out", Local(0))
    assert record.judgement.verdict == "unclear"
    assert record.judgement.low <= 1 <= record.judgement.high
    assert record.verdict.startswith("No more than noise is proven: planted.py:x=5,noise=0.0")
    assert "Keep the default, or try it with more jobs." in record.verdict


def test_a_part_in_which_nobody_waits_stops_nobody(home, tmp_path):
    text = SPACE.replace("1x8", "99x8").replace("[0, 1, 2, 3, 4, 5, 6, 7, 8]", "[0, 5]")
    record = tune(parsed(home, text), tmp_path / "out", Local(0))
    assert [len(rung.kept) for rung in record.rungs] == [6, 6, 1]
    assert record.judgement.verdict == "default"
    assert record.verdict.startswith("No trial is better than the default, planted.py.")
    assert any(text.startswith("nobody waited") for text in record.warnings)


def test_drawn_jobs_are_judged_by_fresh_seeds(home, tmp_path):
    text = (
        "workloads: ['poisson:jobs=120,mean_s=600']\nclusters: [1x8]\nloads: [1.2]\n"
        "policies: [fifo, srtf]\ntune: {repeats: 3, min_jobs: 40}\n"
    )
    record = tune(parsed(home, text), tmp_path / "out", Local(0))
    assert [trial.label for trial in record.trials] == ["fifo", "srtf"]
    assert record.winner.label == "srtf"
    assert (record.judgement.repeats, record.judgement.how) == (3, "3 fresh seeds")
    assert record.use.startswith("rota simulate generate:poisson:jobs=120,load=1.2,mean_s=600 ")
    assert "--policy srtf" in record.use


def test_a_short_workload_is_told(home, tmp_path):
    (home / "short.csv").write_text(jobs_csv(60))
    text = SPACE.replace("jobs.csv", "short.csv").replace("[0, 1, 2, 3, 4, 5, 6, 7, 8]", "[0, 5]")
    record = tune(parsed(home, text), tmp_path / "out", Local(0))
    assert "60 jobs, fewer than eta x min_jobs = 150" in record.warnings[0]
    assert record.judgement.verdict == "unproven"
    assert "nothing is proven about other jobs" in record.verdict


def test_trials_that_fail_are_told_and_lose(home, tmp_path):
    broken = PLANTED.replace("        off =", "        assert self.params.x != 1\n        off =")
    (home / "broken.py").write_text(broken)
    text = SPACE.replace("planted.py", "broken.py").replace("[0, 1, 2, 3, 4, 5, 6, 7, 8]", "[1, 4]")
    record = tune(parsed(home, text), tmp_path / "out", Local(0))
    assert record.winner.label == "broken.py:x=4,y=1"
    assert len(record.failures) == 3
    assert "AssertionError" in record.failures[0].error


# --- the space ------------------------------------------------------------------------------------


def test_rungs_grow_by_eta_and_no_part_is_too_small():
    assert rungs_of(3_000, 27, 3, 100) == [27, 9, 3, 1]
    assert rungs_of(3_000, 5, 3, 100) == [9, 3, 1], "two rungs leave one of five"
    assert rungs_of(3_000, 27, 3, 500) == [3, 1]
    assert rungs_of(200, 27, 2, 101) == [1]


def test_the_busiest_part_is_where_trials_compete():
    """Of 90 jobs, the middle ones come ten times as fast; the largest alone does not decide."""
    specs, behaviours = [], []
    for number in range(90):
        at_s = 100.0 * number if number < 30 else 3_000.0 + 10.0 * (number - 30)
        at_s += 900.0 * max(0, number - 59)
        request = Request(groups=(TaskGroup(gpus=1),))
        specs.append(JobSpec(id=str(number), submit_s=at_s, request=request))
        behaviours.append(Behaviour(1e9 if number == 80 else 50.0))
    found = busiest([Workload(specs, behaviours)], [9, 3, 1])
    assert found == {9: "4/9", 3: "2/3", 1: None}


def test_ranges_are_covered_evenly_and_by_the_seed(home):
    text = (
        "workloads: [jobs.csv]\nclusters: [1x8]\npolicies: ['tiresias:limits=99']\ntune:\n"
        "  space:\n    promote: {from: 1, to: 1000, scale: log}\n    limits: [[50, 60], 70]\n"
        "    round: {from: 60, to: 300}\n  trials: 10\n  seed: SEED\n"
    )
    one, same, other = (parsed(home, text.replace("SEED", seed)) for seed in ("3", "3", "4"))
    assert one.trials == same.trials != other.trials
    assert one.trials[0].label == "tiresias:limits=99"
    drawn = sorted(trial.values["promote"] for trial in one.trials[1:])
    assert [int(10 * math.log(value) / math.log(1000)) for value in drawn] == list(range(10))
    assert all(60 <= trial.options["round"] <= 300 for trial in one.trials[1:])
    assert {trial.options["policy"].partition(",")[0] for trial in one.trials[1:]} == {
        "tiresias:limits=50/60", "tiresias:limits=70",
    }  # fmt: skip
    assert TuneRange(low=1, high=4, whole=True).at(0.5) == 2
    assert with_parameters("las:a=1", {"b": True, "a": 2.5}) == "las:a=2.5,b=yes"


def test_fewer_trials_than_combinations_are_drawn_without_repetition(home):
    text = SPACE.replace("[0, 1, 2, 3, 4, 5, 6, 7, 8]", "[1, 2, 3, 4]")
    chosen = parsed(home, text.replace("  min_jobs", "  trials: 8\n  min_jobs")).trials
    whole = {trial.label for trial in parsed(home, text).trials}
    assert len({trial.label for trial in chosen}) == len(chosen) == 9
    assert {trial.label for trial in chosen} < whole
    assert len(whole) == 4 * 3 + 1
    assert len(parsed(home).trials) == 27, "x=0, y=0 is the default in other words"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("goal: avg_jct_s", "goal: avg_jct", "tune.goal: unknown measure 'avg_jct': did you mean"),
        ("goal: avg_jct_s", "goal: gpu_allocation", "line 5: tune.goal: unknown measure"),
        ("min_jobs: 50", "min_job: 50", "line 9: tune: unknown key 'min_job': did you mean"),
        ("min_jobs: 50", "eta: 1", "line 9: tune.eta 1: give a whole number from 2 on"),
        ("    y:", "    z:", "line 8: tune.space: unknown parameter or option 'z'"),
        ("y: [0, 1, 2]", "y: {from: 2, to: 1}", "from 2 to 1: give two numbers, the smaller first"),
        ("y: [0, 1, 2]", "y: {from: 0, to: 1}", "tune.space.y is a range: say how many trials"),
        ("y: [0, 1, 2]", "noise: {from: 0, to: 1, scale: log}", "scale log begins above 0"),
        ("y: [0, 1, 2]", "y: 3", "tune.space.y is 3: give a list of values, or {from: 1, to: 8}"),
        ("y: [0, 1, 2]", "y: [1, 1]", "tune.space.y: 1 is there twice: keep one"),
        ("y: [0, 1, 2]", "y: [frog]", "policy 'planted.py': cannot use x=0, y=frog"),
        ("y: [0, 1, 2]", "window: [1/2]", "window: trials run on parts of the workload"),
        ("tune:", "exclude: []\ntune:", "exclude is for `rota sweep`"),
        ("tune:", "options: {measure: after=5}\ntune:", "measure: trials run on parts"),
        ("[planted.py]", "[plantet.py]", "plantet.py"),
    ],
)
def test_mistakes_are_named_with_a_remedy(home, tmp_path, old, new, told):
    with pytest.raises(InputError) as error:
        tune(parsed(home, SPACE.replace(old, new)), tmp_path / "out", Local(0))
    assert told in str(error.value).replace(str(home) + "/", "")
    assert not list(tmp_path.glob("out/runs/*"))


def test_nothing_to_vary_is_a_mistake(home):
    text = "workloads: [jobs.csv]\nclusters: [1x8]\npolicies: [fifo]\n"
    with pytest.raises(InputError, match=r"nothing is varied: give tune\.space"):
        parsed(home, text)


# --- the command ----------------------------------------------------------------------------------

SMALL = """\
workloads: [jobs.csv]
clusters: [1x8]
policies: [fifo, srtf, las]
tune: {min_jobs: 50}
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "jobs.csv").write_text(jobs_csv(300))
    (tmp_path / "sweep.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command(place, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["rota", "tune", "sweep.yaml"])
    assert run(["tune", "sweep.yaml", "--jobs", "0"]) == 0
    said = capsys.readouterr()
    assert "rung 0: 3 trials, 100 jobs each" in said.err
    assert "to use it: rota simulate jobs.csv --cluster 1x8 --policy srtf -o best" in said.err
    assert "srtf is better than the default" in said.out
    folder = place / "sweep-tuned"
    assert sorted(path.name for path in folder.iterdir() if path.name[0] != ".") == [
        "report.html", "runs", "trials.csv", "tune.json",
    ]  # fmt: skip
    page = (folder / "report.html").read_text()
    assert run(["report", "sweep-tuned"]) == 0
    assert (folder / "report.html").read_text() == page
    capsys.readouterr()
    assert run(["tune", "sweep-tuned", "--show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["judgement"]["verdict"] == "better"
    assert run(["tune", "sweep.yaml", "--jobs", "0", "--fresh"]) == 0
    assert (folder / "report.html").read_text() == page
    assert run(["sweep", "sweep.yaml", "-o", "out"]) == 2
    assert "line 4: tune is for `rota tune`" in capsys.readouterr().err


def test_a_dry_run_lists_the_trials(place, capsys):
    assert run(["tune", "sweep.yaml", "--dry-run"]) == 0
    said = capsys.readouterr()
    assert [line.split() for line in said.out.splitlines() if line.strip()][2:] == [
        ["0", "fifo"], ["1", "srtf"], ["2", "las"],
    ]  # fmt: skip
    assert "3 trials, of which 0 is the default; jobs of a run at each rung: 100, 300" in said.err
    assert not (place / "sweep-tuned").exists()


def test_strange_folders_are_refused(place, capsys):
    (place / "mine").mkdir()
    (place / "mine" / "thesis.tex").touch()
    for args, code, told in (
        (("sweep.yaml", "-o", "mine"), 1, "holds other things (thesis.tex, ...) and no tune"),
        ((".",), 2, "is a folder: name a YAML file, or add --show"),
        ((".", "--show"), 2, "name a folder that `rota tune` made"),
    ):
        assert run(["tune", *args]) == code
        assert told in capsys.readouterr().err


def test_from_python(place):
    spec = {
        "workloads": [Path("jobs.csv")], "clusters": ["1x8"], "policies": ["fifo", "srtf", "las"],
        "tune": {"min_jobs": 50},
    }  # fmt: skip
    found = rota.tune(spec, jobs=0)
    assert found.winner == {"policy": "srtf"}
    assert found.proven
    assert found.to_polars().height == 3
    assert repr(found).startswith("<TuneResult of 3 trials: srtf is better than the default")
    kept = rota.tune("sweep.yaml", folder="out", jobs=0)
    assert kept.verdict == found.verdict
    assert (place / "out" / "report.html").exists()
