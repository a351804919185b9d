"""The simulator of Tiresias (Gu et al., NSDI 2019), schedule by schedule."""

from collections.abc import Mapping, Sequence

from rota.reproduce.recipe import Artifact, Case, Check, RecipeRun, RecipeSetting, within
from rota.study.config import RunConfig

SCHEDULES = {
    "fifo": "fifo",
    "fjf": "fifo-skip",
    "sjf": "smallest",
    "shortest": "srtf",
    "shortest-gpu": "srsf",
    "dlas": "las",
    "dlas-gpu": "tiresias",
    "dlas-gpu-1": "tiresias:promote=1",
    "dlas-gpu-8": "tiresias:promote=8",
    "dlas-gpu-gittins": "gittins",
}
"""Their --schedule, and ours."""

PHILLY, SIXTY = "philly1000_n48g8", "60j_n4g4"
COLUMNS = {"first_start_s": "start_time", "end_s": "end_time", "preemptions": "preempt"}
SIXTY_NODES = "nodes:\n  - {count: 4, gpus: 4, cpus: 40, mem_gib: 256}\n"

# Mean JCT in s by schedule and scheme, as the reference prints them (two digits).
MEAN_JCT_S = {
    PHILLY: {
        "fifo-count": 19646.51, "fjf-count": 19006.02, "sjf-count": 15567.14,
        "shortest-count": 15685.40, "shortest-gpu-count": 15685.37, "dlas-count": 15632.92,
        "dlas-gpu-count": 15796.16, "dlas-gpu-gittins-count": 15621.38,
        "dlas-gpu-8-count": 15795.08, "fifo-yarn": 21666.03, "fjf-yarn": 15933.65,
    },
    SIXTY: {
        "fifo-count": 200.82, "fifo-yarn": 219.18, "fjf-count": 190.68, "fjf-yarn": 219.18,
        "sjf-count": 198.20, "shortest-count": 192.12, "shortest-gpu-count": 195.90,
        "dlas-count": 190.68, "dlas-gpu-count": 190.68, "dlas-gpu-gittins-count": 219.05,
        "dlas-gpu-1-count": 190.68, "dlas-gpu-8-count": 190.68,
    },
}  # fmt: skip
ROUNDING = 0.006


class TiresiasArtifact(Artifact):
    """Every recorded schedule that finishes, on two workloads."""

    name = "tiresias-artifact"
    summary = "Tiresias' simulator: start, end and preemptions of every job, 23 runs"
    paper = (
        "Gu et al., Tiresias: A GPU Cluster Manager for Distributed Deep Learning, USENIX NSDI 2019"
    )
    source = (
        "per-job files of the unmodified simulator (run_sim.py): its own 60 jobs on 4x4 GPUs and "
        "1,000 jobs of Philly on 48x8 GPUs, schemes count and yarn"
    )
    needs = ("common/philly1000.csv", "tiresias")
    known = (
        (
            "multi-dlas-gpu and dlas-gpu-pack are recorded but not run: Rota has no GPU "
            "reservation by size class and no packing by GPU memory"
        ),
        (
            "sjf, shortest and shortest-gpu with yarn are not run: the simulator loses 48 to 50 of "
            "its 60 jobs there (it never gives memory back)"
        ),
        "dlas-gpu-1 is recorded for the 60 jobs only",
    )

    def cases(self, setting: RecipeSetting) -> Sequence[Case]:
        """All schedules with recorded results."""
        inputs = {
            PHILLY: (str(setting.need("common/philly1000.csv")), "csv", "48x8"),
            SIXTY: (
                str(setting.need("tiresias/60_job.csv")),
                "tiresias",
                setting.write("n4g4.yaml", SIXTY_NODES),
            ),
        }
        return [
            Case(
                label=f"{run}-{name}",
                config=RunConfig(
                    trace=inputs[run][0],
                    format=inputs[run][1],
                    cluster=inputs[run][2],
                    policy=_policy(setting, name),
                    placement=name.rpartition("-")[2],
                    like="tiresias",
                ),
                theirs=f"tiresias/{run}/{name}.csv",
                columns=COLUMNS,
            )
            for run, means in MEAN_JCT_S.items()
            for name in means
        ]

    def checks(self, setting: RecipeSetting, runs: Mapping[str, RecipeRun]) -> list[Check]:
        """Job by job, and the printed means."""
        return [
            *super().checks(setting, runs),
            *(
                within(
                    f"{run}-{name}: mean JCT (s)",
                    round(runs[f"{run}-{name}"].summary["avg_jct_s"], 3),
                    mean_s,
                    absolute=ROUNDING,
                )
                for run, means in MEAN_JCT_S.items()
                for name, mean_s in means.items()
            ),
        ]


def _policy(setting: RecipeSetting, name: str) -> str:
    policy = SCHEDULES[name.rpartition("-")[0]]
    if policy != "gittins":
        return policy
    return f"gittins:distribution={setting.need('tiresias/yarn-gput1000.csv')}"


RECIPE = TiresiasArtifact()
