"""Dialect of Sia's simulator (Jayaram Subramanya et al., SOSP 2023; siasosp23/artifacts).

Jobs train as profiles by GPU type say (`--format sia:profiles=DIR`). `notes` names every quirk;
`loop` and `rota.models.training` tell them in detail.
"""

from typing import ClassVar

import msgspec

from rota.core.changes import Wake
from rota.core.errors import OptionError
from rota.core.jobs import Behaviour, JobSpec
from rota.core.policy import Params
from rota.core.ports import Scheduler
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.models.profiles import MeasuredTraining
from rota.reproduce.sia.loop import (
    OTHERS_SLOWER,
    SLOWDOWN,
    TOLERANCE,
    GavelInSia,
    SiaProgramme,
    SiaRules,
    fleets,
)
from rota.study.dialect import Dialect

SIA, GAVEL = "sia", "gavel-max-sum"
CIRCLE = "circle"
ROUNDS_S = {SIA: 60.0, GAVEL: 360.0}


class SiaDialectParams(Params, frozen=True):
    """Seconds of a round (0: 60 for Sia, 360 for Gavel).

    `ties` is the order of GPU types for jobs that have not run yet, which are worth the same on
    all of them; it is what the simulator's solver does on its usual cluster.
    """

    interval_s: float = 0.0
    ties: tuple[str, ...] = ("rtx", "aws", "dgx-ext")


class SiaPolicyParams(Params, frozen=True):
    """The power of goodputs, and what a job costs that gets nothing."""

    p: float = -0.5
    lambda_n: float = 1.1


class SiaDialect(Dialect):
    """The simulator's policies under Rota's names."""

    name = "sia"
    description = "the simulator of Sia (SOSP 2023): jobs that adapt to GPUs of several types"
    source = (
        "Jayaram Subramanya et al., Sia: Heterogeneity-aware, goodput-optimized ML-cluster "
        "scheduling, SOSP 2023; siasosp23/artifacts, sia-simulator; quirks: "
        "rota/reproduce/sia/dialect.py and loop.py"
    )
    policies: ClassVar[dict[str, str]] = {SIA: "sia", GAVEL: "gavel (max_sum_throughput_perf)"}
    Parameters = SiaDialectParams
    placement = CIRCLE
    costs = "planned"

    def __init__(self, params: SiaDialectParams | None = None) -> None:
        super().__init__(params)
        if self.params.interval_s < 0:
            raise OptionError(
                f"dialect 'sia': interval_s={self.params.interval_s:g}: give seconds above 0"
            )
        slower = "/".join(f"{name}:{factor:g}" for name, factor in SLOWDOWN.items())
        self.rates = (
            f"goodput:rounded=yes,interval_s={self.params.interval_s or ROUNDS_S[SIA]:g},"
            f"slower={slower}/*:{OTHERS_SLOWER:g},tolerance={TOLERANCE:g}"
        )
        self._set_round(SIA)
        self._policy = SIA

    def _set_round(self, policy: str) -> None:
        every_s = self.params.interval_s or ROUNDS_S[policy]
        self.wake = Wake(on=frozenset(), every_s=every_s)

    @property
    def notes(self) -> dict[str, str]:
        """Quirks of the loop and the policies, and where this dialect departs."""
        return {
            "rounds": f"decisions every {self.wake.every_s if self.wake else 0:g} s of the file's "
            "clock: new jobs and free GPUs wait for the next one",
            "epochs": "end at whole seconds; the batch is chosen again after each, and each minute",
            "calibration": "jobs are slower than their profiles: cifar10 1.8 times, ncf 1.5 times, "
            "others 1.2 times",
            "restarts": "when the shape of an allocation or its type changes, not when only nodes "
            "do: cifar10 50 s, deepspeech2 25 s, bert 120 s, yolov3 80 s, imagenet 250 s, ncf 15 s",
            "believed restarts": "the policy takes cifar10's for 30 s and yolov3's for 45 s",
            "no change under way": "a job that is restarting keeps its configuration",
            "batch": "the policy reckons with batches up to the user's; jobs choose up to the "
            "largest that was validated",
            "growth": "at most twice as many GPUs as a job has had on any type",
            "types not tried": "as on the first type that was, times the ratio of one GPU's speeds",
            "two digits": "costs in the programme are rounded to 0.01, so that many choices tie",
            "fragments": "single-node jobs may be split where nodes are partly used",
            "gavel": "sizes and batches of the file, shares to five digits; a type with too few "
            "GPUs counts as 0.1 steps per second",
            "departure: ties": "which of equally good choices the simulator's solver (CBC) takes "
            "cannot be known: here new jobs take types in the order "
            + "/".join(self.params.ties)
            + ", others the fewest GPUs; with CBC itself every job of the reference is equal",
        }

    def build(
        self, policy_text: str, placement_text: str | None, topology: Topology, *, seed: int
    ) -> Scheduler:
        """The simulator's policy; it draws nothing."""
        del seed
        name, options = self.policy(policy_text)
        self.require_own_placement(placement_text)
        for fleet in fleets(topology):
            if len({node.gpus for node in fleet.nodes}) > 1:
                raise OptionError(
                    f"dialect 'sia': nodes of type {fleet.gpu_type!r} differ in GPUs: give all "
                    "nodes of a type as many, or leave --like out"
                )
        self._policy = name
        self._set_round(name)
        if name == GAVEL:
            self.parameters(name, Params, options)
            return GavelInSia(name, topology, self.params.interval_s or ROUNDS_S[GAVEL])
        given = self.parameters(name, SiaPolicyParams, options)
        if not given.p:
            raise OptionError("dialect 'sia', policy 'sia': p=0: give a power below or above 0")
        return SiaProgramme(name, topology, SiaRules(given.p, given.lambda_n, self.params.ties))

    def adapt(self, workload: Workload) -> Workload:
        """Gavel's jobs have the batch of their users."""
        behaviours = [self._adapted(spec, behaviour) for spec, behaviour in workload]
        return workload.like(workload.specs, behaviours, quality=workload.quality)

    def _adapted(self, spec: JobSpec, behaviour: Behaviour) -> Behaviour:
        training = behaviour.training
        if not isinstance(training, MeasuredTraining):
            raise OptionError(
                f"dialect 'sia': nothing is known of how job {spec.id} trains: read the workload "
                "with --format sia:profiles=DIR"
            )
        if self._policy != GAVEL:
            return behaviour
        fixed = msgspec.structs.replace(training, tuned=False)
        return msgspec.structs.replace(behaviour, training=fixed)

    def meet(self, scheduler: Scheduler, workload: Workload, topology: Topology) -> None:  # noqa: ARG002
        """All types of the cluster must be in the profiles."""
        for _, behaviour in workload:
            for fleet in fleets(topology):
                training = behaviour.training
                training.folder.steps(training.application, fleet.gpu_type)
