"""Incremental policies where nobody tells them what has changed: it is found by comparison.

So they run inside others (`hived`), and the checks of `rota.testing` compare what they decide with
what they decide through their own door.
"""

from collections.abc import Mapping
from typing import Any

from rota.core.jobs import Job
from rota.core.plan import Plan
from rota.core.policy import DecidePolicy, IncrementalPolicy, Params
from rota.core.view import View, arrival


class ByComparison(DecidePolicy[Params]):
    """Shows an incremental policy at each decision what has changed since the last one."""

    def __init__(self, policy: IncrementalPolicy[Any]) -> None:
        super().__init__()
        self.policy = policy
        self.name = policy.name  # type: ignore[misc]  # it stands in for that policy
        self.plan_type = policy.plan_type  # type: ignore[misc]  # the same
        self.knowledge, self.wake, self.coupled = policy.knowledge, policy.wake, policy.coupled
        self.elastic = policy.elastic
        self.preemptive, self.keeps_unnamed = policy.preemptive, policy.keeps_unnamed
        self._waiting: dict[int, Job] = {}
        self._running: dict[int, tuple[Job, tuple[Any, ...]]] = {}

    def decide(self, view: View) -> Plan:  # noqa: C901 - one branch per change
        """Say what has changed, then let the policy decide."""
        policy, now_s = self.policy, view.now_s
        policy.cluster_changed(view)
        waiting = {job.index: job for job in view.waiting}
        running = {job.index: (job, _run(job)) for job in view.running}
        for index, (job, _) in self._running.items():
            if index not in running:
                policy.ended(job, now_s)
        for index, job in self._waiting.items():
            if index not in waiting and index not in running:
                policy.ended(job, now_s)
        for job in sorted(waiting.values(), key=arrival):
            if job.index not in self._waiting:
                policy.submitted(job, now_s)
        for index, (job, run) in running.items():
            before = self._running.get(index)
            if before is None:
                if index not in self._waiting:
                    policy.submitted(job, now_s)
                policy.started(job, now_s)
            elif before[1] != run:
                policy.changed(job, now_s)
        self._waiting, self._running = waiting, running
        return policy.decide(view)

    def snapshot(self) -> Mapping[str, Any]:
        """The state of the policy: what it hears again is no part of it."""
        return self.policy.snapshot()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take it up again."""
        self.policy.restore(state)


def _run(job: Job) -> tuple[Any, ...]:
    """What a run is like: another one if any of it differs."""
    return (job.allocation, job.start_s, job.since_s, job.true_rate)
