"""The schema of the event log: kinds of rows, columns, and what each column means in a row.

Every run, live or simulated, writes one flat table of rows `(time_s, event, job, ref, other, value,
text)`. `Record` says what `ref`, `other`, `value` and `text` mean for each kind of row. Readers use
`Row` (one row after the other) or `rota.core.eventlog` (whole columns), not positions.
"""

from enum import IntEnum
from typing import NamedTuple

SCHEMA_VERSION = 1
NUMBERS = ("time_s", "event", "job", "ref", "other", "value")
COLUMNS = (*NUMBERS, "text")
WIDTH = len(NUMBERS)

ON_REQUEST = -2
"""In place of a job in STOP rows: people wanted it (held, its node cleared)."""
TOLD = -1.0
"""In place of a time in START and MOVE rows: progress begins when a RUN row says so."""
NODE = "node:"
"""Texts of VERTEX rows begin with the level; this is that of nodes."""


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
    # ref new allocation, other whose GPUs it inherits (the job itself: it has its GPUs on other
    # terms), value when progress begins
    MOVE = 10
    NODE_DOWN = 11  # ref node
    NODE_UP = 12  # ref node
    REASON = 13  # ref shape (or -1), job head (or the job), value reason; or ref shape and other
    #              tenant: of all jobs of both that have no reason of their own
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
    TIMEOUT = 30  # its time limit ended it; text says which


LABELS = tuple(record.name.lower() for record in Record)
"""How the kinds are called in files, by number."""


class Row(NamedTuple):
    """One row. The properties name what `ref`, `other` and `value` are in rows that have it."""

    time_s: float
    event: int
    job: int
    ref: int
    other: int
    value: float
    text: str | None = None

    @property
    def shape(self) -> int:
        """Of SUBMIT, TASK and SHAPE; of REASON -1 if it is about one job."""
        return self.ref

    @property
    def allocation(self) -> int:
        """Of START, MOVE, STOP, ALLOCATION and EXTRA."""
        return self.ref

    @property
    def tenant(self) -> int:
        """Of SUBMIT; of REASON -1 if it is not about jobs of one tenant."""
        return self.other

    @property
    def parent(self) -> int:
        """Of TASK: its job."""
        return self.other

    @property
    def vertex(self) -> int:
        """Of ALLOCATION and EXTRA: where the slice is."""
        return self.other

    @property
    def slice(self) -> tuple[int, float]:
        """Of ALLOCATION: where, and how many GPUs."""
        return self.other, self.value

    @property
    def node(self) -> int:
        """Of NODE_DOWN, NODE_UP, NODE_CLOSED, NODE_OPENED and EVICTED (-1: no node failed)."""
        return self.ref

    @property
    def reason(self) -> int:
        """Of REASON and HELD."""
        return int(self.value)

    @property
    def cause(self) -> int:
        """Of STOP: the job that displaced it; below 0: no job did."""
        return self.other
