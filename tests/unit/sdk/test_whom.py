"""Whom a client talks to: tokens are for the daemon, not for whoever listens where it was."""

import asyncio
import os
import socket

import pytest
from structlog.testing import capture_logs

from rota.api.app import create_app
from rota.api.serving import listen_locally, serve
from rota.core.errors import ForbiddenError, RotaError, UnavailableError
from rota.sdk import AsyncClient, Client
from rota.sdk.place import find_place
from rota.wire import Actor
from strangers import listening


def relay(port):
    """Return a function that passes requests on to a port, and the answer back."""

    def ask(data):
        with socket.create_connection(("127.0.0.1", port), timeout=300) as line:
            line.sendall(data)
            answer = line.recv(1 << 16)
            while b"}" not in answer:
                answer += line.recv(1 << 16)
            return answer

    return ask


def port_of(url):
    return int(url.rpartition(":")[2])


def test_a_stranger_never_hears_a_token(url):
    with listening() as stranger:
        with Client(stranger.url, "admin-token", patience_s=0) as rota:
            with pytest.raises(ForbiddenError, match="cannot prove that it is your daemon"):
                rota.whoami()
            with pytest.raises(ForbiddenError, match="no token was sent"):
                list(rota.events(follow=True))
        assert b"/api/v1/proof" in stranger.heard
        assert b"admin-token" not in stranger.heard
        assert b"whoami" not in stranger.heard


def test_nor_in_an_event_loop(url):
    async def ask(server):
        async with AsyncClient(server, "admin-token", patience_s=0) as rota:
            return await rota.whoami()

    with listening() as stranger:
        with pytest.raises(ForbiddenError, match="cannot prove"):
            asyncio.run(ask(stranger.url))
        assert b"admin-token" not in stranger.heard
    assert asyncio.run(ask(url)).name == "ada"


def test_who_passes_it_on_to_the_daemon_has_another_port(url, monkeypatch):
    with listening(answer=relay(port_of(url))) as stranger:
        with (
            Client(stranger.url, "admin-token", patience_s=0) as rota,
            pytest.raises(ForbiddenError, match=f"port {port_of(url)} says.*ROTA_TUNNEL=1"),
        ):
            rota.whoami()
        assert b"admin-token" not in stranger.heard
        monkeypatch.setenv("ROTA_TUNNEL", "1")
        with Client(stranger.url, "admin-token", patience_s=0) as rota:
            assert rota.whoami().name == "ada"


def test_a_connection_that_breaks_off_is_tried_again(url, monkeypatch):
    monkeypatch.setenv("ROTA_TUNNEL", "1")
    pass_on, hung_up = relay(port_of(url)), []

    def answer(data):
        if not hung_up:
            hung_up.append(data)
            raise OSError
        return pass_on(data)

    with (
        listening(answer=answer) as stranger,
        Client(stranger.url, "admin-token", patience_s=300) as rota,
    ):
        assert rota.whoami().name == "ada"
        assert stranger.heard.count(b"/api/v1/proof") == 2
    assert b"admin-token" not in hung_up[0]


def test_an_old_token_is_refused_before_it_is_sent(url):
    with (
        Client(url, "revoked", patience_s=0) as rota,
        pytest.raises(ForbiddenError, match="does not accept the token"),
    ):
        rota.whoami()


# --- the socket ----------------------------------------------------------------------------------


@pytest.fixture
def local(service, tmp_path, monkeypatch):
    """Return the socket of a daemon whose owner we are; its address is too long for a socket."""
    for name in ("ROTA_SERVER", "ROTA_TOKEN", "ROTA_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / ("x" * 120)
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("ROTA_STATE", str(folder))
    peers = {os.geteuid(): Actor("local", "admin")}
    with capture_logs():
        line = listen_locally(folder / "rota.sock")
        server = serve(create_app(service, peers=peers), port=0, local=line)
        text = f'{{"url": "{server.url}", "socket": "{folder}/rota.sock"}}'
        (folder / "server.json").write_text(text)
        yield folder / "rota.sock"
        server.stop()


def test_the_daemon_of_this_machine_is_reached_by_its_socket_without_a_token(local):
    assert local.stat().st_mode & 0o777 == 0o600
    (local.parent / "token").touch(0o600)
    (local.parent / "token").write_text("admin-token")
    place = find_place()
    assert (place.socket, place.token) == (str(local), "")
    with Client() as rota:
        assert rota.whoami() == Actor("local", "admin")
    with Client(f"unix:{local}", "user-token") as rota:  # a token says more than a uid
        assert rota.whoami().name == "ursula"
    with Client(f"unix:{local}", "wrong") as rota, pytest.raises(ForbiddenError):
        rota.whoami()

    async def ask():
        async with AsyncClient() as rota:
            return await rota.whoami()

    assert asyncio.run(ask()).name == "local"


def test_who_is_not_known_on_the_socket_is_nobody(service, tmp_path, monkeypatch):
    monkeypatch.setenv("ROTA_STATE", str(tmp_path))
    with capture_logs():
        path = tmp_path / "open.sock"
        server = serve(create_app(service), port=0, local=listen_locally(path, 0o666))
        assert path.stat().st_mode & 0o777 == 0o666
        with Client(f"unix:{path}") as rota, pytest.raises(ForbiddenError, match="wants a token"):
            rota.whoami()
        server.stop()


def test_a_socket_without_a_daemon(local):
    nobody = f"unix:{local.parent}/none.sock"
    with (
        Client(nobody, patience_s=0) as rota,
        pytest.raises(UnavailableError, match=f"at {nobody} "),
    ):
        rota.whoami()

    async def ask():
        async with AsyncClient(nobody, patience_s=0) as rota:
            return await rota.whoami()

    with pytest.raises(UnavailableError, match="no daemon answers"):
        asyncio.run(ask())
    with pytest.raises(RotaError, match="no daemon answers"):
        Client(f"unix:{local.parent}/none/{'x' * 100}.sock")
