"""Tokens and roles: who may do what, for every operation there is."""

import pytest
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from fake_service import TOKENS
from rota.api import create_app
from rota.api.access import LEAST, PUBLIC, may

ORDER = ("viewer", "user", "operator", "admin")
BODIES = {
    "submit_jobs": {"run": "x"},
    "create_token": {"name": "eve", "role": "admin"},
    "sync_agent": {},
}
FILLED = {"{job}": "1", "{node}": "n1", "{name}": "vera"}


@pytest.fixture
def app(make_client):
    return make_client(export_log=lambda actor: iter([b"PAR1"]), stream_s=0.01).app


def operations(app):
    return [route for route in app.routes if isinstance(route, APIRoute)]


def call(app, route, headers):
    """Return the status of a request that is complete and right."""
    path = route.path
    for name, value in FILLED.items():
        path = path.replace(name, value)
    client = TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)
    (method,) = route.methods
    return client.request(method, path, json=BODIES.get(route.operation_id), headers=headers)


def bearer(role):
    token = next(token for token, actor in TOKENS.items() if actor.role == role)
    return {"Authorization": f"Bearer {token}"}


def test_every_route_is_an_operation_with_a_least_role(app):
    assert len(app.routes) == len(operations(app))
    assert {route.operation_id for route in operations(app)} == set(LEAST)


def test_an_operation_without_a_role_does_not_start(service, monkeypatch):
    monkeypatch.delitem(LEAST, "get_job")
    with pytest.raises(KeyError, match="get_job"):
        create_app(service)


def test_without_a_token_only_public_operations_answer(app, service):
    for route in operations(app):
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic eDp5"}):
            answer = call(app, route, headers)
            expected = {200} if LEAST[route.operation_id] == PUBLIC else {401, 429}
            assert answer.status_code in expected, route.path
            if answer.status_code == 401:
                assert answer.headers["WWW-Authenticate"] == "Bearer"
                assert answer.json()["kind"] == "unauthorised"
    assert service.changes == []


def test_a_viewer_changes_nothing_on_any_route(app, service):
    statuses = {route.operation_id: call(app, route, bearer("viewer")) for route in operations(app)}
    assert service.changes == []
    for operation, answer in statuses.items():
        allowed = LEAST[operation] in (PUBLIC, "viewer")
        assert (answer.status_code != 403) == allowed, operation
    assert {route.operation_id for route in operations(app) if "GET" not in route.methods} <= {
        operation for operation, answer in statuses.items() if answer.status_code == 403
    }


def test_an_agent_may_call_its_own_route_only(app, service):
    for route in operations(app):
        status = call(app, route, bearer("agent")).status_code
        if LEAST[route.operation_id] != PUBLIC:
            assert (status != 403) == (route.operation_id == "sync_agent"), route.path
    assert service.changes == []


@pytest.mark.parametrize("role", ORDER)
def test_a_role_is_enough_exactly_from_the_least_on(app, service, role):
    for route in operations(app):
        least = LEAST[route.operation_id]
        status = call(app, route, bearer(role)).status_code
        enough = least == PUBLIC or may(role, least)
        assert (status not in (401, 403)) == enough, route.path
        assert status < 500
    assert [may(role, least) for least in ORDER] == [
        ORDER.index(role) >= ORDER.index(least) for least in ORDER
    ]


def test_an_unknown_role_may_nothing():
    assert not any(may("root", least) for least in (*ORDER, "agent"))


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
