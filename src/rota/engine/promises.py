"""The promises of a priority policy: keys change only as it says, so that queues can be kept.

A waiting job's key is constant, and a running job's key changes with `slope` except at the times
that `next_change` tells. A policy that breaks this is served in an order that it did not want, and
nothing else goes wrong: so the keys in the queues are compared with what the policy says now.
"""

from typing import Any

from rota.core.errors import PolicyError
from rota.core.jobs import Job
from rota.engine.loop import Engine
from rota.engine.priority import PriorityScheduler
from rota.engine.shadow import close

RULE = (
    "a waiting job's key is constant, and a running job's changes by `slope` per second and jumps "
    "when `next_change` says: define these (by default keys are constant), or use DecidePolicy"
)


def check_keys(engine: Engine, scheduler: PriorityScheduler, now_s: float) -> None:
    """Raise PolicyError if a key is not what the policy would say now."""
    if engine.lifecycle.backlog:
        return  # it has not been told everything
    index = scheduler.packer.index
    due = {job.index for at_s, _, job, _ in engine.timers.heap if at_s <= now_s}  # will be asked
    for heap in index.waiting.values():
        for key, _, stamp, job in heap:
            if stamp == job.stamp and job.index not in due:
                _compare(scheduler, job, key, now_s)
    for slope, entries in index.running.items():
        for vkey, _, job in entries:
            if job.index not in due:
                kept = vkey + slope * now_s if slope else vkey
                _compare(scheduler, job, kept, now_s)


def _compare(scheduler: PriorityScheduler, job: Job, kept: Any, now_s: float) -> None:
    says = scheduler.policy.key(job, now_s)
    if not _same(kept, says, now_s):
        raise PolicyError(
            f"policy {scheduler.name!r} breaks the promise of its keys: {job} at {now_s:g} s is "
            f"queued by {kept}, as promised, but `key` says {says} now; {RULE}"
        )


def _same(kept: Any, says: Any, now_s: float) -> bool:
    if isinstance(says, float) and isinstance(kept, (int, float)):
        return close(kept, says, now_s)
    return bool(kept == says)
