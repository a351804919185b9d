"""Simulating observed jobs with fitted costs, and comparing with what really happened."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import polars as pl

from rota.core.events import INF, NODE_DOWN, NODE_UP
from rota.core.topology import Topology, Vertex
from rota.core.workload import Workload
from rota.engine.compose import compose
from rota.engine.loop import Engine
from rota.engine.parts import make_admission, make_placement, make_policy
from rota.engine.source import WorkloadSource
from rota.experiments.calibration.fit import LEVEL
from rota.experiments.calibration.setting import Setting
from rota.experiments.config import parse_rounds
from rota.metrics import fold_jobs
from rota.metrics.history import Floats
from rota.rates.costs import Custom
from rota.rates.models import make_rates
from rota.sim.cluster import SimCluster
from rota.traces.cluster import parse_cluster

METRICS = ("mean JCT", "p95 JCT", "mean wait", "makespan")
DRAWS_PER_RUN = 100

Outage = tuple[float, int, str]
"""(time, kind of event, name of the node)"""


class Error(msgspec.Struct, frozen=True):
    """A metric, live and simulated; `low` and `high`: 95 % interval of `error` (1 is 100 %)."""

    metric: str
    live: float
    simulated: float
    error: float
    low: float
    high: float


class Prediction(msgspec.Struct, frozen=True):
    """A metric of a workload that was not run; the interval is over costs and durations."""

    metric: str
    value: float
    low: float
    high: float


def replay(
    setting: Setting,
    workload: Workload,
    costs: Custom,
    *,
    believed_s: Floats | None = None,
    outages: Sequence[Outage] = (),
) -> pl.DataFrame:
    """The table of jobs of a simulation.

    Args:
        setting: Policy, machines, ...
        workload: The jobs with the durations that they have.
        costs: The cost model.
        believed_s: The durations that the policy is told, if it asks; NaN: the true one.
        outages: Failures and repairs of nodes.
    """
    topology, tenants = parse_cluster(setting.cluster)
    rates = make_rates("uniform", topology)
    scheduler = compose(
        make_policy(setting.policy),
        make_placement(setting.placement, topology, setting.seed),
        make_admission(setting.admission),
        frictionless=costs.free and rates.unit,
    )
    rounds = parse_rounds(setting.round) if setting.round else None
    cluster = SimCluster(
        topology,
        costs,
        rates,
        outages=_outages(topology, outages),
        finish_round_s=rounds.finish_round_s if rounds else 0.0,
    )
    engine = Engine(
        cluster,
        scheduler,
        WorkloadSource(workload),
        tenants=tenants,
        wake=rounds.wake if rounds else None,
        belief=_belief(workload, believed_s),
    )
    while (engine.view.active or engine.source.next_s < INF) and engine.advance():
        pass
    engine.finish()
    return fold_jobs(engine.log.frame())


def _outages(topology: Topology, outages: Sequence[Outage]) -> list[tuple[float, int, Vertex]]:
    nodes = {node.name: node for node in topology.nodes}
    return [(time_s, kind, nodes[name]) for time_s, kind, name in outages if name in nodes]


def find_outages(log: pl.DataFrame) -> list[Outage]:
    """Failures and repairs of nodes in a log."""
    vertices = log.filter(pl.col("event") == "vertex")
    names = dict(zip(vertices["ref"].to_list(), vertices["text"].to_list(), strict=True))
    rows = log.filter(pl.col("event").cast(pl.String).is_in(["node_down", "node_up"]))
    return [
        (time_s, NODE_DOWN if event == "node_down" else NODE_UP, names[ref].partition(":")[2])
        for time_s, event, ref in rows.select("time_s", "event", "ref").iter_rows()
    ]


def _belief(workload: Workload, believed_s: Floats | None) -> Callable[[int], float] | None:
    if believed_s is None or np.isnan(believed_s).all():
        return None
    works = np.array([behaviour.work for behaviour in workload.behaviours])
    factors = np.where(np.isnan(believed_s), 1.0, believed_s / works).tolist()
    return lambda index: float(factors[index])


# --- metrics --------------------------------------------------------------------------------------


def columns(jobs: pl.DataFrame) -> Floats:
    """(JCT, wait, submission, end) of each job, a row each."""
    table: Floats = jobs.select("jct_s", "wait_s", "submit_s", "end_s").cast(pl.Float64).to_numpy()
    return table


def metrics(table: Floats) -> Floats:
    """The numbers of METRICS, of jobs that ended; 0 if none did."""
    ended = table[~np.isnan(table[:, 0])]
    if not len(ended):
        return np.zeros(len(METRICS))
    return np.array(
        [
            ended[:, 0].mean(),
            np.percentile(ended[:, 0], 95),
            ended[:, 1].mean(),
            ended[:, 3].max() - ended[:, 2].min(),
        ]
    )


def compare(live: Floats, simulated: Sequence[Floats], rng: np.random.Generator) -> list[Error]:
    """The error of every metric, its mean over simulations that draw the costs anew.

    The interval covers the noise of costs, what is not known of their means, and which jobs
    happened to be submitted (jobs are drawn too, but for the makespan, which a drawn set of jobs
    does not have).
    """
    real = metrics(live)
    wholes = np.array([metrics(table) for table in simulated])
    drawn: list[Floats] = []
    for table, whole in zip(simulated, wholes, strict=True):
        for _ in range(DRAWS_PER_RUN):
            some = rng.integers(0, len(live), len(live))
            errors = _relative(metrics(table[some]), metrics(live[some]))
            errors[-1] = _relative(whole, real)[-1]
            drawn.append(errors)
    model = wholes.mean(axis=0)
    low, high = np.percentile(np.array(drawn), LEVEL, axis=0)
    parts = (real, model, _relative(model, real), low, high)
    return [Error(name, *(float(part[i]) for part in parts)) for i, name in enumerate(METRICS)]


def _relative(model: Floats, real: Floats) -> Any:
    return np.divide(model - real, real, out=np.zeros(len(real)), where=real > 0)


def predict(tables: Sequence[Floats]) -> list[Prediction]:
    """Means over simulations that differ in costs and durations."""
    numbers = np.array([metrics(table) for table in tables])
    low, high = np.percentile(numbers, LEVEL, axis=0)
    return [
        Prediction(name, float(numbers[:, i].mean()), float(low[i]), float(high[i]))
        for i, name in enumerate(METRICS)
    ]
