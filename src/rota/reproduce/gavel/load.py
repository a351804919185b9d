"""Gavel's main figures (Narayanan et al., OSDI 2020): mean JCT against the rate of arrivals."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import msgspec
import polars as pl

from rota.core.errors import InputError
from rota.models.throughputs import Kind, load_throughputs
from rota.reproduce.recipe import (
    Check,
    Recipe,
    RecipeRun,
    RecipeSetting,
    Scale,
    holds,
    ordered,
    within,
)
from rota.study.config import RunConfig

CLUSTER = "36x1:v100+36x1:p100+36x1:k80"
TABLE = "gavel/simulation_throughputs.json"
PUBLISHED = "gavel/published_notebook_numbers.json"
SEED = 0  # as published

AWARE, AGNOSTIC, FIFO = "max-min", "max-min-agnostic", "fifo"
FEW = {AWARE: "gavel-max-min", AGNOSTIC: "gavel-max-min:aware=false", FIFO: "gavel-fifo"}
POLICIES: Mapping[Scale, Mapping[str, str]] = {
    Scale.SMALL: FEW,
    Scale.PAPER: {
        **FEW,
        "ftf": "gavel-ftf",
        "ftf-agnostic": "gavel-ftf:aware=false",
        "allox": "allox",
        "gandiva": "gandiva-random",
    },
}
THEIRS = {
    AWARE: "max_min_fairness_perf",
    AGNOSTIC: "max_min_fairness",
    FIFO: "fifo_perf",
    "ftf": "finish_time_fairness_perf",
    "ftf-agnostic": "finish_time_fairness",
    "allox": "allox",
    "gandiva": "gandiva",
}
RATES = {Scale.SMALL: (2.8, 7.0), Scale.PAPER: (2.8, 4.4, 5.2, 5.6)}
"""Jobs per hour: 36 GPUs of each type are full at 5 or 6, depending on who gets which."""
JOBS = {Scale.SMALL: 1_400, Scale.PAPER: 5_600}
MEASURED = {Scale.SMALL: (900, 1_200), Scale.PAPER: (4_000, 5_000)}

GAIN = 1.2
"""Agnostic over aware, at the highest rate."""
NEAR = 0.1
"""Of the published means."""
HOUR_S = 3_600


class GavelLoad(Recipe):
    """Who knows speeds serves more jobs, and serves them sooner."""

    name = "gavel-jct-vs-load"
    summary = "Gavel's mean JCT against arrivals: policies that know speeds sustain a higher load"
    paper = (
        "Narayanan et al., Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning "
        "Workloads, USENIX OSDI 2020"
    )
    source = (
        "a shape: the figures of JCT against input job rate, jobs of one GPU on 36 GPUs of each of "
        "three types; with --scale paper also the means in the authors' notebooks"
    )
    needs = (TABLE,)
    takes: Mapping[Scale, str] = {Scale.SMALL: "70 s", Scale.PAPER: "20 minutes"}
    leaves_out = (
        "two loads, finish-time fairness, AlloX and Gandiva; jobs 900 to 1,200 of 1,400 are "
        "measured, not 4,000 to 5,000, and the queues of an overload are shorter then"
    )
    known: Sequence[str] = (
        "not made: the figures for jobs of several GPUs, and those with pairs by optimisation",
        "their fifo is left out: it uses a stale variable (gavel-fifo is fifo_perf)",
        "later jobs keep arriving while the measured ones run, up to 5,600 here",
    )

    def runs(self, setting: RecipeSetting) -> dict[str, RunConfig]:
        """Every policy at every rate, with the same jobs."""
        table, scale = setting.need(TABLE), setting.scale
        first, end = MEASURED[scale]
        runs = {}
        for rate in RATES[scale]:
            text = draw_trace(table, jobs=JOBS[scale], gap_s=HOUR_S / rate, seed=SEED)
            trace = setting.write(f"{rate:g}-per-hour.trace", text)
            for name, policy in POLICIES[scale].items():
                runs[f"{name}-{rate:g}"] = RunConfig(
                    trace=trace, format=f"gavel:throughputs={table}", cluster=CLUSTER,
                    policy=policy, like="gavel", measure=f"ids={first}:{end}",
                )  # fmt: skip
        return runs

    def checks(self, setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> list[Check]:
        """The shape, and the published means at their scale."""
        rates, names = RATES[setting.scale], POLICIES[setting.scale]
        hours = {name: outcome.summary["avg_jct_s"] / HOUR_S for name, outcome in runs.items()}
        low, high = (f"{rate:g}" for rate in (rates[0], rates[-1]))
        gain = hours[f"{AGNOSTIC}-{high}"] / hours[f"{AWARE}-{high}"]
        found = [
            ordered(
                f"{name}: mean JCT (h) against jobs per hour",
                {f"{rate:g}": hours[f"{name}-{rate:g}"] for rate in rates},
            )
            for name in names
        ]
        found += [
            holds(
                f"mean JCT at {high} per hour, without knowledge of speeds over with it",
                f"at least {GAIN:g}",
                round(gain, 3),
                ok=gain >= GAIN,
            ),
            ordered(
                f"mean JCT (h) at {high} per hour",
                {name: hours[f"{name}-{high}"] for name in (AWARE, FIFO)},
            ),
            ordered(
                "a higher load is sustained: mean JCT (h)",
                {
                    f"{AWARE} at {high}": hours[f"{AWARE}-{high}"],
                    f"{AGNOSTIC} at {low}": hours[f"{AGNOSTIC}-{low}"],
                },
            ),
        ]
        if not setting.small:
            found += _published(setting, hours)
        return found

    def series(self, runs: Mapping[str, RecipeRun]) -> pl.DataFrame:
        """The curves."""
        rows = []
        for name, outcome in runs.items():
            policy, _, rate = name.rpartition("-")
            hours = outcome.summary["avg_jct_s"] / HOUR_S
            rows.append({"policy": policy, "jobs_per_hour": float(rate), "mean_jct_h": hours})
        return pl.DataFrame(rows)


def _published(setting: RecipeSetting, hours: Mapping[str, float]) -> list[Check]:
    """The means of the same jobs in the authors' notebook, where the data have them."""
    path = setting.find(PUBLISHED)
    if path is None:
        return []
    cells = msgspec.json.decode(path.read_bytes())["continuous_jobs"]
    table = next(cell["table"] for cell in cells if cell["table"])
    found = []
    for name, ours in hours.items():
        policy, _, rate = name.rpartition("-")
        theirs = table.get(f"{float(rate):.2f}", {}).get(THEIRS[policy])
        if theirs is not None:
            found.append(
                within(f"{name}: mean JCT (h)", round(ours, 2), float(theirs), relative=NEAR)
            )
    return found


RECIPE = GavelLoad()


# --- Gavel's generator ----------------------------------------------------------------------------

_KINDS, _GAPS = 2, 3  # added to the seed
_SHORT = 0.8  # part of the jobs that are
_LATE = "A3C"  # last but one in the generator's list, unlike in the table
_REFERENCE = "v100"


def draw_trace(table: Path, *, jobs: int, gap_s: float, seed: int) -> str:
    """Single-GPU jobs of Gavel's generator for continuous arrivals, drawn as it draws them.

    One stream draws size (also where all jobs have one GPU), duration and kind of every job,
    another one the time between two jobs; the first job comes twice. The jobs of trace A of
    `gavel-artifact` come out, to the last step: so published results for a seed are results for
    these very jobs.

    Args:
        table: Its throughputs.
        jobs: Number of jobs.
        gap_s: Mean time between two jobs.
        seed: Of its command line.
    """
    alone = load_throughputs(str(table)).alone
    kinds = _kinds(alone)
    kind_draws, gap_draws = Random(seed + _KINDS), Random(seed + _GAPS)  # noqa: S311 - no secret
    lines: list[str] = []
    at_s = 0.0
    while len(lines) < jobs:
        kind_draws.random()  # of the size
        duration_s = _duration_s(kind_draws)
        model = kind_draws.choice(kinds)
        steps = int(duration_s * alone[model, 1][_REFERENCE])
        line = f"{model}\t\t\t\t0\t{steps}\t1\t1\t-1\t{at_s:f}"
        lines += [line] * (1 if lines else 2)
        at_s -= math.log(1 - gap_draws.random()) * gap_s
    return "\n".join([*lines[:jobs], ""])


def _kinds(alone: Mapping[Kind, Mapping[str, float]]) -> Sequence[str]:
    """Models for one GPU in the order of the generator's list."""
    models = [model for model, gpus in alone if gpus == 1]
    if not models or any(_REFERENCE not in alone[model, 1] for model in models):
        raise InputError(
            f"the table of throughputs names no jobs of one GPU on {_REFERENCE}: give Gavel's"
        )
    late = [model for model in models if model == _LATE]
    others = [model for model in models if model != _LATE]
    return [*others[:-1], *late, *others[-1:]]


def _duration_s(draws: Random) -> float:
    if draws.random() >= _SHORT:
        return 60 * 10 ** draws.uniform(3, 4)
    return 60 * 10 ** draws.uniform(1.5, 3)
