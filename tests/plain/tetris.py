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

from collections.abc import Mapping
from typing import Annotated

import msgspec

from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.plan import Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.view import View
from rota.policies._resources import Amounts, capacity, shares


class TetrisParams(Params, frozen=True):
    """Weight of short remaining work against good packing."""

    epsilon: Annotated[float, msgspec.Meta(ge=0)] = 1.0


class Tetris(DecidePolicy[TetrisParams]):
    """Start the job whose demand is best aligned with what is free, with a bonus for short ones."""

    name = "tetris"
    paper = "Grandl et al., Multi-resource Packing for Cluster Schedulers, SIGCOMM 2014"
    knowledge = Knowledge.REMAINING_WORK
    Parameters = TetrisParams
    coupled = "scores compare a job with all that is free and with the mean work of all that wait"

    def __init__(self, params: TetrisParams | None = None) -> None:
        super().__init__(params)
        if not self.params.epsilon:
            self.knowledge = Knowledge.NOTHING

    def decide(self, view: View) -> Plan:
        """Start the best-scored job that fits until none does."""
        plan = view.plan()
        now_s, total = view.now_s, capacity(view)
        free = (1.0, 1.0, 1.0)
        for job in view.running:
            plan.place(job)
            free = _minus(free, shares(job.shape, total))
        queues = self._queues(view)
        wants = {number: shares(queue[0].shape, total) for number, queue in queues.items()}
        scale = self._scale(queues, wants, free, now_s)

        def score(number: int) -> tuple[float, int]:
            """Of the first in a queue: of equal demands the least work has the best score."""
            job = queues[number][-1]
            penalty = scale * _work(job, wants[number], now_s) if scale else 0.0
            return (_dot(wants[number], free) - penalty, -job.index)

        while queues:
            number = max(queues, key=score)
            queue = queues[number]
            if plan.place(queue[-1]):
                free = _minus(free, wants[number])
                queue.pop()
            else:
                queue.clear()  # equal demands do not fit either
            if not queue:
                del queues[number]
        return plan

    def _queues(self, view: View) -> dict[int, list[Job]]:
        """Waiting jobs by shape, the one to start first at the end."""
        queues: dict[int, list[Job]] = {}
        for job in reversed(view.waiting):
            queues.setdefault(job.shape.number, []).append(job)
        if self.params.epsilon:
            for queue in queues.values():
                queue.sort(key=lambda job: -job.remaining_s(view.now_s))
        return queues

    def _scale(
        self,
        queues: Mapping[int, list[Job]],
        wants: Mapping[int, Amounts],
        free: Amounts,
        now_s: float,
    ) -> float:
        """`epsilon` x mean alignment / mean work of the waiting jobs."""
        if not self.params.epsilon:
            return 0.0
        aligned = work = 0.0
        for number, queue in queues.items():
            aligned += len(queue) * _dot(wants[number], free)
            work += sum(_work(job, wants[number], now_s) for job in queue)
        return self.params.epsilon * aligned / work if work else 0.0


def _work(job: Job, wants: Amounts, now_s: float) -> float:
    return job.remaining_s(now_s) * sum(wants)


def _dot(a: Amounts, b: Amounts) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _minus(a: Amounts, b: Amounts) -> Amounts:
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2])
