"""Carries out commands: drives the jobs' state machine, the cluster and the log together.

Two jobs may use the same GPUs: the host of a pair holds them, its guest none (see `pairs`). A plan
says where both go. What happens by itself is done here: the guest inherits the GPUs of a host that
ends, it does not begin before the GPUs of its host are free, and no other job gets them before it
has left as well.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rota.core import machine
from rota.core.allocation import Allocation, host_of, same_but_terms
from rota.core.events import INF
from rota.core.hints import Hints
from rota.core.jobs import RUNNING, STARTING, STOPPING, Job
from rota.core.knowledge import Knowledge
from rota.core.log import ON_REQUEST, TOLD, Record
from rota.core.machine import begin_stop, run, start
from rota.core.ports import Cluster
from rota.core.reconcile import Commands, Placed
from rota.core.view import View
from rota.engine.log import Log
from rota.engine.occupancy import Occupancy

HEARD = int(Knowledge.SCALING | Knowledge.PROGRESS)
R_START, R_STOP, R_MOVE = int(Record.START), int(Record.STOP), int(Record.MOVE)


class Executor:
    """Where stopping takes time, a start waits until its slices are physically free."""

    def __init__(self, cluster: Cluster, view: View, log: Log, *, trusted: bool) -> None:
        self.cluster = cluster
        self.view = view
        self.log = log
        self.planned = None if trusted else Occupancy(cluster.topology, view.spent)
        self.physical = None if cluster.capabilities.instant_stop else Occupancy(cluster.topology)
        self._frictionless = cluster.capabilities.frictionless
        kinds = cluster.topology.kinds.values()
        self._budgets = {kind.name for kind in kinds if not kind.renewable}
        self._pairs = view.sharing
        self._phased = cluster.capabilities.phased
        self._new_terms = cluster.capabilities.new_terms
        self.deferred: list[Job] = []  # hold slices that victims have not left yet
        self.begun: list[Job] = []  # began to make progress later than their START row said
        self.moving: set[int] = set()  # jobs that go to `job.allocation` when they have stopped
        self.leaving: dict[int, Allocation] = {}  # what they still occupy until then

    def execute(
        self,
        commands: Commands,
        causes: Mapping[int, Job] | None,
        whys: Mapping[int, str] | None = None,
    ) -> None:
        """All commands of one plan; `causes`: who displaced whom; `whys`: for what reason."""
        now_s = self.view.now_s
        if self.planned is not None:
            self._verify(self.planned, commands)
        stops, starts, moves = commands
        for job in stops:
            job.version = self.view.version
            cause = causes.get(job.index) if causes else None
            self._stop(job, cause.index if cause is not None else -1, now_s)
            job.preemptions += 1
            if whys and job.index in whys:
                self.log.text(whys[job.index])
        if starts:
            self._start(starts, now_s)
        for job, allocation in moves:
            job.version = self.view.version
            self._move(job, allocation, now_s)
        if self.deferred:
            self.launch_deferred(now_s)

    def _verify(self, planned: Occupancy, commands: Commands) -> None:
        stops, starts, moves = commands
        for job in stops:
            planned.change(job.allocation, -1)
        for job, _ in moves:
            planned.change(job.allocation, -1)
        for job, allocation in (*starts, *moves):
            planned.check(job, allocation)
            planned.change(allocation, +1)

    def renew(self, jobs: Iterable[Job], *, trusted: bool) -> None:
        """Count what is occupied anew: another scheduler plans, or the cluster has grown."""
        self.planned = None if trusted else Occupancy(self.cluster.topology, self.view.spent)
        if self.physical is not None:
            self.physical = Occupancy(self.cluster.topology)
        self._count(jobs)

    def _count(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            if self.planned is not None and (on_cluster(job) or job.index in self.moving):
                self.planned.change(job.allocation, +1)
            launched = job.phase in (STARTING, RUNNING, STOPPING) and job not in self.deferred
            if self.physical is not None and launched:
                self.physical.change(self.leaving.get(job.index, job.allocation), +1)

    # --- single commands ------------------------------------------------------------------------

    def _start(self, starts: Iterable[Placed], now_s: float) -> None:
        log, version = self.log, self.view.version
        rows, quick = log.rows, log.quick
        for job, allocation in starts:
            job.version = version
            again = job.first_start_s != INF
            if job.phase == STOPPING:  # restarted while it still leaves
                self._redirect(job, allocation)
                continue
            if self._frictionless:  # `_launch`, without what takes time
                start(job, allocation, now_s, 1.0)
                since_s = self.cluster.start(job)
            else:
                start(job, allocation, now_s)
                since_s = self._launch(job, now_s)
            number = quick.get(id(allocation))
            if number is None:
                number = log.allocation(now_s, allocation)
            rows += (now_s, R_START, job.index, number, again, since_s)

    def _launch(self, job: Job, now_s: float) -> float:
        """Tell the cluster; when progress begins (inf: not launched yet; TOLD: RUN will tell)."""
        if self.physical is not None:
            late = self._pairs and host_of(job.allocation) >= 0 and self._must_wait(job)
            if late or not self.physical.fits(job.allocation):
                self.deferred.append(job)
                return INF
            self.physical.change(job.allocation, +1)
        since_s = self.cluster.start(job)
        if since_s <= now_s:
            run(job, now_s, self.cluster.rate(job))
            if self._phased:
                self.hear(job)
        return since_s if since_s < INF else TOLD

    def _stop(self, job: Job, other: int, now_s: float) -> None:
        log = self.log
        number = log.quick.get(id(job.allocation))
        if number is None:
            number = log.allocation(now_s, job.allocation)
        lost, _ = self._halt(job, None, now_s)
        log.rows += (now_s, R_STOP, job.index, number, other, lost)

    def _halt(self, job: Job, to: Allocation | None, now_s: float) -> tuple[float, bool]:
        """End a run; (work lost, gone at once?)."""
        if job.phase == STOPPING:  # a move that is taken back
            self._settle_down(job)
            return 0.0, False
        if self.deferred and job in self.deferred:  # was never launched
            self.deferred.remove(job)
            return begin_stop(job, now_s, 0.0, True), True  # noqa: FBT003 - hot
        lost, gone = self.cluster.stop(job) if to is None else self.cluster.stop(job, to=to)
        lost = begin_stop(job, now_s, lost, gone)
        if gone and self.physical is not None:
            self._vacate(job)
        return lost, gone

    def _redirect(self, job: Job, allocation: Allocation) -> None:
        """It starts there as soon as it has stopped here."""
        self.leaving.setdefault(job.index, job.allocation)
        self.moving.add(job.index)
        job.moving = True
        job.allocation = allocation

    def _settle_down(self, job: Job) -> None:
        self.moving.discard(job.index)
        job.moving = False

    def _vacate(self, job: Job) -> None:
        if self.physical is not None:
            left = self.leaving.pop(job.index, job.allocation)
            self.physical.change(left, -1)
            if self._pairs:
                self._linger(self.physical, job, left)

    def _move(self, job: Job, allocation: Allocation, now_s: float) -> None:
        launched = job.phase in (STARTING, RUNNING) and job not in self.deferred
        if (
            self._new_terms
            and launched
            and same_but_terms(job.allocation, allocation)
            and self.cluster.accepts(job, allocation)
        ):
            self._change_terms(job, allocation, now_s)
            return
        job.migrations += 1
        lost, gone = self._halt(job, allocation, now_s)
        if lost:
            self.log.row(now_s, Record.LOST, job.index, -1, -1, lost)
        since_s = INF
        if gone:
            start(job, allocation, now_s)
            since_s = self._launch(job, now_s)
        else:
            self._redirect(job, allocation)
        number = self.log.allocation(now_s, allocation)
        self.log.rows += (now_s, R_MOVE, job.index, number, -1, since_s)

    def _change_terms(self, job: Job, allocation: Allocation, now_s: float) -> None:
        """It goes on where it is, with more or less of its GPUs: no move, and the log says so."""
        if self.physical is not None:
            self.physical.change(job.allocation, -1)
            self.physical.change(allocation, +1)
        job.allocation = allocation
        self.cluster.new_terms(job)
        since_s = now_s if job.phase == RUNNING else TOLD
        number = self.log.allocation(now_s, allocation)
        self.log.row(now_s, R_MOVE, job.index, number, job.index, since_s)

    # --- what happens by itself -----------------------------------------------------------------

    def stopped(self, job: Job, now_s: float, at_s: float) -> bool:
        """A job has left its slices (at `at_s`); False if it only goes elsewhere."""
        machine.take_back(job, at_s)
        machine.stopped(job)
        self._vacate(job)
        self.log.row(now_s, Record.STOPPED, job.index)
        moves = job.index in self.moving
        if moves:
            self._settle_down(job)
            self._start([(job, job.allocation)], now_s)
            self.begun.append(job)  # whatever its phase: it ranks as a job on the cluster again
        return not moves

    def ended(self, job: Job, held: bool, planned: bool) -> None:  # noqa: FBT001 - hot
        """A job is over; `held`: it was on the cluster; `planned`: by its planner's will."""
        if self.physical is not None:
            if job in self.deferred:
                self.deferred.remove(job)
            elif held:
                self._vacate(job)
            self._settle_down(job)
        if planned and self.planned is not None:
            self.planned.change(job.allocation, -1)
        if planned and self._budgets:
            self._use_up(job.allocation)
        self.cluster.release(job)
        if self._pairs:
            self._bequeath(job)

    def _use_up(self, allocation: Allocation) -> None:
        """Of some kinds nothing comes back when a job is over."""
        for vertex, kind, amount in allocation.extra:
            if kind in self._budgets:
                spent = self.view.spent
                spent[vertex, kind] = spent.get((vertex, kind), 0.0) + amount

    def expelled(self, job: Job, now_s: float) -> None:
        """It has to leave in good order, although its planner did not say so."""
        if self.planned is not None:
            self.planned.change(job.allocation, -1)
        self._stop(job, ON_REQUEST, now_s)

    def evicted(self, job: Job, node: int, now_s: float, at_s: float) -> None:
        """Its node died under it at `at_s` (or the node that it was about to move to)."""
        self.log.row(now_s, Record.EVICTED, job.index, node)
        if self.planned is not None:
            self.planned.change(job.allocation, -1)
        if job.phase == STOPPING:
            self._settle_down(job)
            return
        launched = job not in self.deferred
        lost = self.cluster.evict(job) if launched else 0.0
        if not launched:
            self.deferred.remove(job)
        lost = begin_stop(job, at_s, lost, True)  # noqa: FBT003 - hot
        if launched:
            self._vacate(job)
        if lost:
            self.log.rows[-1] = lost

    def launch_deferred(self, now_s: float) -> None:
        """Launch those whose slices are free now, in the order of their plans."""
        if self.deferred:
            waiting, self.deferred = self.deferred, []
            if self._pairs:
                waiting.sort(key=lambda job: host_of(job.allocation) >= 0)  # hosts come first
            for job in waiting:
                since_s = self._launch(job, now_s)
                if job.phase == RUNNING:
                    self._begins(job, now_s)
                elif job not in self.deferred:
                    number = self.log.allocation(now_s, job.allocation)
                    self.log.row(now_s, R_START, job.index, number, 1, since_s)

    def _begins(self, job: Job, now_s: float) -> None:
        self.log.row(now_s, Record.RUN, job.index, -1, -1, job.true_rate)
        self.begun.append(job)

    def running(self, job: Job, now_s: float, at_s: float) -> None:
        """Its start is over (since `at_s`), or it goes on at another rate."""
        if job.phase == STARTING:
            machine.run(job, at_s, self.cluster.rate(job))
            self.log.row(now_s, Record.RUN, job.index, -1, -1, job.true_rate)
            if self._phased:
                self.hear(job)
        elif job.phase == RUNNING:
            self.rate_changed(job, self.cluster.rate(job), now_s)

    def rate_changed(self, job: Job, rate: float, now_s: float) -> None:
        """Same slices, other speed."""
        machine.change_rate(job, now_s, rate)
        self.log.row(now_s, Record.RATE, job.index, -1, -1, rate)

    def phase_changed(self, job: Job, now_s: float) -> None:
        """It goes on at another rate by itself, and tells of it."""
        rate = self.cluster.rate(job)
        if rate != job.true_rate:
            machine.change_phase(job, now_s, rate)
            self.log.row(now_s, Record.RATE, job.index, -1, -1, rate)
        self.hear(job)

    def hear(self, job: Job) -> None:
        """What the job tells of itself, for those who may know it."""
        if not job.known & HEARD:
            return
        values = self.cluster.measured(job)
        if not values:
            return
        if job.told is None:
            job.told = Hints()
        topology, vertices = self.cluster.topology, job.allocation.vertices
        places = topology.vertices
        nodes = {places[vertex].node for vertex in vertices}
        types = topology.types_at(vertices)
        job.told.take(values, len(nodes), job.held_gpus, types.pop() if len(types) == 1 else "")

    # --- jobs that use the GPUs of another job ----------------------------------------------------

    def _bequeath(self, host: Job) -> None:
        """The host has ended: the GPUs are its guest's now, which goes on where it is."""
        now_s = self.view.now_s
        for guest in self.view.active.values():
            if host_of(guest.allocation) != host.index or not guest.running:
                continue
            old = guest.allocation
            guest.allocation = new = Allocation(host.allocation.slices, old.extra)
            late = guest in self.deferred
            if self.planned is not None:
                self.planned.change(old, -1)
                self.planned.change(new, +1)
            since_s = INF
            if guest.phase in (STARTING, RUNNING):
                machine.settle(guest, now_s)
                guest.held_gpus = new.gpus
                if self.physical is not None and not late:
                    self.physical.change(old, -1)
                    self.physical.change(new, +1)
                if not late:
                    since_s = now_s if guest.phase == RUNNING else TOLD
            number = self.log.allocation(now_s, new)
            self.log.row(now_s, R_MOVE, guest.index, number, host.index, since_s)

    def _must_wait(self, guest: Job) -> bool:
        """Its host has not got the GPUs yet, or the guest before it has not left."""
        number = host_of(guest.allocation)
        active = self.view.active
        host = active.get(number)
        if host is None or host.phase not in (STARTING, RUNNING) or host in self.deferred:
            return True
        here = host.allocation.vertices == guest.allocation.vertices
        if not here or host_of(host.allocation) >= 0:  # a move in the same plan brings it here
            return True
        return any(
            other.phase == STOPPING and host_of(self.leaving.get(index, other.allocation)) == number
            for index, other in active.items()
            if index != guest.index
        )

    def _linger(self, physical: Occupancy, host: Job, left: Allocation) -> None:
        """The host has left its GPUs; as long as a guest is still there no other job gets them."""
        for index, guest in self.view.active.items():
            body = self.leaving.get(index, guest.allocation)
            if guest.phase == STOPPING and host_of(body) == host.index:
                stays = Allocation(left.slices, body.extra)
                physical.change(body, -1)
                physical.change(stays, +1)
                self.leaving[index] = stays

    # --- state ----------------------------------------------------------------------------------

    def snapshot(self, numbers: Mapping[Allocation, int]) -> dict[str, Any]:
        """As plain data; allocations by their numbers in the log."""
        return {
            "deferred": [job.index for job in self.deferred],
            "moving": sorted(self.moving),
            "leaving": [(index, numbers[a]) for index, a in self.leaving.items()],
            "spent": [(*place, amount) for place, amount in self.view.spent.items()],
        }

    def restore(
        self, state: Mapping[str, Any], jobs: Mapping[int, Job], allocations: Sequence[Allocation]
    ) -> None:
        """Resume from the state of `snapshot`; what is occupied follows from the jobs."""
        self.deferred = [jobs[index] for index in state["deferred"]]
        self.moving = set(state["moving"])
        for index in self.moving:
            jobs[index].moving = True
        self.leaving = {index: allocations[number] for index, number in state["leaving"]}
        for vertex, kind, amount in state.get("spent", ()):  # older states have none
            self.view.spent[vertex, kind] = amount
        self._count(self.view.active.values())


def on_cluster(job: Job) -> bool:
    """It holds slices according to its planner."""
    return job.phase in (STARTING, RUNNING)
