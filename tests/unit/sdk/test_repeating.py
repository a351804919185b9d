"""When requests are sent again, and when they are not."""

import json
import os

import httpx2
import pytest

from rota.core.errors import (
    ForbiddenError,
    GoneError,
    InputError,
    RequestError,
    UnavailableError,
)
from rota.daemon.folder import StateFolder
from rota.sdk import Client
from rota.sdk.place import is_starting
from rota.sdk.transport import Backoff, EventParser, retry_after_s

JOB = {"id": "1", "name": "", "user": "u", "queue": "", "state": "PENDING", "gpus": 1.0,
       "submitted_at": 0.0}  # fmt: skip


class Script(httpx2.BaseTransport):
    """Answers in turn: an exception, a status, or a status with content."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []

    def handle_request(self, request):
        request.read()
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        status, content, headers = (answer, b"", {}) if isinstance(answer, int) else answer
        return httpx2.Response(status, content=content, headers=headers)


def client(script, patience_s=5.0):
    return Client("http://127.0.0.1:9", "t", transport=script, patience_s=patience_s)


def ok(value, status=200):
    return (status, json.dumps(value).encode(), {})


CUT = httpx2.ReadError("cut")
REFUSED = httpx2.ConnectError("refused")


def test_a_submission_that_got_no_answer_is_repeated_with_its_key():
    script = Script(REFUSED, CUT, 503, ok([JOB], 201))
    with client(script) as rota:
        assert rota.submit({"run": "x"}).id == "1"
    keys = {request.headers["Idempotency-Key"] for request in script.requests}
    bodies = {request.content for request in script.requests}
    assert (len(script.requests), len(keys), len(bodies)) == (4, 1, 1)


def test_two_submissions_have_two_keys():
    script = Script(ok([JOB], 201), ok([JOB], 201))
    with client(script) as rota:
        rota.submit({"run": "x"})
        rota.submit({"run": "x"})
    assert len({request.headers["Idempotency-Key"] for request in script.requests}) == 2


def test_what_could_happen_twice_is_not_repeated():
    script = Script(CUT)
    with client(script) as rota, pytest.raises(UnavailableError, match="cut"):
        rota.create_token("a", "user")
    assert len(script.requests) == 1


def test_what_never_arrived_is_repeated():
    script = Script(REFUSED, 503, 429, ok({"name": "a", "role": "user", "token": "t"}, 201))
    with client(script) as rota:
        assert rota.create_token("a", "user") == "t"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 500])
def test_a_no_is_a_no(status):
    script = Script(status)
    with client(script) as rota, pytest.raises((RequestError, InputError)):
        rota.status()
    assert len(script.requests) == 1


def test_patience_ends():
    script = Script(*[REFUSED] * 50)
    with client(script, 0.3) as rota, pytest.raises(UnavailableError, match="no daemon answers at"):
        rota.status()
    assert 2 <= len(script.requests) <= 8


def test_problems_are_told():
    problem = {"error": "no", "kind": "internal", "remedy": "try", "id": "abc"}
    script = Script((500, json.dumps(problem).encode(), {}))
    with client(script) as rota, pytest.raises(RequestError) as caught:
        rota.status()
    assert str(caught.value) == "no: try (see abc in the daemon's log)"


@pytest.mark.parametrize("answer", [(200, b"<html>", {}), (200, b"[1]", {}), (302, b"", {})])
def test_another_server(answer):
    with client(Script(answer)) as rota, pytest.raises(RequestError):
        rota.job("1")


def test_the_token_does_not_follow_a_redirect():
    script = Script((307, b"", {"Location": "http://example.com/"}))
    with client(script) as rota, pytest.raises(RequestError):
        rota.status()
    assert len(script.requests) == 1


def message(number):
    event = {"number": number, "time_s": 1.0, "at": 2.0, "event": "start", "job": "1", "ref": -1,
             "other": -1, "value": 0.0, "text": None}  # fmt: skip
    return f"id: {number}\ndata: {json.dumps(event)}\n\n".encode()


def test_a_broken_stream_of_events_is_taken_up_again():
    half = message(3)[:20]
    script = Script(
        (200, b"retry: 2000\nid: 0\n\n" + message(1) + message(2) + half, {}),
        CUT,
        (200, b": still here\n\n" + message(3), {}),
        ForbiddenError("over"),
    )
    with client(script) as rota:
        events = rota.events(follow=True)
        assert [next(events).number for _ in range(3)] == [1, 2, 3]
        with pytest.raises(ForbiddenError, match="over"):
            next(events)
    assert [request.url.params["after"] for request in script.requests] == ["0", "2", "2", "3"]


def test_a_broken_stream_of_output_is_taken_up_again():
    running, over = ok(JOB | {"state": "RUNNING"}), ok(JOB | {"state": "SUCCEEDED"})
    script = Script(
        running, (200, b"one", {}), 200, (200, b"two", {}),  # the stream ends after "two"
        running, (200, b"three", {}), 200, CUT,
        over, (200, b"four", {}), 200,
    )  # fmt: skip
    with client(script) as rota:
        assert b"".join(rota.logs("1", follow=True)) == b"onetwothreefour"
    asked = [request.url for request in script.requests if "logs" in request.url.path]
    offsets = [int(url.params.get("offset", "0")) for url in asked]
    assert offsets == [0, 3, 3, 6, 11, 11, 11, 15]


def test_output_that_was_rotated_away_is_passed_over():
    problem = json.dumps({"error": "job 1: it is gone", "kind": "gone"}).encode()
    script = Script((410, problem, {"Rota-First-Offset": "50"}), (200, b"rest", {}), 200)
    with client(script) as rota:
        assert list(rota.logs("1")) == [b"rest"]
    assert [r.url.params.get("offset") for r in script.requests] == [None, "50", "54"]


def test_output_that_is_gone_for_good():
    problem = json.dumps({"error": "job 1: it is gone", "kind": "gone"}).encode()
    script = Script((410, problem, {"Rota-First-Offset": "0"}), (410, problem, {}))
    with client(script) as rota:
        with pytest.raises(GoneError, match="it is gone"):
            list(rota.logs("1"))
        with pytest.raises(RequestError, match="it is gone"):
            list(rota.logs("1"))


def test_events_that_cannot_be_read():
    parser = EventParser(None)
    parser.take("data: {}")
    with pytest.raises(RequestError, match="cannot be read"):
        parser.take("")


def test_waits_grow_and_end():
    now = [0.0]
    backoff = Backoff(10.0, lambda: now[0])
    waits = []
    while (wait := backoff.wait_s()) is not None:
        waits.append(wait)
        now[0] += wait
    assert 7 <= sum(waits) <= 10
    assert waits[0] < 0.1 < waits[-1] <= 2.5
    backoff.reset()
    assert backoff.wait_s(3.0) == 3.0
    assert backoff.wait_s(100.0) == 5.0


@pytest.mark.parametrize(("header", "seconds"), [(None, 0), ("3", 3), ("soon", 0), ("²", 0)])
def test_retry_after(header, seconds):
    assert retry_after_s(header) == seconds


# --- a daemon that is just starting ---------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a state folder that a daemon holds, which has not said yet where it is."""
    for name in ("ROTA_SERVER", "ROTA_TOKEN", "ROTA_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROTA_STATE", str(tmp_path / "state"))
    with StateFolder(tmp_path / "state") as made:
        yield made


class Starting(Script):
    """Says where it is and makes its token when it is asked for the second time."""

    def __init__(self, folder, *answers):
        super().__init__(*answers)
        self.folder = folder

    def handle_request(self, request):
        if len(self.requests) == 1:
            self.folder.token.touch(0o600)
            self.folder.token.write_text("secret")
            self.folder.announce("http://127.0.0.1:9", self.folder.socket)
        return super().handle_request(request)


@pytest.mark.parametrize("first", [401, REFUSED])
def test_a_daemon_that_is_starting_is_waited_for(first, folder, monkeypatch):
    monkeypatch.setattr("rota.sdk.transport.time.sleep", lambda _: None)
    script = Starting(folder, first, first, ok(JOB))
    told = []
    with Client(transport=script, patience_s=0.0) as rota:
        rota.on_start = told.append
        assert rota.job("1").id == "1"
    assert told == [f"waiting until the daemon of {folder.path} is ready"]
    assert not any("Authorization" in request.headers for request in script.requests)
    assert str(script.requests[-1].url).startswith("http://localhost/")  # over its socket


class Restarted(Script):
    """A new daemon takes the folder at the first look, and says at the third where it is."""

    def __init__(self, path, *answers):
        super().__init__(*answers)
        self.path = path
        self.daemon = None

    def handle_request(self, request):
        if self.daemon is None:
            self.daemon = StateFolder(self.path)
        elif len(self.requests) == 2:
            self.daemon.announce("http://127.0.0.1:10")
        return super().handle_request(request)


def test_a_daemon_that_was_killed_and_is_started_again_is_waited_for(tmp_path, monkeypatch):
    for name in ("ROTA_SERVER", "ROTA_TOKEN", "ROTA_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROTA_STATE", str(tmp_path))
    monkeypatch.setattr("rota.sdk.transport.time.sleep", lambda _: None)
    killed = StateFolder(tmp_path)
    killed.announce("http://127.0.0.1:9")
    os.close(killed._lock)  # its word stays
    script = Restarted(tmp_path, REFUSED, REFUSED, REFUSED, ok(JOB))
    told = []
    with Client(transport=script, patience_s=0.0) as rota:
        rota.on_start = told.append
        assert rota.job("1").id == "1"
    script.daemon.close()
    assert told == [f"waiting until the daemon of {tmp_path} is ready"]
    assert [request.url.port for request in script.requests] == [9, 7842, 7842, 10]


def test_the_waiting_for_a_start_has_an_end(folder, monkeypatch):
    monkeypatch.setattr("rota.sdk.transport.time.sleep", lambda _: None)
    monkeypatch.setattr("rota.sdk.transport.READY_S", 0.0)
    script = Script(REFUSED, REFUSED, REFUSED)
    with Client(transport=script, patience_s=0.0) as rota, pytest.raises(UnavailableError):
        rota.job("1")


def test_a_daemon_of_others_at_the_usual_address_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setenv("ROTA_STATE", str(tmp_path / "state"))
    script = Script(401)
    with Client(transport=script) as rota, pytest.raises(RequestError, match="wants a token"):
        rota.job("1")
    assert not is_starting(tmp_path / "state")
