"""Fragments over a log, against a plain recount node by node."""

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decisions import engine
from rota.core.events import EventKind
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.log import Record
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.metrics import read_history
from rota.metrics.basis import Basis, UsualJob, make_basis
from rota.metrics.fragments import arrivals, averages, fold_allocation, fold_fragments, node_spans
from rota.placement.best_fit import BestFit
from rota.placement.count import count
from rota.placement.fgd import Fgd
from rota.placement.fragments import JobClass, Target
from rota.placement.machines import PLENTY
from rota.policies.fifo_skip import FifoSkip
from rota.policies.srtf import Srtf


class Recount:
    """What nodes have in use, row by row, counted in the plainest way."""

    def __init__(self, topology, target):
        self.topology, self.target = topology, target
        self.types = sorted({node.gpu_type for node in topology.nodes})
        self.accepts = target.accepts(self.types)
        self.pieces, self.holds, self.down = {}, {}, set()

    def take(self, event, row):
        if event in ("allocation", "extra"):
            piece = (row["other"], row["text"], row["value"])
            self.pieces.setdefault(row["ref"], []).append(piece)
        elif event in ("start", "move"):
            self.holds[row["job"]] = row["ref"]
        elif event in ("stop", "done", "evicted", "cancelled", "failed"):
            self.holds.pop(row["job"], None)
        elif event == "node_down":
            self.down.add(row["ref"])
        elif event == "node_up":
            self.down.discard(row["ref"])
        elif event == "end":
            self.holds.clear()

    def node(self, node):
        """Return what is left of its CPUs and of each GPU."""
        left, cpus, whole = [1000] * node.gpus, round(node.cpus * 1000), 0
        here = [
            piece
            for number in self.holds.values()
            for piece in self.pieces.get(number, ())
            if self.topology.vertices[piece[0]].node == node.id
        ]
        for vertex, text, amount in here:
            if text == "cpu":
                cpus -= round(amount * 1000)
            elif text is None and vertex == node.id:
                whole += round(amount)
            elif text is None:
                left[vertex - node.id - 1] -= round(amount * 1000)
        for i in [i for i, milli in enumerate(left) if milli == 1000][:whole]:
            left[i] = 0
        return cpus, left

    def now(self):
        """Return fragments and free GPUs."""
        total = idle = 0.0
        declared = any(node.cpus for node in self.topology.nodes)
        for node in self.topology.nodes:
            if node.id not in self.down:
                cpus, left = self.node(node)
                kind = self.types.index(node.gpu_type)
                cpus = cpus if declared else PLENTY
                total += self.target.state(kind, cpus, left or [0], self.accepts)
                idle += sum(left)
        return total / 1000, idle / 1000


def recounted(log, topology, target):
    """Return (fragments, free GPUs) after every row."""
    count, found = Recount(topology, target), []
    for row in log.iter_rows(named=True):
        count.take(row["event"], row)
        found.append(count.now())
    return found


JOBS = st.lists(
    st.tuples(
        st.sampled_from([0, 0.25, 0.5, 1, 1, 2, 3]),
        st.sampled_from([0.0, 0.5, 2.0]),
        st.sampled_from([(), ("A",)]),
        st.integers(0, 20),
        st.integers(1, 15),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("policy", [FifoSkip, Srtf])
@pytest.mark.parametrize("placement", [Fgd, BestFit])
@given(jobs=JOBS, cpus=st.sampled_from([0.0, 4.0]), fails=st.booleans())
def test_it_equals_a_plain_recount(policy, placement, jobs, cpus, fails):
    nodes = [
        NodeSpec("a", 4, "A", cpus),
        NodeSpec("b", 2, "B", cpus),
        NodeSpec("c", 0, "", cpus),
        NodeSpec("d", 2, "A", cpus),
    ]
    rows = [
        (JobSpec(str(i), float(at), Request.of(gpus, cpus=c, gpu_types=types)), Behaviour(float(s)))
        for i, (gpus, c, types, at, s) in enumerate(sorted(jobs, key=lambda row: row[3]))
        if gpus or c
    ]
    outages = [(5.0, EventKind.NODE_DOWN, 0), (9.0, EventKind.NODE_UP, 0)] if fails else ()
    made = engine(policy(), rows, nodes, placement=placement, outages=outages)
    made.run()
    made.finish()
    log, topology = made.log.frame(), Topology(nodes)
    usual = Workload([spec for spec, _ in rows], [how for _, how in rows]).usual
    folded = fold_fragments(read_history(log), make_basis(topology.nodes, usual))
    if not rows:
        assert folded is None
        return
    target = Target.popular([(JobClass.of(request), many) for request, many in usual])
    expected = np.array(recounted(log, topology, target))
    # several rows belong to one instant: what counts is the state when time goes on
    last = np.append(np.diff(log["time_s"].to_numpy()) > 0, False)
    assert folded.useless[last] == pytest.approx(expected[last, 0])
    assert folded.idle[last] == pytest.approx(expected[last, 1])
    assert folded.states <= log.height + len(nodes)


def test_a_pool_is_nowhere_and_nobody_is_usual():
    rows = [(JobSpec("a", 0.0, Request.of(1)), Behaviour(5.0))]
    made = engine(FifoSkip(), rows, (2, 4), placement=count)
    made.run()
    made.finish()
    history, topology = read_history(made.log.frame()), Topology.uniform(2, 4)
    assert fold_fragments(history, make_basis(topology.nodes, [(Request.of(1), 1)])) is None
    assert make_basis(topology.nodes, []) is None
    assert fold_fragments(history, None) is None
    assert averages(history, None, 0.0, 1.0) == {"frag_amount": None, "frag_ratio": None}


def test_averages_weigh_by_time():
    jobs = [(JobSpec("a", 0.0, Request.of(0.75)), Behaviour(4.0))]
    jobs += [(JobSpec("b", 8.0, Request.of(1)), Behaviour(2.0))]
    made = engine(FifoSkip(), jobs, (1, 2), placement=Fgd)
    made.run()
    made.finish()
    history, topology = read_history(made.log.frame()), Topology.uniform(1, 2)
    # the usual job wants a whole GPU: for 4 of 10 seconds a quarter of one is of no use to it
    fragments = fold_fragments(history, make_basis(topology.nodes, [(Request.of(1), 1)]))
    found = averages(history, fragments, 0.0, 10.0)
    assert found["frag_amount"] == pytest.approx(0.25 * 4 / 20)
    assert found["frag_ratio"] == pytest.approx(0.25 * 4 / (1.25 * 4 + 2 * 4 + 1 * 2))


def test_a_table_by_percent_of_arrived_load():
    jobs = [
        (JobSpec(str(i), float(i), Request.of(gpus)), Behaviour(100.0))
        for i, gpus in enumerate([0.5, 1, 0.5])
    ]
    made = engine(FifoSkip(), jobs, (1, 2), placement=Fgd)
    made.run(until_s=3.0)
    made.finish()
    history = read_history(made.log.frame())
    basis = make_basis(Topology.uniform(1, 2).nodes, [(Request.of(1), 1)])
    fragments = fold_fragments(history, basis)
    table = arrivals(history, fragments)
    assert table["arrived_pct"].to_list() == [25.0, 75.0, 100.0]
    assert table["alloc_pct"].to_list() == [25.0, 75.0, 100.0]
    assert table["frag_amount_pct"].to_list() == [25.0, 25.0, 0.0]
    assert table["frag_ratio_pct"].to_list() == pytest.approx([100 / 3, 100.0, 0.0])
    same = pl.concat([table, table.with_columns(alloc_pct=pl.col("alloc_pct") + 0.5)])
    folded = fold_allocation(same.with_columns(arrived_pct=pl.col("arrived_pct") + 0.4))
    assert folded["arrived_pct"].to_list() == [25, 75, 100]
    assert folded["alloc_pct"].to_list() == [25.25, 75.25, 100.25]


def test_gpuless_jobs_leave_traces_in_the_log():
    jobs = [(JobSpec("a", 0.0, Request.of(0, cpus=2.0)), Behaviour(4.0))]
    made = engine(FifoSkip(), jobs, [NodeSpec("n", 1, cpus=4.0)], placement=Fgd)
    made.run()
    made.finish()
    log = made.log.frame()
    assert log.filter(pl.col("event") == "extra")["text"].to_list() == ["cpu"]
    assert log.filter(pl.col("event") == "extra")["value"].to_list() == [2.0]
    history = read_history(log)
    assert history.held.tolist() == [0.0] * len(history.held)
    assert Record.EXTRA in history.event


def test_the_basis_is_the_same_once_it_was_written():
    nodes = [NodeSpec(f"n{i}", 2, "AB"[i // 2 % 2], 4.0) for i in range(5)]
    usual = [(Request.of(0.3, cpus=0.1, gpu_types=("A", "B")), 2), (Request.of(2), 1)]
    made = make_basis(nodes, usual)
    again = msgspec.json.decode(msgspec.json.encode(made), type=Basis)
    assert again == made
    assert made.nodes == "0x2,1x2,0x1"
    assert [kind.gpu_type for kind in again.machines] == list("AABBA")
    target = Target.popular([(JobClass.of(request), many) for request, many in usual])
    assert again.target.classes == target.classes
    assert again.target.weights.tolist() == target.weights.tolist()


JOB_TIMES = (("a", 0.0), ("b", 6.0))


def test_a_node_that_comes_later_was_not_free_before():
    jobs = [(JobSpec(name, at, Request.of(1)), Behaviour(10.0)) for name, at in JOB_TIMES]
    made = engine(FifoSkip(), jobs, (1, 1), placement=Fgd)
    made.run(until_s=4.0)
    topology = Topology.uniform(1, 1)
    topology.extend([NodeSpec("late", 2)])
    made.log.topology(topology, 4.0)
    made.run()
    made.finish()
    history = read_history(made.log.frame())
    basis = make_basis(topology.nodes, [(Request.of(1), 1)])
    too_large = UsualJob(4, 1000, 0, (), 1.0)  # all that is free is fragments by it
    basis = msgspec.structs.replace(basis, jobs=(too_large,))
    folded, spans = fold_fragments(history, basis), node_spans(history, basis)
    before = history.time_s < 4.0
    assert set(folded.idle[before][1:]) <= {0.0, 1.0}  # the row in which the job comes, and then
    during = (history.time_s > 4.0) & (history.time_s < 10.0)
    assert set(folded.idle[during]) == set(folded.useless[during]) == {2.0}
    assert spans.from_s[spans.useless > 0].min() == 4.0


def test_jobs_that_fit_no_node_make_no_fragments():
    """An empty cluster has none, whoever may ask for more than a node."""
    nodes = [NodeSpec("n0", 8, "a"), NodeSpec("n1", 8, "a")]
    fits = make_basis(nodes, [(Request.of(1), 3), (Request.of(8), 1)])
    never = [(Request.of(16), 9), (Request.of(1, gpu_types=("b",)), 5)]
    assert make_basis(nodes, [(Request.of(1), 3), *never, (Request.of(8), 1)]) == fits
    assert make_basis(nodes, never) is None
    jobs = [(JobSpec(name, at, Request.of(1)), Behaviour(10.0)) for name, at in JOB_TIMES]
    made = engine(FifoSkip(), jobs, (2, 8), placement=Fgd)
    made.run()
    made.finish()
    history = read_history(made.log.frame())
    folded = fold_fragments(history, make_basis(nodes, [(Request.of(1), 3), *never]))
    assert folded.idle.max() == 16.0
    assert folded.useless.max() == 0.0
