"""Capacity scheduling: queues with guaranteed quotas in a tree, which lend what they do not use.

Every queue is promised its quota. What it does not use others may borrow, up to their limit; a
guaranteed job within its queue's quota takes it back at once. Within a queue jobs go by priority,
then in the order of an inner policy (`inside`).

* Where no queue of a level has a quota, what there is above them is divided by weight. A quota of a
  queue is at least the sum of those below it. If more is promised than there are GPUs (nodes are
  down), all quotas of a level shrink in proportion.
* `turn=share`: at every level the queue that uses the smallest part of its quota is served first.
  `turn=arrival`: the one with the most important job, then the oldest one.
* A quota that is exceeded by no more than the part `ignore_over` is not reclaimed.
* Opportunistic jobs use what is idle and are the first to go; see `core.tenants.PriorityClass`.

`tenancy.victims` tells how victims are found and chosen, `tenancy.decision` whose turn it is.

After the capacity scheduler of Hadoop YARN and the cluster queues of Kueue (`preset=yarn`,
`preset=kueue`). Departs from them: decisions are made at every event, not at intervals; what is
shared is GPUs only; a preempted job is stopped at once, not after a warning (a backend may give it
time).
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from rota.core.events import INF
from rota.core.jobs import Job
from rota.policies.tenancy.policy import COMMON, TenantParams, TenantPolicy
from rota.policies.tenancy.tree import Branch
from rota.policies.tenancy.victims import Claim


class CapacityParams(TenantParams, frozen=True):
    """How queues share. What is not given is as in the preset."""

    preset: Literal["", "kueue", "yarn"] = ""
    turn: Literal["share", "arrival"] | None = None
    ignore_over: Annotated[float, msgspec.Meta(ge=0)] | None = None


class Capacity(TenantPolicy[CapacityParams]):
    """Guarantee every queue its quota, lend what is idle, take it back when it is needed."""

    name = "capacity"
    Parameters = CapacityParams
    needs: ClassVar[Mapping[str, Sequence[str]]] = {
        **TenantPolicy.needs,
        "ignore_over": ("reclaim",),
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "": {**COMMON, "turn": "share", "ignore_over": 0.0},
        "kueue": {"inside": "fifo-skip", "turn": "arrival", "victims": "lowest-priority"},
        "yarn": {"inside": "fifo", "turn": "share", "within": False, "ignore_over": 0.1},
    }

    def turn(self, branch: Branch, job: Job) -> tuple[Any, ...]:
        """By the part of its quota that it uses, or by its job."""
        if self.chosen["turn"] == "arrival":
            return (-job.spec.priority, job.submit_s, job.index)
        used, quota = branch.used, branch.quota
        return (used / quota if quota else INF, used / branch.tenant.weight)

    def claim(self, branch: Branch, other: Branch, gpus: float) -> Claim:  # noqa: ARG002
        """What is within the quota takes what is beyond another one."""
        return Claim(other.quota * (1.0 + float(self.chosen["ignore_over"])))
