"""A daemon in memory behind the real API, on a free port."""

import pytest
from structlog.testing import capture_logs

from fake_service import FakeService
from rota.api.app import create_app
from rota.api.serving import serve
from rota.sdk import Client


@pytest.fixture
def service():
    return FakeService()


@pytest.fixture
def url(service, monkeypatch, tmp_path):
    monkeypatch.setenv("ROTA_STATE", str(tmp_path / "state"))
    for name in ("ROTA_SERVER", "ROTA_TOKEN", "ROTA_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    with capture_logs():
        server = serve(create_app(service), port=0)
        yield server.url
        server.stop()


@pytest.fixture
def client(url):
    with Client(url, "admin-token", patience_s=2) as made:
        yield made
