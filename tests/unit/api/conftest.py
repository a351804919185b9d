"""Apps over a daemon in memory, and clients for every role."""

import logging

import httpx2
import pytest
import structlog
from starlette.testclient import TestClient

from fake_service import FakeService
from rota.api import ApiSettings, create_app, serve

PLENTY = {"requests_per_s": 1e6, "burst": 1_000_000}


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture(autouse=True)
def logged():
    """Return what was logged, as dictionaries; nothing is printed."""
    with structlog.testing.capture_logs() as entries:
        yield entries


@pytest.fixture
def restore_logging():
    """Return the function that makes loggers; afterwards the settings are as before."""
    before = structlog.get_config()
    server = logging.getLogger("uvicorn")
    kept = (server.handlers, server.propagate, server.level)
    yield structlog.get_logger
    structlog.configure(**before)
    server.handlers, server.propagate, server.level = kept


@pytest.fixture
def service():
    return FakeService()


@pytest.fixture
def make_client(service):
    """Return `make_client(who, **settings)`: a client that calls the app without a network."""

    def make(who="user-token", export_log=None, agent_sync=None, **settings):
        app = create_app(
            service,
            settings=ApiSettings(**{**PLENTY, **settings}),
            agent_sync=agent_sync or (lambda body, token: b'{"orders":[]}'),
            export_log=export_log,
        )
        headers = bearer(who) if who else {}
        return TestClient(
            app, base_url="http://127.0.0.1", headers=headers, raise_server_exceptions=False
        )

    return make


@pytest.fixture
def client(make_client):
    """Return a client with the token of a user."""
    return make_client()


@pytest.fixture
def make_server(service):
    """Return `make_server(**settings)`: a server on a free port, and a client of it."""
    opened = []

    def make(who="user-token", **settings):
        server = serve(create_app(service, settings=ApiSettings(**{**PLENTY, **settings})), port=0)
        web = httpx2.Client(base_url=server.url, headers=bearer(who), timeout=300)
        opened.append((server, web))
        return server, web

    yield make
    for server, web in opened:
        web.close()
        server.stop()
