"""The common part of simulators' loops: schedulers that plan the whole cluster at every event.

Such a loop also decides what others leave to models: how long a start takes and how fast a job runs
in a round. It writes both into the allocation; `PlannedCosts` and `PlannedRates` charge just that.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from rota.core import events as ev
from rota.core.allocation import Allocation, Slice
from rota.core.changes import ON_EVERY_EVENT, Changes, Wake
from rota.core.events import Event
from rota.core.jobs import DONE, Job
from rota.core.knowledge import Knowledge
from rota.core.ports import FREE, Scheduler, TransitionCost
from rota.core.reasons import Reason
from rota.core.topology import Topology
from rota.core.view import View
from rota.models.costs import CostModel, CostParams
from rota.models.rates import Rates
from rota.study.dialect import refusal

ENDED = (ev.JOB_DONE, ev.JOB_FAILED, ev.JOB_CANCELLED)
CAPACITY = int(Reason.CAPACITY)


class Replanner(Scheduler, ABC):
    """Tells a subclass what happened, one job at a time, and then asks it for the plan."""

    trusted = True  # tests run it untrusted

    def __init__(self, name: str, topology: Topology, knowledge: Knowledge) -> None:
        self.name = name
        self.topology = topology
        self.knowledge = knowledge
        self.wake: Wake = ON_EVERY_EVENT
        self._refusals: dict[int, str | None] = {}

    def step(self, view: View, events: Sequence[Event]) -> Changes | None:
        """Bring the accounts up to date, then plan."""
        now_s = view.now_s
        changes = Changes(view.version)
        for event in events:
            kind = event[1]
            if kind == ev.JOB_SUBMIT:
                self._submitted(event[3], changes, now_s)
            elif kind in ENDED:
                self.ended(event[3])
            elif kind == ev.JOB_EVICTED:
                self.lost(event[3], now_s)
            elif kind in (ev.JOB_RUNNING, ev.JOB_PHASE):
                self.progressing(event[3], now_s)
            elif kind in (ev.NODE_DOWN, ev.NODE_UP):
                self.node_changed(event[3].id, up=kind == ev.NODE_UP)
        return self.decide(view, changes)

    def _submitted(self, job: Job, changes: Changes, now_s: float) -> None:
        shape = job.shape
        if shape.number not in self._refusals:
            self._refusals[shape.number] = refusal(shape, self.topology)
        message = self._refusals[shape.number]
        if job.phase >= DONE:  # cancelled before anybody looked at it
            return
        if message is None:
            self.arrived(job, now_s)
        else:
            changes.reject(job, message)

    @abstractmethod
    def arrived(self, job: Job, now_s: float) -> None:
        """A job that can run joins the queue."""

    @abstractmethod
    def ended(self, job: Job) -> None:
        """A job is over, in whatever way; it may be unknown if it was refused."""

    @abstractmethod
    def lost(self, job: Job, now_s: float) -> None:
        """A running job lost its node and waits again."""

    @abstractmethod
    def decide(self, view: View, changes: Changes) -> Changes | None:
        """Fill the plan, given that all accounts are up to date."""

    def progressing(self, job: Job, now_s: float) -> None:
        """A start that took time is over, or the rate changed."""

    def node_changed(self, node: int, *, up: bool) -> None:
        """A node went down or came back; its jobs are told with `lost`."""

    @abstractmethod
    def snapshot(self) -> Mapping[str, Any]:
        """Private state as plain data."""

    @abstractmethod
    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Take the state of `snapshot` up again."""


class Pool:
    """Allocations of the one pool of GPUs: equal sizes are equal allocations."""

    def __init__(self, topology: Topology) -> None:
        self._vertex = topology.pools[0].id
        self._made: dict[float, Allocation] = {}

    def __getitem__(self, gpus: float) -> Allocation:
        made = self._made.get(gpus)
        if made is None:
            made = self._made[gpus] = Allocation([(self._vertex, gpus)])
        return made


class Blame:
    """Why the waiting jobs of each shape wait; only changes reach the plan."""

    def __init__(self) -> None:
        self._waiting: dict[int, int] = {}  # shape -> how many wait
        self._latest: dict[int, Job] = {}
        self._touched: set[int] = set()
        self.told: set[int] = set()  # shapes with a reason

    def joins(self, job: Job) -> None:
        """One more job waits, at least until the plan is made."""
        number = job.shape.number
        self._waiting[number] = self._waiting.get(number, 0) + 1
        self._latest[number] = job
        self._touched.add(number)

    def leaves(self, job: Job) -> None:
        """A waiting job starts or is gone."""
        number = job.shape.number
        self._waiting[number] -= 1
        self._touched.add(number)

    def tell(self, changes: Changes) -> None:
        """GPUs are one pool: who waits lacks capacity."""
        for number in sorted(self._touched):
            waits = self._waiting[number] > 0
            if waits and number not in self.told:
                self.told.add(number)
                changes.shape_reasons.append((number, CAPACITY, self._latest[number]))
            elif not waits and number in self.told:
                self.told.remove(number)
                changes.shape_reasons.append((number, 0, None))
        self._touched.clear()


class WaitingBlame(Blame):
    """The same where a job may be said to wait, or not to, more than once; it can be saved."""

    def __init__(self) -> None:
        super().__init__()
        self._jobs: dict[int, None] = {}

    def joins(self, job: Job) -> None:
        """It waits, unless it does already."""
        if job.index not in self._jobs:
            self._jobs[job.index] = None
            super().joins(job)

    def leaves(self, job: Job) -> None:
        """It waits no more, if it did."""
        if job.index in self._jobs:
            del self._jobs[job.index]
            super().leaves(job)

    def snapshot(self) -> Mapping[str, list[int]]:
        """Who waits, and what is told, as plain data."""
        return {"waiting": list(self._jobs), "told": sorted(self.told)}

    @classmethod
    def restored(cls, state: Mapping[str, Any], everyone: Mapping[int, Job]) -> "WaitingBlame":
        """From the state of `snapshot`."""
        made = cls()
        for index in state["waiting"]:
            made.joins(everyone[index])
        made.told = set(state["told"])
        return made


# --- Planned costs and rates ----------------------------------------------------------------------

START_S = "start_s"


def planned(slices: Sequence[Slice], start_s: float) -> Allocation:
    """An allocation on which a job makes progress only after so many seconds."""
    return Allocation(slices, config={START_S: start_s} if start_s else None)


class PlannedCosts(CostModel[CostParams]):
    """A start takes as long as the scheduler planned; all else is free.

    A cost model sees one job at a time and no policy. What a simulator charges can depend on
    more: on the policy, or on overhead that a job still owes from its last preemption.
    """

    name = "planned"
    source = "the scheduler of a dialect writes the seconds of a start into the allocation"

    def start(self, job: Job, new: Allocation) -> TransitionCost:  # noqa: ARG002
        """What the allocation says."""
        config = new.config or {}
        return TransitionCost(start_s=config[START_S]) if START_S in config else FREE


RATE = "rate"


class PlannedRates(Rates):
    """The rate that the scheduler planned; 1 where it planned none."""

    name = "planned"

    def rate(self, job: Job, allocation: Allocation, sharers: Sequence[Job]) -> float:  # noqa: ARG002
        """What the allocation says."""
        rate: float = (allocation.config or {}).get(RATE, 1.0)
        return rate
