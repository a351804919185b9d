"""Lyra: elastic jobs by a knapsack, on nodes that are lent (Li et al., EuroSys 2023; first Aryl).

1. *Base.* Jobs that run keep their smallest size; those that wait get theirs in the order of their
   remaining time, the shortest first, as far as there are GPUs.
2. *More.* What is left goes to elastic jobs such that together they save the most time: a knapsack
   with one choice for each job, solved exactly. A choice is a size, its weight the GPUs beyond the
   base, its value the remaining time at the base minus that at the size.
3. *Lent nodes.* Nodes with the label `lent` belong to others (inference). A signal of the cluster
   with this name tells how many of them may be used now. When it falls, nodes are given back: those
   first for which the fewest jobs must be stopped (jobs that can live without their GPUs there are
   only shrunk), then those with the fewest GPUs in use.

Departs from the paper: giving back is greedy instead of its heuristic over servers' costs; jobs
that must leave start elsewhere at once if there is room. Lengths are told by an oracle.
"""

from collections.abc import Sequence
from typing import NamedTuple

from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.plan import ClosingPlan, Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.sums import ordered_sum
from rota.core.topology import Vertex
from rota.core.view import View
from rota.policies._sizes import give, open_gpus, sizes_of


class LyraParams(Params, frozen=True):
    """The label of nodes that are lent, and the signal that tells how many of them there are."""

    lent: str = "lent"


class GrowthChoice(NamedTuple):
    """What a job may be given beyond its base: weight in GPUs, and value."""

    gpus: int
    value: float


def knapsack(jobs: Sequence[Sequence[GrowthChoice]], gpus: int) -> list[int]:
    """The choice of each job (-1: none) such that values add up to the most within so many GPUs.

    Exact, by dynamic programming. Of equal sums the one with fewer GPUs is taken.
    """
    best = [0.0] * (gpus + 1)  # the most with at most so many GPUs
    taken: list[list[int]] = []
    for choices in jobs:
        after, chosen = list(best), [-1] * (gpus + 1)
        for number, choice in enumerate(choices):
            for size in range(choice.gpus, gpus + 1):
                value = best[size - choice.gpus] + choice.value
                if value > after[size]:
                    after[size], chosen[size] = value, number
        best = after
        taken.append(chosen)
    picked, left = [-1] * len(jobs), gpus
    for place in reversed(range(len(jobs))):
        number = picked[place] = taken[place][left]
        if number >= 0:
            left -= jobs[place][number].gpus
    return picked


class Lyra(DecidePolicy[LyraParams]):
    """Lend, share out by a knapsack, and give back with the least harm."""

    name = "lyra"
    paper = "Li et al., Lyra: Elastic Scheduling for Deep Learning Clusters, EuroSys 2023"
    knowledge = Knowledge.REMAINING_WORK | Knowledge.SCALING
    Parameters = LyraParams
    plan_type = ClosingPlan
    preemptive = True
    elastic = True
    coupled = "shares: all GPUs are divided among all jobs"

    def decide(self, view: View) -> Plan:
        """Give back, then base and more."""
        plan = view.plan(ClosingPlan)
        now_s = view.now_s
        returned = self._returned(view, plan)
        signal = view.topology.signals.get(self.params.lent)
        if signal is not None and (change_s := signal.next_change(now_s)) < INF:
            plan.wake_at(change_s)
        gone = sum(node.gpus for node in returned if node.open)
        gpus = open_gpus(view) - gone
        with plan.closed(_mask(view, returned)):
            for job in view.running:
                if any(view.topology.vertices[v].node in {n.id for n in returned}
                       for v in job.allocation.vertices):  # fmt: skip
                    plan.stop(job, why="its node is given back")
            give(plan, self._shares(view, gpus), most=gpus)
            plan.fill(job for job in view.jobs if not job.gpus)
        return plan

    # --- lent nodes -------------------------------------------------------------------------------

    def _returned(self, view: View, plan: ClosingPlan) -> list[Vertex]:
        """Lent nodes that are not to be used now: those that are missed least."""
        signal = view.topology.signals.get(self.params.lent)
        lent = [node for node in view.topology.nodes if self.params.lent in node.labels]
        if signal is None or plan.pooled:
            return []
        excess = len(lent) - max(0, int(signal.at(view.now_s)))
        if excess <= 0:
            return []
        on: dict[int, dict[int, float]] = {node.id: {} for node in lent}
        running = {job.index: job for job in view.running}
        for job in running.values():
            for vertex, amount in job.allocation.slices:
                node = view.topology.vertices[vertex].node
                if node in on:
                    on[node][job.index] = on[node].get(job.index, 0.0) + amount

        def harm(node: Vertex) -> tuple[int, float, int]:
            stopped = sum(
                not running[index].size_within(running[index].allocation.gpus - amount)
                for index, amount in on[node.id].items()
            )
            return (stopped, ordered_sum(on[node.id].values()), -node.id)

        return sorted(lent, key=harm)[:excess]

    # --- who gets what ----------------------------------------------------------------------------

    def _shares(self, view: View, gpus: float) -> list[tuple[Job, float]]:
        now_s = view.now_s
        sizes = {job.index: sizes_of(job, gpus) for job in view.jobs}
        jobs = [job for job in view.jobs if sizes[job.index]]
        remaining = {
            job.index: [_seconds(job, size, now_s) for size in sizes[job.index]] for job in jobs
        }
        jobs.sort(key=lambda job: (not job.running, remaining[job.index][0], job.index))
        base: list[Job] = []
        left = gpus
        for job in jobs:
            if sizes[job.index][0] <= left:
                base.append(job)
                left -= sizes[job.index][0]
        choices = [
            [
                GrowthChoice(int(size - sizes[job.index][0]), remaining[job.index][0] - seconds)
                for size, seconds in zip(sizes[job.index], remaining[job.index], strict=True)
                if size - sizes[job.index][0] >= 1 and seconds < remaining[job.index][0]
            ]
            for job in base
        ]
        picked = knapsack(choices, int(left))
        return [
            (job, sizes[job.index][0] + (own[number].gpus if number >= 0 else 0))
            for job, own, number in zip(base, choices, picked, strict=True)
        ]


def _seconds(job: Job, gpus: float, now_s: float) -> float:
    """How long it would still take with so many GPUs."""
    rate = job.speed_with(gpus)
    return job.remaining_s(now_s) / rate if rate > 0 else INF


def _mask(view: View, nodes: Sequence[Vertex]) -> int:
    """A set of nodes: bit i is the i-th of the topology."""
    chosen = {node.id for node in nodes}
    return sum(1 << place for place, node in enumerate(view.topology.nodes) if node.id in chosen)
