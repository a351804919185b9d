"""Tiresias, discretised two-dimensional LAS (Gu et al., NSDI 2019, section 3).

Jobs sit in priority queues by the GPU-time that they have received; a job that reaches a queue's
limit drops to the next one. The first queue is served first; inside a queue running jobs keep their
place, in the order of their start, and waiting ones follow in the order of submission. (Serving a
queue strictly in the order of submission doubles the mean JCT on Philly's jobs: it lets a waiting
job of the same queue displace a running one again and again.) Jobs that do not fit are skipped. No
knowledge of durations is needed.

With `promote=K` a waiting job is promoted when it has waited K times as long as it has run: it
counts as submitted anew, at the tail of the first queue with nothing attained. Both times count
from its first start after the last promotion (or after its submission), over all its runs and waits
since; overhead of starts and stops counts as waiting. A job of the first queue has nowhere to go.

Departs from the paper: profile-based placement is a placement (`skew`), not part of the policy.
Departs from the authors' simulator: levels are crossed at exact times, not at the next event; a job
that drops goes on running beside those that wait in its new queue; preempted jobs wait in the order
of submission, not at the head.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from rota.core.events import INF
from rota.core.jobs import WAITING, Job
from rota.core.policy import Params
from rota.core.state import State, from_rows
from rota.policies._attained import AttainedPolicy, check_limits


class TiresiasParams(Params, frozen=True):
    """GPU-seconds at which a job drops a queue; waiting per running that promotes (0: never)."""

    limits: tuple[float, ...] = (3250.0, 7200.0)
    promote: float = 0.0

    def __post_init__(self) -> None:
        check_limits(self.limits)
        if self.promote < 0:
            raise ValueError("promote must not be negative; 0 turns it off")


class Promotion(msgspec.Struct):
    """When a job was promoted last, what it had got by then, and when it ran again."""

    at_s: float
    gpu_s: float
    run_s: float
    began_s: float = INF


class TiresiasState(State):
    """Promotions so far, and when waiting jobs will be promoted, as announced; by job index."""

    promotions: dict[int, Promotion] = {}
    due_s: dict[int, float] = {}

    @classmethod
    def migrate(cls, version: int, fields: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG003 - there is one
        """From version 0."""
        return {
            "promotions": {
                index: msgspec.to_builtins(Promotion(*last))
                for index, *last in fields["promotions"]
            },
            "due_s": from_rows(fields["due"]),
        }


class Tiresias(AttainedPolicy[TiresiasParams]):
    """Serve the jobs that have received the least GPU-time first, in queues."""

    name = "tiresias"
    paper = "Gu et al., Tiresias: A GPU Cluster Manager for Distributed Deep Learning, NSDI 2019"
    Parameters = TiresiasParams

    def __init__(self, params: TiresiasParams | None = None) -> None:
        super().__init__(params)
        self.ages = self.params.promote > 0
        self.levels = self.params.limits
        self.ranks = range(len(self.levels) + 1)
        self.state: TiresiasState = TiresiasState()

    def key(self, job: Job, now_s: float) -> tuple[Any, int, float]:
        """Queue, then running jobs by start and the others by submission or promotion."""
        if not self.ages:
            return super().key(job, now_s)
        last = self.state.promotions.get(job.index)
        if last is not None and last.began_s == INF and job.start_s >= last.at_s:
            last.began_s = job.start_s
        if job.running:
            self.state.due_s.pop(job.index, None)
            return super().key(job, now_s)
        if self.state.due_s.get(job.index, INF) <= now_s:
            del self.state.due_s[job.index]
            last = self.state.promotions[job.index] = Promotion(now_s, job.service, job.run_s)
            self.forgiven[job.index] = job.service
        return (self.rank(job, now_s), 1, job.submit_s if last is None else last.at_s)

    def next_change(self, job: Job, now_s: float) -> float:
        """When a running job reaches the limit of its queue, or a waiting one is promoted."""
        if not self.ages or job.phase != WAITING:
            return super().next_change(job, now_s)
        last = self.state.promotions.get(job.index)
        began_s = job.first_start_s if last is None else last.began_s
        if began_s == INF or not self.interval(job, now_s):
            return INF
        ran_s = job.run_s if last is None else job.run_s - last.run_s
        due_s = max(began_s + ran_s * (1.0 + self.params.promote), now_s)
        self.state.due_s[job.index] = due_s
        return due_s

    def finished(self, job: Job, now_s: float) -> None:  # noqa: ARG002 - nothing is learnt
        """Forget its promotion."""
        if self.state.promotions.pop(job.index, None):
            del self.forgiven[job.index]

    def resumed(self) -> None:
        """What a promoted job had got before does not count."""
        promotions = self.state.promotions
        self.forgiven = {index: last.gpu_s for index, last in promotions.items()}
