"""Dialect of the simulator of FGD (Weng et al., ATC 2023): pods come, are placed once, and stay.

Trace times do not matter, only the order of arrival. A pod that finds no node when it comes is
unschedulable and never looked at again; nothing ever leaves. What is studied is the placement: how
much of the cluster is in use, and how fragmented the rest is, against the load that has arrived
(`allocation.csv`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from rota.core import events as ev
from rota.core.changes import ON_EVERY_EVENT, Changes, Wake
from rota.core.errors import OptionError
from rota.core.events import Event
from rota.core.jobs import DONE, Behaviour, Job
from rota.core.knowledge import Knowledge
from rota.core.policy import Params
from rota.core.ports import Scheduler
from rota.core.registry import split
from rota.core.topology import Topology
from rota.core.view import View
from rota.core.workload import Workload
from rota.engine.parts import make_params
from rota.placement.dot_product import DotProduct
from rota.placement.fgd import Fgd
from rota.placement.fragments import MILLI, Ints
from rota.placement.gpu_clustering import GpuClustering
from rota.placement.gpu_packing import GpuPacking
from rota.placement.kubernetes import KubernetesFit
from rota.placement.machines import NodeArrays
from rota.placement.random_fit import Draw
from rota.placement.scored import BEST, CPUS, GPUS, NO, Scored, ScoredRequest, whole
from rota.study.dialect import Dialect

FOREVER = Behaviour(1e12)
ENDED = (ev.JOB_DONE, ev.JOB_FAILED, ev.JOB_CANCELLED, ev.JOB_EVICTED)


class Anywhere(Scored):
    """Their `random`: any node with room and any GPU there, each equally likely.

    Unlike `random` it keeps a job on one node. The draw depends on the seed and on the number of
    the job only.
    """

    name = "anywhere"
    draws = True
    _job = -1  # whose draw it is

    def scores(self, machines: NodeArrays, rows: Ints, request: ScoredRequest) -> Ints:  # noqa: ARG002
        """All alike."""
        return np.zeros(len(rows), np.int64)

    def winner(self, scores: Ints, job: Job | None) -> int:
        """Any row with room."""
        self._job = -1 if job is None else job.index
        possible = np.flatnonzero(scores > NO)
        if not len(possible):
            return 0
        return int(possible[Draw(self.seed, self._job).below(len(possible))])

    def devices(self, machines: NodeArrays, row: int, request: ScoredRequest) -> list[int]:
        """For a part of a GPU any with room, else the first free ones."""
        if request.kind.part == MILLI:
            return super().devices(machines, row, request)
        fitting = np.flatnonzero(machines.gpus[row] >= request.kind.part)
        draw = Draw(self.seed, self._job)
        draw.below(2)  # another number than that of the node
        return [int(fitting[draw.below(len(fitting))])]


class LeastLeft(Scored):
    """Their best fit: the node on which the least is left of CPUs and GPUs, in whole percent.

    What would be left is measured against a machine with 128 CPUs and 8 GPUs.
    """

    name = "least-left"

    def scores(self, machines: NodeArrays, rows: Ints, request: ScoredRequest) -> Ints:
        """100 minus what is left in percent."""
        kind = request.kind
        cpu = (machines.cpu[rows] - kind.cpu) / CPUS
        gpu = (machines.gpus[rows].sum(axis=1) - kind.part * kind.gpus) / GPUS
        return whole(BEST * (1 - 0.5 * cpu - 0.5 * gpu))


PLACEMENTS: dict[str, type[Scored]] = {
    "fgd": Fgd,
    "best-fit": LeastLeft,
    "dot-product": DotProduct,
    "gpu-packing": GpuPacking,
    "gpu-clustering": GpuClustering,
    "random": Anywhere,
    "kubernetes": KubernetesFit,
}
"""What the names mean here."""


class Once(Scheduler):
    """Every job is tried when it comes, and never again."""

    def __init__(self, name: str, placement: Scored) -> None:
        self.name = name
        self.placement = placement
        self.trusted = True
        self.knowledge = Knowledge.NOTHING
        self.wake: Wake = ON_EVERY_EVENT
        self._placed: dict[int, Job] = {}

    def step(self, view: View, events: Sequence[Event]) -> Changes | None:
        """Place who came, in the order of arrival."""
        changes = Changes(view.version)
        for _, kind, _, subject, _ in events:
            if kind == ev.JOB_SUBMIT:
                if subject.phase < DONE:  # else it was cancelled before anybody looked at it
                    self._try(subject, changes)
            elif kind in ENDED:
                if self._placed.pop(subject.index, None) is not None:
                    self.placement.give(subject, subject.allocation)
            elif kind in (ev.NODE_DOWN, ev.NODE_UP):
                self.placement.set_node(subject, up=kind == ev.NODE_UP)
        return changes

    def _try(self, job: Job, changes: Changes) -> None:
        if not self.placement.fits(job.shape):
            changes.reject(job, f"unschedulable: no node has room for {job.shape.describe()}")
            return
        self._placed[job.index] = job
        changes.start(job, self.placement.take(job))

    def expect(self, workload: Workload) -> None:
        """What pods ask for is the target workload of FGD."""
        if self.placement.expects:
            self.placement.expect(workload.usual)

    def snapshot(self) -> Mapping[str, Any]:
        """Who is where is told by the jobs."""
        return {"placed": list(self._placed)}

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Put the jobs back in their places."""
        for index in state["placed"]:
            job = self._placed[index] = view.everyone[index]
            self.placement.hold(job, job.allocation)
        self.placement.close_unusable()


class FgdParams(Params, frozen=True):
    """`node_order`: a CSV file whose column `node` names the nodes, ties going to the first."""

    node_order: str = ""


class FgdDialect(Dialect):
    """The placements that FGD was compared with, under Rota's names."""

    name = "fgd"
    description = "the simulator of FGD (ATC 2023): pods are placed once as they come, and stay"
    source = (
        "Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation "
        "Gradient Descent, USENIX ATC 2023; hkust-adsl/kubernetes-scheduler-simulator; quirks: "
        "rota/reproduce/fgd/dialect.py"
    )
    policies: ClassVar[dict[str, str]] = {
        "fifo-skip": "order of arrival",
        "fifo": "order of arrival",
    }
    Parameters = FgdParams
    placement = "fgd"
    endless = True

    @property
    def notes(self) -> dict[str, str]:
        """Quirks, and where this dialect departs."""
        return dict(NOTES)

    def build(
        self, policy_text: str, placement_text: str | None, topology: Topology, *, seed: int
    ) -> Scheduler:
        """A scheduler that tries once."""
        name, options = self.policy(policy_text)
        self.parameters(name, Params, options)
        placement = self._placement(placement_text or self.placement, topology, seed)
        placement.names_gpus = True
        if not self._ordered(placement):
            names = [node.name for node in topology.nodes]
            order = np.random.default_rng(seed).permutation(len(names))
            placement.rank([names[i] for i in order])
        return Once(name, placement)

    def _placement(self, text: str, topology: Topology, seed: int) -> Scored:
        name, options = split(text)
        if name not in PLACEMENTS:
            raise OptionError(
                f"dialect {self.name!r} knows no placement {name!r}: it knows "
                f"{', '.join(PLACEMENTS)}"
            )
        kind = PLACEMENTS[name]
        if self.params.node_order:
            options.setdefault("node_order", self.params.node_order)
        params: Any = make_params(f"placement {name!r}", kind.Parameters, options)
        return kind(topology, params, seed=seed)

    @staticmethod
    def _ordered(placement: Scored) -> bool:
        params: Any = placement.params
        return bool(params.node_order)

    def adapt(self, workload: Workload) -> Workload:
        """Nothing ever ends."""
        return workload.like(workload.specs, [FOREVER] * len(workload), quality=workload.quality)

    def meet(self, scheduler: Scheduler, workload: Workload, topology: Topology) -> None:
        """Nodes are ranked by the draw that shuffled the pods, if it goes on to them."""
        if not isinstance(scheduler, Once) or not workload.rank_nodes:
            return
        if not self._ordered(scheduler.placement):
            scheduler.placement.rank(workload.rank_nodes([node.name for node in topology.nodes]))


NOTES = {
    "tried once": "a pod is looked at when it comes; if no node has room then, it is unschedulable "
    "for good (rejected)",
    "nothing departs": "times of the trace do not matter, only the order of arrival; the run ends "
    "with the last one",
    "one node": "all GPUs of a pod are on one node; memory decides where there is room, never "
    "which node is better",
    "ties": "the best node of a seeded permutation wins: that of the draw which shuffled the pods "
    "(openb:mode=inflate), else one of the run's own seed, or the file that `node_order` names",
    "scores": "cut to whole numbers from 0 to 100, so that ties are the rule",
    "target workload": "the most popular requests that make up 95 % of the pods, before they were "
    "shuffled and inflated",
    "best-fit": "what is left of CPUs and GPUs against a machine of 128 CPUs and 8 GPUs; the "
    "best-fit of Rota also looks at memory and splits jobs",
    "random": "any node with room, then any GPU with room; theirs draws from a list in the order "
    "in which threads finish, so that its runs cannot be made again",
    "departure: failures": "theirs has none; here a pod whose node fails is not tried again",
}
"""Every quirk and departure by name."""
