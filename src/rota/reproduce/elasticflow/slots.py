"""What ElasticFlow's loops share, elastic or rigid: events in slots, and who takes part.

Submissions that come within a slot are one event, at its end. What a job does up to the next event
is one rate, because a loop looks ahead.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from math import nextafter
from typing import Any, Generic, Protocol, TypeVar

from rota.core import events as ev
from rota.core.changes import Wake
from rota.core.events import INF
from rota.core.jobs import DONE, Job
from rota.core.knowledge import Knowledge
from rota.core.topology import Topology
from rota.core.view import View
from rota.core.workload import Workload
from rota.reproduce.loop import Blame, Replanner

OVERHEAD_S = 2.0
OVERHEAD_LARGE_S = 7.0  # of clusters with at least LARGE GPUs
LARGE = 256
RESTART_S = 27.0
RESTART_LARGE_S = 47.0
LEAST_LEFT = 1e-9  # of the work: a job that goes on has some left


def rate_to_be_done(left: float, now_s: float, done_s: float) -> float:
    """The rate at which so much work is done by then, and never after it."""
    done_s = max(done_s, nextafter(now_s, INF))
    rate = left / (done_s - now_s)
    while now_s + left / rate > done_s:
        rate = nextafter(rate, INF)
    return rate


class SlotEvents:
    """What is to come: by time, who is submitted (by number) and whose end is due."""

    def __init__(self) -> None:
        self.starts: dict[float, list[int]] = {}
        self.ends: dict[float, list[int]] = {}

    def add(self, time_s: float) -> None:
        """Somebody's share changes then."""
        self.starts.setdefault(time_s, [])
        self.ends.setdefault(time_s, [])

    def submit(self, time_s: float, number: int) -> None:
        """A job comes."""
        self.add(time_s)
        self.starts[time_s].append(number)

    def end(self, number: int, time_s: float, before_s: float | None = None) -> None:
        """A job ends then, and no more at the time that was said before."""
        if before_s == time_s:
            return
        if before_s is not None and before_s in self.ends:
            if number in self.ends[before_s]:
                self.ends[before_s].remove(number)
            if not self.ends[before_s] and not self.starts[before_s]:
                self._remove(before_s)
        self.add(time_s)
        if number not in self.ends[time_s]:
            self.ends[time_s].append(number)

    @property
    def first_s(self) -> float:
        """When the next one is; inf: there is none."""
        return min(self.starts, default=INF)

    def gather(self, now_s: float, slot_s: float) -> float:
        """Make one event of all that come within a slot, at its end; when the next event is."""
        times = sorted(self.starts)
        if len(times) > 1 and int(times[0] - now_s) <= slot_s:
            at_s = now_s + slot_s
            starts, ends = self._remove(times[0])
            for time_s in times[1:]:
                if time_s - now_s > slot_s:
                    break
                more = self._remove(time_s)
                starts, ends = starts + more[0], ends + more[1]
            self.add(at_s)
            self.starts[at_s] += starts
            self.ends[at_s] += ends
        return self.first_s

    def take(self, time_s: float) -> tuple[list[int], list[int]]:
        """What happens now."""
        return self._remove(time_s)

    def forget(self, number: int) -> None:
        """A job is gone."""
        for ends in self.ends.values():
            if number in ends:
                ends.remove(number)

    def _remove(self, time_s: float) -> tuple[list[int], list[int]]:
        return self.starts.pop(time_s, []), self.ends.pop(time_s, [])

    def state(self) -> list[tuple[float, list[int], list[int]]]:
        """As plain data."""
        return [(time_s, self.starts[time_s], self.ends[time_s]) for time_s in self.starts]

    def restore(self, state: Iterable[tuple[float, list[int], list[int]]]) -> None:
        """Take the state up again."""
        for time_s, starts, ends in state:
            self.starts[time_s], self.ends[time_s] = list(starts), list(ends)


class SlotEntry(Protocol):
    """A job in a loop's accounts."""

    job: Job
    placed: bool  # it has been on nodes since the last event

    def state(self) -> tuple[Any, ...]:
        """As plain data, the job's index first."""
        ...

    def restore(self, state: Sequence[Any]) -> None:
        """Take the state up again, without the job's index."""
        ...


E = TypeVar("E", bound=SlotEntry)


class SlotReplanner(Replanner, Generic[E]):
    """A loop over events in slots; a subclass decides who runs, and where."""

    def __init__(self, name: str, topology: Topology, *, slot_s: float) -> None:
        super().__init__(name, topology, Knowledge.REMAINING_WORK)
        self.wake = Wake(on=frozenset({ev.JOB_SUBMIT}))
        self._slot_s = slot_s
        self._events = SlotEvents()
        self._expected: set[int] = set()
        self._jobs: dict[int, E] = {}
        self._now_s = 0.0  # of the last event
        self._next_s = INF
        self._turns = 0
        self._blame = Blame()

    def expect(self, workload: Workload) -> None:
        """The simulator has read its trace: submissions are events that it sees coming."""
        for number, spec in enumerate(workload.specs):
            self._expected.add(number)
            self._events.submit(spec.submit_s, number)
        self._next_s = self._events.first_s

    def arrived(self, job: Job, now_s: float) -> None:
        """It takes part from the next event on."""
        self._jobs[job.index] = self._entry(job)
        self._blame.joins(job)
        if job.index not in self._expected:
            self._events.submit(now_s, job.index)
            self._next_s = min(self._next_s, now_s)

    def ended(self, job: Job) -> None:
        """Its end is an event of the loop, unless it was not to end yet."""
        entry = self._jobs.get(job.index)
        if entry is None or (job.phase == DONE and entry.placed):
            return
        if not entry.placed:
            self._blame.leaves(job)
        self._drop(entry)

    @abstractmethod
    def _entry(self, job: Job) -> E:
        """An account for a new job."""

    def _drop(self, entry: E) -> None:
        """Forget a job; a subclass forgets more."""
        del self._jobs[entry.job.index]

    def snapshot(self) -> Mapping[str, Any]:
        """Everyone with its progress, and all events to come."""
        return {
            "jobs": [entry.state() for entry in self._jobs.values()],
            "events": self._events.state(),
            "expected": sorted(self._expected),
            "now_s": self._now_s,
            "next_s": self._next_s,
            "turns": self._turns,
            "told": sorted(self._blame.told),
        }

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Take all of it up again."""
        self._expected = set(state["expected"])
        for index, *rest in state["jobs"]:
            job = view.everyone[index]
            self.arrived(job, view.now_s)
            self._jobs[index].restore(rest)
            if self._jobs[index].placed:
                self._blame.leaves(job)
        self._events = SlotEvents()
        self._events.restore(state["events"])
        self._now_s, self._next_s = state["now_s"], state["next_s"]
        self._turns = state["turns"]
        self._blame.told = set(state["told"])
