"""Clients of daemons that take turns."""

import httpx2
import pytest

from rota.core.errors import UnavailableError
from rota.core.turns import LEADER
from rota.sdk import Client

A, B = "http://127.0.0.1:1", "http://127.0.0.1:2"


def asked_at(answer, servers):
    """Ask for the nodes; the addresses that were asked."""
    asked = []

    def noted(request):
        server = f"{request.url.scheme}://{request.url.netloc.decode()}"
        asked.append(server)
        return answer(server)

    with Client(servers, "t", patience_s=5.0, transport=httpx2.MockTransport(noted)) as client:
        client.nodes()
        client.nodes()
    return asked


def leads(server):
    """B does."""
    if server == B:
        return httpx2.Response(200, json=[])
    body = {"error": "this daemon does not lead", "kind": "unavailable", "remedy": f"ask {B}"}
    return httpx2.Response(421, json=body, headers={LEADER: B})


def test_a_client_asks_the_one_that_leads():
    assert asked_at(leads, f"{A},{B}") == [A, B, B]


def test_a_client_asks_the_next_one_when_one_is_gone():
    def answer(server):
        if server == A:
            raise httpx2.ConnectError("refused")
        return leads(server)

    assert asked_at(answer, f"{A},{B}") == [A, B, B]


def test_a_client_that_knows_one_address_is_told_the_other(monkeypatch):
    with (
        Client(A, "t", patience_s=0, transport=httpx2.MockTransport(lambda _: leads(A))) as client,
        pytest.raises(UnavailableError, match=f"does not lead: ask {B}"),
    ):
        client.nodes()
