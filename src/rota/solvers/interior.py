"""An interior-point method for shares of time on few kinds of machines.

Rows meet each other in the few capacities only, so a Newton step costs one 2x2 system per row, all
rows at once, and one system as large as the number of kinds: the work per step grows in proportion
to the number of rows, and there are about ten steps. The differences that would lose digits near
the optimum are worked out on paper (`_Step`), which is why ten digits are reached. The answer lies
in the middle of all optimal ones, so equal rows get equal shares, and `bids` is positive exactly
for the rows that no optimal answer can improve.
"""

from dataclasses import dataclass

import numpy as np

from rota.core.products import solved
from rota.solvers.share_problem import Array, ShareProblem, ShareSolution

STEPS = 60
_SHY, _SHIEST = 5e-3, 1e-4  # how far a step stays away from the boundary, and at least
_REGULAR = 1e-14
_NOTHING = 1e-9  # of the largest share of a row: such shares are none
_TINY = 1e-300
_FEW = 4  # kinds of machines
_NEAR = 1e4  # times the tolerance


def _dot(left: Array, right: Array) -> Array:
    """Sums over the rows of the problem. The threads of a matrix library would only cost time."""
    out: Array = np.einsum("...m,m->...", left, right)
    return out


def _mix(matrix: Array, rows: Array) -> Array:
    """A small matrix times few long rows, without threads as well."""
    out: Array = np.einsum("jk,km->jm", matrix, rows)
    return out


class Search:
    """An interior-point search (Mehrotra's predictor and corrector).

    Arrays have one row per kind and one column per row of the problem: sums over the few kinds are
    then quick. Primal: shares x, spare time r, spare gain v, spare capacity g, level z; dual: w, u,
    y, p in the same order. The products x w, r u, v y, g p go to zero, but v y to `target` where
    the logarithm of the gain counts.
    """

    def __init__(self, problem: ShareProblem) -> None:
        rows, kinds = problem.gain.shape
        top = problem.gain.max(axis=1)
        self.top = np.where(top > 0, top, 1.0)
        self.gain = np.ascontiguousarray((problem.gain / self.top[:, None]).T)
        self.size, self.capacity = problem.size.astype(float), problem.capacity.astype(float)
        slope = np.zeros(rows) if problem.slope is None else problem.slope / self.top
        self.unit = float(slope.max()) or 1.0
        self.slope = slope / self.unit
        self.leveled = bool(self.slope.any())
        loose = 0.0 if problem.log else -1.0  # a floor below zero never binds
        floor = np.zeros(rows) if problem.floor is None else problem.floor / self.top
        self.floor = np.where((self.slope == 0) & (floor <= 0), loose, floor)
        value = np.zeros((kinds, rows)) if problem.value is None else problem.value.T
        self.worth = max(float(np.abs(value).max()), _TINY)
        self.value = value / self.worth
        count = np.ones(rows) if problem.count is None else problem.count
        self.target = count.astype(float) if problem.log else np.zeros(rows)
        self.log = problem.log
        # of a typical share: gaps are compared with it where the level itself is about zero
        self.typical = 1e-3 * min(1.0, float(self.capacity.sum() / self.size.sum()))
        self.pairs = _Pairs(self.gain)
        self._start()

    def _start(self) -> None:
        kinds, rows = self.gain.shape
        even = np.minimum(self.capacity / self.size.sum(), 1.0) * (0.9 / kinds)
        self.x = np.repeat(even[:, None], rows, axis=1)
        self.r = 1.0 - self.x.sum(axis=0)
        self.g = self.capacity - _dot(self.x, self.size)
        gains = (self.gain * self.x).sum(axis=0)
        self.z = 0.0
        if self.leveled:
            with_level = self.slope > 0
            self.z = float(((gains - self.floor)[with_level] / self.slope[with_level]).min())
            self.z -= 0.1 * abs(self.z) + 1e-3
        self.v = np.maximum(gains - self.slope * self.z - self.floor, 1e-2)
        self.y = np.full(rows, 1.0 / self.slope.sum() if self.leveled else 1.0 / rows)
        if self.log:
            self.v = np.maximum(gains, 1e-9)
            self.y = self.target / self.v
        worth = self.y.sum() + np.abs(self.value).max(axis=0).sum()
        self.p = np.full(kinds, worth / self.capacity.sum())
        self.u = np.maximum((self.gain * self.y + self.value).max(axis=0), 0.0)
        self.u += 0.5 * self.u.mean() + 1e-12
        self.w = self.u - self.gain * self.y + self.size * self.p[:, None] - self.value
        self.primal = np.concatenate([self.x.ravel(), self.r, self.v, self.g])
        self.dual = np.concatenate([self.w.ravel(), self.u, self.y, self.p])
        self.goal = np.zeros_like(self.primal)
        self.parts(self.goal)[2][:] = self.target
        self.towards_zero = (self.goal == 0).astype(float)
        self._look()

    def parts(self, flat: Array) -> tuple[Array, Array, Array, Array]:
        """Views of the four kinds of variables in one long array."""
        kinds, rows = self.gain.shape
        shares = kinds * rows
        return (
            flat[:shares].reshape(kinds, rows),
            flat[shares : shares + rows],
            flat[shares + rows : shares + 2 * rows],
            flat[shares + 2 * rows :],
        )

    def _look(self) -> None:
        self.x, self.r, self.v, self.g = self.parts(self.primal)
        self.w, self.u, self.y, self.p = self.parts(self.dual)

    def run(self, tolerance: float) -> int | None:
        """The number of steps to the optimum; None if it is not found."""
        with np.errstate(all="ignore"):  # where there is no answer the numbers grow without limit
            for step in range(STEPS):
                residuals = self._residuals()
                if self._arrived(residuals, tolerance):
                    return step
                if not self._advance(residuals):
                    break
            # logarithms have no other method: where the optimum is degenerate fewer digits do
            near = self.log and self._arrived(self._residuals(), tolerance * _NEAR)
            return STEPS if near else None

    def _residuals(self) -> "_Residuals":
        x, gain = self.x, self.gain
        return _Residuals(
            time=1.0 - x.sum(axis=0) - self.r,
            gain=self.floor - (gain * x).sum(axis=0) + self.slope * self.z + self.v,
            capacity=self.capacity - _dot(x, self.size) - self.g,
            dual=self.value - self.u + gain * self.y - self.size * self.p[:, None] + self.w,
            level=(1.0 if self.leveled else 0.0) - float(_dot(self.slope, self.y)),
        )

    def _gap(self) -> float:
        return float(np.abs(self.primal * self.dual - self.goal).sum())

    def _arrived(self, left: "_Residuals", tolerance: float) -> bool:
        best = abs(self.z) if self.leveled else abs(float((self.value * self.x).sum()))
        best = max(best, self.typical)
        scale = float(self.target.sum()) if self.log else best
        if self._gap() > tolerance * scale:
            return False
        worth = max(float(np.abs(self.value).max()), float(self.y.max()), _TINY)
        dual = max(float(np.abs(left.dual).max()) / worth, abs(left.level))
        return self._primal(left) <= tolerance and dual <= 100 * tolerance

    def _primal(self, left: "_Residuals") -> float:
        capacity = np.abs(left.capacity) / self.capacity
        return float(max(np.abs(left.time).max(), np.abs(left.gain).max(), capacity.max()))

    def _advance(self, left: "_Residuals") -> bool:
        """One step; False if the numbers break down."""
        try:
            return self._move(left, _Step(self))
        except np.linalg.LinAlgError:
            return False

    def _move(self, left: "_Residuals", step: "_Step") -> bool:
        product = self.primal * self.dual
        missing = self.goal - product
        gap = float(np.abs(missing).sum())
        first = step.towards(missing, left)
        primal, dual = self._lengths(first)
        there = (self.primal + primal * first.primal) * (self.dual + dual * first.dual)
        mean = gap / len(product)
        centre = mean * min(1.0, float(np.abs(there - self.goal).sum()) / gap) ** 3
        missing += centre * self.towards_zero
        second = step.towards(missing - first.primal * first.dual, left)
        primal, dual = self._lengths(second)
        reach = 1.0 - min(_SHY, max(mean, _SHIEST))
        primal, dual = min(1.0, reach * primal), min(1.0, reach * dual)
        if not np.isfinite(primal + dual + second.level):
            return False
        self.primal = self.primal + primal * second.primal
        self.dual = self.dual + dual * second.dual
        self.z += primal * second.level
        self._look()
        return True

    def _lengths(self, way: "_Way") -> tuple[float, float]:
        """How far one may go before something becomes negative."""
        primal, dual = _length(self.primal, way.primal), _length(self.dual, way.dual)
        if self.log:  # v and y depend on each other beyond their product
            primal = dual = min(primal, dual)
        return primal, dual

    def solution(self, steps: int) -> ShareSolution:
        """In the units of the problem, and within its bounds to the last digit."""
        shares = np.where(self.x > _NOTHING * self.x.max(axis=0), self.x, 0.0)
        shares /= np.maximum(1.0, shares.sum(axis=0))
        shares /= np.maximum(1.0, _dot(shares, self.size) / self.capacity)[:, None]
        per_price = 1.0 / self.unit if self.leveled else self.worth
        return ShareSolution(
            np.ascontiguousarray(shares.T),
            self.z / self.unit,
            self.y / (self.top * self.unit) if self.leveled else self.y * (per_price / self.top),
            self.p if self.log else self.p * per_price,
            self.y * self.slope * len(self.y) > self.v,
            steps,
        )


def _length(now: Array, change: Array) -> float:
    worst = float((change / now).min())
    return 1.0 if worst >= -1.0 else -1.0 / worst


@dataclass(frozen=True)
class _Residuals:
    """By how much the equations do not hold."""

    time: Array
    gain: Array
    capacity: Array
    dual: Array
    level: float


@dataclass(frozen=True)
class _Way:
    """A direction: changes of x, r, v, g; of w, u, y, p; and of the level."""

    primal: Array
    dual: Array
    level: float


class _Pairs:
    """Differences of gains between kinds, needed at every step."""

    def __init__(self, gain: Array) -> None:
        kinds = gain.shape[0]
        self.difference = gain[:, None] - gain[None]
        self.squared = self.difference**2
        self._products = None
        if kinds <= _FEW:  # else they would need too much memory
            self._products = self.difference[:, :, None] * self.difference[:, None, :]
        self.gains = gain[:, None] * gain[None]
        self.diagonal = np.arange(kinds)
        self.others = 1.0 - np.eye(kinds)
        self.without = (self.others[:, :, None] * self.others[:, None, :]).reshape(kinds, -1)

    def spread(self, d: Array) -> Array:
        """Sum over k of d_k (gain_k - gain_j) (gain_k - gain_l), for all j and l."""
        if self._products is not None:
            total: Array = (d[:, None, None] * self._products).sum(axis=0)
            return total
        summed: Array = np.einsum("km,kjm,klm->jlm", d, self.difference, self.difference)
        return summed


class _Step:
    """The Newton equations at one point, solved for any right-hand side.

    With D = x/w, R = r/u, V = v/y the equations of one row have the matrix
    K = Q' D Q + diag(R, V), Q = [1, -gain]. Its determinant, K^-1 Q' (`lean`) and
    D - D Q K^-1 Q' D (`mixed` times D) are sums without cancelling terms:
    det K = sum_{j<k} D_j D_k (gain_j - gain_k)^2 + R sum_j D_j gain_j^2 + V sum_j D_j + R V.
    """

    def __init__(self, at: Search) -> None:
        self.at = at
        pairs, gain = at.pairs, at.gain
        kinds, rows = gain.shape
        self.ratio = at.primal / at.dual
        self.d, self.r, self.v, self.g = at.parts(self.ratio)
        d, r, v = self.d, self.r, self.v
        dg = d * gain
        dgg = dg * gain
        both = r * v
        product = ((d[:, None] * d[None]) * pairs.squared).reshape(kinds * kinds, rows)
        once, twice = d.sum(axis=0), dgg.sum(axis=0)
        self.det = 0.5 * product.sum(axis=0) + r * twice + v * once + both
        less = 0.5 * _mix(pairs.without, product)
        less += r * _mix(pairs.others, dgg) + v * _mix(pairs.others, d)
        cross = pairs.spread(d) + v + pairs.gains * r
        self.mixed = -d[:, None] * cross / self.det
        self.mixed[pairs.diagonal, pairs.diagonal] = (less + both) / self.det
        self.lean_time = ((dg[:, None] * pairs.difference).sum(axis=0) + v) / self.det
        self.lean_gain = ((d[:, None] * pairs.difference).sum(axis=0) - gain * r) / self.det
        self.a, self.q, self.e = once + r, dg.sum(axis=0), twice + v
        self.matrix = self._matrix()

    def _matrix(self) -> Array:
        """Of the prices and the level."""
        at, kinds = self.at, len(self.at.capacity)
        matrix = np.empty((kinds + 1, kinds + 1))
        matrix[:kinds, :kinds] = _dot(self.mixed * (at.size * self.d)[None], at.size)
        diagonal = at.pairs.diagonal
        # the last part keeps it regular where an optimum is degenerate; later steps make up for it
        matrix[diagonal, diagonal] += self.g + _REGULAR * matrix[diagonal, diagonal]
        edge = _dot(at.size * self.d * self.lean_gain, at.slope)
        matrix[:kinds, kinds] = matrix[kinds, :kinds] = edge
        matrix[kinds, kinds] = -float(_dot(at.slope**2, self.a / self.det)) if at.leveled else -1.0
        return matrix

    def towards(self, change: Array, left: _Residuals) -> _Way:
        """The direction in which the products x w, r u, v y, g p change as asked."""
        at, d = self.at, self.d
        wanted = change / at.dual
        hx, hr, hv, hg = at.parts(wanted)
        h = hx + d * left.dual
        f_time, f_gain = hr - left.time, left.gain + hv
        base = (self.mixed * h[None]).sum(axis=1)
        base -= d * (self.lean_time * f_time + self.lean_gain * f_gain)
        k_time = (h * self.lean_time).sum(axis=0) + (self.e * f_time + self.q * f_gain) / self.det
        k_gain = (h * self.lean_gain).sum(axis=0) + (self.q * f_time + self.a * f_gain) / self.det
        right = np.append(
            _dot(base, at.size) + hg - left.capacity,
            float(_dot(at.slope, k_gain)) - left.level,
        )
        found = solved(self.matrix, right[:, None])[:, 0]
        dp, dz = found[:-1], float(found[-1])
        paid = d * (at.size * dp[:, None])
        lift = at.slope * (dz / self.det)
        dual, primal = np.empty_like(change), np.empty_like(change)
        dw, du, dy, dual_p = at.parts(dual)
        dx = at.parts(primal)[0]
        du[:] = k_time - (paid * self.lean_time).sum(axis=0) + self.q * lift
        dy[:] = k_gain - (paid * self.lean_gain).sum(axis=0) + self.a * lift
        dual_p[:] = dp
        dx[:] = base - (self.mixed * paid[None]).sum(axis=1) - d * self.lean_gain * (at.slope * dz)
        dw[:] = (at.parts(change)[0] - at.w * dx) / at.x
        rest = slice(at.x.size, None)
        primal[rest] = wanted[rest] - self.ratio[rest] * dual[rest]
        return _Way(primal, dual, dz)
