"""Gavel's loop: allocations are renewed now and then, rounds turn them into leases.

A round lasts until the last of its leases has made its whole steps, at most `round_s`; who ends
before leaves its GPUs idle. New jobs and ends make the allocation stale, and the first round at
least `reset_s` after the last renewal makes a new one. In between, a job that the allocation does
not know may be chosen for GPUs that nobody else wants, and then they stay idle.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rota.core import events as ev
from rota.core.allocation import BESIDE, Allocation
from rota.core.jobs import DONE, STOPPING, Job
from rota.core.knowledge import Knowledge
from rota.core.plan import Plan, Wake
from rota.core.topology import Topology
from rota.core.view import View
from rota.policies.rounds.dispatch import Dispatcher, DispatchOptions
from rota.policies.rounds.problem import PackedShares, Pairs, Problem, problem
from rota.reproduce.gavel.leases import Entry, Place, Rates, all_free, first_free, whole
from rota.reproduce.gavel.pairs import NO_PAIRS, Beside, Companions, number_of
from rota.reproduce.replan import Blame, Replanner
from rota.reproduce.synergy.rates import RATE

Array = NDArray[np.float64]
Table = Mapping[tuple[str, int], Rates]

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
    problem: Problem
    pairs: Pairs = NO_PAIRS


Allocate = Callable[[Question], Array | PackedShares]


@dataclass(frozen=True)
class Rules:
    """What a policy of the simulator is: its allocation, and what the rounds do for it.

    `memory` is what it keeps between renewals, as plain data.
    """

    allocate: Allocate
    shuffled: bool  # types choose in a random order: the policy does not know them
    spare: bool  # idle GPUs go to jobs without a share
    memory: dict[str, Any] = field(default_factory=dict)
    packs: bool = False  # two jobs may share their GPUs


class GavelRounds(Replanner):
    """One round after the other."""

    def __init__(
        self,
        name: str,
        topology: Topology,
        rules: Rules,
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
        self._entries: dict[int, Entry] = {}
        self._blame = Blame()
        self._made: dict[tuple[int, ...], Allocation] = {}
        self._paired: dict[tuple[tuple[int, ...], int, float], Allocation] = {}
        self._table: Table | None = None
        self._companions = Companions(self._kinds)
        self._coming = 0  # jobs that are yet to be submitted
        self._stale = True
        self._began_s, self._ended_s = 0.0, -1.0  # the last round, as the simulator counts it

    def expect(self, jobs: int, table: Table | None = None, beside: Beside | None = None) -> None:
        """So many jobs will be submitted: when all are there, nobody waits for a renewal.

        `table` tells the steps per second of jobs by their model and GPUs, `beside` those of pairs.
        """
        self._coming = jobs
        self._table = table
        self._companions = Companions(self._kinds, beside)

    # --- what happened ----------------------------------------------------------------------------

    def _submitted(self, job: Job, plan: Plan, now_s: float) -> None:
        self._coming -= 1
        if job.phase < DONE and max(self._capacity) < job.gpus <= self.topology.gpus:
            plan.reject(
                job,
                f"asks for {job.shape.describe()}, but a job runs on GPUs of one type here, and no "
                f"type has more than {max(self._capacity)}",
            )
            return
        super()._submitted(job, plan, now_s)

    def arrived(self, job: Job, now_s: float) -> None:  # noqa: ARG002 - see the base
        """It takes part from the next round on."""
        rates = None
        if self._table is not None:
            rates = self._table.get((job.spec.model, int(job.gpus)))
        entry = self._entries[job.index] = Entry(job, self._kinds, rates)
        job.key = entry.rates(self._kinds, self._round_s)
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
        entry.done = max(0, entry.steps - round(job.left / entry.work))
        self._blame.joins(job)

    def _forget(self, entry: Entry) -> None:
        del self._entries[entry.job.index]
        self.dispatcher.leave(entry.job.index)
        self._stale = True

    # --- what to do -------------------------------------------------------------------------------

    def decide(self, view: View, plan: Plan) -> Plan:
        """The round is over: account for it, renew the allocation if it is time, begin the next."""
        now_s = view.now_s
        leases = [entry for entry in self._entries.values() if entry.kind >= 0]
        if leases and now_s < max(entry.end_s for entry in leases):
            return plan
        held = {entry.job.index: entry.place for entry in leases}
        self._account(leases)
        if self._stale and self._may_renew(now_s, idle=not leases):
            self._renew(now_s)
        chosen = self._choose(now_s)
        self._place(chosen, held)
        self._tell(plan, now_s, held)
        self._blame.tell(plan)
        running = [entry.end_s for entry in self._entries.values() if entry.kind >= 0]
        plan.wake = Wake(on=frozenset(), at_s=max(running)) if running else IDLE
        return plan

    def _account(self, leases: list[Entry]) -> None:
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

    def _together(self, jobs: Sequence[int], pairs: Pairs, shares: Array) -> dict[int, Any]:
        """The shares of all pairs that have one, and of those that had: they keep their books."""
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

    def _choose(self, now_s: float) -> list[Entry]:
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

    def _lease_both(self, one: Entry, other: Entry, kind: int, now_s: float) -> None:
        """A pair has its GPUs until both have made their steps."""
        for entry, beside in ((one, other), (other, one)):
            entry.partner = beside.job.index
            entry.beside = self._companions.speeds(entry.job, beside.job)[kind]
            entry.lease(kind, now_s, self._round_s, entry.beside)
        one.end_s = other.end_s = max(one.end_s, other.end_s)

    def _place(self, chosen: list[Entry], held: Mapping[int, Place]) -> None:
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
                        one.done = max(0, one.steps - round(one.job.left / one.work))

    def _tell(self, plan: Plan, now_s: float, held: Mapping[int, Place]) -> None:
        for entry in self._entries.values():
            job = entry.job
            before = job.index in held
            if entry.kind < 0:
                if before:
                    plan.stop(job)
                    self._blame.joins(job)
                continue
            if not before:
                self._blame.leaves(job)
            if entry.done < entry.steps and held.get(job.index) == entry.place:
                continue  # its lease is renewed
            plan.starts.append((job, self._allocation(entry, now_s)))

    def _allocation(self, entry: Entry, now_s: float) -> Allocation:
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
        """All books; allocations are in those of the dispatcher."""
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
        """Rebuild the books."""
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


def _rated(made: Allocation, entry: Entry, rate: float) -> Allocation:
    """With the rate written into it; a guest has no GPUs of its own."""
    if entry.guest:
        slices = [(node, 0) for node, _ in made.slices]
        return Allocation(slices, config={BESIDE: entry.partner, RATE: rate})
    return Allocation(made.slices, config={RATE: rate})
