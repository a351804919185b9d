"""ElasticFlow's progressive filling: the fewest GPUs, slot by slot, with which a job is in time.

A plan is a dictionary from times to GPUs, each from its time on; so is what is free. Both are
steps, and the last one holds for ever. The simulator's filling is followed step by step with all
that is odd about it: plans of others depend on it.
"""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from rota.core.sums import ordered_sum

Steps = dict[float, int]
"""GPUs from each time on, in order of time."""


class FillingJob(NamedTuple):
    """What filling knows of a job: work left, when it is due, and its rate by number of GPUs."""

    left: float
    due_s: float
    rates: Mapping[int, float]
    levels: Sequence[int]  # in rising order


class Filled(NamedTuple):
    """A plan, its end in whole slots and without them, and what it leaves free."""

    plan: Steps
    end_s: float
    real_end_s: float
    free: Steps

    def gpu_s(self) -> float:
        """GPU time of the plan up to its end."""
        times = [*self.plan, self.end_s]
        return ordered_sum(
            gpus * (until_s - from_s)
            for (from_s, gpus), until_s in zip(self.plan.items(), times[1:], strict=True)
        )


def slotted(start_s: float, time_s: float, slot_s: float) -> float:
    """The first end of a slot, counted from the start, that is not before the time."""
    slots, rest = divmod(time_s - start_s, slot_s)
    return start_s + (slots + (rest > 0)) * slot_s


def largest(levels: Sequence[int], gpus: int) -> int:
    """The largest level of at most so many GPUs; 0: there is none."""
    found = 0
    for level in levels:
        if level > gpus:
            break
        found = level
    return found


def merged(steps: Steps) -> Steps:
    """In order, without steps that change nothing."""
    found: Steps = {}
    last = -1
    for time_s in sorted(steps):
        if steps[time_s] != last:
            last = found[time_s] = steps[time_s]
    return found


class Filling:
    """One job's way through what is free."""

    def __init__(
        self, job: FillingJob, start_s: float, free: Steps, *, slot_s: float, gpus: int
    ) -> None:
        self._job = job
        self._start_s = self._at_s = start_s
        self._given = free
        self._free = dict(free)
        self._slot_s = slot_s
        self._gpus = gpus  # of the whole cluster
        self._left = job.left
        self._plan: Steps = {start_s: 0}
        self._before = gpus  # what is free before the step that was looked at last
        self._due_s = slotted(start_s, job.due_s, slot_s)
        if self._due_s not in free and self._due_s >= start_s:
            for time_s, amount in free.items():
                if time_s < self._due_s:
                    self._before = amount
            self._free[self._due_s] = self._before
            self._sort()

    def fill(self, first: int = 0) -> Filled:
        """The plan; `first`: begin with so many GPUs, up to the first step of what is free."""
        if first:
            found = self._begin(first)
            if found is not None:
                return found
        return self._in_time() or self._too_late(first)

    # --- parts of the way -------------------------------------------------------------------------

    def _begin(self, first: int) -> Filled | None:
        """Hold so many GPUs from now on, for as long as nothing changes."""
        job, start_s = self._job, self._start_s
        until_s = next((time_s for time_s in self._given if time_s > start_s), self._due_s)
        self._plan[start_s] = first
        real_end_s = ceil(start_s + self._left / job.rates[first])
        end_s = slotted(start_s, real_end_s, self._slot_s)
        if until_s >= end_s and job.due_s >= real_end_s:
            self._before = self._free[start_s]
            self._free[start_s] -= first
            return self._filled(end_s, real_end_s)
        self._left -= self._seconds(start_s, until_s) * job.rates[first]
        self._free[start_s] -= first
        self._at_s = until_s
        self._plan[until_s] = 0
        return None

    def _in_time(self) -> Filled | None:
        """The smallest share with which it is in time, taken as late as possible."""
        share = before = 0
        for level in self._job.levels:
            if level > self._gpus:
                break
            before, share = share, level
            from_s = self._latest_start(share)
            if from_s is None:
                continue
            ended = self._walk(
                lambda time_s, from_s=from_s, share=share, before=before: self._level(  # type: ignore[misc]  # bound now
                    share if time_s >= from_s else before, time_s
                ),
                from_s,
            )
            end_s, real_end_s = ended
            self._before = self._gpus
            for time_s, amount in self._given.items():
                if self._at_s <= time_s < end_s:
                    self._before = amount
            return self._filled(end_s, real_end_s)
        return None

    def _latest_start(self, share: int) -> float | None:
        """From which step on this share is enough; None: not even from the first."""
        done, until_s = 0.0, self._due_s
        for time_s in self._free:
            if time_s < self._due_s:
                self._plan.setdefault(time_s, 0)
        for time_s in reversed(self._free):
            if time_s >= self._due_s:
                continue
            if time_s < self._at_s:
                break
            gpus = self._level(share, time_s)
            if gpus:
                done += self._seconds(time_s, until_s) * self._job.rates[gpus]
                if done >= self._left:
                    return time_s
            until_s = time_s
        return None

    def _walk(self, share: Callable[[float], int], from_s: float) -> tuple[float, float]:
        """Take what the share says, step by step up to the deadline; where it ends."""
        at_s, gpus = None, 0
        for time_s in list(self._free):
            if time_s > self._due_s:
                break
            if time_s < self._at_s:
                continue
            if at_s is not None:
                self._take(at_s, gpus)
                if gpus:
                    done = self._seconds(at_s, time_s) * self._job.rates[gpus]
                    if at_s >= from_s and done >= self._left:
                        return self._ends(at_s, gpus)
                    self._left -= done
            at_s, gpus = time_s, share(time_s)
        if at_s is None or from_s == float("inf"):
            return self._due_s, self._due_s
        self._take(at_s, gpus)
        return self._ends(at_s, gpus)

    def _too_late(self, first: int) -> Filled:
        """All that there is up to the deadline, and then whatever is free."""
        job, start_s = self._job, self._start_s
        most = largest(job.levels, self._gpus)
        self._walk(lambda time_s: self._level(most, time_s), float("inf"))
        at_s = max(self._due_s, self._at_s)
        for time_s in list(self._free):
            if time_s <= self._due_s:
                continue
            gpus = self._plan[at_s] = self._level(job.levels[-1], at_s)
            if gpus:
                done = (time_s - at_s) * job.rates[gpus]
                if done >= self._left:
                    return self._late_end(at_s, gpus)
                self._left -= done
                for before_s in self._given:
                    if before_s < at_s:
                        self._before = self._free[before_s]
                self._subtract(gpus, at_s, time_s)
            at_s = time_s
        gpus = first or most
        self._plan[at_s] = gpus
        real_end_s = ceil(at_s + self._left / job.rates[gpus])
        end_s = slotted(start_s, real_end_s, self._slot_s)
        self._free[at_s] = self._gpus - gpus
        self._free[end_s] = self._gpus
        return Filled(merged(self._plan), end_s, real_end_s, merged(self._free))

    def _late_end(self, at_s: float, gpus: int) -> Filled:
        """It ends in a step after its deadline."""
        real_end_s = ceil(at_s + self._left / self._job.rates[gpus])
        end_s = slotted(self._start_s, real_end_s, self._slot_s)
        for time_s in self._given:
            if self._due_s <= time_s < end_s:
                self._before = self._given[time_s]
        self._subtract(gpus, at_s, end_s)
        if at_s != end_s:
            self._free[at_s] = self._before - gpus
        return self._filled(end_s, real_end_s)

    # --- steps ------------------------------------------------------------------------------------

    def _level(self, most: int, time_s: float) -> int:
        """The largest level of at most so many GPUs that is free then."""
        return largest(self._job.levels, min(most, self._free[time_s]))

    def _seconds(self, from_s: float, until_s: float) -> float:
        """Of a step; the slot of the deadline ends with the deadline."""
        return (self._job.due_s if until_s == self._due_s else until_s) - from_s

    def _take(self, at_s: float, gpus: int) -> None:
        self._plan[at_s] = gpus
        self._free[at_s] -= gpus

    def _subtract(self, gpus: int, from_s: float, until_s: float) -> None:
        for time_s in self._free:
            if from_s <= time_s < until_s:
                self._free[time_s] -= gpus

    def _ends(self, at_s: float, gpus: int) -> tuple[float, float]:
        seconds = ceil(self._left / self._job.rates[gpus]) if gpus else 0
        return at_s + slotted(0, seconds, self._slot_s), at_s + seconds

    def _filled(self, end_s: float, real_end_s: float) -> Filled:
        """At the end all is free again that was free before."""
        if end_s not in self._given:
            self._free[end_s] = self._before
        return Filled(merged(self._plan), end_s, real_end_s, merged(self._free))

    def _sort(self) -> None:
        self._free = dict(sorted(self._free.items()))


def earliest(job: FillingJob, start_s: float, free: Steps, *, slot_s: float, gpus: int) -> Filled:
    """EDF's plan: as many GPUs as it takes, or as there are, from now on until it is done."""
    most = largest(job.levels, gpus)
    left, at_s, available = job.left, start_s, free[start_s]
    after, plan = dict(free), {start_s: 0}
    for until_s in free:
        if until_s <= start_s:
            continue
        taken = largest(job.levels, min(most, available))
        plan[at_s] = taken
        if taken:
            end_s = ceil(at_s + left / job.rates[taken])
            if until_s >= end_s:
                after[at_s] = available - taken
                if end_s not in free:
                    after[slotted(start_s, end_s, slot_s)] = available
                return Filled(merged(plan), end_s, end_s, merged(after))
            left -= (until_s - at_s) * job.rates[taken]
            after[at_s] -= taken
        at_s, available = until_s, after[until_s]
    plan[at_s] = most
    end_s = ceil(at_s + left / job.rates[most])
    after[at_s] = gpus - most
    after[slotted(start_s, end_s, slot_s)] = gpus
    return Filled(merged(plan), end_s, end_s, merged(after))
