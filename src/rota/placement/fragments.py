"""How much of the free GPUs is of no use for the jobs that usually come (FGD, USENIX ATC 2023).

A node is looked at through the eyes of a class of jobs: if such a job cannot run there, everything
that is free is a fragment; if it can, only those GPUs are with less left than the job wants of one.
The fragments of a node are the mean over the classes, weighted by how popular they are (the *target
workload*). Amounts are whole numbers: thousandths of GPUs and of CPUs. Memory does not count.

The order of additions is part of the definition, because scores are cut to whole numbers: per node
the classes are added in their order into one sum per case, then the sums of the cases.
"""

from collections.abc import Sequence
from math import ceil, floor

import msgspec
import numpy as np
import numpy.typing as npt

from rota.core.jobs import Request, Shape

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MILLI = 1000  # parts of a GPU or CPU
FEW = 16  # states that are looked at one by one
MEMORY = 1_000_000  # states whose fragments are remembered
DUST = 1e-6  # of a thousandth: amounts are sums of floats
POPULAR = 0.95  # share of jobs that the target workload covers

LACKS_BOTH, LACKS_GPU, LACKS_CPU, NO_GPU_FITS, NO_GPU_LACKS, WRONG_TYPE = range(6)
CASES = 6
# By (asks for no GPUs, type is right, GPUs fit, CPUs suffice) as a number: what fits and has CPUs
# counts its useless rest as lack of GPUs.
CASE_OF = np.array(
    [WRONG_TYPE] * 4
    + [LACKS_BOTH, LACKS_GPU, LACKS_CPU, LACKS_GPU]
    + [NO_GPU_LACKS, NO_GPU_FITS] * 4
)
USABLE = 7


_Listed = tuple[int, int, int, float, bool]


class JobClass(msgspec.Struct, frozen=True):
    """Jobs that ask for the same of one node."""

    cpu: int
    """Thousandths of a CPU, for the whole job."""
    part: int
    """Thousandths of each GPU; 0: no GPUs."""
    gpus: int
    """How many GPUs."""
    types: tuple[str, ...] = ()
    """Acceptable types; empty: any."""

    @classmethod
    def of(cls, request: Request) -> "JobClass":
        """What a request asks for, all groups together."""
        shape = Shape(0, request)
        cpu = down(shape.cpus * MILLI)
        if not shape.gpus:
            return cls(cpu, 0, 0, shape.types)
        part = max(1, down(shape.gpus * MILLI)) if shape.gpus < 1 else MILLI
        return cls(cpu, part, ceil(shape.gpus), shape.types)


def down(amount: float) -> int:
    """The last whole number, but for the dust of float sums."""
    return floor(amount + DUST)


class Target:
    """The target workload: classes and their weights, as arrays."""

    def __init__(self, classes: Sequence[JobClass], weights: Sequence[float]) -> None:
        self.classes = tuple(classes)
        self.weights: Floats = np.array(weights, dtype=np.float64)
        self._cpu: Ints = np.array([each.cpu for each in classes], dtype=np.int64)
        self._gpus: Ints = np.array([each.gpus for each in classes], dtype=np.int64)
        parts = np.array([each.part for each in classes], dtype=np.int64)
        self._without_gpu: Bools = parts == 0
        self._parts, self._part_of = np.unique(parts, return_inverse=True)
        self._parts_up: list[int] = self._parts.tolist()
        self._known: dict[tuple[int, ...], float] = {}
        self._classes_on: dict[int, list[_Listed]] = {}

    def __len__(self) -> int:
        """States that are remembered."""
        return len(self._known)

    @classmethod
    def popular(cls, counts: Sequence[tuple[JobClass, int]], share: float = POPULAR) -> "Target":
        """The most frequent classes that make up this share of the jobs, and their weights."""
        together: dict[JobClass, int] = {}
        for kind, count in counts:
            together[kind] = together.get(kind, 0) + count

        def rank(entry: tuple[JobClass, int]) -> tuple[int, int, int, int, str]:
            kind, count = entry
            return count, kind.cpu, kind.part, kind.gpus, "|".join(kind.types)

        ranked = sorted(together.items(), key=rank, reverse=True)
        total = sum(together.values())
        chosen: list[tuple[JobClass, int]] = []
        covered = 0
        for kind, count in ranked:
            if covered >= share * total:
                break
            chosen.append((kind, count))
            covered += count
        # Two divisions: the last digits of weights decide between equally good nodes, see above.
        part = covered / total if total else 1.0
        return cls([kind for kind, _ in chosen], [count / total / part for _, count in chosen])

    def accepts(self, types: Sequence[str]) -> Bools:
        """By GPU type and class: may the class run on such nodes?"""
        return np.array(
            [[not each.types or name in each.types for each in self.classes] for name in types],
            dtype=np.bool_,
        ).reshape(len(types), len(self.classes))

    def fragments(self, kind: Ints, cpu: Ints, gpus: Ints, accepts: Bools) -> Floats:
        """Thousandths of GPUs that are fragments, for each of many states of nodes.

        Args:
            kind: The type of the GPUs, by state; always the same numbers for one target.
            cpu: What is left of the CPUs, by state.
            gpus: What is left of each GPU, by state and GPU; 0 where there is none.
            accepts: By type and class, from `accepts`.
        """
        known = self._known
        if len(known) > MEMORY:
            known.clear()
        if len(cpu) <= FEW:
            states = zip(kind.tolist(), cpu.tolist(), gpus.tolist(), strict=True)
            return np.array([self.state(*state, accepts) for state in states])
        keys = _keys(kind, cpu, gpus)
        found: Floats = np.array([known.get(key, -1.0) for key in keys])
        new = np.flatnonzero(found < 0)
        if len(new):
            values = self.measure(cpu[new], gpus[new], accepts[kind[new]])
            found[new] = values
            for number, value in zip(new.tolist(), values.tolist(), strict=True):
                known[keys[number]] = value
        return found

    def state(self, kind: int, cpu: int, gpus: list[int], accepts: Bools) -> float:
        """The same for one state, which is quicker than arrays as long as there are few."""
        gpus = sorted(gpus)
        key = (kind, cpu, *gpus)
        value = self._known.get(key)
        if value is None:
            classes = self._classes_on.get(kind)
            if classes is None:
                classes = self._classes_on[kind] = self._listed(accepts[kind].tolist())
            value = self._known[key] = self._alone(classes, cpu, gpus)
        return value

    def _listed(self, accepted: list[bool]) -> "list[_Listed]":
        """CPUs, number of the part, GPUs, weight and whether the type is right, by class."""
        return list(
            zip(
                self._cpu.tolist(), self._part_of.tolist(), self._gpus.tolist(),
                self.weights.tolist(), accepted, strict=True,
            )
        )  # fmt: skip

    def _alone(self, classes: "list[_Listed]", cpu: int, gpus: list[int]) -> float:
        """One state; `gpus` in rising order. Step by step the same sums as in `measure`."""
        total, size = sum(gpus), len(gpus)
        useless, fitting = [], []
        at = below = 0
        for part in self._parts_up:
            while at < size and gpus[at] < part:
                below += gpus[at]
                at += 1
            useless.append(below)
            fitting.append(size - at)
        sums = [0.0] * CASES
        for need_cpu, part, need, weight, right in classes:
            enough = cpu >= need_cpu
            if not need:
                sums[NO_GPU_FITS if enough else NO_GPU_LACKS] += total * weight
            elif not right:
                sums[WRONG_TYPE] += total * weight
            elif enough:
                sums[LACKS_GPU] += (useless[part] if fitting[part] >= need else total) * weight
            else:
                sums[LACKS_CPU if fitting[part] >= need else LACKS_BOTH] += total * weight
        value = sums[0]
        for here in sums[1:]:
            value += here
        return value

    def measure(self, cpu: Ints, gpus: Ints, accepted: Bools) -> Floats:
        """The same by state and class, without remembering anything."""
        states = len(cpu)
        if not self.classes:
            return np.zeros(states)
        rising = np.sort(gpus, axis=1)
        below = np.zeros((states, gpus.shape[1] + 1), np.int64)
        np.cumsum(rising, axis=1, out=below[:, 1:])
        small = (rising[:, None, :] < self._parts[None, :, None]).sum(axis=2)
        useless = np.take_along_axis(below, small, axis=1)[:, self._part_of]
        numbers = gpus.shape[1] - small
        fits = numbers[:, self._part_of] >= self._gpus
        enough_cpu = cpu[:, None] >= self._cpu
        answers = self._without_gpu * 8 + accepted * 4 + fits * 2 + enough_cpu
        case = CASE_OF[answers]
        amount = np.where(answers == USABLE, useless, below[:, -1:]) * self.weights
        place = (np.arange(states) * CASES)[:, None] + case
        sums = np.bincount(place.ravel(), weights=amount.ravel(), minlength=states * CASES)
        cases: Floats = sums.reshape(states, CASES).astype(np.float64, copy=False)
        total: Floats = cases[:, 0]
        for column in range(1, CASES):
            total = total + cases[:, column]
        return total


def _keys(kind: Ints, cpu: Ints, gpus: Ints) -> list[tuple[int, ...]]:
    """States that are alike: which of its GPUs has how much left does not matter."""
    states = np.concatenate((kind[:, None], cpu[:, None], np.sort(gpus, axis=1)), axis=1)
    return list(map(tuple, states.tolist()))
