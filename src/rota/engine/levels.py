"""When a watched quantity of a job reaches its level."""

from collections.abc import Callable
from math import nextafter

from rota.core.errors import PolicyError
from rota.core.events import INF
from rota.core.jobs import RUNNING, Job
from rota.core.plan import Level

ROUNDING_STEPS = 64  # far more than a few roundings can be off


def level_time(level: Level, now_s: float) -> float:
    """The first time at which it is reached if nothing changes; inf if never, or if it is now."""
    job, value = level.job, level.value
    amount, speed = _quantity(job, level.quantity)
    have = amount(now_s)
    if have >= value or not speed:
        return INF
    at_s = now_s + (value - have) / speed
    # sums are rounded: whoever is woken must find the level reached, or it would ask for ever
    for _ in range(ROUNDING_STEPS):
        if amount(at_s) >= value:
            break
        at_s = nextafter(at_s, INF)
    return at_s


def _quantity(job: Job, name: str) -> tuple[Callable[[float], float], float]:
    """The quantity as a function of time, and its change per second."""
    going = job.phase == RUNNING
    if name == "service":
        return job.attained_gpu_s, job.held_gpus if going else 0.0
    if name == "executed":
        return job.executed_s, 1.0 if going else 0.0
    if name == "waiting":
        return job.waiting_s, 0.0 if going else 1.0
    if name == "progress":
        if not job.work:
            return (lambda _: 1.0), 0.0
        return (lambda t: 1.0 - job.left_at(t) / job.work), job.rate / job.work if going else 0.0
    raise PolicyError(f"unknown quantity {name!r} to watch: service, executed, progress or waiting")
