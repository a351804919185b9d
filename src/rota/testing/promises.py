"""The promises of a priority policy, looked at after every batch of events."""

from rota.core.events import Event
from rota.core.plan import Plan
from rota.engine.invariants import Invariants, check_keys
from rota.engine.loop import Engine
from rota.engine.priority import PriorityScheduler


class Promises(Invariants):
    """Compares the keys of all jobs every time, however many there are (see `check_keys`)."""

    def __init__(self) -> None:
        super().__init__(keys=False)

    def after(self, engine: Engine, events: list[Event], plan: Plan | None) -> None:
        """Raise PolicyError if a key is not what the policy would say."""
        super().after(engine, events, plan)
        if isinstance(engine.scheduler, PriorityScheduler):
            check_keys(engine, engine.scheduler, engine.view.now_s)
