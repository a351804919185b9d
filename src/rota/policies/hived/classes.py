"""The jobs of a run in classes: by virtual cluster and priority, and the opportunistic ones.

Kept from decision to decision, so that nothing is done for virtual clusters where nothing happened.
"""

from rota.core.jobs import Job
from rota.core.view import View, arrival
from rota.policies.hived.asks import AskedGroup, HivedRequests

Place = tuple[str, int]
"""Virtual cluster and HiveD's priority."""


class Classes:
    """Who is where."""

    def __init__(self, asks: HivedRequests) -> None:
        self._asks = asks
        self._asked: dict[int, AskedGroup] = {}
        self._jobs: dict[Place | None, dict[int, Job]] = {}
        self.changed: set[str] = set()
        """Virtual clusters to which jobs came, or that they left."""
        self.picky: set[Place] = set()
        """Classes with jobs that ask for certain nodes."""

    def update(self, view: View) -> list[tuple[Job, str]]:
        """Jobs that came and went since the last time; those that can never run, and why."""
        self.changed.clear()
        active = view.active
        for index in self._asked.keys() - active.keys():
            self._drop(index)
        turned_away = []
        for index in sorted(active.keys() - self._asked.keys()):
            job = active[index]
            asked = self._asks.of(job)
            if asked.never:
                turned_away.append((job, asked.never))
            else:
                self._add(job, asked)
        return turned_away

    def _add(self, job: Job, asked: AskedGroup) -> None:
        place = asked.place
        self._asked[job.index] = asked
        jobs = self._jobs.setdefault(place, {})
        last = next(reversed(jobs.values()), None)
        jobs[job.index] = job
        if last is not None and arrival(job) < arrival(last):
            self._jobs[place] = {each.index: each for each in sorted(jobs.values(), key=arrival)}
        if place is not None:
            self.changed.add(place[0])
            if asked.choosy:
                self.picky.add(place)

    def _drop(self, index: int) -> None:
        place = self._asked.pop(index).place
        jobs = self._jobs[place]
        del jobs[index]
        if not jobs:
            del self._jobs[place]
        if place is not None:
            self.changed.add(place[0])

    def places(self) -> list[Place]:
        """Classes with jobs, the most important first."""
        found = [place for place in self._jobs if place is not None]
        return sorted(found, key=lambda place: (-place[1], place[0]))

    def jobs(self, place: Place | None) -> list[Job]:
        """The jobs of a class in order of arrival; None: the opportunistic ones."""
        return list(self._jobs.get(place, {}).values())
