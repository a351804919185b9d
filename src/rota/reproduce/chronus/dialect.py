"""Dialect of Chronus' simulator (Gao et al., SoCC 2021; S-Lab-System-Group/ChronusArtifact).

Leases for jobs with deadlines, and all else for whoever waits, by a clock of minutes. `notes` names
every quirk; `accounts` tells them in detail.
"""

from typing import ClassVar

from rota.core.errors import OptionError
from rota.core.policy import Params
from rota.core.ports import Scheduler
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.reproduce.chronus.accounts import HOUR, MOST
from rota.reproduce.chronus.loop import LeaseLoop
from rota.study.dialect import Dialect

LOCAL_SEARCH = "local-search"
MINUTE_S = 60.0


class ChronusDialectParams(Params, frozen=True):
    """Minutes of a lease, and from one slot to the next, in which new jobs are looked at."""

    lease: int = 20
    slot: int = 5


class ChronusDialect(Dialect):
    """The simulator's scheduler under Rota's name."""

    name = "chronus"
    description = "the simulator of Chronus (SoCC 2021): deadlines, leases of 20 minutes"
    source = (
        "Gao et al., Chronus: A Novel Deadline-aware Scheduler for Deep Learning Training Jobs, "
        "SoCC 2021; S-Lab-System-Group/ChronusArtifact, code/alg/scheduler/; quirks: "
        "rota/reproduce/chronus/accounts.py"
    )
    policies: ClassVar[dict[str, str]] = {"chronus": "time-aware-with-lease"}
    Parameters = ChronusDialectParams
    placement = LOCAL_SEARCH
    rates = "planned"

    @property
    def notes(self) -> dict[str, str]:
        """Quirks of the loop, and where this dialect departs."""
        lease, slot = self.params.lease, self.params.slot
        return {
            "clock": "the loop looks at whole minutes of the file's clock; GPUs of a job that ends "
            "in between are free with the next",
            "leases": f"every {lease} minutes all are stopped, and leases are given out anew by an "
            "integer programme: as many GPUs as possible in the first lease, or as few as "
            "possible if a job was declined lately; of more than "
            f"{MOST * lease // HOUR} jobs the largest and latest keep theirs",
            "admission": f"new jobs are looked at every {slot} minutes; one is admitted if it can "
            "be packed greedily, as late as possible, beside the leases that others have; a "
            "declined one keeps room from the others of its batch all the same",
            "estimates": "a duration is planned with a start in every lease and 10 % more; a job "
            "that runs for longer is declined from then on, and goes first",
            "shares": "in leases 3 GPUs count as 4, and 5 to 7 as 8",
            "starts": "each makes the job longer by half a minute times (1 + log2 of its GPUs); "
            "stopping and starting at the end of a lease counts, even where nothing moves",
            "between leases": f"every {slot} minutes all that has no lease goes to who waits: the "
            "smallest of what is left first, and declined jobs that are done before the lease ends "
            "displace others",
            "odd minutes": "free GPUs are filled without a start's cost, and the minutes since the "
            f"last multiple of {slot} count as if the job had run in them",
            "speeds": "jobs are as fast on many nodes as on one",
            "departure: solver": "HiGHS for CBC: of equally good leases others may be chosen, and "
            "there is no limit of 5 seconds",
            "departure: nodes": "a job that goes on over the end of a lease stays where it is",
            "departure: past ends": "a job that an odd minute would have ended in the past ends at "
            "once",
            "departure: failures": "a job that loses its node waits, without its lease; the "
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
        """The simulator's scheduler."""
        name = self.plain_policy(policy_text, placement_text, topology)
        lease, slot = self.params.lease, self.params.slot
        if slot < 1 or lease < slot or lease % slot:
            raise OptionError(
                f"dialect {self.name!r}: lease={lease}, slot={slot}: give whole minutes, a lease "
                "of one or more slots, e.g. lease=20,slot=5"
            )
        return LeaseLoop(name, topology, like=self.name, unit_s=MINUTE_S, lease=lease, slot=slot)

    def meet(self, scheduler: Scheduler, workload: Workload, topology: Topology) -> None:  # noqa: ARG002
        """Leases begin at whole multiples on the clock of the file."""
        if isinstance(scheduler, LeaseLoop):
            scheduler.begin_at(workload.origin_s)
