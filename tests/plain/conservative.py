"""Conservative backfilling (Mu'alem and Feitelson, IEEE TPDS 12(6), 2001).

Every job gets a reservation when it arrives: the earliest time at which, by everybody's estimates,
enough GPUs are free for as long as it says it needs, beside the running jobs and all reservations
before it. A job starts when its reservation is due. When somebody ends early, the waiting jobs are
planned anew in the order of their reservations; nobody's can become later by that, because whoever
is planned before it has only moved to an earlier time. As long as no job outlives its estimate and
the placement is `count`, no job starts later than it was first told.

Partitions are queues of their own: a plan is made for every set of jobs that compete for nodes, on
what these nodes have. What happens elsewhere changes nothing in it, unless a due job that had no
placement finds one by that.

The plan is made on the number of GPUs. Where more is needed for a start (GPUs on one node, CPUs,
memory), or where jobs accept only some nodes in common, a due job that finds no placement goes on
waiting, still first in line; the promise then is only a forecast. A job without estimate never ends
by estimate (`default_estimate_s` sets another value). A job that has outlived its estimate is
expected to end at any moment.

Departs from the paper: a job that outlives its estimate is not killed.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Annotated, Any, NamedTuple

import msgspec

from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.plan import EligibilityPlan, Plan, ReservingPlan
from rota.core.policy import DecidePolicy, Params
from rota.core.state import State, from_rows
from rota.core.view import View
from rota.policies.backfill.estimates import estimated_end_s, needed_s


class ConservativeParams(Params, frozen=True):
    """What to assume of jobs whose users gave no estimate."""

    default_estimate_s: Annotated[float, msgspec.Meta(gt=0)] = INF


WAITS = -1.0
EPSILON = 1e-9  # fractions of GPUs are sums of floats


class Profile:
    """What is free beside uses (start, end, GPUs), added up anew whenever it is asked for."""

    def __init__(self, now_s: float, gpus: float, uses: list[tuple[float, float, float]]) -> None:
        self.now_s = now_s
        self.gpus = gpus
        self.uses = uses

    def steps(self) -> list[tuple[float, float]]:
        """From when so many are free, until the next step."""
        times = {self.now_s, *(time_s for use in self.uses for time_s in use[:2])} - {INF}
        changes = dict.fromkeys(sorted(times), 0.0)
        changes[self.now_s] += self.gpus
        for start_s, end_s, gpus in self.uses:
            if start_s < end_s:
                changes[start_s] -= gpus
                if end_s < INF:
                    changes[end_s] += gpus
        return list(zip(changes, accumulate(changes.values()), strict=True))


class Profiles:
    """Profiles of sets of nodes that have none in common; a job may use several of them."""

    def __init__(self, parts: Mapping[int, Profile]) -> None:
        self._parts = parts

    def reserve(self, nodes: int, gpus: float, seconds: float) -> float:
        """Take so many of these nodes for so long as soon as possible; the start, inf: never."""
        parts = [profile for part, profile in self._parts.items() if part & nodes]
        steps = [part.steps() for part in parts]
        for start_s in sorted({time_s for some in steps for time_s, _ in some}):
            end_s = start_s + seconds
            spare = [max(least(some, start_s, end_s), 0.0) for some in steps]
            if sum(spare) >= gpus - EPSILON:
                for part, most in zip(parts, spare, strict=True):
                    if most and start_s < end_s:
                        part.uses.append((start_s, end_s, min(most, gpus)))
                    gpus -= min(most, gpus)
                return start_s
        return INF


def least(steps: Sequence[tuple[float, float]], start_s: float, end_s: float) -> float:
    """So many are free all the time between these."""
    first = max(i for i, (time_s, _) in enumerate(steps) if time_s <= start_s)
    return min([steps[first][1], *(free for time_s, free in steps[first + 1 :] if time_s < end_s)])


class Known(NamedTuple):
    """What a reservation rests on: the nodes of a job, their GPUs, its estimated end if it runs."""

    nodes: int
    gpus: float
    end_s: float


class Area(NamedTuple):
    """Sets of nodes that hang together (`EligibilityPlan.eligible`), and all nodes in them."""

    nodes: int
    sets: tuple[int, ...]

    def parts(self) -> list[int]:
        """The finest parts: each set consists of some of them.

        Those that the fewest sets use come first, so that who takes them in this order leaves the
        others for those who have no choice.
        """
        parts = [self.nodes]
        for one in self.sets:
            parts = [half for part in parts for half in (part & one, part & ~one) if half]
        return sorted(parts, key=lambda part: sum(1 for one in self.sets if one & part)) or [0]


def areas(sets: Iterable[int]) -> list[Area]:
    """Sets of nodes, grouped so that those of different areas have none in common."""
    found: list[Area] = []
    for one in dict.fromkeys(sets):
        touching = [area for area in found if area.nodes & one]
        found = [area for area in found if not area.nodes & one]
        merged = Area(one, (one,))
        for area in reversed(touching):
            merged = Area(area.nodes | merged.nodes, (*area.sets, *merged.sets))
        found.append(merged)
    return found


class ConservativeState(State):
    """Reservations by job index, what they rest on, and who is due but found no placement."""

    reserved_s: dict[int, float] = {}
    known: dict[int, tuple[str, float, float]] = {}  # nodes in hexadecimal: one bit for each
    unplaced: set[int] = set()

    @classmethod
    def migrate(cls, version: int, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """From version 0."""
        return {
            **fields,
            "reserved_s": from_rows(fields["reserved_s"]),
            "known": from_rows(fields.get("known", ())),
        }


class ConservativePlan(ReservingPlan, EligibilityPlan):
    """Reservations among jobs that compete for the same nodes."""


class Conservative(DecidePolicy[ConservativeParams]):
    """First come first served; others start early if that delays no waiting job."""

    name = "conservative"
    paper = (
        "Mu'alem and Feitelson, Utilization, Predictability, Workloads, and User Runtime Estimates "
        "in Scheduling the IBM SP2 with Backfilling, IEEE TPDS 12(6), 2001"
    )
    knowledge = Knowledge.USER_ESTIMATE
    Parameters = ConservativeParams
    plan_type = ConservativePlan

    def __init__(self, params: ConservativeParams | None = None) -> None:
        super().__init__(params)
        self.state: ConservativeState = ConservativeState()
        self.reserved_s: dict[int, float] = {}
        """When each waiting job is to start, by index; inf: not foreseeable."""
        self._known: dict[int, Known] = {}  # of all jobs, after the last decision
        self._unplaced: set[int] = set()
        """Jobs that were due by then, but found no placement."""

    def decide(self, view: View) -> Plan:
        """Plan for each set of jobs that compete, if anything happened to it."""
        plan = view.plan(ConservativePlan)
        running, waiting = view.running, view.waiting
        plan.fill(running)
        nodes = {job.index: plan.eligible(job) for job in (*running, *waiting)}
        before, known, unplaced = self.reserved_s, self._known, self._unplaced
        self.reserved_s, self._known, self._unplaced = {}, {}, set()
        default_s = self.params.default_estimate_s
        gpus = {one: plan.gpus_on(one) for one in set(nodes.values())}
        everybody = [(job, estimated_end_s(job, default_s)) for job in running]
        everybody += [(job, WAITS) for job in waiting]
        for area in areas(nodes.values()):
            there = {
                job.index: Known(one, gpus[one], end_s)
                for job, end_s in everybody
                if (one := nodes[job.index]) in area.sets
            }
            was = {i: one for i, one in known.items() if one.nodes & area.nodes}
            reserved_s = {i: start_s for i, start_s in before.items() if i in was}
            waiting_there = [job for job in waiting if job.index in there]
            due = [job for job in waiting_there if job.index in unplaced]
            if there == was and not any(_fits(plan, job) for job in due):
                # what happened elsewhere changes nothing here
                self._known |= there
                self.reserved_s |= reserved_s
                self._unplaced |= {job.index for job in due}
                continue
            timetable = Timetable(
                plan, view.now_s, default_s, area, there,
                [job for job in running if job.index in there],
                waiting_there,
            )  # fmt: skip
            self.reserved_s |= timetable.decide(reserved_s, was)
            self._known |= timetable.there
            self._unplaced |= timetable.unplaced
        return plan

    def snapshot(self) -> Mapping[str, Any]:
        """All reservations, and what they rest on."""
        known = {i: (f"{one.nodes:x}", one.gpus, one.end_s) for i, one in self._known.items()}
        self.state = ConservativeState(self.reserved_s, known, self._unplaced)
        return super().snapshot()

    def resumed(self) -> None:
        """Take them up again."""
        self.reserved_s, self._unplaced = self.state.reserved_s, self.state.unplaced
        self._known = {i: Known(int(one[0], 16), *one[1:]) for i, one in self.state.known.items()}


def _fits(plan: ConservativePlan, job: Job) -> bool:
    """Whether the placement finds room for it; changes nothing.

    That can change though nothing happened to its set of jobs: those of other priorities use the
    same virtual cluster (`hived`), and its set does not know them.
    """
    found = plan.place(job)
    if found:
        plan.withdraw(job)
    return found


class Timetable:
    """One decision about jobs that compete with each other only."""

    def __init__(
        self,
        plan: ConservativePlan,
        now_s: float,
        default_s: float,
        area: Area,
        there: dict[int, Known],
        running: Sequence[Job],
        waiting: Sequence[Job],
    ) -> None:
        self.there = there
        self.unplaced: set[int] = set()
        """Who is due but found no placement."""
        self._plan = plan
        self._now_s = now_s
        self._area = area
        self._running = running
        self._waiting = waiting
        self._needs_s = {job.index: needed_s(job, default_s) for job in waiting}

    def decide(self, before: Mapping[int, float], was: Mapping[int, Known]) -> dict[int, float]:
        """Plan jobs without a reservation (all, if things changed); start those that are due."""
        now_s, needs_s = self._now_s, self._needs_s
        kept = before if self._as_expected(before, was) else {}
        waiting = sorted(self._waiting, key=lambda job: before.get(job.index, INF))
        profiles = self._profiles(kept)
        reserved_s = {}
        for job in waiting:
            start_s = kept.get(job.index)
            if start_s is None:
                nodes = self.there[job.index].nodes
                start_s = profiles.reserve(nodes, job.gpus, needs_s[job.index])
            if start_s <= now_s and self._plan.place(job):
                self.there[job.index] = self.there[job.index]._replace(
                    end_s=now_s + needs_s[job.index]
                )
                continue
            reserved_s[job.index] = start_s
            if start_s <= now_s:
                self.unplaced.add(job.index)
        return reserved_s

    def _profiles(self, kept: Mapping[int, float]) -> Profiles:
        """What is free from now on, beside the running jobs and these reservations."""
        now_s, needs_s = self._now_s, self._needs_s
        parts = self._area.parts()
        uses: dict[int, list[tuple[float, float, float]]] = {part: [] for part in parts}
        for job in self._running:
            end_s = max(self.there[job.index].end_s, now_s)
            for part in parts:
                uses[part].append((now_s, end_s, self._plan.gpus_on(part, job)))
        for job in self._waiting:
            if job.index in kept:  # then there is one part only
                start_s = kept[job.index]
                uses[parts[0]].append((start_s, start_s + needs_s[job.index], job.gpus))
        return Profiles(
            {part: Profile(now_s, self._plan.gpus_on(part), uses[part]) for part in parts}
        )

    def _as_expected(self, before: Mapping[int, float], was: Mapping[int, Known]) -> bool:
        """No job ended early, late or on request; who was due has started; no node went or came.

        Where jobs accept some of their nodes in common, it is not known which ones they get.
        """
        now_s, there = self._now_s, self.there
        running = {job.index for job in self._running}
        return (
            len(self._area.sets) == 1
            and min(before.values(), default=INF) >= now_s
            and before.keys() <= there.keys()
            and all(there[i][:2] == one[:2] for i, one in was.items() if i in there)
            and {i: max(there[i].end_s, now_s) for i in running}
            == {i: one.end_s for i, one in was.items() if one.end_s > now_s}
        )
