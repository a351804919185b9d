"""Several policies on the same workload, side by side; the first is the baseline.

A *replication* is a pair of a seed and a window of the trace, and every policy runs once in each.
Common random numbers: failures, wrong estimates, random placements and a generated workload depend
on the seed, the window and the job or node, never on what a policy decides, so all policies meet
the same fate and are compared replication by replication (`measures`, `statistics`).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import blake2b, sha256
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rota.core.errors import ClusterSpecError, OptionError, RotaError, TraceError
from rota.core.workload import Workload
from rota.metrics import Window
from rota.metrics.fairness import finish_time_fairness, slowdowns
from rota.metrics.history import read_history
from rota.metrics.ledger import lost_work_s
from rota.metrics.vocabulary import MEASURES
from rota.study.assumptions import tabulate
from rota.study.build import build
from rota.study.compare_file import COMPARE, PolicyComparison, PolicyRow, RunOf, write_comparison
from rota.study.config import RunConfig
from rota.study.folder import RUN_FILES
from rota.study.measures import Arm, draw, mean_of, measure_all
from rota.study.notes import describe_method, find_notes
from rota.study.output import write_run
from rota.study.pool import each, report
from rota.study.run import RunResult, simulate
from rota.study.statistics import LEVEL
from rota.study.workloads import draw_ahead, is_drawn, jobs_of, load_again

REPORT = "report.html"
LONGEST_LABEL = 80
FLAT = (
    "avg_jct_s", "p50_jct_s", "p95_jct_s", "p99_jct_s", "avg_wait_s", "makespan_s",
    "gpu_utilisation", "preemptions", "completed", "censored", "jobs",
)  # fmt: skip

Told = Callable[[float, int], object]
"""Called with (finished runs, with the parts of those in progress; runs in all)."""


Draw = Callable[[Path, str, Mapping[str, Any]], Any]
"""Called where a run was made with its folder, policy and summary; gives what can be sent."""


class Pictures:
    """What a page shows of the first run of every policy, drawn where it ran, by its folder."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.of: dict[str, Any] = {}


class CompareTask(msgspec.Struct, frozen=True):
    """One run to do. `keep`: its jobs are wanted, not only its summary; `draw`: and resampled.

    `picture`: draws it, see `Pictures`.
    """

    label: str
    config: RunConfig
    folder: Path
    command: Sequence[str]
    keep: bool
    draw: bool
    picture: Draw | None = None


class CompareOutcome(msgspec.Struct, frozen=True):
    """What a run gave. `schedule`: the same for runs in which all jobs met the same fate.

    `drawn`: see `measures.Arm`.
    """

    summary: dict[str, Any]
    warnings: list[str]
    jobs: dict[str, Any]
    schedule: str
    drawn: dict[str, Any]
    picture: Any = None


def compare(  # noqa: PLR0913 - what a comparison may be asked
    config: RunConfig,
    policies: Sequence[str],
    folder: Path,
    *,
    repeat: int = 1,
    windows: int = 1,
    workers: int | None = 1,
    command: Sequence[str] = (),
    told: Told | None = None,
    pictures: Pictures | None = None,
) -> PolicyComparison:
    """Run every policy in every replication; writes a folder per run, and compare.json.

    If a run fails, so does the comparison, with an error that names the run.

    Args:
        config: The run; its policy, seed and window are replaced.
        policies: At least one; the first is the baseline.
        folder: Exists; receives the results.
        repeat: Seeds per policy: the one of `config` and those after it.
        windows: Parts into which the trace is cut (see `workloads`), each run on its own.
        workers: Processes to run in; 1: in this one; None: as many as there are cores.
        command: The command line, for the manifests.
        told: Called from time to time.
        pictures: Receives what it draws of the runs.
    """
    tasks = _plan(config, policies, folder, command, repeat=repeat, windows=windows)
    if pictures is not None:
        tasks = [
            msgspec.structs.replace(task, picture=pictures.draw) if task.keep else task
            for task in tasks
        ]
    _check(config, policies)
    outcomes = dict(_run(tasks, workers, told))
    if pictures is not None:
        pictures.of |= {tasks[i].label: outcomes[i].picture for i in outcomes if tasks[i].keep}
    ordered = sorted(range(len(tasks)), key=lambda i: policies.index(tasks[i].config.policy))
    comparison = _conclude(
        config, policies, [tasks[i] for i in ordered], [outcomes[i] for i in ordered]
    )
    write_comparison(comparison, folder)
    return comparison


def own_files(folder: Path) -> list[str]:
    """What an earlier comparison wrote into a folder."""
    own = [COMPARE, REPORT]
    try:
        data = msgspec.json.decode((folder / COMPARE).read_bytes())
        runs = [str(run["folder"]) for run in data["runs"]]
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        runs = []
    return own + [
        f"{run}/{name}" for run in runs if re.fullmatch(r"[\w.=+-]+", run) for name in RUN_FILES
    ]


# --- planning ------------------------------------------------------------------------------------


def _plan(
    config: RunConfig,
    policies: Sequence[str],
    folder: Path,
    command: Sequence[str],
    *,
    repeat: int,
    windows: int,
) -> list[CompareTask]:
    """All runs; those on the same jobs follow each other."""
    if not policies:
        raise OptionError("there is no policy to compare: name one or more")
    twice = [policy for policy in dict.fromkeys(policies) if policies.count(policy) > 1]
    if twice:
        raise OptionError(f"named twice: {', '.join(twice)}: give every policy once")
    if windows > 1 and (config.measure or "").startswith("ids="):
        raise OptionError(
            f"measure {config.measure}: the same ids are not in every window: use after=T, "
            f"in seconds from the beginning of each window, or leave --windows out"
        )
    taken: set[str] = set()
    labels = {policy: _label(policy, taken) for policy in policies}
    tasks = []
    for window, turn in product(range(1, windows + 1), range(repeat)):
        for policy in policies:
            run = msgspec.structs.replace(config, policy=policy, seed=config.seed + turn)
            label = labels[policy]
            if windows > 1:
                run = msgspec.structs.replace(run, window=f"{window}/{windows}")
                label += f"-window{window}"
            if repeat > 1:
                label += f"-seed{run.seed}"
            first = window == 1 and turn == 0
            alone = windows == repeat == 1 and len(policies) > 1
            tasks.append(CompareTask(label, run, folder / label, command, first, alone))
    return tasks


def _label(policy: str, taken: set[str]) -> str:
    """A folder name for a policy."""
    plain = re.sub(r"[^A-Za-z0-9.=+-]+", "_", policy).strip("._") or "policy"
    if len(plain) > LONGEST_LABEL:  # file systems allow 255 bytes
        plain = f"{sha256(policy.encode()).hexdigest()[:8]}-{plain[-LONGEST_LABEL:]}"
    label, number = plain, 2
    while label in taken:
        label, number = f"{plain}-{number}", number + 1
    taken.add(label)
    return label


def _check(config: RunConfig, policies: Sequence[str]) -> None:
    """A wrong option is refused before anything runs for long."""
    for policy in policies:
        build(msgspec.structs.replace(config, policy=policy), Workload([], []))


# --- running -------------------------------------------------------------------------------------


def _run(
    tasks: Sequence[CompareTask], workers: int | None, told: Told | None
) -> Iterator[tuple[int, CompareOutcome]]:
    done = None if told is None else lambda runs: told(runs, len(tasks))
    draw_ahead(task.config for task in tasks)
    with closing(each(_one, tasks, workers, told=done)) as found:
        for number, outcome in found:
            if isinstance(outcome, Exception):
                named = _named(outcome, tasks[number])
                raise named from (None if named is outcome else outcome)
            yield number, outcome


def _named(error: Exception, task: CompareTask) -> Exception:
    """The same error; it says which run it is about."""
    if isinstance(error, (TraceError, ClusterSpecError)):
        return error  # it is about all of them
    if isinstance(error, RotaError):
        return type(error)(f"run {task.label} (policy {task.config.policy}): {error}")
    error.add_note(f"in run {task.label} (policy {task.config.policy})")
    return error


def _one(task: CompareTask) -> CompareOutcome:
    workload = load_again(jobs_of(task.config))
    result = simulate(task.config, report, workload=workload)
    task.folder.mkdir()
    summary = write_run(result, task.folder, task.command)
    jobs = _jobs(result) if task.keep else {}
    drawn = draw(jobs) if task.draw else {}
    picture = None
    if task.picture is not None:
        picture = task.picture(task.folder, task.config.policy, summary)
    return CompareOutcome(summary, result.warnings, jobs, _schedule(result), drawn, picture)


def _schedule(result: RunResult) -> str:
    """A digest of when jobs started and ended."""
    columns = ("first_start_s", "end_s", "service_gpu_s", "preemptions", "migrations", "state")
    text = result.jobs.select(columns).write_csv(float_precision=6)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _jobs(result: RunResult) -> dict[str, Any]:
    """What single jobs met; NaN for those that are in no average."""
    jobs = result.jobs
    window = Window.parse(result.config.measure) if result.config.measure else Window()
    counts = window.chooses(jobs) & (jobs["state"] == "done").to_numpy()
    history = read_history(result.log)
    lost_s = lost_work_s(history)
    gpus, end_s = float(history.nodes.gpus.sum()), history.end_s
    columns = {
        "jct_s": jobs["jct_s"].to_numpy(),
        "wait_s": jobs["wait_s"].to_numpy(),
        "slowdown": slowdowns(jobs, lost_s),
        "rho": finish_time_fairness(jobs, gpus, end_s, lost_s),
    }
    return {name: np.where(counts, column, np.nan) for name, column in columns.items()}


# --- what came out -------------------------------------------------------------------------------


def _conclude(
    config: RunConfig,
    policies: Sequence[str],
    tasks: Sequence[CompareTask],
    outcomes: Sequence[CompareOutcome],
) -> PolicyComparison:
    runs = [
        RunOf(
            policy=task.config.policy,
            folder=task.label,
            seed=task.config.seed,
            window=_window(task.config),
            warnings=outcome.warnings,
            summary=outcome.summary,
        )
        for task, outcome in zip(tasks, outcomes, strict=True)
    ]
    units = _units(runs, generated=is_drawn(config.trace))
    arms = {}
    for policy in policies:
        own = [run for run in runs if run.policy == policy]
        kept = next(o for t, o in zip(tasks, outcomes, strict=True) if _is(t, policy))
        in_units = [units[run.seed, run.window] for run in own]
        arms[policy] = Arm([run.summary for run in own], in_units, kept.jobs, kept.drawn)
    rows = [_row(policy, arms, policies[0]) for policy in policies]
    schedules: dict[str, tuple[str, ...]] = {
        policy: tuple(o.schedule for t, o in zip(tasks, outcomes, strict=True)
                      if t.config.policy == policy)
        for policy in policies
    }  # fmt: skip
    return PolicyComparison(
        trace=config.trace,
        cluster=config.cluster,
        baseline=policies[0],
        seeds=sorted({run.seed for run in runs}),
        windows=sorted({run.window for run in runs if run.window is not None}),
        level=LEVEL,
        method=describe_method(runs, units),
        measures=list(MEASURES),
        rows=rows,
        assumptions=tabulate(
            {policy: arm.summaries[0]["assumptions"] for policy, arm in arms.items()},
            {p: any(one["preemptions"] for one in arm.summaries) for p, arm in arms.items()},
        ),
        runs=runs,
        notes=find_notes(rows, runs, units, schedules),
    )


def _is(task: CompareTask, policy: str) -> bool:
    return task.keep and task.config.policy == policy


def _window(config: RunConfig) -> int | None:
    return None if config.window is None else int(config.window.partition("/")[0])


def _row(policy: str, arms: Mapping[str, Arm], baseline: str) -> PolicyRow:
    arm = arms[policy]
    measures = measure_all(arms[baseline], arm, arms.values())
    jct = measures["avg_jct_s"]
    interval = None if jct.low is None or jct.high is None else (jct.low, jct.high)
    flat = {key: mean_of([summary[key] for summary in arm.summaries]) for key in FLAT}
    return PolicyRow(
        policy=policy,
        knowledge=arm.summaries[0]["assumptions"]["knowledge"],
        runs=len(arm.summaries),
        ratio=jct.ratio,
        interval=interval,
        measures=measures,
        delay=_delay(arm),
        **flat,
    )


def _delay(arm: Arm) -> dict[str, float]:
    """Seconds per completed job by reason."""
    completed = sum(summary["completed"] for summary in arm.summaries)
    return {
        reason: sum(summary["delay"][reason] for summary in arm.summaries) / max(completed, 1)
        for reason in arm.summaries[0]["delay"]
    }


def _units(runs: Sequence[RunOf], *, generated: bool) -> dict[tuple[int, int | None], int]:
    """The number of the independent unit that each replication belongs to."""
    seeds = sorted({run.seed for run in runs})
    by_seed = len(seeds) > 1 and (generated or runs[0].window is None)
    if by_seed and _same(runs):
        by_seed = False
    return {
        (run.seed, run.window): seeds.index(run.seed) if by_seed else run.window or 0
        for run in runs
    }


def _same(runs: Sequence[RunOf]) -> bool:
    """The seed made no difference to any number of any policy."""
    found: dict[tuple[str, int | None], set[tuple[Any, ...]]] = {}
    for run in runs:
        values = tuple(run.summary.get(measure.key) for measure in MEASURES)
        found.setdefault((run.policy, run.window), set()).add(values)
    return all(len(values) == 1 for values in found.values())
