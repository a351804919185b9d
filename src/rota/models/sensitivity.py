"""Jobs that are slower with fewer CPUs or less memory than they ask for.

The table of a job (`Behaviour.sensitivity`, or that of its model in the file `profiles`) tells its
speed by CPUs and memory per GPU; the rate is the speed with what it holds, relative to that with
what it asks for. A job without a table is as slow as the scarcest of the two: with half of its CPUs
it runs at half the rate. What the cluster does not declare is never scarce.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from rota.core.allocation import Allocation
from rota.core.errors import OptionError
from rota.core.jobs import Job
from rota.core.policy import Params
from rota.core.resources import CPU, MEMORY
from rota.core.sensitivity import Sensitivity
from rota.core.topology import Topology
from rota.models.rates import Rates

CPU_POINTS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 9.0, 12.0, 24.0)
MEM_POINTS = (20.83, 62.5, 125.0, 187.5, 250.0)
"""Where the profiles of Synergy were measured; a profile may name points of its own."""


class SensitivityProfile(msgspec.Struct, frozen=True):
    """A model's speeds, and the CPUs and memory for each GPU beyond which it gets no faster."""

    sensitivity: Sensitivity
    cpus: float
    mem_gib: float


class _ProfileEntry(msgspec.Struct):
    """As it is written: one model measured on one GPU."""

    tput: list[list[float]]
    cpus: float
    mem: float
    iter_time: float = 0.0
    cpu_points: list[float] = msgspec.field(default_factory=lambda: list(CPU_POINTS))
    mem_points: list[float] = msgspec.field(default_factory=lambda: list(MEM_POINTS))


def read_profiles(path: str | Path) -> dict[str, SensitivityProfile]:
    """Profiles by model, from a JSON file in the layout of Synergy's profiles.

    `{"alexnet_1": {"cpus": 12, "mem": 125, "iter_time": 0.6, "tput": [[..], ..]}, ..}`. The name
    may end in `_1`; profiles of several GPUs (`_2`, `_4`) are left out.

    Raises:
        OptionError: The file cannot be read; the message names the model and the remedy.
    """
    try:
        raw = msgspec.json.decode(Path(path).read_bytes(), type=dict[str, dict[str, Any]])
    except OSError as problem:
        raise OptionError(
            f"profiles {path}: cannot be read ({problem.strerror}): check the path"
        ) from problem
    except msgspec.DecodeError as problem:
        raise OptionError(
            f"profiles {path}: is not a JSON object of models ({problem}): "
            'write {"MODEL": {"cpus": .., "mem": .., "tput": [[..], ..]}, ..}'
        ) from problem
    found = {}
    for name, entry in raw.items():
        model, _, gpus = name.rpartition("_")
        if not gpus.isdigit() or not model:
            found[name] = _profile(path, name, entry)
        elif gpus == "1":
            found[model] = _profile(path, name, entry)
    return found


def _profile(path: str | Path, name: str, raw: Mapping[str, Any]) -> SensitivityProfile:
    try:
        entry = msgspec.convert(raw, _ProfileEntry)
        table = Sensitivity(
            tuple(entry.cpu_points),
            tuple(entry.mem_points),
            tuple(map(tuple, entry.tput)),
            entry.iter_time,
        )
    except (msgspec.ValidationError, ValueError) as problem:
        raise OptionError(
            f"profiles {path}: {name}: {problem}: correct it or leave the model out"
        ) from problem
    return SensitivityProfile(table, entry.cpus, entry.mem)


class SensitivityParams(Params, frozen=True):
    """A file of profiles, for jobs that bring no table of their own (found by model)."""

    profiles: str = ""


class HostSensitivity(Rates):
    """The speed with the CPUs and memory held, relative to that with what was asked for."""

    name = "sensitivity"
    Parameters = SensitivityParams

    def __init__(self, topology: Topology, params: SensitivityParams | None = None) -> None:
        super().__init__(topology, params)
        file = self.params.profiles
        self._profiles = read_profiles(file) if file else {}
        self._limited = {
            CPU.name: any(node.cpus for node in topology.nodes),
            MEMORY.name: any(node.mem_gib for node in topology.nodes),
        }

    def rate(self, job: Job, allocation: Allocation, sharers: Sequence[Job]) -> float:  # noqa: ARG002
        """By the table, or by the scarcest of CPUs and memory."""
        shape = job.shape
        asked = (shape.cpus, shape.mem_gib)
        held = self._held(allocation, asked)
        table = self._table(job)
        if held == asked or not allocation.gpus:
            return 1.0
        if table is None:
            return min(
                (min(1.0, has / wants) for has, wants in zip(held, asked, strict=True) if wants),
                default=1.0,
            )
        gpus = allocation.gpus
        now = table.at(held[0] / gpus, held[1] / gpus)
        return now / _speed_asked(table, asked[0] / shape.gpus, asked[1] / shape.gpus)

    def _held(self, allocation: Allocation, asked: tuple[float, float]) -> tuple[float, float]:
        held = dict.fromkeys(self._limited, 0.0)
        for _, kind, amount in allocation.extra:
            held[kind] = held.get(kind, 0.0) + amount
        cpus = held[CPU.name] if self._limited[CPU.name] else asked[0]
        mem_gib = held[MEMORY.name] if self._limited[MEMORY.name] else asked[1]
        return (cpus, mem_gib)

    def _table(self, job: Job) -> Sensitivity | None:
        if job.truth.sensitivity is not None:
            return job.truth.sensitivity
        profile = self._profiles.get(job.spec.model)
        return profile.sensitivity if profile else None


@lru_cache(maxsize=4096)
def _speed_asked(table: Sensitivity, cpus: float, mem_gib: float) -> float:
    return table.at(cpus, mem_gib)
