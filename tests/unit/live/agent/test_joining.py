"""Joining where several servers take turns."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rota.core.errors import UnavailableError
from rota.live.agent import transport
from rota.live.agent.identity import AgentIdentity, JoinCode


@pytest.fixture
def busy():
    """Return the address of a server that cannot answer now."""

    class Busy(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(503)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Busy)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_server_that_cannot_show_its_authority_now_is_passed_over(busy, tmp_path, monkeypatch):
    """The next one is asked; it is no impostor, which would end the agent."""
    asked = []
    pinned = transport._pinned

    def counted(server, code):
        asked.append(server)
        return pinned(busy, code)

    monkeypatch.setattr(transport, "_pinned", counted)
    code = JoinCode("secret", "pin")
    with pytest.raises(UnavailableError, match="https://b cannot be reached"):
        transport.join("https://a,https://b", code, "n1", AgentIdentity(tmp_path))
    assert asked == ["https://a", "https://b"]
