"""The seam for what watches a run (see `invariants`)."""

from typing import TYPE_CHECKING, Protocol

from rota.core.events import Event
from rota.core.plan import Plan

if TYPE_CHECKING:
    from rota.engine.loop import Engine


class Checker(Protocol):
    """Looks at the state after every batch (see `invariants`)."""

    def after(self, engine: "Engine", events: list[Event], plan: Plan | None) -> None:
        """Raise InvariantError if something does not hold."""
        ...
