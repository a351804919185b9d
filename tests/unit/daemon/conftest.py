"""A daemon in this process, whose jobs only pretend to run."""

import threading
from contextlib import closing, contextmanager

import pytest

from rota.core.topology import Topology
from rota.daemon.loop import DaemonLoop
from rota.daemon.service import Daemon
from rota.daemon.settings import Scheduling
from rota.daemon.store import Store
from rota.daemon.tokens import Tokens
from rota.engine.invariants import Invariants
from rota.jobfile.model import JobFile, Resources
from rota.live.clock import WallClock
from rota.live.drivers.pretend import PretendDriver
from rota.wire import Actor


@contextmanager
def a_daemon(
    path, *, nodes=(2, 2), patient=False, driver=None, config=None, settings=None,
    clock=WallClock, provider=None, **scheduling,
):  # fmt: skip
    with closing(Store(path, durable=False)) as store:
        loop = DaemonLoop(
            store, driver or PretendDriver(), Scheduling(**scheduling),
            Topology.uniform(*nodes) if nodes else Topology((), growing=True), checker=Invariants,
            patient=patient, clock=clock,
        )  # fmt: skip
        daemon = Daemon(loop, Tokens(store), config=config, settings=settings, provider=provider)
        thread = threading.Thread(target=daemon.run)
        thread.start()
        try:
            yield daemon
        finally:
            daemon.stop()
            thread.join(300)
    assert not thread.is_alive()
    assert not daemon.failure


@pytest.fixture(scope="session")
def new_daemon():
    """Return what makes a daemon on a store of its own, for fixtures that many tests share."""
    return a_daemon


@pytest.fixture
def running(tmp_path):
    """Make daemons on the same store, one after the other."""

    def make(**options):
        return a_daemon(tmp_path / "rota.db", **options)

    return make


@pytest.fixture
def daemon(running):
    with running() as daemon:
        yield daemon


@pytest.fixture
def alice():
    return Actor("alice", "user")


@pytest.fixture
def bob():
    return Actor("bob", "user")


@pytest.fixture
def operator():
    return Actor("olga", "operator")


@pytest.fixture
def admin():
    return Actor("root", "admin")


@pytest.fixture
def viewer():
    return Actor("screen", "viewer")


@pytest.fixture
def file():
    def make(gpus=1, lasts=60, **rest):
        return JobFile(
            run="true", resources=Resources(gpus=gpus), envs={"PRETEND_S": str(lasts)}, **rest
        )

    return make
