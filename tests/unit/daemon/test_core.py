"""The engine with a memory, on a scripted world: nothing lost, nothing twice, same decisions."""

import random

import pytest

from rota.backends.live.inputs import JobWish, NodeWish, Reconfigured, Submitted
from rota.backends.live.mailbox import Ask
from rota.backends.live.orders import NodeStatus
from rota.core.events import Record
from rota.core.jobs import CANCELLED, DONE, INF
from rota.core.knowledge import Knowledge
from rota.core.topology import NodeSpec
from rota.daemon.store import StoredJob
from rota.engine.invariants import Invariants
from rota.jobfile.model import JobFile
from scripted import Power, ScriptedWorld, job_file, make_core

WISHES = (JobWish, NodeWish, Reconfigured)
POLICIES = ["fifo", "tiresias:limits=8/40", "srtf", "easy"]


class Script:
    """What people want, and when. What was committed is not said again."""

    def __init__(self, entries):
        self.everything = self.entries = sorted(entries, key=lambda entry: entry[0])
        self.said = 0
        self.happened = []  # to nodes: that is not repeated

    def next_s(self):
        return self.entries[self.said][0] if self.said < len(self.entries) else INF

    def speak(self, core, now_s):
        """Ask for everything that is due."""
        due = []
        while self.next_s() <= now_s:
            due.append(self.entries[self.said][1])
            self.said += 1
        files = [what for what in due if isinstance(what, JobFile)]
        if files:
            self.ask(core, lambda: self.submit(core, files))
        for wish in due:
            if isinstance(wish, NodeStatus):
                self.happened.append(wish)
                core.driver.world.node(wish)
            elif not isinstance(wish, JobFile):
                self.ask(core, lambda wish=wish: self.wish(core, wish))

    def ask(self, core, act):
        with core.cluster.mailbox._changed:
            core.cluster.mailbox._asks.append(Ask(act))

    def submit(self, core, files):
        first = core.next_number()
        jobs = [StoredJob(first + i, "me", core.cluster.now_s, f) for i, f in enumerate(files)]
        core.accept(jobs, None)
        return [Submitted(first, len(files))], lambda: None

    def wish(self, core, wish):
        if isinstance(wish, JobWish) and core.engine.jobs[wish.job].terminal:
            return [], lambda: None
        return [wish], lambda: None

    def forget_committed(self, jobs, wishes):
        left = []
        for time_s, what in self.everything:
            if isinstance(what, JobFile):
                jobs -= 1
                if jobs < 0:
                    left.append((time_s, what))
            elif what not in wishes and what not in self.happened:
                left.append((time_s, what))
        self.entries, self.said = left, 0


def drive(core, world, script):
    """Until nothing can happen any more."""

    def wait_s(until_s):
        world.go(min(until_s, world.next_s(), script.next_s()))
        script.speak(core, world.now_s)
        if until_s == world.next_s() == script.next_s() == INF:
            core.cluster.interrupt()
        return 0.0

    core.cluster._clock.wait_s = wait_s
    core.go_live()
    script.speak(core, world.now_s)
    still = 0
    while still < 3:
        before = core.engine.view.version
        core.step()
        mailbox = core.cluster.mailbox
        quiet = world.next_s() == script.next_s() == INF and not mailbox._messages
        still = still + 1 if quiet and core.engine.view.version == before else 0
    core._flush()


def logged(core):
    return [row[1:] for row in core.store.rows(0, 10**9)]


def a_day(seed, jobs=25):
    """How long jobs take, and what people want."""
    dice = random.Random(seed)  # noqa: S311
    work = {str(n): dice.choice([1.0, 2.5, 4.0, 9.0, 30.0]) for n in range(1, jobs + 1)}
    at_s = 0.0
    entries = []
    for number in range(1, jobs + 1):
        at_s += dice.choice([0.0, 0.5, 1.0, 3.0])
        entries.append((at_s, job_file(dice.choice([1, 1, 2, 4, 8]), estimate=work[str(number)])))
        if dice.random() < 0.3:
            what = dice.choice(["cancel", "hold"])
            entries.append((at_s + 2.0, JobWish(what, number, "me")))
            if what == "hold":
                entries.append((at_s + 8.0, JobWish("release", number, "me")))
    for time_s, what, node in [
        (12.0, "drain", "n1"), (15.0, "clear", "n2"), (30.0, "undrain", "n1"),
        (31.0, "undrain", "n2"),
    ]:  # fmt: skip
        entries.append((time_s, NodeWish(what, node, "me")))
    entries += [
        (9.0, NodeStatus("late", "up", NodeSpec("late", 4))),
        (17.0, NodeStatus("n0", "silent")),
        (18.0, NodeStatus("n0", "lost")),
        (20.0, Reconfigured({"policy": "smallest"}, by="me")),
        (24.0, NodeStatus("n0", "up")),
        (26.0, Reconfigured({"policy": "tiresias:limits=8/40", "placement": "spread"}, by="me")),
        (28.0, NodeStatus("odd", "up", NodeSpec("odd", 2, "k80"))),
    ]
    return work, entries


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_everything_ends_and_every_invariant_holds(policy, seed, tmp_path):
    work, entries = a_day(seed)
    world = ScriptedWorld(work)
    core = make_core(tmp_path / "s.db", world, policy=policy, checker=Invariants)
    drive(core, world, Script(entries))
    assert {job.phase for job in core.engine.jobs.values()} == {DONE, CANCELLED}
    assert not world.running
    assert not core.cluster.runs.by_id
    kinds = {row[1] for row in logged(core)}
    assert {Record.HELD, Record.CANCELLED, Record.NODE_CLOSED, Record.STOP} <= kinds


def explosive(core, fuse, where, committed):
    """Make the store's owner die at one of its next commits, before or after it is done."""
    append = core.store.append

    def failing(batch, *args, **kwargs):
        nonlocal fuse
        fuse -= batch is not None
        if fuse == 0 and where == "before":
            raise Power
        append(batch, *args, **kwargs)
        if batch is not None:
            committed.extend(i for i in batch.inputs if isinstance(i, WISHES))
        if fuse == 0:
            raise Power

    core.store.append = failing


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(4))
def test_a_crash_changes_no_later_decision(policy, seed, tmp_path):
    work, entries = a_day(seed)
    calm = ScriptedWorld(work)
    expected = make_core(tmp_path / "calm.db", calm, policy=policy)
    drive(expected, calm, Script(entries))

    dice = random.Random(seed)  # noqa: S311
    world, script, committed = ScriptedWorld(work), Script(entries), []
    crashes = 0
    while True:
        core = make_core(tmp_path / "crash.db", world, policy=policy)
        core.wanted = core.scheduling  # the configuration was changed too
        explosive(core, dice.randrange(1, 10), dice.choice(["before", "after"]), committed)
        try:
            drive(core, world, script)
        except Power:
            crashes += 1
            world.listener = None
            core.store.close()
            script.forget_committed(core.store.job_number, committed)
        else:
            break
    assert crashes > 3
    assert len(set(world.launched)) == len(world.launched)
    assert logged(core) == logged(expected)


def test_a_change_after_a_long_absence_is_made_when_it_is_made(tmp_path):
    world = ScriptedWorld({"1": 100.0, "2": 100.0})
    core = make_core(tmp_path / "s.db", world, policy="tiresias:limits=8/40", nodes=(1, 4))
    script = Script([(0.0, job_file(4, estimate=100.0)), (0.0, job_file(4, estimate=50.0))])
    core.go_live()
    script.speak(core, 0.0)
    for _ in range(2):
        core.step()
    assert core.engine.timers  # the running job will be demoted
    core.store.close()  # it dies
    world.listener = None

    world.go(60.0)
    core = make_core(tmp_path / "s.db", world, policy="srtf", nodes=(1, 4))
    core.go_live()
    core.step()
    core._flush()
    note = next(row for row in core.store.rows(0, 1000) if row[2] == Record.NOTE)
    assert (note[1], note[7]) == (60.0, "policy: tiresias:limits=8/40 -> srtf (configuration)")
    before = logged(core)
    core.store.close()  # it dies again

    core = make_core(tmp_path / "s.db", world, policy="srtf", nodes=(1, 4))
    core._flush()
    assert logged(core)[: len(before)] == before
    assert core.scheduling.policy == "srtf"


def test_speeds_of_a_job_file_are_told_to_policies_that_ask(tmp_path):
    world = ScriptedWorld({"1": 100.0, "2": 100.0})
    core = make_core(tmp_path / "s.db", world, policy="fifo", nodes=(1, 4))
    speeds = {"v100": 1.0, "k80": 0.25}
    Script([(0.0, job_file(1, speeds=speeds)), (0.0, job_file(1))]).speak(core, 0.0)
    core.go_live()
    for _ in range(2):
        core.step()
    core._flush()
    core.store.close()  # it dies

    core = make_core(tmp_path / "s.db", world, policy="fifo", nodes=(1, 4))
    with_speeds, without = (core.engine.jobs[number] for number in (1, 2))
    for job in (with_speeds, without):
        job.known = int(Knowledge.SPEEDS)
    assert [with_speeds.speed_on(kind) for kind in ("v100", "k80", "other")] == [1.0, 0.25, 1.0]
    assert without.speed_on("k80") == 1.0
    core.store.close()
