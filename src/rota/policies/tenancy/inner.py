"""A policy inside another one: it gives the order of the jobs of one queue.

Any policy that ranks jobs by a key (`PriorityPolicy`: fifo, fifo-skip, sjf, srtf, srsf, las,
tiresias, gittins, qssf, ...) can be used. The outer policy decides whose turn it is and who has to
make room; the inner one says in which order the jobs of a queue are served (`rank`, the smallest
first), whether a waiting job may displace a running one that ranks behind it (`preemptive`), and
whether nobody passes the first that cannot start (`strict`).

The outer policy must

* declare `knowledge` as its own;
* call `learn` once per decision, and rank everybody anew when it says so;
* rank a job anew when it starts or stops to run, and at the time that `next_change` tells;
* save and restore it with its own state.

A policy is named with its parameters: `tiresias`, or `tiresias:limits=3600/7200;promote=2`.
"""

from collections.abc import Mapping
from typing import Any

from rota.core.errors import OptionError
from rota.core.events import INF
from rota.core.jobs import Job
from rota.core.knowledge import Knowledge
from rota.core.policy import PriorityPolicy
from rota.core.registry import POLICIES, load, names, parse_params, split, unknown
from rota.core.view import View

Rank = tuple[Any, int]
"""Key and number, as where the policy stands alone: no two jobs have the same."""


class InnerPolicy:
    """The inner policy as its owner uses it."""

    def __init__(self, text: str, owner: str) -> None:
        self.policy = inner_policy(text, owner)
        kind = type(self.policy)
        self.knowledge: Knowledge = self.policy.knowledge
        self.preemptive: bool = kind.preemptive
        self.strict: bool = self.policy.strict
        self._jumps = kind.next_change is not PriorityPolicy.next_change
        self.ages: bool = self._jumps and self.policy.ages
        """Waiting jobs must be ranked anew at the time of their `next_change`."""
        self.moves: bool = self._jumps and kind.preemptive
        """So must running jobs."""
        self.drifts: bool = kind.slope is not PriorityPolicy.slope
        """The rank of a running job is another one at every moment."""
        self._learns = kind.finished is not PriorityPolicy.finished
        self._learnt = 0
        self._revision = self.policy.revision

    def rank(self, job: Job, now_s: float) -> Rank:
        """The order in a queue; the smallest is served first."""
        return (self.policy.key(job, now_s), job.index)

    def next_change(self, job: Job, now_s: float) -> float:
        """When the rank of this job jumps, if it goes on running or waiting; inf: never."""
        return self.policy.next_change(job, now_s) if self._jumps else INF

    def learn(self, view: View) -> bool:
        """Tell it of the jobs that have finished; True if all ranks may be others now."""
        if self._learns:
            finished = view.finished  # the engine's list: policies that only clean up need no leave
            for job in finished[self._learnt :]:
                self.policy.finished(job, job.end_s)
            self._learnt = len(finished)
        changed = self.policy.revision != self._revision
        self._revision = self.policy.revision
        return changed

    def snapshot(self) -> Mapping[str, Any]:
        """Its state as plain data."""
        return {"policy": self.policy.snapshot(), "learnt": self._learnt}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take the state of `snapshot` up again."""
        self.policy.restore(saved["policy"])
        self._learnt = saved["learnt"]
        self._revision = self.policy.revision


def inner_policy(text: str, owner: str) -> PriorityPolicy[Any]:
    """The policy that a text names; `owner` is who asks for it, for messages."""
    name, options = split(text.replace(";", ","))
    known = names(POLICIES)
    if name not in known:
        raise OptionError(f"policy {owner!r}: inside: {unknown('policy', name, known)}")
    kind = load(POLICIES, name)
    if not (isinstance(kind, type) and issubclass(kind, PriorityPolicy)):
        raise OptionError(
            f"policy {owner!r}: inside={name} has no order of jobs of its own: take one that ranks "
            f"them, such as fifo, fifo-skip, srtf or tiresias"
        )
    made: PriorityPolicy[Any] = kind(parse_params(f"policy {name!r}", kind.Parameters, options))
    return made
