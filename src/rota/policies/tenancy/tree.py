"""The tree of queues with its accounts: what each is promised, has, and had.

The whole cluster is the root. Every declared tenant is a branch; a tenant that nobody declared is
one below the root. Jobs are in leaves: those of a tenant that has children are in a leaf of its own
beside them.

A branch has three numbers of GPUs: `used` by all its jobs, `firm` by those that have a part in its
quota (guaranteed jobs), and `average`, what it had in the past: an old second counts half as much
as one that is `half_life_s` younger.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import fsum
from operator import itemgetter
from typing import Any, NamedTuple

from rota.core.events import INF
from rota.core.jobs import Job, Shape
from rota.core.reasons import Reason
from rota.core.sums import ordered_sum
from rota.core.tenants import Tenant, TenantTree

DIGITS = 6  # sums of fractions of GPUs are rounded, so that they do not depend on their order
_rank = itemgetter(0)
SLACK = 1e-6  # quotas that are divided are not whole


class Branch:
    """One queue of the tree, or the whole cluster."""

    __slots__ = (
        "asked", "average", "ceiling", "children", "departed", "entitled", "firm", "first", "heads",
        "jobs", "kept", "key", "line", "lowest", "most", "order", "owed", "parent", "path", "pick",
        "present", "priorities", "promised", "promises", "quota", "running", "stuck", "tenant",
        "upwards", "used", "vowed", "wanted",
    )  # fmt: skip

    def __init__(self, tenant: Tenant, parent: "Branch | None", order: tuple[Any, ...]) -> None:
        self.tenant = tenant
        self.parent = parent
        self.order = order  # among equals
        self.children: list[Branch] = []
        self.path: tuple[Branch, ...] = ()  # itself and all above, without the cluster
        self.upwards: tuple[Branch, ...] = (self,)  # with it
        if parent is not None:
            self.path = (self, *parent.path)
            self.upwards = (self, *parent.upwards)
            parent.children.append(self)
        self.jobs = 0
        self.present: list[Branch] | None = None  # of those below it; None: to be found out
        self.departed: list[Branch] = []  # of those below it, since shares were divided
        self.quota = 0.0
        self.owed = 0.0  # GPUs that it may insist on: its quota, if the policy gives it no more
        self.ceiling = INF
        self.most = INF  # the ceiling when nothing is down
        self.promised = 0.0  # to it or to those below it
        self.promises = False  # something to those below it
        self.vowed = 0.0  # its quota, if it was declared
        self.kept = 0.0  # the part of its quota that no other may use
        self.entitled = 0.0  # see `hierarchical_fair.entitle`
        self.wanted = 0.0  # by guaranteed jobs, when that was found out
        self.used = 0.0
        self.firm = 0.0
        self.average = 0.0
        self.asked = 0.0  # of a leaf: GPUs that guaranteed jobs wait for
        self.running: dict[int, Job] = {}
        self.priorities: dict[int, int] = {}  # of those: how many have which
        self.lowest: float = INF  # of these priorities
        self.line: TenantPath = TenantPath()
        # for `tenancy.decision`: the leaf whose turn it is, its job, and the rank among its like
        self.pick: Branch | None = None
        self.heads: list[Branch] = []  # of those below it: who has a job that may be its next
        self.first: Job | None = None
        self.key: tuple[Any, ...] = ()
        # of a leaf: who is its first and waits, of which kind, and why; until its accounts change
        self.stuck: tuple[Job, int, Tried] | None = None

    @property
    def name(self) -> str:
        """Of the tenant."""
        return self.tenant.name

    def populated(self) -> "list[Branch]":
        """Those below it that have jobs."""
        if self.present is None:
            self.present = [branch for branch in self.children if branch.jobs]
        return self.present

    def rivals(self) -> "list[Branch]":
        """Those with jobs, itself among them, below what is above it."""
        assert self.parent is not None  # noqa: S101 - it is not the whole cluster
        return self.parent.populated()

    def leaves(self) -> "Iterator[Branch]":
        """Itself if it is one, or those below it."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    def within(self, gpus: float) -> bool:
        """So many more for a guaranteed job are part of its quota."""
        return self.firm + gpus <= self.quota + SLACK

    def __repr__(self) -> str:
        return f"Branch({self.name}, used={self.used:g}, quota={self.quota:g})"


def _logged(job: Job) -> int:
    """The shape by which the log knows it."""
    return (job.shape.opened or job.shape).number


class Tried(NamedTuple):
    """Why the first job of a kind could not start, and for which nodes those behind it wait."""

    why: Reason
    held: int


class TenantPath:
    """The waiting jobs of a leaf in order, by kind: of equal requests only the first counts."""

    __slots__ = (
        "apart", "first", "kinds", "ranks", "reasons", "rests_on", "rows", "shared", "tried",
    )  # fmt: skip

    def __init__(self) -> None:
        self.rows: dict[int, list[tuple[Any, Job]]] = {}  # by kind: see `Queues.kind`
        self.kinds: dict[int, int] = {}
        self.ranks: dict[int, Any] = {}
        self.reasons: dict[int, Reason] = {}  # why jobs wait, by kind
        self.rests_on: Any = None  # what these reasons follow from, beside the kinds
        self.shared: dict[int, Reason] = {}  # told to all jobs with a request together, by shape
        self.apart: set[int] = set()  # shapes whose jobs were told one by one
        self.tried: dict[int, Tried] = {}  # in the last decision, in vain, by kind
        self.first: Job | None = None  # of all

    def __len__(self) -> int:
        return len(self.ranks)

    def add(self, job: Job, rank: Any, kind: int) -> None:
        """At its rank."""
        if self.first is None or rank < self.ranks[self.first.index]:
            self.first = job
        self.ranks[job.index] = rank
        self.kinds[job.index] = kind
        row = self.rows.get(kind)
        if row is None:
            self.rows[kind] = [(rank, job)]
            self.rests_on = None
        elif rank > row[-1][0]:
            row.append((rank, job))
        else:
            row.insert(bisect_left(row, rank, key=_rank), (rank, job))

    def tell(
        self, reasons: dict[int, Reason], news: dict[int, tuple[Job, Reason]]
    ) -> Iterator[tuple[Shape, Reason]]:
        """What jobs of a shape have to be told together; notes what they are told by themselves.

        They are told one by one only if they wait for different things: their classes have other
        rights, or a window bars some from nodes (the log knows those by the shape they came with).
        Those who were told so before are told again if the reason of their kind has changed: what
        exactly it is that they lack, or which window, they have been told since.
        """
        changed = {k for k in reasons if self.reasons.get(k, Reason.NONE) != reasons[k]}
        self.reasons = reasons
        alike: dict[int, tuple[Shape, Reason | None]] = {}  # None: they do not wait alike
        for kind, row in self.rows.items():
            reason: Reason | None = self.reasons[kind]
            shape = row[0][1].shape
            if shape.opened is not None:
                shape, reason = shape.opened, None
            if shape.number in alike and alike[shape.number][1] != reason:
                reason = None
            alike[shape.number] = (shape, reason)
        for number, (shape, reason) in alike.items():
            shared = Reason.NONE if reason is None else reason
            if self.shared.get(number) != shared:
                self.shared[number] = shared
                yield shape, shared
            now, before = reason is None, number in self.apart
            if now:
                self.apart.add(number)
            else:
                self.apart.discard(number)
            if not (now or before):
                continue
            for kind, row in self.rows.items():
                if _logged(row[0][1]) == number and (now != before or kind in changed):
                    news.update((job.index, (job, self.own_reason(job))) for _, job in row)

    def own_reason(self, job: Job) -> Reason:
        """What it is told by itself; none: it waits for what it shares with others."""
        return self.reasons[self.kinds[job.index]] if _logged(job) in self.apart else Reason.NONE

    def is_first(self, job: Job) -> bool:
        """Nobody of its kind is before it."""
        return self.rows[self.kinds[job.index]][0][1] is job

    def drop(self, job: Job) -> None:
        """It waits no more."""
        kind = self.kinds.pop(job.index)
        row = self.rows[kind]
        del row[bisect_left(row, self.ranks.pop(job.index), key=_rank)]
        if not row:
            del self.rows[kind]
            self.reasons.pop(kind, None)
            self.rests_on = None
        if job is self.first:
            self.first = min([row[0] for row in self.rows.values()])[1] if self.rows else None


class Tenancy:
    """The tree. `divide`: without any quota, all there is is divided by weight."""

    def __init__(
        self, tenants: TenantTree, *, divide: bool, borrow: bool, half_life_s: float = 0.0
    ) -> None:
        self.tenants = tenants
        self._divide = divide
        self._borrow = borrow
        self._half_life_s = half_life_s
        self.root = Branch(Tenant(""), None, ())
        self.branches: list[Branch] = []
        self._declared: dict[str, Branch] = {}
        self._leaves: dict[str, Branch] = {}
        self.lined: dict[str, Branch] = {}
        """Leaves in which jobs wait."""
        self._forks: dict[tuple[int, int], tuple[Branch, Branch]] = {}
        self._whole = True  # so far all have had whole GPUs: sums need no rounding
        self.revision = 0  # changes with what anybody has or is promised
        self.settled: tuple[float, int] = (-1.0, 0)
        """What all are promised follows from this: the GPUs that are up, and who is there."""
        self.entitled_for = self.settled  # when `Branch.entitled` was made
        self.stirred: dict[Branch, None] = {}  # since then jobs came to these leaves or left them
        self._census = (
            0  # changes when an undeclared tenant comes; if it has a part, also when it goes
        )
        self.keeps = any(tenant.lend < INF for tenant in tenants)
        positions = {tenant.name: number for number, tenant in enumerate(tenants)}
        for tenant in tenants:
            self._declare(tenant, positions)
        above = [branch for branch in self.branches if branch.children]
        self._above = [*sorted(above, key=lambda branch: -len(branch.path)), self.root]

    def _declare(self, tenant: Tenant, positions: dict[str, int]) -> Branch:
        made = self._declared.get(tenant.name)
        if made is None:
            above = self.root
            if tenant.parent:
                above = self._declare(self.tenants.get(tenant.parent), positions)
            made = Branch(tenant, above, (0, positions[tenant.name], ""))
            self._declared[tenant.name] = made
            self.branches.append(made)
        return made

    def leaf(self, name: str) -> Branch:
        """Where the jobs of a tenant are."""
        leaf = self._leaves.get(name)
        if leaf is None:
            declared = self._declared.get(name)
            if declared is not None and not declared.children:
                leaf = declared
            else:
                leaf = Branch(Tenant(name), declared or self.root, (1, 0, name))
                self.branches.append(leaf)
                self._census += 1
            self._leaves[name] = leaf
        return leaf

    def fork(self, one: Branch, other: Branch) -> tuple[Branch, Branch]:
        """The branches of two leaves below what they have in common."""
        found = self._forks.get((id(one), id(other)))
        if found is None:
            pairs = zip(reversed(one.path), reversed(other.path), strict=False)
            found = next((a, b) for a, b in pairs if a is not b)
            self._forks[id(one), id(other)] = found
        return found

    # --- who waits --------------------------------------------------------------------------------

    def line_up(self, leaf: Branch, job: Job, rank: Any, kind: int) -> None:
        """A job waits in a leaf."""
        line = leaf.line
        if not line.rows:
            self.lined[leaf.tenant.name] = leaf
            line.tried = {}
        line.add(job, rank, kind)

    def drop(self, leaf: Branch, job: Job) -> None:
        """It waits no more."""
        leaf.line.drop(job)
        if not leaf.line.rows:
            del self.lined[leaf.tenant.name]

    # --- accounts ---------------------------------------------------------------------------------

    def count(self, leaf: Branch, change: int) -> None:
        """A job comes to a leaf or leaves it."""
        self.stirred[leaf] = None
        for branch in leaf.path:
            before = branch.jobs
            branch.jobs = before + change
            if not (before and branch.jobs):
                above = branch.parent
                assert above is not None  # noqa: S101 - it is not the whole cluster
                above.present = None
                if before:
                    above.departed.append(branch)
        if self._divide and leaf.order[0] and leaf.jobs == (change > 0):
            self._census += 1

    def ask(self, leaf: Branch, gpus: float) -> None:
        """A guaranteed job waits for GPUs, or does not any more (a negative number)."""
        asked = leaf.asked + gpus
        leaf.asked = asked if asked.is_integer() else round(asked, DIGITS)

    def charge(self, leaf: Branch, gpus: float, *, firm: bool) -> None:
        """A job gets GPUs, or gives them back (a negative number)."""
        self.revision += 1
        leaf.stuck = None
        whole = self._whole = self._whole and gpus % 1 == 0
        for branch in leaf.upwards:
            branch.used += gpus
            if firm:
                branch.firm += gpus
            if not whole:
                branch.used = round(branch.used, DIGITS)
                branch.firm = round(branch.firm, DIGITS)

    def pass_time(self, seconds: float) -> None:
        """What everybody has now becomes a part of what it had."""
        if self._half_life_s > 0 and seconds > 0:
            left = 0.5 ** (seconds / self._half_life_s)
            for leaf in self._leaves.values():
                leaf.average = (used := leaf.used) + (leaf.average - used) * left
            if len(self._above) > 1:
                for branch in self._above[:-1]:  # of the whole cluster nobody asks
                    branch.average = fsum([child.average for child in branch.children])  # exactly

    # --- what everybody is promised ---------------------------------------------------------------

    def settle(self, up_gpus: float) -> bool:
        """Quotas and ceilings for a cluster of this size; False: they are as they were."""
        if self.settled == (up_gpus, self._census):
            return False
        self.settled = (up_gpus, self._census)
        self.revision += 1
        self.root.quota = up_gpus
        self._promise(self.root)
        for branch in self.branches:
            tenant = branch.tenant
            borrow = tenant.borrow if self._borrow else 0.0
            branch.owed = branch.quota
            branch.ceiling = min(tenant.limit, branch.quota + borrow)
            branch.stuck = None
            above = branch.parent
            declared = above is not None and above.promises
            most = branch.promised if declared or not self._divide else INF
            branch.most = min(tenant.limit, most + borrow)
            branch.vowed = branch.quota if declared else 0.0
            branch.kept = max(branch.quota - tenant.lend, 0.0) if tenant.lend < INF else 0.0
        return True

    def _promise(self, above: Branch) -> None:
        """Divide the quota of a branch among those below it."""
        for branch in above.children:
            branch.promised = _promised(branch)
        total = ordered_sum(branch.promised for branch in above.children)
        above.promises = total > 0
        if above.promises:
            part = min(1.0, above.quota / total)  # more is promised than there is: all get less
            for branch in above.children:
                branch.quota = branch.promised * part
        else:
            there = [b for b in above.children if b.jobs or not b.order[0]] if self._divide else []
            weights = ordered_sum(branch.tenant.weight for branch in there)
            for branch in above.children:
                branch.quota = 0.0
            for branch in there:
                part = above.quota * branch.tenant.weight / weights
                branch.quota = min(part, branch.tenant.limit)
        for branch in above.children:
            if branch.children:
                self._promise(branch)

    def kept_from(self, leaf: Branch) -> float:
        """GPUs that are idle now and that others keep from this leaf."""
        return self._elsewhere(leaf, reserved) if self.keeps else 0.0

    def promised_to_others(self, leaf: Branch) -> float:
        """GPUs that guaranteed jobs of others do not use, but were promised by a declared quota."""
        return self._elsewhere(leaf, _unused)

    def _elsewhere(self, leaf: Branch, amount: Callable[[Branch], float]) -> float:
        """The sum of an amount over all branches that do not lead to a leaf."""
        inside = {id(branch) for branch in leaf.path}
        return ordered_sum(
            amount(child)
            for above in (*leaf.path, self.root)
            for child in above.children
            if id(child) not in inside
        )

    def leaves(self) -> Iterable[Branch]:
        """Those that have had jobs."""
        return self._leaves.values()

    def upwards(self) -> Sequence[Branch]:
        """Those with others below them, the lower ones first, the whole cluster last."""
        return self._above


def _promised(branch: Branch) -> float:
    """What was declared for it or, if that is more, for those below it."""
    if not branch.children:
        return max(branch.tenant.quota, 0.0)
    return max(branch.tenant.quota, ordered_sum(map(_promised, branch.children)))


def _unused(branch: Branch) -> float:
    """The part of its declared quota that its guaranteed jobs do not use."""
    return max(branch.vowed - branch.firm, ordered_sum(map(_unused, branch.children)), 0.0)


def reserved(branch: Branch) -> float:
    """The idle part of what it keeps for itself."""
    return max(branch.kept - branch.used, ordered_sum(map(reserved, branch.children)), 0.0)
