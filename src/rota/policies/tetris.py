"""Tetris, multi-resource packing (Grandl et al., SIGCOMM 2014, section 3).

Of the waiting jobs that fit, the one starts that is best aligned with what is free: the dot product
of its demand and the free amounts of GPUs, CPUs and memory, each as part of what the cluster has.
Large jobs, and jobs that want what is plentiful, come first. To help completion times, `epsilon`
times a penalty for remaining work (remaining time x the sum of its demands) is subtracted; the
penalty is scaled so that over the waiting jobs it has the same mean as the alignment. The scores
are taken again after every start, for the free amounts have changed. Running jobs are not stopped.

Departs from the paper: demand is aligned with the free amounts of the whole cluster, not of one
machine, because where a job goes is the placement's business. Disks and networks are not
resources here, there is no fairness knob, and remaining work is an oracle's, not an estimate from
earlier runs; with `epsilon=0` no knowledge is needed.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from functools import reduce
from operator import sub
from typing import Annotated

import msgspec

from rota.core.events import INF
from rota.core.jobs import Job, Shape
from rota.core.knowledge import Knowledge
from rota.core.plan import Plan, ReservingPlan
from rota.core.policy import IncrementalPolicy, Params
from rota.core.sums import ordered_sum
from rota.core.view import View
from rota.policies._resources import Amounts, capacity, shares


class TetrisParams(Params, frozen=True):
    """Weight of short remaining work against good packing."""

    epsilon: Annotated[float, msgspec.Meta(ge=0)] = 1.0


class Tetris(IncrementalPolicy[TetrisParams]):
    """Start the job whose demand is best aligned with what is free, with a bonus for short ones."""

    name = "tetris"
    paper = "Grandl et al., Multi-resource Packing for Cluster Schedulers, SIGCOMM 2014"
    knowledge = Knowledge.REMAINING_WORK
    Parameters = TetrisParams
    plan_type = ReservingPlan
    coupled = "scores compare a job with all that is free and with the mean work of all that wait"

    def __init__(self, params: TetrisParams | None = None) -> None:
        super().__init__(params)
        if not self.params.epsilon:
            self.knowledge = Knowledge.NOTHING
        self._total: Amounts = (0.0, 0.0, 0.0)
        self._kinds: dict[int, Kind] = {}  # jobs by shape
        self._running: list[tuple[float, int, Shape]] = []  # in order of arrival
        self._parts: list[list[float]] = [[], [], []]  # what each of them has of a resource

    # --- what it hears ----------------------------------------------------------------------------

    def cluster_changed(self, view: View) -> None:
        """Demands are parts of what is up."""
        self._total = capacity(view)
        for kind in self._kinds.values():
            kind.wants = shares(kind.shape, self._total)
        wants = [self._kinds[shape.number].wants for _, _, shape in self._running]
        self._parts = [[want[i] for want in wants] for i in range(3)]

    def submitted(self, job: Job, now_s: float) -> None:
        """It waits beside those with equal demands."""
        number = job.shape.number
        kind = self._kinds.get(number)
        if kind is None:
            kind = self._kinds[number] = Kind(job.shape, shares(job.shape, self._total))
        kind.add(job, job.remaining_s(now_s) if self.params.epsilon else 0.0)

    def started(self, job: Job, now_s: float) -> None:  # noqa: ARG002
        """Less is free."""
        kind = self._kinds[job.shape.number]
        kind.remove(job)
        at = bisect_left(self._running, (job.submit_s, job.index))
        self._running.insert(at, (job.submit_s, job.index, job.shape))
        for parts, want in zip(self._parts, kind.wants, strict=True):
            parts.insert(at, want)

    def ended(self, job: Job, now_s: float) -> None:  # noqa: ARG002
        """More is free, or one job less waits."""
        at = bisect_left(self._running, (job.submit_s, job.index))
        if at < len(self._running) and self._running[at][1] == job.index:
            del self._running[at]
            for parts in self._parts:
                del parts[at]
        else:
            self._kinds[job.shape.number].remove(job)

    # --- what it decides --------------------------------------------------------------------------

    def decide(self, view: View) -> Plan:
        """Start the best-scored job that fits until none does."""
        plan = view.plan(ReservingPlan)
        waiting = [kind for kind in self._kinds.values() if kind.queue]
        firsts = [kind.queue[0][3] for kind in waiting]
        turns = [
            KindCursor(self._kinds[job.shape.number])
            for job in plan.candidates(firsts)
            if plan.fits(job)
        ]
        if not turns:
            return plan
        free = self._free()
        scale = self._scale(waiting, free)
        while turns:
            best = max(turns, key=lambda turn: turn.score(free, scale))
            if plan.place(best.job):
                free = _minus(free, best.kind.wants)
                if best.advance():
                    continue
            turns.remove(best)  # equal demands do not fit either
        return plan

    def _free(self) -> Amounts:
        """What no running job has, as parts of the total; always the same number for them."""
        gpus, cpus, mem_gib = (
            reduce(sub, parts, 1.0) if amount else 1.0
            for parts, amount in zip(self._parts, self._total, strict=True)
        )
        return (gpus, cpus, mem_gib)

    def _scale(self, waiting: Iterable["Kind"], free: Amounts) -> float:
        """`epsilon` x mean alignment / mean work of the waiting jobs."""
        if not self.params.epsilon:
            return 0.0
        aligned = work = 0.0
        for kind in waiting:
            aligned += len(kind.queue) * _dot(kind.wants, free)
            work += kind.remaining_s * ordered_sum(kind.wants)
        return self.params.epsilon * aligned / work if work else 0.0


class Kind:
    """Waiting jobs of equal demands, the one to start next first."""

    __slots__ = ("_endless", "_remaining", "_units", "queue", "shape", "wants")

    def __init__(self, shape: Shape, wants: Amounts) -> None:
        self.shape = shape
        self.wants = wants  # as parts of the total
        self.queue: list[tuple[float, float, int, Job]] = []  # remaining seconds, arrival, the job
        self._remaining: dict[int, float] = {}
        self._units = 0  # a sum of whole numbers does not depend on the order of its parts
        self._endless = 0

    @property
    def remaining_s(self) -> float:
        """Of all that wait."""
        return INF if self._endless else self._units / UNITS

    def add(self, job: Job, remaining_s: float) -> None:
        """It waits."""
        insort(self.queue, (remaining_s, job.submit_s, job.index, job))
        self._remaining[job.index] = remaining_s
        self._count(remaining_s, +1)

    def remove(self, job: Job) -> None:
        """It waits no more."""
        remaining_s = self._remaining.pop(job.index)
        del self.queue[bisect_left(self.queue, (remaining_s, job.submit_s, job.index))]
        self._count(remaining_s, -1)

    def _count(self, remaining_s: float, sign: int) -> None:
        if remaining_s < INF:
            self._units += sign * round(remaining_s * UNITS)
        else:
            self._endless += sign


UNITS = 1 << 40  # in a second


class KindCursor:
    """The next job of a kind in one decision."""

    __slots__ = ("_at", "job", "kind", "remaining_s")

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._at = -1
        self.advance()

    def advance(self) -> bool:
        """Look at the next one; False if there is none."""
        self._at += 1
        if self._at == len(self.kind.queue):
            return False
        self.remaining_s, _, _, self.job = self.kind.queue[self._at]
        return True

    def score(self, free: Amounts, scale: float) -> tuple[float, int]:
        """Of equal demands the least work has the best score."""
        wants = self.kind.wants
        penalty = scale * (self.remaining_s * ordered_sum(wants)) if scale else 0.0
        return (_dot(wants, free) - penalty, -self.job.index)


def _dot(a: Amounts, b: Amounts) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _minus(a: Amounts, b: Amounts) -> Amounts:
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2])
