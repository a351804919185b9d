"""What is too old goes, in small steps, and a recovery never misses it."""

import logging
import threading
import time

import pytest
from click.testing import CliRunner

from agents_net import eventually
from rota.api.logs import open_log
from rota.cli.store import store as store_command
from rota.core.errors import InputError, RotaError
from rota.daemon import retention
from rota.daemon.periodic import PeriodicThread
from rota.daemon.retention import Dispensable, Pruner, RetentionThread
from rota.daemon.settings import Retention, Settings, read_settings
from rota.daemon.store import Store
from rota.daemon.upkeep import check
from rota.live.agent.folders import AgentFolder

DAY = 86_400.0
UNFINISHED = ("PENDING", "STARTING", "RUNNING")


def busy(daemon, actor, file, rounds=3):
    """Many batches and two snapshots; the jobs."""
    made = []
    for number in range(rounds):
        for key in range(4):
            made += daemon.submit([file(lasts=0)], actor, key=f"{number}-{key}")
        daemon._ask(daemon.loop.snapshot)
    made += daemon.submit([file(lasts=1e6)], actor, key="last")
    return made


def later(days):
    return lambda: time.time() + days * DAY


def test_nothing_goes_unless_it_is_said(daemon, alice, file):
    busy(daemon, alice, file)
    assert not Pruner(daemon.store, Retention(), later(1000)).look()
    assert not Pruner(daemon.store, Retention(), later(1000)).prune()
    kept = Retention(journal_days=30, keys_days=30)
    assert not Pruner(daemon.store, kept, later(29)).prune()


def test_what_snapshots_do_not_need_goes_and_a_recovery_is_the_same(
    running, alice, file, tmp_path, monkeypatch
):
    monkeypatch.setattr(retention, "STEP", 3)  # several steps
    with running() as daemon:
        made = busy(daemon, alice, file)
        before = {job.id: daemon.job(job.id, alice).state for job in made}
        pruner = Pruner(daemon.store, Retention(journal_days=1, keys_days=1), later(2))
        promised = pruner.look()
        gone = pruner.prune()
        assert gone == promised
        assert gone.batches >= 8  # one for each submission before the snapshot that stays
        assert (gone.snapshots, gone.keys) == (1, len(made))
        assert not pruner.look()
        (again,) = daemon.submit([file(lasts=0)], alice, key="0-0")
        assert again.id not in before, "the key is forgotten, so this is another job"
        before[again.id] = ""
        daemon.abandon()  # as if it were killed: the journal since the snapshot is repeated
    assert check(tmp_path) == []
    with running() as daemon:
        assert [job.id for job in daemon.jobs(alice)] == list(before)
        for name, state in before.items():
            assert state in ("", daemon.job(name, alice).state) or state in UNFINISHED
        assert daemon.explain(made[0].id, alice).wait_s >= 0
    with running() as daemon:  # and once more, after a graceful stop
        assert len(daemon.jobs(alice)) == len(before)


def test_the_batch_that_tells_the_time_stays(daemon, alice, file):
    busy(daemon, alice, file)
    daemon._ask(daemon.loop.snapshot)
    daemon._ask(daemon.loop.snapshot)
    Pruner(daemon.store, Retention(journal_days=1), later(1000)).prune()
    assert daemon.store.last_time_s() > 0


def test_a_store_that_cannot_be_written_is_pruned_later(daemon, caplog):
    class Failing:
        calls = 0

        def prune(self):
            self.calls += 1
            if self.calls == 1:
                raise InputError("the disk is full")
            thread._stopped.set()
            return Dispensable(batches=3)

    pruner = Failing()
    thread = RetentionThread(pruner, every_s=0.001)
    with caplog.at_level(logging.INFO, "rota.daemon"):
        thread.start()
        thread._thread.join(60)
    assert pruner.calls == 2
    thread.stop()


def test_the_command_says_what_would_go(running, alice, file, tmp_path):
    with running() as daemon:
        busy(daemon, alice, file)
    runner = CliRunner()
    size = (tmp_path / "rota.db").stat().st_size
    options = ["prune", "--state", str(tmp_path), "--journal-days", "1", "--keys-days", "1"]
    looked = runner.invoke(store_command, [*options, "--dry-run"])
    assert looked.output == (
        "0 inputs, 0 snapshots, 0 keys, 0 jobs and 0 rows of the log would go\n"
    )
    store = Store(tmp_path / "rota.db")
    store.change_fact("epoch_unix", repr(store.epoch_unix - 3 * DAY))
    store.close()
    looked = runner.invoke(store_command, [*options, "--dry-run"])
    done = runner.invoke(store_command, options)
    assert looked.output.replace("would go", "went") == done.output
    assert "1 snapshots, 13 keys, 0 jobs and 0 rows of the log went" in done.output
    assert (tmp_path / "rota.db").stat().st_size <= size
    again = runner.invoke(store_command, ["prune", "--state", str(tmp_path)])
    assert again.output == "0 inputs, 0 snapshots, 0 keys, 0 jobs and 0 rows of the log went\n"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("journal_days: 0.5", "journal_days is 0.5: give 1 or more"),
        ("folders_days: -1", "folders_days is -1"),
        ("log_mib: 0", "log_mib 0"),
        ("log_files: 5000", "log_files 5000"),
        ("jobs_weeks: 3", "there is no such key"),
        ("jobs_days: 0", "jobs_days is 0"),
        ("jobs_count: 0", "jobs_count is 0"),
        ("every_s: 0", "every_s is 0"),
    ],
)
def test_mistakes_in_the_configuration(tmp_path, said, why):
    file = tmp_path / "rota.yaml"
    file.write_text(f"retention:\n  {said}\n")
    with pytest.raises(InputError, match=why):
        read_settings(file, {})


# --- folders of jobs ------------------------------------------------------------------------------


def test_whose_folders_need_not_be_kept(running, alice, file):
    settings = Settings(retention=Retention(folders_days=1))
    with running(settings=settings) as daemon:
        ended, runs = daemon.submit([file(lasts=0), file(lasts=1e6)], alice)
        daemon.cancel(ended.id, alice)
        while daemon._ask(
            lambda: any(run.job.id == ended.id for run in daemon.state.cluster.runs.by_id.values())
        ):
            time.sleep(0.01)  # it is being stopped
        asked = [ended.id, runs.id, "99", "x", "-1", "²"]
        assert daemon.expired(asked) == [], "it ended just now"
        daemon._ask(lambda: setattr(daemon.state.engine.jobs[int(ended.id)], "end_s", -2 * DAY))
        # while its run is ending, its folder is in use
        eventually(lambda: daemon.expired(asked) == [ended.id])
        daemon._settings = Settings()
        assert daemon.expired(asked) == [], "for ever"


def test_an_agent_names_folders_in_turn_and_discards_them(tmp_path):
    folder = AgentFolder(tmp_path / "agent")
    for job in (3, 20, 100, 7):
        folder.job_folders(str(job))
    (folder.jobs / "notes").mkdir()
    now = time.time() + 10
    assert folder.stale_jobs(now - 1000, 0, 10) == []
    assert folder.stale_jobs(now, 0, 2) == ["3", "7"]
    assert folder.stale_jobs(now, 7, 10) == ["20", "100"]
    folder.discard("20")
    folder.discard("5000")
    assert not (folder.jobs / "20").exists()
    assert folder.stale_jobs(now, 7, 10) == ["100"]
    folder.close()


# --- the log of the daemon ------------------------------------------------------------------------


def test_the_log_file_is_private_and_rotates(tmp_path):
    path = tmp_path / "rota.log"
    file = open_log(path, 2_000, 2)
    for number in range(300):
        file.write(f"line {number} of a log that goes on\n")
        file.write("\n")
    file.close()
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["rota.log", "rota.log.1", "rota.log.2"]
    assert path.read_text().splitlines()[-1] == "line 299 of a log that goes on"
    assert all(each.stat().st_size <= 2_000 for each in tmp_path.iterdir())
    assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}
    with pytest.raises(InputError, match=r"log_file .*cannot be written"):
        open_log(tmp_path / "none" / "rota.log", 2_000, 2)


@pytest.mark.parametrize("problem", [RotaError("busy"), KeyError("a bug")])
def test_a_step_that_fails_does_not_end_the_others(problem, caplog):
    steps, again = [], threading.Event()

    def step():
        steps.append(len(steps))
        if len(steps) == 1:
            raise problem
        again.set()

    thread = PeriodicThread("test", step, 0.0)
    thread.start()
    assert again.wait(60)
    thread.stop()
    assert thread.stopped
    assert [record.getMessage().split(".")[0] for record in caplog.records] == ["test"]
