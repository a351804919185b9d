"""Everything that can die or fill up under a real daemon: nothing is lost, nothing runs twice."""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager

import httpx2
import polars as pl
import pytest

from agents_net import PATIENCE_S, alive, eventually
from daemon_process import DaemonProcess, processes_of
from live_logs import assert_sound, exported, stored_rows
from local_shims import fill
from needs import ROOT, need
from rota.core.errors import RotaError, UnavailableError
from saving_job import script
from strangers import listening

SHARES = (1, 2, 4, 4)


def tell_pid(then="exec sleep 300"):
    """A job that says its process id in its own folder."""
    return f"echo $$ >> $ROTA_CHECKPOINT_DIR/pids; {then}"


def pids_of(daemon, job, folder=None):
    """What `tell_pid` has told, oldest first."""
    path = (folder or daemon.state / "jobs") / job / "checkpoint" / "pids"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def pid_of(daemon, job, run=0, folder=None):
    """The process of one run of a job, when it is there."""
    return eventually(lambda: pids_of(daemon, job, folder)[run : run + 1])[0]


def ready(daemon):
    """Status and text of the question whether work is accepted."""
    answer = httpx2.get(f"{daemon.client.place.server}/readyz", timeout=PATIENCE_S)
    return answer.status_code, answer.text


# --- the daemon is killed -------------------------------------------------------------------------


class Submitter(threading.Thread):
    """Submits jobs one by one, whatever becomes of the daemon; each under a key of its own.

    `allowed` counts those that may be submitted. None of them ends before the file `go` is there.
    """

    def __init__(self, daemon, folder, dice, jobs):
        super().__init__()
        self.daemon_process, self.folder = daemon, folder
        self.dice, self.jobs = dice, jobs
        self.go = folder / "go"
        self.allowed = threading.Semaphore(0)
        self.ids = []
        self.problem = None

    def run(self):
        try:
            for number in range(self.jobs):
                self.allowed.acquire()
                self.ids.append(self.submit(number))
        except Exception as error:  # noqa: BLE001 - the test has to see it
            self.problem = error

    def submit(self, number):
        work_s = round(self.dice.uniform(0.1, 0.8), 2)
        job = {
            "run": script(work_s, self.folder, after=self.go),
            "resources": {"gpus": self.dice.choice(SHARES)},
            "queue": self.dice.choice(["red", "green"]),
        }
        end_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                with self.daemon_process.connect(patience_s=0.0) as client:
                    return client.submit(job, key=f"key-{number}").id
            except (RotaError, OSError, ValueError):  # it is dead, or its files are not there yet
                assert time.monotonic() < end_s
                time.sleep(0.1)


def kill_again_and_again(daemon, folder, kills, jobs, seed):
    """Kill the daemon at random instants while jobs flow; the logs that its stores told."""
    dice = random.Random(seed)  # noqa: S311
    flow = Submitter(daemon, folder, random.Random(seed + 1), jobs)  # noqa: S311
    flow.start()
    logs = []
    for number in range(kills):
        flow.allowed.release(jobs // kills)
        if number == 1:
            daemon.wait_ready()
            eventually(lambda: any(job.preemptions for job in daemon.client.jobs()), every_s=0.1)
            flow.go.touch()
        early = dice.random() < 0.25  # while it starts, and before it is ready
        time.sleep(dice.uniform(0.0, 1.2) if early else dice.uniform(0.05, 1.5))
        daemon.kill()
        logs.append(recovered(daemon.state / "rota.db", folder / f"copy{number}"))
        if early:
            daemon.start(ready=False)
        else:
            daemon.start()
    daemon.wait_ready()
    flow.join(PATIENCE_S)
    assert flow.problem is None
    assert not flow.is_alive()
    assert flow.ids == [str(n) for n in range(1, jobs + 1)]  # nothing twice, nothing lost
    return logs


def recovered(path, folder):
    """Copy a store that somebody left, check it, and read what a recovery makes of it."""
    folder.mkdir()
    for file in path.parent.glob("rota.db*"):
        shutil.copy(file, folder / file.name)
    rows = stored_rows(folder / "rota.db")
    shutil.rmtree(folder)
    return rows


@pytest.mark.parametrize(
    ("kills", "jobs", "seed"),
    [
        (3, 30, 1),
        pytest.param(50, 200, 2, marks=[pytest.mark.soak, pytest.mark.timeout(1200)]),
    ],
)
def test_kill_9_of_the_daemon_while_jobs_flow(daemons, tmp_path, kills, jobs, seed):
    daemon = daemons(
        "--nodes", "4x4", "--policy", "tiresias:limits=0.3/2", "--check", "--log-level", "warning"
    )
    logs = kill_again_and_again(daemon, tmp_path, kills, jobs, seed)
    found = daemon.all_over()
    assert len(found) == jobs
    assert {job.state for job in found} == {"SUCCEEDED"}
    daemon.assert_no_orphans()
    for job in found:
        assert len((tmp_path / f"{job.id}.done").read_text().split()) == 1, job
    runs = (tmp_path / "runs").read_text().split()
    assert len(set(runs)) == len(runs)

    log = exported(daemon)
    assert_sound(log, capacity=4)
    counts = dict(log["event"].value_counts().iter_rows())
    assert counts["done"] == jobs
    assert not counts.keys() & {"failed", "cancelled", "rejected"}
    lost = set(log.filter(pl.col("event") == "evicted")["text"])
    assert lost <= {"the agent died as it started it"}  # it did not run, so it gets another run
    assert counts["stop"]
    daemon.stop()
    final = recovered(daemon.state / "rota.db", tmp_path / "last")
    for rows in logs:
        assert final[: len(rows)] == rows
    daemon.start()
    assert [job.state for job in daemon.client.jobs()] == ["SUCCEEDED"] * jobs


DIE_WHILE_MAKING_A_STORE = """
import os, sys
from pathlib import Path
import sqlalchemy as sa
from rota.daemon.store import Store

folder = Path(sys.argv[1])
for last in range(1, 1000):
    path = folder / f"{last}.db"
    child = os.fork()
    if not child:
        seen = [0]
        @sa.event.listens_for(sa.Engine, "before_cursor_execute")
        def die(*_):
            seen[0] += 1
            if seen[0] == last:
                os._exit(9)
        Store(path)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    store = Store(path)
    assert store.epoch_unix > 0 and store.tokens() == [] and not store.job_number
    store.close()
    if not code:
        print(last)
        sys.exit()
"""


def test_kill_9_at_every_statement_while_the_store_is_made(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", DIE_WHILE_MAKING_A_STORE, str(tmp_path)],
        check=False, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10  # it had many chances to die


def test_kill_9_of_a_daemon_that_has_just_begun(daemons):
    daemon = daemons("--nodes", "1x1", start=False)
    for pause_s in (0.0, 0.05, 0.1):
        served = daemon.launch("--nodes", "1x1")
        eventually((daemon.state / "rota.db").exists, every_s=0.001)
        time.sleep(pause_s)
        served.kill()
    daemon.start()
    daemon.until(daemon.submit("true"), "SUCCEEDED")


def test_who_listens_where_a_killed_daemon_was_hears_no_token(daemons):
    daemon = daemons("--backend", "pretend", "--nodes", "1x1")
    token = (daemon.state / "token").read_text().strip()
    server = daemon.client.place.server
    assert daemon.rota("token", "ls").returncode == 0  # over the socket
    daemon.kill()
    with listening(port=int(server.rpartition(":")[2])) as stranger:
        for words in ([], ["--server", server]):
            done = daemon.rota("ls", *words, check=False)
            assert done.returncode == 1
        assert "cannot prove that it is your daemon, so no token was sent" in done.stderr
        assert b"/api/v1/proof" in stranger.heard
        assert token.encode() not in stranger.heard
    daemon.start()


# --- a job, a shim or an agent is killed ----------------------------------------------------------


def test_kill_9_of_a_job_is_its_failure_and_names_the_signal(daemon):
    job = daemon.submit(tell_pid())
    os.kill(pid_of(daemon, job), signal.SIGKILL)
    info = daemon.until(job, "FAILED")
    assert info.message == "killed by signal 9 (Killed)"
    assert info.starts == 1


def test_a_job_with_retries_is_started_again(daemon):
    twice = daemon.submit(tell_pid("[ $ROTA_RESTART_COUNT = 2 ] || kill -9 $$"), retries=2)
    info = daemon.until(twice, "SUCCEEDED")
    assert (info.starts, len(pids_of(daemon, twice))) == (3, 3)
    always = daemon.submit(tell_pid("exit 4"), retries=1)
    info = daemon.until(always, "FAILED")
    assert (info.starts, info.message) == (2, "exit code 4")


def test_kill_9_of_a_shim_restarts_the_job_when_nothing_of_it_is_left(daemon):
    job = daemon.submit(tell_pid("setsid sleep 300 & echo $! >> $ROTA_CHECKPOINT_DIR/pids; wait"))
    daemon.until(job, "RUNNING")
    eventually(lambda: len(pids_of(daemon, job)) == 2)
    old = pids_of(daemon, job)
    identity = daemon.state / "agent" / "runs" / f"{job}.0-0" / "identity.json"
    os.kill(json.loads(identity.read_text())["pid"], signal.SIGKILL)
    eventually(lambda: len(pids_of(daemon, job)) == 4)
    assert not any(alive(pid) for pid in old)
    info = daemon.until(job, "RUNNING")
    assert (info.starts, info.preemptions) == (2, 0)
    assert "shim" in info.message


@pytest.fixture
def far(daemons, tmp_path):
    """Return a daemon without nodes of its own that waits long for agents that are gone."""
    config = tmp_path / "rota.yaml"
    config.write_text("check: true\n")
    return daemons("--config", config)


@pytest.fixture
def hasty(daemons, tmp_path):
    """Return one that gives agents up soon."""
    config = tmp_path / "rota.yaml"
    config.write_text("check: true\nlocal: {silent_s: 1.0, lost_s: 5.0}\n")
    return daemons("--config", config)


def node(daemon, name):
    return next((n for n in daemon.client.nodes() if n.name == name), None)


def test_kill_9_of_an_agent_does_not_disturb_its_jobs(far, tmp_path):
    agent = far.agent("a")
    eventually(lambda: node(far, "a"))
    jobs = far.folder / "shared-jobs"
    stays = far.submit(tell_pid())
    go = tmp_path / "go"
    ends = far.submit(f"while [ ! -e {go} ]; do sleep 0.05; done; exit 7")
    pid = pid_of(far, stays, folder=jobs)
    far.until(stays, "RUNNING")
    far.until(ends, "RUNNING")
    agent.kill()
    go.touch()  # it ends while nobody looks
    far.agent("a")
    assert far.until(ends, "FAILED").message == "exit code 7"
    info = far.until(stays, "RUNNING")
    assert (info.starts, pids_of(far, stays, jobs)) == (1, [pid])
    assert alive(pid)


def test_an_agent_that_never_returns_is_silent_then_lost(hasty):
    first = hasty.agent("a")
    eventually(lambda: node(hasty, "a"))
    beats = hasty.folder / "beats"
    job = hasty.submit(
        f'while sleep 0.05; do echo "$ROTA_RUN_ID $EPOCHREALTIME" >> {beats}; done', gpus=2
    )
    hasty.until(job, "RUNNING")
    eventually(beats.exists)
    hasty.agent("b")
    eventually(lambda: node(hasty, "b"))
    first.kill()
    eventually(lambda: node(hasty, "a").state == "down", every_s=0.05)
    info = hasty.until(job, "RUNNING")
    eventually(lambda: f"{job}.1 " in beats.read_text())
    assert hasty.client.job(job).nodes == {"b": 2}
    lines = [line.split() for line in beats.read_text().splitlines()]
    times = {run: [float(t) for r, t in lines if r == run] for run in (f"{job}.0", f"{job}.1")}
    assert max(times[f"{job}.0"]) < min(times[f"{job}.1"])  # never both
    assert info.starts == 2
    told = exported(hasty).filter(pl.col("event").is_in(["node_closed", "node_down"]))
    assert told["event"].to_list()[-2:] == ["node_closed", "node_down"]


def test_a_node_that_returns_is_used_again(hasty):
    first = hasty.agent("a")
    eventually(lambda: node(hasty, "a"))
    job = hasty.submit(tell_pid(), gpus=2)
    jobs = hasty.folder / "shared-jobs"
    old = pid_of(hasty, job, folder=jobs)
    hasty.until(job, "RUNNING")
    os.kill(first.pid, signal.SIGSTOP)  # cut off: it cannot say anything
    eventually(lambda: node(hasty, "a").state == "down", every_s=0.05)
    eventually(lambda: not alive(old))
    assert hasty.until(job, "PENDING").starts == 1
    os.kill(first.pid, signal.SIGCONT)
    hasty.until(job, "RUNNING")
    assert node(hasty, "a").state == "up"
    eventually(lambda: len(pids_of(hasty, job, jobs)) == 2)


# --- the disk is full, the store is locked --------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """Return a folder with room for three megabytes."""
    need(os.geteuid() == 0, "root, to mount", ROOT)
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)]
    mounted = subprocess.run(command, check=False).returncode == 0
    need(mounted, "the right to mount a tmpfs", ROOT)
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_refuses_work_and_loses_none(small_disk, tmp_path):
    daemon = DaemonProcess(
        small_disk, "--nodes", "2x2", "--policy", "tiresias:limits=1/3", "--check",
        log=tmp_path / "daemon.log",
    )  # fmt: skip
    go = tmp_path / "go"
    try:
        daemon.start()
        writes = daemon.submit(
            f"while [ ! -e {go} ]; do sleep 0.05; done; head -c 100000 /dev/zero || exit 5"
        )
        quiet = daemon.submit(f"while [ ! -e {go} ]; do sleep 0.05; done")
        waits = [daemon.submit("true", gpus=4, nodes=1, resources={"gpus": 2}) for _ in range(3)]
        for job in (writes, quiet):
            daemon.until(job, "RUNNING")
        fill(small_disk)
        impatient = daemon.connect(patience_s=0.0)
        accepted, problem = submit_until_refused(impatient)
        assert "full" in problem or "I/O" in problem
        waits += accepted
        assert "the store cannot be used" in eventually(lambda: not_ready(daemon))
        go.touch()
        eventually(lambda: not jobs_of(daemon), every_s=0.1)
        assert daemon.client.status()["version"]  # it still answers
        (small_disk / "filler").unlink()
        impatient.close()
        eventually(lambda: ready(daemon)[0] == 200, every_s=0.2)
        late = daemon.submit("true")
        found = {job.id: job for job in daemon.all_over()}
        assert set(found) == {writes, quiet, late, *waits}
        assert {found[job].state for job in (quiet, late, *waits)} == {"SUCCEEDED"}
        assert found[writes].state in ("SUCCEEDED", "FAILED")  # its own output did not fit
        daemon.restart()
        assert len(list(daemon.client.jobs())) == len(found)
    finally:
        daemon.close()


def jobs_of(daemon):
    """Processes of jobs, without shims: one that began when the disk was full waits for room."""
    return [command for command in daemon.processes().values() if "shim" not in command]


def submit_until_refused(client):
    """Submit large jobs: what is free inside the store's files may take a few."""
    accepted = []
    for _ in range(40):
        try:
            accepted.append(client.submit({"run": "true", "envs": {"A": "x" * 50_000}}).id)
        except UnavailableError as error:
            return accepted, str(error)
    return accepted, "nothing was refused"


def not_ready(daemon):
    code, text = ready(daemon)
    return text if code == 503 else ""


@contextmanager
def locked(path):
    """Hold the store as another program may do."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


def test_a_locked_store_refuses_work_and_goes_on(daemons, tmp_path):
    daemon = daemons("--nodes", "1x2", "--policy", "tiresias:limits=0.5", "--check")
    job = daemon.submit(script(1.0, tmp_path), gpus=2)
    other = daemon.submit(script(1.0, tmp_path), gpus=2)
    eventually(lambda: daemon.client.job(job).starts, every_s=0.05)
    impatient = daemon.connect(patience_s=0.0)
    with locked(daemon.state / "rota.db"):
        with pytest.raises(UnavailableError, match="locked"):
            impatient.submit({"run": "true"})
        assert "locked" in not_ready(daemon)
        assert impatient.job(other).id == other  # it still answers
    impatient.close()
    eventually(lambda: ready(daemon)[0] == 200, every_s=0.2)
    assert {info.state for info in daemon.all_over()} == {"SUCCEEDED"}
    assert len(list(daemon.client.jobs())) == 2
    daemon.kill()
    daemon.start()
    assert len((tmp_path / f"{job}.done").read_text().split()) == 1


def test_a_short_lock_is_waited_for(daemon):
    with locked(daemon.state / "rota.db"):
        release = threading.Event()
        found = []
        submitter = threading.Thread(target=lambda: found.append(daemon.submit("true")))
        submitter.start()
        release.wait(1.0)
        assert not found
    submitter.join(PATIENCE_S)
    daemon.until(found[0], "SUCCEEDED")


def test_a_store_that_is_none_is_refused(daemons):
    daemon = daemons("--nodes", "1x1", start=False)
    daemon.state.mkdir(0o700)
    (daemon.state / "rota.db").write_bytes(b"something else" * 1000)
    refused = daemon.launch("--nodes", "1x1")
    assert refused.process.wait(PATIENCE_S) == 2
    assert "not a store of Rota" in refused.text()
    assert "Traceback" not in refused.text()


def test_a_store_that_went_back_in_time_ends_nothing_unasked(daemons):
    daemon = daemons("--nodes", "1x2")
    daemon.until(daemon.submit("true"), "SUCCEEDED")
    daemon.stop()
    copy = (daemon.state / "rota.db").read_bytes()
    daemon.start()
    running = daemon.submit("sleep 300")
    daemon.until(running, "RUNNING")
    shims = [command for command in processes_of(daemon.state).values() if "shim" in command]
    assert shims
    daemon.stop()
    (daemon.state / "rota.db").write_bytes(copy)
    refused = daemon.launch("--nodes", "1x2")
    assert refused.process.wait(PATIENCE_S) == 2
    assert "1 of 2 jobs" in refused.text()
    assert "--accept-loss" in refused.text()
    assert [c for c in processes_of(daemon.state).values() if "shim" in c] == shims  # all go on
    daemon.start("--nodes", "1x2", "--accept-loss")
    eventually(lambda: not [c for c in processes_of(daemon.state).values() if "shim" in c])
    assert int(daemon.submit("true")) > int(running)


# --- the clock steps ------------------------------------------------------------------------------


@pytest.mark.parametrize("step_s", [3600.0, -3600.0], ids=["back", "forth"])
def test_time_never_goes_back_when_the_clock_steps_between_two_lives(daemons, step_s):
    """The clock one hour back is the beginning of time one hour ahead."""
    daemon = daemons("--nodes", "1x2", "--policy", "tiresias", "--check")
    before = daemon.submit("sleep 300")
    daemon.until(before, "RUNNING")
    daemon.until(daemon.submit("true"), "SUCCEEDED")
    daemon.stop()
    with closing(sqlite3.connect(daemon.state / "rota.db", isolation_level=None)) as store:
        (epoch,) = store.execute("select value from facts where name = 'epoch_unix'").fetchone()
        store.execute(
            "update facts set value = ? where name = 'epoch_unix'", [repr(float(epoch) + step_s)]
        )
    daemon.start()
    daemon.until(daemon.submit("true"), "SUCCEEDED")
    daemon.client.cancel(before)
    daemon.kill()
    daemon.start()
    daemon.until(daemon.submit("true"), "SUCCEEDED")
    log = exported(daemon)
    assert_sound(log, capacity=2)
    now_s = log["time_s"][-1]
    assert now_s < 3000 if step_s > 0 else 3600 < now_s < 7000
