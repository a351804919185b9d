"""Sia: a type and a number of GPUs for every job, for the best goodputs (SOSP 2023).

Jayaram Subramanya et al., section 3. The configurations of a GPU type are 1, 2, 4, ... GPUs of a
node, and whole nodes. A job's goodput in each of them, relative to its least one, is G. In every
round one programme chooses a configuration for each job, or none:

    minimise    sum_jc  x[j, c] (r[j, c] G[j, c])^p  +  idle sum_j (1 - sum_c x[j, c])
    such that   sum_c x[j, c] <= 1,  sum_jc gpus[c] x[j, c] <= GPUs of each type,  x in {0, 1}

p is below 0: the lower, the fairer. `r` is 1 for the configuration that a job has, else a factor
below 1, the part of its age that it will not have spent on restarts. A job that is being started
keeps its configuration.

Where G comes from: jobs that tell how long their steps take, and how noisy their gradients are,
have a goodput model for each type that they have run on (`rota.models.goodput`); on other types it
is in proportion to the job's speeds there. For jobs that tell nothing it is the speed that is
believed of them (`job.speed_with`). Rigid jobs have one size, on each type; jobs that scale but
keep their batch tell no gradients. A job grows to at most `growth` times the GPUs that it has had.

The programme is solved to the end for up to `exact` jobs, beyond that until a bound proves that
nothing is better by more than the part `gap` (`rota.solvers.options`).

Departs from the paper: a job that comes between two rounds is started at once where there is room,
as small as it may be. Places are left to the placement, so a job may be split where nodes are
partly used; the paper moves others away. All restarts are taken to cost `restart_s`.
"""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from rota.core.jobs import STARTING, Job
from rota.core.knowledge import Knowledge
from rota.core.plan import LocalityPlan
from rota.core.policy import DecidePolicy, Params
from rota.core.state import State
from rota.core.sums import ordered_sum
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
from rota.solvers.options import OptionProgramme, choose_options

EARLIER = 1e-4  # the oldest of equal jobs is worth so much more

Positive = Annotated[float, msgspec.Meta(gt=0)]
Part = Annotated[float, msgspec.Meta(ge=0, lt=1)]


class SiaParams(Params, frozen=True):
    """Rounds, the programme (`power`, `idle`), and what is believed of restarts and growth.

    Attributes:
        interval_s: Seconds of a round.
        power: Of goodputs, below 0; the lower, the fairer.
        idle: What a job costs that gets nothing; one GPU costs 1 at most.
        restart_s: Seconds that a restart is taken to cost.
        growth: How many times as many GPUs as it has had a job may get; 0: no limit.
        exact: Up to so many jobs the programme is solved to the end.
        gap: Beyond that, the part by which the choice may be proven to miss the best one.
    """

    interval_s: Positive = 60.0
    power: Annotated[float, msgspec.Meta(lt=0)] = -0.5
    idle: Positive = 1.1
    restart_s: Annotated[float, msgspec.Meta(ge=0)] = 30.0
    growth: Annotated[float, msgspec.Meta(ge=0)] = 2.0
    exact: Annotated[int, msgspec.Meta(ge=0)] = 256
    gap: Part = 0.005


class TypedSize(NamedTuple):
    """So many GPUs of a type, on as few nodes as possible."""

    kind: int  # the number of the type
    gpus: float
    nodes: int


class TypeRoom(NamedTuple):
    """What a cluster has of a GPU type."""

    gpu_type: str
    gpus: float
    node_gpus: int
    """Of its largest node."""

    def nodes(self, gpus: float) -> int:
        """As few as possible."""
        return max(1, ceil(gpus / self.node_gpus))

    def sizes(self) -> list[float]:
        """Powers of two within a node, and whole nodes."""
        found: list[float] = [1]
        while found[-1] * 2 < self.node_gpus:
            found.append(found[-1] * 2)
        found += range(self.node_gpus, int(self.gpus) + 1, self.node_gpus)
        return sorted(set(found))


class SiaState(State):
    """When the next round is."""

    next_s: float = 0.0


class SiaPolicy(DecidePolicy[SiaParams]):
    """A type and a number of GPUs for every job, by one programme."""

    name = "sia"
    paper = (
        "Jayaram Subramanya et al., Sia: Heterogeneity-aware, goodput-optimized ML-cluster "
        "scheduling, SOSP 2023"
    )
    knowledge = Knowledge.SCALING | Knowledge.PROGRESS | Knowledge.SPEEDS
    Parameters = SiaParams
    plan_type = LocalityPlan
    coupled = "shares: one programme divides all GPUs among all jobs"
    preemptive = True
    elastic = True

    def __init__(self, params: SiaParams | None = None) -> None:
        super().__init__(params)
        self.state: SiaState = SiaState()
        self.gap = 0.0
        """By how much the last choice may miss the best one, as is proven."""

    def decide(self, view: View) -> LocalityPlan:
        """In every round configurations for all; in between who waits takes what is free."""
        plan = view.plan(LocalityPlan)
        if not view.jobs:
            return plan
        if view.now_s >= self.state.next_s:
            self.state.next_s = view.now_s + self.params.interval_s
            self._round(view, plan)
        else:
            for job in view.running:
                plan.keep(job)
            for job in view.waiting:
                _place_least(plan, job)
        plan.wake_at(self.state.next_s)
        return plan

    def _round(self, view: View, plan: LocalityPlan) -> None:
        rooms = _rooms(view)
        has = {job.index: self._held(view, job, rooms) for job in view.running}
        wanted = self._choose(view, rooms, has)
        moved, waiting = [], []
        for job in view.jobs:
            size = wanted.get(job.index)
            if not job.gpus or (size is not None and size == has.get(job.index)):
                plan.place(job)  # keeps its place
            elif size is not None:
                moved.append((size, job))
            elif not job.running:
                waiting.append(job)
        for size, job in sorted(moved, key=lambda each: -each[0].gpus):
            if not _place_size(plan, job, size, rooms) and not job.running:
                waiting.append(job)
        for job in waiting:  # the programme knows neither nodes nor CPUs: there may be room
            _place_least(plan, job)

    def _held(self, view: View, job: Job, rooms: Sequence[TypeRoom]) -> TypedSize | None:
        """The configuration that it has; none if it is on several types."""
        types = view.topology.types_at(job.allocation.vertices)
        for kind, room in enumerate(rooms):
            if types == {room.gpu_type}:
                return TypedSize(kind, job.allocation.gpus, room.nodes(job.allocation.gpus))
        return None

    def _choose(
        self, view: View, rooms: Sequence[TypeRoom], has: Mapping[int, TypedSize | None]
    ) -> dict[int, TypedSize]:
        """What the programme gives each job."""
        capacity = np.array([room.gpus for room in rooms], float)
        wanted: dict[int, TypedSize] = {}
        asked: list[tuple[Job, list[TypedSize], list[float]]] = []
        for job in view.jobs:
            now = has.get(job.index)
            if job.phase == STARTING and now is not None:
                wanted[job.index] = now
                capacity[now.kind] -= now.gpus
            elif job.gpus:
                sizes = self._sizes(job, rooms)
                asked.append((job, sizes, self._costs(job, sizes, now, view.now_s, rooms)))
        options = [size for _, sizes, _ in asked for size in sizes]
        if not options:
            return wanted
        choice = choose_options(
            OptionProgramme(
                np.repeat(np.arange(len(asked)), [len(sizes) for _, sizes, _ in asked]),
                np.array([size.kind for size in options], np.intp),
                np.array([size.gpus for size in options], float),
                np.array([cost for *_, costs in asked for cost in costs]),
                self.params.idle + EARLIER * (1 - np.arange(len(asked)) / len(asked)),
                np.maximum(capacity, 0.0),
            ),
            gap=self.params.gap if len(asked) > self.params.exact else 0.0,
        )
        self.gap = choice.gap
        for (job, *_), option in zip(asked, choice.options.tolist(), strict=True):
            if option >= 0:
                wanted[job.index] = options[option]
        return wanted

    def _sizes(self, job: Job, rooms: Sequence[TypeRoom]) -> list[TypedSize]:
        """Configurations that it takes: its own size if it is rigid."""
        least, request = job.min_gpus, job.shape.request
        had = max((shape.gpus for shape in job.timings), default=0.0)
        had = max(had, job.held_gpus if job.running else 0.0, 0.0)
        most = max(self.params.growth * had, least) if self.params.growth else job.max_gpus
        found = []
        for kind, room in enumerate(rooms):
            if job.shape.types and room.gpu_type not in job.shape.types:
                continue
            usual = {least, *(size for size in room.sizes() if request.takes(size))}
            found += [
                TypedSize(kind, size, room.nodes(size))
                for size in sorted(usual)
                if size <= min(most, room.gpus)
            ]
        return found

    def _costs(
        self,
        job: Job,
        sizes: Sequence[TypedSize],
        now: TypedSize | None,
        now_s: float,
        rooms: Sequence[TypeRoom],
    ) -> list[float]:
        """(r G)^p, where the least G is that of as many GPUs as it needs."""
        goodputs = Beliefs(job, rooms).goodputs(sizes)
        useful = [goodput for goodput in goodputs if goodput > 0]
        if not useful:
            return [float("inf")] * len(sizes)
        unit = max(job.min_gpus, 1.0) / min(useful)
        age_s, lost_s = now_s - job.submit_s, self.params.restart_s
        spent_s = (job.preemptions + job.migrations) * lost_s
        factor = 1.0
        if now is not None and age_s >= lost_s and age_s + lost_s > 0:
            factor = max(age_s - spent_s, 0.0) / (age_s + lost_s)
        found = []
        for size, goodput in zip(sizes, goodputs, strict=True):
            worth = goodput * unit * (1.0 if size == now else factor)
            found.append(worth**self.params.power if worth > 0 else float("inf"))
        return found


class Beliefs:
    """What is known of one job's goodput with any configuration."""

    def __init__(self, job: Job, rooms: Sequence[TypeRoom]) -> None:
        self._job, self._rooms = job, rooms
        self._models: dict[str, PerfParams] = {}
        for room in rooms:
            mine = {
                shape: time
                for shape, time in job.timings.items()
                if shape.gpu_type == room.gpu_type
            }
            if mine:
                self._models[room.gpu_type] = fit_steps(measured(mine), warm=True)

    def goodputs(self, sizes: Sequence[TypedSize]) -> list[float]:
        """Of these configurations; 0 where it cannot run."""
        job, rooms = self._job, self._rooms
        if not self._models:
            return [
                job.speed_with(size.gpus, nodes=size.nodes, gpu_type=rooms[size.kind].gpu_type)
                for size in sizes
            ]
        most: dict[int, int] = {}
        for size in sizes:
            most[size.kind] = max(most.get(size.kind, 1), int(size.gpus))
        tables = {kind: self._table(rooms[kind].gpu_type, gpus) for kind, gpus in most.items()}
        found = []
        for size in sizes:
            room, ratio, near, far = tables[size.kind]
            best = far if room.nodes(size.gpus) > 1 else near
            found.append(ratio * float(best[int(size.gpus) - 1]))
        return found

    def _table(
        self, kind: str, most: int
    ) -> tuple[TypeRoom, float, Sequence[float], Sequence[float]]:
        """Goodputs with 1 to `most` GPUs, on one node and on several, of a type that was tried.

        And that type, and the ratio of speeds if it is another one.
        """
        job, source, ratio = self._job, kind, 1.0
        if kind not in self._models:
            source = next(iter(self._models))
            known = job.speed_on(source)
            ratio = job.speed_on(kind) / known if known > 0 else 1.0
        room = next(room for room in self._rooms if room.gpu_type == source)
        return (room, ratio, *self._modelled(self._models[source], most))

    def _modelled(self, theta: PerfParams, most: int) -> tuple[Sequence[float], Sequence[float]]:
        """With the best batch, if it tells what it needs for that; else with the one it has."""
        told = self._job.learning
        names = ("init_batch", "max_batch", "min_local_batch", "max_local_batch")
        gradients = Gradients(told.get("grad_sqr"), told.get("grad_var"))
        if ordered_sum(gradients) <= 0 or not all(told.get(name) > 0 for name in names):
            batch, sizes = told.get("batch", 1.0), range(1, most + 1)
            near = [gpus * batch / step_s(theta, 1, gpus, batch) for gpus in sizes]
            return near, [gpus * batch / step_s(theta, 2, gpus, batch) for gpus in sizes]
        limits = BatchLimits(*(int(told.get(name)) for name in names))
        table = goodput_table(theta, gradients, limits, most)
        return table.near.tolist(), table.far.tolist()


def _rooms(view: View) -> list[TypeRoom]:
    """What is up, by type."""
    largest: dict[str, int] = {}
    for node in view.topology.nodes:
        if node.up and node.gpus:
            largest[node.gpu_type] = max(largest.get(node.gpu_type, 1), int(node.gpus))
    return [
        TypeRoom(kind, gpus, largest[kind])
        for kind, gpus in view.up_by_type.items()
        if kind in largest
    ]


def _place_size(plan: LocalityPlan, job: Job, size: TypedSize, rooms: Sequence[TypeRoom]) -> bool:
    """On few nodes if possible, else anywhere on its type; a running job stays if there is none."""
    kind = rooms[size.kind].gpu_type if len(rooms) > 1 else None
    gpus = size.gpus
    if plan.place_on(job, gpus=gpus, gpu_type=kind, max_nodes=size.nodes):
        return True
    return plan.place_on(job, gpus=gpus, gpu_type=kind) or (job.running and plan.place(job))


def _place_least(plan: LocalityPlan, job: Job) -> None:
    if job.gpus and job.min_gpus != job.gpus:
        plan.place(job, gpus=job.min_gpus)
    else:
        plan.place(job)
