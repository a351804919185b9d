"""Requests that found no place, so that they are not tried again before something becomes free.

A virtual cluster does not notice what others do: as long as all nodes are healthy, only the end of
one of its own jobs can help a guaranteed job. Opportunistic jobs, and those that ask for certain
nodes, may profit from any end.
"""

from collections.abc import Mapping
from typing import Any

from rota.core.jobs import Job
from rota.policies.hived.asks import AskedGroup

Kind = tuple[str, int, int, str]
"""Tenant, priority, shape and type of GPU: jobs that would get the same answer."""
LENT, SOMEWHERE = "", "*"


class Hopeless:
    """Kinds of requests with the reason why they wait, by virtual cluster."""

    def __init__(self) -> None:
        self._known: dict[str, dict[Kind, int]] = {}

    def why(self, job: Job, asked: AskedGroup, gpu_type: str | None) -> int | None:
        """Why such a job waits; None if it should be tried."""
        return self._known.get(_group(asked), {}).get(_kind(job, asked, gpu_type))

    def add(self, job: Job, asked: AskedGroup, gpu_type: str | None, reason: int) -> None:
        """There is no place for it at present."""
        kinds = self._known.setdefault(_group(asked), {})
        kinds[_kind(job, asked, gpu_type)] = reason

    def freed(self, vc: str | None, *, all_healthy: bool) -> None:
        """A job has left: of a virtual cluster, or an opportunistic one (None)."""
        if not all_healthy:
            self.clear()
            return
        for group in (LENT, SOMEWHERE, LENT if vc is None else vc):
            self._known.pop(group, None)

    def clear(self) -> None:
        """Everything may be possible again."""
        self._known.clear()

    def marks(self) -> Mapping[str, int]:
        """How many there are now."""
        return {group: len(kinds) for group, kinds in self._known.items()}

    def back_to(self, marks: Mapping[str, int]) -> None:
        """Forget those that were added since."""
        for group, kinds in self._known.items():
            while len(kinds) > marks.get(group, 0):
                kinds.popitem()

    def save(self) -> list[Any]:
        """As plain data."""
        return [
            [group, [[list(kind), reason] for kind, reason in kinds.items()]]
            for group, kinds in self._known.items()
        ]

    def load(self, state: list[Any]) -> None:
        """Take saved ones up again."""
        self._known = {
            group: {tuple(kind): reason for kind, reason in kinds} for group, kinds in state
        }


def _group(asked: AskedGroup) -> str:
    if asked.choosy:
        return SOMEWHERE
    return LENT if asked.place is None else asked.place[0]


def _kind(job: Job, asked: AskedGroup, gpu_type: str | None) -> Kind:
    if asked.place is None:
        return ("", -1, job.shape.number, gpu_type or "")
    return (job.tenant, asked.place[1], job.shape.number, gpu_type or "")
