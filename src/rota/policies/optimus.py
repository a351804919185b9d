"""Optimus: the next GPU to the job whose end it brings nearest (Peng et al., EuroSys 2018).

Every job gets its least number of GPUs; then, one step after the other, the job grows whose
remaining time falls most per GPU that the step takes. Sizes are decided anew in every interval;
whoever keeps its size keeps its place, and the others are placed from the smallest on.

How long a job still needs and how it scales is either told by an oracle (`estimate=oracle`: Pollux'
authors call this Optimus+Oracle), or fitted to what the job has told of itself (`estimate=fitted`),
as in the paper: the steps until the loss hardly falls any more from a curve 1/(a k + b) + c, and
the seconds of a step with n workers from t0 + t1/n + t2 n, both with coefficients that are not
negative (`rota.models.curves`). A job that has told too little counts as one that scales in
proportion and needs as long as it has run.

Departures: the paper has parameter servers, whose number is decided like that of the workers; here
a job is its workers. Speeds are those of whole jobs, not of single workers.
"""

from typing import Annotated, Literal

import msgspec

from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.plan import Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.state import State
from rota.core.view import View
from rota.models.curves import LossCurve, WorkerSpeed

FEW_STEPS = 1.0  # of a job that seems to have converged


class OptimusParams(Params, frozen=True):
    """Seconds between decisions, how jobs are known, and when a loss counts as converged."""

    interval_s: Annotated[float, msgspec.Meta(gt=0)] = 600.0
    estimate: Literal["oracle", "fitted"] = "oracle"
    converged: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.01


class OptimusState(State):
    """When sizes are decided next."""

    next_s: float = 0.0


class Optimus(DecidePolicy[OptimusParams]):
    """The next GPU to the job whose end it brings nearest."""

    name = "optimus"
    paper = (
        "Peng et al., Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters, "
        "EuroSys 2018"
    )
    Parameters = OptimusParams
    coupled = "shares: GPUs go to the job that gains most by them"
    preemptive = True
    elastic = True

    def __init__(self, params: OptimusParams | None = None) -> None:
        super().__init__(params)
        self.knowledge = Knowledge.SCALING | (
            Knowledge.REMAINING_WORK if self.params.estimate == "oracle" else Knowledge.PROGRESS
        )
        self.state: OptimusState = OptimusState()

    def decide(self, view: View) -> Plan:
        """In every interval sizes for all; in between whoever waits takes what is free."""
        plan = view.plan()
        if not view.jobs:
            return plan
        placed: set[int] = set()
        if view.now_s >= self.state.next_s:
            self.state.next_s = view.now_s + self.params.interval_s
            placed = self._share(view, plan)
        else:
            for job in view.running:
                plan.keep(job)
        for job in view.waiting:
            if job.index not in placed:
                plan.place(job, gpus=job.min_gpus)
        plan.wake_at(self.state.next_s)
        return plan

    def _share(self, view: View, plan: Plan) -> set[int]:
        jobs = list(view.jobs)
        sizes = self.sizes(jobs, float(view.up_gpus), view.now_s)
        others = []
        for job in jobs:
            size = sizes[job.index]
            if job.running and size == job.held_gpus:
                plan.keep(job)
            elif size:
                others.append((size, job))
        placed = set()
        for size, job in sorted(others, key=lambda pair: pair[0]):
            while size and not plan.place(job, gpus=size):
                size = job.size_within(size - 1) if size > job.min_gpus else 0  # noqa: PLW2901
            if size:
                placed.add(job.index)
        return placed

    def sizes(self, jobs: list[Job], gpus: float, now_s: float) -> dict[int, float]:
        """GPUs by job: the least each, as far as they go, then by gain."""
        left = gpus
        sizes: dict[int, float] = {}
        gains: dict[int, tuple[float, float]] = {}  # seconds per GPU, and the size that follows
        by_index = {job.index: job for job in jobs}
        for job in jobs:
            sizes[job.index] = job.min_gpus if job.min_gpus <= left else 0.0
            left -= sizes[job.index]
        times = {job.index: JobTimes(job, now_s, self.params) for job in jobs}
        for job in jobs:
            if sizes[job.index]:
                gains[job.index] = times[job.index].gain(sizes[job.index])
        while gains:
            index = max(gains, key=lambda i: gains[i][0])
            gain, size = gains[index]
            if gain <= 0:
                break
            if size - sizes[index] > left:
                del gains[index]
                continue
            left -= size - sizes[index]
            sizes[index] = size
            gains[index] = times[index].gain(size)
        return {index: sizes[index] for index in by_index}


class JobTimes:
    """How long one job would still take with any number of GPUs."""

    def __init__(self, job: Job, now_s: float, params: OptimusParams) -> None:
        self._job = job
        self._oracle = params.estimate == "oracle"
        self._fit: WorkerSpeed | None = None
        if self._oracle:
            self._work = max(job.remaining_s(now_s), 0.0)
            return
        self._fit = WorkerSpeed.of(job.timings)
        steps = LossCurve.of(job.learning.losses).steps_left(params.converged)
        batch = job.learning.get("batch", 1.0)
        if steps is None or self._fit is None:
            self._work = max(job.executed_s(now_s), FEW_STEPS)
            self._fit = None
        else:
            self._work = max(steps, FEW_STEPS) * batch * job.gpus

    def seconds(self, gpus: float) -> float:
        """With so many."""
        if self._fit is not None:
            return self._work / self._fit.samples(gpus)
        speed = self._job.speed_with(gpus) if self._oracle else gpus / self._job.gpus
        return self._work / speed if speed > 0 else INF

    def gain(self, gpus: float) -> tuple[float, float]:
        """Seconds less per further GPU, and the next size; nothing if there is none."""
        size = gpus + 1
        most = self._job.max_gpus
        while size <= most and not self._job.shape.request.takes(size):
            size += 1
        if size > most:
            return 0.0, gpus
        return (self.seconds(gpus) - self.seconds(size)) / (size - gpus), size
