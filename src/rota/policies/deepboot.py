"""DeepBoot: training on GPUs that requests leave idle (Chen et al., IEEE TPDS 2023).

Jobs with a priority above 0 are *requests* (inference): they get GPUs at once, in order of arrival.
All other jobs train on what is left. Every `every_s` seconds their sizes are chosen by a knapsack,
one choice for each job, whose value is the speedup over a fair share of the GPUs; a size that a job
does not have yet is worth less, the more so the younger the job is and the more often it was
restarted: (age - restarts * restart_s) / (age + restart_s). In between, a request that finds no
free GPU takes those whose loss costs the least speedup, one size at a time, and a job that comes
begins with its smallest size if there is room.

Departs from the paper: pods that are kept warm for the next request, and containers that are
reused, are matters of costs and not of this policy; speedups come from measured speeds, not from
goodput with a tuned batch (see `pollux`).
"""

from collections.abc import Sequence
from math import ceil
from typing import Annotated

import msgspec

from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.plan import Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.sums import ordered_sum
from rota.core.view import View
from rota.policies._sizes import give, open_gpus, sizes_of
from rota.policies.lyra import GrowthChoice, knapsack

Seconds = Annotated[float, msgspec.Meta(ge=0)]


class DeepBootPolicyParams(Params, frozen=True):
    """How often training is planned (0: at every event), and what a restart counts for."""

    every_s: Seconds = 60.0
    restart_s: Seconds = 10.0


class DeepBoot(DecidePolicy[DeepBootPolicyParams]):
    """Requests first; the rest by a knapsack of speedups."""

    name = "deepboot"
    paper = (
        "Chen et al., DeepBoot: Dynamic Scheduling System for Training and Inference Deep Learning "
        "Tasks in GPU Cluster, IEEE TPDS 2023"
    )
    knowledge = Knowledge.SCALING
    Parameters = DeepBootPolicyParams
    preemptive = True
    elastic = True
    coupled = "shares: all GPUs are divided among all jobs"

    def decide(self, view: View) -> Plan:
        """Requests, and sizes for training."""
        plan = view.plan()
        now_s, gpus = view.now_s, open_gpus(view)
        requests, training, left = [], [], gpus
        for job in view.jobs:
            if job.spec.priority <= 0:
                training.append(job)
            elif (size := job.size_within(min(job.gpus, gpus))) and size <= left:
                requests.append((job, size))
                left -= size
        training = [job for job in training if sizes_of(job, gpus)]
        every_s = self.params.every_s
        if not every_s or now_s % every_s == 0:
            shares = self._planned(training, left, now_s)
        else:
            shares = self._shrunk(training, left)
            if training:
                plan.wake_at((now_s // every_s + 1) * every_s)
        if every_s and training and now_s % every_s == 0:
            plan.wake_at(now_s + every_s)
        give(plan, [share for share in (*requests, *shares) if share[1]], most=gpus)
        plan.fill(job for job in view.jobs if not job.gpus)
        return plan

    def _planned(
        self, training: Sequence[Job], gpus: float, now_s: float
    ) -> list[tuple[Job, float]]:
        """The sizes that are worth most together."""
        choices = [
            [
                GrowthChoice(ceil(size), self._worth(job, size, gpus / len(training), now_s))
                for size in sizes_of(job, gpus)
            ]
            for job in training
        ]
        picked = knapsack(choices, int(gpus))
        return [
            (job, sizes_of(job, gpus)[number] if number >= 0 else 0.0)
            for job, number in zip(training, picked, strict=True)
        ]

    def _worth(self, job: Job, size: float, fair: float, now_s: float) -> float:
        """Speedup over a fair share, less what a change costs."""
        speedup = _speed(job, size) / (_speed(job, max(fair, 1.0)) or 1.0)
        if job.running and size == job.allocation.gpus:
            return speedup
        if not job.started:
            return speedup
        age_s, restart_s = now_s - job.submit_s, self.params.restart_s
        restarts = job.preemptions + job.migrations
        lost = max(age_s - restarts * restart_s, 0.0) / (age_s + restart_s) if age_s else 1.0
        return speedup * lost

    def _shrunk(self, training: Sequence[Job], gpus: float) -> list[tuple[Job, float]]:
        """As they are, without what requests need: the least loss of speed for a GPU first."""
        held = {job.index: job.allocation.gpus if job.running else 0.0 for job in training}
        while ordered_sum(held.values()) > gpus:
            holders = [job for job in training if held[job.index]]
            job = min(holders, key=lambda job: (_loss(job, held[job.index]), job.index))
            held[job.index] = _smaller(job, held[job.index])
        for job in training:
            least = sizes_of(job, gpus)[:1]
            if least and not job.running and ordered_sum(held.values()) + least[0] <= gpus:
                held[job.index] = least[0]
        return [(job, held[job.index]) for job in training]


def _speed(job: Job, gpus: float) -> float:
    """On so many GPUs relative to one size of its own; nothing on none."""
    return job.speed_with(gpus) if gpus else 0.0


def _smaller(job: Job, gpus: float) -> float:
    """Its next smaller size; 0 if there is none."""
    return max((size for size in sizes_of(job, gpus) if size < gpus), default=0.0)


def _loss(job: Job, gpus: float) -> float:
    """Speed that it loses for each GPU if it shrinks by one size, relative to what it has."""
    less = _smaller(job, gpus)
    now = _speed(job, gpus)
    return (now - _speed(job, less)) / now / (gpus - less) if now else 0.0
