"""The memory that a living cluster needs."""

from collections.abc import Sequence

from rota.live.inputs import Batch
from rota.live.source import Submission


class Journal:
    """Where inputs are kept before they happen. This one keeps nothing."""

    def write(self, batch: Batch) -> None:
        """Keep it; raises if it cannot be kept."""

    def idle(self) -> None:
        """There is nothing to do at the moment: a good time to flush."""

    def submissions(self, first: int, count: int) -> Sequence[Submission]:  # noqa: ARG002
        """The jobs of a `Submitted`."""
        return ()
