"""The client for event loops against the real API."""

import asyncio

import pytest

from rota.core.errors import InputError, NotFoundError, UnavailableError
from rota.sdk import AsyncClient
from rota.wire import Actor, TokenInfo


async def every(found):
    return [item async for item in found]


def run(url, work, **options):
    async def within():
        async with AsyncClient(url, "admin-token", **{"patience_s": 2} | options) as client:
            return await work(client)

    return asyncio.run(within())


def test_jobs(url, service):
    async def work(client):
        job = await client.submit({"run": "x", "queue": "q"})
        await client.submit_many([{"run": "y"}] * 1001)
        service.write(job.id, b"hello")
        assert (await client.hold(job.id)).state == "HELD"
        assert (await client.release(job.id)).state == "PENDING"
        assert (await client.explain(job.id)).reason == "capacity"
        assert (await client.when(job.id, runs=2)).runs == 2
        assert (await client.job(job.id)).queue == "q"
        assert len(await every(client.jobs())) == 1002
        assert b"".join(await every(client.logs(job.id))) == b"hello"
        assert (await client.cancel(job.id)).state == "CANCELLED"
        return await client.wait(job.id)

    assert run(url, work).state == "CANCELLED"


def test_cluster_and_tokens(url, service):
    async def work(client):
        assert [node.name for node in await client.nodes()] == ["n1", "n2"]
        assert (await client.drain("n1", stop=True)).state == "drained"
        assert (await client.undrain("n1")).state == "up"
        assert await client.queues() == []
        assert (await client.status())["policy"] == "fifo"
        assert await client.reload() == ["policy: fifo -> tiresias"]
        assert await client.create_token("zoe", "user") == "made-for-zoe"
        assert TokenInfo("zoe", "user") in await client.tokens()
        await client.revoke_token("zoe")
        return await client.whoami()

    assert run(url, work) == Actor("ada", "admin")


def test_following(url, service):
    async def work(client):
        job = (await client.submit({"run": "x"})).id
        service.write(job, b"one\n")

        async def go_on():
            await asyncio.sleep(0.1)
            service.write(job, b"two\n")
            service.finish(job)

        task = asyncio.create_task(go_on())
        pieces = await every(client.logs(job, follow=True))
        await task
        assert [event.event for event in await every(client.events())] == ["submit", "done"]
        events = client.events(follow=True, job=job)
        first = await anext(events)
        await events.aclose()
        with pytest.raises(TimeoutError):
            await client.wait((await client.submit({"run": "y"})).id, 0.1)
        return b"".join(pieces), first.event

    assert run(url, work) == (b"one\ntwo\n", "submit")


def test_errors(url, service):
    async def work(client):
        with pytest.raises(NotFoundError):
            await client.job("7")
        with pytest.raises(InputError):
            await client.submit({"run": ""})
        service.is_ready = (False, "full")
        with pytest.raises(UnavailableError, match="full"):
            await client.submit({"run": "x"})

    run(url, work, patience_s=0.1)


def test_nobody_there():
    with pytest.raises(UnavailableError, match="start one with `rota serve`"):
        run("http://127.0.0.1:1", lambda client: client.status(), patience_s=0)
