"""Who has to make room for whom, in which order, and why.

A waiting job may take the place of two kinds of jobs.

*Of other queues* (reclaim). Look at the two branches of the tree below what both queues have in
common. If the job's branch is owed more than it has, and the other branch has more than it is owed,
jobs of the latter go until it has no more than that. Opportunistic jobs go in any case. Only
guaranteed jobs reclaim.

*Of its own queue*: opportunistic jobs if it is guaranteed, and these first of all; those of a lower
priority (`within`), and those of its own priority that come after it if the inner policy is
preemptive.

Nobody has to go who is not preemptible, has not run for its `min_runtime_s` or is old (`aging_s`).
Of other queues, opportunistic jobs go before guaranteed ones, then jobs of queues that themselves
have more than their quota before jobs of their neighbours, then the rule decides:

* `latest-start`: who started last;
* `lowest-priority`: the lowest priority;
* `most-over-quota`: of the branch that is most GPUs over its quota;
* `least-progress`: who has the least GPU-time behind it.

Among equals the one that started last goes first.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import merge
from operator import attrgetter
from typing import Any, Literal, NamedTuple, Protocol

from rota.core.events import INF
from rota.core.jobs import RUNNING, Job
from rota.core.view import View
from rota.policies.tenancy.queues import Queues
from rota.policies.tenancy.tree import SLACK, Branch

_begun, _priority = attrgetter("start_s", "index"), attrgetter("spec.priority")

Rule = Literal["latest-start", "lowest-priority", "most-over-quota", "least-progress"]


class Rules(Protocol):
    """What a policy of tenants decides."""

    def turn(self, branch: Branch, job: Job) -> tuple[Any, ...]:
        """The rank of a branch among its like, with the job that is its next."""
        ...

    def claim(self, branch: Branch, other: Branch, gpus: float) -> "Claim":
        """What a branch that is owed so many more GPUs may take from another.

        What is beyond the other's quota if it stays within its own, else beyond what that is owed.
        """
        ...


class Claim(NamedTuple):
    """What may be taken from a branch: guaranteed jobs go only while it has more than the floor.

    Jobs are not divisible: the last one may leave it with less, but never with less than the least.
    Opportunistic jobs go in any case.
    """

    floor: float
    least: float = 0.0


class Options(NamedTuple):
    """How room is made."""

    rule: Rule
    reclaim: bool
    within: bool
    min_runtime_s: float


class InTurn(Collection[Job]):
    """Jobs in order, each found out when it is its turn: often the first ones are enough."""

    def __init__(self, jobs: Iterator[Job]) -> None:
        self._known: list[Job] = []
        self._more = jobs

    def __iter__(self) -> Iterator[Job]:
        yield from self._known
        for job in self._more:
            self._known.append(job)
            yield job

    def __bool__(self) -> bool:
        return bool(self._known) or next(iter(self), None) is not None

    def __len__(self) -> int:
        self._known += self._more
        return len(self._known)

    def __contains__(self, job: object) -> bool:
        return any(job is one for one in self)


class VictimChoice(NamedTuple):
    """Victims in order; until when others are protected (inf: nobody is), and their GPUs."""

    jobs: Collection[Job]
    others: bool  # some are of other queues
    protected_s: float
    protected_gpus: float


Wanted = tuple[tuple[Any, ...], Job, Branch, Claim]
"""A possible victim of another queue: its order, and what may be taken from its branch."""


class Victims:
    """Looks for victims in one decision."""

    def __init__(self, view: View, queues: Queues, rules: Rules, options: Options) -> None:
        self.now_s = view.now_s
        self.queues = queues
        self._classes = queues.classes
        self.rules = rules
        self.options = options
        self.gone: dict[int, Job] = {}  # displaced already
        # started in this decision, in the place of whom
        self.loans: dict[int, tuple[Job, Sequence[Job]]] = {}
        self._ranked: dict[int, list[tuple[Any, Job]]] = {}
        self._ordered: dict[Branch, list[Job]] = {}  # those that run, as they would have to go
        self._protected_s = INF
        self._protected_gpus = 0.0
        # nobody is protected by its age or by how short it has run
        self._at_once = not queues.protects and not options.min_runtime_s and queues.aging_s == INF

    def of(self, leaf: Branch, job: Job) -> VictimChoice:
        """Those that may have to go for this job."""
        self._protected_s, self._protected_gpus = INF, 0.0
        idlers = self._idlers(leaf, job)
        others = self._others(leaf, job)
        own = self._own(leaf, job)
        jobs = others
        if idlers or own:
            known = {victim.index for victim in idlers}
            own = [victim for victim in own if victim.index not in known]
            jobs = [*idlers, *others, *own]
        return VictimChoice(jobs, bool(others), self._protected_s, self._protected_gpus)

    def none_for(self, leaf: Branch, job: Job) -> bool:
        """Nobody has to go, whatever others have; False: somebody may have to."""
        if self.queues.inside.preemptive or leaf.firm != leaf.used:
            return False
        if self.options.within and leaf.lowest < job.spec.priority:
            return False
        if not self.options.reclaim:
            return True
        return all(branch.firm + job.gpus > branch.owed + SLACK for branch in leaf.path)

    def why(self, leaf: Branch, job: Job, victim: Job) -> str:
        """Why a victim has to go for this job, in words."""
        other = self.queues.running[victim.index][0]
        if other is leaf:
            if self._gives_way(victim, job):
                return f"opportunistic; queue {leaf.name!r} has a guaranteed job"
            if victim.spec.priority < job.spec.priority:
                return (
                    f"priority {job.spec.priority} comes before {victim.spec.priority} in queue "
                    f"{leaf.name!r}"
                )
            return f"{self.queues.inside.policy.name} puts it behind in queue {leaf.name!r}"
        a, b = self.queues.tenancy.fork(leaf, other)
        owed = f"queue {a.name!r} has {a.firm:g} of the {a.owed:g} GPUs it is owed"
        if not self.queues.class_of(victim).guaranteed:
            return f"opportunistic; {owed}"
        return f"{owed}, queue {b.name!r} has {b.firm:g} of {b.owed:g}"

    def _may_go(self, job: Job) -> bool:
        if job.index in self.gone or not job.running:  # started in this very decision
            return False
        kind = self._classes[job.spec.priority]
        if not kind.preemptible:
            return False
        if self.queues.aging_s < INF and self.queues.is_old(job, self.now_s):
            return False
        least_s = kind.min_runtime_s or self.options.min_runtime_s
        if not least_s:
            return True
        until_s = job.start_s + max(least_s, self.options.min_runtime_s)
        if until_s > self.now_s:
            self._protected_s = min(self._protected_s, until_s)
            self._protected_gpus += self.queues.running[job.index][1]
            return False
        return True

    # --- of other queues --------------------------------------------------------------------------

    def _others(self, leaf: Branch, job: Job) -> Collection[Job]:
        if not self.options.reclaim or not self._classes[job.spec.priority].guaranteed:
            return ()
        gpus, claims = job.gpus, self.rules.claim
        found: list[Iterator[Wanted]] = []
        for mine in leaf.path:
            if mine.firm + gpus > mine.owed + SLACK:
                continue
            for its in self._lenders(mine, gpus):
                claim = claims(mine, its, gpus)
                over = its.firm > claim.floor + SLACK
                if over or its.firm != its.used:
                    found += [
                        self._of_leaf(other, its, claim)
                        for other in its.leaves()
                        if other.running and (over or other.firm != other.used)
                    ]
        return InTurn(self._as_far_as_allowed(merge(*found))) if found else ()

    def _lenders(self, mine: Branch, gpus: float) -> Iterable[Branch]:
        """Its rivals from which anything can be taken; a quota takes from all beyond theirs."""
        if mine.within(gpus):
            found = [b for b in mine.rivals() if b.firm > b.quota + SLACK or b.firm != b.used]
        else:
            found = [b for b in mine.rivals() if b.firm > b.owed + SLACK or b.firm != b.used]
        return (branch for branch in found if branch is not mine)

    def _of_leaf(self, leaf: Branch, branch: Branch, claim: Claim) -> Iterator[Wanted]:
        """Those of one leaf in order, all below a branch from which so much may be taken."""
        jobs: Iterable[Job] = self._in_order(leaf)
        if not self._at_once:  # who is protected has to be known
            jobs = [job for job in jobs if self._may_go(job)]
        return self._offered(jobs, leaf, branch, claim)

    def _offered(
        self, jobs: Iterable[Job], leaf: Branch, branch: Branch, claim: Claim
    ) -> Iterator[Wanted]:
        entries, classes, gone = self.queues.running, self._classes, self.gone
        rule, now_s = RULES[self.options.rule], self.now_s
        over = branch.firm > claim.floor + SLACK
        frugal = sum(b.firm <= b.quota for b in leaf.path[: leaf.path.index(branch)])
        for job in jobs:
            index = job.index
            if (
                index not in gone
                and (job.phase == RUNNING or job.running)  # not started in this very decision
                and classes[job.spec.priority].preemptible
            ):
                firm = entries[index][2]
                if over or not firm:
                    key = (firm, frugal, rule(job, branch, now_s), -job.start_s, -index)
                    yield key, job, branch, claim

    def _in_order(self, leaf: Branch) -> list[Job]:
        """The jobs of a leaf as they would have to go: opportunistic ones, then by the rule."""
        known = self._ordered.get(leaf)
        if known is None:
            known = self._ordered[leaf] = sorted(leaf.running.values(), key=_begun, reverse=True)
            rule = self.options.rule
            if rule == "least-progress":
                known.sort(key=lambda job: job.attained_gpu_s(self.now_s))
            elif rule == "lowest-priority":
                known.sort(key=_priority)
            if not all(self._classes[priority].guaranteed for priority in leaf.priorities):
                known.sort(key=lambda job: self._classes[job.spec.priority].guaranteed)
        return known

    def _as_far_as_allowed(self, found: Iterable[Wanted]) -> Iterator[Job]:
        """First those whose branch keeps its floor, then one more of each that has more."""
        entries = self.queues.running
        left: dict[int, float] = {}
        rest: list[Wanted] = []
        for wanted in found:
            key, job, branch, claim = wanted
            if key[0]:  # firm
                has = left.get(id(branch), branch.firm)
                gpus = entries[job.index][1]
                if has - gpus < claim.floor - SLACK:
                    rest.append(wanted)
                    continue
                left[id(branch)] = has - gpus
            yield job
        for _, job, branch, claim in rest:
            has = left.get(id(branch), branch.firm)
            after = has - entries[job.index][1]
            if has > claim.floor + SLACK and after >= claim.least - SLACK:
                left[id(branch)] = after
                yield job

    # --- of those that have not begun -------------------------------------------------------------

    def borrowers(self, leaf: Branch, job: Job) -> list[Job]:
        """Those that this decision starts on GPUs that turn out to be owed to this job.

        The last first. They lose nothing, so that nothing protects them.
        """
        if not self.options.reclaim or not self.loans:
            return []
        chosen: list[Job] = []
        found: list[Wanted] = []
        for number, (borrower, _) in enumerate(reversed(self.loans.values())):
            other, _, firm = self.queues.running[borrower.index]
            if other is leaf:
                if self._gives_way(borrower, job):
                    chosen.append(borrower)
                continue
            mine, its = self.queues.tenancy.fork(leaf, other)
            if mine.firm + job.gpus > mine.owed + SLACK:
                continue
            claim = self.rules.claim(mine, its, job.gpus)
            if not firm or its.firm > claim.floor + SLACK:
                found.append(((firm, number), borrower, its, claim))
        return [*chosen, *self._as_far_as_allowed(sorted(found))]

    # --- of its own queue -------------------------------------------------------------------------

    def _gives_way(self, victim: Job, job: Job) -> bool:
        """An opportunistic job gives way to a guaranteed one of its queue."""
        return (
            self.options.reclaim
            and self.queues.class_of(job).guaranteed
            and not self.queues.running[victim.index][2]
        )

    def _idlers(self, leaf: Branch, job: Job) -> list[Job]:
        """Opportunistic jobs of its own queue, those that started last first."""
        if leaf.firm == leaf.used:
            return []
        found = [v for v in leaf.running.values() if self._gives_way(v, job) and self._may_go(v)]
        return sorted(found, key=lambda v: (-v.start_s, -v.index))

    def _own(self, leaf: Branch, job: Job) -> list[Job]:
        """Lower priorities first, then those that come last."""
        if not leaf.running or not (self.options.within or self.queues.inside.preemptive):
            return []
        priority = job.spec.priority
        found: list[Job] = []
        if self.options.within and leaf.lowest < priority:
            lower = [v for v in leaf.running.values() if v.spec.priority < priority]
            key = RULES[self.options.rule]
            lower.sort(key=lambda v: (key(v, leaf, self.now_s), -v.start_s, -v.index))
            found = sorted(lower, key=lambda v: v.spec.priority)
        if self.queues.inside.preemptive:
            rank = leaf.line.ranks[job.index]
            found += [
                v for its, v in self._ranks(leaf) if its > rank and v.spec.priority == priority
            ]
        return [v for v in found if self._may_go(v)]

    def _ranks(self, leaf: Branch) -> list[tuple[Any, Job]]:
        """Those that run in a queue with their ranks, the last first."""
        ranked = self._ranked.get(id(leaf))
        if ranked is None:
            ranked = [(self.queues.ranked(v, self.now_s).rank, v) for v in leaf.running.values()]
            ranked.sort(key=lambda entry: entry[0], reverse=True)
            self._ranked[id(leaf)] = ranked
        return ranked


RULES: dict[Rule, Callable[[Job, Branch, float], float]] = {
    "latest-start": lambda job, _branch, _now_s: -job.start_s,
    "lowest-priority": lambda job, _branch, _now_s: job.spec.priority,
    "most-over-quota": lambda _job, branch, _now_s: branch.quota - branch.firm,
    "least-progress": lambda job, _branch, now_s: job.attained_gpu_s(now_s),
}
"""Who goes first has the smallest number."""
