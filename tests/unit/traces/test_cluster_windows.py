"""Maintenance and reservations in a cluster file."""

from pathlib import Path

import pytest

from rota.core.errors import ClusterSpecError, OptionError
from rota.daemon.settings import Settings
from rota.server import declared
from rota.study.config import RunConfig
from rota.study.replay.replay import Asked, replay
from rota.study.run import simulate
from rota.traces.cluster import parse_cluster

NODES = "nodes: 2x4\nwindows:\n"
BOTH = """\
  - {kind: maintenance, nodes: [n0], start: 1h, for: 2h}
  - {kind: reservation, nodes: n1, start: 3000, for: 1h, user: [ann], queue: [vision, nlp]}
"""
JOBS = """\
job_id,submit_s,num_gpus,duration_s,estimate_s,user,vc
a,0,4,3000,3600,ann,vision
b,0,4,3000,3600,bob,other
c,600,4,2400,2400,bob,other
d,900,4,2400,2400,ann,nlp
e,1200,4,600,,bob,other
"""


def written(tmp_path, text):
    path = tmp_path / "cluster.yaml"
    path.write_text(NODES + text)
    return str(path)


def run(tmp_path, cluster, **options):
    (tmp_path / "jobs.csv").write_text(JOBS)
    trace = str(tmp_path / "jobs.csv")
    return simulate(RunConfig(trace=trace, cluster=cluster, policy="fifo-skip", **options))


def test_they_are_those_of_options(tmp_path):
    by_file = run(tmp_path, written(tmp_path, BOTH))
    by_option = run(
        tmp_path, "2x4", maintenance=("nodes=n0,start=1h,for=2h",),
        reserve=("nodes=n1,start=50m,for=1h,user=ann,queue=vision+nlp",),
    )  # fmt: skip
    assert by_file.jobs["wait_s"].to_list() == [0, 6600, 0, 2100, 8400]
    assert by_file.log.equals(by_option.log)
    assert by_file.assumptions["windows"] == by_option.assumptions["windows"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("  - {nodes: n0, start: 1h}", "windows[0]: kind is missing: give maintenance or"),
        ("  - 7", "windows[0]: kind is missing: give maintenance or"),
        ("  - {kind: maintenance, node: n0}", "windows[0]: unknown key 'node': did you mean 'nod"),
        ("  - {kind: maintenance, nodes: {a: 1}}", "windows[0]: nodes is {'a': 1}: give a text"),
    ],
)
def test_what_is_no_window(tmp_path, text, said):
    with pytest.raises(ClusterSpecError) as error:
        parse_cluster(written(tmp_path, text))
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("  - {kind: maintenance, nodes: n0}", "windows[0]: start is missing"),
        ("  - {kind: maintenance, nodes: n7, start: 1h}", "there is no node 'n7'"),
        ("  - {kind: reservation, gpus: 4, start: 1h, queue: visoin}", "did you mean 'vision'"),
    ],
)
def test_what_cannot_be(tmp_path, text, said):
    with pytest.raises(OptionError) as error:
        run(tmp_path, written(tmp_path, text))
    assert said in str(error.value)


def test_a_placement_that_adds_up_more_than_gpus_refuses_them(tmp_path):
    cluster = written(tmp_path, BOTH)
    assert "nodes: 2x4" in Path(cluster).read_text()
    run(tmp_path, cluster, placement="count")
    more = Path(cluster).read_text().replace("nodes: 2x4", "nodes: [{count: 2, gpus: 4, cpus: 8}]")
    Path(cluster).write_text(more)
    with pytest.raises(OptionError, match="placement 'count' adds up the CPUs, memory"):
        run(tmp_path, cluster, placement="count")


def test_who_cannot_keep_to_them_says_so(tmp_path):
    cluster = written(tmp_path, BOTH)
    with pytest.raises(ClusterSpecError, match="rota maintenance add"):
        declared(Settings(cluster=cluster))
    (tmp_path / "jobs.txt").write_text(
        "JobID|User|Submit|Start|End|State|ElapsedRaw|AllocTRES|NNodes|NodeList\n"
        "1|ann|2026-03-02T08:00:00|2026-03-02T08:00:00|2026-03-02T08:10:00|COMPLETED|600|"
        "gres/gpu=2|1|n0\n"
    )
    asked = Asked(log=str(tmp_path / "jobs.txt"), cluster=cluster)
    with pytest.raises(ClusterSpecError, match="give --maintenance and --reserve"):
        replay(asked, tmp_path, tmp_path)
