"""Applications that were measured: step times by placement and batch, and how training goes on.

A folder in the layout of Pollux' profiles has one folder per application with

| File | Columns |
| --- | --- |
| `placements.csv` | placement (GPUs on each node, a digit each), local_bsz, step_time, sync_time |
| `scalability.csv` (may be missing) | num_nodes, num_replicas, local_bsz, step_time, sync_time |
| `validation-<batch>.csv` (may be missing) | progress, iteration, grad_sqr, grad_var; epochs |

A placement that was measured is interpolated in the batch; any other in nodes, GPUs and batch over
all that was measured (SciPy, `rota[solve]`). Progress is in steps of the initial batch. Without
validation files all samples are worth the same, and the job is one epoch of 1,000 steps.
"""

import csv
from bisect import bisect_right
from functools import lru_cache
from math import ceil
from pathlib import Path
from typing import Any

import msgspec

from rota.core.errors import InputError
from rota.models.goodput import TINY, BatchLimits, Gradients, gain
from rota.models.science import scipy_module

Placement = tuple[int, ...]
"""GPUs on each node."""
Table = list[list[float]]

EPOCHS = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
"""Epochs that Pollux' simulator runs of its applications; others run all that were recorded."""
MOST_LOCAL = {"yolov3": 8}
"""Samples per GPU that it allows, if fewer than were measured."""
MOST_NODES = 16  # of what was measured: more are taken for as many
ALONE_STEPS = 1_000.0  # of a job without validation files


class ApplicationProfile:
    """One application, as it was measured."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        placements = _rows(folder / "placements.csv")
        scalability = folder / "scalability.csv"
        self._by_placement: dict[str, list[tuple[float, float, float]]] = {}
        shapes: dict[tuple[int, int, float], list[tuple[float, float]]] = {}
        for row in placements:
            digits, batch = row["placement"], _number(row, "local_bsz", folder)
            time = (_number(row, "step_time", folder), _number(row, "sync_time", folder))
            self._by_placement.setdefault(digits, []).append((batch, *time))
            shape = (len(digits), sum(map(int, digits)), batch)
            shapes.setdefault(shape, []).append(time)
        for points in self._by_placement.values():
            points.sort()
        self._points: list[tuple[float, float, float]] = []
        self._times: list[tuple[float, float]] = []
        for at in sorted(shapes):
            many = shapes[at]
            self._points.append(at)
            self._times.append(
                (sum(step for step, _ in many) / len(many), sum(s for _, s in many) / len(many))
            )
        for row in _rows(scalability) if scalability.exists() else ():
            nodes, gpus, batch = (
                _number(row, name, folder) for name in ("num_nodes", "num_replicas", "local_bsz")
            )
            self._points.append((nodes, gpus, batch))
            self._times.append(
                (_number(row, "step_time", folder), _number(row, "sync_time", folder))
            )
        batches = [points[0][0] for points in self._by_placement.values()]
        tops = [points[-1][0] for points in self._by_placement.values()]
        self.node_gpus = max(int(digit) for digits in self._by_placement for digit in digits)
        local_most = int(min(max(tops), MOST_LOCAL.get(self.name, max(tops))))
        self._interpolator: Any = None
        self._known: dict[tuple[Placement, int], tuple[float, float]] = {}
        self._gradients: dict[tuple[int, int], Gradients] = {}
        self._read_training(folder, int(min(batches)), local_most)

    def _read_training(self, folder: Path, local_least: int, local_most: int) -> None:
        found = {
            int(file.stem.rpartition("-")[2]): _rows(file)
            for file in folder.glob("validation-*.csv")
        }
        self.batches = sorted(found) or [local_least, 64 * local_most]
        self.limits = BatchLimits(self.batches[0], self.batches[-1], local_least, local_most)
        if not found:
            self._sqr, self._var = [[0.0], [0.0]], [[1.0], [1.0]]  # any sample is worth the same
            self._iterations = [[ALONE_STEPS], [ALONE_STEPS * self.batches[0] / self.batches[1]]]
            self.progress = [0.0, ALONE_STEPS]
            self.epochs = 1
            return
        recorded = min(len(rows) for rows in found.values())
        self.epochs = min(EPOCHS.get(self.name, recorded), recorded)

        def column(name: str) -> Table:
            return [
                [_number(row, name, folder) for row in found[batch][:recorded]]
                for batch in self.batches
            ]

        self._sqr, self._var = column("grad_sqr"), column("grad_var")
        self._iterations = column("iteration")
        least = [min(at) for at in zip(*column("progress"), strict=True)]
        self.progress = [0.0, *least]
        """Steps of the initial batch that are done when so many epochs are."""

    @property
    def total(self) -> float:
        """Steps of the initial batch in all."""
        return self.progress[self.epochs]

    def epoch_at(self, progress: float) -> int:
        """Which epoch (from 0) is under way when so many steps of the initial batch are done."""
        return min(bisect_right(self.progress, progress) - 1, self.epochs - 1)

    def gradients(self, batch: float, epoch: int) -> Gradients:
        """Interpolated between the batches that were recorded."""
        key = (int(batch), epoch)
        known = self._gradients.get(key)
        if known is None:
            known = self._gradients[key] = Gradients(
                self._between(self._sqr, batch, epoch), self._between(self._var, batch, epoch)
            )
        return known

    def iterations(self, batch: float, epoch: int) -> float:
        """Steps of this batch until the end of an epoch (from 0)."""
        return self._between(self._iterations, batch, epoch)

    def _between(self, table: Table, batch: float, epoch: int) -> float:
        at = bisect_right(self.batches, batch) - 1
        if at < 0 or batch > self.batches[-1]:
            raise InputError(
                f"profile {self.name}: a batch of {batch:g} was never recorded, only "
                f"{self.batches[0]} to {self.batches[-1]}: give a batch in this range"
            )
        low = self.batches[at]
        if low == batch:
            return table[at][epoch]
        high = self.batches[at + 1]
        upper, lower = (batch - low) * table[at + 1][epoch], (high - batch) * table[at][epoch]
        return (upper + lower) / (high - low)

    def times(self, placement: Placement, batch: int) -> tuple[float, float]:
        """Seconds of a step and, of these, of waiting for others, with this batch per GPU."""
        key = (placement, batch)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._timed(placement, batch)
        return known

    def _timed(self, placement: Placement, batch: int) -> tuple[float, float]:
        turned = min(placement[i:] + placement[:i] for i in range(len(placement)))
        points = self._by_placement.get("".join(map(str, turned)))
        if points is not None and points[0][0] <= batch <= points[-1][0]:
            return _interpolated(points, batch)
        found = None
        if points is None:
            found = self._anywhere(len(turned), sum(turned), batch)
        if found is None:
            raise InputError(
                f"profile {self.name}: nothing was measured near {sum(placement)} GPUs on "
                f"{len(placement)} nodes with a batch of {batch} per GPU: choose a size or a batch "
                f"within what was measured ({self.limits.local_least} to {self.limits.local_most} "
                "per GPU)"
            )
        return found

    def _anywhere(self, nodes: int, gpus: int, batch: int) -> tuple[float, float] | None:
        if self._interpolator is None:
            scipy = scipy_module("interpolate", "interpolating placements that were not measured")
            self._interpolator = scipy.LinearNDInterpolator(self._points, self._times)
        step, sync = self._interpolator([[min(nodes, MOST_NODES), gpus, batch]])[0]
        return (float(step), float(sync)) if step == step else None  # noqa: PLR0124 - not a number

    def divided(self, samples: float, replicas: int) -> tuple[int, int]:
        """Samples per GPU and pass, and passes that accumulate, for a step of so many samples."""
        limits = self.limits
        local = ceil(samples / replicas - TINY)
        passes = ceil(local / limits.local_most - TINY) - 1
        if replicas == 1 and samples > limits.init:
            passes = max(1, passes)
        return self.bounded(replicas, ceil(local / (passes + 1) - TINY), passes), passes

    def bounded(self, replicas: int, batch: int, passes: int) -> int:
        """Samples per GPU and pass, so that a step has no more than were recorded."""
        return min(batch, int(self.limits.most / (replicas * (passes + 1))))

    def goodput(self, placement: Placement, batch: int, passes: int, epoch: int) -> float:
        """Steps of the initial batch per second."""
        step, sync = self.times(placement, batch)
        samples = sum(placement) * batch * (passes + 1)
        worth = gain(self.gradients(samples, epoch), samples / self.limits.init)
        return worth / (step + (step - sync) * passes)

    def packed(self, gpus: int) -> Placement:
        """So many GPUs on as few nodes as possible."""
        whole, rest = divmod(gpus, self.node_gpus)
        return (self.node_gpus,) * whole + ((rest,) if rest else ())


class ProfiledTraining(msgspec.Struct, frozen=True):
    """How a simulated job trains: `Behaviour.training`, read by rate models."""

    profile: ApplicationProfile
    batch: int
    """Samples per step that its user chose."""

    def seconds(self, gpus: int) -> float:
        """From the beginning to the end with so many GPUs, packed, and the user's batch."""
        profile, placement = self.profile, self.profile.packed(gpus)
        batch, passes = profile.divided(self.batch, gpus)
        return sum(
            (profile.progress[epoch + 1] - profile.progress[epoch])
            / profile.goodput(placement, batch, passes, epoch)
            for epoch in range(profile.epochs)
        )


def _interpolated(points: list[tuple[float, float, float]], batch: float) -> tuple[float, float]:
    at = bisect_right(points, (batch, float("inf"))) - 1
    low, step, sync = points[at]
    if low == batch or at + 1 == len(points):
        return step, sync
    high, step_high, sync_high = points[at + 1]
    slope = (batch - low) / (high - low)
    return step + (step_high - step) * slope, sync + (sync_high - sync) * slope


def _rows(file: Path) -> list[dict[str, str]]:
    try:
        with file.open(newline="") as text:
            return list(csv.DictReader(text))
    except OSError as error:
        raise InputError(
            f"profile {file}: cannot be read ({error.strerror}): name a folder with one folder "
            "per application"
        ) from error


def _number(row: dict[str, str], name: str, folder: Path) -> float:
    try:
        return float(row[name])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"profile {folder}: {name} is {row.get(name)!r}: give a number in every row"
        ) from error


@lru_cache(maxsize=64)
def application(folder: Path) -> ApplicationProfile:
    """Read once."""
    return ApplicationProfile(folder)
