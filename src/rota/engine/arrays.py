"""Arrays of jobs: how many of one may be in the queue or run at once."""

from bisect import insort
from collections.abc import Iterable
from typing import Any

from rota.core.jobs import Job


class ArrayGate:
    """Those of each limited array that are let in, and those that wait for their turn.

    Whoever is let in keeps the place until it is over, or is held on request: so at no instant
    more of them run than may. Turns are in the order of submission.
    """

    def __init__(self) -> None:
        self._inside: dict[str, set[int]] = {}
        self._outside: dict[str, list[int]] = {}
        self.freed: dict[str, int] = {}  # arrays with places that became free, and their limits

    def enter(self, job: Job) -> bool:
        """Is it let in? Else it waits for its turn."""
        spec = job.spec
        if not spec.array_limit:
            return True
        inside = self._inside.setdefault(spec.array, set())
        if job.index in inside:
            return True
        if len(inside) < spec.array_limit:
            self._withdraw(job)
            inside.add(job.index)
            return True
        outside = self._outside.setdefault(spec.array, [])
        if job.index not in outside:
            insort(outside, job.index)
        return False

    def is_outside(self, job: Job) -> bool:
        """Does it wait for its turn?"""
        return job.index in self._outside.get(job.spec.array, ())

    def leave(self, job: Job) -> None:
        """It is over, or held: its place is free for the next (see `turns`)."""
        name = job.spec.array
        inside = self._inside.get(name, set())
        if job.index in inside:
            inside.discard(job.index)
            self.freed[name] = job.spec.array_limit
            if not inside:
                del self._inside[name]
        else:
            self._withdraw(job)

    def turns(self) -> list[int]:
        """Whose turn it is, now that places are free."""
        found: list[int] = []
        for name, most in self.freed.items():
            outside = self._outside.get(name, [])
            free = max(0, most - len(self._inside.get(name, ())))
            turns, outside[:] = outside[:free], outside[free:]
            if turns:
                self._inside.setdefault(name, set()).update(turns)
            if not outside:
                self._outside.pop(name, None)
            found += turns
        self.freed = {}
        return found

    def _withdraw(self, job: Job) -> None:
        outside = self._outside.get(job.spec.array, [])
        if job.index in outside:
            outside.remove(job.index)
            if not outside:
                del self._outside[job.spec.array]

    def snapshot(self) -> list[tuple[str, list[int], list[int]]]:
        """As plain data."""
        return [
            (name, sorted(inside), list(self._outside.get(name, ())))
            for name, inside in self._inside.items()
        ]

    def restore(self, state: Iterable[Any]) -> None:
        """Take the state of `snapshot` up again."""
        self._inside, self._outside = {}, {}
        for name, inside, outside in state:
            self._inside[name] = set(inside)
            if outside:
                self._outside[name] = list(outside)
