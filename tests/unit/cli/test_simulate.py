"""`rota simulate` and `rota rerun`."""

import json
import sys

import polars as pl
import pytest

FILES = {"jobs.csv", "summary.json", "events.parquet", "manifest.json"}
RUN = ("simulate", "jobs.csv", "--cluster", "1x8", "--policy", "fifo", "-o", "out")


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_a_run_writes_its_files_and_prints_a_table(rota, here):
    code, out, err = rota(*RUN)

    assert (code, err) == (0, "")
    assert names(here / "out") == FILES
    assert "mean JCT" in out
    assert "77.0 s" in out


def test_deadlines_and_resizes_are_in_the_table_where_there_are_any(rota, here):
    _, out, _ = rota(*RUN)
    assert "deadlines missed" not in out
    assert "resizes" not in out

    (here / "jobs.csv").write_text(
        "job_id,submit_s,num_gpus,duration_s,min_gpus,max_gpus,deadline_s\n"
        "0,0,4,100,1,8,20\n1,10,4,100,1,4,900\n2,20,1,50,,,\n"
    )
    words = ("--policy", "afs", "--rates", "scaling", "--force")
    _, out, _ = rota(*RUN, *words)
    (missed,) = (line for line in out.splitlines() if "deadlines missed" in line)
    assert missed.split() == ["deadlines", "missed", "1", "of", "2"]
    (resizes,) = (line.split() for line in out.splitlines() if "resizes" in line)
    assert int(resizes[1]) == json.loads((here / "out" / "summary.json").read_text())["resizes"] > 0


def test_the_summary_as_json(rota):
    _, out, _ = rota(*RUN, "--json")

    assert json.loads(out)["avg_jct_s"] == 77


def test_options_from_the_environment(rota, here, monkeypatch):
    monkeypatch.setenv("ROTA_SIMULATE_CLUSTER", "1x8")
    monkeypatch.setenv("ROTA_SIMULATE_POLICY", "srtf")
    monkeypatch.setenv("ROTA_SIMULATE_SEED", "5")
    monkeypatch.setenv("ROTA_SIMULATE_OUTPUT", "elsewhere")
    code, _, _ = rota("simulate", "jobs.csv")
    summary = json.loads((here / "elsewhere" / "summary.json").read_text())

    assert code == 0
    assert summary["assumptions"]["policy"]["name"] == "srtf"
    assert summary["assumptions"]["seed"] == 5


def test_every_option_reaches_the_run(rota, here):
    code, _, _ = rota(
        *RUN, "--placement", "consolidate", "--admission", "accept-all", "--costs", "pollux30",
        "--rates", "uniform", "--format", "csv", "--limit", "4", "--seed", "2",
        "--round", "50,refill=yes", "--estimate-error", "cv=0.1", "--speed-error", "cv=0.2",
        "--mtbf", "1000",
        "--mttr", "1", "--measure", "ids=0:3", "--check",
        "--maintenance", "nodes=n0,start=9d,for=1h", "--reserve", "gpus=8,start=8d,for=1h,user=ann",
    )  # fmt: skip
    config = json.loads((here / "out" / "manifest.json").read_text())["config"]

    assert code == 0
    assert config == {
        "trace": "jobs.csv", "cluster": "1x8", "policy": "fifo", "format": "csv", "limit": 4,
        "placement": "consolidate", "admission": "accept-all", "costs": "pollux30",
        "rates": "uniform", "maintenance": ["nodes=n0,start=9d,for=1h"],
        "reserve": ["gpus=8,start=8d,for=1h,user=ann"], "like": None, "seed": 2,
        "round": "50,refill=yes", "estimate_error": "cv=0.1",
        "speed_error": "cv=0.2",
        "mtbf": 1000.0, "mttr": 1.0, "measure": "ids=0:3", "check": True, "window": None,
        "outages": None,
    }  # fmt: skip
    assert json.loads((here / "out" / "summary.json").read_text())["jobs"] == 3


def test_a_dialect(rota, here):
    code, _, _ = rota(*RUN, "--like", "tiresias")
    summary = json.loads((here / "out" / "summary.json").read_text())

    assert code == 0
    assert summary["assumptions"]["dialect"]["name"] == "tiresias"


def test_a_policy_of_ones_own(rota, here):
    (here / "mine.py").write_text(
        "from rota.core.policy import Params, PriorityPolicy\n"
        "class Mine(PriorityPolicy[Params]):\n"
        "    def key(self, job, now_s):\n"
        "        return -job.gpus\n"
    )
    code, _, _ = rota(*RUN[:4], "--policy", "mine.py", "-o", "out")

    assert code == 0
    assert pl.read_csv(here / "out" / "jobs.csv")["end_s"].to_list()[3] == 35


def test_a_policy_of_ones_own_leaves_no_bytecode_beside_the_file(rota, here, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (here / "mine.py").write_text(
        "from rota.core.policy import Params, PriorityPolicy\n"
        "class Mine(PriorityPolicy[Params]):\n"
        "    def key(self, job, now_s):\n"
        "        return -job.gpus\n"
    )
    code, _, _ = rota(*RUN[:4], "--policy", "mine.py", "-o", "out")

    assert code == 0
    assert names(here) == {"jobs.csv", "mine.py", "out"}
    assert sys.dont_write_bytecode is False


def test_a_policy_of_ones_own_that_crashes_is_blamed_with_its_line(rota, here):
    (here / "mine.py").write_text(
        "from rota.core.policy import Params, PriorityPolicy\n"
        "class Mine(PriorityPolicy[Params]):\n"
        "    def key(self, job, now_s):\n"
        "        return 1 / 0\n"
    )
    code, out, err = rota(*RUN[:4], "--policy", "mine.py", "-o", "out")

    assert (code, out) == (1, "")
    assert "error: ZeroDivisionError: division by zero (mine.py, line 4)" in err
    assert "Traceback" not in err
    assert names(here) == {"jobs.csv", "mine.py"}


def test_a_wrong_call_of_a_policy_is_blamed_where_it_was_made(rota, here):
    (here / "mine.py").write_text(
        "from rota.core.policy import DecidePolicy, Params\n"
        "class Mine(DecidePolicy[Params]):\n"
        "    def decide(self, view):\n"
        "        plan = view.plan()\n"
        "        plan.place('a')\n"
        "        return plan\n"
    )
    _, _, err = rota(*RUN[:4], "--policy", "mine.py", "-o", "out")

    assert "error: AttributeError: 'str' object has no attribute " in err
    assert " (mine.py, line 5)" in err


def test_warnings_say_what_was_left_out(rota, here):
    (here / "jobs.csv").write_text(
        "job_id,submit_s,num_gpus,duration_s,cpus\n0,0,9,10,1\n1,0,1,10,1\n2,0,16,1,1\n"
    )
    code, _, err = rota(*RUN)

    assert code == 0
    assert "warning: job 0 was rejected (and 1 more): asks for 9 GPUs" in err
    assert "warning: jobs ask for cpus" in err


# --- bad input -----------------------------------------------------------------------------------

HEAD = "job_id,submit_s,num_gpus,duration_s\n"
BAD_TRACES = {
    "unknown column": ("job_id,submit_s,num_gpus,duration_s,colour\n0,0,1,1,red\n", "colour"),
    "missing column": ("job_id,submit_s,num_gpus\n0,0,1\n", "duration_s"),
    "negative time": (HEAD + "0,0,1,1\n1,-5,1,1\n", "line 3"),
    "duplicate id": (HEAD + "7,0,1,1\n7,1,1,1\n", "'7'"),
    "not a number": (HEAD + "0,0,one,1\n", "one"),
    "empty file": ("", "empty"),
    "only a header": (HEAD, "jobs.csv"),
    "truncated JSON": ('[{"jobid": "application_1", "attempts": [{"start_', "jobs.csv"),
}


@pytest.mark.parametrize("case", BAD_TRACES)
def test_bad_traces(rota, here, case):
    content, named = BAD_TRACES[case]
    (here / "jobs.csv").write_text(content)
    code, out, err = rota(*RUN)

    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert "jobs.csv" in err
    assert named in err
    assert "Traceback" not in err
    assert names(here) == {"jobs.csv"}


BAD_OPTIONS = {
    "unknown policy": (["--policy", "fifi"], "unknown policy 'fifi': did you mean 'fifo'"),
    "unknown parameter": (["--policy", "las:limit=3"], "unknown parameter 'limit'"),
    "bad parameter": (["--policy", "tiresias:promote=x"], "promote=x"),
    "unknown placement": (["--placement", "nope"], "unknown placement 'nope'"),
    "unknown costs": (["--costs", "nope"], "nope"),
    "unknown rates": (["--rates", "nope"], "nope"),
    "unknown dialect": (["--like", "nope"], "unknown dialect 'nope'"),
    "unknown format": (["--format", "nope"], "unknown format 'nope'"),
    "bad cluster": (["--cluster", "many"], "'many'"),
    "bad cluster file": (["--cluster", "nowhere.yaml"], "nowhere.yaml"),
    "bad round": (["--round", "x"], "round 'x'"),
    "bad window": (["--measure", "x"], "measure 'x'"),
    "bad error": (["--estimate-error", "x"], "estimate-error 'x'"),
    "bad speeds": (["--speed-error", "cv=-1"], "speed-error 'cv=-1': give cv of 0 or more"),
    "half of the failures": (["--mtbf", "3"], "belong together"),
    "snapshot without a time": (["--snapshot", "x"], "--snapshot-at"),
    "no snapshot": (["--resume", "nowhere"], "nowhere"),
}


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_bad_options(rota, here, case):
    options, named = BAD_OPTIONS[case]
    code, out, err = rota(*RUN, *options)

    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert named in err
    assert names(here) == {"jobs.csv"}


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["simulate", "-o", "out"], "Missing argument 'TRACE'"),
        (["simulate", "jobs.csv", "--policy", "fifo", "-o", "out"], "'--cluster'"),
        (["simulate", "jobs.csv", "--cluster", "1x8", "-o", "out"], "'--policy'"),
        (["simulate", "jobs.csv", "--cluster", "1x8", "--policy", "fifo"], "--output"),
        ([*RUN, "--limit", "0"], "--limit"),
        ([*RUN, "--seed", "-1"], "--seed"),
        ([*RUN, "--mtbf", "0", "--mttr", "1"], "--mtbf"),
        ([*RUN, "--nonsense"], "--nonsense"),
        (["simulat"], "simulat"),
    ],
)
def test_wrong_usage(rota, here, args, named):
    code, out, err = rota(*args)

    assert (code, out) == (2, "")
    assert named in err
    assert names(here) == {"jobs.csv"}


def test_a_missing_trace(rota, here):
    code, _, err = rota("simulate", "nowhere.csv", *RUN[2:])

    assert code == 2
    assert "nowhere.csv" in err
    assert names(here) == {"jobs.csv"}


def test_an_existing_folder_needs_force(rota, here):
    (here / "out").mkdir()
    (here / "out" / "notes.txt").write_text("mine")
    code, out, err = rota(*RUN)

    assert (code, out) == (1, "")
    assert "out: is not empty" in err
    assert "--force" in err
    assert names(here / "out") == {"notes.txt"}
    assert rota(*RUN, "--force")[0] == 0
    assert names(here / "out") == FILES | {"notes.txt"}


def test_an_unwritable_folder(rota, here):
    code, out, err = rota(*RUN[:-1], "jobs.csv/out")

    assert (code, out) == (1, "")
    assert "jobs.csv/out: cannot be written" in err
    assert names(here) == {"jobs.csv"}


def test_a_file_in_the_way(rota, here):
    code, _, err = rota(*RUN[:-1], "jobs.csv")

    assert code == 1
    assert "jobs.csv: is a file" in err


def test_an_error_in_a_run_with_force_keeps_the_old_results(rota, here):
    rota(*RUN)
    before = (here / "out" / "jobs.csv").read_bytes()
    (here / "jobs.csv").write_text("")

    assert rota(*RUN, "--force")[0] == 2
    assert (here / "out" / "jobs.csv").read_bytes() == before
    assert names(here / "out") == FILES


def test_an_interruption_leaves_nothing(rota, here, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("rota.study.run.fold_summary", interrupt)
    code, out, err = rota(*RUN)

    assert (code, out) == (130, "")
    assert "interrupted" in err
    assert names(here) == {"jobs.csv"}


def test_a_traceback_only_on_request(rota, here, monkeypatch):
    (here / "jobs.csv").write_text("")
    assert "Traceback" not in rota(*RUN)[2]
    assert "Traceback" in rota("--debug", *RUN)[2]
    assert "Traceback" in rota(*RUN, "--debug")[2]
    monkeypatch.setenv("ROTA_DEBUG", "1")
    assert "Traceback" in rota(*RUN)[2]


# --- again and later -----------------------------------------------------------------------------


def test_rerun(rota, here):
    rota(*RUN)

    assert rota("rerun", "out") == (0, "same: event log and jobs.csv\n", "")
    (here / "jobs.csv").write_text((here / "jobs.csv").read_text() + "9,1,1,1,a\n")
    code, out, _ = rota("rerun", "out")
    assert code == 1
    assert out == f"different: trace {here / 'jobs.csv'}: has changed since\n"
    assert rota("rerun", "nowhere")[0] == 2


def test_snapshot_and_resume_give_the_same_log(rota, here):
    rota(*RUN)
    code, _, _ = rota(*RUN[:-1], "first", "--snapshot-at", "40")
    assert code == 0
    assert names(here / "first") == FILES | {"snapshot.rota"}
    assert rota("simulate", "--resume", "first/snapshot.rota", "-o", "second")[0] == 0
    assert rota(*RUN[:-1], "third", "--resume", "first/snapshot.rota")[0] == 0

    whole = pl.read_parquet(here / "out" / "events.parquet")
    for other in ("first", "second", "third"):
        assert pl.read_parquet(here / other / "events.parquet").equals(whole)
        assert rota("rerun", other)[0] == 0


def test_a_snapshot_where_it_was_asked_for(rota, here):
    rota(*RUN, "--snapshot-at", "40", "--snapshot", "here.snap")

    assert (here / "here.snap").is_file()
    assert names(here / "out") == FILES


def test_resuming_another_run_is_refused(rota, here):
    rota(*RUN, "--snapshot-at", "40", "--snapshot", "here.snap")
    code, _, err = rota("simulate", "--resume", "here.snap", "--policy", "srtf", "-o", "second")

    assert code == 2
    assert "policy is 'srtf' and was 'fifo'" in err
    assert not (here / "second").exists()


def test_the_command_is_in_the_manifest(rota, here, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/rota", *RUN])
    rota(*RUN)
    manifest = json.loads((here / "out" / "manifest.json").read_text())

    assert manifest["command"] == ["rota", *RUN]


def test_jobs_that_were_rejected_are_in_the_table(rota, here):
    (here / "large.csv").write_text("job_id,submit_s,num_gpus,duration_s\na,0,2,10\nb,0,99,10\n")
    _, out, err = rota("simulate", "large.csv", "--cluster", "2x2", "--policy", "fifo", "-o", "out")

    assert [line.split() for line in out.splitlines() if "rejected" in line] == [["rejected", "1"]]
    assert "cluster of 2 nodes with 4 GPUs in all" in err


def test_a_command_that_was_nearly_right(rota):
    code, _, err = rota("simulat")

    assert code == 2
    assert "Did you mean 'simulate'?" in err
