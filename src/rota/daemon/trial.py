"""What if: the present queue under another policy, or on more or fewer nodes.

Both futures start from the same frozen state and draw the same run times, so that they differ only
by what was changed. No new jobs arrive.
"""

from collections.abc import Callable, Sequence
from statistics import fmean, median
from time import monotonic
from typing import NamedTuple

import msgspec
import numpy as np

from rota.core.errors import NotFoundError, OptionError
from rota.core.events import INF
from rota.core.jobs import WAITING
from rota.core.log import ON_REQUEST, Record
from rota.core.registry import only_files_of
from rota.core.topology import NodeSpec
from rota.daemon.forecast import ClusterOutlook
from rota.daemon.settings import Scheduling
from rota.daemon.state import ClusterState
from rota.engine.loop import Engine
from rota.sim.durations import Durations
from rota.sim.foresight import redraw
from rota.wire import TrialAnswer, TrialOutcome, TrialStart, WhatIf

BUDGET_S = 20.0  # of real time, for both together
STEPS = 500  # batches between looks at the clock
MOST_GPUS = 100_000  # that are added: the clock is not looked at while they are made
SHOWN = 200  # jobs whose starts are told


class _TrialRun(NamedTuple):
    """One simulation: seconds from now, by number of the job."""

    starts: dict[int, float]
    ends: dict[int, float]
    preemptions: int


class QueueTrial:
    """The state of the living cluster, to be tried out; made in the engine's thread."""

    def __init__(self, state: ClusterState) -> None:
        self._cluster = ClusterOutlook(state)
        active = [job for job in state.engine.view.active.values() if job.parent is None]
        self._active = [job.index for job in active]
        rank = state.engine.view.rank
        waiting = sorted((job for job in active if job.phase == WAITING), key=rank)
        self._waiting = [(job.index, job.gpus, job.spec) for job in waiting]
        self._gpus = sum(node.gpus for node in state.engine.view.topology.nodes if node.up)

    def compare(self, trial: WhatIf, epoch: float) -> TrialAnswer:
        """The present queue as it is, and as it would be.

        Whoever asks may not say what the daemon reads or runs: of files only those that its
        configuration names.

        Raises:
            OptionError: There is no such policy, or it cannot be used here.
            NotFoundError: There is no such node.
        """
        present = self._cluster.scheduling
        with only_files_of((present.policy, present.placement, present.admission)):
            return self._compare(trial, epoch)

    def _compare(self, trial: WhatIf, epoch: float) -> TrialAnswer:
        cluster = self._cluster
        asked = {"policy": trial.policy, "placement": trial.placement}
        wanted = msgspec.structs.replace(
            cluster.scheduling, **{key: value for key, value in asked.items() if value}
        )
        nodes = self._more_nodes(trial)
        closed = self._without(trial.without)
        changes: list[Callable[[Engine], None]] = [
            lambda _: None,
            lambda engine: self._change(engine, wanted, nodes, trial.without),
        ]
        changes[1](cluster.thaw())  # a wrong name is told at once
        durations = Durations.of(cluster.thaw())
        courses: list[list[_TrialRun]] = [[], []]
        deadline = monotonic() + BUDGET_S
        for number in range(trial.runs):
            if number and monotonic() > deadline:
                break
            for change, found in zip(changes, courses, strict=True):
                found.append(self._course(durations, number, change, deadline))
        gpus = self._gpus
        present = self._outcome(cluster.scheduling, gpus, courses[0], epoch)
        more = sum(spec.gpus for spec in nodes) - closed
        changed = self._outcome(wanted, gpus + more, courses[1], epoch)
        assumptions = {**durations.describe(), "new_jobs": cluster.newcomers, "costs": "none"}
        now = epoch + cluster.now_s
        return TrialAnswer(now, len(courses[0]), present, changed, assumptions)

    def _more_nodes(self, trial: WhatIf) -> list[NodeSpec]:
        if trial.more_nodes * trial.gpus_each > MOST_GPUS:
            raise OptionError(
                f"{trial.more_nodes:,} more nodes with {trial.gpus_each:,} GPUs each: add "
                f"{MOST_GPUS:,} GPUs or fewer"
            )
        nodes = self._cluster.thaw().view.topology.nodes
        known = {node.name for node in nodes}
        kind = nodes[0].gpu_type if nodes else ""
        free = (f"new{number}" for number in range(1, trial.more_nodes + len(known) + 1))
        names = [name for name in free if name not in known][: trial.more_nodes]
        return [NodeSpec(name, trial.gpus_each, kind) for name in names]

    def _without(self, names: Sequence[str]) -> int:
        """GPUs of these nodes."""
        known = {node.name: node for node in self._cluster.thaw().view.topology.nodes}
        for name in names:
            if name not in known:
                raise NotFoundError(f"there is no node {name!r}: see `rota nodes`")
        return sum(known[name].gpus for name in set(names) if known[name].open)

    def _change(
        self, engine: Engine, wanted: Scheduling, nodes: Sequence[NodeSpec], without: Sequence[str]
    ) -> None:
        for node in engine.view.topology.nodes:
            if node.name in without:
                node.closed = True
        self._cluster.hand_over(engine, wanted, nodes)

    def _course(
        self, durations: Durations, number: int, change: Callable[[Engine], None], deadline: float
    ) -> _TrialRun:
        def begin(engine: Engine) -> None:
            redraw(engine, durations, np.random.default_rng([0, number]))
            change(engine)

        engine = self._cluster.thaw(begin)
        now_s = self._cluster.now_s
        engine.log.take()
        waiting = {index for index, _, _ in self._waiting}
        starts: dict[int, float] = {}
        preemptions = 0
        goes_on = True
        while goes_on and (not starts or monotonic() < deadline):
            goes_on = engine.run(batches=STEPS, busy=engine.view.active) and bool(
                engine.view.active
            )
            for row in engine.log.take():
                if row.event == Record.START:
                    job = engine.jobs[row.job]
                    index = (job.parent or job).index
                    if index in waiting:
                        starts.setdefault(index, row.time_s - now_s)
                elif row.event == Record.STOP and row.cause != ON_REQUEST:
                    preemptions += 1
        ends = {
            index: job.end_s - now_s
            for index in self._active
            if (job := engine.jobs[index]).terminal and job.end_s < INF
        }
        return _TrialRun(starts, ends, preemptions)

    def _outcome(
        self, scheduling: Scheduling, gpus: float, courses: Sequence[_TrialRun], epoch: float
    ) -> TrialOutcome:
        now_s = self._cluster.now_s
        starts = {
            index: median(course.starts.get(index, INF) for course in courses)
            for index, _, _ in self._waiting
        }
        never = sum(at == INF for at in starts.values())
        waits = [
            [course.starts[index] for index, _, _ in self._waiting if index in course.starts]
            for course in courses
        ]
        whole = [len(found) == len(self._waiting) for found in waits]
        done = [len(course.ends) == len(self._active) for course in courses]
        return TrialOutcome(
            policy=scheduling.policy,
            placement=scheduling.placement,
            gpus=gpus,
            waiting=len(self._waiting),
            never=never,
            mean_wait_s=_middle([fmean(found) for found in waits if found]),
            longest_wait_s=_middle([max(found) for found in waits if found]),
            queue_empty_s=_middle([max(found, default=0.0) for found in waits])
            if all(whole)
            else None,
            all_done_s=_middle([max(course.ends.values(), default=0.0) for course in courses])
            if all(done)
            else None,
            mean_left_s=_middle([fmean(course.ends.values()) for course in courses if course.ends]),
            preemptions=median(course.preemptions for course in courses),
            starts=[
                TrialStart(
                    job=str(index), gpus=asked, name=spec.name, user=spec.user, queue=spec.tenant,
                    starts_at=None if starts[index] == INF else epoch + now_s + starts[index],
                )
                for index, asked, spec in self._waiting[:SHOWN]
            ],
        )  # fmt: skip


def _middle(values: Sequence[float]) -> float | None:
    return median(values) if values else None
