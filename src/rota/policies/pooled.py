"""GPUs as a pool on the network (LegoOS, rCUDA, Bitfusion), against GPUs in boxes.

In boxes a job needs its GPUs, CPUs and memory on the same node, so that GPUs stay idle where CPUs
are gone. In a pool, the GPUs of a job may be anywhere, and its CPUs and memory on any other node.

    for jobs in order of arrival (others may pass):
        in a box: all on one node, as `consolidate` does it
        else, with `remote`: free GPUs of one type, of the fullest nodes first;
                             CPUs and memory on the node with the least room that suffices

What a remote GPU costs is up to the rates: `--rates remote` (bytes, calls and the links that remote
jobs share). `remote=no` is the boxed cluster to compare with.

Departs from the papers: only the packing and the network's cost are modelled, not the systems.
"""

from rota.core.allocation import Allocation
from rota.core.jobs import Job
from rota.core.policy import Params
from rota.core.sharing import OVERCOMMITS
from rota.core.sums import ordered_sum
from rota.policies._gpus import (
    GpuSharingPolicy,
    SharedGpu,
    SharedGpus,
    gpus_needed,
    on_gpus,
    part_for,
)


class PooledParams(Params, frozen=True):
    """`remote`: GPUs and CPUs of a job may be on different nodes."""

    remote: bool = True


class Pooled(GpuSharingPolicy[PooledParams]):
    """Give jobs GPUs from anywhere, with their CPUs elsewhere if need be."""

    name = "pooled"
    paper = "Shan et al., LegoOS: A Distributed OS for Hardware Resource Disaggregation, OSDI 2018"
    Parameters = PooledParams

    def welcome(self, job: Job, gpu: SharedGpu) -> bool:
        """Nobody shares more of a GPU than there is."""
        return gpu.mode not in OVERCOMMITS or gpu.compute + min(1.0, job.gpus) <= 1

    def rank(self, gpu: SharedGpu) -> float:
        """The fullest first."""
        return -gpu.compute

    def find(self, job: Job, gpus: SharedGpus) -> Allocation | None:
        """In a box if there is one, else out of the pool."""
        boxed = super().find(job, gpus)
        if boxed is not None or not self.params.remote or job.shape.apart or not gpus_needed(job):
            return boxed
        part = part_for(job)
        free: dict[str, list[SharedGpu]] = {}
        for node in gpus.nodes:
            if gpus.accepts(node, job):
                fine = [gpu for gpu in gpus.on(node) if gpu.fits(part) and self.welcome(job, gpu)]
                free.setdefault(node.gpu_type, []).extend(fine)
        for some in free.values():
            if len(some) >= gpus_needed(job):
                some.sort(key=lambda gpu: (-ordered_sum(map(self.rank, gpus.on(gpu.node))), gpu.id))
                return _elsewhere(job, some[: gpus_needed(job)], gpus)
        return None

    def could_have(self, job: Job, idle: SharedGpus) -> bool:
        """By its own rules."""
        return self.find(job, idle) is not None


def _elsewhere(job: Job, chosen: list[SharedGpu], gpus: SharedGpus) -> Allocation | None:
    """These GPUs, and all CPUs and memory on one node that has room for them."""
    plain = on_gpus(job, chosen)
    ids = {gpu.id for gpu in chosen}
    own = [part for part in plain.extra if part[0] in ids]
    shape = job.shape
    wanted = [("cpu", shape.cpus), ("memory", shape.mem_gib), *shape.resources.items()]
    wanted = [(kind, amount) for kind, amount in wanted if amount]
    if not wanted:
        return plain
    here = {gpu.node.id for gpu in chosen}
    for node in sorted(gpus.nodes, key=lambda node: (node.id not in here, gpus.left(node, "cpu"))):
        extra = [(node.id, kind, amount) for kind, amount in wanted]
        allocation = Allocation(plain.slices, [*own, *extra])
        if gpus.holds(allocation):
            return allocation
    return None
