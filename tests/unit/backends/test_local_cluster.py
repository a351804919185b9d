"""The local cluster alone: processes begin, end and are ended as the port says."""

import gc
import os
import signal
import time
from pathlib import Path

import pytest

from rota.backends.local import LocalCluster
from rota.core import machine
from rota.core.errors import ClusterError, OptionError, OutputError
from rota.core.events import INF, JOB_DONE, JOB_FAILED, JOB_RUNNING, JOB_STOPPED
from rota.core.jobs import UNKNOWN, Job
from rota.core.topology import Topology

SLEEP = ("sleep", "60")
DEAF = (
    "import signal, time; signal.signal(15, signal.SIG_IGN);print('on', flush=True); time.sleep(60)"
)
SAVES = (
    "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0));"
    "print('on', flush=True); time.sleep(60)"
)


def processes():
    """Return (pid, parent, state) of every process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found.append((int(entry.name), int(fields[1]), fields[0]))
    return found


def children():
    return {pid for pid, parent, _ in processes() if parent == os.getpid()}


def alive(pid):
    return any(pid == other and state not in "ZX" for other, _, state in processes())


def descriptors():
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def pid_of(driver, job):
    return driver.cluster._runs[job.index].group.pid


def wait_for(path, text="on"):
    """Wait until a job has written this."""
    limit = time.monotonic() + 20
    while time.monotonic() < limit:
        if path.exists() and text in path.read_text():
            return
        time.sleep(0.01)
    pytest.fail(f"{path} never said {text!r}")


@pytest.fixture(params=["pidfd", "no pidfd"])
def either(request, monkeypatch):
    """Run a test with and without descriptors for processes."""
    if request.param == "no pidfd":

        def refuse(pid, flags=0):
            raise OSError("not here")

        monkeypatch.setattr(os, "pidfd_open", refuse)
    return request.param


# --- how a process ends --------------------------------------------------------------------------


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize(
    ("script", "kind", "why"),
    [
        ("exit 0", JOB_DONE, ""),
        ("exit 3", JOB_FAILED, "exit code 3"),
        ("kill -9 $$", JOB_FAILED, "killed by signal 9"),
    ],
)
def test_the_exit_code_says_how_a_job_ended(driver, script, kind, why):
    job = driver.job("sh", "-c", script)
    assert driver.start(job) == driver.cluster.now_s
    assert driver.poll() == [(kind, job)]
    assert driver.cluster.failure(job).startswith(why)
    assert driver.cluster.poll(INF) == []


def test_a_process_that_somebody_kills_has_failed(driver):
    job = driver.job(*SLEEP)
    driver.start(job)
    assert driver.poll(0.05) == []
    os.kill(pid_of(driver, job), signal.SIGTERM)
    assert driver.poll() == [(JOB_FAILED, job)]
    assert "signal 15" in driver.cluster.failure(job)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ((), "no command"),
        (("/no/such/program",), "/no/such/program"),
        (("sh", "-c", "a\0b"), "null"),
    ],
)
def test_what_cannot_be_spawned_has_failed(driver, command, why):
    job = driver.job(*command)
    driver.start(job)
    assert driver.poll() == [(JOB_FAILED, job)]
    assert why in driver.cluster.failure(job)
    driver.cluster.release(job)
    assert driver.cluster._devices.take(job.allocation)


def test_a_lost_exit_code_is_not_success(driver):
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system forgets them at once
    try:
        job = driver.job("true")
        driver.start(job)
        assert driver.poll() == [(JOB_FAILED, job)]
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert "lost" in driver.cluster.failure(job)


def test_tasks_of_a_job_run_its_command(driver):
    whole = driver.job("true")
    task = driver.job(name="job0#0")
    task.parent = whole
    driver.start(task)
    assert driver.poll() == [(JOB_DONE, task)]


@pytest.mark.usefixtures("either")
def test_children_that_outlive_their_parent_are_ended_before_the_job_is_over(driver, tmp_path):
    note = tmp_path / "pid"
    job = driver.job("sh", "-c", f"sleep 60 & echo $! > {note}; exit 0")
    driver.start(job)
    assert driver.poll() == [(JOB_DONE, job)]
    assert not alive(int(note.read_text()))


def test_deaf_children_are_killed_before_the_job_is_over(driver, tmp_path):
    note = tmp_path / "pid"
    script = f"trap '' TERM; sleep 60 & echo $! > {note}; exit 4"  # children inherit it
    job = driver.job("sh", "-c", script)
    driver.start(job)
    begun = time.monotonic()
    assert driver.poll() == [(JOB_FAILED, job)]
    assert time.monotonic() - begun >= 0.3
    assert driver.cluster.failure(job) == "exit code 4"
    assert not alive(int(note.read_text()))


# --- stopping ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("either")
def test_stop_asks_and_tells_when_it_is_gone(driver):
    job = driver.job(*SLEEP)
    driver.start(job)
    pid = pid_of(driver, job)
    assert not driver.stop(job)
    assert driver.poll() == [(JOB_STOPPED, job)]
    assert not alive(pid)


def test_who_ignores_sigterm_is_killed_after_the_grace(make_driver, tmp_path):
    driver = make_driver(grace_s=0.4, log_dir=tmp_path)
    job = driver.python(DEAF)
    driver.start(job)
    wait_for(tmp_path / "job0.out")
    pid = pid_of(driver, job)
    begun = time.monotonic()
    assert not driver.stop(job)
    assert time.monotonic() - begun < 0.2  # the loop is never blocked
    assert driver.poll(0.1) == []
    assert alive(pid)
    assert driver.poll() == [(JOB_STOPPED, job)]
    assert 0.4 <= time.monotonic() - begun < 5
    assert not alive(pid)


def test_exit_code_0_after_sigterm_means_stopped(make_driver, tmp_path):
    driver = make_driver(log_dir=tmp_path)
    job = driver.python(SAVES)
    driver.start(job)
    wait_for(tmp_path / "job0.out")
    driver.stop(job)
    assert driver.poll() == [(JOB_STOPPED, job)]
    machine.stopped(job)
    driver.start(job)
    assert driver.poll(0.1) == []


@pytest.mark.parametrize(("script", "kind"), [("exit 0", JOB_DONE), ("exit 3", JOB_FAILED)])
def test_who_ended_before_the_signal_is_not_run_again(driver, tmp_path, script, kind):
    note = tmp_path / "runs"
    job = driver.job("sh", "-c", f"echo run >> {note}; {script}")
    driver.start(job)
    os.waitid(os.P_PID, pid_of(driver, job), os.WEXITED | os.WNOWAIT)
    assert driver.stop(job)
    driver.start(job)
    assert driver.stop(job)  # once more, before anybody looked
    driver.start(job)
    assert driver.poll() == [(kind, job)]
    assert note.read_text() == "run\n"


def test_one_that_ended_but_left_a_child_takes_its_time_to_stop(driver):
    job = driver.job("sh", "-c", "trap '' TERM; sleep 60 & exit 0")
    driver.start(job)
    os.waitid(os.P_PID, pid_of(driver, job), os.WEXITED | os.WNOWAIT)
    assert not driver.stop(job)
    assert driver.poll() == [(JOB_STOPPED, job)]
    machine.stopped(job)
    driver.start(job)
    assert driver.poll() == [(JOB_DONE, job)]


def test_a_suspended_process_can_save(make_driver, tmp_path):
    driver = make_driver(grace_s=30.0, log_dir=tmp_path)
    job = driver.python(SAVES)
    driver.start(job)
    wait_for(tmp_path / "job0.out")
    os.kill(pid_of(driver, job), signal.SIGSTOP)
    driver.stop(job)
    assert driver.poll() == [(JOB_STOPPED, job)]


# --- ends that nobody waits for ------------------------------------------------------------------


def test_devices_of_a_cancelled_job_wait_until_it_is_gone(make_driver, tmp_path):
    driver = make_driver(grace_s=0.3, log_dir=tmp_path)
    old, new = driver.python(DEAF, gpus=2), driver.job("sleep", "0.1", gpus=2)
    driver.start(old)
    wait_for(tmp_path / "job0.out")
    pid = pid_of(driver, old)
    machine.cancel(old, driver.cluster.now_s)
    driver.cluster.release(old)
    assert driver.start(new) == INF
    assert alive(pid)
    assert driver.poll() == [(JOB_RUNNING, new)]
    assert not alive(pid)
    machine.run(new, driver.cluster.now_s, 1.0)
    assert driver.poll() == [(JOB_DONE, new)]


def test_one_that_waits_for_devices_can_be_stopped(make_driver, tmp_path):
    driver = make_driver(grace_s=0.3, log_dir=tmp_path)
    old, new = driver.python(DEAF, gpus=2), driver.job("true", gpus=2)
    driver.start(old)
    wait_for(tmp_path / "job0.out")
    driver.cluster.release(old)
    assert driver.start(new) == INF
    assert driver.stop(new)
    assert driver.cluster.poll(INF) == []
    driver.start(new)
    driver.cluster.release(new)
    assert driver.cluster.poll(INF) == []


def test_an_evicted_job_is_killed_and_restarts_after_that(driver):
    job = driver.job(*SLEEP)
    driver.start(job)
    pid = pid_of(driver, job)
    assert driver.cluster.evict(job) == 0.0
    machine.begin_stop(job, driver.cluster.now_s, 0.0)
    machine.stopped(job)
    if driver.start(job) == INF:  # unless the kill was very quick
        assert driver.poll() == [(JOB_RUNNING, job)]
    assert not alive(pid)
    assert alive(pid_of(driver, job))


def test_unknown_jobs_are_forgotten_without_a_word(driver):
    job = driver.job("true")
    driver.cluster.release(job)
    assert driver.cluster.evict(job) == 0.0


# --- the environment -----------------------------------------------------------------------------


def report(tmp_path, job):
    return (tmp_path / f"{job.id}.out").read_text().split()


SHOW = ("sh", "-c", 'echo "$ROTA_JOB_ID/$ROTA_RESTART_COUNT/$CUDA_VISIBLE_DEVICES/$HOME_BREW"')


def test_jobs_know_who_they_are(make_driver, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME_BREW", "inherited")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    driver = make_driver(log_dir=tmp_path / "new" / "folder")
    job = driver.job("sh", "-c", SHOW[2] + "; sleep 60", gpus=2)
    for count in range(3):
        driver.start(job)
        wait_for(tmp_path / "new/folder/job0.out", f"job0/{count}/0,1/inherited")
        driver.stop(job)
        assert driver.poll() == [(JOB_STOPPED, job)]
        machine.stopped(job)
    assert len(report(tmp_path / "new/folder", job)) == 3


def test_jobs_on_one_node_get_disjoint_devices(make_driver, tmp_path):
    driver = make_driver(log_dir=tmp_path, devices=["GPU-a", "GPU-b"])
    jobs = [driver.job(*SHOW), driver.job(*SHOW)]
    for job in jobs:
        driver.start(job)
    ended = []
    while len(ended) < 2:
        ended += driver.poll()
    assert [report(tmp_path, job)[0].split("/")[2] for job in jobs] == ["GPU-a", "GPU-b"]


def test_a_job_without_gpus_sees_none(make_driver, tmp_path):
    driver = make_driver(log_dir=tmp_path)
    job = driver.job(*SHOW)
    machine.start(job, machine.Allocation([]), 0.0)
    driver.cluster.start(job)
    driver.cluster.poll(20.0)
    assert report(tmp_path, job) == ["job0/0//"]


def test_output_goes_to_files_whatever_the_name_of_the_job(make_driver, tmp_path):
    driver = make_driver(log_dir=tmp_path)
    job = driver.job(
        "sh", "-c", "echo out; echo err >&2; read line || echo no input", name="../a/b"
    )
    driver.start(job)
    assert driver.poll() == [(JOB_DONE, job)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["..%2Fa%2Fb.err", "..%2Fa%2Fb.out"]
    assert (tmp_path / "..%2Fa%2Fb.out").read_text() == "out\nno input\n"
    assert (tmp_path / "..%2Fa%2Fb.err").read_text() == "err\n"


def test_a_log_that_cannot_be_opened_fails_the_job(make_driver, tmp_path):
    driver = make_driver(log_dir=tmp_path)
    (tmp_path / "job0.out").mkdir()
    job = driver.job("true")
    driver.start(job)
    assert driver.poll() == [(JOB_FAILED, job)]
    assert "job0.out" in driver.cluster.failure(job)


# --- the clock -----------------------------------------------------------------------------------


def test_poll_returns_at_once_when_nothing_can_happen(driver):
    begun = time.monotonic()
    assert driver.cluster.poll(INF) == []
    assert driver.cluster.poll(-1.0) == []
    assert time.monotonic() - begun < 0.2
    assert driver.cluster.now_s >= 0


@pytest.mark.usefixtures("either")
def test_poll_waits_without_working(driver):
    job = driver.job(*SLEEP)
    driver.start(job)
    worked = time.process_time()
    begun = time.monotonic()
    until_s = driver.cluster.now_s + 0.5
    assert driver.cluster.poll(until_s) == []
    assert driver.cluster.now_s == until_s
    assert time.monotonic() - begun >= 0.45
    assert time.process_time() - worked < 0.1


def test_the_clock_can_run_faster(make_driver):
    driver = make_driver(speed=100.0)
    begun = time.monotonic()
    assert driver.cluster.poll(30.0) == []
    assert driver.cluster.now_s == 30.0
    assert 0.29 <= time.monotonic() - begun < 5


def test_what_is_late_counts_as_in_time(driver):
    job = driver.job("true")
    driver.start(job)
    time.sleep(0.3)
    ((time_s, kind, *_),) = driver.cluster.poll(0.1)
    assert (time_s, kind) == (0.1, JOB_DONE)
    driver.cluster.poll(0.2)
    assert driver.cluster.now_s == 0.2


# --- the end -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("either")
def test_close_leaves_nothing_behind(make_driver, tmp_path):
    gc.collect()  # so that files which other tests forgot are not closed in between
    files, family = descriptors(), children()
    driver = make_driver(grace_s=0.3, log_dir=tmp_path)
    jobs = [driver.python(DEAF), driver.job("sh", "-c", "sleep 60 & sleep 60; true")]
    for job in jobs:
        driver.start(job)
    wait_for(tmp_path / "job0.out")
    pids = [pid_of(driver, job) for job in jobs]
    with driver.cluster as cluster:
        assert cluster.poll(cluster.now_s + 0.05) == []
    assert not any(alive(pid) for pid in pids)
    assert set(descriptors()) <= set(files)
    assert children() == family
    driver.cluster.close()
    with pytest.raises(ClusterError, match="closed"):
        driver.cluster.start(driver.job("true"))


def test_an_impatient_close_kills(make_driver, monkeypatch, tmp_path):
    driver = make_driver(grace_s=60.0, log_dir=tmp_path)
    job = driver.python(DEAF)
    driver.start(job)
    wait_for(tmp_path / "job0.out")
    pid = pid_of(driver, job)

    def interrupt(longest_s):
        raise KeyboardInterrupt

    monkeypatch.setattr(driver.cluster, "_sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        driver.cluster.close()
    os.waitpid(pid, 0)
    assert not alive(pid)


# --- refusals ------------------------------------------------------------------------------------


def test_devices_are_never_given_twice(driver):
    driver.start(driver.job(*SLEEP, gpus=2))
    with pytest.raises(ClusterError, match=r"job1.*in use"):
        driver.start(driver.job("true"))


def test_a_job_runs_once(driver):
    job = driver.job(*SLEEP)
    driver.start(job)
    with pytest.raises(ClusterError, match="runs already"):
        driver.cluster.start(job)


@pytest.mark.parametrize("options", [{"grace_s": -1.0}, {"speed": 0.0}, {"devices": ["0"]}])
def test_bad_options_are_refused(options):
    with pytest.raises(OptionError):
        LocalCluster(Topology.uniform(1, 2), {}, **options)


def test_a_log_folder_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="file"):
        LocalCluster(Topology.uniform(1, 2), {}, log_dir=tmp_path / "file")


def test_it_promises_nothing_that_processes_cannot_keep(driver):
    job = driver.job("true")
    assert isinstance(job, Job)
    assert job.behaviour is UNKNOWN
    assert not driver.cluster.instant_stop
    assert not driver.cluster.frictionless
    assert driver.cluster.rate(job) == 1.0
    assert driver.cluster.rerated() == ()
