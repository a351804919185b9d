"""GPUs in boxes against GPUs as a pool on the network, by load (LegoOS, rCUDA)."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from rota.reproduce.recipe import Check, Recipe, RecipeRun, RecipeSetting, Scale, holds
from rota.study.config import RunConfig

SERVERS, GPUS, CPUS = 4, 4, 32
LOADS = {Scale.SMALL: (0.4, 0.8), Scale.PAPER: (0.2, 0.4, 0.6, 0.8, 1.0)}
JOBS = {Scale.SMALL: 120, Scale.PAPER: 500}
SIZES = {1: 0.5, 2: 0.3, 4: 0.2}
CPUS_PER_GPU = (2, 4, 8, 16)
"""Nearly as many as there are for each GPU, but unevenly: boxes run out of one of both."""
WAYS: Mapping[str, tuple[str, str]] = {
    "boxed": ("pooled:remote=no", "remote"),
    "pooled": ("pooled", "remote"),
    "free": ("pooled", "remote:gib=0,calls=0"),
    "slow": ("pooled", "remote:gib_s=1"),
}
"""Policies and rates: boxes, a pool behind a fast network, behind none, and behind a slow one."""


class PoolingGain(Recipe):
    """What it is worth that any CPU can use any GPU, and what the network takes of it."""

    name = "pooling-gain"
    summary = "GPUs in boxes against GPUs in a pool on the network, by load"
    paper = "Shan et al., LegoOS: A Distributed OS for Hardware Resource Disaggregation, OSDI 2018"
    source = "nothing comparable was published for GPUs: shapes that must hold are checked"
    takes: Mapping[Scale, str] = {Scale.SMALL: "5 s", Scale.PAPER: "1 min"}
    leaves_out = "more jobs and loads: waits at the edge of what the cluster can do are long"
    known: Sequence[str] = (
        "jobs are made up: what they send to their GPUs is the same for all",
        "GPUs of a job in the pool are dealt out by arrival; no job is moved back into a box",
    )

    def runs(self, setting: RecipeSetting) -> dict[str, RunConfig]:
        """Each way at each load."""
        cluster = setting.write(
            "boxes.yaml", f"nodes:\n  - {{count: {SERVERS}, gpus: {GPUS}, cpus: {CPUS}}}\n"
        )
        return {
            f"{way}-{load:g}": RunConfig(
                trace=_write_jobs(setting, load), cluster=cluster, policy=policy, rates=rates
            )
            for load in LOADS[setting.scale]
            for way, (policy, rates) in WAYS.items()
        }

    def checks(self, setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> list[Check]:
        """A pool shortens waits, and a network lengthens runs."""
        loads = LOADS[setting.scale]
        ended = all(set(run.jobs["state"].to_list()) == {"done"} for run in runs.values())
        high = loads[-1]
        jct = {way: [_mean(runs, way, load, "avg_jct_s") for load in loads] for way in WAYS}
        wait = {way: _mean(runs, way, high, "avg_wait_s") for way in WAYS}
        gain = jct["boxed"][-1] / jct["free"][-1]
        return [
            holds("runs in which all jobs end", "all", "all" if ended else "not all", ok=ended),
            holds(f"mean wait (s) at load {high:g}: boxed, pooled without a price", "pooled less",
                  f"{wait['boxed']:,.0f}, {wait['free']:,.0f}", ok=wait["free"] < wait["boxed"]),
            holds("mean JCT (s) by load: pooled without a price, and boxed", "never longer by 1 %",
                  _pairs(jct["free"], jct["boxed"]),
                  ok=all(a <= 1.01 * b for a, b in zip(jct["free"], jct["boxed"], strict=True))),
            holds("mean JCT (s) by load: no network, a fast one, a slow one", "in this order (1 %)",
                  "; ".join(_pairs([a], [b]) + f" / {c:,.0f}" for a, b, c in zip(
                      jct["free"], jct["pooled"], jct["slow"], strict=True)),
                  ok=all(a <= 1.01 * b and b <= 1.01 * c for a, b, c in zip(
                      jct["free"], jct["pooled"], jct["slow"], strict=True))),
            holds(f"mean JCT at load {high:g}: boxed over pooled without a price", "above 1",
                  round(gain, 3), ok=gain > 1),
        ]  # fmt: skip

    def series(self, runs: Mapping[str, RecipeRun]) -> pl.DataFrame:
        """A row per run."""
        return pl.DataFrame(
            [
                {
                    "way": label.partition("-")[0],
                    "load": float(label.partition("-")[2]),
                    "avg_jct_s": round(run.summary["avg_jct_s"], 1),
                    "avg_wait_s": round(run.summary["avg_wait_s"], 1),
                    "makespan_s": round(run.summary["makespan_s"], 1),
                }
                for label, run in runs.items()
            ]
        )


def _mean(runs: Mapping[str, RecipeRun], way: str, load: float, name: str) -> float:
    return float(runs[f"{way}-{load:g}"].summary[name])


def _pairs(ours: Sequence[float], theirs: Sequence[float]) -> str:
    return ", ".join(f"{a:,.0f} / {b:,.0f}" for a, b in zip(ours, theirs, strict=True))


def _write_jobs(setting: RecipeSetting, load: float) -> str:
    """The same jobs at any load, only closer together."""
    count = JOBS[setting.scale]
    draw = np.random.default_rng([3, count])
    gpus = draw.choice(list(SIZES), count, p=list(SIZES.values()))
    cpus = gpus * draw.choice(CPUS_PER_GPU, count)
    lasts_s = np.minimum(20_000, np.exp(draw.normal(math.log(1_200), 1.0, count)))
    gap_s = float(np.mean(gpus * lasts_s)) / (load * SERVERS * GPUS)
    comes_s = np.cumsum(draw.exponential(1.0, count)) * gap_s
    lines = ["job_id,submit_s,num_gpus,duration_s,cpus"]
    rows = zip(comes_s.tolist(), gpus.tolist(), lasts_s.tolist(), cpus.tolist(), strict=True)
    for number, (at_s, asks, lasts, cores) in enumerate(rows):
        lines.append(f"j{number},{at_s:.0f},{asks},{lasts:.0f},{min(cores, CPUS)}")
    return setting.write(f"load-{load:g}.csv", "\n".join([*lines, ""]))


RECIPE = PoolingGain()
