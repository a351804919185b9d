"""What a job tells of itself while it trains: how long its steps take, how noisy its gradients are.

A simulated job tells what its rate model says at the beginning of each phase, a real one what it
passes to `rota.job.report`: the same names (`NAMES`), the same way into the policies
(`Job.timings` and `Job.learning`).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

NAMES = {
    "batch": "samples that one GPU takes in one pass",
    "accumulation": "passes before the one after which gradients are exchanged",
    "step_s": "seconds of a pass with the exchange of gradients",
    "sync_s": "seconds of it that are spent waiting for the exchange",
    "throughput": "samples per second of the whole job, if the seconds are not told",
    "grad_sqr": "squared norm of the gradient, at the initial batch",
    "grad_var": "variance of the gradient, at the initial batch",
    "loss": "the present loss",
    "step": "steps done",
    "init_batch": "samples per step with which the job would begin on one GPU",
    "max_batch": "most samples per step of the whole job",
    "min_local_batch": "fewest samples per GPU and pass",
    "max_local_batch": "most samples per GPU and pass (what fits the memory)",
}
"""What is understood, by name, with its meaning."""

POINTS = 512  # of a loss curve; then every other one is dropped


class TimedShape(NamedTuple):
    """With what a step was timed."""

    nodes: int
    gpus: float
    batch: float  # per GPU
    gpu_type: str = ""


class StepTime(NamedTuple):
    """Means over so many reports."""

    step_s: float
    sync_s: float = 0.0
    reports: int = 1


class Learning:
    """The training side of the hints: `numbers` has the last value of every name that was told."""

    __slots__ = ("losses", "numbers")

    def __init__(self) -> None:
        self.numbers: dict[str, float] = {}
        self.losses: list[tuple[float, float]] = []  # (step, loss), a thinned curve

    def get(self, name: str, default: float = 0.0) -> float:
        """The last value that was told."""
        return self.numbers.get(name, default)


NOTHING_TOLD = Learning()


class Hints:
    """All that one job has told so far."""

    __slots__ = ("learning", "timings")

    def __init__(self) -> None:
        self.timings: dict[TimedShape, StepTime] = {}
        self.learning = Learning()

    def take(self, values: Mapping[str, float], nodes: int, gpus: float, gpu_type: str) -> None:
        """Remember a report of a job that runs with this shape; names that mean nothing are kept.

        A report without a batch, or without any time, says nothing about shapes.
        """
        learning = self.learning
        learning.numbers.update(values)
        if "loss" in values:
            self._loss(values.get("step", float(len(learning.losses))), values["loss"])
        batch = learning.numbers.get("batch", 1.0)
        step_s = values.get("step_s", 0.0)
        if not step_s and values.get("throughput", 0.0) > 0:
            step_s = gpus * batch / values["throughput"]
        if step_s <= 0 or not gpus:
            return
        shape = TimedShape(nodes, gpus, batch, gpu_type)
        sync_s = values.get("sync_s", 0.0)
        known = self.timings.get(shape)
        if known is None:
            self.timings[shape] = StepTime(step_s, sync_s)
        elif (known.step_s, known.sync_s) != (step_s, sync_s):
            many = known.reports + 1
            self.timings[shape] = StepTime(
                known.step_s + (step_s - known.step_s) / many,
                known.sync_s + (sync_s - known.sync_s) / many,
                many,
            )

    def _loss(self, step: float, loss: float) -> None:
        losses = self.learning.losses
        losses.append((step, loss))
        if len(losses) > POINTS:
            del losses[1::2]

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> list[Any]:
        """As plain data."""
        return [
            [[list(shape), list(time)] for shape, time in self.timings.items()],
            dict(self.learning.numbers),
            [list(point) for point in self.learning.losses],
        ]

    @classmethod
    def restored(cls, state: list[Any]) -> "Hints":
        """From the state of `snapshot`."""
        hints = cls()
        timings, numbers, losses = state
        for shape, time in timings:
            hints.timings[TimedShape(*shape)] = StepTime(*time)
        hints.learning.numbers.update(numbers)
        hints.learning.losses.extend((step, loss) for step, loss in losses)
        return hints
