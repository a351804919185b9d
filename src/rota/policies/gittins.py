"""Gittins index on GPU-time: Tiresias when the distribution of service is known (NSDI 2019).

A job that has attained service a may finish soon or not. Its index is the best ratio of the chance
to finish within some further service d to the service that this is expected to take:

    G(a) = max over d of  P(S - a <= d | S > a) / E[min(S - a, d) | S > a]

with S the GPU-time of a job. The largest index is served first; ties go to running jobs in the
order of their start, then to waiting ones in the order of submission.

S has the empirical distribution of `distribution` (GPU-seconds) or, where none is given, of the
jobs that have finished so far: it is fitted after `warmup` of them and again whenever their number
has doubled; before that all indices are equal. More than `levels` different samples are gathered in
so many groups, evenly on a logarithmic scale, each counted as its largest member: the index of a
raw sample is mostly noise. The index is evaluated at 0 and at every level that is left, and kept in
between, so it changes at exact times. A job with more service than any sample has index 0 and is
served last.

Departs from the paper: no queues (the levels discretise), and the best d for each a instead of the
quantum of a queue. Departs from the authors' simulator, whose index has a fixed d and divides by
absolute sizes instead of by what remains.
"""

from collections.abc import Iterable, Mapping
from math import log
from typing import Annotated, Any

import msgspec

from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.policy import Params
from rota.core.state import State
from rota.policies._attained import AttainedPolicy

ROUNDING = 1e-9  # samples whose ratio is nearer to 1 are equal


class GittinsParams(Params, frozen=True):
    """Service of earlier jobs (empty: learn it), levels, finished jobs before the first fit."""

    distribution: tuple[float, ...] = ()
    levels: Annotated[int, msgspec.Meta(ge=1)] = 10
    warmup: Annotated[int, msgspec.Meta(ge=1)] = 10

    def __post_init__(self) -> None:
        if self.distribution and max(self.distribution) <= 0:
            raise ValueError("distribution needs at least one positive number of GPU-seconds")


class GittinsState(State):
    """What was learnt, and how much of it the present ranks are made of, since when."""

    samples: list[float] = []  # GPU-seconds of jobs, in the order of completion
    fitted: int = 0
    fitted_s: float = -INF
    revision: int = 0

    @classmethod
    def migrate(cls, version: int, fields: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG003 - there is one
        """From version 0."""
        return fields


class Gittins(AttainedPolicy[GittinsParams]):
    """Serve the job that promises the most completions per GPU-time."""

    name = "gittins"
    paper = "Gu et al., Tiresias: A GPU Cluster Manager for Distributed Deep Learning, NSDI 2019"
    knowledge = Knowledge.DISTRIBUTION | Knowledge.HISTORY
    Parameters = GittinsParams
    coupled = "learns the distribution of service from all jobs that finish"

    def __init__(self, params: GittinsParams | None = None) -> None:
        super().__init__(params)
        given = self.params.distribution
        self.knowledge = Knowledge.DISTRIBUTION if given else Knowledge.HISTORY
        self.state: GittinsState = GittinsState()
        if given:
            self.coupled = ""
            self._fit(given)

    def finished(self, job: Job, now_s: float) -> None:
        """Learn its service; fit again when the number of samples has doubled.

        Jobs that finish at the same time are fitted together: their order means nothing.
        """
        if self.params.distribution or job.service <= 0:
            return
        state = self.state
        samples = state.samples
        samples.append(job.service)
        if now_s == state.fitted_s or len(samples) >= max(2 * state.fitted, self.params.warmup):
            state.fitted, state.fitted_s = len(samples), now_s
            self._fit(samples)
            state.revision += 1
            self.revision = state.revision

    def _fit(self, samples: Iterable[float]) -> None:
        """Levels and ranks from the index of the gathered samples."""
        table = indices(gathered(samples, self.params.levels))
        self.levels = [service for service, _ in table[1:]]
        self.ranks = [-index for _, index in table]

    def resumed(self) -> None:
        """Fit the same samples again."""
        self.revision = self.state.revision
        if self.state.fitted:
            self._fit(self.state.samples[: self.state.fitted])


def gathered(samples: Iterable[float], groups: int) -> list[float]:
    """The positive samples, ascending; if they are too many, each as the largest of its group."""
    ordered = sorted(sample for sample in samples if sample > 0)
    largest = ordered[-1]
    width, last = ROUNDING, INF
    if len(set(ordered)) > groups:
        width, last = max(log(largest / ordered[0]) / groups, ROUNDING), groups - 1
    out: list[float] = []
    group = -1.0
    for sample in reversed(ordered):
        mine = min(log(largest / sample) // width, last)
        out.append(out[-1] if mine == group else sample)
        group = mine
    return out[::-1]


def indices(samples: Iterable[float]) -> list[tuple[float, float]]:
    """The pairs (a, G(a)) for a = 0 and every distinct positive sample, ascending.

    With F(x) the number of samples up to x and H(x) the integral of n - F from 0 to x, the ratio
    for (a, d) is the slope between the points (H, F) at a and at a + d, and it is best where a + d
    is a sample. So G(a) is the first slope of the upper hull of the points from a on: one pass from
    the right finds it for all a.
    """
    ordered = sorted(sample for sample in samples if sample > 0)
    services, ended, spent = [0.0], [0], [0.0]
    for position, sample in enumerate(ordered, 1):
        further = spent[-1] + (sample - services[-1]) * (len(ordered) - ended[-1])
        if further > spent[-1]:
            spent.append(further)
            services.append(sample)
            ended.append(position)
        else:
            ended[-1] = position

    def slope(left: int, right: int) -> float:
        return (ended[right] - ended[left]) / (spent[right] - spent[left])

    last = len(services) - 1
    best = [0.0] * (last + 1)  # nothing is known beyond the largest sample
    hull = [last]
    for point in range(last - 1, -1, -1):
        while len(hull) > 1 and slope(point, hull[-1]) <= slope(hull[-1], hull[-2]):
            hull.pop()
        best[point] = slope(point, hull[-1])
        hull.append(point)
    return list(zip(services, best, strict=True))
