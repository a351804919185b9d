"""What trials may differ in, and which are tried.

Every combination of lists is tried if that is not more than the trials that were asked for, else
some of them, drawn without repetition. With ranges, trials are drawn so that each axis is covered
evenly (a Latin hypercube): of T trials one is in each T-th of every range.
"""

import math
from collections.abc import Sequence
from itertools import product
from typing import Any, Literal

import msgspec
import numpy as np

from rota.core.registry import split
from rota.study.sweep.spec import Choice, Label

DIGITS = 4  # of numbers that are drawn from a range


class TuneRange(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers from one to another; whole ones if both ends are."""

    low: float
    high: float
    scale: Literal["linear", "log"] = "linear"
    whole: bool = False

    def at(self, share: float) -> float | int:
        """The number at this share of the range."""
        if self.scale == "log":
            value = math.exp(
                math.log(self.low) + share * (math.log(self.high) - math.log(self.low))
            )
        else:
            value = self.low + share * (self.high - self.low)
        if self.whole:
            return round(value)
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)


class TuneAxis(msgspec.Struct, frozen=True):
    """One thing that is varied; `of_policy`: a parameter of the policy, else options of a run."""

    name: str
    values: list[Choice] | TuneRange
    of_policy: bool = False

    def chosen(self, share: float) -> Choice:
        """The value at this share of the list or the range."""
        if isinstance(self.values, TuneRange):
            number = self.values.at(share)
            return Choice(number, {self.name: number})
        return self.values[min(int(share * len(self.values)), len(self.values) - 1)]


class TuneTrial(msgspec.Struct, frozen=True):
    """Values to try: by axis (none of the space for the default), and as options of a run."""

    number: int
    values: dict[str, Label]
    options: dict[str, Any]

    @property
    def label(self) -> str:
        """The policy with its parameters, and what else is varied."""
        return ", ".join(str(value) for value in self.told)

    @property
    def told(self) -> list[str]:
        """The parts of the label."""
        more = [f"{key}={value}" for key, value in self.options.items() if key != "policy"]
        return [self.options["policy"], *more]


def make_trials(
    default: dict[str, Choice], axes: Sequence[TuneAxis], count: int | None, seed: int
) -> list[TuneTrial]:
    """The default, which has number 0, and the others; no two are the same.

    Args:
        default: What each axis is without tuning; empty options: it is not said.
        axes: What is varied.
        count: Trials beside the default; None: all combinations of lists.
        seed: Of the draws.
    """
    chosen = [
        default,
        *(dict(zip(_names(axes), each, strict=True)) for each in _drawn(axes, count, seed)),
    ]
    trials: dict[str, TuneTrial] = {}
    for values in chosen:
        made = _trial(len(trials), values, axes)
        trials.setdefault(made.label, made)
    return list(trials.values())


def _names(axes: Sequence[TuneAxis]) -> list[str]:
    return [axis.name for axis in axes]


def _drawn(axes: Sequence[TuneAxis], count: int | None, seed: int) -> list[tuple[Choice, ...]]:
    rng = np.random.default_rng(seed)
    lists = [axis.values for axis in axes if not isinstance(axis.values, TuneRange)]
    if len(lists) == len(axes):
        size = math.prod(map(len, lists))
        if count is None or count >= size:
            return list(product(*lists))
        places = sorted(rng.choice(size, count, replace=False).tolist())
        return [_place(lists, place) for place in places]
    if count is None:  # pragma: no cover - refused with the description
        raise ValueError("a range has no end of trials")
    shares = [(rng.permutation(count) + rng.random(count)) / count for _ in axes]
    return [
        tuple(axis.chosen(float(share[i])) for axis, share in zip(axes, shares, strict=True))
        for i in range(count)
    ]


def _place(lists: Sequence[list[Choice]], place: int) -> tuple[Choice, ...]:
    """A combination by its number."""
    found = []
    for values in reversed(lists):
        place, number = divmod(place, len(values))
        found.append(values[number])
    return tuple(reversed(found))


def _trial(number: int, values: dict[str, Choice], axes: Sequence[TuneAxis]) -> TuneTrial:
    options: dict[str, Any] = {}
    parameters: dict[str, Any] = {}
    for axis in axes:
        into = parameters if axis.of_policy else options
        into |= values[axis.name].options
    options["policy"] = with_parameters(options["policy"], parameters)
    labels = {axis.name: values[axis.name].label for axis in axes}
    return TuneTrial(number, labels, options)


def with_parameters(policy: str, parameters: dict[str, Any]) -> str:
    """The policy with these parameters; they win over those that it has."""
    name, given = split(policy)
    given |= {key: _written(value) for key, value in parameters.items()}
    return name + ":" * bool(given) + ",".join(f"{key}={value}" for key, value in given.items())


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return "/".join(map(_written, value))
    return f"{value:.12g}" if isinstance(value, float) else str(value)
