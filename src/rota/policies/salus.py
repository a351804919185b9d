"""Salus (Yu and Chowdhury, MLSys 2020): jobs share a GPU in turns of one iteration.

A job's memory is what it keeps (its model) and what only its steps need. Jobs may be on a GPU
together if what they keep and the largest need of a step fit:

    sum(persistent) + max(ephemeral) <= memory of the GPU

Then a switch between them moves no memory and costs nothing, so that any discipline may choose who
has the next iteration: `fifo` the oldest, `srtf` the one with the least work left (or several that
ask for one GPU together), `fair` all in turns, `pack` all in turns and as many jobs on a GPU as
there is memory for.

Departs from the paper: iterations are not simulated one by one; in turns, n jobs have an n-th of
the GPU each. Lanes are not sized: all jobs of a GPU are in one. A job with several GPUs has its
turn on all of them at once.
"""

from collections.abc import Iterable
from typing import Any, Literal

from rota.core.allocation import Allocation
from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.plan import ExplicitPlan
from rota.core.policy import Params
from rota.core.sharing import DUST, LIMIT
from rota.core.view import View
from rota.policies._gpus import GpuSharingPolicy, Placings, SharedGpu, SharedGpus, with_terms


class SalusParams(Params, frozen=True):
    """`inside`: who of those on a GPU has it (fifo, srtf, fair or pack)."""

    inside: Literal["fifo", "srtf", "fair", "pack"] = "srtf"


class Salus(GpuSharingPolicy[SalusParams]):
    """Share GPUs in turns, as many jobs as memory allows."""

    name = "salus"
    paper = "Yu, Chowdhury: Salus, Fine-Grained GPU Sharing Primitives for DL Applications, 2020"
    Parameters = SalusParams

    def __init__(self, params: SalusParams | None = None) -> None:
        super().__init__(params)
        if self.params.inside == "srtf":
            self.knowledge = Knowledge.REMAINING_WORK

    def rank(self, gpu: SharedGpu) -> Any:
        """To pack: the GPU with the least memory left that suffices; else the one of fewest."""
        if self.params.inside == "pack":
            return (-gpu.memory_gib, -len(gpu.parts))
        return len(gpu.parts)

    def settle(self, view: View, plan: ExplicitPlan, gpus: SharedGpus, placed: Placings) -> None:  # noqa: ARG002
        """Who has no turn is paused: it keeps its memory and gives up compute."""
        busy: dict[int, float] = {}
        one_by_one = self.params.inside in ("fifo", "srtf")
        for job in self._by_turn([job for job, _ in placed.values()], view.now_s):
            allocation = placed[job.index][1]
            mine = [gpu.id for gpu in gpus.of(job, allocation) if gpu.overcommits]
            part = min(1.0, job.gpus)
            paused = one_by_one and any(busy.get(gpu, 0.0) + part > 1 + DUST for gpu in mine)
            for gpu in () if paused else mine:
                busy[gpu] = busy.get(gpu, 0.0) + part
            placed[job.index] = (job, _paused(allocation, mine if paused else ()))

    def _by_turn(self, jobs: list[Job], now_s: float) -> Iterable[Job]:
        if self.params.inside == "srtf":
            return sorted(jobs, key=lambda job: (job.remaining_s(now_s), job.index))
        return sorted(jobs, key=lambda job: (job.submit_s, job.index))


def _paused(allocation: Allocation, where: Iterable[int]) -> Allocation:
    return with_terms(allocation, {vertex: [(LIMIT, 0.0)] for vertex in sorted(where)}, [LIMIT])
