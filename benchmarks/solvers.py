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
from rota.solvers.options import OptionProgramme, choose_options

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
    sia_table(times)


SIA = ((12, 64, 0.0, 10.0), (40, 64, 0.0, 10.0), (100, 64, 0.0, 10.0), (1000, 2048, 0.005, 400.0))
"""Jobs, GPUs, allowed gap, and the budget in milliseconds."""


def sia_programme(jobs: int, gpus: int, seed: int) -> OptionProgramme:
    """Jobs that scale differently on three types; each has a configuration already."""
    rng = np.random.default_rng(seed)
    kinds, sizes = [], []
    for kind, node_gpus in enumerate((4, 8, 8)):
        mine = [size for size in (1, 2, 4, 8) if size < node_gpus]
        mine += range(node_gpus, min(gpus // 3, 64) + 1, node_gpus)
        kinds += [kind] * len(mine)
        sizes += mine
    kind, size = np.array(kinds, np.intp), np.array(sizes, float)
    owner, chosen, cost = [], [], []
    for job in range(jobs):
        speed = np.array([1.0, rng.uniform(1, 2), rng.uniform(2, 5)])
        worth = size ** rng.uniform(0.5, 0.98) * speed[kind]
        kept = rng.integers(len(size))
        worth[np.arange(len(size)) != kept] *= rng.uniform(0.5, 1.0)
        use = np.flatnonzero(size <= 2 ** rng.integers(0, 7))
        owner.append(np.full(len(use), job, np.intp))
        chosen.append(use)
        cost.append(worth[use] ** -0.5)
    which = np.concatenate(chosen)
    return OptionProgramme(
        np.concatenate(owner), kind[which], size[which], np.concatenate(cost),
        np.full(jobs, 1.1), np.full(3, float(gpus // 3)),
    )  # fmt: skip


def sia_table(times: int) -> None:
    """Print a line per size of Sia's programme."""
    print("\nSia's programme: CPU milliseconds, median and worst; * is above its budget")
    for jobs, gpus, gap, budget_ms in SIA:
        spent, gaps = [], []
        for seed in range(times):
            asked = sia_programme(jobs, gpus, seed)
            began = time.process_time()
            gaps.append(choose_options(asked, gap=gap).gap)
            spent.append((time.process_time() - began) * 1e3)
        middle = statistics.median(spent)
        mark = "*" if middle > budget_ms else " "
        print(
            f"{jobs:>6} jobs {gpus:>6} GPUs {middle:>9.1f}{mark} {max(spent):>9.1f}"
            f"   gap at most {100 * max(gaps):.3f} %",
            flush=True,
        )


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
