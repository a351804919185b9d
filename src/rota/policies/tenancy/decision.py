"""One decision on all queues: whose turn it is, what starts, and who has to make room.

From the whole cluster down, the branch with the smallest rank is taken at every level: first those
that stay within their quota with their next job, then as the policy says (`Rules.turn`). The leaf
that is found in this way tries its first job. A job starts

* on free GPUs, if no branch above it exceeds its limit (or what it may borrow), and if it does not
  use what others keep for themselves (`lend`);
* else in the place of others (see `tenancy.victims`).

If it cannot start, the next kind of jobs of the leaf is tried; if the inner policy is strict, the
next that competes for no node with one that waits before it, or none if the quota was short. A job
that was displaced is tried again at its place in the queue, with all its rights.

Nobody borrows what another is owed: if a job that is owed its GPUs cannot start because of others
that were let have them before it in this very decision, these starts are taken back (nobody has
been told of them yet), and they are tried again behind it.

A job that is not preemptible borrows only what nobody was promised: it could not be made to give it
back.

Old jobs (see `Queues`) come before everybody else, in the order of their submission, whatever their
queue has, as long as no limit is exceeded. While one of them does not fit, nobody else starts that
competes for its nodes, unless it could not run even if nobody else did.

While a job waits only because those who have to make room for it are still protected, nobody
borrows the GPUs that it needs.

What could not start cannot start at the next decision either if nothing has happened meanwhile but
that others have come to wait (`calm`): then only the queues are looked at to which they came.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rota.core.allocation import NOTHING
from rota.core.events import INF
from rota.core.jobs import Job, Shape
from rota.core.plan import DisplacingPlan, EligibilityPlan, ReservingPlan
from rota.core.reasons import Reason
from rota.core.sums import ordered_sum
from rota.core.view import View
from rota.policies.tenancy.queues import Queues
from rota.policies.tenancy.tree import SLACK, Branch, Tried
from rota.policies.tenancy.victims import Options, Rules, VictimChoice, Victims

QUOTA, NONE = Reason.QUOTA, Reason.NONE


class TenancyPlan(ReservingPlan, EligibilityPlan, DisplacingPlan):
    """Partitions, and jobs that make room for others."""


class Need(NamedTuple):
    """GPUs that must be given up below a branch; `firm`: by guaranteed jobs."""

    branch: Branch
    gpus: float
    firm: bool = False


class QueueDecision:
    """One decision; the next one goes on from it if all is `calm`."""

    def __init__(
        self, view: View, plan: TenancyPlan, queues: Queues, rules: Rules, options: Options
    ) -> None:
        self.plan = plan
        self.queues = queues
        self._view = view
        self._classes = queues.classes
        self.rules = rules
        self.now_s = view.now_s
        self.up_gpus = view.up_gpus
        self.tenancy = queues.tenancy
        self.victims = Victims(view, queues, rules, options)
        self._reclaims = options.reclaim
        self.wake_s = INF
        """When those are no longer protected who were in somebody's way."""
        self.moved: dict[int, Job] = {}  # were started or displaced, if only for a moment
        # what a job needs beside its own queue's share is idle GPUs, and nothing else
        bound = self.tenancy.keeps or queues.old or queues.protects or options.min_runtime_s
        self._apart = not bound
        # GPUs that no job should have may be in use: what is really free the plan knows
        self._inexact = view.up_gpus != view.topology.gpus or view.sharing
        self._no_room: set[int] = set()  # requests for which there is no free place
        self._aged = 0  # nodes of old jobs that wait
        self._reserved: dict[int, float] = {}  # for those who wait until others may be stopped
        self._lined: dict[int, tuple[Branch, Job]] = {}  # displaced, and waiting again
        self._claimed: set[int] = set()  # for whom starts of this decision were taken back
        self._whys: dict[int, str] = {}  # of the jobs that were displaced

    @property
    def changes(self) -> bool:
        """Somebody starts or stops.

        None does if all starts were taken back and all that were displaced have their places again.
        """
        holding = self.plan.holding
        return any(
            holding(job) != (job.allocation if job.running else NOTHING)
            for job in self.moved.values()
        )

    def serve(self) -> None:
        """Start what can start, and say why the others wait."""
        for leaf in self.tenancy.lined.values():
            leaf.line.tried = {}
        if not self.queues.old or self._serve_old():
            self._nominate()
            self._take_turns()
        self._forget_lined()
        self._explain(self.tenancy.lined.values())

    def go_on(self, view: View, plan: TenancyPlan) -> bool:
        """A calm decision after one in which nobody started; False: somebody might, now.

        Of those who came since then nobody is the next of a queue, or it cannot start.
        """
        if self._reserved:
            return False
        self.plan, self._view = plan, view
        self.now_s = self.victims.now_s = view.now_s
        entered: dict[int, Branch] = {}
        for job in self.queues.fresh:
            leaf = self.queues.waiting[job.index][0]
            entered[id(leaf)] = leaf
            if not self._is_behind(leaf, job):
                return False
        for leaf in entered.values():
            while (first := self._first(leaf)) is not None:
                if not self._is_hopeless(leaf, first):
                    return False
        self._explain(entered.values())
        return True

    def _is_behind(self, leaf: Branch, job: Job) -> bool:
        """It came behind those that were tried in vain."""
        line = leaf.line
        if line.is_first(job):
            tried = line.tried
            if line.kinds[job.index] in tried:
                return False
            if self.queues.inside.strict:
                rank = line.ranks[job.index]
                return all(line.rows[kind][0][0] < rank for kind in tried if kind in line.rows)
        return True

    def _is_hopeless(self, leaf: Branch, job: Job) -> bool:
        """There is no room for it, and nobody would make any; then it is noted why it waits."""
        if self.plan.fits(job):
            return False
        found = self.victims.of(leaf, job)
        if found.jobs:
            return False
        owed = self._is_owed(leaf, job)
        free = not self._needs(leaf, job, old=False) and (owed or self._may_borrow(leaf, job))
        self._waits(leaf, job, found, owed=owed, free=free, old=False)
        return True

    def _take_turns(self) -> None:
        root = self.tenancy.root
        while root.pick is not None:
            leaf = root.pick
            job = leaf.first
            assert job is not None  # noqa: S101 - a leaf that is picked has one
            if not self._start(leaf, job, old=False):
                self._refresh(leaf)

    def _forget_lined(self) -> None:
        """Who has lost its place is heard of when it waits."""
        for leaf, job in self._lined.values():
            self.tenancy.drop(leaf, job)

    def _serve_old(self) -> bool:
        """Old jobs in the order of their submission; False: all others have to wait."""
        for job in sorted(self.queues.old.values(), key=lambda job: (job.submit_s, job.index)):
            nodes = self.plan.eligible(job)
            if nodes & self._aged:
                self._aged |= nodes
                continue
            leaf = self.queues.waiting[job.index][0]
            if self._start(leaf, job, old=True):
                continue
            limited = any(b.used + job.gpus > b.ceiling + SLACK for b in leaf.path)
            if not limited and self._could_run(job):
                self._aged |= nodes
                if self._aged == self.plan.nodes:
                    return False
        return True

    def _could_run(self, job: Job) -> bool:
        """It would fit if nobody ran but those that start now."""
        gone = self.victims.gone
        others = [(self.now_s, other) for other in self._view.running if other.index not in gone]
        return self.plan.earliest(job, others) < INF

    # --- whose turn it is -------------------------------------------------------------------------

    def _nominate(self) -> None:
        """Find the next job of every branch, from the leaves up."""
        above = self.tenancy.upwards()
        for branch in above:
            branch.heads = []
        idle = self.up_gpus - self.tenancy.root.used + SLACK
        for leaf in self.tenancy.lined.values():
            leaf.first = None if leaf.stuck and self._is_stuck(leaf, idle) else self._next(leaf)
            if leaf.first is not None:
                leaf.pick = leaf
                self._stand(leaf)
        for branch in above:
            self._choose(branch)
            if branch.pick is not None and branch.parent is not None:
                self._stand(branch)

    def _stand(self, branch: Branch) -> None:
        """It is one of those from which the branch above it chooses."""
        assert branch.parent is not None  # noqa: S101 - it is not the whole cluster
        branch.key = self._key(branch)
        branch.parent.heads.append(branch)

    def _choose(self, branch: Branch) -> None:
        best: Branch | None = None
        for child in branch.heads:
            if child.pick is not None and (best is None or child.key < best.key):
                best = child
        branch.pick = None if best is None else best.pick

    def _key(self, branch: Branch) -> tuple[Any, ...]:
        job = branch.pick.first if branch.pick is not None else None
        assert job is not None  # noqa: S101 - only asked of branches with a next job
        firm = self._classes[job.spec.priority].guaranteed
        beyond = not firm or branch.firm + job.gpus > branch.quota + SLACK
        return (beyond, *self.rules.turn(branch, job), branch.order)

    def _next(self, leaf: Branch) -> Job | None:
        """The next job of a leaf; none if all have to wait when their turn comes.

        (If only the first ones have to, they still take their turns: theirs come before those of
        the jobs behind them.)
        """
        line = leaf.line
        first = self._first(leaf) if line.tried else line.first
        if first is None or not self._must_wait(leaf, first):
            return first
        job: Job | None
        waits = [line.kinds[first.index]]
        while (job := self._first(leaf)) is not None and self._must_wait(leaf, job):
            waits.append(line.kinds[job.index])
        if job is None:
            if self.queues.inside.strict and len(waits) == 1:
                self._get_stuck(leaf, waits[0])
            return None
        for kind in waits:
            del line.tried[kind]
        return first

    def _get_stuck(self, leaf: Branch, kind: int) -> None:
        """Nobody starts before its first job does, which waits."""
        tried = leaf.line.tried[kind]
        if tried.held == self.plan.nodes:
            leaf.stuck = (leaf.line.rows[kind][0][1], kind, tried)

    def _is_stuck(self, leaf: Branch, idle: float) -> bool:
        """Strict: its first job had to wait and nothing has changed for it (`_must_wait`)."""
        stuck = leaf.stuck
        if stuck is None or not self._apart or self._inexact:
            return False
        job, kind, tried = stuck
        gpus, owed, line = job.gpus, leaf.owed, leaf.line
        if (
            job is not line.first
            or gpus <= idle
            or leaf.firm + gpus <= owed + SLACK
            or (owed < self.up_gpus - SLACK) != (tried.why == QUOTA)
        ):
            return False
        line.tried = {kind: tried}
        return True

    def _must_wait(self, leaf: Branch, job: Job) -> bool:
        """It cannot start whenever its turn comes, and why not is the same then.

        Too few GPUs are idle, its queue is owed nothing and nobody makes room, and nothing of that
        depends on what others start with before it.
        """
        gpus = job.gpus
        if not self._apart or len(leaf.path) > 1:
            return False
        if gpus <= self.up_gpus - self.tenancy.root.used + SLACK:
            return False
        known = self._classes[job.spec.priority]
        if leaf.firm + gpus <= leaf.owed + SLACK and (known.guaranteed or self._reclaims):
            return False
        if self._inexact and self.plan.fits(job):
            return False
        if not known.preemptible or not self.victims.none_for(leaf, job):
            return False
        self._fails(leaf, job, owed=False, free=leaf.used + gpus <= leaf.ceiling + SLACK)
        return True

    def _first(self, leaf: Branch) -> Job | None:
        """The next job of a leaf, of those kinds that have not been tried in vain."""
        tried, rows = leaf.line.tried, leaf.line.rows
        if not tried:
            return leaf.line.first
        if self.queues.inside.strict:
            return self._first_beside(leaf, tried)
        heads = [row[0] for kind, row in rows.items() if kind not in tried]
        return min(heads)[1] if heads else None

    def _first_beside(self, leaf: Branch, tried: Mapping[int, Tried]) -> Job | None:
        """Strict: the next job that competes with none that waits before it."""
        held = 0
        for of_kind in tried.values():
            held |= of_kind.held
        if held == self.plan.nodes:
            return None
        rows = leaf.line.rows
        heads = [(rows[kind][0], kind) for kind in rows if kind not in tried]
        for (_, job), _ in sorted(heads, key=lambda head: head[0]):
            nodes = self.plan.eligible(job)
            if not nodes & held:
                return job
            held |= nodes
        return None

    def _refresh(self, leaf: Branch) -> None:
        """Something about a leaf has changed: so may the turn at every branch above it."""
        leaf.first = self._next(leaf)
        leaf.pick = leaf if leaf.first is not None else None
        for branch in leaf.path:
            if branch.pick is not None:
                branch.key = self._key(branch)
            if branch.parent is not None:
                self._choose(branch.parent)

    # --- starting ---------------------------------------------------------------------------------

    def _start(self, leaf: Branch, job: Job, *, old: bool) -> bool:
        """Start a job, if need be in the place of others; else note why not."""
        number = job.shape.number
        if self._aged and not old and self._aged & self.plan.eligible(job):
            kind = leaf.line.kinds[job.index]
            leaf.line.tried[kind] = Tried(NONE, self.plan.eligible(job))
            return False
        owed = self._is_owed(leaf, job)
        needs = self._needs(leaf, job, old=old)
        free = not needs and (owed or old or self._may_borrow(leaf, job))
        if free and number not in self._no_room:
            if self.plan.displace(job, ()) is not None:
                self._started(leaf, job, (), old=old)
                return True
            self._no_room.add(number)
        found = self.victims.of(leaf, job)
        chosen = self._push_in(leaf, job, found, needs, free=free or owed)
        if chosen is not None:
            self._started(leaf, job, chosen, old=old)
            return True
        if owed and job.index not in self._claimed and self._take_back(leaf, job, found):
            return self._start(leaf, job, old=old)
        self._waits(leaf, job, found, owed=owed, free=free, old=old)
        return False

    def _waits(
        self, leaf: Branch, job: Job, found: VictimChoice, *, owed: bool, free: bool, old: bool
    ) -> None:
        """It cannot start: those who have to make room for it may be protected still."""
        if found.protected_s < INF:
            self.wake_s = min(self.wake_s, found.protected_s)
            if owed and not old:
                self._reserved[job.index] = job.gpus
        self._fails(leaf, job, owed=owed, free=free)

    def _fails(self, leaf: Branch, job: Job, *, owed: bool, free: bool) -> None:
        """Note why a job does not start, and for which nodes those behind it wait."""
        why = self._why_not(leaf, job, owed=owed, free=free)
        held = self.plan.eligible(job) if free else self.plan.nodes
        leaf.line.tried[leaf.line.kinds[job.index]] = Tried(why, held)

    def _is_owed(self, leaf: Branch, job: Job) -> bool:
        """It stays within what every branch above it may insist on."""
        known = self._classes[job.spec.priority]
        if not known.guaranteed:
            return False
        gpus = job.gpus
        for branch in leaf.path:
            # of what it is owed today others may be owed a part tomorrow
            most = branch.owed if known.preemptible else branch.quota
            if branch.firm + gpus > most + SLACK:
                return False
        return True

    def _needs(self, leaf: Branch, job: Job, *, old: bool) -> list[Need]:
        """GPUs that must be given up below which branch, even if enough are idle."""
        gpus = job.gpus
        needs = []
        for branch in leaf.path:
            over = branch.used + gpus - branch.ceiling
            if over > SLACK:
                needs.append(Need(branch, over))
        if self.tenancy.keeps and not old:
            root = self.tenancy.root
            idle = self.up_gpus - root.used - gpus
            lacking = self.tenancy.kept_from(leaf) - idle
            if lacking > SLACK:
                needs.append(Need(root, lacking))
        return needs

    def _may_borrow(self, leaf: Branch, job: Job) -> bool:
        """Idle GPUs are left for those that wait for them with more right."""
        idle = self.up_gpus - self.tenancy.root.used - job.gpus
        if self._reserved and idle < ordered_sum(self._reserved.values()) - SLACK:
            return False
        if self._classes[job.spec.priority].preemptible:
            return True
        return idle + self.queues.loose >= self.tenancy.promised_to_others(leaf) - SLACK

    def _take_back(self, leaf: Branch, job: Job, found: VictimChoice) -> bool:
        """Take starts of this decision back if that makes room for a job, now or later."""
        borrowers = self.victims.borrowers(leaf, job)
        if not borrowers:
            return False
        leaving = enumerate([*borrowers, *found.jobs], start=1)
        at_s = self.plan.earliest(job, [(self.now_s + number, other) for number, other in leaving])
        if at_s == INF and found.protected_s == INF:
            return False
        self._claimed.add(job.index)  # once: so this comes to an end
        if self.now_s < at_s < INF:  # else there is room, but not within its limits
            del borrowers[round(at_s - self.now_s) :]
        for borrower in borrowers:
            self.plan.give_up(borrower)
            _, victims = self.victims.loans.pop(borrower.index)
            for victim in victims:  # they have lost their places, now for another
                self.plan.remark(victim, self._whys[victim.index], because_of=job)
            other = self.queues.gives(borrower.index)
            if borrower.running:
                self._line_up(other, borrower)
            else:
                self.queues.enters(borrower, self.now_s)
                self.queues.fresh.append(borrower)
        self._try_all()
        return True

    def _push_in(
        self,
        leaf: Branch,
        job: Job,
        found: VictimChoice,
        needs: Sequence[Need],
        *,
        free: bool,
    ) -> Sequence[Job] | None:
        """Take the place of victims; None if that does not help."""
        victims, must = found.jobs, 0
        if not victims:
            return None
        if not free and not found.others:  # it may not use more than its queue gives up
            needs = [*needs, Need(leaf, job.gpus)]
        if not free and not self.queues.class_of(job).preemptible:  # only what becomes its own
            needs = [
                *needs,
                *(
                    Need(branch, branch.firm + job.gpus - branch.quota, firm=True)
                    for branch in leaf.path
                    if not branch.within(job.gpus)
                ),
            ]
        if needs:
            victims, must = self._front(leaf, victims, needs)
            if not must:
                return None
        return self.plan.displace(job, victims, must=must)

    def _front(
        self, leaf: Branch, victims: Collection[Job], needs: Sequence[Need]
    ) -> tuple[list[Job], int]:
        """The victims with those in front that must go, and how many these are (0: too few)."""
        front: dict[int, Job] = {}
        for branch, need, firm in needs:
            left = need
            for victim in victims:
                if left <= SLACK:
                    break
                other, gpus, counts = self.queues.running[victim.index]
                if gpus and (counts or not firm) and branch in (*other.path, self.tenancy.root):
                    front[victim.index] = victim
                    left -= gpus
                    if branch is self.tenancy.root:
                        left = need - self._gain(leaf, front.values())
            if left > SLACK:
                return [], 0
        return [*front.values(), *(v for v in victims if v.index not in front)], len(front)

    def _gain(self, leaf: Branch, victims: Collection[Job]) -> float:
        """GPUs that a leaf may use when these have gone: other queues may keep a part of them."""
        before = self.tenancy.kept_from(leaf)
        entries = [self.queues.running[victim.index] for victim in victims]
        for other, gpus, firm in entries:
            self.tenancy.charge(other, -gpus, firm=firm)
        after = self.tenancy.kept_from(leaf)
        for other, gpus, firm in entries:
            self.tenancy.charge(other, gpus, firm=firm)
        return ordered_sum(gpus for _, gpus, _ in entries) - (after - before)

    def _started(self, leaf: Branch, job: Job, victims: Sequence[Job], *, old: bool) -> None:
        """Update the queues, and find out whose turn it is now."""
        queues = self.queues
        self.moved[job.index] = job
        for victim in victims:
            # who was displaced in this decision passes on who is the cause, and so why
            why = self._whys.get(job.index) or self.victims.why(leaf, job, victim)
            self._whys[victim.index] = why
            self.plan.remark(victim, why)
        for victim in victims:
            own = queues.running[victim.index][0] is leaf
            self.plan.explain(victim, Reason.ORDER if own else QUOTA)
            other = queues.gives(victim.index)
            self._line_up(other, victim)
            self.victims.gone[victim.index] = self.moved[victim.index] = victim
        if job.index in self._lined:
            del self._lined[job.index]
            self.tenancy.drop(leaf, job)
            queues.gets(job, job.gpus)
        else:
            queues.begins(leaf, job)
        if not old:
            self.victims.loans[job.index] = (job, victims)
        self._reserved.pop(job.index, None)
        if victims:
            self._try_all()
        else:
            self._refresh(leaf)

    def _line_up(self, leaf: Branch, job: Job) -> None:
        """A running job that has lost its place waits again in its queue, in this decision."""
        rank, kind = self.queues.rank(job, self.now_s), self.queues.kind(job)
        self.tenancy.line_up(leaf, job, rank, kind)
        self._lined[job.index] = (leaf, job)

    def _try_all(self) -> None:
        """There may be more room than before, for anybody."""
        self._no_room.clear()
        for leaf in self.tenancy.lined.values():
            leaf.line.tried = {}
        self._nominate()

    # --- why not ----------------------------------------------------------------------------------

    def _why_not(self, leaf: Branch, job: Job, *, owed: bool, free: bool) -> Reason:
        """`quota` if its queue has what it may have; else the request tells (none)."""
        if owed:
            return NONE
        if not free:
            return QUOTA
        if job.gpus <= self.up_gpus - self.tenancy.root.used + SLACK:
            return NONE  # enough is free, but not where it could be used
        if not self.queues.class_of(job).guaranteed:
            return NONE
        real = self.up_gpus - SLACK  # a share of everything is none
        return QUOTA if any(branch.owed < real for branch in leaf.path) else NONE

    def _behind(self, leaf: Branch, job: Job) -> Reason:
        """Strict: as whom it waits for; else the request tells (none)."""
        tried = leaf.line.tried
        if not tried or not self.queues.inside.strict:
            return NONE
        nodes = self.plan.eligible(job)
        return next((before.why for before in tried.values() if before.held & nodes), NONE)

    def _explain(self, leaves: Iterable[Branch]) -> None:
        """Give the jobs of a kind the reason of the first of them, if it is new."""
        alike: list[tuple[str, Shape, Reason]] = []
        news: dict[int, tuple[Job, Reason]] = {}
        nodes = self.plan.nodes
        for leaf in leaves:
            line = leaf.line
            tried = line.tried
            if line.rests_on == (tried, nodes):
                continue
            line.rests_on = (dict(tried), nodes)
            reasons = {
                kind: tried[kind].why if kind in tried else self._behind(leaf, row[0][1])
                for kind, row in line.rows.items()
            }
            alike += [(leaf.name, shape, reason) for shape, reason in line.tell(reasons, news)]
        for job in self.queues.fresh:
            if job.index in self.queues.waiting:
                news[job.index] = (job, self.queues.waiting[job.index][0].line.own_reason(job))
        if alike:
            alike.sort(key=lambda row: (row[0], row[1].number))
            for tenant, shape, reason in alike:
                self.plan.explain_alike(tenant, shape, reason)
        for _, (job, reason) in sorted(news.items()):
            if job.reason != reason:
                self.plan.explain(job, reason)
