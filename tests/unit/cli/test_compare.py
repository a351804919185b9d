"""`rota compare` as users see it."""

import json
import re

import pytest

from rota.cli.compare import _workers
from rota.study.config import RunConfig

PAIR = ("--cluster", "1x8", "--policy", "fifo", "--policy", "srtf")
DRAWN = "generate:gavel-like:jobs=40,load=0.9"


def test_what_is_proven_and_what_is_assumed(rota, here):
    code, out, err = rota("compare", DRAWN, *PAIR, "--repeat", 4, "-o", "report")
    told = " ".join(err.split())

    assert code == 0
    assert "ratio" in out
    assert "[" in out
    assert "95 % intervals over 4 seeds, paired" in told
    assert "each interval is at 95 % on its own" in told
    assert "knowledge: nothing: fifo; remaining work: srtf" in told
    assert "preemptive: no: fifo; yes: srtf" in told
    assert "placement: consolidate; admission: accept-all; costs: zero;" in told
    data = json.loads((here / "report" / "compare.json").read_text())
    assert data["seeds"] == [0, 1, 2, 3]
    assert len(data["runs"]) == 8
    assert data["level"] == 0.95


def test_everything_fits_a_narrow_terminal(rota, here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    _, out, err = rota("compare", DRAWN, *PAIR, "--repeat", 4, "--full", "-o", "report")

    lines = [line.rstrip() for line in re.sub(r"\x1b\[\d+m", "", out + err).splitlines()]
    assert max(map(len, lines)) <= 80
    assert "too narrow" in err


def test_all_measures(rota, here):
    _, out, _ = rota("compare", DRAWN, *PAIR, "--repeat", 2, "--full", "-o", "report")

    for label in ("p99 slowdown", "GPU allocation", "mean rho", "jobs completed"):
        assert label in out
    assert "jobs unfinished" not in out  # there are none


def test_windows(rota, here):
    code, _, err = rota("compare", "jobs.csv", *PAIR, "--windows", 2, "-o", "report")
    told = " ".join(err.split())

    assert code == 0
    assert "over 2 windows" in told
    assert "begins with an empty cluster" in told
    assert (here / "report" / "srtf-window2" / "jobs.csv").is_file()
    assert rota("rerun", "report/srtf-window2")[0] == 0


def test_seeds_without_anything_random(rota, here):
    _, _, err = rota("compare", "jobs.csv", *PAIR, "--repeat", 2, "-o", "report")

    assert "warning: the seed made no difference" in err
    assert "--windows N" in " ".join(err.split())


def test_jobs_that_never_finish_are_told(rota, here):
    (here / "never.py").write_text(
        "from rota.core.policy import DecidePolicy\n\n\n"
        "class Never(DecidePolicy):\n"
        "    name = 'never'\n\n"
        "    def decide(self, view):\n"
        "        return view.plan()\n"
    )
    code, _, err = rota("compare", "jobs.csv", "--cluster", "1x8", "--policy", "fifo", "--policy",
                        "never.py", "-o", "report")  # fmt: skip
    told = " ".join(err.split())

    assert code == 0
    assert "never.py: 5 jobs unfinished when the run ended" in told
    assert "completed different jobs" in told


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["jobs.csv", "--windows", 9], "ask for fewer windows"),
        (["jobs.csv", "--windows", 2, "--measure", "ids=0:2"], "not in every window"),
        (["generate:nope:jobs=40"], "'nope'"),
        (["none.csv"], "none.csv"),
    ],
)
def test_mistakes_leave_nothing(rota, here, args, named):
    code, out, err = rota("compare", *args, *PAIR, "-o", "report")

    assert (code, out) == (2, "")
    assert named in err
    assert not (here / "report").exists()


def test_other_processes_only_where_they_pay(here, monkeypatch):
    monkeypatch.setattr("rota.study.pool.cores", lambda: 4)

    def workers(trace, runs):
        return _workers(RunConfig(trace=trace, cluster="1x8", policy="fifo"), runs)

    assert workers("jobs.csv", 3) == 1
    assert workers("generate:poisson:jobs=10000", 3) == 3
    assert workers("generate:poisson:jobs=10000", 30) == 4
    assert workers("none.csv", 3) == 1


def test_one_run_has_no_stars_to_explain(rota, here):
    _, _, once = rota("compare", "jobs.csv", *PAIR, "-o", "once")
    _, _, more = rota("compare", DRAWN, *PAIR, "--repeat", 3, "-o", "more")

    assert "no winner is marked" in " ".join(once.split())
    assert "*: it excludes 1" not in " ".join(once.split())
    assert "*: it excludes 1" in " ".join(more.split())


def test_workloads_drawn_from_the_model_of_a_trace(rota, here):
    (here / "many.csv").write_text(
        "job_id,submit_s,num_gpus,duration_s\n"
        + "".join(f"{i},{i * 40},{1 + i % 2},{90 + i}\n" for i in range(12))
    )
    assert rota("trace", "fit", "many.csv", "-o", "model.json")[0] == 0
    trace = "generate:fit:model.json,jobs=30,load=0.8"
    options = ("--cluster", "1x8", "--repeat", "2", "--figures", "none", "-o", "report")
    code, out, _ = rota("compare", trace, "--policy", "fifo", "--policy", "srtf", *options)
    found = json.loads((here / "report" / "compare.json").read_text())
    inputs = [
        json.loads(path.read_text())["inputs"]
        for path in sorted((here / "report").glob("*/manifest.json"))
    ]

    assert code == 0
    assert "srtf" in out
    assert len(found["runs"]) == 4
    assert [[file["given"] for file in one] for one in inputs] == [["model.json"]] * 4


def test_where_nobody_waits_there_is_no_ratio(rota, here):
    _, out, err = rota("compare", "jobs.csv", *PAIR, "--cluster", "9x8", "-o", "idle")

    assert [
        line.split()[-2:] for line in out.splitlines() if line.startswith((" fifo", " srtf"))
    ] == [["nobody", "waited"]] * 2
    assert "warning: nobody waited under any policy" in " ".join(err.split())


def test_a_sweep_that_is_shown_says_where_nobody_waits(rota, here):
    (here / "sweep.yaml").write_text(
        "workloads: [jobs.csv]\nclusters: [1x8, 9x8]\npolicies: [fifo, srtf]\n"
    )
    rota("sweep", "sweep.yaml", "-o", "out", "--jobs", 0)
    code, out, err = rota("sweep", "out", "--show")

    assert code == 0
    idle = [line.split()[:2] for line in out.splitlines() if "nobody waited" in line]
    assert idle == [["9x8", "fifo"], ["9x8", "srtf"]]
    assert "nothing to compare at workload=jobs.csv, cluster=9x8" in err
