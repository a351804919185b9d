"""Gavel's water filling (Narayanan et al., OSDI 2020, section 4.3): max-min fairness for everyone.

Max-min fairness only says what the worst job gets. Here the level of all jobs rises together; jobs
that no allocation can lift further keep what they have, and the others go on.

    repeat      maximise z  such that  s[i] / (v[i] P[i]) sum_j T[i, j] X[i, j] >= q[i] + z
                for every job that can still gain, those that cannot keep their level, and
                sum_i s[i] X[i, j] <= N[j],  sum_j X[i, j] <= 1,  X >= 0
    until       nobody can gain

v[i] is the weight of the job, w[i]. With `entities=fair` tenants share the cluster by their own
weights and each divides its part among its jobs: v[i] = W w[i] / sum of w over the tenant's jobs
that can still gain. With `entities=fifo` a tenant serves its jobs one after the other. Notation as
in `gavel-max-min`.

Departs from the paper: the prices of the linear programme tell who can gain, no integer programme
is needed.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np

from rota.core.jobs import Job
from rota.core.view import View
from rota.policies.gavel import PAPER
from rota.policies.gavel.fairness import Entities, water_filling
from rota.policies.rounds.problem import Array, RoundProblem
from rota.policies.rounds.share_policy import ShareParams, SharePolicy, Solve


class WaterFillingParams(ShareParams, frozen=True):
    """As of gavel-max-min (rounds and what is known), and more.

    `entities`: `none`, or tenants that divide their part (`fair`) or queue their jobs (`fifo`).
    """

    entities: Literal["none", "fair", "fifo"] = "none"


class GavelWaterFilling(SharePolicy[WaterFillingParams]):
    """Lift everyone as far as possible without hurting those below, on different GPUs."""

    name = "gavel-water-filling"
    paper = PAPER
    Parameters = WaterFillingParams

    def __init__(self, params: WaterFillingParams | None = None) -> None:
        super().__init__(params)
        self._weights: tuple[float, ...] = ()

    def ask(self, asked: RoundProblem, jobs: Sequence[Job], view: View) -> RoundProblem:
        """Who belongs to which tenant."""
        if self.params.entities == "none":
            return asked
        tenants = sorted({job.tenant for job in jobs})
        number = {tenant: place for place, tenant in enumerate(tenants)}
        self._weights = tuple(view.tenants.get(tenant).weight for tenant in tenants)
        return replace(asked, owner=np.array([number[job.tenant] for job in jobs], np.intp))

    def solver(self) -> Solve:
        """Level by level."""
        if self.params.entities == "none":
            return water_filling
        return partial(_of_entities, weights=self._weights, queued=self.params.entities == "fifo")


def _of_entities(asked: RoundProblem, *, weights: tuple[float, ...], queued: bool) -> Array:
    entities = Entities(asked.owner, weights, [queued] * len(weights))
    return water_filling(asked, entities=entities)
