"""Logs that end while jobs run, and questions to `rota replay` that cannot be meant."""

import pytest
from click.testing import CliRunner

from rota.cli.replay import replay as command
from rota.core.errors import OptionError, TraceError
from rota.study.replay.changes import ReplayChanges
from rota.study.replay.replay import Asked, replay

LOG = """\
JobID|User|Account|Partition|Submit|Start|End|State|ElapsedRaw|AllocTRES|NNodes|NodeList
1|ann|v|gpu|2026-03-02T08:00:00|2026-03-02T08:00:00|2026-03-02T08:10:00|COMPLETED|600|gres/gpu=2|1|n1
2|ann|v|gpu|2026-03-02T08:00:00|2026-03-02T08:05:00|Unknown|RUNNING|3300|gres/gpu=2|1|n1
"""
NODE = "NodeName=n1 Arch=x86_64 CPUTot=16 Gres={gres} RealMemory=65536 Partitions=gpu\n"


@pytest.fixture
def log(tmp_path):
    """Return a folder with a log of a finished and a running job, and a node."""
    (tmp_path / "jobs.txt").write_text(LOG)
    (tmp_path / "nodes.txt").write_text(NODE.format(gres="gpu:4"))
    (tmp_path / "out").mkdir()
    return tmp_path


def ask(log, **options):
    asked = Asked(log=str(log / "jobs.txt"), **{"policies": ("fifo",), **options})
    return replay(asked, log / "out", log / "out")


def test_the_log_ends_when_it_was_taken_not_with_the_last_start(log):
    answer = ask(log, nodes=str(log / "nodes.txt"))
    assert answer.facts()["log_end_s"] == 3600
    use = dict(answer.table.filter(by="all").select("schedule", "use").rows())
    observed = (2 * 600 + 2 * 3300) / (4 * 3600)
    assert use == pytest.approx({"observed": observed, "fifo": observed})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"changes": ReplayChanges(quotas=(("nobody", 4.0),))},
            "no job is of this tenant; there are: v",
        ),
        ({"changes": ReplayChanges(quotas=(("v", 4.0), ("v", 8.0)))}, "more than once"),
        ({"policies": ("easy", "easy")}, "the same one twice"),
        ({"policies": ("esy",)}, "unknown policy 'esy': did you mean 'easy'"),
        ({"model": "fifoo"}, "unknown policy 'fifoo': did you mean 'fifo'"),
    ],
)
def test_questions_that_cannot_be_meant_are_refused(log, options, message):
    with pytest.raises(OptionError, match=message):
        ask(log, **options)


def test_partitions_that_are_lost_are_told(log):
    assert any("partitions are not kept" in text for text in ask(log, cluster="2x4").warnings)


def test_labels_of_a_cluster_keep_partitions(log):
    path = log / "cluster.yaml"
    path.write_text("nodes:\n- {name: n1, gpus: 4, labels: [gpu]}\n")
    answer = ask(log, cluster=str(path))
    assert not any("partitions" in text for text in answer.warnings)


def test_machines_without_gpus_are_shown_as_such(log):
    (log / "nodes.txt").write_text(NODE.format(gres="(null)"))
    given = [str(log / "jobs.txt"), "--nodes", str(log / "nodes.txt"), "-o", str(log / "new")]
    result = CliRunner().invoke(command, given, catch_exceptions=False)
    assert result.exit_code == 0
    assert "easy" in result.output


def test_a_list_of_jobs_is_no_list_of_nodes(log):
    with pytest.raises(Exception, match="is not understood: give what `scontrol show node`"):
        ask(log, nodes=str(log / "jobs.txt"))


def test_a_job_larger_than_any_cluster_is_named(log):
    (log / "jobs.txt").write_text(LOG.replace("3300|gres/gpu=2", "3300|gres/gpu=100001"))
    with pytest.raises(TraceError, match="job 2 asks for 100,001 GPUs, more than 100,000"):
        ask(log)
