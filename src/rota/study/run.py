"""One simulated run: from a configuration to its log, its table of jobs and its summary."""

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import eq
from pathlib import Path
from time import process_time
from typing import Any

import msgspec
import numpy as np
import polars as pl

from rota.core.eventlog import EventLog, Floats
from rota.core.events import INF
from rota.core.knowledge import Knowledge
from rota.core.log import Record
from rota.core.registry import nearest
from rota.core.words import counted, duration
from rota.core.workload import Quality, Workload, fields
from rota.engine.loop import Engine
from rota.engine.parts import make_policy
from rota.metrics import fold_jobs, fold_summary, read_history
from rota.metrics.basis import Basis, make_basis
from rota.metrics.fragments import arrivals, fold_allocation, fold_fragments
from rota.metrics.jobs import UNFINISHED, leave_open
from rota.study.build import Run, build
from rota.study.config import RunConfig
from rota.study.follow import LiveLog
from rota.study.resume import Freeze, thaw
from rota.study.rough import failure_horizon_s
from rota.study.workloads import is_generated

ROUNDING = 1e-6  # means of GPUs are sums of floats
BATCHES = 2_000  # between two reports of progress
FEW_BATCHES = 100  # the same for who follows: a batch of a slow policy may take a second
FEW_NAMES = 5  # that are listed
SIZE_BLIND = frozenset({"uniform", "types", "locality", "sharing", "course", "sensitivity"})
"""Rate models for which the number of GPUs makes no difference."""

Progress = Callable[[int, int, float], None]
"""Told (jobs that are over, jobs in all, simulated time in seconds) from time to time."""


class RunResult(msgspec.Struct):
    """What a run gave. `begun_cpu_s` is the CPU clock of the process when it began."""

    config: RunConfig
    log: pl.DataFrame
    jobs: pl.DataFrame
    summary: dict[str, Any]
    quality: Quality
    begun_cpu_s: float
    allocation: pl.DataFrame | None = None
    """Of a study of placements: use and fragments against the load that has arrived."""
    basis: Basis | None = None
    """What its fragments were measured by; None: they were not."""
    notes: list[str] = msgspec.field(default_factory=list)
    """What is odd about the configuration."""
    cut: int = 0
    """Jobs that ran as long as the log tells; their end is unknown."""

    @property
    def assumptions(self) -> dict[str, Any]:
        """Everything that the numbers rest on."""
        assumptions: dict[str, Any] = self.summary["assumptions"]
        return assumptions

    @property
    def warnings(self) -> list[str]:
        """What a careful reader of the result must know."""
        found = self.quality.told
        found += [
            f"jobs ask for {kind}, but the cluster does not say how much it has: ignored"
            for kind in self.assumptions["ignored"]
        ]
        return found + self.notes + self._unserved()

    @property
    def refusal(self) -> str:
        """Why the first job was rejected, and how many more were; empty: none was."""
        return self._rejected("")

    def _rejected(self, was: str) -> str:
        events = EventLog(self.log)
        rejected = events.rows_of(Record.REJECTED)
        if not len(rejected):
            return ""
        job = int(events.job[rejected[0]])
        name = self.jobs["job_id"][job] if job < self.jobs.height else f"number {job}"
        more = f" (and {len(rejected) - 1:,} more)" if len(rejected) > 1 else ""
        return f"job {name}{was}{more}: {events.text(int(rejected[0]))}"

    def _unserved(self) -> list[str]:
        """Jobs that did not run to their end."""
        found = [*filter(None, [self._rejected(" was rejected")])]
        left = int((self.jobs["state"] == UNFINISHED).sum()) - self.cut
        unfinished = min(self.summary["states"]["unfinished"], left)  # of those that are measured
        kept_out = int(read_history(self.log).kept_out.sum()) if unfinished else 0
        if kept_out:
            unfinished = max(0, unfinished - kept_out)
            found.append(
                f"{counted(kept_out, 'job')} still {'waits' if kept_out == 1 else 'wait'} for a "
                f"maintenance or reservation that has no end: give it one (for= or end=), or "
                f"jobs a time limit with which they end before"
            )
        if unfinished and self.allocation is None:
            found.append(
                f"{counted(unfinished, 'job')} never finished: nothing could happen any more; look "
                f"at the `wake` of the policy, and at whom it places"
            )
        return found


def simulate(
    config: RunConfig,
    progress: Progress | None = None,
    *,
    workload: Workload | None = None,
    freeze: Freeze | None = None,
    resume: Path | None = None,
    live: LiveLog | None = None,
) -> RunResult:
    """Carry out a run; the same configuration and files give the same log.

    Args:
        config: The run.
        progress: Called from time to time.
        workload: The jobs of `config.trace` if they were read already.
        freeze: Where and when to write a snapshot on the way.
        resume: A snapshot of the same run to go on from.
        live: Where others can follow it.
    """
    begun_s = process_time()
    with _no_collections():
        run = build(config, workload)
        if resume is not None:
            thaw(run.engine, resume, config)
        started_s = process_time()
        if freeze is not None:
            _drive(run, progress, freeze.at_s, live=live)
            freeze.save(run.engine, config)
        _drive(run, progress, forgetful=_forgetful(run.engine), live=live)
        run.engine.finish()
        run.engine.log.pack()
        engine_cpu_s = process_time() - started_s
        return _fold(run, begun_s, engine_cpu_s)


def _drive(
    run: Run,
    progress: Progress | None,
    until_s: float = INF,
    *,
    forgetful: bool = False,
    live: LiveLog | None = None,
) -> None:
    """Run until nothing is left to do: when all jobs are over, failures of nodes are no events.

    A study of placements is over when the last job has come.
    """
    engine, total = run.engine, len(run.workload)
    lifecycle, active = engine.lifecycle, engine.view.active
    busy = () if run.study else active
    batches = BATCHES if live is None else FEW_BATCHES
    ended = 0  # batches since it forgot
    more = True
    while more and (busy or engine.source.next_s < INF):
        more = engine.run(until_s, batches, busy)
        if more and progress is not None:
            over = lifecycle.forgotten + len(engine.jobs) - len(active)
            progress(over, total, engine.view.now_s)
        if live is not None:
            live.look(engine.log)
        ended += batches
        if forgetful and ended >= BATCHES:
            lifecycle.forget()
            ended = 0


def _forgetful(engine: Engine) -> bool:
    """Whether nobody asks for jobs that are over: so a long run needs memory for few."""
    return not (
        engine.checker is not None
        or engine.scheduler.looks_back
        or engine.cluster.capabilities.shares
    )


def _fold(run: Run, begun_s: float, engine_cpu_s: float) -> RunResult:
    log = run.engine.log.release()
    history = read_history(log)
    deadlines_s = _deadlines_s(run.workload, history.ids)
    everyone = fold_jobs(history, deadlines_s, _works_s(run.workload, history.ids))
    jobs = leave_open(everyone, run.workload.open_ended)
    basis = make_basis(run.topology.nodes, run.workload.usual)
    fragments = fold_fragments(history, basis)
    summary = fold_summary(
        history, window=run.window, jobs=jobs, deadlines_s=deadlines_s, fragments=fragments
    )
    late = {key: summary.pop(key) for key in ("states", "delay", "ledger", "measured")}
    rate = len(run.workload) / engine_cpu_s if engine_cpu_s else None
    summary |= {"engine_cpu_s": engine_cpu_s, "cpu_s": None, "jobs_per_cpu_s": rate}
    summary |= late
    summary["assumptions"] = run.assumptions
    result = RunResult(run.config, log, jobs, summary, run.workload.quality, begun_s)
    result.cut = int((everyone["state"] != jobs["state"]).sum())
    result.basis = None if fragments is None else basis
    result.notes += [*run.notes, *_unestimated(run), *_one_speed(run), *_carried(run)]
    result.notes += _any_size(run, everyone)
    result.notes += [*_strange_partitions(run), *_unbound(run)]
    result.notes += _beyond_failures(run, jobs)
    if run.study and fragments is not None:
        result.allocation = fold_allocation(arrivals(history, fragments))
    return result


def _unestimated(run: Run) -> list[str]:
    """A policy reads the estimates of users, and there are none."""
    scheduler, config = run.engine.scheduler, run.config
    if not scheduler.knowledge & Knowledge.USER_ESTIMATE or config.estimate_error is not None:
        return []
    if not len(run.workload) or min(fields(run.workload.specs, "estimate_s")) < INF:
        return []
    if run.assumptions["policy"].get("default_estimate_s", "inf") != "inf":
        return []  # it says what to take instead
    what = f"{config.policy} behaves as if any job might run for ever"
    remedy = "add estimates, or let `rota simulate` take exact ones with --estimate-error cv=0"
    return [f"no job of {config.trace} has an estimate (estimate_s): {what}; {remedy}"]


def _beyond_failures(run: Run, jobs: pl.DataFrame) -> list[str]:
    """The run lasted longer than failures were drawn for it."""
    if run.config.mtbf is None or run.config.outages:
        return []
    horizon_s = failure_horizon_s(run.topology, run.workload)
    late = jobs.filter(pl.col("end_s") > horizon_s).height
    if not late:
        return []
    drawn = f"no failures are drawn after {duration(horizon_s)} (mtbf {run.config.mtbf:g} h)"
    jobs_late = f"{late:,} of {jobs.height:,} jobs ended later"
    return [f"{drawn}, but {jobs_late}: their times are too good, and a longer mtbf is needed"]


def _carried(run: Run) -> list[str]:
    """The load that was asked for is held by a few jobs."""
    if not is_generated(run.config.trace):
        return []
    from rota.traces.synth.generate import carried

    found = carried(run.workload, run.topology.gpus)
    return [f"{run.config.trace}: {found}"] if found else []


def _one_speed(run: Run) -> list[str]:
    """A policy reads speeds, and those of the jobs do not count in this run."""
    if not run.engine.scheduler.knowledge & Knowledge.SPEEDS:
        return []
    told = any(fields(run.workload.behaviours, "speeds"))
    if not told or run.assumptions["rates"]["name"] != "uniform":
        return []
    return ["jobs have speeds by GPU type, but rates 'uniform' ignore them: use --rates types"]


def _any_size(run: Run, jobs: pl.DataFrame) -> list[str]:
    """Elastic jobs got other numbers of GPUs than they asked for, and were as fast with them."""
    rates = run.assumptions["rates"]["name"]
    if not SIZE_BLIND.issuperset(rates.split("+")):
        return []
    other = jobs.filter((pl.col("mean_gpus") / pl.col("gpus") - 1).abs() > ROUNDING)
    if other.is_empty():
        return []
    specs = run.workload.specs
    requests = zip(fields(specs, "id"), fields(specs, "request"), strict=True)
    elastic = {name for name, request in requests if request.sizes[0] < request.sizes[1]}
    count = len(elastic.intersection(other["job_id"]))
    if not count:
        return []
    remedy = "use --rates scaling"
    if any(fields(run.workload.behaviours, "training")):
        remedy = "use --rates goodput, or the dialect of the trace (--like)"
    many = f"{counted(count, 'elastic job')} ran with other numbers of GPUs than asked for"
    return [f"{many}, but with rates {rates!r} any number is as fast as that: {remedy}"]


def _strange_partitions(run: Run) -> list[str]:
    """A policy knows partitions, and jobs are in others."""
    if not run.assumptions["policy"].get("partitions"):
        return []
    params: Any = make_policy(run.config.policy).params
    known = [one.name for one in params.partitions]
    counts = Counter(filter(None, fields(run.workload.specs, "partition")))
    found = []
    for name in sorted(set(counts) - set(known)):
        near = nearest(name, known)
        hint = f" (did you mean {near!r}?)" if near else ""
        found.append(
            f"{counts[name]:,} jobs are in the partition {name!r}, which the rules of "
            f"{run.config.policy} do not have{hint}: no rule holds for them"
        )
    return found


def _unbound(run: Run) -> list[str]:
    """Jobs name partitions, some nodes have labels of these names, and nothing keeps jobs there."""
    if run.assumptions["policy"].get("partitions"):
        return []  # the policy does
    having = Counter(label for node in run.topology.specs for label in set(node.labels))
    labels = {label for label, nodes in having.items() if nodes < len(run.topology.specs)}
    if not labels:
        return []
    specs = run.workload.specs
    counts = Counter(
        name
        for name, request in zip(fields(specs, "partition"), fields(specs, "request"), strict=True)
        if name in labels and not request.labels
    )
    if not counts:
        return []
    names = ", ".join(sorted(counts)[:FEW_NAMES])
    free = "ask for no label: they may run on any node"
    remedy = "write the partition in the column labels, too"
    many = f"{counts.total():,} jobs are in partitions ({names}) that are labels of nodes"
    return [f"{many}, but {free}; {remedy}"]


def _deadlines_s(workload: Workload, names: Sequence[str]) -> Floats:
    """Of these jobs: the log does not hold them."""
    deadlines_s = fields(workload.specs, "deadline_s")
    if min(deadlines_s, default=INF) == INF:
        return np.full(len(names), INF)
    some = dict(zip(fields(workload.specs, "id"), deadlines_s, strict=True))
    return np.array([some.get(name, INF) for name in names])


def _works_s(workload: Workload, names: Sequence[str]) -> Floats:
    """Run times of these jobs with what they asked for: as little does the log hold them."""
    works_s = fields(workload.behaviours, "work")
    ids = fields(workload.specs, "id")
    if len(ids) == len(names) and all(map(eq, ids, names)):
        return np.array(works_s, dtype=np.float64)
    some = dict(zip(ids, works_s, strict=True))
    return np.array([some.get(name, INF) for name in names], dtype=np.float64)


@contextmanager
def _no_collections() -> Iterator[None]:
    """Pause the cyclic collector: a run makes millions of objects and hardly a cycle."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
