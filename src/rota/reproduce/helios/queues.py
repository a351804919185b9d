"""Helios' and Lucid's policies that never preempt: FIFO, SJF and QSSF.

The queue is sorted, and jobs start from its head until one finds no place: nobody passes it. The
simulators look every second; nothing changes between two events, so looking at events is the same.

QSSF has a quirk. Jobs get a priority (estimated duration times GPUs) only once somebody waited
already before this second. As long as all jobs in the queue are new, it is served by their number
of GPUs instead.
"""

from bisect import bisect_left, insort
from collections.abc import Callable
from operator import attrgetter

from rota.core.jobs import WAITING, Job
from rota.core.knowledge import Knowledge
from rota.core.plan import Plan
from rota.core.topology import Topology
from rota.core.view import View
from rota.reproduce.helios.nodes import Entry, Loop

Rank = tuple[float, ...]


def by_submission(job: Job) -> Rank:
    """FIFO."""
    return job.submit_s, job.index


def by_duration(job: Job) -> Rank:
    """SJF; sorts are stable, so equals stay in order of arrival."""
    return job.duration_s(), job.submit_s, job.index


def by_service(job: Job) -> Rank:
    """QSSF; equals stay in the order of a sort by GPUs."""
    return job.duration_s() * job.gpus, job.gpus, job.submit_s, job.index


ORDERS: dict[str, tuple[Callable[[Job], Rank], Knowledge]] = {
    "fifo": (by_submission, Knowledge.NOTHING),
    "sjf": (by_duration, Knowledge.REMAINING_WORK),
    "qssf": (by_service, Knowledge.REMAINING_WORK),
}
"""By policy: the rank of a job, and what it reads."""

_gpus = attrgetter("job.gpus")


class HeadOfLine(Loop):
    """Serves a sorted queue from its head."""

    def __init__(self, name: str, topology: Topology, *, like: str) -> None:
        rank, knowledge = ORDERS[name]
        super().__init__(name, topology, knowledge, like=like)
        self._rank = rank
        self._new_by_gpus = name == "qssf"
        self._queue: list[tuple[Rank, Entry]] = []  # ranks are unique

    def joins(self, entry: Entry) -> None:
        """To its place in the order."""
        super().joins(entry)
        insort(self._queue, (self._rank(entry.job), entry))

    def leaves(self, entry: Entry) -> None:
        """Mostly from the head."""
        super().leaves(entry)
        # the rank alone is less than the pair with its entry: just before it
        del self._queue[bisect_left(self._queue, (self._rank(entry.job),))]

    def interrupted(self, entry: Entry, now_s: float) -> None:
        """It takes its place in the order again."""

    def decide(self, view: View, plan: Plan) -> Plan:
        """Start jobs until one has to wait."""
        blocked: dict[int, Job] = {}
        for entry in self._order(view.now_s):
            if entry.job.phase != WAITING or not self.launch(entry, plan, 0.0):
                blocked[entry.job.shape.number] = entry.job
                break
        self.tell(plan, blocked)
        return plan

    def _order(self, now_s: float) -> list[Entry]:
        if self._new_by_gpus and all(entry.arrived_s == now_s for entry in self.waiting.values()):
            return sorted(self.waiting.values(), key=_gpus)
        return [entry for _, entry in self._queue]
