"""The dialect `fgd`: pods are placed once, in the order in which they come, and stay."""

import pytest

from rota.core.errors import OptionError
from rota.core.topology import NodeSpec, Topology
from rota.engine.snapshot import freeze, restore
from rota.reproduce.fgd.dialect import PLACEMENTS, FgdDialect, FgdParams
from rota.study.dialect import create

ROWS = [(0, 3, 10), (1, 4, 10), (2, 1, 10), (3, 4, 10), (4, 1, 10)]


def test_who_finds_no_room_is_never_tried_again(lab):
    outcome = lab.simulate(FgdDialect(), "fifo-skip", (2, 4), ROWS)
    assert [state for _, _, state in outcome] == ["done", "done", "done", "rejected", "rejected"]


def test_what_leaves_makes_room_where_a_trace_insists(lab):
    rows = [(0, 4, 10), (20, 4, 10)]
    assert [end for end, *_ in lab.simulate(FgdDialect(), "fifo", (1, 4), rows)] == [10, 30]


def test_nothing_ends_in_its_eyes(lab):
    jobs = lab.workload(ROWS)
    adapted = FgdDialect().adapt(jobs)
    assert min(behaviour.work for behaviour in adapted.behaviours) > 1e9
    assert [spec.id for spec in adapted.specs] == [spec.id for spec in jobs.specs]
    assert FgdDialect.endless


def test_a_failed_node_is_not_used_and_its_pods_are_lost(lab):
    outages = [(1.0, 4, 0), (1.0, 4, 1)]
    engine = lab.engine_for(FgdDialect(), "fifo", (2, 4), ROWS, outages=outages)
    engine.run(until_s=5.0)
    assert [job.running for job in engine.jobs.values()] == [False] * 5


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_every_placement_of_the_study(lab, placement):
    engine = lab.engine_for(FgdDialect(), "fifo", (2, 4), ROWS, placement=placement)
    engine.run(until_s=5.0)
    whole = [job.allocation for job in engine.jobs.values() if job.running]
    assert len(whole) >= 3
    assert all(amount == 1 for allocation in whole for _, amount in allocation.slices)
    again = lab.engine_for(FgdDialect(), "fifo", (2, 4), ROWS, placement=placement)
    again.run(until_s=1.0)
    resumed = lab.engine_for(FgdDialect(), "fifo", (2, 4), ROWS, placement=placement)
    restore(resumed, freeze(again))
    for made in (engine, resumed):
        made.run()
        made.finish()
    assert resumed.log.frame().equals(engine.log.frame())


def test_ties_follow_the_seed_the_workload_or_a_file(lab, tmp_path):
    topology = Topology.uniform(20, 4)
    names = [node.name for node in topology.nodes]

    def order(dialect, seed=0, workload=None):
        scheduler = dialect.build("fifo", None, topology, seed=seed)
        if workload is not None:
            dialect.meet(scheduler, workload, topology)
        machines = scheduler.placement.machines
        return [names[position] for position in machines.order]

    assert order(FgdDialect()) == order(FgdDialect())
    assert sorted(order(FgdDialect(), 1)) == sorted(names)
    assert order(FgdDialect()) != order(FgdDialect(), 1)
    drawn = lab.workload(ROWS)
    assert order(FgdDialect(), 1, drawn) == order(FgdDialect(), 1)
    drawn.rank_nodes = lambda nodes: sorted(nodes, reverse=True)
    assert order(FgdDialect(), 1, drawn) == sorted(names, reverse=True)
    file = tmp_path / "order.csv"
    file.write_text("node\n" + "\n".join(names))
    given = FgdDialect(FgdParams(node_order=str(file)))
    assert order(given, 1, drawn) == names


@pytest.mark.parametrize(
    ("policy", "placement", "message"),
    [
        ("srtf", None, "knows no policy 'srtf': it knows fifo-skip"),
        ("fifo", "consolidate", "knows no placement 'consolidate': it knows fgd, best-fit"),
        ("fifo", "fgd:colour=red", "colour"),
        ("fifo:strict=yes", None, "no parameters"),
    ],
)
def test_what_cannot_be_honoured_is_refused(policy, placement, message):
    with pytest.raises(OptionError, match=message):
        FgdDialect().build(policy, placement, Topology([NodeSpec("a", 4)]), seed=0)


def test_it_says_what_it_is():
    dialect = create("fgd")
    assert "ATC 2023" in dialect.source
    assert dialect.placement == "fgd"
    assert {"tried once", "nothing departs", "ties", "departure: failures"} <= dialect.notes.keys()
