"""Commands that speak to a daemon, against the real API with a daemon in memory."""

import io
import json
import stat
import sys
import threading
import time
from importlib import import_module

import msgspec
import pytest
import yaml

from rota.cli import client as shared
from rota.cli import top
from rota.cli.logs import last_lines
from rota.core.errors import RotaError
from rota.jobfile.read import read_jobs
from rota.wire import Explanation, WhyPart

# --- submit --------------------------------------------------------------------------------------


def test_files_are_submitted(rota, daemon, job_file, service):
    assert rota("submit", job_file) == (0, "1\n2\n", "")
    assert service.changes == ["submit"]
    code, out, _ = rota("submit", job_file, "--queue", "z", "--hold", "-o", "json")
    rows = json.loads(out)
    assert code == 0
    assert [(row["id"], row["queue"], row["state"]) for row in rows] == [
        ("3", "z", "HELD"),
        ("4", "z", "HELD"),
    ]


def test_the_same_key_submits_nothing_new(rota, daemon, job_file):
    assert rota("submit", job_file, "--key", "k")[1] == "1\n2\n"
    assert rota("submit", job_file, "--key", "k")[1] == "1\n2\n"


def test_a_command_is_quoted(rota, here):
    words = ["python", "a b.py", "--x=$HOME", "; rm -rf /", "--", "it's"]
    code, out, err = rota("submit", "--gpus", "2-8", "--dry-run", "--", *words)

    assert (code, err) == (0, "")
    content = yaml.safe_load(out)
    assert content["run"] == "python 'a b.py' '--x=$HOME' '; rm -rf /' -- 'it'\"'\"'s'"
    assert content["resources"] == {"gpus": {"min": 2, "max": 8}}
    assert content["workdir"] == str(here)


def test_what_a_dry_run_shows_can_be_submitted(rota, daemon, job_file, here, service):
    _, out, _ = rota("submit", job_file, "--dry-run", "--set", "envs.LR=0.1", "--set", "nodes=2")
    (here / "again.yaml").write_text(out)

    jobs = read_jobs(here / "again.yaml")
    assert [(job.name, job.envs, job.nodes) for job in jobs] == [
        ("a", {"LR": "0.1"}, 2),
        ("b", {"LR": "0.1"}, 2),
    ]
    _, out, _ = rota("submit", job_file, "--dry-run", "-o", "json")
    assert [job["name"] for job in json.loads(out)] == ["a", "b"]
    assert service.changes == []


def test_standard_input(rota, daemon, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("run: echo\nworkdir: sub\n"))
    assert rota("submit", "-")[1] == "1\n"


def test_warnings_come_once_on_stderr(rota, daemon, here):
    (here / "run.sh").write_text(
        "#!/bin/sh\n#SBATCH -G 1\n#SBATCH --array=1-3\n#SBATCH -A x\ntrue\n"
    )
    code, out, err = rota("submit", "run.sh")
    assert (code, out) == (0, "@1\n")
    assert err == "warning: run.sh: --account is left out: use --partition for the queue\n"


def test_waiting_for_the_end(rota, daemon, job_file, service):
    def end():
        while len(service._jobs) < 2:
            time.sleep(0.01)
        service.finish("1")
        service.finish("2", "FAILED")

    thread = threading.Thread(target=end)
    thread.start()
    code, out, err = rota("submit", job_file, "--wait")
    thread.join()
    assert (code, out) == (1, "1\n2\n")
    assert err == "job 1: succeeded\njob 2: failed\n"


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        ([], 2, "Give files, or a command after `--`."),
        (["--"], 2, "There is no command after `--`."),
        (["job.yaml", "--", "x"], 2, "Give files, or a command"),
        (["none.yaml"], 2, "there is no such file"),
        (["--image", "", "--", "x"], 2, "--image is '': give one, or leave the option out"),
        (["--time", "", "--", "x"], 2, "--time is '': give one"),
        (["--gpus", "many", "--", "x"], 2, "--gpus is 'many': give a number"),
        (["--gpus", "1.5", "--", "x"], 2, "give a whole number, or less than 1"),
        (["--set", "qeue=a", "--", "x"], 2, "did you mean 'queue'?"),
        (["--name", "a\nb", "--", "x"], 2, "control characters"),
        (["--gpus", "99", "--", "x"], 2, "gpus"),
    ],
)
def test_submissions_that_are_wrong(rota, daemon, job_file, service, args, code, message):
    got, out, err = rota("submit", *args)
    assert (got, out) == (code, "")
    assert message in err
    assert not service._jobs


# --- listings ------------------------------------------------------------------------------------


def test_ls(rota, job, job_file, service):
    rota("submit", job_file)
    service.finish("2")

    code, out, err = rota("ls")
    assert (code, err) == (0, "")
    assert "first" in out
    assert "PENDING" in out
    assert "SUCCEEDED" not in out
    assert "SUCCEEDED" in rota("ls", "--all")[1]
    assert [row["id"] for row in json.loads(rota("ls", "-o", "json")[1])] == ["1", "3"]
    assert [
        r["id"] for r in yaml.safe_load(rota("ls", "--state", "succeeded", "-o", "yaml")[1])
    ] == ["2"]
    assert json.loads(rota("ls", "--queue", "none", "-o", "json")[1]) == []
    assert rota("ls", "--user", "nobody") == (0, "", "no such jobs\n")


def test_a_long_list_is_cut_and_says_so(rota, daemon, service, here):
    (here / "many.yaml").write_text("run: x\n---\nrun: y\nname: odd\n" + "---\nrun: z\n" * 7)
    rota("submit", "many.yaml")

    def ids(*args):
        code, out, err = rota("ls", "-o", "json", *args)
        assert code == 0
        return [int(row["id"]) for row in json.loads(out)], err

    assert ids() == (list(range(1, 10)), "")
    assert ids("--limit", "0") == (list(range(1, 10)), "")
    assert ids("--limit", "9") == (list(range(1, 10)), "")
    found, err = ids("--limit", "4")
    assert found == [1, 2, 3, 4]
    assert "more than these 4 jobs" in err
    assert "--after 4," in err
    assert ids("--after", "4")[0] == [5, 6, 7, 8, 9]
    assert ids("--name", "odd")[0] == [2]
    assert rota("show", "odd", "-o", "json")[0] == 0


def test_a_table_shows_the_first_few_screens(rota, daemon, service, here, monkeypatch):
    asked = []
    plain = service.jobs
    monkeypatch.setattr(service, "jobs", lambda *a, **k: asked.append(k["limit"]) or plain(*a, **k))
    (here / "many.yaml").write_text("---\n".join(["run: x\n"] * 1003))
    rota("submit", "many.yaml")

    code, out, err = rota("ls")

    assert code == 0
    assert asked == [501]
    assert out.count("PENDING") == 500
    assert "more than these 500 jobs" in err
    assert rota("ls", "--limit", "0")[1].count("PENDING") == 1003


def test_watching_ends_with_an_interruption(rota, job, monkeypatch):
    looks = []

    def sleep(seconds):
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(shared.time, "sleep", sleep)
    for command in ("ls", "nodes", "queues"):
        looks.clear()
        code, out, _ = rota(command, "--watch", "--interval", 7)
        assert (code, looks) == (0, [7.0] * 3)
        assert out


def test_show(rota, job, service):
    service.start(job)
    service._jobs[job].metrics = {"loss": 0.5}
    service._jobs[job].message = "bad\x1b[31m"
    code, out, _ = rota("show", "first")

    assert code == 0
    assert "state:       RUNNING (capacity)" in out
    assert "nodes:       n1 (2)" in out
    assert "metrics:     loss=0.5" in out
    assert "\x1b" not in out
    assert json.loads(rota("show", job, "-o", "json")[1])["metrics"] == {"loss": 0.5}


def test_names_of_others_do_not_reach_the_terminal(rota, job, service):
    service._jobs[job].name = "\x1b]0;evil\x07\u202e[red]x[/red]"
    for command in (["ls"], ["show", job], ["top", "--once"]):
        _, out, _ = rota(*command)
        assert not {"\x1b", "\x07", "\u202e"} & set(out)
        assert "[red]x" in out


def test_names_in_a_history_do_not_reach_the_terminal(rota, tmp_path):
    trace = tmp_path / "trace.txt"
    columns = "JobIDRaw|User|State|Submit|Start|End|AllocTRES"
    times = "2026-03-01T00:00:00|2026-03-01T01:00:00|2026-03-01T02:00:00"
    trace.write_text(f"{columns}\n1|\x1b[2Jann|COMPLETED|{times}|cpu=1,gres/gpu=1\n")
    code, out, err = rota("usage", trace, "--by", "user")
    assert (code, "\x1b" in out + err, "[2Jann" in out) == (0, False, True), out + err


def test_jobs_by_name(rota, job, job_file):
    for _ in range(2):
        rota("submit", job_file)
    code, _, err = rota("cancel", "a")
    assert (code, err) == (1, "error: 2 jobs are called 'a': give one of the ids 2, 4\n")
    assert rota("cancel", "2")[0] == 0
    assert rota("hold", "a") == (0, "", "job 4: held\n")
    assert rota("show", "../x")[2] == "error: there is no job '../x': see `rota ls --all`\n"


def test_changes(rota, job, service):
    assert rota("hold", job) == (0, "", "job 1: held\n")
    assert rota("release", job) == (0, "", "job 1: pending\n")
    assert json.loads(rota("cancel", job, "-o", "json")[1])[0]["state"] == "CANCELLED"
    code, out, err = rota("release", job)
    assert (code, out) == (1, "")
    assert "is not held" in err
    code, _, err = rota("cancel", "77", job)
    assert (code, err) == (
        1,
        "error: there is no job '77': see `rota ls --all`\njob 1: cancelled\n",
    )


def test_nodes(rota, daemon):
    assert "n2" in rota("nodes")[1]
    assert rota("drain", "n1") == (0, "", "node n1: draining\n")
    assert json.loads(rota("drain", "n1", "--stop", "-o", "json")[1])["state"] == "drained"
    assert rota("undrain", "n1") == (0, "", "node n1: up\n")
    assert [node["name"] for node in json.loads(rota("nodes", "-o", "json")[1])] == ["n1", "n2"]
    code, _, err = rota("drain", "x")
    assert (code, err) == (1, "error: there is no node 'x'\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([""], "the NODEs that are given are empty: name some, or give --all"),
        (["n[2-1]"], "the range '2-1' of a node list is empty: give its lower end first"),
        ([], "say whose agents: either NODEs or --all"),
        (["--all", "--timeout", "0"], "--timeout is 0: give agents time to come back, e.g. 2m"),
        (["--status", "--stop"], "--status and --stop exclude each other: --stop shows it, too"),
    ],
)
def test_nobody_is_restarted_by_mistake(rota, daemon, words, message):
    assert rota("nodes", "restart", *words) == (2, "", f"error: {message}\n")
    code, _, err = rota("nodes", "restart", "--status")
    assert (code, err) == (1, "error: no rolling restart was begun here\n")


def test_queues_and_reload(rota, daemon, job_file):
    assert rota("queues") == (0, "", "no queues yet: a queue appears with its first job\n")
    rota("submit", job_file)
    assert "default" in rota("queues")[1]
    assert {q["name"] for q in json.loads(rota("queues", "-o", "json")[1])} == {"q", "default"}
    assert rota("reload") == (0, "policy: fifo -> tiresias\n", "")


# --- output --------------------------------------------------------------------------------------


def test_logs(rota, job, service):
    service.write(job, b"one\ntwo\nthree\n")
    service.write(job, b"bad\n", "err", 1)

    assert rota("logs", job) == (0, "one\ntwo\nthree\n", "")
    assert rota("logs", "first", "--tail", 2)[1] == "two\nthree\n"
    assert rota("logs", job, "--tail", 0)[1] == ""
    assert rota("logs", job, "--stderr", "--rank", 1)[1] == "bad\n"


def test_show_ends_with_the_last_words_of_a_failed_job(rota, job, service):
    lines = "".join(f"line {number}\n" for number in range(2_000))
    service.write(job, lines.encode() + b"ValueError: \x1b[31mno\n", "err", 1)
    assert "ValueError" not in rota("show", job)[1]
    service.finish(job, "FAILED")
    shown = rota("show", job)[1].splitlines()
    assert shown[-11] == "the end of its error output (rota logs 1 --stderr --rank 1):"
    assert shown[-10:-1] == [f"  line {number}" for number in range(1_991, 2_000)]
    assert shown[-1] == "  ValueError: \N{REPLACEMENT CHARACTER}[31mno"


def test_logs_are_followed(rota, job, service, monkeypatch):
    service.write(job, b"one\ntwo\n")
    read = service.logs
    seen = []

    def logs(*args, **options):
        data = read(*args, **options)
        seen.append(data)
        if len(seen) > 2 and seen[-1] == b"":  # it has come to the end and waits for more
            monkeypatch.setattr(service, "logs", read)
            service.write(job, b"three\n")
            service.finish(job)
        return data

    monkeypatch.setattr(service, "logs", logs)
    assert rota("logs", "-f", job, "--tail", 1) == (0, "two\nthree\n", "")


@pytest.mark.parametrize(
    ("data", "count", "last"),
    [
        (b"", 2, b""), (b"a", 1, b"a"), (b"a\n", 1, b"a\n"), (b"a\nb", 1, b"b"),
        (b"a\nb\n", 1, b"b\n"), (b"a\nb\n", 5, b"a\nb\n"), (b"\n\n\n", 2, b"\n\n"),
        (b"a\n", 0, b""),
    ],
)  # fmt: skip
def test_last_lines(data, count, last):
    assert last_lines(data, count) == last


# --- why and when --------------------------------------------------------------------------------


def test_explain(rota, job, daemon):
    code, out, _ = rota("explain", job)
    assert code == 0
    assert "job 1: It waits for GPUs." in out
    assert "capacity" in out
    assert "100%" in out
    assert json.loads(rota("explain", daemon, job, "-o", "json")[1])["id"] == "1"


def test_explain_tells_who_comes_first(rota, job, service, monkeypatch):
    found = Explanation(
        id="1", state="PENDING", reason="order", text="Others first.", wait_s=90.0, parts=[],
        ahead=["3", "4"], preempted_by=["5"],
    )  # fmt: skip
    monkeypatch.setattr(service, "explain", lambda *_: found)
    out = rota("explain", job)[1]
    assert out.splitlines() == [
        "job 1: Others first.",
        "waited in all: 1m 30s",
        "served first: 3, 4",
        "preempted by: 5",
    ]


def test_explain_a_folder(rota, here, monkeypatch):
    code, _, err = rota("explain", "nowhere", "1")
    assert (code, "is neither a folder nor a URL" in err) == (2, True)
    found = Explanation(
        id="x", state="done", reason="order", text="It waited.", wait_s=2.0,
        parts=[WhyPart(reason="order", seconds=2.0, text="others first")],
    )  # fmt: skip
    module = type("module", (), {"explain_folder": staticmethod(lambda folder, job: found)})
    monkeypatch.setitem(__import__("sys").modules, "rota.study.explain", module)
    (here / "out").mkdir()
    assert json.loads(rota("explain", "out", "x", "-o", "json")[1]) == msgspec.to_builtins(found)
    monkeypatch.setitem(__import__("sys").modules, "rota.study.explain", None)
    code, _, err = rota("explain", "out", "x")
    assert (code, "cannot be explained by this version" in err) == (2, True)


def test_when(rota, job):
    code, out, _ = rota("when", job)
    assert code == 0
    assert "In a minute." in out
    assert "assumed:   arrivals: none" in out
    assert json.loads(rota("when", "first", "--runs", 3, "-o", "json")[1])["runs"] == 3


@pytest.mark.parametrize("command", ["when", "why"])
def test_a_new_job_may_need_gpu_memory(rota, daemon, service, monkeypatch, command):
    asked = []
    answer = getattr(service, f"{command}_new")
    monkeypatch.setattr(
        service, f"{command}_new",
        lambda job, actor, **more: asked.append(job.resources) or answer(job, actor, **more),
    )  # fmt: skip
    assert rota(command, "--gpu-mem-gib", 24)[0] == 0
    assert [(each.gpus, each.gpu_mem_gib) for each in asked] == [(1, 24.0)]


# --- arrays ---


def test_an_array_goes_by_its_name(rota, daemon, service):
    code, out, _ = rota("submit", "--array", "0-2", "--name", "sweep", "--", "true")
    assert (code, out) == (0, "@1\n")
    assert rota("show", "sweep")[1] == rota("show", "@1")[1]
    assert json.loads(rota("show", "sweep[2]", "-o", "json")[1])["id"] == "3"
    code, _, err = rota("when", "sweep")
    assert (code, err) == (2, "error: sweep is an array: name one of its jobs, such as sweep[0]\n")
    assert "there is no job 'sweep[7]': see `rota show @1`" in rota("show", "sweep[7]")[2]
    rota("submit", "--array", "5", "--name", "sweep", "--", "true")
    assert "4 jobs are called 'sweep': give one of the ids @1, @4" in rota("show", "sweep")[2]
    rota("cancel", "@4")
    assert rota("cancel", "sweep")[2] == "array @1: 3 cancelled\n"


def test_secrets_are_named(rota, daemon, service):
    words = ("--secret", "A", "--secret", "file:B", "--dry-run", "-o", "json")
    code, out, _ = rota("submit", *words, "--", "true")
    assert (code, json.loads(out)[0]["secrets"]) == (0, ["A", "file:B"])


# --- top -----------------------------------------------------------------------------------------


def test_top_once(rota, job, service):
    service.start(job)
    code, out, err = rota("top", "--once")
    assert (code, err) == (0, "")
    assert "fifo on consolidate (fake)" in out
    assert "GPUs 2 of 8 in use  jobs: 1 running" in out
    assert "first" in out


def test_top_lives_through_an_absence_of_the_daemon(job, service, daemon):
    with shared.connect(daemon) as rota:
        rota.patience_s = 0
        picture = top._Picture(rota)
        assert "[" not in picture.draw(40).renderables[0]
        service.broken = RotaError("x")
        service.broken = top.UnavailableError("the store is locked")
        assert "[the store is locked]" in picture.draw(40).renderables[0]


@pytest.mark.parametrize(
    ("used", "total", "hashes"), [(0, 4, 0), (2, 4, 10), (9, 4, 20), (0, 0, 0)]
)
def test_bars(used, total, hashes):
    assert top.bar(used, total) == "#" * hashes + "." * (20 - hashes)


# --- tokens --------------------------------------------------------------------------------------


def test_tokens(rota, daemon, here):
    assert rota("token", "create", "zoe") == (0, "made-for-zoe\n", "")
    code, out, _ = rota("token", "create", "n7", "--role", "agent", "--file", "n7.token")
    assert (code, out) == (0, "")
    assert (here / "n7.token").read_text() == "made-for-n7\n"
    assert stat.S_IMODE((here / "n7.token").stat().st_mode) == 0o600
    assert {"name": "zoe", "role": "user"} in json.loads(rota("token", "ls", "-o", "json")[1])
    assert "zoe" in rota("token", "ls")[1]
    assert rota("token", "revoke", "zoe")[0] == 0
    assert rota("token", "revoke", "zoe")[0] == 1


def test_a_token_is_not_written_over_anything(rota, daemon, here, service):
    (here / "mine").write_text("x")
    assert rota("token", "create", "zoe", "--file", "mine")[0] == 1
    assert service.changes == []
    assert rota("token", "create", "ada", "--file", "new")[0] == 1
    assert not (here / "new").exists()


def test_a_token_file(rota, daemon, here):
    token = here / "viewer"
    token.touch(mode=0o600)
    token.write_text("viewer-token")
    code, _, err = rota("drain", "n1", "--token-file", token)
    assert (code, err) == (1, "error: role viewer may not do this: it takes role operator\n")
    assert rota("nodes", "--token-file", token)[0] == 0


def test_a_shell_wants_a_terminal(rota, daemon, service):
    code, _, err = rota("shell", "--gpus", "1", "--set", "resources.cpus=2")
    assert (code, service.changes) == (2, [])
    assert "This is no terminal: use `rota submit`." in err
    code, _, err = rota("shell", "--gpus", "many")
    assert (code, err) == (2, "error: --gpus is 'many': give a number, or 2-8 for an elastic job\n")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--gpus", "inf"], "inf is not a finite number"),
        (["--gpus", "nan"], "nan is not a finite number"),
        (["--time", "soon"], "--time is 'soon': give seconds or a time such as 90m"),
        (["--gpu-mem-gib", "10", "--slurm", "."], "Slurm does not tell how much memory its GPUs"),
    ],
)
@pytest.mark.parametrize("command", ["why", "when"])
def test_new_jobs_that_cannot_be(rota, daemon, command, options, told):
    code, out, err = rota(command, *options)
    assert (code, out) == (2, "")
    assert told in err


def test_a_timeout_that_never_comes(rota, daemon):
    code, out, err = rota("wait", "1", "--timeout", "nan")
    assert (code, out) == (2, "")
    assert "'--timeout': nan is not a finite number: give one such as 2.5" in err


@pytest.mark.parametrize(
    ("name", "told"), [("my key ☃", "name is 'my key ☃': write letters"), ("KEY", "KEY is empty")]
)
def test_secrets_that_are_none(rota, daemon, service, monkeypatch, name, told):
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    code, _, err = rota("secret", "set", name)
    assert (code, service.changes) == (2, [])
    assert told in err


# --- nobody there --------------------------------------------------------------------------------


def test_no_daemon(rota, here, monkeypatch):
    monkeypatch.setenv("ROTA_STATE", str(here))
    code, out, err = rota("ls", "--server", "http://127.0.0.1:1")
    assert (code, out) == (1, "")
    assert "no daemon answers at http://127.0.0.1:1" in err
    assert "start one with `rota serve`" in err


def test_without_the_http_library(rota, monkeypatch):
    package = import_module("rota")
    monkeypatch.setattr(package, "sdk", import_module("rota.sdk"))  # what is imported goes again
    for name in [name for name in sys.modules if name.startswith("rota.sdk")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "httpx2", None)
    code, _, err = rota("ls")
    assert (code, "pip install -e '.[server]'" in err) == (1, True)


def test_completion(job, daemon, monkeypatch):
    ctx = shared.click.Context(shared.click.Command("rota"))
    param = shared.click.Argument(["job"])
    assert [item.value for item in shared.complete_jobs(ctx, param, "")] == ["1"]
    assert shared.complete_jobs(ctx, param, "9") == []
    assert [item.value for item in shared.complete_nodes(ctx, param, "n")] == ["n1", "n2"]
    monkeypatch.setenv("ROTA_SERVER", "http://127.0.0.1:1")
    assert shared.complete_nodes(ctx, param, "n") == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (-3, "0 s"),
        (0.19, "0.19 s"),
        (59.4, "59.4 s"),
        (61, "1m 01s"),
        (90000, "1d 01h"),
    ],
)
def test_spans(seconds, text):
    assert shared.span(seconds) == text
    assert shared.ticking(seconds) == {0.19: "0 s", 59.4: "59 s"}.get(seconds, text)


@pytest.mark.parametrize(("at", "text"), [(None, "-"), (1e300, "1e+300")])
def test_moments(at, text):
    assert shared.moment(at) == text
