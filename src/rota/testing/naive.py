"""A naive reference engine: plain lists, everything recomputed at every event, nothing shared.

It states what the fast engine must do in the fewest words and is slow on purpose. It shares only
the vocabulary of `core` (jobs, so that policies can be asked for keys; costs), neither the loop,
nor the simulated cluster, nor any placement. Priority policies, GPUs of one type, node failures,
start, stop and slow phases, lost work, time limits, retries, arrays and dependencies; jobs that
share GPUs have a function of their own (`naive_sharing`). The rules:

* All events of one instant form a batch; then the queue is served once, best key first, ties by
  index. What begins now and takes no time is the next batch, at the same instant.
* Who fits the free GPUs starts. Else, if the policy is preemptive, running jobs of lower rank are
  taken away from the worst up until there is a place; the nodes are chosen then, and from the
  best-ranked of those taken down, whoever still leaves room on the chosen nodes stays: the others
  are displaced. They queue again with the key that they have now. Displaced and placed again on the
  same slices is nothing, elsewhere it is a move.
* In a strict queue nobody passes: who waits holds back all behind it that could ever use one of the
  nodes that it could use, as long as these are up. They wait, too, and hold back others.
* A window keeps jobs off its nodes that are not let in and would not end before it begins, by what
  they declare less what they have run. When it begins, jobs that are still there go on, or are
  stopped at once. Where only numbers matter, jobs are cut anywhere, over those nodes first.
* A job that leaves holds its slices while its stop lasts; a start waits until its slices are free.
* A run ends at the latest when the job, with its earlier runs, has had its time limit. One that is
  done by then is done.
* A job that fails is tried again from its beginning as often as it may, each time after a pause.
* Of an array with a limit no more are in the queue or run than that; their turns are by index.
* Who depends on others enters when these are over, and never if they have not ended as it wants.
"""

from collections.abc import Collection, Sequence
from math import nextafter
from operator import itemgetter
from typing import Any, NamedTuple

from msgspec import structs

from rota.core.allocation import Allocation
from rota.core.events import INF
from rota.core.jobs import (
    CANCELLED,
    DONE,
    FAILED,
    REJECTED,
    RUNNING,
    STARTING,
    STOPPING,
    TIMEOUT,
    WAITING,
    Job,
    Shape,
)
from rota.core.policy import PriorityPolicy
from rota.core.ports import Costs, RateModel, RatePhase, TransitionCost
from rota.core.sums import ordered_sum
from rota.core.workload import Workload

Slices = tuple[tuple[int, float], ...]
Entry = tuple[float, str, int, Slices]
"""(time, what, job index or node position, slices by node position; a pool is position -1)."""
Free = dict[int, float]

POOL = -1
SEATS = -2  # instead of a node: the licences of the whole cluster
NEXT = 1e-9  # relative: what is reached but for rounding is reached
Closed = tuple[float, float, Collection[int], Collection[int], bool]
"""(from when, until when, node positions, jobs that are let in, stop the others at its start?)."""
# what is due, in the order at equal times; outages come before the last one
ENDS, FAILS, LEAVES, RUNS, SPEEDS_UP, TURNS, TIMES_OUT = range(7)
ENDINGS = {ENDS: (DONE, "done"), FAILS: (FAILED, "failed"), TIMES_OUT: (TIMEOUT, "timeout")}


def consolidate(
    free: Free, sizes: Sequence[int], up: Sequence[bool], gpus: float, on: Sequence[int]
) -> Slices | None:
    """What one node could hold goes to the fullest that suffices; more: idle nodes and a rest."""
    alive = [i for i in free if up[i] and i in on]
    if not alive:
        return None
    slices: list[tuple[int, float]] = []
    if gpus > max(sizes[i] for i in on):
        for i in sorted(alive, key=lambda i: (-sizes[i], i)):
            if free[i] == sizes[i] <= gpus:
                slices.append((i, sizes[i]))
                alive.remove(i)
                gpus -= sizes[i]
    if gpus:
        fitting = [i for i in alive if free[i] >= gpus]
        if not fitting:
            return None
        slices.append((min(fitting, key=lambda i: (free[i], i)), gpus))
    return tuple(slices)


def anywhere(
    free: Free, up: Sequence[bool], gpus: float, on: Sequence[int], first: Collection[int]
) -> Slices | None:
    """Node by node as much as there is; those of windows come first."""
    slices: list[tuple[int, float]] = []
    for i in sorted(on, key=lambda i: (i not in first, i)):
        if gpus and up[i] and free[i]:
            slices.append((i, min(free[i], gpus)))
            gpus -= slices[-1][1]
    return None if gpus else tuple(slices)


class NaiveEngine:
    """`sizes` are the GPUs of each node; `outages` are (time, node position, up?).

    `on`: positions of the nodes that each job accepts, none for all. `round_s`: the queue is served
    only at multiples of it. `rates`: a model whose rates change with progress; else all are 1.
    `windows`: nodes that are not for everybody. `seats`: licences, which jobs hold wherever they
    are.
    """

    def __init__(  # noqa: PLR0913 - one per circumstance
        self,
        policy: PriorityPolicy[Any],
        workload: Workload,
        sizes: Sequence[int],
        costs: Costs,
        *,
        pooled: bool,
        outages: Sequence[tuple[float, int, bool]] = (),
        round_s: float = 0.0,
        on: Sequence[Sequence[int]] = (),
        rates: RateModel | None = None,
        windows: Sequence[Closed] = (),
        seats: float = INF,
    ) -> None:
        everywhere = tuple(range(len(sizes)))
        self.on = [(*nodes,) or everywhere for nodes in on] or [everywhere] * len(workload)
        self.policy, self.costs, self.sizes = policy, costs, sizes
        self.counted = {i for window in windows for i in window[2]} if pooled else set()
        self.pooled = pooled and not windows  # windows are of nodes: so it counts on those
        self.round_s, self.rates, self.seats = round_s, rates, seats
        self.jobs = [
            Job(spec, how, i, Shape(i, spec.request)) for i, (spec, how) in enumerate(workload)
        ]
        for job in self.jobs:
            job.known = int(policy.knowledge)
        self.coming = sorted(self.jobs, key=lambda job: job.submit_s)  # stable: ties by index
        self.outages = sorted(outages, key=itemgetter(0, 2))
        self.up = [True] * len(sizes)
        self.everything: Free = dict(enumerate(sizes))  # whatever is closed for some time
        self.present: list[Job] = []
        self.outside: list[Job] = []  # submitted, and not in the queue
        self.inside: dict[str, set[int]] = {}  # of arrays: those that have entered
        self.failures: dict[int, int] = {}
        self.back: dict[int, float] = {}  # when those that failed may enter again
        self.limit: dict[int, float] = {}  # when the time limit of a run is reached
        self.plan: dict[int, Slices] = {}  # what each job shall hold
        self.body: dict[int, Slices] = {}  # what each job really occupies
        self.late: list[Job] = []  # they shall hold slices that others have not left yet
        self.due: dict[int, tuple[float, int]] = {}  # what happens to a job by itself, and when
        self.cost: dict[int, TransitionCost] = {}  # of the start that a job is in, or comes to
        self.level: dict[int, float] = {}  # when its key jumps
        self.revision = policy.revision
        self.now = 0.0
        self.windows = list(windows)
        self.begun: list[Closed] = []
        self.log: list[Entry] = []

    def run(self, *, batches: int = 100_000) -> list[Entry]:
        """Everything that happens, in order of time; a policy may thrash for ever."""
        for _ in range(batches):
            times = [when for when, _ in self.due.values()]
            times += self.level.values()
            times += self.back.values()
            times += [job.submit_s for job in self.coming[:1]]
            times += [outage[0] for outage in self.outages[:1]]
            times += self._turns()
            if self.round_s and self.present:
                # rounded: multiples of 0.7 are not exact
                times.append((int(round(self.now / self.round_s, 9)) + 1) * self.round_s)
            self.now = min(times, default=INF)
            if self.now == INF:
                return self.log
            self._happen()
            if not self.round_s or round(self.now / self.round_s, 9) % 1 == 0:
                self._serve()
                while self._let_in():  # others waited for one that will never run
                    self._serve()
            self._ask_levels()
        raise RuntimeError(f"no end after {batches} batches, at {self.now:g} s")

    def _note(self, what: str, number: int, slices: Slices = ()) -> None:
        self.log.append((self.now, what, number, slices))

    # --- what happens -----------------------------------------------------------------------------

    def _happen(self) -> None:
        self._happen_to_jobs(range(TIMES_OUT))
        while self.outages and self.outages[0][0] == self.now:
            _, node, up = self.outages.pop(0)
            if self.up[node] != up:
                self.up[node] = up
                self._note("node_up" if up else "node_down", node)
                for job in [] if up else self._hit(node):
                    self._evict(job)
        self._happen_to_jobs((TIMES_OUT,))
        self._launch_late()
        while self.coming and self.coming[0].submit_s == self.now:
            self.outside.append(self.coming.pop(0))
        self.back = {i: when for i, when in self.back.items() if when > self.now}
        self._let_in()
        for index in [i for i, when in self.level.items() if when <= self.now]:
            del self.level[index]
        self._turn()

    def _happen_to_jobs(self, kinds: Sequence[int]) -> None:
        ready = [(k, i) for i, (when, k) in self.due.items() if when == self.now and k in kinds]
        for kind, index in sorted(ready, key=itemgetter(0)):  # ties as they were scheduled
            del self.due[index]
            self._due(self.jobs[index], kind)

    def _let_in(self) -> bool:
        """Whoever is outside and may enter does; whoever never may is over, too. Did anybody?"""
        before: list[Job] = []
        entered = False
        while self.outside != before:
            before = self.outside[:]
            for job in sorted(before, key=lambda job: job.index):
                verdict = self._verdict(job)
                if verdict == WAITING and self._has_turn(job):
                    self.outside.remove(job)
                    self.present.append(job)
                    entered = True
                elif verdict in (REJECTED, CANCELLED):
                    self.outside.remove(job)
                    job.phase = verdict
                    self._note("rejected" if verdict == REJECTED else "cancelled", job.index)
        return entered

    def _verdict(self, job: Job) -> int:
        """What its dependencies say: enter (WAITING), end, or nothing yet."""
        spec, by_id = job.spec, {other.id: other.phase for other in self.jobs}
        if any(by_id[name] > DONE for name in spec.depends_on):
            return REJECTED
        if any(by_id[name] == DONE for name in spec.after_fail):
            return CANCELLED
        others = (*spec.depends_on, *spec.after_any, *spec.after_fail)
        over = all(by_id[name] >= DONE for name in others)
        return WAITING if over and job.index not in self.back else STARTING

    def _has_turn(self, job: Job) -> bool:
        if not job.spec.array_limit:
            return True
        inside = self.inside.setdefault(job.spec.array, set())
        if job.index not in inside and len(inside) >= job.spec.array_limit:
            return False
        inside.add(job.index)
        return True

    def _due(self, job: Job, kind: int) -> None:
        if kind == RUNS:
            self._note("run", job.index)
            self._progress(job)
        elif kind in (SPEEDS_UP, TURNS):
            if kind == SPEEDS_UP:
                del self.cost[job.index]
            self._progress(job)
        elif kind == LEAVES:
            self._note("stopped", job.index)
            self._leave(job)
            if job.index in self.plan:  # it only goes elsewhere
                self._note("start", job.index, self.plan[job.index])
                self._start(job)
        elif kind == FAILS and self.failures.get(job.index, 0) < job.spec.retries:
            self._try_again(job)
        else:
            self._settle(job)
            self._leave(job)
            del self.plan[job.index]
            self.present.remove(job)
            self.inside.get(job.spec.array, set()).discard(job.index)
            job.phase, what = ENDINGS[kind]
            job.end_s = self.now
            self._note(what, job.index)
            if kind == ENDS:
                job.true_left = 0.0
                self.policy.finished(job, self.now)

    def _try_again(self, job: Job) -> None:
        self._note("evicted", job.index)
        self._settle(job, job.true_work)
        self._leave(job)
        del self.plan[job.index]
        self.failures[job.index] = self.failures.get(job.index, 0) + 1
        pause_s = job.spec.backoff_after(self.failures[job.index])
        if pause_s:
            self.present.remove(job)
            self.outside.append(job)
            self.back[job.index] = self.now + pause_s

    def _hit(self, node: int) -> list[Job]:
        planned = [job for job in self.present if job.index in self.plan]
        if not self.pooled:
            return [job for job in planned if node in dict(self.plan[job.index])]
        hit: list[Job] = []
        for job in sorted(planned, key=lambda job: (job.start_s, job.index), reverse=True):
            if ordered_sum(other.gpus for other in planned if other not in hit) <= self._capacity(
                POOL
            ):
                break
            hit.append(job)
        return hit

    def _evict(self, job: Job) -> None:
        self._note("evicted", job.index)
        del self.plan[job.index]
        if job.phase == STOPPING:  # it was on its way there: it arrives in the queue instead
            job.moving = False
            return
        lost = self.costs.failure_loss(job, self.now) if job.index in self.body else 0.0
        self._settle(job, lost)
        self._leave(job)

    # --- windows ----------------------------------------------------------------------------------

    def _too_late(self, window: Closed, job: Job) -> float:
        """After this it would not end before the window begins."""
        said = job.spec.limit_s if job.spec.limit_s < INF else job.spec.estimate_s
        left = said - job.run_s
        return window[0] - left if left > 0 else nextafter(window[0], -INF)

    def _barred(self, window: Closed, job: Job) -> bool:
        if job.index in window[3]:
            return False
        since = job.since_s if job.phase == RUNNING else self.now
        return self.now >= window[0] or since > self._too_late(window, job)

    def _nodes(self, job: Job) -> list[int]:
        """Those that it accepts and may use now."""
        closed = {i for window in self.windows if self._barred(window, job) for i in window[2]}
        return [i for i in self.on[job.index] if i not in closed]

    def _turns(self) -> list[float]:
        """When a window begins or ends, or it becomes too late for a job that is there."""
        if not self.present and not self.coming:
            return []
        times = [when for window in self.windows for when in window[:2]]
        times += [
            nextafter(self._too_late(window, job), INF)
            for window in self.windows
            for job in self.present
            if job.phase != RUNNING and job.index not in window[3]
        ]
        return [when for when in times if self.now < when < INF]

    def _turn(self) -> None:
        for window in list(self.windows):
            if window[0] <= self.now and window not in self.begun:
                self.begun.append(window)
                for node in sorted(window[2]) if window[4] else ():
                    self._clear(node, window[3])
            if window[1] <= self.now:
                self.windows.remove(window)

    def _clear(self, node: int, owners: Collection[int]) -> None:
        for job in self.present:
            if job.index not in owners and node in dict(self.plan.get(job.index, ())):
                self._note("stop", job.index)
                del self.plan[job.index]
                self._stop(job, None)

    # --- a job's life -----------------------------------------------------------------------------

    def _settle(self, job: Job, lost: float = 0.0) -> None:
        if job.phase == RUNNING:
            ran = self.now - job.since_s
            job.true_left, job.run_s = job.true_left - ran * job.true_rate, job.run_s + ran
            job.service += ran * job.held_gpus
        job.true_left = min(job.true_left + lost, job.true_work)

    def _leave(self, job: Job) -> None:
        job.phase, job.moving, job.since_s, job.held_gpus = WAITING, False, INF, 0
        for book in (self.body, self.due, self.level, self.limit):
            book.pop(job.index, None)
        if job in self.late:
            self.late.remove(job)

    def _stop(self, job: Job, to: Slices | None) -> None:
        """Take it off its slices; `to`: in order to go there."""
        if job.phase == STOPPING:  # already on its way: only the destination changes
            job.moving = to is not None
            return
        if job.index not in self.body:  # it never began
            self._leave(job)
            return
        new = None if to is None else Allocation(to)
        cost = self.costs.transition(job, job.allocation, new, self.now)
        self.cost.pop(job.index, None)
        if to is not None:
            self.cost[job.index] = cost
        self._settle(job, cost.lost_work)
        if cost.stop_s > 0:
            job.phase, job.moving = STOPPING, to is not None
            self.level.pop(job.index, None)
            self.limit.pop(job.index, None)
            self.due[job.index] = (self.now + cost.stop_s, LEAVES)
        else:
            self._leave(job)

    def _start(self, job: Job) -> None:
        job.phase, job.start_s, job.since_s = STARTING, self.now, INF
        job.first_start_s = min(job.first_start_s, self.now)
        job.allocation = Allocation(self.plan[job.index])
        job.held_gpus = job.allocation.gpus
        self.level.pop(job.index, None)
        self._launch(job)

    def _launch(self, job: Job) -> None:
        used: Free = {}
        for body in self.body.values():
            for place, amount in body:
                used[place] = used.get(place, 0) + amount
        seats = ordered_sum(_seats(self.jobs[index]) for index in self.body)
        if seats + _seats(job) > self.seats or any(
            used.get(p, 0) + a > self._capacity(p) for p, a in self.plan[job.index]
        ):
            self.late.append(job)
            return
        self.body[job.index] = self.plan[job.index]
        if job.spec.limit_s < INF:
            self.limit[job.index] = self.now + max(0.0, job.spec.limit_s - job.run_s)
        if job.index not in self.cost:
            self.cost[job.index] = self.costs.transition(job, None, job.allocation, self.now)
        runs_s = self.now + self.cost[job.index].start_s
        if self.limit.get(job.index, INF) < runs_s:
            self.due[job.index] = (self.limit[job.index], TIMES_OUT)
        elif runs_s > self.now:
            self.due[job.index] = (runs_s, RUNS)
        else:
            self._progress(job)

    def _launch_late(self) -> None:
        late, self.late = self.late, []
        for job in late:
            self._launch(job)
            if job.phase == RUNNING:
                self._note("run", job.index)

    def _progress(self, job: Job) -> None:
        """It begins, or goes on at full speed: what is next?"""
        self._settle(job)
        cost = self.cost.get(job.index)
        done = job.true_work - job.true_left
        phase = RatePhase(1.0)
        if self.rates is not None:
            phase = self.rates.phase(
                job, job.allocation, (), done + NEXT * max(1.0, done), self.now
            )
        slow = cost.slow_factor if cost is not None and cost.slow_s > 0 else 1.0
        job.true_rate = phase.rate * slow
        job.phase, job.since_s = RUNNING, self.now
        if done <= job.truth.fails_at < job.true_work:
            self.due[job.index] = (self.now + (job.truth.fails_at - done) / job.true_rate, FAILS)
        else:
            self.due[job.index] = (self.now + job.true_left / job.true_rate, ENDS)
        if cost is None or not cost.slow_s:
            self.cost.pop(job.index, None)
        elif self.due[job.index][0] > self.now + cost.slow_s:
            self.due[job.index] = (self.now + cost.slow_s, SPEEDS_UP)
        turns = min(phase.until_s, self.now + (phase.until_done - done) / job.true_rate)
        if turns < self.due[job.index][0] - NEXT * self.now:
            if cost is not None and cost.slow_s:  # the rest of the slow time follows
                rest = cost.slow_s - (turns - self.now)
                self.cost[job.index] = structs.replace(cost, slow_s=rest)
            self.due[job.index] = (turns, TURNS)
        if self.limit.get(job.index, INF) < self.due[job.index][0]:
            self.due[job.index] = (self.limit[job.index], TIMES_OUT)

    # --- who gets what ----------------------------------------------------------------------------

    def _capacity(self, place: int) -> float:
        if place != POOL:
            return self.sizes[place] if self.up[place] else 0
        return sum(size for size, up in zip(self.sizes, self.up, strict=True) if up)

    def _free(self, without: Sequence[Job] = ()) -> Free:
        free: Free = {POOL: self._capacity(POOL)} if self.pooled else dict(enumerate(self.sizes))
        gone = {job.index for job in without}
        for index, slices in self.plan.items():
            for place, amount in slices if index not in gone else ():
                free[place] -= amount
        held = [_seats(self.jobs[index]) for index in self.plan if index not in gone]
        return {**free, SEATS: self.seats - ordered_sum(held)}

    def _choose(self, free: Free, job: Job, up: Sequence[bool]) -> Slices | None:
        if free.get(SEATS, self.seats) < _seats(job):
            return None
        nodes = self.on[job.index] if free is self.everything else self._nodes(job)
        free = {place: amount for place, amount in free.items() if place != SEATS}
        if self.pooled:
            return ((POOL, job.gpus),) if ordered_sum(free.values()) >= job.gpus else None
        if self.counted:
            return anywhere(free, up, job.gpus, nodes, self.counted)
        return consolidate(free, self.sizes, up, job.gpus, nodes)

    def _rivalry(self, job: Job) -> set[int]:
        """What others could take away from it: the nodes that it could ever use, and licences."""
        nodes = self._rival_nodes(job)
        return nodes | {SEATS} if nodes and _seats(job) else nodes

    def _rival_nodes(self, job: Job) -> set[int]:
        """The nodes that it could ever use, of those that are up."""
        if self.pooled:
            return {POOL}
        on = self._nodes(job)
        if sum(self.sizes[i] for i in on) < job.gpus:
            return set()
        large = [i for i in on if self.sizes[i] >= job.gpus and not self.counted]
        return {i for i in large or on if self.up[i]}

    def _refuse(self) -> None:
        for job in self.present[:]:
            if self._choose(self.everything, job, [True] * len(self.sizes)) is None:
                job.phase = REJECTED
                self.present.remove(job)
                self.inside.get(job.spec.array, set()).discard(job.index)
                self._note("rejected", job.index)

    def _serve(self) -> None:
        self._refuse()
        before = dict(self.plan)
        rank = {
            job.index: (self.policy.key(job, self.now), job.index)
            for job in self.present
            if job.phase != STOPPING or job.index in self.plan
        }
        queue = [job for job in self.present if job.index in rank and job.index not in self.plan]
        taken: set[int] = set()  # strict: nodes that nobody behind those who wait may use
        while queue:
            job = min(queue, key=lambda job: rank[job.index])
            queue.remove(job)
            if taken & self._rivalry(job):
                taken |= self._rivalry(job)
                continue
            slices = self._choose(self._free(), job, self.up)
            if slices is None and self.policy.preemptive:
                for victim in self._victims(job, rank):
                    del self.plan[victim.index]
                    queue.append(victim)
                slices = self._choose(self._free(), job, self.up)
            if slices is not None:
                self.plan[job.index] = slices
            elif self.policy.strict:
                taken |= self._rivalry(job)
        self._carry_out(before)

    def _victims(self, job: Job, rank: dict[int, tuple[Any, int]]) -> list[Job]:
        lower = [self.jobs[i] for i in self.plan if rank[i] > rank[job.index]]
        taken: list[Job] = []
        for other in sorted(lower, key=lambda other: rank[other.index], reverse=True):
            taken.append(other)
            chosen = self._choose(self._free(taken), job, self.up)
            if chosen is not None:
                break
        else:
            return []
        spare = self._free(taken)
        for place, amount in chosen:
            spare[place] -= amount
        spare[SEATS] -= _seats(job)
        places = {place for place, _ in chosen}
        victims = []
        for other in reversed(taken):  # from the best-ranked down
            here = [(place, amount) for place, amount in self.plan[other.index] if place in places]
            here += [(SEATS, _seats(other))] if _seats(job) else []
            if all(spare[place] >= amount for place, amount in here):
                for place, amount in here:
                    spare[place] -= amount
            else:
                victims.append(other)
        return victims

    def _carry_out(self, before: dict[int, Slices]) -> None:
        """First everybody leaves who must, then the others come, in order of their rank."""
        changed = [i for i, slices in before.items() if self.plan.get(i) != slices]
        for index in sorted(changed, key=lambda i: i in self.plan):  # stops before moves
            to = self.plan.get(index)
            self._note("stop" if to is None else "move", index, to or ())
            self._stop(self.jobs[index], to)
        for index, slices in list(self.plan.items()):
            if self.jobs[index].phase == WAITING:
                if index not in before:
                    self._note("start", index, slices)
                self._start(self.jobs[index])

    def _ask_levels(self) -> None:
        if self.policy.revision != self.revision:  # all keys and levels are new
            self.revision = self.policy.revision
            self.level.clear()
        phases = (WAITING, RUNNING) if self.policy.ages else (RUNNING,)
        for job in self.present:
            if job.index not in self.level and job.phase in phases:
                self.policy.key(job, self.now)  # asked again after every start and stop
                self.level[job.index] = self.policy.next_change(job, self.now)


def _seats(job: Job) -> float:
    """Licences that it asks for."""
    return round(ordered_sum(job.shape.resources.values()), 6)


class NaiveSharer(NamedTuple):
    """A job with (a part of) one GPU: it comes, has work, and needs compute and memory.

    `weight`: how much of a contended GPU it gets (0: as much as it holds). `step_gib`: memory that
    only its steps need, beside `mem_gib`. `uses`: the part of what it holds that it can use.
    """

    submit_s: float
    work: float
    weight: float = 0.0
    mem_gib: float = 0.0
    gpus: float = 1.0
    step_gib: float = 0.0
    uses: float = 1.0


def naive_sharing(
    sharers: Sequence[NaiveSharer], gpus: int, mode: str, mem_gib: float
) -> list[float]:
    """When each ends on so many equal GPUs with a mode: the rules of sharing in the fewest words.

    In order of arrival everybody gets the GPU with the fewest jobs among those where it fits, and
    others may pass. Between two events who is on a GPU has its share of it; nothing else is known.
    """
    left = [sharer.work for sharer in sharers]
    ends = [INF] * len(sharers)
    on: list[list[int]] = [[] for _ in range(gpus)]
    waiting: list[int] = []
    coming = sorted(range(len(sharers)), key=lambda i: (sharers[i].submit_s, i))
    now = 0.0
    while coming or any(on):
        rates = {
            i: rate
            for here in on
            for i, rate in zip(here, _naive_rates([sharers[i] for i in here], mode), strict=True)
        }
        times = [now + left[i] / rate for i, rate in rates.items()]
        following = min([*times, *(sharers[i].submit_s for i in coming[:1])])
        for i, rate in rates.items():
            left[i] -= (following - now) * rate
        now = following
        for here in on:
            for i in [i for i in here if left[i] <= NEXT * max(1.0, sharers[i].work)]:
                here.remove(i)
                ends[i] = now
        while coming and sharers[coming[0]].submit_s <= now:
            waiting.append(coming.pop(0))
        for i in waiting[:]:
            fitting = [
                here for here in on if _naive_fits([sharers[k] for k in (*here, i)], mode, mem_gib)
            ]
            if fitting:
                waiting.remove(i)
                min(fitting, key=len).append(i)
    return ends


def _naive_fits(sharers: Sequence[NaiveSharer], mode: str, mem_gib: float) -> bool:
    """Memory that stays adds up; of what only steps need the largest counts if they take turns."""
    steps = [sharer.step_gib for sharer in sharers]
    kept = ordered_sum(sharer.mem_gib for sharer in sharers)
    if kept + (max(steps) if mode == "timeslice" else ordered_sum(steps)) > mem_gib:
        return False
    if mode == "exclusive":
        return len(sharers) == 1
    return mode in ("timeslice", "mps") or ordered_sum(sharer.gpus for sharer in sharers) <= 1


def _naive_rates(sharers: Sequence[NaiveSharer], mode: str) -> list[float]:
    """What each has of the GPU, over what it needs: by weight, and never more than it can use."""
    if mode not in ("timeslice", "mps"):
        return [1.0] * len(sharers)
    needs = [s.gpus * (1.0 if mode == "timeslice" else s.uses) for s in sharers]
    weights = [s.weight or s.gpus for s in sharers]
    shares = [0.0] * len(sharers)
    left, weight = 1.0, ordered_sum(weights)
    for i in sorted(range(len(sharers)), key=lambda i: needs[i] / weights[i]):  # the content first
        shares[i] = min(needs[i], left * weights[i] / weight)
        left, weight = left - shares[i], weight - weights[i]
    return [share / need for share, need in zip(shares, needs, strict=True)]
