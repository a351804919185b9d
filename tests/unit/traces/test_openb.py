"""openb: pods with times, and pods as a sequence that is inflated to a load."""

import pytest

from rota.core.errors import OptionError, TraceError
from rota.core.jobs import Request, TaskGroup
from rota.traces.formats.openb import FOREVER_S, FORMAT
from rota.traces.formats.openb_inflation import GoRandom, Inflation, inflate, node_order
from rota.traces.observed import Seen
from rota.traces.tidy import CUT, NO_DURATION
from trace_readers import counted

HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
)
PODS = (
    "p0,4000,2048,1,460,,LS,Succeeded,10,500,20\n"
    "p1,8000,1024,8,1000,A|B,BE,Running,11,1000,30\n"
    "p2,1000,512,0,0,,Burstable,Pending,12,400,\n"
    "p3,1000,512,1,1000,,Guaranteed,Failed,13,400,14\n"
)
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,96000,1024,8,A\nn1,96000,1024,0,\n"


@pytest.fixture
def pods(tmp_path):
    """Return `pods(text)`: the path of a pod list with a node list beside it."""

    def write(text=HEADER + PODS, *, nodes=True):
        if nodes:
            (tmp_path / "openb_node_list_all_node.csv").write_text(NODES)
        (tmp_path / "pods.csv").write_text(text)
        return tmp_path / "pods.csv"

    return write


def test_timed_pods(pods):
    imported = FORMAT.load(pods(), {})
    one, many, whole = imported.workload.specs
    assert one.request == Request.of(0.46, cpus=4.0, mem_gib=2.0)
    assert many.request.apart  # eight GPUs of one pod are on one node
    assert many.request.groups == (TaskGroup("worker", 1, 8, 8.0, 1.0),)
    assert many.request.gpu_types == ("A", "B")
    assert [spec.priority for spec in (one, many, whole)] == [2, 0, 3]
    assert [behaviour.work for behaviour in imported.workload.behaviours] == [480, 970, 386]
    assert imported.quality.dropped == {NO_DURATION: 1}
    assert imported.quality.repaired == {CUT: 1}
    assert imported.notes == ["1 pods are pending: they were never scheduled"]
    assert sum(node.gpus for node in imported.cluster) == 8
    assert imported.observed.rows() == [
        Seen(0, 10.0, 490.0, state="done"),
        Seen(1, 20.0, None, state="running"),
        Seen(2, 4.0, 390.0, state="failed"),
    ]


def test_unfinished_pods_can_be_dropped(pods):
    imported = FORMAT.load(pods(), {"unfinished": "drop"})
    assert [spec.id for spec in imported.workload.specs] == ["p0", "p3"]
    assert counted(imported.quality)


def test_a_sequence_grows_to_its_load_and_nothing_ends(pods):
    imported = FORMAT.load(pods(), {"mode": "inflate", "ratio": "3", "seed": "7"})
    ids = [spec.id for spec in imported.workload.specs]
    assert sorted(ids[:4]) == ["p0", "p1", "p2", "p3"]
    assert all("-tuned-" in name for name in ids[4:])
    assert [spec.submit_s for spec in imported.workload.specs] == list(range(len(ids)))
    assert {behaviour.work for behaviour in imported.workload.behaviours} == {FOREVER_S}
    assert counted(imported.quality)
    again = FORMAT.load(pods(), {"mode": "inflate", "ratio": "3", "seed": "7"})
    assert again.jobs.equals(imported.jobs)


def test_sequences_without_an_end_and_without_a_pod_are_refused(pods, monkeypatch):
    monkeypatch.setattr("rota.traces.formats.openb_inflation.MOST_CLONES", 1000)
    with pytest.raises(OptionError, match="needs more than 1,000 clones of pods: give a smaller"):
        FORMAT.load(pods(), {"mode": "inflate", "ratio": "100", "gpus": "100000"})
    large = HEADER + "p0,1000,1024,8,1000,,LS,Running,0,9,1\n"
    with pytest.raises(TraceError, match=r"no job is left \(1 not in the sequence\)"):
        FORMAT.load(pods(large), {"mode": "inflate", "gpus": "4"})


def test_a_sequence_shrinks_to_its_load(pods):
    imported = FORMAT.load(pods(), {"mode": "inflate", "ratio": "0.1"})
    assert sum(imported.jobs["num_gpus"]) <= 0.8
    assert "not in the sequence" in imported.quality.dropped
    assert counted(imported.quality)


def test_an_order_from_a_file(pods, tmp_path):
    order = tmp_path / "order.csv"
    order.write_text("index,pod\n0,p3\n1,p0\n2,p0-tuned-0\n")
    imported = FORMAT.load(pods(), {"mode": "inflate", "order": str(order)})
    assert [spec.id for spec in imported.workload.specs] == ["p3", "p0", "p0-tuned-0"]
    assert imported.workload.specs[2].request == imported.workload.specs[1].request
    assert imported.quality.dropped == {"not in the sequence": 2}
    assert counted(imported.quality)
    order.write_text("pod\np9\n")
    with pytest.raises(TraceError, match="'p9' is not in the pod list"):
        FORMAT.load(pods(), {"mode": "inflate", "order": str(order)})


def test_what_is_usual_are_the_pods_as_recorded(pods, tmp_path):
    inflated = FORMAT.load(pods(), {"mode": "inflate", "ratio": "3", "seed": "7"})
    usual = dict(inflated.workload.usual)
    assert sorted(usual.values()) == [1, 1, 1, 1]
    assert len(inflated.workload) > 4
    assert inflated.first(2).workload.usual == inflated.workload.usual
    order = tmp_path / "order.csv"
    order.write_text("pod\np3\np3-tuned-0\n")
    ordered = FORMAT.load(pods(), {"mode": "inflate", "order": str(order)}).workload
    assert dict(ordered.usual) == usual
    assert ordered.rank_nodes is None
    timed = FORMAT.load(pods(), {}).workload
    assert sum(many for _, many in timed.usual) == len(timed) == 3


def test_the_draw_goes_on_to_the_nodes_and_can_be_asked_again(pods):
    nodes = [f"n{number}" for number in range(30)]
    one, two = (
        FORMAT.load(pods(), {"mode": "inflate", "seed": seed}).workload for seed in ("7", "8")
    )
    assert one.rank_nodes(nodes) == one.rank_nodes(nodes[::-1])
    assert sorted(one.rank_nodes(nodes)) == sorted(nodes)
    assert one.rank_nodes(nodes) != two.rank_nodes(nodes)


def test_lists_without_times_are_sequences(pods):
    text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1000,512,1,500\n"
    imported = FORMAT.load(pods(text), {"ratio": "0.0625"})
    assert imported.workload.specs[0].request.groups == (TaskGroup("worker", 1, 0.5, 1.0, 0.5),)
    with pytest.raises(TraceError, match="has no column 'creation_time': use mode=inflate"):
        FORMAT.load(pods(text), {"mode": "timed"})
    with pytest.raises(OptionError, match="give nodes=FILE or gpus=N"):
        FORMAT.load(pods(text), {"nodes": "no"})
    assert len(FORMAT.load(pods(text), {"nodes": "no", "gpus": "1", "ratio": "1"})) == 2


def test_the_generator_draws_as_it_was_published():
    # Values of the generator for seed 1, as printed in countless introductions to the language.
    random = GoRandom(1)
    assert [random.below(100) for _ in range(5)] == [81, 87, 47, 59, 81]
    assert GoRandom(0).word() == GoRandom(89_482_311).word()
    order = GoRandom(3).permutation(10)
    assert sorted(order) == list(range(10))


def test_the_order_of_nodes_follows_the_pods():
    pods = Inflation(["a", "b", "c"], [500, 1000, 0], [1, 2, 0])
    names, random = inflate(pods, 10_000.0, 1)
    assert sorted(names[:3]) == ["a", "b", "c"]
    nodes = [f"n{number}" for number in range(20)]
    ranked = node_order(nodes, random)
    assert sorted(ranked) == sorted(nodes)
    assert ranked == node_order(nodes[::-1], inflate(pods, 10_000.0, 1)[1])
