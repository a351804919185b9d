"""A queue policy in a scenario: jobs are submitted and end, nodes fail, time passes."""

import re
from collections.abc import Mapping, Sequence
from heapq import heappush
from pathlib import Path
from typing import Any

import msgspec

from rota.core.errors import InputError
from rota.core.events import INF, JOB_DONE, JOB_FAILED, NODE_DOWN, NODE_UP
from rota.core.jobs import Behaviour, Job, JobSpec, Request, TaskGroup
from rota.core.log import Record, Row
from rota.core.reasons import Reason
from rota.core.topology import Topology, Vertex
from rota.engine.parts import make_costs
from rota.engine.wiring import Parts, make_engine
from rota.models.rates import Uniform
from rota.sim.cluster import SimCluster
from rota.traces.cluster import looks_like_counts, parse_cluster

TOLD = {
    Record.START: "start",
    Record.MOVE: "move",
    Record.STOP: "preempt",
    Record.EVICTED: "evict",
    Record.DONE: "done",
    Record.FAILED: "fail",
    Record.REJECTED: "reject",
    Record.CANCELLED: "cancel",
    Record.TIMEOUT: "time out",
    Record.HELD: "hold",
    Record.ADMITTED: "admit",
}


class Submission(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job as an event `submit` describes it; without `work_s` it runs until `finish`."""

    op: str
    job: str
    gpus: float = 1
    tasks: int = 0
    """So many tasks of `gpus` each; 0: one-GPU tasks, as in traces."""
    work_s: float = INF
    at_s: float | None = None
    tenant: str = ""
    user: str = ""
    priority: int = 0
    estimate_s: float = INF
    gpu_types: tuple[str, ...] = ()
    cpus: float = 0.0
    mem_gib: float = 0.0
    gang: bool = True
    depends_on: tuple[str, ...] = ()
    expect: dict[str, Any] | None = None

    def spec(self, now_s: float) -> JobSpec:
        """The job, submitted now."""
        if self.tasks:
            group = TaskGroup("worker", self.tasks, self.gpus, self.cpus, self.mem_gib)
            request = Request((group,), self.gpu_types, gang=self.gang)
        else:
            request = Request.of(
                self.gpus,
                gpu_types=self.gpu_types,
                cpus=self.cpus,
                mem_gib=self.mem_gib,
                gang=self.gang,
            )
        return JobSpec(
            self.job,
            now_s,
            request,
            self.tenant,
            self.user,
            priority=self.priority,
            estimate_s=self.estimate_s,
            depends_on=self.depends_on,
        )


class ScriptedSource:
    """Jobs that the script submits."""

    linked = True

    def __init__(self) -> None:
        self.next_s = INF
        self.count = 0
        self._coming: list[tuple[int, JobSpec, Behaviour]] = []

    def add(self, spec: JobSpec, behaviour: Behaviour) -> None:
        """A job comes now."""
        self._coming.append((self.count, spec, behaviour))
        self.count += 1
        self.next_s = spec.submit_s

    def take(self, now_s: float) -> Sequence[tuple[int, JobSpec, Behaviour]]:  # noqa: ARG002
        """Everything that was added."""
        coming, self._coming = self._coming, []
        self.next_s = INF
        return coming


class ScriptedCluster(SimCluster):
    """A simulated cluster on which the script may end jobs and break nodes."""

    def happens(self, kind: int, subject: Job | Vertex) -> None:
        """Let it happen now."""
        self._sequence += 1
        heappush(self.heap, (self.now_s, kind, self._sequence, subject, subject.epoch))


class QueuePlay:
    """Plays events on an engine with a policy, a placement and an admission."""

    def __init__(self, scenario: Mapping[str, Any], folder: Path) -> None:
        for key in ("policy", "cluster"):
            if not isinstance(scenario.get(key), str):
                raise InputError(f"the key {key!r} is missing: write it as on the command line")
        topology, tenants = parse_cluster(_located(scenario["cluster"], folder))
        costs = make_costs(str(scenario.get("costs", "zero")))
        parts = Parts.named(
            _located_files(scenario["policy"], folder),
            topology,
            placement=scenario.get("placement"),
            admission=scenario.get("admission"),
            seed=int(scenario.get("seed", 0)),
        )
        self.source = ScriptedSource()
        self.cluster = ScriptedCluster(topology, costs, Uniform(topology))
        self.engine = make_engine(parts, self.cluster, self.source, tenants=tenants)
        self._reasons: dict[int, int] = {}
        self._told: dict[int, int] = {}
        self._allocations: dict[int, dict[str, float]] = {}
        self._topology = topology
        self._news()

    def play(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Let an event happen, and everything that follows at the same time."""
        op = event["op"]
        if event.get("at_s") is not None:
            self._advance(float(event["at_s"]))
        now_s = self.cluster.now_s
        if op == "submit":
            given = msgspec.convert(event, Submission)
            self.source.add(given.spec(now_s), Behaviour(given.work_s))
        elif op in ("finish", "fail"):
            self._end(str(event.get("job")), JOB_DONE if op == "finish" else JOB_FAILED)
        elif op in ("node_down", "node_up"):
            kind = NODE_DOWN if op == "node_down" else NODE_UP
            self.cluster.happens(kind, self._node(str(event.get("node"))))
        elif op == "advance":
            self._advance(float(event.get("to_s", now_s + float(event.get("by_s", 0.0)))))
        else:
            raise InputError(f"there is no op {op!r} in a scenario of a queue policy")
        self.engine.run(until_s=self.cluster.now_s)
        return self._outcome()

    def _advance(self, to_s: float) -> None:
        if to_s < self.cluster.now_s:
            raise InputError(f"it is {self.cluster.now_s:g} s already: {to_s:g} s is over")
        self.engine.run(until_s=to_s)

    def _end(self, name: str, kind: int) -> None:
        for job in self.engine.jobs.values():
            if job.id == name and job.running:
                self.cluster.happens(kind, job)
                return
        raise InputError(f"job {name!r} does not run: it cannot end now")

    def _node(self, name: str) -> Vertex:
        for node in self._topology.nodes:
            if node.name == name:
                return node
        raise InputError(f"there is no node {name!r} in the cluster")

    def _outcome(self) -> dict[str, Any]:
        """What was decided since the last event, and how things are now."""
        decisions = self._news()
        jobs = [job for job in self.engine.jobs.values() if not job.terminal]
        running = {job.id: self._places(job) for job in jobs if job.running}
        waiting = [
            job.id for job in jobs if not job.running and job.index in self.engine.view.active
        ]
        reasons = {
            job.id: Reason(self._why(job)).label
            for job in jobs
            if job.id in waiting and self._why(job)
        }
        return {
            "now_s": self.cluster.now_s,
            "decisions": decisions,
            "running": running,
            "waiting": waiting,
            "reasons": reasons,
        }

    def _why(self, job: Job) -> int:
        shape = job.shape.number
        shared = self.engine.view.shared_reasons.get((job.tenant, shape), 0)
        return self._told.get(job.index, 0) or shared or self._reasons.get(shape, 0)

    def _places(self, job: Job) -> dict[str, float]:
        return _by_node(self._topology, job.allocation.slices)

    def _news(self) -> list[dict[str, Any]]:
        """Rows of the log since the last time, as decisions."""
        found = []
        for row in self.engine.log.take():
            if row.event == Record.REASON:
                if row.shape >= 0 > row.tenant:
                    self._reasons[row.shape] = row.reason
                elif row.shape < 0:
                    self._told[row.job] = row.reason
            elif row.event == Record.ALLOCATION:
                places = self._allocations.setdefault(row.allocation, {})
                for node, gpus in _by_node(self._topology, [row.slice]).items():
                    places[node] = places.get(node, 0) + gpus
            elif row.event in TOLD:
                found.append(self._decision(row))
        return found

    def _decision(self, row: Row) -> dict[str, Any]:
        told: dict[str, Any] = {
            "time_s": row.time_s,
            "what": TOLD[Record(row.event)],
            "job": self.engine.jobs[row.job].id,
        }
        if row.event in (Record.START, Record.MOVE):
            told["nodes"] = self._allocations.get(row.allocation, {})
        if row.event == Record.STOP and row.cause >= 0:
            told["because_of"] = self.engine.jobs[row.cause].id
        if row.text:
            told["why"] = row.text
        return told

    def unmet(
        self, event: Mapping[str, Any], outcome: Mapping[str, Any], *, strict: bool
    ) -> list[str]:
        """Compare what `expect` names: the state, or the jobs to which something was done."""
        del strict  # an event says what it cares for
        wrong = []
        for key, want in (event.get("expect") or {}).items():
            got = self._got(key, want, outcome)
            if got != want:
                wrong.append(f"{key} is {got!r}, expected {want!r}")
        return wrong

    def _got(self, key: str, want: Any, outcome: Mapping[str, Any]) -> Any:
        if key == "running" and isinstance(want, list):
            return sorted(outcome["running"]) if want == sorted(want) else list(outcome["running"])
        if key in outcome:
            return outcome[key]
        if key == "preempt" and isinstance(want, dict):
            return {
                told["job"]: told.get("because_of")
                for told in outcome["decisions"]
                if told["what"] == key
            }
        if key in TOLD.values():
            return [told["job"] for told in outcome["decisions"] if told["what"] == key]
        known = ", ".join(("now_s", "running", "waiting", "reasons", *TOLD.values()))
        raise InputError(f"there is nothing called {key!r} to expect: {known}")


def _located_files(policy: str, folder: Path) -> str:
    """Files that are parameters of a policy are looked for in the scenario's folder first."""

    def found(match: re.Match[str]) -> str:
        path = folder / match[1]
        return f"={path}" if path.is_file() else match[0]

    return re.sub(r"=([^,]+)", found, policy)


def _located(cluster: str, folder: Path) -> str:
    """The path of a cluster's file counts from the scenario's folder."""
    if looks_like_counts(cluster) or not (folder / cluster).is_file():
        return cluster
    return str(folder / cluster)


def _by_node(topology: Topology, slices: Sequence[tuple[int, float]]) -> dict[str, float]:
    """GPUs by the name of the node (or of the pool, for placements that name no nodes)."""
    found: dict[str, float] = {}
    for vertex, gpus in slices:
        place = topology.vertices[vertex]
        name = topology.vertices[place.node].name if place.node >= 0 else place.name
        found[name] = found.get(name, 0) + gpus
    return found
