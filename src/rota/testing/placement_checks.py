"""`check_placement`: what every placement must do.

    from rota.testing import check_placement
    check_placement("last_fit.py")      # a file, a registered name, a class, or a function

Small clusters (of one kind of node, of several sizes, of two GPU types, with CPUs) are filled and
emptied at random, requests of many kinds are asked for on the way, and whole runs are made.
"""

from collections.abc import Callable, Iterator, Sequence
from random import Random

import msgspec

from rota.core.allocation import Allocation
from rota.core.jobs import Behaviour, Job, JobSpec, Request, Shape
from rota.core.topology import NodeSpec, Topology
from rota.engine.parts import make_placement
from rota.placement.base import EPSILON, Placement
from rota.policies.fifo_skip import FifoSkip
from rota.policies.srtf import Srtf
from rota.testing.logs import entries
from rota.testing.scenario import random_scenario, to_the_end
from rota.testing.subject import Report, Skip, must, run_checks, same

__all__ = ["check_placement"]

Maker = Callable[[Topology], Placement]
STEPS = 40
TAKE = 0.6


class Placer(msgspec.Struct):
    """The placement under test."""

    make: Maker
    seeds: tuple[int, ...]

    def walks(self) -> Iterator["Walk"]:
        """Random clusters to be filled and emptied."""
        for seed in self.seeds:
            for nodes in _clusters(Random(seed)):  # noqa: S311 - a cluster, not a secret
                yield Walk(self.make(Topology(nodes)), seed)


class Walk:
    """A cluster that is filled and emptied at random."""

    def __init__(self, placement: Placement, seed: int) -> None:
        self.placement = placement
        self.shapes = [
            Shape(number, request) for number, request in enumerate(_requests(placement.topology))
        ]
        self.held: list[tuple[Job, Allocation]] = []
        self._rng = Random(seed)  # noqa: S311 - a walk, not a secret

    def steps(self) -> Iterator[None]:
        """After every one of them there is something else to look at."""
        yield
        for number in range(STEPS):
            shape = self._rng.choice(self.shapes)
            if self._rng.random() < TAKE and self.placement.fits(shape):
                self.take(shape, number)
            elif self.held:
                self.give(self._rng.randrange(len(self.held)))
            yield

    def job(self, shape: Shape, number: int) -> Job:
        """A job that asks for this."""
        return Job(JobSpec(f"j{number}", 0.0, shape.request), Behaviour(1.0), number, shape)

    def take(self, shape: Shape, number: int) -> Allocation:
        """Start a job."""
        job = self.job(shape, number)
        allocation = self.placement.take(job)
        self.held.append((job, allocation))
        return allocation

    def give(self, position: int) -> None:
        """End one."""
        self.placement.give(*self.held.pop(position))

    def fitting(self) -> list[int]:
        """Numbers of the requests that fit now."""
        return [shape.number for shape in self.shapes if self.placement.fits(shape)]

    def __str__(self) -> str:
        held = ", ".join(f"{job.shape.describe()} {allocation}" for job, allocation in self.held)
        nodes = ", ".join(f"{node.gpus:g}" for node in self.placement.topology.nodes)
        return f"on nodes of {nodes} GPUs that hold {held or 'nothing'}"


def _clusters(rng: Random) -> Iterator[list[NodeSpec]]:
    size = rng.randint(1, 5)
    yield [NodeSpec(f"n{i}", 4) for i in range(size)]
    yield [NodeSpec(f"n{i}", rng.choice((1, 2, 4, 8))) for i in range(size)]
    yield [NodeSpec(f"n{i}", 4, "ab"[i % 2]) for i in range(size + 1)]
    yield [NodeSpec(f"n{i}", 4, cpus=8) for i in range(size)]


def _requests(topology: Topology) -> list[Request]:
    gpus = [count for count in (1, 2, 3, 4, 6, 8, 12) if count <= topology.gpus]
    found = [Request.of(count) for count in gpus]
    found += [Request.of(count, gpu_types=(kind,)) for kind in topology.types[1:] for count in gpus]
    found += [Request.of(count, cpus=3.0 * count) for count in gpus[:3]]
    return [*found, Request.of(0.5), Request.of(0.25)]


# --- the checks -----------------------------------------------------------------------------------


def it_names_itself(placer: Placer) -> None:
    """A name and a docstring."""
    placement = placer.make(Topology.uniform(1, 1))
    must(placement.name, "it has no name: set `name`")
    must(type(placement).__doc__, "the class needs a docstring")


def a_job_gets_what_it_asks_for(placer: Placer) -> None:
    """As many GPUs as asked for, of one type that it accepts, on nodes that have them free."""
    for walk in placer.walks():
        placement = walk.placement
        for number, _ in enumerate(walk.steps()):
            for shape in walk.shapes:
                if not placement.fits(shape):
                    continue
                free = placement.free
                got = walk.take(shape, 1000 + number)
                what = f"{shape.describe()}: it gives {got} {walk}"
                must(abs(got.gpus - shape.gpus) <= EPSILON, what)
                must(abs(placement.free - (free - shape.gpus)) <= EPSILON, what)
                must(placement.free >= -EPSILON, what)
                if not (placement.pooled or placement.room.divisible):
                    _lies_on_one_type(placement, shape, got, what)
                walk.give(len(walk.held) - 1)
                must(abs(placement.free - free) <= EPSILON, f"given back, {what}")


def _lies_on_one_type(placement: Placement, shape: Shape, got: Allocation, what: str) -> None:
    vertices = placement.topology.vertices
    kinds: set[str] = set()
    for vertex, _ in got.slices:
        node = next(n for n in placement.topology.nodes if n.id == vertices[vertex].node)
        kinds.add(node.gpu_type)
    must(len(kinds) <= 1, f"GPUs of {len(kinds)} types: {what}")
    must(not shape.types or kinds <= set(shape.types), f"of another type: {what}")


def feasible_agrees_with_choose(placer: Placer) -> None:
    """`feasible` says yes exactly where `choose` finds something, for whichever job."""
    for walk in placer.walks():
        placement = walk.placement
        if placement.pooled or placement.room.divisible:
            raise Skip("GPUs are one pool")
        for number, _ in enumerate(walk.steps()):
            for shape in walk.shapes:
                says = placement.feasible(shape, placement.room)
                found = placement.choose(shape, placement.room, None)
                what = f"{shape.describe()}: feasible says {says}, choose {found} {walk}"
                must(says == (found is not None), what)
                other = placement.choose(shape, placement.room, walk.job(shape, number))
                must((other is None) == (found is None), f"for a certain job {other}; {what}")


def more_room_never_hurts(placer: Placer) -> None:
    """Feasibility is monotone: what fits still fits when somebody leaves."""
    for walk in placer.walks():
        for _ in walk.steps():
            before = set(walk.fitting())
            if not walk.held:
                continue
            job, allocation = walk.held[0]
            walk.placement.give(job, allocation)
            lost = before - set(walk.fitting())
            named = ", ".join(walk.shapes[number].describe() for number in sorted(lost))
            must(not lost, f"{named}: fits, but not when {job.shape.describe()} leaves, {walk}")
            walk.placement.hold(job, allocation)


def whoever_leaves_leaves_nothing_behind(placer: Placer) -> None:
    """When everybody has left, the cluster is as empty as in the beginning."""
    for walk in placer.walks():
        placement, before = walk.placement, walk.fitting()
        for _ in walk.steps():
            pass
        while walk.held:
            walk.give(0)
        must(abs(placement.free - placement.topology.gpus) <= EPSILON, f"{placement.free} are free")
        must(walk.fitting() == before, "not everything fits any more that did in the beginning")
        for shape in walk.shapes:
            fits = shape.number in before
            must(fits == (placement.never(shape) is None), f"{shape.describe()}: `never` is wrong")


def nodes_that_are_down_are_not_used(placer: Placer) -> None:
    """No job goes to a node that is down; when it is back, all is as before."""
    for walk in placer.walks():
        placement = walk.placement
        before = walk.fitting()
        for node in placement.topology.nodes:
            placement.set_node(node, up=False)
        must(not walk.fitting(), f"something fits although all nodes are down: {walk}")
        for node in placement.topology.nodes:
            placement.set_node(node, up=True)
        must(walk.fitting() == before, "not everything fits any more after nodes were down")


def the_same_seed_gives_the_same_places(placer: Placer) -> None:
    """Two placements that are asked the same answer the same."""
    for one, other in zip(placer.walks(), placer.walks(), strict=True):
        for _ in zip(one.steps(), other.steps(), strict=True):
            pass
        must([a for _, a in one.held] == [a for _, a in other.held], f"two answers: {one}; {other}")


def whole_runs_hold_all_invariants(placer: Placer) -> None:
    """With a policy that preempts and with one that does not; twice the same log."""
    for seed in placer.seeds:
        scenario = random_scenario(seed, unit_s=60, lossy=False)
        for policy in (FifoSkip, Srtf):
            logs = []
            for _ in range(2):
                engine = to_the_end(scenario.engine(policy(), placement=placer.make))
                logs.append(entries(engine.log, engine.cluster.topology))
                must(not engine.view.active, f"never ended: {engine.view.jobs[:3]} in {scenario}")
            same(logs[0], logs[1], scenario)


CHECKS = (
    it_names_itself,
    a_job_gets_what_it_asks_for,
    feasible_agrees_with_choose,
    more_room_never_hurts,
    whoever_leaves_leaves_nothing_behind,
    nodes_that_are_down_are_not_used,
    the_same_seed_gives_the_same_places,
    whole_runs_hold_all_invariants,
)


def check_placement(
    placement: str | Maker | type[Placement], *, seeds: Sequence[int] = range(4), only: str = ""
) -> Report:
    """Run all checks on a placement.

    Args:
        placement: As of `--placement` (`name:key=value,...` or a Python file), a class, or a
            function that makes one for a topology.
        seeds: Random clusters to try; each takes some milliseconds per check.
        only: Only checks whose name contains this.

    Raises:
        CheckFailed: A check failed.
    """
    make: Maker
    if isinstance(placement, str):
        text = placement

        def make(topology: Topology) -> Placement:
            return make_placement(text, topology, 0)

    else:
        make = placement
    name = make(Topology.uniform(1, 1)).name
    chosen = [check for check in CHECKS if only in check.__name__]
    return run_checks(f"placement {name}", chosen, Placer(make, tuple(seeds)))
