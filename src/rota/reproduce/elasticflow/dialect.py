"""Dialect of ElasticFlow's simulator (Gu et al., ASPLOS 2023; pkusys/ElasticFlow).

Slots of 60 s in which events are gathered, plans for all jobs at each event, and overhead for all
who run. `notes` names every quirk; `loop` and `filling` tell them in detail.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from rota.core.errors import OptionError
from rota.core.policy import Params
from rota.core.ports import Scheduler
from rota.core.topology import Topology
from rota.reproduce.elasticflow.gandiva import GandivaSlots
from rota.reproduce.elasticflow.loop import EdfSlots, ElasticFlowSlots, SlotLoop
from rota.reproduce.elasticflow.tiresias import TiresiasSlots
from rota.study.dialect import Dialect

BUDDY = "buddy"

CAPS: Mapping[str, Mapping[str, int]] = {
    "T4": {"bert": 16, "cifar10": 16, "deepspeech2@320": 32, "yolov3": 4, "ncf": 1},
    "A100": {
        "gpt2@128": 16, "gpt2@256": 32, "bert@64": 8, "bert": 16, "inception3@64": 16,
        "inception3@128": 32, "resnet50@64": 32, "vgg16@64": 32,
    },
}  # fmt: skip
"""The most GPUs of a model, or of a model with a batch, that the simulator has written down."""


class ElasticFlowDialectParams(Params, frozen=True):
    """Length of a slot in seconds, and the GPUs whose caps of models are used."""

    slot_s: float = 60.0
    gpu: Literal["T4", "A100"] = "T4"


class ElasticFlowDialect(Dialect):
    """The simulator's policies under Rota's names."""

    name = "elasticflow"
    description = "the simulator of ElasticFlow (ASPLOS 2023): deadlines, slots, powers of two"
    source = (
        "Gu et al., ElasticFlow: An Elastic Serverless Training Platform for Distributed Deep "
        "Learning, ASPLOS 2023; pkusys/ElasticFlow, ElasticFlow/scheduler; quirks: "
        "rota/reproduce/elasticflow/slots.py, loop.py and filling.py"
    )
    policies: ClassVar[dict[str, str]] = {
        "elasticflow": "ef-accessctrl",
        "edf": "edf",
        "tiresias": "dlas-gpu",
        "gandiva": "gandiva",
    }
    Parameters = ElasticFlowDialectParams
    like_format = ("gpu",)
    placement = BUDDY
    rates = "planned"

    @property
    def notes(self) -> dict[str, str]:
        """Quirks of the loop and the policies, and where this dialect departs."""
        slot_s = self.params.slot_s
        return {
            "slots": f"events within {slot_s:g} s are one, at the end of the slot",
            "groups": "jobs whose submissions are gathered are admitted or declined together",
            "levels": "jobs have the numbers of GPUs of the table of throughputs, up to a cap that "
            "is written down for some models",
            "filling": "plans are made in the order of deadlines, each by the smallest sufficient "
            "share, as late as possible, and before that half of it",
            "greed": "what is left goes to the job whose GPU time grows most by its next level",
            "overhead": "everyone who runs pays at every event: 2 s, and 2 (log2(GPUs) + 1) s more "
            "if it was not on the same GPUs since the last restart; all are restarted with every "
            f"{slot_s:g}th event, for 27 s more",
            "late": "a job is late if the plan by which it was admitted would be; what it was "
            "given beyond the plan does not count",
            "rigid": "tiresias and gandiva give jobs the GPUs that they ask for, and count down "
            "durations in whole seconds",
            "tiresias": "queues of up to 3250, 7200 and any number of GPU seconds; a job falls by "
            "one queue per event, and the event that is made for it takes seconds for GPU seconds; "
            "overhead counts if an event comes before the end of a job, or with a restart of all",
            "gandiva": "jobs of one size share groups of nodes; how full a group is never falls "
            "when jobs end; turns change only at full minutes of the trace's clock; new groups of "
            "one node stay empty unless nodes run out while they are made; overhead is for "
            "everyone at every event, until the last job has come",
            "edf": "no admission and no overhead; every job gets as many GPUs as there are in the "
            "table, even where fewer would be faster",
            "departure: ends": "a job is done when its work is, or when the simulator removes it "
            "if it counts it as late; the simulator writes the end of the slot, with overhead",
            "departure: starts": "a job starts when it first runs; the simulator writes when it "
            "joins a group of gandiva's, in which others may be before it",
            "departure: failures": "a job that loses its node waits for the next slot; the "
            "simulator knows no failures",
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
        if self.params.slot_s < 1:
            raise OptionError(
                f"dialect {self.name!r}: slot_s={self.params.slot_s:g}: give at least 1 second"
            )
        slot_s = self.params.slot_s
        if name == "tiresias":
            return TiresiasSlots(name, topology, slot_s=slot_s)
        if name == "gandiva":
            if len({node.gpus for node in topology.nodes}) > 1:
                raise OptionError(
                    f"dialect {self.name!r}, policy {name!r}: its groups are of nodes with equally "
                    "many GPUs: use such a cluster, or leave --like out"
                )
            return GandivaSlots(name, topology, slot_s=slot_s)
        kind: type[SlotLoop] = EdfSlots if name == "edf" else ElasticFlowSlots
        return kind(name, topology, slot_s=slot_s, caps=CAPS[self.params.gpu])
