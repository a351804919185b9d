"""Small runs as data: a scenario says everything, so a failing one can be printed and replayed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from rota.core.admission import Admission
from rota.core.allocation import Allocation
from rota.core.changes import Wake
from rota.core.events import INF, NODE_DOWN, NODE_UP
from rota.core.jobs import RUNNING, Behaviour, Job, JobSpec, Request
from rota.core.policy import Policy, PriorityPolicy
from rota.core.ports import Cluster, RateModel, TransitionCost
from rota.core.resources import licence
from rota.core.tenants import TenantTree
from rota.core.topology import NodeSpec, Topology
from rota.core.view import View
from rota.core.windows import NodeWindow
from rota.core.workload import Workload
from rota.engine.invariants import Invariants
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.engine.wiring import Parts, make_engine
from rota.models.rates import CourseRates
from rota.placement.base import Placement
from rota.placement.consolidate import consolidate
from rota.placement.count import count
from rota.sim.cluster import SimCluster
from rota.testing.logs import difference, entries
from rota.testing.naive import Entry, NaiveEngine

PLACEMENTS = {"count": count, "consolidate": consolidate}
BATCHES = 5_000  # of events; tiny runs have some hundred
SEAT = "seat"
SIZES = (1, 1, 2, 3, 4, 6, 8)
RARELY, SOMETIMES, OFTEN = 0.1, 0.3, 0.6


class Fixed(msgspec.Struct, frozen=True):
    """Constant mechanism costs; `lost` at a stop, `crash` with a node, half speed for `slow_s`."""

    start_s: float = 0.0
    stop_s: float = 0.0
    lost: float = 0.0
    crash: float = 0.0
    slow_s: float = 0.0
    name: str = "fixed"

    @property
    def free(self) -> bool:
        """Nothing costs anything."""
        return not (self.start_s or self.stop_s or self.lost or self.crash or self.slow_s)

    @property
    def instant_stop(self) -> bool:
        """Stopping takes no time."""
        return not self.stop_s

    def scaled(self, factor: float) -> "Fixed":
        """All times multiplied."""
        return Fixed(
            self.start_s * factor, self.stop_s * factor, self.lost * factor, self.crash * factor,
            self.slow_s * factor,
        )  # fmt: skip

    def transition(
        self,
        job: Job,
        old: Allocation | None,  # noqa: ARG002
        new: Allocation | None,  # noqa: ARG002
        now_s: float,  # noqa: ARG002
    ) -> TransitionCost:
        """The same for every job."""
        lost = self.lost if job.phase == RUNNING else 0.0
        return TransitionCost(self.stop_s, self.start_s, lost, self.slow_s, 0.5)

    def failure_loss(self, job: Job, now_s: float) -> float:  # noqa: ARG002
        """The same for every job that made progress."""
        return self.crash if job.phase == RUNNING else 0.0

    def describe(self) -> Mapping[str, Any]:
        """The numbers."""
        return msgspec.structs.asdict(self)


class Solo(RateModel):
    """Rate 1 wherever a job runs."""

    name = "solo"
    unit = True

    def rate(self, job: Job, allocation: Allocation, sharers: Sequence[Job]) -> float:  # noqa: ARG002
        """One."""
        return 1.0

    def describe(self) -> Mapping[str, Any]:
        """Nothing to say."""
        return {}


class EverybodyEnters(Admission):
    """No admission control."""

    name = "everybody"
    trivial = True

    def consider(self, job: Job, view: View) -> None:
        """Come in."""


class Item(msgspec.Struct, frozen=True):
    """One job of a scenario."""

    submit_s: float
    gpus: int
    work: float
    fails_at: float = INF
    on: tuple[int, ...] = ()
    """Positions of the nodes that it accepts; none: all."""
    estimate_s: float = INF
    course: tuple[tuple[float, float], ...] = ()
    """(work, factor): from this work on it progresses at this rate."""
    user: str = ""
    seats: int = 0
    """Licences that it asks for."""
    limit_s: float = INF
    retries: int = 0
    backoff_s: float = 0.0
    array: str = ""
    array_limit: int = 0
    after: tuple[int, ...] = ()
    """Jobs (their places in the scenario) that must succeed; `any` and `fail`: end, fail."""
    after_any: tuple[int, ...] = ()
    after_fail: tuple[int, ...] = ()


class Outage(msgspec.Struct, frozen=True):
    """A node (by position) goes down, or up."""

    at_s: float
    node: int
    up: bool


class Span(msgspec.Struct, frozen=True):
    """Nodes (by position) that are for some users, or for nobody, for some time."""

    start_s: float
    end_s: float
    nodes: tuple[int, ...]
    users: tuple[str, ...] = ()
    preempt: bool = False

    def window(self, number: int) -> NodeWindow:
        """As the real engine knows it."""
        return NodeWindow(
            name=f"w{number}", kind="reservation" if self.users else "maintenance",
            nodes=tuple(f"n{i}" for i in self.nodes), start_s=self.start_s, end_s=self.end_s,
            users=self.users, at_start="preempt" if self.preempt else "wait",
        )  # fmt: skip


def wire(
    policy: Policy[Any],
    cluster: Cluster,
    workload: Workload,
    *,
    placement: Placement | None = None,
    admission: Admission | None = None,
    tenants: TenantTree | None = None,
    wake: Wake | None = None,
    check: bool = True,
) -> Engine:
    """An engine of these parts; jobs are kept together on nodes unless a placement is given."""
    parts = Parts(
        policy, placement or consolidate(cluster.topology), admission or EverybodyEnters()
    )
    source = WorkloadSource(workload)
    checker = Invariants(keys=False) if check else None
    return make_engine(parts, cluster, source, tenants=tenants, wake=wake, checker=checker)


def to_the_end(engine: Engine) -> Engine:
    """Run until nothing can happen any more, but not for ever: some policies thrash."""
    for _ in range(BATCHES):
        if not engine.advance():
            engine.finish()
            return engine
    raise AssertionError(f"no end after {BATCHES} batches, at {engine.view.now_s:g} s")


class Scenario(msgspec.Struct, frozen=True):
    """Jobs, GPUs of one type on nodes, a placement, costs, outages, and rounds (0: none)."""

    jobs: tuple[Item, ...]
    nodes: tuple[int, ...] = (4,)
    placement: str = "count"
    costs: Fixed = Fixed()
    outages: tuple[Outage, ...] = ()
    round_s: float = 0.0
    windows: tuple[Span, ...] = ()
    seats: int = 0
    """Licences of the whole cluster; 0: it knows none."""

    def workload(self) -> Workload:
        """The jobs j0, j1, ... in their order."""
        return Workload(
            [
                JobSpec(
                    f"j{i}",
                    j.submit_s,
                    _request(j),
                    estimate_s=j.estimate_s,
                    limit_s=j.limit_s,
                    retries=j.retries,
                    backoff_s=j.backoff_s,
                    array=j.array,
                    array_limit=j.array_limit,
                    depends_on=_names(j.after),
                    after_any=_names(j.after_any),
                    after_fail=_names(j.after_fail),
                    user=j.user,
                )
                for i, j in enumerate(self.jobs)
            ],
            [Behaviour(j.work, fails_at=j.fails_at, course=j.course or None) for j in self.jobs],
        )

    def topology(self) -> Topology:
        """The nodes n0, n1, ..., with a label for every set of nodes that a job accepts."""
        wanted = sorted({job.on for job in self.jobs if job.on})
        return Topology(
            [
                NodeSpec(f"n{i}", gpus, labels=tuple(_label(on) for on in wanted if i in on))
                for i, gpus in enumerate(self.nodes)
            ],
            kinds=[licence(SEAT, self.seats)] if self.seats else (),
        )

    def engine(
        self,
        policy: Policy[Any],
        *,
        check: bool = True,
        workload: Workload | None = None,
        placement: Callable[[Topology], Placement] | None = None,
        admission: Admission | None = None,
        windows: bool = True,
    ) -> Engine:
        """The real engine with everything wired, ready to run; `windows`: those are known."""
        topology = self.topology()
        outages = [
            (o.at_s, NODE_UP if o.up else NODE_DOWN, topology.nodes[o.node]) for o in self.outages
        ]
        cluster = SimCluster(topology, self.costs, self._rates(topology) or Solo(), outages=outages)
        topology.windowed = frozenset(f"n{i}" for span in self.windows for i in span.nodes)
        place = (placement or PLACEMENTS[self.placement])(topology)
        wake = Wake(on=frozenset(), every_s=self.round_s) if self.round_s else None
        engine = wire(
            policy, cluster, workload or self.workload(), placement=place, admission=admission,
            check=check, wake=wake,
        )  # fmt: skip
        for number, span in enumerate(self.windows if windows else ()):
            engine.add_window(span.window(number))
        return engine

    def run(self, policy: Policy[Any], *, check: bool = True) -> Engine:
        """Run to the end."""
        return to_the_end(self.engine(policy, check=check))

    def naive(self, policy: PriorityPolicy[Any]) -> list[Entry]:
        """What the reference engine says."""
        return NaiveEngine(
            policy, self.workload(), self.nodes, self.costs, pooled=self.placement == "count",
            outages=[(o.at_s, o.node, o.up) for o in self.outages], round_s=self.round_s,
            on=[job.on for job in self.jobs], rates=self._rates(self.topology()),
            windows=[
                (w.start_s, w.end_s, w.nodes, self._of(w.users), w.preempt) for w in self.windows
            ],
            seats=self.seats or INF,
        ).run(batches=BATCHES)  # fmt: skip

    def _of(self, users: Sequence[str]) -> tuple[int, ...]:
        """Numbers of the jobs of these users."""
        return tuple(i for i, job in enumerate(self.jobs) if job.user in users)

    def _rates(self, topology: Topology) -> RateModel | None:
        return CourseRates(topology) if any(job.course for job in self.jobs) else None

    def scaled(self, factor: float) -> "Scenario":
        """The same with all times multiplied."""
        change = msgspec.structs.replace
        return change(
            self,
            jobs=tuple(
                change(
                    job, submit_s=job.submit_s * factor, work=job.work * factor,
                    fails_at=job.fails_at * factor, estimate_s=job.estimate_s * factor,
                    course=tuple((work * factor, rate) for work, rate in job.course),
                    limit_s=job.limit_s * factor, backoff_s=job.backoff_s * factor,
                )
                for job in self.jobs
            ),
            costs=self.costs.scaled(factor),
            outages=tuple(change(o, at_s=o.at_s * factor) for o in self.outages),
            round_s=self.round_s * factor,
            windows=tuple(
                change(w, start_s=w.start_s * factor, end_s=w.end_s * factor) for w in self.windows
            ),
        )  # fmt: skip

    def mismatch(self, make: Callable[[], PriorityPolicy[Any]]) -> str:
        """Where the real engine departs from the reference; empty if nowhere."""
        engine = self.run(make())
        return difference(entries(engine.log, engine.cluster.topology), self.naive(make()))


def _request(item: Item) -> Request:
    request = Request.of(item.gpus, labels=(_label(item.on),) if item.on else ())
    if not item.seats:
        return request
    (group,) = request.groups
    each = ((SEAT, item.seats / group.count),)
    return msgspec.structs.replace(
        request, groups=(msgspec.structs.replace(group, resources=each),)
    )


def _names(places: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"j{place}" for place in places)


def _label(on: Sequence[int]) -> str:
    """The label of the nodes at these positions."""
    return "on-" + "-".join(map(str, on))


def random_scenario(  # noqa: PLR0913 - what tests choose
    seed: int,
    *,
    placement: str = "",
    unit_s: int = 1,
    sizes: Sequence[int] = SIZES,
    costs: bool = True,
    outages: bool = True,
    lossy: bool = True,
    crashes: bool = True,
    courses: bool = False,
) -> Scenario:
    """A tiny cluster with a workload full of ties; all times are multiples of `unit_s`.

    `lossy=False` leaves out costs that lose work: with them a policy may thrash for ever.
    `crashes=False` leaves out jobs that fail by themselves; with `courses` rates change on the way.
    """
    rng = Random(seed)  # noqa: S311 - a workload, not a secret
    nodes = (rng.choice((1, 2, 2, 3, 4, 4)),) * rng.randint(1, 4)
    if rng.random() < SOMETIMES:
        nodes = tuple(rng.randint(1, 4) for _ in nodes)
    horizon = rng.choice((4, 12, 40))
    asked = [g for g in sizes if g <= sum(nodes)]
    if rng.random() < RARELY:
        asked.append(sum(nodes) + 1)
    jobs = tuple(
        Item(
            rng.randint(0, horizon) * unit_s,
            rng.choice(asked),
            rng.randint(1, rng.choice((3, 10, 30))) * unit_s,
            rng.randint(0, 9) * unit_s if rng.random() < RARELY and crashes else INF,
        )
        for _ in range(rng.randint(1, 14))
    )
    if courses:
        jobs = tuple(
            msgspec.structs.replace(job, course=_random_course(rng, job.work, unit_s))
            for job in jobs
        )
    return Scenario(
        jobs,
        nodes,
        placement or rng.choice(tuple(PLACEMENTS)),
        _random_costs(rng, unit_s, lossy=lossy) if costs and rng.random() < OFTEN else Fixed(),
        _random_outages(rng, len(nodes), horizon, unit_s)
        if outages and rng.random() < OFTEN
        else (),
    )


def _random_course(rng: Random, work: float, unit_s: int) -> tuple[tuple[float, float], ...]:
    """Rates whose times are exact in floating point."""
    units = int(work // unit_s)
    levels = {rng.randint(0, units) * unit_s for _ in range(rng.randint(0, 3))}
    return tuple((level, rng.choice((0.25, 0.5, 1.0, 2.0))) for level in sorted(levels))


def _random_costs(rng: Random, unit_s: int, *, lossy: bool) -> Fixed:
    start_s, stop_s = rng.choice((0, 1, 2, 5)), rng.choice((0, 0, 1, 4))
    lost, crash, slow_s = rng.choice((0, 0, 1, 3)), rng.choice((0, 2, 100)), rng.choice((0, 0, 3))
    if not lossy:
        lost = crash = 0
    return Fixed(start_s, stop_s, lost, crash, slow_s).scaled(unit_s)


def _random_outages(rng: Random, nodes: int, horizon: int, unit_s: int) -> tuple[Outage, ...]:
    """They may overlap; in the end every node is up."""
    outages = []
    for _ in range(rng.randint(1, 3)):
        node, at_s = rng.randrange(nodes), rng.randint(0, 2 * horizon)
        outages += [
            Outage(at_s * unit_s, node, up=False),
            Outage((at_s + rng.randint(1, 10)) * unit_s, node, up=True),
        ]
    last_s = max(outage.at_s for outage in outages) + unit_s
    return (*outages, *(Outage(last_s, node, up=True) for node in range(nodes)))


# --- Shrinking a scenario that fails --------------------------------------------------------------

COSTS = ("start_s", "stop_s", "lost", "crash", "slow_s")
FIELDS = (("gpus", 1), ("submit_s", 0), ("work", 1))


def shrunk(scenario: Scenario, fails: Callable[[Scenario], bool], *, tries: int = 1000) -> Scenario:
    """A small scenario that still fails, as far as single steps and so many tries lead."""
    candidates = variants(scenario)
    for _ in range(tries):
        candidate = next(candidates, None)
        if candidate is None:
            break
        if fails(candidate):
            scenario, candidates = candidate, variants(candidate)
    return scenario


def variants(scenario: Scenario) -> Iterator[Scenario]:
    """Simpler ones, simplest first."""
    yield from _shorter(scenario)
    yield from _cheaper(scenario)
    for i, job in enumerate(scenario.jobs):
        for name, least in FIELDS:
            for value in _lower(getattr(job, name), least):
                yield _with(scenario, "jobs", i, msgspec.structs.replace(job, **{name: value}))
    for i, outage in enumerate(scenario.outages):
        for value in _lower(outage.at_s, 0):
            yield _with(scenario, "outages", i, msgspec.structs.replace(outage, at_s=value))
    for i, size in enumerate(scenario.nodes):
        for value in _lower(size, 1):
            yield _with(scenario, "nodes", i, value)


def _shorter(scenario: Scenario) -> Iterator[Scenario]:
    change = msgspec.structs.replace
    for i in range(len(scenario.outages)):
        yield change(scenario, outages=scenario.outages[:i] + scenario.outages[i + 1 :])
    for i in range(len(scenario.windows)):
        yield change(scenario, windows=scenario.windows[:i] + scenario.windows[i + 1 :])
    for i in range(len(scenario.jobs)):
        yield change(scenario, jobs=scenario.jobs[:i] + scenario.jobs[i + 1 :])
    if len(scenario.nodes) > 1:
        nodes = scenario.nodes[:-1]
        kept = tuple(outage for outage in scenario.outages if outage.node < len(nodes))
        windows = tuple(window for window in scenario.windows if max(window.nodes) < len(nodes))
        yield change(scenario, nodes=nodes, outages=kept, windows=windows)


def _cheaper(scenario: Scenario) -> Iterator[Scenario]:
    change = msgspec.structs.replace
    for name in COSTS:
        for value in _lower(getattr(scenario.costs, name), 0):
            yield change(scenario, costs=change(scenario.costs, **{name: value}))


def _with(scenario: Scenario, field: str, i: int, value: Any) -> Scenario:
    old = getattr(scenario, field)
    return msgspec.structs.replace(scenario, **{field: (*old[:i], value, *old[i + 1 :])})


def _lower(value: float, least: float) -> list[Any]:
    steps = (least, value // 2, value - value // 8, value - 1)
    return sorted({type(value)(step) for step in steps if least <= step < value})
