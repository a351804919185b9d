"""Fragmentation gradient descent: where the job makes the fewest free GPUs useless for others.

Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
Descent, USENIX ATC 2023. `fragments` has the measure; the target workload is what the jobs of the
trace ask for, or what was asked so far where there is no trace.
"""

from collections.abc import Sequence

import numpy as np

from rota.core.jobs import Request
from rota.core.topology import Topology
from rota.placement.fragments import MILLI, Floats, Ints, JobClass, Target
from rota.placement.machines import Machines
from rota.placement.scored import BEST, Scored, ScoredParams, Wish


class Fgd(Scored):
    """Descend along the steepest slope of fragmentation."""

    name = "fgd"

    def __init__(
        self, topology: Topology, params: ScoredParams | None = None, *, seed: int = 0
    ) -> None:
        super().__init__(topology, params, seed=seed)
        self.target = Target([], [])
        self._accepted = self.target.accepts(self.machines.types)
        self._now: Floats = np.zeros(self.machines.count)
        self._measured = 0  # changes that `_now` knows of
        self.expect([])

    def expect(self, usual: Sequence[tuple[Request, int]]) -> None:
        """The target workload."""
        self.target = Target.popular([(JobClass.of(request), count) for request, count in usual])
        self._accepted = self.target.accepts(self.machines.types)
        self._measured = -1
        self._known.clear()

    def scores(self, machines: Machines, rows: Ints, wish: Wish) -> Ints:
        """How steeply fragmentation falls, squeezed into whole numbers from 0 to 100."""
        best: Ints = self._per_device(machines, rows, wish).max(axis=1)
        return best

    def devices(self, machines: Machines, row: int, wish: Wish) -> list[int]:
        """For a part of a GPU the first with the best score, else the first free ones."""
        if wish.kind.part in (0, MILLI) or wish.kind.gpus != 1:
            return super().devices(machines, row, wish)
        return [int(np.argmax(self._per_device(machines, np.array([row]), wish)[0]))]

    def _per_device(self, machines: Machines, rows: Ints, wish: Wish) -> Ints:
        """Scores by row and way of taking GPUs: each GPU in turn for a part of one, else one."""
        kind = wish.kind
        cpu = machines.cpu[rows] - kind.cpu
        if kind.gpus == 1 and kind.part < MILLI:
            return self._shared(machines, rows, kind.part, cpu)
        after = machines.gpus[rows]
        if kind.gpus:
            free = after >= kind.part
            after[free & (np.cumsum(free, axis=1) <= kind.gpus)] -= kind.part
        here = self.target.fragments(cpu, after, self._accepted[machines.kind[rows]])
        return _squeezed(self._fragments(machines, rows) - here)[:, None]

    def _shared(self, machines: Machines, rows: Ints, part: int, cpu: Ints) -> Ints:
        """Scores by row and GPU for a part of one GPU; of GPUs that are alike only the first."""
        left = machines.gpus[rows]
        alike = left[:, :, None] == left[:, None, :]
        first = alike.argmax(axis=2) == np.arange(machines.widest)
        state, device = np.nonzero(first & (left >= part))
        after = left[state]
        after[np.arange(len(state)), device] -= part
        here = self.target.fragments(cpu[state], after, self._accepted[machines.kind[rows[state]]])
        scores: Ints = np.full(left.shape, -1, np.int64)
        scores[state, device] = _squeezed(self._fragments(machines, rows)[state] - here)
        return scores

    def _fragments(self, machines: Machines, rows: Ints) -> Floats:
        """Fragments as they are, remembered for the present state of the cluster."""
        if machines is not self.machines:
            accepted = self._accepted[machines.kind[rows]]
            return self.target.fragments(machines.cpu[rows], machines.gpus[rows], accepted)
        changes = len(self._changes)
        if self._measured != changes:
            if self._measured < 0:
                stale = np.arange(machines.count)
            else:
                stale = np.array(sorted(set(self._changes[self._measured :])), np.int64)
            self._now[stale] = self.target.fragments(
                machines.cpu[stale], machines.gpus[stale], self._accepted[machines.kind[stale]]
            )
            self._measured = changes
        now: Floats = self._now[rows]
        return now


def _squeezed(descent: Floats) -> Ints:
    """100 times the sigmoid of GPUs that are no fragments any more, cut to whole numbers."""
    scores: Ints = (BEST / (1.0 + np.exp(-descent / MILLI))).astype(np.int64)
    return scores
