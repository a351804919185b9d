"""Max-min fairness, its refinement by filling up, and the variant that rewards honesty."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rota.policies.gavel.basics import for_runnable, normalised, runnable, throughputs
from rota.policies.rounds.problem import Array, RoundProblem
from rota.solvers.linear import equal_rows
from rota.solvers.share_problem import ShareProblem
from rota.solvers.shares import solve_grouped

_SLACK = 1e-9  # floors are results of programmes: the last digits are not theirs


def max_min(problem: RoundProblem, *, aware: bool = True) -> Array:
    """Make the job that is worst off as well off as possible.

    maximise min_i s[i] / (w[i] P[i]) sum_j T[i, j] X[i, j],  P[i] = sum_j T[i, j] N[j] / sum(N)

    Without `aware` all T are 1: the shares of time count, wherever they are.
    """
    return for_runnable(problem, lambda part: _max_min(part, aware=aware))


def _max_min(problem: RoundProblem, *, aware: bool) -> Array:
    return solve_grouped(
        ShareProblem(
            normalised(problem, aware=aware),
            problem.size,
            problem.capacity,
            slope=problem.weight / problem.size,
        )
    ).shares


@dataclass(frozen=True)
class Entities:
    """Groups of jobs that share among themselves: who belongs where, and how they do it.

    `owner` numbers the entity of every job. An entity with `queued` serves its jobs one after the
    other, else it divides its weight over those that can still gain, by their own weights.
    """

    owner: NDArray[np.intp]
    weight: Sequence[float]
    queued: Sequence[bool]


def water_filling(
    problem: RoundProblem, *, aware: bool = True, entities: Entities | None = None
) -> Array:
    """Max-min fairness for everyone: who can still gain without hurting those below does.

    Raise the level of all jobs together; those that no allocation can lift further keep what they
    have, and the others go on. The prices of the programme tell who they are.
    """
    if entities is not None:
        entities = replace(entities, owner=entities.owner[runnable(problem)])
    return for_runnable(problem, lambda part: _filled(part, entities, aware=aware))


def _filled(problem: RoundProblem, entities: Entities | None, *, aware: bool) -> Array:
    gain = normalised(problem, aware=aware)
    reached, full = np.zeros(problem.jobs), np.zeros(problem.jobs, bool)
    shares = np.zeros_like(gain)
    while not full.all():
        slope = _weights(problem, entities, full) / problem.size
        found = solve_grouped(
            ShareProblem(
                gain, problem.size, problem.capacity, slope=slope, floor=reached * (1 - _SLACK)
            )
        )
        shares = found.shares
        reached = reached + max(found.level, 0.0) * slope
        rising = slope > 0
        stuck = rising & found.tight
        if not stuck.any():  # one of them holds the others back
            stuck[np.argmax(np.where(rising, found.bids * slope, -1.0))] = True
        full |= stuck
    return shares


def _weights(problem: RoundProblem, entities: Entities | None, full: NDArray[np.bool_]) -> Array:
    """The weight of each job that may still gain; zero for the others."""
    if entities is None:
        return np.where(full, 0.0, problem.weight)
    weights = np.zeros(problem.jobs)
    for entity, total in enumerate(entities.weight):
        active = np.flatnonzero((entities.owner == entity) & ~full)
        if not len(active):
            continue
        if entities.queued[entity]:
            weights[active[0]] = total
        else:
            weights[active] = total * problem.weight[active] / problem.weight[active].sum()
    return weights


def strategy_proof(problem: RoundProblem) -> tuple[Array, Array]:
    """The largest product of throughputs, of which every job keeps a part only.

    The part is what the job leaves to the others: the product of their throughputs with it, over
    that without it. So no job gains by lying about its throughputs. Returns X and the parts.
    """
    parts = np.ones(problem.jobs)

    def solve(part: RoundProblem) -> Array:
        shares = _largest_product(part)
        kept = _parts(part, shares)
        parts[runnable(problem)] = kept
        return shares * kept[:, None]

    return for_runnable(problem, solve), parts


def _largest_product(problem: RoundProblem) -> Array:
    return solve_grouped(
        ShareProblem(normalised(problem), problem.size, problem.capacity, log=True)
    ).shares


def _parts(problem: RoundProblem, shares: Array) -> Array:
    """Equal jobs leave equally much, so one of them is left out for all."""
    here = np.log(throughputs(problem, shares))
    first, group = equal_rows(normalised(problem), problem.size)
    parts = np.ones(len(first))
    for number, row in enumerate(first.tolist()):
        others = np.arange(problem.jobs) != row
        if others.any():
            rest = problem.take(others)
            there = np.log(throughputs(rest, _largest_product(rest)))
            parts[number] = np.exp(here[others].sum() - there.sum())
    return np.minimum(parts, 1.0)[group]
