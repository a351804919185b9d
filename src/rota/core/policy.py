"""What a policy is: parameters as data, declared knowledge, one of three doors into the engine."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from rota.core.changes import ON_EVERY_EVENT, Wake
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.plan import Plan
from rota.core.state import Stateful
from rota.core.topology import Topology
from rota.core.view import View


class Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of a policy's parameters: typed fields with defaults, checked on creation."""

    files: ClassVar[Mapping[str, Callable[[str], Mapping[str, Any]]]] = {}
    """Options that name a file: what its text says, as values of fields.

    The file is read where the policy is made. What is given beside it wins; lists are joined.
    """


P = TypeVar("P", bound=Params)


class Policy(Stateful, Generic[P]):
    """Common part. The docstring of a policy's module states paper, idea and departures."""

    role = "policy"
    paper: ClassVar[str] = ""
    knowledge: Knowledge = Knowledge.NOTHING
    Parameters: ClassVar[type[Params]] = Params
    coupled: str = ""
    """Why jobs that could never use the same node still depend on each other; empty: they do not.

    Shared quotas or shares, what is learnt from others, random draws: a policy without any of these
    serves each partition of a cluster as if it were alone.
    """
    preemptive: bool | None = None
    """Whether it stops jobs in favour of others; None: it depends."""
    elastic: bool = False
    """It chooses the sizes of elastic jobs: one whose smallest size fits the cluster may come."""
    in_order: ClassVar[bool] = False
    """It serves jobs in the order of arrival: none is overtaken by one that comes later."""

    def __init__(self, params: P | None = None) -> None:
        self.params: P = params if params is not None else self.Parameters()  # type: ignore[assignment]  # the subclass pairs P with Parameters

    def models(self) -> Mapping[str, Any]:
        """What it predicts by, each by what it predicts; `str` of a model says all of it."""
        return {}


class PriorityPolicy(Policy[P]):
    """The fast door: a key per job; the shared packer fills the cluster in key order.

    Smaller keys first, ties in order of submission. The promises that make it fast:
    a waiting job's key is constant; a running job's key changes at the constant `slope` (<= 0: it
    never gets worse by itself) except for jumps at times that `next_change` tells; keys are floats
    if any slope is not 0, else anything comparable. What cannot promise this uses `DecidePolicy`.
    """

    preemptive: bool = True
    """A waiting job may displace running jobs with larger keys."""
    strict: bool = False
    """No job passes the first one that does not fit."""
    state_key: ClassVar[bool] = False
    """The key depends on whether the job runs or has run: asked again after starts and stops."""
    ages: bool = False
    """Keys of waiting jobs jump too: `next_change` is asked for them as well."""
    revision: int = 0
    """Change it to have all keys asked again (a learnt distribution was updated)."""

    def key(self, job: Job, now_s: float) -> Any:
        """The job's rank now; smaller is served first. Asked twice at one time, it is the same."""
        raise NotImplementedError

    def slope(self, job: Job) -> float:  # noqa: ARG002 - part of the interface
        """Change of the key per second while the job makes progress."""
        return 0.0

    def next_change(self, job: Job, now_s: float) -> float:  # noqa: ARG002
        """When the key of this job jumps if it goes on running (or waiting: `ages`); inf: never."""
        return INF

    def finished(self, job: Job, now_s: float) -> None:
        """A job has ended; policies that learn remember it (needs Knowledge.HISTORY)."""


class DecidePolicy(Policy[P]):
    """The general door: the whole desired state at each decision."""

    wake: Wake = ON_EVERY_EVENT
    plan_type: ClassVar[type[Plan]] = Plan
    """The plan that it writes: `Plan`, or one with more capabilities (`rota.core.plan`)."""

    def decide(self, view: View) -> Plan:
        """Fill `view.plan()`: placed jobs run, everything else waits."""
        raise NotImplementedError

    def never(self, job: Job, topology: Topology) -> str | None:  # noqa: ARG002 - part of the interface
        """Why it could not place this job even if nobody else were there; None: it could.

        Asked when a job comes and the placement has no objection: for policies that name GPUs
        themselves and know fewer places than it does.
        """
        return None

    divides: ClassVar[bool] = False
    """It divides GPUs into MIG instances itself: jobs may ask for parts of such GPUs."""

    keeps_unnamed: bool = False
    """Plans are changes: running jobs that they do not name go on, and nobody leaves for another
    job unless the plan says so (`stop`, `displace`)."""


class IncrementalPolicy(DecidePolicy[P]):
    """The third door: it hears what changes, and its plans say only what shall change.

    Between decisions it keeps what it needs (queues, sums, who ends when) from what it hears, so
    that a decision costs what has changed, not what there is. It hears of all changes in the order
    in which they happen, those of its own plans after they were carried out; never from within
    `decide`. What it keeps in this way is not part of its state: after a restart, or when it takes
    over from another policy, it hears of all jobs again, those that run first (`submitted` and
    `started`), each in order of arrival.
    """

    keeps_unnamed = True

    def cluster_changed(self, view: View) -> None:
        """Before anything else, and whenever nodes have come, gone or changed."""

    def submitted(self, job: Job, now_s: float) -> None:
        """It waits: it is new, or it was stopped and has returned to the queue."""

    def started(self, job: Job, now_s: float) -> None:
        """It has left the queue and holds GPUs."""

    def changed(self, job: Job, now_s: float) -> None:
        """It runs with other GPUs or at another speed, or it has begun to make progress."""

    def ended(self, job: Job, now_s: float) -> None:
        """It waits or runs no more: it has finished or was stopped, or it left the queue."""


class ComposingPolicy(Policy[P]):
    """A policy of policies: it makes the scheduler itself, and may hand over to another one."""

    def scheduler(
        self, placement: Any, admission: Any, *, frictionless: bool = False, patient: bool = False
    ) -> Any:
        """The scheduler (`rota.core.ports.Successor`) on a placement and an admission."""
        raise NotImplementedError


class RoundPolicy(Policy[P]):
    """A policy that plans in rounds; derive from one of the two kinds in `rota.policies.rounds`.

    It says who should run, or for which share of time; the framework there makes a policy of it
    that decides.
    """

    knowledge = Knowledge.SPEEDS

    @property
    def round_s(self) -> float:
        """How long a round takes."""
        raise NotImplementedError
