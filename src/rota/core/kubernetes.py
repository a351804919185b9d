"""What Kubernetes writes: quantities, times, names of GPUs, objects within objects.

GPUs are `nvidia.com/gpu`, `amd.com/gpu`, `gpu.intel.com/...` and `habana.ai/gaudi`. A slice of a
GPU, as in `nvidia.com/mig-3g.20gb`, counts as that many of 7 parts (3/7) with `mig=share`, as a
whole one with `mig=whole`. A GPU that is shared by time slicing (`nvidia.com/gpu.shared`) counts as
a whole one.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from math import ceil, isfinite
from typing import Any

from rota.core.topology import NodeSpec

SHARED = "nvidia.com/gpu.shared"
GPUS = ("nvidia.com/gpu", SHARED, "amd.com/gpu", "habana.ai/gaudi")
INTEL = "gpu.intel.com/"
TYPES = (
    "nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "amd.com/gpu.product-name",
    "gpu.nvidia.com/class",
)  # fmt: skip
GROUPS = (
    "jobset.sigs.k8s.io/jobset-name", "training.kubeflow.org/job-name", "volcano.sh/job-name",
    "ray.io/cluster", "leaderworkerset.sigs.k8s.io/name", "scheduling.x-k8s.io/pod-group",
    "pod-group-name", "scheduling.k8s.io/group-name", "batch.kubernetes.io/job-name", "job-name",
)  # fmt: skip
"""Labels (or annotations) that name the job of a pod, the outermost first."""
MIG = re.compile(r"nvidia\.com/mig-(\d)g\.\d+gb(?:\.me)?")
_PARTS = 7
_QUANTITY = re.compile(
    r"([+-]?(?:\d{1,30}(?:\.\d{0,18})?|\.\d{1,18}))(?:[eE]([+-]?\d{1,2})|([KMGTPE]i|[numkKMGTPE]))?"
)
_SUFFIXES = {
    "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
    "E": 1e18, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50,
    "Ei": 2.0**60,
}  # fmt: skip
_GIB = 2.0**30
_MOST = 1e9
_SHOWN = 40  # letters of what cannot be read


def quantity(value: Any) -> float:
    """`500m` is 0.5, `2Gi` is 2147483648; what is no quantity is 0."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if isfinite(value) and value > 0 else 0.0
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    if not match:
        return 0.0
    number = float(match[1]) * 10.0 ** int(match[2] or 0) * _SUFFIXES.get(match[3] or "", 1.0)
    return number if 0 < number < 1e30 else 0.0  # noqa: PLR2004 - nonsense


def is_quantity(value: Any) -> bool:
    """Is it an amount, be it of nothing? What is not given is one."""
    match = _QUANTITY.fullmatch(str(value).strip())
    return value is None or (match is not None and float(match[1]) == 0) or quantity(value) > 0


def unreadable(amounts: Mapping[str, Any]) -> str:
    """The first GPU, CPU or memory whose amount is no quantity, or less than none; empty: none."""
    for name, value in amounts.items():
        counts = name in ("cpu", "memory") or is_gpu(name)
        if counts and not is_quantity(value):
            return name
    return ""


def unreadable_pod(spec: Mapping[str, Any]) -> str:
    """What a pod asks for that `unreadable` finds, as `cpu: 'abc'`; empty: nothing."""
    for key in ("containers", "initContainers"):
        for container in parts(spec, key):
            told = unreadable_text(container_resources(container))
            if told:
                return told
    return ""


def unreadable_text(amounts: Mapping[str, Any]) -> str:
    """What `unreadable` finds, with the value, for a message."""
    name = unreadable(amounts)
    return f"{name}: {str(amounts[name])[:_SHOWN]!r}" if name else ""


def is_gpu(name: str) -> bool:
    """Is it a resource that stands for GPUs, or for parts of them?"""
    return name in GPUS or name.startswith(INTEL) or MIG.fullmatch(name) is not None


def pod_gpus(spec: Mapping[str, Any]) -> dict[str, float]:
    """What a pod asks for of every resource that stands for GPUs: `nvidia.com/mig-1g.5gb`."""
    found: dict[str, float] = {}
    for key in ("containers", "initContainers"):
        sums: dict[str, float] = {}
        for container in parts(spec, key):
            for name, value in container_resources(container).items():
                if is_gpu(name) and quantity(value):
                    amount, before = quantity(value), sums.get(name, 0.0)
                    sums[name] = before + amount if key == "containers" else max(before, amount)
        for name, amount in sums.items():
            found[name] = max(found.get(name, 0.0), amount)
    return found


def gpus_of(amounts: Mapping[str, Any], mig: str) -> float:
    """GPUs in a list of resources."""
    total = 0.0
    for name, value in amounts.items():
        part = MIG.fullmatch(name)
        if name in GPUS or name.startswith(INTEL):
            total += quantity(value)
        elif part:
            total += quantity(value) * (int(part[1]) / _PARTS if mig == "share" else 1.0)
    return min(round(total, 6), _MOST)


def cpus_and_memory(amounts: Mapping[str, Any]) -> tuple[float, float]:
    """CPUs, and memory in GiB."""
    return (
        min(quantity(amounts.get("cpu")), _MOST),
        min(quantity(amounts.get("memory")) / _GIB, _MOST),
    )


def time_of(value: Any) -> float | None:
    """Seconds since 1970, from `2026-03-02T08:00:00Z`; None: not a time."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
        return time.timestamp() if time.tzinfo else None
    except (ValueError, OverflowError, OSError):
        return None


def part(item: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """An object within objects; empty when it is not there."""
    for key in keys:
        value = item.get(key)
        item = value if isinstance(value, Mapping) else {}
    return item


def parts(item: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Objects of a list within an object."""
    value = item.get(key)
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def text(item: Mapping[str, Any], key: str) -> str:
    """A text within an object."""
    value = item.get(key)
    return value if isinstance(value, str) else ""


def machine(name: str, item: Mapping[str, Any], mig: str) -> NodeSpec:
    """A node as its object tells."""
    status = part(item, "status")
    amounts = part(status, "allocatable") or part(status, "capacity")
    labels = part(item, "metadata", "labels")
    kind = next((text(labels, key) for key in TYPES if text(labels, key)), "")
    cpus, mem_gib = cpus_and_memory(amounts)
    gpus = min(ceil(gpus_of(amounts, mig) - 1e-6), 4_096)  # slices of 7 parts make whole GPUs
    return NodeSpec(name, gpus, kind, cpus, mem_gib)


def pod_amounts(spec: Mapping[str, Any], mig: str) -> tuple[float, float, float]:
    """CPUs, GiB and GPUs: of all containers together, or of the largest that runs before them."""
    sums = [0.0, 0.0, 0.0]
    for container in parts(spec, "containers"):
        sums = [a + b for a, b in zip(sums, _of_container(container, mig), strict=True)]
    for container in parts(spec, "initContainers"):
        sums = [max(a, b) for a, b in zip(sums, _of_container(container, mig), strict=True)]
    return sums[0], sums[1], round(sums[2], 6)


def _of_container(container: Mapping[str, Any], mig: str) -> tuple[float, float, float]:
    amounts = container_resources(container)
    return *cpus_and_memory(amounts), gpus_of(amounts, mig)


def container_resources(container: Mapping[str, Any]) -> dict[str, Any]:
    """What is not requested is the limit."""
    return {**part(container, "resources", "limits"), **part(container, "resources", "requests")}
