"""Dialect of the Lucid simulator (Hu et al., ASPLOS 2023; S-Lab-System-Group/Lucid, simulation/).

Its baselines are those of Helios with other overheads, and a Tiresias of its own. Lucid's own
policy is not here: it needs measurements of pairs of models that share GPUs.
"""

from typing import ClassVar

from rota.core.changes import Wake
from rota.core.errors import OptionError
from rota.core.policy import Params
from rota.core.ports import Scheduler
from rota.core.topology import Topology
from rota.reproduce.helios.dialect import HeliosDialect
from rota.reproduce.helios.loop import TwoQueueScheduler


class TwoQueueParams(Params, frozen=True):
    """GPU-seconds above which a job is in the lower queue, and whole seconds between decisions."""

    limit: float = 18000.0
    round: int = 60


class LucidDialect(HeliosDialect):
    """The simulator's baselines under Rota's names."""

    name = "lucid"
    description = "the simulator of Lucid (ASPLOS 2023): Helios' policies, and its Tiresias"
    source = (
        "Hu et al., Lucid: A Non-intrusive, Scalable and Interpretable Scheduler for Deep Learning "
        "Training Jobs, ASPLOS 2023; S-Lab-System-Group/Lucid, simulation/policy/; quirks: "
        "rota/reproduce/lucid/dialect.py and rota/reproduce/helios/loop.py"
    )
    policies: ClassVar[dict[str, str]] = HeliosDialect.policies | {"tiresias": "tiresias"}
    overheads_s = (40.0, 40.0, 60.0)

    @property
    def notes(self) -> dict[str, str]:
        """Quirks of policy/, and where this dialect departs."""
        return super().notes | {
            "tiresias": "two queues: above 18000 GPU-seconds jobs go last; decisions only at "
            "multiples of 60 s; overhead counts as service; no promotion",
            "departure: lucid": "its own policy is not here: it packs jobs by measured speeds of "
            "pairs of models, which a trace does not have",
        }

    def make(self, name: str, options: dict[str, str], topology: Topology) -> Scheduler:
        """As in Helios, and Tiresias in rounds."""
        self.wake = None
        if name != "tiresias":
            return super().make(name, options, topology)
        params = self.parameters(name, TwoQueueParams, options)
        if params.round < 1 or not 0 <= params.limit < float("inf"):
            raise OptionError(
                f"dialect 'lucid', policy 'tiresias': limit={params.limit:g}, "
                f"round={params.round}: give a limit of 0 or more GPU-seconds and a round of at "
                f"least 1 second, e.g. limit=18000,round=60"
            )
        self.wake = Wake(on=frozenset(), every_s=params.round)
        return TwoQueueScheduler(
            name,
            topology,
            like=self.name,
            overhead=self.overhead_s,
            limit=params.limit,
            round_s=params.round,
        )
