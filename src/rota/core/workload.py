"""A workload: jobs to submit, with what is known of their origin."""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from rota.core.jobs import Behaviour, JobSpec, Request

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
            for spec in self.specs:
                key = id(spec.request)
                counts[key] = counts.get(key, 0) + 1
                found[key] = spec.request
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
        return Workload(
            specs,
            behaviours,
            name=self.name if name is None else name,
            quality=quality,
            usual=self._usual,
            rank_nodes=self.rank_nodes,
            open_ended=self.open_ended,
        )
