"""Conservative backfilling (Mu'alem and Feitelson, IEEE TPDS 12(6), 2001).

Every job gets a reservation when it arrives: the earliest time at which, by everybody's estimates,
enough GPUs are free for as long as it says it needs, beside the running jobs and all reservations
before it. A job starts when its reservation is due. When somebody ends early, the waiting jobs are
planned anew in the order of their reservations; nobody's can become later by that, because whoever
is planned before it has only moved to an earlier time. As long as no job outlives its estimate and
the placement is `count`, no job starts later than it was first told.

The plan is made on the number of GPUs. Where more is needed for a start (GPUs on one node, of a
type, CPUs, memory), a due job that finds no placement goes on waiting, still first in line; the
promise then is only a forecast. A job without estimate never ends by estimate
(`default_estimate_s` sets another value). A job that has outlived its estimate is expected to end
at any moment.

Departs from the paper: a job that outlives its estimate is not killed.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from rota.core.events import INF
from rota.core.knowledge import Knowledge
from rota.core.policy import DecidePolicy, Params
from rota.core.view import Draft, View
from rota.policies._estimates import expected_end_s, needed_s
from rota.policies._profile import Profile


class ConservativeParams(Params, frozen=True):
    """What to assume of jobs whose users gave no estimate."""

    default_estimate_s: Annotated[float, msgspec.Meta(gt=0)] = INF


class Conservative(DecidePolicy[ConservativeParams]):
    """First come first served; others start early if that delays nobody who waits."""

    name = "conservative"
    paper = (
        "Mu'alem and Feitelson, Utilization, Predictability, Workloads, and User Runtime Estimates "
        "in Scheduling the IBM SP2 with Backfilling, IEEE TPDS 12(6), 2001"
    )
    knowledge = Knowledge.USER_ESTIMATE
    Parameters = ConservativeParams

    def __init__(self, params: ConservativeParams | None = None) -> None:
        super().__init__(params)
        self.reserved_s: dict[int, float] = {}
        """When each waiting job is to start, by index; inf: not foreseeable."""
        self._ends_s: dict[int, float] = {}  # of the jobs that ran after the last decision
        self._gpus: float = 0

    def decide(self, view: View) -> Draft:
        """Plan whoever has no reservation (everybody, if things changed); start who is due."""
        plan = view.plan()
        now_s, default_s = view.now_s, self.params.default_estimate_s
        running = view.running
        ends_s = {job.index: expected_end_s(job, now_s, default_s) for job in running}
        before = self.reserved_s
        kept = before if self._as_expected(view, ends_s) else {}
        waiting = sorted(view.waiting, key=lambda job: before.get(job.index, INF))
        needs_s = {job.index: needed_s(job, default_s) for job in waiting}
        uses = [(now_s, ends_s[job.index], job.held_gpus) for job in running]
        uses += [
            (kept[job.index], kept[job.index] + needs_s[job.index], job.gpus)
            for job in waiting
            if job.index in kept
        ]
        profile = Profile(now_s, view.up_gpus, uses)
        plan.fill(running)
        self.reserved_s, self._ends_s, self._gpus = {}, ends_s, view.up_gpus
        for job in waiting:
            start_s = kept.get(job.index)
            if start_s is None:
                start_s = profile.earliest(job.gpus, needs_s[job.index])
                profile.take(start_s, start_s + needs_s[job.index], job.gpus)
            if start_s > now_s or not plan.place(job):
                self.reserved_s[job.index] = start_s
            else:
                ends_s[job.index] = now_s + needs_s[job.index]
        return plan

    def _as_expected(self, view: View, ends_s: Mapping[int, float]) -> bool:
        """Nobody ended early, late or on request; who was due has started; no node went or came."""
        now_s = view.now_s
        due_s = min(self.reserved_s.values(), default=INF)
        return (
            self._gpus == view.up_gpus
            and due_s >= now_s
            and self.reserved_s.keys() <= view.active.keys()
            and ends_s == {index: end_s for index, end_s in self._ends_s.items() if end_s > now_s}
        )

    def snapshot(self) -> Mapping[str, Any]:
        """All reservations, and what they rest on."""
        return {
            "reserved_s": list(self.reserved_s.items()),
            "ends_s": list(self._ends_s.items()),
            "gpus": self._gpus,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take them up again."""
        self.reserved_s = dict(state["reserved_s"])
        self._ends_s = dict(state["ends_s"])
        self._gpus = state["gpus"]
