"""What a policy believes of the speeds of jobs on GPU types.

`oracle`: what it is told. `noisy`: that with errors of its own, a lognormal factor for each job and
type. `learn`: what it has seen: the speed of a kind of jobs on a type is known when one of them has
run there, and estimated from all others before; a job that turns out to differ has its own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rota.core.jobs import Job
from rota.models.estimator import LearntSpeeds
from rota.models.speeds import NoisySpeeds


class Told:
    """What the job says (`Job.speed_on`); all others are based on it."""

    def speed(self, job: Job, gpu_type: str) -> float:
        """Alone."""
        return job.speed_on(gpu_type)

    def speed_beside(self, job: Job, other: Job, gpu_type: str) -> float:
        """In a pair."""
        return job.speed_beside(other, gpu_type)

    def speed_with(self, job: Job, gpus: float, nodes: int, gpu_type: str) -> float:
        """With another number of GPUs."""
        return job.speed_with(gpus, nodes=nodes, gpu_type=gpu_type)

    def saw(self, places: Sequence[tuple[Job, str]]) -> bool:  # noqa: ARG002
        """These jobs run on these types; does that change a belief?"""
        return False

    def snapshot(self) -> Mapping[str, Any]:
        """What was learnt, as plain data."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take it up again."""


class SameSpeed(Told):
    """Not aware of speeds: a job may run on a type or not."""

    def speed(self, job: Job, gpu_type: str) -> float:
        """1 wherever it may run."""
        return 0.0 if job.shape.types and gpu_type not in job.shape.types else 1.0

    def speed_beside(self, job: Job, other: Job, gpu_type: str) -> float:  # noqa: ARG002
        """Nothing is known of pairs."""
        return 0.0


class Noisy(Told):
    """Told with errors, the same for the same job and type all the time."""

    def __init__(self, cv: float, seed: int) -> None:
        self._book = NoisySpeeds(Told(), cv=cv, seed=seed)

    def speed(self, job: Job, gpu_type: str) -> float:
        """Alone."""
        return self._book.speed(job, gpu_type)

    def speed_beside(self, job: Job, other: Job, gpu_type: str) -> float:
        """In a pair."""
        return self._book.speed_beside(job, other, gpu_type)


class Learnt(Told):
    """Known where a job of the kind has run, estimated elsewhere."""

    def __init__(self, seed: int) -> None:
        self._book = LearntSpeeds((), seed=seed)

    def speed(self, job: Job, gpu_type: str) -> float:
        """Alone."""
        return self._book.speed(job, gpu_type)

    def speed_beside(self, job: Job, other: Job, gpu_type: str) -> float:  # noqa: ARG002
        """Nothing is known of pairs."""
        return 0.0

    def saw(self, places: Sequence[tuple[Job, str]]) -> bool:
        """Measure them all."""
        news = [self._book.saw(job, kind) for job, kind in places]
        return any(news)

    def snapshot(self) -> Mapping[str, Any]:
        """All observations."""
        return self._book.snapshot()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take them up again."""
        self._book.restore(state)
