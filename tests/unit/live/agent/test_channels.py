"""Ways into a run: inside its walls, bounded, and gone with it."""

import contextlib
import os
import signal
import socket
import threading
import types

import pytest

from agents_net import alive, eventually, marked
from rota.core.errors import ClusterError, ConflictError, NotFoundError, RotaError
from rota.live.agent import channels, shim
from rota.live.agent.messages import AgentReport
from rota.live.calls import (
    CallAnswer,
    CloseChannel,
    LaneAnswer,
    ListChannels,
    OpenChannel,
    ReadChannel,
    WriteChannel,
)
from rota.live.drivers.local import lane
from rota.sdk.inside import ChannelOutput
from sandboxes import UIDS, account_of, need_sandboxes, sandbox

A, B, C = "a" * 16, "b" * 16, "c" * 16


def run_inside(bench, *argv, channel=A, **options):
    """Open a channel; what it writes until it ends, and its exit code."""
    bench.driver.reach("1", 0, OpenChannel(channel, argv, **options))
    return read_all(bench, channel)


def read_all(bench, channel):
    output, text = ChannelOutput(), b""
    while output.code is None:
        answer = bench.driver.reach("1", 0, ReadChannel(channel, output.offset, wait_s=20.0))
        pieces = output.take((answer.offset + len(answer.data), answer.data))
        text += b"".join(piece for _, piece in pieces)
    return text.decode(errors="replace"), output.code


def started(bench, script="exec sleep 1000", **options):
    bench.launch("1.0", script, **options)
    bench.told.run("1.0", "running")
    return bench


@pytest.fixture
def inside(bench):
    bench.add()
    return started(bench)


@pytest.fixture
def apart(make_bench, tmp_path):
    need_sandboxes()
    bench = make_bench(account=account_of)
    bench.add(gpus=4, sandbox=sandbox(tmp_path / "m0"))
    return started(bench, user="ann", envs={"MINE": "yes"})


def test_a_command_is_inside_the_walls_of_its_job(apart, tmp_path):
    script = (
        f"id -u; grep -h -e CapEff -e NoNewPrivs /proc/self/status; echo $MINE; ls {tmp_path}/m0; "
        "for each in /proc/[0-9]*; do cat $each/comm; done; touch made; stat -c %u made"
    )
    text, code = run_inside(apart, "sh", "-c", script)
    assert text.count("\n") > 3, (text, code)
    uid, caps, privileges, *rest = text.split("\n")
    assert (uid, code) == (UIDS["ann"], 0)
    assert caps.split() == ["CapEff:", "0" * 16]
    assert privileges.split() == ["NoNewPrivs:", "1"]
    seen, owner = rest[: rest.index("")], rest[-2]
    assert seen[0] == "yes"
    hidden = {path.name for path in (tmp_path / "m0").iterdir()}
    assert {"jobs", "runs"} >= set(seen[1:]) & hidden
    assert not [name for name in seen if name.startswith("python")]  # nor does it see its keeper
    assert "sleep" in seen
    assert owner == UIDS["ann"]


def test_a_terminal_belongs_to_the_job(apart):
    script = "tty; stty size; stat -c %u $(tty)"
    text, code = run_inside(apart, "sh", "-c", script, tty=True, rows=33, cols=99)
    assert (text.split(), code) == (["/dev/pts/0", "33", "99", UIDS["ann"]], 0)


def test_nobody_reads_and_the_command_waits(inside):
    script = "head -c 5000000 /dev/zero; exit 7"
    inside.driver.reach("1", 0, OpenChannel(A, ("sh", "-c", script)))
    first = inside.driver.reach("1", 0, ReadChannel(A, wait_s=20.0))
    assert 0 < len(first.data) <= 1 << 18
    again = inside.driver.reach("1", 0, ReadChannel(A, wait_s=20.0))
    assert again.data[: len(first.data)] == first.data[: len(again.data)]  # nothing is lost
    text, code = read_all(inside, A)
    assert (len(text), code) == (5_000_000, 7)


def test_input_counts_once_for_each_who_sends_it(inside):
    inside.driver.reach("1", 0, OpenChannel(A, ("cat",)))
    for _ in range(2):
        taken = inside.driver.reach("1", 0, WriteChannel(A, 0, b"one ")).taken
        assert taken == 4
    assert inside.driver.reach("1", 0, WriteChannel(A, 0, b"two ", writer="b")).taken == 4
    assert inside.driver.reach("1", 0, WriteChannel(A, 2, b"e three", eof=True)).taken == 9
    assert read_all(inside, A) == ("one two three", 0)
    inside.driver.reach("1", 0, OpenChannel(B, ("cat",)))
    with pytest.raises(ConflictError, match="input begins at 99, and 0 is next"):
        inside.driver.reach("1", 0, WriteChannel(B, 99, b"x"))
    inside.driver.reach("1", 0, CloseChannel(B))


def test_a_channel_is_opened_once_and_listed_until_it_ends(inside):
    for _ in range(2):
        inside.driver.reach("1", 0, OpenChannel(A, ("sh", "-c", "echo $$ >> opened; cat")))
    found = inside.driver.reach("1", 0, ListChannels()).channels
    assert [(each.channel, each.kind) for each in found] == [(A, "exec")]
    opened = inside.root / "m0" / "jobs" / "1" / "work" / "opened"
    eventually(lambda: opened.exists() and opened.read_text())
    inside.driver.reach("1", 0, CloseChannel(A))
    eventually(lambda: not inside.driver.reach("1", 0, ListChannels()).channels)
    for call in (OpenChannel(A, ("true",)), ReadChannel(A), WriteChannel(A)):
        with pytest.raises(NotFoundError, match="is over"):
            eventually(lambda call=call: inside.driver.reach("1", 0, call) and None)
    assert len(opened.read_text().split()) == 1


def test_so_many_channels_and_no_more(inside, monkeypatch):
    monkeypatch.setattr(channels, "MOST_CHANNELS", 2)
    for name in (A, B):
        inside.driver.reach("1", 0, OpenChannel(name, ("cat",)))
    with pytest.raises(ClusterError, match="2 channels into it are open: close some"):
        inside.driver.reach("1", 0, OpenChannel(C, ("cat",)))


def test_a_port_is_reached_from_inside(inside):
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
        inside.driver.reach("1", 0, OpenChannel(A, port=port))
        line, _ = door.accept()
        with line:
            inside.driver.reach("1", 0, WriteChannel(A, 0, b"ping", eof=True))
            assert line.recv(100) + line.recv(100) == b"ping"
            line.sendall(b"pong")
        assert read_all(inside, A) == ("pong", 0)
    text, code = run_inside(inside, channel=B, port=port)
    assert (f"nothing listens on port {port} in the job" in text, code) == (True, 1)


def test_what_was_started_is_gone_with_the_run_and_with_its_shim(inside):
    run_inside(inside, "sh", "-c", "setsid sleep 1000 & echo $!")
    inside.driver.reach("1", 0, OpenChannel(B, ("sleep", "1000")))
    key = inside.key("1.0")
    eventually(lambda: len(marked(key)) == 3)
    os.kill(inside.shim("1.0"), signal.SIGKILL)
    inside.told.run("1.0", "lost")
    eventually(lambda: not marked(key))
    with pytest.raises(ConflictError, match="does not run at the moment"):
        inside.driver.reach("1", 0, ReadChannel(B))


def test_who_is_in_a_channel_does_not_keep_a_job_from_ending(bench):
    bench.add()
    started(bench, "while [ ! -e ../go ]; do sleep 0.05; done")
    bench.driver.reach("1", 0, OpenChannel(A, ("sleep", "1000")))
    (bench.root / "m0" / "jobs" / "1" / "go").touch()
    assert bench.told.end("1.0").code == 0


def test_another_rank_or_job_is_not_there(inside):
    with pytest.raises(NotFoundError, match="has no rank 1: the last is 0"):
        inside.driver.reach("1", 1, ListChannels())
    with pytest.raises(ConflictError, match="job 9 does not run at the moment"):
        inside.driver.reach("9", 0, ListChannels())


# --- the keeper, step by step ---------------------------------------------------------------------


class NoShim:
    """Stands for a shim without a box."""

    box = None
    folder = "/nowhere"
    order = types.MappingProxyType({})

    def fork(self, *, outside):
        return os.fork()

    def enter_groups(self):
        signal.pthread_sigmask(signal.SIG_SETMASK, set())

    def settle(self):
        return


@pytest.fixture
def kept():
    made = []

    def make(**wanted):
        channel = shim.Channel(NoShim(), A, wanted, "", dict(os.environ))
        made.append(channel)
        channel.begin(socket)
        return channel

    yield make
    for channel in made:
        if channel.child and channel.code is None:
            os.kill(channel.child, signal.SIGKILL)
            os.waitpid(channel.child, 0)
        for fd in {*channel.sources, channel.sink} - {-1}:
            os.close(fd)


def test_a_command_that_nobody_listens_to_ends(kept):
    channel = kept(argv=["sh", "-c", "echo; exec sleep 1000"])
    eventually(lambda: [channel.take(fd) for fd in channel.sources] and channel.end)
    channel.look()
    assert channel.hang_up_at == shim.FOREVER
    channel.heard -= shim.CHANNEL_IDLE_S + 1
    eventually(lambda: channel.look() or channel.code is not None)
    assert channel.code == -signal.SIGTERM
    eventually(lambda: channel.look() or channel.over)
    assert not alive(channel.child)


def test_of_a_terminal_the_oldest_goes(kept):
    channel = kept(argv=["cat"], tty=True)
    for number in range(40):
        channel.put(shim.OUT, b"%05d" % number * 10_000)
    assert channel.end - channel.start <= shim.KEPT_OUTPUT + 2 * shim.PIECE
    assert channel.start > 0
    assert channel.place(0) == channel.start
    last = channel.read(channel.place(-50_005), 1 << 20)
    assert last[shim.HEAD :] == b"00039" * 10_000
    assert channel.readable()  # it never waits


# --- lanes ----------------------------------------------------------------------------------------


def test_calls_wait_for_their_agent_and_only_it_may_answer():
    lanes = lane.CallLanes()
    number = lanes.post("agent", "1", "1.0", 0, ListChannels())
    assert lanes.is_wanted("agent")
    assert not lanes.is_wanted("agent")  # it was told
    assert not lanes.is_wanted("other")
    assert lanes.exchange("other", [], 0.0) == ()
    (call,) = lanes.exchange("agent", [], 0.0)
    assert (call.id, call.run) == (number, "1.0")
    lanes.exchange("other", [LaneAnswer(number, CallAnswer(b"lie"))], 0.0)
    got = []
    asker = threading.Thread(target=lambda: got.append(lanes.wait(number, 300.0)))
    asker.start()
    lanes.exchange("agent", [LaneAnswer(number, CallAnswer(b"true"))], 0.0)
    asker.join()
    assert got == [CallAnswer(b"true")]


def test_an_agent_that_does_not_come_has_so_many_calls_and_no_more():
    lanes = lane.CallLanes()
    numbers = [lanes.post("agent", "1", "1.0", 0, ListChannels()) for _ in range(lane.MOST_PENDING)]
    with pytest.raises(ClusterError, match="too many calls"):
        lanes.post("agent", "1", "1.0", 0, ListChannels())
    with pytest.raises(ClusterError, match="does not answer"):
        lanes.wait(numbers[0], 0.0)
    lanes.post("agent", "1", "1.0", 0, ListChannels())  # there is room again


def test_an_agent_reports_while_all_its_calls_wait(inside):
    inside.driver.reach("1", 0, OpenChannel(A, ("cat",)))

    def read():
        with contextlib.suppress(RotaError):  # some are too many
            inside.driver.reach("1", 0, ReadChannel(A, wait_s=20.0))

    readers = [threading.Thread(target=read) for _ in range(100)]  # more than it answers at once
    for reader in readers:
        reader.start()
    agent = inside.machines[0].agent
    number = agent.report().number
    inside.launch("2.0", "true")
    assert inside.told.end("2.0").code == 0
    assert isinstance(agent.report(), AgentReport)
    assert agent.report().number > number
    inside.driver.kill("1.0")  # all reads end with it
    for reader in readers:
        reader.join()
