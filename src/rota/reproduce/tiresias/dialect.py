"""Dialect of the Tiresias simulator (Gu et al., NSDI 2019; SymbioticLab/Tiresias, simulator/).

Event driven, whole seconds, and the whole cluster is planned anew at every event without any cost
of preemption. `notes` names every quirk; `loop.py` tells each in detail.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, ClassVar

from rota.core.errors import OptionError
from rota.core.jobs import Job, Shape
from rota.core.policy import Params, PriorityPolicy
from rota.core.ports import Scheduler
from rota.core.registry import split
from rota.core.topology import Topology
from rota.engine.priority import PriorityScheduler
from rota.placement.count import Count
from rota.reproduce.tiresias.loop import (
    DELTA,
    LIMITS,
    GittinsScheduler,
    IndexTable,
    QueueScheduler,
    RankedScheduler,
    read_samples,
)
from rota.reproduce.tiresias.placement import TiresiasYarn
from rota.study.dialect import Dialect, Everyone, refusal, require_one_type

COUNT, YARN = "count", "yarn"


class QueueParams(Params, frozen=True):
    """Limits of the queues, in seconds (`las`) or GPU-seconds."""

    limits: tuple[float, ...] = LIMITS


class PromoteParams(QueueParams, frozen=True):
    """A job that waited `promote` times as long as it ran returns to the first queue (0: never)."""

    promote: float = 0.0


class TiresiasGittinsParams(QueueParams, frozen=True):
    """Samples of GPU-time that the index is computed from, and its quantum."""

    distribution: str = ""
    delta: int = DELTA


class FirstCome(PriorityPolicy[Params]):
    """Their `fifo`: in order of submission, never preempting, nobody passes the first."""

    name = "fifo"
    preemptive = False
    strict = True

    def key(self, job: Job, now_s: float) -> float:  # noqa: ARG002 - constant
        """Submission time."""
        return job.submit_s


class FirstFitting(FirstCome):
    """Their `fjf`: the same, skipping what does not fit."""

    name = "fifo-skip"
    strict = False


class FewestGpus(PriorityPolicy[Params]):
    """Their `sjf`: fewest GPUs first, preemptive; equals stay in order of arrival."""

    name = "smallest"

    def key(self, job: Job, now_s: float) -> tuple[float, float]:  # noqa: ARG002 - constant
        """GPUs, then submission time."""
        return job.gpus, job.submit_s


COMPOSED: dict[str, type[PriorityPolicy[Any]]] = {
    policy.name: policy for policy in (FirstCome, FirstFitting, FewestGpus)
}
"""Where the packer of the fast door gives the same: their order never changes by itself."""


class PoolOnly(Count):
    """Counts GPUs and nothing else, also where the cluster declares CPUs and memory."""

    def never(self, shape: Shape) -> str | None:
        """Only the number of whole GPUs matters."""
        return refusal(shape, self.topology)


class TiresiasDialect(Dialect):
    """The simulator's schedules under Rota's names."""

    name = "tiresias"
    description = "the simulator of Tiresias (NSDI 2019): queues, limits and integer arithmetic"
    source = (
        "Gu et al., Tiresias: A GPU Cluster Manager for Distributed Deep Learning, NSDI 2019; "
        "SymbioticLab/Tiresias, simulator/run_sim.py, jobs.py, cluster.py; quirks: "
        "rota/reproduce/tiresias/dialect.py and loop.py"
    )
    policies: ClassVar[dict[str, str]] = {
        "fifo": "fifo",
        "fifo-skip": "fjf",
        "smallest": "sjf",
        "srtf": "shortest",
        "srsf": "shortest-gpu",
        "las": "dlas",
        "tiresias": "dlas-gpu, or dlas-gpu-K as tiresias:promote=K",
        "gittins": "dlas-gpu-gittins",
    }
    placement = COUNT

    @property
    def notes(self) -> dict[str, str]:
        """Quirks of run_sim.py, jobs.py and cluster.py, and where this dialect departs."""
        return dict(NOTES)

    def build(
        self, policy_text: str, placement_text: str | None, topology: Topology, *, seed: int
    ) -> Scheduler:
        """The simulator's schedule."""
        name, options = self.policy(policy_text)
        require_one_type(topology, self.name)
        scheme = self._scheme(name, placement_text or self.placement)
        if name in COMPOSED:
            self.parameters(name, Params, options)
            kind = TiresiasYarn if scheme == YARN else PoolOnly
            return PriorityScheduler(COMPOSED[name](), kind(topology, seed=seed), Everyone())
        make: Callable[[str, dict[str, str], Topology], Scheduler] = {
            "srtf": self._ranked,
            "srsf": self._ranked,
            "las": self._las,
            "tiresias": self._queues,
            "gittins": self._gittins,
        }[name]
        return make(name, options, topology)

    def _scheme(self, policy: str, text: str) -> str:
        scheme, options = split(text)
        if scheme not in (COUNT, YARN) or options:
            raise OptionError(
                f"dialect {self.name!r} knows the placements {COUNT} and {YARN} without options, "
                f"not {text!r}: choose one of them, or leave --like out"
            )
        if scheme == YARN and policy in ("smallest", "srtf", "srsf"):
            raise OptionError(
                f"dialect {self.name!r} refuses {policy!r} with placement {YARN!r}: the simulator "
                f"does not give memory back when it preempts, so that most jobs never finish "
                f"there, and lost jobs are not worth reproducing; use --placement {COUNT}"
            )
        return scheme

    def _ranked(self, name: str, options: dict[str, str], topology: Topology) -> Scheduler:
        self.parameters(name, Params, options)
        return RankedScheduler(name, topology, by_service=name == "srsf")

    def _las(self, name: str, options: dict[str, str], topology: Topology) -> Scheduler:
        params = self.parameters(name, QueueParams, options)
        return QueueScheduler(name, topology, limits=_checked(params.limits), by_service=False)

    def _queues(self, name: str, options: dict[str, str], topology: Topology) -> Scheduler:
        params = self.parameters(name, PromoteParams, options)
        if not 0 <= params.promote < float("inf"):
            raise OptionError(
                f"policy 'tiresias': promote={params.promote:g} is not a factor: give 0 or more"
            )
        return QueueScheduler(
            name, topology, limits=_checked(params.limits), promote=params.promote
        )

    def _gittins(self, name: str, options: dict[str, str], topology: Topology) -> Scheduler:
        params = self.parameters(name, TiresiasGittinsParams, options)
        if not params.distribution:
            raise OptionError(
                f"dialect {self.name!r}, policy 'gittins': name a file with samples of GPU-time: "
                f"gittins:distribution=FILE (header 'duration', one sample per line)"
            )
        if params.delta < 1:
            raise OptionError(f"policy 'gittins': delta={params.delta}: give 1 or more GPU-seconds")
        table = IndexTable(read_samples(params.distribution), params.delta)
        return GittinsScheduler(name, topology, table, limits=_checked(params.limits))


def _checked(limits: tuple[float, ...]) -> tuple[float, ...]:
    if not limits or limits[0] <= 0 or any(a >= b for a, b in pairwise(limits)):
        raise OptionError(
            f"limits={'/'.join(f'{limit:g}' for limit in limits)}: give growing limits above 0, "
            f"e.g. limits=3250/7200"
        )
    return limits


NOTES = {
    "queues": "las, tiresias, gittins: 3 queues, limits 3250 and 7200; the third limit of jobs.py "
    "(18000) is never used",
    "late demotion": "a queue jump is looked for (limit - seconds) // GPUs ahead, in whole "
    "seconds; jobs on several GPUs drop a queue later than at their limit",
    "one level per event": "a job drops at most one queue at an event",
    "running first": "within a queue jobs that run go ahead of jobs that wait, in stable order",
    "no head-of-line blocking": "all but fifo skip what does not fit",
    "free preemption": "the whole cluster is planned anew at every event, at no cost",
    "stable sorts": "srtf and srsf sort one persistent list: equals keep their order of the event "
    "before",
    "smallest": "their sjf means fewest GPUs first, not shortest time",
    "promotion": "promote=K: executed time is forgotten once all waits since the last promotion "
    "amount to int(K x executed time); total service is kept",
    "gittins index": "fixed quantum of 3250 GPU-seconds, absolute sizes in the expected service, "
    "whole-number division and rounding of Python 2",
    "placement": "las, tiresias and gittins only count GPUs: yarn means count for them; placement "
    "never changes speed",
    "yarn": "2 CPUs for 1 GPU, else 6 per GPU; 5 GB per one-node job, else 6 + 0.1 n + 5 GB per "
    "GPU; 16 CPUs and 64 GB per GPU where the cluster declares none",
    "departure: memory leak": "yarn with smallest, srtf or srsf is refused: the original leaks "
    "node memory at preemptions and loses jobs",
    "departure: misfits": "a job that can never run is rejected with a message; it does not wait "
    "for ever",
    "departure: fractions": "times need not be whole seconds; a queue jump is at least 1 s ahead",
}
"""Every quirk and departure by name."""
