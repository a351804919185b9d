"""Machines that are added to a replay, and those that are removed."""

import pytest
from click.testing import CliRunner

from rota.cli.replay import replay as command
from rota.core.errors import ClusterSpecError, OptionError
from rota.core.topology import NodeSpec
from rota.study.replay.changes import ReplayChanges, changed
from rota.study.replay.replay import Asked, replay

A100 = [
    NodeSpec(f"a{i:03}", 8, "a100", 64.0, 512.0, ("r1" if i < 3 else "r2",), ("gpu", "nvlink"))
    for i in range(1, 5)
]
T4 = [NodeSpec(f"t{i}", 4, "t4", 16.0, 64.0, ("r3",), ("debug", "old")) for i in (1, 2)]
NODES = [*A100, *T4]
PARTITIONS = ("debug", "gpu")
LOG = """\
JobID|User|Account|Partition|Submit|Start|End|State|ElapsedRaw|TimelimitRaw|AllocTRES|NNodes|NodeList
1|ann|v|gpu|2026-03-02T08:00:00|2026-03-02T08:00:00|2026-03-02T08:10:00|COMPLETED|600|20|gres/gpu=2|1|n1
2|ann|v|gpu|2026-03-02T08:00:00|2026-03-02T08:10:00|2026-03-02T08:20:00|COMPLETED|600|20|gres/gpu=2|1|n1
3|bob|v|debug|2026-03-02T08:00:00|2026-03-02T08:00:00|2026-03-02T08:10:00|COMPLETED|600|20|gres/gpu=2|1|n2
4|bob|v|debug|2026-03-02T08:00:00|2026-03-02T08:10:00|2026-03-02T08:20:00|COMPLETED|600|20|gres/gpu=2|1|n2
"""
LIST = """\
NodeName=n1 CPUTot=16 Gres=gpu:a100:2 RealMemory=65536 Partitions=gpu
NodeName=n2 CPUTot=16 Gres=gpu:t4:2 RealMemory=65536 Partitions=debug
"""


@pytest.fixture
def log(tmp_path):
    """Return a folder with a log of two partitions in which every second job waited 600 s."""
    (tmp_path / "jobs.txt").write_text(LOG)
    (tmp_path / "nodes.txt").write_text(LIST)
    return tmp_path


def left(*remove):
    return [n.name for n in changed(NODES, ReplayChanges(remove=remove), PARTITIONS, ("rack",))]


def added(*add, nodes=NODES, partitions=PARTITIONS):
    return changed(nodes, ReplayChanges(add=add), partitions, ("rack",))[len(nodes) :]


# --- added ---------------------------------------------------------------------------------------


def test_new_nodes_are_in_the_named_partitions_only():
    (new,) = added("1x8:a100@gpu")
    assert new == NodeSpec("new1", 8, "a100", 64.0, 512.0, ("r1",), ("gpu", "nvlink"))
    assert added("1x4@debug")[0].labels == ("debug", "old")
    assert added("1x4@debug")[0].gpu_type == "t4"
    assert added("2x8:h100@gpu+debug")[1].labels == ("gpu", "debug")  # features of no h100 node


def test_without_a_partition_the_candidates_are_listed():
    with pytest.raises(OptionError, match=r"write 12x8:a100@gpu .* there are: debug, gpu"):
        added("12x8:a100")
    with pytest.raises(OptionError, match=r"write 1x8:h100@debug .* there are: debug, gpu"):
        added("1x8:h100")  # no partition has these
    assert added("1x8", partitions=("gpu",))[0].labels == ("gpu", "nvlink")
    plain = [NodeSpec("n1", 8)]
    assert added("1x8", nodes=plain, partitions=())[0].labels == ()


def test_partitions_that_are_not_there_are_refused():
    with pytest.raises(OptionError, match=r"no partition 'gpus': did you mean 'gpu'.*debug, gpu"):
        added("1x8@gpus")
    with pytest.raises(OptionError, match="no partition ''"):
        added("1x8@")
    with pytest.raises(OptionError, match="none, leave it out"):
        added("1x8@gpu", nodes=[NodeSpec("n1", 8)], partitions=())


def test_shapes_that_are_none_are_refused():
    with pytest.raises(ClusterSpecError, match="add-nodes '4y8': '4y8' is not NODESxGPUS"):
        added("4y8@gpu")
    with pytest.raises(ClusterSpecError, match="add-nodes '4y8': '4y8' is not NODESxGPUS"):
        added("4y8")  # whatever else is missing


def test_two_lots_of_new_nodes_have_names_of_their_own():
    names = [node.name for node in added("2x8@gpu", "1x4@debug")]
    assert names == ["new1", "new2", "new3"]


def test_nodes_added_to_one_partition_change_nothing_in_the_other(log):
    (log / "out").mkdir()
    asked = Asked(
        log=str(log / "jobs.txt"), nodes=str(log / "nodes.txt"), policies=("easy",),
        changes=ReplayChanges(add=("1x2@gpu",)),
    )  # fmt: skip
    answer = replay(asked, log / "out", log / "out")
    rows = answer.table.filter(by="partition").select("group", "schedule", "mean_wait_s").rows()
    waits = {(group, name): wait for group, name, wait in rows}
    assert waits["debug", "easy (+1x2@gpu)"] == 300.0
    assert waits["gpu", "easy (+1x2@gpu)"] == 0.0
    assert waits["gpu", "easy"] == 300.0


def test_windows_of_a_replay(log):
    """What if the node had been out of use from 600 s on, when its second job was to start?"""
    (log / "out").mkdir()
    text = "nodes=n1,start=20m,for=1h"
    asked = Asked(
        log=str(log / "jobs.txt"), nodes=str(log / "nodes.txt"), policies=("easy",),
        changes=ReplayChanges(maintenance=(text,), reserve=("nodes=n2,start=1m,for=2h,user=ann",)),
    )  # fmt: skip
    answer = replay(asked, log / "out", log / "out")
    rows = answer.table.filter(by="partition").select("group", "schedule", "mean_wait_s").rows()
    waits = {(group, name): wait for group, name, wait in rows if name != "recorded"}
    changed = f"easy (maintenance {text}, reserved nodes=n2,start=1m,for=2h,user=ann)"
    assert (waits["gpu", "easy"], waits["debug", "easy"]) == (300.0, 300.0)
    assert waits["gpu", changed] == (0.0 + 4_800.0) / 2  # 20 min as it says do not fit after 600 s
    assert waits["debug", changed] == 60.0 + 7_200.0 + 300.0  # bob has to wait for its end


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("--maintenance", "nodes=n7,start=1h", "there is no node 'n7'"),
        ("--maintenance", "nodes=n1", "start is missing"),
        ("--reserve", "nodes=n1,start=1h,queue=w", "unknown queue 'w': known: v"),
    ],
)
def test_windows_that_cannot_be(log, option, text, message):
    args = [str(log / "jobs.txt"), "--nodes", str(log / "nodes.txt"), "-o", str(log / "out")]
    done = CliRunner().invoke(command, [*args, option, text])
    assert message in str(done.exception)
    assert not (log / "out").exists()


def test_the_command_lists_the_partitions(log):
    args = [str(log / "jobs.txt"), "--nodes", str(log / "nodes.txt"), "-o", str(log / "out")]
    done = CliRunner().invoke(command, [*args, "--add-nodes", "1x2"])
    assert "there are: debug, gpu" in str(done.exception)
    assert not (log / "out").exists()


# --- removed -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("remove", "expected"),
    [
        (("a001",), ["a002", "a003", "a004", "t1", "t2"]),
        (("a[001-003]",), ["a004", "t1", "t2"]),
        (("a[001,004],t1",), ["a002", "a003", "t2"]),
        (("a001", "t2"), ["a002", "a003", "a004", "t1"]),
        (("a*",), ["t1", "t2"]),
        (("a00[1-2]*, t?",), ["a003", "a004"]),
        (("rack=r1",), ["a003", "a004", "t1", "t2"]),
        (("rack=r[2-3]",), ["a001", "a002"]),
        (("partition=debug",), ["a001", "a002", "a003", "a004"]),
        (("label=nv*",), ["t1", "t2"]),
        (("type=t4,rack=r2",), ["a001", "a002"]),
    ],
)
def test_nodes_are_removed_by_lists_patterns_and_places(remove, expected):
    assert left(*remove) == expected


@pytest.mark.parametrize(
    ("remove", "message"),
    [
        ("a[003-006]", "remove 'a005, a006': matches no node: did you mean a00"),
        ("b*", "remove 'b\\*': matches no node: there are a001, a002"),
        ("rack=r9", "remove 'rack=r9': matches no node: there are rack=r1, rack=r2"),
        ("partition=debugg", "did you mean partition=debug?"),
        ("row=1", "nodes have no 'row': write partition=..., label=..., type=..., rack=..."),
        ("a[1", "brackets do not match"),
        ("*", "no node is left"),
    ],
)
def test_what_matches_nothing_is_an_error_with_close_names(remove, message):
    with pytest.raises(OptionError, match=message.replace("?", "\\?")):
        left(remove)


def test_the_level_next_to_nodes_is_called_rack_where_it_has_no_name():
    nodes = [NodeSpec("n1", 8, path=("pod1", "x")), NodeSpec("n2", 8, path=("pod1", "y"))]
    assert [node.name for node in changed(nodes, ReplayChanges(remove=("rack=x",)))] == ["n2"]
    with pytest.raises(OptionError, match="no node has one"):
        changed([NodeSpec("n1", 8)], ReplayChanges(remove=("label=fast",)))
