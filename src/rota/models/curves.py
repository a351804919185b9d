"""Curves that Optimus fits to what a job tells: its loss by steps, its speed by workers; Amdahl.

Both are linear in coefficients that cannot be negative, so a least-squares fit with this bound
(`nonnegative`) finds them (Peng et al., EuroSys 2018, sections 3.1 and 3.2).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rota.core.hints import StepTime, TimedShape
from rota.core.products import dot, mixed

Floats = npt.NDArray[np.float64]
ENOUGH = 3  # points, for a curve with three coefficients
TRIES = 64  # lower limits of the loss that are tried
PASSES = 2_000  # of coordinate descent
STILL = 1e-12


def nonnegative(matrix: Floats, target: Floats) -> Floats:
    """The x >= 0 with the least |matrix x - target|, coordinate by coordinate."""
    squares = (matrix[:, :, None] * matrix[:, None, :]).sum(axis=0)
    along = mixed(target, matrix)
    found = np.zeros(matrix.shape[1])
    for _ in range(PASSES):
        before = found.copy()
        for at in range(len(found)):
            if squares[at, at] > 0:
                pull = along[at] - dot(squares[at], found)
                found[at] = max(0.0, found[at] + pull / squares[at, at])
        if np.abs(found - before).max() <= STILL * max(1.0, np.abs(found).max()):
            break
    return found


class LossCurve(NamedTuple):
    """loss(k) = 1 / (slope k + offset) + floor after k steps."""

    slope: float = 0.0
    offset: float = 1.0
    floor: float = 0.0
    step: float = 0.0
    """The last that was seen."""

    @classmethod
    def of(cls, losses: Sequence[tuple[float, float]]) -> "LossCurve":
        """The curve nearest to these (step, loss); one that never falls if there are too few."""
        if len(losses) < ENOUGH:
            return cls()
        steps = np.array([step for step, _ in losses])
        values = np.array([loss for _, loss in losses])
        scale = max(float(np.abs(steps).max()), 1.0)
        matrix = np.stack([steps / scale, np.ones(len(steps))], axis=1)
        best: LossCurve | None = None
        least = np.inf
        for share in range(TRIES):
            floor = float(values.min()) * share / TRIES
            above = values - floor
            if (above <= 0).any():
                continue
            weights = above**2  # errors of the loss, not of its inverse
            slope, offset = nonnegative(matrix * weights[:, None], weights / above)
            if slope <= 0 and offset <= 0:
                continue
            error = float(((1 / (matrix * [slope, offset]).sum(axis=1) - above) ** 2).sum())
            if error < least:
                least = error
                best = cls(slope / scale, offset, floor, float(steps[-1]))
        return best or cls()

    def at(self, step: float) -> float:
        """The loss after so many steps."""
        below = self.slope * step + self.offset
        return 1 / below + self.floor if below > 0 else np.inf

    def steps_left(self, converged: float) -> float | None:
        """Until what is above the floor is this part of what it was at first; None: unknown."""
        if self.slope <= 0 or self.offset <= 0:
            return None
        end = self.offset * (1 / converged - 1) / self.slope
        return max(0.0, end - self.step)


class WorkerSpeed(NamedTuple):
    """Seconds of a step with n workers: fixed + shared / n + each n."""

    fixed: float
    shared: float
    each: float
    batch: float

    @classmethod
    def of(cls, timings: Mapping[TimedShape, StepTime]) -> "WorkerSpeed | None":
        """The fit to what a job has told; None if it has told nothing."""
        if not timings:
            return None
        gpus = np.array([float(shape.gpus) for shape in timings])
        seconds = np.array([time.step_s for time in timings.values()])
        batch = [shape.batch for shape in timings][-1]
        terms = [np.ones(len(gpus))]
        if len(set(gpus.tolist())) > 1:
            terms += [1 / gpus, gpus]
        found = [*nonnegative(np.stack(terms, axis=1), seconds), 0.0, 0.0][:ENOUGH]
        return cls(float(found[0]), float(found[1]), float(found[2]), batch)

    def samples(self, gpus: float) -> float:
        """Per second with so many workers, each with the same batch."""
        return gpus * self.batch / (self.fixed + self.shared / gpus + self.each * gpus)


def amdahl(gpus: float, serial: float) -> float:
    """The speedup with so many GPUs of a job of which this part cannot be divided."""
    return 1 / (serial + (1 - serial) / gpus)
