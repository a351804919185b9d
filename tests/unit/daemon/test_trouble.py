"""A store that is in trouble for a while: what could not be written did not happen."""

import threading
from pathlib import Path

import pytest

from agents_net import eventually
from rota.core.errors import UnavailableError
from rota.core.topology import NodeSpec
from rota.daemon import loop as loop_module
from rota.live.driver import NodeStatus
from rota.live.drivers.pretend import PretendDriver
from rota.wire import Actor

ALICE = Actor("alice", "user")
PROBLEM = "the store cannot be used: disk is full"


class Trouble:
    """Lets the store fail from now on, until it is over."""

    def __init__(self, store, monkeypatch):
        self.store, self.patch = store, monkeypatch
        self.failures = 0
        self.failed = threading.Event()

    def __enter__(self):
        def full(*args, **kwargs):
            self.failures += 1
            if self.failures > 1:
                self.failed.set()
            raise UnavailableError(PROBLEM)

        self.context = self.patch.context()
        patch = self.context.__enter__()
        for name in ("append", "save_snapshot", "probe"):
            patch.setattr(self.store, name, full, raising=False)
        return self

    def __exit__(self, *problem):
        self.context.__exit__(*problem)


def test_an_instant_that_could_not_be_written_is_not_passed_over(running, file, monkeypatch):
    """Tiresias acts when a job reaches a limit: only time makes it act, nobody tells anything.

    Each of twenty jobs reaches it, some of them while the store is in trouble; the last one stays.
    """
    with running(nodes=(1, 1), policy="tiresias:limits=0.2") as daemon:
        daemon.submit([file(1, 900.0)] * 20, ALICE)
        with Trouble(daemon.loop.store, monkeypatch) as trouble:
            assert trouble.failed.wait(300)
        eventually(lambda: sum(job.preemptions for job in daemon.jobs(ALICE)) == 19)
        eventually(lambda: daemon.job("20", ALICE).state == "RUNNING")
        before = daemon.jobs(ALICE)
        snapshot = daemon.loop.snapshot
        monkeypatch.setattr(daemon.loop, "snapshot", lambda: None)  # only the journal remains
    daemon.loop.snapshot = snapshot
    with running(nodes=(1, 1), policy="tiresias:limits=0.2") as daemon:
        after = daemon.jobs(ALICE)
        assert [(j.id, j.state, j.preemptions) for j in after] == [
            (j.id, j.state, j.preemptions) for j in before
        ]


def test_a_node_that_joins_meanwhile_joins_later(running, file, monkeypatch):
    driver = PretendDriver()
    with running(nodes=(1, 1), driver=driver) as daemon:
        with Trouble(daemon.loop.store, monkeypatch) as trouble:
            spec = NodeSpec("new", 4)
            daemon.loop.mailbox.post(NodeStatus("new", "up", spec))
            assert trouble.failed.wait(300)
            assert [node.name for node in daemon.nodes()] == ["n0"]
        eventually(lambda: [node.name for node in daemon.nodes()] == ["n0", "new"])
        assert not daemon.failure


def test_a_snapshot_that_fails_is_taken_later(running, file, monkeypatch):
    monkeypatch.setattr(loop_module, "SNAPSHOT_EVERY", 20)
    with running(nodes=(1, 1)) as daemon:
        taken = []
        save = daemon.loop.store.save_snapshot

        def failing(state):
            taken.append(len(state))
            if len(taken) < 3:
                raise UnavailableError(PROBLEM)
            save(state)

        monkeypatch.setattr(daemon.loop.store, "save_snapshot", failing)
        for _ in range(60):
            daemon.submit([file(1, 0.0)], ALICE)
        eventually(lambda: len(taken) > 2)
        assert not daemon.failure
    with running(nodes=(1, 1)) as daemon:
        assert len(daemon.jobs(ALICE)) == 60


def test_readiness_comes_back_by_itself(running, file, monkeypatch):
    with running(nodes=(1, 1)) as daemon:
        with Trouble(daemon.loop.store, monkeypatch):
            with pytest.raises(UnavailableError, match="disk is full"):
                daemon.submit([file()], ALICE)
            assert daemon.ready() == (False, PROBLEM)
        assert daemon.ready() == (True, "")


def test_the_lag_of_the_journal_is_told(running, file, monkeypatch):
    with running(nodes=(1, 1)) as daemon:
        daemon.submit([file(1, 0.0)], ALICE)
        assert daemon.status()["journal_lag_s"] == 0
        with Trouble(daemon.loop.store, monkeypatch) as trouble:
            daemon.loop.mailbox.post(NodeStatus("new", "up", NodeSpec("new", 4)))
            assert trouble.failed.wait(300)
            assert daemon.status()["journal_lag_s"] > 0
        eventually(lambda: len(daemon.nodes()) == 2)
        eventually(lambda: daemon.job("1", ALICE).state == "SUCCEEDED")
        assert daemon.status()["journal_lag_s"] == 0


def test_a_store_that_is_removed_under_the_daemon_is_noticed_at_once(running, file):
    with running(nodes=(1, 1)) as daemon:
        daemon.submit([file(1, 900.0)], ALICE)
        eventually(lambda: daemon.ready()[0])
        path = Path(daemon.loop.store.where)
        kept = path.with_suffix(".kept")
        path.rename(kept)
        ready, why = daemon.ready()
        assert not ready
        assert "was removed or replaced" in why
        with pytest.raises(UnavailableError, match="was removed or replaced"):
            daemon.submit([file()], ALICE)  # else it would be accepted and lost
        path.touch()
        assert daemon.ready()[0] is False
        kept.rename(path)
        assert daemon.ready() == (True, "")
        assert daemon.submit([file()], ALICE)[0].id == "2"


def test_an_agent_that_cannot_watch_its_jobs_is_told_by_readiness(running, monkeypatch):
    with running(nodes=(1, 1)) as daemon:
        eventually(lambda: daemon.ready()[0])
        monkeypatch.setattr(daemon.loop.driver, "trouble", lambda: "agent a: its watch fails")
        assert daemon.ready() == (False, "agent a: its watch fails")


def test_a_loop_that_is_stuck_is_told_by_readiness(running, monkeypatch):
    monkeypatch.setattr("rota.daemon.service.PROBE_S", 0.0)
    with running(nodes=(1, 1)) as daemon:
        release = threading.Event()
        stuck = threading.Event()

        def hang():
            stuck.set()
            release.wait(300)

        asking = threading.Thread(target=lambda: daemon._ask(hang))
        asking.start()
        assert stuck.wait(300)  # so it runs
        ready, why = daemon.ready()
        release.set()
        asking.join(300)
        assert not ready
        assert why.startswith("the scheduling loop: ")
