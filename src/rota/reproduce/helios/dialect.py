"""Dialect of the Helios simulator (Hu et al., SC 2021; HeliosArtifact, framework/QSSF Service).

Steps of one second, nodes of equal size, and a placer that consolidates. `notes` names every quirk;
`loop.py` beside it tells each in detail. Lucid's simulator grew out of it.
"""

from typing import ClassVar

from rota.core.policy import Params
from rota.core.ports import Scheduler
from rota.core.topology import Topology
from rota.reproduce.helios.loop import HeadOfLine, RemainingScheduler
from rota.reproduce.loop import PlannedCosts
from rota.study.dialect import Dialect, require_one_type

CONSOLIDATE = "consolidate"
NODE_GPUS = 8  # by which overheads are told apart, whatever size nodes have


class HeliosDialect(Dialect):
    """The simulator's policies under Rota's names."""

    name = "helios"
    description = "the simulator of Helios (SC 2021): strict queues, consolidation, QSSF"
    source = (
        "Hu et al., Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU "
        "Datacenters, SC 2021; S-Lab-System-Group/HeliosArtifact, framework/QSSF Service/; quirks: "
        "rota/reproduce/helios/dialect.py and loop.py"
    )
    policies: ClassVar[dict[str, str]] = {
        "fifo": "fifo",
        "sjf": "sjf",
        "srtf": "srtf",
        "qssf": "qssf",
    }
    overheads_s: ClassVar[tuple[float, float, float]] = (7.0, 30.0, 60.0)
    """Of a preemption: with 1 GPU, with up to 8, with more."""
    placement = CONSOLIDATE
    costs = PlannedCosts.name

    @property
    def notes(self) -> dict[str, str]:
        """Quirks of policies/ and placer/, and where this dialect departs."""
        one_s, node_s, more_s = self.overheads_s
        return NOTES | {
            "overhead": f"a preempted job runs longer: {one_s:g} s with 1 GPU, {node_s:g} s with "
            f"up to {NODE_GPUS}, {more_s:g} s with more; charged when it starts again",
        }

    def overhead_s(self, gpus: float) -> float:
        """Seconds that a preemption adds."""
        one_s, node_s, more_s = self.overheads_s
        return one_s if gpus <= 1 else node_s if gpus <= NODE_GPUS else more_s

    def build(
        self,
        policy_text: str,
        placement_text: str | None,
        topology: Topology,
        *,
        seed: int,  # noqa: ARG002 - nothing is random here
    ) -> Scheduler:
        """The simulator's policy."""
        name, options = self.policy(policy_text)
        require_one_type(topology, self.name)
        self.require_own_placement(placement_text)
        return self.make(name, options, topology)

    def make(self, name: str, options: dict[str, str], topology: Topology) -> Scheduler:
        """The scheduler of a policy."""
        self.parameters(name, Params, options)
        if name == "srtf":
            return RemainingScheduler(name, topology, like=self.name, overhead=self.overhead_s)
        return HeadOfLine(name, topology, like=self.name)


NOTES = {
    "head-of-line blocking": "fifo, sjf and qssf stop at the first job that finds no place",
    "qssf": "true durations times GPUs, where theirs reads predictions from a file (give "
    "--estimate-error for wrong ones); as long as all waiting jobs are new, fewest GPUs first",
    "quota": "srtf deals out as many GPUs as the cluster has before it looks for places: victims "
    "leave also for a job that then finds no place on the nodes",
    "late ends": "under policies that preempt a job ends 1 s after its time",
    "consolidate": "up to one node: the node with fewest free GPUs that suffice; more: idle nodes, "
    "the remainder from the node with most free GPUs, often one more idle node",
    "departure: steps": "decisions at events, not every second: the same, and times need not be "
    "whole seconds",
    "departure: node size": "their nodes have 8 GPUs; here all nodes must be equal",
    "departure: virtual clusters": "the whole cluster is one; theirs do not share anything, so run "
    "each by itself",
    "departure: misfits": "a job larger than the cluster is rejected at once",
}
"""Every quirk and departure by name."""
