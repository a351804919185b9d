"""Beside a Slurm, from what its commands printed: who is ahead, when a job starts, and why not."""

import json

import msgspec
import pytest

from rota.cli.app import run
from rota.core.errors import InputError
from rota.core.jobs import JobSpec, Request
from rota.study.beside.answer import BesideSlurm, meaning
from rota.study.beside.past import stretch_of
from rota.study.beside.saved import read_saved
from slurm_saved import BEGAN, save, schedule, squeue_entry


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    return schedule(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def now(jobs):
    """Late, while several jobs wait."""
    moments = range(jobs[-1]["submit"], BEGAN, -600)
    return next(at for at in moments if len(waiting(jobs, at)) >= 5)


def waiting(jobs, now):
    return [job for job in jobs if job["submit"] <= now < job["start"]]


@pytest.fixture(scope="module")
def saved(jobs, now, tmp_path_factory):
    return save(tmp_path_factory.mktemp("saved") / "slurm", jobs, now)


@pytest.fixture(scope="module")
def beside(saved):
    return BesideSlurm(read_saved(saved))


@pytest.fixture(scope="module")
def answer(beside, jobs, now):
    return beside.when(str(waiting(jobs, now)[-1]["id"]))


def test_who_is_ahead_is_slurms_own_order(answer, jobs, now):
    *before, asked = waiting(jobs, now)
    assert answer.forecast.id == str(asked["id"])
    assert answer.ahead == [str(job["id"]) for job in before]
    assert answer.ahead_count == len(before)


def test_the_interval_is_tested_on_the_log_and_printed(answer, now):
    found, tested = answer.forecast, answer.starts_backtest
    assert now <= found.earliest_at <= found.starts_at
    assert tested.questions == 24
    assert tested.share_inside >= 0.6
    assert (tested.stretch > 1) == (tested.simulated < 0.8)
    assert f"{tested.share_inside * 100:.0f} % of the 80 % intervals" in str(tested)


def test_a_job_that_is_not_submitted_is_told_what_it_is_told_afterwards(
    beside, jobs, now, tmp_path
):
    ask = JobSpec("new", 0.0, Request.of(2), user="ann", estimate_s=3600.0)
    before = beside.when(ask, runs=9, tested=False).forecast
    made = {
        "id": len(jobs) + 1, "gpus": 2, "limit_min": 60, "user": "ann", "submit": now,
        "start": now + 1, "nodes": [],
    }  # fmt: skip
    entry = {**squeue_entry(made, now), "priority": min_priority(jobs, now) - 1}
    after = BesideSlurm(read_saved(save(tmp_path / "after", jobs, now, more=[entry])))
    found = after.when(str(made["id"]), runs=9, tested=False).forecast
    for key in ("starts_at", "earliest_at", "latest_at", "never", "text"):
        assert getattr(before, key) == getattr(found, key)


def min_priority(jobs, now):
    return min(1_000_000 - job["id"] for job in waiting(jobs, now))


def test_the_change_is_the_smallest_that_starts_it(beside, jobs, now):
    verdict = beside.why(JobSpec("new", 0.0, Request.of(8), estimate_s=600.0))
    assert verdict.state == "not submitted"
    counts = [n for n in range(1, 8) if starts(beside, n)]
    if counts:
        assert verdict.remedy.gpus == max(counts)
    else:
        assert verdict.remedy.kind in ("limit", "wait", "none")


def starts(beside, gpus):
    verdict = beside.why(JobSpec("new", 0.0, Request.of(gpus), estimate_s=600.0))
    return verdict.reason == ""


@pytest.mark.parametrize(
    ("reason", "means", "says"),
    [
        ("JobHeldUser", "admission", "scontrol release"),
        ("QOSMaxGRESPerUser", "quota", "the same limit"),
        ("Dependency", "dependency", "when those have ended"),
        ("BeginTime", "admission", "begin time comes in 1h 00m"),
    ],
)
def test_what_slurm_keeps_back_is_told_as_slurm_tells_it(jobs, now, tmp_path, reason, means, says):
    entry = {
        **squeue_entry({**waiting(jobs, now)[0], "id": 9000, "reason": reason}, now),
        "eligible_time": now + 3600, "dependency": "afterok:1(unfulfilled)" * (means[0] == "d"),
    }  # fmt: skip
    beside = BesideSlurm(read_saved(save(tmp_path / "kept", jobs, now, more=[entry])))
    verdict = beside.why("9000")
    assert (verdict.reason, verdict.remedy.text in verdict.text) == (means, True)
    assert says in verdict.remedy.text
    assert beside.when("9000").forecast.runs == 0


def test_texts_of_scontrol_and_tables_of_squeue_tell_the_same(saved, tmp_path, jobs, now):
    """What people print is as good as JSON; the moment is told by a job that runs."""
    seen = read_saved(saved)
    for form in (as_scontrol, as_table):
        folder = tmp_path / form.__name__
        folder.mkdir()
        for file in ("sinfo.json", "partition.txt", "sacct.txt"):
            (folder / file).write_text((saved / file).read_text())
        (folder / "jobs").write_text(form(seen.jobs, now))
        read = read_saved(folder, zone="UTC", at=None if form is as_scontrol else str(now))
        assert read.now == now
        wanted = {"node_gpus": (), "account": "", "eligible_s": 0.0, "restarts": 0}
        for one, other in zip(seen.jobs, read.jobs, strict=True):
            assert msgspec.structs.replace(one, **wanted) == msgspec.structs.replace(
                other, **wanted
            )


def stamp(unix):
    from datetime import UTC, datetime

    return datetime.fromtimestamp(unix, UTC).replace(tzinfo=None).isoformat() if unix else "Unknown"


def clock(seconds):
    return (
        f"{seconds // 86400}-{seconds % 86400 // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    )


def as_scontrol(jobs, now):
    return "\n\n".join(
        f"JobId={job.id} JobName={job.name}\n   UserId={job.user}(1000) GroupId=x(1)\n"
        f"   Priority={job.priority} Nice=0 Account=lab QOS=(null)\n"
        f"   JobState={job.state} Reason={job.reason} Dependency=(null)\n"
        f"   RunTime={clock(int(now - job.start_s) if job.start_s else 0)} "
        f"TimeLimit={clock(int(job.limit_s))}\n"
        f"   SubmitTime={stamp(job.submit_s)} EligibleTime=Unknown\n"
        f"   StartTime={stamp(job.start_s)} EndTime=Unknown\n   Partition=main\n"
        f"   NodeList={','.join(job.nodes) or '(null)'}\n   NumNodes=1 NumCPUs=0\n"
        f"   TresPerNode=gres:gpu:{job.gpus}"
        for job in jobs
    )


def as_table(jobs, now):
    head = "JOBID|NAME|USER|STATE|REASON|PRIORITY|PARTITION|NODES|NODELIST|TRES_PER_NODE|"
    rows = [head + "SUBMIT_TIME|START_TIME|TIME_LIMIT"]
    rows += [
        f"{job.id}|{job.name}|{job.user}|{job.state}|{job.reason}|{job.priority}|main|1|"
        f"{','.join(job.nodes)}|gres:gpu:{job.gpus}|{stamp(job.submit_s)}|{stamp(job.start_s)}|"
        f"{clock(int(job.limit_s))}"
        for job in jobs
    ]
    return "\n".join(rows) + "\n"


def test_folders_that_lack_something_say_what(tmp_path, saved):
    with pytest.raises(InputError, match="is no folder"):
        read_saved(tmp_path / "none")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match="squeue --states=all --json"):
        read_saved(empty)
    (empty / "q.json").write_text((saved / "squeue.json").read_text())
    with pytest.raises(InputError, match="no file lists nodes"):
        read_saved(empty)
    (empty / "n.json").write_text((saved / "sinfo.json").read_text())
    picture = read_saved(empty)
    assert any("--at" in note for note in picture.notes)
    assert any("sacct" in note for note in picture.notes)


def test_intervals_are_widened_until_they_hold():
    missed = [0.1 * number for number in range(1, 20)]  # up to 1.9 widths
    assert stretch_of(missed) == pytest.approx(1.6)  # the 16th of 19: 80 % of 20
    assert stretch_of([0.5] * 12) == 1.0
    assert stretch_of([0.5, 3.0, *[float("inf")] * 10]) == 3.0


def test_reasons_of_slurm_have_a_meaning():
    told = {"Resources": "capacity", "Priority": "order", "AssocGrpGRES": "quota", "Odd": ""}
    assert {reason: meaning(reason) for reason in told} == told


def test_the_command_line(saved, jobs, now, capsys):
    def rota(*args):
        code = run(list(args))
        return code, *capsys.readouterr()

    asked = str(waiting(jobs, now)[0]["id"])
    found = json.loads(rota("why", asked, "--slurm", str(saved), "-o", "json")[1])
    assert (found["id"], found["ahead"]) == (asked, [])
    text = rota("when", "--gpus", "1", "--time", "1h", "--slurm", str(saved), "--runs", "3")[1]
    assert "intervals: asked of 24 jobs that waited" in text
    code, _, wrong = rota("when", "999", "--slurm", str(saved))
    assert (code, "Slurm has no job '999'" in wrong) == (2, True)
    assert rota("why", "--slurm", str(saved))[0] == 2
    assert rota("why", "1", "--at", "2026-01-01", "--gpus", "2")[0] == 2
