"""Chronus' loop: the accounts, once a minute, and nodes for those who run.

A job's rate is chosen when it starts, such that it ends when the simulator has it end: a start
takes no time of its own there, it makes the job longer.
"""

from collections.abc import Mapping
from typing import Any

from rota.core.allocation import Allocation
from rota.core.changes import Changes, Wake
from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.topology import Topology
from rota.core.view import View
from rota.reproduce.blox.loop import scatter_fixed
from rota.reproduce.chronus.accounts import (
    ACCEPTED,
    BEST_EFFORT,
    DECLINED,
    LATE,
    LeaseAccounts,
    LeaseJob,
)
from rota.reproduce.elasticflow.slots import rate_to_be_done
from rota.reproduce.helios.loop import Nodes, Slices
from rota.reproduce.loop import RATE, Replanner, WaitingBlame

STANDING = {
    ACCEPTED: "its deadline is promised; it has no lease now",
    DECLINED: "its deadline is not promised",
    LATE: "its deadline is out of reach",
    BEST_EFFORT: "it has no deadline",
}
"""Why a job may be stopped, said in the log."""


class LeaseNodes(Nodes):
    """Consolidated where that is possible; else wherever GPUs are free."""

    def find(self, gpus: float) -> Slices | None:
        """Never None if so many are free."""
        return super().find(gpus) or scatter_fixed(gpus, self._free)


class LeaseLoop(Replanner):
    """The simulator's scheduler `time-aware-with-lease`."""

    def __init__(
        self, name: str, topology: Topology, *, like: str, unit_s: float, lease: int, slot: int
    ) -> None:
        super().__init__(name, topology, Knowledge.REMAINING_WORK | Knowledge.DEADLINES)
        self.wake = Wake(on=frozenset(), every_s=unit_s)
        self.accounts = LeaseAccounts(int(topology.gpus), lease=lease, slot=slot)
        self._unit_s = unit_s
        self._origin = 0  # minutes on the trace's clock at the run's second 0
        self._nodes = LeaseNodes(topology, like)
        self._entries: dict[int, LeaseJob] = {}
        self._held: dict[int, Slices] = {}
        self._over: list[LeaseJob] = []  # since the last minute
        self._minute = -1
        self._blame = WaitingBlame()

    def begin_at(self, origin_s: float) -> None:
        """Leases are counted on the trace's clock: where it stands when the run begins."""
        self._origin = int(origin_s // self._unit_s)

    # --- what happened ----------------------------------------------------------------------------

    def arrived(self, job: Job, now_s: float) -> None:  # noqa: ARG002 - see the base
        """It is looked at when the next slot begins."""
        entry = self._entry(job)
        self._entries[job.index] = entry
        self.accounts.coming.append(entry)
        self._blame.joins(job)

    def _entry(self, job: Job) -> LeaseJob:
        return LeaseJob(job, unit_s=self._unit_s, origin=self._origin, lease=self.accounts.lease)

    def ended(self, job: Job) -> None:
        """Its GPUs are given out from the next minute on."""
        entry = self._entries.pop(job.index, None)
        if entry is None:
            return
        self._blame.leaves(job)
        if job.index in self._held:
            self._vacate(job)
            self._over.append(entry)
        elif entry in self.accounts.waiting:
            self.accounts.waiting.remove(entry)
        else:
            self.accounts.coming.remove(entry)

    def lost(self, job: Job, now_s: float) -> None:
        """It waits again, with what it has behind it, and without its lease."""
        entry = self._entries[job.index]
        self._vacate(job)
        self._blame.joins(job)
        self.accounts.lost(entry, job.left_at(now_s) / self._unit_s)

    def node_changed(self, node: int, *, up: bool) -> None:
        """There is more or less to give out."""
        self._nodes.set_node(node, up=up)
        gpus = int(self.topology.vertices[node].gpus)
        self.accounts.gpus += gpus if up else -gpus

    def _vacate(self, job: Job) -> None:
        self._nodes.change(self._held.pop(job.index), +1)

    # --- what to do -------------------------------------------------------------------------------

    def decide(self, view: View, changes: Changes) -> Changes:
        """Once in every minute of the trace's clock."""
        passed, rest = divmod(view.now_s, self._unit_s)
        minute = int(passed) + self._origin
        if rest or minute == self._minute:
            return changes
        self._minute = minute
        before = {entry: entry.preempts for entry in self.accounts.running}
        self.accounts.minute(self._minute, self._over)
        self._over = []
        after = dict.fromkeys(self.accounts.running)
        for entry in before:
            if entry not in after and entry.job.index in self._held:
                self._stop(entry, changes)
                self._vacate(entry.job)
                self._blame.joins(entry.job)
        new = [entry for entry in after if before.get(entry) != entry.preempts]
        for entry in sorted(new, key=lambda entry: -entry.gpus):
            self._start(entry, view.now_s, changes)
        self._blame.tell(changes)
        return changes

    def _start(self, entry: LeaseJob, now_s: float, changes: Changes) -> None:
        """Start it, or restart it where it is: its new end makes another rate."""
        job = entry.job
        held = self._held.get(job.index)
        if held is not None:
            self._stop(entry, changes)
        else:
            held = self._nodes.find(entry.gpus)
            if held is None:  # pragma: no cover - the accounts and the nodes count the same GPUs
                raise AssertionError(f"job {job.id} has no room among {self._nodes.free} free GPUs")
            self._nodes.change(held, -1)
            self._held[job.index] = held
            self._blame.leaves(job)
        left, end_s = job.left_at(now_s), (entry.end - self._origin) * self._unit_s
        rate = rate_to_be_done(left, now_s, end_s) if left > 0 else 1.0
        slices = [(self._nodes.vertices[position], part) for position, part in held]
        changes.starts.append((job, Allocation(slices, config={RATE: rate})))

    def _stop(self, entry: LeaseJob, changes: Changes) -> None:
        changes.stop(entry.job)
        changes.remark(entry.job, STANDING[entry.standing])

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """The accounts; where jobs run is in their allocations."""
        return {
            **self.accounts.snapshot(),
            "over": [entry.state() for entry in self._over],
            "minute": self._minute,
            "origin": self._origin,
            "blame": self._blame.snapshot(),
        }

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Rebuild the accounts from the jobs."""
        self._origin = state["origin"]
        for node in self.topology.nodes:
            if not node.up:
                self.node_changed(node.id, up=False)

        def entry_of(saved: list[Any]) -> LeaseJob:
            index, *rest = saved
            made = self._entry(view.everyone[index])
            made.restore(rest)
            return made

        accounts = self.accounts
        accounts.coming = [entry_of(saved) for saved in state["coming"]]
        accounts.waiting = [entry_of(saved) for saved in state["waiting"]]
        accounts.running = [entry_of(saved) for saved in state["running"]]
        accounts.declined, accounts.begun = state["declined"], state["begun"]
        over = {saved[0] for saved in state["over"]}
        self._over = [entry for entry in accounts.running if entry.job.index in over]
        for entry in (*accounts.coming, *accounts.waiting, *accounts.running):
            if entry not in self._over:
                self._entries[entry.job.index] = entry
        for entry in accounts.running:
            if entry not in self._over:
                position = self._nodes.position
                held = [(position[v], part) for v, part in entry.job.allocation.slices]
                self._nodes.change(held, -1)
                self._held[entry.job.index] = held
        self._minute = state["minute"]
        self._blame = WaitingBlame.restored(state["blame"], view.everyone)
