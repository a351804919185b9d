"""What policies know of speeds (`core.jobs.SpeedBook`): the truth, or what was measured.

A policy that declares `Knowledge.SPEEDS` reads `job.speed_on(gpu_type)`; in a simulation that is
what the rate model says. With an error, the speed of job number i on a GPU type is multiplied by a
lognormal factor with mean 1 + bias and coefficient of variation cv: the i-th draw of a stream of
the seed and the type. It depends neither on the policy, nor on the order in which it asks, nor on
the other jobs, and does not change during a run: a job was profiled once, and wrongly. Beside
another job the factor is the same. The jobs themselves run at their true speeds.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING
from zlib import crc32

from rota.core.hints import StepTime, TimedShape
from rota.core.jobs import Job, SpeedBook
from rota.core.ports import RateModel
from rota.models.rates import interpolated

if TYPE_CHECKING:
    import numpy as np

_CHUNK = 1024


class TrueSpeeds:
    """What the rate model of a simulation says; implements `SpeedBook`."""

    def __init__(self, rates: RateModel) -> None:
        self._rates = rates

    def speed(self, job: Job, gpu_type: str) -> float:
        """Alone."""
        return self._rates.speed(job, gpu_type)

    def speed_beside(self, job: Job, other: Job, gpu_type: str) -> float:
        """In a pair; 0 where no rate model knows pairs."""
        if not self._rates.packs:
            return 0.0
        return self._rates.beside(job, other, gpu_type) * self.speed(job, gpu_type)

    def speed_with(self, job: Job, gpus: float, nodes: int, gpu_type: str) -> float:
        """Alone, with another number of GPUs."""
        return self._rates.speed_with(job, gpus, nodes, gpu_type)


class MeasuredSpeeds:
    """What jobs on a real cluster have measured themselves; implements `SpeedBook`.

    Between sizes with which a job has run its throughput is interpolated, below them it falls in
    proportion. Beyond them it grows as the curve says that fits the times of its steps (fixed time,
    divided work, and what each worker adds: `rota.models.curves`); after a single size, in
    proportion. A job that has told nothing scales in proportion to its GPUs.
    """

    def speed(self, job: Job, gpu_type: str) -> float:
        """As its user says (`speeds` of the job file)."""
        return (job.truth.speeds or {}).get(gpu_type, 1.0)

    def speed_beside(self, job: Job, other: Job, gpu_type: str) -> float:  # noqa: ARG002
        """Nobody has measured pairs."""
        return 0.0

    def speed_with(self, job: Job, gpus: float, nodes: int, gpu_type: str) -> float:  # noqa: ARG002
        """Relative to that with what it asked for."""
        timings = {} if job.told is None else job.told.timings
        typed = {shape: time for shape, time in timings.items() if shape.gpu_type == gpu_type}
        known = typed or timings
        asked = _throughput(known, job.gpus) if known and job.gpus else 0.0
        if not asked:
            return gpus / job.gpus if job.gpus else 1.0
        return _throughput(known, gpus) / asked


def _throughput(timings: Mapping[TimedShape, StepTime], gpus: float) -> float:
    """Samples per second with so many GPUs."""
    points = measured_throughputs(timings)
    last, most = points[-1]
    if gpus <= last:
        return interpolated(gpus, points)
    if len(points) == 1:
        return most * gpus / last
    from rota.models.curves import WorkerSpeed

    curve = WorkerSpeed.of(timings)
    return most * curve.samples(gpus) / curve.samples(last) if curve is not None else most


def measured_throughputs(
    timings: Mapping[TimedShape, StepTime],
) -> tuple[tuple[float, float], ...]:
    """Number of GPUs and samples per second, from few to many; the best batch of each size."""
    best: dict[float, float] = {}
    for shape, time in timings.items():
        samples = shape.gpus * shape.batch / time.step_s
        best[shape.gpus] = max(best.get(shape.gpus, 0.0), samples)
    return tuple(sorted(best.items()))


class NoisySpeeds:
    """Speeds of another source, with errors; implements `SpeedBook`."""

    def __init__(self, book: SpeedBook, *, cv: float, bias: float = 0.0, seed: int = 0) -> None:
        self._book = book
        self._seed = seed
        self._sigma = math.sqrt(math.log1p(cv * cv))
        self._mu = math.log1p(bias) - self._sigma**2 / 2
        self._draws: dict[str, tuple[np.random.Generator, list[float]]] = {}

    def speed(self, job: Job, gpu_type: str) -> float:
        """The true one times the factor of the job on this type."""
        return self._book.speed(job, gpu_type) * self.factor(job, gpu_type)

    def speed_beside(self, job: Job, other: Job, gpu_type: str) -> float:
        """The true one times the same factor."""
        return self._book.speed_beside(job, other, gpu_type) * self.factor(job, gpu_type)

    def speed_with(self, job: Job, gpus: float, nodes: int, gpu_type: str) -> float:
        """The true one times the same factor."""
        return self._book.speed_with(job, gpus, nodes, gpu_type) * self.factor(job, gpu_type)

    def factor(self, job: Job, gpu_type: str) -> float:
        """By how much its speed is wrong; tasks of one job are wrong alike."""
        import numpy as np

        number = (job.parent or job).index
        if gpu_type not in self._draws:
            name = crc32(f"speed error on {gpu_type}".encode())
            sequence = np.random.SeedSequence(self._seed, spawn_key=(name,))
            self._draws[gpu_type] = (np.random.default_rng(sequence), [])
        stream, factors = self._draws[gpu_type]
        while len(factors) <= number:
            normal = stream.standard_normal(_CHUNK)
            factors.extend(np.exp(self._mu + self._sigma * normal).tolist())
        return factors[number]
