"""Ways to share GPUs side by side: the same jobs, the same truth, each way with its policy."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from rota.core.registry import POLICIES, names, split
from rota.models.slicing import GpuClaim, divide
from rota.reproduce.recipe import Check, Recipe, RecipeRun, RecipeSetting, Scale, holds
from rota.study.config import RunConfig

WEEK, PARTS = "week", "parts"
DAY_S = 86_400.0
WEEK_S = 7 * DAY_S
GPU_MEM_GIB = 24.0
LEVELS = {"light": 0.2, "modest": 0.4, "busy": 0.6, "full": 1.0}
"""Kinds of jobs, and what each uses of the compute of a GPU that it has alone."""
SCORES = {"light": 0, "modest": 0, "busy": 1, "full": 2}
MEMORY_GIB = {"light": 3.0, "modest": 5.0, "busy": 8.0, "full": 11.0}
SIZES = {1: 0.75, 2: 0.12, 4: 0.08, 8: 0.05}
PART_SIZES = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
OPPORTUNISTIC = -1  # priority of half of the jobs: antman lets them use what others leave
THIN = 5  # every so manieth job of Philly
BUSIEST = slice(2_000, 3_000)  # of openb's pods of up to a day, by arrival: the densest thousand
OPENB = "../data/openb/openb_pod_list_gpushare100.csv"
COSTS = "suspend"
AVERAGED = ("completed", "avg_jct_s", "p95_jct_s", "makespan_s", "preemptions", "migrations")


class Way(msgspec.Struct, frozen=True):
    """A policy on GPUs of a mode.

    Attributes:
        policy: As of `--policy`.
        mode: How GPUs are shared; empty: not said.
        placement: As of `--placement`, if the policy leaves it to one.
        on: The workloads that it can serve.
    """

    policy: str
    mode: str
    placement: str | None = None
    on: tuple[str, ...] = (WEEK, PARTS)

    @property
    def label(self) -> str:
        """Of its runs."""
        return f"{split(self.policy)[0]}-{self.mode or 'pairs'}"


BASE = Way("fifo-skip", "exclusive", "consolidate")
WAYS: Sequence[Way] = (
    BASE,
    Way("fifo-skip", "fraction", "best-fit", (PARTS,)),
    Way("kubeshare", "fraction", None, (PARTS,)),
    Way("mig-pack", "mig", None, (PARTS,)),
    Way("lucid", "", "consolidate", (WEEK,)),
    Way("gandiva", "exclusive"),
    Way("gandiva", "mps"),
    Way("olympian", "timeslice"),
    Way("salus:inside=fair", "timeslice"),
    Way("antman", "mps"),
)
BETTER = {WEEK: ("lucid-pairs", "gandiva-mps"), PARTS: ("fifo-skip-fraction",)}
"""Ways that must beat the base: they share GPUs only where it pays."""


class SharingSideBySide(Recipe):
    """All policies that let jobs share GPUs, on the same jobs."""

    name = "sharing-side-by-side"
    summary = "ways to share GPUs on the same jobs: parts, turns, at once, pairs, MIG"
    paper = "none: each of the papers compares its own way with GPUs that are not shared"
    source = "nothing was published: what must hold of any such comparison is checked"
    takes: Mapping[Scale, str] = {Scale.SMALL: "15 s", Scale.PAPER: "3 min"}
    leaves_out = (
        "a thinned week of Philly and pods of openb with parts of GPUs (they need the reference "
        "data): some made-up jobs on few GPUs"
    )
    known: Sequence[str] = (
        "what jobs use of a GPU, and its memory, is drawn: no public trace has both with durations",
        "jobs at the same time divide a GPU by max-min fairness; real ones disturb each other more",
        "policies that are not installed are left out",
    )

    def runs(self, setting: RecipeSetting) -> dict[str, RunConfig]:
        """Every way on each workload that it can serve."""
        profiles = _write_profiles(setting.folder / "profiles")
        traces = _drawn(setting) if setting.small else _recorded(setting)
        known = set(names(POLICIES))
        return {
            f"{work}-{way.label}": _config(setting, way, trace, profiles)
            for work, trace in traces.items()
            for way in WAYS
            if work in way.on and split(way.policy)[0] in known
        }

    def checks(self, setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> list[Check]:  # noqa: ARG002
        """The same jobs for all, and sharing that pays where it is measured or asked for."""
        found = []
        for work in (WEEK, PARTS):
            base = runs[f"{work}-{BASE.label}"]
            mine = {label: run for label, run in runs.items() if label.startswith(f"{work}-")}
            odd = [
                label
                for label, run in mine.items()
                if run.column("submit_s") != base.column("submit_s")
                or set(run.jobs["state"].to_list()) != {"done"}
            ]
            found.append(
                holds(f"{work}: runs in which jobs differ or do not end", "none",
                      ", ".join(odd) or "none", ok=not odd)
            )  # fmt: skip
            for way in BETTER[work]:
                ours, theirs = mine[f"{work}-{way}"].summary, base.summary
                found.append(
                    holds(f"{work}: mean JCT (s) of {way}", f"below {BASE.label}",
                          f"{ours['avg_jct_s']:,.0f}, {theirs['avg_jct_s']:,.0f}",
                          ok=ours["avg_jct_s"] < theirs["avg_jct_s"])
                )  # fmt: skip
        return found

    def series(self, runs: Mapping[str, RecipeRun]) -> pl.DataFrame:
        """A row per run."""
        return pl.DataFrame(
            [
                {
                    "workload": label.partition("-")[0],
                    "way": label.partition("-")[2],
                    **{name: round(float(run.summary[name]), 1) for name in AVERAGED},
                    "jct_ratio": round(
                        run.summary["avg_jct_s"]
                        / runs[f"{label.partition('-')[0]}-{BASE.label}"].summary["avg_jct_s"],
                        3,
                    ),
                    "knows": run.summary["assumptions"]["knowledge"],
                }
                for label, run in runs.items()
            ]
        )


# --- runs -----------------------------------------------------------------------------------------


class SharedWork(msgspec.Struct, frozen=True):
    """A workload, and the cluster for it."""

    trace: str
    servers: int


def _config(setting: RecipeSetting, way: Way, work: SharedWork, profiles: Path) -> RunConfig:
    sharing = f", sharing: {way.mode}" if way.mode else ""
    kind = "a100" if way.mode == "mig" else "gpu"
    name = f"{work.servers}-{way.mode or 'pairs'}.yaml"
    cluster = setting.write(
        name,
        f"nodes:\n  - {{count: {work.servers}, gpus: 8, gpu_type: {kind}, "
        f"gpu_mem_gib: {GPU_MEM_GIB if kind == 'gpu' else 40}{sharing}}}\n",
    )
    lucid = split(way.policy)[0] == "lucid"
    return RunConfig(
        trace=work.trace,
        cluster=cluster,
        policy=f"lucid:profiles={profiles},gpu_mem_gib={GPU_MEM_GIB}" if lucid else way.policy,
        placement=way.placement,
        costs=COSTS,
        rates=f"colocated:profiles={profiles}" if lucid else None,
    )


def _write_profiles(folder: Path) -> Path:
    """Kinds of jobs and pairs of them as Lucid reads them; pairs divide a GPU as all do here."""
    folder.mkdir(parents=True, exist_ok=True)
    single = ["model,dataset,batchsize,amp,gpu_util,gmem_util,gmem,label"]
    pairs = ["model1,dataset1,batchsize1,amp1,speed1,model2,dataset2,batchsize2,amp2,speed2"]
    levels = list(LEVELS.items())
    for number, (one, uses) in enumerate(levels):
        memory = MEMORY_GIB[one] * 1024
        single.append(f"{one},d,1,0,{100 * uses:g},{60 * uses:g},{memory:g},{SCORES[one]}")
        for two, other in levels[number:]:
            shares = divide([GpuClaim(uses, uses, 1.0), GpuClaim(other, other, 1.0)])
            speeds = (shares[0] / uses, shares[1] / other)
            pairs.append(f"{one},d,1,0,{speeds[0]:.9g},{two},d,1,0,{speeds[1]:.9g}")
    for name, lines in (("single_profiles.csv", single), ("pair_speeds.csv", pairs)):
        (folder / name).write_text("\n".join([*lines, ""]), encoding="utf-8")
    return folder


# --- jobs -----------------------------------------------------------------------------------------


def _drawn(setting: RecipeSetting) -> dict[str, SharedWork]:
    """Made-up jobs: more than there are GPUs for."""
    draw = np.random.default_rng(7)
    found = {}
    for work, count, servers, sizes in (
        (WEEK, 80, 2, list(SIZES)),
        (PARTS, 120, 1, list(PART_SIZES)),
    ):
        chances = list(SIZES.values()) if work == WEEK else None
        gpus = draw.choice(sizes, count, p=chances)
        lasts_s = np.minimum(40_000, np.exp(draw.normal(math.log(2_400), 1.2, count)))
        gaps_s = draw.exponential(float(np.mean(gpus * lasts_s)) / (1.2 * 8 * servers), count)
        rows = list(zip(np.cumsum(gaps_s).tolist(), gpus.tolist(), lasts_s.tolist(), strict=True))
        found[work] = SharedWork(_write_jobs(setting, work, rows), servers)
    return found


def _recorded(setting: RecipeSetting) -> dict[str, SharedWork]:
    """A thinned week of Philly, and pods of openb that ask for parts of GPUs."""
    with setting.need("common/philly5k.csv").open(encoding="utf-8", newline="") as file:
        philly = [
            (float(row["submit_s"]), float(row["num_gpus"]), float(row["duration_s"]))
            for row in csv.DictReader(file)
        ]
    week = [row for row in philly if row[0] < WEEK_S and row[1] <= 8][::THIN]  # noqa: PLR2004 - of a server
    with setting.need(OPENB).open(encoding="utf-8", newline="") as file:
        pods = sorted(
            (float(pod["creation_time"]), int(pod["gpu_milli"]) / 1000,
             float(pod["deletion_time"]) - float(pod["scheduled_time"]))
            for pod in csv.DictReader(file)
            if pod["num_gpu"] == "1" and pod["scheduled_time"]
        )  # fmt: skip
    brief = [pod for pod in pods if 0 < pod[2] <= DAY_S][BUSIEST]
    parts = [(at - brief[0][0], gpus, lasts) for at, gpus, lasts in brief]
    return {
        WEEK: SharedWork(_write_jobs(setting, WEEK, week), 6),
        PARTS: SharedWork(_write_jobs(setting, PARTS, parts), 1),
    }


def _write_jobs(
    setting: RecipeSetting, name: str, rows: Sequence[tuple[float, float, float]]
) -> str:
    """Jobs (time, GPUs, seconds) with a drawn kind each; parts of GPUs have parts of memory."""
    draw = np.random.default_rng([11, len(rows)])
    kinds = draw.choice(list(LEVELS), len(rows)).tolist()
    classes = draw.choice([0, OPPORTUNISTIC], len(rows)).tolist()
    lines = ["job_id,submit_s,num_gpus,duration_s,model,demand,gpu_mem_gib,priority"]
    drawn = zip(rows, kinds, classes, strict=True)
    for number, ((at_s, gpus, lasts_s), kind, priority) in enumerate(drawn):
        memory = MEMORY_GIB[kind] if gpus >= 1 else gpus * GPU_MEM_GIB / 2
        lines.append(
            f"j{number},{at_s:.0f},{gpus:g},{max(1.0, lasts_s):.0f},{kind},"
            f"compute={LEVELS[kind]:g},{memory:.3g},{priority}"
        )
    return setting.write(f"{name}.csv", "\n".join([*lines, ""]))


RECIPE = SharingSideBySide()
