"""Connections that are silent, slow or many keep nobody out."""

import contextlib
import socket
from types import SimpleNamespace

import pytest

from agents_net import eventually
from rota.api.door import GuardedProtocol

HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
FOREVER_S = 3600.0


@pytest.fixture
def sockets():
    opened = []

    def connect(port, data=b""):
        made = socket.create_connection(("127.0.0.1", port), timeout=300)
        opened.append(made)
        if data:
            made.sendall(data)
        return made

    yield connect
    for each in opened:
        each.close()


def is_closed(connection):
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_silent_connections_give_way(make_server, sockets):
    server, web = make_server(connections=20, head_timeout_s=FOREVER_S)
    silent = [sockets(server.port) for _ in range(60)]
    assert web.get("/api/v1/nodes").status_code == 200
    assert all(is_closed(connection) for connection in silent[:40])
    assert len(server.door._guests) <= 20


def test_half_a_request_is_silence(make_server, sockets):
    server, web = make_server(connections=20, head_timeout_s=FOREVER_S)
    for _ in range(60):
        sockets(server.port, HEAD)
    assert web.get("/api/v1/nodes").status_code == 200


def test_a_silent_connection_is_closed_after_a_while(make_server, sockets):
    server, web = make_server(head_timeout_s=0.05, keep_alive_s=int(FOREVER_S))
    assert is_closed(sockets(server.port))
    assert is_closed(sockets(server.port, HEAD))
    server.door.head_timeout_s = FOREVER_S
    assert web.get("/healthz").status_code == 200
    second = sockets(server.port, HEAD + b"\r\n")
    assert second.recv(1 << 16).startswith(b"HTTP/1.1 200")
    server.door.head_timeout_s = 0.05
    second.sendall(HEAD)  # the beginning of another one, and no end of it
    while not is_closed(second):
        pass


def test_connections_of_agents_keep_their_places(make_server, sockets):
    server, agent = make_server(
        "agent-token", connections=20, head_timeout_s=FOREVER_S, keep_alive_s=int(FOREVER_S)
    )
    assert agent.post("/api/v1/agent/sync", content=b"{}").status_code == 404  # there are none here
    guests = server.door._guests
    (kept,) = eventually(lambda: [guest for guest in list(guests) if guest.role == "agent"])
    for _ in range(60):
        sockets(server.port, HEAD)
    eventually(lambda: len(server.door._guests) == 20)
    assert kept in server.door._guests
    assert not kept.transport.is_closing()


def test_an_agent_does_not_give_way_where_nobody_else_could(make_server, sockets):
    server, agent = make_server(
        "agent-token", connections=1, head_timeout_s=FOREVER_S, keep_alive_s=int(FOREVER_S)
    )
    assert agent.post("/api/v1/agent/sync", content=b"{}").status_code == 404
    guests = server.door._guests
    (kept,) = eventually(lambda: [guest for guest in list(guests) if guest.role == "agent"])
    newcomer = sockets(server.port, HEAD)
    eventually(lambda: is_closed(newcomer) or server.door.turned_away)
    assert server.door.turned_away
    assert kept in server.door._guests


def test_one_address_cannot_take_all_places(make_server, sockets):
    server, web = make_server(
        connections=1000, connections_per_address=10, head_timeout_s=FOREVER_S
    )
    silent = [sockets(server.port) for _ in range(30)]
    assert web.get("/api/v1/nodes").status_code == 200
    assert all(is_closed(connection) for connection in silent[:20])


def test_who_is_busy_is_not_sent_away(make_server, service, sockets):
    """All places are taken by requests that are being answered: a newcomer has to come again."""
    server, _ = make_server(connections=2, head_timeout_s=FOREVER_S)
    stream = HEAD.replace(b"/healthz", b"/api/v1/events/stream")
    busy = [
        sockets(server.port, stream + b"Authorization: Bearer user-token\r\n\r\n") for _ in range(2)
    ]
    for connection in busy:
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
    assert is_closed(sockets(server.port))
    assert server.door.turned_away == 1


def test_a_body_of_two_lengths_is_refused_on_the_wire(make_server, sockets):
    server, _ = make_server()
    head = b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer user-token\r\n"
    both = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = sockets(server.port, head + both + b"0\r\n\r\n").recv(1 << 16)
    assert answer.startswith(b"HTTP/1.1 400")


def test_who_does_not_read_an_answer_is_hung_up_on(make_server, service, sockets):
    server, web = make_server(stalled_s=0.05)
    whole = 32 << 20
    service.logs = lambda *args, **options: b"x" * whole
    (job,) = web.post("/api/v1/jobs", json={"run": "x"}).json()
    head = HEAD.replace(b"/healthz", b"/api/v1/jobs/%s/logs" % job["id"].encode())
    token = web.headers["Authorization"].encode()
    asked = sockets(server.port, head + b"Authorization: " + token + b"\r\n\r\n")
    eventually(lambda: server.door.hung_up)
    taken = 0
    with contextlib.suppress(ConnectionResetError):
        while data := asked.recv(1 << 20):
            taken += len(data)
    assert taken < whole


def test_who_reads_slowly_may_go_on(make_server):
    server, _ = make_server()
    left, looks, aborted = [90], [], []
    guest = GuardedProtocol.__new__(GuardedProtocol)
    guest._door = server.door
    guest.loop = SimpleNamespace(call_later=lambda s, look, before: looks.append((look, before)))
    guest.transport = SimpleNamespace(
        get_write_buffer_size=lambda: left[0], abort=lambda: aborted.append(left[0])
    )
    guest._expect_reader()
    for left[0] in (89, 20, 20):
        assert not aborted
        look, before = looks.pop()
        look(before)
    assert (aborted, looks) == ([20], [])
