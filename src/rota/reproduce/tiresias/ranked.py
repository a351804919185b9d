"""Tiresias' `shortest` (SRTF) and `shortest-gpu` (SRSF): one list, sorted anew at every event.

The list of jobs persists and the sort is stable, so the order among equals is their order after the
event before: of two jobs whose remaining times meet, the one that waited goes first, because it was
ahead until then. Then whoever fits runs, in this order, and everybody else is preempted for free.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from rota.core.jobs import RUNNING, STARTING, WAITING, Job
from rota.core.knowledge import Knowledge
from rota.core.plan import Plan
from rota.core.topology import Topology
from rota.core.view import View
from rota.reproduce.replan import Blame, Pool, Replanner

_key = attrgetter("key")


class _Entry:
    """A job in the list. `end_s` is when it would end; 0 where only the job itself can tell."""

    __slots__ = ("end_s", "gpus", "job", "key", "runs", "weight")

    def __init__(self, job: Job, weight: float) -> None:
        self.job = job
        self.gpus = job.gpus
        self.weight = weight
        self.runs = False
        self.end_s = 0.0
        self.key = 0.0


class RankedScheduler(Replanner):
    """Sort by remaining seconds, or remaining seconds times GPUs (`by_service`); fill greedily."""

    settles = True

    def __init__(self, name: str, topology: Topology, *, by_service: bool) -> None:
        super().__init__(name, topology, Knowledge.REMAINING_WORK)
        self._by_service = by_service
        self._pool = Pool(topology)
        self._blame = Blame()
        self._order: list[_Entry] = []
        self._entries: dict[int, _Entry] = {}
        self._running: dict[int, _Entry] = {}

    # --- what happened ----------------------------------------------------------------------------

    def arrived(self, job: Job, now_s: float) -> None:
        """To the end of the list; the sort moves it behind its equals."""
        self._order.append(self._enter(job, now_s))
        self._blame.joins(job)

    def _enter(self, job: Job, now_s: float) -> _Entry:
        entry = _Entry(job, job.gpus if self._by_service else 1)
        entry.key = job.remaining_s(now_s) * entry.weight
        self._entries[job.index] = entry
        return entry

    def ended(self, job: Job) -> None:
        """Out of the list."""
        entry = self._entries.pop(job.index, None)
        if entry is None:
            return
        self._order.remove(entry)
        if self._running.pop(job.index, None) is None:
            self._blame.leaves(job)

    def lost(self, job: Job, now_s: float) -> None:
        """It waits with what remains."""
        entry = self._running.pop(job.index)
        entry.runs = False
        entry.key = job.remaining_s(now_s) * entry.weight
        self._blame.joins(job)

    def progressing(self, job: Job, now_s: float) -> None:  # noqa: ARG002 - see the base
        """Where a start takes time or the rate is not 1, the job is asked each time."""
        entry = self._running.get(job.index)
        if entry is not None:
            entry.end_s = 0.0

    # --- what to do -------------------------------------------------------------------------------

    def decide(self, view: View, plan: Plan) -> Plan:
        """Sort, fill, and preempt whoever is left over."""
        now_s = view.now_s
        for entry in self._running.values():
            entry.key = entry.weight * (
                entry.end_s - now_s if entry.end_s else entry.job.remaining_s(now_s)
            )
        self._order.sort(key=_key)
        chosen = self._fill(view.up_gpus)
        if len(chosen) != len(self._running) or not all(entry.runs for entry in chosen):
            self._change(plan, chosen, now_s)
        self._blame.tell(plan)
        return plan

    def _fill(self, free: float) -> list[_Entry]:
        chosen = []
        for entry in self._order:
            if entry.gpus <= free and (entry.runs or entry.job.phase == WAITING):
                chosen.append(entry)
                free -= entry.gpus
                if not free:
                    break
        return chosen

    def _change(self, plan: Plan, chosen: list[_Entry], now_s: float) -> None:
        running = {entry.job.index: entry for entry in chosen}
        for index, entry in self._running.items():
            if index not in running:
                entry.runs = False
                plan.stops.append(entry.job)
                self._blame.joins(entry.job)
        for entry in chosen:
            if not entry.runs:
                entry.runs = True
                entry.end_s = now_s + entry.job.remaining_s(now_s)
                plan.starts.append((entry.job, self._pool[entry.gpus]))
                self._blame.leaves(entry.job)
        self._running = running

    def settle(self, view: View, plan: Plan) -> Sequence[tuple[float, Job]]:
        """Jobs not running at rate 1 from now on are asked each time; victims may lose work."""
        now_s = view.now_s
        for job, _ in plan.starts:
            if job.since_s != now_s or job.rate != 1.0:
                self._entries[job.index].end_s = 0.0
        for job in plan.stops:
            entry = self._entries[job.index]
            entry.key = job.remaining_s(now_s) * entry.weight
        return ()

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """The order is the state; all else follows from the jobs."""
        return {
            "order": [entry.job.index for entry in self._order],
            "told": sorted(self._blame.told),
        }

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Rebuild the list from the jobs."""
        for index in state["order"]:
            job = view.active[index]
            entry = self._enter(job, view.now_s)
            self._order.append(entry)
            if job.phase in (RUNNING, STARTING):
                entry.runs = True
                self._running[index] = entry
            else:
                self._blame.joins(job)
        self._blame.told = set(state["told"])
