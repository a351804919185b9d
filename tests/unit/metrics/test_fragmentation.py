"""Where GPUs are free, worked out by hand: two nodes with four GPUs each."""

import pytest

from rota.core.reasons import Reason
from rota.metrics import fold_ledger, fold_summary, read_history
from rota.metrics.fragmentation import fragmented, free_on_used_nodes
from rota.metrics.spare import SpareGpus
from rota.metrics.vocabulary import MEASURES
from rota.study.config import RunConfig
from rota.study.run import simulate


@pytest.fixture
def two_nodes(script):
    """Return a script with allocations: number 10 * node + GPUs is that many on that node."""
    made = type(script)(nodes=2, gpus=4)
    for node in (0, 1):
        for gpus in (1, 2, 4):
            made.row("allocation", ref=10 * node + gpus, other=1 + node, value=gpus)
    return made


def place(script, job, number):
    return script.row("start", job, number, 0, script.now_s)


def test_free_gpus_on_a_used_node(two_nodes):
    """One GPU of the first node is in use for 10 s of 20, then nothing."""
    place(two_nodes.submit(0), 0, 1)
    log = two_nodes.at(10).row("done", 0).at(20).end()

    assert free_on_used_nodes(log, 0, 10) == 3 / 7
    assert free_on_used_nodes(log, 0, 20) == 30 / (70 + 80)
    assert free_on_used_nodes(log, 5, 15) == 15 / (35 + 40)
    assert free_on_used_nodes(log, 10, 20) == 0


def test_a_full_node_has_nothing_free(two_nodes):
    place(two_nodes.submit(0, 4), 0, 4)

    assert free_on_used_nodes(two_nodes.at(10).end(), 0, 10) == 0


def test_nothing_free_has_no_share(two_nodes):
    place(two_nodes.submit(0, 4), 0, 4)
    place(two_nodes.submit(1, 4), 1, 14)

    assert free_on_used_nodes(two_nodes.at(10).end(), 0, 10) is None


def test_a_node_that_is_down_or_closed_offers_nothing(two_nodes):
    place(two_nodes.submit(0, 2), 0, 12)  # on the second node
    two_nodes.row("node_down", -1, 1).at(10).row("node_up", -1, 1).row("node_closed", -1, 1)
    log = two_nodes.at(20).row("node_opened", -1, 1).at(30).end()

    assert free_on_used_nodes(log, 0, 20) == 1
    assert free_on_used_nodes(log, 20, 30) == 2 / 6


def test_what_is_taken_from_a_pool_is_nowhere(two_nodes):
    two_nodes.row("allocation", ref=99, other=0, value=2)
    log = place(two_nodes.submit(0, 2), 0, 99).at(10).end()

    assert free_on_used_nodes(log, 0, 10) is None


def test_the_shares_of_a_summary(two_nodes):
    """A job of 4 waits although 6 are free, 3 on each node."""
    two_nodes.submit(0).submit(1).submit(2, 4)
    place(place(two_nodes, 0, 1), 1, 11)
    two_nodes.blame(4, Reason.FRAGMENTATION, 2).at(10).row("done", 0).blame(4, Reason.NONE)
    place(two_nodes, 2, 4).at(15).row("done", 2).row("done", 1)
    summary = fold_summary(two_nodes.end())

    assert summary["gpu_utilisation"] == summary["gpu_allocation"] == (20 + 25) / 120
    assert summary["fragmentation"] == 60 / 120
    assert summary["free_on_used_nodes"] == 1


def test_overhead_is_allocated_and_not_useful(two_nodes):
    two_nodes.submit(0, 4).row("start", 0, 4, 0, 5.0).at(5).row("run", 0)
    summary = fold_summary(two_nodes.at(10).row("done", 0).end())

    assert summary["gpu_allocation"] == 40 / 80
    assert summary["gpu_utilisation"] == 20 / 80


@pytest.mark.parametrize("placement", ["consolidate", "random", "spread"])
def test_it_agrees_with_the_books_of_free_gpus(placement):
    """The same GPU-seconds are free, whether counted node by node or together."""
    trace = "generate:gavel-like:jobs=80,load=0.9"
    config = RunConfig(
        trace=trace, cluster="3x4", policy="las", placement=placement, mtbf=40.0, mttr=5.0
    )
    history = read_history(simulate(config).log)
    spare = SpareGpus(history)
    nodes = spare.timelines()
    end_s = history.end_s
    begins = history.time_s[nodes.row]
    ends = [
        begins[i + 1] if i + 1 < len(begins) and nodes.slot[i + 1] == nodes.slot[i] else end_s
        for i in range(len(begins))
    ]
    free = ((nodes.size - nodes.used) * nodes.open * (ends - begins)).sum()

    pieces = list(spare.between(0.0, end_s))
    assert free == pytest.approx(sum(piece.seconds * piece.gpus for piece in pieces))
    assert 0 < free_on_used_nodes(history, 0.0, end_s) < 1


# --- who waits although enough is free ------------------------------------------------------------


def test_a_job_that_needs_a_node_finds_parts_of_two(two_nodes):
    """Whatever reason is given, and however many jobs wait."""
    two_nodes.submit(0).submit(1).submit(2, 4).submit(3, 4)
    place(place(two_nodes, 0, 1), 1, 11)
    two_nodes.blame(4, Reason.ORDER, 2).at(10).row("done", 0)
    place(two_nodes, 2, 4).at(15).row("done", 2).row("done", 1).row("cancelled", 3)
    log = two_nodes.end()

    assert fold_ledger(log)["fragmented_gpu_s"] == 6 * 10  # then fewer are free than it needs


def test_a_job_that_could_start_is_not_kept_by_fragmentation(two_nodes):
    place(two_nodes.submit(0).submit(1, 4), 0, 1).blame(4, Reason.FRAGMENTATION, 1)
    log = two_nodes.at(10).row("done", 0).row("cancelled", 1).end()

    assert fold_ledger(log)["fragmented_gpu_s"] == 0


def test_a_job_of_several_nodes_needs_whole_ones_and_one_for_the_rest(two_nodes):
    two_nodes.submit(0, 2).submit(1, 5).submit(2, 6)
    place(two_nodes, 0, 2).at(10).row("cancelled", 1).row("cancelled", 2).row("done", 0)

    assert not fragmented(two_nodes.end()).any()  # 4 and 2 are free: enough for 5 and 6
    place(two_nodes.submit(3).submit(4).submit(5, 5), 3, 1)
    place(two_nodes, 4, 11).at(20).row("done", 3).row("done", 4).row("cancelled", 5)
    assert fold_ledger(two_nodes.end())["fragmented_gpu_s"] == 6 * 10


def test_a_pool_is_not_fragmented(two_nodes):
    two_nodes.row("allocation", ref=99, other=0, value=2)
    log = place(two_nodes.submit(0, 2).submit(1, 4), 0, 99).at(10).end()

    assert not fragmented(log).any()


def test_equal_schedules_have_equal_measures():
    """Easy has no estimates here: it does what fifo-skip does, and gives other reasons."""
    trace = "generate:gavel-like:jobs=150,load=1.2"
    found = [
        simulate(RunConfig(trace=trace, cluster="4x8", policy=policy))
        for policy in ("fifo-skip", "easy")
    ]
    one, other = ({m.key: run.summary[m.key] for m in MEASURES} for run in found)

    assert found[0].jobs.equals(found[1].jobs)
    assert one == pytest.approx(other)
    assert one["fragmentation"] > 0
