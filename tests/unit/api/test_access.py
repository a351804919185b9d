"""Tokens and roles: who may do what, for every operation there is."""

import pytest
from starlette.testclient import TestClient

from fake_service import TOKENS
from rota.api.app import _handlers
from rota.api.routing import serves
from rota.core.proof import token_digest, token_label
from rota.daemon.access import is_enough
from rota.wire import GET_JOB, OPERATIONS, PUBLIC

ORDER = ("viewer", "user", "operator", "admin")
BODIES = {
    "submit_jobs": {"run": "x"},
    "create_token": {"name": "eve", "role": "admin"},
    "sync_agent": {},
    "call_agent": {},
    "fetch_piece": {},
    "plan_upload": {"files": []},
    "send_piece": {},
    "set_secret": {"name": "A", "value": "b"},
    "open_channel": {"id": "0" * 16},
    "write_channel": {},
    "invite_node": {"node": "n1", "valid_s": 60},
    "join_node": {"secret": "wrong", "node": "n1"},
    "renew_node": {"csr": ""},
    "add_person": {"name": "eve"},
    "change_person": {"role": "operator"},
    "try_out": {"policy": "srtf"},
    "keep_browser": {"key": "A" * 87},
    "resume_browser": {"key": "A" * 87, "challenge": "x", "signature": "A" * 86},
    "begin_login": {"redirect": "http://127.0.0.1:4000/callback"},
    "finish_login": {"secret": "wrong", "state": "wrong", "code": "wrong"},
}
GIVEN = {  # what public operations answer to somebody who shows nothing good
    "log_in": 401,
    "join_node": 403,  # the code is what counts
    "begin_login": 201,
    "finish_login": 403,
    "begin_web_login": 303,
    "finish_web_login": 401,
    "resume_browser": 401,
}
QUERIES = {
    "prove_server": {"token": token_label(token_digest("user-token")), "nonce": "0" * 32},
    "log_in": {"code": "none"},  # which is no code, so nobody is logged in by it
}
FILLED = {
    "{job}": "1", "{channel}": "0" * 16, "{node}": "n1", "{name}": "vera", "{person}": "pia",
    "{session}": "0" * 12, "{asset}": "app.js", "{digest}": "0" * 64, "{secret}": "A",
}  # fmt: skip


@pytest.fixture
def app(make_client):
    return make_client(export_log=lambda: iter([b"PAR1"]), stream_s=0.01).app


def operations():
    return list(OPERATIONS.values())


def call(app, operation, headers):
    """Return the status of a request that is complete and right."""
    path = operation.path
    for name, value in FILLED.items():
        path = path.replace(name, value)
    client = TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)
    return client.request(
        operation.method, path, params=QUERIES.get(operation.name),
        json=BODIES.get(operation.name), headers=headers, follow_redirects=False,
    )  # fmt: skip


def bearer(role):
    token = next(token for token, actor in TOKENS.items() if actor.role == role)
    return {"Authorization": f"Bearer {token}"}


def test_every_route_is_an_operation_of_the_table(app):
    served = [(route.path, *route.methods) for route in app.routes]
    assert sorted(served) == sorted((found.path, found.method) for found in operations())


def test_an_operation_without_a_handler_does_not_start(monkeypatch):
    monkeypatch.setitem(OPERATIONS, "dance", None)
    with pytest.raises(KeyError, match="dance"):
        _handlers()


def test_a_handler_takes_what_its_operation_declares():
    def get_job(call, job: int) -> None:
        """Take another type."""

    with pytest.raises(TypeError, match="get_job takes"):
        serves(GET_JOB)(get_job)


def test_without_a_token_only_public_operations_answer(app, service):
    for operation in operations():
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic eDp5"}):
            answer = call(app, operation, headers)
            given = GIVEN.get(operation.name, 200 if operation.role == PUBLIC else 401)
            expected = {given} if given == 200 else {given, 429}
            assert answer.status_code in expected, operation.path
            if answer.status_code == 401:
                assert answer.headers["WWW-Authenticate"] == "Bearer"
                assert answer.json()["kind"] == "unauthorised"
    assert service.changes == []


def test_a_viewer_changes_nothing_on_any_route(app, service):
    statuses = {
        operation.name: call(app, operation, bearer("viewer")) for operation in operations()
    }
    assert service.changes == []
    for name, answer in statuses.items():
        allowed = OPERATIONS[name].role in (PUBLIC, "viewer") and GIVEN.get(name) != 403
        assert (answer.status_code != 403) == allowed, name
    changing = {operation.name for operation in operations() if operation.method != "GET"}
    assert changing - {
        "create_web_code",
        "begin_login",
        "end_session",
        "keep_browser",
        "resume_browser",
    } <= {name for name, answer in statuses.items() if answer.status_code == 403}


def test_an_agent_may_call_its_own_route_only(app, service):
    for operation in operations():
        status = call(app, operation, bearer("agent")).status_code
        if operation.role != PUBLIC:
            assert (status != 403) == (operation.role == "agent"), operation.path
    assert service.changes == []


@pytest.mark.parametrize("role", ORDER)
def test_a_role_is_enough_exactly_from_the_least_on(app, service, role):
    for operation in operations():
        least = operation.role
        status = call(app, operation, bearer(role)).status_code
        enough = least == PUBLIC or is_enough(role, least)
        if operation.name not in GIVEN:
            assert (status not in (401, 403)) == enough, operation.path
        assert status < 500
    assert [is_enough(role, least) for least in ORDER] == [
        ORDER.index(role) >= ORDER.index(least) for least in ORDER
    ]


def test_an_unknown_role_may_nothing():
    assert not any(is_enough("root", least) for least in (*ORDER, "agent"))


def test_users_do_not_see_the_jobs_of_others(make_client, service):
    ours, theirs = make_client("user-token"), make_client("other-token")
    ours.post("/api/v1/jobs", json={"run": "secret"})
    service.write("1", b"secret")
    for path in ("", "/explain", "/when", "/logs", "/logs?follow=true"):
        assert theirs.get(f"/api/v1/jobs/1{path}").status_code == 404
    for verb in ("cancel", "hold", "release"):
        assert theirs.post(f"/api/v1/jobs/1/{verb}").status_code == 404
    assert theirs.get("/api/v1/jobs").json() == []
    assert theirs.get("/api/v1/events?job=1").status_code == 404
    assert ours.get("/api/v1/jobs/1").json()["state"] == "PENDING"


def test_tokens_are_made_used_and_revoked(make_client):
    admin = make_client("admin-token")
    made = admin.post("/api/v1/tokens", json={"name": "eve", "role": "user"})
    assert made.status_code == 201
    assert made.headers["Cache-Control"] == "no-store"
    eve = {"Authorization": f"Bearer {made.json()['token']}"}
    assert admin.get("/api/v1/whoami", headers=eve).json() == {"name": "eve", "role": "user"}
    assert {"name": "eve", "role": "user"} in admin.get("/api/v1/tokens").json()
    assert "made-for" not in admin.get("/api/v1/tokens").text
    assert admin.post("/api/v1/tokens", json={"name": "eve", "role": "user"}).status_code == 409
    assert admin.delete("/api/v1/tokens/eve").status_code == 204
    assert admin.get("/api/v1/whoami", headers=eve).status_code == 401
    assert admin.delete("/api/v1/tokens/eve").status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {"name": "eve", "role": "god"},
        {"name": "../eve", "role": "user"},
        {"name": "eve\n", "role": "user"},
        {"name": "", "role": "user"},
        {"name": "e" * 65, "role": "user"},
        {"name": "eve", "role": "user", "admin": True},
        {"name": "eve"},
    ],
)
def test_a_bad_token_is_not_made(make_client, service, body):
    answer = make_client("admin-token").post("/api/v1/tokens", json=body)
    assert (answer.status_code, answer.json()["kind"]) == (422, "input")
    assert service.changes == []


@pytest.mark.parametrize(
    "header",
    ["Bearer", "Bearer ", "user-token", "Bearer a b", "Bearer x\xe9", "Bearer " + "x" * 600],
)
def test_odd_headers_are_no_tokens(client, header):
    answer = client.get("/api/v1/jobs", headers=[(b"Authorization", header.encode("latin-1"))])
    assert answer.status_code == 401


def test_the_word_bearer_may_be_in_small_letters(client):
    answer = client.get("/api/v1/whoami", headers={"Authorization": "bearer user-token"})
    assert answer.json()["name"] == "ursula"


def test_metrics_need_a_token_unless_they_are_open(make_client):
    assert make_client("").get("/metrics").status_code == 401
    assert make_client("agent-token").get("/metrics").status_code == 403
    assert make_client("viewer-token").get("/metrics").status_code == 200
    assert make_client("", open_metrics=True).get("/metrics").status_code == 200
    assert make_client("", open_metrics=True).get("/api/v1/jobs").status_code == 401
