"""Weighted fair sharing down a tree of queues, with a memory that fades.

At every level the queue that has had the least for its weight is served first. What it has had is
an average over the past, where an old second counts half as much as one that is `half_life_s`
younger, and a little of what it has now, so that those who come together are served in turns. (With
`half_life_s=0` only what it has now counts.) A queue that was idle catches up, and in the long run
queues that always have work get GPU-time in proportion to their weights.

A queue with a quota is served before others while it is within it. Idle GPUs go to the next queue,
so any may have more than its share. It is taken back

* by a job within the quota of its queue, from queues beyond theirs;
* by a job within the *fair share* of its queue, from queues beyond theirs that have had more for
  their weight. The fair share is the quota, and by weight a part of what is promised to none and of
  what others do not use.

Within a queue jobs go by priority, then in the order of an inner policy (`inside`). How victims are
chosen: `tenancy.victims`; whose turn it is: `tenancy.decision`.

After the fair tree of Slurm (`preset=slurm`), the fair scheduler of Hadoop YARN (`preset=yarn`) and
the fair sharing of Kueue (`preset=kueue`). Departs from them: what is shared is GPUs only; users
have no shares of their own (make them queues); Slurm's other factors (age, size, quality of
service) are left to the inner policy and to priorities.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import log2
from operator import sub
from typing import Any, ClassVar, Literal

from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.view import View
from rota.policies.tenancy.policy import COMMON, Seconds, TenantParams, TenantPolicy
from rota.policies.tenancy.queues import Queues
from rota.policies.tenancy.tree import SLACK, Branch, Tenancy
from rota.policies.tenancy.victims import Claim

WEEK_S = 7 * 86400.0
PRESENT = 0.02  # what the present counts beside the past; much more would favour small weights
IDLERS = Claim(INF)  # opportunistic jobs only
SOON_S = 1.0  # no earlier wake because the past fades


class HierarchicalFairParams(TenantParams, frozen=True):
    """How queues share. What is not given is as in the preset."""

    preset: Literal["", "kueue", "slurm", "yarn"] = ""
    half_life_s: Seconds | None = None


class HierarchicalFair(TenantPolicy[HierarchicalFairParams]):
    """Serve the queue that has had the least for its weight; lend, and take back."""

    name = "hierarchical-fair"
    Parameters = HierarchicalFairParams
    divides = False
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "": {**COMMON, "half_life_s": 86400.0},
        "kueue": {"inside": "fifo-skip", "half_life_s": 0.0, "victims": "lowest-priority"},
        "slurm": {"inside": "fifo-skip", "half_life_s": WEEK_S, "reclaim": False, "within": False},
        "yarn": {"inside": "fifo", "half_life_s": 0.0, "within": False},
    }

    def __init__(self, params: HierarchicalFairParams | None = None) -> None:
        super().__init__(params)
        # 0: nobody can claim more by waiting
        self._fades_s = float(self.chosen["half_life_s"]) if self.chosen["reclaim"] else 0.0
        self._unequal: list[tuple[Branch, Branch]] = []
        self._unequal_at: tuple[Tenancy | None, int] = (None, 0)  # when these were found

    def prepare(self, queues: Queues, view: View) -> None:
        """Fair shares for those who are here now."""
        entitle(queues.tenancy, view.up_gpus)

    def claims(self, queues: Queues) -> list[float]:
        """Fair shares, and for all with the same parent their ranks by what they have had."""
        found: list[float] = []
        for above in queues.tenancy.upwards():
            there = [branch for branch in above.children if branch.jobs]
            had = [self.standing(branch) for branch in there]
            ranks = dict(zip(sorted(had), range(len(had)), strict=True))
            found += [branch.entitled for branch in there]
            found += map(ranks.__getitem__, had)
        return found

    def standing(self, branch: Branch) -> float:
        """What it has and had for its weight."""
        return (PRESENT * branch.used + branch.average) / branch.tenant.weight

    def turn(self, branch: Branch, job: Job) -> tuple[Any, ...]:  # noqa: ARG002 - of no importance
        """By what it has had."""
        return (self.standing(branch),)

    def owed(self, branch: Branch) -> float:
        """Its quota, or its fair share if that is more."""
        return max(branch.quota, branch.entitled)

    def claim(self, branch: Branch, other: Branch, gpus: float) -> Claim:
        """Quotas first; a fair share only from those who have had more, and not from quotas."""
        if branch.within(gpus):
            return Claim(other.quota)
        owed = self.owed(other)
        if other.firm > owed + SLACK and self.standing(branch) < self.standing(other):
            return Claim(owed, other.quota)
        return IDLERS

    def wake_s(self, queues: Queues, view: View) -> float:
        """When a queue below its fair share will have had less than one above its own."""
        half_life_s = self._fades_s
        if not (half_life_s and queues.waiting):
            return INF
        tenancy = queues.tenancy
        if self._unequal_at != (tenancy, tenancy.revision):
            self._unequal_at = (tenancy, tenancy.revision)
            self._unequal = list(unequal(tenancy))
        soonest_s = INF
        for one, other in self._unequal:
            soonest_s = min(soonest_s, crossing_s(one, other, half_life_s))
        return view.now_s + max(soonest_s, SOON_S)


def unequal(tenancy: Tenancy) -> Iterator[tuple[Branch, Branch]]:
    """Pairs: one below its fair share, one above its own from which it may claim some day."""
    for above in tenancy.upwards():
        below: list[Branch] = []
        over: list[Branch] = []
        for branch in above.children:
            firm, share = branch.firm, branch.entitled
            if firm + SLACK < share:
                below.append(branch)
            elif firm > share + SLACK and firm > branch.quota + SLACK:
                over.append(branch)
        yield from product(below, over)


def crossing_s(one: Branch, other: Branch, half_life_s: float) -> float:
    """In how long the first will have had less for its weight than the second; inf: never.

    If both go on as now, what they have had differs from what they have by an amount that halves
    with every half-life.
    """
    ahead = one.used / one.tenant.weight - other.used / other.tenant.weight
    past = one.average / one.tenant.weight - other.average / other.tenant.weight
    if ahead >= 0 or past + PRESENT * ahead <= 0:
        return INF  # never, or it has had less already
    left = -(1.0 + PRESENT) * ahead / (past - ahead)
    return -half_life_s * log2(left) if 0 < left < 1 else INF


def entitle(tenancy: Tenancy, up_gpus: float) -> None:
    """Set `entitled` of all branches.

    At every level each gets its quota or, if that is less, what it can use; the rest goes by weight
    to those that can use more. How much more than its share somebody could use makes no difference.
    """
    if tenancy.entitled_for != tenancy.settled or not all(map(_as_before, tenancy.stirred)):
        tenancy.entitled_for = tenancy.settled
        tenancy.revision += 1
        _divide(tenancy.root, up_gpus)
    tenancy.stirred.clear()


def _as_before(leaf: Branch) -> bool:
    """What it wants is the same as when the shares were made, or more than its share as then."""
    wanted = _wanted(leaf)
    if wanted == leaf.wanted:
        return True
    share = max(leaf.entitled, leaf.quota) + SLACK
    return share < wanted and share < leaf.wanted and len(leaf.path) == 1


def _divide(above: Branch, gpus: float) -> None:
    there: list[Branch] = []
    wanted: list[float] = []
    shares: list[float] = []
    for branch in above.children:
        if branch.jobs:
            most = branch.wanted = _wanted(branch)
            there.append(branch)
            wanted.append(most)
            shares.append(min(branch.quota, most))
        else:
            branch.entitled = branch.wanted = 0.0
    promised = sum(shares)
    if promised > gpus:
        shares = [share * gpus / promised for share in shares]
    else:
        weights = [branch.tenant.weight for branch in there]
        shares = pour(gpus - promised, weights, shares, wanted)
    for branch, share in zip(there, shares, strict=True):
        branch.entitled = share
        if branch.children:
            _divide(branch, share)


def _wanted(branch: Branch) -> float:
    """What guaranteed jobs of a branch have and ask for, as far as it may be had."""
    asked = sum(map(_wanted, branch.children)) if branch.children else branch.firm + branch.asked
    return min(branch.tenant.limit, asked)


def pour(
    amount: float, weights: Sequence[float], have: Sequence[float], most: Sequence[float]
) -> list[float]:
    """Divide an amount by weight on top of what each has; none gets more than the most."""
    found = list(have)
    order = [(lacks / weights[i], i) for i, lacks in enumerate(map(sub, most, have)) if lacks > 0]
    order.sort()
    total = sum(weights[i] for _, i in order)
    for _, i in order:
        part = min(amount * weights[i] / total if total else INF, most[i] - have[i])
        found[i] += part
        amount -= part
        total -= weights[i]
    return found
