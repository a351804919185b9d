"""Synergy's loop: in every round all jobs are put in order and allocated anew.

Leases last one round, so nobody keeps anything by running. Whoever does not fit is passed over.
Progress is counted in whole iterations of a round, and a job that has made its last one ends with
the round.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rota.core.allocation import Allocation
from rota.core.events import Event
from rota.core.jobs import STOPPING, Job
from rota.core.knowledge import Knowledge
from rota.core.plan import Plan, Wake
from rota.core.topology import Topology
from rota.core.view import View
from rota.reproduce.replan import Blame, Replanner
from rota.reproduce.synergy.rates import RATE
from rota.reproduce.synergy.servers import Amounts, Entry, Servers, extras, total_of

Key = Callable[[Entry, float, "Leases"], float]

SLACK = 1e-10
"""Rates are that much too high: else a job whose last iteration ends with its round could miss the
end of it by a rounding error. One iteration more or less is never that near."""


def remaining_s(entry: Entry, now_s: float, leases: "Leases") -> float:
    """With the speedup of the last round, or at the proportional share in `proportional`."""
    seconds = entry.step_s * entry.left(now_s)
    return seconds if leases.fair else seconds / entry.speedup


def submission(entry: Entry, now_s: float, leases: "Leases") -> float:  # noqa: ARG001
    """First come, first served."""
    return entry.job.submit_s


def attained(entry: Entry, now_s: float, leases: "Leases") -> float:  # noqa: ARG001
    """GPU-seconds of leases."""
    return entry.job.executed_s(now_s) * entry.gpus


def unfairness(entry: Entry, now_s: float, leases: "Leases") -> float:
    """Finish time in relation to that of a job alone; the least delayed come first."""
    waited_s = now_s - entry.job.submit_s + remaining_s(entry, now_s, leases)
    return waited_s / (entry.step_s * entry.total)


def dominant_share(entry: Entry, now_s: float, leases: "Leases") -> float:  # noqa: ARG001
    """The largest part that it wants of any resource."""
    return max(want / all_ for want, all_ in zip(entry.demand, leases.total, strict=True))


def weighted_demand(entry: Entry, now_s: float, leases: "Leases") -> float:
    """Remaining time x the sum of its parts of all resources."""
    seconds = remaining_s(entry, now_s, leases)
    parts = [want / all_ for want, all_ in zip(entry.demand, leases.total, strict=True)]
    return sum([part * seconds for part in parts])


ORDERS: dict[str, tuple[Key, Knowledge]] = {
    "fifo": (submission, Knowledge.NOTHING),
    "las": (attained, Knowledge.NOTHING),
    "srtf": (remaining_s, Knowledge.REMAINING_WORK),
    "ftf": (unfairness, Knowledge.REMAINING_WORK),
    "drf": (dominant_share, Knowledge.NOTHING),
    "tetris": (weighted_demand, Knowledge.REMAINING_WORK),
}


class Leases(Replanner):
    """One round after the other."""

    def __init__(
        self,
        name: str,
        topology: Topology,
        *,
        order: str,
        mechanism: str,
        round_s: int,
        reversed_ties: bool,
    ) -> None:
        self._key, knowledge = ORDERS[order]
        super().__init__(name, topology, knowledge)
        self.wake = Wake(on=frozenset(), every_s=round_s)
        self.fair = mechanism == "proportional"
        self._mechanism = mechanism
        self._las = order == "las"
        self._round_s = round_s
        self._tie = -1 if reversed_ties else 1
        self._nodes: list[Amounts] = [(n.gpus, n.cpus, n.mem_gib) for n in topology.nodes]
        self._share = tuple(amount / self._nodes[0][0] for amount in self._nodes[0])
        self.total = total_of(self._nodes)
        self._entries: dict[int, Entry] = {}
        self._decided_s = -1.0
        self._blame = Blame()

    # --- what happened ----------------------------------------------------------------------------

    def step(self, view: View, events: Sequence[Event]) -> Plan | None:
        """Between rounds only the books are kept."""
        if events:
            return super().step(view, events)
        return self.decide(view, Plan(view.version)) if self._entries else None

    def arrived(self, job: Job, now_s: float) -> None:  # noqa: ARG002 - see the base
        """It takes part from the next round on."""
        gpus, cpus, mem_gib = self._share
        self._entries[job.index] = Entry(job, self._nodes[0], (gpus, cpus, mem_gib))
        self._blame.joins(job)

    def ended(self, job: Job) -> None:
        """Its lease is over."""
        entry = self._entries.pop(job.index, None)
        if entry is not None and entry.held is None:
            self._blame.leaves(job)

    def lost(self, job: Job, now_s: float) -> None:  # noqa: ARG002 - see the base
        """It waits for the next round."""
        self._entries[job.index].held = None
        self._blame.joins(job)

    # --- what to do -------------------------------------------------------------------------------

    def decide(self, view: View, plan: Plan) -> Plan:
        """Allocate everything anew, once per round."""
        now_s = view.now_s
        if now_s % self._round_s or now_s == self._decided_s:
            return plan
        self._decided_s = now_s
        key, tie = self._key, self._tie
        order = sorted(
            self._entries.values(),
            key=lambda entry: (
                key(entry, now_s, self), entry.job.submit_s, tie * entry.job.index,
            ),
        )  # fmt: skip
        before = {entry.job.index for entry in order if entry.held is not None}
        for entry in order:
            entry.speedup = entry.full
            entry.held = None
        self._allocate([entry for entry in order if entry.job.phase != STOPPING])
        for entry in order:
            self._tell(entry, plan, held_before=entry.job.index in before)
        self._blame.tell(plan)
        return plan

    def _allocate(self, order: list[Entry]) -> None:
        up = [node.up for node in self.topology.nodes]
        free = [node if ok else (0, 0.0, 0.0) for node, ok in zip(self._nodes, up, strict=True)]
        servers = Servers(free, self._share, self._round_s)  # type: ignore[arg-type]  # three
        give = getattr(servers, self._mechanism)
        for entry in self._chosen(order, servers.gpus) if self._las else order:
            if entry.gpus <= servers.gpus:
                give(entry)

    def _chosen(self, order: list[Entry], gpus: float) -> list[Entry]:
        """Las alone chooses by GPUs before it allocates, and `tune` then takes large jobs first."""
        chosen = []
        for entry in order:
            if entry.gpus <= gpus:
                chosen.append(entry)
                gpus -= entry.gpus
        if self._mechanism == "tune":
            chosen.sort(key=lambda entry: -entry.gpus)
        return chosen

    def _tell(self, entry: Entry, plan: Plan, *, held_before: bool) -> None:
        job = entry.job
        if entry.held is None:
            if held_before:
                plan.stop(job)
                self._blame.joins(job)
            return
        if not held_before:
            self._blame.leaves(job)
        rate = entry.iterations * entry.unit / self._round_s * (1 + SLACK)
        nodes = self.topology.nodes
        held = {nodes[position].id: amounts for position, amounts in entry.held.items()}
        slices = [(place, int(amounts[0])) for place, amounts in held.items()]
        allocation = Allocation(slices, extras(held), {RATE: rate})
        if not held_before or allocation != job.allocation:
            plan.starts.append((job, allocation))

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """Who is there, the speedups of the last round, and who had a lease in it."""
        return {
            "jobs": [
                (index, entry.speedup, entry.held is not None)
                for index, entry in self._entries.items()
            ],
            "decided_s": self._decided_s,
            "told": sorted(self._blame.told),
        }

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Rebuild the books; what a lease holds does not matter for the next round."""
        for index, speedup, held in state["jobs"]:
            job = view.everyone[index]
            self.arrived(job, view.now_s)
            entry = self._entries[index]
            entry.speedup = speedup
            if held:  # not by its phase: there may be events that it has not been told yet
                entry.held = {}
                self._blame.leaves(job)
        self._blame.told = set(state["told"])
        self._decided_s = state["decided_s"]
