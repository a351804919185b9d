"""Sia's rounds: what its simulator does with all jobs every minute, or every six for Gavel.

Jobs train on GPUs of one type. A job restarts, which takes time, when the shape of its allocation
changes (GPUs on each of its nodes, in order) or its type, but not when only its nodes do.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from rota.core.allocation import Allocation
from rota.core.changes import Changes
from rota.core.jobs import STARTING, Job
from rota.core.knowledge import Knowledge
from rota.core.topology import Topology, Vertex
from rota.core.view import View
from rota.models.goodput import BatchLimits, Gradients, PerfParams, fit_steps, goodput_table
from rota.models.profiles import MeasuredTraining, Placement, divided
from rota.models.training import placement_of
from rota.reproduce.loop import START_S, Blame, Replanner
from rota.solvers.linear import Array
from rota.solvers.options import OptionProgramme, Places, choose_options
from rota.solvers.share_problem import ShareProblem
from rota.solvers.shares import solve_grouped

RESTART_S = {
    "cifar10": 50.0, "deepspeech2": 25.0, "bert": 120.0, "yolov3": 80.0, "imagenet": 250.0,
    "ncf": 15.0,
}  # fmt: skip
"""What a restart takes."""
BELIEVED_S = {
    "cifar10": 30.0,
    "deepspeech2": 25.0,
    "bert": 120.0,
    "yolov3": 45.0,
    "imagenet": 250.0,
}
"""What the policy takes it for."""
OTHERS_S = 30.0  # of other applications, both
TOLERANCE = 1e-5  # of the fits
MOST_GPUS = 64
PROFILED = {"aws": 16, "azure": 5, "dgx": 2, "dgx-ext": 2, "quad": 1, "rtx": 3}
"""Nodes of each type that were profiled together: no job gets more."""
NCF_BATCH = 32768

Place = tuple[str, tuple[int, ...]]
"""GPU type, and nodes: once for each GPU."""


class SiaFleet:
    """The nodes of one GPU type, all of the same size."""

    def __init__(self, gpu_type: str, nodes: Sequence[Vertex]) -> None:
        self.gpu_type = gpu_type
        self.nodes = nodes
        self.node_gpus = max(int(node.gpus) for node in nodes)
        self.gpus = sum(int(node.gpus) for node in nodes)

    def placed(self, gpus: int) -> Placement:
        """As few nodes as possible, the last one perhaps in part."""
        whole, rest = divmod(gpus, self.node_gpus)
        return (self.node_gpus,) * whole + ((rest,) if rest else ())

    def free(self) -> list[int]:
        """GPUs of each node, none of those that are down."""
        return [int(node.gpus) if node.up else 0 for node in self.nodes]


def fleets(topology: Topology) -> list[SiaFleet]:
    """By type, in alphabetical order."""
    kinds = sorted({node.gpu_type for node in topology.nodes if node.gpus})
    return [
        SiaFleet(kind, [node for node in topology.nodes if node.gpu_type == kind and node.gpus])
        for kind in kinds
    ]


class SiaRounds(Replanner):
    """Asks for a place for each job in every round, and carries it out."""

    def __init__(self, name: str, topology: Topology, knowledge: Knowledge) -> None:
        super().__init__(name, topology, knowledge)
        self.fleets = fleets(topology)
        self.jobs: dict[int, Job] = {}
        self._places: dict[int, Place] = {}
        self.restarts: dict[int, int] = {}  # starts of a job but the first
        self._blame = Blame()

    # --- what happened ----------------------------------------------------------------------------

    def arrived(self, job: Job, now_s: float) -> None:  # noqa: ARG002 - see the base
        """It takes part from the next round on."""
        self.jobs[job.index] = job
        self._blame.joins(job)

    def ended(self, job: Job) -> None:
        """It is over."""
        if self.jobs.pop(job.index, None) is None:
            return
        if self._places.pop(job.index, None) is None:
            self._blame.leaves(job)
        self.restarts.pop(job.index, None)
        self.gone(job)

    def lost(self, job: Job, now_s: float) -> None:  # noqa: ARG002 - see the base
        """Its node went down."""
        if self._places.pop(job.index, None) is not None:
            self._blame.joins(job)

    @abstractmethod
    def gone(self, job: Job) -> None:
        """A job has ended."""

    @abstractmethod
    def assign(self, jobs: Sequence[Job], now_s: float) -> Mapping[int, Place]:
        """Where each job is to run; who is not named waits."""

    # --- what to do -------------------------------------------------------------------------------

    def decide(self, view: View, changes: Changes) -> Changes:
        """A new round."""
        jobs = [self.jobs[index] for index in sorted(self.jobs)]
        wanted = self.assign(jobs, view.now_s) if jobs else {}
        for job in jobs:
            old, new = self._places.get(job.index), wanted.get(job.index)
            if new is None:
                if old is not None:
                    changes.stop(job)
                    del self._places[job.index]
                    self._blame.joins(job)
                continue
            if old is None:
                self._blame.leaves(job)
            if old != new:
                self._places[job.index] = new
                changes.starts.append((job, self._allocation(job, old, new, view.now_s)))
        self._blame.tell(changes)
        return changes

    def _allocation(self, job: Job, old: Place | None, new: Place, now_s: float) -> Allocation:
        """With the seconds of its start; a start that is under way goes on elsewhere."""
        kind, nodes = new
        fleet = next(fleet for fleet in self.fleets if fleet.gpu_type == kind)
        slices = [(fleet.nodes[nodes[0]].id, 0)]
        for node in nodes:
            vertex = fleet.nodes[node].id
            if slices[-1][0] != vertex:
                slices.append((vertex, 0))
            slices[-1] = (vertex, slices[-1][1] + 1)
        shape = tuple(gpus for _, gpus in slices)
        start_s = RESTART_S.get(job.spec.model, OTHERS_S)
        if old is not None and old[0] == kind and placement_of(job.allocation) == shape:
            begun = (job.allocation.config or {}).get(START_S, 0.0)
            start_s = max(0.0, begun - (now_s - job.start_s)) if job.phase == STARTING else 0.0
        else:
            self.restarts[job.index] = self.restarts.get(job.index, -1) + 1
        return Allocation(slices, config={START_S: start_s} if start_s else None)

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """All accounts."""
        return {
            "jobs": list(self.jobs),
            "places": [(index, kind, nodes) for index, (kind, nodes) in self._places.items()],
            "restarts": list(self.restarts.items()),
            "told": sorted(self._blame.told),
        }

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Take the state of `snapshot` up again."""
        for index in state["jobs"]:
            self.arrived(view.everyone[index], view.now_s)
        for index, kind, nodes in state["places"]:
            self._places[index] = (kind, tuple(nodes))
            self._blame.leaves(view.everyone[index])
        self.restarts = dict(state["restarts"])
        self._blame.told = set(state["told"])


# --- Sia ------------------------------------------------------------------------------------------

NOTHING = 1e-4  # stands for no goodput: powers of it are taken
MOST_COST = 3000.0


class SiaConfig(NamedTuple):
    """A way to give GPUs to a job."""

    kind: int  # the number of the fleet
    nodes: int
    gpus: int


def configurations(all_fleets: Sequence[SiaFleet], most_gpus: int) -> list[SiaConfig]:
    """Powers of two within a node, and whole nodes."""
    found = []
    for kind, fleet in enumerate(all_fleets):
        size = 1
        while size < fleet.node_gpus:
            found.append(SiaConfig(kind, 1, size))
            size *= 2
        found += [
            SiaConfig(kind, nodes, nodes * fleet.node_gpus)
            for nodes in range(1, min(len(fleet.nodes), _profiled(fleet)) + 1)
            if nodes * fleet.node_gpus <= most_gpus
        ]
    return found


def _profiled(fleet: SiaFleet) -> int:
    return PROFILED.get(fleet.gpu_type, len(fleet.nodes))


class SiaRules(NamedTuple):
    """Of the programme: the power, and what a job costs that gets nothing.

    `ties` is the order of types for new jobs, which are worth the same everywhere.
    """

    power: float = -0.5
    idle: float = 1.1
    ties: tuple[str, ...] = ()


class SiaProgramme(SiaRounds):
    """A configuration for each job, by the programme of the paper."""

    def __init__(self, name: str, topology: Topology, rules: SiaRules) -> None:
        super().__init__(name, topology, Knowledge.SCALING | Knowledge.PROGRESS | Knowledge.SPEEDS)
        self._rules = rules
        self._configs = configurations(self.fleets, MOST_GPUS)
        self._kind = np.array([config.kind for config in self._configs])
        self._gpus = np.array([config.gpus for config in self._configs])
        order = [fleet.gpu_type for fleet in self.fleets]
        first = [kind for kind in rules.ties if kind in order]
        ranks = first + [kind for kind in order if kind not in first]
        self._rank = np.array([ranks.index(kind) for kind in order], float)[self._kind]
        self._chosen: dict[int, int] = {}  # configurations, or types of rigid jobs, by job

    def gone(self, job: Job) -> None:
        """Nothing more is kept of it."""
        self._chosen.pop(job.index, None)

    def assign(self, jobs: Sequence[Job], now_s: float) -> Mapping[int, Place]:
        """Solve the programme and place what it says; restarts that are under way go on."""
        capacity = np.array([float(sum(fleet.free())) for fleet in self.fleets])
        wanted: dict[int, int] = {}
        asked: list[tuple[Job, Places, Places]] = []
        for job in jobs:
            kinds, sizes = self._columns(job)
            if job.phase == STARTING and job.index in self._chosen:
                chosen = wanted[job.index] = self._chosen[job.index]
                capacity[int(kinds[chosen])] -= sizes[chosen]
            else:
                asked.append((job, kinds, sizes))
        if asked:
            wanted |= self._solve(asked, capacity, now_s)
        self._chosen = wanted
        return self._place(jobs, wanted)

    def _columns(self, job: Job) -> tuple[Places, Places]:
        """Type and GPUs of each of its configurations."""
        if _elastic(job):
            return self._kind, self._gpus
        kinds = np.arange(len(self.fleets))
        return kinds, np.full(len(kinds), int(job.gpus))

    def _solve(
        self, asked: Sequence[tuple[Job, Places, Places]], capacity: Array, now_s: float
    ) -> dict[int, int]:
        costs = [self._costs(job, now_s) for job, *_ in asked]
        counts = [len(row) for row in costs]
        first = np.concatenate([[0], np.cumsum(counts)])
        choice = choose_options(
            OptionProgramme(
                np.repeat(np.arange(len(asked)), counts),
                np.concatenate([kinds for _, kinds, _ in asked]).astype(np.intp),
                np.concatenate([sizes for *_, sizes in asked]).astype(float),
                np.concatenate(costs),
                np.full(len(asked), self._rules.idle if self._rules.power < 0 else 0.0),
                np.maximum(capacity, 0.0),
            )
        )
        return {
            asked[row][0].index: int(option - first[row])
            for row, option in enumerate(choice.options.tolist())
            if option >= 0
        }

    # --- what configurations are worth ------------------------------------------------------------

    def _costs(self, job: Job, now_s: float) -> Array:
        """A row of the programme, in two digits as there; digits below them decide between ties."""
        elastic = _elastic(job)
        worth = self._goodputs(job) if elastic else self._throughputs(job)
        model = job.spec.model
        believed_s = BELIEVED_S.get(model, OTHERS_S)
        age_s = now_s - job.submit_s
        lost_s = max(self.restarts.get(job.index, 0), 0) * believed_s
        ran = age_s if elastic else job.attained_gpu_s(now_s)
        factor = 1.0 if ran < believed_s else max(age_s - lost_s, 0.0) / (age_s + believed_s)
        chosen = self._chosen.get(job.index)
        if chosen is not None:
            kept = worth[chosen]
            worth *= factor
            worth[chosen] = kept
        with np.errstate(divide="ignore"):
            powered = np.power(worth, self._rules.power)
        costs: Array = np.minimum(np.round(powered, 2), MOST_COST).astype(float)
        if self._rules.power > 0:
            costs = self._rules.idle - costs
        if elastic:
            costs += 1e-5 * self._rank if chosen is None else 1e-6 * self._gpus
        return costs

    def _goodputs(self, job: Job) -> Any:
        """As the job's own models say, relative to its least; a new job is worth 1 on one GPU."""
        worth = np.full(len(self._configs), NOTHING, np.float32)
        models = self._models(job)
        if not models:
            worth[self._gpus == 1] = 1.0
            return worth
        training, told = _training(job), job.learning
        gradients = Gradients(told.get("grad_sqr"), told.get("grad_var"))
        most = self._most_gpus(job)
        known = next(iter(models))
        for kind, fleet in enumerate(self.fleets):
            use = np.flatnonzero((self._kind == kind) & (self._gpus <= most))
            source = fleet.gpu_type if fleet.gpu_type in models else known
            found = [
                self._goodput(training, models[source], gradients, source, int(gpus))
                for gpus in self._gpus[use]
            ]
            goodputs = np.array(found, np.float32)
            if source != fleet.gpu_type:
                steps = training.folder.steps
                here = steps(training.application, fleet.gpu_type).alone
                goodputs *= np.float32(here / steps(training.application, source).alone)
            worth[use] = goodputs
        useful = worth > np.float32(NOTHING)
        if useful.any():
            worth *= 1.0 / worth[useful].min()
        worth[worth <= NOTHING] = NOTHING
        return worth

    def _models(self, job: Job) -> dict[str, PerfParams]:
        """A fitted model for each type on which it has run, in the order of types."""
        found = {}
        for fleet in self.fleets:
            points = tuple(
                (shape.nodes, shape.gpus, shape.batch, time.step_s - time.sync_s, time.step_s)
                for shape, time in job.timings.items()
                if shape.gpu_type == fleet.gpu_type
            )
            if points:
                found[fleet.gpu_type] = fit_steps(points, tolerance=TOLERANCE)
        return found

    def _most_gpus(self, job: Job) -> int:
        """Twice as many as it has had, whatever the type."""
        training = _training(job)
        if not training.tuned:
            return int(job.gpus)
        learning = training.folder.learning(training.application)
        most = 1
        for fleet in self.fleets:
            steps = training.folder.steps(training.application, fleet.gpu_type)
            had = max(
                (int(shape.gpus) for shape in job.timings if shape.gpu_type == fleet.gpu_type),
                default=0,
            )
            limit = learning.max_batch // steps.min_batch
            most = max(most, min(max(2 * had, 1), MOST_GPUS, limit))
        return most

    def _goodput(
        self,
        training: MeasuredTraining,
        theta: PerfParams,
        gradients: Gradients,
        gpu_type: str,
        gpus: int,
    ) -> float:
        """With the best batch up to that of the user; the policy does not go beyond it."""
        learning = training.folder.learning(training.application)
        steps = training.folder.steps(training.application, gpu_type)
        fleet = next(fleet for fleet in self.fleets if fleet.gpu_type == gpu_type)
        batch = NCF_BATCH if training.application == "ncf" else training.batch
        local = 57 if (training.application, gpu_type) == ("deepspeech2", "rtx") else 0
        limits = BatchLimits(
            learning.init_batch,
            max(batch, steps.min_batch * gpus) if training.tuned else batch,
            steps.min_batch,
            local or steps.max_batch,
            0 if training.tuned else batch,
        )
        nodes = ceil(gpus / fleet.node_gpus)
        return goodput_table(theta, gradients, limits, gpus).best(nodes, gpus).goodput

    def _throughputs(self, job: Job) -> Any:
        """Of a rigid job by type; the slowest type is worth as much as it has GPUs."""
        speeds = np.array([steps_per_s(job, fleet) for fleet in self.fleets])
        return speeds * (job.gpus / speeds.min())

    # --- where ------------------------------------------------------------------------------------

    def _place(self, jobs: Sequence[Job], wanted: Mapping[int, int]) -> dict[int, Place]:
        """By type, large jobs first: whole nodes, then any GPUs from where the last one ended."""
        places: dict[int, Place] = {}
        for kind, fleet in enumerate(self.fleets):
            mine = []
            for job in jobs:
                if job.index in wanted:
                    kinds, sizes = self._columns(job)
                    chosen = wanted[job.index]
                    if kinds[chosen] == kind:
                        mine.append((int(sizes[chosen]), not _elastic(job), job.index))
            mine.sort(key=lambda each: (-each[0], -each[1]))
            free, at = fleet.free(), 0
            for gpus, _, index in mine:
                if gpus <= sum(free):
                    nodes, at = _take(free, fleet.node_gpus, gpus, at)
                    places[index] = (fleet.gpu_type, tuple(nodes))
        return places

    def snapshot(self) -> Mapping[str, Any]:
        """Moreover, what was chosen last."""
        return {**super().snapshot(), "chosen": list(self._chosen.items())}

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Take the state of `snapshot` up again."""
        super().restore(view, state)
        self._chosen = dict(state["chosen"])


def _take(free: list[int], node_gpus: int, gpus: int, at: int) -> tuple[list[int], int]:
    """Nodes for so many GPUs from this node on, around the circle; and where the next begins."""
    taken: list[int] = []
    whole = gpus // node_gpus
    for _ in range(len(free)):
        if not whole:
            break
        if free[at] == node_gpus:
            free[at] = 0
            taken += [at] * node_gpus
            whole -= 1
        at = (at + 1) % len(free)
    while len(taken) < gpus:
        some = min(gpus - len(taken), free[at])
        free[at] -= some
        taken += [at] * some
        at = (at + 1) % len(free)
    return taken, at


def _training(job: Job) -> MeasuredTraining:
    training = job.truth.training
    assert isinstance(training, MeasuredTraining)  # noqa: S101 - the dialect has checked all jobs
    return training


def _elastic(job: Job) -> bool:
    least, most = job.shape.request.sizes
    return least != most


# --- Gavel in Sia's simulator ---------------------------------------------------------------------

TOO_LARGE = 0.1  # steps per second of a job that a type has too few GPUs for
DIGITS = 5  # of shares


def steps_per_s(job: Job, fleet: SiaFleet) -> float:
    """Of a rigid job with the user's batch, as slow as the simulation has it."""
    training = _training(job)
    gpus = int(job.gpus)
    learning = training.folder.learning(training.application)
    steps = training.folder.steps(training.application, fleet.gpu_type)
    placement = fleet.placed(gpus)
    batch, passes = divided(training.batch, gpus, steps.most_at(placement), learning.init_batch)
    if gpus == 1 and not passes:
        batch, passes = ceil(training.batch / 2 - 1e-8), 1
    batch = min(batch, int(learning.max_batch / (gpus * (passes + 1))))
    step_s, sync_s = steps.times(placement, batch)
    return 1 / (step_s + (step_s - sync_s) * passes) / slowdown(training.application)


def slowdown(application: str) -> float:
    """By how much the simulation is slower than the profiles: calibrated with real runs."""
    return SLOWDOWN.get(application, OTHERS_SLOWER)


SLOWDOWN = {"cifar10": 1.8, "ncf": 1.5, "gpt_pmp": 1.0}
OTHERS_SLOWER = 1.2


class GavelInSia(SiaRounds):
    """Shares of the largest total throughput, and jobs by share over time received."""

    def __init__(self, name: str, topology: Topology, round_s: float) -> None:
        super().__init__(name, topology, Knowledge.SPEEDS)
        self._round_s = round_s
        self._received: dict[int, list[float]] = {}  # by job: seconds on each type
        self._given = [0.0] * len(self.fleets)
        self._workers: dict[int, tuple[int, tuple[int, ...]]] = {}  # fleet, GPUs by number

    def gone(self, job: Job) -> None:
        """Time that it received stays counted."""
        self._received.pop(job.index, None)
        self._workers.pop(job.index, None)

    def assign(self, jobs: Sequence[Job], now_s: float) -> Mapping[int, Place]:  # noqa: ARG002
        """Shares, priorities, workers."""
        for job in jobs:
            if job.index not in self._received:
                self._received[job.index] = [self._round_s / 2] * len(self.fleets)
                self._given = [given + self._round_s / 2 for given in self._given]
        chosen = self._choose(jobs, self._shares(jobs))
        workers: dict[int, tuple[int, tuple[int, ...]]] = {}
        for kind, mine in enumerate(chosen):
            workers |= self._workers_of(kind, mine)
        self._workers = workers
        places = {}
        for index, (kind, numbers) in workers.items():
            self._received[index][kind] += self._round_s
            self._given[kind] += self._round_s
            size = self.fleets[kind].node_gpus
            places[index] = (
                self.fleets[kind].gpu_type, tuple(number // size for number in numbers)
            )  # fmt: skip
        return places

    def _shares(self, jobs: Sequence[Job]) -> Array:
        speeds = [
            [
                steps_per_s(job, fleet) if job.gpus <= fleet.gpus else TOO_LARGE
                for fleet in self.fleets
            ]
            for job in jobs
        ]
        throughput = np.array(speeds)
        size = np.array([float(job.gpus) for job in jobs])
        capacity = np.array([float(fleet.gpus) for fleet in self.fleets])
        problem = ShareProblem(throughput, size, capacity, value=throughput)
        found: Array = solve_grouped(problem).shares.round(DIGITS).clip(0.0, 1.0)
        return found

    def _choose(self, jobs: Sequence[Job], shares: Array) -> list[list[Job]]:
        """The jobs of each type, by priority; every job may be chosen, even without a share."""
        queue = []
        for kind in range(len(self.fleets)):
            for row, job in enumerate(jobs):
                share = float(shares[row, kind])
                part = self._received[job.index][kind] / self._given[kind]
                queue.append((share / part if share else 0.0, share, job, kind))
        queue.sort(key=lambda entry: entry[:2], reverse=True)
        left = [sum(fleet.free()) for fleet in self.fleets]
        chosen: list[list[Job]] = [[] for _ in self.fleets]
        served = set()
        for _, _, job, kind in queue:
            if job.index not in served and job.gpus <= left[kind]:
                left[kind] -= int(job.gpus)
                served.add(job.index)
                chosen[kind].append(job)
        return chosen

    def _workers_of(self, kind: int, jobs: Sequence[Job]) -> dict[int, tuple[int, tuple[int, ...]]]:
        """GPUs by number: large jobs first, and among equals those that keep theirs."""
        fleet = self.fleets[kind]
        up = fleet.free()
        order = [
            node * fleet.node_gpus + gpu for node, free in enumerate(up) for gpu in range(free)
        ]
        found: dict[int, tuple[int, tuple[int, ...]]] = {}
        taken: set[int] = set()
        for gpus in sorted({int(job.gpus) for job in jobs}, reverse=True):
            equal = [job for job in jobs if job.gpus == gpus]
            for job in equal:
                last = self._workers.get(job.index)
                if (
                    last is not None
                    and last[0] == kind
                    and job.index in self._places
                    and not taken.intersection(last[1])
                ):
                    found[job.index] = last
                    taken.update(last[1])
            for job in equal:
                if job.index not in found:
                    free = [number for number in order if number not in taken][:gpus]
                    found[job.index] = (kind, tuple(free))
                    taken.update(free)
        return found

    def snapshot(self) -> Mapping[str, Any]:
        """Moreover, the time that jobs received and their workers."""
        return {
            **super().snapshot(),
            "received": [(index, times) for index, times in self._received.items()],
            "given": self._given,
            "workers": [(index, *of) for index, of in self._workers.items()],
        }

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Take the state of `snapshot` up again."""
        super().restore(view, state)
        self._received = {index: list(times) for index, times in state["received"]}
        self._given = list(state["given"])
        self._workers = {index: (kind, tuple(of)) for index, kind, of in state["workers"]}
