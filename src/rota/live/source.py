"""Jobs that people submit, for the engine."""

from collections.abc import Sequence

from rota.core.events import INF
from rota.core.jobs import Behaviour, JobSpec

Submission = tuple[int, JobSpec, Behaviour]


class LiveSource:
    """Submissions are announced by the cluster (in a batch) and taken by the engine."""

    linked = True  # people write `depends_on`

    def __init__(self) -> None:
        self.next_s = INF
        self._pending: list[Submission] = []

    def announce(self, jobs: Sequence[Submission]) -> None:
        """They arrive with the present batch."""
        self._pending += jobs
        if jobs:
            self.next_s = min(self.next_s, jobs[0][1].submit_s)

    def take(self, now_s: float) -> list[Submission]:  # noqa: ARG002 - part of the port
        """Everything that was announced."""
        taken, self._pending = self._pending, []
        self.next_s = INF
        return taken
