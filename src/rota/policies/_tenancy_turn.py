"""One decision on all queues: whose turn it is, what starts, and who has to make room.

From the whole cluster down, the branch with the smallest rank is taken at every level: first those
that stay within their quota with their next job, then as the policy says (`Rules.turn`). The leaf
that is found in this way tries its first job. A job starts

* on free GPUs, if no branch above it exceeds its limit (or what it may borrow), and if it does not
  use what others keep for themselves (`lend`);
* else in the place of others (see `_tenancy_victims`).

If it cannot start, the next request of the leaf is tried, or none if the inner policy is strict. A
job that was displaced is tried again at its place in the queue, but reclaims nothing.

A job that is not preemptible borrows nothing: it could not be made to give it back.

Old jobs (see `Books`) come before everybody else, in the order of their submission, whatever their
queue has, as long as no limit is exceeded. While the first of them does not fit, nobody else
starts, unless it could not run even if nobody else did.

While a job waits only because those who have to make room for it are still protected, nobody
borrows the GPUs that it needs.
"""

from collections.abc import Sequence
from typing import Any

from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.reasons import Reason
from rota.core.view import Draft, View
from rota.policies._tenancy import SLACK, Branch
from rota.policies._tenancy_books import Books, who
from rota.policies._tenancy_victims import Found, Options, Rules, Victims

QUOTA, NONE = Reason.QUOTA, Reason.NONE


class Turn:
    """Made for one decision."""

    def __init__(
        self, view: View, plan: Draft, books: Books, rules: Rules, options: Options
    ) -> None:
        self.plan = plan
        self.books = books
        self._running = who(view)[1].values()
        self.rules = rules
        self.now_s = view.now_s
        self.up_gpus = view.up_gpus
        self.tenancy = books.tenancy
        self.victims = Victims(view, books, rules, options)
        self.wake_s = INF
        self.changed = False  # somebody starts or stops
        self._no_room: set[int] = set()  # requests for which there is no free place
        self._tried: dict[int, dict[int, Reason]] = {}  # leaf -> request -> why not
        self._reserved = 0.0  # GPUs for those who wait until others may be stopped
        self._lined: dict[int, tuple[Branch, Job]] = {}  # displaced, and waiting again

    def serve(self) -> None:
        """Start what can start; afterwards all running jobs that stay are named."""
        self._refuse_too_large()
        if not self.books.old or self._serve_old():
            self._nominate(self.tenancy.root)
            root = self.tenancy.root
            while root.pick is not None:
                leaf = root.pick
                job = leaf.first
                assert job is not None  # noqa: S101 - a leaf that is picked has one
                if not self._start(leaf, job, old=False):
                    self._refresh(leaf)
        for leaf, job in self._lined.values():
            leaf.line.drop(job)
        self._explain()
        gone = self.victims.gone
        self.plan.fill([job for job in self._running if job.index not in gone])

    def _refuse_too_large(self) -> None:
        """A new job that alone exceeds a limit could never start."""
        for job in self.books.fresh:
            leaf = self.books.waiting[job.index][0]
            small = next((b for b in leaf.path if job.gpus > b.tenant.limit + SLACK), None)
            if small is not None and not job.started:
                self.plan.refuse(
                    job,
                    f"asks for {job.gpus:g} GPUs, but queue {small.name!r} may use "
                    f"{small.tenant.limit:g} at most: ask for less or raise its limit",
                )
                self.books.leaves(job)

    def _serve_old(self) -> bool:
        """Old jobs in the order of their submission; False: the others have to wait."""
        for job in sorted(self.books.old.values(), key=lambda job: (job.submit_s, job.index)):
            leaf = self.books.waiting[job.index][0]
            if self._start(leaf, job, old=True):
                continue
            limited = any(b.used + job.gpus > b.ceiling + SLACK for b in leaf.path)
            if not limited and self.plan.fits(job):
                return False
        return True

    # --- whose turn it is -------------------------------------------------------------------------

    def _nominate(self, branch: Branch) -> None:
        """Find the next job of every branch, from the leaves up."""
        if branch.children:
            for child in branch.children:
                self._nominate(child)
            self._choose(branch)
        else:
            branch.first = self._first(branch) if branch.line else None
            branch.pick = branch if branch.first is not None else None
        if branch.pick is not None and branch.parent is not None:
            branch.key = self._key(branch)

    def _choose(self, branch: Branch) -> None:
        best: Branch | None = None
        for child in branch.children:
            if child.pick is not None and (best is None or child.key < best.key):
                best = child
        branch.pick = None if best is None else best.pick

    def _key(self, branch: Branch) -> tuple[Any, ...]:
        job = branch.pick.first if branch.pick is not None else None
        assert job is not None  # noqa: S101 - only asked of branches with a next job
        beyond = not (self.books.class_of(job).guaranteed and branch.within(job.gpus))
        return (beyond, *self.rules.turn(branch, job), branch.order)

    def _first(self, leaf: Branch) -> Job | None:
        """The next job of a leaf, of those requests that have not been tried in vain."""
        tried = self._tried.get(id(leaf))
        rows = leaf.line.by_shape
        if tried:
            if self.books.inside.strict:
                return None
            heads = [row[0] for number, row in rows.items() if number not in tried]
        else:
            heads = [row[0] for row in rows.values()]
        return min(heads)[1] if heads else None

    def _refresh(self, leaf: Branch) -> None:
        """Something about a leaf has changed: so may the turn at every branch above it."""
        leaf.first = self._first(leaf)
        leaf.pick = leaf if leaf.first is not None else None
        for branch in leaf.path:
            if branch.pick is not None:
                branch.key = self._key(branch)
            if branch.parent is not None:
                self._choose(branch.parent)

    # --- starting ---------------------------------------------------------------------------------

    def _start(self, leaf: Branch, job: Job, *, old: bool) -> bool:
        """Start a job, if need be in the place of others; else note why not."""
        gpus, number = job.gpus, job.shape.number
        tight = [b for b in leaf.path if b.used + gpus > b.ceiling + SLACK]
        owed = self._is_owed(leaf, job)
        free = not tight and (owed or old or self._may_borrow(leaf, job))
        if free and number not in self._no_room:
            if self.plan.displace(job, ()) is not None:
                self._started(leaf, job, ())
                return True
            self._no_room.add(number)
        found = self.victims.of(leaf, job)
        chosen = self._push_in(leaf, job, found, tight, free=free)
        if chosen is not None:
            self._started(leaf, job, chosen)
            return True
        if found.protected_s < INF:
            self.wake_s = min(self.wake_s, found.protected_s)
            if owed and not old:
                self._reserved += gpus
        self._tried.setdefault(id(leaf), {})[number] = self._why_not(
            leaf, job, owed=owed, free=free
        )
        return False

    def _is_owed(self, leaf: Branch, job: Job) -> bool:
        """It stays within what every branch above it may insist on."""
        owed = self.rules.owed
        return self.books.class_of(job).guaranteed and all(
            branch.firm + job.gpus <= owed(branch) + SLACK for branch in leaf.path
        )

    def _may_borrow(self, leaf: Branch, job: Job) -> bool:
        """Idle GPUs are left for those who wait for them or keep them."""
        if not self.books.class_of(job).preemptible:
            return False
        if not (self._reserved or self.tenancy.keeps):
            return True
        idle = self.up_gpus - self.tenancy.root.used - job.gpus
        return idle >= max(self._reserved, self.tenancy.kept_from(leaf)) - SLACK

    def _push_in(
        self, leaf: Branch, job: Job, found: Found, tight: Sequence[Branch], *, free: bool
    ) -> Sequence[Job] | None:
        """Take the place of victims; None if that does not help."""
        victims, must = found.jobs, 0
        if not victims:
            return None
        need, below = 0.0, leaf
        if tight:  # room in the cluster is not enough: it must be made below its limit
            need, below = max(b.used + job.gpus - b.ceiling for b in tight), tight[0]
        elif not free and not found.others:  # it may not use more than its queue gives up
            need = job.gpus
        if need:
            victims, must = self._first_of(victims, below, need)
            if not must:
                return None
        chosen = self.plan.displace(job, victims, must=must)
        if chosen is None and not must and len(victims) > 1:  # whole nodes, perhaps
            victims = sorted(victims, key=lambda v: -v.allocation.gpus)
            chosen = self.plan.displace(job, victims)
        return chosen

    def _first_of(
        self, victims: Sequence[Job], branch: Branch, need: float
    ) -> tuple[list[Job], int]:
        """The victims with enough of one branch in front, and how many these are (0: too few)."""
        front: list[Job] = []
        for victim in victims:
            if need <= SLACK:
                break
            leaf, gpus, _ = self.books.running[victim.index]
            if branch in leaf.path and gpus:
                front.append(victim)
                need -= gpus
        if need > SLACK:
            return [], 0
        chosen = {victim.index for victim in front}
        return [*front, *(v for v in victims if v.index not in chosen)], len(front)

    def _started(self, leaf: Branch, job: Job, victims: Sequence[Job]) -> None:
        """Keep the books, and find out whose turn it is now."""
        books = self.books
        self.changed = True
        for victim in victims:
            self.plan.remark(victim, self.victims.why(leaf, job, victim))
        for victim in victims:
            own = books.running[victim.index][0] is leaf
            self.plan.explain(victim, Reason.ORDER if own else QUOTA)
            other = books.gives(victim.index)
            other.line.add(victim, books.rank(victim, self.now_s))
            self._lined[victim.index] = (other, victim)
            self.victims.gone[victim.index] = victim
        if job.index in self._lined:
            del self._lined[job.index]
            leaf.line.drop(job)
        else:
            books.leaves(job)
        books.gets(job, job.gpus)
        if victims:  # there may be more room than before, for anybody
            self._no_room.clear()
            self._tried.clear()
            self._nominate(self.tenancy.root)
        else:
            self._refresh(leaf)

    # --- why not ----------------------------------------------------------------------------------

    def _why_not(self, leaf: Branch, job: Job, *, owed: bool, free: bool) -> Reason:
        """`quota` if its queue has what it may have; else the request tells (none)."""
        if owed:
            return NONE
        if not free:
            return QUOTA
        if job.gpus <= self.up_gpus - self.tenancy.root.used + SLACK:
            return NONE  # enough is free, but not where it could be used
        if not self.books.class_of(job).guaranteed:
            return NONE
        real = self.up_gpus - SLACK  # a share of everything is none
        return QUOTA if any(self.rules.owed(b) < real for b in leaf.path) else NONE

    def _explain(self) -> None:
        """Tell the jobs of a request what its first job was told, if that is new."""
        for leaf in self.tenancy.leaves():
            line = leaf.line
            if not line:
                continue
            tried = self._tried.get(id(leaf), {})
            behind = next(iter(tried.values()), NONE) if self.books.inside.strict else NONE
            for number, row in line.by_shape.items():
                reason = tried.get(number, behind)
                if line.reasons.get(number, NONE) != reason:
                    line.reasons[number] = reason
                    for _, job in row:
                        if job.reason != reason:
                            self.plan.explain(job, reason)
        for job in self.books.fresh:
            if job.index in self.books.waiting:
                leaf = self.books.waiting[job.index][0]
                reason = Reason(leaf.line.reasons.get(job.shape.number, NONE))
                if job.reason != reason:
                    self.plan.explain(job, reason)
