"""Auctions of GPUs by the partial allocation mechanism: truth pays (Cole, Gkatzelis, Goel 2013).

Every bidder i states a value V_i for what it may win: some GPUs of one type, on few nodes or on
any, or nothing. The winners are those that

    maximise    prod_i V_i(x_i)    over all allocations x of the offered GPUs   (Nash welfare)

With x* the best allocation and x*(-i) the best one without bidder i, winner i pays for what its
presence costs the others: it keeps only the part

    c_i = prod_{j != i} V_j(x*_j) / prod_{j != i} V_j(x*(-i)_j)  <=  1

of what it wins. If a part c of a prize is worth c V_i (and nothing is worth nothing), i ends up
with c_i V_i(x*_i), which is prod_j V_j(x*_j) divided by a number that does not depend on what i
says: so nobody gains by stating other values than the true ones. Where getting nothing has a value
of its own this holds only nearly: a bidder who overstates may win in the place of another, and
keeps the less the more that other one wanted it.

Finding the winners is a search with bounds. It is exact unless it takes more than `effort` steps;
then the best allocation so far wins, which is at least that of the largest gains per GPU first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import TypeAlias

from rota.core.sums import ordered_sum

EFFORT = 300
_BETTER = 1e-12
_DUST = 1e-9
_LEAST = 1e-12  # the value of something worthless: its logarithm must be a number

Offer: TypeAlias = Mapping[str, Sequence[float]]
"""Free GPUs of every node, by GPU type."""


@dataclass(frozen=True)
class Option:
    """GPUs of one type (None: of any) on at most so many nodes (0: on any number)."""

    kind: str | None
    gpus: float
    nodes: int
    value: float


@dataclass(frozen=True)
class Bid:
    """What a bidder makes of each option, and of getting nothing."""

    bidder: int
    nothing: float
    options: tuple[Option, ...]

    def gain(self, option: Option) -> float:
        """How much the logarithm of the product grows."""
        return log(max(option.value, _LEAST)) - log(max(self.nothing, _LEAST))


@dataclass(frozen=True)
class Award:
    """What a bidder wins, and which part of it (of the lease) it keeps."""

    bidder: int
    option: Option
    kept: float


def auction(offer: Offer, bids: Sequence[Bid], *, effort: int = EFFORT) -> list[Award]:
    """The winners in the order of their bids, with what they keep after paying."""
    total, won = winners(offer, bids, effort=effort)
    awards = []
    for bid in bids:
        option = won.get(bid.bidder)
        if option is None:
            continue
        others = [other for other in bids if other is not bid]
        without, _ = winners(offer, others, effort=effort)
        awards.append(Award(bid.bidder, option, min(1.0, exp(total - bid.gain(option) - without))))
    return awards


def winners(
    offer: Offer, bids: Sequence[Bid], *, effort: int = EFFORT
) -> tuple[float, dict[int, Option]]:
    """By how much the logarithm of the product grows at best, and who gets what.

    Among equals those whose bids come first win.
    """
    search = _BidSearch(offer, bids, effort)
    search.greedy()
    search.descend(0, 0.0)
    return search.best, {bids[at].bidder: option for at, option in search.won.items()}


class _BidSearch:
    """Bidder by bidder: one of its options, or nothing."""

    def __init__(self, offer: Offer, bids: Sequence[Bid], effort: int) -> None:
        self.offer = offer
        self.bids = bids
        self.left = effort
        self.free = {kind: ordered_sum(nodes) for kind, nodes in offer.items()}
        self.room = ordered_sum(self.free.values())
        self.taken: dict[int, Option] = {}
        self.best = 0.0
        self.won: dict[int, Option] = {}
        self.options = [self._useful(bid) for bid in bids]
        self._rest = [self._rests(at) for at in range(len(bids) + 1)]

    def _useful(self, bid: Bid) -> list[tuple[float, Option]]:
        """Options that are better than nothing and fit an empty offer, the best first."""
        gains = [(bid.gain(option), option) for option in bid.options]
        kept = [
            (gain, option)
            for gain, option in gains
            if gain > _BETTER and self._roomy(option) and self._fits(option)
        ]
        return sorted(kept, key=lambda entry: -entry[0])

    def _rests(self, at: int) -> list[tuple[float, float]]:
        """For the bidders from here on: the best gain per GPU, and the best gain."""
        found = [
            (max(gain / option.gpus for gain, option in options), options[0][0])
            for options in self.options[at:]
            if options
        ]
        return sorted(found, reverse=True)

    def _roomy(self, option: Option) -> bool:
        room = self.room if option.kind is None else self.free.get(option.kind, 0.0)
        return option.gpus <= min(room, self.room) + _DUST

    def _fits(self, option: Option) -> bool:
        """Beside those that are taken; only its own type can be too full."""
        if not option.nodes or option.kind is None:
            return True
        taken = [other for other in self.taken.values() if other.kind == option.kind]
        return packs(self.offer[option.kind], [*taken, option])

    def bound(self, at: int) -> float:
        """No choice of the bidders from here on gains more: parts of gangs are allowed here."""
        room, total = self.room, 0.0
        for density, gain in self._rest[at]:
            if room <= _DUST:
                break
            part = min(gain, density * room)
            total += part
            room -= part / density
        return total

    def greedy(self) -> None:
        """A first answer: the best option of each, the largest gains per GPU first."""
        firsts = [(options[0], at) for at, options in enumerate(self.options) if options]
        firsts.sort(key=lambda first: -first[0][0] / first[0][1].gpus)
        gained = 0.0
        for (gain, option), at in firsts:
            if self._roomy(option) and self._fits(option):
                self._change(at, option, -1)
                gained += gain
        self.best, self.won = gained, dict(self.taken)
        for at, option in self.won.items():
            self._change(at, option, +1)

    def descend(self, at: int, gained: float) -> None:
        """Try everything for the bidders from here on that may still be better."""
        if gained > self.best + _BETTER:
            self.best, self.won = gained, dict(self.taken)
        if at == len(self.bids) or self.left <= 0:
            return
        self.left -= 1
        if gained + self.bound(at) <= self.best + _BETTER:
            return
        for gain, option in self.options[at]:
            if self._roomy(option) and self._fits(option):
                self._change(at, option, -1)
                self.descend(at + 1, gained + gain)
                self._change(at, option, +1)
        self.descend(at + 1, gained)

    def _change(self, at: int, option: Option, sign: int) -> None:
        self.room += sign * option.gpus
        if option.kind is not None:
            self.free[option.kind] += sign * option.gpus
        if sign < 0:
            self.taken[at] = option
        else:
            del self.taken[at]


def packs(nodes: Sequence[float], options: Sequence[Option]) -> bool:
    """Is there room on nodes with so many free GPUs for all gangs that must be close together?

    The others take what is left, wherever it is.
    """
    close = sorted((option for option in options if option.nodes), key=lambda o: -o.gpus)
    return _packs(sorted(nodes), close)


def _packs(nodes: list[float], options: Sequence[Option]) -> bool:
    """The largest gang first, on the fullest node that has room. `nodes` ascend."""
    if not options:
        return True
    first, rest = options[0], options[1:]
    many = first.nodes - 1  # a gang on several nodes takes all of the freest ones ...
    need, others = first.gpus, nodes
    if many:
        need, others = need - ordered_sum(nodes[-many:]), nodes[:-many]
    if need <= _DUST:
        return _packs(sorted(taken_from(nodes, first.gpus)), rest)
    last = -1.0
    for at, free in enumerate(others):  # ... and the rest from any other; equal nodes are alike
        if free + _DUST < need or free == last:
            continue
        last = free
        left = sorted([*([0.0] * many), *others[:at], free - need, *others[at + 1 :]])
        if _packs(left, rest):
            return True
    return False


def taken_from(nodes: Sequence[float], gpus: float) -> list[float]:
    """What is left of these nodes without so many GPUs of the freest of them."""
    left = []
    for free in sorted(nodes, reverse=True):
        used = min(free, gpus)
        left.append(free - used)
        gpus -= used
    return left
