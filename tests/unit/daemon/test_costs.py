"""What the daemon does for one event, counted: once, and no more if the queue is longer."""

import pytest
import sqlalchemy as sa

from rota.core.errors import UnavailableError
from rota.core.jobs import WAITING
from rota.daemon import journal as journal_module
from rota.daemon import loop as loop_module
from rota.daemon import pictures, tables
from rota.daemon.state import ClusterState
from rota.daemon.store import Store
from scripted import Script, ScriptedWorld, a_day, drive, job_file, make_loop

TIRESIAS = "tiresias:limits=8/40"
WORK_S = 5.0


class Patience:
    """A loop on a scripted world whose journal looks at a clock of its own."""

    def __init__(self, path, policy=TIRESIAS, clock=lambda: 0.0):
        self.world = ScriptedWorld({str(number): WORK_S for number in range(1, 1000)})
        self.loop = make_loop(path, self.world, policy=policy, nodes=(1, 4))
        self.loop.journal._clock = clock
        self.commits = []
        self.loop.store.observe = self.commits.append
        self.loop.go_live()

    def submit(self, count=1, gpus=1):
        """One submission, which comes while the loop waits; the batch of it."""
        script = Script([])
        files = [job_file(gpus) for _ in range(count)]

        def wait_s(_):
            script.ask(self.loop, lambda: script.submit(self.loop, files))
            return 0.0

        self.loop._clock.wait_s = wait_s
        version = self.loop.state.engine.view.version
        while self.loop.state.engine.view.version == version:
            self.loop.step()

    def idle(self, steps=1):
        """What is due now, and nothing more."""

        def wait_s(_):
            self.loop.interrupt()
            return 0.0

        self.loop._clock.wait_s = wait_s
        for _ in range(steps):
            self.loop.step()

    def go(self, time_s):
        """Let the world go on, and the loop with it."""
        self.world.go(time_s)
        self.idle(6)


@pytest.fixture
def patience(tmp_path):
    made = []

    def make(**options):
        made.append(Patience(tmp_path / f"s{len(made)}.db", **options))
        return made[-1]

    yield make
    for each in made:
        each.loop.store.close()


# --- writing --------------------------------------------------------------------------------------


def rows_by_table(store):
    with store.reading() as connection:
        count = sa.func.count
        return {
            table.name: connection.execute(sa.select(count()).select_from(table)).scalar()
            for table in tables.metadata.sorted_tables
        }


def test_submissions_one_after_the_other_are_a_transaction_each(patience):
    now = [0.0]
    there = patience(clock=lambda: now[0])
    there.idle()
    there.commits.clear()
    for number in range(1, 6):
        there.submit()
        assert len(there.commits) == number
    assert there.loop.journal.is_behind
    stored = there.loop.store.log_number
    there.idle()
    assert (len(there.commits), there.loop.store.log_number) == (5, stored)
    now[0] += journal_module.KEEP_S  # nobody came with whom they could be written
    there.idle()
    assert len(there.commits) == 6
    assert there.loop.store.log_number > stored
    assert not there.loop.journal.is_behind
    now[0] += 1.0
    there.idle()
    assert len(there.commits) == 6


def test_what_one_submission_writes(patience):
    there = patience()
    there.submit(20)
    there.submit()
    before = rows_by_table(there.loop.store)
    there.submit()
    after = rows_by_table(there.loop.store)
    assert {name: n - before[name] for name, n in after.items() if n != before[name]} == {
        "jobs": 1, "journal": 1, "audit": 1, "log": 1,
    }  # fmt: skip


def test_a_submission_of_many_jobs_has_as_many_statements_as_one(patience):
    found = []
    for count in (1, 150):
        there = patience()
        there.submit(8)
        statements = []
        sa.event.listen(
            there.loop.store._engine,
            "before_cursor_execute",
            lambda *told, into=statements: into.append(told[2]),
        )
        there.submit(count)
        found.append(statements)
    assert found[0] == found[1]
    assert len(found[0]) == 4  # rows of the log from before, jobs, a line of audit, the batch


def test_many_rows_do_not_delay_the_next_answer(patience):
    there = patience()
    there.submit(journal_module.MANY)
    assert there.loop.journal.is_behind
    there.commits.clear()
    there.submit()
    assert len(there.commits) == 2  # all those rows first, while nobody waited


def test_rows_that_cannot_be_written_are_tried_again_later(patience, monkeypatch):
    now = [0.0]
    there = patience(clock=lambda: now[0])
    there.submit()
    tries = []

    def full(*rest):
        tries.append(rest)
        raise UnavailableError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(there.loop.store, "append", full)
        now[0] += journal_module.KEEP_S
        there.idle(5)
        assert len(tries) == 1
        now[0] += journal_module.RETRY_S
        there.idle(5)
        assert len(tries) == 2
    now[0] += journal_module.RETRY_S
    there.idle()
    assert not there.loop.journal.is_behind


def test_whoever_was_answered_finds_it_in_the_log(running, alice, file, monkeypatch):
    monkeypatch.setattr(journal_module, "KEEP_S", 3600.0)
    with running() as daemon:
        for number in range(1, 4):
            daemon.submit([file(gpus=4, lasts=3600)], alice)
            assert next(row.event for row in daemon.events(0, 100, str(number))) == "submit"
        daemon.submit([file(gpus=4, lasts=3600)], alice)
        assert daemon.status()["last_event"] == len(daemon.events(0, 1000))
    assert daemon.events(0, 100, "4")  # it has ended: what is there can be read
    daemon.store.close()  # of this reading


# --- jobs that are looked at ----------------------------------------------------------------------


def asked(there, name):
    """Count the calls of a method of the policy, or of `view.rank`."""
    engine = there.loop.state.engine
    calls = []
    owner = engine.view if name == "rank" else engine.scheduler.policy
    method = getattr(owner, name)

    def counted(*args):
        calls.append(args)
        return method(*args)

    setattr(owner, name, counted)
    return calls


def looks(patience, policy, queued):
    """Of one submission, when the head of the queue has left: keys made, and jobs ranked."""
    there = patience(policy=policy)
    there.submit(queued, gpus=4)
    for time_s in (0.5, WORK_S + 1.0, WORK_S + 2.0):
        there.go(time_s)
    state = there.loop.state
    keys, ranks = asked(there, "key"), asked(there, "rank")
    there.submit()
    job = state.engine.jobs[queued + 1]
    assert job.phase == WAITING
    picture = pictures.picture_job(job, state.cluster, state.projection, 0.0, state.engine.view)
    assert picture.reason == ("order" if policy == "fifo" else "capacity")
    return len(keys), len(ranks)


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip", TIRESIAS])
def test_a_submission_looks_at_no_more_jobs_if_the_queue_is_longer(policy, patience):
    assert looks(patience, policy, 20) == looks(patience, policy, 200) == (1, 0)


def test_an_end_looks_at_no_more_jobs_if_the_queue_is_longer(patience):
    found = []
    for queued in (20, 200):
        there = patience()
        there.submit(queued)
        there.go(0.5)
        keys, ranks = asked(there, "key"), asked(there, "rank")
        there.go(WORK_S + 1.0)
        assert len(there.world.launched) == 8  # four ended, four began
        found.append((len(keys), len(ranks)))
    assert found[0] == found[1]


@pytest.mark.parametrize("policy", ["fifo-skip", TIRESIAS, "srtf", "easy"])
def test_the_head_of_a_shape_is_the_one_that_ranks_first(policy, tmp_path, monkeypatch):
    """At any time of a day: what the scheduler says at once is what a look at all jobs finds."""
    work, entries = a_day(3)
    world = ScriptedWorld(work)
    loop = make_loop(tmp_path / "s.db", world, policy=policy)
    compared = []
    step = loop.step

    def compare():
        step()
        state = loop.state
        view, projection = state.engine.view, state.projection
        for job in view.active.values():
            if job.phase == WAITING:
                with monkeypatch.context() as patch:
                    reason = pictures.reason_of(job, projection, view)
                    first = pictures._firsts(projection, view)[job.shape.number]
                    known = view.head(job.shape.number)
                    if known is not None and known.phase == WAITING:
                        assert known is first
                        compared.append(known)
                    patch.setattr(view, "head", lambda shape: None)
                    patch.setattr(projection, "head_of", lambda shape: -1)
                    assert pictures.reason_of(job, projection, view) == reason

    loop.step = compare
    drive(loop, world, Script(entries))
    assert compared or policy == "easy"
    loop.store.close()


# --- starting again -------------------------------------------------------------------------------


def test_a_start_replays_what_came_after_the_snapshot_and_reads_every_job_once(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(loop_module, "SNAPSHOT_EVERY", 7)
    there = Patience(tmp_path / "s.db")
    for _ in range(31):
        there.submit()
    there.loop.store.close()  # it dies
    there.world.listener = None
    replayed, read = [], []
    apply, jobs = ClusterState.apply, Store.jobs

    def applied(state, batch):
        replayed.append(batch)
        apply(state, batch)

    def counted(store, first, count):
        read.append(count)
        return jobs(store, first, count)

    monkeypatch.setattr(ClusterState, "apply", applied)
    monkeypatch.setattr(Store, "jobs", counted)
    loop = make_loop(tmp_path / "s.db", there.world, policy=TIRESIAS, nodes=(1, 4))
    assert len(loop.state.engine.jobs) == 31
    assert len(replayed) < 7
    assert sum(read) == 31
    loop.store.close()
