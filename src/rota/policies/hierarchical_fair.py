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

from collections.abc import Mapping, Sequence
from itertools import product
from math import log2
from operator import sub
from typing import Any, ClassVar, Literal, TypeAlias

from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.sums import ordered_sum
from rota.core.view import View
from rota.policies.tenancy.policy import COMMON, Seconds, TenantParams, TenantPolicy
from rota.policies.tenancy.queues import Queues
from rota.policies.tenancy.tree import SLACK, Branch, Tenancy
from rota.policies.tenancy.victims import Claim

WEEK_S = 7 * 86400.0
PRESENT = 0.02  # what the present counts beside the past; much more would favour small weights
IDLERS = Claim(INF)  # opportunistic jobs only
Pair: TypeAlias = tuple[Branch, Branch, float]
"""Two below the same branch, and how much more the first has for its weight."""
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
        self._unequal: list[Pair] = []
        self._unequal_at: tuple[Tenancy | None, int] = (None, 0)  # when these were found

    def prepare(self, queues: Queues, view: View) -> None:
        """Fair shares for those who are here now."""
        entitle(queues.tenancy, view.up_gpus)

    def claims(self, queues: Queues) -> list[float]:
        """Fair shares, and for all with the same parent their ranks by what they have had."""
        found: list[float] = []
        for above in queues.tenancy.upwards():
            there = above.populated()
            had = [(PRESENT * b.used + b.average) / b.tenant.weight for b in there]  # `standing`
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

    def claim(self, branch: Branch, other: Branch, gpus: float) -> Claim:
        """Quotas first; a fair share only from those who have had more, and not from quotas."""
        if branch.within(gpus):
            return Claim(other.quota)
        owed = other.owed
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
            self._unequal = unequal(tenancy)
        soonest_s = INF
        for one, other, ahead in self._unequal:
            past = one.average / one.tenant.weight - other.average / other.tenant.weight
            soonest_s = min(soonest_s, crossing_s(ahead, past, half_life_s))
        return view.now_s + max(soonest_s, SOON_S)


def unequal(tenancy: Tenancy) -> list[Pair]:
    """Who is below its fair share, who above its own, and may be claimed from by the first one day.

    That is, the first has less for its weight (by this), and so will have had less.
    """
    found: list[Pair] = []
    for above in tenancy.upwards():
        there = above.populated()
        over = [
            branch
            for branch in there
            if branch.firm > branch.entitled + SLACK and branch.firm > branch.quota + SLACK
        ]
        if not over:
            continue
        below = [branch for branch in there if branch.firm + SLACK < branch.entitled]
        for one, other in product(below, over):
            ahead = one.used / one.tenant.weight - other.used / other.tenant.weight
            if ahead < 0:
                found.append((one, other, ahead))
    return found


def crossing_s(ahead: float, past: float, half_life_s: float) -> float:
    """In how long one will have had less for its weight than another; inf: never.

    If both go on as now, what they have had differs (by `past`, now) from what they have (by
    `ahead`) by an amount that halves with every half-life.
    """
    if ahead >= 0 or past + PRESENT * ahead <= 0:
        return INF  # never, or it has had less already
    left = -(1.0 + PRESENT) * ahead / (past - ahead)
    return -half_life_s * log2(left) if 0 < left < 1 else INF


def entitle(tenancy: Tenancy, up_gpus: float) -> None:
    """Set `entitled` of all branches, and what they are owed: their quota, or that if it is more.

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
    share = leaf.owed + SLACK
    return share < wanted and share < leaf.wanted and len(leaf.path) == 1


def _divide(above: Branch, gpus: float) -> None:
    for branch in above.departed:
        if not branch.jobs:
            branch.entitled = branch.wanted = 0.0
            branch.owed = branch.quota
    above.departed.clear()
    there = above.populated()
    wanted = [_wanted(branch) for branch in there]
    shares = [min(most, branch.quota) for branch, most in zip(there, wanted, strict=True)]
    promised = ordered_sum(shares)
    if promised > gpus:
        shares = [share * gpus / promised for share in shares]
    else:
        weights = [branch.tenant.weight for branch in there]
        shares = pour(gpus - promised, weights, shares, wanted)
    for branch, share, most in zip(there, shares, wanted, strict=True):
        branch.wanted = most
        branch.entitled = share
        branch.owed = max(branch.quota, share)
        if branch.children:
            _divide(branch, share)


def _wanted(branch: Branch) -> float:
    """What guaranteed jobs of a branch have and ask for, as far as it may be had."""
    asked = (
        ordered_sum(map(_wanted, branch.children))
        if branch.children
        else branch.firm + branch.asked
    )
    limit = branch.tenant.limit
    return min(limit, asked)


def pour(
    amount: float, weights: Sequence[float], have: Sequence[float], most: Sequence[float]
) -> list[float]:
    """Divide an amount by weight on top of what each has; none gets more than the most."""
    found = list(have)
    order = [(lacks / weights[i], i) for i, lacks in enumerate(map(sub, most, have)) if lacks > 0]
    order.sort()
    total = ordered_sum([weights[i] for _, i in order])
    for _, i in order:
        part = min(amount * weights[i] / total if total else INF, most[i] - have[i])
        found[i] += part
        amount -= part
        total -= weights[i]
    return found
