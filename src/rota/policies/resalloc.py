"""Price discovery: shares of time from prices of GPU types (Agrawal et al., 2022).

With T_ij the speed of job i on GPU type j (relative to its fastest), s_i its GPUs, w_i the weight
of its tenant and N_j the GPUs of type j that are up, find the shares of time x that

    maximise    sum_i U_i(sum_j T_ij x_ij)
    such that   x_ij >= 0,  sum_j x_ij <= 1 for every job i,
                sum_i s_i x_ij <= N_j for every type j

where `utility` says what a job makes of its throughput t:

    log      U_i(t) = w_i log t                      (proportional fairness)
    power    U_i(t) = w_i t^`exponent` / `exponent`  (below 0: closer to max-min; above: to the sum)
    target   U_i(t) = w_i min(t - `target`, 0)       (more than the target is of no use)

Every type has a price, and each job buys for itself what is best for it at these prices, of at most
two types. The prices are changed until the value of all purchases plus the value of the GPUs is
within `gap` per unit of weight of what feasible shares achieve. Solved anew whenever jobs or nodes
come or go, starting from the last prices. The shares become rounds of `round_s` in the dispatcher;
what is free within a round goes to those who are most behind.

Departs from the paper: prices are found with the help of past purchases and mixtures of them (see
`rota.solvers.prices`) instead of by quasi-Newton steps and scaling. Where several types are equally
good for many jobs these leave a gap.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from rota.core.jobs import Job
from rota.core.policy import Params
from rota.core.state import State
from rota.core.view import View
from rota.policies.rounds.choice_policy import Choice, ChoicePolicy, Seconds
from rota.policies.rounds.dispatch import Dispatcher, DispatchOptions, Rule
from rota.policies.rounds.leases import Seat
from rota.solvers.prices import PriceProblem, find_prices
from rota.solvers.utilities import Array, Power, Utility, UtilityTarget


class ResallocParams(Params, frozen=True):
    """The utility with its constant, the gap at which prices are good enough, and the rounds."""

    utility: Literal["log", "power", "target"] = "log"
    exponent: Annotated[float, msgspec.Meta(ge=-10, lt=1)] = -1.0
    target: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.5
    gap: Annotated[float, msgspec.Meta(gt=0)] = 1e-3
    round_s: Seconds = 360.0
    rule: Rule = "deficit"

    def __post_init__(self) -> None:
        if not self.exponent:
            raise ValueError("exponent=0 is the logarithm: write utility=log")


class ResallocState(State):
    """GPU types with their prices, and what everyone has received.

    `stale`: jobs or nodes have come or gone since the prices were found.
    """

    types: list[str] = []
    prices: list[float] = []
    stale: bool = True
    dispatcher: dict[str, Any] = {}


class Resalloc(ChoicePolicy[ResallocParams]):
    """Divide time on GPU types by prices at which every job buys what is best for itself."""

    name = "resalloc"
    paper = (
        "Agrawal, Boyd, Narayanan, Kazhamiaka, Zaharia: Allocation of Fungible Resources via a "
        "Fast, Scalable Price Discovery Method, Mathematical Programming Computation, 2022"
    )
    Parameters = ResallocParams
    coupled = "shares: the GPUs of the whole cluster are divided among all jobs at once"

    def __init__(self, params: ResallocParams | None = None) -> None:
        super().__init__(params)
        self.state: ResallocState = ResallocState()
        self._begin()

    @property
    def round_s(self) -> float:
        """A round."""
        return self.params.round_s

    def prepare(self, view: View) -> None:
        """The prices are those of other jobs."""
        types = list(view.up_by_type)
        if types != self.state.types:
            self.state.types, self.state.prices = types, []
            self._begin()
        self.state.stale = True
        known = set(self._dispatcher.jobs)
        for index in known - set(view.active):
            self._dispatcher.leave(index)
        for job in view.jobs:
            liked = self.types.preferred(job, view) if job.gpus else []
            if liked and job.index not in known:
                self._dispatcher.join(job.index, job.gpus, [kind in liked for kind in types])

    def charge(self, view: View, held: Mapping[int, Seat], seconds: float) -> None:  # noqa: ARG002
        """Write down who received what."""
        known = set(self._dispatcher.jobs)
        for index, has in held.items():
            if index in known and has.kind in self.state.types:
                self._dispatcher.record(index, self.state.types.index(has.kind), seconds)
        self._dispatcher.advance(seconds)

    def choose(
        self, view: View, jobs: Sequence[Job], room: Mapping[str, float]
    ) -> Iterable[Choice]:
        """What the dispatcher says, with new shares if they are stale."""
        if self.state.stale:
            self._target(view)
        by_index = {job.index: job for job in jobs}
        self._dispatcher.capacity = [int(gpus) for gpus in room.values()]
        for index, kind in self._dispatcher.choose():
            if index in by_index:
                yield by_index[index], self.state.types[kind]

    def queue(self, view: View, jobs: Sequence[Job]) -> Sequence[Job]:  # noqa: ARG002
        """Jobs most behind their share come first."""
        behind = self._dispatcher.shortfall()
        return sorted(jobs, key=lambda job: -behind.get(job.index, 0.0))

    # --- shares -----------------------------------------------------------------------------------

    def _target(self, view: View) -> None:
        """Find prices and shares for the jobs that are there now."""
        known = set(self._dispatcher.jobs)
        jobs = [job for job in view.jobs if job.index in known]
        problem = self._problem(view, jobs)
        start = np.array(self.state.prices) if any(self.state.prices) else None
        found = find_prices(problem, tolerance=self.params.gap, prices=start)
        self.state.prices = found.prices.tolist()
        rows = zip(jobs, found.shares.tolist(), strict=True)
        self._dispatcher.retarget(view.now_s, {job.index: shares for job, shares in rows})
        self.state.stale = False

    def _problem(self, view: View, jobs: Sequence[Job]) -> PriceProblem:
        """The jobs as rows."""
        speed = np.zeros((len(jobs), len(self.state.types)))
        for row, job in enumerate(jobs):
            for kind in self.types.preferred(job, view):
                speed[row, self.state.types.index(kind)] = job.speed_on(kind)
        speed /= np.maximum(speed.max(axis=1, initial=0.0), 1e-12)[:, None]
        size = np.array([job.gpus for job in jobs], float)
        capacity = np.array(list(view.up_by_type.values()), float)
        weight = np.array([max(view.tenants.get(job.tenant).weight, 1e-9) for job in jobs])
        return PriceProblem(*self._scaled(speed, size, capacity), self._utility(weight))

    def _scaled(self, speed: Array, size: Array, capacity: Array) -> tuple[Array, Array, Array]:
        """Throughputs around 1, so that the gap means the same however many jobs there are.

        The unit of throughput changes nothing about the best shares under a power.
        """
        if self.params.utility == "power":
            speed = speed / min(1.0, capacity.sum() / max(size.sum(), 1e-12) or 1.0)
        return speed, size, capacity

    def _utility(self, weight: Array) -> Utility:
        if self.params.utility == "target":
            return UtilityTarget(weight, np.full(len(weight), self.params.target))
        return Power(weight, self.params.exponent if self.params.utility == "power" else 0.0)

    def _begin(self) -> None:
        """No job has received anything yet, of these GPU types."""
        options = DispatchOptions(rule=self.params.rule, spare=False)  # see `queue`
        capacity = [0] * len(self.state.types)
        self._dispatcher = Dispatcher(capacity, self.params.round_s, options)

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """With the dispatcher's accounts."""
        self.state.dispatcher = self._dispatcher.snapshot()
        return super().snapshot()

    def resumed(self) -> None:
        """Take them up."""
        self._begin()
        if self.state.dispatcher:
            self._dispatcher.restore(self.state.dispatcher)
