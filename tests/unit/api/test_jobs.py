"""Operations on jobs: what goes in, what comes out, and what is refused."""

import msgspec
import pytest

from rota.core.errors import ClusterError, InvariantError, UnavailableError
from rota.wire import JobInfo

JOBS = "/api/v1/jobs"
ONE = {"run": "python train.py", "name": "train", "resources": {"gpus": 2}, "queue": "vision"}


def infos(answer):
    return msgspec.json.decode(answer.content, type=list[JobInfo])


def test_one_job_is_submitted_and_shown(client):
    answer = client.post(JOBS, json=ONE)
    assert answer.status_code == 201
    (job,) = infos(answer)
    assert (job.name, job.gpus, job.queue, job.user) == ("train", 2.0, "vision", "ursula")
    assert client.get(f"{JOBS}/{job.id}").json()["state"] == "PENDING"


def test_jobs_of_a_list_keep_their_order(client):
    names = [f"j{number}" for number in range(50)]
    answer = client.post(JOBS, json=[{**ONE, "name": name} for name in names])
    assert [job.name for job in infos(answer)] == names


def test_a_bad_job_refuses_the_whole_list(client, service):
    answer = client.post(JOBS, json=[ONE, {**ONE, "nodes": 0}])
    assert answer.status_code == 422
    assert answer.json()["kind"] == "input"
    assert client.get(JOBS).json() == []


def test_the_same_key_submits_once(client, make_client):
    first = client.post(JOBS, json=ONE, headers={"Idempotency-Key": "k1"})
    again = client.post(JOBS, json=ONE, headers={"Idempotency-Key": "k1"})
    new = client.post(JOBS, json=ONE, headers={"Idempotency-Key": "k2"})
    other = make_client("other-token").post(JOBS, json=ONE, headers={"Idempotency-Key": "k1"})
    ids = [infos(answer)[0].id for answer in (first, again, new, other)]
    assert ids == ["1", "1", "2", "3"]


@pytest.mark.parametrize("key", ["", "two words", "x" * 201, "\xe9"])
def test_a_key_is_short_and_visible(client, key):
    answer = client.post(JOBS, json=ONE, headers=[(b"Idempotency-Key", key.encode("latin-1"))])
    assert answer.status_code == 422
    assert client.get(JOBS).json() == []


@pytest.mark.parametrize(
    ("body", "error", "remedy"),
    [
        ({"run": "x", "resource": {}}, "`resource`", "did you mean `resources`?"),
        ({"run": "x", "resources": {"gpu": 1}}, "$.resources", "did you mean `gpus`?"),
        ([{"run": "x"}, {"run": "x", "owner": "root"}], "`owner` - at `$[1]`", "known keys: run"),
        ({"run": 1}, "run is 1", "write a text"),
        ([{"run": "x"}, {"run": ["x"]}], "[1].run is ['x']", "write a text"),
        ({}, "missing required field `run`", ""),
        ([], "empty", "at least one"),
        ("text", "what was sent is 'text'", "write keys with values or a list"),
    ],
)
def test_a_wrong_body_is_named(client, body, error, remedy):
    answer = client.post(JOBS, json=body)
    assert answer.status_code == 422
    assert error in answer.json()["error"]
    assert remedy in answer.json().get("remedy", "")


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (b'{"run": "a", "run": "b"}', "run"),
        (b'[{"run": "a"}, {"run": "a", "resources": {"gpus": 1, "gpus": 8}}]', "gpus"),
        (b'{"run": "a", "\\u0072un": "b"}', "run"),
        (b'{"run": "a", "envs": {"X": "1", "X": "2"}}', "X"),
    ],
)
def test_a_key_that_stands_twice_is_refused(client, body, key):
    answer = client.post(JOBS, content=body)
    assert (answer.status_code, answer.json()["kind"]) == (400, "input")
    assert answer.json()["error"] == f"the key {key!r} stands twice in an object"
    assert client.get(JOBS).json() == []


@pytest.mark.parametrize(
    ("query", "error", "remedy"),
    [
        ("limit=0", "query parameter limit is '0'", "write a whole number of at least 1"),
        (
            "limit=10001",
            "query parameter limit is '10001'",
            "write a whole number of at most 10000",
        ),
        ("limit=x", "query parameter limit is 'x'", "write a whole number"),
    ],
)
def test_a_parameter_out_of_range_is_named_with_what_to_write(client, query, error, remedy):
    told = client.get(f"{JOBS}?{query}").json()
    assert (told["error"], told["remedy"]) == (error, remedy)


def test_an_empty_secret_is_none(client, service):
    answer = client.post("/api/v1/secrets", json={"name": "KEY", "value": ""})
    assert (answer.status_code, service.changes) == (422, [])
    assert answer.json()["error"] == "value has 0 characters"
    assert answer.json()["remedy"] == "give at least 1"


def test_a_key_that_stands_twice_is_found_in_one_pass(client):
    """A body with many keys is read once, not once for each key."""
    many = ",".join(f'"k{i}":"v"' for i in range(60_000))
    body = f'{{"run": "a", "envs": {{{many},"last":"1","last":"2"}}}}'
    answer = client.post(JOBS, content=body)
    assert answer.json()["error"] == "the key 'last' stands twice in an object"


def test_a_body_of_two_lengths_is_refused(client):
    headers = {"Content-Length": "17", "Transfer-Encoding": "chunked"}
    answer = client.post(JOBS, content=b'{"run": "python"}', headers=headers)
    assert answer.status_code == 400
    assert answer.headers["connection"] == "close"
    assert client.get(JOBS).json() == []


@pytest.mark.parametrize("body", [b"", b"{", b'{"run": "\xff"}', b"[" * 100_000, b"run: x"])
def test_what_is_no_json_is_refused(client, body):
    answer = client.post(JOBS, content=body)
    assert (answer.status_code, answer.json()["kind"]) == (422, "input")


def test_a_submission_has_a_largest_number_of_jobs(make_client):
    client = make_client(max_jobs=3)
    assert client.post(JOBS, json=[ONE] * 3).status_code == 201
    answer = client.post(JOBS, json=[ONE] * 4)
    assert (answer.status_code, answer.json()["kind"]) == (413, "too_large")


def test_ten_thousand_jobs_go_in_one_request(client):
    body = msgspec.json.encode([{"run": "x"}] * 10_000)
    assert len(infos(client.post(JOBS, content=body))) == 10_000


def test_jobs_come_in_pages(client):
    client.post(JOBS, json=[ONE] * 5)
    pages, after = [], ""
    while len(pages) < 5:
        page = [job["id"] for job in client.get(JOBS, params={"limit": 2, "after": after}).json()]
        pages.append(page)
        if len(page) < 2:
            break
        after = page[-1]
    assert pages == [["1", "2"], ["3", "4"], ["5"]]


def test_filters_are_passed_on(client, make_client, service):
    client.post(JOBS, json=[ONE, {**ONE, "queue": "text"}, {**ONE, "hold": True}])
    make_client("other-token").post(JOBS, json=ONE)
    service.finish("2")
    admin = make_client("admin-token")

    def found(**params):
        return [job["id"] for job in admin.get(JOBS, params=params).json()]

    assert found() == ["1", "2", "3", "4"]
    assert found(queue="text") == ["2"]
    assert found(user="otto") == ["4"]
    assert found(active="true") == ["1", "3", "4"]
    assert found(state=["HELD", "SUCCEEDED"]) == ["2", "3"]


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=10001", "limit=x", "state=LOST", "after=-1", "stat=HELD", "active=7"],
)
def test_wrong_parameters_are_named(client, query):
    answer = client.get(f"{JOBS}?{query}")
    assert (answer.status_code, answer.json()["kind"]) == (422, "input")
    assert query.partition("=")[0] in answer.json()["error"]


def test_verbs_change_the_state(client):
    client.post(JOBS, json=ONE)
    states = [
        client.post(f"{JOBS}/1/{verb}").json()["state"]
        for verb in ("hold", "release", "cancel", "cancel")
    ]
    assert states == ["HELD", "PENDING", "CANCELLED", "CANCELLED"]


def test_a_change_that_makes_no_sense_is_a_conflict(client):
    client.post(JOBS, json=ONE)
    answer = client.post(f"{JOBS}/1/release")
    assert (answer.status_code, answer.json()["kind"]) == (409, "conflict")


def test_explanations_and_forecasts(client):
    client.post(JOBS, json=ONE)
    why = client.get(f"{JOBS}/1/explain").json()
    assert sum(part["seconds"] for part in why["parts"]) == pytest.approx(why["wait_s"])
    assert client.get(f"{JOBS}/1/when", params={"runs": 7}).json()["runs"] == 7
    assert client.get(f"{JOBS}/1/when", params={"runs": 201}).status_code == 422


def test_the_output_comes_in_pieces(client, service):
    client.post(JOBS, json=ONE)
    service.write("1", b"one\xfftwo")
    service.write("1", b"oops", stream="err", node_rank=1)
    first = client.get(f"{JOBS}/1/logs", params={"limit": 4})
    rest = client.get(f"{JOBS}/1/logs", params={"offset": first.headers["Rota-Next-Offset"]})
    end = client.get(f"{JOBS}/1/logs", params={"offset": rest.headers["Rota-Next-Offset"]})
    assert (first.content, rest.content, end.content) == (b"one\xff", b"two", b"")
    assert first.headers["Content-Type"].startswith("text/plain")
    other = client.get(f"{JOBS}/1/logs", params={"stream": "err", "node_rank": 1})
    assert other.content == b"oops"


HOSTILE = [
    "0x1", "-1", "1.0", "1;rm", "1%00", "%2e%2e%2f1", "..%5c1", "1%0a", "%EF%BC%91", "a" * 5_000,
    "%27or%271%27=%271", "9" * 16, "%F0%9F%92%A5", "$(id)", "1%20",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_ids_do_not_reach_the_daemon(client, service, name):
    service.broken = InvariantError("the daemon was asked")
    for path in (f"/{name}", f"/{name}/logs", f"/{name}/explain", f"/{name}/logs?follow=true"):
        assert client.get(JOBS + path).status_code == 404
    assert client.post(f"{JOBS}/{name}/cancel").status_code == 404


@pytest.mark.parametrize("name", ["..%2f..", "n1%00", "n1;x", "-n", "%2e%2e", "n" * 300])
def test_hostile_nodes_do_not_reach_the_daemon(make_client, service, name):
    operator = make_client("operator-token")
    assert operator.post(f"/api/v1/nodes/{name}/drain").status_code == 404
    assert service.changes == []


@pytest.mark.parametrize("name", ["a/b", "..\n", "x\u0000y", "\x1b[31m"])
def test_names_that_the_daemon_refuses_are_input_errors(client, name):
    answer = client.post(JOBS, json={**ONE, "name": name})
    assert (answer.status_code, answer.json()["kind"]) == (422, "input")


def test_odd_names_come_back_as_they_are(client):
    name = "\u202e<script>alert(1)</script>'\"; DROP TABLE jobs; -- ${HOME} \U0001f4a5"
    client.post(JOBS, json={**ONE, "name": name.replace("/", "|")})
    answer = client.get(f"{JOBS}/1")
    assert answer.json()["name"] == name.replace("/", "|")
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (UnavailableError("the disk is full"), 503, "unavailable"),
        (ClusterError("no answer", retryable=True), 503, "unavailable"),
    ],
)
def test_errors_of_the_daemon_are_told(client, service, error, status, kind):
    service.broken = error
    answer = client.get(JOBS)
    assert (answer.status_code, answer.json()) == (status, {"error": str(error), "kind": kind})
    assert answer.headers["Retry-After"] == "1"


@pytest.mark.parametrize(
    "error", [ValueError("secret-7"), OSError("secret-7"), InvariantError("x")]
)
def test_a_bug_is_told_by_an_id_only(client, service, error):
    service.broken = error
    answer = client.get(JOBS)
    assert (answer.status_code, answer.json()["kind"]) == (500, "internal")
    assert len(answer.json()["id"]) == 12
    assert "secret" not in answer.text


def test_there_is_nothing_else(client):
    assert client.get("/api").json()["kind"] == "not_found"
    assert client.get("/docs").status_code == 404
    answer = client.put(JOBS, json=ONE)
    assert (answer.status_code, answer.json()["kind"]) == (405, "input")
    assert set(answer.headers["Allow"].split(", ")) <= {"GET", "POST"}
