"""Helios' and Lucid's policies that preempt: SRTF, and Lucid's Tiresias.

All jobs are put in order, and a quota as large as the cluster is dealt out along it: who asks for
more than is left of it is skipped, and preempted if it runs. Only then places are looked for. The
quota knows nothing of nodes, so a job can have its share, and victims have left for it, and still
wait because no node has room. A preempted job has so many seconds more to run.

A job is noticed to be over one second late: it ends after its time plus 1 s. Here that second, and
the overhead of preemptions, is time to start (see `helios_costs`).

SRTF looks every second, which is the same as at every arrival and end: by running, a job only moves
ahead of others, and whoever has a share keeps it then. Tiresias looks once a minute.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from rota.core import events as ev
from rota.core.events import Event
from rota.core.jobs import STARTING, WAITING, Job
from rota.core.knowledge import Knowledge
from rota.core.plan import Plan, Wake
from rota.core.topology import Topology
from rota.core.view import View
from rota.reproduce.helios.nodes import Entry, Loop

LATE_S = 1.0  # the countdown reaches 0, and the next second sees it
Overhead = Callable[[float], float]
"""Seconds that the preemption of a job on so many GPUs costs."""


class QuotaScheduler(Loop):
    """Deals out a quota along an order."""

    def __init__(
        self, name: str, topology: Topology, knowledge: Knowledge, *, like: str, overhead: Overhead
    ) -> None:
        super().__init__(name, topology, knowledge, like=like)
        self._overhead = overhead

    @abstractmethod
    def order(self, now_s: float) -> list[Entry]:
        """All jobs, best first."""

    def decide(self, view: View, plan: Plan) -> Plan:
        """Deal out, preempt, place."""
        quota = view.up_gpus
        chosen: list[Entry] = []
        victims: list[Entry] = []
        without: list[Entry] = []
        for entry in self.order(view.now_s):
            if entry.job.gpus <= quota:
                quota -= entry.job.gpus
                if entry.held is None:
                    chosen.append(entry)
            elif entry.held is not None:
                victims.append(entry)
            else:
                without.append(entry)
        for entry in victims:
            self._preempt(entry, plan, chosen[0].job if chosen else None, view.now_s)
        failed = [entry for entry in chosen if not self._start(entry, plan)]
        others = (*failed, *without, *victims)
        self.tell(plan, {entry.job.shape.number: entry.job for entry in reversed(others)})
        return plan

    def _start(self, entry: Entry, plan: Plan) -> bool:
        if entry.job.phase != WAITING:  # it still leaves its old place
            return False
        return self.launch(entry, plan, entry.debt_s + LATE_S)

    def _preempt(self, entry: Entry, plan: Plan, winner: Job | None, now_s: float) -> None:
        job = entry.job
        owed_s = entry.debt_s - (now_s - job.start_s) if job.phase == STARTING else -LATE_S
        self.interrupted(entry, now_s)
        entry.debt_s = owed_s + self._overhead(job.gpus)
        self.requeue(entry)
        plan.stop(job, because_of=winner)

    def interrupted(self, entry: Entry, now_s: float) -> None:
        """Remember how long it ran; a failure costs no overhead."""
        ran_s = now_s - entry.job.start_s
        entry.served_s += ran_s
        entry.debt_s = max(0.0, entry.debt_s - ran_s)


class RemainingScheduler(QuotaScheduler):
    """SRTF: who would end first. Of equals those who wait go first, in order of arrival."""

    wake_on: ClassVar[frozenset[int]] = frozenset(
        {
            *(ev.JOB_SUBMIT, ev.JOB_DONE, ev.JOB_FAILED, ev.JOB_CANCELLED),
            *(ev.JOB_STOPPED, ev.JOB_EVICTED, ev.NODE_DOWN, ev.NODE_UP),
        }
    )

    def __init__(self, name: str, topology: Topology, *, like: str, overhead: Overhead) -> None:
        super().__init__(name, topology, Knowledge.REMAINING_WORK, like=like, overhead=overhead)
        self.wake = Wake(on=self.wake_on)

    def order(self, now_s: float) -> list[Entry]:
        """By what remains, overhead included."""
        keyed = [
            (entry.job.remaining_s(now_s) + entry.debt_s, entry) for entry in self.waiting.values()
        ]
        for entry in self.running.values():
            job = entry.job
            owed_s = entry.debt_s - (now_s - job.start_s) if job.phase == STARTING else -LATE_S
            keyed.append((job.remaining_s(now_s) + owed_s, entry))
        keyed.sort(key=_first)
        return [entry for _, entry in keyed]


def _first(pair: tuple[float, Entry]) -> float:
    return pair[0]


class TwoQueueScheduler(QuotaScheduler):
    """Lucid's Tiresias: two queues by GPU-seconds, FIFO within each, asked once per round.

    Overhead counts as service. Of jobs submitted together those that run go first.
    """

    def __init__(
        self,
        name: str,
        topology: Topology,
        *,
        like: str,
        overhead: Overhead,
        limit: float,
        round_s: int,
    ) -> None:
        super().__init__(name, topology, Knowledge.NOTHING, like=like, overhead=overhead)
        self.wake = Wake(on=frozenset(), every_s=round_s)
        self._round_s = round_s
        self._limit = limit

    def step(self, view: View, events: Sequence[Event]) -> Plan | None:
        """While nobody waits there is nothing to do."""
        return super().step(view, events) if events or self.waiting else None

    def decide(self, view: View, plan: Plan) -> Plan:
        """Only at the round."""
        return plan if view.now_s % self._round_s else super().decide(view, plan)

    def order(self, now_s: float) -> list[Entry]:
        """Those above the limit last."""
        limit = self._limit

        def rank(entry: Entry) -> tuple[bool, float]:
            job = entry.job
            ran_s = now_s - job.start_s if entry.held is not None else 0.0
            return (entry.served_s + ran_s) * job.gpus > limit, job.submit_s

        return sorted([*self.running.values(), *self.waiting.values()], key=rank)
