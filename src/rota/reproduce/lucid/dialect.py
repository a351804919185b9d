"""Dialect of the Lucid simulator (Hu et al., ASPLOS 2023; S-Lab-System-Group/Lucid, simulation/).

Its baselines are those of Helios with other overheads, and a Tiresias of its own. Lucid's own
policy packs jobs by measurements of pairs of models that share GPUs: `lucid:profiles=DIR`.
"""

from typing import ClassVar

from rota.core.changes import Wake
from rota.core.errors import OptionError
from rota.core.policy import Params
from rota.core.ports import Scheduler
from rota.core.registry import split
from rota.core.topology import Topology
from rota.models.colocation import PAIRS, SINGLE, load_colocation
from rota.reproduce.helios.dialect import HeliosDialect
from rota.reproduce.helios.loop import TwoQueueScheduler
from rota.reproduce.lucid.loop import PackingScheduler, SecondsRates

LUCID = "lucid"


class TwoQueueParams(Params, frozen=True):
    """GPU-seconds above which a job is in the lower queue, and whole seconds between decisions."""

    limit: float = 18000.0
    round: int = 60


class PackingParams(Params, frozen=True):
    """The folder with measurements of jobs alone and in pairs."""

    profiles: str = ""


class LucidDialect(HeliosDialect):
    """The simulator's policies under Rota's names."""

    name = "lucid"
    description = "the simulator of Lucid (ASPLOS 2023): Lucid, Helios' policies, its Tiresias"
    source = (
        "Hu et al., Lucid: A Non-intrusive, Scalable and Interpretable Scheduler for Deep Learning "
        "Training Jobs, ASPLOS 2023; S-Lab-System-Group/Lucid, simulation/policy/; quirks: "
        "rota/reproduce/lucid/dialect.py and loop.py, rota/reproduce/helios/loop.py"
    )
    policies: ClassVar[dict[str, str]] = HeliosDialect.policies | {
        "tiresias": "tiresias",
        LUCID: "lucid",
    }
    overheads_s = (40.0, 40.0, 60.0)

    @property
    def notes(self) -> dict[str, str]:
        """Quirks of policy/, and where this dialect departs."""
        return super().notes | {
            "tiresias": "two queues: above 18000 GPU-seconds jobs go last; decisions only at "
            "multiples of 60 s; overhead counts as service; no promotion",
            "lucid": "a job looks for a partner before it looks for idle GPUs: the first that was "
            "started of those with as many GPUs (up to 8) that are alone, with less than 24 GiB "
            "for both, labels of at most 2 together, and at least half its duration times GPUs; "
            "nobody is held up by others",
            "lucid: left behind": "when the host of a pair ends, its guest keeps the speed of the "
            "pair and takes no partner any more (theirs speeds up the host that has just ended); "
            "when the guest ends, the host is as before",
            "lucid: no influence": "pairs with NeuMF, ResNet50, BERT or Transformer run as fast as "
            "alone",
            "lucid: late ends": "a job ends 1 s after the second that takes its last work off",
            "departure: lucid's jobs": "a trace does not tell what is trained: jobs whose model "
            "the profiles do not name get the row of 7 times their number; true durations stand "
            "for the estimates; no pass of the profiler",
        }

    def rates_for(self, policy_text: str) -> str | None:
        """Only its own policy lets jobs share GPUs."""
        return SecondsRates.name if split(policy_text)[0] == LUCID else self.rates

    def make(self, name: str, options: dict[str, str], topology: Topology) -> Scheduler:
        """As in Helios, and Tiresias in rounds."""
        self.wake = None
        if name == LUCID:
            return self._packing(options, topology)
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

    def _packing(self, options: dict[str, str], topology: Topology) -> Scheduler:
        params = self.parameters(LUCID, PackingParams, options)
        if not params.profiles:
            raise OptionError(
                f"dialect 'lucid', policy 'lucid': give the measurements, profiles=DIR with "
                f"{SINGLE} and {PAIRS}"
            )
        self.finish_round_s = 1.0
        colocation = load_colocation(params.profiles)
        return PackingScheduler(LUCID, topology, colocation, like=self.name)
