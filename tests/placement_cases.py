"""Jobs, shapes and checks for the tests of placements."""

from rota.core.jobs import Behaviour, Job, JobSpec, Request, Shape
from rota.core.topology import DEVICE, NodeSpec, Topology
from rota.placement.best_fit import BestFit
from rota.placement.consolidate import Consolidate, SearchingConsolidate
from rota.placement.count import Count, PooledCount
from rota.placement.first_fit import FirstFit
from rota.placement.random_fit import Random
from rota.placement.skew import SKEWED, Skew
from rota.placement.spread import Spread
from rota.placement.topology import TopologyAware
from rota.placement.yarn import Yarn

ON_NODES = [BestFit, FirstFit, Random, SearchingConsolidate, Skew, Spread, TopologyAware, Yarn]
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
    """Return what an allocation holds by name: {"a": 2, "b": 1}, {"a/3": 0.5}, or the CPU's node."""
    names = {topology.vertices[vertex].name: amount for vertex, amount in allocation.slices}
    return names or {topology.vertices[vertex].name: 0 for vertex, _, _ in allocation.extra}


def put(placement, maker, **amounts):
    """Occupy GPUs by hand (`a=2`), whatever the placement would choose; return the jobs."""
    from rota.core.allocation import Allocation

    jobs = []
    for name, amount in amounts.items():
        vertex = next(node.id for node in placement.topology.nodes if node.name == name)
        job = maker.job(amount)
        job.allocation = Allocation([(vertex, amount)])
        placement.hold(job, job.allocation)
        jobs.append(job)
    return jobs


def check_books(topology, jobs, *, pools=False):
    """Assert that what the jobs hold is there: devices, nodes, CPUs, memory, kinds."""
    used, shared, cpus, mem_gib = {}, {}, {}, {}
    for job in jobs:
        total = 0
        for vertex, amount in job.allocation.slices:
            place = topology.vertices[vertex]
            total += amount
            assert amount > 0
            if pools:
                used[vertex] = used.get(vertex, 0) + amount
                continue
            node = topology.vertices[place.node]
            assert not job.shape.types or node.gpu_type in job.shape.types
            assert all(x in node.labels for x in job.shape.labels if not x.startswith("#"))
            if place.level == DEVICE:
                assert amount < 1
                shared[vertex] = shared.get(vertex, 0) + amount
            else:
                assert amount == int(amount)
                used[vertex] = used.get(vertex, 0) + amount
        assert abs(total - job.shape.gpus) < 1e-6
        for vertex, kind, amount in job.allocation.extra:
            counted = cpus if kind == "cpu" else mem_gib
            counted[vertex] = counted.get(vertex, 0) + amount
    for vertex, amount in shared.items():
        assert amount <= 1 + 1e-6
        node = topology.vertices[vertex].node
        used[node] = used.get(node, 0) + 1  # nobody has the whole of a shared device
    for vertex, amount in used.items():
        assert amount <= topology.vertices[vertex].gpus + 1e-6
    if pools:
        return
    if any(node.cpus for node in topology.nodes):
        assert all(amount <= topology.vertices[v].cpus + 1e-6 for v, amount in cpus.items())
    if any(node.mem_gib for node in topology.nodes):
        assert all(amount <= topology.vertices[v].mem_gib + 1e-6 for v, amount in mem_gib.items())
