"""The promises of a priority policy: keys change only as it says, so that queues can be kept."""

from typing import Any

from rota.core.errors import InvariantError
from rota.core.events import Event
from rota.core.jobs import Job
from rota.core.plan import Plan
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.priority import PriorityScheduler
from rota.engine.shadow import close


class Promises(Invariants):
    """Also compares, after every batch, the keys in the queues with what the policy says now."""

    def after(self, engine: Engine, events: list[Event], plan: Plan | None) -> None:
        """Raise InvariantError if a key is not what the policy would say."""
        super().after(engine, events, plan)
        scheduler = engine.scheduler
        if not isinstance(scheduler, PriorityScheduler) or engine.backlog:
            return
        now_s = engine.view.now_s
        index = scheduler.packer.index
        due = {job.index for at_s, _, job, _ in engine.timers if at_s <= now_s}  # will be asked
        for heap in index.waiting.values():
            for key, _, stamp, job in heap:
                if stamp == job.stamp and job.index not in due:
                    _compare(scheduler, job, key, now_s, "a waiting job's key is constant")
        for slope, entries in index.running.items():
            for vkey, _, job in entries:
                if job.index not in due:
                    key = vkey + slope * now_s if slope else vkey
                    _compare(scheduler, job, key, now_s, "slope and next_change tell all changes")


def _compare(scheduler: PriorityScheduler, job: Job, kept: Any, now_s: float, promise: str) -> None:
    says = scheduler.policy.key(job, now_s)
    same = close(kept, says, now_s) if isinstance(says, float) else kept == says
    if not same:
        raise InvariantError(
            f"{job} at {now_s:g} s: its key is {says}, and the queues have {kept}; the policy "
            f"promised: {promise}"
        )
