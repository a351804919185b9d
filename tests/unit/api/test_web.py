"""Browsers: codes that work once, and sessions."""

import base64
import re

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from rota.api.web import (
    CODE_S,
    MOST,
    MOST_EACH,
    SESSION_S,
    WebSessions,
    resume_text,
    web_session_id,
)
from rota.web import MEDIA, asset_names
from rota.wire import Actor, SessionBasis

ADA = Actor("ada", "admin")
OWN = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def browser(make_client, client):
    """Return a browser that is logged in as a user, and the answer to its login."""
    path = client.post("/api/v1/web/codes").json()["path"]
    made = make_client("")
    made.app.state.context.web = client.app.state.context.web
    answer = made.get(path, follow_redirects=False)
    return made, answer, path


def test_a_code_becomes_a_session_once(browser):
    web, answer, path = browser
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert f"Max-Age={int(SESSION_S)}" in cookie
    assert web.get("/api/v1/whoami").json()["name"] == "ursula"
    again = web.get(path, follow_redirects=False)
    assert (again.status_code, again.json()["error"]) == (401, "this code was used or is too old")


def test_a_page_of_another_server_cannot_act_in_its_name(browser, service):
    web, _, _ = browser
    job = {"run": "x"}
    for site in ({}, {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "cross-site"}):
        assert web.post("/api/v1/jobs", json=job, headers=site).status_code == 401
    assert service.changes == []
    assert web.post("/api/v1/jobs", json=job, headers=OWN).status_code == 201


def test_a_revoked_token_ends_its_sessions(browser, service):
    web, _, _ = browser
    assert web.get("/api/v1/whoami").json()["name"] == "ursula"
    service.revoke_token("ursula", ADA)
    assert web.get("/api/v1/whoami").status_code == 401


def test_without_a_session_there_is_a_hint(make_client):
    answer = make_client("").get("/api/v1/whoami")
    assert answer.status_code == 401
    assert "rota web" in answer.json()["remedy"]


def test_the_page_is_for_everybody_and_holds_nothing(make_client, service):
    answer = make_client("").get("/")
    assert answer.headers["Content-Type"].startswith("text/html")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy
    page = answer.text
    assert re.findall(r"<script[^>]*>([^<]*)</script>", page) == [""], "no inline scripts"
    assert not re.findall(r" (style|on[a-z]+)=", page)
    assert re.findall(r'(?:src|href)="([^"#]+)"', page) == [
        "/assets/icon.svg", "/assets/base.css", "/assets/app.css", "/assets/app.js",
    ]  # fmt: skip


def test_files_of_the_page_are_asked_for_once(make_client):
    web = make_client("")
    for name in asset_names():
        path = "/" if name == "index.html" else f"/assets/{name}"
        answer = web.get(path)
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].split(";")[0] == MEDIA[name.rpartition(".")[2]]
        again = web.get(path, headers={"If-None-Match": answer.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b"")
    for name in ("index.html", "__init__.py", "..%2fwire.py", "none.js"):
        assert web.get(f"/assets/{name}").status_code == 404


def test_a_browser_sees_which_session_is_its_own(browser, client):
    web, _, _ = browser
    assert [each["current"] for each in web.get("/api/v1/sessions").json()] == [True]
    client.app.state.context.web = web.app.state.context.web
    assert [each["current"] for each in client.get("/api/v1/sessions").json()] == [False]


def at(basis):
    """Who was recognised by a name: Ada, unless it is another."""
    return ADA if basis.value == "ada" else Actor(basis.value, "user")


def basis(name="ada"):
    return SessionBasis("person", name)


def test_codes_and_sessions_end():
    now = [0.0]
    web = WebSessions(at, lambda: now[0])
    late, soon = (web.code(basis()) for _ in range(2))
    session = web.begin(soon)
    assert web.actor(session) == ADA
    asked, old = web.challenge(), web.challenge()
    assert web.answered(asked)
    assert not web.answered(asked), "it is good once"
    now[0] = CODE_S + 1
    assert not web.answered(old)
    assert web.begin(late) is None
    now[0] = SESSION_S + CODE_S
    assert web.actor(session) is None
    other = web.begin(web.code(basis()))
    assert [each.user for each in web.all(0.0)] == ["ada"]
    assert web.end(web_session_id(other))
    assert not web.end(web_session_id(other))
    assert web.actor(other) is None
    assert web.actor("none") is None


def test_of_too_many_codes_the_oldest_go():
    web = WebSessions(at)
    other = web.code(basis("otto"))
    codes = [web.code(basis()) for _ in range(MOST_EACH + 1)]
    assert web.begin(codes[0]) is None
    assert web.begin(codes[1]) is not None
    assert web.begin(other) is not None, "one cannot push out the codes of others"


def test_in_all_there_are_not_too_many():
    web = WebSessions(at)
    codes = [web.code(basis(f"u{n}")) for n in range(MOST + 1)]
    assert web.begin(codes[0]) is None
    assert web.begin(codes[1]) is not None
    first = web.challenge()
    asked = [web.challenge() for _ in range(MOST)]
    assert not web.answered(first)
    assert web.answered(asked[0])


# --- a browser comes again ------------------------------------------------------------------------


class Key:
    """What a browser has: a key that signs."""

    def __init__(self):
        self._key = ec.generate_private_key(ec.SECP256R1())
        point = self._key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        self.public = _text(point)

    def sign(self, challenge, port=80):
        r, s = decode_dss_signature(
            self._key.sign(resume_text(challenge, port), ec.ECDSA(SHA256()))
        )
        return _text(r.to_bytes(32) + s.to_bytes(32))


def _text(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@pytest.fixture
def kept(browser):
    """Return a browser whose key is known, after a restart: no session is left."""
    web, _, _ = browser
    key = Key()
    sent = web.post("/api/v1/web/keys", json={"key": key.public}, headers=OWN)
    assert sent.status_code == 204
    context = web.app.state.context
    context.web = WebSessions(context.sender)
    assert web.get("/api/v1/whoami").status_code == 401
    return web, key


def resumed(web, key, /, **change):
    challenge = web.get("/web/challenge").json()["challenge"]
    body = {"key": key.public, "challenge": challenge, "signature": key.sign(challenge)}
    return web.post("/web/resume", json=body | change)


def test_a_browser_comes_again_after_a_restart(kept, service):
    web, key = kept
    answer = resumed(web, key)
    assert answer.status_code == 204
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert web.get("/api/v1/whoami").json()["name"] == "ursula"
    web.cookies.clear()
    assert resumed(web, key).status_code == 204, "and once more"


def test_what_is_signed_is_good_once_and_here_only(kept):
    web, key = kept
    challenge = web.get("/web/challenge").json()["challenge"]
    good = {"key": key.public, "challenge": challenge, "signature": key.sign(challenge)}
    assert web.post("/web/resume", json=good).status_code == 204
    assert web.post("/web/resume", json=good).status_code == 401, "nobody can play it again"
    asked = web.get("/web/challenge").json()["challenge"]
    passed_on = {**good, "challenge": asked, "signature": key.sign(asked, port=7843)}
    assert web.post("/web/resume", json=passed_on).status_code == 401
    assert resumed(web, key, signature=key.sign("another")).status_code == 401
    assert resumed(web, key, challenge="invented").status_code == 401
    assert resumed(web, Key()).status_code == 401
    assert resumed(web, key, key="A" * 87).status_code == 401, "no point of the curve"
    assert resumed(web, key, key="short").status_code == 422


def test_who_was_put_out_does_not_come_again(kept, service):
    web, key = kept
    service.revoke_token("ursula", ADA)
    assert resumed(web, key).status_code == 401


def test_who_logged_out_does_not_come_again(kept):
    web, key = kept
    assert resumed(web, key).status_code == 204
    (session,) = web.get("/api/v1/sessions").json()
    assert web.delete(f"/api/v1/sessions/{session['id']}", headers=OWN).status_code == 204
    assert resumed(web, key).status_code == 401


def test_only_browsers_have_keys(client):
    answer = client.post("/api/v1/web/keys", json={"key": Key().public})
    assert (answer.status_code, answer.json()["kind"]) == (409, "conflict")


def test_a_logged_in_browser_can_log_another_one_in(browser, make_client):
    web, _, _ = browser
    path = web.post("/api/v1/web/codes", headers=OWN).json()["path"]
    other = make_client("")
    other.app.state.context.web = web.app.state.context.web
    other.get(path, follow_redirects=False)
    assert other.get("/api/v1/whoami").json()["name"] == "ursula"
