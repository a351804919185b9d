"""What policies know of speeds (`core.jobs.SpeedBook`): the truth, or a noisy measurement.

A policy that declares `Knowledge.SPEEDS` reads `job.speed_on(gpu_type)`; in a simulation that is
what the rate model says. With an error, the speed of job number i on a GPU type is multiplied by a
lognormal factor with mean 1 + bias and coefficient of variation cv: the i-th draw of a stream of
the seed and the type. It depends neither on the policy, nor on the order in which it asks, nor on
the other jobs, and does not change during a run: a job was profiled once, and wrongly. Beside
another job the factor is the same. The jobs themselves run at their true speeds.
"""

import math
from typing import TYPE_CHECKING
from zlib import crc32

from rota.core.jobs import Job, SpeedBook
from rota.core.ports import RateModel

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
