"""The changes that a scheduler wants, why, and when it wants to be asked again.

What a policy promises (sizes that jobs take, times that come, jobs that exist) is always checked
where the policy names it: a broken promise raises InvalidPlanError.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rota.core.allocation import Allocation
from rota.core.errors import InvalidPlanError
from rota.core.events import INF
from rota.core.jobs import HELD, WAITING, Job, Phase
from rota.core.reasons import Reason
from rota.core.wake import ON_EVERY_EVENT, Level, Wake

__all__ = [
    "ON_EVERY_EVENT", "ROUNDING", "Changes", "Level", "Wake", "check_amounts", "check_fates",
    "check_present", "check_size", "check_wake",
]  # fmt: skip

ROUNDING = 1e-9  # relative: by so much a time may be before the present


class Changes:
    """What the engine carries out: a job that is not named stays as it is.

    A job in `stops` and in `starts` is restarted: that is the caller's explicit wish (it counts as
    a preemption). A running job in `starts` alone gets the new allocation: it is moved or resized.
    """

    # Made at nearly every event. What is rare is therefore a class attribute until it is used, and
    # `unusual` says whether there is any of it.
    cancels: Sequence[tuple[Job, Job | None]] = ()
    rejects: Sequence[tuple[Job, str]] = ()
    holds: Sequence[tuple[Job, Reason]] = ()
    admits: Sequence[Job] = ()
    reasons: Sequence[tuple[Job, Reason]] = ()
    shared_reasons: Sequence[tuple[str, int, Reason]] = ()  # of jobs of a tenant and a shape
    levels: Sequence[Level] = ()
    successors: Sequence[tuple[Any, str]] = ()  # who decides from now on, and why
    unusual = False
    wake: Wake | None = None  # None: as before
    causes: dict[int, Job] | None = None  # index of a stopped job -> who displaced it
    whys: dict[int, str] | None = None  # index of a stopped job -> why, in words

    def __init__(self, version: int) -> None:
        self.version = version
        self.starts: list[tuple[Job, Allocation]] = []
        self.stops: list[Job] = []
        self.shape_reasons: list[tuple[int, int, Job | None]] = []

    def start(self, job: Job, allocation: Allocation) -> None:
        """Run this job on these slices (start, move or resize it)."""
        self.starts.append((job, allocation))

    def stop(self, job: Job, *, because_of: Job | None = None) -> None:
        """Take its resources away; it returns to the queue."""
        self.stops.append(job)
        if because_of is not None:
            if self.causes is None:
                self.causes = {}
            self.causes[job.index] = because_of

    def remark(self, job: Job, why: str, *, because_of: Job | None = None) -> None:
        """Say in the log why a job is stopped, and for whom."""
        if why:
            self.whys = self.whys or {}
            self.whys[job.index] = why
        if because_of is not None:
            self.causes = self.causes or {}
            self.causes[job.index] = because_of

    def cancel(self, jobs: Iterable[Job], *, because_of: Job | None = None) -> None:
        """End these jobs for good, e.g. the other trials of a search."""
        self._more("cancels").extend((job, because_of) for job in jobs)

    def reject(self, job: Job, message: str) -> None:
        """Refuse a job that has not started; the message reaches its owner."""
        if job.phase not in (WAITING, HELD):
            raise InvalidPlanError(
                f"job {job.id} is refused, but it is {_phase(job)}: only who waits can be refused; "
                "use `cancel` to end a job"
            )
        self._more("rejects").append((job, message))

    def hold(self, job: Job, reason: Reason) -> None:
        """Keep a new job outside the queue."""
        self._more("holds").append((job, reason))

    def withdraw_hold(self, job: Job) -> bool:
        """Take back a `hold`; False if there was none."""
        kept = [entry for entry in self.holds if entry[0] is not job]
        found = len(kept) < len(self.holds)
        self.holds = kept
        return found

    def admit(self, job: Job) -> None:
        """Record that a held job has entered the queue."""
        self._more("admits").append(job)

    def explain(self, job: Job, reason: Reason) -> None:
        """Say why a job waits. Only changes are recorded."""
        _check_reason(f"job {job.id}", reason)
        self._more("reasons").append((job, reason))

    def explain_alike(self, tenant: str, shape: int, reason: Reason) -> None:
        """The same of all jobs of a tenant and a shape (its number) that have no own reason."""
        _check_reason(f"jobs of tenant {tenant!r}", reason)
        self._more("shared_reasons").append((tenant, shape, reason))

    def watch(self, job: Job, quantity: str, value: float) -> None:
        """Ask me when this quantity of the job reaches the value."""
        if value != value:  # noqa: PLR0124 - nan is not equal to itself
            raise InvalidPlanError(
                f"job {job.id}: {quantity} is watched for {value}: give a number that it can reach"
            )
        self._more("levels").append(Level(job, quantity, value))

    def hand_over(self, scheduler: Any, why: str) -> None:
        """From now on another scheduler decides; why stands in the log."""
        self._more("successors").append((scheduler, why))

    def _more(self, name: str) -> list[Any]:
        """The list behind a rare attribute, made on first use."""
        self.unusual = True
        made = getattr(self, name)
        if not made:
            made = []
            setattr(self, name, made)
        found: list[Any] = made
        return found

    @property
    def empty(self) -> bool:
        """It changes nothing about any job."""
        return not (self.starts or self.stops or self.cancels or self.rejects)


# --- what a plan promises -------------------------------------------------------------------------


def _check_reason(whose: str, reason: Reason) -> None:
    if not isinstance(reason, Reason):
        raise InvalidPlanError(
            f"{whose}: {reason!r} is no reason: use a member of rota.core.reasons.Reason"
        )


def check_size(job: Job, gpus: float) -> None:
    """Raise if the job does not take so many GPUs."""
    request = job.shape.request
    if request.takes(gpus):
        return
    least, most = request.sizes
    if least == most:
        raise InvalidPlanError(
            f"job {job.id} asks for {job.gpus:g} GPUs and is given {gpus:g}: it is rigid, so give "
            f"it {job.gpus:g} or none (jobs with min_gpus and max_gpus take other sizes)"
        )
    if request.only:
        sizes = ", ".join(f"{size:g}" for size in sorted(request.only))
        raise InvalidPlanError(
            f"job {job.id} takes {sizes} GPUs and is given {gpus:g}: give it one of these, or none"
        )
    raise InvalidPlanError(
        f"job {job.id} takes {least:g} to {most:g} GPUs and is given {gpus:g}: give it a number of "
        "its tasks in this range, or none"
    )


def check_present(job: Job, active: Mapping[int, Job]) -> None:
    """Raise unless the job waits or runs in the view of this decision."""
    if active.get(job.index) is job and (job.phase == WAITING or job.running):
        return
    raise InvalidPlanError(
        f"job {job.id} cannot be placed: it is {_phase(job)}"
        f"{'' if active.get(job.index) is job else ' and not in the view'}: place jobs of "
        "`view.jobs` of this decision, not such as were kept from earlier ones"
    )


def check_fates(changes: Changes, placed: Iterable[int]) -> None:
    """Raise if a job that is placed (by index) ends too."""
    ended = {job.index: (job, "cancels") for job, _ in changes.cancels}
    ended.update((job.index, (job, "refuses")) for job, _ in changes.rejects)
    for index in placed:
        if index in ended:
            job, verb = ended[index]
            raise InvalidPlanError(f"the plan places job {job.id} and {verb} it: do one of the two")


def check_amounts(job: Job, amounts: Iterable[float]) -> None:
    """Raise if some of these CPUs or GiB of memory cannot be."""
    wrong = [amount for amount in amounts if not 0 <= amount < INF]
    if wrong:
        raise InvalidPlanError(
            f"job {job.id} is given {wrong[0]} of CPUs or memory: give 0 or more of each"
        )


def check_wake(time_s: float, now_s: float) -> None:
    """Raise if this is no time to wake at."""
    if not time_s >= now_s - ROUNDING * max(1.0, abs(now_s)):
        raise InvalidPlanError(
            f"it asks to be woken at {time_s} s, which is not after the present ({now_s:g} s): "
            "name a later time, or none"
        )


def _phase(job: Job) -> str:
    return Phase(job.phase).name.lower()
