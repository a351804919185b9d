"""Gandiva: introspective scheduling (Xiao et al., OSDI 2018, section 4).

*Reactive.* A new job goes to a server of its affinity (where the first job had as many GPUs), else
to one without, else to any with free GPUs, the least loaded of each kind. If none is free, it lives
on the least loaded server of its affinity all the same, up to `oversubscribe` jobs on a GPU: those
take turns of `slice_s` seconds by suspending and resuming (charged by the cost model; `suspend`
has the paper's). Only if there is no such server does it wait.

*Introspective*, every `slice_s` seconds as long as there is something to improve:

* Packing: two jobs that take turns on the same GPUs try to run at the same time, where the mode of
  the GPUs allows it (`timeslice`, `mps`). Their rates are measured, compared with those alone; if
  both together make less than `gain` of the progress of one, this is undone and not tried again.
* Migration: jobs leave the non-idle server with most free GPUs for fuller ones, until each has less
  than `until_free` of its GPUs free or nobody can move. For a job that finds no server though there
  are enough free GPUs, others move until it does.
* Growing and shrinking: while nobody waits, elastic jobs grow on their server; they shrink to what
  they asked for before others take turns.

It knows present rates, nothing else. Departs from the paper: pairs are tried in order of arrival,
not by measured utilisation; jobs with parts of GPUs, with several servers or with a server for each
task do not take turns. (`gandiva-random` is what Gavel compares with.)
"""

from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from rota.core.allocation import Allocation
from rota.core.events import INF
from rota.core.jobs import WAITING, Job
from rota.core.knowledge import Knowledge
from rota.core.plan import ExplicitPlan, Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.state import State
from rota.core.sums import ordered_sum
from rota.core.tenants import TenantTree
from rota.core.topology import Topology, Vertex
from rota.core.view import View, arrival
from rota.policies._gpus import SharedGpus, gpus_needed, no_place, on_gpus, part_for
from rota.policies.gandiva.homes import Homes, beside_gpus

DUST = 1e-9


class GandivaPolicyParams(Params, frozen=True):
    """Turns, whom to pack, and when to migrate."""

    slice_s: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    oversubscribe: Annotated[float, msgspec.Meta(ge=1)] = 4.0
    pack: bool = True
    gain: Annotated[float, msgspec.Meta(ge=0)] = 1.05
    migrate: bool = True
    until_free: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.75
    grow: bool = True


class GandivaState(State):
    """Homes, turns, pairs and what was measured; jobs by their numbers."""

    homes: dict[int, tuple[int, ...]] = {}
    labels: dict[int, int] = {}  # server -> its affinity
    turn: int = 0
    looked_s: float = -INF  # when turns changed last
    ran: dict[int, int] = {}  # job -> its last turn
    alone: dict[int, float] = {}  # job -> its rate alone
    pairs: dict[int, int] = {}  # job -> its partner, both ways
    bad: set[tuple[int, int]] = set()
    jobs: tuple[int, int] = (0, -1)  # how many there are, and the newest
    changed: bool = True  # since it looked last


class Gandiva(DecidePolicy[GandivaPolicyParams]):
    """Take turns on servers of one job size, and pack, move and grow jobs by what is measured."""

    name = "gandiva"
    paper = "Xiao et al., Gandiva: Introspective Cluster Scheduling for Deep Learning, OSDI 2018"
    Parameters = GandivaPolicyParams
    knowledge = Knowledge.RATE
    plan_type = ExplicitPlan
    preemptive = True
    coupled = "jobs share turns, and affinities of servers follow from all of them"

    def __init__(self, params: GandivaPolicyParams | None = None) -> None:
        super().__init__(params)
        self.state: GandivaState = GandivaState()

    def decide(self, view: View) -> Plan:
        """Who lives where, and who of them runs now."""
        plan, state = view.plan(ExplicitPlan), self.state
        homes = Homes(view, state.homes, state.labels)
        self._notice(view, homes)
        waiting = [job for job in view.waiting if self._may_live(job, plan)]
        due = view.now_s >= state.looked_s + self.params.slice_s
        looks = due and (state.changed or bool(self._suspended(view, homes)))
        if looks:
            state.turn += 1
            state.looked_s, state.changed = view.now_s, False
            self._measure(view, homes)
        self._settle(view, homes, waiting)
        if looks:
            self._improve(view, homes, waiting)
        self._run(view, homes, plan, turns=looks)
        if state.changed or self._suspended(view, homes):
            plan.wake_at(max(view.now_s, state.looked_s + self.params.slice_s))
        return plan

    def never(self, job: Job, topology: Topology) -> str | None:
        """A placement may know nodes on which it could run, and no home."""
        if not job.gpus or (job.gpus > 1 and job.gpus % 1):
            return None
        alone = View(topology, TenantTree(()))
        homes = Homes(alone, {}, {}, SharedGpus(topology, closed=True))
        return None if homes.find(job) else no_place(self.name, job, "")

    # --- who lives where --------------------------------------------------------------------------

    def _notice(self, view: View, homes: Homes) -> None:
        """Jobs that came or went, and homes on servers where nothing can be started."""
        state, active, vertices = self.state, view.active, view.topology.vertices
        there = (len(active), max(active, default=-1))
        state.changed |= there != state.jobs
        state.jobs = there
        shut = {node.id for node in view.topology.nodes if not node.open}
        for index, home in list(state.homes.items()):
            closed = bool(shut) and any(vertices[device].node in shut for device in home)
            if index not in active or (closed and not active[index].running):
                self._part(index)
                homes.leave(index)
        state.bad = {pair for pair in state.bad if pair[0] in active and pair[1] in active}
        for known in (state.ran, state.alone):
            for index in [index for index in known if index not in active]:
                del known[index]

    def _part(self, index: int) -> None:
        """It is packed no more."""
        partner = self.state.pairs.pop(index, None)
        if partner is not None:
            del self.state.pairs[partner]

    @staticmethod
    def _may_live(job: Job, plan: Plan) -> bool:
        if job.gpus > 1 and job.gpus % 1:
            plan.refuse(job, f"asks for {job.gpus:g} GPUs: gandiva gives parts of one GPU only")
            return False
        return True

    def _suspended(self, view: View, homes: Homes) -> list[Job]:
        """Those that wait for their turn, who ran longest ago first."""
        jobs = (view.active[index] for index in homes.of if homes.takes_turns(index))
        return self._in_turn(job for job in jobs if job.phase == WAITING)

    def _in_turn(self, jobs: Iterable[Job]) -> list[Job]:
        ran = self.state.ran
        return sorted(jobs, key=lambda job: (ran.get(job.index, -1), arrival(job)))

    def _settle(self, view: View, homes: Homes, waiting: Sequence[Job]) -> None:
        """GPUs of their own for those who take turns or wait, else a place among others."""
        new = [job for job in waiting if job.index not in homes.of and job.gpus]
        crowded = [job for job in self._suspended(view, homes) if job.index not in self.state.pairs]
        if new or crowded:
            self._shrink(view, homes)
        hopeless: set[tuple[bool, int]] = set()  # equal jobs find as little
        for job in sorted([*crowded, *new], key=arrival):
            lives, shape = job.index in homes.of, job.shape.number
            if (lives, shape) in hopeless:
                continue
            home = None if (not lives, shape) in hopeless else homes.find(job)
            if home is None and not lives:
                home = homes.crowd(job, self.params.oversubscribe)
            if home is not None:
                homes.enter(job, home)
            else:
                hopeless.add((lives, shape))

    # --- introspection ----------------------------------------------------------------------------

    def _measure(self, view: View, homes: Homes) -> None:
        """Rates of those who run: alone for the record, in pairs for a verdict."""
        state = self.state
        for index in homes.of:
            rate = view.active[index].rate
            if index not in state.pairs and rate > 0:
                state.alone[index] = rate
        for one, two in list(state.pairs.items()):
            rates = [(view.active[index].rate, state.alone[index]) for index in (one, two)]
            if one < two and all(rate > 0 for rate, _ in rates):
                progress = ordered_sum(rate / alone for rate, alone in rates)
                if progress < self.params.gain:
                    self._part(one)
                    state.bad.add((one, two))

    def _improve(self, view: View, homes: Homes, waiting: Sequence[Job]) -> None:
        """Pack those who take turns, move jobs together, let them grow."""
        suspended = self._suspended(view, homes)
        if self.params.pack:
            for job in suspended:
                self._pack(job, view, homes)
        poor = [job for job in suspended if job.index not in self.state.pairs]
        poor += [job for job in waiting if job.gpus and job.index not in homes.of]
        if self.params.migrate:
            for job in {job.shape.number: job for job in reversed(poor)}.values():
                self._make_room(job, view, homes)
            self._gather(view, homes)
        if self.params.grow and not poor:
            self._grow(view, homes)

    def _pack(self, job: Job, view: View, homes: Homes) -> None:
        """Try to run it at the same time as one of those with whom it takes turns."""
        state = self.state
        if job.index in state.pairs or job.index not in state.alone:
            return
        for index in homes.neighbours(job.index):
            pair = (min(index, job.index), max(index, job.index))
            free = index not in state.pairs and index in state.alone and pair not in state.bad
            if free and homes.shareable(job, view.active[index]):
                state.pairs[index], state.pairs[job.index] = job.index, index
                state.changed = True  # to be measured
                return

    def _gather(self, view: View, homes: Homes) -> None:
        """Empty the servers with most free GPUs, as long as they have many and others fill up."""
        moves = len(homes.of)
        while moves > 0:
            moves -= 1
            rooms = {node.id: len(homes.free(node)) for node in homes.nodes}
            candidates = [
                node
                for node in sorted(homes.nodes, key=lambda node: -rooms[node.id])
                if homes.on(node)
                and not homes.crowded(node)
                and rooms[node.id] >= self.params.until_free * node.gpus
            ]
            if not any(self._leaves(node, rooms[node.id], view, homes) for node in candidates):
                return

    def _leaves(self, node: Vertex, free: int, view: View, homes: Homes) -> bool:
        """One of its jobs moves to a fuller server."""
        for job in self._movable(node, view, homes):
            home = homes.fuller(job, than=free, but=node)
            if home is not None:
                homes.enter(job, home)
                return True
        return False

    def _movable(self, node: Vertex, view: View, homes: Homes) -> list[Job]:
        """Its jobs that can go elsewhere, the smallest first."""
        jobs = [view.active[index] for index in homes.on(node) if index not in self.state.pairs]
        return sorted(
            (job for job in jobs if job.gpus >= 1), key=lambda job: len(homes.of[job.index])
        )

    def _make_room(self, job: Job, view: View, homes: Homes) -> None:
        """Move others together until there is a server for it."""
        count = gpus_needed(job)
        free = sum(len(homes.free(node, job)) for node in homes.servers(job))
        if job.shape.apart or free < count or homes.find(job) is not None:
            return
        servers = [node for node in homes.servers(job) if not homes.crowded(node)]
        for node in sorted(servers, key=lambda node: -len(homes.free(node))):
            if node.gpus < count:
                continue
            before = dict(homes.of)
            for other in self._movable(node, view, homes):
                if len(homes.free(node, job)) >= count:
                    break
                home = homes.fuller(other, than=node.gpus + 1, but=node)
                if home is not None:
                    homes.enter(other, home)
            if len(homes.free(node, job)) >= count:
                homes.enter(job, homes.free(node, job)[:count])
                return
            for index, home in before.items():
                if homes.of[index] != home:
                    homes.enter(view.active[index], home)

    def _grow(self, view: View, homes: Homes) -> None:
        """Elastic jobs take what is free on their server."""
        for node in homes.nodes:
            for index in homes.on(node):
                job, home = view.active[index], homes.of[index]
                more = homes.free(node, job) if job.gpus >= 1 else []
                size = job.size_within(len(home) + len(more))
                if size > len(home) and index not in self.state.pairs:
                    homes.enter(job, (*home, *more[: int(size) - len(home)]))

    @staticmethod
    def _shrink(view: View, homes: Homes) -> None:
        """Jobs that have grown give back what they did not ask for."""
        for index, home in list(homes.of.items()):
            if len(home) > gpus_needed(view.active[index]):
                homes.enter(view.active[index], home[: gpus_needed(view.active[index])])

    # --- who runs now -----------------------------------------------------------------------------

    def _run(self, view: View, homes: Homes, plan: ExplicitPlan, *, turns: bool) -> None:
        """At a change of turns whoever ran longest ago comes first, else whoever runs goes on."""
        room = NodeRoom(view)
        self._keep_others(view, homes, plan, room)
        there = (view.active[index] for index in homes.of)
        jobs = self._in_turn(job for job in there if job.phase == WAITING or job.running)
        if not turns:
            jobs.sort(key=lambda job: not job.running)  # stable
        present = {job.index: job for job in jobs}
        chosen: set[int] = set()
        busy: dict[int, float] = {}  # parts of GPUs
        for job in jobs:
            home, use = homes.of[job.index], part_for(job).gpus
            full = any(busy.get(device, 0.0) + use > 1 + DUST for device in home)
            if job.index in chosen or full:
                continue
            partner = present.get(self.state.pairs.get(job.index, -1))
            for each in (job, partner):
                if each is not None and self._place(each, homes, plan, room):
                    chosen.add(each.index)
            if job.index in chosen:
                busy.update((device, busy.get(device, 0.0) + use) for device in home)

    def _place(self, job: Job, homes: Homes, plan: ExplicitPlan, room: "NodeRoom") -> bool:
        stays = job.running and tuple(job.allocation.vertices) == homes.of[job.index]
        held = job.allocation if stays else on_gpus(job, homes.gpus(job.index))
        if not room.take(held):
            return False
        self.state.ran[job.index] = self.state.turn
        if stays:
            plan.keep(job)
        else:
            plan.place_at(job, held)
        return True

    @staticmethod
    def _keep_others(view: View, homes: Homes, plan: ExplicitPlan, room: "NodeRoom") -> None:
        """Jobs without GPUs, and those that another policy has started."""
        for job in view.running:
            if job.index not in homes.of:
                room.take(job.allocation)
                plan.keep(job)
        for job in view.waiting:
            if not job.gpus:
                room.place(job, plan)


class NodeRoom:
    """CPUs, memory and whatever else nodes have beside GPUs."""

    def __init__(self, view: View) -> None:
        self._nodes = [node for node in view.topology.nodes if node.open]
        self._left: dict[tuple[int, str], float] = {}
        for node in view.topology.nodes:
            for kind, amount in beside_gpus(view.topology, node).items():
                self._left[node.id, kind] = amount
        self._whole = view.topology.supply
        self._left.update(((0, kind), amount) for kind, amount in self._whole.items())
        for (vertex, kind), amount in view.spent.items():
            place = (0 if kind in self._whole else vertex, kind)
            self._left[place] = self._left.get(place, 0.0) - amount

    def take(self, allocation: Allocation) -> bool:
        """Take what an allocation has of nodes, if there is room for it."""
        if not allocation.extra:
            return True
        wanted: dict[tuple[int, str], float] = {}
        for vertex, kind, amount in allocation.extra:
            place = (0 if kind in self._whole else vertex, kind)
            if place in self._left:
                wanted[place] = wanted.get(place, 0.0) + amount
        if any(amount > self._left[place] + DUST for place, amount in wanted.items()):
            return False
        for place, amount in wanted.items():
            self._left[place] -= amount
        return True

    def place(self, job: Job, plan: ExplicitPlan) -> None:
        """Run a job without GPUs on the first node with room."""
        shape = job.shape
        wants = {"cpu": shape.cpus, "memory": shape.mem_gib, **shape.resources}
        for node in self._nodes:
            here = [(node.id, kind, amount) for kind, amount in wants.items() if amount]
            held = Allocation((), here or [(node.id, "cpu", 0.0)])
            fine = node.suits(shape.labels) and node.gpu_type in (shape.types or (node.gpu_type,))
            if fine and self.take(held):
                plan.place_at(job, held)
                return
