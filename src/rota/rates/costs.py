"""What starting, stopping and moving jobs costs, as named presets.

Published simulators charge very different costs, so that their numbers cannot be compared: every
result states the cost model it was made with (`describe`). A preset is chosen by name, and its
parameters can be changed: `pollux30:start_s=20`. A YAML file holds the same (`load_costs`).

All presets understand `checkpoint_s`: running jobs save their progress each time they have run for
so many seconds, and a job whose node dies loses what it did since. 0 means that nothing is ever lost,
inf that only stopping saves it. Stopping a job in order saves all its progress unless the preset says
otherwise.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import msgspec

from rota.core.allocation import Allocation
from rota.core.errors import OptionError
from rota.core.jobs import RUNNING, STARTING, Job
from rota.core.policy import Params
from rota.core.ports import FREE, Costs, TransitionCost
from rota.core.registry import COSTS, load, parse_params, split

Amount = Annotated[float, msgspec.Meta(ge=0)]
Factor = Annotated[float, msgspec.Meta(gt=0)]


class CostParams(Params, frozen=True):
    """What all presets understand."""

    checkpoint_s: Amount = 0.0


P = TypeVar("P", bound=CostParams)


class CostModel(Generic[P]):
    """Common part: parameters, and what a failure destroys.

    `free` promises that nothing ever costs anything, `instant_stop` that stopping takes no time.
    """

    name: str = ""
    source: ClassVar[str] = ""
    Parameters: ClassVar[type[CostParams]] = CostParams

    def __init__(self, params: P | None = None) -> None:
        self.params: P = params if params is not None else self.Parameters()  # type: ignore[assignment]  # the subclass pairs P with Parameters
        self.free = False
        self.instant_stop = True

    def transition(self, job: Job, new: Allocation | None, now_s: float) -> TransitionCost:
        """From what the job holds (nothing when it waits) to `new` (None: stop)."""
        raise NotImplementedError

    def failure_loss(self, job: Job, now_s: float) -> float:
        """The work since the last checkpoint; the job's own start was one."""
        every_s = self.params.checkpoint_s
        if not every_s or job.phase != RUNNING:
            return 0.0
        since_checkpoint_s = job.executed_s(now_s) % every_s
        return min(since_checkpoint_s, now_s - job.start_s) * job.rate

    def describe(self) -> Mapping[str, Any]:
        """Name, parameters and source."""
        return {"name": self.name, **msgspec.structs.asdict(self.params), "source": self.source}


def starts(job: Job) -> bool:
    """A cluster asks about a job that it launches (and not about one that runs and shall change)."""
    return job.phase == STARTING and job.start_s >= job.since_s or job.phase == STARTING


def starts_first(job: Job) -> bool:
    """The job never held anything before."""
    return job.start_s == job.first_start_s
