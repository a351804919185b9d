"""Sets of jobs that compete for nodes with each other, and with nobody else."""

from collections.abc import Iterable
from typing import NamedTuple


class Area(NamedTuple):
    """Sets of nodes that hang together (`Draft.eligible`), and all nodes in them."""

    nodes: int
    sets: tuple[int, ...]

    def parts(self) -> list[int]:
        """The finest parts: each set consists of some of them.

        Those that the fewest sets use come first, so that who takes them in this order leaves the
        others for those who have no choice.
        """
        parts = [self.nodes]
        for one in self.sets:
            parts = [half for part in parts for half in (part & one, part & ~one) if half]
        return sorted(parts, key=lambda part: sum(1 for one in self.sets if one & part)) or [0]


def areas(sets: Iterable[int]) -> list[Area]:
    """Sets of nodes, grouped so that those of different areas have none in common."""
    found: list[Area] = []
    for one in dict.fromkeys(sets):
        touching = [area for area in found if area.nodes & one]
        found = [area for area in found if not area.nodes & one]
        merged = Area(one, (one,))
        for area in reversed(touching):
            merged = Area(area.nodes | merged.nodes, (*area.sets, *merged.sets))
        found.append(merged)
    return found
