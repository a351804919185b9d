"""How a training job of DeepBoot's simulator gets on: Pollux' epochs, with delays of its own."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rota.models.goodput import GoodputTable, Gradients, fit_steps, gain, goodput_table
from rota.models.profiles import ApplicationProfile, Array, StepTimes, divided

DELAY_S = {"bert": 103, "cifar10": 24, "ncf": 25, "deepspeech2": 18, "yolov3": 26, "imagenet": 35}
"""Without progress at every change of a placement."""
AGAIN_S = {"bert": 5, "cifar10": 3, "ncf": 2, "deepspeech2": 1, "yolov3": 3, "imagenet": 3}
"""What is left of it when containers are reused (AFE)."""
NODE_GPUS = 4
MOST = 64  # GPUs of a job


class BootSteps(StepTimes):
    """Step times as the simulator reads them: with nodes of 8 GPUs that were never measured.

    Its file has every placement a second time, with 4 more GPUs on each node and the same times.
    They are not looked up, but placements that were not measured are interpolated between them.
    """

    def spots(self) -> dict[tuple[int, int, float], list[Array]]:
        """Every placement twice."""
        shapes: dict[tuple[int, int, float], list[Array]] = {}
        for digits, rows in self.placed.items():
            for more in (0, NODE_GPUS * len(digits)):
                for batch, *times in rows.tolist():
                    shape = (len(digits), sum(map(int, digits)) + more, batch)
                    shapes.setdefault(shape, []).append(np.array(times))
        return shapes


@lru_cache(maxsize=16)
def boot_profile(folder: Path) -> ApplicationProfile:
    """Read once."""
    return ApplicationProfile(folder, BootSteps)


def packed(gpus: int) -> tuple[int, ...]:
    """So many GPUs on as few nodes as possible."""
    full, rest = divmod(gpus, NODE_GPUS)
    return (NODE_GPUS,) * full + ((rest,) if rest else ())


class DeepBootTrainee:
    """Progress of one job, in steps of the initial batch; `batch` None: it is tuned."""

    def __init__(self, profile: ApplicationProfile, batch: int | None, submit_s: float) -> None:
        self.profile = profile
        self.batch = batch
        self.submit_s = submit_s
        self.placement: tuple[int, ...] = ()
        self.local, self.passes = 0, 0  # samples per GPU and pass, and passes before the exchange
        self.progress, self.epoch = 0.0, 0
        self.delay_s = 0
        self.restarts: int | None = None
        self.attained = 0.0
        self.done_s: float | None = None
        self.timings: dict[tuple[int, int, int], tuple[float, float]] = {}
        self.gradients: Gradients | None = None
        self._foreseen: dict[int, tuple[float, int]] = {}

    # --- what it is given -------------------------------------------------------------------------

    def move(self, placement: Sequence[int], *, reuse: bool) -> None:
        """It is started, moved or stopped."""
        before, self.placement = self.placement, tuple(placement)
        if not placement:
            self.local = 0
            return
        self.retune()
        first, again = DELAY_S[self.profile.name], AGAIN_S[self.profile.name]
        self.delay_s = first
        if reuse and before:
            more = sum(placement) - sum(before)
            if more > 0:
                self.delay_s = again + (first - again) * more // sum(placement)
            elif more < 0:
                self.delay_s = again
        self.restarts = 0 if self.restarts is None else self.restarts + 1

    def retune(self) -> None:
        """Choose samples per pass and passes for what it holds."""
        limits, gpus = self.profile.limits, sum(self.placement)
        if not gpus:
            return
        table = self.table if self.batch is None else None
        if table is not None:
            best = table.best(len(self.placement), gpus)
            self.local, self.passes = best.batch, best.accumulation
        else:
            batch = self.batch or max(limits.init, limits.local_least * gpus)
            self.local, self.passes = divided(batch, gpus, limits.local_most, limits.init)
        self.local = min(self.local, int(limits.most / (gpus * (self.passes + 1))))

    @property
    def table(self) -> GoodputTable | None:
        """What its own measurements predict; None: there are none yet."""
        if self.gradients is None:
            return None
        points = tuple(
            (nodes, float(gpus), float(local), step_s - sync_s, step_s)
            for (nodes, gpus, local), (step_s, sync_s) in self.timings.items()
        )
        return goodput_table(fit_steps(points), self.gradients, self.profile.limits, MOST)

    # --- what it does -----------------------------------------------------------------------------

    def step(self, now_s: float, seconds: int) -> None:
        """So many seconds from now on; epochs end at whole seconds."""
        if not self.placement:
            return
        delay = min(self.delay_s, seconds)
        gpus = sum(self.placement)
        self.attained += delay * gpus
        self.delay_s -= delay
        now_s += delay
        seconds -= delay
        while seconds > 0 and self.done_s is None:
            goodput = self._goodput()
            until = self.profile.progress[self.epoch + 1]
            if self.progress + goodput * seconds < until:
                self.progress += goodput * seconds
                self.attained += seconds * gpus
                seconds = 0
            else:
                took = round((until - self.progress) / goodput)
                self.epoch += 1
                self.progress = until
                now_s += took
                seconds -= took
                self.attained += took * gpus
                if self.epoch >= self.profile.epochs:
                    self.done_s = now_s
            self.retune()

    def _goodput(self) -> float:
        """Steps of the initial batch per second."""
        profile, gpus = self.profile, sum(self.placement)
        batch = gpus * self.local * (self.passes + 1)
        step_s, sync_s = profile.times(self.placement, self.local)
        gradients = self.gradients = profile.gradients(batch, self.epoch)
        self.timings.setdefault((len(self.placement), gpus, self.local), (step_s, sync_s))
        worth = gain(gradients, batch / profile.limits.init)
        return worth / (step_s + (step_s - sync_s) * self.passes)

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> list[Any]:
        """As plain data."""
        return [
            self.placement, self.local, self.passes, self.progress, self.epoch, self.delay_s,
            self.restarts, self.attained, self.done_s,
            [[*shape, *times] for shape, times in self.timings.items()], self.gradients,
        ]  # fmt: skip

    def restore(self, state: Sequence[Any]) -> None:
        """Take the state of `snapshot` up again."""
        (
            placement, self.local, self.passes, self.progress, self.epoch, self.delay_s,
            self.restarts, self.attained, self.done_s, timings, gradients,
        ) = state  # fmt: skip
        self.placement = tuple(placement)
        self.timings = {
            (nodes, gpus, local): (step_s, sync_s) for nodes, gpus, local, step_s, sync_s in timings
        }
        self.gradients = None if gradients is None else Gradients(*gradients)

    # --- what policies foresee --------------------------------------------------------------------

    def foreseen(self, gpus: int) -> tuple[float, int]:
        """Seconds and samples of a step on so many GPUs."""
        known = self._foreseen.get(gpus)
        if known is None:
            limits = self.profile.limits
            # on one GPU always two passes at least, even with the initial batch
            local, passes = divided(self.batch or limits.init, gpus, limits.local_most, 0)
            local = min(local, int(limits.most / (gpus * (passes + 1))))
            step_s, sync_s = self.profile.times(packed(gpus), local)
            known = (step_s + (step_s - sync_s) * passes, local * gpus * (passes + 1))
            self._foreseen[gpus] = known
        return known

    def divides(self, gpus: int) -> bool:
        """Are there enough samples for so many GPUs? The simulator would end with an error."""
        limits = self.profile.limits
        local, _ = divided(self.batch or limits.init, gpus, limits.local_most, limits.init)
        return local >= limits.local_least

    def throughput(self, gpus: int) -> float:
        """Samples per second on so many GPUs."""
        if not gpus:
            return 0.0
        seconds, samples = self.foreseen(gpus)
        return samples / seconds

    @property
    def left(self) -> float:
        """Steps with its batch up to the last epoch but one; 1 at the end."""
        last = self.profile.epochs - 1
        if last <= self.epoch:
            return 1.0
        batch = self.batch or self.profile.limits.init
        return self.profile.iterations(batch, last) - self.profile.iterations(batch, self.epoch)
