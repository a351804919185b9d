"""The simulator of Alibaba's PAI (Weng et al., NSDI 2022), job by job."""

from collections.abc import Sequence

from rota.reproduce.recipe import Artifact, Case, RecipeSetting, philly_run

RECORDED = (("philly300", "fifo"), ("philly1000", "fifo"), ("philly1000", "sjf"))


class PaiArtifact(Artifact):
    """Two policies, the cluster as one big node."""

    name = "pai-artifact"
    summary = "PAI's simulator: end of every job under fifo and sjf, 3 runs"
    paper = (
        "Weng et al., MLaaS in the Wild: Workload Analysis and Scheduling in Large-Scale "
        "Heterogeneous GPU Clusters, USENIX NSDI 2022"
    )
    source = (
        "per-job files of the unmodified simulator: 300 and 1,000 jobs of Philly on one node with "
        "the GPUs of 32x8 and 48x8, real submission times"
    )
    needs = ("common/philly300.csv", "common/philly1000.csv", "pai")
    known = (
        (
            "sjf on the 300 jobs and the simulator's mode with many nodes are not recorded: the "
            "latter did not finish, since jobs of more than 8 GPUs can never be placed there"
        ),
        "its files have no starts: only ends are compared",
        "its makespan counter is one tick late, which per-job ends are not",
    )

    def cases(self, setting: RecipeSetting) -> Sequence[Case]:
        """The recorded runs."""
        return [
            Case(
                label=f"{workload}-{policy}",
                config=philly_run(setting, "pai", workload, policy),
                theirs=f"pai/{workload}/{policy.upper()}_1node_jobs.csv",
                columns={"end_s": "end_s"},
            )
            for workload, policy in RECORDED
        ]


RECIPE = PaiArtifact()
