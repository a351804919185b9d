"""The process that speaks with Ray, and the actor, without a Ray."""

import asyncio
import json
import os
import queue
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from agents_net import eventually
from daemon_process import processes_of
from rota.core.errors import ClusterError
from rota.live.agent import shim
from rota.live.drivers.agent_run import AgentRun
from rota.live.drivers.ray.bridge import PartActor, WatchedPart, brief, read_output
from rota.live.drivers.ray.logs import RayLogs
from rota.live.drivers.ray.options import RayOptions
from rota.live.drivers.ray.order import new_part
from rota.live.drivers.ray.port import RayBridge
from slurm_runs import order


@pytest.fixture
def part(tmp_path, monkeypatch):
    """Return `part(run=...)`: an actor as Ray would make it, with two GPUs."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    made, loop = [], asyncio.new_event_loop()

    def make(**launch):
        run = AgentRun(order("1.0", [("n1", 2)], **launch))
        (key,) = run.parts
        new = new_part(run.launch_of(key, "127.0.0.1"), "id1", tmp_path / "root")
        told = {**new.asked, "shim": Path(shim.__file__).read_text()}
        made.append(PartActor(zlib.compress(json.dumps(told).encode())))
        made[-1].call = loop.run_until_complete
        return made[-1]

    yield make
    for each in made:
        loop.run_until_complete(each.stop("kill"))
        if each._process is not None:
            each._process.wait()
            loop.remove_reader(each._wake)
            os.close(each._wake)
    loop.close()
    eventually(lambda: not processes_of(tmp_path))


def until(part, state):
    async def listen():
        version, found = -1, {}
        while found.get("state") not in (state, "ended", "lost"):
            version, found = await part.news(version)
        return found

    return part.call(listen())


def output(part, name):
    return part.call(part.read(name, 0, 10_000))[1].decode()


def test_an_actor_starts_the_job_once_and_tells_its_end(part):
    script = 'echo "$RANK $CUDA_VISIBLE_DEVICES $local_gpu_id"; exit 3'
    made = part(run=script, per="gpu")
    found = until(made, "ended")
    assert (found["state"], found["code"], found["why"]) == ("ended", 3, "exit code 3")
    assert found["ended"]["clock"] >= found["began"]["clock"]
    assert set(output(made, "out").splitlines()) <= {"0 4,6 4", "1 4,6 6"}
    again = part(run="echo twice")  # its folder is there: the same part is never started again
    assert until(again, "lost")["why"].startswith("cannot be started on its node")
    assert "twice" not in output(made, "out")


def test_an_actor_asks_the_job_to_end(part):
    made = part(run="trap 'echo saved; exit 0' TERM; echo began; while :; do sleep 0.02; done")
    until(made, "running")
    eventually(lambda: "began" in output(made, "out"))
    made.call(made.stop("halt"))
    found = until(made, "ended")
    assert (found["code"], found["asked"]) == (0, True)
    assert "saved" in output(made, "out")


def test_a_shim_that_dies_leaves_nothing_and_the_part_is_lost(part, tmp_path):
    made = part(run="echo began; sleep 300")
    until(made, "running")
    made._process.kill()
    found = until(made, "lost")
    assert (found["state"], found["why"]) == ("lost", "its guard died")
    eventually(lambda: not processes_of(tmp_path))


def test_output_is_read_over_its_rotated_parts(tmp_path):
    (tmp_path / "0.out.10").write_bytes(b"abcde")
    (tmp_path / "0.out").write_bytes(b"fgh")
    assert read_output(tmp_path / "0.out", 0, 100) == (10, b"abcde")
    assert read_output(tmp_path / "0.out", 13, 1) == (13, b"d")
    assert read_output(tmp_path / "0.out", 15, 100) == (15, b"fgh")
    assert read_output(tmp_path / "0.out", 18, 100) == (18, b"")


class Written:
    """A port that has only outputs."""

    def __init__(self, **texts):
        self.texts = {name: text.encode() for name, text in texts.items()}

    def read(self, run, rank, name, offset, limit):
        return offset, self.texts.get(name, b"")[offset : offset + limit]


def test_output_is_copied_in_the_order_of_the_node_and_runs_follow_each_other(tmp_path):
    entries = [(0, 0), (4, 0), (4, 4), (8, 4)]
    noted = "".join(f"{out:016x} {err:016x}\n" for out, err in entries)
    port = Written(out="one\ntwo\nmore", err="ERR\n", order=noted)
    logs = RayLogs(port, tmp_path)
    logs.fetch("1", "1.0", 0)
    assert logs.read("1", "all", 0, 0, 100) == b"one\nERR\ntwo\n"  # as far as was noted
    logs.fetch("1", "1.0", 0, ended=True)
    assert logs.read("1", "out", 0, 0, 100) == b"one\ntwo\nmore"
    port.texts = {"out": b"second\n"}
    logs.fetch("1", "1.1", 0, ended=True)
    assert logs.read("1", "all", 0, 0, 100) == b"one\nERR\ntwo\nmoresecond\n"
    assert logs.read("1", "all", 0, -7, 3) == b"sec"
    assert logs.read("1", "err", 0, 0, 100) == b"ERR\n"
    assert logs.read("1", "out", 1, 0, 100) == b""
    with pytest.raises(ClusterError, match="ask for out, err or all"):
        logs.read("1", "log", 0, 0, 100)


# --- the process ----------------------------------------------------------------------------------

STUB = """#!/bin/sh
cd "$(dirname "$0")"
echo started >> starts
mute() {  # nobody hears it any more, but it takes what it is asked until its input ends
  exec >&-
  cat > /dev/null
  exit
}
read first
cat hello
if [ -e mute ]; then rm mute; mute; fi
while read line; do
  n=$(echo "$line" | sed 's/.*"id": \\([0-9]*\\).*/\\1/')
  case "$line" in
    *die*) exit 3;;
    *mute*) mute;;
    *) echo '{"news": true}'; printf '{"id": %s, "answer": {"nodes": [], "groups": {}}}\\n' $n;;
  esac
done
"""


def bridge(tmp_path, hello, **options):
    python = tmp_path / "python"
    python.write_text(STUB)
    (tmp_path / "hello").write_text(json.dumps({"id": 0, **hello}) + "\n")
    python.chmod(0o755)
    heard = []
    made = RayBridge(
        "rota-x",
        tmp_path / "ray",
        RayOptions(python=str(python), **options),
        lambda: heard.append(1),
    )
    return made, heard


def test_a_bridge_that_ends_is_started_again(tmp_path):
    made, heard = bridge(tmp_path, {"answer": {"ray": "2", "python": "3"}})
    try:
        assert made.look().nodes == ()
        assert (made.version, len(heard)) == ("Ray 2, Python 3", 1)
        with pytest.raises(ClusterError, match="bridge ended") as ended:
            made.remove("die")
        assert ended.value.retryable
        assert made.look().groups == {}
    finally:
        made.close()
    with pytest.raises(ClusterError, match="closed"):
        made.look()


def test_a_bridge_whose_output_ended_is_asked_nothing_although_it_lives(tmp_path):
    made, _ = bridge(tmp_path, {"answer": {"ray": "2", "python": "3"}})
    with pytest.raises(ClusterError, match="bridge ended") as ended:
        made.remove("mute")
    assert ended.value.retryable
    assert made.look().groups == {}
    assert (tmp_path / "starts").read_text() == "started\n" * 2
    made.close()


def test_a_bridge_whose_output_ends_after_its_first_word_fails_what_it_was_asked(tmp_path):
    made, _ = bridge(tmp_path, {"answer": {"ray": "2", "python": "3"}})
    (tmp_path / "mute").touch()
    with pytest.raises(ClusterError, match="bridge ended") as ended:
        made.look()
    assert ended.value.retryable
    assert made.look().groups == {}
    assert (tmp_path / "starts").read_text() == "started\n" * 2
    made.close()


def test_whoever_waits_for_a_bridge_to_start_is_told_that_it_was_closed(tmp_path):
    made, _ = bridge(tmp_path, {})
    (tmp_path / "hello").write_text("")
    with ThreadPoolExecutor(1) as others:
        looking = others.submit(made.look)
        eventually((tmp_path / "starts").exists)
        made.close()
        with pytest.raises(ClusterError, match="closed"):
            looking.result()


def test_what_others_write_on_its_output_is_passed_over(tmp_path):
    made, _ = bridge(tmp_path, {"answer": {"ray": "2", "python": "3"}})
    hello = (tmp_path / "hello").read_text()
    (tmp_path / "hello").write_text(f"Loading module ray/2\n[1, 2]\n{hello}")
    assert made.look().nodes == ()
    made.close()


def test_a_program_that_is_no_python_with_ray_is_named(tmp_path):
    made = RayBridge("x", tmp_path / "ray", RayOptions(python="/bin/cat"), print)
    with pytest.raises(ClusterError, match=r"ended: .*/bin/cat must be .* check .ray\.python"):
        made.look()
    made.close()


@pytest.mark.parametrize(
    ("why", "helps"),
    [
        ("ModuleNotFoundError: No module named 'ray'", r"has no Ray.*\[ray\].*ray\.python"),
        ("ConnectionRefusedError: Connection refused", r"ray\.address.*--ray-address HOST:PORT"),
        ("RuntimeError: Version mismatch: 2.1", r"set .ray\.python. to an interpreter"),
    ],
)
def test_what_keeps_it_from_reaching_ray_is_told_with_the_remedy(tmp_path, why, helps):
    made, _ = bridge(tmp_path, {"error": why})
    with pytest.raises(ClusterError, match=f"(?s){helps}"):
        made.look()
    made.close()


def test_an_interpreter_that_is_not_there_and_an_address_of_clients_are_refused(tmp_path):
    missing = RayOptions(python=str(tmp_path / "none"))
    with pytest.raises(ClusterError, match=r"ray\.python is .*No such file"):
        RayBridge("x", tmp_path, missing, print).look()
    with pytest.raises(ClusterError, match="machine of the cluster"):
        RayBridge("x", tmp_path, RayOptions(address="ray://head:10001"), print)


class Actor:
    """Answers, later, what the test says."""

    def __init__(self):
        self.asked = []
        self.news = self

    def remote(self, known):
        self.asked.append((known, Future()))
        return self

    def future(self):
        return self.asked[-1][1]


class ActorDiedError(Exception):
    pass


class ActorUnavailableError(Exception):
    pass


def test_an_actor_is_asked_again_until_it_is_dead(monkeypatch):
    monkeypatch.setattr("rota.live.drivers.ray.bridge.POLL_S", 0.0)
    heard = queue.Queue()
    actor = Actor()
    part = WatchedPart(actor, heard)

    def say(answer=None, error=None):
        asked = actor.asked[-1][1]
        asked.set_exception(error) if error else asked.set_result(answer)
        who, done = heard.get()
        assert who is part
        return part.hear(done)

    assert say((4, {"state": "running"}))
    assert (part.state, actor.asked[-1][0]) == ({"state": "running"}, 4)
    assert not say((4, {"state": "running"}))
    count = len(actor.asked)
    assert not say(error=ActorUnavailableError("for a moment"))
    eventually(lambda: len(actor.asked) == count + 1)
    assert part.state == {"state": "running"}
    assert say(error=ActorDiedError("The actor is dead"))
    assert part.state == {"state": "gone", "why": "The actor is dead"}
    assert len(actor.asked) == count + 1


def test_what_ray_says_is_made_short():
    error = RuntimeError(
        "The actor died unexpectedly.\n\tclass_name: Part\nThe actor is dead because."
    )
    assert brief(error) == "The actor is dead because."
    assert brief(RuntimeError()) == "RuntimeError"
