"""Synergy: CPUs and memory by what jobs make of them (Mohan et al., OSDI 2022, section 4).

GPUs are usually given with a proportional share of a node's CPUs and memory. Some jobs would be
faster with more than that, others need less. A job's request says what it can make use of. Jobs are
served in the order of `order` (`fifo`, `las` or `srtf`), preemptively, as far as their GPUs go.
With `mechanism=proportional` each gets its share, or what it asks for if that is less. With
`mechanism=tune` what is left over on a job's nodes is then given to those that ask for more, in the
same order: to each as much of that as there is, counted in `steps` parts. Hence no job ever has
less than its share (or its request), and none waits for CPUs or memory while its GPUs are free
(unless jobs without GPUs hold them: these get what they ask for).

Speeds need a rate model that knows them: `--rates sensitivity`.

Departs from the paper: the demand is the job's request instead of the result of a profiling run.
There a job gets all that it asks for or just its share, which is `steps=1`. A job that does not get
all is not tried on other nodes: where it goes is the placement's business. Jobs that run keep their
nodes. `las` looks at the jobs again every `round` seconds, and at every event but the beginning of
a run. The optimal allocation by a linear program (`opt`) is not here.
"""

from collections.abc import Callable
from math import inf
from typing import Annotated, Literal

import msgspec

from rota.core.changes import Wake
from rota.core.events import JOB_PHASE, JOB_RUNNING, EventKind
from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.plan import Plan, Supply, SupplyingPlan
from rota.core.policy import DecidePolicy, Params
from rota.core.topology import Topology
from rota.core.view import View

EXCEPT_BEGINNINGS = frozenset(map(int, EventKind)) - {JOB_RUNNING, JOB_PHASE}
"""When `las` looks: not when a job begins, because what it displaced would displace it in turn, and
if stops lose work no job would ever end."""


class SynergyParams(Params, frozen=True):
    """The order of jobs, how CPUs and memory are given, and seconds between looks of `las`.

    `steps`: into how many parts the demand beyond the share is divided (1: all or nothing).
    """

    order: Literal["fifo", "las", "srtf"] = "srtf"
    mechanism: Literal["proportional", "tune"] = "tune"
    steps: Annotated[int, msgspec.Meta(ge=1)] = 4
    round: Annotated[float, msgspec.Meta(gt=0)] = 300.0


class Synergy(DecidePolicy[SynergyParams]):
    """Give CPUs and memory that others do not need to the jobs that are faster with them."""

    name = "synergy"
    paper = (
        "Mohan et al., Looking Beyond GPUs for DNN Scheduling on Multi-Tenant Clusters, OSDI 2022"
    )
    knowledge = Knowledge.REMAINING_WORK
    Parameters = SynergyParams
    plan_type = SupplyingPlan
    coupled = "shares: spare CPUs and memory are divided anew whenever anything happens anywhere"

    def __init__(self, params: SynergyParams | None = None) -> None:
        super().__init__(params)
        if self.params.order != "srtf":
            self.knowledge = Knowledge.NOTHING
        if self.params.order == "las":
            self.wake = Wake(on=EXCEPT_BEGINNINGS, every_s=self.params.round)

    def decide(self, view: View) -> Plan:
        """Everybody's share in order, then what is left over."""
        plan = view.plan(SupplyingPlan)
        share = Shares(view.topology)
        order = sorted(view.jobs, key=self._key(view.now_s))
        served = [job for job in plan.candidates(order) if plan.place_with(job, share.of(job))]
        if self.params.mechanism == "tune":
            for job in served:
                self._top_up(plan, job, share.of(job))
        return plan

    def _top_up(self, plan: SupplyingPlan, job: Job, share: Supply) -> None:
        """The largest part of what it asks for beyond its share that there is room for."""
        cpus, mem_gib = job.shape.cpus, job.shape.mem_gib
        if share == (cpus, mem_gib):
            return
        steps = self.params.steps
        for step in range(steps):
            less = step / steps
            supply = (cpus - less * (cpus - share[0]), mem_gib - less * (mem_gib - share[1]))
            if plan.supply(job, supply):
                return

    def _key(self, now_s: float) -> Callable[[Job], tuple[float, float, int]]:
        order = self.params.order

        def key(job: Job) -> tuple[float, float, int]:
            rank = 0.0
            if order == "srtf":
                rank = job.remaining_s(now_s)
            elif order == "las":
                rank = job.attained_gpu_s(now_s)
            return (rank, job.submit_s, job.index)

        return key


class Shares:
    """What each GPU comes with, on the poorest of the nodes that a job may run on."""

    def __init__(self, topology: Topology) -> None:
        self._nodes = [node for node in topology.nodes if node.gpus]
        self._per_gpu: dict[tuple[str, ...], Supply] = {}

    def of(self, job: Job) -> Supply:
        """Its proportional share, or what it asks for if that is less."""
        shape = job.shape
        if not shape.gpus:
            return (shape.cpus, shape.mem_gib)
        cpus, mem_gib = self._of_types(shape.types)
        return (min(shape.cpus, cpus * shape.gpus), min(shape.mem_gib, mem_gib * shape.gpus))

    def _of_types(self, types: tuple[str, ...]) -> Supply:
        known = self._per_gpu.get(types)
        if known is None:
            nodes = [node for node in self._nodes if not types or node.gpu_type in types]
            known = self._per_gpu[types] = (
                min((node.cpus / node.gpus for node in nodes if node.cpus), default=inf),
                min((node.mem_gib / node.gpus for node in nodes if node.mem_gib), default=inf),
            )
        return known
