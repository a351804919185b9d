"""Jobs that train as a profile says: their batch, their epochs, and what they tell of them.

A job measures its steps, fits the throughput model of Pollux to what it has measured on each GPU
type, and chooses its batch for the best goodput, again after every epoch and at every multiple of
`interval_s` (as the agents of Pollux and Sia do); or its batch is the user's. Epochs end at whole
seconds, as in the simulators of both.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import ceil, floor
from typing import Any

import msgspec

from rota.core.allocation import Allocation
from rota.core.errors import InputError, OptionError
from rota.core.jobs import Job
from rota.core.policy import Params
from rota.core.ports import RatePhase
from rota.core.topology import Topology
from rota.models.goodput import (
    BatchLimits,
    Gradients,
    Measured,
    PerfParams,
    fit_steps,
    gain,
    goodput_table,
)
from rota.models.rates import Rates
from rota.models.typed_profiles import Placement, ProfileFolder, load_profiles

SOON_S = 1e-6  # an epoch that ends as it begins takes so long, if it is the last
NEAR = 1e-6
ROUNDING = 1e-7  # relative: the cluster counts in other units


class TypedTraining(msgspec.Struct, frozen=True):
    """What a reader knows of a job that trains: `Behaviour.training`.

    `batch` is that of the user (samples of a step); `tuned`: the job may choose another one.
    """

    profiles: str
    application: str
    batch: int
    tuned: bool = True

    @property
    def folder(self) -> ProfileFolder:
        """Its profiles."""
        return load_profiles(self.profiles)

    def alone_s(self, gpus: int, gpu_type: str) -> float:
        """How long all epochs take with the user's batch on so many GPUs; 0: it does not fit.

        They are on nodes of as many GPUs as were measured on one.
        """
        learning = self.folder.learning(self.application)
        steps = self.folder.steps(self.application, gpu_type)
        whole, rest = divmod(gpus, steps.node_gpus)
        placement = (steps.node_gpus,) * whole + ((rest,) if rest else ())
        batch, passes = divided(self.batch, gpus, steps.most_at(placement), learning.init_batch)
        try:
            step_s, sync_s = steps.times(placement, batch)
        except InputError:
            return 0.0
        samples = gpus * batch * (passes + 1)
        took_s = 0.0
        for epoch in range(learning.epochs):
            among = min(max(samples, learning.init_batch), learning.max_batch)
            gradients = Gradients(*learning.gradients(among, epoch))
            goodput = gain(gradients, among / learning.init_batch) / (
                step_s + (step_s - sync_s) * passes
            )
            took_s += (learning.levels[epoch + 1] - learning.levels[epoch]) / goodput
        return took_s


@lru_cache(maxsize=4096)
def alone_s(training: TypedTraining, gpus: int, gpu_type: str) -> float:
    """`TypedTraining.alone_s`, reckoned once."""
    return training.alone_s(gpus, gpu_type)


def placement_of(allocation: Allocation) -> Placement:
    """GPUs on each node."""
    return tuple(int(gpus) for _, gpus in allocation.slices)


class TrainingStretch(msgspec.Struct, array_like=True):
    """A stretch at one rate: until when, where it leads, and what is measured in it."""

    since_s: float
    until_s: float
    progress: float  # at its end
    epoch: int  # at its end
    goodput: float
    step_s: float
    sync_s: float
    sqr: float
    var: float


class TypedTrainee:
    """One job: what it has measured and believes, its batch, and where it stands.

    Its progress may be ahead of the work that the cluster counts: an epoch that ends in no time is
    made up for in the next stretch.
    """

    def __init__(self, training: TypedTraining) -> None:
        self.training = training
        self.learning = training.folder.learning(training.application)
        self.gpu_type = ""
        self.placement: Placement = ()
        self.batch = 0
        self.passes = 0
        self.epoch = 0
        self.progress = 0.0
        self.begun = 0.0  # the progress that the cluster counted when the stretch began
        self.gradients: Gradients | None = None
        self.points: dict[str, list[Measured]] = {}
        self.segment: TrainingStretch | None = None

    # --- its batch --------------------------------------------------------------------------------

    def theta(self, gpu_type: str, tolerance: float | None) -> PerfParams | None:
        """What it believes of its steps on a type."""
        points = self.points.get(gpu_type)
        return fit_steps(tuple(points), tolerance=tolerance) if points else None

    def tune(self, tolerance: float | None) -> None:
        """Choose the batch for where it is."""
        training, learning = self.training, self.learning
        steps = training.folder.steps(training.application, self.gpu_type)
        nodes, gpus = len(self.placement), sum(self.placement)
        most = steps.most_at(self.placement)
        theta = self.theta(self.gpu_type, tolerance) if training.tuned else None
        if theta is not None and self.gradients is not None:
            limits = BatchLimits(
                learning.init_batch, learning.max_batch, steps.min_batch, int(most)
            )
            best = goodput_table(theta, self.gradients, limits, gpus).best(nodes, gpus)
            self.batch, self.passes = best.batch, best.accumulation
        else:
            first = max(learning.init_batch, steps.min_batch * gpus)
            self.batch, self.passes = divided(
                first if training.tuned else training.batch, gpus, most, learning.init_batch
            )
        self.batch = int(min(self.batch, steps.most_on(gpus)))
        self.batch = min(self.batch, int(learning.max_batch / (gpus * (self.passes + 1))))

    # --- its course -------------------------------------------------------------------------------

    def resume(self, placement: Placement, gpu_type: str, done: float) -> None:
        """It begins here, goes on here, or has lost work: the cluster counts so much progress."""
        if not _close(done, self.begun):
            self.progress = self.begun = done
            self.epoch = min(bisect_right(self.learning.levels, done), self.learning.epochs) - 1
        self.segment = None
        self.placement, self.gpu_type = placement, gpu_type

    def complete(self, tolerance: float | None) -> dict[str, float]:
        """The stretch is over: take what was measured into account; what it tells."""
        segment = self.segment
        assert segment is not None  # noqa: S101 - see `TypedTrainingRates.phase`
        self.progress, self.epoch = segment.progress, segment.epoch
        self.gradients = Gradients(segment.sqr, segment.var)
        nodes, gpus = len(self.placement), sum(self.placement)
        alone_s = segment.step_s - segment.sync_s
        point = (nodes, float(gpus), float(self.batch), alone_s, segment.step_s)
        known = self.points.setdefault(self.gpu_type, [])
        if point not in known:
            known.append(point)
        told = {
            "batch": float(self.batch),
            "accumulation": float(self.passes),
            "step_s": segment.step_s,
            "sync_s": segment.sync_s,
            "grad_sqr": segment.sqr,
            "grad_var": segment.var,
            **self.limits(),
        }
        self.segment = None
        self.tune(tolerance)
        return told

    def limits(self) -> dict[str, float]:
        """What it may choose, as it tells it."""
        steps = self.training.folder.steps(self.training.application, self.gpu_type)
        return {
            "init_batch": float(self.learning.init_batch),
            "max_batch": float(self.learning.max_batch),
            "min_local_batch": float(steps.min_batch),
            "max_local_batch": float(steps.max_batch),
        }

    def next(
        self, now_s: float, until_s: float, factor: float, tolerance: float | None
    ) -> TrainingStretch:
        """The stretch from now on: until its epoch ends, at most until then."""
        steps = self.training.folder.steps(self.training.application, self.gpu_type)
        learning, gpus = self.learning, sum(self.placement)
        while True:
            samples = gpus * self.batch * (self.passes + 1)
            gradients = Gradients(*learning.gradients(samples, self.epoch))
            step_s, sync_s = steps.times(self.placement, self.batch)
            whole_s = step_s + (step_s - sync_s) * self.passes
            goodput = gain(gradients, samples / learning.init_batch) / whole_s * factor
            level = learning.levels[self.epoch + 1]
            left_s = until_s - now_s
            end = (now_s, until_s, self.progress + goodput * left_s, self.epoch)
            if end[2] >= level:
                took_s = min(float(round((level - self.progress) / goodput)), left_s)
                end = (now_s, now_s + took_s, level, self.epoch + 1)
            self.segment = TrainingStretch(*end, goodput, step_s, sync_s, *gradients)
            if self.segment.until_s > now_s:
                return self.segment
            if self.segment.epoch == learning.epochs:
                self.segment.until_s = now_s + SOON_S
                return self.segment
            self.complete(tolerance)

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> list[Any]:
        """As plain data."""
        return [
            self.gpu_type, list(self.placement), self.batch, self.passes, self.epoch,
            self.progress, self.begun, self.gradients and list(self.gradients),
            {kind: [list(point) for point in points] for kind, points in self.points.items()},
            self.segment and msgspec.to_builtins(self.segment),
        ]  # fmt: skip

    def restore(self, state: Sequence[Any]) -> None:
        """From the state of `snapshot`."""
        (
            self.gpu_type, placement, self.batch, self.passes, self.epoch, self.progress,
            self.begun, gradients, points, segment,
        ) = state  # fmt: skip
        self.placement = tuple(placement)
        self.gradients = Gradients(*gradients) if gradients else None
        self.points = {kind: [_point(row) for row in rows] for kind, rows in points.items()}
        self.segment = msgspec.convert(segment, TrainingStretch) if segment else None


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= ROUNDING * max(1.0, abs(other))


def _point(row: Sequence[float]) -> Measured:
    nodes, *rest = row
    return (int(nodes), *rest)  # type: ignore[return-value]  # four numbers more


def divided(samples: float, gpus: int, most: float, init: int) -> tuple[int, int]:
    """A batch divided among GPUs: samples per GPU and pass, and passes that only accumulate."""
    local = ceil(samples / gpus - 1e-8)
    passes = ceil(local / most - 1e-8) - 1
    if gpus == 1 and samples > init:
        passes = max(1, passes)  # one GPU needs two passes to tell how noisy its gradients are
    return ceil(local / (passes + 1) - 1e-8), passes


class TypedTrainingParams(Params, frozen=True):
    """Every so many seconds a job chooses its batch again.

    `slower` are factors by which applications are slower than measured, written NAME:FACTOR
    (`*:FACTOR` for all others). `tolerance` is that of the fits; 0: the optimiser's own.
    """

    interval_s: float = 60.0
    slower: tuple[str, ...] = ()
    tolerance: float = 0.0


class TypedTrainingRates(Rates):
    """Goodput along a training, for jobs with profiles (`Behaviour.training`).

    Others run at the rate 1 on what they asked for, in proportion to their GPUs.
    """

    name = "typed-training"
    Parameters = TypedTrainingParams

    def __init__(self, topology: Topology, params: TypedTrainingParams | None = None) -> None:
        super().__init__(topology, params)
        self.phased = True
        if self.params.interval_s <= 0:
            raise OptionError(
                f"rates {self.name!r}: interval_s={self.params.interval_s:g}: give seconds above 0"
            )
        self._slower = dict(_factor(text) for text in self.params.slower)
        self._tolerance: float | None = self.params.tolerance or None
        single = topology.types[0] if len(topology.types) == 1 else ""
        self._types = [vertex.gpu_type or single for vertex in topology.vertices]
        self._jobs: dict[int, TypedTrainee] = {}

    def rate(self, job: Job, allocation: Allocation, sharers: Sequence[Job]) -> float:  # noqa: ARG002
        """In proportion, for jobs without profiles."""
        return allocation.gpus / job.gpus if job.gpus else 1.0

    def phase(
        self,
        job: Job,
        allocation: Allocation,
        sharers: Sequence[Job],
        done: float,
        now_s: float,
    ) -> RatePhase:
        """Until the epoch or the interval ends; it tells what was measured in the one before."""
        training = job.truth.training
        if not isinstance(training, TypedTraining):
            return RatePhase(self.rate(job, allocation, sharers))
        trainee = self._jobs.get(job.index)
        if trainee is None:
            trainee = self._jobs[job.index] = TypedTrainee(training)
        unit = job.true_work / trainee.learning.levels[-1]
        told = self._advance(trainee, allocation, done / unit, now_s)
        every_s = self.params.interval_s
        until_s = (floor(now_s / every_s + NEAR) + 1) * every_s
        factor = 1 / self._slower.get(training.application, self._slower.get("*", 1.0))
        segment = trainee.next(now_s, until_s, factor, self._tolerance)
        trainee.begun = done / unit
        over = segment.epoch == trainee.learning.epochs
        rest = job.true_work - done if over else max(segment.progress * unit - done, 0.0)
        return RatePhase(rest / (segment.until_s - now_s), segment.until_s, told=told or None)

    def _advance(
        self, trainee: TypedTrainee, allocation: Allocation, done: float, now_s: float
    ) -> dict[str, float]:
        """Bring a job up to date; what it tells of the stretch that is over."""
        placement = placement_of(allocation)
        gpu_type = self._types[allocation.slices[0][0]]
        segment = trainee.segment
        told = {}
        if (
            segment is not None
            and now_s >= segment.until_s - NEAR
            and _close(done, segment.progress)
        ):
            told = trainee.complete(self._tolerance)
            trainee.begun = done
        here = (placement, gpu_type) == (trainee.placement, trainee.gpu_type)
        if here and told:
            return told
        trainee.resume(placement, gpu_type, done)
        trainee.tune(self._tolerance)
        return {}

    def speed(self, job: Job, gpu_type: str) -> float:
        """With the GPUs and the batch that were asked for."""
        return (job.truth.speeds or {}).get(gpu_type, 1.0)

    def speed_with(self, job: Job, gpus: float, nodes: int, gpu_type: str) -> float:  # noqa: ARG002
        """With the batch that was asked for, on as few nodes as possible; 0: it does not fit."""
        training = job.truth.training
        if not isinstance(training, TypedTraining):
            return gpus / job.gpus if job.gpus else 1.0
        took_s = alone_s(training, int(gpus), gpu_type or self._types[0])
        return job.true_work / took_s if took_s else 0.0

    def snapshot(self) -> Mapping[str, Any]:
        """Where every job stands."""
        return {"jobs": [(index, trainee.snapshot()) for index, trainee in self._jobs.items()]}

    def restore(self, state: Mapping[str, Any], jobs: Mapping[int, Job]) -> None:
        """Take the state of `snapshot` up again."""
        self._jobs = {}
        for index, saved in state["jobs"]:
            trainee = self._jobs[index] = TypedTrainee(jobs[index].truth.training)
            trainee.restore(saved)


def _factor(text: str) -> tuple[str, float]:
    name, colon, number = text.rpartition(":")
    try:
        factor = float(number)
    except ValueError:
        factor = 0.0
    if not colon or factor <= 0:
        raise OptionError(
            f"rates 'typed-training': slower={text!r}: write APPLICATION:FACTOR, e.g. cifar10:1.8"
        )
    return name, factor
