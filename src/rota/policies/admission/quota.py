"""Admission by quota: what a tenant's jobs ask for together stays within what it may use.

A job enters when for its tenant and every ancestor the GPUs asked by the jobs inside, and by
itself, are within the bound: the declared `limit`, or else the declared `quota`, or else (for the
job's own tenant only) `default`. Others are held in the order of their submission, and no job
passes a held one of the same tenant; tenants do not wait for each other, except for room under a
common ancestor.

Demand counts from the entry into the queue to the end of a job, so nobody is ever preempted to
enforce a quota, and what a tenant does not use stays idle unless its `limit` lets others borrow.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec

from rota.core.admission import Admission
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.policy import Params
from rota.core.reasons import Reason
from rota.core.state import State, from_rows
from rota.core.view import View

EPSILON = 1e-9  # sums of fractions of GPUs are rounded


class QuotaParams(Params, frozen=True):
    """GPUs for a tenant that declares neither limit nor quota."""

    default: Annotated[float, msgspec.Meta(ge=0)] = INF


class QuotaState(State):
    """Charges and held jobs."""

    demand: dict[str, float] = {}  # tenant -> GPUs asked inside, its descendants' too
    charged: dict[int, tuple[str, ...]] = {}  # job index -> tenants charged
    held: dict[str, dict[int, None]] = {}  # tenant -> indices of held jobs, in order

    @classmethod
    def migrate(cls, version: int, fields: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG003 - there is one
        """From version 0."""
        return {
            "demand": from_rows(fields["demand"]),
            "charged": from_rows(fields["charged"]),
            "held": {tenant: dict.fromkeys(jobs) for tenant, jobs in fields["held"]},
        }


class Quota(Admission):
    """Keep every tenant's demand within its bound."""

    name = "quota"
    Parameters = QuotaParams

    def __init__(self, params: QuotaParams | None = None) -> None:
        super().__init__(params)
        self.state: QuotaState = QuotaState()
        self._payers: tuple[str, ...] = ()  # of the job considered last

    def refuse(self, job: Job, view: View) -> str | None:
        """A job that alone exceeds a bound can never enter."""
        for name, bound in self._bounds(job, view):
            if job.gpus > bound + EPSILON:
                return (
                    f"asks for {job.gpus:g} GPUs, but tenant {name!r} may use {bound:g}: ask for "
                    "less or raise its quota or limit"
                )
        return None

    def consider(self, job: Job, view: View) -> Reason | None:
        """Is it its turn, and is there room at every level?"""
        bounds = list(self._bounds(job, view))
        if self._first(job, view) == job.index and all(
            self.state.demand.get(name, 0.0) + job.gpus <= bound + EPSILON for name, bound in bounds
        ):
            self._payers = tuple(name for name, _ in bounds)
            return None
        self.state.held.setdefault(job.tenant, {})[job.index] = None
        return Reason.QUOTA

    def why(self, job: Job, view: View) -> str:
        """The bound that is reached; empty: it waits for its turn."""
        for name, bound in self._bounds(job, view):
            if self.state.demand.get(name, 0.0) + job.gpus > bound + EPSILON:
                return f"tenant {name!r} may use {bound:g} GPUs"
        return ""

    def _bounds(self, job: Job, view: View) -> Iterator[tuple[str, float]]:
        """The job's tenant and its ancestors, each with what it may use."""
        for tenant in view.tenants.path(job.tenant):
            bound = tenant.limit if tenant.limit < INF else tenant.quota
            if not bound and tenant.limit == INF:
                bound = self.params.default if tenant.name == job.tenant else INF
            yield tenant.name, bound

    def _first(self, job: Job, view: View) -> int:
        """Who is next of its tenant; held jobs that were cancelled are gone from the view."""
        held = self.state.held.get(job.tenant, {})
        while held:
            first = next(iter(held))
            if first in view.active:
                return first
            del held[first]
        return job.index

    def entered(self, job: Job) -> None:
        """Charge it to its tenant and all ancestors."""
        self.state.held.get(job.tenant, {}).pop(job.index, None)
        self.state.charged[job.index] = self._payers
        for name in self._payers:
            self.state.demand[name] = self.state.demand.get(name, 0.0) + job.gpus

    def adopted(self, job: Job, view: View) -> None:
        """Charge it to whom it would have been charged, within the bounds or not."""
        self._payers = tuple(name for name, _ in self._bounds(job, view))
        self.entered(job)

    def dropped(self, job: Job) -> None:
        """It no longer holds others back."""
        self.state.held.get(job.tenant, {}).pop(job.index, None)

    def left(self, job: Job) -> None:
        """Give back what it was charged."""
        for name in self.state.charged.pop(job.index, ()):
            self.state.demand[name] -= job.gpus
