"""Dialect of Pollux' simulator (Qiao et al., OSDI 2021; petuum/adaptdl, branch osdi21-artifact).

Jobs train as their profiles say; rounds of 60 s, in which first all jobs advance and then the
policy decides. `notes` names every quirk; `loop` tells them in detail.
"""

from typing import Annotated, ClassVar, Literal

import msgspec

from rota.core.changes import Wake
from rota.core.errors import OptionError
from rota.core.policy import Params
from rota.core.ports import Scheduler
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.models.profiles import MeasuredTraining
from rota.policies.pollux import GeneticSearch
from rota.reproduce.pollux.loop import GoodputRounds, OptimusRounds, TiresiasRounds
from rota.study.dialect import Dialect, require_one_type

EMPTIEST = "emptiest"
MOST_NODE_GPUS = 9  # a digit in the profiles


class PolluxDialectParams(Params, frozen=True):
    """Seconds of a round, and the part of its speed that a job loses beside another that spans.

    `avoid=no` lets Pollux put two jobs that span nodes on one node.
    """

    interval_s: Annotated[float, msgspec.Meta(ge=1)] = 60.0
    interference: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    avoid: bool = True


class TiresiasRoundsParams(Params, frozen=True):
    """GPU-seconds at which a job drops to the second queue."""

    limit: float = 57600.0


class GoodputRoundsParams(Params, frozen=True):
    """How to search (see the policy `pollux`), and the power of the mean."""

    search: Literal["exact", "genetic"] = "exact"
    population: Annotated[int, msgspec.Meta(ge=2)] = 100
    generations: Annotated[int, msgspec.Meta(ge=1)] = 30
    power: Annotated[float, msgspec.Meta(lt=0)] = -1.0
    restart_s: Annotated[float, msgspec.Meta(ge=0)] = 30.0


class PolluxDialect(Dialect):
    """The simulator's policies under Rota's names."""

    name = "pollux"
    description = "the simulator of Pollux (OSDI 2021): measured jobs that tune their batches"
    source = (
        "Qiao et al., Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning, "
        "OSDI 2021; petuum/adaptdl, branch osdi21-artifact, simulator/; quirks: "
        "rota/reproduce/pollux/dialect.py and loop.py"
    )
    policies: ClassVar[dict[str, str]] = {
        "tiresias": "tiresias",
        "optimus": "optimus",
        "pollux": "pollux",
    }
    Parameters = PolluxDialectParams
    placement = EMPTIEST
    costs = "pollux30"

    def __init__(self, params: PolluxDialectParams | None = None) -> None:
        super().__init__(params)
        self.wake = Wake(on=frozenset(), every_s=self.params.interval_s)
        self.rates = (
            f"pollux:interval_s={self.params.interval_s:g},"
            f"interference={self.params.interference:g}"
        )

    @property
    def notes(self) -> dict[str, str]:
        """Quirks of the loop and the policies, and where this dialect departs."""
        return {
            "rounds": f"every {self.params.interval_s:g} s all jobs advance, then the policy "
            "decides; arrivals and freed GPUs wait for it; rounds count from second 0 of the file",
            "whole seconds": "an epoch lasts a whole number of seconds (rounded), so does a job",
            "interference": f"{self.params.interference:.0%} slower are jobs on several nodes that "
            "share one with another such job; "
            + (
                "pollux puts no two of them on one node (avoid=yes), so that it never happens to "
                "it: see what that is worth with avoid=no"
                if self.params.avoid
                else "pollux does not avoid it (avoid=no)"
            ),
            "restarts": "30 s without progress at every change of the ordered list of nodes, the "
            "first start included; they count as service",
            "batches": "tuned at each start, end of an epoch and round; only under pollux",
            "perfect noise": "a job knows the true noise of its gradients",
            "fair share": "speedups are relative to a fair share of GPUs, all on one node",
            "ncf": "is given one GPU and a batch of 32768 by pollux, one GPU by optimus",
            "tiresias": "two queues, 57600 GPU-s; whole rounds count; the emptiest node first",
            "optimus": "an oracle of step times and of the iterations left; T(1) is overestimated, "
            "since it accumulates at least once",
            "departure: search": "search=exact solves by sizes what the original searches by "
            "chance; search=genetic has no second objective (it never chooses)",
            "departure: fits": "a model that predicts a new measurement within 2 % is not fitted "
            "again",
            "departure: ties": "which tetrahedron interpolates a placement that was never measured "
            "depends on the version of Qhull: some jobs of optimus differ",
        }

    def build(
        self, policy_text: str, placement_text: str | None, topology: Topology, *, seed: int
    ) -> Scheduler:
        """The simulator's policy."""
        name, options = self.policy(policy_text)
        require_one_type(topology, self.name)
        if max(node.gpus for node in topology.nodes) > MOST_NODE_GPUS:
            raise OptionError(
                f"dialect {self.name!r}: its profiles know nodes of up to {MOST_NODE_GPUS} GPUs: "
                "give a cluster of smaller nodes, e.g. 16x4"
            )
        self.require_own_placement(placement_text)
        interval_s = self.params.interval_s
        if name == "tiresias":
            limit = self.parameters(name, TiresiasRoundsParams, options).limit
            return TiresiasRounds(topology, interval_s, limit)
        if name == "optimus":
            self.parameters(name, Params, options)
            return OptimusRounds(topology, interval_s)
        chosen = self.parameters(name, GoodputRoundsParams, options)
        genetic = GeneticSearch(chosen.population, chosen.generations, avoid=self.params.avoid)
        return GoodputRounds(
            topology,
            interval_s,
            restart_s=chosen.restart_s,
            power=chosen.power,
            genetic=genetic if chosen.search == "genetic" else None,
            avoid=self.params.avoid,
            seed=seed,
        )

    def adapt(self, workload: Workload) -> Workload:
        """Jobs need profiles."""
        for spec, behaviour in workload:
            if not isinstance(behaviour.training, MeasuredTraining):
                raise OptionError(
                    f"dialect 'pollux': job {spec.id} has no profile: read the workload with "
                    "--format pollux:profiles=DIR, a folder with one folder per application"
                )
        return workload
