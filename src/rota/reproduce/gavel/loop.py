"""Gavel's loop: allocations are renewed now and then, rounds turn them into leases.

A lease says on what a job runs in a round, with whom and until when; whole steps count.
"""

import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol

import msgspec
import numpy as np

from rota.core import events as ev
from rota.core.allocation import BESIDE, Allocation
from rota.core.changes import Changes, Wake
from rota.core.errors import InputError
from rota.core.jobs import DONE, STOPPING, Job
from rota.core.knowledge import Knowledge
from rota.core.policy import Params
from rota.core.topology import Topology
from rota.core.view import View
from rota.models.rates import Rates
from rota.policies.rounds.dispatch import Dispatcher, DispatchOptions
from rota.policies.rounds.problem import Array, JobPairs, PackedShares, RoundProblem, problem
from rota.reproduce.loop import RATE, Blame, Replanner

StepRates = Mapping[str, float]
"""Steps per second by type."""
Place = tuple[int, tuple[int, ...], int]
"""Position of the type, nodes (once for each GPU), number of the partner."""

UNKNOWN_STEP_S = 1e-3


class LeasedJob:
    """A job with its steps: `work` is that of one, `speed` how many it makes per second by type.

    `done` counts those of the present lease as made. `partner` is the number of the job on the same
    GPUs, -1 if there is none; `beside` the steps per second that it makes then.
    """

    __slots__ = (
        "beside", "done", "end_s", "job", "kind", "nodes", "partner", "speed", "steps", "work",
    )  # fmt: skip

    def __init__(self, job: Job, kinds: Sequence[str], rates: StepRates | None) -> None:
        speeds = job.truth.speeds or dict.fromkeys(kinds, 1.0)
        if rates is None:
            table = job.truth.sensitivity
            self.work = (table.step_s if table else 0.0) or UNKNOWN_STEP_S
            self.speed = [speeds.get(kind, 0.0) / self.work for kind in kinds]
        else:  # exactly those: some ties depend on the last digit
            known = max(rates, key=lambda kind: speeds.get(kind, 0.0))
            self.work = speeds[known] / rates[known]
            self.speed = [rates.get(kind, 0.0) for kind in kinds]
        self.job = job
        self.steps = max(1, round(job.true_work / self.work))
        self.done = 0
        self.kind = -1  # of its lease
        self.nodes: tuple[int, ...] = ()
        self.end_s = 0.0
        self.partner = -1
        self.beside = 0.0

    @property
    def place(self) -> Place:
        """Where its lease is: if it does not change, nothing happens to the job."""
        return self.kind, self.nodes, self.partner

    @property
    def guest(self) -> bool:
        """It uses the GPUs of a job that came before it."""
        return 0 <= self.partner < self.job.index

    @property
    def number(self) -> int:
        """Whose time its lease is: its own, or that of its pair."""
        return self.job.index if self.partner < 0 else number_of(self.job.index, self.partner)

    def rates(self, kinds: Sequence[str], round_s: float) -> dict[str, float]:
        """Work per second of the whole steps of a full round, by type."""
        return {
            kind: whole(speed, round_s) * self.work
            for kind, speed in zip(kinds, self.speed, strict=True)
        }

    def lease(self, kind: int, now_s: float, round_s: float, speed: float) -> None:
        """Whole steps until the end of the round at most."""
        count = min(max(1, int(speed * round_s)), self.steps - self.done)
        self.kind, self.end_s = kind, now_s + count / speed
        self.done += count


def whole(speed: float, round_s: float) -> float:
    """Steps per second, if only the whole ones of a full round count."""
    return min(max(1, int(speed * round_s)) / round_s, speed)


def all_free(nodes: tuple[int, ...], free: Mapping[int, int]) -> bool:
    """Whether these nodes have so many GPUs."""
    if len(nodes) == 1:
        return free[nodes[0]] > 0
    return all(nodes.count(node) <= free[node] for node in set(nodes))


def first_free(gpus: int, free: Mapping[int, int]) -> tuple[int, ...]:
    """Nodes for so many GPUs, in the order of the cluster; none if there are too few."""
    found: list[int] = []
    for node, room in free.items():
        if room:
            found += [node] * min(room, gpus - len(found))
            if len(found) == gpus:
                return tuple(found)
    return ()


# --- Pairs of jobs on the same GPUs ---------------------------------------------------------------

Kind = tuple[str, int]
"""Model and number of GPUs, as the table of throughputs has them."""
Beside = Mapping[tuple[Kind, Kind], Mapping[str, float]]
"""Steps per second of the first kind on the GPUs of the second, by type."""

NO_PAIRS = JobPairs(np.zeros((0, 2), np.intp), np.zeros((0, 1, 2)))
_WIDE = 1 << 31  # numbers of jobs are below it


class JobHolder(Protocol):
    """What holds a job."""

    job: Job


def number_of(one: int, other: int) -> int:
    """The number of a pair: below zero, since those of jobs are not; the same in either order."""
    return -1 - (min(one, other) * _WIDE + max(one, other))


class Companions:
    """How fast jobs are beside each other; without a table there are no pairs.

    A pair has a share of time of its own, beside those of its jobs alone, and a lease of its own:
    it ends when both have made their whole steps. The job that came first holds the GPUs of a pair;
    the other one is its guest.
    """

    def __init__(self, types: Sequence[str], beside: Beside | None = None) -> None:
        self._types = list(types)
        self._beside = beside or {}
        self._place: dict[Kind, int] = {}
        self._rates = np.zeros((0, 0, len(self._types)))

    def speeds(self, one: Job, other: Job) -> list[float]:
        """Steps per second of the first one, by type."""
        rates = self._beside.get((_kind(one), _kind(other)), {})
        return [rates.get(name, 0.0) for name in self._types]

    def find(self, entries: Sequence[JobHolder]) -> JobPairs:
        """All pairs of gangs of equal size that the table knows."""
        places = np.array([self._known(_kind(entry.job)) for entry in entries], np.intp)
        sizes = np.array([entry.job.gpus for entry in entries])
        one, other = np.triu_indices(len(entries), 1)
        first, second = places[one], places[other]
        ours, theirs = self._rates[first, second], self._rates[second, first]
        rates: Array = np.stack([ours, theirs], axis=2)
        works = np.any(np.all(rates > 0, axis=2), axis=1)
        use = (sizes[one] == sizes[other]) & works
        return JobPairs(np.stack([one[use], other[use]], axis=1), rates[use])

    def _known(self, kind: Kind) -> int:
        """The row of a kind of job in the table of all that came so far."""
        if kind not in self._place:
            self._place[kind] = len(self._place)
            kinds = list(self._place)
            self._rates = np.array(
                [
                    [
                        [self._beside.get((one, other), {}).get(name, 0.0) for name in self._types]
                        for other in kinds
                    ]
                    for one in kinds
                ]
            )
        return self._place[kind]


def _kind(job: Job) -> Kind:
    return job.spec.model, int(job.gpus)


# --- Rounds ---------------------------------------------------------------------------------------

Table = Mapping[tuple[str, int], StepRates]

SLACK = 1e-12
"""Rates of last leases are that much too high: else a job could miss the end of its round by a
rounding error."""
IDLE = Wake(on=frozenset({ev.JOB_SUBMIT, ev.NODE_UP}))
"""When nothing runs, there is no round whose end could be waited for."""
SHUFFLE = 5  # added to the seed, as the simulator does


@dataclass(frozen=True)
class Question:
    """What a policy is asked at a renewal: the jobs by number, and the problem of all of them.

    `pairs` are those that there may be, if the policy packs.
    """

    now_s: float
    jobs: list[int]
    problem: RoundProblem
    pairs: JobPairs = NO_PAIRS


Allocate = Callable[[Question], Array | PackedShares]


@dataclass(frozen=True)
class GavelRules:
    """What a policy of the simulator is: its allocation, and what the rounds do for it.

    `memory` is what it keeps between renewals, as plain data.
    """

    allocate: Allocate
    shuffled: bool  # types choose in a random order: the policy does not know them
    spare: bool  # idle GPUs go to jobs without a share
    memory: dict[str, Any] = field(default_factory=dict)
    packs: bool = False  # two jobs may share their GPUs


class GavelRounds(Replanner):
    """One round after the other.

    A round lasts until the last of its leases has made its whole steps, at most `round_s`; a job
    that ends before leaves its GPUs idle. New jobs and ends make the allocation stale, and the
    first round at least `reset_s` after the last renewal makes a new one. In between, a job that
    the allocation does not know may be chosen for GPUs that no other job wants, and then they stay
    idle.
    """

    def __init__(
        self,
        name: str,
        topology: Topology,
        rules: GavelRules,
        *,
        round_s: float,
        reset_s: float,
        order: Sequence[str],
        seed: int,
    ) -> None:
        super().__init__(name, topology, Knowledge.REMAINING_WORK)
        self.wake = IDLE
        self._rules = rules
        self._round_s, self._reset_s = round_s, reset_s
        self._kinds = sorted({node.gpu_type for node in topology.nodes})
        known = [kind for kind in order if kind in self._kinds]
        self._order = known + [kind for kind in self._kinds if kind not in known]
        self._nodes = [
            [node for node in topology.nodes if node.gpu_type == kind] for kind in self._kinds
        ]
        self._capacity = [sum(int(node.gpus) for node in nodes) for nodes in self._nodes]
        self.dispatcher = Dispatcher(
            self._capacity, round_s, DispatchOptions(rule="received", spare=rules.spare)
        )
        self._random, self._seed, self._shuffles = Random(seed + SHUFFLE), seed, 0  # noqa: S311
        self._entries: dict[int, LeasedJob] = {}
        self._blame = Blame()
        self._made: dict[tuple[int, ...], Allocation] = {}
        self._paired: dict[tuple[tuple[int, ...], int, float], Allocation] = {}
        self._table: Table | None = None
        self._companions = Companions(self._kinds)
        self._coming = 0  # jobs that are yet to be submitted
        self._stale = True
        self._began_s, self._ended_s = 0.0, -1.0  # the last round, as the simulator counts it

    def prepare(self, jobs: int, table: Table | None = None, beside: Beside | None = None) -> None:
        """So many jobs will be submitted: when all are there, nobody waits for a renewal.

        `table` tells the steps per second of jobs by their model and GPUs, `beside` those of pairs.
        """
        self._coming = jobs
        self._table = table
        self._companions = Companions(self._kinds, beside)

    # --- what happened ----------------------------------------------------------------------------

    def _submitted(self, job: Job, changes: Changes, now_s: float) -> None:
        self._coming -= 1
        if job.phase < DONE and max(self._capacity) < job.gpus <= self.topology.gpus:
            changes.reject(
                job,
                f"asks for {job.shape.describe()}, but a job runs on GPUs of one type here, and no "
                f"type has more than {max(self._capacity)}",
            )
            return
        super()._submitted(job, changes, now_s)

    def arrived(self, job: Job, now_s: float) -> None:  # noqa: ARG002 - see the base
        """It takes part from the next round on."""
        rates = None
        if self._table is not None:
            rates = self._table.get((job.spec.model, int(job.gpus)))
        entry = self._entries[job.index] = LeasedJob(job, self._kinds, rates)
        job.book = LeaseSpeeds(entry.rates(self._kinds, self._round_s))
        self.dispatcher.join(job.index, job.gpus, [speed > 0 for speed in entry.speed])
        self._blame.joins(job)
        self._stale = True

    def ended(self, job: Job) -> None:
        """Its lease is over with the round; a cancelled job is gone at once."""
        entry = self._entries.get(job.index)
        if entry is None:
            return
        if entry.kind < 0:
            self._blame.leaves(job)
            self._forget(entry)
        else:
            entry.done = entry.steps

    def lost(self, job: Job, now_s: float) -> None:  # noqa: ARG002 - see the base
        """What it did in this round is lost."""
        entry = self._entries[job.index]
        entry.kind, entry.nodes, entry.partner = -1, (), -1
        entry.done = max(0, entry.steps - round(job.true_left / entry.work))
        self._blame.joins(job)

    def _forget(self, entry: LeasedJob) -> None:
        del self._entries[entry.job.index]
        self.dispatcher.leave(entry.job.index)
        self._stale = True

    # --- what to do -------------------------------------------------------------------------------

    def decide(self, view: View, changes: Changes) -> Changes:
        """The round is over: account for it, renew the allocation if it is time, begin the next."""
        now_s = view.now_s
        leases = [entry for entry in self._entries.values() if entry.kind >= 0]
        if leases and now_s < max(entry.end_s for entry in leases):
            return changes
        held = {entry.job.index: entry.place for entry in leases}
        self._account(leases)
        if self._stale and self._may_renew(now_s, idle=not leases):
            self._renew(now_s)
        chosen = self._choose(now_s)
        self._place(chosen, held)
        self._tell(changes, now_s, held)
        self._blame.tell(changes)
        running = [entry.end_s for entry in self._entries.values() if entry.kind >= 0]
        changes.wake = Wake(on=frozenset(), at_s=max(running)) if running else IDLE
        return changes

    def _account(self, leases: list[LeasedJob]) -> None:
        """Time received counts from the end of the last round, even if nothing ran in between."""
        if not leases:
            return
        if self._ended_s >= 0:
            self._began_s = self._ended_s
        self._ended_s = max(entry.end_s for entry in leases)
        for entry in sorted(leases, key=lambda entry: (-entry.end_s, entry.job.index)):
            if entry.partner < 0 or (not entry.guest and entry.number in self.dispatcher):
                self.dispatcher.record(entry.number, entry.kind, entry.end_s - self._began_s)
            entry.kind = -1
            if entry.done >= entry.steps:
                self._forget(entry)

    def _may_renew(self, now_s: float, *, idle: bool) -> bool:
        if idle and self._coming <= 0:
            self.dispatcher.since_s = 0.0
        since_s = self.dispatcher.since_s
        return since_s == 0 or now_s - since_s >= self._reset_s

    def _renew(self, now_s: float) -> None:
        self._stale = False
        entries = sorted(self._entries.values(), key=lambda entry: entry.job.index)
        if not entries:
            self.dispatcher.retarget(now_s, {})
            return
        asked = problem(
            np.array([entry.speed for entry in entries]),
            np.array(self._capacity, float),
            size=np.array([entry.job.gpus for entry in entries], float),
            weight=np.array([entry.job.spec.priority or 1 for entry in entries], float),
            steps=np.array([entry.steps - entry.done for entry in entries], float),
            age=np.array([now_s - entry.job.submit_s for entry in entries]),
        )
        jobs = [entry.job.index for entry in entries]
        pairs = self._companions.find(entries) if self._rules.packs else NO_PAIRS
        found = self._rules.allocate(Question(now_s, jobs, asked, pairs))
        together: dict[int, Any] = {}
        if isinstance(found, PackedShares):
            together, found = self._together(jobs, pairs, found.pairs), found.alone
        self.dispatcher.retarget(now_s, {**dict(zip(jobs, found, strict=True)), **together})

    def _together(self, jobs: Sequence[int], pairs: JobPairs, shares: Array) -> dict[int, Any]:
        """The shares of all pairs that have one, and of those that had: their accounts are kept."""
        nothing = [0.0] * len(self._kinds)
        out: dict[int, Any] = {number: nothing for number in self.dispatcher.jobs if number < 0}
        for row in np.flatnonzero(shares.any(axis=1)).tolist():
            one, other = (jobs[place] for place in pairs.jobs[row])
            number = number_of(one, other)
            if number not in self.dispatcher:
                able = (pairs.throughput[row] > 0).all(axis=1)
                size = self._entries[one].job.gpus
                self.dispatcher.join(number, size, able.tolist(), (one, other))
            out[number] = shares[row]
        return out

    def _choose(self, now_s: float) -> list[LeasedJob]:
        order = list(self._order)
        if self._rules.shuffled:
            self._random.shuffle(order)
            self._shuffles += 1
        chosen = []
        for number, kind in self.dispatcher.choose([self._kinds.index(name) for name in order]):
            if not self.dispatcher.known(number):
                continue
            if number >= 0:
                entry = self._entries[number]
                if entry.job.phase != STOPPING:
                    entry.partner = -1
                    entry.lease(kind, now_s, self._round_s, entry.speed[kind])
                    chosen.append(entry)
                continue
            one, other = (self._entries[index] for index in self.dispatcher.members(number))
            if STOPPING not in (one.job.phase, other.job.phase):
                self._lease_both(one, other, kind, now_s)
                chosen += [one, other]
        return chosen

    def _lease_both(self, one: LeasedJob, other: LeasedJob, kind: int, now_s: float) -> None:
        """A pair has its GPUs until both have made their steps."""
        for entry, beside in ((one, other), (other, one)):
            entry.partner = beside.job.index
            entry.beside = self._companions.speeds(entry.job, beside.job)[kind]
            entry.lease(kind, now_s, self._round_s, entry.beside)
        one.end_s = other.end_s = max(one.end_s, other.end_s)

    def _place(self, chosen: list[LeasedJob], held: Mapping[int, Place]) -> None:
        """Large jobs first; a job keeps its nodes if they are free, else the first free ones."""
        for kind, nodes in enumerate(self._nodes):
            mine = [entry for entry in chosen if entry.kind == kind and not entry.guest]
            free = {node.id: int(node.gpus) if node.up else 0 for node in nodes}
            for entry in sorted(mine, key=lambda entry: -entry.job.gpus):
                old_kind, old, _ = held.get(entry.job.index, (-1, (), -1))
                keeps = old_kind == kind and all_free(old, free)
                entry.nodes = old if keeps else first_free(int(entry.job.gpus), free)
                for node in entry.nodes:
                    free[node] -= 1
                both = [entry, *([self._entries[entry.partner]] if entry.partner >= 0 else [])]
                for one in both:
                    one.nodes = entry.nodes
                    if not one.nodes:  # a node is down: the round passes without it
                        one.kind = one.partner = -1
                        one.done = max(0, one.steps - round(one.job.true_left / one.work))

    def _tell(self, changes: Changes, now_s: float, held: Mapping[int, Place]) -> None:
        for entry in self._entries.values():
            job = entry.job
            before = job.index in held
            if entry.kind < 0:
                if before:
                    changes.stop(job)
                    self._blame.joins(job)
                continue
            if not before:
                self._blame.leaves(job)
            if entry.done < entry.steps and held.get(job.index) == entry.place:
                continue  # its lease is renewed
            changes.starts.append((job, self._allocation(entry, now_s)))

    def _allocation(self, entry: LeasedJob, now_s: float) -> Allocation:
        """In its last lease a job is as fast as it must be to end with its last step.

        Before, its rate (`LeaseRates`) is that of the whole steps of a full round: never more than
        it makes.
        """
        made = self._made.get(entry.nodes)
        if made is None:
            counts: dict[int, int] = {}
            for node in entry.nodes:
                counts[node] = counts.get(node, 0) + 1
            made = self._made[entry.nodes] = Allocation(list(counts.items()))
        if entry.done >= entry.steps:
            rate = entry.job.left_at(now_s) / (entry.end_s - now_s) * (1 + SLACK)
            return _rated(made, entry, rate)
        if entry.partner < 0:
            return made
        rate = whole(entry.beside, self._round_s) * entry.work
        key = (entry.nodes, entry.partner if entry.guest else -1, rate)
        paired = self._paired.get(key)  # the same pairs meet again and again
        if paired is None:
            paired = self._paired[key] = _rated(made, entry, rate)
        return paired

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """All accounts; allocations are in those of the dispatcher."""
        return {
            "jobs": [
                (index, entry.done, entry.place, entry.end_s)
                for index, entry in self._entries.items()
            ],
            "dispatcher": self.dispatcher.snapshot(),
            "memory": dict(self._rules.memory),
            "shuffles": self._shuffles,
            "round": (self._began_s, self._ended_s),
            "stale": self._stale,
            "coming": self._coming,
            "told": sorted(self._blame.told),
        }

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Rebuild the accounts."""
        for index, done, (kind, nodes, partner), end_s in state["jobs"]:
            job = view.everyone[index]
            self.arrived(job, view.now_s)
            entry = self._entries[index]
            entry.done, entry.kind, entry.nodes, entry.end_s = done, kind, tuple(nodes), end_s
            entry.partner = partner
            if kind >= 0:
                self._blame.leaves(job)
        self.dispatcher.restore(state["dispatcher"])
        self._rules.memory.clear()
        self._rules.memory.update(state["memory"])
        self._random = Random(self._seed + SHUFFLE)  # noqa: S311 - no secret
        for _ in range(state["shuffles"]):
            self._random.shuffle(list(self._order))
        self._shuffles = state["shuffles"]
        self._began_s, self._ended_s = state["round"]
        self._stale, self._coming = state["stale"], state["coming"]
        self._blame.told = set(state["told"])


def _rated(made: Allocation, entry: LeasedJob, rate: float) -> Allocation:
    """With the rate written into it; a guest has no GPUs of its own."""
    if entry.guest:
        slices = [(node, 0) for node, _ in made.slices]
        return Allocation(slices, config={BESIDE: entry.partner, RATE: rate})
    return Allocation(made.slices, config={RATE: rate})


class LeaseSpeeds:
    """The speeds of one job in full leases; implements `SpeedBook`."""

    def __init__(self, speeds: Mapping[str, float]) -> None:
        self._speeds = speeds

    def speed(self, job: Job, gpu_type: str) -> float:  # noqa: ARG002 - it is of one job
        """Work per second; 1 where no lease was planned."""
        return self._speeds.get(gpu_type, 1.0)

    def speed_beside(self, job: Job, other: Job, gpu_type: str) -> float:  # noqa: ARG002
        """Leases beside others have their speeds in the allocation."""
        return 0.0

    def speed_with(self, job: Job, gpus: float, nodes: int, gpu_type: str) -> float:  # noqa: ARG002
        """Leases are for what it asks for."""
        return self.speed(job, gpu_type)


class LeaseRates(Rates):
    """The rate that the scheduler planned; 1 where it planned none.

    It gives each job the rates of its leases by GPU type (`LeaseSpeeds`),
    and the rate of a last lease, which ends with the last step, or of a lease beside another job
    into the allocation.
    """

    name = "leases"

    def __init__(self, topology: Topology, params: Params | None = None) -> None:
        super().__init__(topology, params)
        self.packs = True
        self._types = [vertex.gpu_type for vertex in topology.vertices]

    def rate(self, job: Job, allocation: Allocation, sharers: Sequence[Job]) -> float:  # noqa: ARG002
        """Of the lease, or else of any lease on the type."""
        if allocation.config is not None and RATE in allocation.config:
            last: float = allocation.config[RATE]
            return last
        if not isinstance(job.book, LeaseSpeeds) or not allocation.slices:
            return 1.0
        return job.book.speed(job, self._types[allocation.slices[0][0]])


# --- Recorded allocations -------------------------------------------------------------------------

NEAR_S = 1e-3
_GZIP = b"\x1f\x8b"

Entries = list[tuple[float, dict[str, dict[str, float]]]]


class RecordedAllocations:
    """Recorded allocations instead of a policy's: only the rounds are ours then.

    The file is a list of [seconds, {job: {GPU type: share}}], as JSON, also compressed with gzip;
    jobs are numbered in the order of the trace. Each question is answered with the next entry; a
    question at another time is an error.
    """

    def __init__(self, path: Path, types: Sequence[str]) -> None:
        self._path, self._types = path, list(types)
        self._entries = _read(path)
        self.memory: dict[str, Any] = {"next": 0}

    def allocate(self, question: Question) -> Array:
        """The shares of the jobs that are there."""
        number = self.memory["next"]
        if number == len(self._entries):
            raise InputError(
                f"{self._path} has {number} allocations, and one more is needed at "
                f"{question.now_s:g} s: give the file that was recorded with this trace and cluster"
            )
        at_s, shares = self._entries[number]
        names = [str(job) for job in question.jobs]
        odd = [name for name in names if name not in shares]
        if abs(at_s - question.now_s) > NEAR_S or odd:
            raise InputError(
                f"{self._path}: allocation {number} is for {len(shares)} jobs at {at_s:g} s, and "
                f"here are {len(names)} at {question.now_s:g} s: give the file that was recorded "
                f"with this trace, cluster and policy"
            )
        self.memory["next"] = number + 1
        rows = [[shares[name].get(kind, 0.0) for kind in self._types] for name in names]
        return np.array(rows)


def _read(path: Path) -> Entries:
    try:
        data = path.read_bytes()
        if data.startswith(_GZIP):
            data = gzip.decompress(data)
        return msgspec.json.decode(data, type=Entries)
    except (OSError, EOFError, msgspec.DecodeError) as problem:
        raise InputError(
            f"{path}: no recorded allocations ({problem}): give a list of "
            f"[seconds, {{job: {{type: share}}}}]"
        ) from problem
