"""Policies that deal the cluster out anew in rounds, gang by gang and type by type.

At the end of a round everything is open: `choose` says who runs where in the next one, and whoever
is not chosen stops unless there is room left. Within a round, jobs that run go on, and what becomes
free is given to those that wait. Four rules make sure that every job gets on:

* A job that was started keeps its GPUs until it has made progress for as long as its start took, so
  that costly starts cannot use up the time of rounds.
* A job that is chosen `PATIENCE` rounds in a row and finds no place, because GPUs are free here and
  there only, comes before all others; if starting jobs are in its way, nobody else starts.
* A gang larger than any single type has its turn after as many rounds as there are jobs, on several
  types if the placement allows that (others refuse such a gang when it comes).
* Jobs without GPUs are in nobody's way: they start when there is room, and go on to their end.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec

from rota.core.events import INF
from rota.core.jobs import STARTING, Job
from rota.core.knowledge import Knowledge
from rota.core.policy import DecidePolicy, Params
from rota.core.view import Draft, View
from rota.policies._kinds import Kinds, held_type

PATIENCE = 3
SLACK = 1e-9  # rounds

Choice: TypeAlias = tuple[Job, str]
"""A job, and the GPU type on which it is to run."""

Seconds = Annotated[float, msgspec.Meta(gt=0)]


class Held(msgspec.Struct, frozen=True):
    """What a job has: GPUs of a type (None: of several, or none at all), and for whom."""

    kind: str | None
    gpus: float
    tenant: str


class Starts:
    """When jobs were given their GPUs, and how long they had run by then."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[float, float]] = {}

    def note(self, job: Job, now_s: float) -> None:
        """It gets GPUs, or others."""
        self._seen[job.index] = (now_s, job.executed_s(now_s))

    def progress_s(self, job: Job, now_s: float) -> float:
        """For how long it has made progress since then."""
        if job.index not in self._seen:
            return job.executed_s(now_s)
        return job.executed_s(now_s) - self._seen[job.index][1]

    def fresh(self, job: Job, now_s: float) -> bool:
        """Its start took longer than it has made progress."""
        if job.phase == STARTING or job.moving:
            return True
        if job.index not in self._seen:
            return False
        ran_s = self.progress_s(job, now_s)
        return ran_s < now_s - self._seen[job.index][0] - ran_s

    def ripe_s(self, job: Job, now_s: float) -> float:
        """When a job that makes progress will not be fresh any more; now if it is not."""
        if not self.fresh(job, now_s):
            return now_s
        if job.phase == STARTING or job.moving:
            return INF
        return now_s + (now_s - self._seen[job.index][0] - 2 * self.progress_s(job, now_s))

    def forget(self, present: Mapping[int, Job]) -> None:
        """Keep only who is still there."""
        self._seen = {index: seen for index, seen in self._seen.items() if index in present}

    def snapshot(self) -> list[tuple[int, float, float]]:
        """As plain data."""
        return [(index, *seen) for index, seen in self._seen.items()]

    def restore(self, state: Sequence[tuple[int, float, float]]) -> None:
        """Take them up again."""
        self._seen = {index: (at_s, ran_s) for index, at_s, ran_s in state}


P = TypeVar("P", bound=Params)


class RoundPolicy(DecidePolicy[P]):
    """Common part; a policy says who is chosen and keeps its own books."""

    knowledge = Knowledge.SPEEDS

    def __init__(self, params: P | None = None) -> None:
        super().__init__(params)
        self.kinds = Kinds()
        self.starts = Starts()
        self._next_s = 0.0  # when the present round ends
        self._last_s = 0.0
        self._held: dict[int, Held] = {}  # what jobs have had since then
        self._present: tuple[list[int], list[float]] = ([], [])  # jobs, and GPUs by type
        self._late: dict[int, int] = {}  # rounds for which a job was chosen in vain
        self._turns: dict[int, int] = {}  # rounds for which a gang too large for any type waited

    # --- what a policy says -----------------------------------------------------------------------

    @property
    def round_s(self) -> float:
        """How long a round takes."""
        raise NotImplementedError

    def choose(
        self, view: View, jobs: Sequence[Job], room: Mapping[str, float]
    ) -> Iterable[Choice]:
        """Who runs on which type in the next round, first come first served, given so many GPUs."""
        raise NotImplementedError

    def charge(self, view: View, held: Mapping[int, Held], seconds: float) -> None:
        """These jobs had that for so long (also jobs that are over by now)."""
        raise NotImplementedError

    def prepare(self, view: View) -> None:
        """Jobs or nodes have come or gone."""

    def queue(self, view: View, jobs: Sequence[Job]) -> Sequence[Job]:  # noqa: ARG002
        """The order in which those that wait get what is left; that of arrival by default."""
        return jobs

    # --- how it is done ---------------------------------------------------------------------------

    def decide(self, view: View) -> Draft:
        """At the end of a round everything anew, in between only what is free."""
        now_s = view.now_s
        if self._held and now_s > self._last_s:
            self.charge(view, self._held, now_s - self._last_s)
        self._last_s = now_s
        self.starts.forget(view.active)
        present = (list(view.active), list(view.up_by_type.values()))
        if present != self._present:
            self._present = present
            self.prepare(view)
        plan = view.plan()
        seats = Seats(view, plan, self.starts)
        seats.keep(job for job in view.running if not job.gpus)
        over = now_s >= self._next_s - SLACK * self.round_s
        if over:
            self._next_s = (int(now_s / self.round_s + SLACK) + 1) * self.round_s
            self._deal(view, seats)
        else:
            seats.keep(view.running)
            self._leftovers(view, seats)
        self._held = seats.held
        if any(self._unsettled(job, view) for job in view.jobs):
            plan.wake_at(self._next_s)
        return plan

    def _unsettled(self, job: Job, view: View) -> bool:
        """It waits, or might be better off on another type."""
        if job.index not in self._held:
            return True
        kind = self._held[job.index].kind
        return kind is not None and self.kinds.liked(job, view)[:1] != [kind]

    def _deal(self, view: View, seats: "Seats") -> None:
        """One round."""
        fresh = [job for job in view.running if job.gpus and self.starts.fresh(job, view.now_s)]
        seats.keep(fresh)
        jobs: list[Job] = []
        wide: list[Job] = []
        for job in view.jobs:
            if job.gpus and job.index not in seats.held:
                (jobs if self.kinds.liked(job, view) else wide).append(job)
        kept_waiting = self._have_turns(seats, wide, len(view.active))
        kept_waiting |= self._hurry(view, seats, jobs)
        if kept_waiting and fresh:
            return
        choices = list(self.choose(view, jobs, seats.room()))
        seats.settle(choices)
        seats.seat(choices)
        missed = (job.index for job, _ in choices if job.index not in seats.held)
        self._late = {index: self._late.get(index, 0) + 1 for index in missed}
        seats.keep(view.running)
        self._leftovers(view, seats)

    def _have_turns(self, seats: "Seats", wide: Sequence[Job], jobs: int) -> bool:
        """Start gangs that need several types when it is their turn; True if one has to wait."""
        due = [job for job in wide if not job.running and self._turns.get(job.index, 0) >= jobs]
        waits = [job for job in due if not seats.anywhere(job)]
        self._turns = {
            job.index: 0 if job.index in seats.held else self._turns.get(job.index, 0) + 1
            for job in wide
        }
        return bool(waits)

    def _hurry(self, view: View, seats: "Seats", jobs: Sequence[Job]) -> bool:
        """Start whoever was chosen too often in vain; True if one has to wait even so."""
        late = [job for job in jobs if self._late.get(job.index, 0) >= PATIENCE]
        return any(
            not seats.seat((job, kind) for kind in self.kinds.liked(job, view)) for job in late
        )

    def _leftovers(self, view: View, seats: "Seats") -> None:
        """What is free goes to those that wait, on the fastest type that has room."""
        waiting = self.queue(view, [job for job in view.waiting if job.gpus])
        for job in seats.plan.candidates(waiting):
            if job.index not in seats.held:
                liked = self.kinds.liked(job, view)
                if liked:
                    seats.seat((job, kind) for kind in liked)
                else:
                    seats.anywhere(job)
        for job in view.waiting:
            if not job.gpus:
                seats.anywhere(job)

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """Where the round stands."""
        return {
            "starts": self.starts.snapshot(),
            "next_s": self._next_s,
            "last_s": self._last_s,
            "held": [(index, *msgspec.structs.astuple(has)) for index, has in self._held.items()],
            "present": self._present,
            "late": list(self._late.items()),
            "turns": list(self._turns.items()),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take it up again."""
        self.starts.restore(state["starts"])
        self._next_s, self._last_s = state["next_s"], state["last_s"]
        self._held = {index: Held(*has) for index, *has in state["held"]}
        jobs, gpus = state["present"]
        self._present = (list(jobs), list(gpus))
        self._late = dict(state["late"])
        self._turns = dict(state["turns"])


class Seats:
    """Who has a place in a draft, with the GPU type."""

    def __init__(self, view: View, plan: Draft, starts: Starts) -> None:
        self.view = view
        self.plan = plan
        self.held: dict[int, Held] = {}
        self._starts = starts
        self._used: dict[str, float] = {}

    def keep(self, jobs: Iterable[Job]) -> None:
        """They go on where they are, if there is still room."""
        for job in jobs:
            if job.index not in self.held and job.running and self.plan.place(job):
                self._book(job, held_type(job, self.view.topology))

    def settle(self, choices: Iterable[Choice]) -> None:
        """Those that run on the chosen type already go on, before anyone is put in their place."""
        for job, kind in choices:
            if job.running and held_type(job, self.view.topology) == kind:
                self.keep([job])

    def seat(self, choices: Iterable[Choice], *, max_nodes: int | None = None) -> bool:
        """Start or move them to the chosen types; True if one of them has a place."""
        found = False
        for job, kind in choices:
            if job.index in self.held:
                continue
            if self.plan.place(job, gpu_type=kind, max_nodes=max_nodes):
                self._starts.note(job, self.view.now_s)
                self._book(job, kind)
                found = True
        return found

    def anywhere(self, job: Job) -> bool:
        """Start it on whatever the placement finds."""
        if job.index in self.held or not self.plan.place(job):
            return False
        self._starts.note(job, self.view.now_s)
        self._book(job, None)
        return True

    def room(self) -> dict[str, float]:
        """GPUs of each type that nobody with a place has."""
        up = self.view.up_by_type
        return {kind: max(0.0, gpus - self._used.get(kind, 0.0)) for kind, gpus in up.items()}

    def _book(self, job: Job, kind: str | None) -> None:
        self.held[job.index] = Held(kind, job.gpus, job.tenant)
        if kind is not None:
            self._used[kind] = self._used.get(kind, 0.0) + job.gpus
