"""Wishes that come in together: each happens, once, in one order."""

import threading

import pytest

from rota.core.jobs import CANCELLED
from rota.core.topology import Topology
from rota.daemon.loop import DaemonLoop
from rota.daemon.service import Daemon
from rota.daemon.settings import Scheduling
from rota.daemon.store import Store, StoredJob
from rota.daemon.tokens import Tokens
from rota.live.driver import RunStatus
from rota.live.drivers.pretend import PretendDriver
from rota.live.inputs import JobRequest, NodeRequest, Submitted
from rota.live.mailbox import PendingCall
from rota.wire import Actor
from scripted import ScriptedWorld, job_file, make_loop

ALICE = Actor("alice", "admin")


@pytest.fixture
def daemon(tmp_path):
    """Return a daemon that is not running yet, so that asks can pile up."""
    store = Store(tmp_path / "rota.db", durable=False)
    loop = DaemonLoop(store, PretendDriver(), Scheduling(), Topology.uniform(2, 2))
    yield Daemon(loop, Tokens(store))
    store.close()


def together(daemon, *asks):
    """Have these asked before the daemon looks; what each was answered."""
    answers = [None] * len(asks)

    def ask(number):
        try:
            answers[number] = asks[number]()
        except Exception as error:  # noqa: BLE001 - it is the answer
            answers[number] = error

    box = daemon.loop.mailbox
    threads = []
    for number in range(len(asks)):
        threads.append(threading.Thread(target=ask, args=(number,)))
        threads[-1].start()
        while len(box._calls) <= number:
            threading.Event().wait(0.001)
    runner = threading.Thread(target=daemon.run)
    runner.start()
    for thread in threads:
        thread.join(300)
    daemon.stop()
    runner.join(300)
    assert not daemon.failure
    return answers


@pytest.mark.parametrize("key", ["", "k"])
def test_a_drain_and_a_submission(daemon, file, key):
    node, jobs = together(
        daemon, lambda: daemon.drain("n0", ALICE), lambda: daemon.submit([file()], ALICE, key=key)
    )
    assert node.state == "drained"
    assert [info.id for info in jobs] == ["1"]
    assert daemon.loop.state.engine.jobs[1].started


def test_the_same_key_twice(daemon, file):
    first, second = together(
        daemon,
        lambda: daemon.submit([file()], ALICE, key="k"),
        lambda: daemon.submit([file()], ALICE, key="k"),
    )
    assert [info.id for info in first] == [info.id for info in second] == ["1"]


def test_two_reloads(daemon, tmp_path):
    config = daemon._config = tmp_path / "rota.yaml"
    config.write_text("policy: srtf\n")
    first, second = together(daemon, lambda: daemon.reload(ALICE), lambda: daemon.reload(ALICE))
    assert first == ["policy: fifo-skip -> srtf"]
    assert second == []
    assert daemon.loop.state.scheduling.policy == "srtf"


def ask(loop, act):
    with loop.mailbox._changed:
        loop.mailbox._calls.append(PendingCall(act))


def submit(loop, *files):
    first = loop.journal.next_number()
    loop.journal.accept([StoredJob(first + i, "me", 0.0, f) for i, f in enumerate(files)])
    return [Submitted(first, len(files))], lambda: None


def test_a_job_and_its_dependant_are_cancelled(tmp_path):
    world = ScriptedWorld({"1": 9.0, "2": 9.0})
    loop = make_loop(tmp_path / "s.db", world)
    loop.go_live()
    ask(loop, lambda: submit(loop, job_file(), job_file(depends_on=("1",))))
    loop.step()
    for number in (1, 2):
        ask(loop, lambda number=number: ([JobRequest("cancel", number, "me")], lambda: None))
    loop.step()
    assert loop.state.engine.jobs[1].phase == CANCELLED
    assert loop.state.engine.jobs[2].terminal
    loop.store.close()
    assert make_loop(tmp_path / "s.db", world).state.engine.jobs[2].terminal


def test_a_run_that_waits_and_is_halted_is_not_launched(tmp_path):
    world = ScriptedWorld({"1": 99.0}, stop_s=5.0)
    loop = make_loop(tmp_path / "s.db", world, nodes=(2, 1))
    loop.go_live()
    ask(loop, lambda: submit(loop, job_file()))
    for _ in range(2):
        loop.step()
    assert world.running
    run = loop.state.cluster.runs.current[1]
    loop.mailbox.post(RunStatus("1.0", "running"))
    loop.state.cluster.runs.give_up(loop.state.engine.jobs[1])
    following = loop.state.cluster.runs.make(loop.state.engine.jobs[1])
    assert following.waits
    following.halting = True
    assert loop.state.cluster.runs.remove(run) is None
    assert world.launched == ["1.0"]
    loop.store.close()


def test_a_node_wish_stays_alone(tmp_path):
    world = ScriptedWorld({"1": 9.0})
    loop = make_loop(tmp_path / "s.db", world)
    loop.go_live()
    ask(loop, lambda: ([NodeRequest("drain", "n0", "me")], lambda: None))
    ask(loop, lambda: submit(loop, job_file()))
    loop.step()
    assert not loop.state.engine.jobs
    loop.step()
    assert loop.state.engine.jobs[1].started
    loop.store.close()
