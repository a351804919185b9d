"""The queue before the queue, shared by all composed schedulers: admission, requests too large."""

from collections.abc import Callable, Mapping
from typing import Any

from rota.core import machine
from rota.core.admission import Admission
from rota.core.changes import Changes
from rota.core.errors import PolicyError
from rota.core.events import INF
from rota.core.jobs import Job, Shape
from rota.core.reasons import Reason
from rota.core.topology import Topology
from rota.core.view import View
from rota.placement.base import Placement


class AdmissionQueue:
    """Refuses what can never fit and holds what admission does not want yet."""

    def __init__(
        self,
        admission: Admission,
        placement: Placement,
        *,
        patient: bool = False,
        must_have: Callable[[Shape], Shape] | None = None,
        smallest: Callable[[Shape], Shape] | None = None,
        unplaceable: Callable[[Job, Topology], str | None] | None = None,
    ) -> None:
        self._must_have = must_have  # what must fit of a request; None: all of it
        self._smallest = smallest  # of an elastic request; None: nobody gets less than it asks for
        self._unplaceable = unplaceable  # what the policy says of those that the placement allows
        self.patient = patient  # nodes may come: what does not fit now may fit later
        self.admission = admission
        self.placement = placement
        self.open = admission.trivial
        self.timed = admission.timed
        self.held: list[Job] = []
        self._inside: set[int] = set()
        self._never: dict[int, str | None] = {}
        self.fine: set[int] = set()  # shapes that may always enter

    def never(self, job: Job) -> str | None:
        """Message for a request that can never fit; None if it can."""
        number = job.shape.number
        if number not in self._never:
            self._never[number] = None if self.patient else self._refusal(job)
            if self._never[number] is None and self.open:
                self.fine.add(number)
        return self._never[number]

    def _refusal(self, job: Job) -> str | None:
        message = self._too_large(job.shape)
        if message is None and self._unplaceable is not None:
            message = self._unplaceable(job, self.placement.topology)
        return message

    def _too_large(self, asked: Shape) -> str | None:
        asked = asked.opened or asked  # windows end
        shape = asked if self._must_have is None else self._must_have(asked)
        message = self.placement.never(shape)
        least = asked.request.sizes[0]
        if message is None or least >= asked.gpus:
            return message
        if self._smallest is None:
            return f"{message} (it takes {least:g} or more, but this policy gives what is asked)"
        even = self.placement.never(self._smallest(shape))
        return None if even is None else f"even its smallest size {even}"

    def enter(self, job: Job, view: View, changes: Changes) -> bool:
        """May this new job join the queue? Otherwise the changes say what happens to it."""
        if not job.started:  # a job that has run is not turned away by a new scheduler
            message = self.never(job)
            if message is None and not self.open:
                message = self.admission.refuse(job, view)
            if message is not None:
                changes.reject(job, message)
                return False
        if self.open:
            return True
        reason = self._consider(job, view)
        if reason is not None:
            changes.hold(job, reason)
            self.held.append(job)
            return False
        self._enter(job)
        return True

    def _consider(self, job: Job, view: View) -> Reason | None:
        reason = self.admission.consider(job, view)
        if reason is not None and not isinstance(reason, Reason):
            raise PolicyError(
                f"admission {self.admission.name!r}, job {job.id}: consider() returned {reason!r}: "
                f"return None to let it in, or e.g. rota.core.reasons.Reason.ADMISSION to hold it"
            )
        return reason

    def _enter(self, job: Job) -> None:
        self._inside.add(job.index)
        self.admission.entered(job)

    def assume(self, job: Job, view: View) -> None:
        """It was let in by another scheduler."""
        if not self.open:
            self._inside.add(job.index)
            self.admission.adopted(job, view)

    def leave(self, job: Job) -> None:
        """A job has ended; it counts if it had entered."""
        if job.index in self._inside:
            self._inside.remove(job.index)
            self.admission.left(job)

    def drop(self, job: Job) -> None:
        """A held job was cancelled, or is kept out on request."""
        self.held.remove(job)
        self.admission.dropped(job)

    def reconsider(self, view: View, changes: Changes) -> list[Job]:
        """Held jobs that may enter now, in their order."""
        entering = []
        still = []
        for job in self.held:
            if self._consider(job, view) is None:
                self._enter(job)
                if not changes.withdraw_hold(job):  # held in this very step: nothing happened to it
                    machine.admit(job)
                    changes.admit(job)
                entering.append(job)
            else:
                still.append(job)
        self.held = still
        return entering

    def next_s(self, view: View) -> float:
        """When admission wants to be told the time, if that matters to anybody."""
        return self.admission.next_s(view) if self.held or self._inside else INF

    def why(self, job: Job, view: View) -> str:
        """What a job that is held here waits for, in words; empty: the reason says it all."""
        return self.admission.why(job, view) if job in self.held else ""

    def snapshot(self) -> Mapping[str, Any]:
        """Held jobs, and what admission itself remembers."""
        return {
            "held": [job.index for job in self.held],
            "inside": sorted(self._inside),
            "admission": self.admission.snapshot(),
        }

    def restore(self, view: View, state: Mapping[str, Any]) -> None:
        """Resume from the state of `snapshot`."""
        self.held = [view.everyone[index] for index in state["held"]]
        self._inside = set(state["inside"])
        self.admission.restore(state["admission"])
