"""Dialect of the PAI simulator (Weng et al., NSDI 2022; clusterdata, cluster-trace-gpu-v2020).

The cluster is one big node. Whatever fits is started in order, nobody blocks others and nothing is
preempted, so that its "FIFO" is what others call first fit or backfilling without reservation.
"""

from typing import Any, ClassVar

from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.policy import Params, PriorityPolicy
from rota.core.ports import Scheduler
from rota.core.topology import Topology
from rota.engine.priority import PriorityScheduler
from rota.reproduce.tiresias.dialect import FirstFitting, PoolOnly
from rota.study.dialect import Dialect, Everyone

COUNT = "count"


class First(FirstFitting):
    """Their FIFO: in order of submission, skipping what does not fit."""

    name = "fifo"


class Shortest(PriorityPolicy[Params]):
    """Their SJF: by true duration, skipping what does not fit; equals in order of submission."""

    name = "sjf"
    knowledge = Knowledge.REMAINING_WORK
    preemptive = False

    def key(self, job: Job, now_s: float) -> float:  # noqa: ARG002 - constant
        """Seconds that it needs in all."""
        return job.duration_s()


ORDERS: dict[str, type[PriorityPolicy[Any]]] = {"fifo": First, "sjf": Shortest}


class PaiDialect(Dialect):
    """The simulator's policies under Rota's names."""

    name = "pai"
    description = "the simulator of Alibaba PAI (NSDI 2022): one big node, no head-of-line blocking"
    source = (
        "Weng et al., MLaaS in the Wild: Workload Analysis and Scheduling in Large-Scale "
        "Heterogeneous GPU Clusters, NSDI 2022; alibaba/clusterdata, "
        "cluster-trace-gpu-v2020/simulator/; quirks: rota/reproduce/pai/dialect.py"
    )
    policies: ClassVar[dict[str, str]] = {"fifo": "FIFO", "sjf": "SJF"}
    placement = COUNT

    @property
    def notes(self) -> dict[str, str]:
        """Quirks of scheduler.py, and where this dialect departs."""
        return dict(NOTES)

    def build(
        self, policy_text: str, placement_text: str | None, topology: Topology, *, seed: int
    ) -> Scheduler:
        """The simulator's policy."""
        name = self.plain_policy(
            policy_text, placement_text, topology, instead=" (it knows one big node)"
        )
        return PriorityScheduler(ORDERS[name](), PoolOnly(topology, seed=seed), Everyone())


NOTES = {
    "one big node": "GPUs are counted; where they are does not matter",
    "no head-of-line blocking": "fifo skips what does not fit, without any reservation: it is the "
    "fifo-skip of Rota and the fjf of Tiresias",
    "no preemption": "their test for it can never be true",
    "makespan": "theirs is 1 s longer than the last end",
    "departure: misfits": "a job larger than the cluster is rejected; theirs is shrunk silently",
    "departure: estimates": "only fifo and sjf with true durations; their sju, sjg and sjgg need "
    "the estimates by user and group of the PAI trace",
    "departure: instances": "a job is one; theirs counts each instance of a job as a job",
    "departure: fractions and CPUs": "whole GPUs, and CPUs are not counted",
}
"""Every quirk and departure by name."""
