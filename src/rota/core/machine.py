"""The life of a job: every change of phase happens here, and impossible ones raise.

Sans I/O: a transition only changes the job. Callers write the log and talk to the cluster.
"""

from rota.core.allocation import Allocation
from rota.core.errors import TransitionError
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


def _refuse(job: Job, wanted: str) -> TransitionError:
    return TransitionError(f"job {job.id} is {Phase(job.phase).name.lower()}: it cannot {wanted}")


def hold(job: Job) -> None:
    """Keep a new job outside the queue."""
    if job.phase != WAITING:
        raise _refuse(job, "be held")
    job.phase = HELD


def admit(job: Job) -> None:
    """Let a held job into the queue."""
    if job.phase != HELD:
        raise _refuse(job, "be admitted")
    job.phase = WAITING


def start(job: Job, allocation: Allocation, now_s: float, rate: float = 0.0) -> None:
    """Give a waiting job its resources; progress begins with `run`, or now if a rate is given."""
    if job.phase != WAITING:
        raise _refuse(job, "start")
    job.allocation = allocation
    job.held_gpus = allocation.gpus
    job.start_s = now_s
    if job.first_start_s == INF:
        job.first_start_s = now_s
    job.epoch += 1
    if rate:
        job.phase = RUNNING
        job.since_s = now_s
        job.true_rate = rate
    else:
        job.phase = STARTING
        job.since_s = INF


def run(job: Job, since_s: float, rate: float) -> None:
    """Progress begins at `since_s` (not in the future)."""
    if job.phase != STARTING:
        raise _refuse(job, "begin to make progress")
    job.phase = RUNNING
    job.since_s = since_s
    job.true_rate = rate


def settle(job: Job, now_s: float) -> None:
    """Integrate progress and service up to now; the job goes on at the same rate."""
    if job.phase == RUNNING and now_s > job.since_s:
        ran = now_s - job.since_s
        left = job.true_left - ran * job.true_rate
        # it may be done already while its end comes at the next round
        job.true_left = left if left > 0.0 else 0.0  # noqa: FURB136 - hot
        job.service += ran * job.held_gpus
        job.run_s += ran
        job.since_s = now_s


def take_back(job: Job, at_s: float) -> None:
    """It had ended at `at_s` when it was asked to stop: what was counted since is not so."""
    if job.phase == STOPPING and at_s < job.since_s < INF:
        ran = job.since_s - at_s
        # of one that outlived its estimate less was counted than it ran: not more is taken back
        job.true_left = min(job.true_work, job.true_left + ran * job.true_rate)
        job.service -= ran * job.held_gpus
        job.run_s -= ran
        job.since_s = at_s


def change_rate(job: Job, now_s: float, rate: float) -> None:
    """The same allocation, another speed."""
    if job.phase != RUNNING:
        raise _refuse(job, "change its rate")
    settle(job, now_s)
    job.true_rate = rate
    job.epoch += 1


def change_phase(job: Job, now_s: float, rate: float) -> None:
    """It goes on at another rate by itself: what was planned with its run still holds."""
    if job.phase != RUNNING:
        raise _refuse(job, "begin another phase")
    settle(job, now_s)
    job.true_rate = rate


def begin_stop(
    job: Job,
    now_s: float,
    lost_work: float,
    gone: bool = False,  # noqa: FBT001, FBT002 - hot
) -> float:
    """Progress ends; the resources are held until `stopped`, unless it has `gone` at once.

    Returns the work really lost.
    """
    if job.phase == RUNNING:
        ran = now_s - job.since_s
        if ran > 0.0:  # `settle`, written out: it is hot
            left = job.true_left - ran * job.true_rate
            job.true_left = left if left > 0.0 else 0.0  # noqa: FURB136 - hot
            job.service += ran * job.held_gpus
            job.run_s += ran
            job.since_s = now_s
    elif job.phase != STARTING:
        raise _refuse(job, "stop")
    lost = 0.0
    if lost_work:
        lost = min(lost_work, job.true_work - job.true_left)
        job.true_left += lost
    job.epoch += 1
    if gone:  # `stopped`, written out, too
        job.phase = WAITING
        job.held_gpus = 0
        job.since_s = INF
    else:
        job.phase = STOPPING
    return lost


def stopped(job: Job) -> None:
    """The resources are free again; the job is back in the queue."""
    if job.phase != STOPPING:
        raise _refuse(job, "have stopped")
    job.phase = WAITING
    job.held_gpus = 0
    job.since_s = INF


def finish(job: Job, now_s: float) -> None:
    """All its work is done (perhaps while it was being stopped)."""
    if job.phase == RUNNING:
        ran = now_s - job.since_s
        job.service += ran * job.held_gpus
        job.run_s += ran
    elif job.phase == STOPPING:
        take_back(job, now_s)
    else:
        raise _refuse(job, "finish")
    job.true_left = 0.0
    job.phase = DONE  # as `_end` does: most jobs end this way
    job.end_s = now_s
    job.held_gpus = 0
    job.epoch += 1


def fail(job: Job, now_s: float) -> None:
    """It ended with an error and is not tried again."""
    if job.phase not in (RUNNING, STARTING, STOPPING):
        raise _refuse(job, "fail")
    settle(job, now_s)
    take_back(job, now_s)
    _end(job, now_s, FAILED)


def time_out(job: Job, now_s: float) -> None:
    """Its time limit has ended it."""
    if job.phase not in (RUNNING, STARTING, STOPPING):
        raise _refuse(job, "time out")
    settle(job, now_s)
    take_back(job, now_s)
    _end(job, now_s, TIMEOUT)


def reject(job: Job, now_s: float) -> None:
    """It is refused before it ever ran."""
    if job.phase not in (HELD, WAITING) or job.started:
        raise _refuse(job, "be rejected")
    _end(job, now_s, REJECTED)


def cancel(job: Job, now_s: float) -> None:
    """It is ended on request."""
    if job.phase >= DONE:
        raise _refuse(job, "be cancelled")
    settle(job, now_s)
    _end(job, now_s, CANCELLED)


def _end(job: Job, now_s: float, phase: int) -> None:
    job.phase = phase
    job.end_s = now_s
    job.held_gpus = 0
    job.epoch += 1
