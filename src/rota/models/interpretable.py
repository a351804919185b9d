"""Models that can be read: a tree of questions, and a sum of effects.

Both are fitted to a few hundred or thousand rows in plain code, and `str` of them says all that
they do, so that an operator can follow (and doubt) every prediction.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import exp, log

import msgspec

from rota.core.sums import ordered_sum

Features = Mapping[str, float]


# --- A tree -------------------------------------------------------------------------------------


class Leaf(msgspec.Struct, frozen=True):
    """An answer, and how many of the rows that came here have it."""

    label: int
    right: int
    rows: int


class Fork(msgspec.Struct, frozen=True):
    """Is a feature at most so much?"""

    feature: str
    most: float
    yes: "Fork | Leaf"
    no: "Fork | Leaf"


class LabelTree:
    """A decision tree for small whole labels, by Gini impurity.

    Args:
        rows: Features of each row; all rows have the same.
        labels: What to predict.
        depth: Questions on the way to a leaf, at most.
        gain: Impurity that a question must take away, as a part of that of all rows.
    """

    def __init__(
        self, rows: Sequence[Features], labels: Sequence[int], *, depth: int = 6, gain: float = 1e-4
    ) -> None:
        self._whole = len(rows)
        self._gain = gain
        self.root = self._grow(list(zip(rows, labels, strict=True)), depth)

    def label(self, features: Features) -> int:
        """What the tree says."""
        at = self.root
        while isinstance(at, Fork):
            at = at.yes if features[at.feature] <= at.most else at.no
        return at.label

    def __str__(self) -> str:
        return "\n".join(_lines(self.root, 0))

    def _grow(self, rows: list[tuple[Features, int]], depth: int) -> Fork | Leaf:
        counts = Counter(label for _, label in rows)
        label, right = min(counts.items(), key=lambda item: (-item[1], item[0]))
        best = self._best(rows) if depth and len(counts) > 1 else None
        if best is None:
            return Leaf(label, right, len(rows))
        feature, most = best
        yes = [row for row in rows if row[0][feature] <= most]
        no = [row for row in rows if row[0][feature] > most]
        return Fork(feature, most, self._grow(yes, depth - 1), self._grow(no, depth - 1))

    def _best(self, rows: list[tuple[Features, int]]) -> tuple[str, float] | None:
        """The question that leaves least impurity; None: none takes enough away."""
        before = _impurity(Counter(label for _, label in rows))
        found: tuple[float, str, float] | None = None
        for feature in rows[0][0]:
            left: Counter[int] = Counter()
            right = Counter(label for _, label in rows)
            ordered = sorted(rows, key=lambda row, name=feature: row[0][name])  # type: ignore[misc]  # of this loop
            for (here, label), (after, _) in pairwise(ordered):
                left[label] += 1
                right[label] -= 1
                if here[feature] == after[feature]:
                    continue
                remains = _impurity(left) + _impurity(right)
                if found is None or remains < found[0]:
                    found = (remains, feature, (here[feature] + after[feature]) / 2)
        if found is None or before - found[0] <= self._gain * self._whole:
            return None
        return found[1:]


def _impurity(counts: Counter[int]) -> float:
    """Gini's, times the number of rows."""
    rows = counts.total()
    return rows - sum(count * count for count in counts.values()) / rows if rows else 0.0


def _lines(at: Fork | Leaf, depth: int) -> list[str]:
    indent = "  " * depth
    if isinstance(at, Leaf):
        return [f"{indent}-> {at.label} ({at.right} of {at.rows})"]
    return [
        f"{indent}{at.feature} <= {at.most:g}?",
        *_lines(at.yes, depth + 1),
        f"{indent}else:",
        *_lines(at.no, depth + 1),
    ]


# --- A sum of effects ---------------------------------------------------------------------------

SWEEPS = 5
WEAK = 3.0  # rows that an effect of none counts as


class AdditiveDurations:
    """Durations as a product of factors, one for each trait of a job (its user, its size, ..).

    Logarithms are fitted by a mean and an effect for each value of each trait, in turns; rare
    values are drawn towards no effect.
    """

    def __init__(self, rows: Sequence[tuple[Mapping[str, str], float]]) -> None:
        logs = [log(max(1.0, duration_s)) for _, duration_s in rows]
        self._mean = ordered_sum(logs) / len(logs) if logs else 0.0
        self.rows = len(rows)
        self._effects: dict[str, dict[str, float]] = {name: {} for name, _ in _traits(rows)}
        left = [value - self._mean for value in logs]
        for _ in range(SWEEPS if len(rows) > 1 else 0):
            for trait, effects in self._effects.items():
                sums: dict[str, list[float]] = {}
                for number, (traits, _) in enumerate(rows):
                    left[number] += effects.get(traits[trait], 0.0)
                    sums.setdefault(traits[trait], []).append(left[number])
                for value, parts in sums.items():
                    effects[value] = ordered_sum(parts) / (len(parts) + WEAK)
                for number, (traits, _) in enumerate(rows):
                    left[number] -= effects[traits[trait]]

    def predict_s(self, traits: Mapping[str, str]) -> float:
        """The duration that is expected of such a job."""
        effects = (self._effects[name].get(value, 0.0) for name, value in traits.items())
        return exp(self._mean + ordered_sum(effects))

    def __str__(self) -> str:
        lines = [f"{exp(self._mean):,.0f} s, the geometric mean of {self.rows:,} jobs"]
        for trait, effects in self._effects.items():
            for value, effect in sorted(effects.items(), key=lambda item: item[1]):
                lines.append(f"  x {exp(effect):.2f} if {trait} is {value or 'not said'}")
        return "\n".join(lines)


def traits_of(user: str, name: str, model: str, gpus: float) -> dict[str, str]:
    """What is known of a job when it is submitted, as traits."""
    return {"user": user, "name": name, "model": model, "GPUs": f"{gpus:g}"}


def _traits(rows: Sequence[tuple[Mapping[str, str], float]]) -> Sequence[tuple[str, str]]:
    return list(rows[0][0].items()) if rows else []
