"""Hand-computed scenarios through the real engine: who ran when, exactly."""

import msgspec

from rota.core.jobs import Behaviour, Job, JobSpec, Request, Shape
from rota.core.knowledge import Knowledge
from rota.core.log import Record
from rota.core.tenants import TenantTree
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.engine.compose import compose
from rota.engine.loop import Engine
from rota.engine.snapshot import freeze, restore
from rota.engine.source import WorkloadSource
from rota.placement.consolidate import consolidate
from rota.placement.count import count
from rota.policies.admission.accept_all import AcceptAll
from rota.sim.cluster import SimCluster
from rota.testing.scenario import Fixed, Solo

PLACEMENTS = {"count": count, "consolidate": consolidate}
EVERYTHING = Knowledge(127)
BEGIN = {"start"}
END = {"stop", "done", "failed", "evicted", "cancelled"}


def job(name, submit_s, gpus, work, **spec):
    """Return one job: name, submission, GPUs, seconds that it needs; more fields of `JobSpec`."""
    return JobSpec(name, submit_s, Request.of(gpus), **spec), Behaviour(work)


def bare(index=0, *, gpus=1, work=100.0, known=EVERYTHING, **spec):
    """Return a job outside any engine, for questions to a policy."""
    fields = {"submit_s": 0.0, "request": Request.of(gpus), **spec}
    made = Job(
        JobSpec(f"bare{index}", **fields), Behaviour(work), index, Shape(0, fields["request"])
    )
    made.known = int(known)
    return made


def engine(policy, jobs, *, gpus=1, nodes=1, placement="count", admission=None, costs=None,
           tenants=(), outages=(), belief=None):  # fmt: skip
    """Return the real engine on a simulated cluster of `nodes` with `gpus` each."""
    topology = Topology.uniform(nodes, gpus)
    events = [(at_s, kind, topology.nodes[node]) for at_s, kind, node in outages]
    cluster = SimCluster(topology, costs or Fixed(), Solo(), outages=events)
    scheduler = compose(
        policy,
        PLACEMENTS[placement](topology),
        admission or AcceptAll(),
        frictionless=cluster.capabilities.frictionless,
    )
    source = WorkloadSource(Workload([spec for spec, _ in jobs], [how for _, how in jobs]))
    return Engine(cluster, scheduler, source, tenants=TenantTree(tenants), belief=belief)


def finish(made):
    """Run to the end and return the log as a table."""
    made.run()
    made.finish()
    return made.log.frame()


def runs_of(log):
    """Return the intervals for which each job held its GPUs, by name."""
    names = dict(
        zip(
            log.filter(log["event"] == "submit")["job"],
            log.filter(log["event"] == "submit")["text"],
            strict=True,
        )
    )
    runs = {name: [] for name in names.values()}
    for time_s, event, number in log.select("time_s", "event", "job").iter_rows():
        if event in BEGIN:
            runs[names[number]].append((time_s, None))
        elif event in END and runs[names[number]] and runs[names[number]][-1][1] is None:
            runs[names[number]][-1] = (runs[names[number]][-1][0], time_s)
    return runs


def runs(policy, jobs, **options):
    """Run to the end; the intervals for which each job held its GPUs, by name."""
    return runs_of(finish(engine(policy, jobs, **options)))


def rows(log, record):
    """Return the rows of one kind as (time_s, job, value)."""
    found = log.filter(log["event"] == Record(record).name.lower())
    return list(found.select("time_s", "job", "value").iter_rows())


def resumes_alike(make_policy, jobs, at_s, make_admission=None, **options):
    """Is the log the same when the run is frozen at `at_s` and thawed in another engine?"""

    def make():
        admission = make_admission() if make_admission else None
        return engine(make_policy(), jobs, admission=admission, **options)

    first = make()
    first.run(at_s)
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(freeze(first)))
    second = make()
    restore(second, state)
    return finish(second).equals(finish(make()))
