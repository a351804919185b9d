"""A new group comes: jobs that are added to those of a log."""

import json
import shutil

import polars as pl
import pytest
from click.testing import CliRunner

from own_formats import HEADER, line
from rota.cli.replay import replay as command
from rota.core.errors import OptionError
from rota.report.replay import html
from rota.study.replay.changes import ReplayChanges
from rota.study.replay.replay import Asked, replay
from rota.study.rerun import rerun

NODES = """\
NodeName=n1 CPUTot=16 Gres=gpu:a100:2 RealMemory=65536 Partitions=gpu
NodeName=n2 CPUTot=16 Gres=gpu:t4:2 RealMemory=65536 Partitions=debug
"""
GROUP = "job_id,submit_s,num_gpus,duration_s,vc,estimate_s\n"


@pytest.fixture
def log(tmp_path):
    """Return a log: every 20 minutes a job of 10 minutes in each of two partitions."""
    lines = []
    for number in range(20):
        partition, node = (("gpu", "n1"), ("debug", "n2"))[number % 2]
        at = number // 2 * 1200
        clock = {"Submit": at, "Eligible": at, "Start": at, "End": at + 600}
        times = {key: f"2026-03-02T{s // 3600:02}:{s // 60 % 60:02}:00" for key, s in clock.items()}
        tres = "cpu=1,gres/gpu=2,mem=1G,node=1"
        lines.append(line(str(number), **times, ElapsedRaw="600", TimelimitRaw="10", ReqTRES=tres,
                          AllocTRES=tres, Partition=partition, NodeList=node))  # fmt: skip
    (tmp_path / "jobs.txt").write_text("\n".join([HEADER, *lines]) + "\n")
    (tmp_path / "nodes.txt").write_text(NODES)
    rows = "".join(f"{n},{n * 1200},2,900,newcomers,900\n" for n in range(10))
    (tmp_path / "new-group.csv").write_text(GROUP + rows)
    return tmp_path


def ask(log, *also, **options):
    shutil.rmtree(log / "out", ignore_errors=True)
    (log / "out").mkdir()
    asked = Asked(
        log=str(log / "jobs.txt"), nodes=str(log / "nodes.txt"), model="fifo-skip",
        changes=ReplayChanges(also=[str(log / one) for one in also], **options),
    )  # fmt: skip
    return replay(asked, log / "out", log / "out")


def waits(answer, by):
    rows = answer.table.filter(pl.col("by") == by).select("group", "schedule", "mean_wait_s").rows()
    return {(group, schedule): wait for group, schedule, wait in rows}


def test_new_jobs_are_reported_apart_with_what_they_do_to_the_others(log):
    answer = ask(log, "new-group.csv@gpu")
    name = "fifo-skip (also new-group)"
    by_partition = waits(answer, "partition")
    assert by_partition["debug", name] == by_partition["gpu", "fifo-skip"] == 0.0
    assert by_partition["gpu", name] > 600  # 1,500 s of work come every 1,200 s
    added = answer.table.filter(by="also").to_dicts()
    assert [(row["group"], row["schedule"], row["jobs"]) for row in added] == [
        ("new-group", name, 10)
    ]
    assert added[0]["mean_wait_s"] > 600
    assert answer.table.filter(by="all")["jobs"].to_list() == [20, 20, 20]
    whole = answer.table.filter(by="all", schedule=name).to_dicts()[0]
    assert whole["effect"] == "worse"
    page = html(answer)
    assert "The jobs that were added" in page
    assert "new-group (10 jobs) under" in page
    assert rerun(log / "out" / "fifo-skip-changed").same
    assert rerun(log / "out" / "fifo-skip").same


def test_more_nodes_and_more_jobs_go_together(log):
    answer = ask(log, "new-group.csv@gpu", add=("1x2@gpu",))
    assert waits(answer, "partition")["gpu", "fifo-skip (+1x2@gpu, also new-group)"] == 0.0
    assert answer.table.filter(by="also")["mean_wait_s"].to_list() == [0.0]


def test_new_jobs_are_in_a_partition(log):
    told = ask(log, "new-group.csv").warnings
    assert any("10 of its jobs are: taken for debug, where most jobs of" in text for text in told)
    assert any("new-group.csv@gpu for another" in text for text in told)
    (log / "odd.csv").write_text(GROUP.replace("\n", ",partition\n") + "7,0,2,900,n,900,gpus\n")
    with pytest.raises(OptionError, match="job 7: no partition 'gpus': there are: debug, gpu"):
        ask(log, "odd.csv")
    with pytest.raises(OptionError, match="no partition 'gpus': there are: debug, gpu"):
        ask(log, "new-group.csv@gpus")
    rows = "".join(f"{n},{n * 1200},2,900,newcomers,900,gpu\n" for n in range(10))
    (log / "told.csv").write_text(GROUP.replace("\n", ",partition\n") + rows)
    assert waits(ask(log, "told.csv"), "partition")["gpu", "fifo-skip (also told)"] > 600


def test_a_quota_may_be_for_the_new_group(log):
    answer = ask(log, "new-group.csv@gpu", quotas=(("newcomers", 2.0),))
    assert answer.table.filter(by="also")["jobs"].to_list() == [10]


def test_odd_neighbours_are_told(log):
    (log / "day.csv").write_text("job_id,submit_s,num_gpus,duration_s\n0,0,1,60\n1,60,1,60\n")
    told = " ".join(ask(log, "day.csv@gpu").warnings)
    assert "day: its jobs come within 1m 00s" in told or "day: its jobs come within 60 s" in told
    assert "make it as long as the log to see what lasts" in told
    assert "day: has no time limits (estimate_s), but the log has" in told


def test_the_command_prints_what_new_jobs_get(log):
    out = log / "answer"
    args = [str(log / "jobs.txt"), "--nodes", str(log / "nodes.txt"), "--model", "fifo", "--also",
            f"{log / 'new-group.csv'}@gpu", "-o", str(out)]  # fmt: skip
    done = CliRunner().invoke(command, args)
    assert done.exit_code == 0, done.output
    assert "jobs that were added" in done.output
    assert "new-group under fifo (also new-group)" in done.output
    facts = json.loads((out / "replay.json").read_text())
    assert [row["by"] for row in facts["rows_by_group"]].count("also") == 1
    assert rerun(out / "fifo-changed").same
    assert CliRunner().invoke(command, [*args, "--force"]).exit_code == 0
