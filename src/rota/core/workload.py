"""A workload: jobs to submit, with what is known of their origin."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, SupportsIndex, TypeVar, overload

import msgspec

from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.words import counted

Made = TypeVar("Made")

Usual = Sequence[tuple[Request, int]]
RankNodes = Callable[[Sequence[str]], list[str]]
Failures = Sequence[tuple[float, str, bool]]
"""When which node went down (False) or came up (True), in order of time."""


class Quality(msgspec.Struct):
    """What an import did to its file: never silent about a dropped or repaired row."""

    rows: int = 0
    kept: int = 0
    dropped: dict[str, int] = msgspec.field(default_factory=dict)
    repaired: dict[str, int] = msgspec.field(default_factory=dict)

    def drop(self, why: str, many: int = 1) -> None:
        """Count rows that were left out."""
        if many:
            self.dropped[why] = self.dropped.get(why, 0) + many

    def repair(self, why: str, many: int = 1) -> None:
        """Count rows that were changed."""
        if many:
            self.repaired[why] = self.repaired.get(why, 0) + many

    @property
    def told(self) -> list[str]:
        """What was done, for people: rows, of which a job may have several."""
        return [
            f"{counted(many, 'row')} of the trace {what}: {why}"
            for what, counts in (("left out", self.dropped), ("changed", self.repaired))
            for why, many in counts.items()
        ]


class WorkloadColumns(Protocol[Made]):
    """Columns from which objects are made, one per row."""

    def make(self, rows: slice | Sequence[int]) -> list[Made]:
        """The objects of these rows."""
        ...

    def field(self, name: str) -> Sequence[Any]:
        """One attribute of all objects, without making them."""
        ...


class OnDemand(Sequence[Made], Generic[Made]):
    """Objects that are made whenever they are asked for: a million of them need no memory.

    Who asks twice for the same gets two equal objects.
    """

    BLOCK = 4_096  # made at a time, by who takes one after the other

    def __init__(self, columns: WorkloadColumns[Made], count: int) -> None:
        self.columns = columns
        self._count = count
        self._first = 0  # of the block that was made last
        self._block: list[Made] = []

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        """Equal to any sequence of equal objects."""
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # like a list

    def __iter__(self) -> Iterator[Made]:
        for first in range(0, self._count, self.BLOCK):
            yield from self.columns.make(slice(first, min(first + self.BLOCK, self._count)))

    @overload
    def __getitem__(self, which: SupportsIndex) -> Made: ...
    @overload
    def __getitem__(self, which: slice) -> list[Made]: ...
    def __getitem__(self, which: SupportsIndex | slice) -> Made | list[Made]:
        if isinstance(which, slice):
            first, last, step = which.indices(self._count)
            if step == 1:
                return self.columns.make(slice(first, max(first, last)))
            return self.at(range(first, last, step))
        row = range(self._count)[which]
        place = row - self._first
        if not 0 <= place < len(self._block):
            self._first = row - row % self.BLOCK
            last = min(self._first + self.BLOCK, self._count)
            self._block = self.columns.make(slice(self._first, last))
            place = row - self._first
        return self._block[place]

    def at(self, rows: Sequence[int]) -> list[Made]:
        """The objects of these rows, in this order."""
        return self.columns.make(rows)


def fields(objects: Sequence[Any], name: str) -> Sequence[Any]:
    """One attribute of all objects; those that are made on demand are not made for it."""
    if isinstance(objects, OnDemand):
        return objects.columns.field(name)
    return [getattr(each, name) for each in objects]


def at(objects: Sequence[Made], rows: Sequence[int]) -> list[Made]:
    """The objects in these places, in this order."""
    if isinstance(objects, OnDemand):
        return objects.at(rows)
    return [objects[row] for row in rows]


class Workload:
    """Jobs in the order of the file: `specs[i]` is asked, `behaviours[i]` is the truth."""

    def __init__(
        self,
        specs: Sequence[JobSpec],
        behaviours: Sequence[Behaviour],
        *,
        name: str = "",
        quality: Quality | None = None,
        usual: Usual | None = None,
        rank_nodes: RankNodes | None = None,
        failures: Failures = (),
        open_ended: frozenset[str] = frozenset(),
    ) -> None:
        """Put the parts together.

        Args:
            specs: What is asked.
            behaviours: The truth.
            name: Of the workload.
            quality: What its import did.
            usual: What jobs ask for and how many do, if these jobs are not to be counted.
            rank_nodes: The order in which the draw that made the workload ranks these nodes.
            failures: Of nodes, as recorded where the jobs come from.
            open_ended: Jobs that still ran when their log was taken: they are simulated up to what
                is known of them, and count as unfinished.
        """
        if len(specs) != len(behaviours):
            raise ValueError("every job needs a behaviour")
        self.specs = specs
        self.behaviours = behaviours
        self.name = name
        self.quality = quality or Quality(rows=len(specs), kept=len(specs))
        self.rank_nodes = rank_nodes
        self.failures = failures
        self.open_ended = open_ended
        self.origin_s = 0.0  # what second 0 was on the clock of the trace; 0 if it is not known
        self._usual = usual

    def __len__(self) -> int:
        return len(self.specs)

    def __iter__(self) -> Iterator[tuple[JobSpec, Behaviour]]:
        return iter(zip(self.specs, self.behaviours, strict=True))

    @property
    def usual(self) -> Usual:
        """What its jobs ask for, and how many of them do."""
        if self._usual is None:
            counts: dict[int, int] = {}  # by identity: readers share objects, and hashing is slow
            found: dict[int, Request] = {}
            for request in fields(self.specs, "request"):
                key = id(request)
                counts[key] = counts.get(key, 0) + 1
                found[key] = request
            together: dict[Request, int] = {}
            for key, request in found.items():
                together[request] = together.get(request, 0) + counts[key]
            self._usual = list(together.items())
        return self._usual

    def like(
        self,
        specs: Sequence[JobSpec],
        behaviours: Sequence[Behaviour],
        *,
        name: str | None = None,
        quality: Quality | None = None,
    ) -> "Workload":
        """Other jobs of the same origin; what is usual stays if it was told."""
        made = Workload(
            specs,
            behaviours,
            name=self.name if name is None else name,
            quality=quality,
            usual=self._usual,
            rank_nodes=self.rank_nodes,
            failures=self.failures,
            open_ended=self.open_ended,
        )
        made.origin_s = self.origin_s
        return made
