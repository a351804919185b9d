"""Dialect of DeepBoot's simulator (Chen et al., TPDS 2023; czq693497091/DeepBoot)."""

from pathlib import Path
from typing import ClassVar

from rota.core.errors import OptionError
from rota.core.policy import Params
from rota.core.ports import Scheduler
from rota.core.topology import Topology
from rota.reproduce.deepboot.loop import BootLoop
from rota.reproduce.deepboot.policies import (
    AfsMinutes,
    ArylMinutes,
    DeepBootMinutes,
    MinutePolicy,
    OptimusMinutes,
    TiresiasMinutes,
)
from rota.study.dialect import Dialect

OWN = "lists"
POLICIES: dict[str, type[MinutePolicy]] = {
    "afs": AfsMinutes,
    "lyra": ArylMinutes,
    "optimus": OptimusMinutes,
    "tiresias": TiresiasMinutes,
    "deepboot": DeepBootMinutes,
}


class DeepBootDialectParams(Params, frozen=True):
    """The folder of profiles; that of the format unless it is given."""

    profiles: str = ""


class DeepBootDialect(Dialect):
    """The simulator's policies under Rota's names."""

    name = "deepboot"
    description = (
        "the simulator of DeepBoot (TPDS 2023): training beside inference, minute by minute"
    )
    source = (
        "Chen et al., DeepBoot: Dynamic Scheduling System for Training and Inference Deep Learning "
        "Tasks in GPU Cluster, TPDS 2023; czq693497091/DeepBoot; quirks: "
        "rota/reproduce/deepboot/loop.py and policies.py"
    )
    policies: ClassVar[dict[str, str]] = {
        "afs": "afs",
        "lyra": "aryl",
        "optimus": "optimus",
        "tiresias": "tiresias",
        "deepboot": "dp",
    }
    Parameters = DeepBootDialectParams
    like_format = ("profiles",)
    placement = OWN
    rates = "planned"

    @property
    def notes(self) -> dict[str, str]:
        """Quirks, and where this dialect departs."""
        return {
            "seconds": "things happen at whole seconds; training is planned every 60 s",
            "restarts": "a job whose list of nodes changes is restarted, also if only the order "
            "does; the delay is that of its application, 18 to 103 s",
            "afs": "every GPU is given away, whether it helps or not; worth is relative to the "
            "speed with the GPU for both of a pair",
            "departure: afs": "a job whose batch cannot be divided among more GPUs gets no more: "
            "the simulator ends with an error there",
            "lyra": "the value of w GPUs is the remaining time on one, times w / (w + 1)",
            "whole nodes": "afs, lyra and optimus lend whole nodes of the second half to "
            "inference: a request drives all training from its node",
            "deepboot": "pods outlive their requests for 30 to 120 s and then sleep; containers "
            "are reused, so that changes cost 1 to 5 s",
            "optimus": "remaining steps are the true ones",
            "departure: failures": "the simulator knows none; a job that loses its node is placed "
            "again in the next minute",
        }

    def build(
        self,
        policy_text: str,
        placement_text: str | None,
        topology: Topology,
        *,
        seed: int,  # noqa: ARG002 - nothing is random here
    ) -> Scheduler:
        """The simulator's policy."""
        name = self.plain_policy(policy_text, placement_text, topology)
        if not self.params.profiles:
            raise OptionError(
                "dialect 'deepboot' needs the profiles of applications: --like "
                "deepboot:profiles=DIR, or --format deepboot:profiles=DIR"
            )
        return BootLoop(name, topology, POLICIES[name](), profiles=Path(self.params.profiles))
