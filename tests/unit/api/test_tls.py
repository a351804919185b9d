"""TLS at the door: handshakes that hang, certificates of clients, a new certificate."""

import socket
import ssl

import httpx2
import pytest

from agents_net import eventually
from rota.api import ApiSettings, create_app, serve
from rota.core.errors import InputError
from rota.core.membership import Membership
from rota.daemon.authority import Authority
from rota.live.agent.identity import AgentIdentity

FOREVER_S = 3600.0
HELLO = b"\x16\x03\x01\x02\x00"  # the beginning of a handshake, and no end of it


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    made = Authority.create(tmp_path_factory.mktemp("tls") / "tls")
    made.issue_server(["127.0.0.1"])
    return made


@pytest.fixture
def secure(service, authority):
    """Return `secure(**settings)`: a server with TLS, and a client that trusts it."""
    opened = []

    def make(**settings):
        certificate, key = map(str, authority.server)
        given = {"tls_clients": str(authority.folder / "ca.pem"), "keep_alive_s": int(FOREVER_S)}
        settings = ApiSettings(tls_cert=certificate, tls_key=key, **{**given, **settings})
        server = serve(create_app(service, settings=settings), port=0)
        opened.append(server.stop)
        web = httpx2.Client(
            base_url=server.url, verify=trusting(authority), trust_env=False, timeout=300,
            headers={"Authorization": "Bearer user-token"},
        )  # fmt: skip
        opened.append(web.close)
        return server, web

    yield make
    for close in reversed(opened):
        close()


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


def trusting(authority):
    return ssl.create_default_context(cafile=authority.folder / "ca.pem")


def is_closed(connection):
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_requests_are_answered_over_tls_only(secure, authority):
    server, web = secure()
    assert server.url.startswith("https://127.0.0.1:")
    for _ in range(3):
        assert web.get("/api/v1/whoami").json()["name"] == "ursula"
    with pytest.raises(httpx2.HTTPError):
        httpx2.get(server.url.replace("https", "http") + "/healthz", trust_env=False)
    with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx2.get(server.url + "/healthz", verify=ssl.create_default_context(), trust_env=False)


def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(secure, authority):
    """As a client does that need not wait: both are one piece on the wire."""
    server, _ = secure()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = trusting(authority).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with socket.create_connection(("127.0.0.1", server.port), timeout=300) as wire:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                wire.sendall(outgoing.read())
                incoming.write(wire.recv(1 << 16))
        tls.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        wire.sendall(outgoing.read())
        answer = b""
        while True:
            try:
                piece = tls.read(1 << 16)
            except ssl.SSLWantReadError:
                incoming.write(wire.recv(1 << 16))
                continue
            except ssl.SSLZeroReturnError:
                break
            if not piece:
                break
            answer += piece
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b'{"ok":true}')


@pytest.mark.parametrize("said", [b"", HELLO])
def test_silent_handshakes_give_way(secure, sockets, said):
    server, web = secure(connections=20, handshake_timeout_s=FOREVER_S)
    silent = [sockets(server.port, said) for _ in range(60)]
    assert web.get("/api/v1/nodes").status_code == 200
    assert all(is_closed(connection) for connection in silent[:40])
    assert len(server.door._guests) <= 20


@pytest.mark.parametrize("said", [b"", HELLO])
def test_a_handshake_has_its_time(secure, sockets, said):
    server, web = secure(handshake_timeout_s=0.05, head_timeout_s=FOREVER_S)
    assert is_closed(sockets(server.port, said))
    eventually(lambda: not server.door._guests)
    server.door.handshake_timeout_s = FOREVER_S
    assert web.get("/healthz").status_code == 200


def test_who_speaks_no_tls_is_sent_away(secure, sockets):
    server, _ = secure(handshake_timeout_s=FOREVER_S)
    rude = sockets(server.port, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    while not is_closed(rude):
        pass
    eventually(lambda: not server.door._guests)


def test_a_head_has_its_time_after_the_handshake(secure, sockets, authority):
    server, _ = secure(head_timeout_s=0.05)
    wrapped = trusting(authority).wrap_socket(sockets(server.port), server_hostname="127.0.0.1")
    assert is_closed(wrapped)
    wrapped.close()


def test_a_new_certificate_is_shown_without_a_restart(secure, authority):
    server, web = secure()
    assert web.get("/healthz").status_code == 200

    def shown():
        context = trusting(authority)
        with socket.create_connection(("127.0.0.1", server.port), timeout=300) as plain, \
                context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:  # fmt: skip
            return connection.getpeercert(binary_form=True)

    before = shown()
    assert not server.renew_certificate()
    assert shown() == before
    authority.issue_server()
    assert server.renew_certificate()
    after = shown()
    assert after != before
    assert web.get("/healthz").status_code == 200  # over the connection that there is
    authority.server[0].write_text("spoilt")
    with pytest.raises(InputError, match="belong together"):
        server.renew_certificate()
    assert shown() == after
    authority.issue_server()


def test_a_certificate_of_another_authority_is_refused(secure, authority, tmp_path):
    server, _ = secure()
    other = Authority.create(tmp_path / "other")
    identity = AgentIdentity(tmp_path / "n1")
    key, csr = identity.new_request("n1")
    given = other.certify(csr, "n1")
    identity.keep(Membership("n1", certificate=given.pem, authority=authority.pem), key)
    with pytest.raises(httpx2.HTTPError):
        httpx2.get(server.url + "/healthz", verify=identity.trusting(), trust_env=False)
