"""When a watched quantity of a job reaches its level."""

from rota.core.errors import PolicyError
from rota.core.events import INF
from rota.core.jobs import RUNNING
from rota.core.plan import Level


def level_time(level: Level, now_s: float) -> float:
    """The exact time if nothing changes; inf if never (or if it is reached already)."""
    job, value = level.job, level.value
    going = job.phase == RUNNING
    if level.quantity == "service":
        have, speed = job.attained_gpu_s(now_s), job.held_gpus if going else 0.0
    elif level.quantity == "executed":
        have, speed = job.executed_s(now_s), 1.0 if going else 0.0
    elif level.quantity == "progress":
        have = 1.0 - job.left_at(now_s) / job.work
        speed = job.rate / job.work if going else 0.0
    elif level.quantity == "waiting":
        have, speed = job.waiting_s(now_s), 0.0 if going else 1.0
    else:
        raise PolicyError(
            f"unknown quantity {level.quantity!r} to watch: service, executed, progress or waiting"
        )
    if have >= value or not speed:
        return INF
    return now_s + (value - have) / speed
