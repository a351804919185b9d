"""Live events and followed output, over a real connection."""

import json
import threading
import time

import pytest

JOB = {"run": "x"}


def until(condition, seconds=300.0):
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


class Listener:
    """Reads server-sent events in a thread."""

    def __init__(self, web, headers=None, **params):
        self.lines = []
        self.status = None
        self._context = web.stream("GET", "/api/v1/events/stream", params=params, headers=headers)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        with self._context as answer:
            self.status = answer.status_code
            self.media = answer.headers["Content-Type"]
            for line in answer.iter_lines():
                self.lines.append(line)

    def events(self):
        return [json.loads(line[6:]) for line in list(self.lines) if line.startswith("data: ")]

    def numbers(self):
        return [event["number"] for event in self.events()]

    def ids(self):
        return [int(line[4:]) for line in list(self.lines) if line.startswith("id: ")]

    def join(self):
        self._thread.join(300)
        assert not self._thread.is_alive()


def test_events_come_as_they_happen_and_the_stream_ends_with_the_server(make_server, service):
    server, web = make_server("admin-token")
    service.row("node-up", "before")
    listener = Listener(web)
    until(lambda: listener.ids() == [1])
    web.post("/api/v1/jobs", json=[JOB, JOB])
    until(lambda: len(listener.events()) == 2)
    service.row("node-down", "two\nlines\r\n\r\ndata: 7")
    until(lambda: len(listener.events()) == 3)
    server.stop()
    listener.join()
    first, _, last = listener.events()
    assert listener.media.startswith("text/event-stream")
    assert listener.numbers() == [2, 3, 4]
    assert listener.ids() == [1, 2, 3, 4]
    assert (first["event"], first["job"], first["at"]) == ("submit", "1", 1_700_000_002.0)
    assert (last["text"], last["job"]) == ("two\nlines\r\n\r\ndata: 7", None)


def test_a_stream_resumes_after_the_last_event_that_was_seen(make_server, service):
    _, web = make_server("admin-token", stream_s=0.5)
    for number in range(1_200):
        service.row("node-up", str(number))
    resumed = Listener(web, {"Last-Event-ID": "3"}, after=0)
    started = Listener(web, after=1_198)
    resumed.join()
    started.join()
    assert resumed.numbers() == list(range(4, 1_201))
    assert started.numbers() == [1_199, 1_200]


def test_a_stream_of_one_job_has_nothing_else(make_server, service):
    _, web = make_server(stream_s=0.5)
    web.post("/api/v1/jobs", json=[JOB, JOB])
    service.start("2")
    service.start("1")
    service.finish("2")
    listener = Listener(web, after=0, job="2")
    listener.join()
    assert [event["event"] for event in listener.events()] == ["submit", "start", "done"]
    assert {event["job"] for event in listener.events()} == {"2"}


def test_users_do_not_see_events_of_others(make_server, make_client, service):
    _, web = make_server(stream_s=0.3)
    make_client("other-token").post("/api/v1/jobs", json=[JOB] * 3)
    web.post("/api/v1/jobs", json=JOB)
    service.row("node-up")
    page = web.get("/api/v1/events").json()
    listener = Listener(web, after=0)
    listener.join()
    assert listener.numbers() == [4, 5]
    assert [event["number"] for event in page["events"]] == [4, 5]
    assert (page["next"], page["end"]) == (5, True)


def test_heartbeats_keep_a_quiet_stream_open(make_server):
    _, web = make_server(heartbeat_s=0.05, stream_s=0.5)
    listener = Listener(web)
    listener.join()
    assert listener.lines.count(": still here") >= 3


def test_a_stream_ends_when_its_token_is_revoked(make_server, service):
    _, web = make_server(heartbeat_s=0.05)
    listener = Listener(web)
    until(lambda: listener.status == 200)
    service.revoke_token("ursula", None)
    listener.join()
    assert listener.events() == []


def test_streams_are_limited_and_their_slots_come_back(make_server, service):
    _, web = make_server(streams_per_token=2, streams=10, heartbeat_s=0.05)
    with web.stream("GET", "/api/v1/events/stream"), web.stream("GET", "/api/v1/events/stream"):
        refused = web.get("/api/v1/events/stream")
        assert (refused.status_code, refused.json()["kind"]) == (429, "too_many")
        assert "Retry-After" in refused.headers
        assert "rota_api_streams 2.0" in web.get("/metrics").text
    until(lambda: "rota_api_streams 0.0" in web.get("/metrics").text)
    with web.stream("GET", "/api/v1/events/stream") as again:
        assert again.status_code == 200


@pytest.mark.parametrize("after", ["x", "-1", str(2**60)])
def test_a_bad_number_is_refused(client, after):
    for headers, params in (({"Last-Event-ID": after}, {}), ({}, {"after": after})):
        answer = client.get("/api/v1/events/stream", headers=headers, params=params)
        assert (answer.status_code, answer.json()["kind"]) == (422, "input")


def test_events_come_in_pages(make_client, service):
    admin = make_client("admin-token")
    for _ in range(25):
        service.row("node-up")
    numbers, after, pages = [], 0, 0
    while True:
        page = admin.get("/api/v1/events", params={"after": after, "limit": 10}).json()
        numbers += [event["number"] for event in page["events"]]
        after, pages = page["next"], pages + 1
        if page["end"]:
            break
    assert numbers == list(range(1, 26))
    assert pages == 3


def test_output_is_followed_until_the_job_has_ended(make_server, service):
    _, web = make_server(poll_s=0.02)
    web.post("/api/v1/jobs", json=JOB)
    service.start("1")
    service.write("1", b"first ")
    got = []

    def read():
        query = {"follow": "true", "offset": 2}
        with web.stream("GET", "/api/v1/jobs/1/logs", params=query) as answer:
            got.extend(answer.iter_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    until(lambda: b"".join(got) == b"rst ")
    service.write("1", b"second ")
    until(lambda: b"".join(got) == b"rst second ")
    service.write("1", b"last")
    service.finish("1", "FAILED")
    reader.join(300)
    assert not reader.is_alive()
    assert b"".join(got) == b"rst second last"


def test_following_ends_when_the_server_stops(make_server, service):
    server, web = make_server(poll_s=0.02)
    web.post("/api/v1/jobs", json=JOB)
    service.write("1", b"x")
    got = []

    def read():
        with web.stream("GET", "/api/v1/jobs/1/logs", params={"follow": "true"}) as answer:
            got.extend(answer.iter_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    until(lambda: got == [b"x"])
    server.stop()
    reader.join(300)
    assert not reader.is_alive()


def test_the_whole_log_is_exported_by_operators(make_client):
    def export():
        yield b"PAR1"
        yield b"..."

    answer = make_client("operator-token", export_log=export).get("/api/v1/events.parquet")
    assert answer.content == b"PAR1..."
    assert (
        make_client("user-token", export_log=export).get("/api/v1/events.parquet").status_code
        == 403
    )
    assert make_client("operator-token").get("/api/v1/events.parquet").status_code == 404
