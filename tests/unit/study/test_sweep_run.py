"""A sweep from its description to its table: nothing is done twice, nothing is lost."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec

import polars as pl
import pytest

from rota.core.errors import InputError, OutputError
from rota.study.rerun import rerun
from rota.study.sweep.keys import CODE, code_version
from rota.study.sweep.local import Local
from rota.study.sweep.run import load_sweep, sweep
from rota.study.sweep.source import parse_source
from rota.study.sweep.spec import parse_spec
from rota.study.sweep.store import Runs, SweepFolder
from rota.study.sweep.workloads import faster
from rota.traces.read import read_workload

SPEC = """\
workloads: [jobs.csv]
clusters: [1x8]
policies: [fifo, srtf]
loads: [1, 2]
seeds: 2
options: {estimate_error: cv=0.5}
"""
BROKEN = """\
from rota.core.policy import PriorityPolicy

class Broken(PriorityPolicy):
    def key(self, job, now_s):
        raise ZeroDivisionError("of a user")
"""
DEADLY = """\
import os, signal
from pathlib import Path
from rota.core.policy import PriorityPolicy

class Deadly(PriorityPolicy):
    def key(self, job, now_s):
        with Path({tally!r}).open("a") as file:
            file.write("x")
        if Path({tally!r}).stat().st_size <= {deaths}:
            os.kill(os.getpid(), signal.SIGKILL)
        return (job.submit_s,)
"""


@pytest.fixture
def run(trace, tmp_path):
    """Return `run(text)`: the outcome of a sweep into the folder `out`."""

    def go(text=SPEC, folder="out", jobs=0, **options):
        spec = parse_spec(parse_source(text, trace.parent / "sweep.yaml"))
        return sweep(spec, tmp_path / folder, Local(jobs), **options)

    return go


def marks(folder):
    """Return what changes when a run is done again."""
    return {path.name: path.stat().st_ino for path in (folder / "runs").iterdir()}


def tables(folder):
    return [(folder / f"results.{kind}").read_bytes() for kind in ("csv", "parquet")]


def test_points_at_which_nobody_waits_are_told_now_and_later(run, tmp_path):
    outcome = run(SPEC.replace("[1x8]", "[1x8, 9x8]"))
    (told,) = [text for text in outcome.warnings if text.startswith("nobody waited")]
    where = "workload=jobs.csv, cluster=9x8, load=1.0, seed=0 and 3 more"
    assert told == (
        f"nobody waited under any policy, so there is nothing to compare at {where}: raise the "
        "load (a smaller --cluster, or load=L of a generated workload)"
    )
    assert load_sweep(tmp_path / "out").warnings == outcome.warnings
    assert {mean.labels["cluster"]: mean.idle for mean in outcome.means} == {
        "1x8": False, "9x8": True,
    }  # fmt: skip


def test_a_row_per_run_in_the_order_of_the_matrix(run, tmp_path):
    outcome = run()
    table = pl.read_csv(tmp_path / "out" / "results.csv")
    assert (outcome.ran, outcome.found, outcome.failures) == (8, 0, [])
    assert table.columns[:5] == ["workload", "cluster", "policy", "load", "seed"]
    assert table["load"].to_list() == [1, 1, 2, 2] * 2
    assert table["seed"].to_list() == [0, 1] * 4
    assert outcome.table.equals(pl.read_parquet(tmp_path / "out" / "results.parquet"))
    assert table["avg_jct_s"].to_list() == outcome.table["avg_jct_s"].to_list()
    assert {"avg_jct_s", "states_done", "delay_order", "ledger_useful_gpu_s"} < set(table.columns)
    assert not [name for name in table.columns if "cpu_s" in name]
    assert json.loads((tmp_path / "out" / "failures.json").read_text()) == []


def test_the_numbers_are_those_of_the_runs_and_runs_can_be_proved(run, tmp_path):
    outcome = run()
    for row in (outcome.rows[0], outcome.rows[-1]):
        folder = tmp_path / "out" / "runs" / row["run"]
        assert json.loads((folder / "summary.json").read_text())["avg_jct_s"] == row["avg_jct_s"]
        assert rerun(folder).same


def test_what_a_policy_file_imports_from_its_folder_counts(run, trace, monkeypatch):
    monkeypatch.syspath_prepend(trace.parent)
    (trace.parent / "mine.py").write_text(
        "import helper_of_mine as helper\nfrom rota.core.policy import PriorityPolicy\n"
        "class Mine(PriorityPolicy):\n"
        "    def key(self, job, now_s):\n        return (helper.SIGN * job.submit_s,)\n"
    )
    text = SPEC.replace("[fifo, srtf]", "[mine.py]")
    (trace.parent / "helper_of_mine.py").write_text("from deeper_than_that import SIGN\n")
    (trace.parent / "deeper_than_that.py").write_text("SIGN = 1\n")
    assert (run(text).ran, run(text).ran) == (4, 0)
    (trace.parent / "deeper_than_that.py").write_text("SIGN = -1\n")
    assert run(text).ran == 4
    for name in ("helper_of_mine", "deeper_than_that"):
        del sys.modules[name]


def test_what_is_done_is_not_done_again(run, tmp_path):
    run()
    before, table = marks(tmp_path / "out"), tables(tmp_path / "out")
    again = run()
    assert (again.ran, again.found) == (0, 8)
    assert marks(tmp_path / "out") == before
    assert tables(tmp_path / "out") == table


def test_of_a_changed_sweep_only_new_cells_are_run(run, tmp_path):
    run()
    before = marks(tmp_path / "out")
    outcome = run(SPEC.replace("srtf", "srtf, las").replace("seeds: 2", "seeds: [1]"))
    assert (outcome.ran, outcome.found) == (2, 4)
    assert before.items() < marks(tmp_path / "out").items()
    assert len(outcome.table) == 6


def test_fresh_does_all_again(run, tmp_path):
    run()
    before, table = marks(tmp_path / "out"), tables(tmp_path / "out")
    assert run(fresh=True).ran == 8
    assert set(marks(tmp_path / "out")) == set(before)
    assert tables(tmp_path / "out") == table


def test_another_content_of_a_file_is_another_run_but_another_place_is_not(run, trace, tmp_path):
    keys = set(marks_of(run()))
    trace.write_text(trace.read_text().replace("5,8,10", "5,8,11"))
    assert not keys & set(marks_of(run()))
    trace.write_text(trace.read_text().replace("5,8,11", "5,8,10"))
    trace.rename(trace.with_name("moved.csv"))
    assert set(marks_of(run(SPEC.replace("jobs.csv", "moved.csv"), "elsewhere"))) == keys


def marks_of(outcome):
    return [row["run"] for row in outcome.rows]


def test_a_policy_in_a_file_is_part_of_the_key(run, trace):
    policy = BROKEN.replace('raise ZeroDivisionError("of a user")', "return (job.submit_s,)")
    (trace.parent / "mine.py").write_text(policy)
    text = SPEC.replace("srtf", "mine.py")
    first = marks_of(run(text))
    (trace.parent / "mine.py").write_text(policy.replace("(job", "(-job"))
    second = marks_of(run(text))
    assert [a == b for a, b in zip(first, second, strict=True)] == [True] * 4 + [False] * 4


@pytest.mark.parametrize("harm", ["cut", "gone", "renamed", "record"])
def test_a_damaged_run_is_noticed_and_done_again(run, tmp_path, harm):
    run()
    table = tables(tmp_path / "out")
    folders = sorted((tmp_path / "out" / "runs").iterdir())
    if harm == "cut":
        file = folders[0] / "events.parquet"
        file.write_bytes(file.read_bytes()[:-9])
    elif harm == "gone":
        (folders[0] / "jobs.csv").unlink()
    elif harm == "renamed":
        shutil.rmtree(folders[0])
        shutil.copytree(folders[1], folders[0])
    else:
        (folders[0] / "run.json").write_text("{")
    assert run().ran == 1
    assert tables(tmp_path / "out") == table


def test_only_what_is_to_be_kept_is_kept(run, tmp_path):
    run(SPEC + "keep: summary\n")
    table = tables(tmp_path / "out")
    folder = next((tmp_path / "out" / "runs").iterdir())
    assert {path.name for path in folder.iterdir()} == {"manifest.json", "summary.json", "run.json"}
    assert run(SPEC + "keep: jobs\n").ran == 8  # there is less than is asked for now
    assert (folder / "jobs.csv").exists()
    assert run(SPEC + "keep: summary\n").ran == 0
    assert tables(tmp_path / "out") == table


def test_processes_give_the_same_bytes(run, tmp_path):
    run()
    assert run(folder="two", jobs=2).ran == 8
    assert run(folder="one", jobs=1).ran == 8
    assert tables(tmp_path / "two") == tables(tmp_path / "out") == tables(tmp_path / "one")


@pytest.mark.parametrize("jobs", [0, 2])
def test_a_failing_run_does_not_lose_the_others_and_is_tried_again(run, trace, tmp_path, jobs):
    (trace.parent / "mine.py").write_text(BROKEN)
    told = []
    outcome = run(SPEC.replace("srtf", "mine.py"), jobs=jobs, told=lambda *news: told.append(news))
    assert len(outcome.rows) == len(outcome.failures) == 4
    assert [news[:2] for news in told] == [(number, 8) for number in range(9)]
    assert sum(news[2] is not None for news in told) == 4
    written = json.loads((tmp_path / "out" / "failures.json").read_text())
    assert written[0]["labels"]["policy"] == "mine.py"
    assert written[0]["error"] == "ZeroDivisionError: of a user"
    assert "in key" in written[0]["trace"]
    assert load_sweep(tmp_path / "out").failures == outcome.failures
    again = run(SPEC.replace("srtf", "mine.py"), jobs=jobs)
    assert (again.ran, again.found, len(again.failures)) == (0, 4, 4)


@pytest.mark.parametrize(("deaths", "failed"), [(1, 0), (100, 1)])
def test_a_process_that_dies_is_tried_again_then_recorded(run, trace, tmp_path, deaths, failed):
    tally = tmp_path / "tally"
    (trace.parent / "mine.py").write_text(DEADLY.format(tally=str(tally), deaths=deaths))
    text = SPEC.replace("srtf", "mine.py").replace("seeds: 2", "seeds: 1").replace("1, 2", "2")
    outcome = run(text, jobs=2)
    assert len(outcome.rows) == 2 - failed
    assert [failure.error for failure in outcome.failures] == failed * [
        "its process died 2 times (killed by SIGKILL: out of memory?)"
    ]


def test_two_sweeps_do_not_write_to_one_folder(run, tmp_path):
    with (
        SweepFolder(tmp_path / "out"),
        pytest.raises(OutputError, match=f"another sweep writes here .process {os.getpid()}.*-o"),
    ):
        run()
    assert run().ran == 8


def test_other_things_in_the_folder_are_not_touched(run, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("precious")
    with pytest.raises(OutputError, match=r"holds other things \(thesis.tex"):
        run()
    with pytest.raises(OutputError, match="is a file"):
        run(folder="out/thesis.tex")
    assert (tmp_path / "out" / "thesis.tex").read_text() == "precious"


def test_what_a_killed_process_left_is_removed(run, tmp_path):
    run()
    part = tmp_path / "out" / "runs" / ".abc.1.part"
    part.mkdir()
    run()
    assert not part.exists()


def test_an_interruption_leaves_a_table_of_what_is_done(run, tmp_path):
    def stop(done, total, failed):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(told=stop)
    assert pl.read_csv(tmp_path / "out" / "results.csv").height == 3
    assert len(load_sweep(tmp_path / "out").rows) == 3
    assert run().ran == 5


def test_processes_end_with_the_sweep(run):
    def stop(done, total, failed):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        run(jobs=2, told=stop)
    assert multiprocessing.active_children() == []
    assert caught.value is not None  # its frames are still there: nobody waited for their end


def test_a_changed_workload_file_is_made_again(run, tmp_path):
    run()
    made = next((tmp_path / "out" / "workloads").iterdir())
    whole = made.read_bytes()
    made.write_bytes(whole.replace(b"100", b"101"))
    assert run().ran == 0
    assert made.read_bytes() == whole


def test_a_load_changes_when_jobs_arrive_and_nothing_else(trace):
    trace.write_text(
        "job_id,submit_s,num_gpus,duration_s,deadline_s\n0,100,4,100,300\n1,130,4,20,\n"
    )
    workload = read_workload(trace)
    twice = faster(workload, 2.0)
    assert [spec.submit_s for spec in twice.specs] == [100, 115]
    assert [spec.deadline_s for spec in twice.specs] == [300, float("inf")]
    assert twice.behaviours == workload.behaviours


def test_only_folders_of_sweeps_are_shown(tmp_path):
    with pytest.raises(InputError, match="name a folder that `rota sweep` made"):
        load_sweep(tmp_path)
    (tmp_path / "sweep.json").write_text("{}")
    with pytest.raises(InputError, match="is not a sweep of this Rota"):
        load_sweep(tmp_path)
    assert Runs(tmp_path).summary("abc") is None


def test_the_code_is_part_of_every_key():
    version, _, digest = code_version().partition("+")
    assert version.count(".") == 2
    assert len(digest) == 16
    assert [name for name in CODE if find_spec(f"rota.{name}") is None] == []


def test_sigint_is_left_to_the_parent(run, tmp_path):
    """A worker that is told to stop by the terminal goes on; whoever started it decides."""

    def poke(done, total, failed):
        for child in multiprocessing.active_children():
            os.kill(child.pid, signal.SIGINT)

    outcome = run(jobs=1, told=poke)
    assert len(outcome.rows) == 8


def test_a_script_without_a_guard_is_told_so(trace, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from rota.notebook.experiment import Experiment\n"
        f"Experiment({str(trace)!r}, '1x8', ['fifo', 'srtf']).run(jobs=1, folder='out')\n"
    )
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "must start runs below `if __name__" in last


def test_a_run_of_another_rota_is_refused(run, monkeypatch):
    monkeypatch.setattr("rota.study.sweep.work.code_version", lambda: "9.9.9+other")
    outcome = run()
    assert len(outcome.failures) == 8
    assert "this process has Rota 9.9.9+other" in outcome.failures[0].error


def test_warnings_are_told_once(run, trace):
    with trace.open("a") as file:
        file.write("5,40,9,60,a\n")
    text = SPEC.replace("jobs.csv", "{file: jobs.csv, limit: 6}")
    too_big, *others = run(text).warnings
    assert others == []
    assert "workload=jobs.csv, cluster=1x8, policy=fifo, load=1.0, seed=0 and 7 more" in too_big
    assert "job 5 was rejected" in too_big
    cut = run(text.replace("limit: 6", "limit: 5")).warnings
    assert len(cut) == 2  # of the file with another load, and of the runs on the file itself
    assert cut[0] == "jobs.csv: 1 row of the trace left out: beyond the limit"
    assert "and 3 more runs: 1 row of the trace left out: beyond the limit" in cut[1]
