"""When a job will start: a frozen state, simulated on several times with drawn durations.

How long jobs still run is not known. Each simulation draws it for every job that is not over, from
what the jobs so far teach (see `rota.sim.durations`), and goes on until the job starts. The answer
is the median of the starts, and the interval between two of them that holds a further one with a
probability of at least 80 %.
"""

from collections.abc import Callable, Iterable
from functools import partial
from math import ceil, floor
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from rota.core.backtest import LEAST, Backtest
from rota.core.events import INF
from rota.core.jobs import RUNNING, STARTING, Job
from rota.core.ports import Scheduler
from rota.core.words import duration
from rota.engine.loop import Engine
from rota.sim.durations import Durations, progress
from rota.sim.proposal import Proposal, members

SHARE = 0.8  # of the draws in the interval
TESTED = 60  # jobs that are over, the latest, on which it is tried how good draws are
TOGETHER = 5  # of them are foreseen at once, more if there is much to learn from
TRIALS = 19  # draws for each; the second and the second last hold 80 %
_COST = 2e7  # numbers that a back-test may look at
_EXACT = 1e-6  # relative error of a run time that counts as none


Told = Callable[[int, int], None]
"""Called with the simulations made, and those in all."""


class Frozen(Protocol):
    """A state that can be simulated on again and again."""

    now_s: float

    def thaw(
        self, change: Callable[[Engine], None] | None = None, proposal: Proposal | None = None
    ) -> Engine:
        """An engine in that state; `change` is applied before its cluster looks ahead.

        The job of the proposal is submitted first, and the scheduler has decided on it once.
        """
        ...


class DurationSpread(NamedTuple):
    """The answer, in seconds of the simulation; inf: it does not start."""

    median_s: float
    earliest_s: float
    latest_s: float
    share: float
    """The probability with which a further draw is between earliest and latest."""


class Foreseen(msgspec.Struct, frozen=True, kw_only=True):
    """When a job starts, in seconds of the simulation; None: not at all."""

    starts_s: float | None
    earliest_s: float | None
    latest_s: float | None
    share: float
    runs: int
    never: int  # simulations in which it did not start
    text: str
    backtest: Backtest | None  # None: nothing is drawn


def foresee(  # noqa: PLR0913 - all of it is one question
    frozen: Frozen, durations: Durations | None, index: int, *, again: bool, runs: int,
    seed: int = 0, told: Told | None = None, give_up: Callable[[], bool] = lambda: False,
    proposal: Proposal | None = None, tested: bool = True,
) -> Foreseen:  # fmt: skip
    """When a job that waits, or is still to come, will start.

    Args:
        frozen: The state.
        durations: From which the lengths of jobs are drawn; None: they are what they are.
        index: The number of the job.
        again: The job has run before.
        runs: Simulations; one is enough if nothing is drawn.
        seed: Random seed.
        told: Called after every simulation.
        give_up: No more time; at least one simulation is begun.
        proposal: The job is this one, which is submitted now.
        tested: Also tell how good draws of run times were in the past.
    """
    found = starts(
        frozen, durations, index, runs=runs, seed=seed, told=told, give_up=give_up,
        proposal=proposal,
    )  # fmt: skip
    spread = spread_of(found)
    doubt = durations.doubt if durations is not None else ""
    return Foreseen(
        starts_s=_finite(spread.median_s),
        earliest_s=_finite(spread.earliest_s),
        latest_s=_finite(spread.latest_s),
        share=spread.share,
        runs=len(found),
        never=found.count(INF),
        text=sentence(spread, frozen.now_s, doubt, again=again),
        backtest=backtest(durations) if durations is not None and tested else None,
    )


def _finite(value: float) -> float | None:
    return value if value < INF else None


def started_s(job: Job) -> float | None:
    """When it, or the first of its tasks that run, started; None: nothing of it runs."""
    return min((one.start_s for one in members(job) if one.running), default=None)


def starts(
    frozen: Frozen, durations: Durations | None, index: int, *, runs: int, seed: int = 0,
    told: Told | None = None, give_up: Callable[[], bool] = lambda: False,
    proposal: Proposal | None = None,
) -> list[float]:  # fmt: skip
    """When a job that waits, or is still to come, starts in each simulation.

    Args:
        frozen: The state.
        durations: From which the lengths of jobs are drawn; None: they are what they are.
        index: The number of the job.
        runs: Simulations; one is enough if nothing is drawn.
        seed: Random seed.
        told: Called after every simulation.
        give_up: No more time; at least one simulation is begun.
        proposal: The job is this one, which is submitted now.
    """
    runs = max(1, runs) if durations is not None else 1
    found: list[float] = []
    while len(found) < runs and not (found and give_up()):
        rng = np.random.default_rng([seed, len(found)])
        change = partial(redraw, durations=durations, rng=rng) if durations is not None else None
        engine = frozen.thaw(change, proposal)
        found.append(next_start_s(engine, index, give_up))
        if told is not None:
            told(len(found), runs)
    return found


def sentence(spread: DurationSpread, now_s: float, doubt: str, *, again: bool) -> str:
    """The answer in words, after the name of the job."""
    if spread.median_s == INF:
        return "is not expected to start with what is known now"
    text = f"is expected to start {'again ' if again else ''}in {duration(spread.median_s - now_s)}"
    if spread.earliest_s == spread.latest_s:
        return text
    latest = "never" if spread.latest_s == INF else duration(spread.latest_s - now_s)
    early = duration(spread.earliest_s - now_s)
    return (
        f"{text} ({spread.share * 100:.0f} % between {early} and {latest}){doubt and f'; {doubt}'}"
    )


def spread_of(starts: Iterable[float]) -> DurationSpread:
    """The median and the interval of some draws (at least one).

    With the k-th smallest and the k-th largest of n draws as its ends, an interval holds one more
    draw with a probability of 1 - 2k / (n + 1). Fewer than nine draws have no 80 %.
    """
    found = sorted(starts)
    count = len(found)
    low = max(1, floor((count + 1) * (1 - SHARE) / 2 + 1e-9))
    high = min(count, ceil((count + 1) * (1 + SHARE) / 2 - 1e-9))
    share = min(SHARE, (high - low) / (count + 1))
    return DurationSpread(found[(count - 1) // 2], found[low - 1], found[high - 1], share)


def backtest(durations: Durations) -> Backtest:
    """How often the run times of the latest jobs that are over were in the interval foreseen.

    They are foreseen with what was known when they started; a few at a time, which is faster, with
    what was known at the first of their starts. Those that started before there was anything to
    learn from are left out.
    """
    now_s = durations.now_s
    over = [job for job in durations.jobs if job.terminal and progress(job, now_s) > 0]
    latest = sorted(over, key=lambda job: job.end_s)[-TESTED:]
    latest.sort(key=lambda job: job.first_start_s)
    affordable = max(1, int(_COST / TRIALS / (durations.toil + 1)))
    step = max(TOGETHER, ceil(TESTED / affordable))
    held = tested = 0
    for first in range(0, len(latest), step):
        some = latest[first : first + step]
        then = durations.as_of(some[0].first_start_s)
        if then.doubt:
            continue
        draws = [
            then.draw(some, [0.0] * len(some), np.random.default_rng([first, number]))
            for number in range(TRIALS)
        ]
        for job, *found in zip(some, *draws, strict=True):
            spread, length = spread_of(found), progress(job, now_s)
            low_s, high_s = spread.earliest_s * (1 - _EXACT), spread.latest_s * (1 + _EXACT)
            held += int(low_s <= length <= high_s)
        tested += len(some)
    return Backtest(
        jobs=tested, share_inside=held / tested if tested >= LEAST else None, nominal=SHARE
    )


def redraw(engine: Engine, durations: Durations, rng: np.random.Generator) -> None:
    """Give every job that is not over another length; what the policy was told of it stays."""
    now_s = engine.cluster.now_s
    jobs = list(engine.view.active.values())
    totals = durations.draw(jobs, [progress(job, now_s) for job in jobs], rng)
    for job, total in zip(jobs, totals, strict=True):
        known = job.true_work < INF  # it is unknown on a living cluster
        told = job.true_work * job.belief
        done = job.true_work - job.true_left if known else job.run_s
        job.truth = msgspec.structs.replace(job.truth, work=total, fails_at=INF)
        job.true_work, job.true_left = total, total - done
        if known and total:
            job.belief = told / total


def nobody_new(scheduler: Scheduler, policy: str) -> str:
    """What to say of jobs to come where none are assumed: they may matter all the same."""
    if scheduler.in_order:
        return "none"
    return f"none, but jobs that are submitted later may be served before it under {policy}"


def is_placed(job: Job) -> bool:
    """It, or a part of it, has a place on the cluster."""
    return any(one.running for one in members(job))


def next_start_s(engine: Engine, index: int, give_up: Callable[[], bool] = lambda: False) -> float:
    """Go on until a job has started; inf: it never does, or somebody gave up."""
    while index not in engine.jobs:  # it is still to come
        if give_up() or not engine.advance():
            return INF
    tasks = members(engine.jobs[index])
    while True:
        if any(task.phase in (STARTING, RUNNING) for task in tasks):
            return engine.view.now_s
        if all(task.terminal for task in tasks) or give_up() or not engine.advance():
            return INF
