"""Policies that say which share of time each job should spend on each GPU type."""

from collections.abc import Callable, Sequence
from typing import Annotated, Literal, TypeVar

import msgspec

from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.policy import Params, RoundPolicy
from rota.core.view import View
from rota.policies.rounds.problem import Array, JobPairs, PackedShares, RoundProblem

Solve = Callable[[RoundProblem], Array]
"""A function of a module, or a partial one: it may be called in another process."""


class ShareParams(Params, frozen=True):
    """How shares become rounds, and what is known.

    `round_s`: seconds of a round. `rule`: who goes first: by what it is owed (`deficit`), or by X
    over what it has `received`. `carry`: what is owed is kept when X changes. `spare`: idle GPUs go
    to jobs that can use them. `aware`: it is known how fast each job is on each GPU type; `speeds`
    says how: exactly (`oracle`), with errors whose coefficient of variation is `noise` (`noisy`),
    or as far as jobs have been seen to run (`learn`). `seed`: of whatever is drawn.
    """

    round_s: Annotated[float, msgspec.Meta(gt=0)] = 360.0
    rule: Literal["deficit", "received"] = "deficit"
    carry: bool = True
    spare: bool = True
    aware: bool = True
    speeds: Literal["oracle", "noisy", "learn"] = "oracle"
    noise: Annotated[float, msgspec.Meta(ge=0)] = 0.2
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0

    def __post_init__(self) -> None:
        if not self.aware and self.speeds != "oracle":
            raise ValueError(f"speeds={self.speeds} is of no use without speeds: say aware=yes")


class BlindParams(ShareParams, frozen=True):
    """As of gavel-max-min; X needs no speeds, but spare GPUs are given by them if `aware`."""

    aware: bool = False


S = TypeVar("S", bound=ShareParams)


class SharePolicy(RoundPolicy[S]):
    """Says what X should be: at the beginning of a round, if jobs or nodes have come or gone."""

    coupled = "shares: the GPUs of each type are divided among all jobs at once, in common rounds"
    prompt: bool = False
    """X is whole: there are no turns, and it follows every event, not only rounds."""
    reads_work: bool = False
    """The problem has the remaining work of the jobs in it."""
    packs: bool = False
    """Jobs may share GPUs in pairs (`pack`)."""
    partners: int = 0
    """How many possible partners of each job are looked at (0: all)."""

    def __init__(self, params: S | None = None) -> None:
        super().__init__(params)
        if not self.params.aware:
            self.knowledge &= ~Knowledge.SPEEDS

    @property
    def round_s(self) -> float:
        """A parameter."""
        return self.params.round_s

    def targets(self, problem: RoundProblem, jobs: Sequence[Job], view: View) -> Array:
        """X: the share of time of each job on each GPU type."""
        asked = self.ask(problem, jobs, view)  # what it knows now may be part of the solver
        return self.solver()(asked)

    def ask(self, problem: RoundProblem, jobs: Sequence[Job], view: View) -> RoundProblem:  # noqa: ARG002
        """The problem with what else the policy must know."""
        return problem

    def solver(self) -> Solve:
        """The function that finds X."""
        raise NotImplementedError

    def pack(self, problem: RoundProblem, pairs: JobPairs, jobs: Sequence[Job]) -> PackedShares:
        """The same where these pairs of jobs may share GPUs."""
        raise NotImplementedError

    def given(self, jobs: Sequence[Job], shares: Array) -> None:
        """These are the shares from now on."""

    def next_change(self, now_s: float) -> float:  # noqa: ARG002
        """When the problem changes by itself, though no job comes or ends."""
        return INF
