"""Runs on clusters of several partitions, and what each partition would do if it were alone.

The nodes of a partition have a label, or a GPU type, that its jobs ask for and no others have. So
the partitions have nothing to do with each other, and neither should their jobs.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from rota.core.events import INF, NODE_DOWN, NODE_UP
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.policy import Policy
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.engine.loop import Engine
from rota.engine.parts import make_placement
from rota.sim.cluster import SimCluster
from rota.testing.logs import difference, entries
from rota.testing.naive import Entry
from rota.testing.scenario import Scenario, Solo, random_scenario, to_the_end, wire

PLACEMENTS = ("consolidate", "first-fit", "best-fit", "spread")
WRONG = 0.3  # the part of jobs whose estimates are wrong or missing


class Partitions(msgspec.Struct, frozen=True):
    """Scenarios that share a cluster; `typed`: told apart by GPU types instead of labels."""

    parts: tuple[Scenario, ...]
    placement: str
    typed: bool = False

    def engine(self, policy: Policy[Any], *numbers: int) -> Engine:
        """The real engine with these partitions only."""
        nodes = [
            (number, position, gpus)
            for number in numbers
            for position, gpus in enumerate(self.parts[number].nodes)
        ]
        topology = Topology(
            [
                NodeSpec(f"p{number}n{position}", gpus, **self._mark(number, "gpu_type", "labels"))
                for number, position, gpus in nodes
            ]
        )
        places = {node.name: node for node in topology.nodes}
        outages = [
            (o.at_s, NODE_UP if o.up else NODE_DOWN, places[f"p{number}n{o.node}"])
            for number in numbers
            for o in self.parts[number].outages
        ]
        outages.sort(key=lambda outage: outage[0])
        cluster = SimCluster(topology, self.parts[0].costs, Solo(), outages=outages)
        placement = make_placement(self.placement, topology, 0)
        return wire(policy, cluster, self._workload(numbers), placement=placement)

    def _mark(self, number: int, gpu_type: str, labels: str) -> dict[str, Any]:
        name = f"part{number}"
        if not self.typed:
            return {labels: (name,)}
        return {gpu_type: (name,) if gpu_type.endswith("s") else name}

    def _workload(self, numbers: tuple[int, ...]) -> Workload:
        jobs = [
            (item.submit_s, i, number, item)
            for number in numbers
            for i, item in enumerate(self.parts[number].jobs)
        ]
        jobs.sort(key=lambda job: job[:3])
        return Workload(
            [
                JobSpec(
                    f"p{number}j{i}", at_s,
                    Request.of(item.gpus, **self._mark(number, "gpu_types", "labels")),
                    estimate_s=item.estimate_s,
                )
                for at_s, i, number, item in jobs
            ],
            [Behaviour(item.work, fails_at=item.fails_at) for *_, item in jobs],
        )  # fmt: skip

    def mismatch(self, make: Callable[[], Policy[Any]]) -> str:
        """Where a partition fares differently beside others than alone; empty if nowhere."""
        together = to_the_end(self.engine(make(), *range(len(self.parts))))
        for number in range(len(self.parts)):
            alone = to_the_end(self.engine(make(), number))
            found = difference(_of(together, number), _of(alone, number))
            if found:
                return f"partition {number} beside others (here) and alone (expected):\n{found}"
        return ""


def _of(engine: Engine, number: int) -> list[Entry]:
    """What happened to the jobs of a partition, with their own numbers and those of its nodes."""
    topology = engine.cluster.topology
    name = f"p{number}"
    nodes = [node.name for node in topology.nodes]
    first = next(i for i, node in enumerate(nodes) if node.startswith(f"{name}n"))
    found = []
    for time_s, what, job, slices in entries(engine.log, topology):
        if what.startswith("node"):
            continue
        owner, _, own = engine.jobs[job].id.partition("j")
        if owner == name:
            here = tuple((place - first if place >= 0 else place, n) for place, n in slices)
            found.append((time_s, what, int(own), here))
    return found


def random_partitions(seed: int, *, unit_s: int = 1, **options: Any) -> Partitions:
    """Two to four small clusters side by side."""
    rng = Random(seed)  # noqa: S311 - a workload, not a secret
    typed = rng.random() < 0.5  # noqa: PLR2004 - one of two
    parts = [
        random_scenario(rng.randrange(1 << 30), unit_s=unit_s, placement="consolidate", **options)
        for _ in range(rng.randint(2, 4))
    ]
    change = msgspec.structs.replace
    return Partitions(
        tuple(
            change(
                part,
                costs=parts[0].costs,
                jobs=tuple(
                    change(job, estimate_s=_estimate(rng, job.work))
                    for job in sorted(part.jobs, key=lambda job: job.submit_s)
                ),
            )
            for part in parts
        ),
        rng.choice((*PLACEMENTS, "count") if typed else PLACEMENTS),
        typed,
    )


def _estimate(rng: Random, work: float) -> float:
    if rng.random() > WRONG:
        return work
    return rng.choice((INF, work / 2, work * 3))
