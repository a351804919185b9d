"""Dialect of Gavel's simulator (Narayanan et al., OSDI 2020; stanford-futuredata/gavel).

Allocations are fractions of time on GPU types; rounds of 360 s turn them into leases. `notes` names
every quirk; `gavel_rounds` tells them in detail. The optimisation problems are those of the
policies themselves (`rota.policies.gavel`), solved to the end.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rota.core.errors import OptionError
from rota.core.jobs import Behaviour, JobSpec
from rota.core.policy import Params
from rota.core.ports import Scheduler
from rota.core.sums import ordered_sum
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.models.throughputs import load_throughputs
from rota.policies.allox import allox
from rota.policies.gandiva_random import random_packing
from rota.policies.gavel.basics import alike, isolated, throughputs
from rota.policies.gavel.durations import DurationHistory, finish_time_fairness, makespan
from rota.policies.gavel.fairness import max_min, water_filling
from rota.policies.gavel_fifo import fifo
from rota.policies.gavel_max_sum import max_sum
from rota.policies.rounds.problem import Array, PackedShares, RoundProblem
from rota.reproduce.gavel.loop import (
    GavelRounds,
    GavelRules,
    Question,
    RecordedAllocations,
    Table,
)
from rota.study.dialect import Dialect
from rota.traces.formats.gavel import read_throughputs

IN_ORDER = "in-order"
ALLOX = "allox"
ISOLATED = "gavel-isolated"
FIFO = "gavel-fifo"
GANDIVA = "gandiva-random"


class GavelDialectParams(Params, frozen=True):
    """Seconds of a round and between renewals, the order of types, and the table of steps/s.

    With `throughputs` (the file that the trace was read with) steps are exactly those of the
    simulator; without it they take a millisecond, unless the trace says how long. With `recorded`
    the allocations are those of a file, whatever the policy would say.
    """

    round: float = 360.0
    reset: float = 1920.0
    types: tuple[str, ...] = ("v100", "p100", "k80")
    throughputs: str = ""
    recorded: str = ""


class AwareParams(Params, frozen=True):
    """Whether the policy knows how fast each job is on each type (their `_perf`)."""

    aware: bool = True


class GavelAlloxParams(Params, frozen=True):
    """The part of the waiting jobs, oldest first, that is matched."""

    alpha: float = 1.0


class GandivaParams(Params, frozen=True):
    """Of the draws of partners."""

    seed: int = 0


class GavelDialect(Dialect):
    """The simulator's policies under Rota's names."""

    name = "gavel"
    description = "the simulator of Gavel (OSDI 2020): shares of time on GPU types, in rounds"
    source = (
        "Narayanan et al., Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning "
        "Workloads, OSDI 2020; stanford-futuredata/gavel, scheduler/scheduler.py, policies/; "
        "quirks: rota/reproduce/gavel/dialect.py and loop.py"
    )
    policies: ClassVar[dict[str, str]] = {
        FIFO: "fifo_perf",
        ISOLATED: "isolated",
        "gavel-max-min": "max_min_fairness_perf",
        "gavel-water-filling": "max_min_fairness_water_filling_perf",
        "gavel-ftf": "finish_time_fairness_perf",
        "gavel-makespan": "min_total_duration_perf",
        "gavel-max-sum": "max_sum_throughput_perf",
        ALLOX: "allox",
        GANDIVA: "gandiva",
    }
    Parameters = GavelDialectParams
    like_format = ("throughputs",)
    placement = IN_ORDER
    rates = "leases"

    def __init__(self, params: GavelDialectParams | None = None) -> None:
        super().__init__(params)
        for name in ("round", "reset"):
            if getattr(self.params, name) <= 0:
                raise OptionError(
                    f"dialect 'gavel': {name}={getattr(self.params, name):g}: give seconds above 0"
                )

    @property
    def notes(self) -> dict[str, str]:
        """Quirks of the loop and the policies, and where this dialect departs."""
        round_s, reset_s = self.params.round, self.params.reset
        return {
            "rounds": f"a round lasts until its last lease ends, at most {round_s:g} s; GPUs of "
            "leases that end before stay idle",
            "renewals": f"the allocation is computed anew when a job came or ended, but not within "
            f"{reset_s:g} s of the last time: new jobs wait for it",
            "new jobs": "may be chosen before the allocation knows them: their GPUs stay idle",
            "progress": "whole steps of a round: the rest of the time is lost",
            "priorities": "share over received part of the type's time since the renewal, half a "
            "round to begin with; then what is owed, then the share, then the number of the job",
            "type order": "types choose in the order "
            + "/".join(self.params.types)
            + "; policies that do not know speeds draw it anew each round",
            "idle gaps": "time received counts from the end of the last round, idle or not",
            "spare GPUs": "go to jobs without a share, but not with gavel-fifo",
            "pairs": "gandiva-random packs jobs in pairs, as fast as the table says; the lease of "
            "a pair ends when both have made their steps",
            "free preemption": "no cost of stopping, starting or moving, and no locality penalty",
            "aware=false": "max-min and water-filling count time on any type as equal; the others "
            "take the speed on the first type of `types` for that on all",
            "departure: optima": "problems are solved to the end; the simulator stops its search "
            "for the makespan 5 % early",
            "departure: fifo": "their fifo that knows no speeds uses a stale variable: here it is "
            "not offered",
            "departure: short jobs": "jobs with fewer steps left than GPUs end as others do; there "
            "they fail and are dropped",
            "departure: moves": "a last lease that is shorter than a round counts as a move",
        }

    def build(
        self, policy_text: str, placement_text: str | None, topology: Topology, *, seed: int
    ) -> Scheduler:
        """The simulator's policy."""
        name, options = self.policy(policy_text)
        self.require_own_placement(placement_text)
        rules = self._rules(name, options, topology)
        if self.params.recorded:
            kinds = sorted({node.gpu_type for node in topology.nodes})
            known = RecordedAllocations(Path(self.params.recorded), kinds)
            rules = replace(rules, allocate=known.allocate, memory=known.memory, packs=False)
        return GavelRounds(
            name,
            topology,
            rules,
            round_s=self.params.round,
            reset_s=self.params.reset,
            order=self.params.types,
            seed=seed,
        )

    def _rules(self, name: str, options: dict[str, str], topology: Topology) -> GavelRules:
        if name == ALLOX:
            return _allox(self.parameters(name, GavelAlloxParams, options).alpha)
        if name == GANDIVA:
            return _gandiva(self.parameters(name, GandivaParams, options).seed)
        if name == ISOLATED:
            self.parameters(name, Params, options)
            return GavelRules(
                lambda question: isolated(question.problem), shuffled=True, spare=True
            )
        if name == FIFO:
            self.parameters(name, Params, options)
            return GavelRules(lambda question: fifo(question.problem), shuffled=False, spare=False)
        aware = self.parameters(name, AwareParams, options).aware
        kinds = sorted({node.gpu_type for node in topology.nodes})
        known = [kind for kind in self.params.types if kind in kinds]
        reference = None if aware else kinds.index((known or kinds)[0])
        return _solved(name, reference, aware=aware)

    def meet(self, scheduler: Scheduler, workload: Workload, topology: Topology) -> None:  # noqa: ARG002
        """How many jobs will come, and how many steps per second they make."""
        if not isinstance(scheduler, GavelRounds):
            return
        if not self.params.throughputs:
            scheduler.prepare(len(workload))
            return
        table = read_throughputs(Path(self.params.throughputs))
        for spec, behaviour in workload:
            _require_known(spec, behaviour, table)
        pairs = scheduler.name == GANDIVA
        beside = load_throughputs(self.params.throughputs).pairs if pairs else None
        scheduler.prepare(len(workload), table, beside)


def _require_known(spec: JobSpec, behaviour: Behaviour, table: Table) -> None:
    gpus = int(ordered_sum(group.count * group.gpus for group in spec.request.groups))
    if (spec.model, gpus) not in table or not behaviour.speeds:
        raise OptionError(
            f"dialect 'gavel': the table of throughputs does not know job {spec.id} "
            f"({spec.model!r} on {gpus} GPUs): give the one that the trace was read with"
        )


def _allox(alpha: float) -> GavelRules:
    """Jobs that have a GPU keep it until they end."""
    memory: dict[str, Any] = {}

    def allocate(question: Question) -> Array:
        names = [str(job) for job in question.jobs]
        kept = np.array([memory.get(name, -1) for name in names], np.intp)
        shares = allox(question.problem, kept=kept, alpha=alpha)
        memory.clear()
        for name, row in zip(names, shares, strict=True):
            if row.any():
                memory[name] = int(row.argmax())
        return shares

    return GavelRules(allocate, shuffled=False, spare=True, memory=memory)


def _gandiva(seed: int) -> GavelRules:
    """Pairs at random; one stays while it is worth it, and here nearly every one is.

    The simulator adds what the jobs of a pair are worth over all types and asks for 1.
    """
    memory: dict[str, Any] = {"together": [], "drawn": 0}

    def allocate(question: Question) -> PackedShares:
        pairs = question.pairs
        names = [[question.jobs[place] for place in pair] for pair in pairs.jobs.tolist()]
        before = {tuple(pair) for pair in memory["together"]}
        kept = [row for row, name in enumerate(names) if tuple(name) in before]
        packing = random_packing(
            question.problem,
            pairs,
            np.random.default_rng([seed, memory["drawn"]]),
            together=np.array(kept, np.intp),
            threshold=1 / np.count_nonzero(question.problem.capacity),
        )
        memory["drawn"] += 1
        memory["together"] = [names[row] for row in packing.together.tolist()]
        return packing.shares

    return GavelRules(allocate, shuffled=False, spare=True, memory=memory, packs=True)


def _solved(name: str, reference: int | None, *, aware: bool) -> GavelRules:
    if name == "gavel-ftf":
        return _fairest(reference)
    if name in ("gavel-max-min", "gavel-water-filling"):
        fair = max_min if name == "gavel-max-min" else water_filling
        return GavelRules(
            lambda question: fair(question.problem, aware=aware), shuffled=not aware, spare=True
        )
    solve = makespan if name == "gavel-makespan" else max_sum
    return GavelRules(
        lambda question: solve(_seen(question.problem, reference)),
        shuffled=reference is not None,
        spare=True,
    )


def _seen(problem: RoundProblem, reference: int | None) -> RoundProblem:
    return problem if reference is None else alike(problem, reference)


def _fairest(reference: int | None) -> GavelRules:
    """With the history of what each job would have done alone."""
    history = DurationHistory()

    def allocate(question: Question) -> Array:
        asked = _seen(question.problem, reference)
        alone = throughputs(asked, isolated(asked))
        elapsed = history.update([str(job) for job in question.jobs], asked.steps, alone)
        return finish_time_fairness(replace(asked, elapsed=elapsed))

    return GavelRules(allocate, shuffled=reference is not None, spare=True, memory=history.memory)
