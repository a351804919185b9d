"""Jobs that train as a profile says: their batch, their epochs, and what they tell of them.

A job measures its steps, fits the throughput model of Pollux to what it has measured on each GPU
type, and chooses its batch for the best goodput, again after every epoch and at every multiple of
`interval_s` (as the agents of Pollux and Sia do); or its batch is the user's. It tells what it has
measured, so that policies can fit models of their own. With `rounded` epochs end at whole seconds,
as in the simulators of both.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import floor
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
from rota.models.profiles import MeasuredTraining, Placement, alone_s, divided, load_profiles
from rota.models.rates import Scaling

SOON_S = 1e-6  # an epoch that ends as it begins takes so long, if it is the last
NEAR = 1e-6
ROUNDING = 1e-7  # relative: the cluster counts in other units


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


class GoodputTrainee:
    """One job: what it has measured and believes, its batch, and where it stands.

    Its progress may be ahead of the work that the cluster counts: an epoch that ends in no time is
    made up for in the next stretch.
    """

    def __init__(self, training: MeasuredTraining) -> None:
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
        assert segment is not None  # noqa: S101 - see `GoodputRates.phase`
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
        self, now_s: float, until_s: float, factor: float, tolerance: float | None, *, rounded: bool
    ) -> TrainingStretch:
        """The stretch from now on: until its epoch ends, at most until then."""
        steps = self.training.folder.steps(self.training.application, self.gpu_type)
        learning, gpus = self.learning, sum(self.placement)
        while True:
            samples = gpus * self.batch * (self.passes + 1)
            gradients = learning.gradients(samples, self.epoch)
            times = steps.times if rounded else steps.predicted
            step_s, sync_s = times(self.placement, self.batch)
            whole_s = step_s + (step_s - sync_s) * self.passes
            goodput = gain(gradients, samples / learning.init_batch) / whole_s * factor
            level = learning.levels[self.epoch + 1]
            left_s = until_s - now_s
            end = (now_s, until_s, self.progress + goodput * left_s, self.epoch)
            if end[2] >= level:
                took_s = (level - self.progress) / goodput
                took_s = min(float(round(took_s)) if rounded else took_s, left_s)
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


class GoodputRatesParams(Params, frozen=True):
    """Every so many seconds a job chooses its batch again.

    `profiles` is a folder of profiles for jobs whose workload brings none: an application is found
    by the model of a job. `slower` are factors by which applications are slower than measured,
    written NAME:FACTOR (`*:FACTOR` for all others). `tolerance` is that of the fits; 0: the
    optimiser's own. With `rounded` epochs end at whole seconds.
    """

    interval_s: float = 60.0
    profiles: str = ""
    slower: tuple[str, ...] = ()
    tolerance: float = 0.0
    rounded: bool = False


class GoodputRates(Scaling):
    """Goodput along a training, for jobs with profiles: measured steps, and a batch that adapts.

    Profiles come with the workload (`--format pollux:profiles=DIR`, `sia:profiles=DIR`), or by the
    option `profiles` for jobs whose model is an application there. The latter take as long as their
    workload says with what they ask for and the initial batch of the profile; only how this changes
    with GPUs and batch is taken from there. Jobs without profiles run as with `scaling`.
    """

    name = "goodput"
    Parameters = GoodputRatesParams

    def __init__(self, topology: Topology, params: GoodputRatesParams | None = None) -> None:
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
        self._jobs: dict[int, GoodputTrainee] = {}
        folder = load_profiles(self.params.profiles) if self.params.profiles else None
        self._applications = frozenset(folder.applications if folder is not None else ())

    def _training(self, job: Job) -> MeasuredTraining | None:
        """How it trains; None: nobody knows."""
        training = job.truth.training
        if isinstance(training, MeasuredTraining):
            return training
        model, gpus = job.spec.model, int(job.gpus)
        if model not in self._applications or not gpus or job.gpus % 1:
            return None
        return _by_model(self.params.profiles, model, gpus, self._reference)

    @property
    def _reference(self) -> str:
        """The GPU type on which jobs take as long as their workload says: the first one."""
        return self.topology.types[0]

    def _pace(self, job: Job, training: MeasuredTraining) -> float:
        """By what measured speeds are multiplied: its own length counts, if it has one."""
        if job.truth.training is training:
            return 1.0
        return alone_s(training, int(job.gpus), self._reference) / job.true_work

    def phase(
        self,
        job: Job,
        allocation: Allocation,
        sharers: Sequence[Job],
        done: float,
        now_s: float,
    ) -> RatePhase:
        """Until the epoch or the interval ends; it tells what was measured in the one before."""
        training = self._training(job)
        if training is None:
            return RatePhase(self.rate(job, allocation, sharers))
        trainee = self._jobs.get(job.index)
        if trainee is None:
            trainee = self._jobs[job.index] = GoodputTrainee(training)
        unit = job.true_work / trainee.learning.levels[-1]
        told = self._advance(trainee, allocation, done / unit, now_s)
        every_s = self.params.interval_s
        until_s = (floor(now_s / every_s + NEAR) + 1) * every_s
        slower = self._slower.get(training.application, self._slower.get("*", 1.0))
        segment = trainee.next(
            now_s, until_s, self._pace(job, training) / slower, self._tolerance,
            rounded=self.params.rounded,
        )  # fmt: skip
        trainee.begun = done / unit
        over = segment.epoch == trainee.learning.epochs
        rest = job.true_work - done if over else max(segment.progress * unit - done, 0.0)
        return RatePhase(rest / (segment.until_s - now_s), segment.until_s, told=told or None)

    def _advance(
        self, trainee: GoodputTrainee, allocation: Allocation, done: float, now_s: float
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

    def speed_with(self, job: Job, gpus: float, nodes: int, gpu_type: str) -> float:
        """With the batch that was asked for, on as few nodes as possible; 0: it does not fit."""
        training = self._training(job)
        if training is None:
            return super().speed_with(job, gpus, nodes, gpu_type)
        took_s = alone_s(training, int(gpus), gpu_type or self._types[0])
        return job.true_work * self._pace(job, training) / took_s if took_s else 0.0

    def snapshot(self) -> Mapping[str, Any]:
        """Where every job stands."""
        return {"jobs": [(index, trainee.snapshot()) for index, trainee in self._jobs.items()]}

    def restore(self, state: Mapping[str, Any], jobs: Mapping[int, Job]) -> None:
        """Take the state of `snapshot` up again."""
        self._jobs = {}
        for index, saved in state["jobs"]:
            training = self._training(jobs[index])
            assert training is not None  # noqa: S101 - it was there when the snapshot was made
            trainee = self._jobs[index] = GoodputTrainee(training)
            trainee.restore(saved)


@lru_cache(maxsize=4096)
def _by_model(profiles: str, model: str, gpus: int, reference: str) -> MeasuredTraining:
    """A job that begins with the initial batch, or as much as its GPUs need."""
    folder = load_profiles(profiles)
    least = folder.steps(model, reference).min_batch * gpus
    learning = folder.learning(model)
    training = MeasuredTraining(profiles, model, max(learning.init_batch, least))
    if learning.max_batch < least or not alone_s(training, gpus, reference):
        raise InputError(
            f"rates 'goodput': profiles={profiles}: {model!r} was not measured on {gpus} GPUs"
            f"{f' of type {reference}' if reference else ''}: ask for fewer, or measure it"
        )
    return training


def _factor(text: str) -> tuple[str, float]:
    name, colon, number = text.rpartition(":")
    try:
        factor = float(number)
    except ValueError:
        factor = 0.0
    if not colon or factor <= 0:
        raise OptionError(
            f"rates 'goodput': slower={text!r}: write APPLICATION:FACTOR, e.g. cifar10:1.8"
        )
    return name, factor
