"""What can happen, in the order in which it is processed at equal times.

An event is a plain tuple `(time_s, kind, sequence, subject, epoch)`: it is its own heap entry, so
the order `(time, kind, sequence)` needs no extra object. `subject` is a `Job`, a `Vertex` or None;
an event whose `epoch` differs from its subject's is stale (the job was stopped or moved since).
"""

from enum import IntEnum
from typing import Any, TypeAlias

Event: TypeAlias = tuple[float, int, int, Any, int]

INF = float("inf")
ON_REQUEST = -2  # in place of a job in STOP rows: people wanted it (held, its node cleared)


class EventKind(IntEnum):
    """Kinds of events; the number is the order at equal times."""

    JOB_DONE = 0
    JOB_FAILED = 1  # the job itself failed (exit code)
    JOB_STOPPED = 2  # its resources are free again after a stop
    JOB_RUNNING = 3  # the start is over, progress begins (or its rate changed)
    NODE_DOWN = 4
    NODE_UP = 5
    JOB_EVICTED = 6  # lost its resources because a node went down
    JOB_CANCELLED = 7  # ended on request
    JOB_SUBMIT = 8
    REPORT = 9  # a live measurement
    LEVEL = 10  # a watched quantity of a job reached its level
    TIMER = 11  # the policy asked to be woken
    JOB_HELD = 12  # kept out of the queue on request
    JOB_RELEASED = 13  # let into the queue again on request
    NODE_CLOSED = 14  # nothing more is to be started there
    NODE_OPENED = 15
    NODE_CLEARED = 16  # moreover, what runs there shall stop


# Plain ints for hot comparisons: reading an IntEnum member costs an attribute look-up each time.
JOB_DONE = int(EventKind.JOB_DONE)
JOB_FAILED = int(EventKind.JOB_FAILED)
JOB_STOPPED = int(EventKind.JOB_STOPPED)
JOB_RUNNING = int(EventKind.JOB_RUNNING)
NODE_DOWN = int(EventKind.NODE_DOWN)
NODE_UP = int(EventKind.NODE_UP)
JOB_EVICTED = int(EventKind.JOB_EVICTED)
JOB_CANCELLED = int(EventKind.JOB_CANCELLED)
JOB_SUBMIT = int(EventKind.JOB_SUBMIT)
REPORT = int(EventKind.REPORT)
LEVEL = int(EventKind.LEVEL)
TIMER = int(EventKind.TIMER)
JOB_HELD = int(EventKind.JOB_HELD)
JOB_RELEASED = int(EventKind.JOB_RELEASED)
NODE_CLOSED = int(EventKind.NODE_CLOSED)
NODE_OPENED = int(EventKind.NODE_OPENED)
NODE_CLEARED = int(EventKind.NODE_CLEARED)


ENDS = (JOB_DONE, JOB_FAILED, JOB_CANCELLED, JOB_EVICTED, JOB_HELD)
"""After these a job has no place any more."""


class Record(IntEnum):
    """Kinds of rows in the event log. Part of the schema: append, never renumber."""

    SUBMIT = 0  # ref shape, other tenant, value GPUs asked, text job id
    START = 1  # ref allocation, other 1 if it had run before, value time at which progress begins
    #            (inf: others have to leave first; -1: a RUN row will tell)
    RUN = 2  # progress begins (only after a start that took time), value rate
    STOP = 3  # preempted; ref allocation, other job that displaced it (-2: nobody, it was stopped
    #           on request), value work lost; text why, if the policy says so, or who wanted it
    STOPPED = 4  # resources free again (only after a stop that took time)
    DONE = 5
    FAILED = 6  # text says why
    REJECTED = 7  # text says why
    CANCELLED = 8  # other: the job that caused it; text: who did
    EVICTED = 9  # its node failed (ref) or its run was lost (-1, text says why); value work lost
    MOVE = 10  # ref new allocation, other whose GPUs it inherits, value when progress begins
    NODE_DOWN = 11  # ref node
    NODE_UP = 12  # ref node
    REASON = 13  # ref shape (or -1), job head (or the job), value reason
    SHAPE = 14  # defines ref; value GPUs, text description
    ALLOCATION = 15  # defines ref; other vertex, value GPUs there (one row per slice)
    TENANT = 16  # defines ref; text path
    VERTEX = 17  # defines ref; other parent, value GPUs, text `level:name`
    HELD = 18  # admission keeps it outside the queue; value reason
    ADMITTED = 19  # after having been held
    RATE = 20  # value new rate
    REPORT = 21  # value measured; text name of the quantity
    END = 22  # ref events processed, other decisions taken
    TASK = 23  # a task of a non-gang job enters; ref shape, other parent job, value GPUs
    LOST = 24  # a move that follows loses work; value work to be done again
    NODE_CLOSED = 25  # ref node: nothing more is started there; text says why
    NODE_OPENED = 26  # ref node
    NOTE = 27  # something that is not about jobs or nodes (configuration, tokens); text
    EXTRA = 28  # belongs to allocation ref; other node, value amount there, text kind (cpu, memory)
    LATE = 29  # the next row happened at `value`: nobody saw it then. Only in a daemon's own log:
    #            where it is exported, every row has the time at which it happened
