"""The same generated requests, on the real daemon: nothing that is sent makes it fail."""

import threading

import pytest
import structlog
from hypothesis import HealthCheck, settings
from schemathesis.generation.hypothesis.builder import HypothesisTestMode

from e2e.test_api_fuzz import (
    ABOUT_SOMETHING,
    ALL,
    BAD_INPUT,
    CHECKS,
    KNOWN,
    LIMITS,
    PATIENCE_S,
    echo,
    generated,
    schema_of,
)
from rota.api import create_app
from rota.core.topology import Topology
from rota.daemon.loop import DaemonLoop
from rota.daemon.service import Daemon
from rota.daemon.settings import Scheduling
from rota.daemon.store import Store
from rota.daemon.tokens import Tokens
from rota.jobfile.model import JobFile
from rota.live.drivers.pretend import PretendDriver
from rota.wire import Actor

DRAWN = settings(suppress_health_check=list(HealthCheck))
EVERY = tuple(HypothesisTestMode)
# Those for every limit in turn (some forty for an operation) are sent in test_api_fuzz.py.
SOME = (HypothesisTestMode.EXAMPLES, HypothesisTestMode.FUZZING)


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Start the daemon (tiresias, four nodes); yield its schema and the headers of an admin."""
    store = Store(tmp_path_factory.mktemp("fuzz") / "rota.db", durable=False)
    loop = DaemonLoop(store, PretendDriver(), Scheduling(policy="tiresias"), Topology.uniform(4, 4))
    tokens = Tokens(store)
    daemon = Daemon(loop, tokens)
    thread = threading.Thread(target=daemon.run)
    thread.start()
    daemon.submit([JobFile(run="true")] * len(KNOWN), Actor("ada", "admin"))
    token = tokens.create("fuzzer", "admin")
    with structlog.testing.capture_logs():
        app = create_app(daemon, settings=LIMITS, agent_sync=echo)
        yield schema_of(app), {"Authorization": f"Bearer {token}"}
    failure = daemon.failure
    daemon.stop()
    thread.join(20)
    store.close()
    assert not failure


def send(real, operation, modes, change=None):
    schema, headers = real

    def check(case):
        if change is not None:  # what was drawn as wrong may be right then
            change(case)
        checks = CHECKS if change else CHECKS + BAD_INPUT
        case.call_and_validate(headers=headers, checks=checks, timeout=PATIENCE_S)

    generated(schema, operation, check, DRAWN, modes)


def to_known(case):
    number = len(repr(case.query)) + len(repr(case.body))
    for name, known in {"job": KNOWN, "node": ("n1", "n2")}.items():
        if name in case.path_parameters:
            case.path_parameters[name] = known[number % len(known)]


@pytest.mark.parametrize("operation", ALL)
def test_no_request_breaks_the_real_daemon(real, operation):
    send(real, operation, SOME)


@pytest.mark.parametrize("operation", ABOUT_SOMETHING)
def test_no_request_about_something_that_exists_breaks_it(real, operation):
    send(real, operation, SOME, to_known)


@pytest.mark.soak
@pytest.mark.parametrize("operation", ALL)
def test_no_limit_of_a_request_breaks_the_real_daemon(real, operation):
    send(real, operation, EVERY)


@pytest.mark.soak
@pytest.mark.parametrize("operation", ABOUT_SOMETHING)
def test_no_limit_of_a_request_about_something_that_exists_breaks_it(real, operation):
    send(real, operation, EVERY, to_known)
