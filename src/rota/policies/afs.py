"""AFS: GPUs one by one to the job for which one more is worth most (Hwang et al., NSDI 2021).

    of two jobs without GPUs the shorter one wins; else, with a the one that has fewer GPUs,
    b wins if  (r_b(n_b + 1) - r_b(n_b)) / r_b(n_b + 1)  >  (r_a(n_a + 1) - r_a(n_a)) / r_a(n_a)

where r_i(n) is the speed of job i on n GPUs. The winner over all jobs gets the next GPU. For two
jobs this is the choice with the smaller mean completion time if a is done first and b then goes on
at the speed that the GPU would give it (what a leaves goes to newcomers). `tie=artifact` divides by
r(n + 1) on both sides, as the code that DeepBoot compares with does.

Departs from the paper: nobody gets a GPU that does not make it faster; sizes are those that a job
takes (what a larger step brings counts per GPU); lengths are told by an oracle (AFS-L).
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from rota.core.changes import ON_EVERY_EVENT, Wake
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.plan import Plan
from rota.core.policy import DecidePolicy, Params
from rota.core.view import View
from rota.policies._sizes import give, open_gpus, sizes_of

Rule = Literal["paper", "artifact"]


class AfsParams(Params, frozen=True):
    """Which rule compares two jobs, and how often shares are made anew (0: at every event)."""

    tie: Rule = "paper"
    every_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class Contender:
    """A job in the contest for the next GPU."""

    __slots__ = ("job", "length_s", "rates", "share", "sizes")

    def __init__(self, job: Job, sizes: Sequence[float], now_s: float) -> None:
        self.job = job
        self.sizes = sizes
        self.rates = [job.speed_with(size) for size in sizes]
        first = self.rates[0] if self.rates else 0.0
        self.length_s = job.remaining_s(now_s) / first if first > 0 else INF
        self.share = 0  # how many of its sizes it has climbed

    @property
    def gpus(self) -> float:
        """What it has been given."""
        return self.sizes[self.share - 1] if self.share else 0.0

    @property
    def step(self) -> float:
        """GPUs up to its next size."""
        return self.sizes[self.share] - self.gpus

    def wants(self, left: float) -> bool:
        """The next size is to be had, and faster."""
        if self.share == len(self.sizes) or self.step > left:
            return False
        return self.rates[self.share] > (self.rates[self.share - 1] if self.share else 0.0)

    def worth(self, *, of_next: bool) -> float:
        """What a GPU more brings, relative to the speed with it or without it."""
        after = self.rates[self.share]
        before = self.rates[self.share - 1] if self.share else 0.0
        base = after if of_next else before
        return (after - before) / base / self.step if base > 0 else INF


def better(one: Contender, other: Contender, rule: Rule) -> Contender:
    """Who gets the next GPU; the first one where both are alike."""
    if not one.share and not other.share:
        return one if one.length_s <= other.length_s else other
    a, b = (one, other) if one.gpus <= other.gpus else (other, one)
    return b if b.worth(of_next=True) > a.worth(of_next=rule == "artifact") else a


def shares(contenders: Sequence[Contender], gpus: float, rule: Rule) -> None:
    """Give out all GPUs, as far as they are wanted."""
    left = gpus
    while True:
        winner = None
        for one in contenders:
            if one.wants(left):
                winner = one if winner is None else better(winner, one, rule)
        if winner is None:
            return
        left -= winner.step
        winner.share += 1


class Afs(DecidePolicy[AfsParams]):
    """Give every GPU to the job that makes most of it."""

    name = "afs"
    paper = "Hwang et al., Elastic Resource Sharing for Distributed Deep Learning, NSDI 2021"
    knowledge = Knowledge.REMAINING_WORK | Knowledge.SCALING
    Parameters = AfsParams
    preemptive = True
    elastic = True
    coupled = "shares: all GPUs are divided among all jobs"

    def __init__(self, params: AfsParams | None = None) -> None:
        super().__init__(params)
        every_s = self.params.every_s
        self.wake = Wake(on=frozenset(), every_s=every_s) if every_s else ON_EVERY_EVENT

    def decide(self, view: View) -> Plan:
        """Divide all anew."""
        plan = view.plan()
        gpus = open_gpus(view)
        contenders = [Contender(job, sizes_of(job, gpus), view.now_s) for job in view.jobs]
        shares(contenders, gpus, self.params.tie)
        give(plan, [(one.job, one.gpus) for one in contenders if one.share], most=gpus)
        plan.fill(one.job for one in contenders if not one.job.gpus)
        return plan
