"""Dialect of the Blox simulator (Agarwal et al., EuroSys 2024; msr-fiddle/blox, tree of 2024-04).

Rounds of 300 s. A job arrives, starts, is preempted and ends only at a multiple of the round; its
service is counted in whole rounds, not times its GPUs, and no change of allocation costs anything.
`notes` names every quirk; `loop.py` tells them in detail.
"""

from typing import ClassVar, Literal

from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.policy import Params
from rota.core.ports import Scheduler
from rota.core.topology import Topology
from rota.reproduce.blox.loop import Key, RoundScheduler, scatter, scatter_fixed
from rota.study.dialect import Dialect

SCATTER = "scatter"


class BloxParams(Params, frozen=True):
    """Length of a round in whole seconds, and whether scatter placement keeps its bug."""

    round: int = 300
    scatter: Literal["blox", "fixed"] = "blox"


def _submission(job: Job, now_s: float) -> float:  # noqa: ARG001 - constant
    return job.submit_s


def _attained(job: Job, now_s: float) -> float:
    return job.executed_s(now_s)


def _remaining(job: Job, now_s: float) -> float:
    return job.remaining_s(now_s)


ORDERS: dict[str, tuple[Key, Knowledge, bool]] = {
    "fifo": (_submission, Knowledge.NOTHING, False),
    "las": (_attained, Knowledge.NOTHING, True),
    "srtf": (_remaining, Knowledge.REMAINING_WORK, False),
    "tiresias": (_attained, Knowledge.NOTHING, True),
}
"""By policy: the key, what it reads, and whether running jobs can fall behind waiting ones."""


class BloxDialect(Dialect):
    """The simulator's policies under Rota's names."""

    name = "blox"
    description = "the simulator of Blox (EuroSys 2024): rounds, scatter placement, evictions"
    source = (
        "Agarwal et al., Blox: A Modular Toolkit for Deep Learning Schedulers, EuroSys 2024; "
        "msr-fiddle/blox, blox_manager.py, schedulers/, placement/placement.py; quirks: "
        "rota/reproduce/blox/dialect.py and loop.py"
    )
    policies: ClassVar[dict[str, str]] = {
        "fifo": "Fifo",
        "las": "Las",
        "srtf": "Srtf",
        "tiresias": "Tiresias",
    }
    Parameters = BloxParams
    placement = SCATTER

    def __init__(self, params: BloxParams | None = None) -> None:
        super().__init__(params)
        self.in_rounds(self.params.round)

    @property
    def notes(self) -> dict[str, str]:
        """Quirks of the loop, the policies and the placement, and where this dialect departs."""
        round_s = self.params.round
        return {
            "rounds": f"decisions only at multiples of {round_s} s; arrivals wait for the next one",
            "completion": f"jobs end at multiples of {round_s} s, never within a round",
            "service": f"+{round_s} s per round, not times GPUs: las is one-dimensional",
            "tiresias": "is las: its queues are computed and thrown away (schedulers/tiresias.py)",
            "scatter": "nodes in order, as much of each as the job asks for; "
            + (
                "an overshoot counts as no place (placement.py compares with ==)"
                if self.params.scatter == "blox"
                else "repaired: only what is missing is taken"
            ),
            "evictions": "from the end of the order, never taken back, even if the job that they "
            "were for still finds no place",
            "head-of-line blocking": "nobody passes the first job without a place",
            "relaunch": "a job evicted and placed again in one round counts as preempted",
            "free preemption": "no cost of stopping, starting or moving, and no locality penalty",
            "departure: stuck jobs": "a job that finds no place although the cluster is empty is "
            "rejected (cancelled if it has run before); Blox would loop for ever",
            "departure: misfits": "a job larger than the cluster is rejected at once",
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
        name = self.plain_policy(
            policy_text, placement_text, topology, instead=" (its bug: --like blox:scatter=fixed)"
        )
        key, knowledge, drifts = ORDERS[name]
        return RoundScheduler(
            name,
            topology,
            key=key,
            knowledge=knowledge,
            drifts=drifts,
            round_s=self.params.round,
            place=scatter if self.params.scatter == "blox" else scatter_fixed,
        )
