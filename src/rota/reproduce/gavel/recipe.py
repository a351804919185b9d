"""The simulator of Gavel (Narayanan et al., OSDI 2020): whole GPUs by job, shares on average."""

from collections.abc import Mapping, Sequence

import msgspec

from rota.core.sums import ordered_sum
from rota.reproduce.recipe import (
    Check,
    Recipe,
    RecipeRun,
    RecipeSetting,
    Scale,
    by_job,
    holds,
    read_rows,
    same_rows,
    within,
)
from rota.study.config import RunConfig

DIGITS = 2  # of seconds: times are sums of many steps
DIGIT = 0.1  # seconds: as many are reported
NEAR = 0.01

TRACES = {
    "A": ("gen120_single", "simulation", "12x1:v100+12x1:p100+12x1:k80"),
    "B": ("phys_max_min_fairness", "physical_cluster", "8x1:v100+16x1:p100+24x1:k80"),
    "C": ("phys_minimize_makespan", "physical_cluster", "8x1:v100+16x1:p100+24x1:k80"),
}
EXACT = {
    "A_fifo_perf": "gavel-fifo",
    "B_fifo_perf": "gavel-fifo",
    "C_fifo_perf": "gavel-fifo",
    "A_isolated": "gavel-isolated",
    "B_isolated": "gavel-isolated",
}
"""Their runs, and our policies."""

REPLAYED = {
    "A_max_min_fairness_perf": "gavel-max-min",
    "A_max_min_fairness": "gavel-max-min:aware=false",
    "A_finish_time_fairness_perf": "gavel-ftf",
    "A_min_total_duration_perf": "gavel-makespan",
}
"""Their runs whose allocations were recorded: with those nothing is left to a solver."""

SHARES = {
    "A_max_min_fairness_perf": "gavel-max-min",
    "A_max_min_fairness": "gavel-max-min:aware=false",
    "A_max_min_fairness_water_filling_perf": "gavel-water-filling",
    "A_max_min_fairness_water_filling": "gavel-water-filling:aware=false",
    "A_finish_time_fairness_perf": "gavel-ftf",
    "A_finish_time_fairness": "gavel-ftf:aware=false",
    "A_max_sum_throughput_perf": "gavel-max-sum",
    "A_allox": "allox",
    "B_max_min_fairness_perf": "gavel-max-min",
    "B_max_min_fairness": "gavel-max-min:aware=false",
    "B_finish_time_fairness_perf": "gavel-ftf",
    "C_max_min_fairness_perf": "gavel-max-min",
}
MAKESPANS = {
    "A_min_total_duration_perf": "gavel-makespan",
    "A_min_total_duration": "gavel-makespan:aware=false",
    "B_min_total_duration_perf": "gavel-makespan",
    "C_min_total_duration_perf": "gavel-makespan",
    "C_min_total_duration": "gavel-makespan:aware=false",
}
REPORTED = {
    "B_max_min_fairness_perf": (13766.0, 61591.2),
    "B_max_min_fairness": (18705.4, 70929.1),
    "B_finish_time_fairness_perf": (14170.5, 61833.4),
    "C_isolated": (33184.7, 80134.6),
    "C_max_min_fairness_perf": (33346.9, 67093.4),
    "B_min_total_duration_perf": (21391.9, 58494.1),
    "C_min_total_duration_perf": (61369.4, 62657.1),
    "C_min_total_duration": (69155.5, 74561.0),
}
"""Mean JCT and makespan (s) of runs without a file: from the table of all runs in the data."""

GANDIVA = "A_gandiva"
SEEDS = range(20)

NOT_UNIQUE = (
    "many allocations have the same makespan, and the simulator stops its search up to 5 % before "
    "the best: the mean completion time follows from where its solver happens to stop"
)
EQUAL_SHARES = (
    "several allocations are optimal, and which of them the solver finds depends on the machine's "
    "arithmetic: seen within 1 % on one kind of processor and within 2 % on another"
)
DROPPED = (
    "the simulator drops a job of which fewer steps are left than it has GPUs, and does not count "
    "it; " + NOT_UNIQUE
)


class GavelArtifact(Recipe):
    """First come first served and equal parts exactly, the programmes within one percent."""

    name = "gavel-artifact"
    summary = (
        "Gavel's simulator: every job of 5 runs and of 4 with recorded shares, and the mean JCT of "
        "19 more"
    )
    paper = (
        "Narayanan et al., Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning "
        "Workloads, USENIX OSDI 2020"
    )
    source = (
        "per-job files of the simulator, or mean JCT and makespan where there is none: 120 "
        "generated jobs on 36 GPUs of three types, and its two traces of a physical cluster of 48 "
        "GPUs"
    )
    needs = ("gavel",)
    takes: Mapping[Scale, str] = {Scale.SMALL: "a minute", Scale.PAPER: "a minute"}
    leaves_out = ""
    known: Sequence[str] = (
        (
            "optimal shares are not unique, so these runs are compared by the mean JCT, to 1 %; "
            "with the shares that the simulator recorded (replay) every job ends as it does there"
        ),
        NOT_UNIQUE,
        "fifo without knowledge of speeds is not run: in the simulator it uses a stale variable",
        "gandiva draws partners at random: its mean JCT must lie among those of 20 seeds of ours",
    )

    def runs(self, setting: RecipeSetting) -> dict[str, RunConfig]:
        """All of them, under the names of their files."""
        alike = {**EXACT, "C_isolated": "gavel-isolated", **SHARES, **MAKESPANS}
        runs = {name: _config(setting, name[0], policy) for name, policy in alike.items()}
        for name, policy in REPLAYED.items():
            recorded = setting.need(f"gavel/replay/{name}.alloc.json.gz")
            runs[f"{name}-replay"] = _config(setting, name[0], policy, f",recorded={recorded}")
        for seed in SEEDS:
            runs[f"{GANDIVA}-{seed}"] = _config(setting, "A", f"gandiva-random:seed={seed}")
        return runs

    def checks(self, setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> list[Check]:
        """Job by job, or on average."""
        found = [_equal(setting, name, runs[name]) for name in EXACT]
        found += [_equal(setting, name, runs[f"{name}-replay"], "replay") for name in REPLAYED]
        found.append(_near(setting, "C_isolated", runs["C_isolated"], absolute=DIGIT))
        found += [
            _near(setting, name, runs[name], relative=NEAR, known=EQUAL_SHARES) for name in SHARES
        ]
        for name in MAKESPANS:
            known = DROPPED if name.startswith("B") else NOT_UNIQUE
            found.append(_near(setting, name, runs[name], relative=NEAR, known=known))
            found.append(_last(setting, name, runs[name], more=NEAR))
        found.append(_among(setting, runs))
        return found


def _config(setting: RecipeSetting, letter: str, policy: str, more: str = "") -> RunConfig:
    trace, table, cluster = TRACES[letter]
    throughputs = setting.need(f"gavel/{table}_throughputs.json")
    return RunConfig(
        trace=str(setting.need(f"gavel/traces/{trace}.trace")),
        format=f"gavel:throughputs={throughputs}",
        cluster=cluster,
        policy=policy,
        like=f"gavel:throughputs={throughputs}{more}",
    )


def _jct(setting: RecipeSetting, name: str) -> dict[str, float]:
    rows = by_job(read_rows(setting, f"gavel/runs/{name}.csv"), ["jct"])
    return {job: round(jct, DIGITS) for job, (jct,) in rows.items()}


def _reported(setting: RecipeSetting, name: str) -> tuple[float, float]:
    """Mean JCT and makespan."""
    if name in REPORTED:
        return REPORTED[name]
    recorded = msgspec.json.decode(setting.need(f"gavel/runs/{name}.json").read_bytes())
    theirs = _jct(setting, name)
    return round(ordered_sum(theirs.values()) / len(theirs), 1), round(recorded["makespan"], 1)


def _equal(setting: RecipeSetting, name: str, outcome: RecipeRun, how: str = "") -> Check:
    ours = {job: round(jct, DIGITS) for job, jct in outcome.column("jct_s").items()}
    return same_rows(f"{name}{how and f' ({how})'}: jct_s", ours, _jct(setting, name))


def _near(
    setting: RecipeSetting,
    name: str,
    outcome: RecipeRun,
    *,
    relative: float = 0.0,
    absolute: float = 0.0,
    known: str = "",
) -> Check:
    return within(
        f"{name}: mean JCT (s)",
        round(outcome.summary["avg_jct_s"], 1),
        _reported(setting, name)[0],
        relative=relative,
        absolute=absolute,
        known=known,
    )


def _last(setting: RecipeSetting, name: str, outcome: RecipeRun, *, more: float) -> Check:
    ours, theirs = round(outcome.summary["makespan_s"], 1), _reported(setting, name)[1]
    return holds(
        f"{name}: makespan (s)",
        f"at most {100 * more:g} % more",
        ours,
        ok=ours <= theirs * (1 + more) + DIGIT,
        theirs=theirs,
    )


def _among(setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> Check:
    theirs = _reported(setting, GANDIVA)[0]
    ours = [runs[f"{GANDIVA}-{seed}"].summary["avg_jct_s"] for seed in SEEDS]
    low, high = round(min(ours), 1), round(max(ours), 1)
    return holds(
        f"{GANDIVA}: mean JCT (s) of {len(ours)} seeds",
        "theirs is among ours",
        f"{low:,} to {high:,}",
        ok=low <= theirs <= high,
        theirs=theirs,
    )


RECIPE = GavelArtifact()
