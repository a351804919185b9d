"""What a job makes of its throughput: concave functions whose best point on a line is known.

A utility answers two questions, for all jobs at once: what a throughput is worth, and which
throughput between two ends is best if one more unit of it costs `slope`.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rota.core.errors import OptionError

Array = NDArray[np.float64]


class Utility(Protocol):
    """One concave function per job; a row of a matrix belongs to the job of that number."""

    @property
    def weight(self) -> Array:
        """How much every job counts."""
        ...

    def value(self, throughput: Array) -> Array:
        """What it is worth."""
        ...

    def slope(self, throughput: Array) -> Array:
        """What a little more of it is worth."""
        ...

    def best(self, cost: Array, low: Array, high: Array) -> Array:
        """The best throughput between `low` and `high` where a unit costs `cost`."""
        ...

    def take(self, rows: NDArray[np.intp]) -> "Utility":
        """The same for some of the jobs."""
        ...

    def columns(self) -> list[Array]:
        """Everything that tells one job's function from another's."""
        ...


def _by_job(values: Array, like: Array) -> Array:
    """One value per job, shaped to meet a vector or a matrix with a row per job."""
    return values if like.ndim == 1 else values[:, None]


@dataclass(frozen=True)
class Power:
    """u(t) = weight t^exponent / exponent, or weight log t if the exponent is 0.

    0 is proportional fairness; the further below 0, the closer to max-min fairness; the closer to
    1, the more only the sum counts.
    """

    weight: Array
    exponent: float = 0.0

    def __post_init__(self) -> None:
        if not self.exponent < 1:
            raise OptionError(
                f"a power utility with exponent {self.exponent:g} is not strictly concave: "
                f"give an exponent below 1 (0 is the logarithm)"
            )

    def value(self, throughput: Array) -> Array:
        """What it is worth; minus infinity for nothing unless the exponent is positive."""
        weight = _by_job(self.weight, throughput)
        with np.errstate(divide="ignore"):
            if not self.exponent:
                return np.asarray(weight * np.log(throughput))
            return np.asarray(weight * throughput**self.exponent / self.exponent)

    def slope(self, throughput: Array) -> Array:
        """It falls as t^(exponent - 1)."""
        with np.errstate(divide="ignore"):
            return np.asarray(_by_job(self.weight, throughput) * throughput ** (self.exponent - 1))

    def best(self, cost: Array, low: Array, high: Array) -> Array:
        """Where the slope is the cost."""
        weight = _by_job(self.weight, cost)
        ratio = np.divide(weight, cost, out=np.full(cost.shape, np.inf), where=cost > 0)
        return np.asarray(np.clip(ratio ** (1.0 / (1.0 - self.exponent)), low, high))

    def take(self, rows: NDArray[np.intp]) -> "Power":
        """The same for some of the jobs."""
        return Power(self.weight[rows], self.exponent)

    def columns(self) -> list[Array]:
        """Weights; the exponent is the same for all."""
        return [self.weight]


@dataclass(frozen=True)
class UtilityTarget:
    """u(t) = weight min(t - target, 0): more than the target is of no use."""

    weight: Array
    target: Array

    def value(self, throughput: Array) -> Array:
        """Zero from the target on."""
        weight, target = (_by_job(part, throughput) for part in (self.weight, self.target))
        return np.asarray(weight * np.minimum(throughput - target, 0.0))

    def slope(self, throughput: Array) -> Array:
        """The weight below the target, nothing above it."""
        weight, target = (_by_job(part, throughput) for part in (self.weight, self.target))
        return np.asarray(np.where(throughput < target, weight, 0.0))

    def best(self, cost: Array, low: Array, high: Array) -> Array:
        """All that is worth its cost: up to the target, or as little or as much as there is."""
        weight, target = (_by_job(part, cost) for part in (self.weight, self.target))
        wanted = np.where(cost < weight, np.broadcast_to(target, cost.shape), low)
        return np.asarray(np.where(cost < 0, high, np.clip(wanted, low, high)))

    def take(self, rows: NDArray[np.intp]) -> "UtilityTarget":
        """The same for some of the jobs."""
        return UtilityTarget(self.weight[rows], self.target[rows])

    def columns(self) -> list[Array]:
        """Weights and targets."""
        return [self.weight, self.target]
