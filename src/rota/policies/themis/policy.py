"""Themis: auctions for finish-time fairness (Mahajan et al., NSDI 2020).

The finish-time fairness of a job is how much longer it takes here than alone on its part:

    rho_i = T_shared_i / T_ideal_i

T_shared is the time since its submission plus what it still needs; T_ideal is what it would need in
all with the n-th part of every GPU type for itself, n being the mean number of jobs while it was
here. GPUs are given as leases of `lease_s` seconds of progress. GPUs without a lease are offered to
the part 1 - `fairness` of all jobs without a lease that has the largest rho (at least one, at most
`bidders`). These bid: for each type on as few nodes as possible, and on any nodes, where a gang
that is scattered runs at `scattered` times its speed, the value

    V_i(x) = 1 / rho_i(x),   rho_i(x) = (waited_i + left_i / speed_i(x)) / T_ideal_i

and for nothing that of starting one lease later. The winners maximise prod_i V_i(x_i), and pay by
the partial allocation mechanism: winner i keeps only the part c_i of its lease, the product of what
the others get divided by what they would get without i. What is left over goes to the others with
the largest rho, as whole leases.

Departs from the paper: a job is a whole gang or nothing, so payments are taken off the time of the
lease instead of the number of GPUs; at least the part `least` remains, because a restart would not
pay for less. Every job is an app of its own. Work and speeds are known instead of profiled.
What is left over goes to those worst off instead of at random. A job that has waited for `patience`
leases takes its GPUs from the latest starters, leased or not, so that none starves. Nobody loses
its GPUs before it has made progress for as long as its start took.
"""

from collections.abc import Mapping, Sequence
from math import ceil, inf, isfinite
from typing import Annotated, Any

import msgspec

from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.plan import Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.state import State
from rota.core.view import View
from rota.policies.rounds.choice_policy import Seconds
from rota.policies.rounds.leases import Lease, Leases
from rota.policies.rounds.seats import RoundPlan, Seats
from rota.policies.rounds.types import GpuTypes, held_type
from rota.policies.themis.auction import Award, Bid, Option, auction
from rota.policies.themis.fairness import Contention, fewest_nodes, free_nodes, ideal_rate

Part = Annotated[float, msgspec.Meta(gt=0, le=1)]


class ThemisParams(Params, frozen=True):
    """Who bids, how long leases are, and what bidders think of scattered GPUs."""

    fairness: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.8
    lease_s: Seconds = 1200.0
    scattered: Part = 0.8
    least: Part = 0.25
    patience: Annotated[float, msgspec.Meta(gt=0)] = 6.0
    bidders: Annotated[int, msgspec.Meta(ge=1)] = 24


class ThemisState(State):
    """How crowded it was, since when jobs have had no GPUs, and leases."""

    crowd: Contention = msgspec.field(default_factory=Contention)
    waits: dict[int, float] = {}
    leases: dict[int, Lease] = {}


class Themis(DecidePolicy[ThemisParams]):
    """Auction leases of GPUs among the jobs that finish latest compared with a fair share."""

    name = "themis"
    paper = "Mahajan et al., Themis: Fair and Efficient GPU Cluster Scheduling, NSDI 2020"
    knowledge = Knowledge.REMAINING_WORK | Knowledge.SPEEDS
    Parameters = ThemisParams
    plan_type = RoundPlan
    coupled = "shares: all apps bid for the GPUs of the whole cluster in common rounds"

    def __init__(self, params: ThemisParams | None = None) -> None:
        super().__init__(params)
        self.state: ThemisState = ThemisState()
        self._types = GpuTypes()
        self._leases = Leases()
        self._up: Mapping[str, float] = {}  # GPUs by type at this decision
        self._terms: dict[int, float] = {}  # seconds of progress that it gives to jobs

    def decide(self, view: View) -> Plan:
        """Leased jobs go on; what is not leased is auctioned, and the rest given away."""
        now_s = view.now_s
        self._up = view.up_by_type
        self._terms = {}
        self.state.crowd.advance(now_s, [job.index for job in view.jobs if job.gpus])
        self._leases.keep_only({job.index for job in view.running}, now_s)
        plan = view.plan(RoundPlan)
        seats = Seats(view, plan, self._leases)
        seats.keep(job for job in view.running if not job.gpus)
        if not self._rescue(view, seats):
            self._grant(view, seats)
        for job in view.waiting:
            if not job.gpus:
                seats.anywhere(job)
        self._leases.settle(view.active, seats.placed, view.topology, now_s)
        for index, term_s in self._terms.items():
            self._leases.extend(view.active[index], now_s, term_s)
        waits = self.state.waits
        self.state.waits = {
            job.index: waits.get(job.index, now_s)
            for job in view.jobs
            if job.gpus and job.index not in seats.placed
        }
        wake_s = self._wake_s(view, seats)
        if wake_s < inf:
            plan.wake_at(wake_s)
        return plan

    def rho(
        self, job: Job, view: View, kind: str | None = None, *, scattered: bool = False
    ) -> float:
        """Its finish-time fairness if it started now, on its fastest type unless one is given."""
        speed = self._speed(job, view) if kind is None else job.speed_on(kind)
        needs_s = self._left_s(job, view.now_s) / (
            speed * (self.params.scattered if scattered else 1)
        )
        return self._rho(job, view, needs_s)

    # --- before the auction -----------------------------------------------------------------------

    def _rescue(self, view: View, seats: Seats) -> bool:
        """Serve those that waited too long, then all leased jobs; True if one still has to wait."""
        now_s = view.now_s
        limit_s = self.params.patience * self.params.lease_s
        starved = [
            job for job in view.waiting
            if job.gpus and now_s >= self.state.waits.get(job.index, now_s) + limit_s
        ]  # fmt: skip
        leased = [
            job for job in view.running
            if self._leases.lasts(job, now_s) or self._leases.unpaid(job, now_s)
        ]  # fmt: skip
        blocked = False
        if starved:
            seats.keep(job for job in leased if self._leases.unpaid(job, now_s))
            for job in sorted(starved, key=lambda job: (self.state.waits[job.index], job.index)):
                if self._anyhow(job, view, seats):
                    self._terms[job.index] = self.params.lease_s
                else:
                    blocked |= any(index in seats.placed for index in (j.index for j in leased))
        seats.keep(leased)
        return blocked

    def _grant(self, view: View, seats: Seats) -> None:
        """Auction, then what is left over."""
        now_s = view.now_s
        open_jobs = [job for job in view.jobs if job.gpus and job.index not in seats.placed]
        rank = {job.index: self.rho(job, view) for job in open_jobs}
        open_jobs.sort(key=lambda job: (-rank[job.index], job.index))
        number = max(1, ceil((1 - self.params.fairness) * len(open_jobs) - 1e-9))
        bidding = open_jobs[: min(number, self.params.bidders)]
        self._award(view, seats, bidding)
        for job in open_jobs:
            if job.running:
                seats.keep([job])
            else:
                self._anyhow(job, view, seats)
            if job.index in seats.placed and not self._leases.lasts(job, now_s):
                self._terms.setdefault(job.index, self.params.lease_s)

    def _award(self, view: View, seats: Seats, bidding: Sequence[Job]) -> None:
        """Hold the auction and seat the winners, those who can stay where they are first."""
        offer = free_nodes(view, seats.placed)
        by_index = {job.index: job for job in bidding}
        awards = auction(offer, [self._bid(job, view) for job in bidding])

        def stays(award: Award) -> bool:
            job = by_index[award.bidder]
            return job.running and award.option.kind in (None, held_type(job, view.topology))

        for award in sorted(awards, key=lambda award: not stays(award)):
            job = by_index[award.bidder]
            if stays(award):
                seats.keep([job])
            elif award.option.kind is None:
                seats.anywhere(job)
            else:
                seats.seat(job, award.option.kind, max_nodes=award.option.nodes or None)
            if job.index in seats.placed:
                part = max(self.params.least, award.kept)
                self._terms[job.index] = part * self.params.lease_s

    # --- bids -------------------------------------------------------------------------------------

    def _bid(self, job: Job, view: View) -> Bid:
        """Close together and scattered, for every type; the type that it has now first."""
        preferred = self._types.preferred(job, view)
        now = held_type(job, view.topology) if job.running else None
        options = []
        for kind in sorted(preferred, key=lambda kind: kind != now):
            close = fewest_nodes(view.topology, kind, job.gpus)
            options.append(Option(kind, job.gpus, close, 1 / self.rho(job, view, kind)))
            if job.gpus > 1:
                value = 1 / self.rho(job, view, kind, scattered=True)
                options.append(Option(kind, job.gpus, 0, value))
        if not preferred:
            options.append(Option(None, job.gpus, 0, 1 / self.rho(job, view, scattered=True)))
        later_s = self.params.lease_s + self._left_s(job, view.now_s) / self._speed(job, view)
        return Bid(job.index, 1 / self._rho(job, view, later_s), tuple(options))

    def _rho(self, job: Job, view: View, needs_s: float) -> float:
        """If it ends so many seconds from now."""
        now_s = view.now_s
        crowd = self.state.crowd.mean(job.index, job.submit_s, now_s)
        rate = ideal_rate(self._speeds(job, view), self._up, job.gpus, crowd)
        ideal_s = self._total_s(job, now_s) / max(rate, 1e-9)
        return max(now_s - job.submit_s + needs_s, 1e-9) / max(ideal_s, 1e-9)

    def _speeds(self, job: Job, view: View) -> dict[str, float]:
        """Speeds on all types that it accepts."""
        return {kind: job.speed_on(kind) for kind in view.topology.types if job.speed_on(kind) > 0}

    def _speed(self, job: Job, view: View) -> float:
        """On the fastest type; a gang on several types is as fast as on the slowest."""
        speeds = self._speeds(job, view).values()
        preferred = self._types.preferred(job, view)
        return job.speed_on(preferred[0]) if preferred else min(speeds, default=1.0)

    def _left_s(self, job: Job, now_s: float) -> float:
        """What it still needs at speed 1. If that is unknown: as long again as it has run."""
        left_s = job.remaining_s(now_s)
        return left_s if isfinite(left_s) else max(job.executed_s(now_s), self.params.lease_s)

    def _total_s(self, job: Job, now_s: float) -> float:
        """What it needs in all at speed 1."""
        total_s = job.duration_s()
        return total_s if isfinite(total_s) else job.executed_s(now_s) + self._left_s(job, now_s)

    # --- seats and times --------------------------------------------------------------------------

    def _anyhow(self, job: Job, view: View, seats: Seats) -> bool:
        """On the fastest type that has room; several types if none is large enough."""
        preferred = self._types.preferred(job, view)
        if not preferred:
            return seats.anywhere(job)
        return seats.seat_first(job, preferred)

    def _wake_s(self, view: View, seats: Seats) -> float:
        """When the next lease ends, or a job has waited for too long.

        A lease that ends makes a difference only if somebody waits or would be faster elsewhere.
        """
        now_s = view.now_s
        limit_s = self.params.patience * self.params.lease_s
        times = [since_s + limit_s for since_s in self.state.waits.values()]
        for index, has in seats.placed.items():
            job = view.active[index]
            slow = has.kind is not None and self._types.preferred(job, view)[:1] != [has.kind]
            if job.gpus and (slow or self.state.waits):
                times.append(self._leases.end_s(job, now_s))
            if self.state.waits and job.running:
                times.append(self._leases.paid_s(job, now_s))
        return min((time_s for time_s in times if time_s > now_s), default=inf)

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """With the leases."""
        self.state.leases = self._leases.held
        return super().snapshot()

    def resumed(self) -> None:
        """Take up the leases."""
        self._leases.held = self.state.leases
