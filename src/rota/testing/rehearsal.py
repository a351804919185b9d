"""Five jobs that bring any cluster through a wait, a skip and preemptions within five seconds.

The same workload goes through the same engine on different clusters, and the decisions must be the
same: `decisions(rehearse(cluster, five_jobs()).log)`. On a real cluster `stand_ins` are the jobs.
"""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rota.core.admission import Admission
from rota.core.eventlog import EventLog
from rota.core.events import INF
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.log import Record
from rota.core.ports import Cluster
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.engine.log import Log
from rota.engine.loop import Engine
from rota.engine.source import WorkloadSource
from rota.engine.wiring import Parts, make_engine
from rota.live.drivers.local import LocalCluster, standin
from rota.placement.consolidate import consolidate
from rota.policies.tiresias import Tiresias, TiresiasParams

if TYPE_CHECKING:
    import polars as pl

MARGIN_S = 0.4
"""Between any two instants at which something happens in `five_jobs`: real clusters may be late."""

SLOW = 2.5

KINDS = (Record.START, Record.STOP, Record.MOVE, Record.DONE)

Slices = tuple[tuple[int, float], ...]


class Decision(NamedTuple):
    """A line of the log that says where a job runs: start, stop, move or done."""

    time_s: float
    what: str
    job: str
    slices: Slices

    def without_time(self) -> tuple[str, str, Slices]:
        """What must be equal on every cluster."""
        return self.what, self.job, self.slices


class _Everyone(Admission):
    trivial = True


def topology() -> Topology:
    """Two nodes with two GPUs each."""
    return Topology.uniform(2, 2)


def five_jobs() -> Workload:
    """For Tiresias with one limit at 2 GPU-seconds.

    `whole` waits for all four GPUs while `small` and `late` pass it. `pair` is displaced by `late`
    at 1.0 s when it has used its 2 GPU-seconds, finds two free GPUs at 1.45 s but on two nodes,
    resumes at 2.4 s on the other node, is displaced by `whole`, and resumes after it.
    """
    asked = [
        ("pair", 0.0, 2, 1.9),
        ("one", 0.0, 1, 1.45),
        ("whole", 0.0, 4, 1.35),
        ("small", 0.0, 1, 2.4),
        ("late", 0.55, 1, 1.85),
    ]
    return Workload(
        [JobSpec(name, submit_s, Request.of(gpus)) for name, submit_s, gpus, _ in asked],
        [Behaviour(work) for *_, work in asked],
        name="five jobs",
    )


def stand_ins(workload: Workload, folder: Path, slow: float = 1.0) -> dict[str, list[str]]:
    """Commands by job id that take as long as the jobs; checkpoints go into `folder`."""
    return {
        spec.id: standin.command(behaviour.work * slow, folder / f"{spec.id}.checkpoint")
        for spec, behaviour in workload
    }


def rehearse(cluster: Cluster, workload: Workload, *, limit_gpu_s: float = 2.0) -> Engine:
    """Run the workload under Tiresias with jobs kept together on nodes; the engine afterwards."""
    policy = Tiresias(TiresiasParams(limits=(limit_gpu_s,)))
    parts = Parts(policy, consolidate(cluster.topology), _Everyone())
    engine = make_engine(parts, cluster, WorkloadSource(workload))
    engine.run()
    engine.finish()
    return engine


def rehearse_locally(
    workload: Workload, places: Topology, folder: Path, *, limit_gpu_s: float = 2.0
) -> Engine:
    """The same with stand-ins as processes; their checkpoints and output are in `folder`.

    Everything takes `SLOW` times as long, so that what processes take to start matters less.
    """
    commands = stand_ins(workload, folder, SLOW)
    with LocalCluster(places, commands, folder / "agent", speed=1 / SLOW) as cluster:
        return rehearse(cluster, workload, limit_gpu_s=limit_gpu_s)


def decisions(log: "Log | pl.DataFrame") -> list[Decision]:
    """Starts, stops, moves and ends in the order of a log, or of a table that was read from one.

    Where stopping takes time, a move is followed by the start of its second half, and a start that
    has to wait for others to leave by a second row: these are no decisions of their own.
    """
    job_names: dict[int, str] = {}
    allocations: dict[int, list[tuple[int, float]]] = {}
    held: dict[int, Slices] = {}
    decided: set[int] = set()  # where the next START row says nothing new
    found = []
    for row in EventLog(log.frame() if isinstance(log, Log) else log):
        event, job = row.event, row.job
        if event == Record.SUBMIT:
            job_names[job] = row.text or ""
        elif event == Record.ALLOCATION:
            allocations.setdefault(row.allocation, []).append(row.slice)
        elif event in KINDS and not (event == Record.START and job in decided):
            if event in (Record.START, Record.MOVE):
                held[job] = tuple(allocations[row.allocation])
            waits = event == Record.MOVE or (event == Record.START and row.value == INF)
            (decided.add if waits else decided.discard)(job)
            what = Record(event).name.lower()
            found.append(Decision(row.time_s, what, job_names[job], held[job]))
    return found
