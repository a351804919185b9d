"""Why a request that comes next does not start, by what is free at this very moment.

The first that is true counts:

1. `capacity`: all nodes that are up together have fewer GPUs (CPUs, GiB of memory) free than it
   asks for;
2. `constraint`: they have enough, but those among them that the request accepts (GPU type, labels)
   have not;
3. `gang`: those have enough; it asks for several nodes of its own, at least one of its tasks would
   find one, and not all of them do: tasks that may start one by one would begin;
4. `fragmentation`: those have enough, but there is no place for it: the free GPUs are spread over
   nodes in another way than its placement allows.

Only requests whose tasks are placed one by one (each on a node of its own) have parts that could
start. All others are one piece to a placement, however many GPUs they ask for.
"""

from itertools import compress
from operator import and_

from rota.core.jobs import Shape
from rota.core.reasons import Reason
from rota.placement.base import EPSILON, Placement, Room

CAPACITY = int(Reason.CAPACITY)
FRAGMENTATION = int(Reason.FRAGMENTATION)
GANG = int(Reason.GANG)
CONSTRAINT = int(Reason.CONSTRAINT)


def why_not(placement: Placement, shape: Shape) -> int:
    """The reason of a request that does not fit now."""
    if shape.gpus > placement.free:
        return CAPACITY
    if shape.plain or placement.pooled:
        return FRAGMENTATION
    room = placement.room
    more = (shape.cpus and room.has_cpus) or (shape.mem_gib and room.has_mem)  # than GPUs
    if more and not placement.enough(shape):
        return CAPACITY
    if (shape.types or shape.labels) and not _accepted(room, shape):
        return CONSTRAINT
    if shape.apart:
        part = shape.gpus / shape.apart
        if any(room.usable(position, shape) >= part for position in range(len(room.nodes))):
            return GANG
    return FRAGMENTATION


def _accepted(room: Room, shape: Shape) -> bool:
    """Is as much free as it asks for on the nodes of a kind that it accepts?"""
    use = list(map(and_, room.up, room.matching(shape)))
    gpus = sum(compress(room.gpus, use))
    if room.shares:
        gpus += sum(sum(shared.values()) for i, shared in room.shares.items() if use[i])
    return not (
        shape.gpus > gpus + EPSILON
        or (room.has_cpus and shape.cpus > sum(compress(room.cpus, use)) + EPSILON)
        or (room.has_mem and shape.mem_gib > sum(compress(room.mem_gib, use)) + EPSILON)
    )
