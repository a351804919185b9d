"""EASY backfilling (Lifka, The ANL/IBM SP Scheduling System, JSSPP 1995).

First come first served, but the first job that does not fit (the head) gets a reservation: the
earliest time at which it fits if the running jobs end as their users estimated. A later job may
start now if by its own estimate it ends before that time, or if the head would still fit then
beside it. As long as no job outlives its estimate, nobody delays the head beyond the first
reservation it got.

Partitions are queues of their own: a job is a head if nobody waits before it that competes with it
for any node. So every partition has a head with a reservation, and whoever starts early delays none
of them.

What fits is the placement's business: the reservation holds for nodes, GPU types, CPUs and memory,
not just for a number of GPUs. A job without estimate never ends by estimate (`default_estimate_s`
sets another value): where only such jobs run, the head has no reservation and everything that fits
may start. A job that has outlived its estimate is expected to end at any moment.

Departs from the paper: a job that outlives its estimate is not killed.
"""

from typing import Annotated

import msgspec

from rota.core.events import INF
from rota.core.knowledge import Knowledge
from rota.core.policy import DecidePolicy, Params
from rota.core.view import Draft, View
from rota.policies._reservations import Reservations


class EasyParams(Params, frozen=True):
    """What to assume of jobs whose users gave no estimate."""

    default_estimate_s: Annotated[float, msgspec.Meta(gt=0)] = INF


class Easy(DecidePolicy[EasyParams]):
    """First come first served; others start early if that does not delay the first that waits."""

    name = "easy"
    paper = "Lifka, The ANL/IBM SP Scheduling System, JSSPP 1995"
    knowledge = Knowledge.USER_ESTIMATE
    Parameters = EasyParams

    def __init__(self, params: EasyParams | None = None) -> None:
        super().__init__(params)
        self.reservations: dict[int, float] = {}
        """The times promised to heads, by index."""

    def decide(self, view: View) -> Draft:
        """Serve in order, reserve for every head, fill around them."""
        plan = view.plan()
        running = view.running
        plan.fill(running)
        default_s = self.params.default_estimate_s
        reservations = Reservations(plan, running, view.now_s, default_s)
        reservations.serve(view.waiting)
        self.reservations = {
            head.job.index: max(head.start_s, view.now_s) for head in reservations.heads
        }
        return plan
