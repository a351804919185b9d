"""Wires a run: workload, machines, scheduler, simulated cluster, engine, from one configuration."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import msgspec

from rota.core.changes import Wake
from rota.core.errors import ClusterSpecError, OptionError
from rota.core.events import INF, NODE_DOWN
from rota.core.jobs import SpeedBook
from rota.core.knowledge import Knowledge
from rota.core.ports import RateModel, Scheduler
from rota.core.registry import nearest
from rota.core.tenants import TenantTree
from rota.core.topology import Topology
from rota.core.windows import NodeWindow, WindowText, with_queues_below
from rota.core.workload import Workload, fields
from rota.engine.loop import Checker, Engine
from rota.engine.parts import make_admission, make_costs
from rota.engine.source import WorkloadSource
from rota.engine.wiring import Parts, make_engine
from rota.metrics.window import Window
from rota.models.rates import make_rates
from rota.models.speeds import NoisySpeeds, TrueSpeeds
from rota.sim.cluster import SimCluster
from rota.study.config import (
    DEFAULT_COSTS,
    DEFAULT_RATES,
    EstimateError,
    RoundOptions,
    RunConfig,
    parse_estimate_error,
    parse_rounds,
)
from rota.study.dialect import Dialect, create
from rota.study.rough import (
    comings_and_goings,
    draw_beliefs,
    draw_outages,
    failure_horizon_s,
    recorded_outages,
    tell_estimates,
)
from rota.study.workloads import draw_seed, load_workload
from rota.traces.cluster import parse_cluster

MOST_ROUNDS = 1e10  # of one run
LONG = 20  # parameters with more values are counted, not listed
FEW = 5  # names of tenants that are listed
ALIKE = 0.75  # names of tenants that are so much alike are taken for the same, mistyped


class Run(msgspec.Struct):
    """A run that is ready to go."""

    config: RunConfig
    workload: Workload
    topology: Topology
    engine: Engine
    assumptions: dict[str, Any]
    window: Window
    study: bool = False
    """Nothing ends: it is about placements."""
    notes: list[str] = msgspec.field(default_factory=list)
    """What is odd about the configuration."""


def build(config: RunConfig, workload: Workload | None = None) -> Run:
    """Make everything that a run needs; whatever is wrong with its options is said here.

    Args:
        config: The run.
        workload: The jobs of `config.trace` if they were read already.
    """
    window = Window.parse(config.measure) if config.measure else Window()
    rounds = parse_rounds(config.round) if config.round else None
    error = parse_estimate_error(config.estimate_error or "cv=0")
    topology, tenants = parse_cluster(config.cluster)
    dialect = create(config.like, config.format) if config.like else None
    _refuse_conflicts(config, dialect)
    costs = make_costs(config.costs or (dialect.costs if dialect else DEFAULT_COSTS))
    usual = dialect.rates_for(config.policy) if dialect else None
    rates = make_rates(_with_sharing(config.rates or usual or DEFAULT_RATES, topology), topology)
    free = costs.free and rates.unit
    scheduler, parts = _scheduler(config, dialect, topology, frictionless=free)
    if workload is None:
        workload = load_workload(config)
    _refuse_undeclared(topology, workload)
    if dialect is not None:
        workload = dialect.adapt(workload)
        dialect.meet(scheduler, workload, topology)
    if rounds is not None:
        _refuse_short_rounds(rounds, failure_horizon_s(topology, workload))
    notes = _compare_tenants(config, tenants, workload)
    scheduler.expect(workload)
    outages = _outages(config, topology, workload)
    belief = draw_beliefs(error, len(workload), draw_seed(config))
    told = workload
    reads = scheduler.knowledge & Knowledge.USER_ESTIMATE or _is_windowed(config, topology)
    if config.estimate_error is not None and reads:
        told = tell_estimates(workload, belief)
    cluster = SimCluster(
        topology,
        costs,
        rates,
        outages=[*comings_and_goings(topology), *outages],
        finish_round_s=_finish_round_s(rounds, dialect),
    )
    engine = make_engine(
        scheduler,
        cluster,
        WorkloadSource(told),
        tenants=tenants,
        wake=_wake(rounds, dialect),
        belief=belief,
        checker=_checker(config),
    )
    engine.arrivals.book = _speed_book(config, rates, scheduler)
    windows = _windows(config, engine, workload)
    parts |= {
        "costs": {"name": costs.name, **costs.describe()},
        "rates": {"name": rates.name, **rates.describe()},
        "ignored": _ignored(topology, workload),
        "dialect": _describe_dialect(dialect),
        "rounds": _describe_rounds(rounds, dialect),
        "estimate_error": (
            msgspec.structs.asdict(error)
            if error != EstimateError() or told is not workload
            else None
        ),
    }
    if windows:
        parts["windows"] = windows
    if config.speed_error is not None:
        parts["speed_error"] = msgspec.structs.asdict(_speed_error(config))
    study = dialect is not None and dialect.endless
    assumptions = _assumptions(config, engine, {**parts, "failures": _failures(config, outages)})
    return Run(config, workload, topology, engine, assumptions, window, study, notes)


def _windows(config: RunConfig, engine: Engine, workload: Workload) -> list[dict[str, Any]]:
    """Maintenance and reservations; as what they are known."""
    topology = engine.cluster.topology
    if not _is_windowed(config, topology):
        return []
    if config.like is not None:
        raise OptionError(
            f"--maintenance and --reserve (and `windows` of the cluster file): "
            f"{config.like.partition(':')[0]!r} is a published simulator, which knows no times in "
            f"which nodes are out of use: for its policy with windows leave --like out, to repeat "
            f"the publication leave the windows out"
        )
    seen = {spec.tenant for spec in workload.specs}
    tenants = engine.view.tenants
    windows = read_windows(config.maintenance, config.reserve, topology, tenants, seen)
    for window in windows:
        engine.add_window(window)
    return [msgspec.to_builtins(window) for window in windows]


def _is_windowed(config: RunConfig, topology: Topology) -> bool:
    return bool(config.maintenance or config.reserve or topology.planned)


def read_windows(
    maintenance: Sequence[str],
    reserve: Sequence[str],
    topology: Topology,
    tenants: TenantTree,
    seen: Collection[str],
) -> list[NodeWindow]:
    """Those of the cluster file, and those of options; `seen`: queues of jobs."""
    texts = [WindowText.declared(values) for values in topology.planned]
    texts += [WindowText.read("maintenance", text) for text in maintenance]
    texts += [WindowText.read("reservation", text) for text in reserve]
    windows: list[NodeWindow] = []
    for number, text in enumerate(texts, start=1):
        window = text.window(topology, number, windows)
        windows.append(with_queues_below(window, tenants, seen))
    return windows


def _checker(config: RunConfig) -> Checker | None:
    """It knows all schedulers, so it is imported only if it is wanted."""
    if not config.check:
        return None
    from rota.engine.invariants import Invariants

    return Invariants()


def _refuse_short_rounds(rounds: RoundOptions, horizon_s: float) -> None:
    """So many rounds that floating point cannot tell one from the next."""
    if horizon_s > rounds.every_s * MOST_ROUNDS:
        raise OptionError(
            f"round {rounds.every_s:g} s is too short for jobs that may take {horizon_s:.3g} s in "
            f"all: give {horizon_s / MOST_ROUNDS:.1g} s or more, or leave --round out to decide at "
            f"every event"
        )


def _speed_book(config: RunConfig, rates: RateModel, scheduler: Scheduler) -> SpeedBook | None:
    """What policies know of speeds: what the rate model says, with the error."""
    error = _speed_error(config)
    if not scheduler.knowledge & (Knowledge.SPEEDS | Knowledge.SCALING):
        return None
    truth = TrueSpeeds(rates)
    if error == EstimateError():
        return truth
    return NoisySpeeds(truth, cv=error.cv, bias=error.bias, seed=draw_seed(config))


def _speed_error(config: RunConfig) -> EstimateError:
    return parse_estimate_error(config.speed_error or "cv=0", "speed-error")


def _assumptions(config: RunConfig, engine: Engine, parts: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the numbers of a run rest on."""
    assumptions: dict[str, Any] = plain(
        {
            **parts,
            "knowledge": engine.scheduler.knowledge.describe(),
            "seed": config.seed,
        }
    )
    return assumptions


def _refuse_conflicts(config: RunConfig, dialect: Dialect | None) -> None:
    """Failures need two numbers; a dialect refuses what it cannot honour."""
    if (config.mtbf is None) != (config.mttr is None):
        raise OptionError("mtbf and mttr belong together: give both, in hours")
    if config.outages and config.mtbf is not None:
        raise OptionError("outages as recorded and mtbf exclude each other: give one of them")
    if dialect is None:
        return
    if config.admission is not None:
        raise OptionError(
            f"dialect {dialect.name!r} lets every job in: leave --admission out, or --like"
        )
    if config.round is not None and dialect.wake is not None:
        raise OptionError(
            f"dialect {dialect.name!r} has rounds of its own: leave --round out, "
            f"or set them as a parameter of the dialect (--like {dialect.name}:round=...)"
        )


def _scheduler(
    config: RunConfig, dialect: Dialect | None, topology: Topology, *, frictionless: bool
) -> tuple[Scheduler, dict[str, Any]]:
    """The scheduler, and what it was made of."""
    if dialect is not None:
        seed = draw_seed(config)
        scheduler = dialect.build(config.policy, config.placement, topology, seed=seed)
        placement_text = config.placement or dialect.placement
        return scheduler, {
            "policy": {"name": scheduler.name, "given": config.policy},
            "placement": {"name": placement_text},
            "admission": {"name": "everyone"},
            "preemptive": None,
        }
    topology.windowed = frozenset(
        node
        for window in read_windows(config.maintenance, config.reserve, topology, TenantTree(), ())
        for node in window.nodes
    )
    parts = Parts.named(
        config.policy,
        topology,
        placement=config.placement,
        admission=config.admission,
        seed=draw_seed(config),
    )
    if topology.windowed and not parts.placement.names_nodes:
        raise OptionError(
            f"maintenance and reservations: placement {parts.placement.name!r} adds up the CPUs, "
            f"memory and resources of all nodes, so it cannot leave out those of some: use another "
            f"one, e.g. consolidate, or a cluster that declares only GPUs"
        )
    named = {role: {"name": part.name, **_params(part.params)} for role, part in parts.by_role()}
    preemptive = parts.policy.preemptive
    return parts.scheduler(frictionless=frictionless), {**named, "preemptive": preemptive}


def _params(params: msgspec.Struct) -> dict[str, Any]:
    """All parameters, also those left at their defaults."""
    found: dict[str, Any] = msgspec.to_builtins(params)
    return found


def _outages(config: RunConfig, topology: Topology, workload: Workload) -> Any:
    if config.outages:
        return recorded_outages(topology, workload)
    if config.mtbf is None or config.mttr is None:
        return ()
    return draw_outages(
        topology, workload, mtbf_h=config.mtbf, mttr_h=config.mttr, seed=draw_seed(config)
    )


def _failures(config: RunConfig, outages: Sequence[Any]) -> dict[str, Any] | None:
    if config.outages:
        return {"recorded": sum(kind == NODE_DOWN for _, kind, _ in outages)}
    return {"mtbf_h": config.mtbf, "mttr_h": config.mttr} if config.mtbf else None


def _finish_round_s(rounds: RoundOptions | None, dialect: Dialect | None) -> float:
    if rounds is not None:
        return rounds.finish_round_s
    return dialect.finish_round_s if dialect else 0.0


def _wake(rounds: RoundOptions | None, dialect: Dialect | None) -> Wake | None:
    if rounds is not None:
        return rounds.wake
    return dialect.wake if dialect else None


def _describe_rounds(rounds: RoundOptions | None, dialect: Dialect | None) -> dict[str, Any] | None:
    if rounds is not None:
        return msgspec.structs.asdict(rounds)
    if dialect is not None and dialect.wake is not None:
        boundary = "boundary" if dialect.finish_round_s else "exact"
        return {"every_s": dialect.wake.every_s, "finish": boundary, "by": "dialect"}
    return None


def _describe_dialect(dialect: Dialect | None) -> dict[str, Any] | None:
    if dialect is None:
        return None
    return {"name": dialect.name, **_params(dialect.params), "notes": dialect.notes}


def _ignored(topology: Topology, workload: Workload) -> list[str]:
    """What jobs ask for although the cluster does not say how much of it there is."""
    asked = set()
    asking = fields(workload.specs, "request")
    for request in {id(request): request for request in asking}.values():
        for group in request.groups:
            if group.cpus:
                asked.add("cpus")
            if group.mem_gib:
                asked.add("mem_gib")
    declared = {kind for kind in asked if any(getattr(node, kind) for node in topology.nodes)}
    return sorted(asked - declared)


def _with_sharing(rates: str, topology: Topology) -> str:
    """Where GPUs have modes of sharing, sharing has its price."""
    names = {part.partition(":")[0] for part in rates.split("+")}
    if topology.shared and names.isdisjoint(("sharing", "pairs")):
        return f"{rates}+sharing"
    return rates


def _refuse_undeclared(topology: Topology, workload: Workload) -> None:
    """What jobs ask for and nobody has declared is an error, never as much as they like."""
    asking = fields(workload.specs, "request")
    for request in {id(request): request for request in asking}.values():
        if not topology.has_gpu_mem and any(group.gpu_mem_gib for group in request.groups):
            most = max(group.gpu_mem_gib for group in request.groups)
            raise ClusterSpecError(
                f"a job asks for {most:g} GiB of GPU memory (gpu_mem_gib), but the cluster does "
                "not say how much its GPUs have: describe it in a file and give gpu_mem_gib of "
                "its nodes"
            )
        for kind in request.resources:
            if topology.kind(kind) is None:
                job = next(spec.id for spec in workload.specs if spec.request is request)
                near = nearest(kind, topology.kinds)
                meant = f"did you mean {near!r}? Else " if near else ""
                raise ClusterSpecError(
                    f"job {job} asks for {kind!r}, which is no resource of the cluster: {meant}"
                    "declare it in the cluster's file: under resources, with the nodes that have "
                    "it, or under licences, if the whole cluster has so many"
                )


def _compare_tenants(config: RunConfig, tenants: TenantTree, workload: Workload) -> list[str]:
    """Tenants that only the cluster or only the jobs name; an error where it is a typing error."""
    if not len(workload):
        return []
    counts = Counter(fields(workload.specs, "tenant"))
    unknown = _unknown_queues(config, tenants, counts)
    if not len(tenants):
        return unknown
    named = {tenant.name for name in counts for tenant in tenants.path(name)}
    idle = [tenant.name for tenant in tenants if tenant.name not in named]
    strange = sorted(name for name in counts if name and name not in set(tenants.names))
    for name in idle:
        near = nearest(name, strange, cutoff=ALIKE)
        if near:
            raise ClusterSpecError(
                f"{config.cluster}: no job is of the tenant {name!r}: did you mean {near!r}, of "
                f"which {counts[near]:,} jobs are? If they are not the same, declare {near!r}, too"
            )
    notes = unknown
    if idle:
        notes.append(f"no job is of these tenants of {_named(config)}: {_listed(idle)}")
    if strange:
        notes.append(
            f"{sum(counts[name] for name in strange):,} jobs are of tenants that {_named(config)} "
            f"does not declare ({_listed(strange)}): they have no quota, no limit and weight 1"
        )
    return notes


def _named(config: RunConfig) -> str:
    """The cluster, for notes that are kept: where a file is must not change what is written."""
    return PurePath(config.cluster).name


def _unknown_queues(config: RunConfig, tenants: TenantTree, counts: Mapping[str, int]) -> list[str]:
    """Those that the admission names (budgets), and neither the cluster nor any job."""
    named = make_admission(config.admission).queues() if config.admission else ()
    known = {*tenants.names, *(tenant.name for name in counts for tenant in tenants.path(name))}
    strange = [name for name in named if name not in known]
    for name in strange:
        near = nearest(name, filter(None, known), cutoff=ALIKE)
        if near:
            raise OptionError(
                f"--admission {config.admission}: there is no queue {name!r}: did you mean "
                f"{near!r}?"
            )
    if not strange:
        return []
    there = _listed(sorted(filter(None, known))) or "none"
    none = f"no job is of {_listed(strange)}, so it holds nobody; there are {there}"
    return [f"--admission {config.admission}: {none}"]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - FEW:,} more" if len(names) > FEW else ""
    return ", ".join(names[:FEW]) + more


def plain(value: Any) -> Any:
    """Data that JSON can hold: infinity by name, long lists counted."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        if len(value) > LONG:
            return f"{len(value)} values from {plain(value[0])} to {plain(value[-1])}"
        return [plain(item) for item in value]
    if isinstance(value, float) and value in (INF, -INF):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, float) and value == int(value):
        return int(value)
    return value
