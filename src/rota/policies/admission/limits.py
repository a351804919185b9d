"""Admission by limits: what one user and one queue may have at work at a time.

A job enters when its user (`user_jobs`, `user_gpus`) and its queue (`queue_jobs`, and in GPUs the
declared `limit` of the queue and of those above it, else `queue_gpus`) have room for it. Others
are held. A job stands in line at the limit that it lacks room under: nobody passes an earlier one
there, and nobody else waits for it. A user who is at a limit holds up nobody but themselves.

What counts are jobs inside, in the queue or running, so that no policy can run more than that.
Nobody is preempted to enforce a limit: after a lower one was set, jobs end first.
"""

from bisect import insort
from collections.abc import Iterator
from typing import Annotated

import msgspec

from rota.core.admission import Admission
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.policy import Params
from rota.core.reasons import Reason
from rota.core.state import State
from rota.core.sums import ordered_sum
from rota.core.view import View

EPSILON = 1e-9  # sums of fractions of GPUs are rounded
USER, QUEUE = "user", "queue"

_Jobs = Annotated[float, msgspec.Meta(ge=1)]
_Gpus = Annotated[float, msgspec.Meta(gt=0)]


class LimitsParams(Params, frozen=True):
    """Jobs and GPUs of each user and of each queue; by default no limit."""

    user_jobs: _Jobs = INF
    user_gpus: _Gpus = INF
    queue_jobs: _Jobs = INF
    queue_gpus: _Gpus = INF


class LimitsState(State):
    """Who is inside, and who waits for what. Accounts are `user:NAME` and `queue:NAME`."""

    jobs: dict[str, int] = {}  # account -> jobs inside
    gpus: dict[str, float] = {}  # account -> GPUs that they ask for
    inside: dict[int, float] = {}  # job index -> GPUs that were counted for it
    lines: dict[str, list[int]] = {}  # account -> indices of jobs that wait for it, in order
    stands: dict[int, str] = {}  # held job -> the account that it waits for


class _Bound(msgspec.Struct, frozen=True):
    """One limit for a job: what there may be, and what there is."""

    account: str
    unit: str  # jobs or GPUs
    most: float
    used: float
    asked: float
    source: str  # where it is set

    @property
    def has_room(self) -> bool:
        return self.used + self.asked <= self.most + EPSILON

    def __str__(self) -> str:
        kind, _, name = self.account.partition(":")
        unit = self.unit[:-1] if self.most == 1 else self.unit
        return f"{kind} {name!r} may have {self.most:g} {unit} at work ({self.source})"


class Limits(Admission):
    """Keep what each user and each queue has at work within its limits."""

    name = "limits"
    Parameters = LimitsParams

    def __init__(self, params: LimitsParams | None = None) -> None:
        super().__init__(params)
        self.state: LimitsState = LimitsState()

    def refuse(self, job: Job, view: View) -> str | None:
        """A job that alone exceeds a limit can never enter."""
        for bound in self._bounds(job, view):
            if bound.asked > bound.most + EPSILON:
                return f"asks for {bound.asked:g} {bound.unit}, but {bound}: ask for less"
        return None

    def consider(self, job: Job, view: View) -> Reason | None:
        """Is there room under every limit, and is it its turn there?"""
        account = self.state.stands.get(job.index)
        if account is not None and self._first(account) != job.index:
            return Reason.QUOTA
        lacks = self._lacks(job, view)
        if lacks is None:
            return None
        if lacks.account != account:
            self._leave_line(job)
            insort(self.state.lines.setdefault(lacks.account, []), job.index)
            self.state.stands[job.index] = lacks.account
        return Reason.QUOTA

    def why(self, job: Job, view: View) -> str:
        """The limit that it waits for."""
        account = self.state.stands.get(job.index)
        bounds = [bound for bound in self._bounds(job, view) if bound.account == account]
        reached = [bound for bound in bounds if not bound.has_room]
        return str(next(iter(reached or bounds), ""))

    def entered(self, job: Job) -> None:
        """Count it for its user and its queue."""
        self._leave_line(job)
        self.state.inside[job.index] = job.gpus
        for account in _accounts(job):
            self.state.jobs[account] = self.state.jobs.get(account, 0) + 1
            self.state.gpus[account] = self.state.gpus.get(account, 0.0) + job.gpus

    def dropped(self, job: Job) -> None:
        """It no longer holds others back."""
        self._leave_line(job)

    def left(self, job: Job) -> None:
        """Count it no longer."""
        gpus = self.state.inside.pop(job.index, None)
        for account in _accounts(job) if gpus is not None else ():
            self.state.jobs[account] -= 1
            self.state.gpus[account] -= gpus or 0.0
            if not self.state.jobs[account]:  # and no rounding is left either
                del self.state.jobs[account], self.state.gpus[account]

    def _lacks(self, job: Job, view: View) -> _Bound | None:
        """The first limit that has no room for it, or at which others are first."""
        for bound in self._bounds(job, view):
            if not bound.has_room or self._first(bound.account) < job.index:
                return bound
        return None

    def _bounds(self, job: Job, view: View) -> Iterator[_Bound]:
        """All limits that there are for it."""
        params: LimitsParams = self.params
        jobs, gpus = self.state.jobs, self.state.gpus
        if job.spec.user:
            user = f"{USER}:{job.spec.user}"
            if params.user_jobs < INF:
                used = jobs.get(user, 0)
                yield _Bound(user, "jobs", params.user_jobs, used, 1, "limits: user_jobs")
            if params.user_gpus < INF:
                used_gpus = gpus.get(user, 0.0)
                yield _Bound(
                    user, "GPUs", params.user_gpus, used_gpus, job.gpus, "limits: user_gpus"
                )
        queue = f"{QUEUE}:{job.tenant}"
        if params.queue_jobs < INF:
            used = jobs.get(queue, 0)
            yield _Bound(queue, "jobs", params.queue_jobs, used, 1, "limits: queue_jobs")
        for tenant in view.tenants.path(job.tenant):
            most, source = tenant.limit, "its limit"
            if most == INF and tenant.name == job.tenant:
                most, source = params.queue_gpus, "limits: queue_gpus"
            if most < INF:
                inside = self._inside(tenant.name, view)
                yield _Bound(f"{QUEUE}:{tenant.name}", "GPUs", most, inside, job.gpus, source)

    def _inside(self, tenant: str, view: View) -> float:
        """GPUs that a queue and those below it have at work."""
        parts = {tenant} | {
            other.name
            for other in view.tenants
            if any(above.name == tenant for above in view.tenants.path(other.name))
        }
        return ordered_sum(self.state.gpus.get(f"{QUEUE}:{part}", 0.0) for part in sorted(parts))

    def _first(self, account: str) -> float:
        """Who is first in a line."""
        line = self.state.lines.get(account)
        return line[0] if line else INF

    def _leave_line(self, job: Job) -> None:
        account = self.state.stands.pop(job.index, None)
        if account is not None:
            line = self.state.lines[account]
            line.remove(job.index)
            if not line:
                del self.state.lines[account]


def _accounts(job: Job) -> tuple[str, ...]:
    """For whom a job counts."""
    queue = f"{QUEUE}:{job.tenant}"
    return (f"{USER}:{job.spec.user}", queue) if job.spec.user else (queue,)
