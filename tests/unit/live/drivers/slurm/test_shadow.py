"""Shadow mode over a pretended Slurm."""

import json
import os

import pytest
from click.testing import CliRunner

from rota.cli.shadow import _line
from rota.cli.shadow import shadow as command
from rota.core.errors import ClusterError, OptionError, OutputError
from rota.live.drivers.slurm.commands import SlurmQueries
from rota.live.drivers.slurm.layout import SeenJob, SeenNode
from rota.live.drivers.slurm.shadow import Look, ShadowDecision, SlurmShadow, as_json

NOW = 1_000_000.0


class Watched(SlurmQueries):
    """Two nodes with four GPUs; jobs are set by the test."""

    def __init__(self):
        super().__init__()
        self.found = {}
        self.machines = [machine("n1"), machine("n2")]

    def nodes(self):
        return self.machines

    def jobs(self):
        return list(self.found.values())

    def waits(self, number, gpus, **fields):
        self.found[number] = SeenJob(
            id=number, state="PENDING", gpus=gpus, submit_s=NOW - 100 + number, reason="Resources",
            user="ada", partition="main", **fields,
        )  # fmt: skip

    def runs(self, number, places, *, start_s=NOW, **fields):
        self.found[number] = SeenJob(
            id=number, state="RUNNING", gpus=sum(places.values()), submit_s=NOW - 100 + number,
            nodes=tuple(places), node_gpus=tuple(places.values()), start_s=start_s, user="ada",
            partition="main", **fields,
        )  # fmt: skip

    def ended(self, number):
        job = self.found[number]
        self.found[number] = SeenJob(
            id=number, state="COMPLETED", gpus=job.gpus, submit_s=job.submit_s, nodes=("n1",),
            start_s=job.start_s or NOW, end_s=NOW, partition="main",
        )  # fmt: skip


def machine(name, state="idle", flags=(), partitions=("main",)):
    return SeenNode(name, name, state, frozenset(flags), "", 4, "a100", 16.0, 64.0, partitions)


@pytest.fixture
def slurm(monkeypatch):
    clock = [NOW]
    monkeypatch.setattr("rota.live.drivers.slurm.shadow.time", lambda: clock[0])
    watched = Watched()
    watched.clock = clock
    return watched


def test_it_says_what_it_would_start_now(slurm):
    slurm.runs(1, {"n1": 4})
    slurm.waits(2, 4)
    slurm.waits(3, 1)
    look = SlurmShadow(slurm, "fifo-skip").look()
    assert look.wish.starts == {"2": {"n2": 4}}
    assert (look.gpus, look.used_gpus, look.running, look.waiting) == (8, 4, 1, 2)
    assert (look.slurm_started, look.only_slurm, look.only_rota) == ({}, [], [])
    assert json.loads(as_json(look))["wish"]["starts"] == {"2": {"n2": 4}}


def test_agreement_and_differences_are_counted(slurm):
    shadow = SlurmShadow(slurm, "fifo")
    slurm.runs(1, {"n1": 4, "n2": 4})
    slurm.waits(2, 4)
    slurm.waits(3, 2)
    slurm.waits(4, 8)
    assert shadow.look().wish.starts == {}
    slurm.clock[0] += 10
    slurm.ended(1)
    slurm.runs(2, {"n2": 4}, start_s=NOW + 9)  # Rota would have taken n1
    slurm.runs(4, {"n1": 4}, start_s=NOW + 9)  # ... and let 3 go first
    look = shadow.look()
    assert (look.same, look.elsewhere) == (["2"], ["2"])
    assert (look.only_rota, look.only_slurm) == (["3"], ["4"])
    slurm.clock[0] += 10
    slurm.runs(3, {"n1": 2}, start_s=NOW + 18)
    shadow.look()
    totals = shadow.totals
    assert (totals.looks, totals.jobs, totals.slurm_started) == (3, 4, 3)
    assert (totals.same, totals.only_slurm, totals.elsewhere) == (1, 2, 1)
    assert (totals.earlier_jobs, totals.earlier_s) == (1, 8.0)


def test_preemptions_are_compared(slurm):
    shadow = SlurmShadow(slurm, "srtf")
    slurm.runs(1, {"n1": 4, "n2": 4}, limit_s=9000.0)
    slurm.waits(2, 4, limit_s=60.0)
    look = shadow.look()
    assert (look.wish.stops, list(look.wish.starts)) == (["1"], ["2"])
    slurm.clock[0] += 10
    shadow.look()
    assert shadow.totals.rota_would_stop == 1  # the same wish again
    slurm.waits(1, 8, restarts=1)
    slurm.clock[0] += 10
    look = shadow.look()
    assert look.slurm_stopped == ["1"]
    assert shadow.totals.slurm_stopped == 1


def test_attained_service_is_known(slurm):
    slurm.runs(1, {"n1": 4, "n2": 4}, start_s=NOW - 50)
    slurm.waits(2, 4)
    shadow = SlurmShadow(slurm, "tiresias:limits=300")
    assert shadow.look().wish.stops == ["1"]
    (job,) = shadow.mirror.running
    assert job.attained_gpu_s(shadow.mirror.now_s) == 8 * 50


def test_what_slurm_would_not_start_anyway_is_left_out(slurm):
    slurm.waits(1, 1, held=True)
    slurm.waits(2, 1)
    slurm.found[2] = SeenJob(id=2, state="PENDING", gpus=1, submit_s=NOW, reason="Dependency")
    slurm.found[3] = SeenJob(id=3, state="PENDING", gpus=0, submit_s=NOW)  # no GPUs
    look = SlurmShadow(slurm, "fifo").look()
    assert (look.waiting, look.kept_back, look.wish.starts) == (0, 2, {})


def test_nodes_that_cannot_be_used_are_left_out(slurm):
    slurm.machines = [machine("n1", flags=("DRAIN",)), machine("n2", "down"), machine("n3")]
    slurm.waits(1, 4)
    look = SlurmShadow(slurm, "fifo").look()
    assert (look.gpus, look.wish.starts) == (4, {"1": {"n3": 4}})


def test_nodes_may_come_and_go(slurm):
    shadow = SlurmShadow(slurm, "fifo")
    slurm.runs(1, {"n2": 4})
    slurm.waits(2, 8)
    shadow.look()
    slurm.machines = [machine("n0"), *slurm.machines]
    slurm.clock[0] += 1
    assert shadow.look().wish.starts == {"2": {"n0": 4, "n1": 4}}


def test_only_one_partition_is_watched(slurm):
    slurm.machines = [machine("n1"), machine("n2", partitions=("other",))]
    slurm.waits(1, 4)
    slurm.found[2] = SeenJob(id=2, state="PENDING", gpus=1, submit_s=NOW, partition="other")
    look = SlurmShadow(slurm, "fifo", partition="main").look()
    assert (look.gpus, look.waiting, look.wish.starts) == (4, 1, {"1": {"n1": 4}})
    with pytest.raises(ClusterError, match="no nodes with GPUs in the partition 'x'"):
        SlurmShadow(slurm, "fifo", partition="x").look()


def test_jobs_that_are_over_between_two_looks(slurm):
    shadow = SlurmShadow(slurm, "fifo")
    slurm.waits(1, 1)
    slurm.waits(2, 1)
    shadow.look()
    slurm.clock[0] += 10
    slurm.ended(1)
    del slurm.found[2]  # cancelled, and forgotten
    look = shadow.look()
    assert (look.brief, sorted(look.slurm_ended)) == (["1"], ["1", "2"])
    assert shadow.mirror.jobs == {}
    assert [job.id for job in shadow.mirror.finished] == ["1"]


def test_what_can_never_run_is_said(slurm):
    slurm.waits(1, 100)
    look = SlurmShadow(slurm, "fifo").look()
    assert "100 GPUs" in look.wish.refuses["1"]


@pytest.mark.parametrize("policy", ["easy", "drf", "tiresias", "gittins", "qssf", "elas"])
def test_every_kind_of_policy_can_be_asked(slurm, policy):
    slurm.runs(1, {"n1": 4}, limit_s=600.0)
    slurm.waits(2, 2, limit_s=60.0)
    shadow = SlurmShadow(slurm, policy)
    shadow.look()
    slurm.ended(1)
    slurm.clock[0] += 5
    assert "2" in {**shadow.look().wish.starts, **shadow._last.wish.starts}


def test_a_placement_without_nodes_is_refused(slurm):
    with pytest.raises(OptionError, match="takes the cluster as one pool"):
        SlurmShadow(slurm, "fifo", "count").look()


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A Slurm of two scripts; return `breaks()`, after which it does not answer any more."""
    folder = tmp_path / "bin"
    folder.mkdir()
    answers = {
        "squeue": {"jobs": [{"job_id": 5, "job_state": "PENDING", "priority": 1,
                             "tres_per_node": "gres:gpu:2", "node_count": 1, "submit_time": 1}]},
        "sinfo": {"nodes": [{"name": "n1", "state": "idle", "gres": "gpu:4"}]},
    }  # fmt: skip
    for name, answer in answers.items():
        (folder / f"{name}.json").write_text(json.dumps(answer))
        path = folder / name
        path.write_text(
            f"""#!/bin/bash
            if [ "$1" = --version ]; then echo slurm 22.05.8; exit; fi
            if [ -e "{folder}/broken" ]; then echo "Unable to contact" >&2; exit 1; fi
            cat "$0.json"
            """
        )
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return (folder / "broken").touch


def test_one_look_from_the_command_line(programs, tmp_path):
    folder = tmp_path / "out"
    result = CliRunner().invoke(command, ["--policy", "fifo", "--once", "-o", str(folder)])
    assert result.exit_code == 0, result.output
    assert "0/4 GPUs, 0 running, 1 waiting; Rota would start 5 on n1:2" in result.output
    assert json.loads((folder / "summary.json").read_text())["looks"] == 1
    assert json.loads((folder / "shadow.jsonl").read_text())["wish"]["starts"] == {"5": {"n1": 2}}


def test_names_of_others_do_not_reach_the_terminal_of_who_watches():
    wish = ShadowDecision(starts={"default/\x1b[2Jx": {"n1": 1}})
    look = Look(0, 0.0, 4, 0, 0, 1, 0, wish)
    assert _line(look, "Slurm").endswith("default/\N{REPLACEMENT CHARACTER}[2Jx on n1:1")


def test_a_folder_is_not_written_over(programs, tmp_path):
    folder = tmp_path / "out"
    args = ["--policy", "fifo", "--once", "-o", str(folder)]
    assert CliRunner().invoke(command, args).exit_code == 0
    result = CliRunner().invoke(command, args)
    assert isinstance(result.exception, OutputError)
    assert "is not empty" in str(result.exception)
    assert CliRunner().invoke(command, [*args, "--force"]).exit_code == 0
    assert len((folder / "shadow.jsonl").read_text().splitlines()) == 1
    assert sorted(path.name for path in folder.iterdir()) == ["shadow.jsonl", "summary.json"]


def test_a_slurm_that_does_not_answer_costs_nothing_that_was_written(programs, tmp_path):
    args = ["--policy", "fifo", "--once", "--force", "-o"]
    old, new = tmp_path / "old", tmp_path / "new"
    assert CliRunner().invoke(command, [*args, str(old)]).exit_code == 0
    before = {path.name: path.read_bytes() for path in old.iterdir()}
    programs()
    for folder in (old, new):
        result = CliRunner().invoke(command, [*args, str(folder)])
        assert isinstance(result.exception, ClusterError)
    assert {path.name: path.read_bytes() for path in old.iterdir()} == before
    assert list(new.iterdir()) == []  # the next try needs no --force


def test_a_slurm_that_does_not_answer_at_first_is_an_error(programs):
    programs()
    result = CliRunner().invoke(command, ["--policy", "fifo", "--once"])
    assert isinstance(result.exception, ClusterError)
    result = CliRunner().invoke(command, ["--policy", "fifo", "--once", "--duration", "3"])
    assert "exclude each other" in result.output
