"""AntMan (Xiao et al., OSDI 2020): opportunistic jobs use what guaranteed jobs leave of a GPU.

Guaranteed jobs have GPUs for themselves; opportunistic ones (of a priority class with `guaranteed:
false`, or of a priority below 0) share a GPU with them, in what memory is left (the rest is kept on
the node, which slows them) and with a limit on the compute that they may use.

The limit is found by measuring alone. How fast a guaranteed job is with its neighbours paused is
its solo rate. Then a little more is tried for a moment:

    paused                  -> solo rate is measured
    limit + step, a moment  -> kept if rate >= (1 - tolerance) * solo; else taken back, and the next
                               try is twice as far away
    rate below that, later  -> all paused, and measured anew

A moment is `interval_s * moment`, and there is one try in an interval at most: whatever the
neighbours do, it can cost no more than this part of the time, and what is kept costs no more than
the tolerance. A guaranteed job so keeps `1 - moment - tolerance` of its solo rate.

It needs GPUs with `sharing: mps`. On others an opportunistic job runs on idle GPUs only, and leaves
for a guaranteed one.

Departs from the paper: the limit is on a part of the GPU, not on launches of single operators; all
guaranteed jobs are within their quotas.
"""

from typing import Annotated

import msgspec

from rota.core.allocation import Allocation
from rota.core.events import INF
from rota.core.jobs import RUNNING, Job
from rota.core.knowledge import Knowledge
from rota.core.plan import ExplicitPlan, Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.sharing import DUST, EPHEMERAL, GPU_MEM, LIMIT, MPS, SPILL, GpuPart
from rota.core.state import State
from rota.core.topology import Topology
from rota.core.view import View
from rota.policies._gpus import (
    Placings,
    SharedGpu,
    SharedGpus,
    Terms,
    fits_idle,
    no_place,
    with_terms,
)

MEMORY = (GPU_MEM, EPHEMERAL, SPILL)


class AntmanParams(Params, frozen=True):
    """`interval_s`, `moment`: how often more is tried, and for which part of that time.

    `step`: by how much limits grow. `tolerance`: by how much a guaranteed job may be slower.
    `spill`: memory of opportunistic jobs that does not fit is kept on the node.
    """

    interval_s: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    moment: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.01
    step: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.1
    tolerance: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.005
    spill: bool = True


class Throttle(msgspec.Struct):
    """What is known of the neighbours of one guaranteed job."""

    solo: float = 0.0  # its rate with all neighbours paused; 0: not measured yet
    level: float = 0.0  # of each GPU for its neighbours together, found to be harmless
    trial: float = -1.0  # tried at present; -1: nothing
    since_s: float = -1.0  # when its neighbours' limits were set last
    next_s: float = 0.0  # when more may be tried
    wait: float = 1.0  # intervals until then, after a failure
    near: list[int] = []  # who the neighbours were
    count: int = 1  # how many divide the level


class AntmanState(State):
    """By number of the guaranteed job."""

    throttles: dict[int, Throttle] = {}


class Antman(DecidePolicy[AntmanParams]):
    """Guaranteed jobs keep their speed; opportunistic ones have what is left."""

    name = "antman"
    paper = "Xiao et al., AntMan: Dynamic Scaling on GPU Clusters for Deep Learning, OSDI 2020"
    knowledge = Knowledge.RATE
    Parameters = AntmanParams
    plan_type = ExplicitPlan
    preemptive = True

    def __init__(self, params: AntmanParams | None = None) -> None:
        super().__init__(params)
        self.state: AntmanState = AntmanState()

    def decide(self, view: View) -> Plan:
        """Guaranteed jobs first, as if there were no others; then the others beside them."""
        plan = view.plan(ExplicitPlan)
        gpus = SharedGpus(view.topology, spent=view.spent)
        placed: Placings = {}
        guaranteed = {
            job.index: job
            for job in view.jobs
            if view.tenants.class_of(job.spec.priority).guaranteed
        }
        for job in view.running:
            if job.index in guaranteed:
                _put(job, job.allocation, gpus, placed)
        lent = {
            gpu.id for job in view.running if job.index not in guaranteed for gpu in gpus.of(job)
        }
        for job in view.waiting:
            if job.index in guaranteed:
                _put(job, self._own(job, gpus, lent), gpus, placed)
        self._others(view, gpus, placed, guaranteed)
        self._throttle(view, plan, gpus, placed, guaranteed)
        for job, allocation in placed.values():
            if job.running and allocation == job.allocation:
                plan.keep(job)
            else:
                plan.place_at(job, allocation)
        return plan

    def never(self, job: Job, topology: Topology) -> str | None:
        """GPU memory does not count: what a GPU has not may be kept on the node."""
        fits = fits_idle(job, SharedGpus(topology, closed=True), GpuPart(min(1.0, job.gpus)))
        return None if fits else no_place(self.name, job)

    def _own(self, job: Job, gpus: SharedGpus, lent: set[int]) -> Allocation | None:
        """GPUs of which guaranteed jobs leave enough, without opportunistic ones if possible."""
        mine = min(1.0, job.gpus) - DUST
        return gpus.place(
            job, lambda gpu: gpu.compute + mine <= 1, lambda gpu: (gpu.id in lent, -gpu.compute)
        )

    def _others(
        self, view: View, gpus: SharedGpus, placed: Placings, guaranteed: dict[int, Job]
    ) -> None:
        """Opportunistic jobs: those that run stay if they may, those that wait find a GPU."""
        others = [job for job in view.jobs if job.index not in guaranteed]
        for job in sorted(others, key=lambda job: (not job.running, job.submit_s, job.index)):
            found = self._stay(job, gpus) if job.running else self._seek(job, gpus)
            _put(job, None if found is None else self._fitted(job, found, gpus), gpus, placed)

    def _stay(self, job: Job, gpus: SharedGpus) -> Allocation | None:
        """A running opportunistic job: its GPUs, or nothing if it has to leave."""
        bare = with_terms(job.allocation, {}, MEMORY)
        stays = all(self._beside(job, gpu) for gpu in gpus.of(job)) and gpus.holds(bare)
        return bare if stays else None

    def _seek(self, job: Job, gpus: SharedGpus) -> Allocation | None:
        """One that waits: idle GPUs first, then those with the fewest jobs and most memory left."""
        return gpus.place(
            job,
            lambda gpu: self._beside(job, gpu),
            lambda gpu: (len(gpu.parts), gpu.memory_gib),
            part=GpuPart(min(1.0, job.gpus)),
        )

    def _beside(self, job: Job, gpu: SharedGpu) -> bool:
        """May an opportunistic job be on this GPU with those that are there?"""
        if gpu.parts and gpu.mode != MPS:
            return False
        spills = self.params.spill and gpu.mode == MPS
        return spills or job.shape.gpu_mem_gib <= gpu.mem_gib - gpu.memory_gib + DUST

    def _fitted(self, job: Job, found: Allocation, gpus: SharedGpus) -> Allocation:
        """With as much GPU memory as is left, and the rest on the node."""
        terms: dict[int, Terms] = {}
        asked = job.shape.gpu_mem_gib
        for gpu in gpus.of(job, found) if asked else ():
            resident = max(0.0, min(asked, gpu.mem_gib - gpu.memory_gib))
            spilled = asked - resident
            terms[gpu.id] = [(GPU_MEM, resident), *([(SPILL, spilled)] if spilled > DUST else [])]
        return with_terms(found, terms, MEMORY)

    # --- limits -----------------------------------------------------------------------------------

    def _throttle(
        self,
        view: View,
        plan: ExplicitPlan,
        gpus: SharedGpus,
        placed: Placings,
        guaranteed: dict[int, Job],
    ) -> None:
        """Set the limits of all opportunistic jobs, by what was measured."""
        throttles = self.state.throttles
        for index in [index for index in throttles if index not in placed]:
            del throttles[index]
        wake_s = INF
        allowed: dict[int, dict[int, float]] = {}  # by number of the job and GPU
        for job, allocation in list(placed.values()):
            if job.index not in guaranteed:
                continue
            mine = gpus.of(job, allocation)
            near = sorted({i for gpu in mine for i in gpu.parts if i not in guaranteed})
            if not near:
                throttles.pop(job.index, None)
                continue
            throttle = throttles.setdefault(job.index, Throttle())
            level = self._measure(job, throttle, near, view.now_s)
            wake_s = min(wake_s, self._next(job, throttle, view.now_s))
            for gpu in mine:
                for i in gpu.parts.keys() - guaranteed.keys():
                    allowed.setdefault(i, {})[gpu.id] = level / throttle.count
        for job, allocation in list(placed.values()):
            if job.index not in guaranteed:
                limits = self._limits(job, gpus.of(job, allocation), allowed.get(job.index, {}))
                placed[job.index] = (job, with_terms(allocation, limits, [LIMIT]))
        if wake_s < INF:
            plan.wake_at(max(wake_s, view.now_s))

    def _limits(
        self, job: Job, gpus: list[SharedGpu], allowed: dict[int, float]
    ) -> dict[int, Terms]:
        """The least of its GPUs decides: a job with several waits for the slowest."""
        if not allowed:
            return {}
        least = min(1.0, job.gpus, *allowed.values())
        return {gpu.id: [(LIMIT, round(least, 9))] for gpu in gpus}

    def _measure(self, job: Job, throttle: Throttle, near: list[int], now_s: float) -> float:
        """What its rate says of the present limits; how much its neighbours may use from now on."""
        params = self.params
        rate = job.rate if job.phase == RUNNING else 0.0
        measured = rate > 0 and throttle.since_s >= 0 and now_s > throttle.since_s
        fine = rate >= (1.0 - params.tolerance) * throttle.solo
        if set(near) - set(throttle.near) or rate <= 0:  # somebody came: begin anew
            throttle.level, throttle.trial, throttle.solo = 0.0, -1.0, 0.0
            throttle.since_s = now_s
        elif throttle.since_s == now_s or not measured:
            pass
        elif not throttle.solo:
            throttle.solo = rate
        elif throttle.trial >= 0:
            throttle.level = throttle.trial if fine else throttle.level
            throttle.wait = 1.0 if fine else 2.0 * throttle.wait
            throttle.trial = -1.0
            throttle.next_s = now_s + throttle.wait * params.interval_s
            throttle.since_s = now_s
        elif not fine:
            throttle.level, throttle.solo = 0.0, 0.0
            throttle.next_s = now_s + throttle.wait * params.interval_s
            throttle.since_s = now_s
        throttle.near = near
        ready = throttle.solo and throttle.trial < 0 and now_s >= throttle.next_s
        if ready and throttle.level < 1.0:
            throttle.trial = min(1.0, throttle.level + params.step)
            throttle.count = len(near)
            throttle.since_s = now_s
            throttle.next_s = now_s + params.interval_s
        return max(throttle.level, throttle.trial)

    def _next(self, job: Job, throttle: Throttle, now_s: float) -> float:
        """When it must be looked at again."""
        params = self.params
        if job.running and job.phase != RUNNING:
            return INF  # its beginning will be heard of
        if throttle.trial >= 0 or not throttle.solo:
            return max(now_s, throttle.since_s) + params.interval_s * params.moment
        ready_s = throttle.next_s if throttle.level < 1.0 else INF
        return min(max(ready_s, now_s), now_s + params.interval_s)


def _put(job: Job, allocation: Allocation | None, gpus: SharedGpus, placed: Placings) -> None:
    if allocation is not None:
        placed[job.index] = (job, allocation)
        gpus.add(job, allocation)
