"""The queue audit of a run: what a log says of its queues, as means over its time."""

from collections import Counter
from pathlib import Path

import numpy as np

from rota.core.errors import InputError
from rota.core.eventlog import Bools, Floats
from rota.core.findings import AuditFacts, Finding, QueueFacts, find
from rota.core.log import Record
from rota.core.reasons import Reason
from rota.core.tenants import TenantTree
from rota.metrics.delay import REASONS, fold_delay
from rota.metrics.history import WAITS, History, read_history
from rota.study.explain import open_log
from rota.study.inputs import located
from rota.study.output import read_manifest
from rota.traces.cluster import parse_cluster

KEPT_BACK = (Reason.DEPENDENCY, Reason.ADMISSION)


def audit_folder(folder: Path) -> list[Finding]:
    """What is to be found in the folder of a run."""
    return find(facts_of(read_history(open_log(folder)), _tenants(folder)))


def _tenants(folder: Path) -> TenantTree:
    """As the cluster of the run declares them; none where the folder does not tell."""
    try:
        manifest = read_manifest(folder)
    except InputError:
        return TenantTree()
    return parse_cluster(located(manifest.config, manifest.inputs).cluster)[1]


def facts_of(history: History, tenants: TenantTree) -> AuditFacts:
    """Means over the time of the log; GPUs of waiting jobs are asked for as long as they wait."""
    first_s, last_s = float(history.time_s.min(initial=0.0)), float(history.time_s.max(initial=0.0))
    span_s = max(last_s - first_s, 1e-9)
    names = list(history.tenants.values())
    of_span = history.tenant[history.actor]
    waits = (history.state == WAITS) & history.acting & ~np.isin(history.reason, KEPT_BACK)
    held = np.where(history.acting, history.held, 0.0)
    asked = np.where(waits, history.asked[history.actor], 0.0)
    limited = _limited(history)
    queues = []
    for name in dict.fromkeys([*tenants.names, *names]):
        tenant = tenants.get(name)
        mine = of_span == names.index(name) if name in names else np.zeros(len(of_span), np.bool_)
        used, wanted = held[mine], asked[mine]
        length_s = history.length_s[mine]
        jobs = {int(slot) for slot in history.owner[history.actor[mine & waits]]}
        longest_s = float(history.length_s[mine & waits].max(initial=0.0))
        queues.append(
            QueueFacts(
                name=name,
                quota=tenant.quota,
                limit=tenant.limit,
                lend=tenant.lend,
                used=float((used * length_s).sum()) / span_s,
                asked=float((wanted * length_s).sum()) / span_s,
                unmet=_unmet(history, mine, used, wanted, tenant.quota) / span_s,
                waiting=len(jobs),
                longest_wait_s=longest_s,
                limited=len(jobs & limited),
            )
        )
    return AuditFacts(
        queues=queues, never=_refused(history), preemptions=_preemptions(history), averaged=True
    )


def _unmet(history: History, mine: Bools, used: Floats, asked: Floats, quota: float) -> float:
    """GPU-seconds of the quota that were asked for and not given."""
    if not quota or not len(used):
        return 0.0
    from_s, until_s = history.from_s[mine], history.until_s[mine]
    times = np.concatenate([from_s, until_s])
    held = np.concatenate([used, -used])
    wanted = np.concatenate([asked, -asked])
    order = np.argsort(times, kind="stable")
    times = times[order]
    holds, wants = np.cumsum(held[order]), np.cumsum(wanted[order])
    missing = np.clip(np.minimum(quota - holds, wants), 0.0, None)
    return float((missing[:-1] * np.diff(times)).sum())


def _limited(history: History) -> set[int]:
    """Slots of jobs that waited because of a quota or limit."""
    waited = fold_delay(history)[:, REASONS.index(Reason.QUOTA.label)]
    jobs = np.flatnonzero(history.is_job)
    return {int(jobs[number]) for number in np.flatnonzero(waited > 0)}


def _refused(history: History) -> dict[str, str]:
    rows = history.rows_of(Record.REJECTED)
    owners = history.owner[history.actor_of(history.job[rows])]
    slots = {int(slot): number for number, slot in enumerate(np.flatnonzero(history.is_job))}
    texts = history.texts(rows)
    return {
        history.ids[slots[int(owner)]]: text or "it was refused"
        for owner, text in zip(owners.tolist(), texts, strict=True)
    }


def _preemptions(history: History) -> dict[str, int]:
    """By queue of the job that displaced the other."""
    rows = history.rows_of(Record.STOP)
    causes = history.other[rows]
    causes = causes[causes >= 0]
    names = list(history.tenants.values())
    slots = history.actor_of(causes)
    found = Counter(names[int(history.tenant[slot])] for slot in slots.tolist())
    return {f"queue {name!r}" if name else "jobs without a queue": n for name, n in found.items()}
