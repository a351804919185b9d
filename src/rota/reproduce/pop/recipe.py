"""POP (Narayanan et al., SOSP 2021): how much k sub-problems lose, and what they save."""

import time
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import polars as pl

from rota.core.sums import ordered_sum
from rota.policies.gavel.basics import normalised, throughputs
from rota.policies.gavel.fairness import max_min
from rota.policies.gavel.packed import Indices, packed_max_min, packed_throughputs
from rota.policies.gavel.partition import parts
from rota.policies.rounds.problem import Array, JobPairs, RoundProblem, problem
from rota.reproduce.recipe import Check, Recipe, RecipeRun, RecipeSetting, Scale, holds, ordered
from rota.study.config import RunConfig

PARTS = (1, 2, 4, 8, 16)
SINGLE, PACKED = "single", "pairs"
JOBS = {
    Scale.SMALL: {SINGLE: (256, 2048), PACKED: (48, 96)},
    Scale.PAPER: {SINGLE: (512, 8192), PACKED: (64, 256)},
}
"""A few and many jobs: alone on their GPUs, and in pairs, of which there are many more."""

INSTANCES = {Scale.SMALL: 3, Scale.PAPER: 5}
TYPES = 3
SAME = 1e-9
LOSS = 0.05
"""Of the objective, with many jobs alone and k=16."""
FASTER = 3.0
"""At least so much less processor time with k=8, in pairs."""


FALLING = (8, 2, 1)
NOISE = 0.1


class Point(msgspec.Struct, frozen=True):
    """One instance in k parts, compared with the whole.

    Attributes:
        form: Jobs alone or in pairs.
        jobs: How many.
        seed: Of the instance.
        k: Parts.
        objective: Throughput of the job that is worst off, over that of the whole problem.
        mean: Throughput of a job over what it has by the whole problem, on average.
        cpu_s: Processor time of all parts.
        slowest_s: Of the slowest part: as long as it takes if each has a processor.
    """

    form: str
    jobs: int
    seed: int
    k: int
    objective: float
    mean: float
    cpu_s: float
    slowest_s: float


class PopTradeoff(Recipe):
    """Max-min fairness, whole and in parts; problems are solved, nothing is simulated."""

    name = "pop-tradeoff"
    summary = "POP: quality and processor time of max-min fairness against the number of parts"
    paper = (
        "Narayanan et al., Solving Large-Scale Granular Resource Allocation Problems Efficiently "
        "with POP, ACM SOSP 2021"
    )
    source = (
        "a shape, on drawn instances; POP's own times are those of another solver (in pairs, 2,048 "
        "jobs, k=8: 23 times faster, 0.2 % less throughput)"
    )
    takes: Mapping[Scale, str] = {Scale.SMALL: "20 s", Scale.PAPER: "5 minutes"}
    leaves_out = "larger instances, and two of five draws"
    known: Sequence[str] = (
        "times are those of the slowest part, as POP has them: as if each had a processor",
        "no GPU is lost where k does not divide a type; there the remainder is",
    )

    def __init__(self) -> None:
        self._points: list[Point] = []

    def runs(self, setting: RecipeSetting) -> dict[str, RunConfig]:  # noqa: ARG002 - there are none
        """None."""
        return {}

    def checks(self, setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> list[Check]:  # noqa: ARG002
        """The whole for k=1, little loss, less time."""
        sizes, seeds = JOBS[setting.scale], range(INSTANCES[setting.scale])
        self._points = points = [
            point
            for form, counts in sizes.items()
            for jobs in counts
            for seed in seeds
            for point in solve(form, jobs, seed)
        ]
        few, many = sizes[SINGLE]
        packed = sizes[PACKED][1]
        loss = {n: 1 - _mean(points, SINGLE, n, PARTS[-1], "objective") for n in (few, many)}
        quick = _mean(points, PACKED, packed, 1, "cpu_s") / _mean(
            points, PACKED, packed, 8, "cpu_s"
        )
        return [
            *(_whole(points, form) for form in sizes),
            holds(
                f"loss of the objective, {many:,} jobs, k={PARTS[-1]}",
                f"at most {LOSS:.0%}",
                round(loss[many], 4),
                ok=loss[many] <= LOSS,
            ),
            ordered(
                f"loss of the objective, k={PARTS[-1]}",
                {f"{many:,} jobs": loss[many], f"{few:,} jobs": loss[few]},
            ),
            *(_falls(points, form, sizes[form][1]) for form in sizes),
            holds(
                f"pairs, {packed:,} jobs: processor time of the whole, times that with k=8",
                f"at least {FASTER:g}: pairs grow with the square of the jobs",
                round(quick, 1),
                ok=quick >= FASTER,
            ),
        ]

    def series(self, runs: Mapping[str, RecipeRun]) -> pl.DataFrame:  # noqa: ARG002 - see `runs`
        """All points."""
        return pl.DataFrame([msgspec.structs.asdict(point) for point in self._points])


# --- instances -----------------------------------------------------------------------------------


def instance(form: str, jobs: int, seed: int) -> tuple[RoundProblem, JobPairs]:
    """Single-GPU jobs with speeds of their own, a quarter as many GPUs of each of three types.

    In pairs a job keeps 40 to 90 % of its speed.
    """
    draw = np.random.default_rng([seed, jobs])
    slow = np.sort(draw.uniform(0.1, 1.0, (jobs, TYPES)), axis=1)
    speeds = 10 ** draw.uniform(-1, 1.5, (jobs, 1)) * slow
    whole = problem(speeds, np.full(TYPES, jobs // 4))
    one, other = np.triu_indices(jobs if form == PACKED else 0, 1)
    kept = draw.uniform(0.4, 0.9, (len(one), TYPES, 2))
    rates = kept * np.stack([speeds[one], speeds[other]], axis=2)
    return whole, JobPairs(np.stack([one, other], axis=1), rates)


def solve(form: str, jobs: int, seed: int) -> list[Point]:
    """Whole, and in parts; each time with the same instance."""
    whole, pairs = instance(form, jobs, seed)
    best = _throughputs(form, whole, pairs)  # also the first call, which nobody measures
    base = whole.throughput.max(axis=1) / normalised(whole).max(axis=1)
    found = []
    for k in PARTS:
        made, spent_s = np.zeros(jobs), []
        for rows, part in parts(whole, k, np.random.default_rng([seed, k])):
            mine = _inside(pairs, rows, jobs)
            began_s = time.process_time()
            made[rows] = _throughputs(form, part, mine)
            spent_s.append(time.process_time() - began_s)
        found.append(
            Point(
                form=form,
                jobs=jobs,
                seed=seed,
                k=k,
                objective=float((made / base).min() / (best / base).min()),
                mean=float((made / best).mean()),
                cpu_s=ordered_sum(spent_s),
                slowest_s=max(spent_s),
            )
        )
    return found


def _throughputs(form: str, of: RoundProblem, pairs: JobPairs) -> Array:
    if form == PACKED:
        return packed_throughputs(of, pairs, packed_max_min(of, pairs))
    return throughputs(of, max_min(of))


def _inside(pairs: JobPairs, rows: Indices, jobs: int) -> JobPairs:
    """The pairs of jobs of one part, by their places in it."""
    place = np.full(jobs, -1, np.intp)
    place[rows] = np.arange(len(rows))
    there = place[pairs.jobs]
    use = np.all(there >= 0, axis=1)
    return JobPairs(there[use], pairs.throughput[use])


# --- what they show ------------------------------------------------------------------------------


def _mean(points: Sequence[Point], form: str, jobs: int, k: int, what: str) -> float:
    """Over all instances."""
    found = [
        getattr(point, what)
        for point in points
        if (point.form, point.jobs, point.k) == (form, jobs, k)
    ]
    return float(np.mean(found))


def _whole(points: Sequence[Point], form: str) -> Check:
    off = max(abs(point.objective - 1) for point in points if point.form == form and point.k == 1)
    return holds(
        f"{form}, k=1: objective, away from that of the whole problem",
        f"at most {SAME:g}",
        off,
        ok=off <= SAME,
    )


def _falls(points: Sequence[Point], form: str, jobs: int) -> Check:
    return ordered(
        f"{form}, {jobs:,} jobs: processor time of the slowest part (s)",
        {f"k={k}": _mean(points, form, jobs, k, "slowest_s") for k in FALLING},
        slack=NOISE,
    )


RECIPE = PopTradeoff()
