"""Who waits and who runs in every queue, kept from one decision to the next.

Only what changed since the last decision is looked at. All of it can be made again from the view,
except what queues had in the past, which is therefore saved.
"""

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from typing import Any, NamedTuple

from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.tenants import PriorityClass, TenantTree
from rota.core.view import View
from rota.policies.tenancy.inner import InnerPolicy
from rota.policies.tenancy.tree import DIGITS, Branch, Tenancy

Entry = tuple[Branch, float, bool]
"""Leaf, GPUs, and whether they are part of its quota."""


class Alarms:
    """At what time something happens to whom; each has one time at most."""

    def __init__(self) -> None:
        self._times: list[tuple[float, int]] = []
        self._of: dict[int, float] = {}

    def set(self, index: int, time_s: float) -> None:
        """From now on this is its time."""
        if time_s < INF:
            self._of[index] = time_s
            heappush(self._times, (time_s, index))

    def drop(self, index: int) -> None:
        """Nothing happens to it any more."""
        self._of.pop(index, None)

    def due(self, now_s: float) -> list[int]:
        """Whose time has come."""
        found = []
        while self.next_s() <= now_s:
            _, index = heappop(self._times)
            del self._of[index]
            found.append(index)
        return found

    def next_s(self) -> float:
        """When the next time comes."""
        times = self._times
        while times and self._of.get(times[0][1]) != times[0][0]:
            heappop(times)
        return times[0][0] if times else INF


class PriorityClasses(dict[int, PriorityClass]):
    """Priority classes by priority, found when they are asked for."""

    def __init__(self, tenants: TenantTree) -> None:
        super().__init__()
        self._tenants = tenants

    def __missing__(self, priority: int) -> PriorityClass:
        found = self[priority] = self._tenants.class_of(priority)
        return found


class Ranked(NamedTuple):
    """The rank of a job that runs, from one start or change of its rate to the next."""

    epoch: int
    phase: int
    rank: tuple[Any, ...]
    until_s: float


class Queues:
    """All queues of a cluster. `aging_s`: a job that has waited so long is old."""

    def __init__(self, tenancy: Tenancy, inside: InnerPolicy, aging_s: float) -> None:
        self.tenancy = tenancy
        self.inside = inside
        self.aging_s = aging_s
        self.waiting: dict[int, tuple[Branch, Job]] = {}
        self.running: dict[int, Entry] = {}
        self.loose = 0.0  # GPUs of opportunistic jobs that can be stopped for others
        self.old: dict[int, Job] = {}  # of those that wait
        self.fresh: list[Job] = []  # came to wait since the last decision
        self._growing = Alarms()  # when who is old
        self._jumping = Alarms()  # when whose rank changes
        self._ranks: dict[int, Ranked] = {}  # of those that run
        self.classes = PriorityClasses(tenancy.tenants)
        self._times_change = inside.ages or aging_s < INF  # of those that wait
        self.protects = any(known.min_runtime_s for known in tenancy.tenants.classes)
        """Some classes have a least time to run."""

    def class_of(self, job: Job) -> PriorityClass:
        """The priority class of a job."""
        return self.classes[job.spec.priority]

    def kind(self, job: Job) -> int:
        """Jobs of one kind ask for the same and have the same rights: who comes later gets less."""
        known = self.classes[job.spec.priority]
        return 4 * job.shape.number + 2 * known.guaranteed + known.preemptible

    def rank(self, job: Job, now_s: float) -> tuple[Any, ...]:
        """The order in its queue: higher priorities first, then as the inner policy says."""
        return (-job.spec.priority, self.inside.rank(job, now_s))

    def ranked(self, job: Job, now_s: float) -> Ranked:
        """The same of a job that runs, and when it changes."""
        known = self._ranks.get(job.index)
        if (
            known is None
            or known.epoch != job.epoch
            or known.phase != job.phase
            or known.until_s <= now_s
        ):
            until_s = -INF if self.inside.drifts else self.inside.next_change(job, now_s)
            known = Ranked(job.epoch, job.phase, self.rank(job, now_s), until_s)
            self._ranks[job.index] = known
        return known

    # --- what has changed -------------------------------------------------------------------------

    def update(self, view: View, touched: set[int] | None) -> bool:
        """Take over who came, started, stopped and left, of these jobs; None: of all.

        True: others than those that came have other ranks or are old now.
        """
        waiting, running = who(view)
        if touched is None:
            touched = {*waiting, *running, *self.waiting, *self.running}
        fresh: list[Job] = []
        for index in sorted(touched):
            if index in self.waiting:
                self._still_waits(index, waiting, fresh)
            elif index in waiting:
                fresh.append(waiting[index])
            if index in self.running:
                if index not in running:
                    self.gives(index)
            elif index in running:
                job = running[index]
                self.gets(job, job.allocation.gpus)
        self.fresh = fresh
        for job in fresh:
            self.enters(job, view.now_s)
        learnt = self.inside.learn(view)
        return (learnt or self._times_change) and self._rank_anew(view.now_s, learnt=learnt)

    def _still_waits(self, index: int, waiting: Mapping[int, Job], fresh: list[Job]) -> None:
        """It did; who asks for something else now (other windows bar it) leaves and is new."""
        leaf, job = self.waiting[index]
        if index not in waiting:
            self.leaves(job)
        elif leaf.line.kinds[index] != self.kind(job):
            self.leaves(job)
            leaf.stuck = None  # what it waited for was for its former request
            fresh.append(job)

    def _rank_anew(self, now_s: float, *, learnt: bool) -> bool:
        """Whose time has come, or all if something was learnt; False: nobody."""
        if learnt:
            self._ranks.clear()
            self._rank_again([job for _, job in self.waiting.values()], now_s)
        jumped, grown = self._jumping.due(now_s), self._growing.due(now_s)
        self._rank_again([self.waiting[i][1] for i in jumped], now_s)
        for index in grown:
            self.old[index] = self.waiting[index][1]
        return bool(learnt or jumped or grown)

    def enters(self, job: Job, now_s: float) -> None:
        """A job waits from now on."""
        leaf = self.tenancy.leaf(job.tenant)
        self.waiting[job.index] = (leaf, job)
        self.tenancy.count(leaf, +1)
        if self.classes[job.spec.priority].guaranteed:
            self.tenancy.ask(leaf, job.gpus)
        self._line_up(leaf, job, now_s)
        if self.aging_s < INF:
            old_s = job.submit_s + job.run_s + self.aging_s
            if old_s <= now_s:
                self.old[job.index] = job
            else:
                self._growing.set(job.index, old_s)

    def _line_up(self, leaf: Branch, job: Job, now_s: float) -> None:
        self.tenancy.line_up(leaf, job, self.rank(job, now_s), self.kind(job))
        if self.inside.ages:
            self._jumping.set(job.index, self.inside.next_change(job, now_s))

    def leaves(self, job: Job) -> Branch:
        """It waits no more; returns its leaf."""
        leaf, _ = self.waiting.pop(job.index)
        self.tenancy.drop(leaf, job)
        self.tenancy.count(leaf, -1)
        if self.classes[job.spec.priority].guaranteed:
            self.tenancy.ask(leaf, -job.gpus)
        if self._times_change:
            self._forget_times(job)
        return leaf

    def _forget_times(self, job: Job) -> None:
        self.old.pop(job.index, None)
        self._growing.drop(job.index)
        self._jumping.drop(job.index)

    def begins(self, leaf: Branch, job: Job) -> None:
        """A job that waits in a leaf runs from now on."""
        tenancy, gpus = self.tenancy, job.gpus
        del self.waiting[job.index]
        tenancy.drop(leaf, job)
        known = self.classes[job.spec.priority]
        firm = known.guaranteed
        if firm:
            tenancy.ask(leaf, -gpus)
        if self._times_change:
            self._forget_times(job)
        self._runs(leaf, job, gpus, known)

    def gets(self, job: Job, gpus: float) -> None:
        """It runs from now on; it did not wait."""
        leaf = self.tenancy.leaf(job.tenant)
        self.tenancy.count(leaf, +1)
        self._runs(leaf, job, gpus, self.classes[job.spec.priority])

    def _runs(self, leaf: Branch, job: Job, gpus: float, known: PriorityClass) -> None:
        firm, priority = known.guaranteed, job.spec.priority
        if not firm and known.preemptible:
            self._loosen(gpus)
        self.running[job.index] = (leaf, gpus, firm)
        leaf.running[job.index] = job
        leaf.priorities[priority] = leaf.priorities.get(priority, 0) + 1
        leaf.lowest = min(leaf.lowest, priority)
        self.tenancy.charge(leaf, gpus, firm=firm)

    def gives(self, index: int) -> Branch:
        """It runs no more; returns its leaf."""
        leaf, gpus, firm = self.running.pop(index)
        job = leaf.running.pop(index)
        priority, priorities = job.spec.priority, leaf.priorities
        priorities[priority] -= 1
        if not priorities[priority]:
            del priorities[priority]
            leaf.lowest = min(priorities, default=INF)
        if not firm and self.classes[priority].preemptible:
            self._loosen(-gpus)
        if self._ranks:
            self._ranks.pop(index, None)
        self.tenancy.count(leaf, -1)
        self.tenancy.charge(leaf, -gpus, firm=firm)
        return leaf

    def _loosen(self, gpus: float) -> None:
        self.loose = round(self.loose + gpus, DIGITS)

    def _rank_again(self, jobs: Iterable[Job], now_s: float) -> None:
        for job in jobs:
            leaf = self.waiting[job.index][0]
            self.tenancy.drop(leaf, job)
            self._line_up(leaf, job, now_s)

    # --- what will change -------------------------------------------------------------------------

    def is_old(self, job: Job, now_s: float) -> bool:
        """It has waited for `aging_s` in all, whether it runs now or not."""
        return self.aging_s < INF and job.waiting_s(now_s) >= self.aging_s

    def wake_s(self, now_s: float) -> float:
        """When the order changes by itself."""
        at_s = INF
        if self._times_change:
            at_s = min(self._growing.next_s(), self._jumping.next_s())
        if self.inside.moves:
            at_s = min(at_s, self._jump_s(now_s))
        return at_s

    def _jump_s(self, now_s: float) -> float:
        """When the rank of somebody who runs changes, in queues where somebody waits."""
        soonest_s = INF
        for leaf in self.tenancy.lined.values():
            for job in leaf.running.values():
                if self.inside.drifts:
                    at_s = self.inside.next_change(job, now_s)
                else:
                    at_s = self.ranked(job, now_s).until_s
                soonest_s = min(soonest_s, at_s)
        return soonest_s

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> list[tuple[str, float, float]]:
        """What the jobs of every tenant had in the past, and have since the last decision."""
        return [
            (leaf.name, leaf.average, leaf.used)
            for leaf in self.tenancy.leaves()
            if leaf.average or leaf.used
        ]


def who(view: View) -> tuple[Mapping[int, Job], Mapping[int, Job]]:
    """Who waits and who runs, by number."""
    if view.by_phase is not None:
        return view.by_phase
    return {job.index: job for job in view.waiting}, {job.index: job for job in view.running}
