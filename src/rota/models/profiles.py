"""Applications that were measured: how long steps take, and how training goes on.

A folder has one folder for each application, in the layout of Pollux' and Sia's profiles (columns
are found by name):

| File | Columns |
| --- | --- |
| `placements[-TYPE].csv` | placement (GPUs on each node, a digit each) and, as below, times |
| `scalability[-TYPE].csv` | num_nodes, num_replicas, local_bsz, step_time, sync_time |
| `validation-BATCH.csv` | a row per epoch: progress, iteration, grad_sqr, grad_var |

The last two may be missing. TYPE is a GPU type; files without one are for any. A placement that was
measured is interpolated in the batch; any other in nodes, GPUs and batch over all that was measured
(SciPy, `rota[solve]`). Progress is in steps of the initial batch. Without validation files all
samples are worth the same, and the job is one epoch of 1,000 steps. Nothing of published profiles
is part of Rota; `rota profile` writes such a folder for a job of one's own.
"""

import csv
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import ceil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rota.core.errors import InputError
from rota.core.products import mixed, solved
from rota.core.sums import ordered_sum
from rota.models.goodput import (
    TINY,
    BatchLimits,
    Gradients,
    PerfParams,
    accumulate_s,
    fit_steps,
    gain,
    step_s,
)
from rota.models.science import scipy_module

Array = NDArray[np.float64]
Placement = tuple[int, ...]
"""GPUs on each node."""

EPOCHS = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
"""Epochs that the simulators of Pollux and Sia run of their applications; others run all."""
MOST_LOCAL = {"yolov3": 8}
"""Samples per GPU that Pollux' simulator allows, if fewer than were measured."""
MOST_NODES = 16  # of what was measured: more are taken for as many
ALONE_STEPS = 1_000.0  # of a job without validation files


class Convergence:
    """What does not depend on GPUs: progress by epoch, and gradients by batch and epoch.

    `levels` is the progress at which each epoch begins; the last one is the end.
    """

    def __init__(self, name: str, batches: Sequence[int], measured: Array, epochs: int) -> None:
        """`measured`: by batch and epoch the columns of validation files."""
        self.name = name
        self.batches = list(batches)
        self.epochs = epochs
        progress = measured[:, :, 0].min(axis=0)[:epochs]
        self.levels: list[float] = [0.0, *progress.tolist()]
        self._iterations, self._sqr, self._var = (measured[:, :, place] for place in (1, 2, 3))
        self._gradients: dict[tuple[int, int], Gradients] = {}

    @classmethod
    def read(cls, folder: Path) -> "Convergence | None":
        """From the validation files of an application; None: there are none."""
        tables = {}
        for path in sorted(folder.glob("validation-*.csv")):
            try:
                batch = int(path.stem.rpartition("-")[2])
            except ValueError as error:
                raise InputError(f"{path}: name it validation-BATCH.csv") from error
            tables[batch] = _table(path, ("progress", "iteration", "grad_sqr", "grad_var"))
        if not tables:
            return None
        batches = sorted(tables)
        recorded = min(len(table) for table in tables.values())
        measured = np.stack([tables[batch][:recorded] for batch in batches])
        epochs = min(EPOCHS.get(folder.name, recorded), recorded)
        return cls(folder.name, batches, measured, epochs)

    @classmethod
    def unknown(cls, name: str, least: int, most: int) -> "Convergence":
        """Any sample is worth the same; batches per GPU are from `least` to `most`."""
        batches = (least, 64 * most)
        rows = [[[ALONE_STEPS, ALONE_STEPS * least / batch, 0.0, 1.0]] for batch in batches]
        return cls(name, batches, np.array(rows), 1)

    @property
    def init_batch(self) -> int:
        """The smallest batch that was validated."""
        return self.batches[0]

    @property
    def max_batch(self) -> int:
        """The largest one."""
        return self.batches[-1]

    def gradients(self, batch: float, epoch: int) -> Gradients:
        """Squared norm and variance of gradients in an epoch, linear between batches."""
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

    def _between(self, table: Array, batch: float, epoch: int) -> float:
        place = bisect_right(self.batches, batch) - 1
        if place < 0 or batch > self.batches[-1]:
            raise InputError(
                f"profile {self.name}: a batch of {batch:g} was never recorded, only "
                f"{self.batches[0]} to {self.batches[-1]}: give a batch in this range"
            )
        low = self.batches[place]
        if low == batch:
            return float(table[place, epoch])
        high = self.batches[place + 1]
        above, below = table[place + 1, epoch], table[place, epoch]
        return float(((batch - low) * above + (high - batch) * below) / (high - low))


class Between:
    """Linear between points in space, by tetrahedra.

    SciPy says which of them holds a place. What is there follows from its corners without SciPy,
    which would ask a linear algebra library: the digits would depend on the processor.
    """

    def __init__(self, mesh: Any, where: Array, what: Array) -> None:
        self._mesh, self._where, self._what = mesh, where, what

    def at(self, place: Array) -> list[float] | None:
        """What is there; None: it lies outside."""
        number = int(self._mesh.find_simplex(place))
        if number < 0:
            return None
        corners = self._mesh.simplices[number]
        last = self._where[corners[-1]]
        edges = (self._where[corners[:-1]] - last).T
        parts = solved(edges, (place - last)[:, None])[:, 0]
        weights = np.append(parts, 1 - parts.sum())
        return [float(each) for each in mixed(weights, self._what[corners])]


class StepTimes:
    """How long steps of one application take on GPUs of one type."""

    def __init__(self, name: str, placed: Mapping[str, Array], scaled: Array) -> None:
        """`placed`: by placement rows of batch, step, sync; `scaled`: nodes and GPUs before."""
        self.name = name
        self.strict = False
        """Whether a measured placement with a batch that was not is refused, or interpolated."""
        self.placed = placed
        self._scaled = scaled
        batches = np.concatenate([rows[:, 0] for rows in placed.values()])
        self.min_batch, self.max_batch = int(batches.min()), int(batches.max())
        self.node_gpus = max(int(digits) for digits in placed if len(digits) == 1)
        """The most GPUs of one node that were measured."""
        self._most: dict[int, float] = {}  # by GPUs, wherever they are
        for digits, rows in placed.items():
            gpus = sum(map(int, digits))
            self._most[gpus] = max(self._most.get(gpus, 0.0), float(rows[:, 0].max()))
        self._known: dict[tuple[Placement, float], tuple[float, float]] = {}
        self._space: Between | None = None
        self._looked = False
        self._model: PerfParams | None = None

    def most_on(self, gpus: int) -> float:
        """The largest batch per GPU that was measured on so many GPUs; infinite: none was."""
        return self._most.get(gpus, float("inf"))

    def most_at(self, placement: Placement) -> float:
        """The largest batch per GPU that fits in this placement, as far as is known."""
        rows = self.placed.get(digits_of(placement))
        if rows is not None:
            return float(rows[:, 0].max())
        nodes, gpus = len(placement), sum(placement)
        larger = self._scaled[(self._scaled[:, 0] >= nodes) & (self._scaled[:, 1] >= gpus)]
        return float(larger[:, 2].max()) if len(larger) else float(self.max_batch)

    def times(self, placement: Placement, batch: float) -> tuple[float, float]:
        """Seconds of a step, and those of it in which GPUs wait for gradients.

        Linear between the measured batches of the placement. One that was not measured lies between
        others in nodes, GPUs and batch.
        """
        key = (placement, batch)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._times(placement, batch)
        return found

    def _times(self, placement: Placement, batch: float) -> tuple[float, float]:
        rows = self.placed.get(digits_of(placement))
        if rows is not None and self.strict and not rows[0, 0] <= batch <= rows[-1, 0]:
            raise self._beyond(placement, batch)
        if rows is not None and rows[0, 0] <= batch <= rows[-1, 0]:
            return _interpolated(rows.tolist(), batch)
        if not self._looked:
            self._space, self._looked = self._interpolator(), True
        at = np.array([min(len(placement), MOST_NODES), ordered_sum(placement), batch], float)
        found = self._space.at(at) if self._space is not None else None
        if found is None:
            raise self._beyond(placement, batch)
        step_s, sync_s = found
        return step_s, sync_s

    def predicted(self, placement: Placement, batch: float) -> tuple[float, float]:
        """The same where something near was measured; elsewhere the throughput model says it.

        It is fitted to all that was measured (`rota.models.goodput`).
        """
        try:
            return self.times(placement, batch)
        except InputError:
            if self._model is None:
                rows = [
                    (nodes, float(gpus), size, float(step - sync), float(step))
                    for (nodes, gpus, size), times in sorted(self.spots().items())
                    for step, sync in times
                ]
                self._model = fit_steps(tuple(rows), warm=True)
            alone = accumulate_s(self._model, batch)
            step = step_s(self._model, len(placement), ordered_sum(placement), batch)
            return step, step - alone

    def _beyond(self, placement: Placement, batch: float) -> InputError:
        return InputError(
            f"{self.name}: nothing was measured near {sum(placement)} GPUs on {len(placement)} "
            f"nodes ({digits_of(placement)}) with a batch of {batch:g} per GPU: choose a size or a "
            f"batch within what was measured ({self.min_batch} to {self.max_batch} per GPU), or "
            "other GPUs"
        )

    def spots(self) -> dict[tuple[int, int, float], list[Array]]:
        """Times by nodes, GPUs and batch, between which placements are interpolated."""
        rows: dict[tuple[int, int, float], list[Array]] = {}
        for digits, measured in self.placed.items():
            nodes, gpus = len(digits), sum(map(int, digits))
            for batch, *times in measured.tolist():
                rows.setdefault((nodes, gpus, batch), []).append(np.array(times))
        return rows

    def _interpolator(self) -> "Between | None":
        rows = self.spots()
        points = sorted(rows)
        where = np.vstack([np.array(points, float), self._scaled[:, :3]])
        what = np.vstack([*(np.mean(rows[point], axis=0) for point in points), self._scaled[:, 3:]])
        spatial = scipy_module("spatial", "interpolating placements that were not measured")
        try:
            return Between(spatial.Delaunay(where), where, what)
        except spatial.QhullError:  # all of them are alike in something: nothing lies between them
            return None

    @property
    def alone(self) -> float:
        """Samples per second of one GPU: the largest batch in the longest step."""
        rows = self.placed["1"]
        return float(rows[:, 0].max() / rows[:, 1].max())


def digits_of(placement: Placement) -> str:
    """As the files name it: nodes in a circle begin where the digits are smallest."""
    turns = (placement[place:] + placement[:place] for place in range(len(placement)))
    return "".join(map(str, min(turns)))


class ProfileFolder:
    """A folder of profiles; files are read when they are asked for, once."""

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise InputError(f"{path} is no folder: give one with profiles of applications")
        self.path = path
        self._learning: dict[str, Convergence] = {}
        self._steps: dict[tuple[str, str], StepTimes] = {}

    @property
    def applications(self) -> list[str]:
        """Names of those that it has."""
        return sorted(each.name for each in self.path.iterdir() if each.is_dir())

    def learning(self, application: str) -> Convergence:
        """How an application converges."""
        found = self._learning.get(application)
        if found is None:
            found = Convergence.read(self._folder(application))
            if found is None:
                steps = self.steps(application, next(iter(self.types(application)), ""))
                found = Convergence.unknown(application, steps.min_batch, steps.max_batch)
            self._learning[application] = found
        return found

    def steps(self, application: str, gpu_type: str = "") -> StepTimes:
        """How long its steps take on a type; a folder without types is for any."""
        found = self._steps.get((application, gpu_type))
        if found is None:
            known = self.types(application)
            if known and not gpu_type:
                raise InputError(
                    f"{self._folder(application)} tells GPU types apart ({', '.join(known)}), but "
                    "the cluster does not say which it has: give its nodes types, e.g. --cluster "
                    f"4x4:{known[0]}"
                )
            found = self.read(application, gpu_type if known else "")
            self._steps[application, gpu_type] = found
        return found

    def types(self, application: str) -> list[str]:
        """GPU types with a profile of the application."""
        names = (path.stem for path in self._folder(application).glob("placements-*.csv"))
        return sorted(name.partition("-")[2] for name in names)

    def _folder(self, application: str) -> Path:
        folder = self.path / application
        if not folder.is_dir():
            known = ", ".join(self.applications)
            raise InputError(
                f"{self.path} has no profile of {application!r}, only of {known or 'nothing'}: "
                "give the folder that belongs to the workload"
            )
        return folder

    def read(
        self, application: str, gpu_type: str = "", kind: type[StepTimes] = StepTimes
    ) -> StepTimes:
        """From the files for one type, or from those without."""
        folder = self._folder(application)
        suffix = f"-{gpu_type}" if gpu_type else ""
        path = folder / f"placements{suffix}.csv"
        if not path.exists():
            known = ", ".join(self.types(application))
            told = f"it knows the GPU types {known}" if known else "a profile begins with this file"
            raise InputError(f"{folder} has no {path.name}: {told}")
        placed: dict[str, list[list[float]]] = {}
        times = ("local_bsz", "step_time", "sync_time")
        for digits, row in zip(
            _texts(path, "placement"), _table(path, times).tolist(), strict=True
        ):
            placed.setdefault(digits, []).append(row)
        if "1" not in placed:
            raise InputError(f"{path} has no placement 1: a profile begins with a single GPU")
        more = folder / f"scalability{suffix}.csv"
        columns = ("num_nodes", "num_replicas", *times)
        scaled = _table(more, columns) if more.exists() else np.zeros((0, len(columns)))
        return kind(
            f"profile {application}" + (f" on {gpu_type}" if gpu_type else ""),
            {digits: np.array(sorted(rows)) for digits, rows in placed.items()},
            scaled,
        )


@lru_cache(maxsize=8)
def load_profiles(path: str) -> ProfileFolder:
    """The profiles of a folder, shared by all who ask for it."""
    return ProfileFolder(Path(path))


class ApplicationProfile:
    """One application on GPUs of any type, as Pollux' simulator sees it: steps and training."""

    def __init__(self, folder: Path, kind: type[StepTimes] = StepTimes) -> None:
        profiles = load_profiles(str(folder.parent))
        self.name = folder.name
        self.steps = steps = profiles.read(folder.name, "", kind)
        steps.strict = True
        self.node_gpus = steps.node_gpus
        most = int(min(steps.max_batch, MOST_LOCAL.get(self.name, steps.max_batch)))
        self.training = Convergence.read(folder) or Convergence.unknown(
            self.name, steps.min_batch, most
        )
        self.batches, self.epochs = self.training.batches, self.training.epochs
        self.progress = self.training.levels
        """Steps of the initial batch that are done when so many epochs are."""
        self.limits = BatchLimits(self.batches[0], self.batches[-1], steps.min_batch, most)
        self.gradients = self.training.gradients
        self.iterations = self.training.iterations
        self.times = steps.times

    @property
    def total(self) -> float:
        """Steps of the initial batch in all."""
        return self.progress[self.epochs]

    def epoch_at(self, progress: float) -> int:
        """Which epoch (from 0) is under way when so many steps of the initial batch are done."""
        return min(bisect_right(self.progress, progress) - 1, self.epochs - 1)

    def divided(self, samples: float, replicas: int) -> tuple[int, int]:
        """Samples per GPU and pass, and passes that accumulate, for a step of so many samples."""
        batch, passes = divided(samples, replicas, self.limits.local_most, self.limits.init)
        return self.bounded(replicas, batch, passes), passes

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

    def seconds(self, gpus: int, batch: int) -> float:
        """From the beginning to the end with so many GPUs, packed, and a step of so many samples.

        It follows the epochs.
        """
        placement = self.packed(gpus)
        local, passes = self.divided(batch, gpus)
        return ordered_sum(
            (self.progress[epoch + 1] - self.progress[epoch])
            / self.goodput(placement, local, passes, epoch)
            for epoch in range(self.epochs)
        )


@lru_cache(maxsize=64)
def application(folder: Path) -> ApplicationProfile:
    """Read once."""
    return ApplicationProfile(folder)


class MeasuredTraining(msgspec.Struct, frozen=True):
    """What a reader knows of a job that trains as profiles say: `Behaviour.training`.

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

    @property
    def profile(self) -> ApplicationProfile:
        """Its application on GPUs of any type."""
        return application(Path(self.profiles) / self.application)

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
            gradients = learning.gradients(among, epoch)
            goodput = gain(gradients, among / learning.init_batch) / (
                step_s + (step_s - sync_s) * passes
            )
            took_s += (learning.levels[epoch + 1] - learning.levels[epoch]) / goodput
        return took_s


@lru_cache(maxsize=4096)
def alone_s(training: MeasuredTraining, gpus: int, gpu_type: str) -> float:
    """`MeasuredTraining.alone_s`, reckoned once."""
    return training.alone_s(gpus, gpu_type)


def divided(samples: float, gpus: int, most: float, init: int) -> tuple[int, int]:
    """A batch divided among GPUs: samples per GPU and pass, and passes that only accumulate."""
    local = ceil(samples / gpus - TINY)
    passes = ceil(local / most - TINY) - 1
    if gpus == 1 and samples > init:
        passes = max(1, passes)  # one GPU needs two passes to tell how noisy its gradients are
    return ceil(local / (passes + 1) - TINY), passes


def _interpolated(points: list[list[float]], batch: float) -> tuple[float, float]:
    at = bisect_right(points, [batch, float("inf")]) - 1
    low, step, sync = points[at]
    if low == batch or at + 1 == len(points):
        return step, sync
    high, step_high, sync_high = points[at + 1]
    slope = (batch - low) / (high - low)
    return step + (step_high - step) * slope, sync + (sync_high - sync) * slope


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: no profile can be read ({error})") from error


def _texts(path: Path, name: str) -> list[str]:
    return [row[name] for row in _rows(path)]


def _table(path: Path, names: Sequence[str]) -> Array:
    rows = _rows(path)
    try:
        return np.array([[float(row[name]) for name in names] for row in rows])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: {error!r}: a profile has the columns {', '.join(names)} with numbers"
        ) from error
