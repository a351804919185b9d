"""When a job will start: a frozen state, simulated on several times with drawn durations.

How long jobs still run is not known. Each simulation draws it for every job that is not over:

- a job for which somebody said how long it takes (its owner, or the oracle of its policy): what was
  said, times the ratio *run time / what was said* of some other job;
- any other job: the run time of some other job.

Other jobs are those that are over, and those that still run as far as they have come: that a job
has run for an hour and goes on tells something too (the product-limit estimate of Kaplan and
Meier). Few jobs teach little: every simulation weighs them at random (the Bayesian bootstrap).
Nothing is drawn that is shorter than what the job has run already; a job that has outlived all
others needs as long again as it has run.

The answer is the median of the draws, and the interval between two of them that holds a further
draw with a probability of at least 80 %. From fewer than some 30 jobs too little is learnt: the
interval is then too narrow.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from math import ceil, floor, fsum
from random import Random
from typing import Any, NamedTuple

import msgspec

from rota.core.events import INF
from rota.core.jobs import DONE, RUNNING, STARTING, Job
from rota.engine.loop import Engine

GUESS_S = 3600.0  # where nothing is known at all
ENOUGH = 3  # jobs that are over, from which something can be learnt
MEMORY = 2_000  # jobs that are over, the latest, from which is learnt
SHARE = 0.8  # of the draws in the interval
IN_ORDER = ("fifo",)  # policies under which nobody who comes later is served first

Said = Callable[[Job], float]
"""How long somebody said that a job runs in all; inf: nobody did."""


class Lengths:
    """A distribution learnt from lengths that are over and from some that are not."""

    def __init__(self, over: Iterable[float], unended: Iterable[float] = ()) -> None:
        seen = [(length, 0) for length in over] + [(length, 1) for length in unended]
        seen.sort()  # what ends at a length has been at risk together with what was cut there
        self._seen = seen
        self.count = sum(not cut for _, cut in seen)
        self._weigh([1.0] * len(seen))

    def _weigh(self, weights: list[float]) -> None:
        """The product-limit estimate; what nobody saw end lasts twice as long as the longest."""
        self.values: list[float] = []
        self._sums: list[float] = []
        alive, at_risk, total = 1.0, fsum(weights), 0.0
        for (length, cut), weight in zip(self._seen, weights, strict=True):
            if not cut and at_risk > 0:
                ends = alive * min(1.0, weight / at_risk)
                alive -= ends
                total += ends
                self.values.append(length)
                self._sums.append(total)
            at_risk -= weight
        if self._seen and self._seen[-1][1]:
            self.values.append(2 * self._seen[-1][0])
            self._sums.append(total + alive)

    def doubted(self, dice: Random) -> "Lengths":
        """As if other jobs had been seen (the Bayesian bootstrap): few teach little."""
        other = copy(self)
        other._weigh([dice.expovariate(1.0) for _ in self._seen])  # noqa: SLF001 - its own class
        return other

    def draw(self, beyond: float, dice: Random) -> float | None:
        """One that is longer than `beyond`; None: none was."""
        first = bisect_right(self.values, beyond)
        if first == len(self.values):
            return None
        begin = self._sums[first - 1] if first else 0.0
        point = begin + dice.random() * (self._sums[-1] - begin)
        return self.values[min(max(bisect_left(self._sums, point), first), len(self.values) - 1)]


class Durations:
    """What the jobs so far teach about how long jobs run."""

    def __init__(
        self, finished: Sequence[Job], active: Iterable[Job] = (), now_s: float = 0.0,
        said: Said = lambda job: job.spec.estimate_s,
    ) -> None:  # fmt: skip
        latest = finished[-MEMORY:]
        over = [(job, job.run_s) for job in latest if job.phase == DONE and job.run_s > 0]
        still = [(job, job.executed_s(now_s)) for job in active]
        still = [(job, run_s) for job, run_s in still if run_s > 0]
        self._said = said
        self.run_s = Lengths((s for _, s in over), (s for _, s in still))
        self.ratios = Lengths(
            *([s / said(job) for job, s in those if 0 < said(job) < INF] for those in (over, still))
        )

    def doubted(self, dice: Random) -> "Durations":
        """For one simulation: as if other jobs had been seen."""
        other = copy(self)
        other.run_s, other.ratios = self.run_s.doubted(dice), self.ratios.doubted(dice)
        return other

    def draw(self, job: Job, executed_s: float, dice: Random) -> float:
        """How long this one will have run in all."""
        said_s = self._said(job)
        total_s: float | None = GUESS_S
        if 0 < said_s < INF:
            ratio = (
                self.ratios.draw(executed_s / said_s, dice) if self._learnt(self.ratios) else 1.0
            )
            total_s = said_s * ratio if ratio is not None else None
        elif self._learnt(self.run_s):
            total_s = self.run_s.draw(executed_s, dice)
        return total_s if total_s is not None and total_s > executed_s else 2 * executed_s

    def _learnt(self, lengths: Lengths) -> bool:
        return lengths.count >= ENOUGH

    def describe(self) -> dict[str, Any]:
        """For the assumptions."""
        return {
            "finished_jobs": self.run_s.count,
            "with_estimates": self.ratios.count,
            "without_any": f"{GUESS_S:g} s" if self.run_s.count < ENOUGH else "not needed",
        }


class Spread(NamedTuple):
    """The answer, in seconds of the simulation; inf: it does not start."""

    median_s: float
    earliest_s: float
    latest_s: float


def spread_of(starts: Iterable[float]) -> Spread:
    """The median and the interval of some draws (at least one).

    With the k-th smallest and the k-th largest of n draws as its ends, an interval holds one more
    draw with a probability of 1 - 2k / (n + 1).
    """
    found = sorted(starts)
    count = len(found)
    low = max(1, floor((count + 1) * (1 - SHARE) / 2 + 1e-9))
    high = min(count, ceil((count + 1) * (1 + SHARE) / 2 - 1e-9))
    return Spread(found[(count - 1) // 2], found[low - 1], found[high - 1])


def redraw(engine: Engine, durations: Durations, dice: Random) -> None:
    """Give every job that is not over another length; what the policy was told of it stays."""
    now_s = engine.cluster.now_s
    durations = durations.doubted(dice)
    for job in engine.view.active.values():
        known = job.work < INF  # nobody knows it on a living cluster
        told = job.work * job.belief
        done = job.work - job.left if known else job.run_s
        executed = job.work - job.left_at(now_s) if known else job.executed_s(now_s)
        total = durations.draw(job, executed, dice)
        job.behaviour = msgspec.structs.replace(job.behaviour, work=total, fails_at=INF)
        job.work, job.left = total, total - done
        if known and total:
            job.belief = told / total


def nobody_new(policy: str, *, admission: bool = False) -> str:
    """What to say of jobs to come where none are assumed: they may matter all the same."""
    if policy in IN_ORDER and not admission:
        return "none"
    return f"none, but jobs that are submitted later may be served before it under {policy}"


def members(job: Job) -> list[Job]:
    """The tasks of a non-gang job; of all others the job itself."""
    whole = job.family is not None and job.parent is None
    return job.family.members if whole and job.family else [job]


def is_placed(job: Job) -> bool:
    """It, or a part of it, has a place on the cluster."""
    return any(one.running for one in members(job))


def next_start_s(engine: Engine, job: Job, give_up: Callable[[], bool]) -> float:
    """Go on until the job, which waits, has started; inf: it never does, or somebody gave up."""
    tasks = members(job)
    while True:
        if any(task.phase in (STARTING, RUNNING) for task in tasks):
            return engine.view.now_s
        if all(task.terminal for task in tasks) or give_up() or not engine.advance():
            return INF
