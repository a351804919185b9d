"""One decision: who has been started, who has to leave for whom, and why others wait."""

from collections.abc import Iterable

from rota.core.allocation import Allocation
from rota.core.jobs import WAITING, Job
from rota.core.plan import ExplicitPlan
from rota.core.reasons import Reason
from rota.core.sharing import DUST
from rota.core.view import View
from rota.policies.hived.algorithm import HivedWait, Preempt, sizes_of
from rota.policies.hived.asks import AskedGroup
from rota.policies.hived.cells import HivedCell
from rota.policies.hived.fleet import Fleet
from rota.policies.hived.hopeless import Hopeless
from rota.policies.hived.pods import LOWEST_GUARANTEED, PodSpec
from rota.policies.hived.topology_search import best_fit, room_on


class CellDecision:
    """The state of a decision that all virtual clusters share."""

    def __init__(self, fleet: Fleet, view: View, plan: ExplicitPlan, hopeless: Hopeless) -> None:
        self.fleet = fleet
        self.view = view
        self.plan = plan
        self.hopeless = hopeless
        self.changed: set[str] = set()
        """Virtual clusters where something happened."""
        self._supply = view.topology.supply  # anybody who ends may have left a licence
        self._nodes_changed = bool(self._supply)
        self._running = {job.index: job for job in view.running}
        self._started: dict[int, tuple[Job, Allocation]] = {}
        self._causes: dict[int, Job | None] = {}
        """Who has to leave, and for whom."""
        self._reasons: dict[int, tuple[Job, Reason]] = {}

    def catch_up(self) -> None:
        """What has happened since the last decision."""
        fleet = self.fleet
        if fleet.look_at_nodes():
            self._nodes_changed = True
            self.hopeless.clear()
        for index in [index for index in fleet.placed if index not in self._running]:
            self._stop(index)
        for index, job in self._running.items():
            if index not in fleet.placed:
                fleet.adopt(job)

    def _stop(self, index: int) -> None:
        group = self.fleet.group(index)
        self.fleet.stop(index)
        self.changed.add(group.vc)
        vc = group.vc if group.priority >= LOWEST_GUARANTEED else None
        self.hopeless.freed(vc, all_healthy=not self.fleet.hived.bad_nodes)

    def is_unchanged(self, vc: str) -> bool:
        """Whether nothing happened that could let a job of a virtual cluster start."""
        unhealthy = self._nodes_changed or self.fleet.hived.bad_nodes
        return not unhealthy and vc not in self.changed

    def runs(self, job: Job) -> bool:
        """Whether it has cells at this point of the decision."""
        return job.index in self.fleet.placed

    def attempt(
        self, job: Job, *, eager: bool = False, gpu_type: str | None = None
    ) -> Allocation | Preempt | HivedWait:
        """Start a job, or say who would have to leave first; the cells are reserved then."""
        if self._supply and self._lacks(job):
            self.explain(job, Reason.CAPACITY)
            return HivedWait("what the cluster has as a whole is in use")
        asked = self.fleet.asks.of(job)
        reason = None if eager else self.hopeless.why(job, asked, gpu_type)
        if reason is not None:
            self.explain(job, Reason(reason))
            return HivedWait("like another one before it")
        answer = self.fleet.start(job, eager=eager, gpu_type=gpu_type)
        if isinstance(answer, Allocation):
            self._started[job.index] = (job, answer)
        elif isinstance(answer, HivedWait) and not eager:
            reason = why_not(self.fleet, asked)
            self.hopeless.add(job, asked, gpu_type, reason)
            self.explain(job, Reason(reason))
        return answer

    def _lacks(self, job: Job) -> bool:
        """Is less left than it asks for of what the cluster has as a whole?"""
        asked = {kind: need for kind, need in job.shape.resources.items() if kind in self._supply}
        for (_, kind), amount in self.view.spent.items():
            if kind in asked:
                asked[kind] += amount
        for index in self.fleet.placed if asked else ():
            other = self._started[index][0] if index in self._started else self._running[index]
            for kind in asked.keys() & other.shape.resources.keys():
                asked[kind] += other.shape.resources[kind]
        soft = {kind for kind in asked if self.view.topology.kinds[kind].compressible}
        return any(asked[kind] > self._supply[kind] + DUST for kind in asked.keys() - soft)

    def settle(self, job: Job, preempt: Preempt) -> None:
        """The victims of an attempt leave, and the job starts."""
        answer: Allocation | Preempt | HivedWait = preempt
        while isinstance(answer, Preempt):
            for index in victims_of(answer):
                self.displace(index, job)
            answer = self.fleet.take_over(job)
        assert isinstance(answer, Allocation)  # noqa: S101 - it has its cells
        self._started[job.index] = (job, answer)

    def displace(self, index: int, by: Job | None) -> None:
        """A job leaves its cells; one that was displaced itself passes on who is the cause."""
        self._stop(index)
        self._started.pop(index, None)
        if index in self._running:
            self._causes[index] = by if by is None else self._causes.get(by.index) or by

    def take_back(self, job: Job) -> None:
        """Undo a start that displaced nobody."""
        self.fleet.stop(job.index)
        del self._started[job.index]

    def explain(self, job: Job, reason: Reason) -> None:
        """Why it waits if it does in the end."""
        if job.reason == reason and job.phase == WAITING:
            self._reasons.pop(job.index, None)  # that is known
            return
        self._reasons[job.index] = (job, reason)

    def lend(self, jobs: Iterable[Job]) -> None:
        """What is idle goes to opportunistic jobs, by priority and in order of arrival."""
        for job in sorted(jobs, key=lambda job: -job.spec.priority):
            if not self.runs(job):
                self.attempt(job)

    def finish(self) -> None:
        """Write everything into the plan."""
        for index in self.fleet.placed:
            if index in self._started:
                self.plan.place_at(*self._started[index])
            else:
                self.plan.keep(self._running[index])
        for index, cause in self._causes.items():
            if index not in self.fleet.placed and cause is not None:
                job = self._running[index]
                self.plan.stop(job, why=why_left(self.fleet, job, cause), because_of=cause)
        for index, (job, reason) in self._reasons.items():
            if index not in self.fleet.placed:
                self.plan.explain(job, reason)


class Rooms:
    """Free leaf cells on the nodes that a request may use, for questions that change nothing."""

    def __init__(self, fleet: Fleet, spec: PodSpec) -> None:
        self._groups = fleet.hived.groups
        self._sizes = sizes_of(spec)
        self._apart = spec.apart
        self._level = spec.priority
        search = fleet.hived.search_of(spec, spec.chain)
        nodes = () if search is None else search.nodes
        self._free: dict[HivedCell, int] = {
            node: room_on(node, self._level, apart=self._apart) for node in nodes if node.healthy
        }

    def enough(self) -> bool:
        """Whether all pods find a place."""
        return best_fit(self._sizes, list(self._free.values()), apart=self._apart) is not None

    def enough_in_all(self) -> bool:
        """Whether as many leaf cells are free on healthy nodes, wherever they are."""
        return sum(self._free.values()) >= sum(self._sizes)

    def leave(self, job: Job) -> None:
        """A job gives its cells in the virtual cluster back."""
        group = self._groups.get(f"{job.index}")
        if group is None or group.virtual is None or group.priority < self._level:
            return
        for leaf in (leaf for pods in group.virtual.values() for pod in pods for leaf in pod):
            node: HivedCell | None = leaf
            while node is not None and node not in self._free:
                node = node.parent
            if node is not None:
                self._free[node] += 1


def why_not(fleet: Fleet, asked: AskedGroup) -> int:
    """Why a job found no place: too little is free for it, or not close enough together."""
    with_room = [spec for spec in asked.pods if fleet.has_room(spec, spec.priority)]
    if with_room:
        healthy = not fleet.hived.bad_nodes
        healthy = healthy or any(Rooms(fleet, spec).enough_in_all() for spec in with_room)
        return int(Reason.FRAGMENTATION if healthy else Reason.DOWN)
    return int(Reason.CAPACITY if asked.place is None else Reason.QUOTA)


def why_left(fleet: Fleet, job: Job, by: Job) -> str:
    """Why a job has to leave its cells for another one."""
    mine, others = fleet.asks.of(job).place, fleet.asks.of(by).place
    vc = by.tenant if others is None else others[0]
    if mine is None or mine[0] != vc:
        return f"it used cells that virtual cluster {vc!r} was promised"
    if job.spec.priority < by.spec.priority:
        return f"its priority {job.spec.priority} is below {by.spec.priority}"
    return f"it comes later in the order of virtual cluster {vc!r}"


def victims_of(preempt: Preempt) -> list[int]:
    """The numbers of the jobs whose pods have to leave."""
    return sorted({int(pod.partition("-")[0]) for pod in preempt.victims})
