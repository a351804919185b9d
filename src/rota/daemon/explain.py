"""Why a job waits: its waiting time from the log, in parts that add up, and who is before it."""

from typing import TYPE_CHECKING

import msgspec

from rota.core.jobs import HELD, STOPPING, Job
from rota.core.reasons import Reason
from rota.core.sums import ordered_sum
from rota.core.words import TEXTS, duration, gpus_of
from rota.daemon.logtable import LogTable
from rota.daemon.pictures import elastic_range, reason_of, state_of, tasks_of
from rota.daemon.state import ClusterState
from rota.engine.executor import on_cluster
from rota.models.speeds import measured_throughputs
from rota.wire import Explanation, SizeChange, WhyPart

if TYPE_CHECKING:
    import polars as pl

FEW = 5


class JobSituation(msgspec.Struct):
    """What the live state says about a job; made in the engine's thread, explained in any."""

    job: Job
    state: str
    reason: str
    message: str
    limit: str  # that keeps it out of the queue
    ahead: list[str]
    blockers: list[str]
    causes: list[str]
    leaving: list[int]  # it, or tasks of it, are being stopped
    ending: str  # and how long that may take, and why
    size: str  # of an elastic job: what it has, what it takes, and how fast it said to be
    now_s: float

    @classmethod
    def of(cls, state: ClusterState, job: Job) -> "JobSituation":
        """As it is now."""
        return cls(
            job,
            state_of(job),
            reason_of(job, state.projection, state.engine.view),
            state.projection.messages.get(job.index, ""),
            _kept_by(state, job),
            [other.id for other in state.engine.ahead_of(job)[:FEW]],
            state.engine.arrivals.blockers(job) if job.phase == HELD else [],
            [str(i) for i in state.projection.preempted_by.get(job.index, [])],
            [task.index for task in tasks_of(job) if task.phase == STOPPING],
            _ending(state, job),
            size_of(job),
            state.cluster.now_s,
        )

    def explain(self, log: LogTable, epoch_unix: float) -> Explanation:
        """With the waiting time in the stored log, and what happened to its size."""
        frame = log.frame(self.now_s, leaving=self.leaving)
        parts = waiting_parts(frame, self.job.index)
        sizes, resized = size_changes(frame, self.job, epoch_unix)
        wait_s = ordered_sum(part.seconds for part in parts)
        return Explanation(
            id=self.job.id,
            state=self.state,
            reason=self.reason,
            text="; ".join(filter(None, (_sentence(self, wait_s, parts), self.size, resized))),
            wait_s=wait_s,
            parts=parts,
            ahead=self.ahead,
            preempted_by=self.causes,
            waits_for=self.blockers,
            sizes=sizes,
        )


def _kept_by(state: ClusterState, job: Job) -> str:
    """What admission waits for, or which windows bar it from nodes."""
    engine = state.engine
    if job.phase == HELD:
        return engine.scheduler.why_held(job, engine.view)
    if engine.calendar is None or job.reason not in (Reason.MAINTENANCE, Reason.RESERVED):
        return ""
    return f"{TEXTS[Reason(job.reason)]} ({engine.calendar.why(job)})"


def waiting_parts(log: "pl.DataFrame", index: int) -> list[WhyPart]:
    """The parts of its waiting time up to now, largest first."""
    from rota.metrics.story import waiting_parts as fold

    return [
        WhyPart(reason=reason, seconds=seconds, text=TEXTS[Reason[reason.upper()]])
        for reason, seconds in fold(log, index).items()
    ]


def size_changes(log: "pl.DataFrame", job: Job, epoch_unix: float) -> tuple[list[SizeChange], str]:
    """Where an elastic job was started, grown and shrunk, and for whom; and all of it in words."""
    from rota.metrics.story import Stories, number_of

    if elastic_range(job) is None:
        return [], ""
    stories = Stories(log)
    number = number_of(stories.history, job.index)
    if number is None:
        return [], ""
    stays, resizing = stories.sizes(number)
    changes = [
        SizeChange(
            at=epoch_unix + stay.at_s, what=stay.what, gpus=stay.gpus, nodes=stay.nodes,
            by=stay.by, text=stay.text,
        )
        for stay in stays
    ]  # fmt: skip
    return changes, resizing.text


def size_of(job: Job) -> str:
    """Of an elastic job: how many GPUs it has and takes, and how fast it said to be with them.

    A policy gives nobody GPUs that do not make it faster: then the last part tells why.
    """
    takes = elastic_range(job)
    if takes is None or job.terminal:
        return ""
    text = f"it takes {takes.min} to {takes.max} GPUs"
    if on_cluster(job):
        text = f"it has {gpus_of(job.allocation.gpus)} and takes {takes.min} to {takes.max}"
    points = measured_throughputs(job.told.timings) if job.told is not None else ()
    if points:
        told = ", ".join(f"{rate:.4g} with {gpus_of(gpus)}" for gpus, rate in points)
        text += f"; it measured {told} (samples per second)"
        best, _ = max(points, key=lambda point: (point[1], -point[0]))
        if best < points[-1][0]:
            text += f": more GPUs than {best:g} did not make it faster"
    return text


def _ending(state: ClusterState, job: Job) -> str:
    """What is being stopped, in words; empty: nothing is."""
    runs = [run for task in tasks_of(job) for run in state.cluster.runs.ending(task)]
    if not runs:
        return ""
    grace_s = max(run.order.launch.grace_s for run in runs)
    machines = state.cluster.nodes.by_name
    nodes = dict.fromkeys(part.node for run in runs for part in run.order.parts)
    drained = [node for node in nodes if node in machines and machines[node].drained]
    why = ""
    if job.terminal:
        why = ", because it was cancelled"
    elif job.index in state.engine.lifecycle.detained:
        why = ", to be held on request"
    elif drained:
        why = f", because {', '.join(drained)} {'is' if len(drained) == 1 else 'are'} drained"
    return f"it is being stopped{why} (grace up to {grace_s:g} s)"


def _be(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _sentence(seen: JobSituation, wait_s: float, parts: list[WhyPart]) -> str:
    message = seen.message
    waited = f"it has waited {duration(wait_s)}" if wait_s else "it has not waited"
    if parts:
        waited += ": " + ", ".join(f"{duration(part.seconds)} {part.reason}" for part in parts)
    cause = seen.ending or (TEXTS[Reason[seen.reason.upper()]] if seen.reason else "")
    if not seen.ending and seen.reason == Reason.ORDER.label and seen.ahead:
        cause += f" ({', '.join(seen.ahead)})"
    elif not seen.ending and seen.reason == Reason.DEPENDENCY.label and seen.blockers:
        cause = f"it waits until {', '.join(seen.blockers)} {_be(seen.blockers)} done"
    elif not seen.ending and seen.limit:
        cause = seen.limit
    elif seen.reason == Reason.ADMISSION.label and message:
        cause, message = message, ""  # who holds it
    text = f"{seen.state}: {cause}; {waited}" if cause else f"{seen.state}; {waited}"
    return text + (f" ({message})" if message else "")
