"""Worlds of which everything is known: how often does the interval of `rota when` hold the truth?

`python tests/forecast_worlds.py 1000` prints the whole table; the how-to page has a part of it.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.engine.compose import compose
from rota.engine.loop import Engine
from rota.engine.parts import make_admission, make_costs, make_placement, make_policy
from rota.engine.snapshot import freeze, restore
from rota.engine.source import WorkloadSource
from rota.models.rates import make_rates
from rota.sim.cluster import SimCluster
from rota.sim.durations import Durations
from rota.sim.foresight import spread_of, starts
from rota.traces.cluster import parse_cluster

MEAN_S = 1000.0
SIZES = (1, 1, 2, 4)
GRID = np.array([60, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400, 1e7])
LIMITS = np.array([300, 600, 1200, 3600])


class Kind(NamedTuple):
    """One kind of world. `estimates`: how they come about; "": there are none."""

    policy: str = "fifo"
    estimates: str = ""
    finished: int = 60
    lengths: str = "exponential"
    load: float = 1.3

    def __str__(self) -> str:
        """For the names of tests."""
        return "-".join([self.policy, self.estimates or "none", *map(str, self[2:])])


def draw_jobs(kind: Kind, count: int, rng: np.random.Generator) -> Workload:
    """Poisson arrivals, random sizes, lengths and estimates."""
    if kind.lengths == "exponential":
        length = 1 + rng.exponential(MEAN_S, count)
    else:  # heavy: the median is a third of the mean
        length = MEAN_S * rng.lognormal(-1.125, 1.5, count)
    told = np.full(count, np.inf)
    if kind.estimates == "truth x noise":
        told = length * rng.lognormal(0.0, 0.5, count)
    elif kind.estimates == "noise x estimate":
        told, length = length, length * rng.lognormal(0.0, 0.5, count)
    elif kind.estimates == "round, too long":
        told = GRID[np.searchsorted(GRID, length * rng.uniform(1, 3, count))]
    elif kind.estimates == "limits":
        told = rng.choice(LIMITS, count)
        length = np.minimum(length, told)
    sizes = rng.choice(SIZES, count)
    gap_s = float((sizes * length).mean()) / (8 * kind.load)
    at = np.cumsum(rng.exponential(gap_s, count))
    specs = [
        JobSpec(f"j{i}", float(at[i]), Request.of(int(sizes[i])), estimate_s=float(told[i]))
        for i in range(count)
    ]
    return Workload(specs, [Behaviour(float(one)) for one in length])


class World:
    """A run up to the moment at which enough jobs have finished and some wait, and its future."""

    def __init__(self, kind: Kind, seed: int) -> None:
        self.kind = kind
        rng = np.random.default_rng([7, seed])
        self.workload = draw_jobs(kind, kind.finished + 80, rng)
        engine = self._build()
        while len(engine.view.finished) < kind.finished or not self._waiting(engine):
            if not engine.advance():
                raise AssertionError("nobody ever waits in this world")
        self._state = freeze(engine)
        self.durations = Durations.of(engine)
        waiting = self._waiting(engine)
        self.index = waiting[int(rng.integers(len(waiting)))]
        job = engine.jobs[self.index]
        while not job.started and engine.advance():
            pass
        self.truth_s = job.first_start_s

    def _build(self) -> Engine:
        topology: Topology = parse_cluster("2x4")[0]
        costs, rates = make_costs("zero"), make_rates("uniform", topology)
        parts = (
            make_policy(self.kind.policy), make_placement("consolidate", topology, 0),
            make_admission("accept-all"),
        )  # fmt: skip
        scheduler = compose(*parts, frictionless=True)
        cluster = SimCluster(topology, costs, rates)
        return Engine(cluster, scheduler, WorkloadSource(self.workload))

    def _waiting(self, engine: Engine) -> list[int]:
        return [job.index for job in engine.view.active.values() if not job.started]

    def thaw(self, change=None, proposal=None) -> Engine:
        """As `Frozen` says. Those who come later are known."""
        engine = self._build()
        restore(engine, self._state)
        if change is not None:
            change(engine)
            engine.cluster.look_again(engine.view.active.values())
        return engine


def errors(kind: Kind, worlds: int, runs: int = 20) -> Iterator[int]:
    """Of each world: 0 if the interval held the truth, -1 if that was earlier, 1 if later."""
    for seed in range(worlds):
        world = World(kind, seed)
        spread = spread_of(starts(world, world.durations, world.index, runs=runs, seed=seed))
        yield (world.truth_s > spread.latest_s) - (world.truth_s < spread.earliest_s)


def print_table(kinds: Sequence[Kind], worlds: int) -> None:
    """In Markdown."""
    write = sys.stdout.write
    write("| policy | estimates | lengths | load | finished jobs | earlier | held | later |\n")
    write("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |\n")
    for kind in kinds:
        found = list(errors(kind, worlds))
        shares = " | ".join(f"{found.count(side) / worlds:.1%}" for side in (-1, 0, 1))
        write(
            f"| `{kind.policy}` | {kind.estimates or 'none'} | {kind.lengths} | {kind.load:g} | "
            f"{kind.finished} | {shares} |\n"
        )
        sys.stdout.flush()


ESTIMATES = ("", "truth x noise", "noise x estimate", "round, too long", "limits")
KINDS = [
    *(Kind(estimates=told, finished=count) for told in ESTIMATES for count in (60, 300)),
    *(Kind("fifo", "", count, "heavy") for count in (60, 300)),
    Kind("fifo", "truth x noise", 60, "heavy"),
    Kind("fifo", "truth x noise", 60, load=2.0),
    *(Kind("fifo-skip", told, 60) for told in ESTIMATES[:2]),
    *(Kind("easy", told, 60) for told in ESTIMATES[1:3]),
]

if __name__ == "__main__":
    print_table(KINDS, int(sys.argv[1]))
