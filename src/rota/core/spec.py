"""What is submitted (`JobSpec`, `Request`) and how it behaves (`Behaviour`): plain values.

Apart from the live state in `rota.core.jobs`, which can be compiled; msgspec needs the annotations
of its structs as Python has them.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from rota.core.events import INF
from rota.core.sensitivity import Sensitivity
from rota.core.sums import ordered_sum

DEMANDS = ("compute", "memory", "pcie")
"""What `Behaviour.demand` may name: parts of a GPU's compute, memory bandwidth and PCIe."""
DUST = 1e-9  # parts of GPUs are floats
LONGEST_BACKOFF_S = 3600.0
MARK = "#"
"""A label that begins like this is a note for placements, never a label of a node."""
BAR = f"{MARK}!"
"""A label that begins like this says: not on the nodes of this window (`core.windows`)."""


class TaskGroup(msgspec.Struct, frozen=True):
    """`count` equal tasks of one role, each asking for these amounts."""

    role: str = "worker"
    count: int = 1
    gpus: float = 1
    cpus: float = 0.0
    mem_gib: float = 0.0
    min_count: int = 0  # elastic range; 0 = rigid
    max_count: int = 0
    gpu_mem_gib: float = 0.0  # on each GPU that it has, or of its part of one
    gpu_mem_step_gib: float = 0.0  # how much of that only its steps need
    resources: tuple[tuple[str, float], ...] = ()  # of other kinds, sorted by name


class Request(msgspec.Struct, frozen=True):
    """What a job asks for. Two jobs with equal requests can be exchanged in any placement."""

    groups: tuple[TaskGroup, ...] = (TaskGroup(),)
    gpu_types: tuple[str, ...] = ()  # acceptable types; empty = any
    labels: tuple[str, ...] = ()  # required of every node
    gang: bool = True  # all tasks start together or none does
    apart: bool = False  # every task on a node of its own, with all its GPUs there
    only: tuple[float, ...] = ()  # numbers of GPUs that an elastic job takes; empty: any in range

    @property
    def sizes(self) -> tuple[float, float]:
        """The least and the most GPUs that it takes: equal unless it is elastic."""
        if self.only:
            return min(self.only), max(self.only)
        return (
            ordered_sum((group.min_count or group.count) * group.gpus for group in self.groups),
            ordered_sum((group.max_count or group.count) * group.gpus for group in self.groups),
        )

    @property
    def resources(self) -> dict[str, float]:
        """Of other kinds than GPUs, CPUs and memory: what all tasks ask for together."""
        total: dict[str, float] = {}
        for group in self.groups:
            for kind, amount in group.resources:
                total[kind] = total.get(kind, 0.0) + group.count * amount
        return total

    def takes(self, gpus: float) -> bool:
        """May a job with this request be given so many GPUs?"""
        if self.only:
            return any(abs(gpus - size) <= DUST for size in self.only)
        least, most = self.sizes
        if not least - DUST <= gpus <= most + DUST:  # nor what is no number
            return False
        step = self._step
        if step is None:
            return True
        tasks = (gpus - least) / step
        return abs(tasks - round(tasks)) <= DUST

    def within(self, gpus: float) -> float:
        """The largest size of at most so many GPUs that it takes; 0 if there is none."""
        if self.only:
            return max((size for size in self.only if size <= gpus + DUST), default=0.0)
        least, most = self.sizes
        if gpus < least - DUST:
            return 0.0
        step = self._step or 1
        return least + max(0, int((min(gpus, most) - least) / step + DUST)) * step

    def resized(self, gpus: float) -> "Request":
        """The same request with as many tasks as take so many GPUs; the first groups grow first."""
        if self.only:
            return self._with_size(gpus)
        left = gpus - self.sizes[0]
        groups = []
        for group in self.groups:
            if group.gpus:
                least, most = group.min_count or group.count, group.max_count or group.count
                more = max(0, min(most - least, int(left / group.gpus + DUST)))
                left -= more * group.gpus
                group = msgspec.structs.replace(group, count=least + more)  # noqa: PLW2901
            groups.append(group)
        if left > DUST:  # tasks of different sizes do not always add up
            groups.append(TaskGroup("rest", 1, left))
        return msgspec.structs.replace(self, groups=tuple(groups))

    def _with_size(self, gpus: float) -> "Request":
        """One of the sizes that are listed: the first group with GPUs has as many tasks as needed.

        Its tasks keep their size where that is possible, else one more task has what is over.
        """
        place = next(i for i, group in enumerate(self.groups) if group.gpus)
        first = self.groups[place]
        others = ordered_sum(g.count * g.gpus for i, g in enumerate(self.groups) if i != place)
        count = int((gpus - others) / first.gpus + DUST)
        groups = list(self.groups)
        groups[place] = msgspec.structs.replace(first, count=max(count, 0))
        over = gpus - ordered_sum(group.count * group.gpus for group in groups)
        if over > DUST:
            groups.append(TaskGroup("rest", 1, over))
        return msgspec.structs.replace(self, groups=tuple(groups))

    @property
    def _step(self) -> float | None:
        """GPUs by which it grows and shrinks; None: it is rigid, or its tasks differ in size."""
        steps = {group.gpus for group in self.groups if group.min_count or group.max_count}
        return steps.pop() if len(steps) == 1 else None

    @staticmethod
    @lru_cache(maxsize=65536)
    def of(  # noqa: PLR0913 - one per column of a trace
        gpus: float = 1,
        *,
        gpu_types: tuple[str, ...] = (),
        cpus: float = 0.0,
        mem_gib: float = 0.0,
        labels: tuple[str, ...] = (),
        gang: bool = True,
        min_gpus: int = 0,
        max_gpus: int = 0,
        gpu_mem_gib: float = 0.0,
        gpu_mem_step_gib: float = 0.0,
    ) -> "Request":
        """`gpus` one-GPU tasks (or one with a fraction); CPUs and memory are for the whole job.

        GPU memory is for each task.
        """
        count = int(gpus) if gpus >= 1 and gpus == int(gpus) else 1
        group = TaskGroup(
            "worker", count, gpus / count if count != gpus else 1, cpus / count, mem_gib / count,
            min_gpus, max_gpus, gpu_mem_gib, gpu_mem_step_gib,
        )  # fmt: skip
        return Request((group,), gpu_types, labels, gang)


class JobSpec(msgspec.Struct, frozen=True):
    """A submission as the user wrote it. Nothing in it tells how long the job will really run."""

    id: str
    submit_s: float
    request: Request
    tenant: str = ""
    user: str = ""
    name: str = ""
    group: str = ""
    model: str = ""
    priority: int = 0
    deadline_s: float = INF
    estimate_s: float = INF  # the user's own estimate or time limit
    depends_on: tuple[str, ...] = ()  # jobs that must be done
    account: str = ""  # in Slurm's terms, as are the next two; the tenant may be another of them
    partition: str = ""
    qos: str = ""
    limit_s: float = INF  # of running, in all its runs together: then it is ended
    retries: int = 0  # how often it is tried again after a failure
    backoff_s: float = 0.0  # before the first of them; each further one waits twice as long
    after_any: tuple[str, ...] = ()  # jobs that must be over, however they ended
    after_fail: tuple[str, ...] = ()  # jobs that must have ended without success
    array: str = ""  # the array that it belongs to
    array_limit: int = 0  # how many of its array may be in the queue or run at once; 0: all

    @property
    def dependencies(self) -> tuple[str, ...]:
        """All jobs that it waits for, each once."""
        if not (self.after_any or self.after_fail):
            return tuple(dict.fromkeys(self.depends_on))
        return tuple(dict.fromkeys((*self.depends_on, *self.after_any, *self.after_fail)))

    def backoff_after(self, failures: int) -> float:
        """Seconds until it is tried again after so many failures."""
        return min(self.backoff_s * 2.0 ** min(failures - 1, 60), LONGEST_BACKOFF_S)


class Behaviour(msgspec.Struct, frozen=True):
    """The truth about a job, for simulated clusters only.

    `work` is in seconds on the allocation that the job asked for, on GPUs of speed 1. `speeds`
    gives the rate per GPU type, `scaling` the rate by number of GPUs relative to the request
    (missing numbers are interpolated linearly), `fails_at` the work after which the job fails
    (inf: never), `sensitivity` the speed by CPUs and memory, `course` the factor on the rate from
    each level of work on, `training` what a rate model knows of how it trains, `demand` what it
    uses of a GPU that it has alone (compute, memory bandwidth, PCIe; parts of what there is).
    """

    work: float
    speeds: Mapping[str, float] | None = None
    scaling: Sequence[tuple[float, float]] | None = None
    fails_at: float = INF
    sensitivity: Sensitivity | None = None
    course: Sequence[tuple[float, float]] | None = None
    training: Any = None
    demand: Mapping[str, float] | None = None
