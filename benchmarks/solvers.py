"""Processor time of one decision of the Gavel family, and how it grows with the number of jobs.

Jobs of one GPU and 83 kinds of jobs on three GPU types with a quarter as many GPUs as jobs each;
steps left differ between all jobs. Each number is the median of several instances. `python
benchmarks/solvers.py --most 4096` goes further.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from rota.policies.allox import allox
from rota.policies.gavel.durations import finish_time_fairness, makespan
from rota.policies.gavel.fairness import max_min, strategy_proof, water_filling
from rota.policies.gavel_max_sum import max_sum
from rota.policies.rounds.problem import Array, RoundProblem, problem

KINDS = 83  # of jobs
POLICIES: dict[str, tuple[Callable[[RoundProblem], object], int]] = {
    "max-min": (max_min, 16384),
    "max-min, not aware": (lambda of: max_min(of, aware=False), 16384),
    "max-min, all rows differ": (lambda of: max_min(different(of)), 16384),
    "makespan": (makespan, 16384),
    "max-sum": (max_sum, 16384),
    "water-filling": (water_filling, 2048),
    "finish-time fairness": (finish_time_fairness, 4096),
    "strategy-proof": (strategy_proof, 256),
    "allox": (allox, 1024),
}
BUDGET_MS = {  # jobs, milliseconds
    "max-min": {1024: 8.0, 16384: 1000.0},
    "makespan": {1024: 25.0},
    "water-filling": {512: 356.0},
    "finish-time fairness": {512: 170.0},
    "allox": {256: 930.0},
}


def instance(jobs: int, seed: int) -> RoundProblem:
    rng = np.random.default_rng(seed)
    speeds = 10 ** rng.uniform(-1, 1.5, (KINDS, 1)) * np.sort(rng.uniform(0.1, 1.0, (KINDS, 3)))
    throughput: Array = speeds[rng.integers(KINDS, size=jobs)]
    return problem(
        throughput,
        np.full(3, max(jobs // 4, 1)),
        steps=throughput[:, 2] * 60 * 10 ** rng.uniform(1.5, 4, jobs),
        age=rng.uniform(0, 1e5, jobs),
        elapsed=rng.uniform(0, 5e4, jobs),
    )


def different(of: RoundProblem) -> RoundProblem:
    """Throughputs as measured: no two rows are equal."""
    noise = np.random.default_rng(0).uniform(0.95, 1.05, of.throughput.shape)
    return problem(of.throughput * noise, of.capacity, steps=of.steps)


def cpu_ms(solve: Callable[[RoundProblem], object], jobs: int, times: int) -> float:
    spent = []
    for seed in range(times):
        of = instance(jobs, seed)
        began = time.process_time()
        solve(of)
        spent.append((time.process_time() - began) * 1e3)
    return statistics.median(spent)


def table(most: int, times: int) -> None:
    """Print a line per policy: milliseconds against the number of jobs, and how they grow."""
    sizes = [size for size in (32, 128, 256, 512, 1024, 2048, 4096, 16384) if size <= most]
    print("CPU milliseconds per decision; * is above its budget; growth: exponent of the last two")
    print(f"{'jobs':26}" + "".join(f"{size:>10}" for size in sizes) + f"{'growth':>10}")
    for name, (solve, largest) in POLICIES.items():
        solve(instance(8, 0))  # imports, first calls
        cells, spent = [], {}
        for size in sizes:
            if size > largest:
                cells.append(f"{'-':>10}")
                continue
            spent[size] = cpu_ms(solve, size, times)
            late = spent[size] > BUDGET_MS.get(name, {}).get(size, np.inf)
            cells.append(f"{spent[size]:>9.1f}{'*' if late else ' '}")
        print(f"{name:26}" + "".join(cells) + f"{growth(spent):>10.2f}", flush=True)
    for name, budgets in BUDGET_MS.items():
        for size in (size for size in budgets if size > most):
            spent_ms = cpu_ms(POLICIES[name][0], size, 1)
            mark = "*" if spent_ms > budgets[size] else ""
            print(f"{name}, {size:,} jobs: {spent_ms:.1f}{mark}", flush=True)


def growth(spent_ms: dict[int, float]) -> float:
    """The exponent e of time ~ jobs^e between the two largest sizes."""
    *_, (few, quick), (many, slow) = spent_ms.items()
    return float(np.log(slow / quick) / np.log(many / few))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=1024, help="jobs of the largest instance")
    parser.add_argument("--times", type=int, default=5, help="instances per number")
    options = parser.parse_args()
    table(options.most, options.times)


if __name__ == "__main__":
    main()
