"""ElasticFlow: a job is admitted if its deadline can be promised (Gu et al., ASPLOS 2023).

A job's *minimum satisfactory share* is the smallest number of GPUs, a power of two, with which it
is done by its deadline beside the plans of all jobs with earlier ones; where less is free it takes
what there is. A new job is admitted if everybody who was admitted still has such a plan. GPUs that
no plan uses now go to the jobs for which they cost the least GPU time more, jobs without any first.

With exact knowledge and without costs an admitted job never misses its deadline: plans that were
promised are kept as they are whenever making them anew would leave somebody out. Failures, costs
and wrong estimates can break the promise; who is late then is served after all others.

Departs from the paper: time is not cut into slots; a job without a deadline is of best effort; the
plans of running jobs are not given up for a new one that fits only then.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.plan import Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.state import State
from rota.core.sums import ordered_sum
from rota.core.view import View
from rota.policies._sizes import give_as_buddies, open_gpus, sizes_of

SLACK = 1e-9  # relative: times are sums


class ElasticFlowPolicyParams(Params, frozen=True):
    """What becomes of a job whose deadline cannot be promised: it is refused, or of best effort."""

    declined: Literal["refuse", "best-effort"] = "refuse"


class PlannedShare(NamedTuple):
    """So many GPUs from one time to another."""

    from_s: float
    until_s: float
    gpus: float


class ElasticFlowState(State):
    """The plans that were promised, by job, and who has none."""

    plans: dict[int, list[tuple[float, float, float]]] = {}
    unpromised: list[int] = []


class FreeGpus:
    """GPUs that are free from each time on."""

    def __init__(self, now_s: float, gpus: float) -> None:
        self.times = [now_s]
        self.free = [gpus]

    def take(self, plan: Sequence[PlannedShare]) -> bool:
        """Reserve a plan; False if there is not enough (what was reserved stays so)."""
        enough = True
        for share in plan:
            first, last = self._cut(share.from_s), self._cut(share.until_s)
            for place in range(first, last):
                self.free[place] -= share.gpus
                enough = enough and self.free[place] >= -SLACK
        return enough

    def _cut(self, time_s: float) -> int:
        """Let a step begin then; its place."""
        if time_s == INF:
            return len(self.times)
        place = len(self.times)
        while place and self.times[place - 1] > time_s:
            place -= 1
        if not place:
            return 0
        if self.times[place - 1] == time_s:
            return place - 1
        self.times.insert(place, time_s)
        self.free.insert(place, self.free[place - 1])
        return place


class SizeLadder(NamedTuple):
    """The sizes of a job, each faster than the one before, and what it still needs."""

    job: Job
    sizes: Sequence[float]
    rates: Sequence[float]
    left: float
    due_s: float

    def rate(self, gpus: float) -> float:
        """Its speed with so many."""
        return self.rates[self.sizes.index(gpus)]

    def within(self, gpus: float) -> float:
        """The largest of its sizes that is no larger."""
        return max((size for size in self.sizes if size <= gpus), default=0.0)

    def gpu_s(self, gpus: float) -> float:
        """GPU time until its end with so many GPUs all the time."""
        return self.left / self.rate(gpus) * gpus


def ladder(job: Job, most: float, now_s: float) -> SizeLadder:
    """Powers of two, and the smallest size whatever it is."""
    sizes: list[float] = []
    rates: list[float] = []
    for size in sizes_of(job, most):
        if sizes and (size != int(size) or int(size) & (int(size) - 1)):
            continue
        rate = job.speed_with(size)
        if rate > (rates[-1] if rates else 0.0):
            sizes.append(size)
            rates.append(rate)
    return SizeLadder(job, sizes, rates, job.remaining_s(now_s), job.deadline_s)


def smallest_share(one: SizeLadder, line: FreeGpus) -> list[PlannedShare] | None:
    """The plan with the smallest share that is in time; None: there is none."""
    for level in one.sizes:
        plan: list[PlannedShare] = []
        left = one.left
        for place, from_s in enumerate(line.times):
            if from_s >= one.due_s or left <= 0:
                break
            until_s = line.times[place + 1] if place + 1 < len(line.times) else INF
            gpus = one.within(min(level, line.free[place]))
            if not gpus:
                continue
            rate = one.rate(gpus)
            end_s = from_s + left / rate
            if end_s <= until_s:
                if end_s > one.due_s * (1 + SLACK):
                    break
                return [*plan, PlannedShare(from_s, end_s, gpus)]
            plan.append(PlannedShare(from_s, until_s, gpus))
            left -= (until_s - from_s) * rate
    return None


class ElasticFlow(DecidePolicy[ElasticFlowPolicyParams]):
    """Promise deadlines, and keep them."""

    name = "elasticflow"
    paper = (
        "Gu et al., ElasticFlow: An Elastic Serverless Training Platform for Distributed Deep "
        "Learning, ASPLOS 2023"
    )
    knowledge = Knowledge.REMAINING_WORK | Knowledge.SCALING | Knowledge.DEADLINES
    Parameters = ElasticFlowPolicyParams
    preemptive = True
    elastic = True
    coupled = "shares: all GPUs are divided among all jobs"

    def __init__(self, params: ElasticFlowPolicyParams | None = None) -> None:
        super().__init__(params)
        self.state: ElasticFlowState = ElasticFlowState()

    def decide(self, view: View) -> Plan:
        """Admit who is new, follow the plans, and give out the rest."""
        plan = view.plan()
        now_s, gpus = view.now_s, open_gpus(view)
        ladders = {job.index: ladder(job, gpus, now_s) for job in view.jobs}
        self._forget(ladders)
        plans = self._kept(ladders, now_s, gpus)
        for index, one in list(ladders.items()):
            if index in plans or index in self.state.unpromised:
                continue
            more = None
            if one.due_s < INF and one.sizes:
                more = self._with(one, ladders, plans, now_s, gpus)
            if more is not None:
                plans = more
            elif one.due_s < INF and self.params.declined == "refuse" and not one.job.started:
                plan.refuse(one.job, "its deadline cannot be promised beside those of others")
                del ladders[index]
            else:
                self.state.unpromised.append(index)
        self.state.plans = {
            index: [(s.from_s, s.until_s, s.gpus) for s in shares]
            for index, shares in plans.items()
        }
        held = self._held(ladders, plans, now_s, gpus)
        give_as_buddies(
            plan, [(ladders[index].job, size) for index, size in held.items() if size], most=gpus
        )
        plan.fill(one.job for one in ladders.values() if not one.job.gpus)
        changes = [
            s.until_s for shares in plans.values() for s in shares if now_s < s.until_s < INF
        ]
        changes += [s.from_s for shares in plans.values() for s in shares if s.from_s > now_s]
        if changes:
            plan.wake_at(min(changes))
        return plan

    def _forget(self, present: dict[int, SizeLadder]) -> None:
        """Jobs that are over."""
        state = self.state
        state.plans = {i: shares for i, shares in state.plans.items() if i in present}
        state.unpromised = [index for index in state.unpromised if index in present]

    def _kept(
        self, ladders: dict[int, SizeLadder], now_s: float, gpus: float
    ) -> dict[int, list[PlannedShare]]:
        """Plans for all who were promised one: made anew, or as they were; late ones have none."""
        promised = [ladders[index] for index in self.state.plans]
        fresh = _planned(promised, FreeGpus(now_s, gpus))
        if fresh is not None:
            return fresh
        line = FreeGpus(now_s, gpus)
        kept: dict[int, list[PlannedShare]] = {}
        for one in sorted(promised, key=_by_deadline):
            old = _rest([PlannedShare(*s) for s in self.state.plans[one.job.index]], one, now_s)
            if old is not None and line.take(old):
                kept[one.job.index] = old
                continue
            if old is not None:  # nodes are gone: what was reserved in vain is free again
                line.take([PlannedShare(s.from_s, s.until_s, -s.gpus) for s in old])
            new = smallest_share(one, line)
            if new is None:
                self.state.unpromised.append(one.job.index)
            else:
                line.take(new)
                kept[one.job.index] = new
        return kept

    def _with(
        self,
        new: SizeLadder,
        ladders: dict[int, SizeLadder],
        plans: dict[int, list[PlannedShare]],
        now_s: float,
        gpus: float,
    ) -> dict[int, list[PlannedShare]] | None:
        """Plans for all and for one more; None: somebody would be late."""
        everyone = [*(ladders[index] for index in plans), new]
        fresh = _planned(everyone, FreeGpus(now_s, gpus))
        if fresh is not None:
            return fresh
        line = FreeGpus(now_s, gpus)
        for shares in plans.values():
            line.take(shares)
        beside = smallest_share(new, line)
        return None if beside is None else {**plans, new.job.index: beside}

    def _held(
        self,
        ladders: dict[int, SizeLadder],
        plans: dict[int, list[PlannedShare]],
        now_s: float,
        gpus: float,
    ) -> dict[int, float]:
        """GPUs of everybody from now on: by plan, and what no plan uses."""
        held = {
            index: next(
                (s.gpus for s in plans.get(index, ()) if s.from_s <= now_s < s.until_s), 0.0
            )
            for index in ladders
        }
        left = gpus - ordered_sum(held.values())
        order = sorted(ladders.values(), key=_by_deadline)
        while left > 0:
            best, least = None, (True, INF)
            for one in order:
                size = held[one.job.index]
                more = next((s for s in one.sizes if s > size), None)
                if more is None or more - size > left:
                    continue
                cost = (one.gpu_s(more) - one.gpu_s(size)) / (more - size) if size else 0.0
                if (size > 0, cost) < least:
                    best, least = (one, more), (size > 0, cost)
            if best is None:
                break
            one, more = best
            left -= more - held[one.job.index]
            held[one.job.index] = more
        return held


def _by_deadline(one: SizeLadder) -> tuple[float, float, int]:
    return (one.due_s, one.job.submit_s, one.job.index)


def _planned(jobs: Sequence[SizeLadder], line: FreeGpus) -> dict[int, list[PlannedShare]] | None:
    """The smallest shares of all, in the order of their deadlines; None: somebody is late."""
    found = {}
    for one in sorted(jobs, key=_by_deadline):
        plan = smallest_share(one, line)
        if plan is None:
            return None
        line.take(plan)
        found[one.job.index] = plan
    return found


def _rest(plan: Sequence[PlannedShare], one: SizeLadder, now_s: float) -> list[PlannedShare] | None:
    """What is left of a promised plan, up to where its job is done; None: it is not enough."""
    left, found = one.left, []
    for share in plan:
        from_s = max(share.from_s, now_s)
        if share.until_s <= from_s:
            continue
        if share.gpus not in one.sizes:
            return None
        rate = one.rate(share.gpus)
        end_s = from_s + left / rate
        if end_s <= share.until_s * (1 + SLACK):
            found.append(PlannedShare(from_s, min(end_s, share.until_s), share.gpus))
            return found
        found.append(PlannedShare(from_s, share.until_s, share.gpus))
        left -= (share.until_s - from_s) * rate
    return None
