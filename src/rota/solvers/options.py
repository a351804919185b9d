"""One option for each job at most, within the capacity of each kind of resource.

    minimise    sum_jo  cost[o] x[o]  +  sum_j idle[j] (1 - sum_{o of j} x[o])
    such that   sum_{o of j} x[o] <= 1            for each job j
                sum_{o of kind k} size[o] x[o] <= capacity[k]    for each kind k
                x in {0, 1}

An option uses resources of one kind only. There are few kinds and many jobs, which makes the
programme easy: a vertex of its linear relaxation is whole but for as many jobs as there are kinds.
So the relaxation gives a bound, rounding it a choice close to it, and prices that rule out most
options: one that costs more than what lies between bound and choice is in no better choice. What is
left, if anything is, is a small integer programme; where capacities are small whole numbers, a
table of the best value for every capacity answers it faster.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rota.solvers.linear import Array, LinearProgramme, LinearSolution, solve_linear, sparse

Places = NDArray[np.intp]
Mask = NDArray[np.bool_]

DUST = 1e-7
TABLE_CELLS = 4e6  # up to here the table is faster than the solver's search


@dataclass(frozen=True)
class OptionProgramme:
    """Options by the job that has them (`owner`); `idle` is what a job costs that gets none.

    With a `grain` all differences of costs are multiples of it: nothing between two multiples needs
    to be looked for.
    """

    owner: Places
    kind: Places
    size: Array
    cost: Array
    idle: Array
    capacity: Array
    grain: float = 0.0

    @property
    def gain(self) -> Array:
        """By how much each option is better than none."""
        gain: Array = self.idle[self.owner] - self.cost
        return gain


@dataclass(frozen=True)
class OptionChoice:
    """The option of each job (-1: none), what all of it costs, and what it costs at least."""

    options: Places
    cost: float
    bound: float

    @property
    def gap(self) -> float:
        """How far the cost is from the bound, as a part of it; 0: nothing is better."""
        missing = self.cost - self.bound
        return missing / abs(self.bound) if missing > 0 else 0.0


def choose_options(programme: OptionProgramme, *, gap: float = 0.0) -> OptionChoice:
    """The cheapest choice, or one that is proven to be at most this part above it.

    Raises:
        SolverError: The solver failed or is missing.
    """
    return _OptionSearch(programme, gap).run()


class _OptionSearch:
    """Bound, rounding, and what is left between them.

    `value` is what a choice gains over giving nobody anything; costs are what nobody costs minus
    that. Options are numbered among the useful ones, which `useful` translates.
    """

    def __init__(self, programme: OptionProgramme, gap: float) -> None:
        self._grain = programme.grain
        self._gap = gap
        self._jobs = len(programme.idle)
        self._idle = float(programme.idle.sum())
        self._capacity = programme.capacity
        self._useful = _useful(programme)
        self._owner = programme.owner[self._useful]
        self._kind = programme.kind[self._useful]
        self._size = programme.size[self._useful]
        self._gain = programme.gain[self._useful]

    def run(self) -> OptionChoice:
        """From the relaxation to a choice that is good enough."""
        chosen = np.full(self._jobs, -1, np.intp)
        if not len(self._gain):
            return self._choice(chosen, 0.0)
        relaxed = self._solve(np.arange(len(self._gain)), self._capacity, whole=False)
        for option in np.flatnonzero(relaxed.point > 1 - DUST).tolist():
            chosen[self._owner[option]] = option
        chosen = self._fill(chosen)
        bound = self._floor(relaxed.objective)
        if not self._good(chosen, bound):
            chosen = self._improve(chosen, relaxed, bound)
            bound = self._value(chosen)  # the search is complete
        return self._choice(chosen, bound)

    def _value(self, chosen: Places) -> float:
        return float(self._gain[chosen[chosen >= 0]].sum())

    def _floor(self, value: float) -> float:
        """The largest value that a choice can have if none has more than this."""
        if not self._grain:
            return value
        return float(np.floor(value / self._grain + DUST)) * self._grain

    def _good(self, chosen: Places, bound: float) -> bool:
        missing = bound - self._value(chosen)
        return missing <= max(self._gap * abs(self._idle - bound), DUST * max(1.0, bound))

    def _choice(self, chosen: Places, bound: float) -> OptionChoice:
        options = np.where(chosen >= 0, self._useful[chosen], -1) if len(self._useful) else chosen
        value = self._value(chosen)
        return OptionChoice(options, self._idle - value, self._idle - max(bound, value))

    def _solve(self, options: Places, capacity: Array, *, whole: bool) -> LinearSolution:
        """The programme with these options only; its objective is the gain."""
        owners, row = np.unique(self._owner[options], return_inverse=True)
        jobs, count = len(owners), len(options)
        here = np.arange(count)
        matrix = sparse(
            np.concatenate([row, jobs + self._kind[options]]),
            np.concatenate([here, here]),
            np.concatenate([np.ones(count), self._size[options]]),
            (jobs + len(capacity), count),
        )
        return solve_linear(
            LinearProgramme(
                self._gain[options],
                matrix,
                np.full(jobs + len(capacity), -np.inf),
                np.concatenate([np.ones(jobs), capacity]),
                np.zeros(count),
                np.ones(count),
                maximise=True,
                whole=np.ones(count, np.bool_) if whole else None,
            ),
            absolute_gap=self._grain / 2 if whole else None,
        )

    def _fill(self, chosen: Places) -> Places:
        """Give away what is left: always the change that gains most, as long as one does."""
        chosen = chosen.copy()
        while True:
            taken = np.flatnonzero(chosen >= 0)
            held = chosen[taken]
            left = self._capacity - np.bincount(
                self._kind[held], self._size[held], minlength=len(self._capacity)
            )
            has = np.zeros(self._jobs)
            has[taken] = self._gain[held]
            room = left[self._kind]
            same = np.zeros(len(self._gain))  # what a job gives back if it changes within a kind
            at = np.full(self._jobs, -1, np.intp)
            at[taken] = self._kind[held]
            freed = np.zeros(self._jobs)
            freed[taken] = self._size[held]
            inside = at[self._owner] == self._kind
            same[inside] = freed[self._owner[inside]]
            more = self._gain - has[self._owner]
            more[self._size > room + same + DUST] = 0.0
            best = int(more.argmax())
            if more[best] <= DUST:
                return chosen
            chosen[self._owner[best]] = best

    def _improve(self, chosen: Places, relaxed: LinearSolution, bound: float) -> Places:
        """Search among the options that the prices do not rule out."""
        owners, row = np.unique(self._owner, return_inverse=True)
        worth = np.abs(relaxed.duals[: len(owners)])
        price = np.abs(relaxed.duals[len(owners) :])
        loss = worth[row] + price[self._kind] * self._size - self._gain
        missing = bound - self._value(chosen) + DUST
        open_ = loss <= missing
        idle = worth <= missing  # the job may get nothing
        alternatives = np.bincount(row, open_, minlength=len(owners)) + idle
        settled = open_ & (alternatives == 1)[row]
        kept = np.flatnonzero(settled & ~idle[row])
        options = np.flatnonzero(open_ & ~settled)
        left = self._capacity - np.bincount(
            self._kind[kept], self._size[kept], minlength=len(self._capacity)
        )
        if (left < -DUST).any() or not len(options):
            return chosen  # nothing better exists: else one of these would be in it
        found = self._search(options, left)
        better = np.full(self._jobs, -1, np.intp)
        for option in (*kept.tolist(), *found.tolist()):
            better[self._owner[option]] = option
        return better if self._value(better) > self._value(chosen) else chosen

    def _search(self, options: Places, left: Array) -> Places:
        """The best of these options within what is left."""
        options = options[self._size[options] <= left[self._kind[options]] + DUST]
        cells = float(np.prod(left + 1)) * len(options)
        whole = np.array_equal(left, left.round()) and not (self._size[options] % 1).any()
        if not len(options):
            return options
        if whole and cells <= TABLE_CELLS:
            return self._tabulate(options, left.astype(np.intp))
        return options[self._solve(options, left, whole=True).point > 0.5]  # noqa: PLR2004

    def _tabulate(self, options: Places, left: Places) -> Places:
        """The same, by the best value within every capacity up to this one, job after job."""
        value = np.zeros(left + 1)
        taken = []
        options = options[np.argsort(self._owner[options], kind="stable")]
        for group in np.split(options, np.flatnonzero(np.diff(self._owner[options])) + 1):
            best, pick = value.copy(), np.full(value.shape, -1, np.intp)
            for option in group.tolist():
                size, axis = int(self._size[option]), int(self._kind[option])
                length = value.shape[axis]
                upper = _part(len(left), axis, slice(size, length))
                with_it = value[_part(len(left), axis, slice(0, length - size))]
                with_it = with_it + self._gain[option]
                better = with_it > best[upper]
                best[upper][better] = with_it[better]
                pick[upper][better] = option
            value = best
            taken.append(pick)
        found, at = [], left.copy()
        for pick in reversed(taken):
            option = int(pick[tuple(at)])
            if option >= 0:
                found.append(option)
                at[self._kind[option]] -= int(self._size[option])
        return np.array(found, np.intp)


def _part(axes: int, axis: int, along: slice) -> tuple[slice, ...]:
    """A part of a table: this slice along one axis, all of the others."""
    return tuple(along if place == axis else slice(None) for place in range(axes))


def _useful(programme: OptionProgramme) -> Places:
    """Options that fit, gain something, and gain more than all smaller ones of job and kind."""
    gain = programme.gain
    fits = programme.size <= programme.capacity[programme.kind]
    use = np.flatnonzero(fits & (gain > DUST))
    group = programme.owner[use] * len(programme.capacity) + programme.kind[use]
    order = use[np.lexsort((-gain[use], programme.size[use], group))]
    group = programme.owner[order] * len(programme.capacity) + programme.kind[order]
    rank = np.unique(gain[order], return_inverse=True)[1]
    highest = np.maximum.accumulate(group * (len(order) + 1) + rank + 1)
    first = np.ones(len(order), np.bool_)
    first[1:] = highest[1:] > highest[:-1]
    return np.sort(order[first])
