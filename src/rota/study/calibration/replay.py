"""Simulating observed jobs with fitted costs, and comparing with what really happened."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import polars as pl

from rota.core.eventlog import EventLog, Floats
from rota.core.events import NODE_DOWN, NODE_UP
from rota.core.log import Record
from rota.core.topology import Topology, Vertex
from rota.core.workload import Workload
from rota.engine.source import WorkloadSource
from rota.engine.wiring import Parts, make_engine
from rota.metrics import fold_jobs
from rota.models.costs import Custom
from rota.models.rates import make_rates
from rota.sim.cluster import SimCluster
from rota.study.calibration.setting import Setting
from rota.study.config import parse_rounds
from rota.study.statistics import LEVEL as SHARE
from rota.study.statistics import student
from rota.traces.cluster import parse_cluster

METRICS = ("mean JCT", "p95 JCT", "mean wait", "makespan")

Outage = tuple[float, int, str]
"""(time, kind of event, name of the node)"""


class Error(msgspec.Struct, frozen=True):
    """A metric, live and simulated; `low` and `high`: 95 % interval of `error` (1 is 100 %).

    They are None after one simulation.
    """

    metric: str
    live: float
    simulated: float
    error: float
    low: float | None
    high: float | None


class Prediction(msgspec.Struct, frozen=True):
    """A metric of a workload that was not run; the interval is over costs and durations.

    `low` and `high` are None after one simulation.
    """

    metric: str
    value: float
    low: float | None
    high: float | None


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
    rounds = parse_rounds(setting.round) if setting.round else None
    cluster = SimCluster(
        topology,
        costs,
        make_rates("uniform", topology),
        outages=_outages(topology, outages),
        finish_round_s=rounds.finish_round_s if rounds else 0.0,
    )
    engine = make_engine(
        Parts.named(
            setting.policy,
            topology,
            placement=setting.placement,
            admission=setting.admission,
            seed=setting.seed,
        ),
        cluster,
        WorkloadSource(workload),
        tenants=tenants,
        wake=rounds.wake if rounds else None,
        belief=_belief(workload, believed_s),
    )
    engine.run(busy=engine.view.active)
    engine.finish()
    return fold_jobs(engine.log.frame())


def _outages(topology: Topology, outages: Sequence[Outage]) -> list[tuple[float, int, Vertex]]:
    nodes = {node.name: node for node in topology.nodes}
    return [(time_s, kind, nodes[name]) for time_s, kind, name in outages if name in nodes]


def find_outages(log: pl.DataFrame) -> list[Outage]:
    """Failures and repairs of nodes in a log."""
    events = EventLog(log)
    names = dict(zip(events.vertices.number.tolist(), events.vertices.names, strict=True))
    return [
        (
            float(events.time_s[row]),
            NODE_DOWN if events.event[row] == Record.NODE_DOWN else NODE_UP,
            names[int(events.ref[row])],
        )
        for row in events.rows_of(Record.NODE_DOWN, Record.NODE_UP).tolist()
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


def compare(live: Floats, simulated: Sequence[Floats]) -> list[Error]:
    """The error of every metric, its mean over simulations that draw the costs anew.

    The interval is of what chance alone makes of the error if the simulation is right: the noise
    of costs, in the simulations and in the one run that was live, and what is not known of their
    means (Student's, over the simulations).
    """
    real = metrics(live)
    errors = np.array([_relative(metrics(table), real) for table in simulated])
    model = np.array([metrics(table) for table in simulated]).mean(axis=0)
    found = []
    for i, name in enumerate(METRICS):
        error = float(_relative(model, real)[i])
        wide = _reach(errors[:, i])
        low, high = (error - wide, error + wide) if wide is not None else (None, None)
        found.append(Error(name, float(real[i]), float(model[i]), error, low, high))
    return found


def _relative(model: Floats, real: Floats) -> Any:
    return np.divide(model - real, real, out=np.zeros(len(real)), where=real > 0)


def predict(tables: Sequence[Floats]) -> list[Prediction]:
    """Means over simulations that differ in costs and durations.

    The interval holds the number of one more run: Student's, since percentiles of few simulations
    do not reach that far; of positive numbers that of their logarithms.
    """
    numbers = np.array([metrics(table) for table in tables])
    return [
        Prediction(name, float(numbers[:, i].mean()), *_further(numbers[:, i]))
        for i, name in enumerate(METRICS)
    ]


def _further(values: Floats) -> tuple[float, float] | tuple[None, None]:
    """Where one more value is expected; after one alone that is unknown."""
    positive = bool(values.min() > 0)
    scale = np.log(values) if positive else values
    wide = _reach(scale)
    if wide is None:
        return None, None
    low, high = float(scale.mean()) - wide, float(scale.mean()) + wide
    return (math.exp(low), math.exp(high)) if positive else (max(0.0, low), high)


def _reach(values: Floats) -> float | None:
    """How far from their mean one more value may be; None: one alone has no spread."""
    count = len(values)
    if count < 2:  # noqa: PLR2004 - see above
        return None
    return student(SHARE, count - 1) * float(values.std(ddof=1)) * math.sqrt(1 + 1 / count)
