"""The life of every job by the log alone: a second account for `invariants`.

A log is read row by row; a row that cannot follow raises. Progress and GPU-seconds are integrated
here from the rows, so that the engine's own integration has something to be compared with.
"""

from rota.core.errors import InvariantError
from rota.core.events import INF
from rota.core.jobs import (
    CANCELLED,
    DONE,
    FAILED,
    HELD,
    REJECTED,
    RUNNING,
    STARTING,
    STOPPING,
    TIMEOUT,
    WAITING,
    Job,
    Phase,
)
from rota.core.log import TOLD, WIDTH, Record
from rota.engine.log import Log

ROUNDING = 2.0**-48  # some units in the last place of the times that durations are taken from
TOLERANCE = 1e-6

ENDINGS: dict[int, int] = {
    Record.DONE: DONE,
    Record.FAILED: FAILED,
    Record.REJECTED: REJECTED,
    Record.CANCELLED: CANCELLED,
    Record.TIMEOUT: TIMEOUT,
}

FROM: dict[int, tuple[int, ...]] = {
    Record.START: (WAITING,),
    Record.RUN: (STARTING,),
    Record.RATE: (RUNNING,),
    Record.STOP: (STARTING, RUNNING, STOPPING),
    Record.STOPPED: (STOPPING,),
    Record.MOVE: (STARTING, RUNNING, STOPPING),
    Record.EVICTED: (STARTING, RUNNING, STOPPING),
    Record.LOST: (STARTING, RUNNING),
    Record.HELD: (WAITING, HELD),  # for another reason
    Record.ADMITTED: (HELD,),
    Record.DONE: (RUNNING, STOPPING),  # it may be quicker than the stop
    Record.FAILED: (STARTING, RUNNING, STOPPING),
    Record.TIMEOUT: (STARTING, RUNNING, STOPPING),
    Record.REJECTED: (WAITING, HELD),
    Record.CANCELLED: (HELD, WAITING, STARTING, RUNNING, STOPPING),
}
"""Phases in which a row about a job makes sense."""


def close(a: float, b: float, now_s: float) -> bool:
    """Equal but for rounding."""
    if a == b:
        return True
    return abs(a - b) <= TOLERANCE * max(1.0, abs(a), abs(b)) + ROUNDING * abs(now_s)


def rows_from(log: Log, start: int) -> list[float]:
    """The numbers of a log from a position on: taken by others, packed or not."""
    taken, packed, first = log.for_checks()
    start = max(0, start - first)  # nobody checked the log before it was first taken
    if taken:
        return [*taken[start:], *packed, *log.rows]
    if start >= len(packed):
        return log.rows[start - len(packed) :]
    return [*packed[start:], *log.rows]


class JobReplica:
    """One job. `phase` has the values of `core.jobs.Phase`."""

    __slots__ = (
        "at_s", "body", "done", "gpus", "instant", "late", "moves", "overhead", "phase", "ran_to_s",
        "rate", "ref", "told_s", "useful", "whole",
    )  # fmt: skip

    def __init__(self, now_s: float) -> None:
        self.phase = WAITING
        self.at_s = now_s
        self.gpus = 0.0
        self.rate = 0.0
        self.ran_to_s = 0.0  # when it was told to stop
        self.told_s = now_s  # the time of its last row
        self.done = 0.0  # work
        self.useful = 0.0  # GPU-seconds
        self.overhead = 0.0
        self.ref = -1  # the allocation that it has been given
        self.body = -1  # the allocation that it occupies: another one while it is being moved
        self.instant = False  # stopped in this batch: it may be gone already
        self.moves = False  # moved in this batch: it may have to wait for its new slices
        self.late = False  # others have not left its slices yet: a second row tells when they have
        self.whole = False  # not a job of its own: it is made of tasks

    def advance(self, now_s: float) -> None:
        """Integrate up to now, or take back what was counted since (see `Record.LATE`)."""
        if now_s < self.ran_to_s <= self.at_s and self.phase == STOPPING:
            self.overhead -= (self.at_s - self.ran_to_s) * self.gpus
            self.useful -= (self.ran_to_s - now_s) * self.gpus
            self.done = max(0.0, self.done - (self.ran_to_s - now_s) * self.rate)
            self.at_s = now_s
            return
        ran_s = now_s - self.at_s
        self.at_s = now_s
        if self.phase == RUNNING:
            self.done += ran_s * self.rate
            self.useful += ran_s * self.gpus
        elif self.gpus:
            self.overhead += ran_s * self.gpus

    def stops(self) -> None:
        """It is told to stop."""
        if self.phase != STOPPING:
            self.ran_to_s = self.at_s if self.phase == RUNNING else INF
        self.phase = STOPPING


class LogReplica:
    """All jobs, from the rows of a log."""

    def __init__(self) -> None:
        self.jobs: dict[int, JobReplica] = {}
        self.present: dict[int, JobReplica] = {}
        self.touched: set[int] = set()
        self.settled_gpu_s = 0.0  # of jobs that are over
        self.unheld_gpu_s = 0.0  # that nobody held although nobody knew it yet
        self._late_s: float | None = None  # when the next row happened
        self._read = 0
        self._past = False  # rows of many batches at once: who has stopped in between is not known
        self._time_s = 0.0
        self._sizes: dict[int, float] = {}  # allocation -> GPUs
        self._blame: dict[int, int] = {}  # shape -> reason of its head
        self._told: dict[int, int] = {}  # job -> reason of its own
        self._shared: dict[tuple[int, int], int] = {}  # shape, tenant -> reason of all their jobs
        self._tenant: dict[int, int] = {}  # by job
        self._slices: dict[int, list[tuple[int, float]]] = {}

    def slices(self, ref: int) -> list[tuple[int, float]]:
        """The slices of an allocation, as the log defined it."""
        return self._slices.get(ref, [])

    def reason(self, index: int, shape: int) -> int:
        """Why a waiting job waits, or would if it were the head of its shape."""
        shared = self._shared.get((shape, self._tenant.get(index, -1)), 0)
        return self._told.get(index, 0) or shared or self._blame.get(shape, 0)

    def gpu_s(self, now_s: float) -> float:
        """GPU-seconds held so far, useful or not."""
        total = self.settled_gpu_s
        for replica in self.present.values():
            total += replica.useful + replica.overhead + (now_s - replica.at_s) * replica.gpus
        return total

    def read(self, log: Log, now_s: float) -> None:
        """Take in the rows that are new; at first they may be the past of a resumed run."""
        self._past = not self._read
        self.touched.clear()
        rows = rows_from(log, self._read)
        self._read = len(log) * WIDTH
        for i in range(0, len(rows), WIDTH):
            time_s, kind, job, ref, other, value = rows[i : i + WIDTH]
            if time_s < self._time_s or time_s > now_s:
                raise InvariantError(
                    f"log: {Record(int(kind)).name} of job {job:g} at {time_s:g} s stands between "
                    f"{self._time_s:g} s and {now_s:g} s: rows must be in order of time"
                )
            self._time_s = time_s
            self._take(time_s, int(kind), int(job), int(ref), int(other), value)

    def _take(self, time_s: float, kind: int, job: int, ref: int, other: int, value: float) -> None:
        if kind == Record.ALLOCATION:
            self._slices.setdefault(ref, []).append((other, value))
            self._sizes[ref] = self._sizes.get(ref, 0.0) + value
        elif kind in (Record.SUBMIT, Record.TASK):
            if job in self.jobs:
                raise InvariantError(f"log: job {job} is submitted twice, again at {time_s:g} s")
            self.jobs[job] = self.present[job] = JobReplica(time_s)
            self.touched.add(job)
            self._tenant[job] = self._tenant[other] if kind == Record.TASK else other
            if kind == Record.TASK:
                self.jobs[other].whole = True
                self.present.pop(other, None)
        elif kind == Record.REASON:
            self._explain(job, ref, other, int(value))
        elif kind == Record.MOVE and other >= 0 and job in self.jobs:
            self._inherits(time_s, job, ref, value)
        elif kind == Record.LATE:
            self._late_s = value
        elif kind in FROM:
            late_s, self._late_s = self._late_s, None
            self._change(time_s, kind, job, ref, value, late_s)

    def _explain(self, job: int, shape: int, tenant: int, reason: int) -> None:
        if shape < 0:
            self._told[job] = reason
        elif tenant < 0:
            self._blame[shape] = reason
        else:
            self._shared[shape, tenant] = reason

    def _change(  # noqa: C901, PLR0912 - one branch per kind
        self, time_s: float, kind: int, job: int, ref: int, value: float, late_s: float | None
    ) -> None:
        replica = self.jobs.get(job)
        name = Record(kind).name
        if replica is None:
            raise InvariantError(
                f"log: {name} of job {job} at {time_s:g} s, which was never submitted"
            )
        told_s, replica.told_s = replica.told_s, time_s
        replica.advance(time_s)
        if late_s is not None:
            replica.advance(late_s)
            if kind != Record.RUN:
                self.unheld_gpu_s += (time_s - late_s) * replica.gpus
                replica.at_s = time_s  # it held nothing since then
        if kind == Record.HELD and replica.instant:
            replica.phase, replica.gpus = WAITING, 0.0  # it was stopped before it was launched
        elif kind == Record.START and (
            (replica.late and replica.ref == ref and replica.phase == STARTING)
            or (replica.instant and (told_s == time_s or self._past))
        ):
            replica.phase = WAITING  # its slices are free now; or a restart, or a quick stop
        elif kind == Record.RUN and replica.instant and replica.moves and replica.late:
            # it had not been launched when it was sent elsewhere, and there is room there now
            replica.phase, replica.body = STARTING, replica.ref
            replica.gpus = self._sizes.get(replica.ref, 0.0)
        if replica.phase not in FROM[kind] and not (replica.whole and kind in ENDINGS):
            raise InvariantError(
                f"log: {name} of job {job} at {time_s:g} s, but it was "
                f"{Phase(replica.phase).name.lower()}"
            )
        self.touched.add(job)
        if kind in (Record.STOP, Record.EVICTED, Record.LOST):
            replica.done = max(0.0, replica.done - value)
            if kind != Record.LOST:
                replica.stops()
                replica.instant = True
        elif kind in (Record.START, Record.MOVE):
            self._told.pop(job, None)
            self._placed(replica, time_s, ref, value, moves=kind == Record.MOVE)
        elif kind in (Record.RUN, Record.RATE):
            replica.phase, replica.rate = RUNNING, value
        elif kind == Record.STOPPED:
            replica.phase, replica.gpus = WAITING, 0.0
        elif kind in ENDINGS:
            replica.phase, replica.gpus = ENDINGS[kind], 0.0
            self.settled_gpu_s += replica.useful + replica.overhead
            self.present.pop(job, None)
        else:
            replica.phase = HELD if kind == Record.HELD else WAITING

    def _inherits(self, time_s: float, job: int, ref: int, since_s: float) -> None:
        """It has shared GPUs with a job that is over: they are its own now."""
        replica = self.jobs[job]
        if replica.phase not in FROM[Record.MOVE]:
            raise InvariantError(
                f"log: job {job} inherits GPUs at {time_s:g} s, but it was "
                f"{Phase(replica.phase).name.lower()}"
            )
        replica.advance(time_s)
        self.touched.add(job)
        replica.ref = ref
        if replica.phase != STOPPING:
            replica.gpus = self._sizes.get(ref, 0.0)
            if since_s != INF:
                replica.body = ref

    def _placed(
        self, replica: JobReplica, time_s: float, ref: int, since_s: float, *, moves: bool
    ) -> None:
        if TOLD != since_s < time_s:
            raise InvariantError(
                f"log: a start at {time_s:g} s makes progress from {since_s:g} s on"
            )
        replica.ref = ref
        replica.late = since_s == INF
        replica.moves |= moves
        if moves and since_s == INF:
            replica.stops()
            replica.instant = True  # or a start that must wait
            return
        replica.phase = RUNNING if since_s == time_s else STARTING
        replica.gpus = self._sizes.get(ref, 0.0)
        replica.body = ref
        replica.rate = -1.0  # not in the row: see `agree`
        replica.instant = False


def agree(replica: JobReplica, job: Job, now_s: float, *, exact_end: bool) -> None:
    """Compare a job with its replica at the end of a batch; raises if they differ."""
    _agree_on_phase(replica, job, now_s)
    replica.advance(now_s)
    if replica.phase == RUNNING and replica.rate < 0:
        replica.rate = job.true_rate
    if job.true_work != INF:
        _agree_on_work(replica, job, now_s, exact_end=exact_end)
    replica.moves = False
    service = job.attained_gpu_s(now_s)
    if not close(replica.useful, service, now_s):
        raise InvariantError(
            f"job {job.id} at {now_s:g} s: {service:g} GPU-s of service, but the log says "
            f"{replica.useful:g} GPU-s"
        )
    if replica.phase == RUNNING and replica.rate != job.true_rate:
        raise InvariantError(
            f"job {job.id} at {now_s:g} s: its rate is {job.true_rate:g}, the log says "
            f"{replica.rate:g}"
        )


def _agree_on_phase(replica: JobReplica, job: Job, now_s: float) -> None:
    if replica.instant:  # the row does not say whether the stop took time
        replica.instant = False
        if job.phase == WAITING:
            replica.phase, replica.gpus = WAITING, 0.0
        elif job.phase == STARTING and replica.moves:
            replica.phase, replica.gpus, replica.body = STARTING, job.allocation.gpus, replica.ref
    if replica.phase != job.phase:
        raise InvariantError(
            f"job {job.id} at {now_s:g} s is {Phase(job.phase).name.lower()}, but the log says "
            f"{Phase(replica.phase).name.lower()}"
        )


def _agree_on_work(replica: JobReplica, job: Job, now_s: float, *, exact_end: bool) -> None:
    done = job.true_work - job.left_at(now_s)
    if not exact_end and job.phase == DONE:
        return
    if (
        not exact_end and replica.done > job.true_work
    ):  # done already, but its end comes with the round
        if job.phase == RUNNING:
            return
        replica.done = job.true_work
    if not close(replica.done, done, now_s):
        raise InvariantError(
            f"job {job.id} at {now_s:g} s: {done:g} of its work ({job.true_work:g}) is done, from "
            f"the log it is {replica.done:g}: progress changed without a row"
        )
