"""Pollux' simulator: jobs that train as they were measured, in rounds, and its three policies.

A job's epochs, and so its end, fall on whole seconds: what is left of an epoch at its present speed
is rounded. Progress would jump there; the rate of the phase is such that it arrives. The batch is
tuned when a job gets other GPUs, at the end of an epoch and at the end of a round. Within an epoch
nothing changes once the tuned batch is stable, so a phase may last many rounds: it ends with the
last round before the end of the epoch, where the rounding begins.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil, floor
from typing import Any

import numpy as np

from rota.core.allocation import Allocation
from rota.core.changes import Changes
from rota.core.errors import OptionError
from rota.core.hints import StepTime, TimedShape
from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.policy import Params
from rota.core.ports import RatePhase
from rota.core.sums import ordered_sum
from rota.core.topology import Topology
from rota.core.view import View
from rota.models.goodput import Gradients, PerfParams, fit_steps, goodput_table, measured
from rota.models.profiles import MeasuredTraining, Placement
from rota.models.rates import Rates
from rota.policies.pollux import (
    GeneticSearch,
    SizedJob,
    best_sizes,
    most_tried,
    restart_factor,
    speedups,
)
from rota.reproduce.loop import Replanner, WaitingBlame

TUNED = {"batch": "tuned"}
"""Configuration of an allocation on which the job chooses its batch itself."""
MOST_GPUS = 64  # of one job
CLOSE = 1e-6  # of a step: progress that differs by less is the same
NCF = "ncf"  # it does not scale: one GPU and one batch
NCF_BATCH = 32768


# --- how jobs train -------------------------------------------------------------------------------


class Trainee:
    """One job: where it is in its training, its batch, and what it has measured."""

    __slots__ = (
        "_asked", "_ends", "batch", "epoch", "gradients", "passes", "pending", "profile", "timings",
        "training", "unit",
    )  # fmt: skip

    def __init__(self, training: MeasuredTraining, work: float) -> None:
        self.training, self.profile = training, training.profile
        self.unit = self.profile.total / work  # steps of the initial batch per second of work
        self.epoch = 0
        self.batch = self.passes = 0
        self.gradients: Gradients | None = None  # of what ran last
        self.timings: dict[TimedShape, StepTime] = {}
        self.pending: tuple[Placement, int, float] | None = None  # runs, and counts once it has
        self._ends = (0.0, 0)  # progress and epoch at the end of the phase
        self._asked: tuple[float, Placement, bool] | None = None

    @property
    def theta(self) -> PerfParams | None:
        """The model fitted to what it has measured."""
        shaped = measured(self.timings)
        return fit_steps(shaped, warm=True) if shaped else None

    def resume(self, progress: float) -> float:
        """Where it is, given the engine's account of its progress; epochs follow."""
        profile = self.profile
        expected, epoch = self._ends
        if abs(progress - expected) <= CLOSE * max(1.0, expected):
            progress, self.epoch = expected, epoch
        elif progress < profile.progress[self.epoch] - CLOSE:
            self.epoch = profile.epoch_at(progress)  # some work was lost
        return progress

    def settle(self, progress: float) -> dict[str, float]:
        """What ran since it was asked last is measured; what it can tell of it."""
        if self.pending is None:
            return {}
        placement, batch, since = self.pending
        self.pending = None
        if progress <= since:
            return {}  # it was moved before it began
        step, sync = self.profile.times(placement, batch)
        shape = TimedShape(len(placement), ordered_sum(placement), batch)
        if shape in self.timings:
            return {}
        self.timings[shape] = StepTime(step, sync)
        return {"batch": batch, "step_s": step, "sync_s": sync}

    def tune(self, placement: Placement, *, tuned: bool) -> None:
        """Choose the batch: as its user did, or the best that it knows."""
        profile, replicas = self.profile, sum(placement)
        target = float(self.training.batch)
        if tuned and profile.name == NCF:
            target = NCF_BATCH
        elif tuned:
            theta = self.theta
            if theta is not None and self.gradients is not None:
                best = goodput_table(theta, self.gradients, profile.limits, MOST_GPUS).best(
                    len(placement), replicas
                )
                self.passes = best.accumulation
                self.batch = profile.bounded(replicas, best.batch, best.accumulation)
                return
            target = max(profile.limits.init, profile.limits.local_least * replicas)
        self.batch, self.passes = profile.divided(target, replicas)

    def next_phase(
        self, placement: Placement, done: float, now_s: float, interval_s: float, *,
        tuned: bool, slower: float,
    ) -> RatePhase:  # fmt: skip
        """From now on; at a round's end what ran before is told, later what runs now."""
        profile = self.profile
        engine = done * self.unit
        asked = (now_s, placement, tuned)
        told: dict[str, float] = {}
        progress = self.resume(engine)
        if self._asked != asked:  # else only its neighbours have changed
            told = self.settle(progress)
            boundary = now_s % interval_s == 0
            if boundary and self.gradients is not None:
                told |= _gradients(self.gradients)
            self.tune(placement, tuned=tuned)
            self._asked = asked
        end_s = (floor(now_s / interval_s) + 1) * interval_s
        while True:
            speed = profile.goodput(placement, self.batch, self.passes, self.epoch) * slower
            samples = sum(placement) * self.batch * (self.passes + 1)
            self.gradients = profile.gradients(samples, self.epoch)
            goal = profile.progress[self.epoch + 1]
            last = self.epoch + 1 >= profile.epochs
            if progress + speed * (end_s - now_s) < goal:
                break
            seconds = round((goal - progress) / speed)
            if seconds or last:
                seconds = max(seconds, 1) if progress < goal else 1
                self._begin(placement, progress, goal, self.epoch + (not last))
                rate = (goal - engine) / seconds / self.unit
                return self._phase(rate, now_s + seconds, told, now_s, interval_s)
            progress, self.epoch = goal, self.epoch + 1
            self.tune(placement, tuned=tuned)
        reached = progress + speed * (end_s - now_s)
        if abs(engine - progress) <= CLOSE and self._stable(placement, tuned=tuned):
            while reached + speed * interval_s < goal:  # added up as there: rounding shows
                reached += speed * interval_s
                end_s += interval_s
        self._begin(placement, progress, reached, self.epoch)
        return self._phase(
            (reached - engine) / (end_s - now_s) / self.unit, end_s, told, now_s, interval_s
        )

    def _begin(self, placement: Placement, progress: float, reached: float, epoch: int) -> None:
        self.pending = (placement, self.batch, progress)
        self._ends = (reached, epoch)

    def _stable(self, placement: Placement, *, tuned: bool) -> bool:
        """Would it choose the same batch again at the end of the round?"""
        if not tuned:
            return True
        shape = TimedShape(len(placement), ordered_sum(placement), self.batch)
        if shape not in self.timings:
            return False
        now = (self.batch, self.passes)
        self.tune(placement, tuned=tuned)
        same = now == (self.batch, self.passes)
        self.batch, self.passes = now
        return same

    def _phase(
        self, rate: float, until_s: float, told: dict[str, float], now_s: float, interval_s: float
    ) -> RatePhase:
        limits = self.profile.limits
        if now_s % interval_s and self.gradients is not None:
            told |= _gradients(self.gradients)
        told |= {
            "init_batch": limits.init, "max_batch": limits.most,
            "min_local_batch": limits.local_least, "max_local_batch": limits.local_most,
        }  # fmt: skip
        return RatePhase(rate, until_s, told=told)

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> list[Any]:
        """As plain data."""
        return [
            self.epoch, self.batch, self.passes, self.gradients,
            [[list(shape), list(time)] for shape, time in self.timings.items()],
            self.pending, self._ends, self._asked,
        ]  # fmt: skip

    def restore(self, state: list[Any]) -> None:
        """Take the state of `snapshot` up again."""
        self.epoch, self.batch, self.passes, gradients, timings, pending, ends, asked = state
        self.gradients = None if gradients is None else Gradients(*gradients)
        self.timings = {TimedShape(*shape): StepTime(*time) for shape, time in timings}
        self.pending = None if pending is None else (tuple(pending[0]), *pending[1:])
        self._ends = (ends[0], ends[1])
        self._asked = None if asked is None else (asked[0], tuple(asked[1]), asked[2])


def _gradients(gradients: Gradients) -> dict[str, float]:
    return {"grad_sqr": gradients.sqr, "grad_var": gradients.var}


class PolluxRatesParams(Params, frozen=True):
    """Seconds of a round, and the part of its speed that a job loses beside another that spans."""

    interval_s: float = 60.0
    interference: float = 0.0


class PolluxRates(Rates):
    """Jobs train as their profiles say, in the rounds of Pollux' simulator."""

    name = "pollux"
    Parameters = PolluxRatesParams

    def __init__(self, topology: Topology, params: PolluxRatesParams | None = None) -> None:
        super().__init__(topology, params)
        self.phased = True
        self.neighbours = self.params.interference > 0
        self._trainees: dict[int, Trainee] = {}

    def keys(self, job: Job) -> Sequence[int]:
        """Only jobs that span nodes disturb each other there."""
        vertices = job.allocation.vertices
        return vertices if len(vertices) > 1 else ()

    def rate(self, job: Job, allocation: Allocation, sharers: Sequence[Job]) -> float:
        """At its beginning."""
        return self.phase(job, allocation, sharers, 0.0, 0.0).rate

    def phase(
        self,
        job: Job,
        allocation: Allocation,
        sharers: Sequence[Job],
        done: float,
        now_s: float,
    ) -> RatePhase:
        """As its profile says, until its batch or its epoch changes."""
        trainee = self._trainees.get(job.index)
        if trainee is None:
            trainee = self._trainees[job.index] = self._made(job)
        placement = tuple(int(gpus) for _, gpus in allocation.slices)
        slower = 1.0 - self.params.interference if sharers else 1.0
        return trainee.next_phase(
            placement, done, now_s, self.params.interval_s, slower=slower,
            tuned=allocation.config == TUNED,
        )  # fmt: skip

    def _made(self, job: Job) -> Trainee:
        training = job.truth.training
        if not isinstance(training, MeasuredTraining):
            raise OptionError(
                f"rates 'pollux': job {job.id} has no profile: read the workload with "
                "--format pollux:profiles=DIR"
            )
        return Trainee(training, job.true_work)

    def snapshot(self) -> Mapping[str, Any]:
        """All jobs."""
        return {"trainees": [(i, made.snapshot()) for i, made in self._trainees.items()]}

    def restore(self, state: Mapping[str, Any], jobs: Mapping[int, Job]) -> None:
        """Of those that are still there."""
        self._trainees = {}
        for index, saved in state["trainees"]:
            if index in jobs:
                self._trainees[index] = self._made(jobs[index])
                self._trainees[index].restore(saved)


# --- rounds ---------------------------------------------------------------------------------------

Free = dict[int, int]
"""GPUs by node, of nodes with any."""


class PolluxRounds(Replanner):
    """Common part: who is there, what is free, and plans from wanted allocations."""

    def __init__(
        self, name: str, topology: Topology, knowledge: Knowledge, interval_s: float
    ) -> None:
        super().__init__(name, topology, knowledge)
        self.interval_s = interval_s
        self._jobs: dict[int, Job] = {}
        self._down: set[int] = set()
        self._blame = WaitingBlame()

    def arrived(self, job: Job, now_s: float) -> None:  # noqa: ARG002 - the order is enough
        """It joins the queue."""
        self._jobs[job.index] = job
        self._blame.joins(job)

    def ended(self, job: Job) -> None:
        """It is gone."""
        self._jobs.pop(job.index, None)
        self._blame.leaves(job)

    def lost(self, job: Job, now_s: float) -> None:  # noqa: ARG002 - the next round will do
        """It waits again."""
        self._blame.joins(job)

    def node_changed(self, node: int, *, up: bool) -> None:
        """Nothing is placed on nodes that are down."""
        (self._down.discard if up else self._down.add)(node)

    def free(self, held: Mapping[int, Allocation]) -> Free:
        """What these leave, in the order of the nodes."""
        used: Counter[int] = Counter()
        for allocation in held.values():
            for vertex, gpus in allocation.slices:
                used[vertex] += int(gpus)
        found = {
            node.id: int(node.gpus) - used[node.id]
            for node in self.topology.nodes
            if node.id not in self._down
        }
        return {node: gpus for node, gpus in found.items() if gpus > 0}

    def on_emptiest(self, free: Free, gpus: int, config: Mapping[str, Any] | None) -> Allocation:
        """Node by node from the one with most free GPUs on; of equals the first."""
        slices = []
        while gpus:
            node = max(free, key=free.__getitem__)
            take = min(free[node], gpus)
            slices.append((node, take))
            free[node] -= take
            gpus -= take
        return Allocation(slices, config=config)

    def capacity(self) -> int:
        """GPUs of nodes that are up."""
        return int(sum(n.gpus for n in self.topology.nodes if n.id not in self._down))

    def decide(self, view: View, changes: Changes) -> Changes:
        """Who is not given anything stops."""
        wanted = self.plan(view.now_s)
        for index, job in self._jobs.items():
            new = wanted.get(index)
            if job.running:
                if new is None:
                    changes.stop(job)
                    self._blame.joins(job)
                elif new != job.allocation:
                    changes.start(job, new)
            elif new is not None:
                changes.start(job, new)
                self._blame.leaves(job)
        self._blame.tell(changes)
        return changes

    def plan(self, now_s: float) -> dict[int, Allocation]:
        """What every job shall have, by number; who is left out waits."""
        raise NotImplementedError

    def kept(self) -> dict[int, Allocation]:
        """What running jobs have."""
        return {index: job.allocation for index, job in self._jobs.items() if job.running}

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """Order of the jobs, and what is told."""
        return {
            "jobs": list(self._jobs), "down": sorted(self._down),
            **self._blame.snapshot(), **self.memory(),
        }  # fmt: skip

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Take the state of `snapshot` up again."""
        self._jobs = {index: view.everyone[index] for index in state["jobs"]}
        self._down = set(state["down"])
        self._blame = WaitingBlame.restored(state, self._jobs)
        self.remember(state)

    def memory(self) -> dict[str, Any]:
        """Of the policy."""
        return {}

    def remember(self, state: Mapping[str, Any]) -> None:
        """Take up what `memory` gave."""


class TiresiasRounds(PolluxRounds):
    """Two queues by attained service, no promotion; jobs stay where they are."""

    def __init__(self, topology: Topology, interval_s: float, limit_gpu_s: float) -> None:
        super().__init__("tiresias", topology, Knowledge.NOTHING, interval_s)
        self._limit = limit_gpu_s
        self._queues: tuple[list[int], list[int]] = ([], [])
        self._executed: Counter[int] = Counter()  # rounds

    def plan(self, now_s: float) -> dict[int, Allocation]:  # noqa: ARG002 - rounds count
        """Both queues in order, as far as GPUs last; then places."""
        jobs, queues = self._jobs, self._queues
        for queue in queues:
            queue[:] = [index for index in queue if index in jobs]
        known = {*queues[0], *queues[1]}
        queues[0].extend(index for index in jobs if index not in known)
        for index, job in jobs.items():
            if job.running:
                self._executed[index] += 1
                service = self._executed[index] * self.interval_s * job.gpus
                if service >= self._limit and index in queues[0]:
                    queues[0].remove(index)
                    queues[1].append(index)
        left, held, chosen = self.capacity(), self.kept(), []
        for index in (*queues[0], *queues[1]):
            if jobs[index].gpus <= left:
                left -= int(jobs[index].gpus)
                chosen.append(index)
            else:
                held.pop(index, None)
        free = self.free(held)
        return {
            index: held[index]
            if index in held
            else self.on_emptiest(free, int(jobs[index].gpus), None)
            for index in chosen
        }

    def ended(self, job: Job) -> None:
        """Forget its service."""
        super().ended(job)
        self._executed.pop(job.index, None)

    def memory(self) -> dict[str, Any]:
        """Queues and rounds."""
        return {"queues": list(self._queues), "executed": list(self._executed.items())}

    def remember(self, state: Mapping[str, Any]) -> None:
        """Take them up."""
        first, second = state["queues"]
        self._queues = (list(first), list(second))
        self._executed = Counter(dict(state["executed"]))


class OptimusRounds(PolluxRounds):
    """Marginal gains with an oracle: true step times, and the iterations that are left."""

    def __init__(self, topology: Topology, interval_s: float) -> None:
        super().__init__("optimus", topology, Knowledge.REMAINING_WORK, interval_s)
        self._steps: dict[tuple[str, int, int], float] = {}
        self._now_s = 0.0

    def plan(self, now_s: float) -> dict[int, Allocation]:
        """One GPU each, then the largest gain; who has as many keeps them."""
        self._now_s = now_s
        left = self.capacity()
        sizes: dict[int, int] = {}
        gains: dict[int, float] = {}
        remaining = {index: self._remaining(job) for index, job in self._jobs.items()}
        for index, job in self._jobs.items():
            if not left:
                sizes[index], gains[index] = 0, 0.0
                continue
            sizes[index] = 1
            left -= 1
            gains[index] = self._gain(job, 1, left) * remaining[index]
        while left and gains and max(gains.values()) > 0:
            index = max(gains, key=gains.__getitem__)
            sizes[index] += 1
            job = self._jobs[index]
            gains[index] = self._gain(job, sizes[index], left) * remaining[index]
            left -= 1
        held = {i: a for i, a in self.kept().items() if a.gpus == sizes[i]}
        free = self.free(held)
        return {
            index: held[index] if index in held else self.on_emptiest(free, sizes[index], None)
            for index in sorted(self._jobs, key=sizes.__getitem__)
            if sizes[index]
        }

    def _remaining(self, job: Job) -> float:
        training: MeasuredTraining = job.truth.training
        profile = training.profile
        done = (job.true_work - job.left_at(self._now_s)) * profile.total / job.true_work
        epoch = profile.epoch_at(done + CLOSE)
        if profile.epochs - 1 <= epoch:
            return 1.0
        return profile.iterations(training.batch, profile.epochs - 1) - profile.iterations(
            training.batch, epoch
        )

    def _gain(self, job: Job, gpus: int, left: int) -> float:
        training: MeasuredTraining = job.truth.training
        name = training.profile.name
        most = 1 if name == NCF else training.batch // training.profile.limits.local_least
        if gpus + 1 > most or left < 1:
            return 0.0
        return self._step_s(training, gpus) - self._step_s(training, gpus + 1)

    def _step_s(self, training: MeasuredTraining, gpus: int) -> float:
        """Quirk: with one GPU gradients are accumulated at least once."""
        profile = training.profile
        key = (profile.name, training.batch, gpus)
        if key not in self._steps:
            limits = profile.limits
            local = ceil(training.batch / gpus - 1e-8)
            passes = ceil(local / limits.local_most - 1e-8) - 1
            if gpus == 1:
                passes = max(1, passes)
            batch = ceil(local / (passes + 1) - 1e-8)
            step, sync = profile.times(profile.packed(gpus), profile.bounded(gpus, batch, passes))
            self._steps[key] = step + (step - sync) * passes
        return self._steps[key]


class GoodputRounds(PolluxRounds):
    """Pollux itself: speedups of all jobs, restarts that count, and a search."""

    def __init__(
        self,
        topology: Topology,
        interval_s: float,
        *,
        restart_s: float,
        power: float,
        genetic: GeneticSearch | None,
        avoid: bool,
        seed: int,
    ) -> None:
        known = Knowledge.SCALING | Knowledge.PROGRESS
        super().__init__("pollux", topology, known, interval_s)
        self._restart_s, self._power = restart_s, power
        self._genetic, self._seed = genetic, seed
        self._avoid = avoid
        self._rounds = 0
        self._service: Counter[int] = Counter()
        self._starts: Counter[int] = Counter()
        self._population: tuple[list[int], Any] | None = None

    def plan(self, now_s: float) -> dict[int, Allocation]:
        """Jobs in the order of their service; sizes or a whole allocation; places."""
        for index, job in self._jobs.items():
            if job.running:
                self._service[index] += int(self.interval_s * job.allocation.gpus)
        jobs = sorted(self._jobs.values(), key=lambda job: (self._service[job.index], job.submit_s))
        self._rounds += 1
        if not jobs:
            return {}
        gpus = self.capacity()
        sized = self._sized(jobs, gpus, now_s)
        if self._genetic is None:
            node_gpus = int(max(node.gpus for node in self.topology.nodes))
            wanted = self._packed(jobs, best_sizes(sized, gpus, node_gpus, power=self._power))
        else:
            wanted = self._searched(self._genetic, jobs, sized)
        for index, allocation in wanted.items():
            job = self._jobs[index]
            if not job.running or job.allocation != allocation:
                self._starts[index] += 1
        return wanted

    def _sized(self, jobs: Sequence[Job], gpus: int, now_s: float) -> list[SizedJob]:
        fair = ceil(gpus / len(jobs))
        found = []
        for job in jobs:
            near, far = speedups(job, gpus, fair, most_gpus=MOST_GPUS)
            most = min(max(2 * most_tried(job), 1), MOST_GPUS, int(job.max_gpus), gpus)
            restarts = max(self._starts[job.index] - 1, 0)
            keeps = restart_factor(now_s - job.submit_s, restarts, self._restart_s)
            held = int(job.allocation.gpus) if job.running else 0
            found.append(SizedJob(near, far, 1 if job.spec.model == NCF else most, held, keeps))
        return found

    def _packed(self, jobs: Sequence[Job], sizes: Sequence[int]) -> dict[int, Allocation]:
        """Who keeps its size stays; the others by size, on whole nodes, then where it fits best."""
        held = {
            job.index: job.allocation
            for job, size in zip(jobs, sizes, strict=True)
            if size and job.running and job.allocation.gpus == size
        }
        fitting = NodeFitting(self.free(held), self.topology, avoid=self._avoid)
        for allocation in held.values():
            fitting.holds(allocation)
        others = [
            (size, job)
            for job, size in zip(jobs, sizes, strict=True)
            if size and job.index not in held
        ]
        for size, job in sorted(others, key=lambda pair: -pair[0]):
            found = fitting.place(size)
            if found is not None:
                held[job.index] = found
        return held

    def _searched(
        self, search: GeneticSearch, jobs: Sequence[Job], sized: Sequence[SizedJob]
    ) -> dict[int, Allocation]:
        nodes = [node for node in self.topology.nodes if node.id not in self._down]
        column = {node.id: place for place, node in enumerate(nodes)}
        base = np.zeros((len(jobs), len(nodes)), np.int64)
        for row, job in enumerate(jobs):
            if job.running:
                for vertex, amount in job.allocation.slices:
                    base[row, column[vertex]] = amount
        rng = np.random.default_rng([self._seed, self._rounds])
        room = np.array([int(node.gpus) for node in nodes])
        found = search.search(
            sized, room, base, self._adapted(jobs, len(nodes)), rng, power=self._power
        )
        self._population = ([job.index for job in jobs], found)
        wanted = {}
        for job, row in zip(jobs, found[0], strict=True):
            slices = [(nodes[at].id, int(row[at])) for at in np.nonzero(row)[0]]
            if slices:
                wanted[job.index] = Allocation(slices, config=TUNED)
        return wanted

    def _adapted(self, jobs: Sequence[Job], nodes: int) -> Any:
        """The last population, for the jobs of now."""
        if self._population is None or self._population[1].shape[2] != nodes:
            return np.zeros((0, len(jobs), nodes), np.int64)
        numbers, found = self._population
        at = {index: row for row, index in enumerate(numbers)}
        adapted = np.zeros((len(found), len(jobs), nodes), np.int64)
        for row, job in enumerate(jobs):
            if job.index in at:
                adapted[:, row] = found[:, at[job.index]]
        return adapted

    def ended(self, job: Job) -> None:
        """Forget its service and restarts."""
        super().ended(job)
        self._service.pop(job.index, None)
        self._starts.pop(job.index, None)

    def memory(self) -> dict[str, Any]:
        """Service, restarts, rounds and the last population."""
        population = self._population
        return {
            "rounds": self._rounds,
            "service": list(self._service.items()),
            "starts": list(self._starts.items()),
            "population": None if population is None else (population[0], population[1].tolist()),
        }

    def remember(self, state: Mapping[str, Any]) -> None:
        """Take them up."""
        self._rounds = state["rounds"]
        self._service = Counter(dict(state["service"]))
        self._starts = Counter(dict(state["starts"]))
        saved = state["population"]
        self._population = saved and (list(saved[0]), np.array(saved[1], np.int64))


class NodeFitting:
    """Places for one job after the other: whole idle nodes first, the rest where least is left.

    Jobs that span nodes may keep out of each other's way (`avoid`): then one that finds too few
    nodes without another gets fewer GPUs.
    """

    def __init__(self, free: Free, topology: Topology, *, avoid: bool) -> None:
        self._free = free
        self._full = {node.id: int(node.gpus) for node in topology.nodes}
        self._avoid = avoid
        self._spanned: set[int] = set()

    def holds(self, allocation: Allocation) -> None:
        """A job stays there."""
        if self._avoid and len(allocation.slices) > 1:
            self._spanned.update(allocation.vertices)

    def place(self, gpus: int) -> Allocation | None:
        """So many GPUs, or fewer; None: there is no room at all."""
        free, slices = self._free, []
        for node in [node for node in free if free[node] == self._full[node]]:
            if free[node] <= gpus:
                slices.append((node, free[node]))
                gpus -= free[node]
        usable = [node for node in free if not slices or node not in self._spanned]
        taken = {node for node, _ in slices}
        fits = [node for node in usable if node not in taken and free[node] >= gpus]
        if gpus and fits:
            slices.append((min(fits, key=free.__getitem__), gpus))
            gpus = 0
        rest = [node for node in free if node not in taken and node not in self._spanned]
        for node in sorted(rest, key=lambda node: -free[node]):
            if gpus and free[node]:
                slices.append((node, min(free[node], gpus)))
                gpus -= min(free[node], gpus)
        if not slices and any(free.values()):
            node = max(free, key=free.__getitem__)
            slices.append((node, free[node]))
        for node, amount in slices:
            free[node] -= amount
        if not slices:
            return None
        found = Allocation(sorted(slices), config=TUNED)
        self.holds(found)
        return found
