"""What a job holds: slices of places in the topology."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Amount: TypeAlias = int | float
"""GPUs: whole numbers are ints, also where the code is compiled (there a float is never an int)."""

Slice: TypeAlias = tuple[int, Amount]
"""(vertex id, GPUs there). A fraction of a GPU names the GPU's own vertex."""


class Allocation:
    """A value: equal slices and equal configuration mean that nothing has to move.

    `extra` holds what is taken besides GPUs, as (vertex, kind, amount). `config` is free-form
    (batch size, parallel plan): only rate models and launchers interpret it.
    """

    __slots__ = ("config", "extra", "gpus", "slices", "vertices")

    def __init__(
        self,
        slices: Sequence[Slice],
        extra: Sequence[tuple[int, str, float]] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.slices = tuple(slices)
        self.extra = tuple(extra)
        self.config = config
        self.vertices = [vertex for vertex, _ in slices]
        """The places it touches."""
        total = 0.0
        for _, amount in self.slices:
            total += amount
        # not `int(total) == total`: what is no number is refused with the plan, by its job's name
        self.gpus: Amount = int(total) if total % 1 == 0 else total

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Allocation):
            return NotImplemented
        return (
            self.slices == other.slices
            and self.extra == other.extra
            and (self.config or None) == (other.config or None)
        )

    def __hash__(self) -> int:
        return hash((self.slices, self.extra))

    def __repr__(self) -> str:
        return f"Allocation({self.slices})"


NOTHING = Allocation(())
"""Held by a job that never ran."""

TERMS = frozenset(
    ("gpu_limit", "gpu_weight", "gpu_mem_gib", "gpu_mem_step_gib", "gpu_mem_spill_gib")
)
"""Kinds in `extra` that say on which terms a job has its GPUs; they can change while it runs."""


def same_but_terms(one: Allocation, other: Allocation) -> bool:
    """The same places, GPUs and other amounts: nothing has to be started anew."""
    return (
        one.slices == other.slices
        and one.config == other.config
        and [part for part in one.extra if part[1] not in TERMS]
        == [part for part in other.extra if part[1] not in TERMS]
    )


BESIDE = "beside"
"""Configuration of a guest: the number of the job (its host) whose GPUs it uses, too."""


def as_guest(host: int, of: Allocation, extra: Sequence[tuple[int, str, float]] = ()) -> Allocation:
    """What a job holds that uses the GPUs of another: their places, and none of them for itself.

    So a sum of GPUs counts those of a pair once.
    """
    return Allocation([(vertex, 0) for vertex, _ in of.slices], extra, {BESIDE: host})


def host_of(allocation: Allocation) -> int:
    """The number of the job whose GPUs these are; -1 if the allocation has its own."""
    config = allocation.config
    return -1 if config is None else config.get(BESIDE, -1)
