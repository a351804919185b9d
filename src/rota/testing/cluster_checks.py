"""`check_cluster`: what every cluster behind the port must do, the simulator and real ones alike.

A maker gets a topology and a workload and returns a cluster on which these jobs can be started; the
behaviour says how many seconds each takes. On a real cluster everything may be late by `margin_s`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import msgspec

from rota.core import machine
from rota.core.allocation import Allocation
from rota.core.events import INF, JOB_DONE, JOB_FAILED, JOB_RUNNING, JOB_STOPPED, Event
from rota.core.jobs import RUNNING, STARTING, Behaviour, Job, JobSpec, Request, Shape
from rota.core.policy import PriorityPolicy
from rota.core.ports import Cluster
from rota.core.topology import Topology
from rota.core.workload import Workload
from rota.policies.tiresias import Tiresias, TiresiasParams
from rota.sim.cluster import SimCluster
from rota.testing.logs import entries
from rota.testing.naive import Entry
from rota.testing.scenario import Fixed, Solo, wire
from rota.testing.subject import Report, run_checks

MakeCluster = Callable[[Topology, Workload], Any]
LONG = 60.0  # units; a job that is not going to end by itself
ROUNDING_S = 1e-6
AT_ONCE_S = 60.0  # of real time, on any machine: who waits for what never comes takes longer


class ClusterSubject(msgspec.Struct):
    """The cluster under test. `unit_s`: the second of the checks; all jobs take some of them."""

    make: MakeCluster
    unit_s: float
    margin_s: float

    @contextmanager
    def cluster(self, *works: float) -> Iterator["ScriptedDriver"]:
        """A cluster of two nodes with two GPUs, and jobs that take so many units."""
        specs = [JobSpec(f"job{i}", 0.0, Request.of(1)) for i in range(len(works))]
        workload = Workload(specs, [Behaviour(work * self.unit_s) for work in works])
        cluster = self.make(Topology.uniform(2, 2), workload)
        try:
            yield ScriptedDriver(cluster, workload, self)
        finally:
            cluster.close()


class ScriptedDriver:
    """Starts and stops jobs on a bare cluster, as the engine would."""

    def __init__(self, cluster: Cluster, workload: Workload, subject: ClusterSubject) -> None:
        self.cluster = cluster
        self.unit_s = subject.unit_s
        self.margin_s = subject.margin_s
        self.jobs = [
            Job(spec, how, i, Shape(0, spec.request)) for i, (spec, how) in enumerate(workload)
        ]

    def start(self, number: int, node: int = 0) -> Job:
        """Start a job on one GPU of a node."""
        job = self.jobs[number]
        place = self.cluster.topology.nodes[node].id
        machine.start(job, Allocation([(place, 1)]), self.cluster.now_s)
        since_s = self.cluster.start(job)
        _must(
            since_s >= self.cluster.now_s, f"{job} makes progress since {since_s:g} s, in the past"
        )
        if since_s <= self.cluster.now_s:
            machine.run(job, self.cluster.now_s, self.cluster.rate(job))
        return job

    def stop(self, job: Job) -> bool:
        """Stop it; True if it is gone at once."""
        lost, gone = self.cluster.stop(job)
        _must(lost >= 0, f"stopping lost {lost:g} of the work")
        _must(gone or not self.cluster.capabilities.instant_stop, "`instant_stop` was promised")
        machine.begin_stop(job, self.cluster.now_s, lost)
        if gone:
            machine.stopped(job)
        return gone

    def poll(self, until_s: float = INF) -> list[Event]:
        """Events, checked and told to the jobs."""
        before_s = self.cluster.now_s
        events = self.cluster.poll(until_s)
        now_s = self.cluster.now_s
        _must(before_s <= now_s <= until_s, f"poll({until_s:g}) came back at {now_s:g} s")
        for time_s, kind, _, job, epoch in events:
            # a living cluster may hear late of what happened; nobody hears of the future
            _must(time_s <= now_s, f"an event at {time_s:g} s was handed out at {now_s:g} s")
            _must(epoch == job.epoch, f"a stale event {kind} of {job}: it is about an earlier run")
            self._tell(kind, job, now_s)
        _must(events == sorted(events, key=lambda event: event[1:3]), f"not in order: {events}")
        return events

    def _tell(self, kind: int, job: Job, now_s: float) -> None:
        if kind == JOB_RUNNING and job.phase == STARTING:
            machine.run(job, now_s, self.cluster.rate(job))
        elif kind == JOB_STOPPED:
            machine.stopped(job)
        elif kind in (JOB_DONE, JOB_FAILED):
            (machine.finish if kind == JOB_DONE else machine.fail)(job, now_s)
            self.cluster.release(job)

    def wait_for(self, kind: int, job: Job) -> None:
        """Poll until this happens to the job; anything else but its start is wrong."""
        while True:
            events = self.poll()
            _must(events, f"{job}: event {kind} never came")
            if any(event[1] == kind and event[3] is job for event in events):
                return
            _must(all(event[1] == JOB_RUNNING for event in events), f"waiting for {kind}: {events}")

    def about(self, time_s: float, expected_s: float) -> None:
        """Fail unless the time is right but for the margin."""
        _must(
            abs(time_s - expected_s) <= self.margin_s + ROUNDING_S,
            f"took {time_s:g} s, expected {expected_s:g} s within {self.margin_s:g} s",
        )


def _must(holds: object, message: str) -> None:
    if not holds:
        raise AssertionError(message)


# --- the checks -----------------------------------------------------------------------------------


def an_idle_cluster_returns_at_once(subject: ClusterSubject) -> None:
    """Nothing can happen: [] instead of waiting for ever."""
    with subject.cluster(1) as driver:
        began = monotonic()
        _must(driver.poll() == [], "events on an idle cluster")
        _must(monotonic() - began < AT_ONCE_S, "poll(inf) waited although nothing can happen")


def a_poll_keeps_to_its_time(subject: ClusterSubject) -> None:
    """Without events the clock is at `until_s` afterwards, also while a job runs."""
    with subject.cluster(LONG) as driver:
        first_s, second_s = (
            driver.cluster.now_s + subject.unit_s,
            driver.cluster.now_s + 2 * subject.unit_s,
        )
        _must(driver.poll(first_s) == [], "events on an idle cluster")
        _must(driver.cluster.now_s == first_s, f"the clock is at {driver.cluster.now_s:g} s")
        driver.start(0)
        while driver.cluster.now_s < second_s:
            kinds = {event[1] for event in driver.poll(second_s)}
            _must(kinds <= {JOB_RUNNING}, f"events {kinds} of a job that only runs")


def a_job_ends_when_its_work_is_done(subject: ClusterSubject) -> None:
    """JOB_DONE, after as many seconds as it needs; then the cluster is idle again."""
    with subject.cluster(2, 1) as driver:
        long, short = driver.start(0), driver.start(1)
        for job in (short, long):
            driver.wait_for(JOB_DONE, job)
            driver.about(job.run_s, job.true_work)
        _must(driver.poll() == [], "something happened after the last job")


def a_stopped_job_frees_its_slices(subject: ClusterSubject) -> None:
    """At once or with JOB_STOPPED; its end never comes; it can be started again elsewhere."""
    with subject.cluster(LONG, 1) as driver:
        job = driver.start(0)
        driver.poll(driver.cluster.now_s + subject.unit_s)
        if not driver.stop(job):
            driver.wait_for(JOB_STOPPED, job)
        _must(driver.poll() == [], "something happened to a job that was stopped")
        driver.start(0, node=1)
        driver.wait_for(JOB_DONE, driver.start(1))
        _must(job.phase == RUNNING, f"{job} should run again")


def a_restarted_job_ends_once(subject: ClusterSubject) -> None:
    """The end of the earlier run is stale and never handed out."""
    with subject.cluster(2) as driver:
        job = driver.start(0)
        driver.poll(driver.cluster.now_s + subject.unit_s)
        if not driver.stop(job):
            driver.wait_for(JOB_STOPPED, job)
        driver.start(0)
        driver.wait_for(JOB_DONE, job)
        _must(driver.poll() == [], "something happened to a job that is done")


def an_evicted_job_is_forgotten(subject: ClusterSubject) -> None:
    """Its node died: nothing comes of that run any more."""
    with subject.cluster(2) as driver:
        job = driver.start(0)
        driver.poll(driver.cluster.now_s + subject.unit_s)
        lost = driver.cluster.evict(job)
        _must(lost >= 0, f"the eviction lost {lost:g} of the work")
        machine.begin_stop(job, driver.cluster.now_s, lost)
        machine.stopped(job)
        _must(driver.poll() == [], "something happened to a job that was evicted")


def a_released_job_is_ended(subject: ClusterSubject) -> None:
    """Cancelled while it runs: the cluster is idle afterwards."""
    with subject.cluster(LONG) as driver:
        job = driver.start(0)
        machine.cancel(job, driver.cluster.now_s)
        driver.cluster.release(job)
        _must(driver.poll() == [], "something happened to a job that was released")


def it_can_be_closed_twice(subject: ClusterSubject) -> None:
    """Also with jobs running, and also before anything ran."""
    with subject.cluster(LONG) as driver:
        driver.start(0)
        driver.cluster.close()
        driver.cluster.close()
    with subject.cluster(1) as driver:
        driver.cluster.close()


def it_decides_as_the_simulator_does(subject: ClusterSubject) -> None:
    """One workload with waits, skips and preemptions through the engine on both."""
    workload = _script(subject.unit_s)
    simulated = _decisions(SimCluster(Topology.uniform(2, 2), Fixed(), Solo()), workload, subject)
    cluster = subject.make(Topology.uniform(2, 2), workload)
    try:
        real = _decisions(cluster, workload, subject)
    finally:
        cluster.close()
    _must(
        [entry[1:] for entry in real] == [entry[1:] for entry in simulated],
        f"the decisions are\n  {real}\nbut in the simulator they are\n  {simulated}",
    )


def _script(unit_s: float) -> Workload:
    """For Tiresias with a limit of 4 unit-GPU-seconds; no two instants nearer than 0.8 units.

    `whole` waits for all four GPUs while `small` and `late` pass it. `pair` is displaced by `late`
    when it has used its 4 GPU-units, resumes on the other node, is displaced by `whole`, and
    resumes.
    """
    asked = [("pair", 0.0, 2, 3.8), ("one", 0.0, 1, 2.9), ("whole", 0.0, 4, 2.7)]
    asked += [("small", 0.0, 1, 4.8), ("late", 1.1, 1, 3.7)]
    return Workload(
        [JobSpec(name, submit * unit_s, Request.of(gpus)) for name, submit, gpus, _ in asked],
        [Behaviour(work * unit_s) for *_, work in asked],
    )


def _decisions(cluster: Cluster, workload: Workload, subject: ClusterSubject) -> list[Entry]:
    policy: PriorityPolicy[Any] = Tiresias(TiresiasParams(limits=(4.0 * subject.unit_s,)))
    engine = wire(policy, cluster, workload)
    engine.run()
    found = entries(engine.log, cluster.topology)
    moved: set[int] = set()
    kept = []
    for entry in found:
        what, job = entry[1], entry[2]
        if what in ("start", "stop", "move", "done") and not (what == "start" and job in moved):
            kept.append(entry)  # the start after a move that takes time is no decision
        (moved.add if what == "move" else moved.discard)(job)
    return kept


CHECKS: tuple[Callable[[ClusterSubject], None], ...] = (
    an_idle_cluster_returns_at_once,
    a_poll_keeps_to_its_time,
    a_job_ends_when_its_work_is_done,
    a_stopped_job_frees_its_slices,
    a_restarted_job_ends_once,
    an_evicted_job_is_forgotten,
    a_released_job_is_ended,
    it_can_be_closed_twice,
    it_decides_as_the_simulator_does,
)


def check_cluster(
    make: MakeCluster, *, unit_s: float = 1.0, margin_s: float = 0.0, only: str = ""
) -> Report:
    """Run all checks on a cluster.

    Args:
        make: Makes a cluster with this topology on which the jobs of this workload can be started.
        unit_s: Length of a second of the checks; on a real cluster some tenths, to be quick.
        margin_s: By how much things may be late; 0 for a simulator.
        only: Only checks whose name contains this.

    Raises:
        CheckFailed: A check failed.
    """
    subject = ClusterSubject(make, unit_s, margin_s)
    return run_checks("cluster", [c for c in CHECKS if only in c.__name__], subject)
