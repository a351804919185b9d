"""The life of every job as spans, from the flat event log.

An *actor* is what the engine schedules: a job, or a task of a non-gang job (see `TASK` rows).
The rows of an actor cut its life into spans; the row at which a span begins says what it is:

| row | until the actor's next row it ... |
| --- | --- |
| SUBMIT, TASK, ADMITTED, STOPPED | waits |
| HELD | waits outside the queue, by the reason in the row |
| REASON with ref -1 | waits by the reason in the row, until it starts |
| START, MOVE | makes progress if `value` is a time up to the row, else it is being started |
| RUN | makes progress |
| STOP | is being stopped if STOPPED follows (*), else it waits |
| EVICTED | is being stopped if STOPPED follows (*), else it waits: for its node if that failed |
| DONE, FAILED, TIMEOUT, REJECTED, CANCELLED | is over |

(*) Directly, or after STOP, MOVE or EVICTED in between; or if DONE, FAILED or TIMEOUT follows: who
waits cannot end by itself, so it was quicker than the stop. A job that loses the node it was moving
to is evicted while it is still being stopped. Otherwise a failed node (`ref`) keeps a job waiting
until it is up again (NODE_UP) or the job starts; after NODE_UP it waits like any other. Where no
node failed (`ref` -1: its run was lost, or failed and is tried again) it does so at once.

GPUs are held from START (or MOVE) until the actor waits again or has ended. Two exceptions: a job
that is to MOVE but has to be stopped first (STOPPED follows) keeps its old GPUs until then;
and a start that does not know when progress begins (`value` is inf) waits for others to leave its
slices, so it holds nothing until its next row (START again: they have left; RUN: it runs).

The last row of the log (END) ends the spans of whatever is not over.
"""

from bisect import bisect_right
from functools import cached_property
from typing import Any, Literal

import numpy as np
import polars as pl

from rota.core.eventlog import Bools, EventLog, Floats, Ints, add_up, among
from rota.core.log import Record
from rota.core.reasons import Reason

WAITS, OVERHEAD, RUNS, OVER = range(4)
"""What an actor does during a span."""

TERMINAL = (
    Record.DONE, Record.FAILED, Record.REJECTED, Record.CANCELLED, Record.TIMEOUT,
)  # fmt: skip
_ENDS: tuple[Literal["left"], Literal["right"]] = ("left", "right")
_BACK = 200  # not in the log: the node that failed under a waiting job is up again
_LIFE = (
    Record.SUBMIT, Record.TASK, Record.ADMITTED, Record.HELD, Record.START, Record.RUN, Record.STOP,
    Record.STOPPED, Record.MOVE, Record.EVICTED, *TERMINAL,
)  # fmt: skip


_IS_LIFE = among(_LIFE)
_IS_TERMINAL = among(TERMINAL)
_IS_SUBMIT = among((Record.SUBMIT,))
_IS_STOPS_END = among((Record.STOPPED, Record.DONE, Record.FAILED, Record.TIMEOUT))
_IS_HALT = among((Record.STOP, Record.MOVE, Record.EVICTED))


class History(EventLog):
    """A log with the spans of all actors, sorted by actor and then by time.

    Spans: `actor` (its slot in `actors`), `kind` (of the row), `row` (its number in the log),
    `until_row`, `from_s`, `until_s`, `state`, `reason` (0: nothing special), `held` (GPUs),
    `allocation` (number of what is held, or kept for it until others have left; -1: nothing).
    Actors: `actors` (their indices), `owner` (slot of a task's job, of others their own).
    """

    def __init__(self, log: pl.DataFrame) -> None:
        super().__init__(log)
        self._cut()
        self._follow()

    # --- spans ------------------------------------------------------------------------------------

    def _cut(self) -> None:
        """Find the rows at which spans begin."""
        explains = (self.event == Record.REASON) & (self.ref == -1) & (self.job >= 0)
        row: Ints = np.flatnonzero(_IS_LIFE[self.event] | explains)
        actor = self.job[row]
        order = np.argsort(actor, kind="stable")
        self.row, index = row[order], actor[order]
        self.kind = self.event[self.row]
        self._insert_recoveries(index)
        index = self.job[self.row]
        if len(self._recovered):
            index[self.kind == _BACK] = self._recovered
        first = np.ones(len(index), dtype=np.bool_)
        first[1:] = index[1:] != index[:-1]
        self.first = first
        self.actor: Ints = np.cumsum(first) - 1
        self.actors = index[first]
        last = np.ones(len(index), dtype=np.bool_)
        last[:-1] = first[1:]
        self.last = last
        self.from_s: Floats = self.time_s[self.row]
        self.until_row = np.append(self.row[1:], 0)
        self.until_row[last] = len(self.time_s) - 1
        over = _IS_TERMINAL[self.kind]
        self.until_row[over] = self.row[over]
        self.until_s: Floats = self.time_s[self.until_row]

    def _insert_recoveries(self, index: Any) -> None:
        """A job whose node failed waits for the node only until it is up again."""
        self._recovered: Any = np.zeros(0, dtype=np.int64)
        evicted = np.flatnonzero(self.kind == Record.EVICTED)
        if not len(evicted):
            return
        ups: dict[int, list[int]] = {}
        for row in self.rows_of(Record.NODE_UP).tolist():
            ups.setdefault(int(self.ref[row]), []).append(row)
        after, rows = [], []
        for k in evicted.tolist():
            goes_on = k + 1 < len(index) and index[k + 1] == index[k]
            if goes_on and _IS_STOPS_END[self.kind[k + 1]]:
                continue
            until = self.row[k + 1] if goes_on else len(self.time_s)
            of_node = ups.get(int(self.ref[self.row[k]]), [])
            up = bisect_right(of_node, self.row[k])
            if up < len(of_node) and of_node[up] < until:
                after.append(k + 1)
                rows.append(of_node[up])
        self._recovered = index[np.array(after, dtype=np.int64) - 1]
        self.row = np.insert(self.row, after, rows)
        self.kind = np.insert(self.kind, after, _BACK)

    def _follow(self) -> None:
        """Say what happens in each span."""
        kind, value = self.kind, self.value[self.row]
        following = np.append(kind[1:], 0)
        following[self.last] = Record.END
        placed = (kind == Record.START) | (kind == Record.MOVE)
        at_once = (kind == Record.MOVE) & (value < np.inf)
        leads = _leads_to_end_of_stop(following, _IS_HALT[kind] & ~at_once)
        stopping = ((kind == Record.STOP) | (kind == Record.EVICTED)) & leads
        leaving = (kind == Record.MOVE) & (value == np.inf) & leads
        state = np.full(len(kind), WAITS, dtype=np.int8)
        begins = placed & (value >= 0) & (value <= self.from_s)
        state[(kind == Record.RUN) | begins] = RUNS
        state[(placed & ~begins) | stopping] = OVERHEAD
        state[_IS_TERMINAL[kind]] = OVER
        self.state = state
        reason = np.zeros(len(kind), dtype=np.int64)
        named = (kind == Record.HELD) | (kind == Record.REASON)
        reason[named] = value[named].astype(np.int64)
        node_failed = (kind == Record.EVICTED) & (self.ref[self.row] >= 0)  # else its run did
        reason[node_failed & ~leads] = Reason.DOWN
        self.reason: Ints = reason
        self.held = self._held(placed & ~leaving, (placed & (value == np.inf)) & ~leaving)

    def _held(self, defines: Bools, reserved: Bools) -> Floats:
        """GPUs in the actor's hands during each span."""
        sizes = self._allocation_gpus()
        gpus = np.zeros(len(self.kind))
        gpus[defines] = sizes[self.ref[self.row[defines]]]
        source = np.where(defines, np.arange(len(self.kind)), 0)
        np.maximum.accumulate(source, out=source)
        holds = ((self.state == RUNS) | (self.state == OVERHEAD)) & ~reserved
        given = holds | reserved
        self.allocation: Ints = np.where(given, self.ref[self.row[source]], -1)
        held: Floats = np.where(holds, gpus[source], 0.0) if len(gpus) else gpus
        return held

    def _allocation_gpus(self) -> Floats:
        named = (self.event == Record.START) | (self.event == Record.MOVE)
        size = int(self.ref[named].max(initial=-1)) + 1  # the last ones may be without GPUs
        return add_up(self.slices.allocation, self.slices.amount, max(1, size))

    @cached_property
    def kept_out(self) -> Bools:
        """Jobs that still wait for a maintenance or a reservation when the log ends."""
        window = np.isin(self.reason, (Reason.MAINTENANCE, Reason.RESERVED))
        found: Bools = (window & (self.state == WAITS))[self.last][self.is_job]
        return found

    @cached_property
    def length_s(self) -> Floats:
        """How long each span lasts."""
        return self.until_s - self.from_s

    # --- actors and jobs --------------------------------------------------------------------------

    @cached_property
    def entry_row(self) -> Ints:
        """The row (SUBMIT or TASK) by which each actor entered."""
        rows: Ints = self.row[self.first]
        return rows

    @cached_property
    def shape(self) -> Ints:
        """The shape of each actor's request."""
        shapes: Ints = self.ref[self.entry_row]
        return shapes

    @cached_property
    def asked(self) -> Floats:
        """The GPUs that each actor asks for."""
        return self.value[self.entry_row]

    @cached_property
    def ids(self) -> list[str]:
        """Names of the jobs, in their order."""
        return self.texts(self.entry_row[self.is_job])

    @cached_property
    def tenant(self) -> Ints:
        """The number of the tenant of each actor's job."""
        tenants: Ints = self.other[self.entry_row[self.owner]]
        return tenants

    @cached_property
    def is_job(self) -> Bools:
        """Which actors are jobs (the others are tasks)."""
        jobs: Bools = self.event[self.entry_row] == Record.SUBMIT
        return jobs

    @cached_property
    def owner(self) -> Ints:
        """Slot of the job that each actor belongs to."""
        owner = np.arange(len(self.actors))
        tasks = ~self.is_job
        if tasks.any():
            owner[tasks] = self.actor_of(self.other[self.entry_row[tasks]])
        return owner

    @cached_property
    def has_tasks(self) -> Bools:
        """Which actors are non-gang jobs: their tasks run and wait in their place."""
        has: Bools = np.zeros(len(self.actors), dtype=np.bool_)
        has[self.owner[~self.is_job]] = True
        return has

    @cached_property
    def acting(self) -> Bools:
        """Spans of actors that run and wait themselves."""
        return ~self.has_tasks[self.actor]

    def actor_of(self, jobs: Any) -> Any:
        """Slots of actors by their indices."""
        return np.searchsorted(self.actors, jobs)

    def per_actor(self, weights: Any) -> Floats:
        """Sum over the spans of each actor."""
        return add_up(self.actor, weights, len(self.actors))

    def per_job(self, weights: Any) -> Floats:
        """Sum over the spans of each job and its tasks (in the slots of the jobs)."""
        return add_up(self.owner[self.actor], weights, len(self.actors))

    @cached_property
    def waited_s(self) -> Floats:
        """Seconds without progress of each actor; of a non-gang job: of any of its tasks."""
        idle = (self.state == WAITS) | (self.state == OVERHEAD)
        waited = self.per_actor(np.where(idle, self.length_s, 0.0))
        if self.has_tasks.any():
            waited[self.has_tasks] -= self._family_run_s()[self.has_tasks]
        return np.maximum(waited, 0.0)

    @cached_property
    def ran_s(self) -> Floats:
        """Seconds of progress of each actor; of a non-gang job: of any of its tasks."""
        ran = self.per_actor(np.where(self.state == RUNS, self.length_s, 0.0))
        if self.has_tasks.any():
            ran[self.has_tasks] = self._family_run_s()[self.has_tasks]
        return ran

    @cached_property
    def resizes(self) -> Ints:
        """How often each actor went on with another number of GPUs, without waiting in between."""
        placed = np.flatnonzero((self.kind == Record.START) | (self.kind == Record.MOVE))
        gpus = self._allocation_gpus()[self.ref[self.row[placed]]]
        other = np.zeros(len(placed), dtype=np.bool_)
        other[1:] = (gpus[1:] != gpus[:-1]) & (self.kind[placed[1:]] == Record.MOVE)
        return np.bincount(self.actor[placed[other]], minlength=len(self.actors))

    @cached_property
    def resizing(self) -> Bools:
        """Spans that were spent in going on with another number of GPUs: overhead of a resize."""
        found: Bools = np.zeros(len(self.kind), dtype=np.bool_)
        gpus = self._allocation_gpus()
        resized = np.flatnonzero(self.resizes)
        firsts, ends = (np.searchsorted(self.actor, resized, side=side) for side in _ENDS)
        for first, end in zip(firsts.tolist(), ends.tolist(), strict=True):
            held, changes = -1.0, False
            for span in range(first, end):
                kind, state = self.kind[span], self.state[span]
                if kind in (Record.START, Record.MOVE):
                    size = float(gpus[self.ref[self.row[span]]])
                    if kind == Record.MOVE:
                        changes = changes or (held >= 0 and size != held)
                    held = size
                elif kind in (Record.STOP, Record.EVICTED):
                    changes = False
                if state == RUNS:
                    changes = False
                found[span] = changes and state == OVERHEAD
        return found

    def _family_run_s(self) -> Floats:
        """Seconds in which at least one task of each non-gang job makes progress."""
        owner = self.owner[self.actor]
        runs = (self.state == RUNS) & self.has_tasks[owner] & self.acting
        rows = np.concatenate([self.row[runs], self.until_row[runs]])
        change = np.repeat([1, -1], int(runs.sum()))
        owners = np.concatenate([owner[runs], owner[runs]])
        order = np.lexsort([rows, owners])
        running = np.cumsum(change[order])  # 0 at the end of every family
        length_s = np.append(np.diff(self.time_s[rows[order]]), 0.0)
        return add_up(owners[order], np.where(running > 0, length_s, 0.0), len(self.actors))


def _leads_to_end_of_stop(following: Any, goes_on: Bools) -> Bools:
    """After which rows a stop ends next, directly or after others with which it goes on."""
    leads: Bools = _IS_STOPS_END[following]
    halts = _IS_HALT[following]
    while True:  # once for each row in between: a job may be sent to one place after the other
        longer = leads | (halts & np.append((goes_on & leads)[1:], False))
        if np.array_equal(longer, leads):
            return leads
        leads = longer


def read_history(log: "pl.DataFrame | History") -> History:
    """The history of a log; a history is returned as it is."""
    return log if isinstance(log, History) else History(log)
