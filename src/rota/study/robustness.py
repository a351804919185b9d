"""How much policies depend on what makes the world rough: one thing is varied, all else stays.

What can be varied is the error of estimates, the time between failures of nodes, or the costs of
starting, stopping and moving. Every policy runs at every level under the same seeds, so that all of
them meet the same jobs, the same errors (one factor per job, see `rough`) and, at a level, the same
failures. A policy is compared with itself at the first level, seed by seed.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import polars as pl

from rota.core.errors import InputError, OptionError, RotaError
from rota.metrics.vocabulary import MEASURES
from rota.study.assumptions import tabulate
from rota.study.compare_file import Assumption
from rota.study.config import RunConfig, parse_estimate_error
from rota.study.notes import NOBODY_WAITED, RAISE_LOAD, few_note
from rota.study.output import dump
from rota.study.pool import each, report
from rota.study.run import simulate
from rota.study.statistics import ratio_interval
from rota.study.workloads import draw_ahead, is_generated, jobs_of, load_again

CURVE, TABLE, PICTURE, PAGE = "curve.csv", "robust.json", "curve.svg", "report.html"
FILES = (CURVE, TABLE, PICTURE, PAGE)
"""Everything that is written."""
ERROR, FAILURES, COSTS = "estimate-error", "mtbf", "costs"
VARIED = {ERROR: "estimate error", FAILURES: "failures", COSTS: "costs"}
"""What each of them is called among the assumptions."""

Told = Callable[[float, int], object]
"""Told (runs that are over, with the parts of those that are going on; runs in all)."""


class Axis(msgspec.Struct, frozen=True):
    """What is varied, its levels as the user wrote them, and the options that each stands for."""

    kind: str
    levels: tuple[str, ...]
    changes: tuple[dict[str, Any], ...]

    @property
    def places(self) -> list[float]:
        """Where the levels are on an axis: errors by their size, all else side by side."""
        if self.kind == ERROR:
            return [float(level.partition("=")[2]) for level in self.levels]
        return [float(number) for number in range(len(self.levels))]


class CurvePoint(msgspec.Struct, frozen=True):
    """A policy at a level: the mean over the seeds, its range, and the ratio to the first level.

    `low` and `high` are the 95 % interval of the ratio; None where there is one seed only.
    """

    level: str
    place: float
    mean: float | None
    least: float | None
    most: float | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None


class RobustLine(msgspec.Struct, frozen=True):
    """A policy at all levels."""

    policy: str
    knowledge: str
    spots: list[CurvePoint]


class Curves(msgspec.Struct, frozen=True):
    """All policies at all levels."""

    by: str
    axis: Axis
    seeds: list[int]
    lines: list[RobustLine]
    warnings: list[str]
    assumptions: list[Assumption] = []
    notes: list[str] = []
    command: list[str] = []

    def table(self) -> pl.DataFrame:
        """A row per policy and level."""
        return pl.DataFrame(
            [
                {"policy": line.policy, **msgspec.structs.asdict(spot)}
                for line in self.lines
                for spot in line.spots
            ],
            infer_schema_length=None,
        )


# --- what is varied -------------------------------------------------------------------------------


def vary(
    *, estimate_error: str | None = None, mtbf: str | None = None, mttr: float | None = None,
    costs: str | None = None,
) -> tuple[Axis, dict[str, Any]]:  # fmt: skip
    """What is varied, and the options that are the same everywhere.

    Args:
        estimate_error: `cv=0,0.5,1`, or `bias=...`; a single level is the same everywhere.
        mtbf: `inf,1000,200`: hours between failures of a node.
        mttr: Hours to repair it.
        costs: `zero,suspend,...`.
    """
    axes = [
        axis
        for axis in (_errors(estimate_error), _failures(mtbf, mttr), _costs(costs))
        if axis is not None
    ]
    varied = [axis for axis in axes if len(axis.levels) > 1]
    if len(varied) != 1:
        what = ", ".join(f"--{axis.kind}" for axis in varied) or "nothing"
        raise OptionError(
            f"{what} has several levels: give them to exactly one of --estimate-error, --mtbf and "
            f"--costs, e.g. --estimate-error cv=0,0.5,1"
        )
    fixed = {
        key: value
        for axis in axes
        if axis is not varied[0]
        for key, value in axis.changes[0].items()
    }
    return varied[0], fixed


def _errors(text: str | None) -> Axis | None:
    """`cv=0,0.5,1,bias=0.1` is three levels of cv, all with this bias."""
    if text is None:
        return None
    values: dict[str, list[str]] = {}
    key = ""
    for part in text.split(","):
        name, equals, value = part.partition("=")
        key = name.strip() if equals else key
        values.setdefault(key, []).append((value if equals else name).strip())
    several = [key for key, found in values.items() if len(found) > 1] or [next(iter(values))]
    if len(several) > 1 or "" in values:
        raise OptionError(
            f"estimate-error {text!r} is not understood: write e.g. cv=0,0.5,1 or bias=0,0.2,0.4"
        )
    (main,) = several
    rest = [f"{key}={found[0]}" for key, found in values.items() if key != main]
    levels = tuple(f"{main}={value}" for value in values[main])
    changes = tuple({"estimate_error": ",".join([level, *rest])} for level in levels)
    for change in changes:
        parse_estimate_error(change["estimate_error"])
    return _axis(ERROR, levels, changes)


def _failures(text: str | None, mttr: float | None) -> Axis | None:
    if text is None:
        return None
    levels = tuple(part.strip() for part in text.split(","))
    changes: list[dict[str, Any]] = []
    for level in levels:
        hours = _hours(level)
        if not hours > 0:
            raise OptionError(
                f"mtbf {text!r}: {level!r} is not a time: give hours above 0 (inf: no failures)"
            )
        if hours == math.inf:
            changes.append({"mtbf": None, "mttr": None})
        elif mttr is None:
            raise OptionError("mtbf and mttr belong together: give both, in hours")
        else:
            changes.append({"mtbf": hours, "mttr": mttr})
    return _axis(FAILURES, levels, changes)


def _hours(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _costs(text: str | None) -> Axis | None:
    """Commas divide levels, and parameters of a level: `zero,custom:start_s=1,stop_s=2` are two."""
    if text is None:
        return None
    levels: list[str] = []
    for part in text.split(","):
        if "=" in part and ":" not in part and levels:
            levels[-1] += f",{part.strip()}"
        else:
            levels.append(part.strip())
    return _axis(COSTS, tuple(levels), [{"costs": level} for level in levels])


def _axis(kind: str, levels: Sequence[str], changes: Sequence[dict[str, Any]]) -> Axis:
    twice = sorted({level for level in levels if levels.count(level) > 1})
    if twice or "" in levels:
        raise OptionError(f"{kind}: {', '.join(twice) or 'an empty level'}: give every level once")
    return Axis(kind, tuple(levels), tuple(changes))


# --- running --------------------------------------------------------------------------------------


class LevelOutcome(msgspec.Struct, frozen=True):
    """One run."""

    values: dict[str, float | None]
    assumptions: dict[str, Any]
    warnings: list[str]


def trace_curves(  # noqa: PLR0913 - the options of a study
    config: RunConfig,
    policies: Sequence[str],
    axis: Axis,
    folder: Path,
    *,
    by: str = "avg_jct_s",
    repeat: int = 1,
    workers: int | None = None,
    told: Told | None = None,
    command: Sequence[str] = (),
) -> Curves:
    """Run every policy at every level under every seed; writes the table and its data.

    Args:
        config: The run; policy, level and seed are replaced.
        policies: At least one.
        axis: What is varied.
        folder: Exists; receives curve.csv (a row per run) and robust.json (a row per level).
        by: The measure, a key of `MEASURES`.
        repeat: Seeds, from the seed of the run on.
        workers: Processes.
        told: Told from time to time.
        command: That asks for it, for who reads the results.
    """
    _check(by, policies)
    seeds = [config.seed + turn for turn in range(repeat)]
    cells = [(policy, i, seed) for policy in policies for seed in seeds
             for i in range(len(axis.levels))]  # fmt: skip
    runs = [
        msgspec.structs.replace(config, policy=policy, seed=seed, **axis.changes[i])
        for policy, i, seed in cells
    ]
    outcomes: dict[tuple[str, int, int], LevelOutcome] = {}
    done = None if told is None else lambda count: told(count, len(runs))
    draw_ahead(runs)
    with closing(each(_one, runs, workers, told=done)) as results:
        for number, found in results:
            policy, i, _ = cells[number]
            if isinstance(found, Exception):
                raise _named(found, f"policy {policy} at {axis.kind} {axis.levels[i]}")
            outcomes[cells[number]] = found
    curves = Curves(
        by=by,
        axis=axis,
        seeds=seeds,
        lines=[_line(policy, axis, seeds, by, outcomes) for policy in policies],
        warnings=_warnings({cell: outcomes[cell] for cell in cells}),
        assumptions=_assumptions(policies, axis, seeds, outcomes),
        notes=[*_idle(axis, outcomes), *_notes(config, axis, seeds)],
        command=list(command),
    )
    _write(curves, cells, outcomes, folder)
    return curves


def load_curves(folder: Path) -> Curves:
    """What `trace_curves` wrote.

    Raises:
        InputError: It is no such folder.
    """
    path = folder / TABLE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Curves)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}): name a folder that `rota robust` made"
        ) from error
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: is not a table of this Rota ({error})") from error


def _check(by: str, policies: Sequence[str]) -> None:
    known = [measure.key for measure in MEASURES]
    if by not in known:
        raise OptionError(f"there is no measure {by!r}: use one of {', '.join(known)}")
    twice = [policy for policy in dict.fromkeys(policies) if policies.count(policy) > 1]
    if twice:
        raise OptionError(f"named twice: {', '.join(twice)}: give every policy once")


def _one(config: RunConfig) -> LevelOutcome:
    result = simulate(config, report, workload=load_again(jobs_of(config)))
    values = {measure.key: result.summary.get(measure.key) for measure in MEASURES}
    return LevelOutcome(values, result.assumptions, result.warnings)


def _named(error: Exception, what: str) -> Exception:
    """The same error; it says which run it is about."""
    if isinstance(error, RotaError):
        return type(error)(f"{what}: {error}")
    error.add_note(f"in the run of {what}")
    return error


def _warnings(outcomes: dict[tuple[str, int, int], LevelOutcome]) -> list[str]:
    """Each of them once, with the policy that it is about."""
    found = {
        f"{cell[0]}: {text}" for cell, outcome in outcomes.items() for text in outcome.warnings
    }
    return sorted(found)


# --- what came out --------------------------------------------------------------------------------


def _line(
    policy: str,
    axis: Axis,
    seeds: Sequence[int],
    by: str,
    outcomes: dict[tuple[str, int, int], LevelOutcome],
) -> RobustLine:
    spots = []
    first: list[float | None] = []
    for i, level in enumerate(axis.levels):
        values = [outcomes[policy, i, seed].values[by] for seed in seeds]
        first = first or values
        known = [value for value in values if value is not None]
        pairs = [
            (a, b) for a, b in zip(first, values, strict=True) if a is not None and b is not None
        ]
        if len(set(pairs)) == 1:
            pairs = pairs[:1]  # seeds change nothing here: there is no interval, not a narrow one
        ratio = ratio_interval([a for a, _ in pairs], [b for _, b in pairs])
        spots.append(
            CurvePoint(
                level=level,
                place=axis.places[i],
                mean=fmean(known) if known else None,
                least=min(known, default=None),
                most=max(known, default=None),
                ratio=ratio.ratio,
                low=ratio.low,
                high=ratio.high,
            )
        )
    knowledge = str(outcomes[policy, 0, seeds[0]].assumptions["knowledge"])
    return RobustLine(policy, knowledge, spots)


def _assumptions(
    policies: Sequence[str],
    axis: Axis,
    seeds: Sequence[int],
    outcomes: dict[tuple[str, int, int], LevelOutcome],
) -> list[Assumption]:
    """Those of a comparison, without what is varied."""
    preempted = {
        policy: any(
            outcomes[policy, i, seed].values["preemptions"]
            for i in range(len(axis.levels))
            for seed in seeds
        )
        for policy in policies
    }
    last = len(axis.levels) - 1  # the roughest: the first may be without failures
    facts = {policy: outcomes[policy, last, seeds[0]].assumptions for policy in policies}
    return [one for one in tabulate(facts, preempted) if one.key != VARIED[axis.kind]]


def _idle(axis: Axis, outcomes: dict[tuple[str, int, int], LevelOutcome]) -> list[str]:
    """That nobody waits at some levels: what policies do is the same there."""
    waits = [0.0] * len(axis.levels)
    for (_, i, _), outcome in outcomes.items():
        waits[i] += outcome.values["avg_wait_s"] or 0.0
    idle = [level for level, wait_s in zip(axis.levels, waits, strict=True) if not wait_s]
    return [f"{NOBODY_WAITED} at {axis.kind} {', '.join(idle)}: {RAISE_LOAD}"] if idle else []


def _notes(config: RunConfig, axis: Axis, seeds: Sequence[int]) -> list[str]:
    """What a careful reader must know."""
    levels = ", ".join(axis.levels)
    notes = [f"varied: {axis.kind} ({levels}); a ratio is to the first of them, of the same policy"]
    if len(seeds) == 1:
        notes.append("one run per level proves nothing about others: add --repeat N (seeds)")
    else:
        notes.append(
            "a ratio is the typical one (geometric mean) of the ratios seed by seed, and each "
            "interval is at 95 % on its own: of many, one in twenty excludes 1 by chance"
        )
        notes += few_note(len(seeds), "seeds")
    if not is_generated(config.trace):
        notes.append("the jobs are the same in all runs: other workloads may show something else")
    return notes


def _write(
    curves: Curves,
    cells: Sequence[tuple[str, int, int]],
    outcomes: dict[tuple[str, int, int], LevelOutcome],
    folder: Path,
) -> None:
    rows = [
        {
            "policy": policy,
            curves.axis.kind: curves.axis.levels[i],
            "seed": seed,
            **outcomes[policy, i, seed].values,
        }
        for policy, i, seed in cells
    ]
    pl.DataFrame(rows, infer_schema_length=None).write_csv(folder / CURVE)
    (folder / TABLE).write_text(dump(msgspec.to_builtins(curves)), encoding="utf-8")
