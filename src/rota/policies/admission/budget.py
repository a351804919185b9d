"""Admission by budget: a tenant's jobs get so many GPU-hours, and no more.

A job that enters commits what it may use at most: its GPUs (its most, if it is elastic) times its
time limit. It enters when for its tenant and every ancestor with a budget that, what others inside
have committed, and what was spent so far is within the budget; otherwise it is held. When a job is
over, what it has really used is spent, and the rest of its commitment is free again. So jobs with
time limits never exceed a budget. A job without one commits all that is left: it enters alone, and
what it uses beyond the budget is the most by which a budget is ever exceeded.

*By month* (`per=month`): what was spent is forgotten when a month of the calendar (UTC) ends, and
what jobs inside have used by then is no commitment any more. What they may still use counts for the
new month, so no month exceeds its budget. `start` is the date of second 0; a daemon knows its own.

*Payers* (`by`): queues with their ancestors, users, or groups (projects).

GPU-hours are those of progress, as in the column `service_gpu_s` of `jobs.csv`.
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Literal

from rota.core.admission import Admission, BudgetUse
from rota.core.errors import OptionError
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.policy import Params
from rota.core.reasons import Reason
from rota.core.state import State
from rota.core.view import View

HOUR_S = 3_600.0
EPSILON = 1e-6  # GPU-seconds: sums are rounded


class BudgetParams(Params, frozen=True):
    """GPU-hours of tenants: `vision:100/speech:50`; of all others each `default`.

    In all (`per` is `ever`) or in each `month`; of queues, users or groups (`by`). `start`: the
    date of second 0 (UTC), such as 2026-03-01; without, it is the beginning of a month.
    """

    of: tuple[str, ...] = ()
    default: float = INF
    per: Literal["ever", "month"] = "ever"
    by: Literal["queue", "user", "group"] = "queue"
    start: str = ""


class BudgetState(State):
    """What was spent, and what jobs inside may still use."""

    spent_gpu_s: dict[str, float] = {}
    committed_gpu_s: dict[str, float] = {}
    inside: dict[int, dict[str, float]] = {}  # job index -> what it committed, by tenant
    until_s: float = 0.0  # end of the month that is counted; 0: none yet
    counted_gpu_s: dict[int, float] = {}  # what jobs inside used in months before
    idle: bool = False  # in the month before nothing was used: the next one changes nothing


class Budget(Admission):
    """Let a tenant's jobs use so many GPU-hours."""

    name = "budget"
    Parameters = BudgetParams

    def __init__(self, params: BudgetParams | None = None) -> None:
        super().__init__(params)
        self.state: BudgetState = BudgetState()
        self._commits: dict[str, float] = {}  # of the job considered last
        self.timed = self.params.per == "month"
        _ = self._budgets, self._start  # what is wrong is said now

    @cached_property
    def _budgets(self) -> Mapping[str, float]:
        found = {}
        for text in self.params.of:
            name, colon, hours = text.rpartition(":")
            try:
                amount = float(hours)
            except ValueError:
                amount = -1.0
            if not colon or not amount >= 0:
                raise OptionError(
                    f"admission 'budget': of={text}: write TENANT:GPU_HOURS, e.g. vision:100"
                )
            if name in found:
                raise OptionError(f"admission 'budget': of has {name!r} twice: give it once")
            found[name] = amount * HOUR_S
        return found

    @cached_property
    def _start(self) -> datetime:
        try:
            found = datetime.fromisoformat(self.params.start or "1970-01-01")
        except ValueError as error:
            raise OptionError(
                f"admission 'budget': start={self.params.start}: write a date, e.g. 2026-03-01"
            ) from error
        return found if found.tzinfo else found.replace(tzinfo=UTC)

    def queues(self) -> Collection[str]:
        """Those with a budget."""
        return self._budgets if self.params.by == "queue" else ()

    def _payers(self, job: Job, view: View) -> Iterator[tuple[str, float]]:
        """Who has a budget for it, in GPU-seconds: the tenant and its ancestors, or one other."""
        if self.params.by != "queue":
            name = job.spec.user if self.params.by == "user" else job.spec.group
            budget = self._budgets.get(name, self.params.default * HOUR_S)
            if budget < INF:
                yield name, budget
            return
        for tenant in view.tenants.path(job.tenant):
            budget = self._budgets.get(tenant.name)
            if budget is None and tenant.name == job.tenant:
                budget = self.params.default * HOUR_S
            if budget is not None and budget < INF:
                yield tenant.name, budget

    def _left(self, name: str, budget: float) -> float:
        state = self.state
        used = state.spent_gpu_s.get(name, 0.0) + state.committed_gpu_s.get(name, 0.0)
        return budget - used

    def refuse(self, job: Job, view: View) -> str | None:
        """A job that may use more than a whole budget can never enter."""
        most = _most(job)
        for name, budget in self._payers(job, view):
            never = self.timed and budget <= EPSILON
            if never or (most < INF and most > budget + EPSILON):
                return (
                    f"may use {'any number of' if most == INF else f'{most / HOUR_S:g}'} "
                    f"GPU-hours, but {self._of()} {name!r} has {budget / HOUR_S:g} in "
                    f"{'a month' if self.timed else 'all'}: ask for less, or for a shorter time "
                    "limit"
                )
        return None

    def _of(self) -> str:
        return "tenant" if self.params.by == "queue" else self.params.by

    # --- months -------------------------------------------------------------------------------

    def tick(self, view: View) -> bool:
        """Has a month ended? Then another budget begins."""
        state = self.state
        if view.now_s < state.until_s:
            return False
        ended = state.until_s
        state.until_s = self._month_end_s(view.now_s)
        if not ended:
            return False
        state.idle = not any(state.spent_gpu_s.values())
        state.spent_gpu_s = {}
        for index, commits in state.inside.items():
            job = view.everyone[index]
            used = job.attained_gpu_s(ended)
            done = used - state.counted_gpu_s.get(index, 0.0)
            state.counted_gpu_s[index] = used
            state.idle &= not done
            for name in commits:
                commits[name] = max(commits[name] - done, 0.0) if _most(job) < INF else 0.0
        self._sum_up()
        for index, commits in state.inside.items():
            job = view.everyone[index]
            if _most(job) == INF:  # it may need all that the others leave
                commits.update({n: max(self._left(n, b), 0.0) for n, b in self._payers(job, view)})
        self._sum_up()
        return True

    def _sum_up(self) -> None:
        sums: dict[str, float] = {}
        for commits in self.state.inside.values():
            for name, amount in commits.items():
                sums[name] = sums.get(name, 0.0) + amount
        self.state.committed_gpu_s = sums

    def _month_end_s(self, now_s: float) -> float:
        now = self._start + timedelta(seconds=now_s)
        first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        following = (first + timedelta(days=32)).replace(day=1)
        return (following - self._start).total_seconds()

    def next_s(self, view: View) -> float:  # noqa: ARG002 - as declared
        """The end of the month, if anything was or may be used in it."""
        state = self.state
        at_work = bool(state.inside or any(state.spent_gpu_s.values()))
        return state.until_s if at_work and not state.idle else INF

    # --- jobs ---------------------------------------------------------------------------------

    def consider(self, job: Job, view: View) -> Reason | None:
        """Is as much left at every level?"""
        most = _most(job)
        commits = {}
        for name, budget in self._payers(job, view):
            left = self._left(name, budget)
            if left <= EPSILON or (most < INF and most > left + EPSILON):
                return Reason.QUOTA
            if most == INF and self.state.committed_gpu_s.get(name, 0.0) > EPSILON:
                return Reason.QUOTA  # it may need all: it enters alone
            commits[name] = min(most, left)
        self._commits = commits
        return None

    def why(self, job: Job, view: View) -> str:
        """The budget that is used up."""
        most = _most(job)
        for name, budget in self._payers(job, view):
            left = self._left(name, budget)
            spent = self.state.spent_gpu_s.get(name, 0.0)
            if left <= EPSILON or most > left + EPSILON:
                asks = "without a time limit it may need all" if most == INF else (
                    f"it may need {most / HOUR_S:g}"
                )  # fmt: skip
                return (
                    f"of the budget of {name!r}, {budget / HOUR_S:g} GPU-hours"
                    f"{self._period()}, "
                    f"{spent / HOUR_S:g} are spent and {max(left, 0.0) / HOUR_S:g} are neither "
                    f"spent nor committed; {asks}"
                )
        return ""

    def budgets(self, view: View, now_s: float) -> list[BudgetUse]:
        """Of everybody who is named, or has used something."""
        state = self.state
        used = dict.fromkeys(self._budgets, 0.0) | state.spent_gpu_s
        for index, commits in state.inside.items():
            job = view.everyone[index]
            done = job.attained_gpu_s(now_s) - state.counted_gpu_s.get(index, 0.0)
            for name in commits:
                used[name] = used.get(name, 0.0) + done
        until_s = state.until_s if self.timed and state.until_s else INF
        found = (
            BudgetUse(
                self.params.by, name, amount, self._budgets.get(name, self.params.default * HOUR_S),
                until_s,
            )
            for name, amount in used.items()
        )  # fmt: skip
        return [each for each in found if EPSILON < each.budget_gpu_s < INF]

    def _period(self) -> str:
        if not self.timed or not self.state.until_s:
            return ""
        end = self._start + timedelta(seconds=self.state.until_s)
        return f" until {end:%Y-%m-%d}"

    def entered(self, job: Job) -> None:
        """It commits what it may use."""
        self.state.idle = False
        self.state.inside[job.index] = self._commits
        for name, amount in self._commits.items():
            committed = self.state.committed_gpu_s
            committed[name] = committed.get(name, 0.0) + amount

    def adopted(self, job: Job, view: View) -> None:
        """It commits what it may use, within the budget or not."""
        most = _most(job)
        self._commits = {
            name: most if most < INF else max(self._left(name, budget), 0.0)
            for name, budget in self._payers(job, view)
        }
        self.entered(job)

    def left(self, job: Job) -> None:
        """What it has used is spent."""
        self.state.idle = False
        used = job.attained_gpu_s(job.end_s) - self.state.counted_gpu_s.pop(job.index, 0.0)
        for name, amount in self.state.inside.pop(job.index, {}).items():
            self.state.committed_gpu_s[name] -= amount
            spent = self.state.spent_gpu_s
            spent[name] = spent.get(name, 0.0) + used


def _most(job: Job) -> float:
    """GPU-seconds that it may use; inf: nobody knows."""
    return job.max_gpus * job.spec.limit_s if job.spec.limit_s < INF else INF
