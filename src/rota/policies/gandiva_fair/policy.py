"""Gandiva_fair: tickets, gangs by stride, and trades of GPUs (Chaudhary et al., EuroSys 2020).

Every user (tenant u, with its weight as tickets w_u) is entitled to a part of each GPU type t with
C_t GPUs, as far as its jobs can use it:

    e_ut = C_t w_u / sum_v w_v

Users then trade: with v_ut the mean speed of u's jobs on t, a fast GPU is worth r_u = v_uf / v_us
slow ones to u. The user with the largest r gives r' slow GPUs for each fast one to the user with
the smallest r, where r' is the largest r of the others (the second price). As r_buyer >= r' >=
r_seller, sum_t v_ut e_ut falls for nobody; trades go on while anybody gains.

Each type is divided in proportion to what users have after the trades, by stride scheduling: the
pass of u on t grows by (GPU-seconds on t) / e_ut, and in each quantum of `quantum_s` jobs of the
user with the smallest pass come first. A gang that does not fit keeps its place for the next
quantum and others use what is left, so that large gangs are not starved, small ones are not blocked
and nothing idles. Who has all that it wants saves up nothing. A user's own jobs take turns; those
that have run equally long stay where they are.

Departs from the paper: one scheduler for the whole cluster instead of one per server and one for
large gangs; where a job goes is the placement's business. Speeds are known instead of profiled.
Jobs start within a quantum if there is room. A job that has just been started is left alone until
it has made progress for as long as its start took.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from rota.core.jobs import Job
from rota.core.policy import Params
from rota.core.state import State
from rota.core.sums import ordered_sum
from rota.core.view import View
from rota.policies.gandiva_fair.stride import Stride, deal
from rota.policies.gandiva_fair.trading import EPSILON, Market, entitlements, trade
from rota.policies.rounds.choice_policy import Choice, ChoicePolicy, Seconds
from rota.policies.rounds.leases import Seat
from rota.policies.rounds.types import held_type


class GandivaFairParams(Params, frozen=True):
    """`quantum_s`: how often the GPUs are dealt out anew; `trades`: whether users trade types."""

    quantum_s: Seconds = 60.0
    trades: bool = True


class GandivaFairState(State):
    """Passes of users by GPU type, of jobs by user; tickets by GPU type and user."""

    users: dict[str, Stride[str]] = {}
    jobs: dict[str, Stride[int]] = {}
    tickets: dict[str, dict[str, float]] = {}


class GandivaFair(ChoicePolicy[GandivaFairParams]):
    """Users get GPU time in proportion to tickets, and trade fast GPUs for slow ones."""

    name = "gandiva-fair"
    paper = (
        "Chaudhary et al., Balancing Efficiency and Fairness in Heterogeneous GPU Clusters for "
        "Deep Learning, EuroSys 2020"
    )
    Parameters = GandivaFairParams
    coupled = "shares: users take turns by what they have used of the whole cluster"

    def __init__(self, params: GandivaFairParams | None = None) -> None:
        super().__init__(params)
        self.state: GandivaFairState = GandivaFairState()

    @property
    def round_s(self) -> float:
        """A quantum."""
        return self.params.quantum_s

    def choose(
        self, view: View, jobs: Sequence[Job], room: Mapping[str, float]
    ) -> Iterable[Choice]:
        """Type by type, the fastest first: the users' jobs by stride."""
        waiting = {job.tenant for job in jobs if not job.running}
        open_jobs = {job.index: job for job in jobs}
        for kind in self._fastest_first(view, jobs):
            stride = self.state.users[kind]
            stride.settle([user for user in stride.passes if user in waiting])
            queues = self._queues(view, list(open_jobs.values()), kind)
            tickets = self.state.tickets[kind]
            for index in deal(stride.passes, tickets, queues, room[kind], self.round_s):
                yield open_jobs.pop(index), kind

    def charge(self, view: View, held: Mapping[int, Seat], seconds: float) -> None:  # noqa: ARG002
        """Passes grow by what was received per ticket."""
        for index, has in held.items():
            if has.tenant in self.state.jobs:
                self.state.jobs[has.tenant].charge(index, seconds)
            tickets = self.state.tickets.get(has.kind or "", {}).get(has.tenant, 0.0)
            if has.kind is not None and tickets > 0:
                self.state.users[has.kind].charge(has.tenant, has.gpus * seconds / tickets)

    def prepare(self, view: View) -> None:
        """Users and jobs that compete now, and what they are entitled to."""
        by_user: dict[str, list[Job]] = {}
        for job in view.jobs:
            if job.gpus:
                by_user.setdefault(job.tenant, []).append(job)
        self.state.jobs = {user: self.state.jobs.get(user, Stride()) for user in by_user}
        for user, own in by_user.items():
            self.state.jobs[user].present([job.index for job in own])
        market = self._market(view, by_user)
        given = entitlements(market)
        if self.params.trades:
            given, _ = trade(market, given)
        self.state.users = {kind: self.state.users.get(kind, Stride()) for kind in view.up_by_type}
        for column, (kind, stride) in enumerate(self.state.users.items()):
            tickets = dict(zip(by_user, given[:, column].tolist(), strict=True))
            self.state.tickets[kind] = {
                user: gpus for user, gpus in tickets.items() if gpus > EPSILON
            }
            stride.present(self.state.tickets[kind])

    def queue(self, view: View, jobs: Sequence[Job]) -> Sequence[Job]:  # noqa: ARG002
        """By the pass of the user, then of the job."""
        least = {
            user: min(
                (stride.passes.get(user, 0.0) for stride in self.state.users.values()), default=0
            )
            for user in {job.tenant for job in jobs}
        }
        return sorted(jobs, key=lambda job: (least[job.tenant], self._turn(job)))

    # --- who has what -----------------------------------------------------------------------------

    def _market(self, view: View, by_user: Mapping[str, Sequence[Job]]) -> Market:
        """Users by row, GPU types by column; speeds are means over the GPUs that jobs ask for."""
        kinds = list(view.up_by_type)
        speed = np.zeros((len(by_user), len(kinds)))
        for row, own in enumerate(by_user.values()):
            gpus = ordered_sum(job.gpus for job in own)
            for job in own:
                for kind in self.types.preferred(job, view):
                    speed[row, kinds.index(kind)] += job.gpus / gpus * job.speed_on(kind)
        return Market(
            capacity=np.array(list(view.up_by_type.values()), float),
            tickets=np.array([max(view.tenants.get(user).weight, 1e-9) for user in by_user]),
            demand=np.array(
                [ordered_sum(job.gpus for job in own) for own in by_user.values()], float
            ),
            speed=speed,
        )

    def _fastest_first(self, view: View, jobs: Sequence[Job]) -> list[str]:
        """GPU types by their mean speed."""
        total = dict.fromkeys(view.up_by_type, 0.0)
        for job in jobs:
            for kind in self.types.preferred(job, view):
                total[kind] += job.speed_on(kind)
        return sorted(total, key=lambda kind: -total[kind])

    def _queues(
        self, view: View, jobs: Sequence[Job], kind: str
    ) -> dict[str, list[tuple[int, float]]]:
        """Each user's jobs that can run on a type, in their order."""
        queues: dict[str, list[Job]] = {}
        for job in jobs:
            if kind in self.types.preferred(job, view):
                queues.setdefault(job.tenant, []).append(job)
        for own in queues.values():
            own.sort(key=lambda job: self._turn(job, stays=_stays(job, kind, view)))
        return {user: [(job.index, job.gpus) for job in own] for user, own in queues.items()}

    def _turn(self, job: Job, *, stays: bool = False) -> tuple[int, bool, int]:
        """Whole quanta received; then those that can stay where they are; then by arrival."""
        stride = self.state.jobs.get(job.tenant)
        received = stride.passes.get(job.index, 0.0) if stride is not None else 0.0
        return (int(received / self.round_s + 1e-9), not stays, job.index)


def _stays(job: Job, kind: str, view: View) -> bool:
    return job.running and held_type(job, view.topology) == kind
