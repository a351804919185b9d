"""Quasi-shortest service first: the scheduling service of Helios (Hu et al., SC 2021).

Waiting jobs are served by their expected service, the estimated duration times the GPUs asked;
running jobs are never disturbed. The estimate comes from

* `estimate=oracle`: the true duration (with `--estimate-error`: a noisy one),
* `estimate=user`: what the user wrote; jobs without an estimate come last,
* `estimate=history`: the rolling mean of finished jobs of the same user, name and GPUs; if there
  are none of the same user and GPUs, then of the same GPUs, then of all; `prior_s` before any job
  has finished. It is made once, when the job enters the queue, as in Helios.

The first job that does not fit blocks all behind it that want its nodes, as in Helios; `strict=no`
passes it.

Departs from the paper: the rolling estimate is not blended with a gradient-boosted model, and names
are compared for equality, not for likeness.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.policy import Params, PriorityPolicy
from rota.core.state import State, from_rows
from rota.models.rolling import Group, alike, roll, rolling_mean

KNOWLEDGE = {
    "oracle": Knowledge.REMAINING_WORK,
    "user": Knowledge.USER_ESTIMATE,
    "history": Knowledge.HISTORY,
}


class QssfParams(Params, frozen=True):
    """Source of estimates, jobs that a rolling mean remembers, whether the head blocks."""

    estimate: Literal["oracle", "user", "history"] = "oracle"
    window: Annotated[int, msgspec.Meta(ge=1)] = 50
    prior_s: Annotated[float, msgspec.Meta(gt=0)] = 3600.0
    strict: bool = True


class QssfState(State):
    """What was learnt, and the estimates given to jobs that have not finished."""

    seen: dict[Group, tuple[int, float]] = {}  # group -> (jobs, sum of durations)
    given: dict[int, float] = {}  # job index -> estimate from history

    @classmethod
    def migrate(cls, version: int, fields: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG003 - there is one
        """From version 0."""
        return {
            "seen": {tuple(group): sums for group, *sums in fields["seen"]},
            "given": from_rows(fields["given"]),
        }


class Qssf(PriorityPolicy[QssfParams]):
    """Serve the job that is expected to need the least GPU-time."""

    name = "qssf"
    paper = (
        "Hu et al., Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU "
        "Datacenters, SC 2021"
    )
    knowledge = Knowledge.REMAINING_WORK | Knowledge.USER_ESTIMATE | Knowledge.HISTORY
    Parameters = QssfParams
    coupled = "with estimate=history, estimates are learnt from all jobs that finish"
    preemptive = False

    def __init__(self, params: QssfParams | None = None) -> None:
        super().__init__(params)
        self.strict = self.params.strict
        self.knowledge = KNOWLEDGE[self.params.estimate]
        if self.params.estimate != "history":
            self.coupled = ""
        self.state: QssfState = QssfState()

    def key(self, job: Job, now_s: float) -> float:  # noqa: ARG002 - constant
        """Expected GPU-seconds; none for a job without GPUs."""
        source = self.params.estimate
        if source == "oracle":
            duration_s = job.duration_s()
        elif source == "user":
            duration_s = job.estimate_s()
        else:
            duration_s = self._remembered(job)
        return duration_s * job.gpus if job.gpus else 0.0

    def _remembered(self, job: Job) -> float:
        """The estimate that it was given when it was first asked for."""
        given = self.state.given.get(job.index)
        if given is None:
            known_s = rolling_mean(self.state.seen, _groups(job))
            given = self.params.prior_s if known_s is None else known_s
            self.state.given[job.index] = given
        return given

    def finished(self, job: Job, now_s: float) -> None:  # noqa: ARG002 - durations do not age
        """Learn its duration: a plain mean at first, later each counts 1 / `window`."""
        if self.params.estimate != "history":
            return
        self.state.given.pop(job.index, None)
        roll(self.state.seen, _groups(job), job.run_s, self.params.window)


def _groups(job: Job) -> tuple[Group, ...]:
    return alike(job.spec.user, job.spec.name, job.gpus)
