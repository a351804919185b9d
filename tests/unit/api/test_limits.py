"""Sizes, rates and hosts."""

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from agents_net import eventually
from rota.api.context import ANY_HOST, LOOPBACK, allowed_hosts
from rota.api.limits import KEPT, Buckets, Slots
from rota.api.problems import Refusal

JOBS = "/api/v1/jobs"


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def refusals(buckets, caller, count):
    refused = 0
    for _ in range(count):
        try:
            buckets.take(caller)
        except Refusal:
            refused += 1
    return refused


def test_a_bucket_allows_a_burst_and_then_its_rate(clock):
    buckets = Buckets(10.0, 5, clock)
    assert refusals(buckets, "a", 8) == 3
    clock.now = 0.35
    assert refusals(buckets, "a", 8) == 5
    clock.now = 100.0
    assert refusals(buckets, "a", 8) == 3


def test_callers_do_not_share_a_bucket(clock):
    buckets = Buckets(10.0, 5, clock)
    assert refusals(buckets, "a", 6) == 1
    assert refusals(buckets, "b", 5) == 0


def test_only_so_many_callers_are_remembered(clock):
    buckets = Buckets(1.0, 1, clock)
    for caller in range(KEPT + 5):
        buckets.take(caller)
    assert len(buckets._levels) == KEPT


def test_too_many_requests_of_a_token_are_refused(make_client):
    client = make_client(requests_per_s=0.01, burst=3)
    answers = [client.get(JOBS) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    assert answers[-1].json()["kind"] == "too_many"
    assert 1 <= int(answers[-1].headers["Retry-After"]) <= 60
    others = {"Authorization": "Bearer other-token"}
    assert client.get(JOBS, headers=others).status_code == 200


def test_strangers_do_not_lock_out_those_with_a_token(make_client):
    client = make_client(strangers_per_s=0.01, strangers_burst=2)
    wrong = {"Authorization": "Bearer wrong"}
    statuses = [client.get(JOBS, headers=wrong).status_code for _ in range(4)]
    assert statuses == [401, 401, 429, 429]
    assert client.get(JOBS).status_code == 200


def test_a_large_body_is_refused(make_client, service):
    client = make_client(max_body_bytes=1_000)
    answer = client.post(JOBS, json={"run": "x" * 1_000})
    assert (answer.status_code, answer.json()["kind"]) == (413, "too_large")
    assert client.post(JOBS, json={"run": "x" * 900}).status_code == 201
    assert service.changes == ["submit"]


def test_a_large_body_of_unknown_length_is_refused(make_client, service):
    client = make_client(max_body_bytes=1_000)
    pieces = iter([b'{"run": "'] + [b"x" * 100] * 20 + [b'"}'])
    answer = client.post(JOBS, content=pieces)
    assert "content-length" not in answer.request.headers
    assert (answer.status_code, answer.json()["kind"]) == (413, "too_large")
    assert service.changes == []


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost:80:80", "", "0", "127.1"]
)
def test_other_host_names_are_refused_on_loopback(client, host):
    answer = client.get(JOBS, headers={"Host": host})
    assert (answer.status_code, answer.json()["kind"]) == (421, "forbidden")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:7842", "127.0.0.1:7842", "[::1]:7842"])
def test_names_of_the_loopback_address_are_good(client, host):
    assert client.get(JOBS, headers={"Host": host}).status_code == 200


def test_any_host_is_good_if_the_settings_say_so(make_client):
    client = make_client(hosts=("*",))
    assert client.get(JOBS, headers={"Host": "rota.example"}).status_code == 200


@pytest.mark.parametrize(
    ("address", "hosts"),
    [
        ("127.0.0.1", LOOPBACK),
        ("127.0.0.7", LOOPBACK),
        ("::1", LOOPBACK),
        ("[::1]", LOOPBACK),
        ("localhost", LOOPBACK),
        ("0.0.0.0", ANY_HOST),  # noqa: S104 - nothing is bound
        ("10.0.0.1", ANY_HOST),
        ("node7", ANY_HOST),
    ],
)
def test_the_hosts_follow_from_the_address(address, hosts):
    assert allowed_hosts(address) == hosts


def test_slots_are_limited_in_total_and_for_each_caller():
    slots = Slots(3, 2)
    with slots.one("a"), slots.one("a"):
        with pytest.raises(Refusal, match="too many open streams"), slots.one("a"):
            pass
        with slots.one("b"):
            assert slots.taken == 3
            with pytest.raises(Refusal), slots.one("c"):
                pass
    assert slots.taken == 0


@pytest.mark.parametrize("path", ["/healthz", "/api/v1/jobs", "/nowhere", "/api/v1/tokens"])
def test_every_answer_has_the_security_headers(client, path):
    headers = client.get(path).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")


def test_other_origins_get_no_leave(client):
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    answer = client.options(JOBS, headers=asked)
    assert answer.status_code == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_readers_of_a_machine_that_hangs_hold_up_only_each_other(make_server, service):
    server, web = make_server(outputs=2, outputs_queue=1)
    (job,) = web.post(JOBS, json={"run": "x"}).json()
    stuck, go_on = threading.Semaphore(0), threading.Event()

    def hang(*args, **options):
        stuck.release()
        go_on.wait(300)
        return b"late"

    service.logs = hang
    address = f"{server.url}{JOBS}/{job['id']}/logs"
    with ThreadPoolExecutor(3) as readers:
        waiting = [
            readers.submit(httpx2.get, address, headers=web.headers, timeout=300) for _ in range(2)
        ]
        for _ in range(2):
            assert stuck.acquire(timeout=300)
        waiting.append(readers.submit(httpx2.get, address, headers=web.headers, timeout=300))
        lane = server._context.output_lane
        eventually(lambda: lane._waiting == 3)
        assert web.get(f"{JOBS}/{job['id']}/logs").status_code == 429
        for _ in range(100):  # more than there are threads
            assert web.get("/api/v1/nodes").status_code == 200
        go_on.set()
        assert [reader.result().text for reader in waiting] == ["late"] * 3


@pytest.mark.parametrize(
    ("width", "asked"),
    [
        ({"forecasts": 1, "forecasts_per_caller": 2}, ("when", "/when")),
        ({"channels": 1, "channels_per_caller": 2}, ("reach_files", "/files")),
    ],
)
def test_nobody_takes_a_whole_lane(make_server, service, width, asked):
    method, path = asked
    server, web = make_server(**width)
    (job,) = web.post(JOBS, json={"run": "x"}).json()
    others = {"Authorization": "Bearer other-token"}
    (other,) = web.post(JOBS, json={"run": "x"}, headers=others).json()
    stuck, go_on = threading.Semaphore(0), threading.Event()
    whole = getattr(service, method)

    def hang(*args, **options):
        stuck.release()
        go_on.wait(300)
        return whole(*args, **options)

    setattr(service, method, hang)

    def ask(number, headers):
        address = f"{server.url}{JOBS}/{number}{path}"
        return httpx2.get(address, headers=headers, timeout=300)

    with ThreadPoolExecutor(3) as askers:
        waiting = [askers.submit(ask, job["id"], web.headers) for _ in range(2)]
        assert stuck.acquire(timeout=300)
        (lane,) = (
            lane
            for lane in (server._context.forecast_lane, server._context.channel_lane)
            if lane._waiting
        )
        eventually(lambda: lane._waiting == 2)
        refused = ask(job["id"], web.headers)
        assert refused.status_code == 429
        assert refused.json()["error"] == "2 calls of yours of this kind wait already"
        waiting.append(askers.submit(ask, other["id"], others))
        eventually(lambda: lane._waiting == 3)
        go_on.set()
        assert [each.result().status_code for each in waiting] == [200] * 3
    assert not lane._callers
