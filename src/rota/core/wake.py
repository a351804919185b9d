"""When a scheduler wants to be asked again: plain values."""

import msgspec

from rota.core.events import INF
from rota.core.jobs import Job


class Wake(msgspec.Struct, frozen=True):
    """When to ask again. Conditions are OR-ed; asking earlier is always allowed.

    `on` names event kinds; None means every event. `every_s` is a round, aligned to time 0.
    """

    on: frozenset[int] | None = None
    at_s: float = INF
    every_s: float = 0.0


ON_EVERY_EVENT = Wake()


class Level(msgspec.Struct, frozen=True):
    """Ask when a quantity of a job reaches a value; the engine turns it into an exact time.

    Quantities: `service` (GPU-seconds), `executed` (seconds), `progress` (0..1), `waiting` (s).
    """

    job: Job
    quantity: str
    value: float
