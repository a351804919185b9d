"""The fast forms of `consolidate` and `count` do exactly what the general ones do."""

from hypothesis import event, given
from hypothesis import strategies as st

from placement_cases import Consolidate, Count, Maker, PooledCount, steps_of
from rota.core.topology import NodeSpec, Topology
from rota.placement.base import Placement
from rota.placement.consolidate import SearchingConsolidate

SEEDS = st.integers(0, 2**32 - 1)
LENGTHS = st.integers(5, 60)
KINDS = ["take", "take", "take", "take", "give", "hold", "node", "walk", "walk"]


class Choosing(SearchingConsolidate):
    """Counts nothing: chooses after every step of a walk, and to learn whether a request fits."""

    fits = Placement.fits
    enough_accepted = Placement.enough_accepted
    take = Placement.take
    walk = Placement.walk


class Pair:
    """Two placements that are driven alike and must answer alike."""

    def __init__(self, fast, general, sizes, kinds=({},)):
        self.fast, self.general = fast, general
        self.maker = Maker()
        asked = [self.maker.shape(gpus, **kind) for gpus in sizes for kind in kinds]
        self.shapes = [shape for shape in asked if general.never(shape) is None]
        self.running = []

    def agree(self):
        assert self.fast.free == self.general.free
        for shape in self.shapes:
            assert self.fast.fits(shape) == self.general.fits(shape), shape.describe()
            if shape.gpus <= self.fast.free and not self.fast.pooled:
                assert self.fast.enough_accepted(shape) == self.general.enough_accepted(shape)
            assert (self.fast.never(shape) is None) == (self.general.never(shape) is None)

    def take(self, shape):
        job = self.maker.job(shape)
        job.allocation = self.fast.take(job)
        assert job.allocation == self.general.take(job)
        self.running.append(job)
        return job

    def give(self, job):
        self.running.remove(job)
        self.fast.give(job, job.allocation)
        self.general.give(job, job.allocation)

    def put_back(self, job):
        """Forget a job and restore it, as after a restart."""
        self.give(job)
        self.fast.hold(job, job.allocation)
        self.general.hold(job, job.allocation)
        self.running.append(job)

    def node(self, node, evict):
        self.node_up = getattr(self, "node_up", {})
        up = not self.node_up.get(node.id, True)
        self.node_up[node.id] = up
        for _ in range(2):  # told twice is told once
            self.fast.set_node(node, up=up)
            self.general.set_node(node, up=up)
        if not up and evict:
            vertices = self.fast.topology.vertices
            for job in list(self.running):
                if any(vertices[v].node == node.id for v in job.allocation.vertices):
                    self.give(job)

    def walk(self, order):
        """Ask for everything that does not fit, with the running jobs in some order."""
        lower = sorted(self.running, key=lambda job: (job.index * (2 * order + 1)) % 37)
        possible = []
        for shape in self.shapes:
            if self.fast.fits(shape):
                continue
            answer = self.fast.walk(shape, iter(lower))
            assert answer == self.general.walk(shape, iter(lower))
            if answer:
                assert self.fast._tail == self.general._tail
                victims = self.fast.victims()
                assert victims == self.general.victims()
                possible.append((shape, victims))
        return possible

    def preempt(self, number, order):
        """Carry one of these out."""
        possible = self.walk(order)
        if possible:
            shape, victims = possible[number % len(possible)]
            for victim in victims:
                self.give(victim)
            assert self.fast.fits(shape)
            self.take(shape)

    def drive(self, steps):
        nodes = self.fast.topology.nodes
        self.agree()
        for step, first, second in steps:
            shape = self.shapes[first % len(self.shapes)]
            if step == "take" and self.fast.fits(shape):
                self.take(shape)
            elif step == "give" and self.running:
                self.give(self.running[first % len(self.running)])
            elif step == "hold" and self.running:
                self.put_back(self.running[first % len(self.running)])
            elif step == "node":
                self.node(nodes[first % len(nodes)], second % 2)
            elif step == "walk":
                self.preempt(first, second)
            self.agree()
        self.walk(0)


@given(st.integers(1, 6), st.integers(1, 4), st.booleans(), SEEDS, LENGTHS)
def test_consolidate(nodes, size, parts, seed, length):
    topology = Topology.uniform(nodes, size)
    sizes = list(range(1, nodes * size + 2)) + ([0, 0.3, 0.5, 0.7] if parts else [])
    fast, general = Consolidate(topology), Choosing(topology)
    Pair(fast, general, sizes).drive(steps_of(seed, length, KINDS))


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=4).filter(any), st.booleans(), SEEDS, LENGTHS
)
def test_count(sizes, parts, seed, length):
    topology = Topology([NodeSpec(f"n{i}", gpus) for i, gpus in enumerate(sizes)])
    asked = list(range(1, topology.gpus + 2)) + ([0, 0.3, 0.5, 0.7, 1.5] if parts else [])
    Pair(Count(topology), PooledCount(topology), asked).drive(steps_of(seed, length, KINDS))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.booleans(), SEEDS, LENGTHS)
def test_consolidate_on_unequal_nodes(sizes, parts, seed, length):
    """A walk that counts finds the same jobs as one that chooses after every step."""
    topology = Topology([NodeSpec(f"n{i}", gpus) for i, gpus in enumerate(sizes)])
    asked = list(range(1, sum(sizes) + 2)) + ([0, 0.3, 0.5] if parts else [])
    pair = Pair(SearchingConsolidate(topology), Choosing(topology), asked)
    pair.drive(steps_of(seed, length, KINDS))


@given(
    st.lists(st.tuples(st.sampled_from((1, 2, 4)), st.sets(st.sampled_from("ab"))), min_size=1,
             max_size=6),
    st.booleans(), st.booleans(), SEEDS, LENGTHS,
)  # fmt: skip
def test_consolidate_on_labelled_nodes(nodes, types, parts, seed, length):
    """Nodes of equal kinds and sizes are counted, whatever labels and types a request asks for."""
    topology = Topology([
        NodeSpec(f"n{i}", gpus, "xy"[i % 2] if types else "", labels=tuple(sorted(labels)))
        for i, (gpus, labels) in enumerate(nodes)
    ])  # fmt: skip
    kinds = [{}, *({"labels": tuple(labels)} for labels in ("a", "b", "ab"))]
    kinds += [{"gpu_types": ("x",)}] if types else []
    asked = [1, 2, 3, 4, 6, 8] + ([0.3, 0.5] if parts else [])
    pair = Pair(SearchingConsolidate(topology), Choosing(topology), asked, kinds)
    if pair.shapes:
        pair.drive(steps_of(seed, length, KINDS))


def could_fit(placement, shape, dirty, lower):
    return any(
        free + sum(gpus for index, gpus in held.items() if index in lower) >= shape.gpus
        for free, held in placement.changed(shape, dirty)
    )


@given(st.integers(1, 5), st.integers(1, 4), SEEDS, LENGTHS)
def test_a_job_that_may_not_fit_does_not(nodes, size, seed, length):
    """`changed` may only leave nodes out when a walk over all lower-ranked jobs fails."""
    placement = Consolidate(Topology.uniform(nodes, size))
    maker = Maker()
    running = []
    head = maker.job(1 + seed % size)
    head_key = 20.0
    keys = {}
    said_no = 0
    for step, first, second in steps_of(seed, length, KINDS):
        if step in ("take", "hold", "node"):
            shape = maker.shape(1 + first % size)
            if placement.fits(shape):
                job = maker.start(placement, shape)
                keys[job.index] = float(second)
                running.append(job)
        elif running:
            lower = [j for j in running if (keys[j.index], j.index) > (head_key, head.index)]
            failed = not placement.fits(head.shape) and not placement.walk(head.shape, lower)
            gone = running.pop(first % len(running))
            placement.give(gone, gone.allocation)
            dirty = set(gone.allocation.vertices)
            if failed and not could_fit(placement, head.shape, dirty, {j.index for j in lower}):
                said_no += 1
                lower = [j for j in lower if j is not gone]
                assert not placement.fits(head.shape)
                assert not placement.walk(head.shape, lower)
    event(f"said no: {bool(said_no)}")
