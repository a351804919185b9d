import math
import multiprocessing
import os
import signal
import threading
import time

import pytest

from rota import job
from rota.job import stops


def terminate():
    signal.raise_signal(signal.SIGTERM)


def in_thread(function):
    """Call it in another thread; what it returned or raised."""
    result = []

    def call():
        try:
            result.append(function())
        except RuntimeError as error:
            result.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return result[0]


def test_nothing_is_installed_before_it_is_asked_for():
    assert signal.getsignal(signal.SIGTERM) is not stops._noticed


def test_sigterm_is_noticed():
    assert job.should_stop() is False
    terminate()
    assert job.should_stop() is True
    assert in_thread(job.should_stop) is True


def test_the_handler_of_before_is_called_each_time():
    calls = []
    signal.signal(signal.SIGTERM, lambda number, frame: calls.append((number, frame is None)))
    job.install()
    job.install()
    terminate()
    terminate()
    assert calls == [(signal.SIGTERM, False)] * 2
    assert job.should_stop()


@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN])
def test_without_a_handler_of_before_the_job_lives_on(before):
    signal.signal(signal.SIGTERM, before)
    job.install()
    terminate()
    assert job.should_stop()


def test_in_a_block_only():
    calls = []
    signal.signal(signal.SIGTERM, lambda number, frame: calls.append(number))
    mine = signal.getsignal(signal.SIGTERM)
    with job.stop_signal() as stop:
        assert not stop()
        terminate()
        assert stop()
        with job.stop_signal():  # the outer block goes on
            pass
        assert signal.getsignal(signal.SIGTERM) is stops._noticed
    assert signal.getsignal(signal.SIGTERM) is mine
    assert calls == [signal.SIGTERM]


def test_a_block_leaves_what_was_installed_for_good():
    job.install()
    with job.stop_signal():
        pass
    assert signal.getsignal(signal.SIGTERM) is stops._noticed


def test_a_block_leaves_the_handler_of_somebody_who_came_later():
    def later(number, frame):
        pass

    with job.stop_signal():
        signal.signal(signal.SIGTERM, later)
    assert signal.getsignal(signal.SIGTERM) is later


def test_another_thread_cannot_begin_but_ask():
    error = in_thread(job.should_stop)
    assert isinstance(error, RuntimeError)
    assert "rota.job.install() in the main thread" in str(error)
    job.install()
    assert in_thread(job.should_stop) is False


def test_the_seconds_left_of_the_grace_period(monkeypatch):
    monkeypatch.setenv("ROTA_GRACE_S", "20")
    job.install()
    assert job.seconds_left() == math.inf
    terminate()
    first = job.seconds_left()
    assert 19 < first <= 20
    terminate()  # a second signal does not begin a second period
    assert job.seconds_left() <= first
    monkeypatch.setenv("ROTA_GRACE_S", "0")
    assert job.seconds_left() == 0


def test_outside_rota_nobody_says_how_long(monkeypatch):
    job.install()
    terminate()
    assert job.seconds_left() == math.inf


def test_it_leaves_with_a_code_of_its_own():
    with pytest.raises(SystemExit) as left:
        job.exit_for_restart()
    assert left.value.code == job.RESTART_CODE == 75


def test_a_process_that_is_stopped_saves_and_leaves(spawn, tmp_path):
    process = spawn(
        """
        import time
        from rota import job
        job.should_stop()
        print("ready")
        deadline = time.monotonic() + 300
        while not job.should_stop() and time.monotonic() < deadline:
            time.sleep(0.01)
        job.save(b"state", step=1)
        job.exit_for_restart()
        """,
        ROTA_CHECKPOINT_DIR=str(tmp_path),
    )
    process.terminate()
    assert process.wait(300) == job.RESTART_CODE
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"state"]


def test_workers_of_a_pool_can_be_ended(spawn):
    process = spawn(
        """
        import multiprocessing, time
        from rota import job
        job.install()
        for _ in range(20):
            child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(20,))
            child.start()
            child.terminate()
            child.join()
            assert child.exitcode == -15, child.exitcode
        assert not job.should_stop()
        print("ready")
        """
    )
    assert process.wait(300) == 0


def test_a_worker_can_outlive_the_stop():
    child = multiprocessing.get_context("fork").Process(target=_worker)
    child.start()
    try:
        deadline = time.monotonic() + 300
        while not _ignores_sigterm(child.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(child.pid, signal.SIGTERM)
        os.kill(child.pid, signal.SIGUSR1)  # arrives after it
        child.join(300)
        assert child.exitcode == -signal.SIGUSR1
    finally:
        child.kill()
        child.join()
        child.close()


def _worker():
    job.ignore_stop(3)
    time.sleep(600)


def _ignores_sigterm(pid):
    with open(f"/proc/{pid}/status") as file:  # noqa: PTH123 - not a path of ours
        ignored = next(line for line in file if line.startswith("SigIgn"))
    return int(ignored.split()[1], 16) >> (signal.SIGTERM - 1) & 1
