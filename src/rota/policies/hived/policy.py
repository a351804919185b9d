"""HiveD (Zhao et al., OSDI 2020): tenants have cells, and may use those of others while idle.

A job is an affinity group: one-GPU tasks share pods as large as nodes, other tasks are pods of
their own. Its tenant is its virtual cluster, its priority HiveD's: from 0 on guaranteed, below
that opportunistic. A job that may preempt stops its victims at once and starts when they are gone.

The paper leaves the order of requests to others. Here jobs are tried in order of priority, then of
arrival or of an inner policy (`inside`): if that one preempts, a job also displaces jobs of its
own tenant and priority that come after it.
"""

from collections.abc import Iterable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

import yaml

from rota.core.allocation import Allocation
from rota.core.errors import ClusterSpecError, OptionError
from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.policy import DecidePolicy, Params, PriorityPolicy
from rota.core.reasons import Reason
from rota.core.registry import POLICIES, load, names, unknown
from rota.core.view import Draft, View
from rota.policies.hived.algorithm import Preempt, Wait
from rota.policies.hived.config import HivedConfig, load_config
from rota.policies.hived.fleet import Fleet, is_guaranteed


class HivedParams(Params, frozen=True):
    """The file with the cells, and the policy that orders the jobs of a virtual cluster."""

    config: str = ""
    inside: str = ""


class HivedPolicy(DecidePolicy[HivedParams]):
    """Serve tenants from cells that they were promised; lend what is idle."""

    name = "hived"
    paper = "Zhao et al., HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees, OSDI 2020"
    Parameters = HivedParams
    explicit = True

    def __init__(self, params: HivedParams | None = None) -> None:
        super().__init__(params)
        self._config = read_config(self.params.config) if self.params.config else None
        self._inside = _inner(self.params.inside) if self.params.inside else None
        self.knowledge = self._inside.knowledge if self._inside else Knowledge.NOTHING
        self._fleet: Fleet | None = None
        self._state: Mapping[str, Any] | None = None
        self._hopeless: set[tuple[Any, ...]] = set()
        """Requests that found no place, as long as nothing becomes free."""

    def decide(self, view: View) -> Draft:
        """Keep what runs, then try the waiting jobs, the most important first."""
        plan = view.plan()
        fleet = self._open(view)
        changed = fleet.look_at_nodes()
        running = {job.index: job for job in view.running}
        for index in [index for index in fleet.placed if index not in running]:
            fleet.stop(index)
            changed = True
        if changed:
            self._hopeless.clear()
        turn = Turn(fleet, plan, running, self._keys(view))
        turn.wait_for(view.waiting)
        while turn.todo:
            self._try(turn, turn.next())
        for index in fleet.placed:
            if index in turn.started:
                plan.place_at(*turn.started[index])
            else:
                plan.place(running[index])
        return plan

    def _open(self, view: View) -> Fleet:
        """The cells on this view's nodes, made at the first decision."""
        if self._fleet is None:
            self._fleet = Fleet(view.topology, view.tenants, self._config)
            if self._state is not None:
                self._fleet.load(self._state)
                self._state = None
        return self._fleet

    def _keys(self, view: View) -> dict[int, tuple[int, Any]]:
        """Higher priorities first, then as the inner policy says, else in order of arrival."""
        inside, now_s = self._inside, view.now_s
        if inside is None:
            return {job.index: (-job.spec.priority, (job.submit_s, job.index)) for job in view.jobs}
        return {
            job.index: (-job.spec.priority, (inside.key(job, now_s), job.submit_s, job.index))
            for job in view.jobs
        }

    def _try(self, turn: "Turn", job: Job) -> None:
        """Start a job, with whoever has to leave for it, or say why not."""
        kind = (job.tenant, job.spec.priority, job.shape.number)
        answer: Allocation | Preempt | Wait = Wait("like another one before it")
        if kind not in self._hopeless:
            answer = turn.fleet.start(job)
            while isinstance(answer, Preempt):
                turn.displace(answer)
                self._hopeless.clear()
                answer = turn.fleet.start(job)
        if isinstance(answer, Wait):
            self._hopeless.add(kind)
            if self._inside is not None and self._inside.preemptive:
                answer = turn.push_in(job)
        if isinstance(answer, Allocation):
            turn.started[job.index] = (job, answer)
        else:
            turn.plan.explain(job, _why(turn.fleet, job))

    def snapshot(self) -> Mapping[str, Any]:
        """The cells with everything that is on them."""
        if self._fleet is None:
            return {}
        hopeless = [list(kind) for kind in sorted(self._hopeless)]
        return {"fleet": self._fleet.save(), "hopeless": hopeless}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The cells are made at the next decision, in this state."""
        self._fleet = None
        self._state = state.get("fleet")
        self._hopeless = {tuple(kind) for kind in state.get("hopeless", ())}


class Turn:
    """One decision: who is still to be tried, and who has been started or displaced."""

    def __init__(
        self,
        fleet: Fleet,
        plan: Draft,
        running: Mapping[int, Job],
        keys: Mapping[int, tuple[int, Any]],
    ) -> None:
        self.fleet = fleet
        self.plan = plan
        self.keys = keys
        self.running = running
        self.started: dict[int, tuple[Job, Allocation]] = {}
        self.displaced: set[int] = set()
        self.todo: list[tuple[tuple[int, Any], Job]] = []
        """The last one is the next."""

    def wait_for(self, jobs: Iterable[Job]) -> None:
        """These jobs are to be tried, in the order of their keys."""
        self.todo += [(self.keys[job.index], job) for job in jobs]
        self.todo.sort(key=itemgetter(0), reverse=True)

    def next(self) -> Job:
        """The most important job that has not been tried."""
        return self.todo.pop()[1]

    def displace(self, preempt: Preempt) -> None:
        """Victims leave, and are tried again later in this turn."""
        victims = _jobs(preempt)
        for index in victims:
            self.fleet.stop(index)
        self.displaced.update(victims)
        self.wait_for(
            self.started.pop(index)[0] if index in self.started else self.running[index]
            for index in victims
        )

    def push_in(self, job: Job) -> Allocation | Wait:
        """Displace jobs of the same priority in the same virtual cluster that come after it."""
        key = self.keys[job.index]
        if job.index in self.displaced or not _is_guaranteed(self.fleet, job):
            return Wait("it has had its turn, or has no part in a promise")
        if not any(self._comes_after(index, job, key) for index in self.fleet.placed):
            return Wait("nobody comes after it")
        answer = self.fleet.start(job, eager=True)
        if isinstance(answer, Preempt):
            if not all(
                self.fleet.is_opportunistic(index) or self._comes_after(index, job, key)
                for index in _jobs(answer)
            ):
                self.fleet.give_up(job)
                return Wait("those in its way come before it")
            self.displace(answer)
            answer = self.fleet.start(job, eager=True)
        if isinstance(answer, Preempt):  # pragma: no cover - all victims have left
            self.fleet.give_up(job)
            return Wait("somebody is in its way")
        return answer

    def _comes_after(self, index: int, job: Job, key: tuple[int, Any]) -> bool:
        other = self.started[index][0] if index in self.started else self.running[index]
        return other.tenant == job.tenant and self.keys[index] > key


def _jobs(preempt: Preempt) -> list[int]:
    """The numbers of the jobs whose pods have to leave."""
    return sorted({int(pod.partition("-")[0]) for pod in preempt.victims})


def _is_guaranteed(fleet: Fleet, job: Job) -> bool:
    return all(is_guaranteed(spec) for spec in fleet.requests(job))


def _why(fleet: Fleet, job: Job) -> Reason:
    return Reason.QUOTA if _is_guaranteed(fleet, job) else Reason.CAPACITY


def _inner(name: str) -> PriorityPolicy[Any]:
    """A policy whose keys order the jobs of a virtual cluster."""
    known = names(POLICIES)
    if name not in known:
        raise OptionError(unknown("policy", name, known))
    made = load(POLICIES, name)()
    if not isinstance(made, PriorityPolicy):
        raise OptionError(f"policy 'hived': inside={name} has no order of jobs: take e.g. srtf")
    return made


def read_config(path: str) -> HivedConfig:
    """The HiveD configuration in a file; read once, when the policy is made."""
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise OptionError(f"policy 'hived': config={path} cannot be read ({error})") from error
    if not isinstance(content, dict):
        raise OptionError(f"policy 'hived': config={path} holds no keys: give physicalCluster")
    try:
        return load_config(content)
    except ClusterSpecError as error:
        raise ClusterSpecError(f"policy 'hived': config={path}: {error}") from error
