"""Jobs on GPUs: lanes and heat."""

import polars as pl
import pytest

from rota.core.jobs import Request
from rota.core.topology import NodeSpec, Topology
from rota.metrics import fold_ledger
from rota.metrics.basis import make_basis
from rota.metrics.history import read_history
from rota.report import fragment_heat, gantt, node_heat
from rota.report.style import by_tenant, lane_rows, main_tenants
from shared_gpus import shared_run

SHOWN = ("job_id", "node", "lane", "lanes", "start_s", "end_s", "kind")


def overlaps(bars):
    """Return pairs of bars that are on the same part of a lane at the same time."""
    rows = bars.sort("node", "start_s").rows(named=True)
    return [
        (a, b)
        for i, a in enumerate(rows)
        for b in rows[i + 1 :]
        if a["node"] == b["node"]
        and a["start_s"] < b["end_s"]
        and b["start_s"] < a["end_s"]
        and a["lane"] < b["lane"] + b["lanes"] - 1e-9
        and b["lane"] < a["lane"] + a["lanes"] - 1e-9
    ]


def test_a_job_keeps_its_lanes_from_start_to_end(script):
    script.submit(0).submit(1, 3).start(0, (1, 1))
    script.start(1, (1, 1), (4, 2), since=2).at(2).row("run", 1)
    script.at(5).row("done", 0).at(9).row("done", 1)

    assert gantt(script.end()).select(SHOWN).rows() == [
        ("j0", "n0", 0, 1, 0, 5, "running"),
        ("j1", "n0", 1, 1, 0, 2, "overhead"),
        ("j1", "n1", 0, 2, 0, 2, "overhead"),
        ("j1", "n0", 1, 1, 2, 9, "running"),
        ("j1", "n1", 0, 2, 2, 9, "running"),
    ]


def test_a_gpu_goes_from_one_job_to_the_next_in_an_instant(script):
    script.submit(0, 2).submit(1, 2).start(0, (1, 2)).at(4).row("stop", 0).start(1, (1, 2))
    script.at(6).row("done", 1).start(0, (1, 2)).at(8).row("done", 0)

    assert gantt(script.end()).select("job_id", "lane", "start_s", "end_s").rows() == [
        ("j0", 0, 0, 4), ("j1", 0, 4, 6), ("j0", 0, 6, 8),
    ]  # fmt: skip


def test_lanes_apart_are_bars_apart(script):
    script.row("vertex", ref=7, other=0, value=3, text="node:n2")
    script.submit(0).submit(1).submit(2).start(0, (7, 1)).start(1, (7, 1)).start(2, (7, 1))
    script.at(1).row("done", 0).row("done", 2).submit(3, 2).start(3, (7, 2))
    bars = gantt(script.at(2).row("done", 1).row("done", 3).end())

    wide = bars.filter(pl.col("job_id") == "j3").select("lane", "lanes")
    assert wide.rows() == [(0, 1), (2, 1)]


def test_fractions_share_a_gpu(script):
    script.submit(0, 0.5).submit(1, 0.25).submit(2, 1)
    script.start(0, (3, 0.5)).start(1, (3, 0.25)).start(2, (1, 1))
    script.at(2).row("done", 0).submit(3, 0.5).start(3, (3, 0.5))
    bars = gantt(script.at(4).row("done", 1).row("done", 2).row("done", 3).end())

    assert bars.select("job_id", "node", "lane", "lanes").rows() == [
        ("j0", "n0", 1, 0.5), ("j1", "n0", 1.5, 0.25), ("j2", "n0", 0, 1), ("j3", "n0", 1, 0.5),
    ]  # fmt: skip
    assert not overlaps(bars)


def test_all_that_share_a_gpu_have_a_part_of_its_lane(script):
    script.submit(0, 1).start(0, (2, 1)).at(1).submit(1, 1).start(1, (2, 1))
    script.submit(2, 1).start(2, (3, 1))  # alone on the other GPU
    script.at(2).submit(3, 0.5).start(3, (2, 0.5)).at(3).row("done", 1)
    script.at(4).row("done", 0).row("done", 2).row("done", 3)
    script.at(5).submit(4, 1).start(4, (2, 1)).at(6).row("done", 4)  # they have gone
    bars = gantt(script.end())

    found = {job: row for job, *row in bars.select("job", "lane", "lanes", "gpus").rows()}
    assert found == {
        0: [0, 0.4, 1], 1: [0.4, 0.4, 1], 3: [0.8, pytest.approx(0.2), 0.5],
        2: [1, 1, 1], 4: [0, 1, 1],
    }  # fmt: skip
    assert not overlaps(bars)


@pytest.mark.parametrize(("mode", "policy"), [("timeslice", "salus"), ("fraction", "kubeshare")])
def test_shared_gpus_keep_their_lanes(tmp_path, mode, policy):
    run = shared_run(tmp_path, mode, policy)
    bars = gantt(run.log)
    area = (pl.col("end_s") - pl.col("start_s")) * pl.col("gpus")

    assert (bars["lanes"] < 1).any()
    assert (bars["lane"] + bars["lanes"]).max() <= 2 + 1e-6, "as many lanes as GPUs"
    assert not overlaps(bars)
    history = read_history(run.log)
    assert bars.select(area.sum()).item() == pytest.approx(history.held @ history.length_s)


def test_a_pool_is_one_node(run_of):
    log = run_of("fifo", placement="count").log

    assert set(gantt(log)["node"]) == {"cluster"}
    assert set(node_heat(log, 4)["node"]) == {"cluster"}
    assert gantt(log)["lane"].max() < 16


@pytest.mark.parametrize("policy", ["fifo", "las:limits=100/400", "srtf"])
@pytest.mark.parametrize("placement", ["consolidate", "spread", "count"])
def test_bars_never_overlap_and_cover_what_is_allocated(run_of, policy, placement):
    log = run_of(policy, placement=placement).log
    bars = gantt(log)
    area = (pl.col("end_s") - pl.col("start_s")) * pl.col("lanes")

    assert not overlaps(bars)
    assert bars.select(area.sum()).item() == pytest.approx(fold_ledger(log)["allocated_gpu_s"])
    gpus = 16 if placement == "count" else 4
    assert (bars["lane"] + bars["lanes"]).max() <= gpus  # never more than the node has


def test_nodes_are_as_full_as_they_were(script):
    script.submit(0, 3).start(0, (1, 1), (4, 2)).at(5).row("node_down", -1, 1)
    script.row("evicted", 0, 1).at(10).row("node_up", -1, 1).start(0, (4, 2))
    heat = node_heat(script.at(20).row("done", 0).end(), bins=4)

    assert heat.filter(pl.col("node") == "n0")["share"].to_list() == [0.5, 0, 0, 0]
    assert heat.filter(pl.col("node") == "n0")["down"].to_list() == [0, 1, 0, 0]
    assert heat.filter(pl.col("node") == "n1")["share"].to_list() == [1, 0, 1, 1]
    assert heat["until_s"].to_list()[:4] == [5, 10, 15, 20]


def test_nodes_without_jobs_are_cold(script):
    heat = node_heat(script.submit(0).start(0, (1, 1)).at(5).row("done", 0).end(), bins=2)

    assert heat.select("node", "share").rows() == [("n0", 0.5), ("n0", 0.5), ("n1", 0), ("n1", 0)]


def basis(gpus, cpus=0.0):
    """Return a basis for the script's nodes; every usual job asks for so many GPUs."""
    nodes = [NodeSpec(f"n{number}", 2, cpus=cpus) for number in range(2)]
    return make_basis(nodes, [(Request.of(gpus), 1)])


def test_fragments_are_what_usual_jobs_cannot_use(script):
    script.submit(0, 1).start(0, (1, 1)).submit(1, 0.5).start(1, (5, 0.5))
    script.at(5).row("done", 0).at(10).row("node_down", -1, 4).row("evicted", 1)
    log = script.at(20).row("node_up", -1, 4).at(40).row("cancelled", 1).end()

    whole = fragment_heat(log, basis(1), bins=4)  # 10 s each
    assert whole.columns == node_heat(log, 4).columns
    assert whole.filter(pl.col("node") == "n0")["share"].to_list() == [0, 0, 0, 0]
    assert whole.filter(pl.col("node") == "n1")["share"].to_list() == [0.25, 0, 0, 0]
    assert whole.filter(pl.col("node") == "n1")["down"].to_list() == [0, 1, 0, 0]

    both = fragment_heat(log, basis(2), bins=4)
    assert both.filter(pl.col("node") == "n0")["share"].to_list() == [0.25, 0, 0, 0]
    assert both.filter(pl.col("node") == "n1")["share"].to_list() == [0.75, 0, 0, 0]


def test_without_nodes_or_a_basis_there_are_no_fragments(script):
    log = script.submit(0).start(0, (0, 1)).at(5).row("done", 0).end()

    assert fragment_heat(log, basis(1)) is None  # taken from the pool
    assert fragment_heat(log, None) is None
    other = make_basis(Topology.uniform(3, 2).nodes, [(Request.of(1), 1)])
    assert fragment_heat(log, other) is None  # of another cluster


def test_parts_of_a_gpu_are_given_back_whatever_floats_say(script):
    parts = (0.1, 0.2, 0.3, 0.25)
    for job, part in enumerate(parts):
        script.at(job).submit(job, part).start(job, (6, part))
    for job in range(len(parts)):
        script.at(10 + job).row("done", job)
    script.at(20).submit(9, 1).start(9, (4, 2)).at(30).row("done", 9)
    bars = gantt(script.end())

    assert bars.height == len(parts) + 1
    assert bars.filter(pl.col("job") < 9)["lane"].to_list() == pytest.approx([1, 1.1, 1.3, 1.6])
    assert bars.filter(pl.col("job") == 9)["lane"].to_list() == [0]


def test_nodes_are_drawn_in_their_natural_order():
    bars = pl.DataFrame(
        {"node": ["n10", "n2", "n2"], "lane": [0.0, 0.0, 1.0], "lanes": [2.0, 1.0, 0.5]}
    )

    assert lane_rows(bars).rows() == [("n2", 2, 0), ("n10", 2, 2)]


def test_small_tenants_are_drawn_together():
    names = [f"t{i}" for i in range(10)]
    table = pl.DataFrame(
        {
            "tenant": names,
            "from_s": [0.0] * 10,
            "gpus": [float(10 - i) for i in range(10)],
            "share": [0.1] * 10,
        }
    )
    kept = main_tenants([table])
    wide = by_tenant(table, kept)

    assert kept == names[:8]
    assert wide.columns == ["from_s", *names[:8], "others"]
    assert wide["others"].to_list() == [pytest.approx(0.2)]
