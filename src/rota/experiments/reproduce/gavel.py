"""The simulator of Gavel (Narayanan et al., OSDI 2020): whole GPUs by job, shares on average."""

from collections.abc import Mapping, Sequence

import msgspec

from rota.experiments.config import RunConfig
from rota.experiments.reproduce.artifact import by_job, read_rows
from rota.experiments.reproduce.base import Check, Outcome, Recipe, Scale, Setting
from rota.experiments.reproduce.checks import holds, same_rows, within

DIGITS = 2  # of seconds: times are sums of many steps
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

SHARES = {
    "A_max_min_fairness_perf": "gavel-max-min",
    "A_max_min_fairness": "gavel-max-min:aware=false",
    "A_max_min_fairness_water_filling_perf": "gavel-water-filling",
    "A_max_min_fairness_water_filling": "gavel-water-filling:aware=false",
    "A_finish_time_fairness_perf": "gavel-ftf",
    "A_finish_time_fairness": "gavel-ftf:aware=false",
    "A_max_sum_throughput_perf": "gavel-max-sum",
    "A_allox": "allox",
}
MAKESPANS = {"A_min_total_duration_perf": "gavel-makespan"}
NOT_UNIQUE = (
    "many allocations have the same makespan, and the simulator stops its search 5 % before the "
    "best: the mean completion time follows from where its solver happens to stop"
)


class GavelArtifact(Recipe):
    """First come first served and equal parts exactly, the programmes within one percent."""

    name = "gavel-artifact"
    summary = "Gavel's simulator: every job of 5 runs, and the mean JCT of 9 with optimisation"
    paper = (
        "Narayanan et al., Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning "
        "Workloads, USENIX OSDI 2020"
    )
    source = (
        "per-job files of the simulator: 120 generated jobs on 36 GPUs of three types, and its two "
        "traces of a physical cluster of 48 GPUs"
    )
    needs = ("gavel",)
    takes: Mapping[Scale, str] = {Scale.SMALL: "half a minute", Scale.PAPER: "half a minute"}
    leaves_out = ""
    known: Sequence[str] = (
        "optimal shares are not unique, so their runs are compared by the mean JCT, to 1 %",
        NOT_UNIQUE,
        "fifo without knowledge of speeds is not run: in the simulator it uses a stale variable",
        "gandiva is random there: not compared",
    )

    def runs(self, setting: Setting) -> dict[str, RunConfig]:
        """All of them, under the names of their files."""
        return {
            name: _config(setting, name[0], policy)
            for name, policy in {**EXACT, **SHARES, **MAKESPANS}.items()
        }

    def checks(self, setting: Setting, runs: Mapping[str, Outcome]) -> list[Check]:
        """Job by job, or on average."""
        found = [_equal(setting, name, runs[name]) for name in EXACT]
        found += [_near(setting, name, runs[name]) for name in SHARES]
        for name in MAKESPANS:
            found.append(_near(setting, name, runs[name], known=NOT_UNIQUE))
            found.append(_last(setting, name, runs[name]))
        return found


def _config(setting: Setting, letter: str, policy: str) -> RunConfig:
    trace, table, cluster = TRACES[letter]
    throughputs = setting.need(f"gavel/{table}_throughputs.json")
    return RunConfig(
        trace=str(setting.need(f"gavel/traces/{trace}.trace")),
        format=f"gavel:throughputs={throughputs}",
        cluster=cluster,
        policy=policy,
        like=f"gavel:throughputs={throughputs}",
    )


def _jct(setting: Setting, name: str) -> dict[str, float]:
    rows = by_job(read_rows(setting, f"gavel/runs/{name}.csv"), ["jct"])
    return {job: round(jct, DIGITS) for job, (jct,) in rows.items()}


def _equal(setting: Setting, name: str, outcome: Outcome) -> Check:
    ours = {job: round(jct, DIGITS) for job, jct in outcome.column("jct_s").items()}
    return same_rows(f"{name}: jct_s", ours, _jct(setting, name))


def _near(setting: Setting, name: str, outcome: Outcome, known: str = "") -> Check:
    theirs = _jct(setting, name)
    return within(
        f"{name}: mean JCT (s)",
        round(outcome.summary["avg_jct_s"], 1),
        round(sum(theirs.values()) / len(theirs), 1),
        relative=NEAR,
        known=known,
    )


def _last(setting: Setting, name: str, outcome: Outcome) -> Check:
    recorded = msgspec.json.decode(setting.need(f"gavel/runs/{name}.json").read_bytes())
    ours, theirs = round(outcome.summary["makespan_s"], 1), round(recorded["makespan"], 1)
    return holds(
        f"{name}: makespan (s)",
        "at most 1 % more",
        ours,
        ok=ours <= theirs * (1 + NEAR),
        theirs=theirs,
    )


RECIPE = GavelArtifact()
