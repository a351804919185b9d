"""Gandiva as ElasticFlow's simulator has it.

Jobs of one size share groups of whole nodes. A job joins the emptiest group of its size if that has
room, else new nodes become a group, else it waits in the emptiest group for its turn. Nodes move
between sizes by what is asked for. Oddities are followed: how full a group is never falls when jobs
end; turns change only at full minutes of the trace's clock; new groups of one node stay empty
unless nodes run out while they are made; what an event moves has been there since the last one.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import ceil, floor
from typing import Any

from rota.core.allocation import Slice
from rota.core.changes import Changes
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.topology import Topology
from rota.core.view import View
from rota.core.workload import Workload
from rota.reproduce.elasticflow.rigid import RigidAhead, RigidJob, RigidSlots

SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 72, 88, 128, 256)
"""Numbers of GPUs that a job may ask for."""
MINUTE_S = 60.0


class GandivaGroup:
    """Nodes that jobs of one size take turns on."""

    def __init__(self, nodes: list[int], room: int) -> None:
        self.nodes = nodes
        self.room = room  # jobs that run at once
        self.fill = 0  # jobs that have joined since it was last emptied
        self.jobs: list[RigidJob] = []

    def join(self, entry: RigidJob) -> None:
        """One more, behind the others."""
        self.fill += 1
        self.jobs.append(entry)

    @property
    def turn(self) -> list[RigidJob]:
        """Who runs."""
        return self.jobs[: self.room]

    def switch(self) -> None:
        """Those who ran go behind the others."""
        turn = self.turn
        self.jobs = self.jobs[len(turn) :] + turn


class GandivaGroups:
    """All groups by size, the emptiest first, and the nodes that no group has."""

    def __init__(self, nodes: Iterable[int], gpus_per_node: int) -> None:
        self.free = list(nodes)
        self.of: dict[int, list[GandivaGroup]] = {size: [] for size in SIZES}
        self._per_node = gpus_per_node
        self._nodes = len(self.free)

    def __iter__(self) -> Iterator[tuple[int, GandivaGroup]]:
        for size, groups in self.of.items():
            for group in groups:
                yield size, group

    def place(self, entry: RigidJob) -> bool:
        """Find it a group; False: there is none, and no nodes for one."""
        groups = self.of[entry.gpus]
        if groups:
            groups.append(groups.pop(0))
            if groups[-1].fill + 1 < groups[-1].room:
                return self._join(groups, groups[-1], entry)
        if ceil(entry.gpus / self._per_node) <= len(self.free):
            return self._join(groups, self._make(entry.gpus), entry)
        if groups:
            return self._join(groups, groups[0], entry)
        return False

    def _join(self, groups: list[GandivaGroup], group: GandivaGroup, entry: RigidJob) -> bool:
        if group in groups:
            groups.remove(group)
        group.join(entry)
        groups.append(group)
        groups.sort(key=lambda one: one.fill)
        return True

    def _make(self, size: int) -> GandivaGroup:
        many = ceil(size / self._per_node)
        nodes = [self.free.pop(0) for _ in range(many)]
        return GandivaGroup(nodes, int(many * self._per_node / size))

    def adjust(self) -> None:
        """Give sizes the nodes that their jobs ask for, in proportion."""
        asked = {
            size: size * sum(len(one.jobs) for one in groups) for size, groups in self.of.items()
        }
        total = sum(asked.values())
        held = {
            size: self._per_node * sum(len(one.nodes) for one in groups)
            for size, groups in self.of.items()
        }
        for size, groups in self.of.items():
            if not asked[size]:
                continue
            share = floor(asked[size] / total * (self._nodes * self._per_node))
            more = min(share, asked[size]) - held[size]
            if more > 0:
                self._expand(size, groups, ceil(more / size))
            elif more < 0:
                self._shrink(groups, ceil(-more / size))

    def _expand(self, size: int, groups: list[GandivaGroup], many: int) -> None:
        """Make groups while there are nodes; jobs move only if the last was not made.

        Groups of several nodes are an exception: then they move in any case.
        """
        made = False
        for _ in range(many):
            made = ceil(size / self._per_node) <= len(self.free)
            if made:
                groups.append(self._make(size))
        if made and size <= self._per_node:
            return
        jobs = [entry for group in groups for entry in group.jobs]
        for group in groups:
            group.jobs, group.fill = [], 0
        self._spread(groups, jobs)

    def _shrink(self, groups: list[GandivaGroup], many: int) -> None:
        """Give up so many groups, but not the last one."""
        jobs = []
        for _ in range(min(many, len(groups) - 1)):
            group = groups.pop(0)
            jobs += group.jobs
            self.free += group.nodes
        self._spread(groups, jobs)

    @staticmethod
    def _spread(groups: list[GandivaGroup], jobs: Iterable[RigidJob]) -> None:
        for entry in jobs:
            groups[0].join(entry)
            groups.sort(key=lambda one: one.fill)

    def release(self) -> bool:
        """Give up empty groups; were there any?"""
        found = False
        for groups in self.of.values():
            for group in [one for one in groups if not one.jobs]:
                groups.remove(group)
                self.free += group.nodes
                found = True
        return found

    def without(self, node: int) -> list[RigidJob]:
        """A node is gone: give up its group; whose group was that?"""
        self._nodes -= 1
        for groups in self.of.values():
            for group in groups:
                if node in group.nodes:
                    groups.remove(group)
                    self.free += [one for one in group.nodes if one != node]
                    return group.jobs
        self.free = [one for one in self.free if one != node]
        return []

    def back(self, node: int) -> None:
        """It can be used again."""
        self._nodes += 1
        self.free.append(node)

    def state(self) -> list[Any]:
        """As plain data."""
        return [
            [size, group.nodes, group.room, group.fill, [one.job.index for one in group.jobs]]
            for size, group in self
        ]

    def restore(self, state: Iterable[Any], free: Iterable[int], jobs: Mapping[int, Any]) -> None:
        """Take the state up again."""
        self.free = list(free)
        self._nodes = len(self.free)
        for size, nodes, room, fill, members in state:
            group = GandivaGroup(list(nodes), room)
            group.fill, group.jobs = fill, [jobs[index] for index in members]
            self.of[size].append(group)
            self._nodes += len(nodes)


class GandivaSlots(RigidSlots):
    """Groups that take turns; events are submissions and, after the last one, all slots."""

    def __init__(self, name: str, topology: Topology, *, slot_s: float) -> None:
        super().__init__(name, topology, slot_s=slot_s)
        self._gpus_per_node = topology.nodes[0].gpus
        self._groups = GandivaGroups((node.id for node in topology.nodes), self._gpus_per_node)
        self._pending: list[RigidJob] = []
        self._waited: set[int] = set()  # numbers of all who ever were pending
        self._clock_s = 0.0  # of the trace, when ours is at 0
        self._changed = False  # nodes failed or came back
        self._quiet = False  # the next slot changes nothing unless somebody ends

    def expect(self, workload: Workload) -> None:
        """Turns change by the trace's own clock."""
        super().expect(workload)
        self._clock_s = workload.origin_s

    def _submitted(self, job: Job, changes: Changes, now_s: float) -> None:
        if job.gpus in SIZES:
            super()._submitted(job, changes, now_s)
        else:
            sizes = ", ".join(map(str, SIZES))
            changes.reject(job, f"asks for {job.gpus:g} GPUs, but there are groups for {sizes}")

    def node_changed(self, node: int, *, up: bool) -> None:
        """Groups live on nodes that are up."""
        super().node_changed(node, up=up)
        self._changed = True
        if up:
            self._groups.back(node)
        else:
            self._pending += self._groups.without(node)

    def _drop(self, entry: RigidJob) -> None:
        super()._drop(entry)
        self._waited.discard(entry.job.index)
        if entry in self._pending:
            self._pending.remove(entry)
        for _, group in self._groups:
            if entry in group.jobs:
                group.jobs.remove(entry)

    def _happens(self, now_s: float) -> None:
        self._advance(now_s)
        for number in self._waited:  # others pay when it is their turn
            self._jobs[number].overhead_s = 0.0
        for entry in self._over():
            self._drop(entry)
        released = self._groups.release() or self._changed
        self._changed = False
        for entry in self._submitted_by(now_s):
            if not self._groups.place(entry):
                self._pending.append(entry)
                self._waited.add(entry.job.index)
        if released:
            self._try_pending()
        before = self._groups.state()
        self._groups.adjust()
        self._quiet = not self._pending and before == self._groups.state()

    def _advance(self, now_s: float) -> None:
        """What everyone has done since the last event, and whose turn is over."""
        switch = (now_s + self._clock_s) % MINUTE_S == 0
        for _, group in self._groups:
            done = []
            for entry in group.turn:
                if not entry.placed:  # it lost its node
                    continue
                ahead = self._ahead(entry, int(now_s - self._now_s))
                entry.ran_s, entry.overhead_s = ahead.ran_s, 0.0
                if ahead.end_s < INF:
                    done.append(entry)
            if switch and len(group.jobs) > group.room:
                group.switch()
            for entry in done:
                self._drop(entry)

    def _try_pending(self) -> None:
        """Whoever comes after one that found a group is left out this time."""
        tried = 0
        while tried < len(self._pending):
            if self._groups.place(self._pending[tried]):
                del self._pending[tried]
            tried += 1

    def _look_ahead(self, now_s: float) -> float:
        if self._events.first_s < INF:
            restart = self._restarts()
            for _, group in self._groups:
                for entry in group.jobs:
                    entry.overhead_s = self._overhead_s(entry.gpus, restart=restart)
            return self._events.gather(now_s, self._slot_s)
        turn = [entry for _, group in self._groups for entry in group.turn]
        if not turn:
            return INF
        slots = 1
        if self._quiet and not self._switches(now_s):
            slots = min(self._slots_left(entry) for entry in turn)
        return now_s + slots * self._slot_s

    def _switches(self, now_s: float) -> bool:
        """May turns change at the end of a slot?"""
        if not any(len(group.jobs) > group.room for _, group in self._groups):
            return False
        return self._slot_s % MINUTE_S != 0 or (now_s + self._clock_s) % MINUTE_S == 0

    def _slots_left(self, entry: RigidJob) -> int:
        """Slots in which it just runs, up to the one in which it ends."""
        if entry.overhead_s > self._slot_s:
            return 1
        left_s = entry.duration_s - entry.ran_s + entry.overhead_s
        return max(1, ceil(left_s / self._slot_s))

    def _ahead(self, entry: RigidJob, seconds: int) -> RigidAhead:
        ran_s = entry.ran_s + max(seconds - entry.overhead_s, 0)
        if ran_s < entry.duration_s:
            return RigidAhead(ran_s, INF)
        return RigidAhead(ran_s, self._next_s - (ran_s - entry.duration_s))

    def _running(self) -> Iterable[tuple[RigidJob, list[Slice]]]:
        per_node = self._gpus_per_node
        for size, group in self._groups:
            for entry in group.turn:
                yield (
                    entry,
                    [
                        (node, min(per_node, size - per_node * number))
                        for number, node in enumerate(group.nodes)
                    ],
                )

    def snapshot(self) -> Mapping[str, Any]:
        """The groups, too."""
        return {
            **super().snapshot(),
            "groups": self._groups.state(),
            "free": list(self._groups.free),
            "pending": [entry.job.index for entry in self._pending],
            "waited": sorted(self._waited),
            "changed": self._changed,
        }

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Take all of it up again."""
        super().restore(view, state)
        self._groups = GandivaGroups((), self._gpus_per_node)
        self._groups.restore(state["groups"], state["free"], self._jobs)
        self._pending = [self._jobs[index] for index in state["pending"]]
        self._waited = set(state["waited"])
        self._changed = state["changed"]
