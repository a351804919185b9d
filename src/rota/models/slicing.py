"""How jobs divide one GPU: fluid shares (processor sharing), and turns that follow them.

Sub-second slices are not simulated one by one: a job that has a third of the turns runs at a third
of its speed (`divide`). `SliceTurns` says who is next where slices are dealt out for real; what
each job has had by then is never more than one slice away from its fluid share.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rota.core.sums import ordered_sum

DUST = 1e-12


class GpuClaim(NamedTuple):
    """What a job wants of a GPU: `need` at full speed, never more than `most`, by its `weight`."""

    need: float
    most: float
    weight: float


def divide(claims: Sequence[GpuClaim], capacity: float = 1.0) -> list[float]:
    """Weighted processor sharing: each gets in proportion to its weight, but no more than `most`.

    What one does not want goes to the others (water-filling). Without contention everybody gets
    `most`.
    """
    shares = [0.0] * len(claims)
    open_ = [i for i, claim in enumerate(claims) if claim.most > 0]
    left = capacity
    while open_ and left > DUST:
        total = ordered_sum(claims[i].weight for i in open_)
        if total <= 0:
            level = left / len(open_)
            full = [i for i in open_ if claims[i].most <= level + DUST]
            portions = dict.fromkeys(open_, level)
        else:
            portions = {i: left * claims[i].weight / total for i in open_}
            full = [i for i in open_ if claims[i].most <= portions[i] + DUST]
        if not full:
            for i in open_:
                shares[i] = portions[i]
            return shares
        for i in full:
            shares[i] = claims[i].most
            left -= claims[i].most
        open_ = [i for i in open_ if i not in full]
    return shares


def slice_tax(quantum_s: float, switch_s: float) -> float:
    """The part of time that is lost to switching, where every slice is followed by one switch."""
    return switch_s / (quantum_s + switch_s) if switch_s > 0 else 0.0


def pipelined_switch_s(
    groups: Sequence[tuple[float, float]], gib_s: float, *, begin_s: float = 0.0
) -> float:
    """Seconds until a model that is not on the GPU has made its first step, less that step alone.

    PipeSwitch (OSDI 2020): groups of layers, each (GiB, seconds of compute), are sent one after the
    other while those before them compute. A group begins when it has arrived and the one before it
    is done.
    """
    arrived = done = begin_s
    compute = 0.0
    for gib, seconds in groups:
        arrived += gib / gib_s
        done = max(done, arrived) + seconds
        compute += seconds
    return done - compute


def remote_step_s(
    local_s: float, gib: float, calls: float, *, gib_s: float, rtt_s: float, sharers: int = 1
) -> float:
    """A step whose GPU is on another node: t = t_local + bytes / bandwidth + calls x round trip.

    `sharers`: as many jobs divide the link.
    """
    return local_s + gib * sharers / gib_s + calls * rtt_s


def spilled_rate(spill_gib: float, step_s: float, gib_s: float) -> float:
    """Speed of a job of which so much GPU memory is kept on its node: it comes and goes each step.

    AntMan (OSDI 2020): a step takes `2 x spill / bandwidth` longer.
    """
    return step_s / (step_s + 2.0 * spill_gib / gib_s)


class SliceTurns:
    """Deals out slices of equal length by weight: the next turn is that of the earliest deadline.

    Only those take part that are not ahead of their share. So after any number of slices each job
    has had its fluid share of them, but for less than one slice.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._total = ordered_sum(weights.values())
        self._weights = dict(weights)
        self._had = dict.fromkeys(weights, 0)
        self._dealt = 0

    def next(self) -> str:
        """Who has the next slice."""
        now = self._dealt
        ready = [
            name
            for name in self._had
            if self._had[name] * self._total <= now * self._weights[name] + DUST
        ]
        name = min(ready, key=lambda each: ((self._had[each] + 1) / self._weights[each], each))
        self._had[name] += 1
        self._dealt += 1
        return name

    def lag(self, name: str) -> float:
        """Slices that it is behind its fluid share; below 0: ahead."""
        return self._dealt * self._weights[name] / self._total - self._had[name]
