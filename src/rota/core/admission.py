"""Who may enter the queue at all."""

from collections.abc import Collection, Sequence
from typing import Any, ClassVar, NamedTuple

from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.policy import Params
from rota.core.reasons import Reason
from rota.core.state import Stateful
from rota.core.view import View


class BudgetUse(NamedTuple):
    """What a payer (a queue, a user, a group) has used of a budget, with what runs now."""

    of: str  # which kind of payer
    name: str
    used_gpu_s: float
    budget_gpu_s: float
    until_s: float = INF  # when it begins anew

    @property
    def share(self) -> float:
        """1: all of it is used."""
        return self.used_gpu_s / self.budget_gpu_s


class Admission(Stateful):
    """Asked once per new job, and again for held jobs in their order whenever a job ended.

    `entered` and `left` keep count: a job that entered the queue leaves it when it has finished.
    A held job that does not wait any more is `dropped`.
    """

    role = "admission"
    Parameters: ClassVar[type[Params]] = Params
    trivial: ClassVar[bool] = False
    """Accepts everything and counts nothing: the engine need not ask."""
    timed: bool = False
    """Time alone may let held jobs in: see `tick` and `next_s`."""

    def __init__(self, params: Params | None = None) -> None:
        self.params: Any = params if params is not None else self.Parameters()

    def consider(self, job: Job, view: View) -> Reason | None:
        """None lets it in; a reason holds it back for now."""
        raise NotImplementedError

    def refuse(self, job: Job, view: View) -> str | None:  # noqa: ARG002 - part of the interface
        """A message if this job can never be let in."""
        return None

    def why(self, job: Job, view: View) -> str:  # noqa: ARG002 - part of the interface
        """What a job that it holds waits for, in words; empty: the reason says it all."""
        return ""

    def queues(self) -> Collection[str]:
        """Those that its parameters name: an unknown one is a typing error."""
        return ()

    def budgets(self, view: View, now_s: float) -> Sequence[BudgetUse]:  # noqa: ARG002 - part of the interface
        """What was used of budgets by now, if it has any."""
        return ()

    def tick(self, view: View) -> bool:  # noqa: ARG002 - part of the interface
        """Told the time before anything else, if it is `timed`: are held jobs to be asked again?"""
        return False

    def next_s(self, view: View) -> float:  # noqa: ARG002 - part of the interface
        """When it wants to be told the time, if nothing happens before."""
        return INF

    def entered(self, job: Job) -> None:
        """It is in the queue."""

    def adopted(self, job: Job, view: View) -> None:  # noqa: ARG002 - for who needs it
        """It is on the cluster already: a former scheduler let it in, nobody asked `consider`."""
        self.entered(job)

    def dropped(self, job: Job) -> None:
        """A job that it held was cancelled, or is kept out on request: it is not asked for now."""

    def left(self, job: Job) -> None:
        """It is over."""
