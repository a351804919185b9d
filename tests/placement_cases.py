"""Jobs, shapes and checks for the tests of placements."""

import random
from collections import Counter

from rota.core.allocation import Allocation
from rota.core.jobs import Behaviour, Job, JobSpec, Request, Shape
from rota.core.topology import DEVICE, NodeSpec, Topology
from rota.placement.best_fit import BestFit
from rota.placement.consolidate import Consolidate, SearchingConsolidate
from rota.placement.count import Count, PooledCount
from rota.placement.fgd import Fgd
from rota.placement.first_fit import FirstFit
from rota.placement.gpu_clustering import GpuClustering
from rota.placement.kubernetes import KubernetesFit
from rota.placement.random_fit import Random
from rota.placement.skew import SKEWED, Skew
from rota.placement.spread import Spread
from rota.placement.topology import TopologyAware
from rota.placement.yarn import Yarn
from rota.reproduce.fgd.dialect import Anywhere

SCORED = [Anywhere, Fgd, GpuClustering, KubernetesFit]  # the others differ in their formula only
ON_NODES = [
    BestFit, FirstFit, Random, SearchingConsolidate, Skew, Spread, TopologyAware, Yarn, *SCORED,
]  # fmt: skip
SKEWED_LABEL = SKEWED
__all__ = ["Consolidate", "Count", "PooledCount"]


class Maker:
    """Numbers shapes and jobs, as the engine does: equal requests share a shape."""

    def __init__(self):
        self.shapes = {}
        self.jobs = 0

    def shape(self, gpus=1, **asked):
        """Return the shape of a request."""
        request = gpus if isinstance(gpus, Request) else Request.of(gpus, **asked)
        if request not in self.shapes:
            self.shapes[request] = Shape(len(self.shapes), request)
        return self.shapes[request]

    def job(self, gpus=1, *, model="", **asked):
        """Return a new job that waits."""
        shape = gpus if isinstance(gpus, Shape) else self.shape(gpus, **asked)
        spec = JobSpec(f"j{self.jobs}", 0.0, shape.request, model=model)
        self.jobs += 1
        return Job(spec, Behaviour(100.0), self.jobs - 1, shape)

    def start(self, placement, gpus=1, **asked):
        """Take what a new job asks for and return the job with its allocation."""
        job = self.job(gpus, **asked)
        assert placement.fits(job.shape), f"{job} does not fit"
        job.allocation = placement.take(job)
        return job


def cluster(*sizes, levels=(), **common):
    """Return a cluster of nodes a, b, c, ... with these GPUs; a tuple is (GPUs, other fields)."""
    specs = []
    for name, size in zip("abcdefghijklmnopqrstuvwxyz", sizes, strict=False):
        gpus, fields = size if isinstance(size, tuple) else (size, {})
        specs.append(NodeSpec(name, gpus, **{**common, **fields}))
    return Topology(specs, levels)


def where(topology, allocation):
    """Return what an allocation holds by name: {"a": 2}, {"a/3": 0.5}; without GPUs {"a": 0}."""
    names = {topology.vertices[vertex].name: amount for vertex, amount in allocation.slices}
    return names or {topology.vertices[vertex].name: 0 for vertex, _, _ in allocation.extra}


def put(placement, maker, **amounts):
    """Occupy GPUs by hand (`a=2`), whatever the placement would choose; return the jobs."""
    jobs = []
    for name, amount in amounts.items():
        vertex = next(node.id for node in placement.topology.nodes if node.name == name)
        job = maker.job(amount)
        job.allocation = Allocation([(vertex, amount)])
        placement.hold(job, job.allocation)
        jobs.append(job)
    return jobs


def steps_of(seed, length, kinds):
    """Return steps of these kinds, each with two numbers to choose by.

    A seeded stream, so that a failing example of hypothesis shrinks to its shortest beginning.
    """
    draw = random.Random(seed)  # noqa: S311 - a test
    return [(draw.choice(kinds), draw.randrange(99), draw.randrange(99)) for _ in range(length)]


def check_books(topology, jobs, *, pools=False):
    """Assert that what the jobs hold is there: devices, nodes, CPUs, memory, kinds."""
    used, shared, cpus, mem_gib = Counter(), Counter(), Counter(), Counter()
    for job in jobs:
        assert abs(job.allocation.gpus - job.shape.gpus) < 1e-6
        for vertex, amount in job.allocation.slices:
            assert amount > 0
            place = topology.vertices[vertex]
            (shared if place.level == DEVICE else used)[vertex] += amount
            if not pools:
                assert (amount < 1) == (place.level == DEVICE)
                check_kind(topology.vertices[place.node], job.shape)
        for vertex, kind, amount in job.allocation.extra:
            (cpus if kind == "cpu" else mem_gib)[vertex] += amount
    for vertex, amount in shared.items():
        assert amount <= 1 + 1e-6
        used[topology.vertices[vertex].node] += 1  # nobody has the whole of a shared device
    assert all(amount <= topology.vertices[v].gpus + 1e-6 for v, amount in used.items())
    if pools:
        return
    if any(node.cpus for node in topology.nodes):
        assert all(amount <= topology.vertices[v].cpus + 1e-6 for v, amount in cpus.items())
    if any(node.mem_gib for node in topology.nodes):
        assert all(amount <= topology.vertices[v].mem_gib + 1e-6 for v, amount in mem_gib.items())


def check_kind(node, shape):
    """Assert that a node is of a kind that the request accepts."""
    assert not shape.types or node.gpu_type in shape.types
    assert all(label in node.labels for label in shape.labels if not label.startswith("#"))
