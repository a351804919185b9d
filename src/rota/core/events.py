"""What can happen, in the order in which it is processed at equal times.

An event is a plain tuple `(time_s, kind, sequence, subject, epoch)`: it is its own heap entry, so
the order `(time, kind, sequence)` needs no extra object. `subject` is a `Job`, a `Vertex` or None;
an event whose `epoch` differs from its subject's is stale (the job was stopped or moved since).
"""

from enum import IntEnum
from typing import Any, TypeAlias

Event: TypeAlias = tuple[float, int, int, Any, int]

INF = float("inf")


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
    JOB_PHASE = 17  # it goes on at another rate by itself: wakes only who asks for it
    JOB_TIMEOUT = 18  # its time limit ended it; for schedulers that is a failure


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
JOB_PHASE = int(EventKind.JOB_PHASE)
JOB_TIMEOUT = int(EventKind.JOB_TIMEOUT)


ENDS = (JOB_DONE, JOB_FAILED, JOB_CANCELLED, JOB_EVICTED, JOB_HELD)
"""After these a job has no place any more."""
