"""What happens when a policy or the store lets the daemon down."""

import threading
from contextlib import ExitStack, closing

import pytest

from agents_net import eventually
from rota.core.errors import OptionError, PolicyError, UnavailableError
from rota.core.topology import Topology
from rota.daemon.loop import DaemonLoop
from rota.daemon.service import Daemon
from rota.daemon.settings import Scheduling
from rota.daemon.store import Store
from rota.daemon.tokens import Tokens
from rota.live.drivers.pretend import PretendDriver
from rota.wire import Actor

ALICE = Actor("alice", "user")

BROKEN = '''
from rota.core.policy import PriorityPolicy


class Broken(PriorityPolicy):
    """Fails at the third job."""

    name = "broken"

    def key(self, job, now_s):
        return float("nan") if job.index == 3 else job.index
'''


def make(path, policy):
    with ExitStack() as opened:
        store = opened.enter_context(closing(Store(path, durable=False)))
        scheduling = Scheduling(policy=policy)
        loop = DaemonLoop(store, PretendDriver(), scheduling, Topology.uniform(1, 4))
        opened.pop_all()
    return Daemon(loop, Tokens(store))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_broken_policy_ends_the_daemon_and_another_one_goes_on(tmp_path, file):
    policy = tmp_path / "broken.py"
    policy.write_text(BROKEN)
    daemon = make(tmp_path / "rota.db", str(policy))
    thread = threading.Thread(target=daemon.run)
    thread.start()
    daemon.submit([file(4), file(1)], ALICE)
    assert daemon.submit([file(2, 0.0)], ALICE)[0].id == "3"  # accepted: it is in the store
    thread.join(300)
    assert "PolicyError" in daemon.failure
    assert daemon.ready() == (False, f"the daemon has failed: {daemon.failure}")
    daemon.loop.store.close()

    with pytest.raises(PolicyError, match="job 3"):  # it would only fail again
        make(tmp_path / "rota.db", str(policy))

    daemon = make(tmp_path / "rota.db", "fifo-skip")
    thread = threading.Thread(target=daemon.run)
    thread.start()
    assert [info.state for info in daemon.jobs(ALICE)][1:] == ["PENDING", "PENDING"]
    daemon.cancel("1", ALICE)
    assert daemon.job("3", ALICE).gpus == 2
    daemon.stop()
    thread.join(300)
    assert not daemon.failure
    daemon.loop.store.close()


def test_a_store_that_cannot_be_written_accepts_nothing_and_recovers(tmp_path, file, monkeypatch):
    daemon = make(tmp_path / "rota.db", "fifo")
    thread = threading.Thread(target=daemon.run)
    thread.start()
    daemon.submit([file(4, 0.3), file(4, 0.0)], ALICE)
    append = daemon.loop.store.append

    def full(*args, **kwargs):
        raise UnavailableError("the store cannot be used: disk is full")

    monkeypatch.setattr(daemon.loop.store, "append", full)
    with pytest.raises(UnavailableError, match="disk is full"):
        daemon.submit([file()], ALICE)
    assert daemon.ready() == (False, "the store cannot be used: disk is full")
    assert len(daemon.jobs(ALICE)) == 2
    monkeypatch.setattr(daemon.loop.store, "append", append)
    (third,) = daemon.submit([file(1, 0.0)], ALICE)
    assert third.id == "3"
    assert daemon.ready() == (True, "")
    eventually(lambda: {info.state for info in daemon.jobs(ALICE)} == {"SUCCEEDED"})
    assert [info.state for info in daemon.jobs(ALICE)] == ["SUCCEEDED"] * 3
    daemon.stop()
    thread.join(300)
    daemon.loop.store.close()


def test_a_wrong_policy_is_refused_before_anybody_is_told_that_it_is_ready(tmp_path):
    path = tmp_path / "rota.db"
    make(path, "fifo").loop.store.close()
    with pytest.raises(OptionError, match="did you mean 'fifo'"):
        make(path, "fiffo")
