"""The server: ports, health, shutdown, logs, the document, speed."""

import http.client
import json
import socket
import threading
import time
from contextlib import closing

import httpx2
import msgspec
import pytest

from rota.api import ApiSettings, create_app, logs, serve
from rota.core.errors import InputError, UnavailableError


def test_health_needs_no_token_and_tells_little(make_client, service):
    client = make_client("")
    assert client.get("/healthz").json() == {"ok": True}
    assert client.get("/readyz").json() == {"ready": True, "why": ""}
    service.is_ready = (False, "the disk is full")
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"ready": False, "why": "the disk is full"}


def test_nothing_is_accepted_while_the_daemon_is_not_ready(client, service):
    service.is_ready = (False, "the daemon is stopping")
    answer = client.post("/api/v1/jobs", json={"run": "x"})
    assert (answer.status_code, answer.json()["kind"]) == (503, "unavailable")


def test_a_free_port_is_found_and_given_back(service):
    first, second = (serve(create_app(service), port=0) for _ in range(2))
    try:
        assert first.url.startswith("http://127.0.0.1:")
        assert first.port != second.port
        assert httpx2.get(f"{second.url}/healthz").status_code == 200
    finally:
        first.stop()
        second.stop()
    second.stop()
    assert not second.is_alive
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{second.url}/healthz")
    again = serve(create_app(service), port=second.port)
    again.stop()


def test_a_taken_port_is_named(make_server, service):
    server, _ = make_server()
    with pytest.raises(UnavailableError, match=f"127.0.0.1:{server.port}"):
        serve(create_app(service), port=server.port)


def test_a_bad_certificate_is_named(service, tmp_path):
    (tmp_path / "bad.pem").write_text("no certificate")
    for name in ("missing.pem", "bad.pem"):
        path = str(tmp_path / name)
        settings = ApiSettings(tls_cert=path, tls_key=path)
        with pytest.raises(InputError, match=name):
            serve(create_app(service, settings=settings), port=0)


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=300).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_request_that_is_under_way_is_answered_before_the_stop(make_server, service):
    server, web = make_server()
    inside, go_on = threading.Event(), threading.Event()
    submit = service.submit

    def slow(*args, **options):
        inside.set()
        go_on.wait(300)
        return submit(*args, **options)

    service.submit = slow
    answers = []
    asking = threading.Thread(
        target=lambda: answers.append(web.post("/api/v1/jobs", json={"run": "x"}))
    )
    asking.start()
    assert inside.wait(300)
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    while listens(server.port):
        time.sleep(0.01)
    go_on.set()
    stopping.join(300)
    asking.join(300)
    assert [answer.status_code for answer in answers] == [201]


def test_a_body_that_never_comes_is_given_up(make_server):
    server, _ = make_server(body_timeout_s=0.2)
    with socket.create_connection(("127.0.0.1", server.port), timeout=300) as line:
        line.sendall(
            b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n"
            b'Authorization: Bearer user-token\r\n\r\n{"run":'
        )
        assert line.recv(4096).startswith(b"HTTP/1.1 408 ")


def test_a_large_body_over_the_wire_is_refused(make_server, service):
    server, _ = make_server(max_body_bytes=10_000)
    for chunked in (False, True):
        line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
        headers = {"Authorization": "Bearer user-token"}
        body = iter([b"x" * 1_000] * 20) if chunked else b"x" * 20_000
        with closing(line):
            try:
                line.request("POST", "/api/v1/jobs", body, headers, encode_chunked=chunked)
                assert line.getresponse().status == 413
            except (BrokenPipeError, ConnectionResetError):
                continue  # the server hung up before all of it was sent
    assert service.changes == []


def test_agents_exchange_messages(make_client):
    def sync(body, name):
        assert name == "n1"
        return msgspec.json.encode({"got": msgspec.json.decode(body)})

    client = make_client("agent-token", agent_sync=sync)
    assert client.post("/api/v1/agent/sync", json=[1]).json() == {"got": [1]}
    for body in (b"{", b"\xff", b"[" * 100_000):
        answer = client.post("/api/v1/agent/sync", content=body)
        assert (answer.status_code, answer.json()["kind"]) == (422, "input")


def test_a_daemon_without_agents_says_so(service):
    server = serve(create_app(service), port=0)
    try:
        headers = {"Authorization": "Bearer agent-token"}
        answer = httpx2.post(f"{server.url}/api/v1/agent/sync", json={}, headers=headers)
    finally:
        server.stop()
    assert (answer.status_code, answer.json()["kind"]) == (404, "not_found")


# --- logs ----------------------------------------------------------------------------------------


def test_requests_are_logged_without_secrets(client, service, logged):
    client.get("/api/v1/jobs/7?after=SECRET", headers={"X-Other": "SECRET"})
    client.get("/api/v1/whoami?token=SECRET", headers={"Authorization": "Bearer SECRET"})
    service.broken = ValueError("boom")
    broken = client.get("/api/v1/jobs")
    first = next(entry for entry in logged if entry["event"] == "api.request")
    assert (first["route"], first["status"], first["actor"]) == (
        "/api/v1/jobs/{job}",
        422,
        "ursula",
    )
    assert first["ms"] >= 0
    bug = next(entry for entry in logged if entry["event"] == "api.broken")
    assert bug["id"] == broken.json()["id"]
    assert "SECRET" not in str(logged)
    assert "user-token" not in str(logged)


def fail_with(token):
    raise ValueError(len(token))


@pytest.mark.parametrize("as_json", [True, False])
def test_logs_go_to_the_standard_error_output(capsys, as_json, restore_logging):
    logs.configure("info", json=as_json)
    log = restore_logging("rota.test")
    secret = "hunter" + str(2)  # the line that fails may be in the log, the value not
    try:
        fail_with(secret)
    except ValueError:
        log.exception("test.broken", job=7)
    log.debug("test.hidden")
    out, err = capsys.readouterr()
    assert out == ""
    assert "test.broken" in err
    assert "ValueError: 7" in err
    assert secret not in err
    assert "test.hidden" not in err
    if as_json:
        entry = json.loads(err.splitlines()[0])
        assert (entry["event"], entry["job"], entry["level"]) == ("test.broken", 7, "error")


def test_an_unknown_level_is_refused():
    with pytest.raises(KeyError):
        logs.configure("loud")


# --- the document --------------------------------------------------------------------------------


def test_the_document_is_complete(client):
    document = client.get("/api/v1/openapi.json").json()
    operations = [item for path in document["paths"].values() for item in path.values()]
    ids = [item["operationId"] for item in operations]
    assert document["openapi"].startswith("3.1")
    assert len(ids) == len(set(ids))
    for item in operations:
        assert item["summary"]
        assert item["tags"][0] in {tag["name"] for tag in document["tags"]}
        for code, answer in item["responses"].items():
            assert answer["description"], (item["operationId"], code)
            if code.startswith(("4", "5")) and item["operationId"] != "check_ready":
                schema = answer["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Problem"}
    names = set(document["components"]["schemas"])
    references = {
        word.rpartition("/")[2].rstrip('"')
        for word in json.dumps(document).split()
        if word.startswith('"#/components/schemas/')
    }
    assert {name.rstrip('"},]') for name in references} <= names


def test_the_examples_of_the_document_work(client):
    document = client.get("/api/v1/openapi.json").json()
    body = document["paths"]["/api/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]
    assert len(body["examples"]) == 2
    for example in body["examples"].values():
        assert client.post("/api/v1/jobs", json=example["value"]).status_code == 201


# --- speed ---------------------------------------------------------------------------------------


@pytest.mark.soak
def test_submissions_are_quick(make_server):
    """The API's own share of the time: the real figures are a third to a hundredth of these."""
    _, web = make_server()
    web.post("/api/v1/jobs", json={"run": "x"})
    took_s = []
    for _ in range(60):
        began = time.perf_counter()
        assert web.post("/api/v1/jobs", json={"run": "x"}).status_code == 201
        took_s.append(time.perf_counter() - began)
    body = msgspec.json.encode(
        [{"run": f"train {n}", "resources": {"gpus": 1}} for n in range(5_000)]
    )
    began = time.perf_counter()
    assert web.post("/api/v1/jobs", content=body).status_code == 201
    bulk_s = time.perf_counter() - began
    assert sorted(took_s)[20] < 0.01  # a third of them: others use the machine too
    assert 5_000 / bulk_s > 2_500
