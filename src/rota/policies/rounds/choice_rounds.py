"""From choices to rounds."""

from collections.abc import Mapping, Sequence
from typing import Any

from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.view import View
from rota.policies.rounds.choice_policy import Choice, ChoicePolicy
from rota.policies.rounds.rounds import Rounds, RoundState
from rota.policies.rounds.seats import Seats
from rota.policies.rounds.types import held_type

PATIENCE = 3  # rounds


class ChoiceState(RoundState):
    """When the last decision was, who was there, and who has waited for how many rounds.

    `late`: was chosen in vain; `turns`: a gang too large for any type.
    """

    last_s: float = 0.0
    present: tuple[list[int], list[float]] = ([], [])  # jobs, and GPUs by type
    late: dict[int, int] = {}
    turns: dict[int, int] = {}


class ChoiceRounds(Rounds[ChoicePolicy[Any]]):
    """Rounds of a policy that chooses who runs.

    A job that is not chosen stops unless there is room left. A job that is chosen `PATIENCE` rounds
    in a row and finds no place, because GPUs are free here and there only, comes before all others;
    if starting jobs are in its way, no other job starts. A gang larger than any single type has its
    turn after as many rounds as there are jobs, on several types if the placement allows that
    (others refuse such a gang when it comes).
    """

    def __init__(self, policy: ChoicePolicy[Any]) -> None:
        super().__init__(policy)
        self.state: ChoiceState = ChoiceState()

    def shortfall(self) -> Mapping[int, float]:
        """For how many rounds in a row jobs were chosen in vain."""
        return dict(self.state.late)

    def update(self, view: View, *, over: bool) -> None:  # noqa: ARG002 - the same at any time
        """Charge what jobs had, and see who has come or gone."""
        now_s, state = view.now_s, self.state
        if state.held and now_s > state.last_s:
            self.policy.charge(view, state.held, now_s - state.last_s)
        state.last_s = now_s
        self.leases.keep_only({job.index for job in view.running}, now_s)
        present = (list(view.active), list(view.up_by_type.values()))
        if present != state.present:
            state.present = present
            self.policy.prepare(view)

    def deal(self, view: View, seats: Seats) -> bool:
        """Who must not be stopped yet, whose turn it is, who was passed over, who is chosen."""
        unpaid = self.unpaid(view)
        seats.keep(unpaid)
        jobs: list[Job] = []
        wide: list[Job] = []
        for job in view.jobs:
            if job.gpus and job.index not in seats.placed:
                (jobs if self.policy.types.preferred(job, view) else wide).append(job)
        one_waits = self._take_turns(seats, wide, len(view.active))
        one_waits |= self._hurry(view, seats, jobs)
        if one_waits and unpaid:
            return False
        choices = list(self.policy.choose(view, jobs, _room(view, seats)))
        self._seat(view, seats, choices)
        late = self.state.late
        missed = (job.index for job, _ in choices if job.index not in seats.placed)
        self.state.late = {index: late.get(index, 0) + 1 for index in missed}
        seats.keep(view.running)
        return True

    def _take_turns(self, seats: Seats, wide: Sequence[Job], jobs: int) -> bool:
        """Start gangs that need several types when it is their turn; True if one has to wait."""
        turns = self.state.turns
        due = [job for job in wide if not job.running and turns.get(job.index, 0) >= jobs]
        waits = [job for job in due if not seats.anywhere(job)]
        self.state.turns = {
            job.index: 0 if job.index in seats.placed else turns.get(job.index, 0) + 1
            for job in wide
        }
        return bool(waits)

    def _hurry(self, view: View, seats: Seats, jobs: Sequence[Job]) -> bool:
        """Start jobs that were chosen too often in vain; True if one has to wait even so."""
        late = [job for job in jobs if self.state.late.get(job.index, 0) >= PATIENCE]
        types = self.policy.types
        return any(not seats.seat_first(job, types.preferred(job, view)) for job in late)

    def _seat(self, view: View, seats: Seats, choices: Sequence[Choice]) -> None:
        """Those that run on the chosen type already go on, before anyone takes their place."""
        for job, kind in choices:
            if job.running and held_type(job, view.topology) == kind:
                seats.keep([job])
        for job, kind in choices:
            if job.index not in seats.placed:
                seats.seat(job, kind)

    def fill(self, view: View, seats: Seats) -> None:
        """What is free goes to those that wait, on the fastest type that has room."""
        waiting = self.policy.queue(view, [job for job in view.waiting if job.gpus])
        for job in seats.plan.candidates(waiting):
            if job.index not in seats.placed:
                preferred = self.policy.types.preferred(job, view)
                if preferred:
                    seats.seat_first(job, preferred)
                else:
                    seats.anywhere(job)
        for job in view.waiting:
            if not job.gpus:
                seats.anywhere(job)

    def wake_s(self, view: View, seats: Seats) -> float:  # noqa: ARG002
        """At the end of the round, if anybody waits or might be better off on another type."""
        return self.state.ends_s if any(self._unsettled(j, view) for j in view.jobs) else INF

    def _unsettled(self, job: Job, view: View) -> bool:
        seat = self.state.held.get(job.index)
        if seat is None:
            return True
        return seat.kind is not None and self.policy.types.preferred(job, view)[:1] != [seat.kind]


def _room(view: View, seats: Seats) -> dict[str, float]:
    """GPUs of each type that no seat takes."""
    used: dict[str, float] = {}
    for seat in seats.placed.values():
        if seat.kind is not None:
            used[seat.kind] = used.get(seat.kind, 0.0) + seat.gpus
    return {kind: max(0.0, gpus - used.get(kind, 0.0)) for kind, gpus in view.up_by_type.items()}
