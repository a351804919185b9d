"""From shares of time to rounds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from rota.core.allocation import host_of
from rota.core.events import INF
from rota.core.jobs import HELD, Job
from rota.core.sums import ordered_sum
from rota.core.view import View, arrival
from rota.policies.rounds.dispatch import Dispatcher, DispatchOptions
from rota.policies.rounds.leases import Seat
from rota.policies.rounds.pairs import Partners
from rota.policies.rounds.problem import Array, JobPairs, PackedShares, RoundProblem, problem
from rota.policies.rounds.rounds import Rounds, RoundState
from rota.policies.rounds.seats import Seats, pair_number
from rota.policies.rounds.share_policy import ShareParams, SharePolicy
from rota.policies.rounds.speeds import Learnt, Noisy, SameSpeed, Told
from rota.policies.rounds.types import GpuTypes, held_type

QUIET = 10_000  # rounds in which nothing changed: then it is no use to go on
LATE = 2.0  # rounds behind, from which on a job takes the place of others that would stay
LITTLE = 1e-6  # such a share is none
LITTLE_S = 1.0  # remaining work of jobs that should have finished by now
SLACK = 1e-9  # GPUs


class Pick(NamedTuple):
    """A job or a pair, the type that it gets, and the one that it counts as."""

    number: int
    kind: int
    counts: int


class ShareState(RoundState):
    """The dispatcher with its types, and what is known since the shares were found.

    `wide` are the jobs that no single type can serve: the gang is larger than any, or it is fast
    nowhere; they take turns with all others, each is owed its part of the cluster. `stale`: jobs or
    nodes have changed since the shares were found; `holds_s`: the shares hold until then otherwise.
    `crowded`: somebody waited after the last decision. `quiet`: rounds since anything changed.
    """

    kinds: tuple[str, ...] = ()
    dispatcher: dict[str, Any] = {}
    learnt: dict[str, Any] = {}
    wide: set[int] = set()
    owed_s: dict[int, float] = {}
    stale: bool = True
    holds_s: float = INF
    crowded: bool = False
    quiet: int = 0


class ShareRounds(Rounds[SharePolicy[Any]]):
    """Rounds of a policy that says shares.

    At the beginning of a round the problem is solved anew if jobs came or ended since, the
    dispatcher chooses who gets GPUs of which type, and what the placement finds no room for goes to
    the next who can use it. Within a round nobody is stopped, and GPUs that become free are given
    away at once. While nobody waits and everyone is where it should be, there are no rounds at all.
    """

    any_type = True

    def __init__(self, policy: SharePolicy[Any]) -> None:
        super().__init__(policy)
        self.state: ShareState = ShareState()
        given: ShareParams = policy.params
        options = DispatchOptions(given.rule, given.carry, given.spare, forgive=True)
        self.dispatcher = Dispatcher([], given.round_s, options)
        self._types = GpuTypes()
        self._speeds = _speeds(given)
        self._partners = Partners(self._speeds)
        self._here: dict[int, Job] = {}  # who runs or waits, at this decision

    def shortfall(self) -> Mapping[int, float]:
        """By how many rounds each job is behind its share."""
        return self.dispatcher.shortfall()

    # --- what has happened ------------------------------------------------------------------------

    def update(self, view: View, *, over: bool) -> None:
        """Meet the jobs, account for the round that has ended, find shares if need be."""
        state, now_s = self.state, view.now_s
        running = view.running
        self._here = {job.index: job for job in (*running, *view.waiting)}
        self._meet(view, {job.index for job in running}, over=over)
        state.stale |= now_s >= state.holds_s
        if self.policy.params.speeds == "learn":
            self._look(view)
        if over:
            self._account(now_s)
        if state.stale and self._contested() and (over or self._prompted(running)):
            self._renew(view)

    def _meet(self, view: View, running: set[int], *, over: bool) -> None:
        """Jobs that came join the dispatcher, those that have finished leave it."""
        state, jobs = self.state, self._here
        if view.topology.types != state.kinds:
            self._open(view)
        dispatcher = self.dispatcher
        if over or view.up_gpus != ordered_sum(dispatcher.capacity):
            up = list(view.up_by_type.values())
            state.stale |= up != dispatcher.capacity
            dispatcher.capacity = up
        self.leases.keep_only(running, view.now_s)
        missing = [index for index in dispatcher.jobs if index not in jobs and index >= 0]
        finished = [index for index in missing if _is_finished(view, index)]
        if finished:
            dispatcher.leave(*finished)
            state.wide.difference_update(finished)
        new = [job for index, job in jobs.items() if index not in dispatcher and job.gpus]
        if new:
            self._join(view, sorted(new, key=arrival))
        state.stale |= bool(finished or new)

    def _open(self, view: View) -> None:
        """The cluster is new, or has other types than before: begin anew."""
        state, old = self.state, self.dispatcher
        state.kinds = view.topology.types
        self.dispatcher = Dispatcher(list(view.up_by_type.values()), old.round_s, old.options)
        self.leases.held, state.owed_s, state.wide = {}, {}, set()
        state.stale = True

    def _join(self, view: View, new: Sequence[Job]) -> None:
        speeds = [self._by_type(job, view) for job in new]
        self.dispatcher.join_all([job.index for job in new], [job.gpus for job in new], speeds)
        rows = zip(new, speeds, strict=True)
        self.state.wide.update(job.index for job, row in rows if not any(row))

    def _by_type(self, job: Job, view: View) -> list[float]:
        """How fast it is on each type; 0 where it may not run or is too large."""
        able = self._types.able(job, view.topology)
        return [self._speeds.speed(job, k) if k in able else 0.0 for k in self.state.kinds]

    def _look(self, view: View) -> None:
        """Measure the jobs that run; what is new changes what is thought of all others."""
        state, dispatcher = self.state, self.dispatcher
        seen = [job for job in view.running if job.gpus and job.index not in state.wide]
        if not self._speeds.saw([(job, state.kinds[self._kind(job, view)]) for job in seen]):
            return
        numbers = [number for number in dispatcher.jobs if number in view.everyone]
        speeds = [self._by_type(view.everyone[number], view) for number in numbers]
        dispatcher.rate(numbers, speeds)
        rows = zip(numbers, speeds, strict=True)
        state.wide = {number for number, row in rows if not any(row)}
        state.stale = True

    def _kind(self, job: Job, view: View) -> int:
        """The number of the type that a running job is on (of one of them, if on several)."""
        if len(self.state.kinds) == 1:
            return 0
        return self.state.kinds.index(view.topology.vertices[job.allocation.slices[0][0]].gpu_type)

    def _account(self, now_s: float) -> None:
        """A round has ended: write down what everyone got, and what wide jobs are owed."""
        state, dispatcher = self.state, self.dispatcher
        lasted_s = now_s - state.began_s if state.began_s > -INF else 0.0
        self.leases.account(now_s)
        dispatcher.advance(lasted_s)
        state.quiet = 0 if state.stale else state.quiet + 1
        jobs = sum(index >= 0 for index in dispatcher.jobs)
        part = ordered_sum(dispatcher.capacity) / max(jobs, 1)
        state.owed_s = {
            index: state.owed_s.get(index, 0.0) + min(1.0, part / dispatcher.size(index)) * lasted_s
            for index in sorted(state.wide)
        }

    def record(self, index: int, seat: Seat, seconds: float) -> None:
        """What a job got counts for itself or for a pair; for a wide job it is not owed."""
        if seat.counts is None:
            self.state.owed_s[index] = self.state.owed_s.get(index, 0.0) - seconds
        elif seat.account is not None and seat.account in self.dispatcher:
            self.dispatcher.record(seat.account, self.state.kinds.index(seat.counts), seconds)

    # --- shares -----------------------------------------------------------------------------------

    def _contested(self) -> bool:
        """There is something to share."""
        if len(self.state.kinds) > 1 or not self.policy.params.spare or self.state.crowded:
            return True
        return ordered_sum(job.gpus for job in self._here.values()) > ordered_sum(
            self.dispatcher.capacity
        )

    def _prompted(self, running: Sequence[Job]) -> bool:
        """X counts at once, and there are free GPUs."""
        used = ordered_sum(job.held_gpus for job in running)
        return self.policy.prompt and used < ordered_sum(self.dispatcher.capacity)

    def _renew(self, view: View) -> None:
        """Solve the problem of all jobs that there are."""
        state, policy, everyone = self.state, self.policy, view.everyone
        numbers = [number for number in self.dispatcher.jobs if number not in state.wide]
        known = [everyone[number] for number in numbers if number in everyone]
        jobs = sorted((job for job in known if job.phase != HELD), key=arrival)
        asked = self._problem(jobs, view)
        if policy.packs and view.sharing:
            pairs = self._partners.find(asked, jobs, view, policy.partners)
            self._retarget(view.now_s, asked, jobs, pairs, policy.pack(asked, pairs, jobs))
        else:
            found = policy.targets(asked, jobs, view) if jobs else np.zeros_like(asked.throughput)
            policy.given(jobs, np.where(asked.throughput > 0, found, 0.0))
            kinds = len(asked.capacity)
            pairs = JobPairs(np.zeros((0, 2), np.intp), np.zeros((0, kinds, 2)))
            shares = PackedShares(found, np.zeros((0, kinds)))
            self._retarget(view.now_s, asked, jobs, pairs, shares)
        state.stale = False
        state.holds_s = policy.next_change(view.now_s)

    def _problem(self, jobs: Sequence[Job], view: View) -> RoundProblem:
        dispatcher, now_s = self.dispatcher, view.now_s
        made = problem(
            dispatcher.worth([job.index for job in jobs]),
            np.array(dispatcher.capacity, float),
            size=np.array([job.gpus for job in jobs], float),
            weight=np.array([max(job.spec.priority, 1) for job in jobs], float),
            age=np.array([now_s - job.submit_s for job in jobs]),
        )
        if self.policy.reads_work:
            left = np.array([job.remaining_s(now_s) for job in jobs])
            made = replace(made, steps=_finite(left))
        left_s = np.array([job.spec.deadline_s - now_s for job in jobs])
        return replace(made, time_left=left_s).fitting()

    def _retarget(
        self,
        now_s: float,
        asked: RoundProblem,
        jobs: Sequence[Job],
        pairs: JobPairs,
        shares: PackedShares,
    ) -> None:
        """From now on these shares hold; pairs with no share to speak of are none."""
        dispatcher = self.dispatcher
        some = shares.pairs.max(axis=1, initial=0.0) > LITTLE
        members = [(jobs[a].index, jobs[b].index) for a, b in pairs.jobs[some].tolist()]
        named = {pair_number(*both): both for both in members}
        dispatcher.leave(*[n for n in dispatcher.jobs if n < 0 and n not in named])
        fast = pairs.throughput[some].sum(axis=2)
        for (number, both), able in zip(named.items(), fast, strict=True):
            if number not in dispatcher:
                dispatcher.join(number, dispatcher.size(both[0]), able, both)
        alone = np.where(asked.throughput > 0, shares.alone, 0.0)
        numbers = [job.index for job in jobs] + list(named)
        dispatcher.retarget_all(now_s, numbers, np.vstack([alone, shares.pairs[some]]))

    # --- a new round ------------------------------------------------------------------------------

    def without_gpus(self, view: View, seats: Seats) -> None:
        """Jobs without GPUs run as long as there is room; those that run go first."""
        super().without_gpus(view, seats)
        for job in view.waiting:
            if not job.gpus:
                seats.anywhere(job)

    def unpaid(self, view: View) -> list[Job]:
        """With those who share the GPUs of one that must not be stopped yet."""
        found = {job.index for job in super().unpaid(view)}
        for job in view.running:
            host = host_of(job.allocation)
            if host >= 0 and not found.isdisjoint((job.index, host)):
                found |= {job.index, host}
        return [job for job in view.running if job.index in found]

    def deal(self, view: View, seats: Seats) -> bool:
        """Who must not be stopped yet, wide jobs whose turn it is, then those chosen."""
        state, dispatcher = self.state, self.dispatcher
        free = list(dispatcher.capacity)
        unpaid = self.unpaid(view)
        seats.keep(unpaid)
        for job in unpaid:
            for vertex, gpus in job.allocation.slices:
                kind = view.topology.vertices[vertex].gpu_type
                free[state.kinds.index(kind) if len(free) > 1 else 0] -= gpus
        owed = sorted((-owed_s, index) for index, owed_s in state.owed_s.items() if owed_s > 0)
        here = self._here
        for _, index in owed:
            if index in here:
                seats.anywhere(here[index])
        absent = [index for index in dispatcher.jobs if index not in here]
        chosen = dispatcher.choose(free=free, without={*absent, *seats.placed})
        self._seat(view, seats, self._faster(chosen, free))
        return True

    def _faster(self, chosen: Iterable[tuple[int, int]], free: list[float]) -> list[Pick]:
        """GPUs due to no job go to those that are faster there; it counts as what they are due."""
        dispatcher = self.dispatcher
        out = [Pick(number, kind, kind) for number, kind in chosen]
        if not dispatcher.options.spare or len(free) == 1:
            return out
        sizes = [dispatcher.size(pick.number) for pick in out]
        for pick, size in zip(out, sizes, strict=True):
            free[pick.kind] -= size
        for place, (pick, size) in enumerate(zip(out, sizes, strict=True)):
            speeds = dispatcher.worth([pick.number])[0].tolist()
            room = [kind for kind, gpus in enumerate(free) if gpus >= size - SLACK]
            best = max([*room, pick.kind], key=lambda kind: (speeds[kind], kind == pick.kind))
            if best != pick.kind:
                free[pick.kind] += size
                free[best] -= size
                out[place] = pick._replace(kind=best)
        return out

    def _seat(self, view: View, seats: Seats, picks: Iterable[Pick]) -> None:
        """Those far behind, then those that stay where they are, then the others."""
        behind = self.dispatcher.shortfall()
        rest = []
        for pick in picks:
            members = [self._here[index] for index in self.dispatcher.members(pick.number)]
            if behind[pick.number] > LATE:
                self._anyhow(seats, members, pick)
            else:
                kind = self.state.kinds[pick.kind]
                stays = all(j.running and held_type(j, view.topology) == kind for j in members)
                rest.append((not stays, members, pick))
        for _, members, pick in sorted(rest, key=itemgetter(0)):
            self._put(seats, members, pick)

    def _anyhow(self, seats: Seats, members: list[Job], pick: Pick) -> None:
        """On another type if need be: it counts as the one that it should have."""
        speeds = self.dispatcher.worth([pick.number])[0]
        for other in sorted(range(len(speeds)), key=lambda k: (k != pick.kind, -speeds[k])):
            if speeds[other] > 0 and self._put(seats, members, pick._replace(kind=other)):
                return

    def _put(self, seats: Seats, members: list[Job], pick: Pick) -> bool:
        """A job, or both of a pair, on GPUs of this type if there is room."""
        # who has the GPUs already keeps them, and the other one comes to them
        members.sort(key=lambda job: (not job.running, host_of(job.allocation) >= 0))
        kinds = self.state.kinds
        return seats.seat_together(members, kinds[pick.kind], counts=kinds[pick.counts])

    # --- the rest ---------------------------------------------------------------------------------

    def fill(self, view: View, seats: Seats) -> None:
        """What is left goes to jobs that can use it, the most urgent first."""
        state, here = self.state, self._here
        wishes = self.dispatcher.wishes()
        left = [here[i] for i in wishes.jobs if i in here and i not in seats.placed]
        for job in seats.plan.candidates(left):
            kinds = wishes.kinds(job.index)
            now = self._kind(job, view) if job.running else -1
            if now in kinds:  # it need not move for what nobody else wants
                kinds.sort(key=lambda kind: kind != now)
            seated = seats.seat_first(job, [state.kinds[kind] for kind in kinds])
            if not seated and job.index in state.wide:
                seats.anywhere(job)

    def wake_s(self, view: View, seats: Seats) -> float:  # noqa: ARG002
        """At the end of the round if it can change anything."""
        state = self.state
        served = any(seat.gpus for seat in seats.placed.values())
        state.crowded = any(
            job.gpus and index not in seats.placed for index, job in self._here.items()
        )
        useful = state.crowded and not self.policy.prompt and (served or state.stale)
        if len(state.kinds) > 1:
            useful = useful or state.stale or self._restless(seats)
        if useful and state.quiet < QUIET:
            return state.ends_s
        return max(state.ends_s, state.holds_s) if served else INF

    def _restless(self, seats: Seats) -> bool:
        """Somebody should spend a part of its time on another type than where it is."""
        places = [
            (seat.account, self.state.kinds.index(seat.counts))
            for seat in seats.placed.values()
            if seat.counts is not None
            and seat.account is not None
            and seat.account in self.dispatcher
        ]
        return not self.dispatcher.complete(places)

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """With the dispatcher's accounts and what was learnt."""
        self.state.dispatcher = self.dispatcher.snapshot()
        self.state.learnt = dict(self._speeds.snapshot())
        return super().snapshot()

    def resumed(self) -> None:
        """Take them up; the cluster is looked at with the next view."""
        super().resumed()
        saved, old = self.state.dispatcher, self.dispatcher
        if not saved:
            return
        self.dispatcher = Dispatcher(saved["capacity"], old.round_s, old.options)
        self.dispatcher.restore(saved)
        self._speeds.restore(self.state.learnt)


def _is_finished(view: View, index: int) -> bool:
    """Not only out of sight while it is being stopped."""
    job = view.everyone.get(index)
    return job is None or job.terminal


def _speeds(params: ShareParams) -> Told:
    if not params.aware:
        return SameSpeed()
    if params.speeds == "noisy":
        return Noisy(params.noise, params.seed)
    return Learnt(params.seed) if params.speeds == "learn" else Told()


def _finite(left: Array) -> Array:
    """No job has finished before it has; one of which nothing is known is like the longest."""
    known = left[np.isfinite(left)]
    longest = float(known.max()) if len(known) else LITTLE_S
    return np.maximum(np.where(np.isfinite(left), left, longest), LITTLE_S)
