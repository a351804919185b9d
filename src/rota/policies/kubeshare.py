"""KubeShare (Yeh et al., HPDC 2020): parts of GPUs with a request, a limit and labels.

A job asks for a part of a GPU (`num_gpus`) and for memory, and may use more of the GPU than it asks
for while nobody else does, up to its limit (`gpu_limit` in the column `resources`, else the
parameter `limit`). What is asked for on a GPU adds up to at most one GPU, so that everyone's use is
between request and limit. Labels are about GPUs:

    gpu-affinity:X         jobs with this label are on the same GPU
    gpu-anti-affinity:X    jobs with this label are never on the same GPU
    gpu-exclusion:X        only jobs with this label are on its GPU

Jobs without affinity go to the fullest GPU with room (best fit); the first job of an affinity goes
to the emptiest (worst fit), because others will follow. It needs GPUs with `sharing: fraction` or
`mps`; on others nobody has more than it asks for.

Departs from the paper: tokens that pass the GPU around are fluid (`--rates sharing`), and GPUs are
not acquired and released by a second scheduler.
"""

from typing import Annotated, Any

import msgspec

from rota.core.allocation import Allocation
from rota.core.jobs import Job
from rota.core.policy import Params
from rota.core.sharing import AFFINITY, ALONE, APART, DUST, FRACTION, LIMIT, MPS
from rota.core.view import View
from rota.policies._gpus import GpuSharingPolicy, Placings, SharedGpu, SharedGpus, with_terms


class KubeshareParams(Params, frozen=True):
    """`limit`: the part of a GPU that jobs may use which give no limit of their own."""

    limit: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0


class Kubeshare(GpuSharingPolicy[KubeshareParams]):
    """Place parts of GPUs by request, memory and labels; use is between request and limit."""

    name = "kubeshare"
    paper = "Yeh et al., KubeShare: A Framework to Manage GPUs as First-Class Resources, HPDC 2020"
    Parameters = KubeshareParams

    def __init__(self, params: KubeshareParams | None = None) -> None:
        super().__init__(params)
        self._labels: dict[int, tuple[str, ...]] = {}  # of jobs, by number
        self._homes: dict[str, int] = {}  # where the jobs of an affinity are

    def begin(self, view: View, gpus: SharedGpus, placed: Placings) -> None:
        """Which labels are on which GPU follows from the jobs."""
        self._labels = {job.index: job.shape.gpu_labels for job in view.jobs}
        self._homes = {
            label: gpu.id
            for job, allocation in placed.values()
            for label in job.shape.gpu_labels
            if label.startswith(AFFINITY)
            for gpu in gpus.of(job, allocation)
        }

    def find(self, job: Job, gpus: SharedGpus) -> Allocation | None:
        """By labels, then by best fit."""
        rank = _emptiest if _affine(job.shape.gpu_labels) else self.rank
        allocation = gpus.place(job, lambda gpu: self.welcome(job, gpu), rank)
        if allocation is None or not 0 < job.gpus < 1:
            return allocation
        (gpu,) = gpus.of(job, allocation)
        for label in job.shape.gpu_labels:
            if label.startswith(AFFINITY):
                self._homes[label] = gpu.id
        if gpu.mode not in (FRACTION, MPS):
            return allocation
        limit = job.shape.resources.get(LIMIT, self.params.limit)
        return with_terms(allocation, {gpu.id: [(LIMIT, max(limit, job.gpus))]}, [LIMIT])

    def welcome(self, job: Job, gpu: SharedGpu) -> bool:
        """Requests add up to one GPU at most, and the labels allow it."""
        if gpu.compute + min(1.0, job.gpus) > 1 + DUST:
            return False
        mine = job.shape.gpu_labels
        there = [self._labels.get(index, ()) for index in gpu.parts]
        homes = [self._homes[label] for label in mine if label in self._homes]
        if any(home != gpu.id for home in homes):
            return False
        if any(label.startswith(APART) and label in other for label in mine for other in there):
            return False
        alone = _exclusion(mine)
        return all(_exclusion(other) == alone for other in there)

    def rank(self, gpu: SharedGpu) -> Any:
        """Best fit; GPUs where jobs wait for company come last."""
        return (any(_affine(self._labels.get(i, ())) for i in gpu.parts), -gpu.compute)


def _emptiest(gpu: SharedGpu) -> float:
    return gpu.compute


def _exclusion(labels: tuple[str, ...]) -> frozenset[str]:
    return frozenset(label for label in labels if label.startswith(ALONE))


def _affine(labels: tuple[str, ...]) -> bool:
    return any(label.startswith(AFFINITY) for label in labels)
