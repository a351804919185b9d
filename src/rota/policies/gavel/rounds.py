"""From a problem of shares to rounds: what all policies of the family have in common.

A policy says what X should be. At the beginning of a round the problem is solved anew if jobs came
or ended since, the dispatcher chooses who gets GPUs of which type, and what the placement finds no
room for goes to the next who can use it. Within a round nobody is stopped, and GPUs that become
free are given away at once. While nobody waits and everyone is where it should be, there are no
rounds at all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np

from rota.core.events import INF
from rota.core.jobs import HELD, Job
from rota.core.knowledge import Knowledge
from rota.core.policy import DecidePolicy, Params
from rota.core.view import Draft, View, arrival
from rota.policies._dispatch import DispatchOptions
from rota.policies.gavel.beliefs import Alike, Learnt, Noisy, Told
from rota.policies.gavel.ledger import Ledger, Shares
from rota.policies.gavel.problem import Array, Problem, problem
from rota.policies.gavel.seats import Seats

Solve = Callable[[Problem], Array]
"""A function of a module, or a partial one: it may be called in another process."""

PAPER = (
    "Narayanan et al., Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning "
    "Workloads, OSDI 2020"
)
QUIET = 10_000  # rounds in which nothing changed: then it is no use to go on
LITTLE_S = 1.0  # remaining work of jobs that should be over by now


class RoundParams(Params, frozen=True):
    """How shares become rounds, and what is known.

    `round_s`: seconds of a round. `rule`: who goes first: by what it is owed (`deficit`), or by X
    over what it has `received`. `carry`: what is owed is kept when X changes. `spare`: idle GPUs go
    to whoever can use them. `aware`: it is known how fast each job is on each GPU type; `speeds`
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


class BlindParams(RoundParams, frozen=True):
    """As of gavel-max-min; X needs no speeds, but spare GPUs are given by them if `aware`."""

    aware: bool = False


R = TypeVar("R", bound=RoundParams)


class RoundPolicy(DecidePolicy[R]):
    """Finds shares when the jobs have changed, and serves them in rounds."""

    knowledge = Knowledge.SPEEDS
    coupled = "shares: the GPUs of each type are divided among all jobs at once, in common rounds"
    prompt: bool = False
    """X is whole: nobody takes turns, and it follows every event, not only rounds."""
    reads_work: bool = False
    """The problem has the remaining work of the jobs in it."""
    packs: bool = False
    """Jobs may share GPUs in pairs."""

    def __init__(self, params: R | None = None) -> None:
        super().__init__(params)
        given = self.params
        if not given.aware:
            self.knowledge &= ~Knowledge.SPEEDS
        options = DispatchOptions(given.rule, given.carry, given.spare, forgive=True)
        self.beliefs = _beliefs(given)
        self._ledger = Ledger(given.round_s, options, self.beliefs.speed)
        self._holds_s = INF  # until then the shares hold if no job comes or ends

    # --- what a policy says -----------------------------------------------------------------------

    def solver(self) -> Solve:
        """The function that finds X."""
        raise NotImplementedError

    def ask(self, asked: Problem, jobs: Sequence[Job], view: View) -> Problem:  # noqa: ARG002
        """The problem with what else the policy must know."""
        return asked

    def shares(self, asked: Problem, jobs: Sequence[Job], view: View) -> Shares:  # noqa: ARG002
        """The answer to the problem; policies that pack jobs in pairs say more."""
        none = np.zeros((0, len(asked.capacity)))
        found = self.solver()(asked) if jobs else np.zeros_like(asked.throughput)
        alone = np.where(asked.throughput > 0, found, 0.0)
        self.learn(jobs, alone)
        return Shares(alone, (), none, none)

    def learn(self, jobs: Sequence[Job], shares: Array) -> None:
        """These are the shares from now on."""

    def next_change(self, now_s: float) -> float:  # noqa: ARG002
        """When the problem changes by itself, without a job that comes or ends."""
        return INF

    def memory(self) -> Mapping[str, Any]:
        """What it keeps between two solutions, as plain data."""
        return {}

    def remember(self, state: Mapping[str, Any]) -> None:
        """Take the state of `memory` up again."""

    # --- decisions --------------------------------------------------------------------------------

    def decide(self, view: View) -> Draft:
        """Begin a round if the last one is over, else give away what became free."""
        draft, ledger, now_s = view.plan(), self._ledger, view.now_s
        running = view.running
        jobs = {job.index: job for job in (*running, *view.waiting)}
        fresh = now_s >= ledger.ends_s
        ledger.meet(view, jobs, running)
        ledger.stale |= now_s >= self._holds_s
        if self.params.speeds == "learn":
            self._look(running, view)
        turns = ledger.turn(now_s) if fresh else []
        if ledger.stale and self._contested(jobs) and (fresh or self._prompted(running)):
            self._renew(view)
        seats = Seats(draft, ledger, jobs, now_s)
        seats.without_gpus()
        if fresh:
            seats.begin(running, turns)
        else:
            seats.keep(running)
        seats.fill()
        ledger.note(jobs, seats.placed, now_s)
        self._sleep(draft, seats)
        return draft

    def shortfall(self) -> dict[int, float]:
        """By how many rounds each job, by its number, is behind its share."""
        return self._ledger.books.shortfall()

    def _look(self, running: Sequence[Job], view: View) -> None:
        """Measure the jobs that run; what is new changes what is thought of all others."""
        ledger = self._ledger
        seen = [job for job in running if job.gpus and job.index not in ledger.wide]
        if self.beliefs.saw([(job, ledger.kinds[ledger.kind_of(job)]) for job in seen]):
            ledger.rethink(view)

    def _contested(self, jobs: Mapping[int, Job]) -> bool:
        """There is something to share."""
        if len(self._ledger.kinds) > 1 or not self.params.spare or self._ledger.crowded:
            return True
        return sum(job.gpus for job in jobs.values()) > sum(self._ledger.books.capacity)

    def _prompted(self, running: Sequence[Job]) -> bool:
        """X counts at once, and there are free GPUs."""
        used = sum(job.held_gpus for job in running)
        return self.prompt and used < sum(self._ledger.books.capacity)

    def _renew(self, view: View) -> None:
        """Solve the problem of all jobs that there are."""
        ledger, everyone = self._ledger, view.everyone
        numbers = [number for number in ledger.books.jobs if number not in ledger.wide]
        known = [everyone[number] for number in numbers if number in everyone]
        jobs = sorted((job for job in known if job.phase != HELD), key=arrival)
        asked = self._problem(jobs, view)
        if jobs:
            asked = self.ask(asked, jobs, view)
        ledger.retarget(view.now_s, jobs, self.shares(asked, jobs, view))
        self._holds_s = self.next_change(view.now_s)

    def _problem(self, jobs: Sequence[Job], view: View) -> Problem:
        books, now_s = self._ledger.books, view.now_s
        made = problem(
            books.worth([job.index for job in jobs]),
            np.array(books.capacity, float),
            size=np.array([job.gpus for job in jobs], float),
            weight=np.array([max(job.spec.priority, 1) for job in jobs], float),
            age=np.array([now_s - job.submit_s for job in jobs]),
        )
        if self.reads_work:
            left = np.array([job.remaining_s(now_s) for job in jobs])
            made = replace(made, steps=_finite(left))
        left_s = np.array([job.spec.deadline_s - now_s for job in jobs])
        return replace(made, time_left=left_s).fitting()

    def _sleep(self, draft: Draft, seats: Seats) -> None:
        """Ask for the end of the round if it can change anything."""
        ledger = self._ledger
        ledger.crowded = not seats.all_served()
        useful = ledger.crowded and not self.prompt and (bool(seats.placed) or ledger.stale)
        if len(ledger.kinds) > 1:
            useful = useful or ledger.stale or ledger.restless(seats.placed)
        if useful and ledger.quiet < QUIET:
            draft.wake_at(ledger.ends_s)
        elif seats.placed and self._holds_s < INF:
            draft.wake_at(max(ledger.ends_s, self._holds_s))

    # --- state ------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """The books, and what the policy remembers."""
        ledger = self._ledger.snapshot()
        learnt = self.beliefs.snapshot()
        return {
            "ledger": ledger,
            "memory": self.memory(),
            "holds_s": self._holds_s,
            "learnt": learnt,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the books up again."""
        self._ledger.restore(state["ledger"])
        self.remember(state["memory"])
        self._holds_s = state["holds_s"]
        self.beliefs.restore(state["learnt"])


def _beliefs(params: RoundParams) -> Told:
    if not params.aware:
        return Alike()
    if params.speeds == "noisy":
        return Noisy(params.noise, params.seed)
    return Learnt(params.seed) if params.speeds == "learn" else Told()


def _finite(left: Array) -> Array:
    """Nobody is over before it is; a job of which nothing is known is like the longest."""
    known = left[np.isfinite(left)]
    longest = float(known.max()) if len(known) else LITTLE_S
    return np.maximum(np.where(np.isfinite(left), left, longest), LITTLE_S)
