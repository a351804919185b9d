"""Checks of `check_policy` about what a policy may know and what jobs may ask for."""

from random import Random

import msgspec

from rota.core.errors import KnowledgeError
from rota.core.events import INF
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.knowledge import Knowledge
from rota.core.tenants import Tenant, TenantTree
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.sim.cluster import SimCluster
from rota.testing.scenario import Fixed, Solo, to_the_end, wire
from rota.testing.subject import UNIT_S, Skip, Subject, everybody_done, happened, run, same

# --- knowledge ------------------------------------------------------------------------------------


def undeclared_knowledge_is_refused(subject: Subject) -> None:
    """Without what it declares it either raises KnowledgeError or did not need it."""
    policy = subject.make()
    if not policy.knowledge:
        raise Skip("it declares nothing")
    for scenario in subject.scenarios():
        blind = subject.make()
        blind.knowledge = Knowledge.NOTHING
        engine = scenario.engine(blind)
        try:
            to_the_end(engine)
        except KnowledgeError:
            continue
        same(happened(engine), happened(run(subject, scenario)), scenario)


def true_durations_stay_hidden(subject: Subject) -> None:
    """Without an oracle nothing before the first completion depends on how long jobs will run."""
    oracles = Knowledge.REMAINING_WORK | Knowledge.PROGRESS | Knowledge.FUTURE_ARRIVALS
    if subject.make().knowledge & oracles:
        raise Skip("it declares that it knows")
    for scenario in subject.scenarios(costs=False, crashes=False):
        usual = happened(run(subject, scenario))
        first_s = min((t for t, what, *_ in usual if what == "done"), default=0.0)
        most = max(item.work for item in scenario.jobs)
        jobs = tuple(  # all longer, and in the opposite order
            msgspec.structs.replace(item, work=2 * most - item.work) for item in scenario.jobs
        )
        longer = happened(run(subject, msgspec.structs.replace(scenario, jobs=jobs)))
        same(
            [entry for entry in longer if entry[0] < first_s],
            [entry for entry in usual if entry[0] < first_s],
            scenario,
        )


def estimates_stay_hidden(subject: Subject) -> None:
    """Without USER_ESTIMATE what users write changes nothing."""
    if subject.make().knowledge & Knowledge.USER_ESTIMATE:
        raise Skip("it declares that it reads them")
    for scenario in subject.scenarios(costs=False):
        usual = scenario.workload()
        told = [
            msgspec.structs.replace(spec, estimate_s=(1 + i * 7 % 5) * UNIT_S)
            for i, spec in enumerate(usual.specs)
        ]
        engine = run(subject, scenario, workload=Workload(told, usual.behaviours))
        same(happened(engine), happened(run(subject, scenario)), scenario)


def speeds_stay_hidden(subject: Subject) -> None:
    """Without SPEEDS it does not matter how fast jobs would be on other GPU types."""
    if subject.make().knowledge & Knowledge.SPEEDS:
        raise Skip("it declares that it reads them")
    for scenario in subject.scenarios(costs=False):
        usual = scenario.workload()
        faster = [
            msgspec.structs.replace(how, speeds={"": (1 + i * 7 % 5) / 5, "k80": 0.1})
            for i, how in enumerate(usual.behaviours)
        ]
        engine = run(subject, scenario, workload=Workload(usual.specs, faster))
        same(happened(engine), happened(run(subject, scenario)), scenario)


# --- everything a job can ask ---------------------------------------------------------------------


def mixed_clusters_and_requests_work(subject: Subject) -> None:
    """GPU types, CPUs, memory, labels, tenants, parts of GPUs, tasks, groups and dependencies."""
    for seed in subject.seeds:
        rng = Random(seed)  # noqa: S311 - a workload, not a secret
        topology = Topology(
            [
                NodeSpec("a0", 4, "v100", cpus=32, mem_gib=256, path=("r0",)),
                NodeSpec("a1", 4, "v100", cpus=32, mem_gib=256, path=("r0",), labels=("fast",)),
                NodeSpec("b0", 2, "k80", cpus=8, mem_gib=64, path=("r1",)),
            ],
            levels=("rack",),
        )
        tenants = TenantTree([Tenant("x", quota=4, weight=2), Tenant("y", quota=6)])
        specs = [_anything(rng, i) for i in range(14)]
        works = [Behaviour(rng.randint(1, 20) * UNIT_S) for _ in specs]
        costs = Fixed(start_s=rng.choice((0, 30)))
        engine = wire(
            subject.make(),
            SimCluster(topology, costs, Solo()),
            Workload(specs, works),
            tenants=tenants,
        )
        to_the_end(engine)
        everybody_done(engine)


def _anything(rng: Random, number: int) -> JobSpec:
    requests = (
        Request.of(rng.choice((1, 2, 4))),
        Request.of(rng.choice((1, 2)), gpu_types=("k80",), cpus=2),
        Request.of(2, gpu_types=("v100",), cpus=8, mem_gib=64),
        Request.of(1, labels=("fast",)),
        Request.of(0.5),
        Request.of(3, gang=False),
        Request.of(2, cpus=4, mem_gib=16),
    )
    return JobSpec(
        f"j{number}",
        rng.randint(0, 20) * UNIT_S,
        rng.choice(requests),
        tenant=rng.choice(("x", "y", "")),
        user=rng.choice(("ann", "bob")),
        group="search" if rng.random() < 0.2 else "",  # noqa: PLR2004 - a few
        estimate_s=rng.choice((INF, 10.0 * UNIT_S)),
        depends_on=(f"j{rng.randrange(number)}",) if number and rng.random() < 0.2 else (),  # noqa: PLR2004
    )
