"""The model of today: what-if changes are against it, and its error is never a gain."""

import json
import runpy

import polars as pl
import pytest
from click.testing import CliRunner

from own_formats import HEADER, line
from rota.cli.replay import replay as command
from rota.report.replay import html
from rota.study.fidelity import CLOSE, FAR, LIMITS
from rota.study.replay.changes import ReplayChanges
from rota.study.replay.replay import Asked, replay
from rota.study.replay.tables import effect
from shared_data import CHECKOUT

MAKER = CHECKOUT / "examples" / "replay" / "make_history.py"
NODE = "NodeName=n{} CPUTot=64 Gres=gpu:a100:4 RealMemory=65536 Partitions=gpu\n"


@pytest.fixture
def strict(tmp_path):
    """Return a history of a cluster that is strict: fifo is its model."""
    maker = runpy.run_path(str(MAKER))
    lines = [maker["FIELDS"], *maker["history"](150, 4, 1.0, 1)]
    (tmp_path / "jobs.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "nodes.txt").write_text("\n".join(maker["node"](n) for n in range(1, 5)))
    return tmp_path


@pytest.fixture
def held(tmp_path):
    """Return a log in which all jobs waited an hour although everything was idle."""
    lines = []
    for number in range(40):
        day, hour = f"2026-03-{2 + number // 20:02}T", number % 20
        times = {"Submit": f"{hour:02}:00:00", "Start": f"{hour + 1:02}:00:00",
                 "End": f"{hour + 1:02}:30:00"}  # fmt: skip
        clock = {key: day + text for key, text in times.items()}
        tres = "cpu=1,gres/gpu=1,mem=1G,node=1"
        lines.append(
            line(str(number), **clock, Eligible=clock["Submit"], ElapsedRaw="1800", ReqTRES=tres,
                 AllocTRES=tres)
        )  # fmt: skip
    (tmp_path / "jobs.txt").write_text("\n".join([HEADER, *lines]) + "\n")
    (tmp_path / "nodes.txt").write_text(NODE.format(1) + NODE.format(2))
    return tmp_path


def ask(log, **options):
    out = log / "out"
    out.mkdir()
    asked = Asked(log=str(log / "jobs.txt"), nodes=str(log / "nodes.txt"), **options)
    return replay(asked, out, out)


def rows(answer, schedule):
    return answer.table.filter(schedule=schedule).to_dicts()


def test_the_closest_of_several_policies_is_the_model(strict):
    answer = ask(strict)
    tried = [found.policy for found in answer.fidelity]
    assert set(tried) >= {"fifo", "fifo-skip", "easy", "conservative"}
    assert (tried[0], answer.model.policy, answer.model.verdict) == ("fifo", "fifo", CLOSE)
    assert answer.model.whole.mae_s == 0
    assert {s.name: s.role for s in answer.schedules}["fifo"] == "model"
    facts = json.loads((strict / "out" / "replay.json").read_text())
    assert facts["model"]["policy"] == "fifo"
    assert facts["limits"]["close"]["bias"] == LIMITS[CLOSE].bias
    assert [one["policy"] for one in facts["fidelity"]] == tried
    table = pl.read_csv(strict / "out" / "fidelity.csv")
    assert set(table["by"]) == {"all", "size"}
    assert set(table["policy"]) == set(tried)


def test_changes_are_against_the_model_with_the_same_jobs(strict):
    answer = ask(strict, policies=("easy",), changes=ReplayChanges(add=("2x8",)))
    names = [schedule.name for schedule in answer.schedules]
    assert names == ["observed", "fifo", "easy", "fifo (+2x8)", "easy (+2x8)"]
    whole = {row["schedule"]: row for row in answer.table.filter(by="all").to_dicts()}
    model = whole["fifo"]["mean_wait_s"]
    for name in names[2:]:
        assert whole[name]["mean_wait_change_s"] == whole[name]["mean_wait_s"] - model
        assert whole[name]["effect"] == "better"
    for name in names[:2]:
        assert whole[name]["mean_wait_change_s"] is None
        assert whole[name]["effect"] == ""


def test_the_error_of_a_model_is_never_a_gain(held):
    """All policies start everybody at once: against the log that would be a gain of 100 %."""
    answer = ask(held, changes=ReplayChanges(add=("2x4",)))
    assert answer.model.verdict == FAR
    what_if = answer.schedules[-1].name
    assert all(row["effect"] != "better" for row in rows(answer, what_if))
    assert all(row["mean_wait_change_s"] == 0 for row in rows(answer, what_if))
    page = html(answer)
    assert 'class="better"' not in page
    assert "do not act on its numbers" in page
    assert "error -100%" in page


def test_a_change_counts_only_beyond_the_error_of_the_model():
    assert effect(50.0, 100.0, 120.0) == "better"
    assert effect(130.0, 100.0, 90.0) == "worse"
    assert effect(85.0, 100.0, 120.0) == "within error"
    assert effect(100.0, 100.0, 120.0) == ""
    assert effect(50.0, 100.0, 120.0, same_jobs=False) == "other jobs"


def test_fewer_jobs_are_no_gain(strict):
    answer = ask(strict, model="fifo", changes=ReplayChanges(remove=("gpu[02-04]",)))
    row = answer.table.filter(by="all", schedule=answer.schedules[-1].name).to_dicts()[0]
    assert row["refused"] > 0
    assert row["effect"] == "other jobs"


def test_what_would_help_is_said_if_nothing_comes_close(held):
    args = [str(held / "jobs.txt"), "-o", str(held / "out"), "--add-nodes", "1x4"]
    done = CliRunner().invoke(command, args)
    assert done.exit_code == 0, done.output
    told = " ".join(done.output.split())
    assert "no policy that was tried comes close to what happened" in told
    assert "the list of nodes (--nodes, what `scontrol show node` prints)" in told
    assert "priorities (all jobs have the QOS normal; ask sacct for Priority)" in told
    assert "reservations, holds and limits of users or groups" in told


def test_a_model_may_be_named(strict):
    args = [str(strict / "jobs.txt"), "--nodes", str(strict / "nodes.txt"), "-o",
            str(strict / "out"), "--model", "easy", "--policy", "fifo"]  # fmt: skip
    done = CliRunner().invoke(command, args)
    assert done.exit_code == 0, done.output
    told = " ".join(done.output.split())
    assert "as asked for: easy is not a model of today" in told
    assert "fifo comes closer: fifo is a close model of today" in told
    assert "conservative" not in told


def test_jobs_that_others_pass_are_evidence(tmp_path):
    """Two users with equal jobs on one node: those of bob always go first."""
    lines = []
    for number in range(60):
        user = "bob" if number % 2 else "ann"
        rank = number // 2 if user == "bob" else 30 + number // 2
        start = rank * 600
        clock = {"Submit": number, "Eligible": number, "Start": start + 60, "End": start + 660}
        day = {
            k: f"2026-03-02T{s // 3600:02}:{s // 60 % 60:02}:{s % 60:02}" for k, s in clock.items()
        }
        tres = "cpu=1,gres/gpu=4,mem=1G,node=1"
        lines.append(line(str(number), User=user, **day, ElapsedRaw="600", ReqTRES=tres,
                          AllocTRES=tres))  # fmt: skip
    (tmp_path / "jobs.txt").write_text("\n".join([HEADER, *lines]) + "\n")
    (tmp_path / "nodes.txt").write_text(NODE.format(1))
    answer = ask(tmp_path)
    assert answer.model.verdict != CLOSE
    assert "were passed by an equal job that came later (0% under" in answer.lacks[0]


def test_nobody_waited_is_said(tmp_path):
    lines = [line(str(n), Start="2026-03-02T08:00:00", ElapsedRaw="100") for n in range(3)]
    (tmp_path / "jobs.txt").write_text("\n".join([HEADER, *lines]) + "\n")
    (tmp_path / "nodes.txt").write_text(NODE.format(1) + NODE.format(2))
    assert any("hardly anybody waited" in text for text in ask(tmp_path, model="fifo").warnings)


def test_a_far_model_calls_nothing_better(strict):
    answer = ask(strict, model="easy", changes=ReplayChanges(add=("2x8",)))
    assert answer.model.verdict == FAR
    row = answer.table.filter(by="all", role="what-if").to_dicts()[0]
    assert row["mean_wait_change_s"] < 0
    assert row["effect"] == "model is far"
    assert 'class="better"' not in html(answer)


def test_slurm_is_tried_with_the_files_of_the_site(strict):
    conf = strict / "slurm.conf"
    conf.write_text("SchedulerType=sched/builtin\nPriorityType=priority/basic\n")
    args = [str(strict / "jobs.txt"), "--nodes", str(strict / "nodes.txt"), "-o",
            str(strict / "out"), "--policy", "slurm", "--model", "fifo", "--slurm-conf",
            str(conf)]  # fmt: skip
    done = CliRunner().invoke(command, args)
    assert done.exit_code == 0, done.output
    manifest = json.loads((strict / "out" / "slurm" / "manifest.json").read_text())
    assert manifest["config"]["policy"] == f"slurm:conf={conf}"
    assert manifest["config"]["costs"] == "custom:checkpoint_s=inf,lost_work_s=inf"
    assert any(file["given"] == str(conf) for file in manifest["inputs"])
    facts = json.loads((strict / "out" / "replay.json").read_text())
    assert {one["policy"] for one in facts["fidelity"]} == {"fifo", "slurm"}


def test_the_rules_of_a_slurm_are_asked_for(held):
    asked = ask(held, model="fifo")
    assert any("the rules of this Slurm: its slurm.conf (--slurm-conf)" in t for t in asked.lacks)
