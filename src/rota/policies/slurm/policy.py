"""Slurm: multifactor priority, main loop and backfill, preemption by QOS or partition, limits.

*Order.* Jobs that may preempt come first, then by PriorityTier of the partition, then by priority:
the weighted sum of age, fair share, job size, partition, QOS and TRES factors (see `asks` and
`shares`). Priorities are computed at submission and again every `calc_period_s`.

*Main loop*, at every event: jobs start in this order; the first of a partition that has to wait
keeps all nodes of the partition from those behind it. Jobs that a limit holds back block nobody.

*Backfill*, every `bf_interval_s`: each job in this order gets the earliest time at which its nodes
are free for as long as its time limit, by the limits of those who run; a job whose time is now
starts. So nobody delays a job that is planned before it, as long as limits hold (see `sites`).

*Preemption.* A job that does not fit may take the place of running jobs whose QOS its own QOS may
preempt (`preempt=qos`), or whose partition has a lower PriorityTier (`partition_prio`): those of
the lowest QOS priority first, of these those on the fewest nodes, of these the youngest. They are
requeued or cancelled, as the mode of their QOS or partition says. A requeued job counts its age
from then on; what is left of its work is the cost model's business (a replay lets it start over).

Departs from Slurm: where GPUs go within the eligible nodes is the placement's business; backfill
looks at all its jobs in one instant; a job that outlives its time limit is not killed, but expected
to end at any moment. Reservations, licenses, arrays' limits and suspension are not modelled.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import nullcontext
from itertools import islice
from operator import attrgetter
from typing import Any

import msgspec

from rota.core.allocation import Allocation
from rota.core.events import INF
from rota.core.jobs import WAITING, Job
from rota.core.knowledge import Knowledge
from rota.core.plan import ClosingPlan, DisplacingPlan, EligibilityPlan, Plan
from rota.core.policy import DecidePolicy
from rota.core.reasons import Reason
from rota.core.state import State
from rota.core.view import View
from rota.policies.slurm.asks import Ask, Limit, SlurmRequests
from rota.policies.slurm.params import SlurmPolicyParams, Tres
from rota.policies.slurm.shares import FairShare, Usage
from rota.policies.slurm.sites import Amounts, NodePlan, PoolPlan, Sites

_BY_KEY = attrgetter("key")
_MORE = 1e-6  # seconds by which floats may miss a round number


class Running:
    """A job on the cluster: since when its usage counts, and where it is."""

    __slots__ = ("ask", "charged_s", "nodes", "settled", "start_s")

    def __init__(self, ask: Ask, start_s: float, charged_s: float) -> None:
        self.ask = ask
        self.start_s = start_s
        self.charged_s = charged_s
        self.nodes: tuple[int, ...] = ()
        self.settled = False  # its place was read from the job itself

    @property
    def hold(self) -> tuple[float, float]:
        """When it ends by its limit, and its GPUs."""
        return self.start_s + self.ask.limit_s, self.ask.job.gpus


class SlurmPlan(DisplacingPlan, ClosingPlan, EligibilityPlan):
    """Preemption, nodes that are kept for others, and what is up."""


class SlurmState(State):
    """Usage, priorities as they were computed last, and when to compute them again."""

    opened: bool = False
    fair: Usage = msgspec.field(default_factory=Usage)
    running: list[tuple[int, float, float]] = []  # job index, start, charged until
    waiting: list[tuple[int, int, float]] = []  # job index, priority, since
    since_s: dict[int, float] = {}
    limited: set[int] = set()
    next_calc_s: float = -INF
    next_bf_s: float = INF


class SlurmPolicy(DecidePolicy[SlurmPolicyParams]):
    """The order, backfill, preemption and limits of a Slurm cluster, set up by its own files."""

    name = "slurm"
    paper = (
        "Yoo, Jette and Grondona, SLURM: Simple Linux Utility for Resource Management, JSSPP 2003"
    )
    knowledge = Knowledge.USER_ESTIMATE
    Parameters = SlurmPolicyParams
    plan_type = SlurmPlan
    coupled = "fair shares and limits of users and QOS hold over all partitions"

    def __init__(self, params: SlurmPolicyParams | None = None) -> None:
        super().__init__(params)
        self.state: SlurmState = SlurmState()
        p = self.params
        self._fair = FairShare(
            p.associations, half_life_s=p.half_life_s, fair_tree=p.fair_tree, dampening=p.dampening
        )
        self._by_qos = p.preempt == "qos"
        self._asks: SlurmRequests
        self._sites: Sites | None = None
        self._queue: list[Ask] = []  # in order
        self._waiting: dict[int, Ask] = {}
        self._running: dict[int, Running] = {}
        self._used: dict[tuple[str, ...], list[float]] = {}  # by limit: jobs, and what they hold
        self._yielding: dict[frozenset[str], Amounts] = {}  # to whom, now
        self._since_s: dict[int, float] = {}  # when jobs were requeued
        self._limited: set[int] = set()
        self._requeued = False  # somebody, in this decision
        self._next_calc_s = -INF
        self._next_bf_s = INF  # nothing has happened since the last run

    def decide(self, view: View) -> Plan:
        """Learn what changed; then the main loop, and backfill if it is due."""
        now_s = view.now_s
        plan = view.plan(SlurmPlan)
        sites = self._open(view)
        running, waiting = view.running, view.waiting
        self._yielding.clear()
        self._requeued = False
        self._recalculate(now_s)
        self._leave(running, waiting, now_s)
        self._arrive(plan, running, waiting, now_s)
        self._main_loop(plan, sites, now_s)
        if self.params.backfill and self._queue:
            if self._next_bf_s == INF:  # the first run after something happened
                self._next_bf_s = _after(now_s - 2 * _MORE, self.params.bf_interval_s)
            if now_s < self._next_bf_s - _MORE:
                plan.wake_at(self._next_bf_s)
            else:
                self._next_bf_s = INF
                if self._backfill(plan, view, sites):
                    plan.wake_at(self._next_calc_s)  # the order may change without any event
        if self._requeued:  # they wait from the next decision on, which no event may bring
            plan.wake_at(_after(now_s, self.params.bf_interval_s))
        plan.fill(job for job in running if job.index in self._running)
        return plan

    def _open(self, view: View) -> Sites:
        if self._sites is None:
            self._sites = Sites(view.topology)
            self._asks = SlurmRequests(self.params, view.topology)
            self._next_calc_s = _after(view.now_s, self.params.calc_period_s)
            self._fair.decay(view.now_s)
            self._fair.rank()
            if self.state.opened:
                self._resume(view, self.state)
        if self._sites.grow():  # what jobs may use has changed
            for i, old in enumerate(self._queue):
                ask = self._queue[i] = self._waiting[old.job.index] = self._asks.of(old.job)
                ask.since_s = old.since_s
                ask.rank(old.priority)
        return self._sites

    # --- what changed -----------------------------------------------------------------------------

    def _recalculate(self, now_s: float) -> None:
        """Usage and priorities as of the last full period."""
        if now_s < self._next_calc_s:
            return
        period_s = self.params.calc_period_s
        at_s = (now_s + _MORE) // period_s * period_s
        self._fair.decay(at_s)
        for run in self._running.values():
            job = run.ask.job
            self._charge(run, min(at_s, job.end_s) if job.terminal else at_s)
        self._fair.rank()
        for ask in self._queue:
            ask.rank(self._priority(ask, at_s))
        self._queue.sort(key=_BY_KEY)
        self._next_calc_s = _after(now_s, period_s)

    def _charge(self, run: Running, to_s: float) -> None:
        if to_s > run.charged_s:
            ask = run.ask
            member = self._fair.member(ask.account, ask.job.spec.user)
            self._fair.charge(member, ask.rate, run.charged_s, to_s)
            run.charged_s = to_s

    def _priority(self, ask: Ask, now_s: float) -> int:
        p = self.params
        if p.given_priorities:
            return ask.job.spec.priority
        total = ask.base
        if p.weight_age:
            total += p.weight_age * min(max(now_s - ask.since_s, 0.0) / p.max_age_s, 1.0)
        if p.weight_fairshare:
            total += p.weight_fairshare * self._fair.factor(ask.account, ask.job.spec.user)
        return int(total)

    def _leave(self, running: Sequence[Job], waiting: Sequence[Job], now_s: float) -> None:
        """Forget those that do not run or wait any more."""
        there = {job.index for job in running}
        if there != self._running.keys():
            for index in [index for index in self._running if index not in there]:
                job = self._running[index].ask.job
                self._end(index, job.end_s if job.terminal else now_s)
                if job.phase == WAITING:
                    self._since_s[index] = now_s
        there = {job.index for job in waiting}
        if not self._waiting.keys() <= there:
            for index in [index for index in self._waiting if index not in there]:
                del self._waiting[index]
                self._limited.discard(index)
            self._queue = [ask for ask in self._queue if ask.job.index in self._waiting]

    def _arrive(
        self, plan: SlurmPlan, running: Sequence[Job], waiting: Sequence[Job], now_s: float
    ) -> None:
        """Learn of those that are new."""
        for job in running:
            run = self._running.get(job.index)
            if run is None:  # taken over from another scheduler
                run = self._begin(self._asks.of(job), job.start_s, now_s)
            if not run.settled:
                self._settle(run, job.allocation)
                run.settled = True
        for job in waiting:
            if job.index in self._waiting:
                continue
            ask = self._asks.of(job)
            why = "" if job.started else self._asks.never(ask)
            if why:
                plan.refuse(job, f"{why}: it would wait for ever")
                continue
            ask.since_s = self._since_s.get(job.index, job.submit_s)
            ask.rank(self._priority(ask, now_s))
            self._waiting[job.index] = ask
            insort(self._queue, ask, key=_BY_KEY)

    # --- who runs ---------------------------------------------------------------------------------

    def _begin(self, ask: Ask, start_s: float, charged_s: float) -> Running:
        run = self._running[ask.job.index] = Running(ask, start_s, charged_s)
        for limit in ask.limits:
            self._count(limit.key, ask.amounts, +1)
        return run

    def _end(self, index: int, end_s: float) -> None:
        run = self._running.pop(index)
        self._charge(run, end_s)
        if self._sites is not None:
            self._sites.release(index, run.nodes)
        for limit in run.ask.limits:
            self._count(limit.key, run.ask.amounts, -1)

    def _settle(self, run: Running, allocation: Allocation) -> None:
        """Note where it runs."""
        if self._sites is not None:
            index = run.ask.job.index
            self._sites.release(index, run.nodes)
            run.nodes = self._sites.hold(index, allocation, run.start_s + run.ask.limit_s)

    def _count(self, key: tuple[str, ...], amounts: Tres, sign: int) -> None:
        used = self._used.setdefault(key, [0.0] * 5)
        for i, amount in enumerate((1, amounts.cpu, amounts.mem_gib, amounts.node, amounts.gpu)):
            used[i] += sign * amount

    def _is_limited(self, plan: SlurmPlan, ask: Ask) -> bool:
        """A limit on those who run does not let it start; the log says so."""
        index = ask.job.index
        if any(self._is_full(limit, ask.amounts) for limit in ask.limits):
            self._limited.add(index)
            plan.explain(ask.job, Reason.QUOTA)
            return True
        if index in self._limited:
            self._limited.discard(index)
            plan.explain(ask.job, Reason.NONE)
        return False

    def _is_full(self, limit: Limit, amounts: Tres) -> bool:
        used, most = self._used.get(limit.key), limit.tres
        return used is not None and (
            used[0] + 1 > limit.jobs
            or used[1] + amounts.cpu > most.cpu + _MORE
            or used[2] + amounts.mem_gib > most.mem_gib + _MORE
            or used[3] + amounts.node > most.node + _MORE
            or used[4] + amounts.gpu > most.gpu + _MORE
        )

    # --- the main loop ----------------------------------------------------------------------------

    def _main_loop(self, plan: SlurmPlan, sites: Sites, now_s: float) -> None:
        """In order; who has to wait keeps its partition's nodes from those behind it."""
        kept = 0
        blocked: set[str] = set()
        started: set[int] = set()
        for ask in islice(self._queue, self.params.queue_depth):
            name = ask.partition.name
            if name in blocked or not ask.nodes & ~kept or self._is_limited(plan, ask):
                continue
            if self._start(plan, ask, kept, now_s):
                started.add(ask.job.index)
                continue
            if name:
                blocked.add(name)
            kept |= ask.whole
            if kept == sites.everywhere:
                break
        self._dequeue(started)

    def _dequeue(self, started: AbstractSet[int]) -> None:
        if started:
            for index in started:
                del self._waiting[index]
            self._queue = [ask for ask in self._queue if ask.job.index not in started]

    def _start(self, plan: SlurmPlan, ask: Ask, kept: int, now_s: float) -> bool:
        """Start it outside the kept nodes, in the place of others if it may."""
        avoid = kept & ask.nodes
        with plan.closed(avoid) if avoid else nullcontext():
            if plan.displace(ask.job, ()) is None and not self._preempt(plan, ask, avoid, now_s):
                return False
        self._settle(self._begin(ask, now_s, now_s), plan.holding(ask.job))
        self._yielding.clear()
        return True

    # --- preemption -------------------------------------------------------------------------------

    def _preempt(self, plan: SlurmPlan, ask: Ask, avoid: int, now_s: float) -> bool:
        hopeless = not ask.preempts or not self._might_preempt(plan, ask, avoid, now_s)
        victims = () if hopeless else self._victims(ask, avoid, now_s)
        gone = plan.displace(ask.job, victims) if victims else None
        if gone is None:
            return False
        for victim in gone:
            other = self._running[victim.index].ask
            mine, theirs = self._class_of(ask), self._class_of(other)
            word = "QOS" if self._by_qos else "partition"
            why = f"{word} {mine} may preempt {word} {theirs}"
            plan.remark(victim, why, because_of=ask.job)
            if self._mode(other) == "cancel":
                plan.cancel([victim], because_of=ask.job)
            else:
                self._requeued = True
            self._end(victim.index, now_s)
            self._since_s[victim.index] = now_s
        return True

    def _class_of(self, ask: Ask) -> str:
        return ask.qos.name if self._by_qos else ask.partition.name

    def _mode(self, ask: Ask) -> str:
        """What happens to this job if it is preempted."""
        own = ask.qos.preempt_mode if self._by_qos else ask.partition.preempt_mode
        return self.params.preempt_mode if own == "cluster" else own

    def _preemptible(self, ask: Ask, now_s: float) -> Iterator[Running]:
        """Those whom it may preempt."""
        for run in self._running.values():
            other = run.ask
            if self._class_of(other) not in ask.preempts or self._mode(other) == "off":
                continue
            exempt_s = other.qos.preempt_exempt_s
            if exempt_s is None:
                exempt_s = self.params.preempt_exempt_s
            if now_s - run.start_s >= exempt_s - _MORE:
                yield run

    def _victims(self, ask: Ask, avoid: int, now_s: float) -> list[Job]:
        """Whom it may preempt on its nodes, in the order in which they have to go."""
        nodes = ask.nodes & ~avoid
        found: list[tuple[tuple[float, ...], Job]] = []
        for run in self._preemptible(ask, now_s):
            if run.nodes and not any(nodes >> at & 1 for at in run.nodes):
                continue
            other = run.ask
            size = 0.0 if self.params.youngest_first else other.amounts.node
            rank = other.qos.priority if self._by_qos else other.partition.priority_tier
            found.append(((rank, size, -run.start_s, -other.job.index), other.job))
        return [job for _, job in sorted(found)]

    def _might_preempt(self, plan: SlurmPlan, ask: Ask, avoid: int, now_s: float) -> bool:
        """False only if it would not even fit without all whom it may preempt."""
        if plan.pooled or self._sites is None:
            return True
        known = self._yielding.get(ask.preempts)
        if known is None:
            runs = self._preemptible(ask, now_s)
            known = self._sites.sums((run.ask.job.index, run.nodes) for run in runs)
            self._yielding[ask.preempts] = known
        return self._sites.would_hold(ask, known, avoid)

    # --- backfill ---------------------------------------------------------------------------------

    def _backfill(self, plan: SlurmPlan, view: View, sites: Sites) -> bool:
        """Plan in order, start whose time is now; True if somebody fits whose time is not."""
        asks = self._considered(plan)
        step_s = self.params.bf_resolution_s
        forecast: NodePlan | PoolPlan
        if plan.pooled:
            forecast = PoolPlan(view, [run.hold for run in self._running.values()], step_s)
        else:
            forecast = NodePlan(plan, sites, view.now_s, step_s)
        fitting = {
            i
            for i, ask in enumerate(asks)
            if forecast.fits(ask)
            or (ask.preempts and self._might_preempt(plan, ask, 0, view.now_s))
        }
        if not fitting:
            return False
        last = max(fitting)
        hot = _competing(asks[: last + 1], fitting)
        most = self.params.bf_max_job_start or len(asks)
        started: set[int] = set()
        for i, ask in enumerate(asks[: last + 1]):
            if not ask.nodes & hot:
                continue
            if self._start_or_plan(plan, ask, forecast, view.now_s, may=i in fitting):
                started.add(ask.job.index)
                if len(started) == most:
                    break
        self._dequeue(started)
        return len(fitting) > len(started)

    def _considered(self, plan: SlurmPlan) -> list[Ask]:
        """The jobs that it looks at, without those that a limit holds back."""
        p = self.params
        users: Counter[str] = Counter()
        parts: Counter[str] = Counter()
        found = []
        for ask in islice(self._queue, p.bf_max_job_test):
            user, part = ask.job.spec.user, ask.partition.name
            users[user] += 1
            parts[part] += 1
            if p.bf_max_job_user and users[user] > p.bf_max_job_user:
                continue
            if p.bf_max_job_part and parts[part] > p.bf_max_job_part:
                continue
            if not self._is_limited(plan, ask):
                found.append(ask)
        return found

    def _start_or_plan(
        self, plan: SlurmPlan, ask: Ask, forecast: "NodePlan | PoolPlan", now_s: float, *, may: bool
    ) -> bool:
        at_s, free = forecast.earliest(ask)
        if may and (at_s <= now_s or ask.preempts) and not self._is_limited(plan, ask):
            kept = ask.nodes & ~(free if at_s <= now_s else forecast.unplanned(ask))
            if self._start(plan, ask, kept, now_s):
                forecast.start(ask)
                return True
        if at_s <= now_s + self.params.bf_window_s:
            forecast.take(ask, at_s, free)
        return False

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """Usage, priorities as they were computed last, and when to compute them again."""
        if self._sites is not None:
            self.state = SlurmState(
                opened=True,
                fair=self._fair.save(),
                running=[(i, run.start_s, run.charged_s) for i, run in self._running.items()],
                waiting=[(ask.job.index, ask.priority, ask.since_s) for ask in self._queue],
                since_s=self._since_s,
                limited=self._limited,
                next_calc_s=self._next_calc_s,
                next_bf_s=self._next_bf_s,
            )
        return super().snapshot()

    def resumed(self) -> None:
        """The state is taken up at the next decision, when the cluster is known."""
        self._sites = None

    def _resume(self, view: View, state: SlurmState) -> None:
        self._fair.load(state.fair)
        for index, start_s, charged_s in state.running:
            run = self._begin(self._asks.of(view.everyone[index]), start_s, charged_s)
            self._settle(run, run.ask.job.allocation)
        for index, priority, since_s in state.waiting:
            ask = self._waiting[index] = self._asks.of(view.everyone[index])
            ask.since_s = since_s
            ask.rank(priority)
            self._queue.append(ask)
        self._since_s, self._limited = state.since_s, state.limited
        self._next_calc_s, self._next_bf_s = state.next_calc_s, state.next_bf_s


def _competing(asks: Sequence[Ask], fitting: AbstractSet[int]) -> int:
    """The nodes on which a plan can matter to one of those who fit now.

    Who is planned on a node matters to all who compete for it, their plans to others, and so on.
    """
    found, before = 0, -1
    for i in fitting:
        found |= asks[i].nodes
    every = {ask.nodes for ask in asks}
    while before != found:
        before = found
        for nodes in every:
            if nodes & found:
                found |= nodes
    return found


def _after(now_s: float, period_s: float) -> float:
    """The first multiple of a period that is later."""
    return ((now_s + _MORE) // period_s + 1) * period_s
