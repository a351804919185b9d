"""Pack jobs into MIG instances (NVIDIA's Multi-Instance GPU).

A GPU with `sharing: mig` is divided into instances by a layout; the vendor's table says where each
profile may begin, and a GPU is divided anew only while nobody is on it. A job that asks for a part
of a GPU gets the smallest profile with as much compute and memory; a job that asks for whole GPUs
gets GPUs that are not divided.

    for jobs by size, the largest first (those that have waited for `patience_s` before all others):
        a free instance of its profile, on the fullest GPU; else an idle GPU is divided for it:
            its profile, those of the jobs behind it that still fit, more of its own, smaller ones
        else any larger instance that is free

This is first fit decreasing: it needs at most one GPU more than the least possible on the cases of
the tests, where an integer programme knows the optimum.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from rota.core.allocation import Allocation
from rota.core.jobs import Job
from rota.core.policy import Params
from rota.core.sharing import (
    DUST,
    MIG,
    Layout,
    MigProfile,
    instance_kind,
    mig_profiles,
    read_layout,
    written,
)
from rota.core.view import View
from rota.policies._gpus import GpuSharingPolicy, Placings, SharedGpu, SharedGpus, on_gpus


class MigPackParams(Params, frozen=True):
    """`patience_s`: who has waited so long comes before all larger jobs."""

    patience_s: Annotated[float, msgspec.Meta(ge=0)] = 3600.0


class MigPack(GpuSharingPolicy[MigPackParams]):
    """Divide GPUs into MIG instances by what waits, and pack jobs into them."""

    name = "mig-pack"
    Parameters = MigPackParams
    divides = True

    def __init__(self, params: MigPackParams | None = None) -> None:
        super().__init__(params)
        self._behind: list[Job] = []  # who comes after the job that is being placed
        self._now_s = 0.0

    def begin(self, view: View, gpus: SharedGpus, placed: Placings) -> None:  # noqa: ARG002
        """Remember the time: it decides who has waited for too long."""
        self._now_s = view.now_s

    def order(self, waiting: list[Job]) -> Iterable[Job]:
        """The largest first, but the patient before all."""
        late = [j for j in waiting if self._now_s - j.submit_s >= self.params.patience_s]
        early = [j for j in waiting if self._now_s - j.submit_s < self.params.patience_s]
        early.sort(key=lambda job: (-job.gpus, -job.shape.gpu_mem_gib, job.submit_s, job.index))
        self._behind = [*late, *early]
        for job in self._behind[:]:
            self._behind = self._behind[1:]
            yield job

    def find(self, job: Job, gpus: SharedGpus) -> Allocation | None:
        """An instance for a part of a GPU; whole GPUs, and GPUs without MIG, as they are."""
        if not 0 < job.gpus < 1:
            return super().find(job, gpus)
        divided = [gpu for gpu in gpus if gpu.mode == MIG and _accepted(job, gpu)]
        for choice in (
            self._exact(job, divided),
            self._new(job, divided),
            self._larger(job, divided),
        ):
            for gpu, profile, start, layout in choice:
                said = [(instance_kind(profile, start, layout), 1.0)]
                allocation = on_gpus(job, [gpu], said)
                if gpus.holds(allocation):
                    return allocation
        return super().find(job, gpus)

    def could_have(self, job: Job, idle: SharedGpus) -> bool:
        """By its own rules."""
        return self.find(job, idle) is not None

    def welcome(self, job: Job, gpu: SharedGpu) -> bool:
        """Whole GPUs, also of those with MIG; parts only elsewhere."""
        return gpu.mode != MIG or job.gpus >= 1

    def _exact(self, job: Job, gpus: Sequence[SharedGpu]) -> "Iterable[Choice]":
        """Free instances of its own profile, those of the fullest GPUs first."""
        for gpu in sorted(gpus, key=lambda gpu: -len(gpu.parts)):
            wanted = smallest_profile(job, gpu.type)
            for profile, start in free_instances(gpu):
                if profile is wanted:
                    yield gpu, profile, start, layout_of(gpu)

    def _new(self, job: Job, gpus: Sequence[SharedGpu]) -> "Iterable[Choice]":
        """An idle GPU, divided for this job and those behind it."""
        for gpu in gpus:
            wanted = smallest_profile(job, gpu.type)
            if not gpu.parts and wanted is not None:
                others = [
                    smallest_profile(other, gpu.type)
                    for other in self._behind
                    if 0 < other.gpus < 1
                ]
                layout = divided_for(wanted, [each for each in others if each], gpu.type)
                start = next(start for profile, start in layout if profile is wanted)
                yield gpu, wanted, start, written(layout)
                return

    def _larger(self, job: Job, gpus: Sequence[SharedGpu]) -> "Iterable[Choice]":
        """Free instances that are larger than needed, the smallest first."""
        found = [
            (profile.memory, profile.compute, gpu.id, start, gpu, profile)
            for gpu in gpus
            for profile, start in free_instances(gpu)
            if _holds(profile, job)
        ]
        for _, _, _, start, gpu, profile in sorted(found, key=lambda each: each[:4]):
            yield gpu, profile, start, layout_of(gpu)


Choice = tuple[SharedGpu, MigProfile, int, str]
"""A GPU, an instance of it, and the layout."""

STARTS = {1: (6, 4, 5, 2, 3, 0, 1), 2: (6, 4, 2, 0), 4: (4, 0), 8: (0,)}
"""Where an instance goes first, by eighths of memory: so that large ones find room beside it."""


def smallest_profile(job: Job, gpu_type: str) -> MigProfile | None:
    """The smallest profile with as much compute and memory as the job asks for."""
    return next((each for each in mig_profiles(gpu_type) if _holds(each, job)), None)


def _holds(profile: MigProfile, job: Job) -> bool:
    return job.gpus <= profile.gpus + DUST and job.shape.gpu_mem_gib <= profile.mem_gib + DUST


def _accepted(job: Job, gpu: SharedGpu) -> bool:
    shape = job.shape
    return (not shape.types or gpu.type in shape.types) and set(shape.labels) <= set(
        gpu.node.labels
    )


def layout_of(gpu: SharedGpu) -> str:
    """How a GPU is divided; empty: it is not."""
    return next((part.layout for part in gpu.parts.values()), "")


def free_instances(gpu: SharedGpu) -> list[tuple[MigProfile, int]]:
    """Instances of its layout that nobody has."""
    layout = layout_of(gpu)
    if not layout:
        return []
    used = {part.instance for part in gpu.parts.values()}
    return [
        (profile, start)
        for profile, start in read_layout(layout, gpu.type)
        if f"{profile.name}@{start}" not in used
    ]


def divided_for(first: MigProfile, others: Sequence[MigProfile], gpu_type: str) -> Layout:
    """A layout with this profile, those of the others that still fit, more of it, smaller ones."""
    layout: list[tuple[MigProfile, int]] = []
    smaller = [
        p for p in reversed(mig_profiles(gpu_type)) if p.memory <= first.memory and not p.wide
    ]
    filling = [first] * 7 + [profile for profile in smaller for _ in range(7)]
    for profile in [first, *others, *filling]:
        start = free_start(profile, layout)
        if start is not None:
            layout.append((profile, start))
    return tuple(sorted(layout, key=lambda each: each[1]))


def free_start(profile: MigProfile, layout: Sequence[tuple[MigProfile, int]]) -> int | None:
    """Where one more instance could begin by the vendor's table."""
    taken = {slot for each, start in layout for slot in range(start, start + each.memory)}
    for start in STARTS[profile.memory]:
        slots = range(start, start + profile.memory)
        if start in profile.starts and taken.isdisjoint(slots):
            return start
    return None


def packed(profiles: Iterable[MigProfile]) -> list[list[tuple[MigProfile, int]]]:
    """Instances of these profiles on as few GPUs as first fit decreasing needs."""
    gpus: list[list[tuple[MigProfile, int]]] = []
    for profile in sorted(profiles, key=lambda each: (-each.memory, -each.compute)):
        for layout in gpus:
            start = free_start(profile, layout)
            if start is not None:
                layout.append((profile, start))
                break
        else:
            start = free_start(profile, [])
            assert start is not None  # noqa: S101 - every profile fits an idle GPU
            gpus.append([(profile, start)])
    return gpus
