"""What job owners do every day, with the real command line, a real daemon and its agents."""

import json
import os
import re
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from agents_net import alive, eventually, pid_outside
from fake_engines import fake_engine
from rota.wire import ENDED

FOREVER = "trap '' TERM; while :; do sleep 0.1; done"


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("owners") / "rota.yaml"
    path.write_text(
        "check: true\n"
        "queues:\n"
        "  short: {max_time: 1h, default_time: 10m}\n"
        "  quick: {parent: short, max_time: 2h}\n"
    )
    return path


@pytest.fixture(scope="module")
def common_daemon(tmp_path_factory, config):
    from daemon_process import serving

    engine, _ = fake_engine("podman", tmp_path_factory.mktemp("engine"))
    path = f"{Path(engine.program).parent}:{os.environ['PATH']}"
    with serving(
        tmp_path_factory.mktemp("owner-daemon"), "--nodes", "2x4", "--config", config,
        env={"PATH": path},
    ) as daemon:  # fmt: skip
        yield daemon


def submitted(daemon, *args):
    return daemon.rota("submit", *args).stdout.split()


def shown(daemon, job):
    return json.loads(daemon.rota("show", job, "-o", "json").stdout)


def rows(daemon, kind):
    return [event for event in daemon.client.events() if event.event == kind]


# --- time limits ----------------------------------------------------------------------------------


def test_a_time_limit_warns_asks_and_kills(daemon, tmp_path):
    pids = tmp_path / "pids"
    stubborn = (
        f"trap 'echo asked' TERM; trap 'echo warned' USR1; echo $$ >{pids}; "
        "while :; do sleep 0.1; done"
    )
    (job,) = submitted(
        daemon, "--time", "2s", "--set", "checkpoint.grace_s=1", "--set",
        "checkpoint.warn_signal=USR1", "--", "bash", "-c", stubborn,
    )  # fmt: skip
    eventually(pids.exists)
    done = daemon.rota("wait", job, check=False)
    assert (done.returncode, done.stderr) == (
        1, f"job {job}: timeout: its time limit of 2 s is reached\n",
    )  # fmt: skip
    info = shown(daemon, job)
    assert (info["state"], info["time_limit_s"], info["estimate_s"]) == ("TIMEOUT", 2.0, 2.0)
    words = daemon.output(job, stream="all").split("\n")
    assert [word for word in words if word in ("warned", "asked")] == ["warned", "asked"]
    assert "rota: the time limit ends this job in 1 s" in words
    assert not alive(pid_outside_or(daemon, job, pids))
    assert [event.text for event in rows(daemon, "timeout") if event.job == job] == [
        "its time limit of 2 s is reached"
    ]


def pid_outside_or(daemon, job, path):
    """The pid that is seen here, or one that nobody has any more."""
    try:
        return pid_outside(daemon.state / "agent", job, int(path.read_text()))
    except AssertionError:
        return 1 << 30


def test_the_time_of_a_queue_holds(daemon):
    assert shown(daemon, submitted(daemon, "--hold", "--queue", "short", "--", "true")[0])[
        "time_limit_s"
    ] == 600.0  # fmt: skip
    done = daemon.rota("submit", "--queue", "quick", "--time", "90m", "--", "true", check=False)
    assert done.returncode != 0
    assert "time_limit 90m: queue 'quick' gives at most 1h (max_time)" in done.stderr


def test_kills_in_the_middle_of_a_timeout_change_nothing(daemons, tmp_path):
    """Neither daemon nor agent is needed to end a job in time; nothing is left, nothing is lost."""
    daemon = daemons()
    agent = daemon.agent("m1")
    marks = tmp_path / "marks"
    script = f"echo $$ >>{marks}; exec bash -c '{FOREVER}'".replace("trap '' TERM", 'trap "" TERM')
    job = daemon.submit(script, time_limit="3s", checkpoint={"grace_s": 1})
    daemon.until(job, "RUNNING")
    eventually(marks.exists)
    daemon.kill()
    agent.kill()
    eventually(lambda: not daemon.processes(), every_s=0.1)  # the shim has kept the limit
    daemon.start()
    daemon.agent("m1")
    info = daemon.until(job, *ENDED)
    assert (info.state, info.starts) == ("TIMEOUT", 1)
    assert info.run_s < 3 + 1 + 1  # limit, grace, and what it takes to look
    assert len(marks.read_text().split()) == 1
    daemon.assert_no_orphans()


# --- retries --------------------------------------------------------------------------------------


def test_a_job_that_fails_is_tried_again_after_a_while(daemon, tmp_path):
    marks = tmp_path / "tries"
    script = f"echo x >>{marks}; test $(wc -l <{marks}) -ge 3"
    (job,) = submitted(
        daemon, "--retries", "5", "--set", "backoff=0.05", "--", "bash",
        "-c", script,
    )  # fmt: skip
    assert daemon.rota("wait", job).returncode == 0
    info = shown(daemon, job)
    assert (info["starts"], info["failures"], info["retries"]) == (3, 2, 5)
    texts = [event.text for event in rows(daemon, "held") if event.job == job]
    assert texts == [
        "try 1 of 6 failed (exit code 1): the next one 0.05 s later",
        "try 2 of 6 failed (exit code 1): the next one 0.1 s later",
    ]


def test_who_waits_for_another_try_is_told_why_and_may_have_it_now(daemon, tmp_path):
    flag = tmp_path / "flag"
    (job,) = submitted(
        daemon, "--retries", "1", "--set", "backoff=1h", "--", "bash", "-c", f"test -e {flag}"
    )
    info = eventually(lambda: (found := daemon.client.job(job)).state == "HELD" and found)
    assert (info.reason, info.message) == (
        "backoff", "try 1 of 2 failed (exit code 1): the next one 1h 00m later",
    )  # fmt: skip
    assert info.retry_at is not None
    assert "it failed, and is tried again after a while" in daemon.rota("explain", job).stdout
    flag.touch()
    daemon.rota("release", job)
    assert daemon.until(job, "SUCCEEDED").starts == 2


# --- dependencies ---------------------------------------------------------------------------------


def test_after_ok_any_and_fail(daemon, tmp_path):
    gate = tmp_path / "gate"
    until = f"until test -e {gate}; do sleep 0.02; done; "
    (good,) = submitted(daemon, "--name", "good", "--", "bash", "-c", until + "true")
    (bad,) = submitted(daemon, "--name", "bad", "--", "bash", "-c", until + "false")
    wanted = {
        "ok-good": ("SUCCEEDED", ["--after", "good"]),
        "ok-bad": ("REJECTED", ["--after-ok", bad]),
        "any-both": ("SUCCEEDED", ["--after-any", good, "--after-any", "bad"]),
        "fail-bad": ("SUCCEEDED", ["--after-fail", "bad"]),
        "fail-good": ("CANCELLED", ["--after-fail", good]),
        "mixed": ("SUCCEEDED", ["--after", good, "--after-fail", bad]),
    }
    jobs = {
        name: submitted(daemon, *options, "--name", name, "--", "true")[0]
        for name, (_, options) in wanted.items()
    }
    assert {daemon.client.job(job).reason for job in jobs.values()} == {"dependency"}
    assert daemon.client.job(jobs["any-both"]).waits_for == [good, bad]
    gate.touch()
    daemon.rota("wait", *jobs.values(), check=False)
    found = {name: daemon.client.job(job) for name, job in jobs.items()}
    assert {name: info.state for name, info in found.items()} == {
        name: state for name, (state, _) in wanted.items()
    }
    cancelled = [event.text for event in rows(daemon, "cancelled")]
    assert f"was to run only if job {good} failed, which finished" in cancelled


# --- arrays ---------------------------------------------------------------------------------------


def test_an_array_is_one_thing(daemon, tmp_path):
    gate = tmp_path / "gate"
    (array,) = submitted(
        daemon, "--array", "0-9%4", "--name", "sweep", "--", "bash", "-c",
        f"until test -e {gate}; do sleep 0.02; done; echo I am $ROTA_ARRAY_INDEX of "
        "$ROTA_ARRAY_COUNT",
    )  # fmt: skip
    assert array.startswith("@")
    first = array[1:]
    eventually(lambda: shown(daemon, array)["states"].get("RUNNING") == 4)
    assert shown(daemon, array)["states"] == {"RUNNING": 4, "HELD": 6}
    last = shown(daemon, f"{first}_9")
    assert (last["task"], last["array"], last["reason"]) == (9, first, "array")
    gate.touch()
    assert daemon.rota("wait", array).returncode == 0
    info = shown(daemon, array)
    assert (info["tasks"], info["states"], info["limit"]) == (10, {"SUCCEEDED": 10}, 4)
    words = daemon.rota("logs", array).stdout.splitlines()
    assert words[:4] == [
        f"== {first}_0 (job {first})", "I am 0 of 10",
        f"== {first}_1 (job {int(first) + 1})", "I am 1 of 10",
    ]  # fmt: skip
    assert daemon.rota("logs", f"{first}_7").stdout == "I am 7 of 10\n"
    members = {job.id for job in daemon.client.jobs(array=first)}
    assert most_at_once(daemon, members) == 4


def most_at_once(daemon, jobs):
    """The most of these jobs that held their GPUs at the same time, by the log."""
    inside, most = set(), 0
    for event in daemon.client.events():
        if event.job in jobs:
            if event.event == "start":
                inside.add(event.job)
            elif event.event in ("done", "failed", "evicted", "cancelled", "stopped", "timeout"):
                inside.discard(event.job)
            most = max(most, len(inside))
    return most


def test_an_array_is_held_released_and_cancelled_as_a_whole(daemon):
    (array,) = submitted(daemon, "--array", "1,5-6%2", "--", "sleep", "1000")
    eventually(lambda: shown(daemon, array)["states"].get("RUNNING") == 2)
    daemon.rota("hold", array)
    eventually(lambda: shown(daemon, array)["states"] == {"HELD": 3})
    daemon.rota("release", array)
    eventually(lambda: shown(daemon, array)["states"] == {"RUNNING": 2, "HELD": 1})
    (later,) = submitted(daemon, "--after-fail", array, "--", "true")
    assert len(daemon.client.job(later).waits_for) == 3
    assert daemon.rota("cancel", array).stderr == f"array {array}: 3 cancelled\n"
    assert daemon.rota("wait", later).returncode == 0
    done = daemon.rota("hold", array, check=False)
    assert (done.returncode, "is over" in done.stderr) == (1, True)


def test_kills_in_the_middle_of_an_array_lose_nothing(daemons, tmp_path):
    daemon = daemons()
    agent = daemon.agent("m1", gpus=4)
    marks = tmp_path / "marks"
    script = f"echo $ROTA_ARRAY_INDEX >>{marks}; sleep 0.3"
    (array,) = submitted(daemon, "--array", "0-11%3", "--gpus", "1", "--", "bash", "-c", script)
    for enough in (2, 5):
        eventually(partial(has_lines, marks, enough))
        daemon.kill()
        agent.kill()
        daemon.start()
        agent = daemon.agent("m1", gpus=4)
    info = daemon.client.wait_array(array[1:], timeout_s=300)
    assert info.states == {"SUCCEEDED": 12}
    assert sorted(map(int, marks.read_text().split())) == list(range(12))  # each ran, once
    members = {job.id for job in daemon.client.jobs(array=array[1:])}
    assert most_at_once(daemon, members) <= 3
    daemon.assert_no_orphans()


def has_lines(path, count):
    return path.exists() and len(path.read_text().split()) >= count


# --- hooks ----------------------------------------------------------------------------------------


def test_hooks_run_around_a_job_and_before_a_stop(daemons, tmp_path):
    told = tmp_path / "told"
    hook = tmp_path / "hook.sh"
    hook.write_text(f'#!/bin/sh\necho "$ROTA_HOOK $ROTA_JOB_ID $ROTA_JOB_USER $EVIL" >>{told}\n')
    hook.chmod(0o755)
    daemon = daemons()
    daemon.agent("m1", "--prolog", hook, "--epilog", hook)
    script = f"echo begin >>{told}; trap 'echo term >>{told}; exit 0' TERM; sleep 1000 & wait"
    job = daemon.submit(
        script, envs={"EVIL": "yes"}, checkpoint={"pre_stop": f"echo saving >>{told}"}
    )
    eventually(lambda: told.exists() and "begin" in told.read_text())
    daemon.rota("hold", job)
    eventually(lambda: "epilog" in told.read_text())
    user = daemon.client.job(job).user
    lines = [line.rstrip() for line in told.read_text().splitlines()]
    assert lines == [f"prolog {job} {user}", "begin", "saving", "term", f"epilog {job} {user}"]
    daemon.rota("cancel", job)


def test_a_node_whose_prolog_fails_is_drained_and_the_job_runs_elsewhere(daemons, tmp_path):
    flag = tmp_path / "broken"
    flag.touch()
    hook = tmp_path / "hook.sh"
    hook.write_text(f"#!/bin/sh\ntest ! -e {flag}\n")
    hook.chmod(0o755)
    daemon = daemons()
    daemon.agent("m1", "--prolog", hook)
    job = daemon.submit("true")
    node = eventually(
        lambda: next(
            (n for n in daemon.client.nodes() if n.name == "m1" and n.state == "drained"), None
        ),
        every_s=0.1,
    )
    assert re.fullmatch(
        rf"unhealthy: the prolog of its node failed for run {job}\.\d: exit code 1", node.why
    )
    assert daemon.client.job(job).state == "PENDING"
    flag.unlink()
    daemon.rota("undrain", "m1")
    assert daemon.until(job, "SUCCEEDED").starts == 1


# --- short options --------------------------------------------------------------------------------


def test_short_options_are_keys_of_the_job_file(daemon):
    options = {
        "--gpus": "2", "--cpus": "1.5", "--mem": "512M", "--env": "LR=0.1", "--priority": "3",
        "--time": "2h", "--name": "short", "--array": "0-1", "--retries": "2", "--nodes": "2",
        "--gpu-type": "a100", "--after-any": "x", "--after-fail": "y", "--after": "z",
    }  # fmt: skip
    args = [word for pair in options.items() for word in pair]
    told = daemon.rota("submit", *args, "--dry-run", "-o", "json", "--", "true").stdout
    (job,) = json.loads(told)
    assert job["resources"] == {"gpus": 2, "cpus": 1.5, "mem": "512M", "gpu_type": "a100"}
    assert job["envs"] == {"LR": "0.1"}
    assert (job["priority"], job["time_limit"], job["name"]) == (3, "2h", "short")
    assert (job["array"], job["retries"], job["nodes"]) == ("0-1", 2, 2)
    assert (job["depends_on"], job["after_any"], job["after_fail"]) == (["z"], ["x"], ["y"])


def test_a_log_of_all_of_it_is_simulated_by_the_same_rules(daemons, tmp_path):
    """What happened to jobs on the cluster happens to them again in the simulator."""
    daemon = daemons("--nodes", "1x4")
    slow = submitted(daemon, "--time", "1s", "--", "sleep", "1000")[0]
    (array,) = submitted(daemon, "--array", "0-2%1", "--", "sleep", "0.3")
    (bad,) = submitted(daemon, "--", "bash", "-c", "sleep 0.3; exit 1")
    after = [
        submitted(daemon, "--after-fail", slow, "--", "sleep", "0.1")[0],
        submitted(daemon, "--after-fail", bad, "--", "sleep", "0.1")[0],
        submitted(daemon, "--after", array, "--", "sleep", "0.1")[0],
    ]
    daemon.rota("wait", slow, array, bad, *after, check=False)
    daemon.rota("export", "-o", tmp_path / "history")
    workload = tmp_path / "history" / "workload.csv"
    assert "time_limit_s" in workload.read_text().splitlines()[0]
    daemon.rota(
        "simulate",
        workload,
        "--cluster",
        "1x4",
        "--policy",
        "fifo-skip",
        "--check",
        "-o",
        tmp_path / "again",
    )
    again = pl.read_csv(tmp_path / "again" / "jobs.csv", infer_schema=False)
    states = dict(again.select("job_id", "state").iter_rows())
    first = int(array[1:])
    wanted = {slow: "timeout", bad: "failed"} | {str(first + n): "done" for n in range(3)}
    assert states == wanted | dict.fromkeys(after, "done")
    starts = dict(again.select("job_id", "first_start_s").iter_rows())
    ends = dict(again.select("job_id", "end_s").iter_rows())
    assert all(float(starts[str(first + n + 1)]) >= float(ends[str(first + n)]) for n in range(2))
    assert float(starts[after[0]]) >= float(ends[slow])


def test_a_job_in_an_image_is_as_any_other_job(daemon):
    script, image = "echo in $FROM_IMAGE; sleep 1000", ("--image", "example.org/a:1")
    (job,) = submitted(daemon, "--gpus", "1", *image, "--", "sh", "-c", script)
    daemon.rota("wait", job, "--until", "running")
    command = "echo also in $FROM_IMAGE; exit 3"
    inside = daemon.rota("exec", job, "--", "sh", "-c", command, check=False)
    assert (inside.returncode, inside.stdout) == (3, "also in example.org/a:1\n")
    assert "example.org/a:1" in daemon.rota("show", job, "-o", "yaml").stdout
    daemon.kill()
    daemon.start()
    daemon.rota("cancel", job)
    daemon.until(job, "CANCELLED")
    assert daemon.rota("logs", job).stdout == "in example.org/a:1\n"
    sif = daemon.rota("submit", "--image", "/images/a.sif", "--", "true", check=False)
    assert (sif.returncode, "install apptainer" in sif.stderr) == (2, True)
