"""Admission by load: Blox's (Agarwal et al., EuroSys 2024, section 5.1).

A job enters while the GPUs asked by all jobs inside (in the queue or running) and by itself are at
most `threshold` times the GPUs of the cluster that are up. Others are held in the order of their
submission, and nobody passes a held job. With a preemptive policy this trades responsiveness for
completion time: fewer jobs share the cluster. The default is the 1.2 of the paper's experiments.

A job that alone asks for more than the threshold enters when nobody else is inside: it would wait
for ever otherwise.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from rota.core.admission import Admission
from rota.core.jobs import Job
from rota.core.policy import Params
from rota.core.reasons import Reason
from rota.core.state import State, from_rows
from rota.core.view import View

EPSILON = 1e-9  # sums of fractions of GPUs are rounded


class LoadParams(Params, frozen=True):
    """Demand that is let in, as a multiple of the cluster."""

    threshold: Annotated[float, msgspec.Meta(gt=0)] = 1.2


class LoadState(State):
    """Who is inside and who is held."""

    inside: dict[int, float] = {}  # job index -> GPUs asked
    demand: float = 0.0
    held: dict[int, None] = {}  # job indices, in their order

    @classmethod
    def migrate(cls, version: int, fields: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG003 - there is one
        """From version 0."""
        return {
            **fields,
            "inside": from_rows(fields["inside"]),
            "held": dict.fromkeys(fields["held"]),
        }


class Load(Admission):
    """Keep the demand inside below a multiple of the cluster."""

    name = "load"
    Parameters = LoadParams

    def __init__(self, params: LoadParams | None = None) -> None:
        super().__init__(params)
        self.state: LoadState = LoadState()

    def consider(self, job: Job, view: View) -> Reason | None:
        """Is it its turn, and is there room?"""
        if self._first(job, view) == job.index:
            room = self.params.threshold * view.up_gpus
            if not self.state.inside or self.state.demand + job.gpus <= room + EPSILON:
                return None
        self.state.held[job.index] = None
        return Reason.ADMISSION

    def _first(self, job: Job, view: View) -> int:
        """Who is next; held jobs that were cancelled are gone from the view."""
        while self.state.held:
            first = next(iter(self.state.held))
            if first in view.active:
                return first
            del self.state.held[first]
        return job.index

    def entered(self, job: Job) -> None:
        """It is inside."""
        self.state.held.pop(job.index, None)
        self.state.inside[job.index] = job.gpus
        self.state.demand += job.gpus

    def dropped(self, job: Job) -> None:
        """It no longer holds others back."""
        self.state.held.pop(job.index, None)

    def left(self, job: Job) -> None:
        """It has finished."""
        gpus = self.state.inside.pop(job.index, 0.0)
        self.state.demand = self.state.demand - gpus if self.state.inside else 0.0
