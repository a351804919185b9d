"""Policies side by side."""

import json
import os
from math import exp, log
from statistics import fmean

import polars as pl
import pytest

from rota.core.errors import OptionError, PolicyError
from rota.report.write import write_report
from rota.study.compare import Pictures, compare, own_files
from rota.study.compare_file import read_comparison
from rota.study.folder import OutputFolder
from rota.study.rerun import rerun
from rota.study.table import cells

FAULTY = """
from rota.core.policy import DecidePolicy

class Faulty(DecidePolicy):
    name = "faulty"

    def decide(self, view):
        draft = view.plan()
        for job in view.waiting:
            job.remaining_s(view.now_s)
        return draft
"""


def draw(folder, policy, summary):
    assert (folder / "events.parquet").is_file()
    return policy, summary["jobs"], os.getpid()


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "report"
    folder.mkdir()
    return folder


def test_every_policy_gets_a_row_and_a_folder(config, out):
    rows = compare(config(), ["fifo", "srtf"], out).rows

    assert [row.policy for row in rows] == ["fifo", "srtf"]
    assert rows[0].ratio == 1
    assert rows[1].ratio == rows[1].avg_jct_s / rows[0].avg_jct_s < 1
    assert rows[1].knowledge == "remaining work"
    assert rows[0].avg_jct_s == 77
    assert rerun(out / "srtf").same
    data = json.loads((out / "compare.json").read_text())
    assert data["baseline"] == "fifo"
    assert [run["folder"] for run in data["runs"]] == ["fifo", "srtf"]
    assert data["rows"][0]["avg_jct_s"] == 77


def test_parameters_make_distinct_folders(config, out):
    compare(config(), ["tiresias:limits=10/20", "tiresias:limits=10//20"], out)

    assert {path.name for path in out.iterdir() if path.is_dir()} == {
        "tiresias_limits=10_20", "tiresias_limits=10_20-2",
    }  # fmt: skip


def test_several_processes_give_the_same(config, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    seen = []
    here = compare(config(), ["fifo", "srtf"], one)
    there = compare(
        config(), ["fifo", "srtf"], two, workers=2, told=lambda *args: seen.append(args)
    )

    assert there.rows == here.rows
    assert there.assumptions == here.assumptions
    assert seen[-1] == (2, 2)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_first_run_of_every_policy_is_drawn_where_it_ran(config, out, workers):
    pictures = Pictures(draw)
    compare(config(), ["fifo", "srtf"], out, repeat=2, workers=workers, pictures=pictures)

    drawn = {name: (policy, jobs) for name, (policy, jobs, _) in pictures.of.items()}
    assert drawn == {"fifo-seed0": ("fifo", 5), "srtf-seed0": ("srtf", 5)}
    assert {here == os.getpid() for _, _, here in pictures.of.values()} == {workers == 1}


def test_a_wrong_option_is_refused_before_anything_runs(config, out):
    with pytest.raises(OptionError, match="unknown policy 'nope'"):
        compare(config(), ["fifo", "nope"], out)

    assert list(out.iterdir()) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_fails_is_named(config, out, tmp_path, workers):
    (tmp_path / "faulty.py").write_text(FAULTY)
    faulty = str(tmp_path / "faulty.py")

    with pytest.raises(PolicyError, match=r"run \S*faulty.py-seed\d \(policy .*faulty.py\): job 0"):
        compare(config(), ["fifo", faulty], out, repeat=2, workers=workers)

    assert not (out / "compare.json").exists()


def test_repeated_runs_give_an_interval(config, trace, out):
    rows = [f"{i},0,8,{100 + i}" for i in range(12)]
    trace.write_text("job_id,submit_s,num_gpus,duration_s\n" + "\n".join(rows) + "\n")
    found = compare(config(estimate_error="cv=1"), ["fifo", "srtf"], out, repeat=3)
    fifo, srtf = found.rows

    assert fifo.interval is None  # seeds change nothing for it: it is one run
    low, high = srtf.interval
    assert low < srtf.ratio < high
    assert {path.name for path in out.iterdir() if path.is_dir()} == {
        f"{policy}-seed{seed}" for policy in ("fifo", "srtf") for seed in (0, 1, 2)
    }
    assert "[" in cells(srtf)[-1]
    jct_s = {(run.policy, run.seed): run.summary["avg_jct_s"] for run in found.runs}
    logs = [log(jct_s["srtf", seed] / jct_s["fifo", seed]) for seed in range(3)]
    assert srtf.ratio == pytest.approx(exp(fmean(logs)))
    assert "3 seeds" in found.method
    assert found.seeds == [0, 1, 2]
    assert found.windows == []


def test_all_policies_meet_the_same_failures(config, out):
    rough = config(mtbf=0.02, mttr=0.005, cluster="4x8")
    compare(rough, ["fifo", "las"], out, repeat=2)

    def downs(folder):
        log = pl.read_parquet(out / folder / "events.parquet")
        kinds = log.filter(pl.col("event").is_in(["node_down", "node_up"]))
        return set(kinds.select("time_s", "event", "ref").iter_rows())

    longest = [downs(f"{policy}-seed0") for policy in ("fifo", "las")]
    assert len(longest[0]) > 2
    until_s = min(max(time_s for time_s, _, _ in found) for found in longest)
    first, second = ({row for row in found if row[0] <= until_s} for found in longest)
    assert first == second
    assert not downs("fifo-seed1") & first


def test_seeds_that_change_nothing_are_no_replications(config, out):
    found = compare(config(), ["fifo", "srtf"], out, repeat=3)

    assert found.rows[1].interval is None  # five jobs are too few to resample
    assert any("the seed made no difference" in note for note in found.notes)
    assert "jobs of one run" in found.method


def test_windows_are_runs_of_their_own(config, trace, out):
    rows = [f"{i},{100 * i},8,{50 + 17 * i % 90}" for i in range(12)]
    trace.write_text("job_id,submit_s,num_gpus,duration_s\n" + "\n".join(rows) + "\n")
    found = compare(config(), ["fifo", "srtf"], out, windows=3)

    assert found.windows == [1, 2, 3]
    assert [run.folder for run in found.runs][:3] == [f"fifo-window{i}" for i in (1, 2, 3)]
    assert [run.summary["jobs"] for run in found.runs] == [4] * 6
    assert found.rows[0].runs == 3
    assert "3 windows" in found.method
    assert rerun(out / "srtf-window2").same
    jobs = pl.read_csv(out / "fifo-window2" / "jobs.csv")
    assert jobs["job_id"].to_list() == [4, 5, 6, 7]
    assert jobs["submit_s"].to_list() == [0, 100, 200, 300]


def test_seeds_within_a_window_are_averaged_first(config, trace, out):
    rows = [f"{i},0,8,{100 + i}" for i in range(12)]
    trace.write_text("job_id,submit_s,num_gpus,duration_s\n" + "\n".join(rows) + "\n")
    found = compare(config(estimate_error="cv=1"), ["fifo", "srtf"], out, repeat=2, windows=2)

    assert found.rows[1].runs == 4
    assert "2 windows" in found.method
    assert any("averaged first" in note for note in found.notes)
    jct_s = {(r.policy, r.window, r.seed): r.summary["avg_jct_s"] for r in found.runs}
    logs = [log(jct_s["srtf", w, s] / jct_s["fifo", w, s]) for w in (1, 2) for s in (0, 1)]
    assert found.rows[1].ratio == pytest.approx(exp(fmean(logs)))
    assert jct_s["srtf", 1, 0] != jct_s["srtf", 1, 1]


def test_ids_are_not_measured_in_windows(config, out):
    with pytest.raises(OptionError, match="not in every window"):
        compare(config(measure="ids=0:2"), ["fifo"], out, windows=2)


def test_a_generated_workload_is_drawn_for_every_seed(config, out):
    trace = "generate:gavel-like:jobs=30,load=0.9"
    found = compare(config(trace=trace, seed=5), ["fifo", "srtf"], out, repeat=2)

    by_run = {(run.policy, run.seed): run.folder for run in found.runs}
    submits = {
        key: pl.read_csv(out / folder / "jobs.csv")["submit_s"].to_list()
        for key, folder in by_run.items()
    }
    assert set(by_run) == {("fifo", 5), ("fifo", 6), ("srtf", 5), ("srtf", 6)}
    assert submits["fifo", 5] == submits["srtf", 5] != submits["fifo", 6]
    assert rerun(out / by_run["srtf", 6]).same


def test_one_run_has_intervals_over_its_jobs(config, out):
    trace = "generate:gavel-like:jobs=200,load=1.2"
    found = compare(config(trace=trace, cluster="2x8"), ["fifo", "srtf"], out)
    srtf = found.rows[1].measures

    assert "jobs of one run" in found.method
    assert srtf["avg_jct_s"].low < srtf["avg_jct_s"].ratio < srtf["avg_jct_s"].high < 1
    assert srtf["avg_jct_s"].verdict is None  # one run proves nothing
    assert srtf["avg_jct_s"].ratio == found.rows[1].avg_jct_s / found.rows[0].avg_jct_s
    assert srtf["makespan_s"].ratio is not None
    assert srtf["makespan_s"].low is srtf["makespan_s"].verdict is None  # no sum over jobs
    assert found.rows[0].measures["avg_jct_s"].verdict is None  # nobody beats himself


def test_what_is_written_can_be_read(config, out):
    found = compare(config(), ["fifo", "srtf"], out)

    assert read_comparison(out) == found
    assert found.rows[0].delay["order"] == 75 / 5
    assert {measure.key for measure in found.measures} == set(found.rows[0].measures)


def test_measured_windows_are_told(config, out):
    found = compare(config(measure="after=20"), ["fifo", "srtf"], out)

    assert found.rows[0].jobs == 3
    assert any("after=20 are measured: 3 per policy" in note for note in found.notes)


def test_the_table_of_assumptions(config, out):
    found = compare(config(costs="pollux30"), ["fifo", "tiresias:limits=10/20"], out)
    by_key = {assumption.key: assumption for assumption in found.assumptions}

    assert by_key["preemptive"].values == {"fifo": "no", "tiresias:limits=10/20": "yes"}
    assert by_key["parameters"].values["tiresias:limits=10/20"].startswith("limits=10/20")
    assert by_key["parameters"].values["fifo"] == "none"
    assert by_key["costs"].common.startswith("pollux30 (")
    assert by_key["failures"].common == "none"
    assert by_key["preemptive"].common is None


def test_assumptions_of_a_dialect(config, out):
    rough = config(like="tiresias", mtbf=100.0, mttr=1.0, estimate_error="cv=0.5")
    found = compare(rough, ["fifo", "las"], out)
    by_key = {assumption.key: assumption.common for assumption in found.assumptions}

    assert by_key["dialect"] == "tiresias"
    assert "late demotion" in by_key["switches"]
    assert by_key["failures"].startswith("mtbf_h=100, mttr_h=1 (a job loses no work")
    assert by_key["estimate error"].startswith("cv=0.5")


def test_a_policy_named_twice_is_refused(config, out):
    with pytest.raises(OptionError, match="named twice"):
        compare(config(), ["fifo", "fifo"], out)


def test_no_completed_job_gives_no_ratio(config, trace, out):
    trace.write_text("job_id,submit_s,num_gpus,duration_s\n0,0,9,10\n")
    (row,) = compare(config(), ["fifo"], out).rows

    assert row.ratio is None
    assert cells(row)[1] == "-"


def test_told_after_each_run(config, out):
    seen = []
    compare(config(), ["fifo", "srtf"], out, told=lambda *args: seen.append(args))

    assert seen == [(1, 2), (2, 2)]


def test_an_earlier_comparison_is_replaced_and_foreign_files_stay(config, tmp_path):
    target = tmp_path / "report"
    for policies in (["fifo", "srtf"], ["fifo", "las"]):
        with OutputFolder(target, force=True, own=own_files(target)) as output:
            compare(config(), policies, output.path)
            write_report(output.path, formats=())
        (target / "fifo" / "notes.txt").write_text("mine")

    assert {path.name for path in target.iterdir()} == {
        "compare.json", "report.html", "fifo", "las",
    }  # fmt: skip
    assert (target / "fifo" / "notes.txt").exists()


def test_a_broken_compare_json_removes_nothing(tmp_path):
    (tmp_path / "compare.json").write_text('{"runs": [{"folder": "../../etc"}]}')

    assert all(".." not in name for name in own_files(tmp_path))


def test_a_policy_that_is_named_twice_is_told(config, out):
    with pytest.raises(OptionError, match="named twice: srtf: give every policy once"):
        compare(config(), ["fifo", "srtf", "srtf"], out)


def test_one_policy_has_nothing_to_be_compared_with(config, out):
    assert "nothing to compare it with" in compare(config(), ["fifo"], out).notes[0]


def test_equal_schedules_are_told(config, out, tmp_path):
    found = compare(config(), ["fifo-skip", "srtf", "easy"], out)
    idle = tmp_path / "idle"
    idle.mkdir()
    nobody = compare(config(cluster="9x8"), ["fifo", "srtf"], idle)

    assert "the same schedule, job by job: fifo-skip, easy" in found.notes
    assert (
        "nobody waited under any policy, so there is nothing to compare: raise the load"
        in nobody.notes[0]
    )


def test_a_policy_that_misses_estimates_is_told(config, out, trace):
    found = compare(config(), ["fifo", "easy"], out)
    (warning,) = found.run_of("easy").warnings

    assert not found.run_of("fifo").warnings
    assert f"no job of {trace} has an estimate (estimate_s): easy behaves as if" in warning


def test_failures_leave_a_trace(config, out):
    found = compare(config(mtbf=0.01, mttr=0.01), ["fifo", "srtf"], out, repeat=2)
    failures = next(one.common for one in found.assumptions if one.key == "failures")

    assert found.rows[0].measures["evictions"].mean > 0
    assert "a job loses no work: set checkpoint_s of the costs" in failures
    assert any("geometric mean" in note for note in found.notes)


def test_a_long_policy_gets_a_short_folder(config, out):
    limits = "/".join(str(1000 * n) for n in range(1, 60))
    compare(config(), ["fifo", f"tiresias:limits={limits}"], out)

    assert max(len(path.name) for path in out.iterdir()) < 100


def test_a_seed_that_changes_nothing_for_two_policies_makes_neither_win(config, trace, out):
    rows = [f"{i},{i},8,{100 - i}" for i in range(12)]
    trace.write_text("job_id,submit_s,num_gpus,duration_s\n" + "\n".join(rows) + "\n")
    found = compare(config(estimate_error="cv=1"), ["fifo", "las", "srtf"], out, repeat=3)
    las = found.rows[1].measures["avg_jct_s"]

    assert las.verdict is None
    assert "3 seeds" in found.method  # they matter for srtf


def test_a_generator_with_a_seed_of_its_own_is_one_workload(config, out):
    trace = "generate:poisson:jobs=60,load=1.2,mean_s=600,seed=5"
    rough = config(trace=trace, cluster="2x4", estimate_error="cv=0.3")
    found = compare(rough, ["srtf", "las"], out, repeat=2, windows=3)

    assert "3 windows" in found.method
