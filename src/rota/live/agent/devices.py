"""Which concrete GPUs of a node a part gets."""

from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

from rota.core.sums import ordered_sum

EPSILON = 1e-6
ANY = -1

Share: TypeAlias = tuple[int, float]
"""(number of a GPU of the node, part of it)."""


class GpuShares:
    """Who has which GPU of one node: whole ones are exclusive, fractions may share one.

    `shared`: GPUs that several may have at a time, as far as their number is asked for.
    """

    def __init__(self, devices: int, shared: Collection[int] = ()) -> None:
        self._used = [0.0] * devices
        self._shared = shared

    @property
    def used(self) -> tuple[float, ...]:
        """How much of each GPU is taken."""
        return tuple(self._used)

    def take(self, slices: Iterable[Share], avoid: Collection[int] = ()) -> list[Share] | None:
        """Devices for these slices, from now on theirs; None if not all of them are free.

        `avoid`: devices that others wait for by number; those who may have any get them last.
        """
        taken: list[Share] = []
        # slices that name their device come first, lest another takes it
        for device, amount in sorted(slices, key=lambda part: part[0] == ANY):
            shares = self._choose(device, amount, avoid)
            if shares is None:
                self.give(taken)
                return None
            self.book(shares)
            taken += shares
        return taken

    def book(self, shares: Sequence[Share]) -> None:
        """Note that these are taken; beyond what there is, if it has happened already."""
        for device, part in shares:
            if device < len(self._used):  # the node may have had more GPUs before
                self._used[device] += part

    def give(self, shares: Sequence[Share]) -> None:
        """Free them again."""
        for device, part in shares:
            if device < len(self._used):
                left = self._used[device] - part
                self._used[device] = left if left > EPSILON else 0.0

    def fits(self, slices: Iterable[Share]) -> bool:
        """Could this node ever give so much?"""
        slices = list(slices)
        return (
            all(device < len(self._used) for device, _ in slices)
            and ordered_sum(amount for _, amount in slices) <= len(self._used) + EPSILON
        )

    def _choose(self, device: int, amount: float, avoid: Collection[int]) -> list[Share] | None:
        """Whole devices in order; a remaining fraction goes to the fullest one with room for it."""
        if device != ANY:
            fits = device in self._shared or self._used[device] + amount <= 1 + EPSILON
            return [(device, amount)] if fits else None
        whole = int(amount + EPSILON)
        rest = amount - whole
        candidates = sorted(range(len(self._used)), key=lambda number: number in avoid)
        idle = [number for number in candidates if not self._used[number]]
        if len(idle) < whole:
            return None
        shares: list[Share] = [(number, 1.0) for number in sorted(idle[:whole])]
        if rest > EPSILON:
            room = [
                number
                for number in candidates
                if number not in idle[:whole] and self._used[number] + rest <= 1 + EPSILON
            ]
            if not room:
                return None
            shares.append((max(room, key=self._used.__getitem__), rest))
        return shares
