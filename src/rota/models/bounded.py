"""The least value of a smooth function within bounds, in plain numbers: the same on every machine.

The method is L-BFGS-B (Byrd, Lu, Nocedal and Zhu, 1995; version 3.0 of 2011): a quadratic model is
made of the last few steps, its least value is sought first along the projected gradient and then
among the variables that met no bound, and a line search (More and Thuente, 1994) goes there. SciPy
has it too, but does its sums with the kernels that a linear algebra library chooses for the
processor and by its environment. They differ in the last digit; where the ground is flat or has a
kink such a fit ends elsewhere, and a simulation that rests on it goes another way.

It is meant for few variables: the model is a small dense matrix.
"""

from collections.abc import Callable, Sequence
from math import inf, sqrt
from typing import NamedTuple

Vector = list[float]
Slopes = Callable[[Sequence[float]], tuple[float, Sequence[float]]]
"""The value of a function, and its gradient."""

EPSILON = 2.220446049250313e-16  # of floats
MOST_CALLS = 15_000
MOST_TRIES = 20  # of one line search
FIRST, SECOND = 1e-3, 0.9  # what a line search must gain, and how much flatter it must become
NARROW = 0.1  # relative: an interval that is not worth dividing


class Stops(NamedTuple):
    """When a search ends, and of how many steps its model is made."""

    value: float = 1e7 * EPSILON
    """A step that gains less (relative) is the last,"""
    gradient: float = 1e-5
    """and no slope counts that is not larger."""
    memory: int | None = 10
    """None: all steps; that is quicker, since the model is not made anew."""


def least(
    function: Slopes,
    begin: Sequence[float],
    low: Sequence[float],
    high: Sequence[float],
    stops: Stops | None = None,
) -> tuple[Vector, float]:
    """Where a function is least between `low` and `high`, from `begin` on, and how much it is."""
    return _BoxSearch(function, low, high, stops or Stops()).run(begin)


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    total = 0.0
    for a, b in zip(one, other, strict=True):
        total += a * b
    return total


class _Model:
    """The quadratic model: its matrix, of the last steps and how much the gradient changed."""

    def __init__(self, size: int, memory: int | None) -> None:
        self._size, self._memory = size, memory
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self._pairs: list[tuple[Vector, Vector, float]] = []
        self.rows: list[Vector] = _scaled_unit(self._size, 1.0)

    @property
    def empty(self) -> bool:
        """Has no step been made?"""
        return not self._pairs

    def learn(self, step: Vector, change: Vector, curvature: float, scale: float) -> None:
        """A step, the change of the gradient along it, their product, and the new scale."""
        if self.empty or self._memory is not None:
            self.rows = _scaled_unit(self._size, scale)
        self._pairs.append((step, change, curvature))
        if self._memory is None:
            self._update(step, change, curvature)
            return
        del self._pairs[: -self._memory]
        for pair in self._pairs:
            self._update(*pair)

    def _update(self, step: Vector, change: Vector, curvature: float) -> None:
        along = [_dot(row, step) for row in self.rows]
        bent = _dot(step, along)
        for row, a, b in zip(self.rows, along, change, strict=True):
            less, more = a / bent, b / curvature
            row[:] = [x - less * c + more * d for x, c, d in zip(row, along, change, strict=True)]


def _scaled_unit(size: int, scale: float) -> list[Vector]:
    rows = [[0.0] * size for _ in range(size)]
    for place in range(size):
        rows[place][place] = scale
    return rows


class _BoxSearch:
    """One search: the variables that are free at all, their bounds, and where it is."""

    def __init__(
        self, function: Slopes, low: Sequence[float], high: Sequence[float], stops: Stops
    ) -> None:
        self._function, self._stops = function, stops
        self._free = [place for place in range(len(low)) if low[place] < high[place]]
        self._low = [low[place] for place in self._free]
        self._high = [high[place] for place in self._free]
        self._calls = 0
        self._model = _Model(len(self._free), stops.memory)

    def run(self, begin: Sequence[float]) -> tuple[Vector, float]:
        """Step by step until nothing is gained."""
        self._whole = [float(each) for each in begin]
        at = self._inside([self._whole[place] for place in self._free])
        now, slopes, others = self._ask(at)
        first = True
        while self._steepest(at, slopes) > self._stops.gradient and self._calls < MOST_CALLS:
            goal = self._goal(at, slopes)
            found = goal and self._walk(at, now, slopes, goal, first=first)
            if not found:
                if self._model.empty:
                    break
                self._model.forget()
                continue
            first = False
            before, (at, now, new_slopes, new_others, step) = now, found
            change = [a - b for a, b in zip(new_slopes, slopes, strict=True)]
            curvature, falls = _dot(change, step), -_dot(slopes, step)
            slopes = new_slopes
            if before - now <= self._stops.value * max(abs(before), abs(now), 1.0):
                break
            if curvature > EPSILON * falls:
                moved = [a - b for a, b in zip(new_others, others, strict=True)]
                scale = (_dot(change, change) + _dot(moved, moved)) / curvature
                self._model.learn(step, change, curvature, scale)
            others = new_others
        for place, each in zip(self._free, at, strict=True):
            self._whole[place] = each
        return self._whole, now

    def _ask(self, at: Vector) -> tuple[float, Vector, Vector]:
        """The value, the slopes of what is free, and those of what is fixed."""
        self._calls += 1
        whole = list(self._whole)
        for place, each in zip(self._free, at, strict=True):
            whole[place] = each
        value, slopes = self._function(whole)
        free = set(self._free)
        return (
            value,
            [float(slopes[place]) for place in self._free],
            [float(each) for place, each in enumerate(slopes) if place not in free],
        )

    def _inside(self, at: Vector) -> Vector:
        return [
            min(max(each, low), high)
            for each, low, high in zip(at, self._low, self._high, strict=True)
        ]

    def _steepest(self, at: Vector, slopes: Vector) -> float:
        """The largest slope that leads somewhere."""
        most = 0.0
        for x, g, low, high in zip(at, slopes, self._low, self._high, strict=True):
            most = max(most, abs(max(x - high, g) if g < 0 else min(x - low, g)))
        return most

    # --- where to go ------------------------------------------------------------------------------

    def _goal(self, at: Vector, slopes: Vector) -> Vector | None:
        """Where the model is least; None: it is no longer of use."""
        rows, size = self._model.rows, len(at)
        ends = [_room(*each) for each in zip(at, slopes, self._low, self._high, strict=True)]
        way = [-slope if room > 0 else 0.0 for slope, room in zip(slopes, ends, strict=True)]
        held = [room <= 0 for room in ends]
        moved = [0.0] * size
        order = sorted((room, place) for place, room in enumerate(ends) if 0 < room < inf)
        gone, falls = 0.0, -_dot(way, way)
        bends = _dot(way, [_dot(row, way) for row in rows])
        least_bend = EPSILON * bends
        for room, place in order:
            if falls >= 0 or room - gone > -falls / bends:
                break
            moved = [a + (room - gone) * b for a, b in zip(moved, way, strict=True)]
            bound = self._low[place] if slopes[place] > 0 else self._high[place]
            moved[place] = bound - at[place]
            gone, way[place], held[place] = room, 0.0, True
            if not any(way):
                falls = 0.0
                break
            leads = [g + _dot(row, moved) for g, row in zip(slopes, rows, strict=True)]
            falls = _dot(way, leads)
            bends = max(_dot(way, [_dot(row, way) for row in rows]), least_bend)
        if falls < 0:
            moved = [a - falls / bends * b for a, b in zip(moved, way, strict=True)]
        free = [place for place in range(size) if not held[place]]
        if not free or self._model.empty:
            return [a + b for a, b in zip(at, moved, strict=True)]
        return self._among(free, at, slopes, moved)

    def _among(self, free: list[int], at: Vector, slopes: Vector, moved: Vector) -> Vector | None:
        """From the point along the gradient to the least one among what met no bound."""
        rows = self._model.rows
        right = [-(slopes[place] + _dot(rows[place], moved)) for place in free]
        solved = _solved([[rows[i][j] for j in free] for i in free], right)
        if solved is None:
            return None
        reached = [a + b for a, b in zip(at, moved, strict=True)]
        goal = list(reached)
        for place, more in zip(free, solved, strict=True):
            goal[place] += more
        inside = self._inside(goal)
        if inside == goal:
            return goal
        if _dot([a - b for a, b in zip(inside, at, strict=True)], slopes) <= 0:
            return inside
        share, stops = 1.0, -1  # it would lead upwards: only as far as the first bound
        for place, more in zip(free, solved, strict=True):
            bound = self._low[place] if more < 0 else self._high[place]
            if more and (bound - reached[place]) / more < share:
                share, stops = (bound - reached[place]) / more, place
        for place, more in zip(free, solved, strict=True):
            reached[place] += share * more
            if place == stops:
                reached[place] = self._low[place] if more < 0 else self._high[place]
        return reached

    # --- how far ----------------------------------------------------------------------------------

    def _walk(
        self, at: Vector, now: float, slopes: Vector, goal: Vector, *, first: bool
    ) -> tuple[Vector, float, Vector, Vector, Vector] | None:
        """A step that gains enough: where, value, slopes, and the step; None: there is none."""
        way = [a - b for a, b in zip(goal, at, strict=True)]
        slope = _dot(slopes, way)
        if slope >= 0:
            return None
        most = 1.0 if first else self._room(at, way)
        length = min(1 / sqrt(_dot(way, way)), most) if first else min(1.0, most)
        line = _LineSearch(now, slope, length, most)
        for _ in range(MOST_TRIES):
            length = line.length
            if length == 1:
                there = goal
            else:
                there = self._inside([a + length * b for a, b in zip(at, way, strict=True)])
            value, found, others = self._ask(there)
            if line.told(value, _dot(found, way)):
                return there, value, found, others, [length * each for each in way]
        return None

    def _room(self, at: Vector, way: Vector) -> float:
        most = 1e10
        for x, d, low, high in zip(at, way, self._low, self._high, strict=True):
            if d < 0 and d * most < low - x:
                most = (low - x) / d
            elif d > 0 and d * most > high - x:
                most = (high - x) / d
        return most


def _room(at: float, slope: float, low: float, high: float) -> float:
    """How far it is to the bound of a variable, down its slope."""
    if slope > 0:
        return (at - low) / slope
    if slope < 0:
        return (at - high) / slope
    return inf if low < at < high else 0.0


def _solved(rows: list[Vector], right: Vector) -> Vector | None:
    """The solution for a symmetric matrix; None: it is not positive."""
    size = len(right)
    lower: list[Vector] = []
    for i in range(size):
        row: Vector = []
        for j in range(i):
            done = lower[j]
            row.append((rows[i][j] - _dot(row, done[:j])) / done[j])
        rest = rows[i][i] - _dot(row, row)
        if rest <= 0:
            return None
        row.append(sqrt(rest))
        lower.append(row)
    for i in range(size):
        right[i] = (right[i] - _dot(lower[i][:i], right[:i])) / lower[i][i]
    for i in reversed(range(size)):
        above = 0.0
        for j in range(i + 1, size):
            above += lower[j][i] * right[j]
        right[i] = (right[i] - above) / lower[i][i]
    return right


class _LineSearch:
    """The line search: an interval that holds a good length, ever narrower."""

    def __init__(self, value: float, slope: float, length: float, most: float) -> None:
        self._value, self._slope = value, slope
        self.length, self._most = length, most
        self._best = self._other = (0.0, value, slope)  # length, value and slope at the ends
        self._bracketed, self._early = False, True
        self._least, self._last = 0.0, 5 * length
        self._width, self._wider = most, 2 * most

    def told(self, value: float, slope: float) -> bool:
        """What was found with `length`; is it good enough? Else `length` is the next to try."""
        length, falls = self.length, FIRST * self._slope
        wanted = self._value + length * falls
        if self._early and value <= wanted and slope >= 0:
            self._early = False
        if self._bracketed and (
            not self._least < length < self._last or self._last - self._least <= NARROW * self._last
        ):
            return True
        if length == self._most and value <= wanted and slope <= falls:
            return True
        if length == 0 and (value > wanted or slope >= falls):
            return True
        if value <= wanted and abs(slope) <= SECOND * -self._slope:
            return True
        tilted = self._early and wanted < value <= self._best[1]
        tilt = falls if tilted else 0.0
        self._narrow((length, value - length * tilt, slope - tilt), tilt)
        return False

    def _narrow(self, tried: tuple[float, float, float], tilt: float) -> None:
        best, other = (
            (at, value - at * tilt, slope - tilt) for at, value, slope in (self._best, self._other)
        )
        best, other, length = self._next(best, other, tried)
        self._best, self._other = (
            (at, value + at * tilt, slope + tilt) for at, value, slope in (best, other)
        )
        ends = sorted((best[0], other[0]))
        if self._bracketed:
            width = ends[1] - ends[0]
            if width >= 0.66 * self._wider:
                length = best[0] + 0.5 * (other[0] - best[0])
            self._wider, self._width = self._width, width
            self._least, self._last = ends
        else:
            self._least = length + 1.1 * (length - best[0])
            self._last = length + 4 * (length - best[0])
        length = min(max(length, 0.0), self._most)
        if self._bracketed and (
            not self._least < length < self._last or self._last - self._least <= NARROW * self._last
        ):
            length = best[0]
        self.length = length

    def _next(
        self,
        best: tuple[float, float, float],
        other: tuple[float, float, float],
        tried: tuple[float, float, float],
    ) -> tuple[tuple[float, float, float], tuple[float, float, float], float]:
        """New ends of the interval, and the length to try next."""
        (x, fx, dx), (t, ft, dt) = best, tried
        turns = (dt > 0 > dx) or (dt < 0 < dx)
        if ft > fx:  # too far: between them, nearer to the better one
            cubic, square = _cubic(best, tried), x + dx / ((fx - ft) / (t - x) + dx) / 2 * (t - x)
            length = cubic if abs(cubic - x) < abs(square - x) else cubic + (square - cubic) / 2
            self._bracketed = True
        elif turns:
            cubic, secant = _cubic(tried, best), t + dt / (dt - dx) * (x - t)
            length = cubic if abs(cubic - t) > abs(secant - t) else secant
            self._bracketed = True
        elif abs(dt) < abs(dx):  # ever flatter
            length = self._flatter(best, other, tried)
        elif self._bracketed:
            length = _cubic(tried, other)
        else:
            length = self._last if t > x else self._least
        if ft > fx:
            return best, tried, length
        return tried, best if turns else other, length

    def _flatter(
        self,
        best: tuple[float, float, float],
        other: tuple[float, float, float],
        tried: tuple[float, float, float],
    ) -> float:
        (x, fx, dx), (t, ft, dt) = best, tried
        theta = 3 * (fx - ft) / (t - x) + dx + dt
        top = max(abs(theta), abs(dx), abs(dt))
        gamma = top * sqrt(max(0.0, (theta / top) ** 2 - dx / top * (dt / top)))
        if t > x:
            gamma = -gamma
        part = (gamma - dt + theta) / (gamma + (dx - dt) + gamma)
        end = self._last if t > x else self._least
        cubic = t + part * (x - t) if part < 0 and gamma else end
        secant = t + dt / (dt - dx) * (x - t)
        nearer = abs(cubic - t) < abs(secant - t)
        if not self._bracketed:
            length = secant if nearer else cubic
            return min(max(length, self._least), self._last)
        length = cubic if nearer else secant
        limit = t + 0.66 * (other[0] - t)
        return min(limit, length) if t > x else max(limit, length)


def _cubic(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    """Where the cubic through two points with slopes is least, from the first."""
    (a, fa, da), (b, fb, db) = one, other
    theta = 3 * (fa - fb) / (b - a) + da + db
    top = max(abs(theta), abs(da), abs(db))
    gamma = top * sqrt(max(0.0, (theta / top) ** 2 - da / top * (db / top)))
    if b < a:
        gamma = -gamma
    return a + (gamma - da + theta) / (gamma - da + gamma + db) * (b - a)
