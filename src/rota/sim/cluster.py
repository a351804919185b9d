"""A cluster that exists only in events: jobs progress at constant rates between them."""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import ceil
from typing import Any

import msgspec

from rota.core.allocation import Allocation
from rota.core.errors import PhaseError
from rota.core.events import (
    INF,
    JOB_DONE,
    JOB_FAILED,
    JOB_PHASE,
    JOB_RUNNING,
    JOB_STOPPED,
    JOB_TIMEOUT,
    NODE_DOWN,
    Event,
)
from rota.core.jobs import RUNNING, STARTING, TIMEOUT, Job
from rota.core.ports import ClusterCapabilities, Costs, RateModel, RatePhase, TransitionCost
from rota.core.topology import Topology, Vertex
from rota.core.words import brief

FINISH_EXACT = 0.0
ROUNDING = 1e-9  # relative: by so much a phase may miss the level or the time at which it ends


class SimCluster:
    """Implements the `Cluster` port with a heap.

    `outages` are (time, kind, node) for failures and repairs. `finish_round_s` > 0 lets a job end
    only at multiples of it (what some published simulators do).
    """

    def __init__(
        self,
        topology: Topology,
        costs: Costs,
        rates: RateModel,
        *,
        outages: Iterable[tuple[float, int, Vertex]] = (),
        finish_round_s: float = FINISH_EXACT,
    ) -> None:
        self.topology = topology
        self.now_s = 0.0
        self.costs = costs
        self.rates = rates
        self.capabilities = ClusterCapabilities(
            instant_stop=costs.free or costs.instant_stop,
            frictionless=costs.free and rates.unit,
            shares=rates.packs,
            exact_ends=not finish_round_s,
            phased=rates.phased,
            new_terms=True,
        )
        self.finish_round_s = finish_round_s
        self._plain = costs.free and rates.unit and not finish_round_s
        self._quiet = (  # nothing to remember about a run
            costs.free and not rates.neighbours and not rates.phased
        )
        self.heap: list[Event] = [
            (time_s, kind, number, node, node.epoch)
            for number, (time_s, kind, node) in enumerate(outages)
        ]
        heapify(self.heap)
        self._sequence = len(self.heap)
        # stopped in order to move: where to, and what it costs
        self._moved_with: dict[int, tuple[Allocation, TransitionCost]] = {}
        self._slow: dict[int, tuple[float, float]] = {}  # slow after a start: until when, factor
        self._kept: dict[int, Sequence[int]] = {}  # job -> its keys, when neighbours matter
        self._sharing: dict[int, dict[int, Job]] = {}  # key -> jobs
        self._changed: set[int] = set()
        self._paced: dict[int, float] = {}  # rates by which ends were scheduled
        self._phases: dict[int, RatePhase] = {}  # of jobs that make progress, if rates change
        self._limits: dict[int, float] = {}  # when the time limits of jobs end their runs

    # --- clock ----------------------------------------------------------------------------------

    def poll(self, until_s: float) -> list[Event]:
        """Jump to the next instant at which something happens, but not beyond `until_s`."""
        heap = self.heap
        events: list[Event] = []
        while heap:
            event = heap[0]
            if event[0] > until_s:
                break
            heappop(heap)
            if event[3].epoch == event[4]:
                until_s = event[0]  # from now on only what happens at the same time
                events.append(event)
        if events or until_s < INF:
            self.now_s = until_s
        if not self._plain:  # not in the loop above: what is scheduled for now belongs to the next
            for event in events:
                if event[1] == JOB_RUNNING:
                    self._begin(event[3])
                elif event[1] == JOB_PHASE:
                    self._look_ahead(event[3], event[3].epoch)  # nothing else was scheduled for it
                elif event[1] == JOB_STOPPED and not event[3].moving:
                    self._moved_with.pop(event[3].index, None)  # its move was taken back
        return events

    def _push(self, time_s: float, kind: int, job: Job, epoch: int) -> None:
        self._sequence += 1
        heappush(self.heap, (time_s, kind, self._sequence, job, epoch))

    # --- commands -------------------------------------------------------------------------------

    def start(self, job: Job) -> float:
        """Begin a run; without overhead its end is known at once."""
        now_s = self.now_s
        if job.spec.limit_s < INF:
            self._limits[job.index] = now_s + max(0.0, job.spec.limit_s - job.run_s)
        elif self._plain and job.truth.fails_at == INF:
            self._sequence += 1
            heappush(self.heap, (now_s + job.true_left, JOB_DONE, self._sequence, job, job.epoch))
            return now_s
        since_s = now_s
        if not self.costs.free:
            target, cost = self._moved_with.pop(job.index, (None, None))
            if cost is None or target != job.allocation:  # not the move that it was stopped for
                cost = self.costs.transition(job, None, job.allocation, now_s)
            since_s = now_s + cost.start_s
            if cost.slow_s > 0:
                self._slow[job.index] = (since_s + cost.slow_s, cost.slow_factor)
        self._share(job, +1)
        if self._limits.get(job.index, INF) < since_s:
            self._push(self._limits[job.index], JOB_TIMEOUT, job, job.epoch)
        elif since_s > now_s:
            self._push(since_s, JOB_RUNNING, job, job.epoch)
        else:
            self._begin(job)
        return since_s

    def resume(self, job: Job) -> None:
        """Take over a job that is on the cluster already, as it is."""
        self._plain = False  # a start that is under way is told by an event
        if job.spec.limit_s < INF:
            ends_s = job.start_s + max(0.0, job.spec.limit_s - job.run_s)
            self._limits[job.index] = max(self.now_s, ends_s)
        self._share(job, +1)
        if job.phase == RUNNING:
            self._look_ahead(job, job.epoch)
        else:
            kind = JOB_RUNNING if job.phase == STARTING else JOB_STOPPED
            self._push(self.now_s, kind, job, job.epoch)

    def look_again(self, jobs: Iterable[Job]) -> None:
        """These jobs need more or less than was thought: the ends of their runs are others."""
        running = {job.index: job for job in jobs if job.phase == RUNNING}
        self.heap = [
            event
            for event in self.heap
            if not (isinstance(event[3], Job) and event[3].index in running)
        ]
        heapify(self.heap)
        for job in running.values():
            self._look_ahead(job, job.epoch)

    def no_more_failures(self) -> None:
        """Nodes that are up stay so; those that are down are repaired when it was their turn."""
        self.heap = [event for event in self.heap if event[1] != NODE_DOWN]
        heapify(self.heap)

    def _begin(self, job: Job) -> None:
        """Progress begins now, or goes on at another rate: its end can be told."""
        now_s = self.now_s
        going = job.phase == RUNNING and job.start_s < now_s  # else the engine has yet to settle it
        epoch = job.epoch + 1 if going else job.epoch  # the engine changes its rate
        self._look_ahead(job, epoch)

    def _look_ahead(self, job: Job, epoch: int) -> float:
        """Schedule what comes next for a job that makes progress; its rate from now on."""
        now_s = self.now_s
        if job.index in self._slow and self._slow[job.index][0] <= now_s:
            del self._slow[job.index]
        if self.rates.phased:
            self._phases[job.index] = self._phase(job)
        rate = self.rate(job)
        if self.rates.neighbours:
            self._paced[job.index] = rate
        kind, left = self._ending(job)
        at_s = now_s + left / rate if rate > 0 else INF
        until_s = self._slow.get(job.index, (0.0, 1.0))[0]
        if until_s > now_s and left > (until_s - now_s) * rate:
            at_s, kind = until_s, JOB_RUNNING
        if self.rates.phased:
            at_s, kind = self._or_phase(job, rate, at_s, kind)
        if self._limits and self._limits.get(job.index, INF) < at_s:
            at_s, kind = self._limits[job.index], JOB_TIMEOUT
        if at_s < INF:
            if self.finish_round_s and kind in (JOB_DONE, JOB_FAILED):
                at_s = ceil(at_s / self.finish_round_s) * self.finish_round_s
            self._push(at_s, kind, job, epoch)
        return rate

    def _phase(self, job: Job) -> RatePhase:
        """What the model says now; a level that is reached but for rounding is reached."""
        done = job.true_work - job.left_at(self.now_s)
        last = self._phases.get(job.index)
        if last is not None and abs(last.until_done - done) <= ROUNDING * max(1.0, done):
            done = last.until_done
        phase = self.rates.phase(job, job.allocation, self._sharers(job), done, self.now_s)
        if not (phase.until_s > self.now_s and phase.until_done > done):
            raise PhaseError(
                f"rates {self.rates.name!r}: the phase of job {job.id} from {self.now_s:g} s "
                f"({done:g} of its work done) ends at {phase.until_s:g} s or {phase.until_done:g}: "
                "it must end later than it begins"
            )
        return phase

    def _or_phase(self, job: Job, rate: float, at_s: float, kind: int) -> tuple[float, int]:
        """What comes first: this, or the end of its phase; both at once are the former."""
        phase = self._phases[job.index]
        until_s = phase.until_s
        if rate > 0 and phase.until_done < INF:
            done = job.true_work - job.left_at(self.now_s)
            until_s = min(until_s, max(self.now_s, self.now_s + (phase.until_done - done) / rate))
        if abs(at_s - until_s) <= ROUNDING * max(1.0, until_s) < INF:
            return until_s, kind
        return (at_s, kind) if at_s < until_s else (until_s, JOB_PHASE)

    def _ending(self, job: Job) -> tuple[int, float]:
        """How it will end if it goes on, and the work until then."""
        left = job.left_at(self.now_s)
        done = job.true_work - left
        if done <= job.truth.fails_at < job.true_work:
            return JOB_FAILED, job.truth.fails_at - done
        return JOB_DONE, left

    def rate(self, job: Job) -> float:
        """What the rate model says, with the neighbours if they matter."""
        rates = self.rates
        if rates.phased:
            return self._slowed(job, self._phases[job.index].rate)
        return self._slowed(
            job, 1.0 if rates.unit else rates.rate(job, job.allocation, self._sharers(job))
        )

    def _slowed(self, job: Job, rate: float) -> float:
        """For a while after a start jobs may be slower."""
        slow = self._slow.get(job.index)
        return rate if slow is None else rate * slow[1]

    def stop(self, job: Job, *, to: Allocation | None = None) -> tuple[float, bool]:
        """End a run; its slices stay busy while the stop lasts."""
        if self._limits:
            self._limits.pop(job.index, None)
        if self._quiet:
            return 0.0, True
        cost = self.costs.transition(job, job.allocation, to, self.now_s)
        self._slow.pop(job.index, None)
        self._phases.pop(job.index, None)
        self._share(job, -1)
        if to is not None:
            self._moved_with[job.index] = (to, cost)
        if cost.stop_s > 0:
            self._push(self.now_s + cost.stop_s, JOB_STOPPED, job, job.epoch + 1)  # as it stops
            return cost.lost_work, False
        return cost.lost_work, True

    def evict(self, job: Job) -> float:
        """The node died."""
        self.release(job)
        done = job.true_work - job.left_at(self.now_s)
        if done >= job.truth.fails_at - ROUNDING * max(
            1.0, done
        ):  # it failed, and is tried again from its beginning
            return done
        return self.costs.failure_loss(job, self.now_s)

    def release(self, job: Job) -> None:
        """The job is over."""
        if self._limits:
            self._limits.pop(job.index, None)
        if self._quiet:
            return
        self._share(job, -1)
        self._slow.pop(job.index, None)
        self._moved_with.pop(job.index, None)
        self._paced.pop(job.index, None)
        self._phases.pop(job.index, None)

    def failure(self, subject: Job | Vertex) -> str:
        """The workload says so."""
        if isinstance(subject, Job):
            if subject.phase == TIMEOUT:
                return f"its time limit of {brief(subject.spec.limit_s)} is reached"
            return f"fails after {subject.truth.fails_at:g} s of work"
        return "it is not there for now (a signal of the cluster)"

    def measured(self, job: Job) -> Mapping[str, float]:
        """What the rate model says that it tells of its present phase."""
        phase = self._phases.get(job.index)
        return (phase.told if phase is not None else None) or {}

    def close(self) -> None:
        """Nothing to end."""

    # --- neighbours -----------------------------------------------------------------------------

    def _share(self, job: Job, sign: int) -> None:
        if not self.rates.neighbours:
            return
        if sign > 0:
            self._kept[job.index] = self.rates.keys(job)
            for key in self._kept[job.index]:
                self._sharing.setdefault(key, {})[job.index] = job
                self._changed.add(key)
            return
        for key in self._kept.pop(job.index, ()):
            self._sharing[key].pop(job.index, None)
            self._changed.add(key)

    def _sharers(self, job: Job) -> Sequence[Job]:
        if not self.rates.neighbours:
            return ()
        found: dict[int, Job] = {}
        for key in self._kept.get(job.index, ()):
            found.update(self._sharing.get(key, {}))
        found.pop(job.index, None)
        return [found[index] for index in sorted(found)]

    def accepts(self, job: Job, allocation: Allocation) -> bool:  # noqa: ARG002 - whatever they are
        """Always: they only change rates."""
        return True

    def new_terms(self, job: Job) -> None:
        """It and its neighbours may run at other rates."""
        self._changed.update(self._kept.get(job.index, ()))

    def rerated(self) -> Sequence[tuple[Job, float]]:
        """Jobs next to a change, with their new rates; their ends are scheduled anew."""
        if not self._changed:
            return ()
        touched: dict[int, Job] = {}
        for vertex in sorted(self._changed):
            touched.update(self._sharing.get(vertex, {}))
        self._changed.clear()
        changed = []
        for index in sorted(touched):
            job = touched[index]
            if job.phase != RUNNING:
                continue
            # at one instant neighbours may come and go several times
            rate = self._slowed(job, self._phase(job).rate) if self.rates.phased else self.rate(job)
            if rate != job.true_rate or rate != self._paced[job.index]:
                changed.append((job, self._look_ahead(job, job.epoch + 1)))
        return changed

    # --- state ----------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Pending events as plain data."""
        return {
            "now_s": self.now_s,
            "sequence": self._sequence,
            "moved_with": [
                (index, to.slices, to.extra, msgspec.structs.astuple(cost), to.config)
                for index, (to, cost) in self._moved_with.items()
            ],
            "slow": list(self._slow.items()),
            "sharing": [(v, sorted(jobs)) for v, jobs in self._sharing.items() if jobs],
            "changed": sorted(self._changed),
            "paced": list(self._paced.items()),
            "phases": [(index, *phase) for index, phase in self._phases.items()],
            "limits": list(self._limits.items()),
            "rates": self.rates.snapshot(),
            "heap": [
                (time_s, kind, number, isinstance(subject, Job), _name(subject), epoch)
                for time_s, kind, number, subject, epoch in sorted(self.heap, key=lambda e: e[:3])
                if subject.epoch == epoch
            ],
        }

    def restore(self, state: dict[str, Any], jobs: dict[int, Job]) -> None:
        """Take the state of `snapshot` up again."""
        self.now_s = state["now_s"]
        self._sequence = state["sequence"]
        self.heap = [
            (t, kind, number, jobs[n] if is_job else self.topology.vertices[n], epoch)
            for t, kind, number, is_job, n, epoch in state["heap"]
        ]
        heapify(self.heap)
        self._moved_with = {
            index: (
                Allocation(
                    [tuple(part) for part in slices], [tuple(part) for part in extra], config
                ),
                TransitionCost(*cost),
            )
            for index, slices, extra, cost, config in state["moved_with"]
        }
        self._slow = {index: tuple(phase) for index, phase in state["slow"]}
        self._sharing = {v: {i: jobs[i] for i in sharers} for v, sharers in state["sharing"]}
        kept: dict[int, list[int]] = {}
        for key, sharers in state["sharing"]:
            for index in sharers:
                kept.setdefault(index, []).append(key)
        self._kept = dict(kept)
        self._changed = set(state["changed"])
        self._paced = dict(state["paced"])
        self._phases = {index: RatePhase(*phase) for index, *phase in state["phases"]}
        self._limits = dict(state["limits"])
        self.rates.restore(state["rates"], jobs)


def _name(subject: Job | Vertex) -> int:
    return subject.index if isinstance(subject, Job) else subject.id
