"""From fractions of time to whole GPUs: who runs on which type in the next round.

A target X says which share of time each job should spend on each GPU type. In every round the
dispatcher gives whole gangs GPUs for that round, so that what each job has received comes as close
to X as it can. For gangs this is bin packing and cannot be exact; `shortfall` says by how much each
job is behind.

Rules (by name, so that a comparison can choose):

* `received`: the largest X over the part of the type's time that the job received (Gavel). Behind
  by up to 4 rounds where the target uses every GPU.
* `deficit`: the largest X t - received. Behind by up to 1.5 rounds.

When the target changes, what was received under the old one is forgotten; what is still owed is
kept (`carry`), or forgotten as well.

What runs is called a job here. It may also be a pair of jobs that share their GPUs: then nobody of
it runs alone, or in another pair, in the same round.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rota.core.sums import ordered_sum

Array = NDArray[np.float64]
Rule = Literal["received", "deficit"]
Choice = list[tuple[int, int]]

_NEVER = 1e9  # priority of a share of which nothing was received
_AHEAD = 1.25  # rounds: deficits are those at that time from now; measured to be the best
_DUST = 1e-9  # parts of GPUs are sums of floats
_ROWS = ("_size", "_worth", "_known", "_target", "_received", "_owed")


@dataclass(frozen=True)
class DispatchOptions:
    """How targets become rounds.

    `spare` gives GPUs that the target leaves idle to jobs that can use them. `seed_s` is the time
    that every job counts as having received on every type, so that new jobs do not take all;
    None means half a round. With `forgive` nobody owes more than a round for what it got beyond its
    target: GPUs that were idle otherwise.
    """

    rule: Rule = "deficit"
    carry: bool = True
    spare: bool = True
    seed_s: float | None = None
    forgive: bool = False


@dataclass(frozen=True)
class Wishes:
    """The jobs that could use GPUs, the most urgent first; those that no type can serve too."""

    jobs: list[int]
    _row: Mapping[int, int]
    _due: Array
    _worth: Array

    def kinds(self, job: int) -> list[int]:
        """The types that it would take, the best first."""
        row = self._row[job]
        due, worth = self._due[row].tolist(), self._worth[row].tolist()
        kinds = [kind for kind, gain in enumerate(worth) if gain > 0]
        return sorted(kinds, key=lambda kind: (-due[kind], -worth[kind]))


class Dispatcher:
    """Keeps account of one cluster; jobs are known by numbers, types by their positions."""

    def __init__(
        self, capacity: Sequence[float], round_s: float, options: DispatchOptions | None = None
    ) -> None:
        self.options = options or DispatchOptions()
        self.capacity: list[float] = list(capacity)
        self.round_s = round_s
        self.seed_s = round_s / 2 if self.options.seed_s is None else self.options.seed_s
        self.since_s = 0.0
        kinds = len(self.capacity)
        self.jobs: list[int] = []
        self._row: dict[int, int] = {}
        self._members: list[tuple[int, ...]] = []
        self._size = np.zeros(0)
        self._worth = np.zeros((0, kinds))
        self._known = np.zeros(0, bool)  # the target has a row for it
        self._target = np.zeros((0, kinds))
        self._received = np.zeros((0, kinds))
        self._owed = np.zeros((0, kinds))
        self._total = np.zeros(kinds)  # received by anyone, gone or not, since the target is set
        self._run_s = 0.0  # how much time the target has had so far

    # --- who is there -----------------------------------------------------------------------------

    def join(
        self, job: int, size: float, able: Sequence[float], members: tuple[int, ...] = ()
    ) -> None:
        """A job comes; it has no target until the next one is set.

        Args:
            job: Its number.
            size: Its GPUs.
            able: How fast it is on each type, or just whether it can run there: spare GPUs are
                taken where it is fastest.
            members: Whose GPUs these are, if it stands for a pair.
        """
        self.join_all([job], [size], [able])
        if members:
            self._members[-1] = members

    def join_all(
        self, jobs: Sequence[int], sizes: Sequence[float], able: Sequence[Sequence[float]]
    ) -> None:
        """Many jobs come."""
        kinds, more = len(self.capacity), len(jobs)
        for number, job in enumerate(jobs, len(self.jobs)):
            self._row[job] = number
        self.jobs += jobs
        self._members += [(job,) for job in jobs]
        self._size = np.append(self._size, sizes)
        self._worth = np.vstack([self._worth, np.asarray(able, float).reshape(more, kinds)])
        self._known = np.append(self._known, np.zeros(more, bool))
        self._target = np.vstack([self._target, np.zeros((more, kinds))])
        self._received = np.vstack([self._received, np.full((more, kinds), self.seed_s)])
        self._owed = np.vstack([self._owed, np.zeros((more, kinds))])

    def leave(self, *jobs: int) -> None:
        """Jobs are over, and with them their pairs."""
        if not jobs:
            return
        gone = set(jobs)
        rows = [row for row, members in enumerate(self._members) if not gone.isdisjoint(members)]
        rows = sorted({*rows, *(self._row[job] for job in jobs)})
        for row in reversed(rows):
            del self.jobs[row]
            del self._members[row]
        self._row = {name: position for position, name in enumerate(self.jobs)}
        for name in _ROWS:
            setattr(self, name, np.delete(getattr(self, name), rows, axis=0))

    def __contains__(self, job: int) -> bool:
        return job in self._row

    def rate(self, jobs: Sequence[int], able: Sequence[Sequence[float]]) -> None:
        """These jobs are faster or slower than was thought."""
        if jobs:
            self._worth[[self._row[job] for job in jobs]] = np.asarray(able, float)

    def worth(self, jobs: Sequence[int]) -> Array:
        """How fast these jobs are, by type."""
        found: Array = self._worth[[self._row[job] for job in jobs]]
        return found

    def members(self, job: int) -> tuple[int, ...]:
        """Whose GPUs it would use: its own number, or those of a pair."""
        return self._members[self._row[job]]

    def size(self, job: int) -> float:
        """Its GPUs."""
        return float(self._size[self._row[job]])

    # --- the target -------------------------------------------------------------------------------

    def retarget(self, now_s: float, shares: Mapping[int, Sequence[float]]) -> None:
        """From now on these shares hold; jobs that are not named have none."""
        jobs = [job for job in shares if job in self._row]
        table = np.array([shares[job] for job in jobs], float)
        self.retarget_all(now_s, jobs, table.reshape(len(jobs), len(self.capacity)))

    def retarget_all(self, now_s: float, jobs: Sequence[int], shares: Array) -> None:
        """The same, with a row of shares for each of these jobs."""
        if self.options.carry:
            self.settle(now_s - self.since_s)
        else:
            self._owed[:] = 0.0
        self.restart(now_s)
        rows = [self._row[job] for job in jobs]
        self._known[:] = False
        self._known[rows] = True
        self._target[:] = 0.0
        self._target[rows] = shares

    def settle(self, lasted_s: float) -> None:
        """Write down what the target still owes everyone after so long a time."""
        self._owed += self._target * lasted_s - (self._received - self.seed_s)
        if self.options.forgive:
            np.maximum(self._owed, -self.round_s, out=self._owed)

    def restart(self, now_s: float) -> None:
        """Forget what was received."""
        self._received[:] = self.seed_s
        # added up one by one as the published simulator does: its ties depend on the last digit
        total = 0.0
        for _ in self.jobs:
            total += self.seed_s
        self._total[:] = total
        self._run_s = 0.0
        self.since_s = now_s

    # --- rounds -----------------------------------------------------------------------------------

    def choose(
        self,
        order: Iterable[int] | None = None,
        *,
        free: Sequence[float] | None = None,
        without: Collection[int] = (),
    ) -> Choice:
        """The jobs of the next round with their types, the most urgent first.

        Args:
            order: The types in the order in which they choose; the rule `deficit` looks at all
                types together.
            free: GPUs of each type if not all of them.
            without: Jobs that do not take part.
        """
        room = list(self.capacity if free is None else free)
        taken: set[int] = set(without)
        out: Choice = []
        if self.options.rule == "deficit":
            self._fill_together(room, taken, out)
            return out
        for kind in range(len(room)) if order is None else order:
            self._fill(kind, room, taken, out)
        return out

    def wishes(self) -> "Wishes":
        """What everyone would take of what is left."""
        target = (self._target > 0) & (self._worth > 0)
        due = np.where(target, self._due(), -np.inf)
        useful = (self._worth > 0) if self.options.spare else target
        order = np.lexsort((self._received.sum(axis=1), -due.max(axis=1, initial=-np.inf)))
        nothing = ~useful.any(axis=1, keepdims=True) & (self._worth > 0)
        idle = set(np.flatnonzero(nothing.any(axis=1)).tolist())
        jobs = [self.jobs[row] for row in order.tolist() if row not in idle]
        return Wishes(jobs, self._row, due, np.where(useful, self._worth, 0.0))

    def priorities(self, kind: int) -> Array:
        """X over the part received of the type; zero without a target."""
        target, received = self._target[:, kind], self._received[:, kind]
        part = received / self._total[kind] if self._total[kind] > 0 else np.zeros_like(received)
        ratio = np.divide(target, part, out=target * _NEVER, where=part > 0)
        return np.where((target == 0) | (self._worth[:, kind] <= 0), 0.0, ratio)

    def _fill(self, kind: int, free: list[float], taken: set[int], out: Choice) -> None:
        priority = self.priorities(kind)
        order = np.lexsort((-self._target[:, kind], -self._owed[:, kind], -priority))
        for row in order.tolist():
            if free[kind] <= _DUST:
                return
            if not self.options.spare and priority[row] <= 0:
                return
            self._take(row, kind, free, taken, out)

    def _fill_together(self, free: list[float], taken: set[int], out: Choice) -> None:
        due = self._due(_AHEAD * self.round_s)
        rows, kinds = np.nonzero((self._target > 0) & (self._worth > 0))
        order = np.argsort(-due[rows, kinds], kind="stable")
        self._take_all(rows[order], kinds[order], free, taken, out)
        if self.options.spare and max(free, default=0.0) > _DUST:
            rows, kinds = np.nonzero(self._worth > 0)
            late = self._received.sum(axis=1)[rows]
            order = np.lexsort((-self._worth[rows, kinds], rows, late))
            self._take_all(rows[order], kinds[order], free, taken, out)

    def _take_all(
        self,
        rows: NDArray[np.intp],
        kinds: NDArray[np.intp],
        free: list[float],
        taken: set[int],
        out: Choice,
    ) -> None:
        left = ordered_sum(free)
        for row, kind in zip(rows.tolist(), kinds.tolist(), strict=True):
            if left <= _DUST:
                return
            left -= self._take(row, kind, free, taken, out)

    def _take(self, row: int, kind: int, free: list[float], taken: set[int], out: Choice) -> float:
        """The GPUs that it takes: all or nothing."""
        members, size = self._members[row], float(self._size[row])
        if size > free[kind] + _DUST or self._worth[row, kind] <= 0:
            return 0.0
        if any(member in taken for member in members):
            return 0.0
        taken.update(members)
        free[kind] -= size
        out.append((self.jobs[row], kind))
        return size

    def _due(self, ahead_s: float = 0.0) -> Array:
        """What everyone should have received by then and has not."""
        due: Array = (
            self._owed + self._target * (self._run_s + ahead_s) - (self._received - self.seed_s)
        )
        return due

    def known(self, job: int) -> bool:
        """Whether the target was made with this job."""
        return bool(self._known[self._row[job]])

    def complete(self, places: Iterable[tuple[int, int]]) -> bool:
        """Whether everyone who has a share of a type is on that type just now."""
        targets = (self._target > 0) & (self._worth > 0)
        for job, kind in places:
            targets[self._row[job], kind] = False
        return not targets.any()

    def record(self, job: int, kind: int, seconds: float) -> None:
        """A job ran on a type for so long."""
        self._received[self._row[job], kind] += seconds
        self._total[kind] += seconds

    def advance(self, seconds: float) -> None:
        """So much time has passed for the target."""
        self._run_s += seconds

    def shortfall(self) -> dict[int, float]:
        """By how many rounds each job is behind its target, on the type where it is most so."""
        behind = np.maximum(self._due(), 0.0).max(axis=1, initial=0.0) / self.round_s
        return dict(zip(self.jobs, behind.tolist(), strict=True))

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "jobs": list(self.jobs),
            "members": [list(members) for members in self._members],
            "capacity": list(self.capacity),
            "size": self._size.tolist(),
            "worth": self._worth.tolist(),
            "known": self._known.tolist(),
            "target": self._target.tolist(),
            "received": self._received.tolist(),
            "owed": self._owed.tolist(),
            "total": self._total.tolist(),
            "run_s": self._run_s,
            "since_s": self.since_s,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from the state of `snapshot`."""
        self.jobs = list(state["jobs"])
        shape = (len(self.jobs), len(self.capacity))
        self._members = [tuple(members) for members in state["members"]]
        self.capacity = list(state["capacity"])
        self._row = {job: row for row, job in enumerate(self.jobs)}
        self._size = np.array(state["size"], float)
        self._known = np.array(state["known"], bool)
        self._worth = np.array(state["worth"], float).reshape(shape)
        self._target = np.array(state["target"], float).reshape(shape)
        self._received = np.array(state["received"], float).reshape(shape)
        self._owed = np.array(state["owed"], float).reshape(shape)
        self._total = np.array(state["total"], float)
        self._run_s, self.since_s = state["run_s"], state["since_s"]
