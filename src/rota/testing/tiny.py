"""Tiny hand-made workloads with known answers: (scenario, what each policy must do)."""

from rota.testing.scenario import Fixed, Item, Outage, Scenario

EMPTY = Scenario(())
"""Nothing at all."""

ONE = Scenario((Item(5, 2, 10),))
"""One job: it starts when it is submitted and takes as long as its work."""

TOO_LARGE = Scenario((Item(0, 1, 3), Item(1, 99, 3), Item(2, 1, 3)))
"""The second job can never fit and must be refused, with the others undisturbed."""

GAPS = Scenario((Item(0, 4, 3), Item(10, 4, 3), Item(20, 1, 3)))
"""The cluster is empty whenever a job comes: no job waits under any policy."""

TOGETHER = Scenario(tuple(Item(7, 1 + i % 3, 5) for i in range(9)))
"""Nine jobs at one instant."""

TIES = Scenario(tuple(Item(0, 1, 4) for _ in range(12)), nodes=(2,))
"""Twelve equal jobs on two GPUs: pairs in order of submission, whatever the policy."""

CONVOY = Scenario((Item(0, 1, 100), Item(1, 1, 1), Item(2, 1, 1), Item(3, 1, 1)), nodes=(1,))
"""A long job before short ones on one GPU: FIFO takes a mean JCT of 100, SRTF of 26.5."""

CRASH = Scenario(
    (Item(0, 2, 10), Item(0, 2, 10)),
    nodes=(2, 2),
    placement="consolidate",
    outages=(Outage(4, 0, up=False), Outage(7, 0, up=True)),
)
"""A node fails under one of two jobs; it returns to the queue and goes on after the repair."""

BROKEN = Scenario((Item(0, 2, 10, fails_at=4), Item(1, 4, 5)))
"""The first job fails by itself at 4 s: the second starts then."""

COSTLY = Scenario((Item(0, 1, 20), Item(5, 1, 2)), nodes=(1,), costs=Fixed(start_s=3))
"""SRTF: the short job displaces the long one at 5 s, runs from 8 to 10, then 3 s of start again."""

MEAN_JCT = {"fifo": {"CONVOY": 100.0}, "srtf": {"CONVOY": 26.5}}
"""Known answers: mean JCT by policy and workload."""
