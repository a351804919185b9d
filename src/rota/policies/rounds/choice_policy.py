"""Policies that choose who runs in the next round."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, TypeAlias, TypeVar

import msgspec

from rota.core.jobs import Job
from rota.core.policy import Params, RoundPolicy
from rota.core.view import View
from rota.policies.rounds.leases import Seat
from rota.policies.rounds.types import GpuTypes

P = TypeVar("P", bound=Params)
Seconds = Annotated[float, msgspec.Meta(gt=0)]

Choice: TypeAlias = tuple[Job, str]
"""A job, and the GPU type on which it is to run."""


class ChoicePolicy(RoundPolicy[P]):
    """Says at the end of each round who runs in the next one, on which GPU type."""

    def __init__(self, params: P | None = None) -> None:
        super().__init__(params)
        self.types = GpuTypes()

    def choose(
        self, view: View, jobs: Sequence[Job], room: Mapping[str, float]
    ) -> Iterable[Choice]:
        """Who runs on which type in the next round, most urgent first, given so many GPUs."""
        raise NotImplementedError

    def charge(self, view: View, held: Mapping[int, Seat], seconds: float) -> None:
        """Jobs had these seats for so long (also jobs that have finished by now)."""

    def prepare(self, view: View) -> None:
        """Jobs or nodes have come or gone."""

    def queue(self, view: View, jobs: Sequence[Job]) -> Sequence[Job]:  # noqa: ARG002
        """The order in which waiting jobs get what is left; that of arrival by default."""
        return jobs
