"""Runs as animations: what the page plays is what the log says."""

import json
import re
import threading
from http.client import HTTPConnection

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from packed_columns import unpacked
from rota.cli.app import run as rota
from rota.cli.movie import watch
from rota.core.errors import InputError, OptionError
from rota.engine.log import Log
from rota.metrics.history import read_history
from rota.report.data import queue
from rota.report.frame import embedded
from rota.report.lanes import gantt
from rota.report.source import read_source
from rota.report.watch import read_runs, watch_data, watch_page
from rota.report.watch_server import WatchServer
from rota.study.build import build
from rota.study.config import RunConfig
from rota.study.follow import LiveLog, find_live
from rota.study.output import write_run
from rota.study.run import simulate

LAS = "las:limits=100/400"
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
        (("{a}", "-o", "film.html", "--port", "80"), "--port goes with a page that is served"),
        (("{a}", "-o", "film.html", "--fps", "12"), "--fps goes with a film"),
        (("{a}", "--seconds", "5"), "--seconds goes with a film"),
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


# --- while it is simulated ---------------------------------------------------------------------


class Writer:
    """A simulation that goes on when it is told to, by a clock that is told, too."""

    def __init__(self, target, trace):
        config = RunConfig(trace=str(trace), cluster="4x4", policy=LAS, mtbf=2.0, mttr=0.1)
        self.now_s = 0.0
        self.engine = build(config).engine
        self.live = LiveLog(target, config, lambda: self.now_s)

    def go(self, batches):
        """Let it run, and offer what it has; returns its log."""
        self.engine.run(batches=batches)
        self.now_s += 1.0
        self.live.look(self.engine.log)
        return self.engine.log.frame()


@pytest.fixture
def writer(tmp_path, trace):
    made = Writer(tmp_path / "deep" / "la[t]er", trace)
    with made.live:
        yield made


def test_a_simulation_writes_what_it_has_only_if_somebody_asks(writer, tmp_path):
    target = tmp_path / "deep" / "la[t]er"
    writer.go(20)
    found = find_live(target)
    assert found.read() is None
    found.ask()
    writer.now_s -= 0.5  # it looks once in a second
    for batches in (5, 1, 0, 40):
        log = writer.go(batches)
        assert found.read().equals(log)
    assert found.rows == log.height
    assert len(list(found.place.glob("*.parquet"))) == 3, "nothing new is no piece"
    writer.now_s -= 1.0
    writer.go(5)
    assert found.read().equals(log), "too early"
    assert found.lives
    writer.live.__exit__(None, None, None)
    assert (found.lives, find_live(target), list(tmp_path.glob("deep"))) == (False, None, [])


def test_what_a_killed_simulation_left_is_not_followed_and_goes(tmp_path, trace):
    left = tmp_path / ".out.17.live"
    left.mkdir()
    (left / "about.json").write_text('{"policy": "a", "trace": "b", "cluster": "c"}')
    assert find_live(tmp_path / "out") is None
    with LiveLog(tmp_path / "out", RunConfig(trace=str(trace), cluster="4x4", policy="fifo")):
        assert not left.exists()
        assert find_live(tmp_path / "out").about.policy == "fifo"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_ends_no_run(tmp_path, trace):
    (tmp_path / "file").touch()
    with LiveLog(
        tmp_path / "file" / "out", RunConfig(trace=str(trace), cluster="4x4", policy="fifo")
    ) as live:
        live.look(Log())
    assert (tmp_path / "file").read_bytes() == b""


def test_a_run_is_followed_while_it_is_simulated(served, writer, tmp_path, run_of):
    target = tmp_path / "deep" / "la[t]er"
    ask = served([target])
    assert "not done yet" in ask()[1]
    seen = ""
    for batches in (1, 1, 3, 10, 30, 100):  # from the first job on, every beginning can be shown
        log = writer.go(batches)
        status, text = ask(f"/news?has={seen}")
        told = json.loads(text)
        (run,) = told["runs"]
        assert (status, told["follow"], run["policy"]) == (200, str(log.height), LAS)
        assert run["until_s"] == pytest.approx(log["time_s"][-1] - log["time_s"][0], abs=0.01)
        starts = log.filter(pl.col("event") == "start").height
        assert (unpacked(run["events"])["what"] < 2).sum() == starts
        assert len(told["jobs"][0]["ids"]) == (log["event"] == "submit").sum()
        assert "so far: it is still being simulated" in told["about"]
        seen = told["follow"]
        assert ask(f"/news?has={seen}") == (204, "")
    page = ask()[1]
    assert "connect-src 'self'" in page
    assert f'"follow":"{seen}"' in page

    with pytest.raises(InputError, match="is still being simulated: watch it without -o"):
        read_runs([target])
    target.mkdir()
    write_run(run_of(), target)
    writer.live.__exit__(None, None, None)
    status, text = ask(f"/news?has={seen}")
    assert (status, text) == (200, embedded(watch_data(read_runs([target]))))
    assert json.loads(text)["follow"] is None
    assert "connect-src" not in ask()[1]


def test_a_simulation_that_fails_is_told(served, writer, tmp_path):
    target = tmp_path / "deep" / "la[t]er"
    ask = served([target])
    writer.go(20)
    assert ask("/news")[0] == 200
    writer.live.__exit__(None, None, None)
    for path in ("/news", "/news", "/"):  # and not only once
        assert ask(path) == (500, f"{target}: the simulation ended without a result\n")


def test_the_command_can_be_followed(tmp_path, trace):
    seen = []

    class Seen(LiveLog):
        def look(self, log):
            seen.append((find_live(tmp_path / "out").about.policy, (tmp_path / "out").exists()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rota.study.follow.LiveLog", Seen)
        words = ["simulate", str(trace), "--cluster", "4x4", "--policy", "fifo"]
        assert rota([*words, "-o", str(tmp_path / "out")]) == 0
    assert set(seen) == {("fifo", False)}
    assert find_live(tmp_path / "out") is None
    assert read_runs([tmp_path / "out"])


def test_without_wait_the_run_has_to_be_there(tmp_path):
    with pytest.raises(InputError, match="has neither"):
        WatchServer([tmp_path / "none"])


def test_a_port_that_is_taken_is_told(served, runs):
    port = served(runs).port
    with pytest.raises(OptionError, match=f"port {port}: cannot be used"):
        WatchServer(runs, port)
