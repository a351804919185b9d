"""A log that was converted, merged or changed gives the answers of the log itself."""

import pytest

from rota.cli.app import run
from rota.study.replay.replay import Asked, replay
from rota.traces.read import read_trace

TITLES = (
    "JobID|User|Account|Partition|QOS|Submit|Start|End|State|ElapsedRaw|TimelimitRaw|AllocTRES|"
    "NNodes|NodeList"
)
DAY = "2026-03-02T{}:00"
ROW = f"{{}}|u|acc|{{}}|normal|{DAY}|{DAY}|{DAY}|COMPLETED|{{}}|300|gres/gpu:{{}}=4|1|{{}}"
JOBS = [
    (1, "gpu", "08:00", "08:00", "12:00", 14400, "a100", "a1"),
    (2, "gpu", "08:10", "12:00", "13:00", 3600, "a100", "a1"),
    (3, "debug", "08:20", "08:20", "08:30", 600, "a100", "d1"),
]
NODE = (
    "NodeName={} CPUTot=64\n   Gres=gpu:a100:4\n   RealMemory=512000 State=IDLE\n   Partitions={}\n"
)


@pytest.fixture
def log(tmp_path):
    """Return a folder with a log of two partitions, its nodes, and the log converted."""
    rows = [TITLES, *(ROW.format(*job) for job in JOBS)]
    (tmp_path / "j.txt").write_text("\n".join(rows) + "\n")
    (tmp_path / "n.txt").write_text(NODE.format("a1", "gpu") + NODE.format("d1", "debug"))
    rota("trace", "convert", tmp_path / "j.txt", "-o", tmp_path / "C")
    return tmp_path


def rota(*given):
    assert run([str(one) for one in given]) == 0


def answered(folder, name, **options):
    out = folder / f"out{len(list(folder.glob('out*')))}"
    out.mkdir()
    return replay(Asked(log=str(folder / name), model="fifo", **options), out, out)


def starts(answer):
    return answer.schedules[-1].jobs["first_start_s"].to_list()


@pytest.mark.parametrize("machines", ["seen", "nodes", "cluster"])
def test_a_converted_log_keeps_its_partitions(log, machines):
    wanted = answered(log, "j.txt", nodes=str(log / "n.txt"))
    given = {
        "seen": {},
        "nodes": {"nodes": str(log / "n.txt")},
        "cluster": {"cluster": str(log / "out0" / "cluster.yaml")},
    }[machines]
    found = answered(log, "C", **given)
    assert starts(found) == starts(wanted) == [0, 14400, 1200]
    assert not any("partitions" in text for text in found.warnings)
    measures = [answer.table.select("by", "group", "mean_wait_s") for answer in (wanted, found)]
    assert measures[0].equals(measures[1])


def test_a_merged_log_keeps_its_partitions(log):
    head, *rows = (log / "j.txt").read_text().splitlines()
    for name, mine in (("w1", rows[:2]), ("w2", rows[1:])):
        (log / f"{name}.txt").write_text("\n".join([head, *mine]) + "\n")
    rota("trace", "merge", log / "w1.txt", log / "w2.txt", "--align", "clock", "-o", log / "M")
    assert starts(answered(log, "M", nodes=str(log / "n.txt"))) == [0, 14400, 1200]


def test_partitions_that_no_node_is_in_are_told(log):
    (log / "n.txt").write_text(NODE.format("a1", "gpu") + NODE.format("d1", "other"))
    for name in ("j.txt", "C"):
        found = answered(log, name, nodes=str(log / "n.txt"))
        told = "partitions are not kept: 1 jobs of debug may run on every node"
        assert [text for text in found.warnings if text.startswith(told)]


def test_stored_labels_stay_where_one_partition_is_left(log):
    form = f"sacct:nodes={log / 'n.txt'}"
    rota("trace", "convert", log / "j.txt", "--format", form, "-o", log / "L")
    rota("trace", "change", log / "L", "--window", "0:900", "-o", log / "one")
    labels = read_trace(log / "one", "rota:partitions=label").jobs["labels"].to_list()
    assert labels == [["gpu"], ["gpu"]]
    labels = read_trace(log / "one", "rota:partitions=ignore").jobs["labels"].to_list()
    assert labels == [[], []]
