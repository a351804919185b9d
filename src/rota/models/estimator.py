"""Speeds that were not measured, from those that were: matrix completion.

Rows are kinds of jobs (model and number of GPUs), columns are GPU types (or anything else on which
speeds are observed, for instance a GPU type with a partner). An entry that was observed is given
exactly (the mean of its observations). The others follow a model of low rank for the logarithms,
because speeds differ by factors:

    log speed of row i on column j  =  c_j + u_i . v_j + noise

The c_j are means of columns: they answer for a row that was never observed. Each row has `rank`
unknown traits u_i (how much its model gains from a faster GPU, say), each column says by v_j what
they mean there; one observation of a row tells something of its traits, and so of all columns. The
traits are normal with mean 0 and variance 1, and c, v and the variance of the noise are fitted by
expectation maximisation (probabilistic principal components with missing entries), so that few or
contradictory observations count for little.

Nothing is drawn at random but the start of the fit, from the seed: equal observations give equal
estimates.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rota.core.jobs import Job
from rota.core.products import solved

Array = NDArray[np.float64]

_WEAK = 1e-3  # weight of what is assumed of a column, in observations
_LEAST = 1e-4  # least standard deviation of the noise, of logarithms
_STILL = 1e-7  # the fit has come to rest


class Estimator:
    """A table of speeds with holes.

    Args:
        columns: Those known from the beginning; others join when they are observed.
        rank: Number of traits; 0: means of columns only.
        seed: Of the start of the fit.
        sweeps: Rounds of the fit at most.
    """

    def __init__(
        self, columns: Sequence[Hashable] = (), *, rank: int = 2, seed: int = 0, sweeps: int = 200
    ) -> None:
        self._rank = rank
        self._seed = seed
        self._sweeps = sweeps
        self._rows: dict[Hashable, int] = {}
        self._columns: dict[Hashable, int] = {name: i for i, name in enumerate(columns)}
        self._seen: dict[tuple[int, int], tuple[float, int]] = {}  # sum and number
        self._filled: Array | None = None

    # --- observations -----------------------------------------------------------------------------

    def observe(self, row: Hashable, column: Hashable, speed: float) -> None:
        """Somebody measured this."""
        if not 0 <= speed < np.inf:
            raise ValueError(f"speed {speed!r} of {row!r} on {column!r}: give 0 or more")
        at = (
            self._rows.setdefault(row, len(self._rows)),
            self._columns.setdefault(column, len(self._columns)),
        )
        total, count = self._seen.get(at, (0.0, 0))
        self._seen[at] = (total + speed, count + 1)
        self._filled = None

    def knows(self, row: Hashable, column: Hashable) -> bool:
        """Was it observed?"""
        return (self._rows.get(row, -1), self._columns.get(column, -1)) in self._seen

    # --- estimates --------------------------------------------------------------------------------

    def estimate(self, row: Hashable, column: Hashable) -> float:
        """The speed: exact if it was observed; 1 if nothing ever was."""
        at = (self._rows.get(row, -1), self._columns.get(column, -1))
        if at in self._seen:
            total, count = self._seen[at]
            return total / count
        if not self._seen:
            return 1.0
        if self._filled is None:
            self._filled = self._complete()
        return float(self._filled[at])  # -1: the last row and column, which were not observed

    def _complete(self) -> Array:
        """All entries, with one more row and column for those that were never seen."""
        shape = (len(self._rows) + 1, len(self._columns) + 1)
        logs = np.zeros(shape)
        known = np.zeros(shape)
        for at, (total, count) in self._seen.items():
            if total > 0:  # a job that cannot run there tells nothing of other speeds
                known[at], logs[at] = 1.0, np.log(total / count)
        if not known.any():
            return np.ones(shape)
        fit = _Fit(logs, known, min(self._rank, shape[1] - 1), self._seed)
        return np.exp(fit.run(self._sweeps))

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> list[tuple[Any, Any, float, int]]:
        """All observations as plain data: row, column, sum and number."""
        rows, columns = list(self._rows), list(self._columns)
        return [(rows[i], columns[j], *self._seen[i, j]) for i, j in self._seen]

    def restore(self, state: Iterable[Sequence[Any]]) -> None:
        """Take the observations of `snapshot` up again."""
        self._rows.clear()
        self._seen.clear()
        self._filled = None
        for row, column, total, count in state:
            at = (
                self._rows.setdefault(_frozen(row), len(self._rows)),
                self._columns.setdefault(_frozen(column), len(self._columns)),
            )
            self._seen[at] = (total, count)


def _frozen(value: Any) -> Hashable:
    """Lists of a snapshot that was written and read are tuples again."""
    if isinstance(value, list):
        return tuple(_frozen(part) for part in value)
    name: Hashable = value
    return name


class _Fit:
    """Fits the model to the known logarithms."""

    def __init__(self, logs: Array, known: Array, rank: int, seed: int) -> None:
        self._known = known
        count = known.sum(axis=0)
        overall = (known * logs).sum() / known.sum()
        means = ((known * logs).sum(axis=0) + _WEAK * overall) / (count + _WEAK)
        self._centred = known * (logs - means)
        self._means = means
        rng = np.random.default_rng(seed)
        spread = max(float(np.sqrt((self._centred**2).sum() / known.sum())), _LEAST)
        self._loads = spread * rng.standard_normal((logs.shape[1], rank))
        self._shift = np.zeros(logs.shape[1])
        self._noise = spread**2

    def run(self, sweeps: int) -> Array:
        """The expected logarithms of all entries."""
        before = np.full(self._known.shape, np.inf)
        for _ in range(sweeps):
            traits, spread = self._expect()
            now = _product(traits, self._loads) + self._shift
            if np.abs(now - before).max() < _STILL:
                break
            before = now
            self._maximise(traits, spread)
        result: Array = self._means + self._shift + _product(self._expect()[0], self._loads)
        return result

    def _expect(self) -> tuple[Array, Array]:
        """Means of the traits of every row, and their covariances."""
        loads, known = self._loads, self._known
        rank = loads.shape[1]
        inner = np.einsum("ij,jk,jl->ikl", known, loads, loads) / self._noise + np.eye(rank)
        spread = solved(inner, np.broadcast_to(np.eye(rank), inner.shape))
        rest = self._centred - known * self._shift
        return np.einsum("ikl,ij,jl->ik", spread, rest, loads) / self._noise, spread

    def _maximise(self, traits: Array, spread: Array) -> None:
        """Columns and noise that explain the entries best, given the traits."""
        known, rank = self._known, traits.shape[1]
        design = np.concatenate([traits, np.ones((len(traits), 1))], axis=1)
        second = np.einsum("ik,il->ikl", design, design)
        second[:, :rank, :rank] += spread
        normal = np.einsum("ij,ikl->jkl", known, second) + _WEAK * np.eye(rank + 1)
        right = np.einsum("ij,ik->jk", self._centred, design)
        found = solved(normal, right[..., None])[..., 0]
        self._loads, self._shift = found[:, :rank], found[:, rank]
        errors = self._centred - known * (_product(traits, self._loads) + self._shift)
        doubt = np.einsum("ij,jk,ikl,jl->", known, self._loads, spread, self._loads)
        self._noise = max(((errors**2).sum() + doubt) / known.sum(), _LEAST**2)


def _product(one: Array, other: Array) -> Array:
    """Of every row of the one with every row of the other."""
    total: Array = np.einsum("ik,jk->ij", one, other)
    return total


class LearntSpeeds:
    """Speeds as a policy learns them: nothing is known of a kind of job before it ran somewhere.

    A policy tells `saw` on which GPU type a job runs; what it reads there (`Job.speed_on`) is a
    measurement then. `speed` answers for all jobs and types. Jobs of one model and size are taken
    to be alike until one of them is seen to differ: from then on it has a speed of its own. A job
    without a model is only like itself.
    """

    def __init__(self, types: Sequence[str], *, rank: int = 2, seed: int = 0) -> None:
        self.estimator = Estimator(types, rank=rank, seed=seed)
        self._own: dict[tuple[str, str], float] = {}  # of jobs that differ from their kind

    def saw(self, job: Job, gpu_type: str) -> bool:
        """It runs there: measure it; is that news?"""
        measured = job.speed_on(gpu_type)
        if not self.estimator.knows(kind_of(job), gpu_type):
            self.estimator.observe(kind_of(job), gpu_type, measured)
        elif measured != self.speed(job, gpu_type):
            self._own[job.id, gpu_type] = measured
        else:
            return False
        return True

    def speed(self, job: Job, gpu_type: str) -> float:
        """What it was seen to be or is thought to be; 0 where it may not run."""
        if job.shape.types and gpu_type not in job.shape.types:
            return 0.0
        if self._own and (own := self._own.get((job.id, gpu_type))) is not None:
            return own
        return self.estimator.estimate(kind_of(job), gpu_type)

    def snapshot(self) -> Mapping[str, Any]:
        """As plain data."""
        own = [(job, gpu_type, speed) for (job, gpu_type), speed in self._own.items()]
        return {"seen": self.estimator.snapshot(), "own": own}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the state of `snapshot` up again; older ones know of no job that differs."""
        self.estimator.restore(state["seen"])
        self._own = {(job, gpu_type): speed for job, gpu_type, speed in state.get("own", ())}


def kind_of(job: Job) -> tuple[str, str, float]:
    """What jobs have in common that are equally fast: model and GPUs; else the job itself."""
    model = job.spec.model
    return ("model", model, job.gpus) if model else ("job", (job.parent or job).id, job.gpus)
