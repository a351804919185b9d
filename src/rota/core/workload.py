"""A workload: jobs to submit, with what is known of their origin."""

from collections.abc import Iterator, Sequence

import msgspec

from rota.core.jobs import Behaviour, JobSpec


class Quality(msgspec.Struct):
    """What an import did to its file: never silent about a dropped or repaired row."""

    rows: int = 0
    kept: int = 0
    dropped: dict[str, int] = msgspec.field(default_factory=dict)
    repaired: dict[str, int] = msgspec.field(default_factory=dict)


class Workload:
    """Jobs in the order of the file: `specs[i]` is asked, `behaviours[i]` is the truth."""

    def __init__(
        self,
        specs: Sequence[JobSpec],
        behaviours: Sequence[Behaviour],
        *,
        name: str = "",
        quality: Quality | None = None,
    ) -> None:
        if len(specs) != len(behaviours):
            raise ValueError("every job needs a behaviour")
        self.specs = specs
        self.behaviours = behaviours
        self.name = name
        self.quality = quality or Quality(rows=len(specs), kept=len(specs))

    def __len__(self) -> int:
        return len(self.specs)

    def __iter__(self) -> Iterator[tuple[JobSpec, Behaviour]]:
        return iter(zip(self.specs, self.behaviours, strict=True))
