"""Trace A of Gavel in the dialect `gavel`: processor time of whole runs against the simulator's.

Theirs is `cpu` in the files of the reference runs; ours is that of the engine and the policy, after
a first run that loads all modules. The demand is 5 times less for every policy.
"""

import json
from pathlib import Path

from rota.study.config import RunConfig
from rota.study.run import simulate

LEAST = 5.0
CLUSTER = "12x1:v100+12x1:p100+12x1:k80"
RUNS = {
    "fifo_perf": "gavel-fifo",
    "isolated": "gavel-isolated",
    "max_min_fairness_perf": "gavel-max-min",
    "max_min_fairness": "gavel-max-min:aware=false",
    "max_min_fairness_water_filling_perf": "gavel-water-filling",
    "max_min_fairness_water_filling": "gavel-water-filling:aware=false",
    "finish_time_fairness_perf": "gavel-ftf",
    "finish_time_fairness": "gavel-ftf:aware=false",
    "min_total_duration_perf": "gavel-makespan",
    "min_total_duration": "gavel-makespan:aware=false",
    "max_sum_throughput_perf": "gavel-max-sum",
    "allox": "allox",
    "gandiva": "gandiva-random",
}


def cpu_s(folder: Path, policy: str) -> float:
    """Of the engine, for one run."""
    config = RunConfig(
        trace=str(folder / "traces" / "gen120_single.trace"),
        format=f"gavel:throughputs={folder / 'simulation_throughputs.json'}",
        cluster=CLUSTER,
        policy=policy,
        like="gavel",
    )
    return float(simulate(config).summary["engine_cpu_s"])


def table(folder: Path) -> None:
    """A line per policy; the second run counts, as start-up does not."""
    print("\ntrace A of Gavel (120 jobs, 36 GPUs), CPU seconds; * is less than 5 times faster")
    print(f"{'policy':36} {'theirs':>8} {'ours':>8} {'times':>8}")
    for theirs, policy in RUNS.items():
        recorded = json.loads((folder / "runs" / f"A_{theirs}.json").read_text())["cpu"]
        ours = min(cpu_s(folder, policy) for _ in range(2))
        late = "*" if recorded < LEAST * ours else " "
        print(
            f"{policy:36} {recorded:>8.1f} {ours:>8.2f} {recorded / ours:>7.1f}{late}", flush=True
        )
