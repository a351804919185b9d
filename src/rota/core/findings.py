"""A queue audit: who starves beside whom, what lies idle, and what would help.

It works on plain numbers: of a moment of a living cluster, or of a whole log (then GPUs are means
over its time).
"""

from collections.abc import Iterable, Mapping

import msgspec

from rota.core.admission import BudgetUse
from rota.core.events import INF
from rota.core.sums import ordered_sum
from rota.core.words import counted, duration

STARVED, IDLE, PREEMPTS, NEVER, LIMIT = "starved", "idle-quota", "preempts", "never", "limit"
BUDGET = "budget"
KINDS = (STARVED, IDLE, PREEMPTS, NEVER, LIMIT, BUDGET)
FEW = 3
_LEAST = 0.05  # GPUs: less is rounding
_MUCH = 0.25  # of all preemptions
_SOME = 3  # preemptions
_NEARLY = 0.9  # of a limit of jobs
_HALF = 0.5
WARN_FROM = 0.8  # of a budget
_HOUR_S = 3_600.0


class QueueFacts(msgspec.Struct, kw_only=True):
    """A queue: what it is entitled to, what it uses, and what its waiting jobs ask for (GPUs)."""

    name: str
    quota: float = 0.0
    limit: float = INF
    lend: float = INF
    used: float = 0.0
    asked: float = 0.0
    unmet: float = 0.0  # of its quota, although asked for
    waiting: int = 0
    longest_wait_s: float = 0.0
    limited: int = 0  # of those that wait: because of a quota or limit


class AuditFacts(msgspec.Struct, kw_only=True):
    """What an audit looks at."""

    queues: list[QueueFacts] = []
    never: dict[str, str] = {}  # jobs that can never start, and why
    preemptions: dict[str, int] = {}  # by whom they were caused
    users: dict[str, tuple[int, int]] = {}  # unfinished jobs, and how many are allowed
    budgets: list[BudgetUse] = []
    averaged: bool = False  # means over a log


class Finding(msgspec.Struct, kw_only=True, frozen=True):
    """Something that an operator should know, with numbers and what to do."""

    kind: str
    subject: str
    text: str
    remedy: str
    numbers: dict[str, float] = {}


def find(facts: AuditFacts) -> list[Finding]:
    """Everything that was found, the gravest kinds first."""
    return [
        *_starved(facts),
        *_never(facts.never),
        *_limits(facts),
        *_budgets(facts.budgets),
        *_idle(facts),
        *_preempting(facts.preemptions),
    ]


def _starved(facts: AuditFacts) -> Iterable[Finding]:
    over = [queue for queue in facts.queues if queue.used - queue.quota > _LEAST]
    over.sort(key=lambda queue: queue.quota - queue.used)
    on_average = " on average" if facts.averaged else ""
    for queue in sorted(facts.queues, key=lambda queue: -queue.unmet):
        others = [other for other in over if other.name != queue.name]
        if queue.unmet <= _LEAST or not others:
            continue
        first = others[0]
        borrowed = ordered_sum(other.used - other.quota for other in others)
        names = ", ".join(other.name or "(none)" for other in others[:FEW])
        yield Finding(
            kind=STARVED,
            subject=queue.name,
            text=(
                f"queue {queue.name!r} is entitled to {queue.quota:g} GPUs and uses "
                f"{queue.used:.3g}{on_average}, while its jobs ask for {queue.asked:.3g} more and "
                f"{names} use {borrowed:.3g} GPUs above their quotas; longest wait "
                f"{duration(queue.longest_wait_s)}"
            ),
            remedy=(
                f"use a policy that takes quotas back (capacity, hierarchical-fair), or bound what "
                f"{first.name or 'jobs without a queue'} may use (borrow, limit)"
            ),
            numbers={"quota": queue.quota, "used": queue.used, "asked": queue.asked,
                     "unmet": queue.unmet, "borrowed_by_others": borrowed},
        )  # fmt: skip


def _idle(facts: AuditFacts) -> Iterable[Finding]:
    waiting = ordered_sum(queue.asked for queue in facts.queues)
    for queue in sorted(facts.queues, key=lambda queue: queue.used - queue.quota):
        idle = queue.quota - queue.used - queue.asked
        elsewhere = waiting - queue.asked
        if idle <= max(_LEAST, _HALF * queue.quota) or elsewhere <= _LEAST:
            continue
        kept = idle if queue.lend == INF else max(0.0, idle - queue.lend)
        lends = "" if queue.lend == INF else f", of which it lends at most {queue.lend:g}"
        help_ = (
            f"raise its lend by {kept:.3g}, or lower its quota"
            if queue.lend < INF and kept > _LEAST
            else "let others borrow (borrow, limit), or lower its quota"
        )
        yield Finding(
            kind=IDLE,
            subject=queue.name,
            text=(
                f"{idle:.3g} of the {queue.quota:g} GPUs of queue {queue.name!r} are not asked "
                f"for{lends}, while jobs of others wait for {elsewhere:.3g}"
            ),
            remedy=f"{help_} to {max(queue.used + queue.asked, 0):.3g}",
            numbers={"quota": queue.quota, "idle": idle, "waiting_elsewhere": elsewhere},
        )


def _preempting(caused: Mapping[str, int]) -> Iterable[Finding]:
    total = sum(caused.values())
    for who, many in sorted(caused.items(), key=lambda item: (-item[1], item[0])):
        if many < _SOME or many < _MUCH * total:
            return
        yield Finding(
            kind=PREEMPTS,
            subject=who,
            text=f"{who or '(none)'} caused {many:,} of {counted(total, 'preemption')}",
            remedy=(
                "lower the priority of these jobs, or protect others with min_runtime_s of their "
                "priority class"
            ),
            numbers={"preemptions": many, "share": many / total},
        )


def _never(jobs: Mapping[str, str]) -> Iterable[Finding]:
    for job, why in jobs.items():
        yield Finding(
            kind=NEVER,
            subject=job,
            text=f"job {job} can never start: {why}",
            remedy=f"cancel it and submit it with less: `rota why {job}`",
        )


def _limits(facts: AuditFacts) -> Iterable[Finding]:
    for queue in facts.queues:
        if queue.limited:
            most = f" of {queue.limit:g} GPUs" if queue.limit < INF else ""
            yield Finding(
                kind=LIMIT,
                subject=queue.name,
                text=(
                    f"{counted(queue.limited, 'job')} of queue {queue.name!r} "
                    f"{'waits' if queue.limited == 1 else 'wait'} because of a quota or limit"
                    f"{most}; it uses {queue.used:.3g}"
                ),
                remedy="raise its limit or quota, or let its users submit elsewhere",
                numbers={"jobs": queue.limited, "used": queue.used},
            )
    for user, (jobs, allowed) in sorted(facts.users.items()):
        if jobs >= _NEARLY * allowed:
            yield Finding(
                kind=LIMIT,
                subject=user,
                text=f"{user} has {jobs:,} unfinished jobs, {allowed:,} are allowed",
                remedy=f"raise max_jobs: `rota user set {user} --max-jobs N`",
                numbers={"jobs": jobs, "max_jobs": allowed},
            )


def budget_told(use: BudgetUse) -> str:
    """`queue 'vision' has used 82 of 100 GPU-hours (82%)`."""
    used, budget = use.used_gpu_s / _HOUR_S, use.budget_gpu_s / _HOUR_S
    return (
        f"{use.of} {use.name!r} has used {used:,.3g} of {budget:,.6g} GPU-hours of its budget "
        f"({use.share:.0%})"
    )


def _budgets(budgets: Iterable[BudgetUse]) -> Iterable[Finding]:
    for use in sorted(budgets, key=lambda use: (-use.share, use.name)):
        if use.share >= WARN_FROM:
            yield Finding(
                kind=BUDGET,
                subject=use.name,
                text=budget_told(use),
                remedy="raise it (admission: budget:of=NAME:GPU_HOURS), or tell its users: what "
                "does not fit any more is held",
                numbers={"used_gpu_h": use.used_gpu_s / _HOUR_S,
                         "budget_gpu_h": use.budget_gpu_s / _HOUR_S},
            )  # fmt: skip
