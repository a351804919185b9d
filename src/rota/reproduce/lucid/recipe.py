"""The baselines in the simulator of Lucid (Hu et al., ASPLOS 2023)."""

from rota.reproduce.helios.recipe import VirtualClusterArtifact
from rota.reproduce.lucid.dialect import LucidDialect


class LucidArtifact(VirtualClusterArtifact):
    """Five policies on 300 and on 1,000 jobs of Philly."""

    name = "lucid-artifact"
    summary = "Lucid's simulator: start, end, wait and preemptions of every job, 10 runs"
    paper = (
        "Hu et al., Lucid: A Non-intrusive, Scalable and Interpretable Scheduler for Deep Learning "
        "Training Jobs, ASPLOS 2023"
    )
    source = (
        "per-job files of the simulator's unmodified policies: 300 and 1,000 jobs of Philly on one "
        "virtual cluster of 32x8 and 48x8 GPUs, placer consolidate"
    )
    needs = ("common/philly300.csv", "common/philly1000.csv", "lucid")
    known = (
        (
            "lucid itself is recorded but not run: it packs jobs by measured speeds of pairs of "
            "models, which Rota does not have"
        ),
        "fifo, sjf and qssf are equal on the 300 jobs: hardly anybody waits there",
        "qssf is given true durations times GPUs, as in the recorded runs",
        (
            "Rota's own wait counts overheads of preemptions and the late second of an end, theirs "
            "counts neither: the check subtracts both"
        ),
    )
    like = LucidDialect
    recorded = tuple(
        (workload, policy)
        for workload in ("philly300", "philly1000")
        for policy in ("fifo", "sjf", "srtf", "qssf", "tiresias")
    )


RECIPE = LucidArtifact()
