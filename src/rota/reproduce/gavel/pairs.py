"""Pairs of jobs on the same GPUs, as Gavel's rounds see them.

A pair has a share of time of its own, beside those of its jobs alone, and a lease of its own: it
ends when both have made their whole steps. Who holds the GPUs of a pair for the books is the job
that came first; the other one is its guest.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from rota.core.jobs import Job
from rota.policies.rounds.problem import Array, Pairs

Kind = tuple[str, int]
"""Model and number of GPUs, as the table of throughputs has them."""
Beside = Mapping[tuple[Kind, Kind], Mapping[str, float]]
"""Steps per second of the first kind on the GPUs of the second, by type."""

NO_PAIRS = Pairs(np.zeros((0, 2), np.intp), np.zeros((0, 1, 2)))
_WIDE = 1 << 31  # numbers of jobs are below it


class Held(Protocol):
    """What holds a job."""

    job: Job


def number_of(one: int, other: int) -> int:
    """The number of a pair: below zero, since those of jobs are not; the same in either order."""
    return -1 - (min(one, other) * _WIDE + max(one, other))


class Companions:
    """How fast jobs are beside each other; without a table nobody knows, and there are no pairs."""

    def __init__(self, types: Sequence[str], beside: Beside | None = None) -> None:
        self._types = list(types)
        self._beside = beside or {}
        self._place: dict[Kind, int] = {}
        self._rates = np.zeros((0, 0, len(self._types)))

    def speeds(self, one: Job, other: Job) -> list[float]:
        """Steps per second of the first one, by type."""
        rates = self._beside.get((_kind(one), _kind(other)), {})
        return [rates.get(name, 0.0) for name in self._types]

    def find(self, entries: Sequence[Held]) -> Pairs:
        """All pairs of gangs of equal size that the table knows."""
        places = np.array([self._known(_kind(entry.job)) for entry in entries], np.intp)
        sizes = np.array([entry.job.gpus for entry in entries])
        one, other = np.triu_indices(len(entries), 1)
        first, second = places[one], places[other]
        ours, theirs = self._rates[first, second], self._rates[second, first]
        rates: Array = np.stack([ours, theirs], axis=2)
        works = np.any(np.all(rates > 0, axis=2), axis=1)
        use = (sizes[one] == sizes[other]) & works
        return Pairs(np.stack([one[use], other[use]], axis=1), rates[use])

    def _known(self, kind: Kind) -> int:
        """The row of a kind of job in the table of all that came so far."""
        if kind not in self._place:
            self._place[kind] = len(self._place)
            kinds = list(self._place)
            self._rates = np.array(
                [
                    [
                        [self._beside.get((one, other), {}).get(name, 0.0) for name in self._types]
                        for other in kinds
                    ]
                    for one in kinds
                ]
            )
        return self._place[kind]


def _kind(job: Job) -> Kind:
    return job.spec.model, int(job.gpus)
