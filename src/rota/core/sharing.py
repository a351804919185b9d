"""How a GPU may be shared: modes, what each job has of a GPU, and MIG's table of places.

A mode is data of each GPU (`sharing` of a node in a cluster file):

| Mode | Who shares it | Compute beyond one GPU | Memory |
| --- | --- | --- | --- |
| `exclusive` | one job | no | adds up |
| `fraction` | jobs with parts that add up to at most one GPU | no | adds up |
| `timeslice` | any number, in turns | yes: each waits for its turn | what stays adds up; what only steps need: the largest |
| `mps` | any number, at the same time | yes: they slow each other down | adds up |
| `mig` | one job for each instance of its layout | no | each instance has its own |

A GPU without a mode is as `fraction`, and whole GPUs may be shared by pairs of jobs where the
cluster knows how fast they run (`PairingPlan`).

Memory is never over-committed: whatever the mode, what jobs hold on a GPU fits into it.
"""  # noqa: E501 - a table

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import msgspec

from rota.core.allocation import Allocation
from rota.core.errors import ClusterSpecError
from rota.core.sums import ordered_sum

EXCLUSIVE, FRACTION, TIMESLICE, MPS, MIG = "exclusive", "fraction", "timeslice", "mps", "mig"
MODES = (EXCLUSIVE, FRACTION, TIMESLICE, MPS, MIG)
OVERCOMMITS = frozenset((TIMESLICE, MPS))
"""Modes in which jobs may hold more compute of a GPU than there is."""
NO_PAIRS = frozenset((EXCLUSIVE, FRACTION, MIG))
"""Modes in which two jobs never have the same whole GPU."""

GPU_MEM = "gpu_mem_gib"
"""Memory of a GPU that a job keeps, in GiB: never more than there is."""
EPHEMERAL = "gpu_mem_step_gib"
"""Memory of a GPU that only the steps of a job need, in GiB; in turns it is needed once."""
SPILL = "gpu_mem_spill_gib"
"""Memory that a job asks for of a GPU and keeps in its node's memory instead: that slows it."""
LIMIT = "gpu_limit"
"""The most of a GPU that a job may use, as a part of it; without it what the job holds."""
WEIGHT = "gpu_weight"
"""How much of a contended GPU a job gets beside others; without it what the job holds."""
INSTANCE = "mig "
"""`mig 3g.20gb@4 of 4g.20gb@0+3g.20gb@4`: an instance, and the layout of its GPU."""
AFFINITY, APART, ALONE = "gpu-affinity:", "gpu-anti-affinity:", "gpu-exclusion:"
GPU_LABELS = (AFFINITY, APART, ALONE)
"""Labels of requests that are about the GPU and who else is on it, not about nodes."""
DUST = 1e-6


class GpuPart(msgspec.Struct, frozen=True):
    """What one job has of one GPU."""

    gpus: float = 0.0
    mem_gib: float = 0.0  # that it keeps
    step_gib: float = 0.0  # that its steps need besides
    spill_gib: float = 0.0  # that it has on the node instead
    limit: float = 0.0  # the most of the compute that it may use; 0: nobody said
    instance: str = ""
    layout: str = ""


def parts_of(allocation: Allocation) -> dict[int, GpuPart]:
    """What an allocation has of every GPU that it names."""
    found: dict[int, dict[str, float | str]] = {}
    for vertex, amount in allocation.slices:
        found.setdefault(vertex, {})["gpus"] = amount
    for vertex, kind, amount in allocation.extra:
        if kind == GPU_MEM:
            found.setdefault(vertex, {})["mem_gib"] = amount
        elif kind == EPHEMERAL:
            found.setdefault(vertex, {})["step_gib"] = amount
        elif kind == SPILL:
            found.setdefault(vertex, {})["spill_gib"] = amount
        elif kind == LIMIT:
            found.setdefault(vertex, {})["limit"] = amount
        elif kind.startswith(INSTANCE):
            instance, _, layout = kind.removeprefix(INSTANCE).partition(" of ")
            found.setdefault(vertex, {}).update(instance=instance, layout=layout)
    return {vertex: GpuPart(**part) for vertex, part in found.items()}  # type: ignore[arg-type]


def memory_needed(mode: str, parts: Iterable[GpuPart]) -> float:
    """GiB that these need of a GPU together: in turns, only one of them makes a step."""
    steps = [part.step_gib for part in parts]
    kept = ordered_sum(part.mem_gib for part in parts)
    return kept + (max(steps, default=0.0) if mode == TIMESLICE else ordered_sum(steps))


def conflict(mode: str, mem_gib: float, parts: Sequence[GpuPart], gpu_type: str = "") -> str:
    """Why these cannot all be on one GPU; empty if they can."""
    memory = memory_needed(mode, parts)
    if memory > mem_gib + DUST:
        return f"{memory:g} of {mem_gib:g} GiB of GPU memory"
    if mode == MIG:
        return _mig_conflict(parts, gpu_type)
    if any(part.instance for part in parts):
        return "a MIG instance on a GPU that is none (sharing: mig)"
    return _compute_conflict(mode, parts)


def _compute_conflict(mode: str, parts: Sequence[GpuPart]) -> str:
    compute = ordered_sum(part.gpus for part in parts)
    if mode == EXCLUSIVE and len(parts) > 1:
        return f"{len(parts)} jobs on a GPU for one (sharing: exclusive)"
    if mode not in OVERCOMMITS and compute > 1 + DUST:
        return f"{compute:g} of 1 GPU (sharing: {mode or 'not declared'})"
    if any(part.gpus > 1 + DUST for part in parts):
        return "more than all of a GPU for one job"
    return ""


# --- MIG ------------------------------------------------------------------------------------------


class MigProfile(msgspec.Struct, frozen=True):
    """A shape of instances: sevenths of the compute, eighths of the memory, and where it begins."""

    name: str
    compute: int
    memory: int
    starts: tuple[int, ...]
    mem_gib: float

    @property
    def gpus(self) -> float:
        """Its part of the compute."""
        return self.compute / 7

    @property
    def wide(self) -> bool:
        """It has twice the memory that goes with its compute: for jobs that need it."""
        return self.memory >= 2 * self.compute


MIG_TABLES: Mapping[str, tuple[MigProfile, ...]] = {
    "a100-40gb": (
        MigProfile("1g.5gb", 1, 1, (0, 1, 2, 3, 4, 5, 6), 5.0),
        MigProfile("1g.10gb", 1, 2, (0, 2, 4, 6), 10.0),
        MigProfile("2g.10gb", 2, 2, (0, 2, 4), 10.0),
        MigProfile("3g.20gb", 3, 4, (0, 4), 20.0),
        MigProfile("4g.20gb", 4, 4, (0,), 20.0),
        MigProfile("7g.40gb", 7, 8, (0,), 40.0),
    ),
    "a100-80gb": (
        MigProfile("1g.10gb", 1, 1, (0, 1, 2, 3, 4, 5, 6), 10.0),
        MigProfile("1g.20gb", 1, 2, (0, 2, 4, 6), 20.0),
        MigProfile("2g.20gb", 2, 2, (0, 2, 4), 20.0),
        MigProfile("3g.40gb", 3, 4, (0, 4), 40.0),
        MigProfile("4g.40gb", 4, 4, (0,), 40.0),
        MigProfile("7g.80gb", 7, 8, (0,), 80.0),
    ),
}
"""The vendor's places for instances, by GPU type.

Names and parts: NVIDIA Multi-Instance GPU User Guide, "Supported MIG Profiles" (A100-SXM4-40GB,
whose names change with the memory for 80 GB; the H100-80GB has those of the A100 with 80 GB).
Starts and sizes: what `nvidia-smi mig -lgipp` prints on an A100 with 40 GB (the vendor's guide) and
on an H100 (80 GB, NVL; several public listings), which is the same: {0,1,2,3,4,5,6}:1,
{0,2,4,6}:2 (profile 15, twice the memory), {0,2,4}:2, {0,4}:4, {0}:4, {0}:8. Not checked on a GPU.
Of the A100 with 80 GB only names and numbers of instances were found, which agree; the starts are
taken as the same.
Profiles with media engines (`+me`) are left out: they differ in nothing that is counted here.
"""
_USUAL = {"a100": "a100-40gb", "h100": "h100-80gb"}  # without a size
_SAME = {"h100-80gb": "a100-80gb"}

Layout = tuple[tuple[MigProfile, int], ...]
"""Instances with their starts, in the order of the starts."""


@cache
def mig_profiles(gpu_type: str) -> tuple[MigProfile, ...]:
    """The table of a GPU type, also as machines tell it (`a100-sxm4-40gb`); else it is an error."""
    words = re.split("[^a-z0-9]+", gpu_type.lower())
    chip = next((word for word in words if word in _USUAL), "")
    size = next((word for word in words if re.fullmatch(r"\d+gb", word)), "")
    kind = f"{chip}-{size}" if chip and size else _USUAL.get(chip, "")
    kind = _SAME.get(kind, kind)
    if kind not in MIG_TABLES:
        known = ", ".join(sorted({*MIG_TABLES, *_USUAL, *_SAME}))
        raise ClusterSpecError(
            f"GPUs of type {gpu_type!r} cannot be divided by MIG here: the tables know {known}"
            if gpu_type
            else f"GPUs without a type cannot be divided by MIG: give gpu_type, one of {known}"
        )
    return MIG_TABLES[kind]


def read_layout(text: str, gpu_type: str) -> Layout:
    """The instances of `4g.20gb@0+3g.20gb@4`; ValueError if the table does not allow them."""
    profiles = {profile.name: profile for profile in mig_profiles(gpu_type)}
    taken: set[int] = set()
    instances = []
    for part in text.split("+"):
        name, _, start = part.partition("@")
        profile = profiles.get(name)
        if profile is None or not start.isdigit() or int(start) not in profile.starts:
            raise ValueError(f"{part} is no place of an instance by the vendor's table")
        slots = set(range(int(start), int(start) + profile.memory))
        if slots & taken:
            raise ValueError(f"{part} overlaps another instance")
        taken |= slots
        instances.append((profile, int(start)))
    return tuple(sorted(instances, key=lambda each: each[1]))


def written(layout: Layout) -> str:
    """The text that `read_layout` reads."""
    return "+".join(f"{profile.name}@{start}" for profile, start in layout)


def instance_kind(profile: MigProfile, start: int, layout: str) -> str:
    """How an allocation names an instance (in `extra`, with the amount 1)."""
    return f"{INSTANCE}{profile.name}@{start} of {layout}"


def _mig_conflict(parts: Sequence[GpuPart], gpu_type: str) -> str:
    """One layout for all, one job for each instance, and room in it."""
    if len(parts) == 1 and not parts[0].instance and parts[0].gpus >= 1 - DUST:
        return ""  # the whole GPU, not divided
    if any(not part.instance for part in parts):
        return "a part of a GPU that is divided by MIG, without an instance"
    layouts = {part.layout for part in parts}
    if len(layouts) > 1:
        return (
            f"layouts {' and '.join(sorted(layouts))} at once: a GPU is divided anew only when it "
            "is empty"
        )
    try:
        layout = read_layout(layouts.pop(), gpu_type)
    except ValueError as error:
        return str(error)
    return _instances_conflict(parts, layout)


def _instances_conflict(parts: Sequence[GpuPart], layout: Layout) -> str:
    have = {f"{profile.name}@{start}": profile for profile, start in layout}
    for part in parts:
        profile = have.pop(part.instance, None)
        if profile is None:
            return f"{part.instance} twice, or not in its layout"
        if part.gpus > profile.gpus + DUST or part.mem_gib + part.step_gib > profile.mem_gib + DUST:
            return f"more than {part.instance} has"
    return ""
