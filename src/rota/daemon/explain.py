"""Why a job waits: its waiting time from the log, in parts that add up, and who is before it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from rota.core.events import Record
from rota.core.jobs import WAITING, Job
from rota.core.reasons import Reason
from rota.core.words import TEXTS, spell
from rota.daemon.info import Explanation, WhyPart
from rota.daemon.pictures import reason_of, state_of

if TYPE_CHECKING:
    import polars as pl

    from rota.daemon.core import Core
    from rota.daemon.store import Store

Ask: TypeAlias = Callable[[Callable[[], Any]], Any]
"""Has something done in the engine's thread."""
FEW = 5


def explain(core: "Core", ask: Ask, find: Callable[[], Job]) -> Explanation:
    """From the live state (in the engine's thread) and the stored log (in this one)."""

    def look() -> tuple[Job, str, str, list[str], list[str], float]:
        job = find()
        return (
            job,
            state_of(job),
            reason_of(job, core.projection),
            _ahead(core, job),
            [str(i) for i in core.projection.preempted_by.get(job.index, [])],
            core.cluster.now_s,
        )

    job, state, reason, ahead, causes, now_s = ask(look)
    parts = waiting_parts(core, job.index, now_s)
    wait_s = sum(part.seconds for part in parts)
    return Explanation(
        id=job.id,
        state=state,
        reason=reason,
        text=_sentence(state, reason, wait_s, parts, core.projection.messages.get(job.index, "")),
        wait_s=wait_s,
        parts=parts,
        ahead=ahead,
        preempted_by=causes,
    )


def waiting_parts(core: "Core", index: int, now_s: float) -> list[WhyPart]:
    """The parts of its waiting time up to now, largest first."""
    from rota.metrics.story import waiting_parts as fold

    parts = fold(stored_log(core.store, now_s), index)
    return [
        WhyPart(reason=reason, seconds=seconds, text=TEXTS[Reason[reason.upper()]])
        for reason, seconds in parts.items()
    ]


def stored_log(store: "Store", now_s: float, counts: tuple[int, int] = (0, 0)) -> "pl.DataFrame":
    """The whole log as a table that ends now; `counts`: events and decisions so far."""
    import numpy as np

    from rota.engine.log import as_frame

    rows = store.rows(0, store.log_number)
    last = max(now_s, rows[-1][1] if rows else 0.0)
    end = (last, float(Record.END), -1, *counts, 0.0)
    table = np.array([row[1:7] for row in rows] + [end], dtype=np.float64)
    return as_frame(table, [row[7] for row in rows] + [None])


def _ahead(core: "Core", job: Job) -> list[str]:
    """The first few of those in the queue that rank before it."""
    if job.phase != WAITING:
        return []
    waiting = [other for other in core.engine.view.active.values() if other.phase == WAITING]
    try:
        before = [o for o in waiting if (o.key, o.index) < (job.key, job.index)]
        before.sort(key=lambda o: (o.key, o.index))
    except TypeError:  # keys of a policy that does not rank
        before = [o for o in waiting if o.index < job.index]
    return [other.id for other in before[:FEW]]


def _sentence(state: str, reason: str, wait_s: float, parts: list[WhyPart], message: str) -> str:
    waited = f"it has waited {spell(wait_s)}" if wait_s else "it has not waited"
    if parts:
        waited += ": " + ", ".join(f"{spell(part.seconds)} {part.reason}" for part in parts)
    if reason:
        cause = TEXTS[Reason[reason.upper()]]
        return f"{state}: {cause}; {waited}" + (f" ({message})" if message else "")
    return f"{state}; {waited}" + (f" ({message})" if message else "")
