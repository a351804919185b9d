"""Runs as animations: what the page plays is what the log says."""

import json
import re
import threading
from http.client import HTTPConnection

import numpy as np
import pytest
from click.testing import CliRunner

from packed_columns import unpacked
from rota.cli.movie import watch
from rota.core.errors import InputError, OptionError
from rota.metrics.history import read_history
from rota.report.data import queue
from rota.report.lanes import gantt
from rota.report.source import read_source
from rota.report.watch import read_runs, watch_data, watch_page
from rota.report.watch_server import WatchServer
from rota.study.config import RunConfig
from rota.study.output import write_run
from rota.study.run import simulate

HOSTILE = "</script><script>alert(1)</script>"


@pytest.fixture
def runs(run_of, tmp_path):
    """Return the folders of two runs of the same jobs, with preemptions and failures."""
    made = []
    for name, policy in (("a", "fifo"), ("b", "las:limits=100/400")):
        folder = tmp_path / name
        folder.mkdir()
        write_run(run_of(policy), folder)
        made.append(folder)
    return made


@pytest.fixture
def data(runs):
    return watch_data(read_runs(runs))


def test_bars_are_those_of_the_log(data, run_of):
    run = data["runs"][1]
    bars = unpacked(run["bars"])
    history = read_history(run_of().log)

    assert run["nodes"] == [{"name": f"n{i}", "gpus": 4} for i in range(4)]
    assert len(bars["job"]) == gantt(history).height
    area = float((bars["length"].astype(float) * bars["lanes"]).sum())
    assert area == pytest.approx(run_of().summary["ledger"]["allocated_gpu_s"], rel=1e-4)
    assert (bars["lane"] + bars["lanes"] <= 4).all()


@pytest.mark.parametrize("number", [0, 1])
def test_who_waits_is_known_at_every_moment(data, run_of, number):
    history = read_history(run_of(("fifo", "las:limits=100/400")[number]).log)
    waits = unpacked(data["runs"][number]["waits"])
    steps = queue(history)
    origin_s = steps["time_s"][0]
    until = waits["from"] + waits["length"]
    for row in steps.iter_rows(named=True):
        at = row["time_s"] - origin_s + 0.05
        if not (np.abs(until - at) < 0.2).any() and not (np.abs(waits["from"] - at) < 0.2).any():
            there = (waits["from"] <= at) & (until > at)
            assert len(set(waits["job"][there].tolist())) == row["waiting"], at


def test_decisions_name_jobs_and_for_whom(data, run_of):
    summary = run_of().summary
    events = unpacked(data["runs"][1]["events"])
    stops = events["what"] == 3

    assert stops.sum() == summary["preemptions"] > 0
    assert (events["other"][stops] >= 0).any()
    assert (events["what"] == 6).sum() == (events["what"] == 7).sum() > 0
    assert set(events["other"][events["what"] >= 6].tolist()) <= set(range(4))
    assert (np.diff(events["time"]) >= 0).all()


def test_both_runs_share_their_jobs_and_their_clock(data):
    assert [run["jobs"] for run in data["runs"]] == [0, 0]
    assert len(data["jobs"]) == 1
    assert [run["policy"] for run in data["runs"]] == ["fifo", "las:limits=100/400"]


def test_two_runs_of_one_policy_are_told_apart(runs):
    names = [run["policy"] for run in watch_data(read_runs([runs[0], runs[0]]))["runs"]]
    assert names == [f"fifo ({runs[0]})"] * 2


def test_gpus_that_are_a_pool_are_one_block(tmp_path, trace):
    folder = tmp_path / "pool"
    folder.mkdir()
    config = RunConfig(trace=str(trace), cluster="4x4", policy="fifo", placement="count")
    write_run(simulate(config), folder)
    (run,) = watch_data(read_runs([folder]))["runs"]
    assert [node["gpus"] for node in run["nodes"]] == [16]


def test_the_page_is_one_small_file(runs, tmp_path):
    done = CliRunner().invoke(watch, [*map(str, runs), "-o", str(tmp_path / "new" / "film.html")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "new" / "film.html").read_text()
    assert page == watch_page(read_runs(runs))
    assert re.findall(r'(?:src|href)="([^"]*)"', page.partition("<script>")[0]) == ["data:,"]
    assert "://" not in page
    assert len(page) < 200_000


@pytest.mark.parametrize("jobs", [1000])
def test_a_thousand_jobs_stay_small(shared, tmp_path, jobs):
    config = RunConfig(
        trace=str(shared(f"reference/common/philly{jobs}.csv")), cluster="16x4", policy="srtf"
    )
    write_run(simulate(config), tmp_path)
    assert len(watch_page(read_runs([tmp_path, tmp_path]))) < 400_000


def test_names_cannot_break_out(runs):
    manifest = json.loads((runs[0] / "manifest.json").read_text())
    manifest["config"]["policy"] = manifest["config"]["trace"] = HOSTILE
    (runs[0] / "manifest.json").write_text(json.dumps(manifest))
    page = watch_page(read_runs(runs[:1]))
    assert page.count("<script") == 2
    assert "alert(1)&lt;/script&gt;" in page


def test_a_comparison_names_its_runs(folder):
    with pytest.raises(InputError, match=r"holds several runs: name one or two of them: .*run0"):
        read_runs([folder])
    assert len(read_source(folder / "run0").looks) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("{a}", "{a}", "{a}"), "3 runs: name one or two"),
        (("{a}", "-o", "film.avi"), "name a file that ends in .html, .svg, .gif, .mp4"),
        (("{a}", "-o", "film.html", "--wait"), "--wait goes with a page that is served"),
        (("{a}/none",), "has neither compare.json nor summary.json"),
    ],
)
def test_mistakes_are_told(runs, words, told):
    done = CliRunner().invoke(watch, [word.format(a=runs[0]) for word in words])
    assert done.exit_code != 0
    assert told in done.output + str(done.exception)


# --- served ------------------------------------------------------------------------------------


@pytest.fixture
def served():
    """Return `served(runs, **options)`: `ask(path, host)` of a server on the loopback."""
    servers = []

    def make(runs, **options):
        server = WatchServer(runs, **options)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        port = server.server_address[1]

        def ask(path="/", host=None):
            connection = HTTPConnection("127.0.0.1", port)
            connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{port}"})
            answer = connection.getresponse()
            found = answer.status, answer.read().decode()
            connection.close()
            return found

        ask.port = port
        return ask

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


def test_it_is_served_to_this_machine_only(served, runs):
    ask = served(runs)
    assert ask() == (200, watch_page(read_runs(runs)))
    assert ask("/other")[0] == 404
    assert ask(host="evil.example")[0] == 404, "another name that leads here"


def test_a_run_that_is_not_done_yet_is_waited_for(served, runs, tmp_path):
    later = tmp_path / "later"
    ask = served([later], wait=True)
    status, page = ask()
    assert status == 200
    assert "not done yet" in page
    assert 'http-equiv="refresh"' in page
    runs[0].rename(later)
    assert 'id="stages"' in ask()[1]


def test_without_wait_the_run_has_to_be_there(tmp_path):
    with pytest.raises(InputError, match="has neither"):
        WatchServer([tmp_path / "none"])


def test_a_port_that_is_taken_is_told(served, runs):
    port = served(runs).port
    with pytest.raises(OptionError, match=f"port {port}: cannot be used"):
        WatchServer(runs, port)
