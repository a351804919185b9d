"""The engine with a memory, on a scripted world: nothing lost, nothing twice, same decisions."""

import random

import pytest

from rota.core.jobs import CANCELLED, DONE
from rota.core.knowledge import Knowledge
from rota.core.log import Record
from rota.engine.invariants import Invariants
from rota.live.inputs import JobRequest, NodeRequest, Reconfigured
from scripted import Power, Script, ScriptedWorld, a_day, drive, job_file, make_loop
from thinning import thinned

WISHES = (JobRequest, NodeRequest, Reconfigured)
POLICIES = ["fifo", "tiresias:limits=8/40", "srtf", "easy", "hived"]


def logged(loop):
    return [row[1:] for row in loop.store.rows(0, 10**9)]


@pytest.mark.parametrize(("policy", "seed"), thinned(POLICIES, range(3)))
def test_everything_ends_and_every_invariant_holds(policy, seed, tmp_path):
    work, entries = a_day(seed)
    world = ScriptedWorld(work)
    loop = make_loop(tmp_path / "s.db", world, policy=policy, checker=Invariants)
    drive(loop, world, Script(entries))
    assert {job.phase for job in loop.state.engine.jobs.values()} == {DONE, CANCELLED}
    assert not world.running
    assert not loop.state.cluster.runs.by_id
    kinds = {row[1] for row in logged(loop)}
    assert {Record.HELD, Record.CANCELLED, Record.NODE_CLOSED, Record.STOP} <= kinds


def explosive(loop, fuse, where, committed):
    """Make the store's owner die at one of its next commits, before or after it is done."""
    append = loop.store.append

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

    loop.store.append = failing


@pytest.mark.parametrize(("policy", "seed"), thinned(POLICIES, range(4)))
def test_a_crash_changes_no_later_decision(policy, seed, tmp_path):
    work, entries = a_day(seed)
    calm = ScriptedWorld(work)
    expected = make_loop(tmp_path / "calm.db", calm, policy=policy)
    drive(expected, calm, Script(entries))

    dice = random.Random(seed)  # noqa: S311
    world, script, committed = ScriptedWorld(work), Script(entries), []
    crashes = 0
    while True:
        loop = make_loop(tmp_path / "crash.db", world, policy=policy)
        loop.wanted = loop.state.scheduling  # the configuration was changed too
        explosive(loop, dice.randrange(1, 10), dice.choice(["before", "after"]), committed)
        try:
            drive(loop, world, script)
        except Power:
            crashes += 1
            world.listener = None
            loop.store.close()
            script.forget_committed(loop.store.job_number, committed)
        else:
            break
    assert crashes > 3
    assert len(set(world.launched)) == len(world.launched)
    assert logged(loop) == logged(expected)


def test_a_change_after_a_long_absence_is_made_when_it_is_made(tmp_path):
    world = ScriptedWorld({"1": 100.0, "2": 100.0})
    loop = make_loop(tmp_path / "s.db", world, policy="tiresias:limits=8/40", nodes=(1, 4))
    script = Script([(0.0, job_file(4, estimate=100.0)), (0.0, job_file(4, estimate=50.0))])
    loop.go_live()
    script.speak(loop, 0.0)
    for _ in range(2):
        loop.step()
    assert loop.state.engine.timers.heap  # the running job will be demoted
    loop.store.close()  # it dies
    world.listener = None

    world.go(60.0)
    loop = make_loop(tmp_path / "s.db", world, policy="srtf", nodes=(1, 4))
    loop.go_live()
    loop.step()
    loop.journal.flush()
    note = next(row for row in loop.store.rows(0, 1000) if row[2] == Record.NOTE)
    assert (note[1], note[7]) == (60.0, "policy: tiresias:limits=8/40 -> srtf (configuration)")
    before = logged(loop)
    loop.store.close()  # it dies again

    loop = make_loop(tmp_path / "s.db", world, policy="srtf", nodes=(1, 4))
    loop.journal.flush()
    assert logged(loop)[: len(before)] == before
    assert loop.state.scheduling.policy == "srtf"


def test_speeds_of_a_job_file_are_told_to_policies_that_ask(tmp_path):
    world = ScriptedWorld({"1": 100.0, "2": 100.0})
    loop = make_loop(tmp_path / "s.db", world, policy="fifo", nodes=(1, 4))
    speeds = {"v100": 1.0, "k80": 0.25}
    Script([(0.0, job_file(1, speeds=speeds)), (0.0, job_file(1))]).speak(loop, 0.0)
    loop.go_live()
    for _ in range(2):
        loop.step()
    loop.journal.flush()
    loop.store.close()  # it dies

    loop = make_loop(tmp_path / "s.db", world, policy="fifo", nodes=(1, 4))
    with_speeds, without = (loop.state.engine.jobs[number] for number in (1, 2))
    for job in (with_speeds, without):
        job.known = int(Knowledge.SPEEDS)
    assert [with_speeds.speed_on(kind) for kind in ("v100", "k80", "other")] == [1.0, 0.25, 1.0]
    assert without.speed_on("k80") == 1.0
    loop.store.close()
