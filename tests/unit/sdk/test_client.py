"""The client against the real API."""

import asyncio
import inspect
import threading
import time

import pytest

from fake_service import EPOCH
from rota.core.errors import (
    ConflictError,
    ForbiddenError,
    InputError,
    NotFoundError,
    UnavailableError,
)
from rota.jobfile.model import GpuRange, JobFile, Resources
from rota.sdk import AsyncClient, Client
from rota.sdk.client import finish
from rota.wire import Actor, TokenInfo


def until(condition, timeout_s=300.0):
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.01)


def later(call, *args):
    thread = threading.Timer(0.15, call, args)
    thread.start()
    return thread


def test_submit_and_look(client):
    job = client.submit(JobFile(run="x", name="a", resources=Resources(GpuRange(2, 4))))
    same = client.submit({"run": "y", "resources": {"gpus": 2}, "queue": "q"})

    assert (job.id, job.name, job.gpus, job.user) == ("1", "a", 2.0, "ada")
    assert client.job(same.id).queue == "q"
    assert [found.id for found in client.jobs()] == ["1", "2"]
    assert [found.id for found in client.jobs(queue="q", states=["PENDING", "HELD"])] == ["2"]
    assert [found.id for found in client.jobs(user="nobody")] == []


def test_many_jobs_come_in_several_requests_and_pages(client, service, monkeypatch):
    monkeypatch.setattr("rota.sdk.client.MAX_JOBS", 40)
    made = client.submit_many([{"run": f"echo {i}"} for i in range(100)], key="k")

    assert [job.id for job in made] == [str(i) for i in range(1, 101)]
    assert service.changes == ["submit"] * 3
    again = client.submit_many([{"run": f"echo {i}"} for i in range(100)], key="k")
    assert [job.id for job in again] == [job.id for job in made]
    assert len(list(client.jobs())) == 100


def test_a_list_longer_than_a_page(client):
    client.submit_many([{"run": "x"}] * 2001)
    assert len({job.id for job in client.jobs()}) == 2001


def test_large_jobs_are_divided_by_size(client, service):
    client.submit_many([{"run": "x" * 200_000}] * 60)
    assert service.changes == ["submit"] * 2


def test_changes(client, service):
    job = client.submit({"run": "x"}).id
    assert client.hold(job).state == "HELD"
    assert client.release(job).state == "PENDING"
    assert client.cancel(job).state == "CANCELLED"
    assert client.cancel(job).state == "CANCELLED"
    with pytest.raises(ConflictError, match="is over"):
        client.hold(job)


def test_explanations(client):
    job = client.submit({"run": "x"}).id
    assert client.explain(job).parts[0].reason == "capacity"
    assert client.when(job, runs=3).runs == 3


def test_the_cluster(client):
    assert [node.name for node in client.nodes()] == ["n1", "n2"]
    assert client.drain("n1").state == "draining"
    assert client.drain("n2", stop=True).state == "drained"
    assert client.undrain("n1").state == "up"
    assert client.status()["epoch_unix"] == EPOCH
    assert client.reload() == ["policy: fifo -> tiresias"]
    client.submit({"run": "x", "queue": "q"})
    assert [queue.pending for queue in client.queues()] == [1]


def test_tokens(client, url):
    token = client.create_token("zoe", "user")
    with Client(url, token) as other:
        assert other.whoami() == Actor("zoe", "user")
        with pytest.raises(ForbiddenError, match="it takes role admin"):
            other.tokens()
    assert TokenInfo("zoe", "user") in client.tokens()
    client.revoke_token("zoe")
    with (
        Client(url, token) as other,
        pytest.raises(ForbiddenError, match="does not accept the token"),
    ):
        other.whoami()


def test_wait(client, service):
    job = client.submit({"run": "x"}).id
    with pytest.raises(TimeoutError, match=r"is PENDING after 0\.1 s"):
        client.wait(job, 0.1)
    thread = later(service.finish, job, "FAILED")
    assert client.wait(job, 300).state == "FAILED"
    thread.join()


# --- output and events ---------------------------------------------------------------------------


def test_logs(client, service):
    job = client.submit({"run": "x"}).id
    data = bytes(range(256)) * 1000
    service.write(job, data)
    service.write(job, b"other", "err", 1)

    assert b"".join(client.logs(job)) == data
    assert b"".join(client.logs(job, offset=255_000)) == data[255_000:]
    assert b"".join(client.logs(job, stream="err", node_rank=1)) == b"other"


def test_logs_are_followed_until_the_end(client, service):
    job = client.submit({"run": "x"}).id
    service.write(job, b"one\n")

    def go_on():
        service.start(job)
        service.write(job, b"two\n")
        time.sleep(0.1)
        service.write(job, b"three\n")
        service.finish(job)

    thread = later(go_on)
    assert b"".join(client.logs(job, follow=True)) == b"one\ntwo\nthree\n"
    thread.join()


def test_events_and_pages(client, service):
    for _ in range(1200):
        service.row("node_up")
    job = client.submit({"run": "x"}).id
    service.start(job)

    assert [event.number for event in client.events()] == list(range(1, 1203))
    assert [event.event for event in client.events(job=job)] == ["submit", "start"]
    assert [event.number for event in client.events(after=1201)] == [1202]


def test_events_are_followed(client, service):
    client.submit({"run": "x"})
    events = client.events(follow=True)
    assert next(events).event == "submit"
    thread = later(service.start, "1")
    event = next(events)
    assert (event.event, event.job, event.at) == ("start", "1", EPOCH + 2)
    events.close()
    thread.join()


def test_only_new_events(client, service):
    service.row("old")
    found = []

    def read():
        with Client(client.place.server, "admin-token") as own:
            found.append(next(own.events(after=None, follow=True)))

    thread = threading.Thread(target=read)
    thread.start()
    while thread.is_alive():
        service.row("new")
        thread.join(0.05)
    assert found[0].event == "new"


# --- mistakes ------------------------------------------------------------------------------------


def test_errors_are_those_of_rota(client, service, url):
    with pytest.raises(NotFoundError, match="there is no job '99'"):
        client.job("99")
    with pytest.raises(NotFoundError, match="there is no node"):
        client.drain("a/b")
    with pytest.raises(InputError, match="gpus"):
        client.submit({"run": "x", "resources": {"gpus": 99}})
    for token, message in (("wrong", "rota token create"), (None, "give one with --token-file")):
        with Client(url, token) as stranger, pytest.raises(ForbiddenError, match=message):
            stranger.status()
    with Client(url, "viewer-token") as viewer, pytest.raises(ForbiddenError, match="role"):
        viewer.submit({"run": "x"})
    service.is_ready = (False, "the disk is full")
    client.patience_s = 0
    with pytest.raises(UnavailableError, match="the disk is full"):
        client.submit({"run": "x"})


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({}, "missing required field run"),
        ({"run": " "}, "run is empty"),
        ({"run": "x", "nodes": "two"}, r"\$.nodes"),
        ({"run": "x", "colour": 1}, "unknown field colour"),
    ],
)
def test_wrong_jobs_are_not_even_sent(client, service, job, message):
    with pytest.raises(InputError, match=message):
        client.submit(job)
    assert service.changes == []


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../tokens", "1/cancel", "?x=1", "#", "%2e%2e", "ä", "1/explain", "\ud800"],
)
def test_names_stay_in_their_place(client, name):
    for call in (client.cancel, client.job, client.drain, client.revoke_token):
        with pytest.raises(NotFoundError, match="there is no"):
            call(name)


@pytest.mark.parametrize("key", ["a b", "ä", "x" * 500, "a\nb"])
def test_keys_that_cannot_be_headers(client, key):
    with pytest.raises(InputError, match="key is"):
        client.submit({"run": "x"}, key=key)


def test_a_daemon_that_comes_back_is_waited_for(client, service):
    service.is_ready = (False, "starting")
    thread = later(setattr, service, "is_ready", (True, ""))
    assert client.submit({"run": "x"}).id == "1"
    thread.join()


def test_the_token_is_not_shown(client):
    assert "admin-token" not in repr(client.place)


def test_both_clients_have_the_same_methods():
    blocking, waiting = (
        {
            {"aclose": "close"}.get(name, name): method
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }
        for kind in (Client, AsyncClient)
    )
    assert blocking.keys() == waiting.keys()
    for name, method in blocking.items():
        assert inspect.signature(method) == inspect.signature(waiting[name])
        assert inspect.getdoc(method) == inspect.getdoc(waiting[name])


def test_the_blocking_client_works_where_a_loop_runs(client, service):
    """As in a notebook."""

    async def within():
        job = client.submit({"run": "x"})
        events = client.events(follow=True)
        first = next(events)
        events.close()
        return [found.id for found in client.jobs()] == [job.id], first.event

    assert asyncio.run(within()) == (True, "submit")


def test_io_that_suspends_cannot_be_run_without_a_loop():
    with pytest.raises(RuntimeError, match="has suspended"):
        finish(asyncio.sleep(0))
