"""Pollux: GPUs where they raise goodput most, for all jobs together (Qiao et al., OSDI 2021).

Goodput is throughput times statistical efficiency (`rota.models.goodput`). Every job tells how long
its steps took with each shape and batch that it has tried, and how noisy its gradients are; a model
is fitted to that, which predicts the goodput with any number of GPUs, at the best batch. The
speedup of a job is its goodput relative to that with a fair share of the cluster. In every interval
the policy maximises the power mean (p = -1: harmonic) of all speedups; a job that would have to
restart for it counts for less, the more often it has been restarted for its age. A job is given at
most twice as many GPUs as it has ever tried; one that tells nothing has tried what it holds once it
has run for a whole interval.

`search=exact` solves this by dynamic programming over the sizes of jobs (within a node, and whole
nodes beyond it), which the placement then packs. `search=genetic` searches as published: a
population of whole allocations, with the paper's crossover, mutation and repair.

A job that comes between two intervals is started at once where there is room, with as few GPUs as
it takes, and so is one that waits when others end (as AdaptDL does).

Departures: the published search has a second objective, which keeps some solutions alive but never
chooses one; it is left out. The paper scales the cluster itself as well; this does not. A job that
does not tell its gradients keeps its batch, and is worth its throughput.
"""

from collections.abc import Collection, Mapping, Sequence
from math import ceil
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.plan import Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.state import State
from rota.core.view import View
from rota.models.goodput import (
    BatchLimits,
    Gradients,
    PerfParams,
    fit_steps,
    goodput_table,
    measured,
    step_s,
)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

EPSILON = 1e-3  # a job without GPUs is worth so much
Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class PolluxPolicyParams(Params, frozen=True):
    """How often, the power of the mean, the seconds that a restart costs, and how to search."""

    interval_s: Positive = 60.0
    power: Annotated[float, msgspec.Meta(lt=0)] = -1.0
    restart_s: Annotated[float, msgspec.Meta(ge=0)] = 30.0
    search: Literal["exact", "genetic"] = "exact"
    population: Count = 100
    generations: Count = 30
    seed: int = 0


class SizedJob(NamedTuple):
    """A job as the search sees it."""

    near: Floats
    """Speedups with 0, 1, 2, ... GPUs on one node,"""
    far: Floats
    """and on several."""
    most: int
    """GPUs that it may be given."""
    held: int
    """GPUs that it has,"""
    keeps: float
    """and the factor on its speedup with any other number: a restart costs time."""


def speedups(job: Job, gpus: int, fair: int, *, most_gpus: int) -> tuple[Floats, Floats]:
    """Relative to a fair share, with 0 to `gpus` GPUs on one node and on several."""
    near, far = np.zeros(gpus + 1), np.zeros(gpus + 1)
    timings = job.timings
    if not timings:  # nothing is known: as many GPUs, so much faster
        near[1:] = far[1:] = np.arange(1, gpus + 1) / fair
        return near, far
    theta = fit_steps(measured(timings), warm=True)
    learning = job.learning
    limits = told_limits(learning.numbers)
    variance = learning.get("grad_var")
    if limits is None or variance + learning.get("grad_sqr") <= 0:
        near[1:], far[1:] = _throughputs(theta, gpus, learning.get("batch", 1.0))
        base = near[min(fair, gpus)]
    else:
        table = goodput_table(
            theta, Gradients(learning.get("grad_sqr"), variance), limits, most_gpus
        )
        near[1:], far[1:] = table.near[:gpus], table.far[:gpus]
        base = float(table.near[min(fair, most_gpus) - 1])
    return (near / base, far / base) if base > 0 else (near, far)


def told_limits(numbers: Mapping[str, float]) -> BatchLimits | None:
    """The batches with which a job can work, if it has said so."""
    names = ("init_batch", "max_batch", "min_local_batch", "max_local_batch")
    if not all(numbers.get(name, 0) > 0 for name in names):
        return None
    init, most, least, local = (int(numbers[name]) for name in names)
    return BatchLimits(init, most, least, local)


def _throughputs(theta: PerfParams, gpus: int, batch: float) -> tuple[list[float], list[float]]:
    sizes = range(1, gpus + 1)
    return (
        [size * batch / step_s(theta, 1, size, batch) for size in sizes],
        [size * batch / step_s(theta, 2, size, batch) for size in sizes],
    )


def most_tried(job: Job) -> int:
    """The most GPUs with which it has run."""
    return max((int(shape.gpus) for shape in job.timings), default=0)


def restart_factor(age_s: float, restarts: int, restart_s: float) -> float:
    """By how much a speedup counts less that needs a restart."""
    if not restart_s:
        return 1.0
    return max(age_s - restarts * restart_s, 0.0) / (age_s + restart_s)


# --- exact, by sizes ------------------------------------------------------------------------------


def best_sizes(
    jobs: Sequence[SizedJob],
    gpus: int,
    node_gpus: int,
    *,
    power: float = -1.0,
    also: Collection[int] = (),
) -> list[int]:
    """How many GPUs each job gets: the sum of (speedup + epsilon)^power is least.

    Sizes are those within a node and whole nodes beyond it, and `also`.
    """
    usual = {0, *range(1, min(node_gpus, gpus) + 1), *range(node_gpus, gpus + 1, node_gpus)}
    sizes = np.array(sorted(usual.union(size for size in also if size <= gpus)))
    columns = np.arange(gpus + 1)
    from_ = columns[None, :] - sizes[:, None]
    room = from_ >= 0
    from_ = np.maximum(from_, 0)
    scale = 1.0 / node_gpus
    best = np.zeros(gpus + 1)
    picks = np.zeros((len(jobs), gpus + 1), np.int64)
    costs = _costs(jobs, sizes, node_gpus, scale, power)
    for row, cost in enumerate(costs):
        sums = np.where(room, best[from_] + cost[:, None], np.inf)
        picks[row] = sums.argmin(axis=0)
        best = sums[picks[row], columns]
    given = [0] * len(jobs)
    left = gpus
    for row in range(len(jobs) - 1, -1, -1):
        given[row] = int(sizes[picks[row, left]])
        left -= given[row]
    return given


def _costs(
    jobs: Sequence[SizedJob], sizes: Ints, node_gpus: int, scale: float, power: float
) -> Floats:
    near = np.array([job.near for job in jobs])[:, sizes]
    far = np.array([job.far for job in jobs])[:, sizes]
    held = np.array([job.held for job in jobs])
    keeps = np.array([job.keeps for job in jobs])
    most = np.array([max(job.most, 1) for job in jobs])
    worth = np.where(sizes[None, :] > node_gpus, far, near) * scale
    worth = np.where(sizes[None, :] == held[:, None], worth, worth * keeps[:, None])
    costs: Floats = (worth + EPSILON) ** power
    costs[sizes[None, :] > most[:, None]] = np.inf
    return costs


# --- genetic, by whole allocations ----------------------------------------------------------------


class GeneticSearch:
    """A population of allocations (jobs x nodes), kept between decisions."""

    RESET, CLEAR, CROSS = 0.1, 0.1, 0.9  # of rows, of cells of a tenth of the rows, of pairs

    def __init__(self, population: int, generations: int, *, avoid: bool = True) -> None:
        self.population = population
        self.generations = generations
        self.avoid = avoid
        """At most one job that spans nodes on each node."""

    def search(
        self,
        jobs: Sequence[SizedJob],
        nodes: Ints,
        base: Ints,
        before: Ints,
        rng: np.random.Generator,
        *,
        power: float = -1.0,
    ) -> Ints:
        """The last population, best first; `base` is what jobs have, `before` the last one."""
        count, per_node = len(jobs), int(nodes.max())
        table = np.array([[job.near, job.far] for job in jobs])
        flat, width = table.reshape(count, -1), table.shape[2]
        keeps = np.array([job.keeps for job in jobs])
        most = np.array([job.most for job in jobs])
        rows = np.arange(count)[None, :]

        def worth(found: Ints) -> Floats:
            gpus = found.sum(axis=2)
            spans = (found > 0).sum(axis=2) > 1
            speed = flat[rows, spans * width + gpus] / per_node
            speed = np.where((found != base[None]).any(axis=2), speed * keeps, speed)
            mean: Floats = (np.maximum(speed, 0) + EPSILON) ** power
            whole: Floats = mean.mean(axis=1) ** (1 / power)
            return whole

        found = self._repaired(np.concatenate([base[None], before]), nodes, most, rng)
        value = worth(found)
        for _ in range(self.generations):
            children = self._children(found, value, nodes, base, rng)
            children = self._repaired(children, nodes, most, rng)
            found = np.concatenate([found, children])
            value = np.concatenate([value, worth(children)])
            order = np.argsort(-value, kind="stable")
            distinct = np.concatenate([[True], np.diff(value[order]) != 0])
            order = order[distinct][: self.population]
            found, value = found[order], value[order]
        return found

    def _children(
        self, found: Ints, value: Floats, nodes: Ints, base: Ints, rng: np.random.Generator
    ) -> Ints:
        pairs, count = self.population // 2 or 1, found.shape[1]
        drawn = rng.integers(len(found), size=(4, pairs))
        better = [
            np.where(value[a] >= value[b], a, b) for a, b in ((drawn[0], drawn[1]), drawn[2:])
        ]
        one, other = found[better[0]], found[better[1]]
        cut = np.arange(count)[None, :] < rng.integers(count, size=(pairs, 1))
        cut[rng.random(pairs) > self.CROSS] = False
        cut = cut[:, :, None]
        children = np.concatenate([np.where(cut, one, other), np.where(cut, other, one)])
        shape = children.shape
        children = np.where((rng.random(shape[:2]) < self.RESET)[:, :, None], base, children)
        cleared = (rng.random(shape[:2]) < self.CLEAR)[:, :, None]
        children = np.where(cleared & (rng.random(shape) < self.CLEAR), 0, children)
        free = (nodes - children.sum(axis=1)) >= 1
        there = (children > 0) & free[:, None, :]
        anyone = (free / count)[:, None, :]
        those = there / np.maximum(there.sum(axis=1, keepdims=True), 1)
        grows = rng.random(shape) < anyone + those - anyone * those
        more = children + (rng.random(shape) * (nodes + 1 - children)).astype(np.int64)
        return np.where(grows, more, children)

    def _repaired(self, found: Ints, nodes: Ints, most: Ints, rng: np.random.Generator) -> Ints:
        if self.avoid:
            spans = (found > 0) & ((found > 0).sum(axis=2) > 1)[:, :, None]
            found = np.where(spans & (np.cumsum(spans, axis=1) > 1), 0, found)
        over = found.sum(axis=2) > most
        if over.any():
            rows = found[over]
            limit = np.broadcast_to(most, over.shape)[over][:, None]
            order = np.argsort(rng.random(rows.shape), axis=1)
            shuffled = np.take_along_axis(rows, order, 1)
            kept = np.diff(np.minimum(np.cumsum(shuffled, axis=1), limit), axis=1, prepend=0)
            np.put_along_axis(rows, order, kept, 1)
            found[over] = rows
        full = np.minimum(np.cumsum(found, axis=1), nodes)
        return np.diff(full, axis=1, prepend=0)


# --- the policy -----------------------------------------------------------------------------------


class PolluxState(State):
    """How often jobs were given other GPUs, how many decisions drew numbers, when the next is."""

    restarts: dict[int, int] = {}
    drawn: int = 0
    next_s: float = 0.0


class PolluxPolicy(DecidePolicy[PolluxPolicyParams]):
    """GPUs where they raise goodput most."""

    name = "pollux"
    paper = (
        "Qiao et al., Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning, "
        "OSDI 2021"
    )
    knowledge = Knowledge.SCALING | Knowledge.PROGRESS
    Parameters = PolluxPolicyParams
    coupled = "all jobs share one mean of speedups"
    preemptive = True
    elastic = True

    def __init__(self, params: PolluxPolicyParams | None = None) -> None:
        super().__init__(params)
        self.state: PolluxState = PolluxState()

    def decide(self, view: View) -> Plan:
        """In every interval sizes for all; in between whoever waits takes what is free."""
        plan = view.plan()
        self._forget(view)
        if not view.jobs:
            return plan
        placed: set[int] = set()
        if view.now_s >= self.state.next_s:
            self.state.next_s = view.now_s + self.params.interval_s
            placed = self._share(view, plan)
        else:
            for job in view.running:
                plan.keep(job)
        for job in view.waiting:
            if job.index not in placed:
                self._place(plan, job, job.min_gpus)
        plan.wake_at(self.state.next_s)
        return plan

    def _share(self, view: View, plan: Plan) -> set[int]:
        """Who keeps its size keeps its place; then the others, from the largest: who was placed."""
        jobs = [job for job in view.jobs if not job.gpus % 1 and job.gpus]
        for job in view.running:
            if job not in jobs:  # parts of GPUs are not divided further
                plan.keep(job)
        gpus = int(view.up_gpus)
        if not jobs or not gpus:
            return set()
        jobs.sort(key=lambda job: (job.attained_gpu_s(view.now_s), job.submit_s))
        sized = self._sized(view, jobs, gpus)
        if self.params.search == "exact":
            node_gpus = int(max(node.gpus for node in view.topology.nodes if node.up))
            also = {int(size) for job in jobs for size in (job.min_gpus, job.gpus, job.held_gpus)}
            given = best_sizes(sized, gpus, node_gpus, power=self.params.power, also=also)
        else:
            given = self._searched(view, sized)
        others = []
        for job, size in zip(jobs, given, strict=True):
            if job.running and size == job.held_gpus:
                plan.keep(job)
            elif job.size_within(size):
                others.append((job, job.size_within(size)))
        others.sort(key=lambda pair: -pair[1])
        return {job.index for job, size in others if self._place(plan, job, size)}

    def _place(self, plan: Plan, job: Job, size: float) -> bool:
        """With so many GPUs, or as many as there is room for."""
        if not job.gpus:
            return plan.place(job)
        while size and not plan.place(job, gpus=size):
            size = job.size_within(size - 1) if size > 1 else 0
        if size and size != job.held_gpus:
            restarts = self.state.restarts
            restarts[job.index] = restarts.get(job.index, -1) + 1
        return bool(size)

    def _forget(self, view: View) -> None:
        present = {job.index for job in view.jobs}
        restarts = self.state.restarts
        for index in [index for index in restarts if index not in present]:
            del restarts[index]

    def _sized(self, view: View, jobs: Sequence[Job], gpus: int) -> list[SizedJob]:
        fair = ceil(gpus / len(jobs))
        found = []
        for job in jobs:
            near, far = speedups(job, gpus, fair, most_gpus=gpus)
            held = int(job.held_gpus) if job.running else 0
            tried = most_tried(job)
            if not tried and job.executed_s(view.now_s) >= self.params.interval_s:
                tried = held  # it ran for a whole interval and told nothing: so it never will
            most = min(max(2 * tried, int(job.min_gpus), 1), int(job.max_gpus), gpus)
            for size in range(1, gpus + 1):
                if not job.spec.request.takes(size):
                    near[size] = far[size] = 0.0
            age_s = view.now_s - job.submit_s
            keeps = restart_factor(
                age_s, self.state.restarts.get(job.index, 0), self.params.restart_s
            )
            found.append(SizedJob(near, far, most, held, keeps))
        return found

    def _searched(self, view: View, jobs: Sequence[SizedJob]) -> list[int]:
        """The best allocation of a search; its places are left to the placement."""
        nodes = np.array([int(node.gpus) for node in view.topology.nodes if node.up])
        base = np.zeros((len(jobs), len(nodes)), np.int64)
        for row, job in enumerate(jobs):  # as if packed: a search of sizes needs no places
            left = job.held
            for column in range(len(nodes)):
                free = int(nodes[column] - base[:, column].sum())
                base[row, column] = min(left, free)
                left -= int(base[row, column])
        rng = np.random.default_rng([self.params.seed, self.state.drawn])
        self.state.drawn += 1
        search = GeneticSearch(self.params.population, self.params.generations)
        best = search.search(
            jobs, nodes, base, np.zeros((0, *base.shape), np.int64), rng, power=self.params.power
        )[0]
        return [int(size) for size in best.sum(axis=1)]
