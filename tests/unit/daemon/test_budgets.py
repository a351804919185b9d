"""Budgets by month on a living cluster: time enters by the journal, and months outlive a daemon."""

import pytest
from msgspec import structs

from rota.core.admission import BudgetUse
from rota.core.errors import InputError, OptionError
from rota.core.findings import AuditFacts, find
from rota.core.jobs import HELD
from rota.daemon.budgets import BudgetWatch
from rota.daemon.settings import Permissions, Queue, Scheduling, Settings
from rota.server import dated, declared
from rota.study.config import RunConfig
from rota.study.run import simulate
from scripted import Power, Script, ScriptedWorld, drive, job_file, make_loop

# 18 GPU-seconds; the month ends at second 120
BUDGET = "budget:default=0.005,per=month,start=2026-01-31T23:58:00"


def world():
    return ScriptedWorld({"1": 30.0, "2": 10.0, "3": 10.0}, start_s=0.0, stop_s=0.0)


def script():
    return Script([(0.0, job_file(1)), (40.0, job_file(1)), (45.0, job_file(1))])


def starts(loop):
    return [job.first_start_s for job in loop.state.engine.jobs.values()]


def test_a_held_job_starts_when_the_month_begins(tmp_path):
    place = world()
    loop = make_loop(tmp_path / "rota.db", place, nodes=(1, 4), admission=BUDGET)
    drive(loop, place, script())
    # the third enters when the second is over: 8 of 18 GPU-seconds are left
    assert starts(loop) == [0.0, 120.0, 130.0]
    assert loop.state.engine.jobs[1].end_s == 30.0


def test_a_month_outlives_the_daemon(tmp_path):
    place = world()
    loop = make_loop(tmp_path / "rota.db", place, nodes=(1, 4), admission=BUDGET)
    commit = loop.journal.commit

    def dies(batch):
        commit(batch)
        if batch.time_s >= 45.0:
            raise Power

    loop.journal.commit = dies
    with pytest.raises(Power):
        drive(loop, place, script())
    loop.store.close()
    place.listener = None
    again = make_loop(tmp_path / "rota.db", place, nodes=(1, 4), admission=BUDGET)
    jobs = again.state.engine.jobs
    assert [job.phase == HELD for job in jobs.values()][:2] == [False, True]
    drive(again, place, Script([]))
    assert starts(again) == [0.0, 120.0, 130.0]


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("budget:of=a:1,per=month", "budget:of=a:1,per=month,start=1970-01-02T00:00:00"),
        ("budget:of=a:1,per=month,start=2026-01-01", "budget:of=a:1,per=month,start=2026-01-01"),
        ("budget:of=a:1", "budget:of=a:1"),
        ("accept-all", "accept-all"),
    ],
)
def test_a_daemon_says_once_when_its_second_0_was(text, made):
    assert dated(Scheduling(admission=text), 86400.0).admission == made


def test_what_runs_counts_for_a_budget(tmp_path):
    place = world()
    loop = make_loop(tmp_path / "rota.db", place, nodes=(1, 4), admission=BUDGET)
    seen = {}

    def look(batch):
        commit(batch)
        engine = loop.state.engine
        seen[batch.time_s] = [
            (use.name, use.used_gpu_s, use.until_s)
            for use in engine.scheduler.budgets(engine.view, batch.time_s)
        ]

    commit, loop.journal.commit = loop.journal.commit, look
    drive(loop, place, Script([(0.0, job_file(1)), (14.0, job_file(1))]))
    assert seen[14.0] == [("", 14.0, 120.0)]  # 14 of 18 GPU-seconds, of the job that runs
    assert seen[30.0][0][1] == 30.0


class Kept(dict):
    """Facts of a store."""

    def fact(self, name, first):
        return self.setdefault(name, first)

    def change_fact(self, name, value):
        self[name] = value


def test_levels_are_told_once_in_each_period():
    now, facts, notes = [BudgetUse("queue", "vision", 0.0, 360_000.0, 100.0)], Kept(), []

    def step(used_h, until_s=100.0):
        now[0] = now[0]._replace(used_gpu_s=used_h * 3_600.0, until_s=until_s)
        watch.step()

    watch = BudgetWatch(lambda: now, facts, notes.append)
    for used_h in (10, 79, 80, 85, 99):
        step(used_h)
    told = "budget: queue 'vision' has used 80 of 100 GPU-hours of its budget (80%)"
    assert notes == [told]
    watch = BudgetWatch(lambda: now, facts, notes.append)  # the next daemon
    step(99)
    step(100)
    step(104)
    assert notes == [told, told.replace("80 of", "100 of").replace("80%", "100%")]
    step(3, until_s=200.0)
    step(81, until_s=200.0)
    assert len(notes) == 3
    assert len(facts["budgets"]) < 60  # of periods that are over nothing is kept


def test_an_audit_names_budgets_that_are_nearly_used():
    uses = [BudgetUse("user", "ann", 90.0, 100.0), BudgetUse("user", "bob", 79.0, 100.0)]
    (found,) = find(AuditFacts(budgets=uses))
    assert (found.kind, found.subject) == ("budget", "ann")
    assert "user 'ann' has used 0.025 of 0.0277778 GPU-hours of its budget (90%)" in found.text


def test_a_budget_of_a_queue_that_is_not_declared_is_a_mistake(caplog):
    wrong = Settings(admission="budget:of=visoin:10", queues=(Queue("vision"), Queue("nlp")))
    with pytest.raises(InputError, match="unknown queue 'visoin': did you mean 'vision'"):
        declared(wrong)
    declared(structs.replace(wrong, permissions=Permissions(undeclared_queues=True)))
    declared(structs.replace(wrong, admission="budget:of=vision:10"))
    declared(structs.replace(wrong, admission="budget:of=ann:10,by=user"))
    declared(structs.replace(wrong, queues=()))  # any queue may come


def test_a_budget_of_a_queue_without_jobs(tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text("job_id,submit_s,num_gpus,duration_s,vc\na,0,1,5,vision\n")

    def notes(admission):
        config = RunConfig(trace=str(trace), cluster="1x4", policy="fifo", admission=admission)
        return simulate(config).notes

    with pytest.raises(OptionError, match="there is no queue 'visoin': did you mean 'vision'"):
        notes("budget:of=visoin:10")
    (note,) = notes("budget:of=robots:10/vision:5")
    assert "no job is of robots, so it holds nobody; there are vision" in note
    assert notes("budget:of=vision:10") == notes("budget:of=ann:10,by=user") == []
