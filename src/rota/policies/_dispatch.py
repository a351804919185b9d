"""From fractions of time to whole GPUs: who runs on which type in the next round.

A target X says which share of time each job should spend on each GPU type. In every round the
dispatcher gives whole gangs GPUs for that round, so that what each job has received comes as close
to X as it can. For gangs this is bin packing and cannot be exact; `shortfall` says by how much each
job is behind. For jobs of one GPU `_birkhoff` is the exact reference.

Rules (by name, so that a comparison can choose):

* `received`: the largest X over the part of the type's time that the job received (Gavel). Behind
  by up to 4 rounds where the target uses every GPU.
* `deficit`: the largest X t - received. Behind by up to 1.5 rounds.

When the target changes, what was received under the old one is forgotten; what is still owed is
kept (`carry`), or forgotten as well.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rule = Literal["received", "deficit"]
Choice = list[tuple[int, int]]

_NEVER = 1e9  # priority of a share of which nothing was received
_AHEAD = 1.25  # rounds: deficits are those at that time from now; measured to be the best


@dataclass(frozen=True)
class DispatchOptions:
    """How targets become rounds.

    `spare` gives GPUs that the target leaves idle to whoever can use them. `seed_s` is the time
    that every job counts as having received on every type, so that new jobs do not take all;
    None means half a round.
    """

    rule: Rule = "deficit"
    carry: bool = True
    spare: bool = True
    seed_s: float | None = None


class Dispatcher:
    """Keeps the books of one cluster; jobs are known by numbers, types by their positions."""

    def __init__(
        self, capacity: Sequence[int], round_s: float, options: DispatchOptions | None = None
    ) -> None:
        self.options = options or DispatchOptions()
        self.capacity = list(capacity)
        self.round_s = round_s
        self.seed_s = round_s / 2 if self.options.seed_s is None else self.options.seed_s
        self.since_s = 0.0
        kinds = len(self.capacity)
        self.jobs: list[int] = []
        self._row: dict[int, int] = {}
        self._size = np.zeros(0)
        self._able = np.zeros((0, kinds), bool)
        self._known = np.zeros(0, bool)  # the target has a row for it
        self._target = np.zeros((0, kinds))
        self._received = np.zeros((0, kinds))
        self._owed = np.zeros((0, kinds))
        self._total = np.zeros(kinds)  # received by anyone, gone or not, since the target is set
        self._run_s = 0.0  # how much time the target has had so far

    # --- who is there -----------------------------------------------------------------------------

    def join(self, job: int, size: float, able: Sequence[bool]) -> None:
        """A job comes; it has no target until the next one is set."""
        self._row[job] = len(self.jobs)
        self.jobs.append(job)
        kinds = len(self.capacity)
        self._size = np.append(self._size, size)
        self._able = np.vstack([self._able, np.asarray(able, bool)])
        self._known = np.append(self._known, False)
        self._target = np.vstack([self._target, np.zeros(kinds)])
        self._received = np.vstack([self._received, np.full(kinds, self.seed_s)])
        self._owed = np.vstack([self._owed, np.zeros(kinds)])

    def leave(self, job: int) -> None:
        """A job is over."""
        row = self._row[job]
        del self.jobs[row]
        self._row = {name: position for position, name in enumerate(self.jobs)}
        for name in ("_size", "_able", "_known", "_target", "_received", "_owed"):
            setattr(self, name, np.delete(getattr(self, name), row, axis=0))

    # --- the target -------------------------------------------------------------------------------

    def retarget(self, now_s: float, shares: Mapping[int, Sequence[float]]) -> None:
        """From now on these shares hold; jobs that are not named have none."""
        if self.options.carry:
            self.settle(now_s - self.since_s)
        else:
            self._owed[:] = 0.0
        self.restart(now_s)
        for job, row in self._row.items():
            self._known[row] = job in shares
            self._target[row] = shares.get(job, 0.0)

    def settle(self, lasted_s: float) -> None:
        """Write down what the target still owes everyone after so long a time."""
        self._owed += self._target * lasted_s - (self._received - self.seed_s)

    def restart(self, now_s: float) -> None:
        """Forget what was received."""
        self._received[:] = self.seed_s
        # added up one by one as the published simulator does: its ties depend on the last digit
        self._total[:] = 0.0
        for _ in self.jobs:
            self._total += self.seed_s
        self._run_s = 0.0
        self.since_s = now_s

    # --- rounds -----------------------------------------------------------------------------------

    def choose(self, order: Iterable[int] | None = None) -> Choice:
        """The jobs of the next round with their types.

        `order` are the types in the order in which they choose; the rule `deficit` looks at all
        types together.
        """
        free = list(self.capacity)
        taken: set[int] = set()
        out: Choice = []
        if self.options.rule == "deficit":
            self._fill_together(free, taken, out)
            return out
        for kind in range(len(free)) if order is None else order:
            self._fill(kind, free, taken, out)
        return out

    def priorities(self, kind: int) -> Array:
        """X over the part received of the type; zero without a target."""
        target, received = self._target[:, kind], self._received[:, kind]
        part = received / self._total[kind] if self._total[kind] > 0 else np.zeros_like(received)
        ratio = np.divide(target, part, out=target * _NEVER, where=part > 0)
        return np.where((target == 0) | ~self._able[:, kind], 0.0, ratio)

    def _fill(self, kind: int, free: list[int], taken: set[int], out: Choice) -> None:
        priority = self.priorities(kind)
        order = np.lexsort((-self._target[:, kind], -self._owed[:, kind], -priority))
        for row in order.tolist():
            if not free[kind]:
                return
            if not self.options.spare and priority[row] <= 0:
                return
            self._take(row, kind, free, taken, out)

    def _fill_together(self, free: list[int], taken: set[int], out: Choice) -> None:
        due = self._due(_AHEAD * self.round_s)
        rows, kinds = np.nonzero((self._target > 0) & self._able)
        for at in np.argsort(-due[rows, kinds], kind="stable").tolist():
            self._take(int(rows[at]), int(kinds[at]), free, taken, out)
        if self.options.spare and any(free):
            rows, kinds = np.nonzero(self._able)
            late = np.argsort(self._received.sum(axis=1)[rows], kind="stable")
            for at in late.tolist():
                self._take(int(rows[at]), int(kinds[at]), free, taken, out)

    def _take(self, row: int, kind: int, free: list[int], taken: set[int], out: Choice) -> None:
        if row in taken or not self._able[row, kind] or self._size[row] > free[kind]:
            return
        taken.add(row)
        free[kind] -= int(self._size[row])
        out.append((self.jobs[row], kind))

    def _due(self, ahead_s: float = 0.0) -> Array:
        """What everyone should have received by then and has not."""
        due: Array = (
            self._owed + self._target * (self._run_s + ahead_s) - (self._received - self.seed_s)
        )
        return due

    def known(self, job: int) -> bool:
        """Whether the target was made with this job."""
        return bool(self._known[self._row[job]])

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
        """All books as plain data."""
        return {
            "jobs": list(self.jobs),
            "size": self._size.tolist(),
            "able": self._able.tolist(),
            "known": self._known.tolist(),
            "target": self._target.tolist(),
            "received": self._received.tolist(),
            "owed": self._owed.tolist(),
            "total": self._total.tolist(),
            "run_s": self._run_s,
            "since_s": self.since_s,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the books of `snapshot` up again."""
        kinds, self.jobs = len(self.capacity), list(state["jobs"])
        self._row = {job: row for row, job in enumerate(self.jobs)}
        self._size = np.array(state["size"], float)
        self._known = np.array(state["known"], bool)
        self._able = np.array(state["able"], bool).reshape(-1, kinds)
        self._target = np.array(state["target"], float).reshape(-1, kinds)
        self._received = np.array(state["received"], float).reshape(-1, kinds)
        self._owed = np.array(state["owed"], float).reshape(-1, kinds)
        self._total = np.array(state["total"], float)
        self._run_s, self.since_s = state["run_s"], state["since_s"]
