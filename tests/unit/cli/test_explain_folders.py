"""`rota explain DIR JOB`."""

import csv
import io
import json

import pytest

from rota.cli import explain as command
from rota.cli import show


@pytest.fixture
def out(rota):
    """Return the folder of a run in which everything waits."""
    code, _, err = rota("simulate", "jobs.csv", "--cluster", "2x4", "--policy", "srtf", "-o", "out")
    assert (code, err) == (0, "")
    return "out"


def test_a_short_story(rota, out):
    code, text, err = rota("explain", out, "0")
    assert (code, err) == (0, "")
    assert text.startswith("job 0: done; waited ")
    assert "preempted by: " in text
    assert "made room for " in text


def test_as_data(rota, out):
    told = json.loads(rota("explain", out, "3", "-o", "json")[1])
    assert told["id"] == "3"
    assert sum(part["seconds"] for part in told["parts"]) == told["wait_s"] > 0
    intervals = list(csv.DictReader(io.StringIO(rota("explain", out, "3", "-o", "csv")[1])))
    assert [row["reason"] for row in intervals] == [i["reason"] for i in told["intervals"]]
    assert "wait_s:" in rota("explain", out, "3", "-o", "yaml")[1]


def test_all_jobs(rota, out):
    rows = list(csv.DictReader(io.StringIO(rota("explain", out, "--all", "-o", "csv")[1])))
    assert [row["job_id"] for row in rows] == ["0", "1", "2", "3", "4"]
    for row in rows:
        assert float(row["wait_s"]) == sum(float(s) for s in list(row.values())[3:])
    text = rota("explain", out, "--all")[1]
    assert "capacity" in text
    assert "quota" not in text  # nobody waited for it
    assert json.loads(rota("explain", out, "--all", "-o", "json")[1])[3]["job_id"] == "3"


def test_mistakes(rota, out):
    assert "Missing argument 'JOB'" in rota("explain", out)[2]
    assert "--all takes a folder and no job" in rota("explain", out, "3", "--all")[2]
    assert "--all takes a folder and no job" in rota("explain", "--all")[2]
    code, _, err = rota("explain", out, "33")
    assert (code, "did you mean 3?" in err) == (2, True)


def test_a_long_story_is_cut(rota, out, monkeypatch):
    monkeypatch.setattr(command, "_MOST_STEPS", 1)
    assert "more: see them with -o json" in rota("explain", out, "0")[1]


def test_starts_stops_and_waits_in_their_order(rota, out):
    text = rota("explain", out, "0")[1]
    course = text[text.index("at second") :].splitlines()[2:]
    words = [line.split() for line in course if line.strip()]
    seconds = [float(line[0]) for line in words]
    assert seconds == sorted(seconds)
    assert words[0][:4] == ["0", "0d", "00:00", "started"]
    assert "GPU" in course[0]
    assert "ran" in course[0]
    assert "preempted" in [line[3] for line in words]
    assert command._clock(375_577.1) == "4d 08:19"
    assert "started again" in text
    assert "ran in all: 1m 40s" in text


def test_a_narrow_terminal(rota, out, monkeypatch):
    monkeypatch.setattr(show, "terminal_width", lambda: 40)
    first, second = rota("explain", out, "0")[1].splitlines()[:2]
    assert first.startswith("job 0: done; waited ")
    assert second.startswith("  ")
    assert max(len(first), len(second)) <= 40


def test_nothing_to_list(capsys):
    command._emit_csv([])
    assert capsys.readouterr().out == ""


# --- when, of a snapshot --------------------------------------------------------------------------


@pytest.fixture
def snapshot(rota):
    """Return a snapshot in which 3 and 4 wait."""
    code, _, err = rota("simulate", "jobs.csv", "--cluster", "1x8", "--policy", "fifo",
                        "--snapshot-at", 50, "--snapshot", "at50.rota", "-o", "out")  # fmt: skip
    assert (code, err) == (0, "")
    return "at50.rota"


def test_when_of_a_snapshot(rota, snapshot):
    code, out, err = rota("when", snapshot, "4", "--exact")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "job 4 (waiting) is expected to start in 1m 00s",
        "now:       second 50",
        "starts:    second 110 (in 1m 00s)",
        "earliest:  second 110 (in 1m 00s)",
        "latest:    second 110 (in 1m 00s)",
        "why:       waited 20 s: 20 s behind jobs that were served first (2)",
        "assumed:   durations: exact, of the trace, new_jobs: none, failures: those of the run",
    ]
    told = json.loads(rota("when", snapshot, "4", "--runs", 3, "-o", "json")[1])
    assert (told["runs"], told["share"], told["assumptions"]["finished_jobs"]) == (3, 0.5, 1)
    assert told["backtest"] == {"jobs": 0, "share_inside": None, "nominal": 0.8}
    last = rota("when", snapshot, "4", "--runs", 3)[1].splitlines()[-1]
    assert last.startswith("back-test: not possible yet: 0 finished jobs")
    assert rota("when", snapshot, "0")[1] == ("job 0 (running) has started already, at second 0\n")


@pytest.mark.parametrize("policy", ["srtf", "fifo-skip", "sjf"])
def test_who_comes_later_may_be_served_first(rota, policy):
    rota("simulate", "jobs.csv", "--cluster", "1x8", "--policy", policy,
         "--snapshot-at", 35, "--snapshot", "at35.rota", "-o", "out")  # fmt: skip
    doubt = f"jobs that are submitted later may be served before it under {policy}"
    job = next(i for i in "01234" if "is expected to" in rota("when", "at35.rota", i)[1])
    assert doubt in rota("when", "at35.rota", job, "--exact")[1]
    assert doubt not in rota("when", "at35.rota", job, "--exact", "--with-arrivals")[1]


def test_mistakes_with_snapshots(rota, snapshot, here):
    assert "Missing argument 'JOB'" in rota("when", snapshot)[2]
    assert "Missing argument 'JOB'" in rota("when")[2]
    code, _, err = rota("when", "nowhere", "4")
    assert (code, "is neither a file nor a URL" in err) == (2, True)
    assert "not a snapshot of Rota" in rota("when", "jobs.csv", "4")[2]
    assert "need a snapshot" in rota("when", "4", "--exact")[2]
    assert "there is no job '7'" in rota("when", snapshot, "7")[2]
