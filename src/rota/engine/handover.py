"""Another scheduler takes over on a living cluster: a new policy, or the same on more nodes."""

from collections.abc import Mapping
from typing import Any

from rota.core import events as ev
from rota.core import machine
from rota.core.allocation import host_of
from rota.core.errors import PolicyError
from rota.core.jobs import HELD, STOPPING, WAITING
from rota.core.log import Record
from rota.core.ports import Successor
from rota.engine.executor import on_cluster
from rota.engine.index import NOWHERE
from rota.engine.loop import Engine
from rota.engine.priority import PriorityScheduler


def hand_over(engine: Engine, scheduler: Successor, state: Mapping[str, Any] | None = None) -> None:
    """From the next decision on this scheduler decides.

    `state` is what the former one saved, if both are of the same making. Otherwise the new one
    finds the jobs where they are, and those that wait are announced to it as if they came now.
    """
    view = engine.view
    if state is None:
        _take_reasons_back(engine)
    _install(engine, scheduler)
    engine.executor.renew(view.active.values(), trusted=scheduler.trusted)
    if state is not None:
        scheduler.restore(view, state)
    else:
        _adopt(engine, scheduler)
    engine.ask_again()


def _install(engine: Engine, scheduler: Successor) -> None:
    engine.scheduler = scheduler
    engine.view.knowledge = scheduler.knowledge
    engine.arrivals.knowledge = int(scheduler.knowledge)
    engine.arrivals.refine = getattr(scheduler, "refine", None)
    for job in engine.view.active.values():
        job.known = int(scheduler.knowledge)
    engine.settles = getattr(scheduler, "settles", True)
    engine.overhear = getattr(scheduler, "overhear", None)
    engine.wake = engine.fixed_wake or scheduler.wake
    engine.log.topology(engine.cluster.topology, engine.view.now_s)  # it may have grown


def _take_reasons_back(engine: Engine) -> None:
    """What the former scheduler said of those who wait is not true of the new one."""
    now_s = engine.view.now_s
    told = getattr(engine.scheduler, "told", None)
    for number in told() if told is not None else ():
        engine.log.row(now_s, Record.REASON, -1, number)
    for job in engine.view.active.values():
        if job.reason and job.phase == WAITING:
            engine.log.row(now_s, Record.REASON, job.index)


def _adopt(engine: Engine, scheduler: Successor) -> None:
    view = engine.view
    moving = engine.executor.moving
    active = list(view.active.values())
    for job in active:
        job.queue = NOWHERE
        job.reason = 0
        job.slope = 0.0
    engine.timers.clear()
    engine.levels.clear()
    engine.backlog.clear()  # nothing in it that cannot be seen from the jobs
    placed = [job for job in active if on_cluster(job) or job.index in moving]
    stopping = [job for job in active if job.phase == STOPPING and job.index not in moving]
    paired = any(host_of(job.allocation) >= 0 for job in placed)
    if paired and isinstance(scheduler, PriorityScheduler):
        raise PolicyError(
            f"policy {scheduler.name!r} cannot take over while jobs share GPUs: it knows nothing "
            "of pairs; let them end first, or choose a policy that decides everything anew"
        )
    scheduler.adopt(view, placed, stopping)
    for job in active:
        kept_out = job.index in engine.detained or engine.arrivals.blockers(job)
        if job.phase == HELD and not kept_out:  # by the former admission
            machine.admit(job)
            engine.log.row(view.now_s, Record.ADMITTED, job.index)
        if job.phase == WAITING:
            engine.backlog.append(engine.event(ev.JOB_SUBMIT, job))
