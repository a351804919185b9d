"""Olympian (Hu et al., Middleware 2018): a GPU in slices, dealt out by a chosen policy.

Slices are shorter than a second, so they are fluid here: who has a third of the slices runs at a
third of its speed. `slices=fair` gives equal parts, `weighted` parts by priority (a job of priority
3 has three times as much as one of priority 1, or of less), `priority` all of a GPU to the jobs of
the highest priority on it, in equal parts.

Departs from the paper: it is about models that are served, with the cost of every node of their
graphs profiled beforehand; here jobs are trained, and a slice is a part of the GPU's time. How
discrete slices follow the parts is in `rota.models.slicing.SliceTurns`.
"""

from itertools import groupby
from typing import Literal

from rota.core.jobs import Job
from rota.core.plan import ExplicitPlan
from rota.core.policy import Params
from rota.core.sharing import LIMIT, WEIGHT
from rota.core.view import View
from rota.policies._gpus import (
    GpuSharingPolicy,
    Placings,
    SharedGpu,
    SharedGpus,
    Terms,
    with_terms,
)


class OlympianParams(Params, frozen=True):
    """`slices`: fair, weighted or priority; `sharers`: so many jobs on a GPU at most (0: any)."""

    slices: Literal["fair", "weighted", "priority"] = "fair"
    sharers: int = 4


class Olympian(GpuSharingPolicy[OlympianParams]):
    """Deal out slices of GPUs: equally, by weight or by priority."""

    name = "olympian"
    paper = "Hu et al., Olympian: Scheduling GPU Usage in a DNN Model Serving System, 2018"
    Parameters = OlympianParams

    def welcome(self, job: Job, gpu: SharedGpu) -> bool:  # noqa: ARG002 - whoever it is
        """As long as there are not too many on it."""
        return not self.params.sharers or len(gpu.parts) < self.params.sharers

    def settle(self, view: View, plan: ExplicitPlan, gpus: SharedGpus, placed: Placings) -> None:  # noqa: ARG002
        """Weights, or a pause for those of lower priority."""
        taken: set[int] = set()
        jobs = sorted((job for job, _ in placed.values()), key=lambda job: -job.spec.priority)
        for _, group in groupby(jobs, key=lambda job: job.spec.priority):
            higher = taken.copy()
            for job in group:
                allocation = placed[job.index][1]
                mine = {gpu.id for gpu in gpus.of(job, allocation) if gpu.overcommits}
                terms: Terms = ()
                if self.params.slices == "weighted":
                    terms = [(WEIGHT, float(max(1, job.spec.priority)))]
                elif self.params.slices == "priority" and higher & mine:
                    terms = [(LIMIT, 0.0)]
                if terms != [(LIMIT, 0.0)]:
                    taken |= mine
                said = dict.fromkeys(sorted(mine), terms)
                placed[job.index] = (job, with_terms(allocation, said, [LIMIT, WEIGHT]))
