"""Chronus: deadlines are promised as leases (Gao et al., SoCC 2021).

Time is cut into leases of equal length. A job with a deadline is admitted if it, and everybody who
was admitted before, can have as many leases before their deadlines as they need: leases beside
those that others have, else all given out anew by an integer programme. The programme decides again
whenever a lease begins: it leaves the coming lease to jobs without a promise as far as it can, and
fills it if there are none. All others (without a deadline, or declined) get what no lease uses,
those with the least GPU time left first; nobody is stopped for them before a lease ends.

With exact knowledge and without costs an admitted job never misses its deadline on nodes of equal
size, a power of two: a lease counts shares of 1, 2, 4, .. GPUs or whole nodes, which always find
room if the large ones are placed first. Failures, costs and wrong estimates can break a promise;
such a job has none from then on.

Departs from the paper: a job that is urgent may begin in the lease that has begun already, if there
is room beside those who hold it; a promise is for one deadline, not for one of several with values;
where jobs go is left to the placement, which there is a local search.
"""

from collections.abc import Mapping, Sequence
from math import ceil, floor
from typing import Literal

from rota.core.errors import OptionError
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.plan import Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.state import State
from rota.core.sums import ordered_sum
from rota.core.view import View
from rota.policies._sizes import open_gpus
from rota.solvers.leases import LeaseNeed, pack_leases, share_leases

DUST = 1e-9  # of a lease: times are sums
AHEAD = 500  # leases beyond those that a job needs: no promise looks further ahead


class ChronusPolicyParams(Params, frozen=True):
    """Length of a lease, and what becomes of a job whose deadline cannot be promised."""

    lease_s: float = 1200.0
    declined: Literal["refuse", "best-effort"] = "best-effort"

    def __post_init__(self) -> None:
        """A lease takes time."""
        if not 0 < self.lease_s < INF:
            raise OptionError(f"policy 'chronus': lease_s={self.lease_s:g}: give seconds above 0")


class ChronusState(State):
    """Who was promised which of the leases to come, and who holds the one that has begun."""

    number: int = -1  # of the lease that has begun, counted from time 0
    leases: dict[int, list[int]] = {}  # by job: the numbers of those to come
    holders: list[int] = []
    unpromised: list[int] = []


class Chronus(DecidePolicy[ChronusPolicyParams]):
    """Promise deadlines by leases, and keep them."""

    name = "chronus"
    paper = (
        "Gao et al., Chronus: A Novel Deadline-aware Scheduler for Deep Learning Training Jobs, "
        "SoCC 2021"
    )
    knowledge = Knowledge.REMAINING_WORK | Knowledge.DEADLINES
    Parameters = ChronusPolicyParams
    preemptive = True
    coupled = "leases of all GPUs are shared out together"

    def __init__(self, params: ChronusPolicyParams | None = None) -> None:
        super().__init__(params)
        self.state: ChronusState = ChronusState()

    def decide(self, view: View) -> Plan:
        """Give out leases if one begins, admit who is new, and fill what is left."""
        plan, state = view.plan(), self.state
        turn = LeaseTurn(view, self.params.lease_s)
        self._forget(turn.jobs)
        begins = turn.number != state.number
        if begins:
            self._give_leases(turn)
        known = {*state.leases, *state.unpromised}
        for job in [job for index, job in turn.jobs.items() if index not in known]:
            if job.deadline_s < INF and self._promised(job, turn):
                continue
            if job.deadline_s < INF and self.params.declined == "refuse" and not job.started:
                plan.refuse(job, "its deadline cannot be promised beside those of others")
                del turn.jobs[job.index]
            else:
                state.unpromised.append(job.index)
        holders = dict.fromkeys(state.holders)
        first = [turn.jobs[index] for index in holders]
        plan.fill(sorted(first, key=lambda job: (-turn.share(job), not job.running)))
        others = [job for index, job in turn.jobs.items() if index not in holders]
        plan.fill(sorted(others, key=lambda job: self._turn_of(job, turn, begins=begins)))
        if turn.jobs:
            plan.wake_at((turn.number + 1) * turn.lease_s)
        return plan

    def _turn_of(
        self, job: Job, turn: "LeaseTurn", *, begins: bool
    ) -> tuple[bool, bool, float, int]:
        """Who runs goes on while the lease does; then who has no promise, the smallest first."""
        waits = not job.running and not begins
        gpu_s = job.remaining_s(turn.now_s) * job.gpus
        return waits, job.index in self.state.leases, gpu_s, job.index

    def _forget(self, present: Mapping[int, Job]) -> None:
        """Jobs that are over."""
        state = self.state
        state.leases = {i: numbers for i, numbers in state.leases.items() if i in present}
        state.holders = [index for index in state.holders if index in present]
        state.unpromised = [index for index in state.unpromised if index in present]

    def _give_leases(self, turn: "LeaseTurn") -> None:
        """A lease begins: who holds it, and who has which of the next ones."""
        state = self.state
        promised = [turn.jobs[index] for index in state.leases]
        fill = len(promised) == len(turn.jobs)
        found = turn.shared(promised, first=turn.number, fill=fill)
        if found is None:  # a promise is broken: by deadlines, as far as they can be kept
            found = turn.packed(promised, first=turn.number)
        state.unpromised += [job.index for job in promised if job.index not in found]
        state.holders = [
            index
            for index, numbers in found.items()
            if turn.number in numbers or turn.need(turn.jobs[index], turn.number).leases == 0
        ]
        state.leases = {
            index: [number for number in numbers if number > turn.number]
            for index, numbers in found.items()
        }
        state.number = turn.number

    def _promised(self, job: Job, turn: "LeaseTurn") -> bool:
        """Find leases for one more job: from the next one on, or with the present one."""
        held = ordered_sum(turn.share(turn.jobs[index]) for index in self.state.holders)
        at_once = held + turn.share(job) <= turn.gpus
        for holders in [(), (job.index,)] if at_once else [()]:
            found = self._beside(job, turn, [*self.state.holders, *holders])
            if found is not None:
                self.state.leases = found
                self.state.holders += holders
                return True
        return False

    def _beside(
        self, job: Job, turn: "LeaseTurn", holders: Sequence[int]
    ) -> dict[int, list[int]] | None:
        """Leases for everyone and this job, if these hold the present one."""
        state, first = self.state, turn.number + 1
        need = turn.need(job, first, holders)
        if need.leases > need.within:
            return None
        beside = pack_leases([need], turn.room(first, need.within, state.leases))[0]
        if beside is not None:
            return {**state.leases, job.index: _numbers(beside, first)}
        everyone = [*(turn.jobs[index] for index in state.leases), job]
        return turn.shared(everyone, first=first, holders=holders, fill=False)


class LeaseTurn:
    """Leases as they are at one decision: which one has begun, and what jobs need of the next."""

    def __init__(self, view: View, lease_s: float) -> None:
        self.now_s = view.now_s
        self.lease_s = lease_s
        self.number = floor(self.now_s / lease_s + DUST)
        self.jobs = {job.index: job for job in view.jobs}
        self.gpus = open_gpus(view)
        self._node = max((node.gpus for node in view.topology.nodes if node.open), default=1)

    def share(self, job: Job) -> float:
        """GPUs that a lease counts for a job: a power of two, or whole nodes."""
        if job.gpus > self._node:
            return ceil(job.gpus / self._node) * self._node
        return min(1 << (ceil(job.gpus) - 1).bit_length(), self._node) if job.gpus > 0 else 0

    def need(self, job: Job, first: int, holders: Sequence[int] = ()) -> LeaseNeed:
        """Leases from that one on; the last one may be cut by the deadline if all are needed."""
        first_s, left_s = first * self.lease_s, job.remaining_s(self.now_s)
        holds = job.index in holders
        start_s = self.now_s if holds else max(first_s, self.now_s)
        behind_s = start_s - first_s  # below 0: work of the present lease; above: it has begun
        needed = max(0, ceil((left_s + behind_s) / self.lease_s - DUST))
        within = max(0, floor((job.deadline_s - first_s) / self.lease_s + DUST))
        if start_s + left_s <= job.deadline_s + DUST * self.lease_s:
            within = max(within, needed)
        elif needed == 0:  # it would be done in the present lease, but too late
            needed = within + 1
        return LeaseNeed(self.share(job), needed, min(within, needed + AHEAD))

    def room(self, first: int, leases: int, given: Mapping[int, Sequence[int]]) -> list[float]:
        """GPUs that are left of so many leases from that one on."""
        room = [self.gpus] * leases
        for index, numbers in given.items():
            share = self.share(self.jobs[index])
            for number in numbers:
                if number - first < leases:
                    room[number - first] -= share
        return room

    def shared(
        self, jobs: Sequence[Job], *, first: int, fill: bool, holders: Sequence[int] = ()
    ) -> dict[int, list[int]] | None:
        """Leases for all of them, by the integer programme; None: there are too few."""
        needs = [self.need(job, first, holders) for job in jobs]
        room = self.room(first, max((need.within for need in needs), default=0), {})
        running = {place for place, job in enumerate(jobs) if job.running}
        found = share_leases(needs, room, fill=fill, favoured=running)
        if found is None:
            return None
        return {job.index: _numbers(has, first) for job, has in zip(jobs, found, strict=True)}

    def packed(self, jobs: Sequence[Job], *, first: int) -> dict[int, list[int]]:
        """Leases for those who find some, the first deadlines first."""
        order = sorted(jobs, key=lambda job: (job.deadline_s, job.index))
        needs = [self.need(job, first) for job in order]
        room = self.room(first, max((need.within for need in needs), default=0), {})
        packed = zip(order, pack_leases(needs, room), strict=True)
        return {job.index: _numbers(has, first) for job, has in packed if has is not None}


def _numbers(leases: Sequence[bool], first: int) -> list[int]:
    return [first + t for t, has in enumerate(leases) if has]
