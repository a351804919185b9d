"""Tiresias as ElasticFlow's simulator has it (its `dlas-gpu`).

Three queues by GPU time, first come first served within each, and whoever fits runs. What is odd
about it is followed to the second: a job goes down one queue at most per event; the time at which
it will is taken from its seconds, not from its GPU time; overhead delays a job only if an event
comes before its end, or if all are restarted.
"""

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any

from rota.core.allocation import Slice
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.topology import Topology
from rota.core.view import View
from rota.reproduce.elasticflow.rigid import RigidAhead, RigidJob, RigidSlots

LIMITS = (3250, 7200)
"""GPU seconds with which a job leaves a queue; the last one has no limit."""


class TiresiasSlots(RigidSlots):
    """Discretised least attained service, with preemption at every event."""

    def __init__(self, name: str, topology: Topology, *, slot_s: float) -> None:
        super().__init__(name, topology, slot_s=slot_s)
        self._queues: list[list[RigidJob]] = [[] for _ in range(len(LIMITS) + 1)]
        self._order: list[RigidJob] = []  # of all who wait or run; sorting is stable
        self._chosen: list[RigidJob] = []  # in the order of placement
        self._ends: list[RigidJob] = []  # with the next end
        self._ends_s = INF
        self._restarted = False

    def _drop(self, entry: RigidJob) -> None:
        super()._drop(entry)
        for entries in (self._order, self._queues[entry.queue], self._ends, self._chosen):
            if entry in entries:
                entries.remove(entry)

    def _happens(self, now_s: float) -> None:
        if self._ends_s <= now_s:
            for entry in list(self._ends):
                self._drop(entry)
        for entry in self._over():
            self._drop(entry)
        for entry in self._submitted_by(now_s):
            self._order.append(entry)
            self._queues[0].append(entry)
        for entry in self._order:
            if entry.placed:
                entry.ran_s = self._ahead(entry, int(now_s - self._now_s)).ran_s
                entry.overhead_s = 0.0
                self._demote(entry)
        self._choose()

    def _demote(self, entry: RigidJob) -> None:
        queue = entry.queue
        if queue < len(LIMITS) and entry.ran_s * entry.gpus >= LIMITS[queue]:
            self._queues[queue].remove(entry)
            entry.queue += 1
            self._queues[entry.queue].append(entry)

    def _choose(self) -> None:
        """Whoever fits, queue by queue; those who do not go to the end of their queue."""
        free = sum(node.gpus for node in self.topology.nodes if node.up)
        self._restarted = self._restarts()
        chosen = set()
        for queue in self._queues:
            for entry in queue:
                if entry.gpus > free:
                    continue
                free -= entry.gpus
                chosen.add(entry.job.index)
                if not entry.placed or self._restarted:
                    entry.overhead_s = self._overhead_s(entry.gpus, restart=self._restarted)
            queue.sort(key=lambda entry: entry.job.index not in chosen)
        self._order.sort(key=lambda entry: -entry.gpus)
        self._chosen = [entry for entry in self._order if entry.job.index in chosen]

    def _look_ahead(self, now_s: float) -> float:
        """The first end, the first fall into a lower queue, or the next submission."""
        self._ends, self._ends_s = [], INF
        falls_s = INF
        for entry in self._chosen:
            left_s = entry.duration_s - entry.ran_s
            if self._restarted:
                left_s += entry.overhead_s
            entry.end_s = int(now_s + left_s)
            ends_s = max(now_s + self._slot_s, entry.end_s)
            if ends_s < self._ends_s:
                self._ends, self._ends_s = [], ends_s
            if ends_s == self._ends_s:
                self._ends.append(entry)
            if entry.queue < len(LIMITS):
                falls_s = min(falls_s, self._falls_s(entry, now_s))
        falls_s = max(falls_s, now_s + self._slot_s)
        return min(self._events.gather(now_s, self._slot_s), self._ends_s, falls_s)

    @staticmethod
    def _falls_s(entry: RigidJob, now_s: float) -> float:
        """When the simulator expects it to leave its queue: seconds are taken for GPU seconds."""
        return now_s + ceil((LIMITS[entry.queue] - entry.ran_s) / entry.gpus)

    def _ahead(self, entry: RigidJob, seconds: int) -> RigidAhead:
        ends = entry in self._ends and self._ends_s <= self._next_s
        return RigidAhead(
            int(entry.ran_s + max(seconds - entry.overhead_s, 0)), entry.end_s if ends else INF
        )

    def _running(self) -> Iterable[tuple[RigidJob, list[Slice]]]:
        """The largest first, one after the other over all GPUs."""
        gpus = [node.id for node in self.topology.nodes if node.up for _ in range(node.gpus)]
        rank = 0
        for entry in self._chosen:
            nodes = gpus[rank : rank + entry.gpus]
            rank += entry.gpus
            yield entry, [(node, nodes.count(node)) for node in dict.fromkeys(nodes)]

    def snapshot(self) -> Mapping[str, Any]:
        """The queues, too."""
        return {
            **super().snapshot(),
            "queues": [[entry.job.index for entry in queue] for queue in self._queues],
            "order": [entry.job.index for entry in self._order],
            "ends": [entry.job.index for entry in self._ends],
            "ends_s": self._ends_s,
        }

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Take all of it up again; who runs is chosen anew with the next event."""
        super().restore(view, state)
        jobs = self._jobs
        self._queues = [[jobs[index] for index in queue] for queue in state["queues"]]
        self._order = [jobs[index] for index in state["order"]]
        self._ends = [jobs[index] for index in state["ends"]]
        self._ends_s = state["ends_s"]
        self._chosen = [entry for entry in self._order if entry.placed]

    def lost(self, job: Job, now_s: float) -> None:
        """It ends later than was planned."""
        super().lost(job, now_s)
        self._ends = [entry for entry in self._ends if entry.job is not job]
