"""Jobs that use the GPUs of another job, when one of the two comes or goes.

The host of a pair holds the GPUs, its guest none (see `engine.pairs`). A plan says of both where
they go; what happens by itself is seen to here: the guest inherits the GPUs of a host that is over,
it does not begin before the GPUs of its host are free, and nobody else gets them before it has left
as well.
"""

from typing import TYPE_CHECKING

from rota.core import machine
from rota.core.allocation import Allocation, host_of
from rota.core.events import INF
from rota.core.jobs import RUNNING, STARTING, STOPPING, Job
from rota.core.log import TOLD, Record

if TYPE_CHECKING:
    from rota.engine.executor import Executor


def inherit(executor: "Executor", host: Job) -> None:
    """The host is over: the GPUs are its guest's now, which goes on where it is."""
    now_s = executor.view.now_s
    for guest in executor.view.active.values():
        if host_of(guest.allocation) != host.index or not guest.running:
            continue
        old = guest.allocation
        guest.allocation = new = Allocation(host.allocation.slices, old.extra)
        late = guest in executor.deferred
        if executor.planned is not None:
            executor.planned.change(old, -1)
            executor.planned.change(new, +1)
        since_s = INF
        if guest.phase in (STARTING, RUNNING):
            machine.settle(guest, now_s)
            guest.held_gpus = new.gpus
            if executor.physical is not None and not late:
                executor.physical.change(old, -1)
                executor.physical.change(new, +1)
            if not late:
                since_s = now_s if guest.phase == RUNNING else TOLD
        number = executor.log.allocation(now_s, new)
        executor.log.row(now_s, Record.MOVE, guest.index, number, host.index, since_s)


def must_wait(executor: "Executor", guest: Job) -> bool:
    """Its host has not got the GPUs yet, or the guest before it has not left."""
    number = host_of(guest.allocation)
    active = executor.view.active
    host = active.get(number)
    if host is None or host.phase not in (STARTING, RUNNING) or host in executor.deferred:
        return True
    here = host.allocation.vertices == guest.allocation.vertices
    if not here or host_of(host.allocation) >= 0:  # a move in the same plan brings it here
        return True
    return any(
        other.phase == STOPPING and host_of(executor.leaving.get(index, other.allocation)) == number
        for index, other in active.items()
        if index != guest.index
    )


def linger(executor: "Executor", host: Job, left: Allocation) -> None:
    """The host has left its GPUs; as long as a guest is still there nobody gets them."""
    physical = executor.physical
    if physical is None:
        return
    for index, guest in executor.view.active.items():
        body = executor.leaving.get(index, guest.allocation)
        if guest.phase == STOPPING and host_of(body) == host.index:
            stays = Allocation(left.slices, body.extra)
            physical.change(body, -1)
            physical.change(stays, +1)
            executor.leaving[index] = stays
