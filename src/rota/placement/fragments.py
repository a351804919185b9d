"""How much of the free GPUs is of no use for the jobs that usually come (FGD, USENIX ATC 2023).

A node is looked at through the eyes of a class of jobs: if such a job cannot run there, everything
that is free is a fragment; if it can, only those GPUs are with less left than the job wants of one.
The fragments of a node are the mean over the classes, weighted by how popular they are (the *target
workload*). Amounts are whole numbers: thousandths of GPUs and of CPUs. Memory does not count.

The order of additions is part of the definition, because scores are cut to whole numbers: per node
the classes are added in their order into one sum per case, then the sums of the cases.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from rota.core.jobs import Request, Shape

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MILLI = 1000  # parts of a GPU or CPU
MEMORY = 1_000_000  # states whose fragments are remembered
POPULAR = 0.95  # share of jobs that the target workload covers

LACKS_BOTH, LACKS_GPU, LACKS_CPU, NO_GPU_FITS, NO_GPU_LACKS, WRONG_TYPE = range(6)
CASES = 6


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
        cpu = round(shape.cpus * MILLI)
        if not shape.gpus:
            return cls(cpu, 0, 0, shape.types)
        part = round(shape.gpus * MILLI) if shape.gpus < 1 else MILLI
        return cls(cpu, part, 1 if shape.gpus < 1 else int(np.ceil(shape.gpus)), shape.types)


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
        self._known: dict[bytes, float] = {}

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
        shares = np.array([count / total for _, count in chosen])
        return cls([kind for kind, _ in chosen], (shares / np.sum(shares)).tolist())

    def accepts(self, types: Sequence[str]) -> Bools:
        """By GPU type and class: may the class run on such nodes?"""
        return np.array(
            [[not each.types or name in each.types for each in self.classes] for name in types],
            dtype=np.bool_,
        ).reshape(len(types), len(self.classes))

    def fragments(self, cpu: Ints, gpus: Ints, accepted: Bools) -> Floats:
        """Thousandths of GPUs that are fragments, for each of many states of nodes.

        Args:
            cpu: What is left of the CPUs, by state.
            gpus: What is left of each GPU, by state and GPU; 0 where there is none.
            accepted: By state and class, from `accepts`.
        """
        known = self._known
        keys = self._keys(cpu, gpus, accepted)
        found: Floats = np.array([known.get(key, -1.0) for key in keys])
        new = np.flatnonzero(found < 0)
        if len(new):
            if len(known) > MEMORY:
                known.clear()
            values = self._computed(cpu[new], gpus[new], accepted[new])
            found[new] = values
            for number, value in zip(new.tolist(), values.tolist(), strict=True):
                known[keys[number]] = value
        return found

    def _keys(self, cpu: Ints, gpus: Ints, accepted: Bools) -> list[bytes]:
        """States that are alike: which of its GPUs has how much left does not matter."""
        states = np.empty((len(cpu), gpus.shape[1] + 1), np.int64)
        states[:, 0] = cpu
        states[:, 1:] = np.sort(gpus, axis=1)
        table = np.concatenate((states.view(np.uint8), np.packbits(accepted, axis=1)), axis=1)
        width, whole = table.shape[1], table.tobytes()
        return [whole[at : at + width] for at in range(0, len(whole), width)]

    def _computed(self, cpu: Ints, gpus: Ints, accepted: Bools) -> Floats:
        states = len(cpu)
        left = gpus[:, None, :]
        too_small = left < self._parts[None, :, None]
        numbers = gpus.shape[1] - too_small.sum(axis=2)
        useless = np.where(too_small, left, 0).sum(axis=2)[:, self._part_of]
        fits = numbers[:, self._part_of] >= self._gpus
        enough_cpu = cpu[:, None] >= self._cpu
        # what fits and has CPUs counts its useless rest as lack of GPUs
        case = np.where(enough_cpu, LACKS_GPU, np.where(fits, LACKS_CPU, LACKS_BOTH))
        case = np.where(accepted, case, WRONG_TYPE)
        case = np.where(self._without_gpu, np.where(enough_cpu, NO_GPU_FITS, NO_GPU_LACKS), case)
        usable = fits & enough_cpu & accepted & ~self._without_gpu
        amount = np.where(usable, useless, gpus.sum(axis=1)[:, None]) * self.weights
        place = (np.arange(states) * CASES)[:, None] + case
        sums = np.bincount(place.ravel(), weights=amount.ravel(), minlength=states * CASES)
        cases: Floats = sums.reshape(states, CASES).astype(np.float64, copy=False)
        total: Floats = cases[:, 0]
        for column in range(1, CASES):
            total = total + cases[:, column]
        return total
