"""Prices of GPU types at which what is best for every job alone is best for all of them.

Find the shares of time x that

    maximise    sum_i u_i(t_i)  with the throughputs  t_i = sum_j gain_ij x_ij
    such that   x_ij >= 0,  sum_j x_ij <= 1 for every job i,
                sum_i size_i x_ij <= capacity_j for every type j

If a GPU of type j cost p_j, each job would choose for itself: the shares with the largest
u_i(t_i) - size_i sum_j p_j x_ij. These need at most two types, because the cheapest way to a
throughput lies on a line between two of the points (gain_ij, size_i p_j) and (0, 0): trying all
pairs finds it (Agrawal et al., Allocation of Fungible Resources via a Fast, Scalable Price
Discovery Method, 2022). The value of all choices plus the capacities times their prices,

    D(p) = sum_j capacity_j p_j + sum_i max_x [u_i(t_i) - size_i sum_j p_j x_ij]

is never below the best sum of utilities, and equals it at the right prices. What jobs chose at some
prices is remembered; the best mixture of all choices so far that respects the capacities (a small
linear programme) is the answer so far, and the prices of its capacities are tried next, halfway
from the best prices so far. The gap between D and the answer proves how good it is: the search ends
when the gap per unit of weight is small enough.
"""

from dataclasses import dataclass, replace

import numpy as np

from rota.core.errors import SolverLimitError
from rota.core.products import dot, mixed
from rota.solvers.linear import LinearProgramme, equal_rows, solve_linear, sparse
from rota.solvers.utilities import Array, Utility

STEPS = 400
_GROUPS = 64  # choices are mixed for so many groups of jobs: more take fewer, costlier steps
_HALFWAY = 0.5
_STALE = 12  # steps after which a choice that no answer used is forgotten


@dataclass(frozen=True)
class PriceProblem:
    """Jobs by row, GPU types by column. A type on which a job cannot run has gain 0.

    `count`: how many equal jobs a row stands for.
    """

    gain: Array
    size: Array
    capacity: Array
    utility: Utility
    count: Array | None = None

    @property
    def counts(self) -> Array:
        """How many jobs every row stands for."""
        return np.ones(len(self.size)) if self.count is None else self.count

    def worth(self, shares: Array) -> float:
        """The sum of utilities."""
        return dot(self.counts, self.utility.value((self.gain * shares).sum(axis=1)))

    def usage(self, shares: Array) -> Array:
        """GPUs of each type that are in use on average."""
        return np.asarray((shares * (self.size * self.counts)[:, None]).sum(axis=0))


@dataclass(frozen=True)
class PriceSolution:
    """Shares that respect the capacities, prices, and what they prove of each other.

    `worth` is the sum of utilities of the shares, `bound` (D at the prices) is what no shares can
    exceed. `gap` is the difference per unit of weight.
    """

    shares: Array
    prices: Array
    worth: float
    bound: float
    gap: float
    steps: int


def responses(problem: PriceProblem, prices: Array) -> tuple[Array, Array]:
    """What each job would choose at these prices, and the utility that is left after paying."""
    rows, kinds = problem.gain.shape
    gain = np.hstack(
        [np.zeros((rows, 1)), problem.gain]
    )  # with a type that gives and costs nothing
    cost = np.hstack([np.zeros((rows, 1)), problem.size[:, None] * prices[None, :]])
    one, other = np.triu_indices(kinds + 1, 1)
    low_first = gain[:, one] <= gain[:, other]
    low, high = np.where(low_first, one, other), np.where(low_first, other, one)
    each = np.arange(rows)[:, None]
    start, end = gain[each, low], gain[each, high]
    width = end - start
    real = width > 0  # between types that are equally fast the cheaper one is in another pair
    dear = cost[each, high] - cost[each, low]
    slope = np.divide(dear, width, out=np.zeros_like(dear), where=real)
    wanted = problem.utility.best(slope, start, end)
    part = np.divide(wanted - start, width, out=np.zeros_like(width), where=real)
    paid = cost[each, low] + part * dear
    left = np.where(real, problem.utility.value(wanted) - paid, -np.inf)
    chosen = np.argmax(left, axis=1)
    row = np.arange(rows)
    shares = np.zeros((rows, kinds + 1))
    shares[row, high[row, chosen]] = part[row, chosen]
    shares[row, low[row, chosen]] += 1.0 - part[row, chosen]
    return shares[:, 1:], left[row, chosen]


def dual(problem: PriceProblem, prices: Array) -> tuple[float, Array]:
    """The bound D that these prices prove, and what jobs choose at them."""
    shares, left = responses(problem, prices)
    return dot(problem.capacity, prices) + dot(problem.counts, left), shares


def find_prices(
    problem: PriceProblem,
    *,
    tolerance: float = 1e-3,
    prices: Array | None = None,
    steps: int = STEPS,
) -> PriceSolution:
    """Prices, and shares that are within the tolerance of the best ones.

    Rows that gain nothing anywhere get nothing and count for nothing. `prices` are those to begin
    with, say of the last time.

    Raises:
        SolverLimitError: The gap is still larger after so many steps.
    """
    rows, kinds = problem.gain.shape
    useful = np.where(problem.capacity > 0, problem.gain, 0.0)
    able = np.flatnonzero(useful.max(axis=1, initial=0.0) > 0)
    if not len(able):
        return PriceSolution(np.zeros((rows, kinds)), np.zeros(kinds), 0.0, 0.0, 0.0, 0)
    parts = [useful[able], problem.size[able], problem.counts[able]]
    utility = problem.utility.take(able)
    first, group = equal_rows(*parts, *utility.columns())
    merged = PriceProblem(
        parts[0][first],
        parts[1][first],
        problem.capacity,
        utility.take(first),
        parts[2][first] * np.bincount(group),
    )
    found = _Search(merged, tolerance).run(prices, steps)
    shares = np.zeros((rows, kinds))
    shares[able] = found.shares[group]
    return replace(found, shares=shares)


class _Search:
    """Keeps what jobs chose, group by group, and mixes it."""

    def __init__(self, problem: PriceProblem, tolerance: float) -> None:
        self.problem = problem
        self.tolerance = tolerance
        rows = len(problem.size)
        self.group = np.arange(rows) % _GROUPS
        self.groups = min(rows, _GROUPS)
        self.shares: list[Array] = []  # of one choice of everybody
        self.worths: list[Array] = []  # the same by group
        self.usages: list[Array] = []  # by group and type
        self.used: list[int] = []  # at which step a mixture used it last
        self.total = dot(problem.counts, problem.utility.weight)

    def run(self, prices: Array | None, steps: int) -> PriceSolution:
        """Search until the gap is closed."""
        problem = self.problem
        free = np.zeros(len(problem.capacity))
        bound, chosen = dual(problem, free)
        if (problem.usage(chosen) <= problem.capacity).all():  # there is enough for everybody
            return PriceSolution(chosen, free, bound, bound, 0.0, 0)
        equal = _equal_shares(problem)
        if len(problem.capacity) == 1:
            return self._bisect(equal, chosen, steps)
        self._remember(equal, 0)
        answer, worth = equal, problem.worth(equal)
        best_prices, bound = free, np.inf
        tried = _first_prices(problem, equal) if prices is None else prices
        for step in range(1, steps + 1):
            value, chosen = dual(problem, tried)
            if value < bound:
                bound, best_prices = value, tried
            self._remember(chosen, step)
            answer, worth = self._better(self._within(chosen), answer, worth)
            if self._gap(bound, worth) > self.tolerance:
                mixed, market = self._mix(step)
                answer, worth = self._better(mixed, answer, worth)
                tried = best_prices + _HALFWAY * (market - best_prices)
            if self._gap(bound, worth) <= self.tolerance:
                gap = self._gap(bound, worth)
                return PriceSolution(answer, best_prices, worth, bound, gap, step)
        raise self._too_long(bound, worth, steps)

    def _bisect(self, answer: Array, eager: Array, steps: int) -> PriceSolution:
        """One type: between a price at which jobs want too much and one at which they do not.

        The mixture of both choices that uses all GPUs is the answer: no programme is needed.
        """
        problem = self.problem
        prices, low, high = _first_prices(problem, answer), 0.0, np.inf
        worth, bound, best_prices = problem.worth(answer), np.inf, prices
        modest = np.zeros_like(answer)
        for step in range(1, steps + 1):
            value, chosen = dual(problem, prices)
            if value < bound:
                bound, best_prices = value, prices
            if problem.usage(chosen)[0] > problem.capacity[0]:
                low, eager = float(prices[0]), chosen
            else:
                high, modest = float(prices[0]), chosen
            much, little = problem.usage(eager)[0], problem.usage(modest)[0]
            part = (problem.capacity[0] - little) / (much - little)
            answer, worth = self._better(part * eager + (1 - part) * modest, answer, worth)
            gap = self._gap(bound, worth)
            if gap <= self.tolerance:
                return PriceSolution(answer, best_prices, worth, bound, gap, step)
            middle = 2 * low if high == np.inf else (low * high) ** 0.5 if low else high / 16
            prices = np.array([middle])
        raise self._too_long(bound, worth, steps)

    def _too_long(self, bound: float, worth: float, steps: int) -> SolverLimitError:
        return SolverLimitError(
            f"the prices still leave a gap of {self._gap(bound, worth):.3g} per unit of weight "
            f"after {steps} steps, more than {self.tolerance:g}: allow a larger gap, or look for "
            f"speeds or weights that differ by many orders of magnitude"
        )

    def _better(self, shares: Array, answer: Array, worth: float) -> tuple[Array, float]:
        """The better of two answers, with its worth."""
        other = self.problem.worth(shares)
        return (shares, other) if other > worth else (answer, worth)

    def _gap(self, bound: float, worth: float) -> float:
        """What may be missing to the best answer, per unit of weight."""
        return max(0.0, bound - worth) / self.total

    def _remember(self, shares: Array, step: int) -> None:
        """Add one choice of everybody; forget what no answer has used for long."""
        problem, groups = self.problem, self.groups
        keep = [at for at, last in enumerate(self.used) if last > step - _STALE]
        for name in ("shares", "worths", "usages", "used"):
            kept = getattr(self, name)
            setattr(self, name, [kept[at] for at in keep])
        worth = problem.counts * problem.utility.value((problem.gain * shares).sum(axis=1))
        used = shares * (problem.size * problem.counts)[:, None]
        by_group = np.zeros((groups, shares.shape[1]))
        np.add.at(by_group, self.group, used)
        self.shares.append(shares)
        self.worths.append(np.bincount(self.group, worth, groups).astype(float))
        self.usages.append(by_group)
        self.used.append(step)

    def _mix(self, step: int) -> tuple[Array, Array]:
        """The best mixture of what was chosen so far, and the prices of its capacities."""
        groups, kinds = self.groups, len(self.problem.capacity)
        choices = len(self.shares)
        every = np.arange(choices * groups)
        kind = np.tile(np.arange(kinds), choices * groups)
        found = solve_linear(
            LinearProgramme(
                cost=np.concatenate(self.worths),
                matrix=sparse(
                    np.concatenate([every % groups, groups + kind]),
                    np.concatenate([every, np.repeat(every, kinds)]),
                    np.concatenate([np.ones(len(every)), np.concatenate(self.usages).ravel()]),
                    (groups + kinds, len(every)),
                ),
                row_lower=np.concatenate([np.ones(groups), np.full(kinds, -np.inf)]),
                row_upper=np.concatenate([np.ones(groups), self.problem.capacity]),
                lower=np.zeros(len(every)),
                upper=np.full(len(every), np.inf),
                maximise=True,
            )
        )
        part = np.maximum(found.point, 0.0).reshape(choices, groups)
        part /= part.sum(axis=0)
        self.used = [step if row.any() else last for row, last in zip(part, self.used, strict=True)]
        mixed = sum(
            (
                row[self.group][:, None] * shares
                for row, shares in zip(part, self.shares, strict=True)
            ),
            np.zeros_like(self.shares[0]),
        )
        return self._within(mixed), np.abs(found.duals[groups:])

    def _within(self, shares: Array) -> Array:
        """The dust of the linear programme taken off, so that no capacity is exceeded."""
        usage = self.problem.usage(shares)
        over = usage > self.problem.capacity
        factor = np.divide(self.problem.capacity, usage, out=np.ones_like(usage), where=over)
        return np.asarray(shares * factor)


def _equal_shares(problem: PriceProblem) -> Array:
    """Every job has the same part of all types that it can use: a first answer."""
    able = problem.gain > 0
    users = (able * problem.counts[:, None]).sum(axis=0)
    part = problem.capacity / np.maximum(users, 1.0)
    shares = np.where(able, part[None, :] / problem.size[:, None], 0.0)
    return np.asarray(shares / np.maximum(1.0, shares.sum(axis=1))[:, None])


def _first_prices(problem: PriceProblem, shares: Array) -> Array:
    """What a little more of each type is worth on average at these shares."""
    slope = problem.utility.slope((problem.gain * shares).sum(axis=1))
    worth = slope[:, None] * problem.gain / problem.size[:, None]
    return np.asarray(mixed(problem.counts, worth) / problem.counts.sum())
