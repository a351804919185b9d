"""Fragmentation gradient descent: where the job makes the fewest free GPUs useless for others.

Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
Descent, USENIX ATC 2023. `fragments` has the measure; the target workload is what the jobs of the
trace ask for. Where there is no trace it is what was asked so far, looked at anew whenever a
quarter more jobs have come. Of GPUs of a node that are equally good for a part of one the fullest
is taken (the first one in the dialect `fgd`, as in the published runs).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rota.core.jobs import JobSpec, Request
from rota.core.state import State
from rota.core.topology import Topology
from rota.placement.fragments import FEW, MILLI, Floats, Ints, JobClass, Target
from rota.placement.machines import PLENTY, NodeArrays
from rota.placement.scored import BEST, REMEMBERED, Scored, ScoredParams, ScoredRequest

GROWTH = 1.25  # so many times the jobs, and the target workload is made anew

Counts = dict[JobClass, int]
_Way = tuple[int, list[int]]
"""A GPU, and what is left of all GPUs of its node once it is taken."""


class FgdState(State):
    """Jobs by class: asked so far, and those that the present target workload was made of."""

    asked: list[tuple[JobClass, int]] = []
    learnt: list[tuple[JobClass, int]] = []
    due: int = 1


class Fgd(Scored):
    """Descend along the steepest slope of fragmentation."""

    name = "fgd"

    def __init__(
        self, topology: Topology, params: ScoredParams | None = None, *, seed: int = 0
    ) -> None:
        self._measured = -1  # changes that `_now` knows of
        super().__init__(topology, params, seed=seed)
        self._now: Floats = np.zeros(self.machines.count)
        self._first: dict[JobClass, Ints] = {}  # by row: the best GPU for a part of one
        self.state: FgdState = FgdState()
        self._told = False  # the target workload is known and does not change
        self._asked: Counts = {}
        self._learnt: Counts = {}  # what the present target workload was made of
        self._due = 1  # jobs, until the target workload is made anew
        self._aim({})

    def rank(self, names: Sequence[str]) -> None:
        """As the base says."""
        super().rank(names)
        self._measured = -1

    # --- the target workload ----------------------------------------------------------------------

    def expect(self, usual: Sequence[tuple[Request, int]]) -> None:
        """The target workload, once and for all."""
        counts: Counts = {}
        for request, count in usual:
            kind = JobClass.of(request)
            counts[kind] = counts.get(kind, 0) + count
        self._told = True
        self._aim(counts)

    def refine(self, spec: JobSpec) -> Request:
        """Learn from what is asked; the request stays as it is."""
        if not self._told:
            kind = JobClass.of(spec.request)
            self._asked[kind] = self._asked.get(kind, 0) + 1
            total = sum(self._asked.values())
            if total >= self._due:
                self._due = max(total + 1, int(total * GROWTH))
                self._aim(dict(self._asked))
        return spec.request

    def _aim(self, counts: Counts) -> None:
        self._learnt = counts
        self.target = Target.popular(list(counts.items()))
        self._accepted = self.target.accepts(self.machines.types)
        self._measured = -1
        self._first.clear()
        self.forget()

    @property
    def states(self) -> int:
        """States of nodes whose fragments were computed and are remembered."""
        return len(self.target)

    def snapshot(self) -> Mapping[str, Any]:
        """What was learnt; nothing if the target workload is known."""
        if self._told:
            return {}
        learnt = list(self._learnt.items())
        self.state = FgdState(list(self._asked.items()), learnt, self._due)
        return super().snapshot()

    def resumed(self) -> None:
        """Go on learning."""
        if not self._told:
            self._asked = dict(self.state.asked)
            self._due = self.state.due
            self._aim(dict(self.state.learnt))

    # --- scores -----------------------------------------------------------------------------------

    def scores(self, machines: NodeArrays, rows: Ints, request: ScoredRequest) -> Ints:
        """How steeply fragmentation falls, squeezed into whole numbers from 0 to 100."""
        shares = request.kind.gpus == 1 and request.kind.part < MILLI
        look = self._few if len(rows) <= FEW else self._many
        best, first = look(machines, rows, request)
        if shares and machines is self.machines:
            self._keep(request.kind, rows, first)
        return best

    def _keep(self, kind: JobClass, rows: Ints, first: Ints) -> None:
        """Remember the best GPU of each row for a part of one."""
        kept = self._first.get(kind)
        if kept is None:
            if len(self._first) > REMEMBERED:
                self._first.clear()
                self.forget()
            kept = self._first[kind] = np.zeros(self.machines.count, np.int64)
        kept[rows] = first

    def devices(self, machines: NodeArrays, row: int, request: ScoredRequest) -> list[int]:
        """For a part of a GPU the first with the best score, else the first free ones."""
        if request.kind.part in (0, MILLI) or request.kind.gpus != 1:
            return super().devices(machines, row, request)
        return [int(self._first[request.kind][row])]  # as found when the row was scored

    def _few(self, machines: NodeArrays, rows: Ints, request: ScoredRequest) -> tuple[Ints, Ints]:
        """Best scores and GPUs, row by row."""
        need, part, gpus = request.kind.cpu, request.kind.part, request.kind.gpus
        kinds, cpus = machines.kind[rows].tolist(), machines.cpu[rows].tolist()
        now = self._fragments(machines, rows).tolist()
        state, accepts = self.target.state, self._accepted
        descents: list[float] = []
        ways: list[tuple[int, int]] = []  # row in this list, GPU
        for i, left in enumerate(machines.gpus[rows].tolist()):
            for device, after in self._turns(_ways(left, part, gpus)):
                descents.append(now[i] - state(kinds[i], cpus[i] - need, after, accepts))
                ways.append((i, device))
        best, first = [-1] * len(rows), [0] * len(rows)
        for (i, device), score in zip(ways, _squeezed(np.array(descents)).tolist(), strict=True):
            if score > best[i]:
                best[i], first[i] = score, device
        return np.array(best), np.array(first)

    def _turns(self, ways: list[_Way]) -> list[_Way]:
        """In which order GPUs are looked at, the first of equals being taken.

        Where GPUs are named it is theirs, as in the published runs, else the fullest come first.
        """
        return ways if self.names_gpus or len(ways) == 1 else sorted(ways, key=_left_there)

    def _many(self, machines: NodeArrays, rows: Ints, request: ScoredRequest) -> tuple[Ints, Ints]:
        found = self._per_device(machines, rows, request)
        best: Ints = found.max(axis=1)
        if not self.names_gpus and found.shape[1] > 1:
            left = machines.gpus[rows]
            return best, np.where(found == best[:, None], left, PLENTY).argmin(axis=1)
        return best, found.argmax(axis=1)

    def _per_device(self, machines: NodeArrays, rows: Ints, request: ScoredRequest) -> Ints:
        """Scores by row and way of taking GPUs: each GPU in turn for a part of one, else one."""
        kind = request.kind
        cpu = machines.cpu[rows] - kind.cpu
        if kind.gpus == 1 and kind.part < MILLI:
            return self._shared(machines, rows, kind.part, cpu)
        after = machines.gpus[rows]
        if kind.gpus:
            free = after >= kind.part
            after[free & (np.cumsum(free, axis=1) <= kind.gpus)] -= kind.part
        here = self.target.fragments(machines.kind[rows], cpu, after, self._accepted)
        return _squeezed(self._fragments(machines, rows) - here)[:, None]

    def _shared(self, machines: NodeArrays, rows: Ints, part: int, cpu: Ints) -> Ints:
        """Scores by row and GPU for a part of one GPU; of GPUs that are alike only the first."""
        left = machines.gpus[rows]
        alike = left[:, :, None] == left[:, None, :]
        first = alike.argmax(axis=2) == np.arange(machines.widest)
        state, device = np.nonzero(first & (left >= part))
        after = left[state]
        after[np.arange(len(state)), device] -= part
        kind = machines.kind[rows[state]]
        here = self.target.fragments(kind, cpu[state], after, self._accepted)
        scores: Ints = np.full(left.shape, -1, np.int64)
        scores[state, device] = _squeezed(self._fragments(machines, rows)[state] - here)
        return scores

    def _fragments(self, machines: NodeArrays, rows: Ints) -> Floats:
        """Fragments as they are, remembered for the present state of the cluster."""
        if machines is not self.machines:
            return self._looked_at(machines, rows)
        if self._measured != self.changes:
            stale = self.changed_since(self._measured)
            self._now[stale] = self._looked_at(machines, stale)
            self._measured = self.changes
        now: Floats = self._now[rows]
        return now

    def _looked_at(self, machines: NodeArrays, rows: Ints) -> Floats:
        return self.target.fragments(
            machines.kind[rows], machines.cpu[rows], machines.gpus[rows], self._accepted
        )


def _left_there(way: _Way) -> int:
    """What will be left of the GPU that is taken."""
    device, after = way
    return after[device]


def _ways(left: list[int], part: int, gpus: int) -> list[_Way]:
    """What may be left afterwards: by GPU for a part of one (of GPUs that are alike the first)."""
    if gpus == 1 and part < MILLI:
        found: dict[int, int] = {}
        for device, here in enumerate(left):
            if here >= part:
                found.setdefault(here, device)
        return [
            (device, [*left[:device], here - part, *left[device + 1 :]])
            for here, device in found.items()
        ]
    after = list(left)
    for device, here in enumerate(left):
        if gpus and here >= part:
            after[device] -= part
            gpus -= 1
    return [(0, after)]


def _squeezed(descent: Floats) -> Ints:
    """100 times the sigmoid of GPUs that are no fragments any more, cut to whole numbers."""
    scores: Ints = (BEST / (1.0 + np.exp(-descent / MILLI))).astype(np.int64)
    return scores
