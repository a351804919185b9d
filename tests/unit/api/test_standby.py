"""What a daemon answers that does not lead."""

import httpx2
import pytest

from fake_service import FakeService
from rota.api import ApiSettings, create_app, create_standby, listen, serve
from rota.core.turns import LEADER


@pytest.fixture
def ask():
    """Return `ask(app, path)`: the answer of an app that is served."""
    served = []

    def get(app, path, method="GET"):
        server = serve(app, listener=listen("127.0.0.1", 0))
        served.append(server)
        return httpx2.request(method, server.url + path, trust_env=False, timeout=60)

    yield get
    for server in served:
        server.stop()


def test_one_that_stands_by_names_the_leader(ask):
    app = create_standby(ApiSettings(), lambda: "http://leader:1")
    answer = ask(app, "/api/v1/jobs", "POST")
    assert answer.status_code == 421
    assert answer.headers[LEADER] == "http://leader:1"
    assert answer.json()["remedy"] == "ask http://leader:1"


def test_one_that_stands_by_is_healthy_and_not_ready(ask):
    app = create_standby(ApiSettings(), lambda: "")
    assert ask(app, "/healthz").json() == {"ok": True}
    answer = ask(app, "/readyz")
    assert (answer.status_code, answer.json()["why"]) == (503, "stands by; nobody leads")


def test_one_that_leads_no_more_answers_nothing(ask):
    leads = [True]
    app = create_app(FakeService(), leads=lambda: leads[0])
    assert ask(app, "/healthz").status_code == 200
    leads[0] = False
    answer = ask(app, "/api/v1/jobs")
    assert answer.status_code == 421
    assert answer.headers["Retry-After"] == "1"
