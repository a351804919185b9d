"""Admission by budget: a tenant's jobs get so many GPU-hours, and no more.

A job that enters commits what it may use at most: its GPUs (its most, if it is elastic) times its
time limit. It enters when for its tenant and every ancestor with a budget that, what others inside
have committed, and what was spent so far is within the budget; otherwise it is held. When a job is
over, what it has really used is spent, and the rest of its commitment is free again. So jobs with
time limits never exceed a budget. A job without one commits all that is left: it enters alone, and
what it uses beyond the budget is the most by which a budget is ever exceeded.

GPU-hours are those of progress, as in the column `service_gpu_s` of `jobs.csv`.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property

from rota.core.admission import Admission
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
    """GPU-hours of tenants: `vision:100/speech:50`; of all others each `default`."""

    of: tuple[str, ...] = ()
    default: float = INF


class BudgetState(State):
    """What was spent, and what jobs inside may still use."""

    spent_gpu_s: dict[str, float] = {}
    committed_gpu_s: dict[str, float] = {}
    inside: dict[int, dict[str, float]] = {}  # job index -> what it committed, by tenant


class Budget(Admission):
    """Let a tenant's jobs use so many GPU-hours."""

    name = "budget"
    Parameters = BudgetParams

    def __init__(self, params: BudgetParams | None = None) -> None:
        super().__init__(params)
        self.state: BudgetState = BudgetState()
        self._commits: dict[str, float] = {}  # of the job considered last
        _ = self._budgets  # what is wrong is said now

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
            found[name] = amount * HOUR_S
        return found

    def _payers(self, job: Job, view: View) -> Iterator[tuple[str, float]]:
        """The tenant and its ancestors that have a budget, in GPU-seconds."""
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
            if most < INF and most > budget + EPSILON:
                return (
                    f"may use {most / HOUR_S:g} GPU-hours, but tenant {name!r} has "
                    f"{budget / HOUR_S:g} in all: ask for less, or for a shorter time limit"
                )
        return None

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
                    f"of the budget of {name!r}, {budget / HOUR_S:g} GPU-hours, "
                    f"{spent / HOUR_S:g} are spent and {max(left, 0.0) / HOUR_S:g} are neither "
                    f"spent nor committed; {asks}"
                )
        return ""

    def entered(self, job: Job) -> None:
        """It commits what it may use."""
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
        for name, amount in self.state.inside.pop(job.index, {}).items():
            self.state.committed_gpu_s[name] -= amount
            spent = self.state.spent_gpu_s
            spent[name] = spent.get(name, 0.0) + job.attained_gpu_s(job.end_s)


def _most(job: Job) -> float:
    """GPU-seconds that it may use; inf: nobody knows."""
    return job.max_gpus * job.spec.limit_s if job.spec.limit_s < INF else INF
