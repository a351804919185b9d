"""Signals in a cluster file, and nodes that come and go with them."""

import pytest

from rota.core.errors import ClusterSpecError
from rota.study.config import RunConfig
from rota.study.run import simulate
from rota.traces.cluster import parse_cluster

TWO_AND_LENT = """
nodes:
  - {name: own, gpus: 4}
  - {name: guest, count: 2, gpus: 4, labels: [lent], present: lent}
signals:
  lent: {steps: [[0, 2], [100, 1], [200, 0], [300, 2]]}
"""


def written(tmp_path, text):
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    return str(path)


def test_a_signal_is_read(tmp_path):
    topology, _ = parse_cluster(written(tmp_path, TWO_AND_LENT))

    assert topology.signals["lent"].at(150) == 1
    assert topology.guests == [(topology.signals["lent"], ("guest0", "guest1"))]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes: 1x4\nsignals: [1]", "signals is [1]: give names"),
        ("nodes: 1x4\nsignals: {a: {step: []}}", "unknown key 'step': did you mean 'steps'"),
        ("nodes: 1x4\nsignals: {a: {}}", "has no steps"),
        ("nodes: 1x4\nsignals: {a: {steps: [[0, 1], [0, 2]]}}", "each time once"),
        ("nodes: 1x4\nsignals: {a: {steps: [[0, .inf]]}}", "give finite numbers"),
        ("nodes: [{gpus: 4, present: lend}]\nsignals: {lent: {steps: [[0, 1]]}}",
         "unknown signal 'lend': did you mean 'lent'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path, text, said):
    with pytest.raises(ClusterSpecError) as error:
        parse_cluster(written(tmp_path, text))
    assert said in str(error.value)


def test_nodes_come_and_go_and_nothing_is_lost(tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text(
        "job_id,submit_s,num_gpus,duration_s\n" + "".join(f"j{i},0,4,400\n" for i in range(3))
    )
    config = RunConfig(
        trace=str(trace), cluster=written(tmp_path, TWO_AND_LENT), policy="fifo", check=True
    )
    jobs = {row["job_id"]: row for row in simulate(config).jobs.iter_rows(named=True)}

    assert jobs["j0"]["end_s"] == 400
    # one leaves at 100, the other at 200; both go on at 300 with what they have left
    assert sorted(jobs[j]["end_s"] for j in ("j1", "j2")) == [300 + 200, 300 + 300]
    assert all(jobs[j]["service_gpu_s"] == 4 * 400 for j in jobs)
    assert all(jobs[j]["preemptions"] == 0 for j in jobs)  # it was nobody's wish but the owner's
