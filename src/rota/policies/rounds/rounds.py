"""From what a policy says to a plan for each round."""

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.plan import Plan
from rota.core.policy import DecidePolicy, Params, RoundPolicy
from rota.core.state import State
from rota.core.view import View
from rota.policies.rounds.leases import Lease, Leases, Seat
from rota.policies.rounds.seats import RoundPlan, Seats

SLACK = 1e-9  # rounds

R = TypeVar("R", bound=RoundPolicy[Any])


class RoundState(State):
    """Where the present round stands, the seats since the last decision, the policy's state."""

    began_s: float = -INF
    ends_s: float = -INF
    held: dict[int, Seat] = {}
    leases: dict[int, Lease] = {}
    policy: dict[str, Any] = {}


class Rounds(DecidePolicy[Params], Generic[R]):
    """One round after the other; a subclass says what happens within them."""

    plan_type = RoundPlan
    any_type: ClassVar[bool] = False
    """See `Seats`."""

    def __init__(self, policy: R) -> None:
        super().__init__()
        self.name = policy.name  # type: ignore[misc]  # it stands for the policy that it drives
        self.knowledge, self.coupled = policy.knowledge, policy.coupled
        self.policy = policy
        self.state: RoundState = RoundState()
        self.leases = Leases(self.record)

    def decide(self, view: View) -> Plan:
        """Begin a round if the last one has ended, else give away what became free."""
        now_s, state, round_s = view.now_s, self.state, self.policy.round_s
        plan = view.plan(RoundPlan)
        over = now_s >= state.ends_s - SLACK * round_s
        self.update(view, over=over)
        if over:
            state.began_s = now_s
            state.ends_s = (int(now_s / round_s + SLACK) + 1) * round_s
        seats = Seats(view, plan, self.leases, any_type=self.any_type)
        self.without_gpus(view, seats)
        if not over:
            seats.keep(view.running)
        if not over or self.deal(view, seats):
            self.fill(view, seats)
        state.held = seats.placed
        self.leases.settle(view.active, seats.placed, view.topology, now_s)
        wake_s = self.wake_s(view, seats)
        if wake_s < INF:
            plan.wake_at(wake_s)
        return plan

    def unpaid(self, view: View) -> list[Job]:
        """Running jobs that must not be stopped yet."""
        return [j for j in view.running if j.gpus and self.leases.unpaid(j, view.now_s)]

    def shortfall(self) -> Mapping[int, float]:
        """By how many rounds each job, by its number, is behind."""
        raise NotImplementedError

    # --- what happens within a round --------------------------------------------------------------

    def update(self, view: View, *, over: bool) -> None:
        """Look at what has happened since the last decision; `over`: a round has ended."""
        raise NotImplementedError

    def without_gpus(self, view: View, seats: Seats) -> None:
        """Jobs without GPUs compete with no other: once started they run to their end."""
        seats.keep(job for job in view.running if not job.gpus)

    def deal(self, view: View, seats: Seats) -> bool:
        """Seat the jobs of the next round; False: no other job may start."""
        raise NotImplementedError

    def fill(self, view: View, seats: Seats) -> None:
        """Give away what is left."""
        raise NotImplementedError

    def wake_s(self, view: View, seats: Seats) -> float:
        """When to decide again if nothing happens; inf: never."""
        raise NotImplementedError

    def record(self, index: int, seat: Seat, seconds: float) -> None:
        """A job had a seat for so long."""

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """With the state of the policy."""
        self.state.leases = self.leases.held
        self.state.policy = dict(self.policy.snapshot())
        return super().snapshot()

    def resumed(self) -> None:
        """Take up leases and policy."""
        self.leases.held = self.state.leases
        self.policy.restore(self.state.policy)
