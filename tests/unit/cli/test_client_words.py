"""What commands say: what is going on, what was refused, what there is no room for."""

import json
import re

import msgspec
import pytest
from rich.console import Console

from rota.cli import agent, show, top
from rota.cli import client as shared
from rota.cli.app import run
from rota.cli.wait import wait
from rota.jobfile.model import JobFile
from rota.live.agent.machine import Gpu
from rota.wire import NodeInfo, QueueInfo


@pytest.fixture
def narrow(monkeypatch):
    """Return a function that makes stdout a terminal of some width."""

    def make(columns):
        monkeypatch.setattr(show, "terminal_width", lambda: columns)

    return make


# --- being stopped --------------------------------------------------------------------------------


def test_what_is_being_stopped_is_said(rota, job, service):
    service._jobs[job].stopping_s, service._jobs[job].reason = 30.0, ""
    assert rota("cancel", job) == (0, "", "job 1: cancelled, stopping (grace up to 30 s)\n")
    assert "state:       CANCELLED, stopping (grace up to 30 s)\n" in rota("show", job)[1]
    service._jobs[job].state = "STOPPING"
    assert "state:       STOPPING (grace up to 30 s)\n" in rota("show", job)[1]
    assert "stopping (grace up to 30 s)" in rota("ls")[1]
    service._jobs[job].stopping_s = 0.0
    assert "state:       STOPPING (killed)\n" in rota("show", job)[1]


def test_a_node_says_who_is_being_stopped(rota, daemon, service):
    service._nodes["n1"].stopping, service._nodes["n1"].stopping_s = ["4", "5"], 12.5
    told = "node n1: draining, jobs 4, 5 stopping (grace up to 12.5 s)\n"
    assert rota("drain", "n1") == (0, "", told)
    service._nodes["n1"].why = "drained by ada"
    assert "drained by ada; jobs 4, 5 stopping (grace up to 12.5 s)" in rota("nodes")[1]


def test_nodes_are_removed(rota, daemon):
    code, _, err = rota("nodes", "rm", "n1", "n2")
    assert code == 1
    assert err.count("cannot be removed while it is in use") == 2
    rota("drain", "n1", "--stop")
    assert rota("nodes", "--server", daemon, "rm", "n1") == (0, "", "node n1: removed\n")
    assert [node["name"] for node in json.loads(rota("nodes", "-o", "json")[1])] == ["n2"]


# --- what was submitted ---------------------------------------------------------------------------


def test_a_rejected_job_is_an_error(rota, daemon, service, monkeypatch):
    add = service._add

    def rejects(job, actor):
        made = add(job, actor)
        if job.name == "big":
            made.state, made.message = "REJECTED", "asks for 64 GPUs, the largest node has 4"
        return made

    monkeypatch.setattr(service, "_add", rejects)
    code, out, err = rota("submit", "--name", "big", "--", "true")
    assert (code, out) == (1, "1\n")
    assert err == "error: job 1 is rejected: asks for 64 GPUs, the largest node has 4\n"
    assert rota("submit", "--name", "small", "--", "true") == (0, "2\n", "")


def test_show_tells_what_it_executes(rota, job, service):
    assert "command" not in rota("show", job)[1]
    assert "file" not in json.loads(rota("show", job, "-o", "json")[1])
    service._jobs[job].file = JobFile(
        run="cd x\npython train.py \x1b[1m", workdir="/data", envs={"LR": "0.1", "SEED": "4"}
    )
    out = rota("show", job)[1]
    assert "command:     cd x\n             python train.py \N{REPLACEMENT CHARACTER}[1m\n" in out
    assert "workdir:     /data\n" in out
    assert "variables:   LR=0.1\n             SEED=4\n" in out
    assert "setup" not in out
    assert json.loads(rota("show", job, "-o", "json")[1])["file"]["envs"] == {
        "LR": "0.1",
        "SEED": "4",
    }


# --- nothing to show ------------------------------------------------------------------------------


def test_nothing_to_list(rota, daemon, service):
    assert rota("ls") == (0, "", "no jobs\n")
    rota("submit", "--", "true")
    service.finish("1")
    assert rota("ls") == (0, "", "no active jobs (1 is over: rota ls --all)\n")
    rota("submit", "--", "true")
    service.finish("2", "FAILED")
    assert rota("ls") == (0, "", "no active jobs (2 are over: rota ls --all)\n")
    assert rota("ls", "--state", "running") == (0, "", "no such jobs\n")
    assert json.loads(rota("ls", "-o", "json")[1]) == []


def test_the_other_output_is_hinted_at(rota, job, service):
    assert rota("logs", job) == (0, "", "")
    service.write(job, b"Traceback\n", "err")
    hint = "nothing on stdout, but on stderr: see `rota logs 1 --stderr`\n"
    assert rota("logs", job, "--stdout") == (0, "", hint)
    assert rota("logs", job, "--stdout", "--tail", 3) == (0, "", hint)
    assert rota("logs", job) == (0, "Traceback\n", "")
    service.write(job, b"hello\n", "out", 1)
    hint = "nothing on stderr, but on stdout: see `rota logs 1 --stdout --rank 1`\n"
    assert rota("logs", job, "--stderr", "--rank", 1) == (0, "", hint)
    service.write(job, b"one\n")
    assert rota("logs", job) == (0, "Traceback\none\n", "")
    assert rota("logs", job, "--stdout") == (0, "one\n", "")


# --- no room --------------------------------------------------------------------------------------


def test_columns_are_left_out_of_narrow_listings(rota, job, service, narrow):
    service._jobs[job].name = "a-name-of-thirty-characters-xx"
    service.start(job)
    for columns in (60, 80, 200):
        narrow(columns)
        lines = rota("ls")[1].splitlines()
        assert max(map(len, lines)) <= columns
        assert sum("a-name" in line for line in lines) == 1
        assert len([line for line in lines if line.strip()]) == 3
        assert ("starts" in lines[1]) == (columns == 200)
        assert "state" in lines[1]


def test_nodes_and_queues_are_one_line_each(rota, job, service, narrow):
    service._nodes["n1"].why = "not heard of for 25 s, and other things that take some room to say"
    narrow(40)
    for command in ("nodes", "queues"):
        lines = [line for line in rota(command)[1].splitlines() if line.strip()]
        assert max(map(len, lines)) <= 40
        assert len(lines) == (4 if command == "nodes" else 3)


def test_top_counts_what_there_is_no_room_for(daemon, service):
    service.extra_queues = [QueueInfo(name=f"q{i}") for i in range(30)]
    service._nodes = {
        f"n{i}": NodeInfo(name=f"n{i}", state="up", gpus=4.0, free_gpus=4.0) for i in range(30)
    }
    with shared.connect(daemon) as client:
        client.submit_many([{"run": "x"}] * 50)
        for height, width in ((24, 50), (40, 120), (60, 80)):
            console = Console(width=width, height=height, file=None, markup=False)
            picture = console.render_lines(top._Picture(client).draw(height, width))
            text = ["".join(segment.text for segment in line) for line in picture]
            assert len(text) <= height
            assert sum("more" in line for line in text) == 3
            left = [int(found) for line in text for found in re.findall(r"(\d+) more", line)]
            rows = [line for line in text if line.split()[1:] != ["pending"]]  # a folded head
            shown = [sum(line.split()[:1] == [f"{kind}{i}"] for line in rows for i in range(51))
                     for kind in ("n", "q", "")]  # fmt: skip
            assert [a + b for a, b in zip(left, shown, strict=True)] == [30, 30, 50]


# --- waiting --------------------------------------------------------------------------------------


@pytest.fixture
def waits(capsys):
    """Return `waits(*args)`: (exit code, stderr) of `rota wait`."""

    def call(*args):
        code = wait.main(args=[str(arg) for arg in args], standalone_mode=False)
        return code, capsys.readouterr().err

    return call


def test_wait(waits, rota, job, service):
    rota("submit", "--name", "second", "--", "true")
    assert waits(job, "--timeout", 0.1) == (1, "error: not over after 0.1 s: 1 job goes on\n")
    service.finish(job)
    assert waits(job) == (0, "job 1: succeeded\n")
    service.finish("2", "FAILED")
    service._jobs["2"].message = "exit code 3"
    assert waits(job, "second") == (1, "job 1: succeeded\njob 2: failed: exit code 3\n")


def test_wait_sees_the_end(waits, job, service, monkeypatch):
    looks = []
    look = service.job

    def seen(*args):
        looks.append(args)
        if len(looks) == 3:
            service.finish(job)
        return look(*args)

    monkeypatch.setattr(service, "job", seen)
    assert waits(job, "--timeout", 60) == (0, "job 1: succeeded\n")
    assert len(looks) == 3


def test_wait_for_a_state(waits, job, service, monkeypatch):
    looks = []
    look = service.job

    def seen(*args):
        looks.append(args)
        if len(looks) == 3:
            service._jobs[job].state = "RUNNING"
        return look(*args)

    monkeypatch.setattr(service, "job", seen)
    assert waits(job, "--until", "running") == (0, "job 1: running\n")
    assert len(looks) == 3
    assert waits(job, "--until", "HELD", "--timeout", 0.1)[0] == 1
    service.finish(job)
    service._jobs[job].starts = 1  # it has run, though nobody looked then
    assert waits(job, "--until", "running") == (0, "job 1: succeeded\n")
    assert waits(job, "--until", "cancelled") == (1, "job 1: succeeded\n")
    assert waits(job, "--until", "over") == (0, "job 1: succeeded\n")


def test_waiting_can_be_interrupted(waits, job, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("rota.cli.wait.time.sleep", interrupted)
    code, err = waits(job)
    assert (code, err.strip()) == (130, "not waiting any more: 1 job goes on")


# --- agents ---------------------------------------------------------------------------------------


def test_an_agent_without_gpus_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("rota.live.agent.machine.find_gpus", list)
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("x")
    args = ["agent", "--server", "http://127.0.0.1:1", "--token-file", str(token)]
    assert run(args) == 2
    assert "nvidia-smi finds no GPUs on this machine: give --gpus N" in capsys.readouterr().err
    assert agent._gpus("0") == ([], "", 0.0)
    assert msgspec.to_builtins(agent._gpus("2")[0]) == ["0", "1"]


@pytest.mark.parametrize(
    ("options", "found"),
    [([], (0.0, "")), (["--sharing", "mps"], (39.0, "mps")), (["--gpu-mem-gib", "8"], (8.0, ""))],
)
def test_an_agent_tells_how_its_gpus_are_shared(monkeypatch, options, found):
    gpus = [
        Gpu(str(n), f"GPU-{n}", "NVIDIA A100", memory) for n, memory in ((0, 40960), (1, 39936))
    ]
    monkeypatch.setattr("rota.live.agent.machine.find_gpus", lambda: gpus)
    context = agent.agent.make_context("agent", ["--server", "http://127.0.0.1:1", *options])
    spec = agent._node(context.params).spec
    assert (spec.gpu_mem_gib, spec.sharing) == found
