"""Trials compete by successive halving, then the winner is held against the default.

*Rungs.* All trials run on a small part of the workload (the busiest of N consecutive parts, as
`window` cuts them); the best 1 / eta of them go on to a part with eta times as many jobs, and so on
up to the whole, where the default competes in any case. Trials of a rung meet the same jobs,
failures and errors (the same seeds). Who is as good as the last that goes on goes on, too: a part
in which nobody waits stops nobody. Where trials compete at several points (workloads, clusters,
loads), each counts as much as the others.

*The last comparison.* The winner was chosen because it was good on these jobs, so it is held
against the default on others where jobs are drawn: with fresh seeds. Of a file there are no others:
there it is consecutive parts, each on its own, which flatter the winner a little. Only if the
interval of the ratio, repeat by repeat, excludes 1 is it better.

Runs are those of a sweep, filed under what they depend on. A tuning that is killed goes on where it
was, and ends with the same files.
"""

import math
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import msgspec
import numpy as np
import polars as pl

from rota.core.errors import InputError, RotaError
from rota.core.eventlog import Floats
from rota.core.jobs import Request
from rota.core.sums import ordered_sum
from rota.core.workload import Workload, fields
from rota.metrics.vocabulary import BY_KEY, Measure
from rota.study.statistics import Ratio, ratio_interval
from rota.study.sweep.keys import code_version
from rota.study.sweep.local import RunExecutor
from rota.study.sweep.plan import SweepPlan, make_plan
from rota.study.sweep.run import Failed, SweepOutcome, Told, run_plan
from rota.study.sweep.spec import Choice, Label, Spec
from rota.study.sweep.store import RUNS, SweepFolder, read_json
from rota.study.sweep.table import POLICY, SEED, Row
from rota.study.tune.space import TuneTrial
from rota.study.tune.spec import TuneSpec
from rota.study.workloads import amount_of, is_drawn, is_generated, jobs_of, load_again

RECORD, TRIALS, REPORT = "tune.json", "trials.csv", "report.html"
VERSION = 1
LEAST_PARTS = 2  # of which a ratio has an interval

Verdict = Literal["better", "worse", "unclear", "unproven", "default"]


class TuneRung(msgspec.Struct, frozen=True):
    """A part of the workload (`window`; None: all of it), and who competed there.

    `values` of the goal are by trial; None: it failed.
    """

    window: str | None
    jobs: int  # of a run
    values: dict[int, float | None]
    kept: list[int]  # the best first
    simulated: int  # jobs, of all runs

    @property
    def best(self) -> float | None:
        """Of those that went on."""
        return self.values[self.kept[0]] if self.kept else None


class TuneJudgement(msgspec.Struct, frozen=True, kw_only=True):
    """The winner against the default: on the whole workload, and on `repeats` of it."""

    winner: int
    default_value: float | None
    winner_value: float | None
    ratio: float | None
    low: float | None
    high: float | None
    repeats: int
    how: str
    verdict: Verdict
    simulated: int


class TuneRecord(msgspec.Struct, kw_only=True):
    """A tuning as far as it is (`tune.json`)."""

    tune: int
    name: str
    rota: str
    goal: str
    eta: int
    seed: int
    spec: Any
    axes: list[str]
    points: list[dict[str, Label]]
    trials: list[TuneTrial]
    grid: int  # jobs of all trials on the whole workload
    rungs: list[TuneRung] = []
    judgement: TuneJudgement | None = None
    use: str = ""  # the command that uses the winner
    warnings: list[str] = []
    failures: list[Failed] = []
    command: list[str] = []

    @property
    def measure(self) -> Measure:
        """The goal."""
        return BY_KEY[self.goal]

    @property
    def simulated(self) -> int:
        """Jobs of all runs."""
        judged = 0 if self.judgement is None else self.judgement.simulated
        return sum(rung.simulated for rung in self.rungs) + judged

    @property
    def winner(self) -> TuneTrial | None:
        """The best trial, once it is known."""
        return None if self.judgement is None else self.trials[self.judgement.winner]

    @property
    def verdict(self) -> str:
        """The answer: nothing that is not proven."""
        return _verdict(self)

    @property
    def cost(self) -> str:
        """How many jobs were simulated for it, in a sentence."""
        judged = 0 if self.judgement is None else self.judgement.simulated
        searched = self.simulated - judged
        text = (
            f"The search simulated {searched:,} jobs, {searched / self.grid:.0%} of those of all "
            f"{len(self.trials):,} trials on the whole workload"
        )
        return f"{text}; the last comparison {judged:,}." if judged else f"{text}."


def tune(
    tuning: TuneSpec,
    folder: Path,
    executor: RunExecutor,
    *,
    fresh: bool = False,
    command: Sequence[str] = (),
    told: Told | None = None,
    rung_told: Callable[[int, int, int], object] | None = None,
) -> TuneRecord:
    """Find the best trial, and hold it against the default.

    Args:
        tuning: What to do.
        folder: Created, or of an earlier tuning, whose runs are used where they are the same.
        executor: Carries out the runs.
        fresh: Do all runs again.
        command: For the records.
        told: Called at the beginning of each rung and after each run.
        rung_told: Called with (rung, trials, jobs of a run) at the beginning of each rung.
    """
    with SweepFolder(folder, RECORD) as place:
        if fresh:
            shutil.rmtree(folder / RUNS, ignore_errors=True)
        work = _Tuning(tuning, place, executor, command, told)
        place.write_json(RECORD, msgspec.to_builtins(work.record))
        alive = [trial.number for trial in tuning.trials]
        for number, parts in enumerate(work.rungs):
            if parts == 1:
                alive = list(dict.fromkeys([*alive, 0]))
            if rung_told:
                rung_told(number, len(alive), work.smallest // parts)
            alive = work.climb(alive, parts)
            work.write()
        work.judge(alive[0])
        work.write()
        return work.record


def rehearse(tuning: TuneSpec, scratch: Path) -> tuple[list[int], int]:
    """Check everything; into how many parts the workload is cut at each rung, and its jobs."""
    plan = make_plan(_competing(tuning.spec, tuning.trials), scratch)
    smallest = min(_size(plan, number) for number in range(len(plan.tasks)))
    return rungs_of(smallest, len(tuning.trials), tuning.eta, tuning.min_jobs), smallest


class _Tuning:
    """The state of a tuning."""

    def __init__(
        self,
        tuning: TuneSpec,
        place: SweepFolder,
        executor: RunExecutor,
        command: Sequence[str],
        told: Told | None,
    ) -> None:
        self._tuning, self._place = tuning, place
        self._executor, self._command, self._told = executor, command, told
        self._runs: set[str] = set()
        plan = self._plan([0])
        make_plan(_competing(tuning.spec, tuning.trials), place.workloads)  # all is checked now
        self._first = plan
        sizes = [_size(plan, number) for number in range(len(plan.tasks))]
        self.smallest = min(sizes)
        self.rungs = rungs_of(self.smallest, len(tuning.trials), tuning.eta, tuning.min_jobs)
        self._windows = busiest(self._workloads(), self.rungs)
        self.record = _new_record(tuning, plan, sum(sizes), command)
        if len(self.rungs) == 1:
            self.record.warnings.append(
                f"the workload has {self.smallest:,} jobs, fewer than eta x min_jobs = "
                f"{tuning.eta * tuning.min_jobs:,}: every trial runs on all of it; lower min_jobs"
            )

    def _plan(self, trials: Sequence[int], **changes: Any) -> SweepPlan:
        """These trials, in this order."""
        chosen = [self._tuning.trials[number] for number in trials]
        spec = _competing(self._tuning.spec, chosen, **changes)
        return make_plan(spec, self._place.workloads, self._command)

    def _workloads(self) -> Iterator[Workload]:
        """The whole ones, of every point and seed."""
        for task in self._first.tasks:
            yield load_again(jobs_of(task.config))

    def _run(self, plan: SweepPlan) -> tuple[SweepOutcome, int]:
        """What came out, and how many jobs were simulated that had not been before."""
        outcome = run_plan(plan, self._place, self._executor, told=self._told)
        self.record.failures += [
            failed for failed in outcome.failures if failed not in self.record.failures
        ]
        fresh = {row["run"]: row["jobs"] for row in outcome.rows if row["run"] not in self._runs}
        self._runs |= set(fresh)
        return outcome, sum(fresh.values())

    def climb(self, alive: Sequence[int], parts: int) -> list[int]:
        """Let trials compete on a part; those that go on, the best first."""
        window = self._windows[parts]
        outcome, simulated = self._run(self._plan(alive, window=window))
        values = self._values(outcome.rows, alive)
        scores = self._scores(outcome.rows, alive)
        if not scores:
            raise RotaError(f"every trial failed: {_first_failure(outcome)}")
        order = sorted(scores, key=lambda number: (scores[number], number))
        last = parts == 1
        count = 1 if last else max(1, math.ceil(len(alive) / self._tuning.eta))
        worst = scores[order[min(count, len(order)) - 1]]
        kept = order[:1] if last else [number for number in order if scores[number] <= worst]
        self.record.rungs.append(TuneRung(window, self.smallest // parts, values, kept, simulated))
        return kept

    def _by_point(self, rows: Sequence[Row]) -> list[dict[int, float | None]]:
        """The goal by trial, for every point and seed."""
        key, axes = self._tuning.goal.key, (*self.record.points[0], SEED)
        numbers = {trial.label: trial.number for trial in self._tuning.trials}
        found: dict[tuple[Label, ...], dict[int, float | None]] = {}
        for row in rows:
            point = tuple(row.get(axis) for axis in axes)
            found.setdefault(point, {})[numbers[row[POLICY]]] = row.get(key)
        return list(found.values())

    def _values(self, rows: Sequence[Row], alive: Sequence[int]) -> dict[int, float | None]:
        """The mean of the goal over points and seeds; None: it failed somewhere."""
        points = self._by_point(rows)
        found: dict[int, float | None] = {}
        for number in alive:
            known = [value for point in points if (value := point.get(number)) is not None]
            found[number] = fmean(known) if points and len(known) == len(points) else None
        return found

    def _scores(self, rows: Sequence[Row], alive: Sequence[int]) -> dict[int, float]:
        """Less is better, and every point counts as much as the others; none of who failed."""
        points = self._by_point(rows)
        scales = [
            fmean([abs(value) for value in point.values() if value is not None] or [0.0])
            for point in points
        ]
        sign = -1.0 if self._tuning.goal.better == "more" else 1.0
        found = {}
        for number in alive:
            parts = [
                sign * value / scale if scale else 0.0
                for point, scale in zip(points, scales, strict=True)
                if (value := point.get(number)) is not None
            ]
            if points and len(parts) == len(points):
                found[number] = fmean(parts)
        return found

    # --- the winner against the default ---------------------------------------------------------

    def judge(self, winner: int) -> None:
        """Run both on the whole workload and on repeats of it."""
        both = list(dict.fromkeys([0, winner]))
        outcome, simulated = self._run(self._plan(both))
        self.record.warnings += [
            text for text in outcome.warnings if text not in self.record.warnings
        ]
        values = self._values(outcome.rows, both)
        pairs: list[tuple[float, float]] = []
        how = "nothing was repeated"
        if winner and self._tuning.repeats:
            pairs, more, how = self._repeat(both)
            simulated += more
        found = ratio_interval([one for one, _ in pairs], [other for _, other in pairs])
        if found.ratio is None and values[0] and values[winner] is not None:
            found = Ratio(values[winner] / values[0])  # type: ignore[operator]  # both are known
        self.record.judgement = TuneJudgement(
            winner=winner, default_value=values[0], winner_value=values[winner],
            ratio=found.ratio, low=found.low, high=found.high, repeats=len(pairs), how=how,
            verdict=_judged(winner, found, self._tuning.goal), simulated=simulated,
        )  # fmt: skip
        self.record.use = self._use(winner)

    def _repeat(self, both: Sequence[int]) -> tuple[list[tuple[float, float]], int, str]:
        """The goal of the default and the winner on jobs that did not choose it."""
        drawn = {
            cell.workload.name
            for cell, task in zip(self._first.cells, self._first.tasks, strict=True)
            if is_drawn(task.config.trace)
        }
        fresh, how_fresh = self._anew(both, drawn)
        parts, how_parts = self._in_parts(both, drawn)
        pairs, simulated = [], 0
        for plan in (*fresh, *parts):
            outcome, more = self._run(plan)
            simulated += more
            for point in self._by_point(outcome.rows):
                one, other = (point.get(number) for number in both)
                if one is not None and other is not None:
                    pairs.append((one, other))
        return pairs, simulated, " and ".join(filter(None, [how_fresh, how_parts]))

    def _anew(self, both: Sequence[int], drawn: set[str]) -> tuple[list[SweepPlan], str]:
        """With fresh seeds, where each draws jobs of its own."""
        spec, repeats = self._tuning.spec, self._tuning.repeats
        entries = [entry for entry in spec.workloads if entry.name in drawn]
        if not entries:
            return [], ""
        seeds = [max(spec.seeds) + 1 + number for number in range(repeats)]
        return [self._plan(both, workloads=entries, seeds=seeds)], f"{repeats} fresh seeds"

    def _in_parts(self, both: Sequence[int], drawn: set[str]) -> tuple[list[SweepPlan], str]:
        """On consecutive parts of a file."""
        spec, min_jobs = self._tuning.spec, self._tuning.min_jobs
        entries = [entry for entry in spec.workloads if entry.name not in drawn]
        if not entries:
            return [], ""
        count = min(self._tuning.repeats, self.smallest // min_jobs)
        if count < LEAST_PARTS:
            return [], f"the workload is too short for {LEAST_PARTS} parts of {min_jobs:,} jobs"
        plans = [
            self._plan(
                both, workloads=entries, seeds=spec.seeds[:1], window=f"{number + 1}/{count}"
            )
            for number in range(count)
        ]
        return plans, f"{count} consecutive parts of the workload"

    def _use(self, winner: int) -> str:
        """The command line that runs the winner, at the first point."""
        task, cell = self._plan([winner]).tasks[0], self._first.cells[0]
        base = self._tuning.spec.source.base
        entry, config = cell.workload, task.config
        said = {**config.as_dict(), **cell.options, **self._tuning.trials[winner].options}
        words = ["rota", "simulate", config.trace if entry.file is None else str(base / entry.file)]
        for key in config.as_dict():
            if key in _NOT_TYPED:
                continue
            value = said[key]
            for one in value if isinstance(value, (list, tuple)) else [value]:
                flag = f"--{key.replace('_', '-')}"
                words += [flag] if one is True else [flag, _from_here(str(one), base)]
        return shlex.join([*words, "-o", "best"])

    def write(self) -> None:
        """What is known so far."""
        self._place.write(TRIALS, trials_table(self.record).write_csv().encode())
        self._place.write_json(RECORD, msgspec.to_builtins(self.record))


_NOT_TYPED = ("trace", "window", "outages")


def _from_here(text: str, base: Path) -> str:
    """An option whose file, if it names one, is found from the present folder."""
    head, colon, rest = text.partition(":")
    if "." in head and (base / head).is_file():
        head = str(base / head)
    return head + colon + rest


def rungs_of(jobs: int, trials: int, eta: int, min_jobs: int) -> list[int]:
    """Into how many parts the workload is divided at each rung; the last has all of it.

    No part has fewer than `min_jobs`, and there are no more rungs than it takes to leave one trial.
    """
    parts = [1]
    while jobs // (parts[0] * eta) >= min_jobs and parts[0] < trials:
        parts.insert(0, parts[0] * eta)
    return parts


def trials_table(record: TuneRecord) -> pl.DataFrame:
    """A row per trial: its values, how far it came, and the goal at each rung."""
    rows = []
    for trial in record.trials:
        reached = [rung for rung in record.rungs if trial.number in rung.values]
        row: dict[str, Any] = {
            "trial": trial.number,
            **trial.values,
            "policy": trial.options["policy"],
        }
        row |= {"rungs": len(reached), "fate": _fate(record, trial.number)}
        for number, rung in enumerate(record.rungs):
            row[f"rung_{number}_{record.goal}"] = rung.values.get(trial.number)
        rows.append(
            {
                key: str(value) if key in trial.values and value is not None else value
                for key, value in row.items()
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None)


def _fate(record: TuneRecord, trial: int) -> str:
    if record.judgement is not None and record.judgement.winner == trial:
        return "winner"
    for number, rung in enumerate(record.rungs):
        if trial in rung.values and rung.values[trial] is None:
            return "failed"
        if trial in rung.values and trial not in rung.kept:
            return f"stopped at rung {number}" if trial else "default"
    return "goes on"


def load_tune(folder: Path) -> TuneRecord:
    """What is in the folder of a tuning, finished or not.

    Raises:
        InputError: It is no folder of a tuning.
    """
    try:
        record = msgspec.convert(read_json(folder, RECORD, "rota tune"), TuneRecord, str_keys=True)
    except msgspec.ValidationError as error:
        raise InputError(f"{folder / RECORD}: is not a tuning of this Rota ({error})") from error
    if record.tune != VERSION:
        raise InputError(f"{folder / RECORD}: version {record.tune}, this Rota reads {VERSION}")
    return record


# --- specs and sizes ------------------------------------------------------------------------------


def _competing(
    spec: Spec,
    trials: Sequence[TuneTrial],
    *,
    window: str | None = None,
    **changes: Any,
) -> Spec:
    """The sweep of these trials."""
    choices = [Choice(trial.label, trial.options) for trial in trials]
    options = spec.options if window is None else {**spec.options, "window": window}
    return msgspec.structs.replace(
        spec, policies=choices, parameters={}, baseline=choices[0].label, options=options, **changes
    )


def busiest(workloads: Iterable[Workload], rungs: Sequence[int]) -> dict[int, str | None]:
    """The part with the most work for its time, as a window, for every number of parts.

    Where queues are long, trials differ most. A job counts no more than the time of its part.
    """
    load: dict[int, Floats] = {parts: np.zeros(parts) for parts in rungs}
    for workload in workloads:
        submit_s = np.asarray(fields(workload.specs, "submit_s"))
        order = np.argsort(submit_s, kind="stable")
        gpus = np.array([_gpus(request) for request in fields(workload.specs, "request")])
        work_s = np.asarray(fields(workload.behaviours, "work"))
        for parts, sums in load.items():
            for number, chosen in enumerate(np.array_split(order, parts)):
                span_s = max(float(submit_s[chosen[-1]] - submit_s[chosen[0]]), 1.0)
                gpu_s = float((gpus[chosen] * np.minimum(work_s[chosen], span_s)).sum())
                sums[number] += gpu_s / span_s
    return {
        parts: None if parts == 1 else f"{int(np.argmax(sums)) + 1}/{parts}"
        for parts, sums in load.items()
    }


def _gpus(request: Request) -> float:
    return ordered_sum(group.count * group.gpus for group in request.groups)


def _size(plan: SweepPlan, number: int) -> int:
    """Jobs of a run."""
    config = plan.tasks[number].config
    if is_generated(config.trace):
        return amount_of(config.trace)
    return len(load_again(jobs_of(config)))


def _new_record(tuning: TuneSpec, plan: SweepPlan, jobs: int, command: Sequence[str]) -> TuneRecord:
    points = [
        {axis: label for axis, label in cell.labels.items() if axis not in (POLICY, SEED)}
        for cell in plan.cells
    ]
    return TuneRecord(
        tune=VERSION,
        name=tuning.spec.name,
        rota=code_version(),
        goal=tuning.goal.key,
        eta=tuning.eta,
        seed=tuning.seed,
        spec=tuning.spec.source.data,
        axes=[axis.name for axis in tuning.axes],
        points=[point for number, point in enumerate(points) if point not in points[:number]],
        trials=tuning.trials,
        grid=jobs * len(tuning.trials),
        command=list(command),
    )


def _first_failure(outcome: SweepOutcome) -> str:
    return outcome.failures[0].describe() if outcome.failures else "no run has a value of the goal"


# --- the verdict ----------------------------------------------------------------------------------


def _judged(winner: int, found: Ratio, goal: Measure) -> Verdict:
    if not winner:
        return "default"
    if found.low is None or found.high is None:
        return "unproven"
    if found.low <= 1.0 <= found.high:
        return "unclear"
    less = found.high < 1.0
    return "better" if less == (goal.better == "less") else "worse"


def _verdict(record: TuneRecord) -> str:
    found, winner = record.judgement, record.winner
    if found is None or winner is None:
        return f"Not finished: {len(record.rungs)} rungs are done; the same command goes on."
    label = record.measure.label
    times = "-" if found.ratio is None else f"{found.ratio:.3f}"
    if found.low is not None and found.high is not None:
        times += f" [{found.low:.3f}, {found.high:.3f}]"
    ratio = f"its {label} is {times} times the default's ({found.how})"
    whole = ""
    if found.default_value and found.winner_value is not None:
        whole = f" with {found.winner_value / found.default_value:.3f} times the default's {label}"
    return {
        "default": f"No trial is better than the default, {winner.label}.",
        "better": f"{winner.label} is better than the default: {ratio}.",
        "worse": (
            f"{winner.label} won the search{whole}, but is worse than the default in repeats: "
            f"{ratio}. Keep the default."
        ),
        "unclear": (
            f"No more than noise is proven: {winner.label} won the search{whole}, but in repeats "
            f"{ratio}. Keep the default, or try it with more jobs."
        ),
        "unproven": (
            f"{winner.label} won the search; nothing is proven about other jobs: {ratio}."
        ),
    }[found.verdict]
