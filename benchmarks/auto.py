"""What `auto` promises, measured: against each of its candidates throughout, and with foresight.

Two promises: never worse than the best candidate by more than 5 % in its goal, and better than all
of them where the character of the jobs changes half-way. For every workload and goal this prints
how much worse (+) or better (-) `auto` is than the best candidate in hindsight, which one that is,
and for workloads that change what switching could gain at most: `once` is the best of one switch
from any candidate to any other, at any of a few times (chosen in hindsight), `then` the best one
at the very moment of the change. Results depend on seeds only, not on the machine.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from multiprocessing import Pool
from pathlib import Path
from random import Random
from statistics import mean
from typing import NamedTuple

import numpy as np

from rota.core.changes import Changes
from rota.core.view import View
from rota.sim import auto
from rota.sim.auto import AutoScheduler
from rota.study.config import RunConfig
from rota.study.run import simulate

GPUS = 32
GOALS = ("mean-jct", "mean-wait", "mean-slowdown", "p95-wait", "p95-jct")
ALL = "fifo-skip+las+srtf"
BLIND = "fifo-skip+las"  # nobody knows how long a job runs
TIMES = 5  # of a switch
EASE_S = 10.0  # waits of seconds are no worse than none: this is added to all


class Kind(NamedTuple):
    """Jobs of one character: how long they run, that on average, and how many GPUs they take."""

    lasts_s: Callable[[Random], float]
    mean_s: float
    gpus: Sequence[int] = (1, 1, 2, 4)


KINDS = {
    "mixed": Kind(lambda dice: dice.choice([300, 1800, 7200]) * dice.uniform(0.5, 1.5), 3100),
    "short": Kind(lambda dice: dice.expovariate(1 / 900) + 30, 930),
    "heavy": Kind(lambda dice: min(60 * dice.paretovariate(0.8), 86_400), 560),
    "wide": Kind(lambda dice: dice.expovariate(1 / 1500) + 60, 1560, (1, 4, 8, 16)),
    "bursty": Kind(lambda dice: dice.expovariate(1 / 1500) + 60, 1560),
    "even": Kind(lambda dice: 4000 * dice.uniform(0.9, 1.1), 4000),
    "tail": Kind(lambda dice: min(40 * dice.paretovariate(0.7), 40_000), 520),
}
STEADY = ("mixed", "short", "heavy", "wide", "bursty")


class Phase(NamedTuple):
    """So many jobs of a kind."""

    kind: str
    share: float
    load: float


class Case(NamedTuple):
    """A workload and the candidates."""

    name: str
    phases: tuple[Phase, ...]
    candidates: str = ALL


CASES = [
    *(Case(kind, (Phase(kind, 1, 1.05),)) for kind in STEADY),
    Case("even", (Phase("even", 1, 1.05),)),
    Case("30 % even, then tail", (Phase("even", 0.3, 1.1), Phase("tail", 0.7, 1.3))),
    Case("70 % even, then tail", (Phase("even", 0.7, 1.1), Phase("tail", 0.3, 1.3))),
    Case("70 % tail, then even", (Phase("tail", 0.7, 1.3), Phase("even", 0.3, 1.1))),
    Case("30 % even, then tail", (Phase("even", 0.3, 1.1), Phase("tail", 0.7, 1.3)), BLIND),
    Case("50 % even, then tail", (Phase("even", 0.5, 1.1), Phase("tail", 0.5, 1.3)), BLIND),
]


def write_jobs(path: Path, phases: Sequence[Phase], jobs: int, seed: int) -> list[float]:
    """A trace, and when each phase begins."""
    dice = Random(seed)  # noqa: S311 - not a secret
    rows, at_s, begins = ["job_id,submit_s,num_gpus,duration_s"], 0.0, []
    for phase in phases:
        begins.append(at_s)
        kind = KINDS[phase.kind]
        for _ in range(int(phase.share * jobs)):
            size = dice.choice(kind.gpus)
            lasts_s = kind.lasts_s(dice)
            rate = phase.load * GPUS / (mean(kind.gpus) * kind.mean_s)
            if phase.kind == "bursty":
                rate *= 4 if dice.random() < 0.9 else 1 / 7
            at_s += dice.expovariate(rate)
            rows.append(f"{len(rows)},{at_s:.0f},{size},{lasts_s:.0f}")
    path.write_text("\n".join(rows) + "\n")
    return begins


# --- runs -----------------------------------------------------------------------------------------


class Task(NamedTuple):
    """A run of `auto` or of a candidate; or a switch at a time that somebody knew."""

    trace: str
    policy: str
    switch: tuple[float, str, str] | None = None


def measure(task: Task) -> dict[str, float]:
    """All goals of a run."""
    if task.switch is None:
        AutoScheduler._is_due, AutoScheduler._review = FOUND  # noqa: SLF001 - see `foresee`
        policy = task.policy
    else:
        foresee(*task.switch)
        policy = f"auto:candidates={task.switch[1]}+{task.switch[2]}"
    jobs = simulate(RunConfig(trace=task.trace, cluster="4x8", policy=policy)).jobs
    waits, times = jobs["wait_s"].to_numpy(), jobs["jct_s"].to_numpy()
    lengths = np.maximum(times - waits, 1e-9)
    outcomes = list(zip(waits, times, lengths, strict=True))
    return {goal: auto.goal_of(goal, outcomes) for goal in GOALS}  # type: ignore[arg-type]


FOUND = (AutoScheduler._is_due, AutoScheduler._review)  # noqa: SLF001


def foresee(at_s: float, first: str, then: str) -> None:
    """Let `auto` do one thing: hand over at that time."""
    left = [at_s]

    def is_due(scheduler: AutoScheduler, view: View) -> bool:
        return bool(left) and scheduler.current == first and view.now_s >= left[0]

    def review(scheduler: AutoScheduler, view: View) -> Changes:
        left.clear()
        return scheduler.successor(view, then, "known beforehand")

    AutoScheduler._is_due, AutoScheduler._review = is_due, review  # type: ignore[assignment,method-assign]  # noqa: SLF001


def tasks(case: Case, trace: str, begins: list[float], goals: Sequence[str]) -> Iterator[Task]:
    """Every run of a workload."""
    names = case.candidates.split("+")
    yield from (Task(trace, name) for name in names)
    for goal in goals:
        yield Task(trace, f"auto:goal={goal},candidates={case.candidates}")
    for at_s in switches(case, begins):
        yield from (Task(trace, "", (at_s, *pair)) for pair in permutations(names, 2))


def switches(case: Case, begins: list[float]) -> list[float]:
    """Times of a switch: that of the change, and some before and after it."""
    if len(case.phases) < 2:
        return []
    return [begins[1], *(begins[1] * number * 1.3 / TIMES for number in range(1, TIMES))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--goals", nargs="+", choices=GOALS, default=GOALS)
    parser.add_argument("--only", default="", help="cases whose name and candidates contain this")
    options = parser.parse_args()
    cases = [case for case in CASES if options.only in f"{case.name}, {case.candidates};"]
    worst: dict[tuple[str, bool], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, Pool(options.workers) as pool:
        for case in cases:
            for seed in range(1, options.seeds + 1):
                path = Path(folder) / "jobs.csv"
                begins = write_jobs(path, case.phases, options.jobs, seed)
                todo = list(tasks(case, str(path), begins, options.goals))
                found = dict(zip(todo, pool.map(measure, todo, chunksize=1), strict=True))
                print(f"{case.name} (seed {seed}), {case.candidates}", flush=True)
                for goal, line, over in compared(case, found, begins, options.goals):
                    print(f"    {line}", flush=True)
                    worst.setdefault((goal, len(case.phases) > 1), []).append(over)
    for changing in (False, True):
        print(f"jobs {'change' if changing else 'stay what they are'}:")
        for goal in options.goals:
            over = worst.get((goal, changing))
            if over is None:
                continue
            beyond = sum(one > 0.05 for one in over)
            print(
                f"    {goal:14}{len(over):3} runs, {min(over):+.1%} to {max(over):+.1%}, "
                f"{beyond} of them more than 5 % worse than the best candidate"
            )


def compared(
    case: Case, found: dict[Task, dict[str, float]], begins: list[float], goals: Sequence[str]
) -> Iterator[tuple[str, str, float]]:
    """Of each goal a line of text, and how much worse `auto` is."""
    for goal in goals:
        fixed = {task.policy: got[goal] for task, got in found.items() if not task.switch}
        mine = fixed[f"auto:goal={goal},candidates={case.candidates}"]
        fixed = {name: value for name, value in fixed.items() if not name.startswith("auto")}
        best = min(fixed, key=lambda name: fixed[name])

        ease = 0.0 if goal == "mean-slowdown" else EASE_S

        def over(value: float, least: float = fixed[best] + ease, ease: float = ease) -> float:
            return (value + ease) / least - 1

        line = f"{goal:14}{over(mine):+7.1%}  best: {best}"
        known = {task.switch: got[goal] for task, got in found.items() if task.switch}
        if known:
            at_once = min(value for switch, value in known.items() if switch[0] == begins[1])
            line += f"; once {over(min(known.values())):+.1%}, then {over(at_once):+.1%}"
        yield goal, line, over(mine)


if __name__ == "__main__":
    main()
