"""POP (Narayanan et al., SOSP 2021): a large problem as k small ones, around another policy.

    deal the jobs at random to k parts, and the GPUs of each type as evenly as possible;
    solve the problem of the policy `inside` in each part; put the X together

With many jobs the parts look like the whole, so little is lost, and each is solved in less than
the k-th part of the time; large parts are solved in processes of their own (`workers`). With k=1
it is the policy itself. `inside` is a policy of the Gavel family, its own parameters follow after
slashes: `pop:inside=gavel-max-sum/objective=cost/prices=..,k=4`; those that all of the family have
(`round_s`, `rule`, `aware`, ...) are given to `pop`.

Departs from the paper: no GPU is lost where k does not divide their number; the parts really run at
the same time; what a policy remembers about jobs is kept outside of the parts, so it does not
matter where a job was before.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np

from rota.core.errors import OptionError
from rota.core.jobs import Job
from rota.core.registry import POLICIES, load, parse_params
from rota.core.state import State
from rota.core.view import View
from rota.policies.gavel.partition import pop
from rota.policies.rounds.problem import Array, RoundProblem
from rota.policies.rounds.share_policy import ShareParams, SharePolicy, Solve
from rota.solvers.workers import Workers

LARGE = 4096  # jobs of a part, from which on processes are worth it


class PopParams(ShareParams, frozen=True):
    """As of gavel-max-min (rounds and what is known), and more.

    `inside`: the policy, NAME/key=value/..; `k`: parts, of `least` jobs each or else fewer parts;
    `workers`: processes (0: as many as there are cores, if the parts are large; 1: none).
    """

    inside: str = "gavel-max-min"
    k: Annotated[int, msgspec.Meta(ge=1)] = 4
    least: Annotated[int, msgspec.Meta(ge=1)] = 32
    workers: Annotated[int, msgspec.Meta(ge=0)] = 0


class PopState(State):
    """How often parts were drawn, and the state of the policy inside."""

    solved: int = 0
    inside: dict[str, Any] = {}


class Pop(SharePolicy[PopParams]):
    """Solve the problem of another policy in k parts, each with a part of jobs and GPUs."""

    name = "pop"
    coupled = "random draws: jobs are dealt out to parts of the cluster, whatever nodes they accept"
    paper = (
        "Narayanan et al., Solving Large-Scale Granular Resource Allocation Problems Efficiently "
        "with POP, SOSP 2021"
    )
    Parameters = PopParams

    def __init__(self, params: PopParams | None = None) -> None:
        super().__init__(params)
        self._inside = _inner(self.params)
        self.knowledge = self._inside.knowledge
        self.reads_work, self.prompt = self._inside.reads_work, self._inside.prompt
        self._workers = Workers(self.params.workers)
        self.state: PopState = PopState()

    def next_change(self, now_s: float) -> float:
        """As of the policy inside."""
        return self._inside.next_change(now_s)

    def ask(self, asked: RoundProblem, jobs: Sequence[Job], view: View) -> RoundProblem:
        """The question of the policy inside."""
        return self._inside.ask(asked, jobs, view)

    def solver(self) -> Solve:
        """All parts, then all together."""
        return self._solve

    def _solve(self, asked: RoundProblem) -> Array:
        params = self.params
        draw = np.random.default_rng([params.seed, self.state.solved])
        self.state.solved += 1
        k = max(1, min(params.k, asked.jobs // params.least))
        large = asked.jobs >= LARGE * k or params.workers > 1
        spread = self._workers.map if large and k > 1 else map
        return pop(asked, self._inside.solver(), k=k, draw=draw, spread=spread)

    def given(self, jobs: Sequence[Job], shares: Array) -> None:
        """Tell the policy inside."""
        self._inside.given(jobs, shares)

    def snapshot(self) -> Mapping[str, Any]:
        """With the state of the policy inside."""
        self.state.inside = dict(self._inside.snapshot())
        return super().snapshot()

    def resumed(self) -> None:
        """Restore the policy inside."""
        self._inside.restore(self.state.inside)


def _inner(params: PopParams) -> SharePolicy[Any]:
    name, *texts = params.inside.split("/")
    kind = load(POLICIES, name)
    if not issubclass(kind, SharePolicy) or issubclass(kind, Pop):
        raise OptionError(
            f"pop: inside={name} is not a policy that shares time on GPU types: take gavel-max-min"
        )
    options: dict[str, Any] = {"aware": params.aware}
    last = ""
    for text in texts:
        key, equals, value = text.partition("=")
        # a list is written with slashes as well: what has no name goes on with the last one
        if equals and key in ShareParams.__struct_fields__:
            raise OptionError(
                f"pop: inside={params.inside}: {key} belongs to pop: write pop:inside={name},{text}"
            )
        options[key if equals else last] = value if equals else f"{options.get(last)}/{text}"
        last = key if equals else last
    made: SharePolicy[Any] = kind(parse_params(f"pop, inside={name}", kind.Parameters, options))
    if made.packs:
        raise OptionError(f"pop: inside={params.inside} packs jobs in pairs: parts have no pairs")
    return made
