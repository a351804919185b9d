"""The largest total speed, per unit of money if there are prices (Gavel, section 4.2).

    maximise    sum_ij  T[i, j] X[i, j] / c[j]
    such that   sum_j T[i, j] X[i, j] >= n[i] / d[i]    for each job with a deadline
                sum_i s[i] X[i, j] <= N[j],  sum_j X[i, j] <= 1,  X >= 0

`objective=throughput` has no prices (c = 1) and no deadlines; `cost` has prices; `cost-slo` has
both. c[j] is the price of GPUs of type j, n[i] the remaining work and d[i] the seconds to the
deadline. Deadlines that are over, or that a job could not keep even alone, do not count; if all
others cannot be kept together, none of them counts (as in the authors' code). Notation else as in
`gavel-max-min`.

Prices are given as `prices=v100:2.48/k80:0.45`, or by time in a file with the columns time_s,
gpu_type and price (`price_file`): a price holds until the next one, and X follows.

Departs from the paper: T is relative to the speed that a job's run time was given for, not in steps
per second, which differ between models for no reason of the cluster's. Nobody has a claim: what is
slow everywhere waits until GPUs are spare.
"""

import csv
import io
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from rota.core.errors import InfeasibleError, OptionError
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.view import View
from rota.policies.gavel import PAPER
from rota.policies.gavel.basics import for_runnable
from rota.policies.rounds.problem import Array, RoundProblem
from rota.policies.rounds.share_policy import ShareParams, SharePolicy, Solve
from rota.solvers.share_problem import ShareProblem
from rota.solvers.shares import solve_grouped

WORK = Knowledge.REMAINING_WORK


class PriceChange(NamedTuple):
    """From this time on a GPU of this type costs so much."""

    time_s: float
    gpu_type: str
    price: float


def read_prices(text: str) -> Mapping[str, Any]:
    """A CSV file with the columns time_s, gpu_type and price."""
    changes = []
    for number, row in enumerate(csv.DictReader(io.StringIO(text)), 2):
        try:
            change = PriceChange(float(row["time_s"]), row["gpu_type"], _price(row["price"]))
        except (KeyError, TypeError, ValueError) as error:
            raise OptionError(
                f"line {number} cannot be used ({error!r}): "
                f"give the columns time_s, gpu_type, price"
            ) from error
        changes.append(change)
    return {"price_changes": changes}


def _price(text: str) -> float:
    price = float(text)
    if not 0 < price < INF:
        raise ValueError(f"{text}: a price is a number above 0")
    return price


class MaxSumParams(ShareParams, frozen=True):
    """As of gavel-max-min (rounds and what is known), and more.

    `objective`: speed (`throughput`), speed per money (`cost`), and that with deadlines
    (`cost-slo`). `prices` of GPU types, or prices by time (`price_file` names a file with them).
    """

    objective: Literal["throughput", "cost", "cost-slo"] = "throughput"
    prices: tuple[str, ...] = ()
    price_changes: tuple[PriceChange, ...] = ()

    files: ClassVar[Mapping[str, Callable[[str], Mapping[str, Any]]]] = {"price_file": read_prices}


class GavelMaxSum(SharePolicy[MaxSumParams]):
    """Make the total speed, or the speed per money, as large as possible."""

    name = "gavel-max-sum"
    paper = PAPER
    knowledge = Knowledge.SPEEDS | WORK
    Parameters = MaxSumParams

    def __init__(self, params: MaxSumParams | None = None) -> None:
        super().__init__(params)
        self.reads_work = self.params.objective == "cost-slo"
        if not self.reads_work:
            self.knowledge &= ~WORK
        self._prices = Prices(self.params)
        self._now: Array | None = None

    def next_change(self, now_s: float) -> float:
        """When prices change."""
        return self._prices.next_change(now_s)

    def ask(self, asked: RoundProblem, jobs: Sequence[Job], view: View) -> RoundProblem:  # noqa: ARG002
        """With the prices of this moment."""
        if self.params.objective != "throughput":
            self._now = self._prices.at(view.now_s, view.topology.types)
        return asked

    def solver(self) -> Solve:
        """The largest sum."""
        if self.params.objective == "cost-slo":
            return partial(_with_deadlines, prices=self._now)
        return partial(max_sum, prices=self._now)


def _with_deadlines(asked: RoundProblem, *, prices: Array | None) -> Array:
    bound = np.isfinite(asked.time_left)
    left_s = np.where(bound, np.maximum(asked.time_left, 0.0), 0.0)
    kept = bound & (asked.steps <= asked.throughput.max(axis=1) * left_s)
    time_left = np.where(kept, asked.time_left, np.inf)
    return max_sum_if_possible(asked, prices=prices, time_left=time_left)[0]


class Prices:
    """Prices of GPU types by time; constant ones have the time minus infinity."""

    def __init__(self, params: MaxSumParams) -> None:
        self._by_type: dict[str, list[tuple[float, float]]] = {}
        for text in params.prices:
            kind, _, price = text.rpartition(":")
            try:
                self._by_type[kind] = [(-INF, _price(price))]
            except ValueError as error:
                raise OptionError(
                    f"gavel-max-sum: prices: {text!r}: write TYPE:PRICE, e.g. v100:2.48 "
                    f"(a price is a number above 0)"
                ) from error
        for change in sorted(params.price_changes):
            self._by_type.setdefault(change.gpu_type, []).append((change.time_s, change.price))
        if params.objective != "throughput" and not self._by_type:
            raise OptionError(
                f"gavel-max-sum: objective={params.objective} needs prices: give "
                f"prices=TYPE:PRICE/.. or price_file=FILE"
            )
        self._times = sorted({time_s for row in self._by_type.values() for time_s, _ in row})

    def at(self, now_s: float, kinds: Sequence[str]) -> Array:
        """The prices of these types; before the first one of a type, that one."""
        missing = [kind for kind in kinds if kind not in self._by_type]
        if missing:
            raise OptionError(
                f"gavel-max-sum: no price of GPUs of type {missing[0]!r}: "
                f"there are prices of {', '.join(sorted(self._by_type))}"
            )
        return np.array([_valid(self._by_type[kind], now_s) for kind in kinds])

    def next_change(self, now_s: float) -> float:
        """The next time at which there is another price."""
        place = bisect_right(self._times, now_s)
        return self._times[place] if place < len(self._times) else INF


def _valid(prices: Sequence[tuple[float, float]], now_s: float) -> float:
    place = bisect_right([time_s for time_s, _ in prices], now_s)
    return prices[max(place - 1, 0)][1]


def max_sum(
    problem: RoundProblem, *, prices: Array | None = None, time_left: Array | None = None
) -> Array:
    """As many steps per second, or per unit of money, as possible.

    maximise sum_ij T[i, j] X[i, j] / c[j] such that sum_j T[i, j] X[i, j] >= n[i] / d[i] for the
    jobs with a deadline d[i] seconds away (infinite: none)

    Raises:
        InfeasibleError: Not all deadlines can be kept.
    """
    if time_left is None:
        return for_runnable(problem, lambda part: _best(part, _value(part, prices), None))
    bound = np.isfinite(time_left)
    if (bound & ((time_left <= 0) | (problem.throughput.max(axis=1) <= 0))).any():
        raise InfeasibleError("a deadline has passed already, or its job can run nowhere")
    floor = np.where(bound, problem.steps / np.where(bound, time_left, 1.0), 0.0)
    return _best(problem, _value(problem, prices), floor)


def _value(problem: RoundProblem, prices: Array | None) -> Array:
    """What a second of each job on each type is worth."""
    return problem.throughput if prices is None else problem.throughput / prices[None, :]


def _best(problem: RoundProblem, value: Array, floor: Array | None) -> Array:
    return solve_grouped(
        ShareProblem(problem.throughput, problem.size, problem.capacity, value=value, floor=floor)
    ).shares


def max_sum_if_possible(
    problem: RoundProblem, *, prices: Array | None, time_left: Array
) -> tuple[Array, bool]:
    """With the deadlines if all of them can be kept, else without any; the answer says which."""
    try:
        return max_sum(problem, prices=prices, time_left=time_left), True
    except InfeasibleError:
        return max_sum(problem, prices=prices), False
