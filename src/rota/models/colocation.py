"""What was measured of jobs that share GPUs: each kind alone, and each pair of kinds.

A folder with two tables, as Lucid's authors published theirs: `single_profiles.csv` (use and memory
of a GPU by each kind of job alone) and `pair_speeds.csv` (how fast two kinds run on the same GPU,
relative to running alone). A kind is a model with its dataset, batch and precision.
"""

import csv
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from rota.core.allocation import Allocation, host_of
from rota.core.errors import InputError, OptionError
from rota.core.jobs import Job
from rota.core.policy import Params
from rota.core.topology import Topology
from rota.models.rates import Rates

SINGLE, PAIRS = "single_profiles.csv", "pair_speeds.csv"
STRIDE = 7  # of the rows that jobs without a model get, one after another

Kind: TypeAlias = tuple[str, str, int, int]
"""Model, dataset, batch, mixed precision (1) or not."""


class KindProfile(msgspec.Struct, frozen=True):
    """A kind of job that has its GPUs for itself.

    Attributes:
        model: What is trained.
        dataset: On what.
        batchsize: Samples of a step, on one GPU.
        amp: 1: in mixed precision.
        gpu_util: Percentage of the time in which the GPU computes.
        gmem_util: Percentage of the time in which its memory is read or written.
        gmem: Memory on each GPU, in MiB.
        label: How much it disturbs others: 0 hardly, 1 somewhat, 2 much.
    """

    model: str
    dataset: str
    batchsize: int
    amp: int
    gpu_util: float
    gmem_util: float
    gmem: float
    label: int

    @property
    def kind(self) -> Kind:
        """By which pairs are found."""
        return (self.model, self.dataset, self.batchsize, self.amp)

    @property
    def name(self) -> str:
        """As the model of a job names it, e.g. `ResNet18/CIFAR-10/64/1`."""
        return "/".join(map(str, self.kind))


class MeasuredPair(msgspec.Struct, frozen=True):
    """Two kinds on the same GPU; a speed of 1 is that alone."""

    model1: str
    dataset1: str
    batchsize1: int
    amp1: int
    speed1: float
    model2: str
    dataset2: str
    batchsize2: int
    amp2: int
    speed2: float


class Colocation:
    """Kinds and pairs of kinds."""

    def __init__(self, profiles: Sequence[KindProfile], pairs: Sequence[MeasuredPair]) -> None:
        self.profiles = tuple(profiles)
        self._named = {profile.name: profile for profile in profiles}
        self._of_model: dict[str, list[KindProfile]] = {}
        for profile in profiles:
            self._of_model.setdefault(profile.model, []).append(profile)
        self._speeds: dict[tuple[Kind, Kind], tuple[float, float]] = {}
        for pair in pairs:
            one: Kind = (pair.model1, pair.dataset1, pair.batchsize1, pair.amp1)
            two: Kind = (pair.model2, pair.dataset2, pair.batchsize2, pair.amp2)
            self._speeds[two, one] = (pair.speed2, pair.speed1)
            self._speeds[one, two] = (pair.speed1, pair.speed2)

    def of(self, job: Job) -> KindProfile:
        """The kind of a job.

        Its model names one (`ResNet18/CIFAR-10/64/1`), or some (`ResNet18`: by its number). Traces
        seldom tell: any other job gets the row of seven times its number.
        """
        model = job.spec.model
        if model in self._named:
            return self._named[model]
        rows: Sequence[KindProfile] = self._of_model.get(model, self.profiles)
        return rows[job.index * STRIDE % len(rows)]

    def speeds(self, one: KindProfile, two: KindProfile) -> tuple[float, float] | None:
        """Of both on the same GPU, relative to 1 alone; None: the pair was not measured."""
        return self._speeds.get((one.kind, two.kind))


@cache
def load_colocation(folder: str) -> Colocation:
    """Both tables of a folder."""
    where = Path(folder)
    profiles = _rows(where / SINGLE, KindProfile)
    if not profiles:
        raise InputError(f"{where / SINGLE} has no rows: it must have one for each kind of job")
    return Colocation(profiles, _rows(where / PAIRS, MeasuredPair))


def _rows(path: Path, kind: type[Any]) -> list[Any]:
    columns = kind.__struct_fields__
    try:
        with path.open(encoding="utf-8", newline="") as file:
            table = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{path} cannot be read ({error}): a folder with profiles has {SINGLE} and {PAIRS}"
        ) from error
    found = []
    for number, row in enumerate(table, 2):
        missing = [name for name in columns if row.get(name) is None]
        if missing:
            raise InputError(f"{path}, line {number}: column {missing[0]!r} is missing")
        try:
            found.append(msgspec.convert({name: row[name] for name in columns}, kind, strict=False))
        except msgspec.ValidationError as error:
            raise InputError(f"{path}, line {number}: {error}") from error
    return found


# --- how fast jobs run that share GPUs ------------------------------------------------------------

FULL = 100.0  # percent


class ColocatedParams(Params, frozen=True):
    """The folder with what was measured of kinds of jobs, alone and in pairs."""

    profiles: str = ""


class ColocatedRates(Rates):
    """Two jobs on the same GPUs run as fast as their kinds were measured to.

    A pair that was not measured divides the GPU in proportion if both together want more of its
    time than there is, and runs as fast as alone otherwise.
    """

    name = "colocated"
    Parameters = ColocatedParams

    def __init__(self, topology: Topology, params: ColocatedParams | None = None) -> None:
        super().__init__(topology, params)
        if not self.params.profiles:
            raise OptionError(
                f"rates {self.name!r}: give the measurements, {self.name}:profiles=DIR with "
                f"{SINGLE} and {PAIRS}"
            )
        self.neighbours = self.packs = True
        self._known = load_colocation(self.params.profiles)

    def beside(self, job: Job, other: Job, gpu_type: str) -> float:  # noqa: ARG002 - of one type
        """As measured, or by what both use alone."""
        mine, theirs = self._known.of(job), self._known.of(other)
        found = self._known.speeds(mine, theirs)
        if found is not None:
            return found[0]
        wanted = mine.gpu_util + theirs.gpu_util
        return min(1.0, FULL / wanted) if wanted else 1.0

    def keys(self, job: Job) -> Sequence[int]:
        """Its own number and that of its host; below 0, where no vertex is."""
        host = host_of(job.allocation)
        return (-1 - job.index,) if host < 0 else (-1 - job.index, -1 - host)

    def rate(self, job: Job, allocation: Allocation, sharers: Sequence[Job]) -> float:
        """Alone 1."""
        host = host_of(allocation)
        for other in sharers:
            if other.index == host or host_of(other.allocation) == job.index:
                return self.beside(job, other, "")
        return 1.0
