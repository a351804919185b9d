"""What makes a simulation rougher: nodes that fail, and oracles that are wrong.

*Failures.* Every node fails on its own: up for an exponential time with mean `mtbf` hours, then
down for an exponential time with mean `mttr` hours, from a stream that depends on the seed and the
node's name only. Failures are drawn up to a horizon: the last submission plus twice the time that
all work would take on all GPUs plus ten times the longest job. A run that lasts longer sees no
failures after it: every node that is down is repaired and stays up, so that every run ends. In a
replay nodes fail as they did in the log.

*Wrong estimates.* What an oracle tells of job number i is multiplied by a lognormal factor with
mean 1 + bias and coefficient of variation cv, the i-th draw of a stream of the seed: it does not
depend on the policy, nor on how many jobs are simulated. Without error it is exactly 1. For a
policy that reads users' estimates the true duration times the same factor takes their place, so
that it equals an oracle at cv=0; estimates of the trace count only where no error is asked for.
"""

import math
from collections.abc import Callable

import msgspec

from rota.core.errors import OptionError
from rota.core.events import INF, NODE_CLEARED, NODE_DOWN, NODE_OPENED, NODE_UP
from rota.core.sums import ordered_sum
from rota.core.topology import Topology, Vertex
from rota.core.workload import Workload
from rota.study.config import EstimateError

HOUR_S = 3600.0
MOST_OUTAGES = 5_000_000

Outage = tuple[float, int, Vertex]


def draw_outages(
    topology: Topology, workload: Workload, *, mtbf_h: float, mttr_h: float, seed: int
) -> list[Outage]:
    """Failures and repairs of all nodes up to the horizon, in order of time."""
    if not (0 < mtbf_h < INF and 0 < mttr_h < INF):
        raise OptionError(
            f"mtbf {mtbf_h:g} and mttr {mttr_h:g}: give hours above 0 "
            f"(mean time between failures, mean time to repair)"
        )
    horizon_s = failure_horizon_s(topology, workload)
    expected = horizon_s / ((mtbf_h + mttr_h) * HOUR_S) * len(topology.nodes)
    if expected > MOST_OUTAGES:
        raise OptionError(
            f"mtbf {mtbf_h:g} h means about {expected:.2g} failures in {horizon_s:.3g} s: give more"
        )
    outages = [
        outage
        for node in topology.nodes
        for outage in _node_outages(node, mtbf_h, mttr_h, seed, horizon_s)
    ]
    outages.sort(key=lambda outage: (outage[0], outage[1], outage[2].id))
    return outages


def recorded_outages(topology: Topology, workload: Workload) -> list[Outage]:
    """Failures and repairs as recorded, of the nodes that are there."""
    nodes = {node.name: node for node in topology.nodes}
    return [
        (max(at_s, 0.0), NODE_UP if up else NODE_DOWN, nodes[name])
        for at_s, name, up in workload.failures
        if name in nodes
    ]


def comings_and_goings(topology: Topology) -> list[Outage]:
    """When nodes that are there by a signal come, and when they are cleared."""
    nodes = {node.name: node for node in topology.nodes}
    found: list[Outage] = []
    for signal, names in topology.guests:
        here = dict.fromkeys(names, True)
        for time_s, value in signal.steps:
            for position, name in enumerate(names):
                if here[name] != (position < value):
                    here[name] = position < value
                    kind = NODE_OPENED if here[name] else NODE_CLEARED
                    found.append((max(time_s, 0.0), kind, nodes[name]))
    found.sort(key=lambda change: change[0])
    return found


def failure_horizon_s(topology: Topology, workload: Workload) -> float:
    """Until when nodes fail."""
    works = [behaviour.work for behaviour in workload.behaviours if behaviour.work < INF]
    gpus = (
        ordered_sum(group.count * group.gpus for group in spec.request.groups)
        for spec in workload.specs
    )
    gpu_s = ordered_sum(
        size * behaviour.work
        for size, behaviour in zip(gpus, workload.behaviours, strict=True)
        if behaviour.work < INF
    )
    last_s = max((spec.submit_s for spec in workload.specs), default=0.0)
    return last_s + 2 * gpu_s / max(topology.gpus, 1) + 10 * max(works, default=0.0)


def _node_outages(
    node: Vertex, mtbf_h: float, mttr_h: float, seed: int, horizon_s: float
) -> list[Outage]:
    from rota.traces.synth.draws import stream

    rng = stream(seed, f"failures of {node.name}")
    outages: list[Outage] = []
    time_s = rng.exponential(mtbf_h * HOUR_S)
    while time_s < horizon_s:
        outages.append((float(time_s), NODE_DOWN, node))
        time_s += rng.exponential(mttr_h * HOUR_S)
        outages.append((float(time_s), NODE_UP, node))
        time_s += rng.exponential(mtbf_h * HOUR_S)
    return outages


def draw_beliefs(error: EstimateError, jobs: int, seed: int) -> Callable[[int], float] | None:
    """The factor of each job by its number; None when nothing is wrong."""
    if error == EstimateError():
        return None
    if not error.cv:
        return lambda _: 1.0 + error.bias
    from rota.traces.synth.draws import stream

    normal = stream(seed, "estimate error").standard_normal(jobs)
    factors = [math.exp(error.mu + error.sigma * draw) for draw in normal.tolist()]
    return factors.__getitem__


def tell_estimates(workload: Workload, belief: Callable[[int], float] | None) -> Workload:
    """The same jobs with other estimates of their users: the truth times the factor of the job."""
    specs = [
        msgspec.structs.replace(
            spec, estimate_s=behaviour.work * (belief(number) if belief is not None else 1.0)
        )
        for number, (spec, behaviour) in enumerate(workload)
    ]
    return Workload(specs, workload.behaviours, name=workload.name, quality=workload.quality)
