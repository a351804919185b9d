"""People log in at a real daemon, by a stand-in for an identity provider, and are put out again."""

import subprocess

import httpx2
import pytest
import yaml

from agents_net import eventually
from daemon_process import PATIENCE_S, ROTA, clean_environ
from oidc_provider import CLIENT, make_key, running_provider
from rota.core.errors import ForbiddenError
from rota.sdk import Client


@pytest.fixture
def stand_in():
    with running_provider(make_key()) as provider:
        yield provider


@pytest.fixture
def daemon(daemons, stand_in, tmp_path):
    config = tmp_path / "rota.yaml"
    oidc = {"issuer": stand_in.issuer, "client_id": CLIENT, "roles": {"users": "user"}}
    config.write_text(yaml.safe_dump({"cluster": "1x1", "backend": "pretend", "oidc": oidc}))
    return daemons("--config", config)


class Person:
    """Somebody with a home of their own, on the daemon's machine."""

    def __init__(self, daemon, home):
        self.env = clean_environ(
            ROTA_SERVER=f"unix:{daemon.state / 'rota.sock'}", XDG_CONFIG_HOME=home, HOME=home
        )
        self.session = home / "rota" / "sessions"

    def rota(self, *args):
        return subprocess.run(
            [*ROTA, *args], check=False, env=self.env, capture_output=True, text=True,
            timeout=PATIENCE_S,
        )  # fmt: skip

    def log_in(self):
        """Run `rota login` and visit the address that it prints; what it says at the end."""
        command = subprocess.Popen(
            [*ROTA, "login"], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        url = command.stdout.readline().strip()
        page = httpx2.get(url, follow_redirects=True, trust_env=False)
        assert page.text == "Go back to your terminal.\n"
        _, said = command.communicate(timeout=PATIENCE_S)
        return command.returncode, said

    def token(self):
        (kept,) = self.session.iterdir()
        assert kept.stat().st_mode & 0o777 == 0o600
        return kept.read_text().strip()


def test_a_person_logs_in_and_is_put_out(daemon, stand_in, tmp_path):
    ann = Person(daemon, tmp_path / "ann")
    code, said = ann.log_in()
    assert code == 0, said
    assert "logged in as ann (user) until" in said
    listed = ann.rota("session", "ls", "-o", "json")
    assert '"user": "ann"' in listed.stdout, listed.stderr
    refused = ann.rota(
        "token", "ls"
    )  # by the kernel they are the daemon's owner: a token says more
    assert "role user may not do this" in refused.stderr
    token = ann.token()

    daemon.kill()
    daemon.start()  # the session is in the store
    with daemon.connect(token=token) as client:
        assert client.whoami().name == "ann"
        daemon.rota("user", "disable", "ann")
        with pytest.raises(ForbiddenError, match=r"does not accept the token|no valid token"):
            client.whoami()
    assert "ann is disabled" in ann.log_in()[1]
    daemon.rota("user", "enable", "ann")
    assert ann.log_in()[0] == 0
    assert ann.rota("logout").returncode == 0
    assert not list(ann.session.iterdir())
    assert "you are not logged in" in ann.rota("logout").stderr
    audit = daemon.rota("store", "audit", "--state", daemon.state).stdout
    assert audit.count("ann logged in: session") == 2
    assert token not in audit + daemon.log()


def test_a_browser_logs_in(daemon, stand_in):
    url = daemon.client.place.server
    with httpx2.Client(base_url=url, trust_env=False) as browser:
        there = browser.get("/web/oidc")
        assert there.status_code == 303
        back = browser.get(there.headers["Location"]).headers["Location"]
        with httpx2.Client(base_url=url, trust_env=False) as other:  # which began nothing
            assert other.get(back).status_code == 401
        page = browser.get(back)
        assert page.status_code == 200, page.text
        assert 'content="0;url=/"' in page.text
        assert browser.get("/api/v1/status").status_code == 200
        assert browser.get(back).status_code == 401  # once
        (session,) = daemon.client.sessions()
        assert (session.user, session.via) == ("ann", "web")
        daemon.rota("session", "revoke", session.id)
        assert browser.get("/api/v1/status").status_code == 401


def test_no_log_in_where_anybody_could_answer(daemon, tmp_path):
    ann = Person(daemon, tmp_path / "ann")
    ann.env["ROTA_SERVER"] = daemon.client.place.server
    said = ann.rota("login")
    assert said.returncode == 2
    assert "anybody could answer there" in said.stderr


def test_limits_of_a_person_hold_at_once(daemon):
    daemon.rota("user", "add", "bob", "--max-jobs", "1")
    token = daemon.rota(
        "token", "create", "bob-ci", "--user", "bob", "--valid", "1h"
    ).stdout.strip()
    with daemon.connect(token=token) as bob:
        bob.submit({"run": "true", "resources": {"gpus": 1}})
        with pytest.raises(ForbiddenError, match="1 are allowed"):
            bob.submit({"run": "true", "resources": {"gpus": 1}})
        daemon.rota("user", "change", "bob", "--max-jobs", "any")
        bob.submit({"run": "true", "resources": {"gpus": 1}})
        assert eventually(lambda: len(list(bob.jobs())) == 2)
    assert "bob-ci   user    bob" in daemon.rota("token", "ls").stdout
    assert isinstance(daemon.client, Client)
