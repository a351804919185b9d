"""What `rota replay` says of jobs that are refused and of those that still run is true of them."""

import pytest

from rota.experiments.explain import explain_all, explain_folder
from rota.experiments.replay import Asked, replay

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
    assert "all of them waited 1h 17m on average" in said
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
