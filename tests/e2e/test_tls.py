"""A daemon that speaks HTTPS, and who trusts it."""

import shutil
import subprocess

import pytest

from agents_net import eventually
from daemon_process import DaemonProcess, ServedProcess
from needs import SYSTEM, need
from rota.core.errors import InputError, UnavailableError
from rota.sdk import Client


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for 127.0.0.1 that vouches for itself, its key, and another one."""
    need(shutil.which("openssl") is not None, "openssl, to make a certificate", SYSTEM)
    folder = tmp_path_factory.mktemp("tls")
    for name in ("rota", "other"):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
             "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext",
             "subjectAltName=IP:127.0.0.1", "-keyout", f"{name}.key", "-out", f"{name}.crt"],
            cwd=folder, check=True, capture_output=True, timeout=300,
        )  # fmt: skip
    return folder / "rota.crt", folder / "rota.key", folder / "other.crt"


class SecureDaemon(DaemonProcess):
    """With a certificate that only those know who were told."""

    ca = None

    def connect(self, *, token=None, patience_s=20.0):
        with super().connect(token=token) as unsafe:
            place = unsafe.place
        return Client(place.server, place.token, ca=self.ca, patience_s=patience_s)

    def stop(self):
        self._forget_client()  # the daemon would wait for it to say goodbye
        super().stop()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory, certificate):
    folder = tmp_path_factory.mktemp("secure")
    config = folder / "rota.yaml"
    config.write_text(f"tls_cert: {certificate[0]}\ntls_key: {certificate[1]}\n")
    daemon = SecureDaemon(folder, "--config", config)
    daemon.ca = certificate[0]
    try:
        yield daemon.start()
    finally:
        daemon.close()


def test_clients_trust_whom_they_are_told(daemon, certificate):
    known, _, other = certificate
    assert daemon.client.place.server.startswith("https://127.0.0.1:")
    assert daemon.client.status()["version"]
    server, token = daemon.client.place.server, daemon.client.place.token
    for words in ([], ["--ca", other]):
        done = daemon.rota("nodes", "--server", server, *words, check=False)
        assert done.returncode == 1
        assert "CERTIFICATE_VERIFY_FAILED" in done.stderr
        assert "ROTA_CA" in done.stderr
    assert daemon.rota("ls", "--server", server, "--ca", known).returncode == 0
    assert daemon.rota("ls").returncode == 0  # over its socket, which needs no certificate
    with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"), \
            Client(server, token, ca=other, patience_s=0) as client:  # fmt: skip
        client.status()
    with pytest.raises(InputError, match="no certificates there"):
        Client(server, token, ca=daemon.folder / "none")


def test_the_environment_names_the_authority(daemon, certificate, monkeypatch):
    monkeypatch.setenv("ROTA_CA", str(certificate[0]))
    server, token = daemon.client.place.server, daemon.client.place.token
    with Client(server, token) as client:
        assert client.place.ca == str(certificate[0])
        assert client.whoami().role == "admin"


def test_an_agent_trusts_whom_it_is_told(daemon, certificate):
    known, _, other = certificate
    doubting = daemon.agent("n0", "--ca", other)
    eventually(lambda: "name the file with its certificate with --ca" in doubting.text())
    assert doubting.stop() == 0
    agent = daemon.agent("n0", "--ca", known)
    job = daemon.submit("echo safe")
    daemon.until(job, "SUCCEEDED")
    assert daemon.output(job) == "safe\n"
    assert agent.stop() == 0
    assert "tokens travel unencrypted" not in daemon.log()


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A daemon with certificates of `rota tls init`."""
    folder = tmp_path_factory.mktemp("own")
    daemon = SecureDaemon(folder)
    daemon.rota("tls", "init", "--state", daemon.state, "--days", "30")
    daemon.ca = daemon.state / "tls" / "ca.pem"
    try:
        yield daemon.start()
    finally:
        daemon.close()


def test_one_command_makes_certificates_and_clients_here_find_them(own):
    assert own.client.place.server.startswith("https://127.0.0.1:")
    assert own.rota("nodes").returncode == 0  # which is told of no authority
    shown = own.rota("tls", "show", "--state", own.state).stdout
    assert "127.0.0.1" in shown
    assert "days_left: 29" in shown
    again = own.rota("tls", "init", "--state", own.state, check=False)
    assert again.returncode == 1
    assert "there is an authority already" in again.stderr


def test_a_new_certificate_is_used_after_a_reload(own):
    own.rota("tls", "renew", "--state", own.state, "--days", "30")
    assert own.rota("reload").stdout == "the certificate was replaced\n"
    assert own.rota("nodes").returncode == 0


def test_plain_text_is_refused_where_others_listen(tmp_path):
    daemon = DaemonProcess(tmp_path)
    said = ["serve", "--state", daemon.state, "--listen", "0.0.0.0:0"]
    done = daemon.rota(*said, check=False)
    assert done.returncode == 2
    assert "tokens would travel unencrypted" in done.stderr
    assert "rota tls init" in done.stderr


def joined_agent(daemon, name, code, *words):
    root = daemon.folder / f"agent-{name}"
    daemon.roots.append(root)
    return ServedProcess(
        daemon.folder / f"{name}.log", "agent", "--server", daemon.client.place.server,
        "--name", name, "--gpus", 1, "--root", root, *(["--join", code] if code else []), *words,
    )  # fmt: skip


def test_a_machine_joins_with_a_code_and_then_shows_its_certificate(own):
    code = own.rota("token", "join", "m1").stdout.strip()
    agent = joined_agent(own, "m1", code)
    eventually(lambda: [n.name for n in own.client.nodes() if n.state == "up"] == ["m1"])
    job = own.submit("echo safe")
    own.until(job, "SUCCEEDED")
    assert agent.stop() == 0
    thief = joined_agent(own, "m2", code)  # the code was used, and is for another name
    assert thief.process.wait(300) != 0
    assert "the code is not good for node 'm2'" in thief.text()
    token = own.rota("token", "create", "rack", "--role", "agent").stdout.strip()
    file = own.folder / "rack.token"
    file.write_text(token)
    file.chmod(0o600)
    uninvited = joined_agent(own, "m3", "", "--token-file", file, "--ca", own.ca)
    eventually(lambda: "was not invited" in uninvited.text())
    assert uninvited.stop() == 0
    again = joined_agent(own, "m1", "")  # it needs no code any more
    eventually(lambda: "agent.started" in again.text())
    own.until(own.submit("echo again"), "SUCCEEDED")
    own.rota("token", "revoke", "m1")
    eventually(lambda: "the server says 401" in again.text())
    assert again.stop() == 0
    assert {node.name for node in own.client.nodes()} == {"m1"}


def test_nothing_is_sent_to_another_server_than_the_code_names(own, tmp_path):
    code = own.rota("token", "join", "m4").stdout.strip()
    other = SecureDaemon(tmp_path)
    other.rota("tls", "init", "--state", other.state)
    other.ca = other.state / "tls" / "ca.pem"
    other.start()
    try:
        lured = joined_agent(other, "m4", code)
        assert lured.process.wait(300) != 0
        assert "nothing was sent" in lured.text()
    finally:
        other.close()
