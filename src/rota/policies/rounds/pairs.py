"""Which jobs could share their GPUs, and how fast they would be."""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from rota.core.jobs import Job
from rota.core.view import View
from rota.policies.rounds.problem import Array, JobPairs, RoundProblem, worth
from rota.policies.rounds.speeds import Told

Indices = NDArray[np.intp]


class Partners:
    """Looks for pairs; remembers how fast jobs of two kinds are beside each other."""

    def __init__(self, beliefs: Told) -> None:
        self._beliefs = beliefs
        self._known: dict[tuple[Hashable, Hashable], list[tuple[float, float]]] = {}

    def find(self, asked: RoundProblem, jobs: Sequence[Job], view: View, most: int = 0) -> JobPairs:
        """All pairs of gangs of equal size that make progress together on some type.

        Args:
            asked: The problem of the jobs.
            jobs: The jobs.
            view: Where they are.
            most: Only pairs that are among the best so many of one of their jobs; 0: all.
        """
        kinds = view.topology.types
        one, other = np.triu_indices(len(jobs) if view.sharing else 0, 1)
        equal = (asked.size[one] == asked.size[other]) & (asked.size[one] % 1 == 0)
        one, other = one[equal], other[equal]
        table, number = self._table(asked, jobs, kinds)
        rates = table[number[one], number[other]]
        able = (asked.throughput[one] > 0) & (asked.throughput[other] > 0)
        rates = np.where(able[:, :, None] & (rates > 0).all(axis=2, keepdims=True), rates, 0.0)
        useful = rates.any(axis=(1, 2))
        found = JobPairs(np.stack([one, other], axis=1)[useful], rates[useful])
        if most and len(found.jobs) > most * len(jobs):
            best = _best(found.jobs, worth(asked, found), most)
            found = JobPairs(found.jobs[best], found.throughput[best])
        return found

    def _table(
        self, asked: RoundProblem, jobs: Sequence[Job], kinds: Sequence[str]
    ) -> tuple[Array, Indices]:
        """Speeds of kinds of jobs beside each other, and the kind of every job."""
        first: dict[Hashable, Job] = {}
        number = []
        keys: dict[Hashable, int] = {}
        for job, row in zip(jobs, asked.throughput.tolist(), strict=True):
            # equal models may still be told apart by speeds that were measured with errors
            key = (job.spec.model or job.index, job.gpus, job.shape.types, tuple(row))
            first.setdefault(key, job)
            number.append(keys.setdefault(key, len(keys)))
        table = np.zeros((len(keys), len(keys), len(kinds), 2))
        for a, mine in first.items():
            for b, theirs in first.items():
                table[keys[a], keys[b]] = self._speeds((a, b), mine, theirs, kinds)
        return table, np.array(number, np.intp)

    def _speeds(
        self, key: tuple[Hashable, Hashable], one: Job, other: Job, kinds: Sequence[str]
    ) -> list[tuple[float, float]]:
        if key not in self._known:
            speed = self._beliefs.speed_beside
            self._known[key] = [(speed(one, other, k), speed(other, one, k)) for k in kinds]
        return self._known[key]


def _best(pairs: Indices, value: Array, most: int) -> Indices:
    """The pairs that are among the best of one of their jobs."""
    number = np.tile(np.arange(len(pairs)), 2)
    job = pairs.T.ravel()
    order = np.lexsort((-np.tile(value, 2), job))
    begins = np.searchsorted(job[order], job[order])
    return np.unique(number[order[np.arange(len(order)) - begins < most]])
