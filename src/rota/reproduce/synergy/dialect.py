"""Dialect of the Synergy simulator (Mohan et al., OSDI 2022; msr-fiddle/synergy).

Rounds of 300 s with leases that all end together: in every round all jobs are put in order and get
GPUs, CPUs and memory anew. `notes` names every quirk; `synergy_leases` and `synergy_servers` tell
them in detail.
"""

from typing import ClassVar, Literal

from rota.core.errors import OptionError
from rota.core.policy import Params
from rota.core.ports import Scheduler
from rota.core.topology import Topology
from rota.reproduce.synergy.loop import LeaseRounds
from rota.study.dialect import Dialect, require_one_type

IN_ORDER = "in-order"
SYNERGY = "synergy"

Mechanism = Literal["proportional", "greedy", "tune"]


class SynergyDialectParams(Params, frozen=True):
    """Length of a round in whole seconds, and who comes first of jobs submitted together."""

    round: int = 300
    ties: Literal["file", "reversed"] = "file"


class MechanismParams(Params, frozen=True):
    """How CPUs and memory are given: `proportional` (their fair), `greedy` or `tune`."""

    mechanism: Mechanism = "proportional"


class OrderedParams(MechanismParams, frozen=True):
    """The same with the order as a parameter, as the policy `synergy` has it."""

    order: Literal["fifo", "las", "srtf", "ftf", "drf", "tetris"] = "fifo"
    mechanism: Mechanism = "tune"


class SynergyDialect(Dialect):
    """The simulator's policies under Rota's names."""

    name = "synergy"
    description = "the simulator of Synergy (OSDI 2022): leases, CPUs and memory by profiles"
    source = (
        "Mohan et al., Looking Beyond GPUs for DNN Scheduling on Multi-Tenant Clusters, OSDI 2022; "
        "msr-fiddle/synergy, simulator/; quirks: rota/reproduce/synergy/dialect.py and loop.py"
    )
    policies: ClassVar[dict[str, str]] = {
        "fifo": "FIFO",
        "las": "LAS",
        "srtf": "SRTF",
        "ftf": "FTF",
        "drf": "DRF",
        "tetris": "TETRIS",
        SYNERGY: "any of them, by order=",
    }
    Parameters = SynergyDialectParams
    placement = IN_ORDER
    rates = "planned"

    def __init__(self, params: SynergyDialectParams | None = None) -> None:
        super().__init__(params)
        self.in_rounds(self.params.round)

    @property
    def notes(self) -> dict[str, str]:
        """Quirks of the loop, the policies and the allocator, and where this dialect departs."""
        round_s = self.params.round
        return {
            "rounds": f"decisions only at multiples of {round_s} s; arrivals wait for the next one",
            "leases": "all end together, and everything is allocated anew: jobs may move each time",
            "progress": "whole iterations of a round: the rest of the time is lost",
            "completion": f"jobs end at multiples of {round_s} s, never within a round",
            "backfilling": "whoever does not fit is passed over",
            "placement": "servers in order, GPU by GPU: jobs are not kept together, and spreading "
            "costs nothing",
            "speedup": "one number for the whole demand; anything less counts as the proportional "
            "share (the table of a profile is not read)",
            "clamping": "a demand beyond one server is cut to it, and the speedup then goes down a "
            "straight line by CPUs alone",
            "storage": "each GPU comes with its share of storage bandwidth: the demand of the "
            "profiles never reaches the jobs",
            "tune": "who is cut to its share is as fast as with the share, though it may keep more",
            "las": "chooses jobs by GPUs alone before it allocates; with tune, large jobs first",
            "srtf, ftf, tetris": "remaining time at the speedup of the last round",
            "ftf": "the least delayed jobs come first (ascending)",
            "ties": "jobs submitted at the same time come in the order of the file"
            if self.params.ties == "file"
            else "of jobs submitted at the same time the last of the file comes first",
            "free preemption": "no cost of stopping, starting or moving",
            "departure: ties": "the simulator's order of jobs submitted at the same time depends "
            "on its heap of events: choose with ties=file or ties=reversed",
            "departure: empty queue": "goes on when no job is left before the last arrives; the "
            "simulator stops there",
            "departure: priority": "jobs that wait for 1,000 hours get no priority",
            "departure: failures": "a job that `tune` finds no place for waits; there all ends",
            "departure: long iterations": "an iteration longer than a round takes one round; there "
            "such a job never ends",
        }

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
        if name == SYNERGY:
            ordered = self.parameters(name, OrderedParams, options)
            order, mechanism = ordered.order, ordered.mechanism
        else:
            order = name  # type: ignore[assignment]  # one of the orders
            mechanism = self.parameters(name, MechanismParams, options).mechanism
        _require_equal_nodes(topology)
        self.require_own_placement(placement_text)
        return LeaseRounds(
            name,
            topology,
            order=order,
            mechanism=mechanism,
            round_s=self.params.round,
            reversed_ties=self.params.ties == "reversed",
        )


def _require_equal_nodes(topology: Topology) -> None:
    require_one_type(topology, SYNERGY)
    kinds = {(node.gpus, node.cpus, node.mem_gib) for node in topology.nodes}
    if len(kinds) > 1 or not all(min(kind) > 0 for kind in kinds):
        raise OptionError(
            "dialect 'synergy' needs equal nodes with GPUs, CPUs and memory: describe them in a "
            "YAML file (nodes: [{count: 4, gpus: 8, cpus: 24, mem_gib: 500}]), or leave --like out"
        )
