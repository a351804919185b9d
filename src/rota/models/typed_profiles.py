"""Measured training: how long steps take and how noisy gradients are (Pollux's and Sia's folders).

A folder has one folder for each application, with these files (columns are found by name):

- `placements[-TYPE].csv`: placement (digits: GPUs on each node), local_bsz, step_time, sync_time;
- `scalability[-TYPE].csv`: num_nodes, num_replicas, local_bsz, step_time, sync_time;
- `validation-BATCH.csv`: one row per epoch: progress (in iterations of the initial batch),
  iteration, grad_sqr, grad_var.

TYPE is a GPU type; without one there is a single type. Nothing of these data is part of Rota.
"""

import csv
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rota.core.errors import InputError
from rota.models.science import scipy_module

Array = NDArray[np.float64]
Placement = tuple[int, ...]
"""GPUs on each node."""

EPOCHS = {
    "bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50,
}  # fmt: skip
"""How long both simulators train the applications; another one trains as long as was measured."""
MOST_NODES = 16  # no measurement has more


class Convergence:
    """What does not depend on GPUs: progress by epoch, and gradients by batch and epoch."""

    def __init__(self, folder: Path) -> None:
        tables = {}
        for path in sorted(folder.glob("validation-*.csv")):
            try:
                batch = int(path.stem.rpartition("-")[2])
            except ValueError as error:
                raise InputError(f"{path}: name it validation-BATCH.csv") from error
            tables[batch] = _table(path, ("progress", "iteration", "grad_sqr", "grad_var"))
        if not tables:
            raise InputError(
                f"{folder} has no validation-BATCH.csv: give a folder with one folder of profiles "
                "for each application"
            )
        self.batches = sorted(tables)
        epochs = min(len(table) for table in tables.values())
        measured = np.stack([tables[batch][:epochs] for batch in self.batches])
        self.epochs = min(EPOCHS.get(folder.name, epochs), epochs)
        progress = measured[:, :, 0].min(axis=0)[: self.epochs]
        self.levels: list[float] = [0.0, *progress.tolist()]
        """The progress at which each epoch begins; the last one is the end."""
        self._iterations, self._sqr, self._var = (measured[:, :, place] for place in (1, 2, 3))

    @property
    def init_batch(self) -> int:
        """The smallest batch that was validated."""
        return self.batches[0]

    @property
    def max_batch(self) -> int:
        """The largest one."""
        return self.batches[-1]

    def gradients(self, batch: float, epoch: int) -> tuple[float, float]:
        """Squared norm and variance of gradients in an epoch, linear between batches."""
        return self._between(self._sqr, batch, epoch), self._between(self._var, batch, epoch)

    def iterations(self, batch: float, epoch: int) -> float:
        """After so many epochs and one."""
        return self._between(self._iterations, batch, epoch)

    def _between(self, table: Array, batch: float, epoch: int) -> float:
        place = max(place for place, known in enumerate(self.batches) if known <= batch)
        low = self.batches[place]
        if low == batch:
            return float(table[place, epoch])
        high = self.batches[place + 1]
        above, below = table[place + 1, epoch], table[place, epoch]
        return float(((batch - low) * above + (high - batch) * below) / (high - low))


class StepTimes:
    """How long steps of one application take on GPUs of one type."""

    def __init__(self, name: str, placed: Mapping[str, Array], scaled: Array) -> None:
        """`placed`: by placement rows of batch, step, sync; `scaled`: nodes and GPUs before."""
        self.name = name
        self._placed = placed
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
        self._space: Any = None

    def most_on(self, gpus: int) -> float:
        """The largest batch per GPU that was measured on so many GPUs; infinite: none was."""
        return self._most.get(gpus, float("inf"))

    def most_at(self, placement: Placement) -> float:
        """The largest batch per GPU that fits in this placement, as far as is known."""
        rows = self._placed.get(digits_of(placement))
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
        rows = self._placed.get(digits_of(placement))
        if rows is not None and rows[0, 0] <= batch <= rows[-1, 0]:
            step_s, sync_s = (np.interp(batch, rows[:, 0], rows[:, place]) for place in (1, 2))
            return float(step_s), float(sync_s)
        if self._space is None:
            self._space = self._interpolator()
        at = [min(len(placement), MOST_NODES), sum(placement), batch]
        step_s, sync_s = self._space(at)[0]
        if np.isnan(step_s):
            raise InputError(
                f"{self.name}: no measurement tells how long steps take with {batch:g} samples on "
                f"each GPU of {digits_of(placement)}: the profile does not reach so far, so use a "
                "cluster with other GPUs, or a smaller batch or number of GPUs"
            )
        return float(step_s), float(sync_s)

    def _interpolator(self) -> Any:
        purpose = "interpolating placements that were not measured"
        scipy = scipy_module("interpolate", purpose)
        spatial = scipy_module("spatial", purpose)
        rows: dict[tuple[float, float, float], list[Array]] = {}
        for digits, measured in self._placed.items():
            nodes, gpus = len(digits), sum(map(int, digits))
            for batch, *times in measured.tolist():
                rows.setdefault((nodes, gpus, batch), []).append(np.array(times))
        points = sorted(rows)
        where = np.vstack([np.array(points, float), self._scaled[:, :3]])
        what = np.vstack([*(np.mean(rows[point], axis=0) for point in points), self._scaled[:, 3:]])
        try:
            return scipy.LinearNDInterpolator(where, what)
        except spatial.QhullError:  # all of them are alike in something: nothing lies between them
            return lambda _: [(float("nan"), float("nan"))]

    @property
    def alone(self) -> float:
        """Samples per second of one GPU: the largest batch in the longest step."""
        rows = self._placed["1"]
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

    def learning(self, application: str) -> Convergence:
        """How an application converges."""
        found = self._learning.get(application)
        if found is None:
            found = self._learning[application] = Convergence(self._folder(application))
        return found

    def steps(self, application: str, gpu_type: str = "") -> StepTimes:
        """How long its steps take on a type."""
        found = self._steps.get((application, gpu_type))
        if found is None:
            found = self._steps[application, gpu_type] = self._read(application, gpu_type)
        return found

    def types(self, application: str) -> list[str]:
        """GPU types with a profile of the application."""
        names = (path.stem for path in self._folder(application).glob("placements-*.csv"))
        return sorted(name.partition("-")[2] for name in names)

    def _folder(self, application: str) -> Path:
        folder = self.path / application
        if not folder.is_dir():
            known = ", ".join(sorted(each.name for each in self.path.iterdir() if each.is_dir()))
            raise InputError(
                f"{self.path} has no profile of {application!r}, only of {known or 'nothing'}: "
                "give the folder that belongs to the workload"
            )
        return folder

    def _read(self, application: str, gpu_type: str) -> StepTimes:
        folder = self._folder(application)
        if not gpu_type and (known := ", ".join(self.types(application))):
            raise InputError(
                f"{folder} tells GPU types apart ({known}), but the cluster does not say which it "
                f"has: give its nodes types, e.g. --cluster 4x4:{known.split(', ')[0]}"
            )
        suffix = f"-{gpu_type}" if gpu_type else ""
        path = folder / f"placements{suffix}.csv"
        if not path.exists():
            known = ", ".join(self.types(application))
            raise InputError(
                f"{folder} has no {path.name}: the profile of {application!r} knows the GPU types "
                f"{known or 'none'}"
            )
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
        return StepTimes(
            f"profile of {application} on {gpu_type or 'GPUs'}",
            {digits: np.array(sorted(rows)) for digits, rows in placed.items()},
            scaled,
        )


@lru_cache(maxsize=8)
def load_profiles(path: str) -> ProfileFolder:
    """The profiles of a folder, shared by all who ask for it."""
    return ProfileFolder(Path(path))


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
