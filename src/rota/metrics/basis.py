"""What fragments are measured by: what the nodes have, and what jobs usually ask for.

The event log tells neither the CPUs and GPU types of nodes nor those of requests, so the manifest
of a run keeps them, as `fragments`:

- `kinds`: every kind of node: `gpus`, `gpu_type`, `cpus`;
- `nodes`: the kinds in the order of the nodes, `NUMBERxCOUNT` separated by commas: `0x3,1x2` are
  three nodes of the first kind and two of the second;
- `jobs`: the target workload: `gpus` of a job, `gpu_milli` (thousandths that it wants of each of
  them), `cpu_milli`, `gpu_types` (none: any) and `share`, how popular it is. Jobs that fit no node
  even when it is empty (they run on several, or never) are left out: by them all that is free would
  be fragments, most of all on an empty cluster.
"""

from collections.abc import Sequence
from itertools import groupby

import msgspec

from rota.core.topology import NodeSpec, Vertex
from rota.core.workload import Usual
from rota.placement.fragments import MILLI, JobClass, Target


class NodeKind(msgspec.Struct, frozen=True):
    """Nodes that are alike."""

    gpus: int
    gpu_type: str = ""
    cpus: float = 0.0


class UsualJob(msgspec.Struct, frozen=True):
    """A class of the target workload."""

    gpus: int
    gpu_milli: int
    cpu_milli: int
    gpu_types: tuple[str, ...]
    share: float


class Basis(msgspec.Struct, frozen=True):
    """Nodes and target workload, as the manifest has them."""

    kinds: tuple[NodeKind, ...]
    nodes: str
    jobs: tuple[UsualJob, ...]

    @property
    def machines(self) -> list[NodeKind]:
        """What each node has, in their order."""
        runs = [part.split("x") for part in self.nodes.split(",") if part]
        return [self.kinds[int(kind)] for kind, count in runs for _ in range(int(count))]

    @property
    def target(self) -> Target:
        """The target workload."""
        classes = [
            JobClass(job.cpu_milli, job.gpu_milli, job.gpus, job.gpu_types) for job in self.jobs
        ]
        return Target(classes, [job.share for job in self.jobs])


def make_basis(nodes: Sequence[Vertex | NodeSpec], usual: Usual) -> Basis | None:
    """From the nodes of a cluster and what jobs ask for; None where there are none of either."""
    if not usual or not nodes:
        return None
    each = [NodeKind(node.gpus, node.gpu_type, node.cpus) for node in nodes]
    kinds = tuple(dict.fromkeys(each))
    asked = [(JobClass.of(request), count) for request, count in usual]
    asked = [(job, count) for job, count in asked if any(_holds(kind, job) for kind in kinds)]
    if not asked:
        return None
    target = Target.popular(asked)
    jobs = [
        UsualJob(kind.gpus, kind.part, kind.cpu, kind.types, share)
        for kind, share in zip(target.classes, target.weights.tolist(), strict=True)
    ]
    return Basis(kinds, _runs([kinds.index(kind) for kind in each]), tuple(jobs))


def _holds(node: NodeKind, job: JobClass) -> bool:
    """An empty node has room for it: else it would make fragments of all that is ever free."""
    return (
        job.gpus <= node.gpus
        and (not job.gpus or not job.types or node.gpu_type in job.types)
        and (not node.cpus or job.cpu <= node.cpus * MILLI)
    )


def _runs(numbers: Sequence[int]) -> str:
    return ",".join(f"{number}x{len(list(same))}" for number, same in groupby(numbers))
