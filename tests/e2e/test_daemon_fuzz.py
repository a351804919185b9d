"""The same generated requests, on the real daemon: nothing that is sent makes it fail."""

import threading

import pytest
import structlog
from hypothesis import HealthCheck, settings

from e2e.test_api_fuzz import CHECKS, KNOWN, LIMITS, PATIENCE_S, echo, schema_of
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

FEWER = settings(
    max_examples=settings().max_examples // 2, suppress_health_check=list(HealthCheck)
)  # the same requests are sent to the service in test_api_fuzz.py


class Later:
    """Stands for a daemon that starts when the tests do: they are made before that."""

    target = None

    def __getattr__(self, name):
        return getattr(self.target, name)


LATER = Later()
APP = create_app(LATER, settings=LIMITS, agent_sync=echo)
schema = schema_of(APP)


@pytest.fixture(scope="module")
def headers(tmp_path_factory):
    """Start the daemon (tiresias, four nodes); return the headers of its administrator."""
    store = Store(tmp_path_factory.mktemp("fuzz") / "rota.db", durable=False)
    loop = DaemonLoop(store, PretendDriver(), Scheduling(policy="tiresias"), Topology.uniform(4, 4))
    tokens = Tokens(store)
    daemon = LATER.target = Daemon(loop, tokens)
    thread = threading.Thread(target=daemon.run)
    thread.start()
    daemon.submit([JobFile(run="true")] * len(KNOWN), Actor("ada", "admin"))
    token = tokens.create("fuzzer", "admin")
    with structlog.testing.capture_logs():
        yield {"Authorization": f"Bearer {token}"}
    failure = daemon.failure
    daemon.stop()
    thread.join(20)
    store.close()
    assert not failure


@schema.parametrize()
@FEWER
def test_no_request_breaks_the_real_daemon(headers, case):
    case.call_and_validate(headers=headers, checks=CHECKS, timeout=PATIENCE_S)


@schema.include(path_regex=r"\{").parametrize()
@FEWER
def test_no_request_about_something_that_exists_breaks_it(headers, case):
    number = len(repr(case.query)) + len(repr(case.body))
    for name, known in {"job": KNOWN, "node": ("n1", "n2")}.items():
        if name in case.path_parameters:
            case.path_parameters[name] = known[number % len(known)]
    case.validate_response(case.call(headers=headers, timeout=PATIENCE_S), checks=CHECKS)
