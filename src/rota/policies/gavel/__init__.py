"""Allocations as fractions of time on GPU types (Narayanan et al., Gavel, OSDI 2020).

Each module answers one kind of problem with pure functions: numbers of the jobs in, a matrix X out,
where X[i, j] is the share of time that job i should spend on GPUs of type j. What X means for the
next round is the business of `rota.policies.rounds`.
"""

PAPER = (
    "Narayanan et al., Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning "
    "Workloads, OSDI 2020"
)
