"""A history once more, in the simulator: every job starts when it did, where it did.

If the simulator then gives the waiting times of the log to the second, its clock, accounts and
import can be trusted. What the log and the list of nodes contradict each other in is counted: then
GPUs are only counted, as if they were one machine with as many as there are (or were ever used).
Attempts of a job are runs of it: it is stopped in between, and its work is what it did in all.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from math import ceil
from time import process_time
from typing import Any

import msgspec
import polars as pl

from rota.core import events as ev
from rota.core.allocation import Allocation
from rota.core.changes import Changes, Wake
from rota.core.events import INF, Event
from rota.core.jobs import WAITING, Behaviour, Job, JobSpec, Request
from rota.core.knowledge import Knowledge
from rota.core.ports import Scheduler
from rota.core.reasons import Reason
from rota.core.resources import CPU
from rota.core.sums import ordered_sum
from rota.core.topology import NodeSpec, Topology
from rota.core.view import View
from rota.core.workload import Workload
from rota.engine.parts import make_costs
from rota.engine.source import WorkloadSource
from rota.engine.wiring import make_engine
from rota.metrics import fold_jobs, fold_summary, read_history
from rota.metrics.jobs import leave_open
from rota.models.rates import make_rates
from rota.sim.cluster import SimCluster
from rota.study.config import RunConfig
from rota.study.replay.cluster import held_frame, peak, peaks, with_shares
from rota.study.rough import recorded_outages
from rota.study.run import RunResult
from rota.traces.imported import Imported
from rota.traces.observed import FAILED, NODE_FAIL, PREEMPTED, TIMEOUT, UNKNOWN, Observed
from rota.traces.tidy import open_jobs

NAME = "observed"
_STOPPED = {
    NODE_FAIL: "its node failed",
    FAILED: "it failed, and was tried again",
    TIMEOUT: "it reached its time limit, and was tried again",
    PREEMPTED: "preempted or requeued, the log does not tell for whom",
}
STOP, START = 0, 1
UNLISTED = "a job on a node that is not listed"
TOO_MANY = "a job on more GPUs than its node has"
CROWDED = "a node with more GPUs in use than it has"
NO_NODES = "a job whose nodes are not recorded"
PARTS = "a job with a part of a GPU"
EARLY = "started before it was submitted"
OVERLAP = "an attempt that began before the one before it had ended"
EMPTY = "a last attempt without length after others: ignored"
MANY = "more GPUs in use at once than the cluster has"
_EPSILON = 1e-6


class Attempt(msgspec.Struct):
    """One run of a job, with what it held."""

    start_s: float
    end_s: float
    allocation: Allocation
    state: str = UNKNOWN


class Recorded(Scheduler):
    """A scheduler that knows the schedule: what is due is carried out."""

    name = NAME
    knowledge = Knowledge.NOTHING
    trusted = True  # the attempts were checked before
    wake = Wake()

    def __init__(self, attempts: Mapping[int, Sequence[Attempt]]) -> None:
        """Take the attempts of each job, in order of time."""
        self._attempts = attempts
        self._turn = dict.fromkeys(attempts, 0)  # 2 * attempt, + 1 once it has started
        self._due = [(runs[0].start_s, START, index) for index, runs in attempts.items()]
        heapify(self._due)
        self._jobs: dict[int, Job] = {}
        self._late: set[int] = set()  # due, but not submitted yet
        self._hit: dict[int, list[Job]] = {}  # by the node that is down

    def step(self, view: View, events: Sequence[Event]) -> Changes:
        """Stop and start what is due; who has not arrived yet is started when it does.

        Why a job waits nobody has recorded, but for a node that failed.
        """
        changes = Changes(view.version)
        self._hear(changes, view.now_s, events)
        touched: set[int] = set()
        again: list[tuple[float, int, int]] = []
        while self._due and self._due[0][0] <= view.now_s:
            entry = heappop(self._due)
            index = entry[2]
            if index in touched:
                again.append(entry)  # one change of a job per plan
            elif index in self._jobs:
                touched.add(index)
                self._act(changes, self._jobs[index], entry[1])
            else:
                self._late.add(index)
        for entry in again:
            heappush(self._due, entry)
        changes.wake = Wake(at_s=max(view.now_s, self._due[0][0]) if self._due else INF)
        return changes

    def _hear(self, changes: Changes, now_s: float, events: Sequence[Event]) -> None:
        node = -1
        for event in events:
            if event[1] == ev.JOB_SUBMIT:
                self._jobs[event[3].index] = event[3]
                changes.explain(event[3], Reason.UNKNOWN)
                if event[3].index in self._late:
                    self._late.remove(event[3].index)
                    heappush(self._due, (now_s, START, event[3].index))
            elif event[1] == ev.NODE_DOWN:
                node = event[3].id
            elif event[1] == ev.JOB_EVICTED:  # with the node that went down just before
                self._hit.setdefault(node, []).append(event[3])
            elif event[1] == ev.NODE_UP:
                for job in self._hit.pop(event[3].id, ()):
                    _wonder(changes, job)

    def _act(self, changes: Changes, job: Job, kind: int) -> None:
        runs = self._attempts[job.index]
        number = self._turn[job.index]
        if kind == START:
            if job.phase == WAITING:
                changes.start(job, runs[number].allocation)
            if number + 1 < len(runs):
                heappush(self._due, (runs[number].end_s, STOP, job.index))
        else:
            if job.running:
                changes.stop(job)
                changes.remark(
                    job, _STOPPED.get(runs[number].state, "stopped, the log does not tell why")
                )
                _wonder(changes, job)
            self._turn[job.index] = number + 1
            heappush(self._due, (runs[number + 1].start_s, START, job.index))

    def snapshot(self) -> Mapping[str, Any]:
        """A replay is not frozen."""
        return {}

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """A replay is not resumed."""


def _wonder(changes: Changes, job: Job) -> None:
    """It waits once more, and the log has to say so once more."""
    job.reason = 0
    changes.explain(job, Reason.UNKNOWN)


class Replayed(msgspec.Struct):
    """The recorded schedule, simulated. `jobs` are positions of its jobs in the trace."""

    result: RunResult
    nodes: tuple[NodeSpec, ...]  # that it was simulated on
    jobs: list[int]
    counted: bool  # GPUs are only counted: nodes and jobs contradict each other
    contradictions: dict[str, int]
    exact: int  # jobs whose waiting time came out to the second
    worst_s: float  # the largest difference of a waiting time
    guessed: int = 0  # jobs whose GPUs on each node the log does not tell


def replay_recorded(imported: Imported, nodes: Sequence[NodeSpec]) -> Replayed:
    """Simulate what happened."""
    begun_s = process_time()
    guessed = open_jobs(imported)
    imported = _with_observed(imported, with_shares(imported, nodes))
    contradictions = contradicted(imported, nodes)
    counted = bool(contradictions)
    most = peak(imported)
    total = sum(node.gpus for node in nodes)
    if most > total + _EPSILON:
        contradictions[MANY] = 1
        counted = True
    if counted:
        topology = Topology([NodeSpec("all", max(ceil(most - _EPSILON), total))])
    else:
        topology = Topology(list(nodes))
    runs, workload, jobs = _prepared(imported, topology, contradictions, counted=counted)
    until_s = imported.until_s
    outages = (
        ()
        if counted
        else [one for one in recorded_outages(topology, workload) if one[0] <= until_s]
    )
    rates = make_rates("uniform", topology)
    cluster = SimCluster(topology, make_costs("zero"), rates, outages=outages)
    engine = make_engine(Recorded(runs), cluster, WorkloadSource(workload))
    config = RunConfig(trace=imported.name, cluster="as recorded", policy=NAME)
    engine.run()
    engine.finish()
    log = engine.log.frame()
    history = read_history(log)
    everyone = fold_jobs(history)
    exact, worst_s = _compared(imported, everyone, jobs)
    table = leave_open(everyone, imported.open_ended)
    summary = fold_summary(history, jobs=table) | {"assumptions": _assumptions(counted=counted)}
    result = RunResult(config, log, table, summary, workload.quality, begun_s)
    return Replayed(result, topology.specs, jobs, counted, contradictions, exact, worst_s, guessed)


def _with_observed(imported: Imported, observed: Observed) -> Imported:
    return Imported(imported.jobs, observed=observed, events=imported.events, name=imported.name)


def contradicted(imported: Imported, nodes: Sequence[NodeSpec]) -> dict[str, int]:
    """How often the log and the nodes cannot both be true."""
    frame = imported.observed.frame
    sizes = imported.jobs.select("num_gpus").with_row_index("job").cast({"job": pl.Int64})
    jobs = frame.join(sizes, on="job")
    known = (pl.col("nodes").list.len() > 0) & (
        pl.col("nodes").list.len() == pl.col("gpus").list.len()
    )
    needs = pl.col("num_gpus") > 0
    held = held_frame(imported.observed)
    room = {node.name: float(node.gpus) for node in nodes}
    size = held["node"].replace_strict(room, default=None, return_dtype=pl.Float64)
    parts = (held["gpus"] != held["gpus"].round()).sum()
    found = {
        NO_NODES: int(jobs.select((~known & needs).sum()).item()),
        PARTS: int(parts),
        UNLISTED: int((size.is_null() & (held["gpus"] > 0)).sum()),
        TOO_MANY: int((held["gpus"] > size + _EPSILON).sum()),
    }
    most = peaks(held) if held.height else {}
    found[CROWDED] = sum(
        level > room[node] + _EPSILON for node, level in most.items() if node in room
    )
    return {what: many for what, many in found.items() if many}


def _prepared(
    imported: Imported, topology: Topology, contradictions: dict[str, int], *, counted: bool
) -> tuple[dict[int, list[Attempt]], Workload, list[int]]:
    """Runs by new job number, the jobs that ran, and their positions in the trace."""
    trace = imported.jobs.select("job_id", "submit_s", "num_gpus", "cpus", "vc", "user").rows()
    by_job = _attempts(imported, topology, counted=counted)
    specs, behaviours = [], []
    for job, mine in by_job.items():
        name, submit_s, gpus, _, tenant, user = trace[job]
        _tidy(mine, submit_s, contradictions)
        specs.append(JobSpec(name, submit_s, Request.of(gpus), tenant, user))
        behaviours.append(Behaviour(ordered_sum(run.end_s - run.start_s for run in mine)))
    runs = dict(enumerate(by_job.values()))
    workload = Workload(specs, behaviours, name=imported.name, failures=imported.failures)
    return runs, workload, list(by_job)


def _attempts(imported: Imported, topology: Topology, *, counted: bool) -> dict[int, list[Attempt]]:
    """The attempts of every job that ran, by its position in the trace."""
    places = {node.name: node.id for node in topology.nodes}
    pool = topology.pools[0].id
    latest_s = imported.until_s
    asked = imported.jobs.select("num_gpus", "cpus").rows()
    frame = imported.observed.frame.select("job", "start_s", "end_s", "nodes", "gpus", "state")
    found: dict[int, list[Attempt]] = {}
    for job, start_s, end_s, nodes, held, state in frame.iter_rows():
        gpus, cpus = asked[job]
        if counted:
            allocation = Allocation([(pool, gpus)] if gpus else [])
        else:
            allocation = _allocation(places, nodes, held, cpus)
        over_s = latest_s if end_s is None else max(end_s, start_s)
        found.setdefault(job, []).append(Attempt(start_s, over_s, allocation, state))
    return found


def _allocation(
    places: Mapping[str, int], nodes: Sequence[str], held: Sequence[float], cpus: float
) -> Allocation:
    slices = [(places[n], g) for n, g in zip(nodes, held, strict=False) if g and n in places]
    if slices:
        return Allocation(slices)
    known = [places[node] for node in nodes if node in places]
    return Allocation((), [(node, CPU.name, cpus / len(known)) for node in known])


def _tidy(runs: list[Attempt], submit_s: float, contradictions: dict[str, int]) -> None:
    """Attempts one after the other, the last with a length unless it is the only one."""
    for run, following in pairwise(runs):
        if run.end_s > following.start_s:
            run.end_s = following.start_s
            contradictions[OVERLAP] = contradictions.get(OVERLAP, 0) + 1
    while len(runs) > 1 and runs[-1].end_s <= runs[-1].start_s:
        runs.pop()
        contradictions[EMPTY] = contradictions.get(EMPTY, 0) + 1
    if runs[0].start_s < submit_s:
        contradictions[EARLY] = contradictions.get(EARLY, 0) + 1


def _compared(imported: Imported, table: pl.DataFrame, jobs: Sequence[int]) -> tuple[int, float]:
    """Jobs whose waiting is as observed to the second, and the largest difference."""
    latest_s = imported.until_s
    ran = (pl.col("end_s").fill_null(latest_s) - pl.col("start_s")).clip(0.0, None).sum()
    seen = (
        imported.observed.frame.group_by("job", maintain_order=True)
        .agg(
            pl.col("start_s").min(),
            pl.col("end_s").fill_null(latest_s).max(),
            ran.alias("run_s"),
        )
        .sort("job")
    )
    submit = imported.jobs["submit_s"].gather(pl.Series(jobs, dtype=pl.UInt32))
    wait = seen["end_s"] - submit - seen["run_s"]
    first = (table["first_start_s"] - seen["start_s"]).abs()
    waits = (table["wait_s"] - wait).abs()
    off = pl.select(pl.max_horizontal(first, waits)).to_series().fill_null(INF)
    return int((off < 1e-3).sum()), float(off.max() or 0.0)  # type: ignore[arg-type]  # noqa: PLR2004


def _assumptions(*, counted: bool) -> dict[str, Any]:
    where = "counted: nodes and jobs contradict each other" if counted else "the recorded nodes"
    return {
        "policy": {"name": NAME, "given": "the recorded starts"},
        "placement": {"name": where},
        "admission": {"name": "everyone"},
        "preemptive": None,
        "costs": {"name": "zero"},
        "rates": {"name": "uniform"},
        "ignored": [],
        "dialect": None,
        "rounds": None,
        "estimate_error": None,
        "knowledge": "the observed schedule",
        "seed": 0,
        "failures": None,
    }
