"""The board as a stream: whole, then what changes, for each who may see what."""

import asyncio
import base64
import json
import random

import msgspec
import pytest
from starlette.requests import ClientDisconnect

from rota.api.auth import HANG_UP
from rota.api.board import STEPS, BoardRoom, changed_runs, pack_runs
from rota.api.streams import Stream
from rota.daemon.board import Board, BoardJob, BoardNode
from rota.jobfile.model import JobFile, Resources
from rota.wire import Actor

VIEWER, ANN = Actor("vera", "viewer"), Actor("ann", "user")
MOST = 50_000  # bytes of an update


def unpacked(text):
    """What `unpackRuns` of board.js does."""
    numbers, value, shift = [], 0, 0
    for byte in base64.b64decode(text):
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value)
            value = shift = 0
    place = owner = 0
    runs = []
    for gap, count, change in zip(*[iter(numbers)] * 3, strict=True):
        place += gap
        owner += -(change >> 1) if change & 1 else change >> 1
        runs.append((place, count, owner))
        place += count
    return runs


def make_board(version, owners, *, gpus=8, jobs=(), state="up"):
    nodes = [BoardNode(f"n{i}", state, gpus, "a100") for i in range(len(owners) // gpus)]
    made = {
        index: BoardJob(index, 1.0, 1e9, f"train-{index}", "ann" if index % 2 else "bob", "q", None)
        for index in {*owners, *jobs} - {0}
    }
    return Board(version, version, 1e9, nodes, owners, made, {"running": len(made)})


class Boards:
    """A service that has one board after the other."""

    def __init__(self, *boards):
        self.boards = list(boards)

    def board(self, seen):
        board = self.boards[0]
        return None if board.version == seen else board


def messages(data):
    """(event, number, data) of each message."""
    found = []
    for text in data.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in text.split("\n"))
        found.append((fields["event"], int(fields["id"]), json.loads(fields["data"])))
    return found


def test_runs_are_packed_as_the_page_unpacks_them():
    assert pack_runs([(0, 1, 1), (3, 2, 85), (8, 1, 43)]) == "AAECAgKoAQMBVQ=="
    rng = random.Random(1)  # noqa: S311 - examples
    for _ in range(50):
        before, after = ([rng.choice([0, 0, 7, 300, 2**31]) for _ in range(200)] for _ in range(2))
        now = list(before)
        for first, count, owner in unpacked(pack_runs(changed_runs(before, after))):
            now[first : first + count] = [owner] * count
        assert now == after


def test_an_update_of_8000_gpus_is_small():
    rng = random.Random(2)  # noqa: S311 - examples
    owners = [0] * 8_000
    job = 0
    room = BoardRoom(Boards())
    for version in range(1, 40):
        before, owners = owners, list(owners)
        for _ in range(60):  # jobs that end and start in half a second: 120 each second
            job += 1
            gpus = rng.choice([1, 1, 2, 4, 8, 8, 16, 64])
            first = rng.randrange(8_000 - gpus)
            owners[first : first + gpus] = [job] * gpus
        room._take(make_board(version, owners))
        ((event, _, told),) = messages(room.messages(room._number - 1, VIEWER)[1])
        assert event == ("full" if version == 1 else "delta")
        size = len(room.messages(room._number - 1, VIEWER)[1])
        changed = sum(count for _, count, _ in unpacked(told["runs"]))
        assert changed == sum(old != new for old, new in zip(before, owners, strict=True))
        assert size <= MOST
        assert version == 1 or size < 12_000


def test_all_8000_gpus_at_once_are_one_update_too():
    room = BoardRoom(Boards())
    room._take(make_board(1, [1 + i // 8 for i in range(8_000)]))
    room._take(make_board(2, [5_001 + i // 8 for i in range(8_000)]))
    _, data = room.messages(room._number - 1, ANN)
    assert len(data) <= MOST


def test_who_missed_steps_gets_them_and_who_missed_many_gets_all():
    room = BoardRoom(Boards())
    for version in range(1, STEPS + 10):
        room._take(make_board(version, [version] * 8))
    last = room._number
    assert room.messages(last, VIEWER) == (last, b"")
    number, data = room.messages(last - 3, VIEWER)
    assert number == last
    assert [(event, at) for event, at, _ in messages(data)] == [
        ("delta", last - 2), ("delta", last - 1), ("delta", last),
    ]  # fmt: skip
    for after in (0, last - STEPS - 3, last + 5):
        assert [event for event, _, _ in messages(room.messages(after, VIEWER)[1])] == ["full"]


def test_all_who_share_a_gpu_are_told():
    room = BoardRoom(Boards())
    boards = [
        msgspec.structs.replace(make_board(1, [1] * 8, jobs=(2, 3)), shared={0: [1, 2, 3]}),
        msgspec.structs.replace(make_board(2, [1] * 8, jobs=(2, 3)), shared={0: [1, 2], 5: [1, 3]}),
        make_board(3, [1] * 8),
    ]
    found, after = [], 0
    for board in boards:
        room._take(board)
        after, message = room.messages(after, VIEWER)
        found.append(json.loads(message.split(b"data: ")[1])["shared"])
    assert found == [{"0": [1, 2, 3]}, {"0": [1, 2], "5": [1, 3]}, {"0": [], "5": []}]


def test_another_cluster_is_told_as_a_whole():
    room = BoardRoom(Boards())
    room._take(make_board(1, [0] * 8))
    room._take(make_board(2, [0] * 16))
    ((event, _, told),) = messages(room.messages(room._number - 1, VIEWER)[1])
    assert event == "full"
    assert len(told["nodes"]) == 2


def test_users_see_whose_their_own_jobs_are_only():
    room = BoardRoom(Boards())
    room._take(make_board(1, [1, 1, 2, 2, 0, 0, 0, 0]))
    room._take(make_board(2, [3, 3, 2, 2, 4, 0, 0, 0], state="draining"))
    for after in (0, room._number - 1):
        ((_, _, seen),) = messages(room.messages(after, VIEWER)[1])
        ((_, _, own),) = messages(room.messages(after, ANN)[1])
        assert {job[0] for job in own["jobs"]} == {3}
        assert {3, 4} <= {job[0] for job in seen["jobs"]}
        assert own["runs"] == seen["runs"], "that a GPU is taken is no secret"
    ((_, _, told),) = messages(room.messages(room._number - 1, ANN)[1])
    assert told["nodes"] == [[0, ["n0", "draining", 8, "a100"]]]
    assert told["gone"] == [1]


def test_readers_wait_for_news_without_a_queue_of_their_own():
    boards = Boards(make_board(1, [0] * 8))

    async def play():
        room = BoardRoom(boards)
        assert await room.wait(0, 60)
        seen, _ = room.messages(0, VIEWER)
        assert not await room.wait(seen, 0.01)
        waiting = [asyncio.create_task(room.wait(seen, 60)) for _ in range(500)]
        await asyncio.sleep(0)
        boards.boards = [make_board(2, [5] * 8)]
        assert all(await asyncio.gather(*waiting))
        texts = {room.messages(seen, VIEWER)[1] for _ in waiting}
        room._pump.cancel()
        return texts

    assert len(asyncio.run(play())) == 1, "all share one message"


def test_a_browser_follows_the_board(make_server, service):
    _, web = make_server("user-token", heartbeat_s=0.05)
    service.submit([JobFile(run="x", name="mine", resources=Resources(gpus=2))], ANN)
    kinds, numbers = [], []
    with web.stream("GET", "/api/v1/board") as stream:
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            kinds += [line[7:]] if line.startswith("event: ") else []
            numbers += [int(line[4:])] if line.startswith("id: ") else []
            if kinds == ["full"] and line.startswith("data: "):
                service.start("1")
            if kinds == ["full", "delta"] and line.startswith("data: "):
                told = json.loads(line[6:])
                break
    assert unpacked(told["runs"]) == [(0, 2, 1)]
    assert told["jobs"] == [], "it is Ann's, and the token is Ursula's"
    with web.stream("GET", "/api/v1/board", headers={"Last-Event-ID": str(numbers[0])}) as stream:
        kind = next(line for line in stream.iter_lines() if line.startswith("event: "))
    assert kind == "event: delta", "it resumes where it was cut off"


@pytest.mark.parametrize("number", ["-1", "x", str(2**60)])
def test_a_wrong_number_to_resume_at_is_told(client, number):
    answer = client.get("/api/v1/board", headers={"Last-Event-ID": number})
    assert answer.status_code == 422


def test_who_does_not_read_is_hung_up_on_and_gives_the_slot_back(client):
    context = client.app.state.context
    context.settings = msgspec.structs.replace(context.settings, slow_s=0.01)
    hung_up = []

    async def content():
        while True:
            yield b"more"

    async def send(message):
        if message.get("body"):
            await asyncio.Event().wait()  # its buffers are full, and nobody takes anything

    async def receive():
        await asyncio.Event().wait()

    async def play():
        stream = Stream(context, VIEWER, content(), "text/event-stream", page=True)
        assert context.pages.taken == 1
        scope = {"type": "http", "state": {HANG_UP: lambda: hung_up.append(1)}}
        with pytest.raises(ClientDisconnect):
            await stream(scope, receive, send)

    asyncio.run(play())
    assert hung_up == [1]
    assert context.pages.taken == 0


def test_there_are_places_for_so_many_pages(make_server):
    _, web = make_server("viewer-token", pages=1)
    with web.stream("GET", "/api/v1/board") as stream:
        assert stream.status_code == 200
        assert web.get("/api/v1/board").status_code == 429
