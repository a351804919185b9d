"""What `rota replay` says of jobs that are refused and of those that still run is true of them."""

import pytest

from rota.cli.app import run
from rota.study.explain import explain_all, explain_folder
from rota.study.replay.changes import ReplayChanges
from rota.study.replay.replay import Asked, replay
from rota.traces.read import read_trace
from rota.traces.tools.report import report

DAY = "2026-03-02T{}:00"
TITLES = (
    "JobID|User|Account|Partition|QOS|Submit|Start|End|State|ElapsedRaw|TimelimitRaw|AllocTRES|"
    "NNodes|NodeList"
)
ROW = f"{{}}|u|acc|{{}}|normal|{DAY}|{DAY}|{DAY}|COMPLETED|{{}}|300|gres/gpu=4|1|{{}}"
JOBS = [
    (1, "gpu", "08:00", "08:00", "12:00", 14400, "a1"),
    (2, "gpu", "08:10", "12:00", "13:00", 3600, "a1"),
    (3, "debug", "08:20", "08:20", "08:30", 600, "d1"),
]
NODE = "NodeName={} CPUTot=64 Gres=gpu:a100:4 RealMemory=512000 Partitions={}\n"


@pytest.fixture
def log(tmp_path):
    """Return a folder with a log of two partitions, and its nodes."""
    rows = [TITLES, *(ROW.format(*job) for job in JOBS)]
    (tmp_path / "j.txt").write_text("\n".join(rows) + "\n")
    (tmp_path / "n.txt").write_text(NODE.format("a1", "gpu") + NODE.format("d1", "debug"))
    return tmp_path


def answered(folder, **options):
    out = folder / f"out{len(list(folder.glob('out*')))}"
    out.mkdir()
    asked = Asked(log=str(folder / "j.txt"), nodes=str(folder / "n.txt"), **options)
    return replay(asked, out, out)


def test_refused_jobs_are_judged_with_the_reason_of_their_refusal(log):
    conf = log / "s.conf"
    conf.write_text("PartitionName=gpu Nodes=a1 MaxTime=60\nPartitionName=debug Nodes=d1\n")
    found = answered(log, model="slurm", slurm=f"slurm:conf={conf}")
    assert not any("hardly anybody waited" in text for text in found.warnings)
    said = found.model.sentence
    assert "Of the 1 jobs that it can run, the mean wait is 0 s" in said
    assert (
        "It cannot run 2 of the 3 jobs that ran (job 1 (and 1 more): its limit of 18000 s" in said
    )
    assert "above MaxTime=3600 s of partition gpu" in said
    assert "in the log, all 3 waited 1h 17m on average" in said
    assert "fit the machines" not in said


def test_a_job_that_still_ran_is_told_apart(log):
    path = log / "j.txt"
    path.write_text(path.read_text().replace("2026-03-02T13:00:00|COMPLETED", "Unknown|RUNNING"))
    found = answered(log, model="fifo")
    assert not any("never finished" in text for text in found.warnings)
    said = found.model.sentence
    assert "waits of all 3 jobs, also of the 1 that still ran when the log was taken" in said
    for schedule in ("observed", "fifo"):
        story = explain_folder(log / "out0" / schedule, "2")
        assert (story.state, story.end_s) == ("unfinished", None)
        assert story.text.startswith("still running when the log was taken; waited 3h 50m")
        assert [row["state"] for row in explain_all(log / "out0" / schedule)] == [
            "done", "unfinished", "done",
        ]  # fmt: skip


def test_a_log_that_does_not_tell_policies_apart_says_so(log, capsys):
    files = (str(log / "j.txt"), "--nodes", str(log / "n.txt"))
    assert run(["replay", *files, "-o", str(log / "now")]) == 0
    said = " ".join(capsys.readouterr().err.split())
    told = "come as close: this log does not tell them from fifo"
    assert f"fifo-skip, easy, conservative and slurm {told}" in said
    assert "name it: --model fifo-skip." in said
    assert told in (log / "now" / "report.html").read_text()
    assert run(["replay", *files, "--model", "fifo", "-o", str(log / "named")]) == 0
    assert "come as close" not in capsys.readouterr().err


def edited(log, old, new, times=-1):
    path = log / "j.txt"
    path.write_text(path.read_text().replace(old, new, times))


def test_the_order_of_qos_is_not_made_up(log):
    edited(log, "|normal|", "|high|", 1)
    (advice,) = [text for text in answered(log, model="fifo").lacks if "priorities" in text]
    assert "rank the QOS high, normal from low to high" in advice
    assert "classes=LOWEST/.../HIGHEST" in advice


def test_columns_that_are_there_are_not_asked_for(log):
    told = " ".join(answered(log, model="fifo").lacks)
    assert "all jobs have the QOS normal; ask sacct for Priority" in told
    assert "User and Account are there, but all equal" in told
    edited(log, "|u|acc|", "||acc|")
    assert "who submitted (ask sacct for User)" in " ".join(answered(log, model="fifo").lacks)


def test_a_partition_that_the_rules_do_not_have_is_told(log):
    conf = log / "s.conf"
    conf.write_text("PartitionName=gpus Nodes=a1\nPartitionName=debug Nodes=d1\n")
    found = answered(log, model="slurm", slurm=f"slurm:conf={conf}")
    (told,) = [text for text in found.warnings if "the partition 'gpu'" in text]
    assert "2 jobs are in the partition" in told
    assert "did you mean 'gpus'?" in told


def test_a_quota_for_one_tenant_says_nothing_of_files(log):
    edited(log, "3|u|acc|", "3|u|other|")
    found = answered(log, model="fifo", changes=ReplayChanges(quotas=(("acc", 4.0),)))
    assert not any("cluster-changed" in text for text in found.warnings)


def test_use_of_a_partition_is_of_its_own_gpus(log):
    table = answered(log, model="fifo").table.filter(schedule="observed")
    use = dict(table.filter(by="partition").select("group", "use").rows())
    assert use == pytest.approx({"gpu": 1.0, "debug": 600 / 18_000})
    assert table.filter(by="all")["use"].item() == pytest.approx((18_000 + 600) / 36_000)


def test_a_start_before_its_submission_is_the_same_for_all(log, capsys):
    start = DAY.format("08:20")
    edited(log, f"{start}|{start}", f"2026-03-02T08:26:40|{start}")
    seen = report(read_trace(log / "j.txt")).observed
    row = answered(log, model="fifo").table.filter(by="all", schedule="observed").row(0, named=True)
    for measure in ("mean_wait_s", "mean_jct_s"):
        assert seen[measure] == pytest.approx(row[measure])
    assert seen["mean_wait_s"] == pytest.approx(13_800 / 3)
    only = answered(log, model="fifo").table.filter(by="partition", group="debug")
    assert only["mean_wait_s"].to_list() == [0, 0]
    assert run(["trace", "convert", str(log / "j.txt"), "-o", str(log / "C")]) == 0
    assert "contradiction: 1 started before it was submitted" in capsys.readouterr().err
