"""The simulator of Synergy (Mohan et al., OSDI 2022), job by job."""

from collections.abc import Sequence

import polars as pl

from rota.reproduce.recipe import Artifact, Case, Check, RecipeRun, RecipeSetting, same_rows, within
from rota.study.config import RunConfig

NODES = "nodes:\n  - {count: 4, gpus: 8, cpus: 24, mem_gib: 500}\n"
MECHANISMS = {"fair": "proportional", "greedy": "greedy", "tune": "tune"}
"""Their mode, and ours."""

# Mean JCT in s by order and mode, as recorded with the per-job files.
MEAN_JCT_S = {
    ("fifo", "fair"): 16290.6, ("fifo", "greedy"): 13219.6, ("fifo", "tune"): 12796.6,
    ("las", "fair"): 7452.6, ("las", "greedy"): 6121.6, ("las", "tune"): 6175.6,
    ("srtf", "fair"): 6511.6, ("srtf", "tune"): 5195.6,
    ("ftf", "fair"): 25187.6, ("ftf", "tune"): 14562.6,
    ("drf", "greedy"): 7071.6, ("drf", "tune"): 6566.6,
    ("tetris", "greedy"): 4774.6, ("tetris", "tune"): 4844.6,
}  # fmt: skip
ROUNDING = 0.06


class SynergyArtifact(Artifact):
    """Six orders with proportional, greedy and tuned CPUs and memory."""

    name = "synergy-artifact"
    summary = "Synergy's simulator: end and GPU time of every job, 14 runs of 300 jobs"
    paper = (
        "Mohan et al., Looking Beyond GPUs for DNN Scheduling on Multi-Tenant Clusters, "
        "USENIX OSDI 2022"
    )
    source = (
        "per-job files of the simulator: 300 jobs of ten models on 4 servers of 8 GPUs, 24 CPUs "
        "and 500 GB, rounds of 300 s, and the table of means recorded with them"
    )
    needs = ("blox",)
    known = (
        "opt and SRSF are not run: both crash in the simulator",
        (
            "jobs 216 and 217 are submitted in the same second; the simulator takes them in the "
            "order of its heap of events: 217 first in all runs where it matters (ties=reversed)"
        ),
        "the mode without a suffix, their greedy, is recorded for fifo, las, drf and tetris only",
    )

    def cases(self, setting: RecipeSetting) -> Sequence[Case]:
        """The recorded runs."""
        cluster = setting.write("synergy.yaml", NODES)
        return [
            Case(
                label=f"{order}-{mode}",
                config=RunConfig(
                    trace=str(setting.need("blox/synergy_trace_multi300.csv")),
                    format="synergy",
                    cluster=cluster,
                    policy=f"{order}:mechanism={MECHANISMS[mode]}",
                    like="synergy:ties=reversed",
                ),
                theirs=_file(order, mode),
                columns={"end_s": "completion_time_s", "jct_s": "jct_s"},
            )
            for order, mode in MEAN_JCT_S
        ]

    def more(self, case: Case, outcome: RecipeRun, table: pl.DataFrame) -> list[Check]:
        """Time on GPUs, and the mean."""
        order, _, mode = case.label.partition("-")
        service = table["attained_service_s"] * table["num_gpus"]
        return [
            same_rows(
                f"{case.label}: service_gpu_s",
                outcome.column("service_gpu_s"),
                dict(zip(table["job_id"], service, strict=True)),
            ),
            within(
                f"{case.label}: mean JCT (s)",
                round(outcome.summary["avg_jct_s"], 2),
                MEAN_JCT_S[order, mode],
                absolute=ROUNDING,
            ),
        ]


def _file(order: str, mode: str) -> str:
    suffix = "" if mode == "greedy" else f"_{mode}"
    return f"blox/synergy_result_{order}{suffix}.csv"


RECIPE = SynergyArtifact()
