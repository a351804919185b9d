"""A daemon that speaks HTTPS, and who trusts it."""

import shutil
import subprocess

import pytest

from agents_net import eventually
from daemon_process import DaemonProcess
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
    for words in ([], ["--ca", other]):
        done = daemon.rota("nodes", *words, check=False)
        assert done.returncode == 1
        assert "CERTIFICATE_VERIFY_FAILED" in done.stderr
        assert "ROTA_CA" in done.stderr
    assert daemon.rota("ls", "--ca", known).returncode == 0
    server, token = daemon.client.place.server, daemon.client.place.token
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
